// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/peer_owner.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "verbs/addresses.hpp"

namespace xsock::verbs {
namespace {

// An IPv4 address in IPv6's clothes (a dual-stack socket) as what it is.
sockaddr_storage plain(const sockaddr_storage& address) noexcept {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return address;
    sockaddr_storage to{};
    auto& v4 = reinterpret_cast<sockaddr_in&>(to);
    v4.sin_family = AF_INET;
    v4.sin_port = v6.sin6_port;
    std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
    return to;
}

sockaddr_storage mapped(const sockaddr_storage& address) noexcept {
    if (address.ss_family != AF_INET) return address;
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    sockaddr_storage to{};
    auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    const auto octets = gid_octets(reinterpret_cast<const sockaddr&>(address));
    std::memcpy(&v6.sin6_addr, octets.data(), octets.size());
    return to;
}

struct FdCloser {
    int fd;
    ~FdCloser() {
        if (fd >= 0) close(fd);
    }
};

void put(const sockaddr_storage& address, __be16& port, __be32* words) noexcept {
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        port = v4.sin_port;
        std::memcpy(words, &v4.sin_addr, 4);
    } else {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        port = v6.sin6_port;
        std::memcpy(words, &v6.sin6_addr, 16);
    }
}

// A socket that its process has closed is root's by what the kernel says, and has no inode; what
// was sent on it may still come.
bool has_owner(unsigned long inode) noexcept { return inode != 0; }

// The kernel looks up one socket by its four numbers. False: it knows none, or does not say.
bool ask_kernel(const sockaddr_storage& peer, const sockaddr_storage& own, uid_t& owner) noexcept {
    const FdCloser netlink{socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
    if (netlink.fd < 0) return false;
    struct {
        nlmsghdr header;
        inet_diag_req_v2 request;
    } message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST;
    message.request.sdiag_family = static_cast<__u8>(peer.ss_family);
    message.request.sdiag_protocol = IPPROTO_TCP;
    message.request.idiag_states = ~0u;
    put(peer, message.request.id.idiag_sport, message.request.id.idiag_src);
    put(own, message.request.id.idiag_dport, message.request.id.idiag_dst);
    message.request.id.idiag_cookie[0] = message.request.id.idiag_cookie[1] =
        static_cast<__u32>(INET_DIAG_NOCOOKIE);
    if (send(netlink.fd, &message, sizeof message, 0) != sizeof message) return false;
    alignas(nlmsghdr) std::array<char, 4096> answer{};
    const ssize_t n = recv(netlink.fd, answer.data(), answer.size(), 0);
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (n < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(inet_diag_msg)) ||
        header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
        return false;
    }
    inet_diag_msg found{};
    std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
    if (!has_owner(found.idiag_inode)) return false;
    owner = found.idiag_uid;
    return true;
}

// "0100007F:1F90", as /proc/net/tcp has it.
void text_in_proc(const sockaddr_storage& address, char* to, std::size_t size) noexcept {
    __be16 port = 0;
    __be32 words[4] = {};
    put(address, port, words);
    if (address.ss_family == AF_INET) {
        std::snprintf(to, size, "%08X:%04X", words[0], ntohs(port));
    } else {
        std::snprintf(to, size, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
                      ntohs(port));
    }
}

std::optional<uid_t> ask_proc(const sockaddr_storage& peer, const sockaddr_storage& own) noexcept {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(
        fopen(peer.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re"), &fclose);
    if (file == nullptr) return std::nullopt;
    char local[64], remote[64], line[512];
    text_in_proc(peer, local, sizeof local);
    text_in_proc(own, remote, sizeof remote);
    while (fgets(line, sizeof line, file.get()) != nullptr) {
        char here[64], there[64];
        unsigned owner = 0;
        unsigned long inode = 0;
        // sl local remote st queues timer retransmissions uid timeout inode
        if (std::sscanf(line, "%*s %63s %63s %*s %*s %*s %*s %u %*s %lu", here, there, &owner,
                        &inode) == 4 &&
            std::strcmp(here, local) == 0 && std::strcmp(there, remote) == 0) {
            return has_owner(inode) ? std::optional<uid_t>(owner) : std::nullopt;
        }
    }
    return std::nullopt;
}

bool is_local(const sockaddr_storage& address, const sockaddr_storage& own) {
    const auto wanted = gid_octets(reinterpret_cast<const sockaddr&>(address));
    if (gid_octets(reinterpret_cast<const sockaddr&>(own)) == wanted) return true;
    if (address.ss_family == AF_INET && wanted[12] == 127) return true;
    for (const LocalAddress& local : interface_addresses()) {
        if (gid_octets(reinterpret_cast<const sockaddr&>(local.address)) == wanted) return true;
    }
    return false;
}

}  // namespace

std::optional<uid_t> owner_of_socket(const sockaddr_storage& peer,
                                     const sockaddr_storage& own) noexcept {
    // Its socket may be a dual-stack one.
    const std::array<std::pair<sockaddr_storage, sockaddr_storage>, 2> forms{
        {{peer, own}, {mapped(peer), mapped(own)}}};
    uid_t owner = 0;
    for (const auto& [there, here] : forms) {
        if (ask_kernel(there, here, owner)) return owner;
    }
    // A kernel without that says "not found" like one that knows no such socket.
    for (const auto& [there, here] : forms) {
        if (const auto known = ask_proc(there, here)) return known;
    }
    return std::nullopt;
}

PeerPlace place_of_peer(int fd) noexcept {
    sockaddr_storage peer{}, own{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return PeerPlace::others;
    size = sizeof own;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return PeerPlace::others;
    peer = plain(peer);
    own = plain(own);
    try {
        if (!is_local(peer, own)) return PeerPlace::elsewhere;
    } catch (...) {
        return PeerPlace::others;  // no memory
    }
    const auto owner = owner_of_socket(peer, own);
    return owner && (*owner == geteuid() || *owner == 0) ? PeerPlace::ours : PeerPlace::others;
}

}  // namespace xsock::verbs
