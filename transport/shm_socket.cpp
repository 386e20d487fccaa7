// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "transport/descriptors.hpp"

namespace xsock::shm_socket {
namespace {

constexpr std::string_view kName = "xsock-shm-1-";
constexpr uid_t kUnmapped = 65534;

// A NUL, the name, and the key; no NUL at its end.
struct Address {
    explicit Address(const shm::Key& key) noexcept {
        const auto text = shm::text_of(key);
        char* at = std::copy(kName.begin(), kName.end(), raw.sun_path + 1);
        at = std::copy(text.begin(), text.end() - 1, at);
        length = static_cast<socklen_t>(at - reinterpret_cast<char*>(&raw));
    }
    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&raw);
    }
    sockaddr_un raw{AF_UNIX, {}};
    socklen_t length;
};

Error closing(int fd, const char* what) noexcept {
    const Error error{errno, what};
    close_internal_fd(fd);
    return error;
}

// Room for more than one, so that more than one are seen.
struct Control {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> bytes;
};

// All that came, registered; closes them unless it is one.
int take_descriptor(msghdr& message) noexcept {
    int count = 0, taken = -1;
    const auto take = [&](int fd) {
        ++count;
        if (count == 1) {
            register_internal_fd(taken = fd);
        } else {
            ::close(fd);
        }
    };
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t bytes = c->cmsg_len - CMSG_LEN(0);
        for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            take(fd);
        }
    }
    const bool one = count == 1 && (message.msg_flags & MSG_CTRUNC) == 0;
    if (one || taken < 0) return taken;
    close_internal_fd(taken);
    return -1;
}

}  // namespace

Result<int> open() noexcept {
    const DescriptorChange change;
    const int fd =
        move_and_register(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) return Error{errno, "no local socket can be made"};
    return fd;
}

Result<int> listen_at(const shm::Key& key) noexcept {
    auto fd = open();
    if (!fd) return fd;
    const Address address(key);
    if (::bind(*fd, address.get(), address.length) != 0 || ::listen(*fd, kBacklog) != 0) {
        return closing(*fd, "no local socket can listen");
    }
    return fd;
}

Result<int> accept_from(int listening) noexcept {
    const DescriptorChange change;
    const int fd =
        move_and_register(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0) return Error{errno, "no local connection was accepted"};
    return fd;
}

Result<int> connect_to(const shm::Key& key) noexcept {
    auto fd = open();
    if (!fd) return fd;
    const Address address(key);
    if (::connect(*fd, address.get(), address.length) != 0) {
        return closing(*fd, "the other process cannot be reached");
    }
    return fd;
}

bool is_peer_permitted(int fd, std::span<const uid_t> users) noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid == kUnmapped) {
        return false;
    }
    return peer.uid == ::geteuid() ||
           std::find(users.begin(), users.end(), peer.uid) != users.end();
}

shm::Reason reason_of(const Error& error) noexcept {
    switch (error.code) {
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case ENOBUFS:
        case ENOSPC:
        case EAGAIN:
        case ETOOMANYREFS:
            return shm::Reason::limits;
        case EPIPE:
        case ECONNRESET:  // it was closed without an answer
            return shm::Reason::user;
        default:
            return shm::Reason::unreachable;
    }
}

Result<void> send(int fd, ConstBytes datagram, int descriptor) noexcept {
    iovec data{const_cast<std::byte*>(datagram.data()), datagram.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
    if (descriptor >= 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    while (::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno != EINTR) return Error{errno, "nothing can be sent to the other process"};
    }
    return {};
}

Result<Received> receive(int fd, Bytes datagram) noexcept {
    iovec data{datagram.data(), datagram.size()};
    Control control;
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    const DescriptorChange change;
    for (;;) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = control.bytes.size();
        const ssize_t bytes = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return Error{errno, "nothing can be received from the other process"};
        return Received{static_cast<std::size_t>(bytes), take_descriptor(message)};
    }
}

}  // namespace xsock::shm_socket
