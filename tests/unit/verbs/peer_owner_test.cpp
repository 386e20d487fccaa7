// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections over loopback to sockets of this user, of another one, and of nobody any more.
#include "verbs/peer_owner.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

namespace xsock::verbs {
namespace {

constexpr uid_t kOther = 65533;

sockaddr_storage loopback(int family, in_port_t port) {
    sockaddr_storage to{};
    to.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(to);
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        v4.sin_port = port;
    } else {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
        v6.sin6_addr = in6addr_loopback;
        v6.sin6_port = port;
    }
    return to;
}

socklen_t size_of(int family) {
    return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

/// A descriptor that is closed at the end.
class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { close(); }
    [[nodiscard]] int fd() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

  private:
    int fd_;
};

/// A listener on loopback; its address in `at`.
Socket listener(int family, sockaddr_storage& at) {
    Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    at = loopback(family, 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(made.fd(), reinterpret_cast<sockaddr*>(&at), size_of(family)), 0);
    EXPECT_EQ(listen(made.fd(), 4), 0);
    EXPECT_EQ(getsockname(made.fd(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    return made;
}

Socket connected(int family, const sockaddr_storage& to) {
    Socket made(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(made.fd(), reinterpret_cast<const sockaddr*>(&to), size_of(family)), 0);
    return made;
}

Socket accepted(const Socket& from) { return Socket(accept4(from.fd(), nullptr, nullptr, 0)); }

/// In a process of its own; the exit status is what `body` answers.
int in_child(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool refuse_netlink() {
    std::array<sock_filter, 6> filter{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class PeerOwner : public ::testing::TestWithParam<int> {};

TEST_P(PeerOwner, is_this_user) {
    sockaddr_storage at{};
    const Socket from = listener(GetParam(), at);
    const Socket client = connected(GetParam(), at);
    const Socket server = accepted(from);
    EXPECT_EQ(place_of_peer(server.fd()), PeerPlace::ours);
    EXPECT_EQ(place_of_peer(client.fd()), PeerPlace::ours);
}

TEST_P(PeerOwner, is_found_in_proc_without_netlink) {
    sockaddr_storage at{};
    const Socket from = listener(GetParam(), at);
    const Socket client = connected(GetParam(), at);
    const Socket server = accepted(from);
    EXPECT_EQ(in_child([&] {
                  if (!refuse_netlink()) return 2;
                  return place_of_peer(server.fd()) == PeerPlace::ours ? 0 : 1;
              }),
              0);
}

TEST_P(PeerOwner, is_nobody_once_the_socket_is_closed) {
    sockaddr_storage at{};
    const Socket from = listener(GetParam(), at);
    Socket client = connected(GetParam(), at);
    const Socket server = accepted(from);
    client.close();  // its end waits for ours, without an owner: the kernel says root
    EXPECT_EQ(place_of_peer(server.fd()), PeerPlace::others);
    EXPECT_EQ(in_child([&] {
                  if (!refuse_netlink()) return 2;
                  return place_of_peer(server.fd()) == PeerPlace::others ? 0 : 1;
              }),
              0);
}

TEST_P(PeerOwner, is_another_user) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    sockaddr_storage at{};
    const Socket from = listener(GetParam(), at);
    // Accepted before the child ends, which waits for that.
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        ::close(pipe[1]);
        if (setresuid(kOther, kOther, kOther) != 0) _exit(1);
        const Socket client = connected(GetParam(), at);
        char octet = 0;
        _exit(read(pipe[0], &octet, 1) == 0 ? 0 : 1);
    }
    ::close(pipe[0]);
    const Socket server = accepted(from);
    EXPECT_EQ(place_of_peer(server.fd()), PeerPlace::others);
    EXPECT_EQ(in_child([&] {
                  if (!refuse_netlink()) return 2;
                  return place_of_peer(server.fd()) == PeerPlace::others ? 0 : 1;
              }),
              0);
    ::close(pipe[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_P(PeerOwner, is_nobody_of_a_connection_that_is_not_there) {
    const sockaddr_storage peer = loopback(GetParam(), htons(1)),
                           own = loopback(GetParam(), htons(2));
    EXPECT_FALSE(owner_of_socket(peer, own).has_value());
}

INSTANTIATE_TEST_SUITE_P(Families, PeerOwner, ::testing::Values(AF_INET, AF_INET6),
                         [](const auto& of) { return of.param == AF_INET ? "v4" : "v6"; });

// The server's socket is IPv4 alone, the client's takes both.
TEST(PeerOwnerDual, has_an_ipv4_address_in_ipv6s_form) {
    sockaddr_storage at{};
    const Socket from = listener(AF_INET, at);
    sockaddr_storage to{};
    auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = reinterpret_cast<const sockaddr_in&>(at).sin_port;
    v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
    v6.sin6_addr.s6_addr[12] = 127;
    v6.sin6_addr.s6_addr[15] = 1;
    const Socket client = connected(AF_INET6, to);
    const Socket server = accepted(from);
    EXPECT_EQ(place_of_peer(server.fd()), PeerPlace::ours);
    EXPECT_EQ(place_of_peer(client.fd()), PeerPlace::ours);
}

}  // namespace
}  // namespace xsock::verbs
