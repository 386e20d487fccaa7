// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TCP sockets over the loopback, for tests. All are blocking and close-on-exec.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace xsock::test {

/// A listening socket at a port that the kernel has chosen.
class LoopbackListener {
  public:
    explicit LoopbackListener(int family = AF_INET, int backlog = 8) : family_(family) {
        fd_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address_.ss_family = static_cast<sa_family_t>(family);
        if (family == AF_INET6) {
            reinterpret_cast<sockaddr_in6&>(address_).sin6_addr = in6addr_loopback;
        } else {
            reinterpret_cast<sockaddr_in&>(address_).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        socklen_t size = sizeof address_;
        EXPECT_EQ(::bind(fd_, address(), length()), 0);
        EXPECT_EQ(::listen(fd_, backlog), 0);
        EXPECT_EQ(::getsockname(fd_, address(), &size), 0);
    }
    ~LoopbackListener() {
        if (fd_ >= 0) ::close(fd_);
    }
    LoopbackListener(const LoopbackListener&) = delete;
    LoopbackListener& operator=(const LoopbackListener&) = delete;

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] int port() const {
        return ntohs(family_ == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address_).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(address_).sin_port);
    }
    /// A connection to it; the caller's.
    [[nodiscard]] int dial() {
        const int fd = ::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(::connect(fd, address(), length()), 0);
        return fd;
    }
    [[nodiscard]] int accept() {
        const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
        EXPECT_GE(fd, 0);
        return fd;
    }

  private:
    sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }
    [[nodiscard]] socklen_t length() const {
        return family_ == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    }

    const int family_;
    int fd_ = -1;
    sockaddr_storage address_{};
};

/// Two connected sockets; the caller's.
struct LoopbackPair {
    int client = -1, server = -1;
};
inline LoopbackPair loopback_pair(int family = AF_INET) {
    LoopbackListener listener(family);
    LoopbackPair pair;
    pair.client = listener.dial();
    pair.server = listener.accept();
    return pair;
}

}  // namespace xsock::test
