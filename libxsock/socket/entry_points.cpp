// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of socket_table.h: from the thin layer's handles to sockets in DDPMODE. Shapes of
// the libc calls are taken apart here; what they mean is the socket's.
#include <sys/socket.h>

#include <cstring>
#include <optional>

#include "base/fault.hpp"
#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"
#include "libxsock/poll/handle.hpp"
#include "libxsock/socket/handed_on.hpp"
#include "libxsock/socket/socket.hpp"
#include "transport/at_rest.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/kernel_unpinned.hpp"
#include "transport/plain_sockets.hpp"

namespace xsock::api {

using sockets::IovSpan;
using sockets::Socket;

namespace {

ssize_t send_message(Socket& socket, int fd, const msghdr& message, int flags) {
    IovSpan iovs;
    if (const int error = iovs.assign(message); error != 0) return fail(error);
    return socket.send(fd, iovs, flags);
}

ssize_t receive_message(Socket& socket, int fd, msghdr& message, int flags) {
    IovSpan iovs;
    if (const int error = iovs.assign(message); error != 0) return fail(error);
    int out_flags = 0;
    const ssize_t n = socket.receive(fd, iovs, flags, out_flags);
    if (n >= 0) {
        message.msg_flags = out_flags;
        message.msg_namelen = 0;
        message.msg_controllen = 0;
    }
    return n;
}

// How long from now a time limit of recvmmsg() lasts; nothing when it is malformed.
std::optional<Time> limit_of(const timespec& t) noexcept {
    if (t.tv_sec < 0 || t.tv_nsec < 0 || t.tv_nsec >= 1'000'000'000) return std::nullopt;
    const auto seconds = static_cast<Time>(t.tv_sec);
    if (seconds > kNever / kSecond - 1) return kNever;
    return seconds * kSecond + static_cast<Time>(t.tv_nsec);
}

// Some messages of several went: that is the answer, and what ended the connection is told next.
int kept_for_later(Socket& socket, unsigned done) noexcept {
    socket.keep_error(errno);
    return static_cast<int>(done);
}

}  // namespace

xsock_socket* socket_open(int fd, int hint) noexcept {
    return guarded<xsock_socket*>(nullptr, [&]() -> xsock_socket* {
        auto socket = Socket::open(fd, hint);
        if (socket) return *socket;
        errno = socket.error().code;
        return nullptr;
    });
}

void socket_ref(xsock_socket* handle) noexcept { Socket::of(handle)->ref(); }

void socket_unref(xsock_socket* handle, int) noexcept {
    const int saved = errno;
    guarded(0, [&] {
        Socket::of(handle)->unref();
        return 0;
    });
    errno = saved;
}

void socket_closing(xsock_socket* handle, int fd, int may_be_shared) noexcept {
    guarded(0, [&] {
        Socket::of(handle)->closing(fd, may_be_shared != 0);
        return 0;
    });
}

int socket_setsockopt(xsock_socket* handle, int fd, int level, int name, const void* value,
                      socklen_t length) noexcept {
    return guarded(-1,
                   [&] { return Socket::of(handle)->set_option(fd, level, name, value, length); });
}

int socket_getsockopt(xsock_socket* handle, int fd, int level, int name, void* value,
                      socklen_t* length) noexcept {
    return guarded(-1,
                   [&] { return Socket::of(handle)->get_option(fd, level, name, value, length); });
}

int socket_connect(xsock_socket* handle, int fd, const sockaddr* address,
                   socklen_t length) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->connect(fd, address, length); });
}

int socket_listen(xsock_socket* handle, int fd, int backlog) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->listen(fd, backlog); });
}

int socket_accept(xsock_socket* handle, int fd, sockaddr* address, socklen_t* length, int flags,
                  xsock_socket** accepted) noexcept {
    return guarded(
        -1, [&] { return Socket::of(handle)->accept(fd, address, length, flags, accepted); });
}

int socket_accept_waits(xsock_socket* handle, int fd) noexcept {
    return Socket::of(handle)->accept_waits(fd) ? 1 : 0;
}

int socket_keep_accepted(xsock_socket* handle, int taken, int flags,
                         xsock_socket** accepted) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->keep_accepted(taken, flags, accepted); });
}

int socket_shutdown(xsock_socket* handle, int fd, int how) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->shutdown(fd, how); });
}

ssize_t socket_send(xsock_socket* handle, int fd, const void* buffer, size_t length,
                    int flags) noexcept {
    return guarded<ssize_t>(-1, [&]() -> ssize_t {
        const iovec iov{const_cast<void*>(buffer), length};
        return Socket::of(handle)->send(fd, IovSpan{&iov, 1, length}, flags);
    });
}

int socket_append(xsock_socket* handle, const void* buffer, size_t length) noexcept {
    const iovec iov{const_cast<void*>(buffer), length};
    return Socket::of(handle)->append(IovSpan{&iov, 1, length}) ? 1 : 0;
}

ssize_t socket_recv(xsock_socket* handle, int fd, void* buffer, size_t length, int flags) noexcept {
    return guarded<ssize_t>(-1, [&]() -> ssize_t {
        const iovec iov{buffer, length};
        int out_flags = 0;
        return Socket::of(handle)->receive(fd, IovSpan{&iov, 1, length}, flags, out_flags);
    });
}

ssize_t socket_sendmsg(xsock_socket* handle, int fd, const msghdr* message, int flags) noexcept {
    if (message == nullptr) return fail(EFAULT);
    return guarded<ssize_t>(-1,
                            [&] { return send_message(*Socket::of(handle), fd, *message, flags); });
}

ssize_t socket_recvmsg(xsock_socket* handle, int fd, msghdr* message, int flags) noexcept {
    if (message == nullptr) return fail(EFAULT);
    return guarded<ssize_t>(
        -1, [&] { return receive_message(*Socket::of(handle), fd, *message, flags); });
}

int socket_sendmmsg(xsock_socket* handle, int fd, mmsghdr* messages, unsigned count,
                    int flags) noexcept {
    if (messages == nullptr && count > 0) return fail(EFAULT);
    return guarded(-1, [&] {
        for (unsigned i = 0; i < count; ++i) {
            const ssize_t n = send_message(*Socket::of(handle), fd, messages[i].msg_hdr, flags);
            if (n < 0 && i > 0) return kept_for_later(*Socket::of(handle), i);
            if (n < 0) return static_cast<int>(n);
            messages[i].msg_len = static_cast<unsigned>(n);
        }
        return static_cast<int>(count);
    });
}

int socket_recvmmsg(xsock_socket* handle, int fd, mmsghdr* messages, unsigned count, int flags,
                    timespec* timeout) noexcept {
    if (messages == nullptr && count > 0) return fail(EFAULT);
    return guarded(-1, [&] {
        // As the kernel: the limit is checked between messages only, and what is left of it is
        // written back behind each.
        timespec given{};
        if (timeout != nullptr && socket_copy(&given, timeout, sizeof given) != 0) return -1;
        const auto limit = timeout != nullptr ? limit_of(given) : kNever;
        if (!limit) return fail(EINVAL);
        const Time begin = monotonic_now();
        unsigned done = 0;
        while (done < count) {
            const int wanted = flags & ~MSG_WAITFORONE;
            const ssize_t n =
                receive_message(*Socket::of(handle), fd, messages[done].msg_hdr, wanted);
            if (n < 0 && done > 0) return kept_for_later(*Socket::of(handle), done);
            if (n < 0) return static_cast<int>(n);
            messages[done].msg_len = static_cast<unsigned>(n);
            // The end is the last message that there is. (Of bytes it fills the others, as TCP.)
            const bool end = n == 0 && !Socket::of(handle)->carries_bytes() &&
                             (messages[done].msg_hdr.msg_flags & MSG_EOR) == 0;
            ++done;
            if (*limit != kNever) {
                const Time spent = monotonic_now() - begin;
                const Time ns = *limit > spent ? *limit - spent : 0;
                const timespec left{static_cast<time_t>(ns / kSecond),
                                    static_cast<long>(ns % kSecond)};
                if (socket_copy(timeout, &left, sizeof left) != 0) return -1;
                if (ns == 0) break;
            }
            if (end) break;
            if ((flags & MSG_WAITFORONE) != 0) flags |= MSG_DONTWAIT;
        }
        return static_cast<int>(done);
    });
}

int socket_fcntl(xsock_socket* handle, int fd, int command, long argument) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->fcntl(fd, command, argument); });
}

int socket_ioctl(xsock_socket* handle, int fd, unsigned long request, void* argument) noexcept {
    return guarded(-1, [&] { return Socket::of(handle)->ioctl(fd, request, argument); });
}

int socket_no_stream(xsock_socket* handle, int fd, int writing) noexcept {
    return guarded(-1, [&] {
        return Socket::of(handle)->no_stream(fd, writing != 0, writing == XSOCK_WRITING_PARTS);
    });
}

void socket_keep_error(xsock_socket* handle, int error) noexcept {
    Socket::of(handle)->keep_error(error);
}

xsock_ep* socket_endpoint(xsock_socket* handle, int, xsock_cq* send_cq,
                          xsock_cq* recv_cq) noexcept {
    return guarded<xsock_ep*>(nullptr,
                              [&] { return Socket::of(handle)->endpoint(send_cq, recv_cq); });
}

const char* socket_mode_text(xsock_socket* handle) noexcept {
    return Socket::of(handle)->mode_text();
}

const char* socket_stack_text(xsock_socket* handle) noexcept {
    return Socket::of(handle)->stack_text();
}

int socket_owns(int fd) noexcept { return is_internal_fd(fd) ? 1 : 0; }

int socket_foreign(int fd) noexcept { return is_program_fd(fd) ? 1 : 0; }

int socket_inactive_fd() noexcept {
    Result<int> fd = open_inactive_descriptor();
    return fd ? *fd : fail(fd.error().code);
}

int socket_started(xsock_socket* handle) noexcept { return Socket::of(handle)->started(); }

void socket_refuse(xsock_socket* handle, int fd) noexcept { Socket::of(handle)->refuse(fd); }

unsigned long socket_refused() noexcept { return sockets::refused_uses(); }

unsigned long socket_unpinned(int reason, const char** name) noexcept {
    const bool known = reason >= 0 && reason < static_cast<int>(kernel::kUnpinnedReasons);
    const auto one = static_cast<kernel::Unpinned>(reason);
    *name = known ? kernel::name_of(one) : nullptr;
    return known ? static_cast<unsigned long>(unpinned_regions(one)) : 0;
}

int socket_copy(void* to, const void* from, size_t length) noexcept {
    // In a signal handler: what the interrupted copy has named stays named.
    const fault::Range read = fault::touched_ranges[0], written = fault::touched_ranges[1];
    const bool there = fault::guard([&] {
        const fault::Touch reading(0, from, length);
        const fault::Touch writing(1, to, length);
        std::memcpy(to, from, length);
    });
    fault::touched_ranges[0] = read;
    fault::touched_ranges[1] = written;
    return there ? 0 : fail(EFAULT);
}

void socket_drain(int timeout_ms) noexcept {
    sockets::ListenerEntry::withdraw_all();
    runtime::flush(timeout_ms);
}

void socket_exit() noexcept {
    runtime::drain();
    remove_stats_page();
}

void socket_note_plain(xsock_socket* sock, int fd) noexcept { Socket::of(sock)->note_plain(fd); }

void socket_on_rest(int (*rest)(int)) noexcept { set_rest_hook(rest); }

void socket_forked() noexcept { detect_fork(); }

}  // namespace xsock::api

xsock::readiness::Source* xsock::readiness::source_of(xsock_socket* handle) noexcept {
    return xsock::sockets::Socket::of(handle);
}
