// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the overlay does with a descriptor, for tests at the ABI table: asks the engine, and
// follows its answers PASS and PLAIN.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libxsock/engine/engine_table.h"
#include "tests/support/pattern.hpp"

namespace xsock::test {

inline const xsock_engine& engine() { return *xsock_engine_table(); }

class Sock {
  public:
    Sock() = default;
    explicit Sock(int fd, xsock_socket* handle = nullptr) : fd_(fd), handle_(handle) {}
    Sock(Sock&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), handle_(std::exchange(other.handle_, nullptr)) {}
    Sock& operator=(Sock&& other) noexcept {
        close();
        fd_ = std::exchange(other.fd_, -1);
        handle_ = std::exchange(other.handle_, nullptr);
        return *this;
    }
    ~Sock() { close(); }

    static Sock fresh(int family = AF_INET) {
        return Sock(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
        drop();
    }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] xsock_socket* handle() const { return handle_; }
    [[nodiscard]] bool plain() const { return handle_ == nullptr; }

    int set(int name, int value, int hint = XSOCK_HINT_NONE) {
        return set(SOL_XSOCK, name, &value, sizeof value, hint);
    }
    int set(int level, int name, const void* value, socklen_t size, int hint = XSOCK_HINT_NONE) {
        if (handle_ == nullptr && level == SOL_XSOCK) {
            handle_ = engine().socket_open(fd_, hint);
            if (handle_ == nullptr) return -1;
        }
        return static_cast<int>(follow(
            [&] { return engine().socket_setsockopt(handle_, fd_, level, name, value, size); },
            [&] { return level == SOL_XSOCK ? 0 : ::setsockopt(fd_, level, name, value, size); }));
    }
    int get(int name) {
        int value = -1;
        socklen_t size = sizeof value;
        return get(SOL_XSOCK, name, &value, &size) == 0 ? value : -1;
    }
    int get(int level, int name, void* value, socklen_t* size) {
        return static_cast<int>(follow(
            [&] { return engine().socket_getsockopt(handle_, fd_, level, name, value, size); },
            [&] { return ::getsockopt(fd_, level, name, value, size); }));
    }
    xsock_status status() {
        XSOCK_INIT(xsock_status, status);
        socklen_t size = sizeof status;
        EXPECT_EQ(get(SOL_XSOCK, DDPSTATUS, &status, &size), 0) << strerror(errno);
        return status;
    }
    int error() {
        int value = -1;
        socklen_t size = sizeof value;
        return get(SOL_SOCKET, SO_ERROR, &value, &size) == 0 ? value : -1;
    }
    void timeout(int name, int ms) {
        const timeval value{ms / 1000, ms % 1000 * 1000};
        EXPECT_EQ(set(SOL_SOCKET, name, &value, sizeof value), 0);
    }
    void nonblocking(bool on = true) {
        const int flags = fcntl(F_GETFL, 0);
        EXPECT_EQ(fcntl(F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
    }
    int fcntl(int command, long argument) {
        return static_cast<int>(
            follow([&] { return engine().socket_fcntl(handle_, fd_, command, argument); },
                   [&] { return ::fcntl(fd_, command, argument); }));
    }
    int readable_bytes() {
        int n = -1;
        follow([&] { return engine().socket_ioctl(handle_, fd_, FIONREAD, &n); },
               [&] { return ::ioctl(fd_, FIONREAD, &n); });
        return n;
    }
    int bind_and_listen(int backlog = 16) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
        return static_cast<int>(
            follow([&] { return engine().socket_listen(handle_, fd_, backlog); },
                   [&] { return ::listen(fd_, backlog); }));
    }
    [[nodiscard]] int port() const {
        sockaddr_in address{};
        socklen_t size = sizeof address;
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
        return ntohs(address.sin_port);
    }
    int connect(int port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        const auto* to = reinterpret_cast<const sockaddr*>(&address);
        return static_cast<int>(
            follow([&] { return engine().socket_connect(handle_, fd_, to, sizeof address); },
                   [&] { return ::connect(fd_, to, sizeof address); }));
    }
    Sock accept(int flags = 0) {
        xsock_socket* accepted = nullptr;
        const long fd = follow(
            [&] {
                return engine().socket_accept(handle_, fd_, nullptr, nullptr, flags, &accepted);
            },
            [&] { return ::accept4(fd_, nullptr, nullptr, flags); });
        return Sock(static_cast<int>(fd), accepted);
    }
    int shutdown(int how) {
        return static_cast<int>(follow([&] { return engine().socket_shutdown(handle_, fd_, how); },
                                       [&] { return ::shutdown(fd_, how); }));
    }
    ssize_t send(const void* buffer, std::size_t size, int flags = MSG_NOSIGNAL) {
        return follow([&] { return engine().socket_send(handle_, fd_, buffer, size, flags); },
                      [&] { return ::send(fd_, buffer, size, flags); });
    }
    ssize_t send(const std::string& text, int flags = MSG_NOSIGNAL) {
        return send(text.data(), text.size(), flags);
    }
    ssize_t recv(void* buffer, std::size_t size, int flags = 0) {
        return follow([&] { return engine().socket_recv(handle_, fd_, buffer, size, flags); },
                      [&] { return ::recv(fd_, buffer, size, flags); });
    }
    /// The next message as text; "!" and the error's name when there is none.
    std::string recv(int flags = 0) {
        std::string text(1 << 20, '\0');
        const ssize_t n = recv(text.data(), text.size(), flags);
        if (n < 0) return std::string("!") + strerrorname_np(errno);
        text.resize(static_cast<std::size_t>(n));
        return text;
    }
    ssize_t recvmsg(msghdr& message, int flags = 0) {
        return follow([&] { return engine().socket_recvmsg(handle_, fd_, &message, flags); },
                      [&] { return ::recvmsg(fd_, &message, flags); });
    }
    ssize_t sendmsg(const msghdr& message, int flags = MSG_NOSIGNAL) {
        return follow([&] { return engine().socket_sendmsg(handle_, fd_, &message, flags); },
                      [&] { return ::sendmsg(fd_, &message, flags); });
    }

  private:
    void drop() {
        if (handle_ != nullptr) engine().socket_unref(std::exchange(handle_, nullptr), -1);
    }
    template <typename Engine, typename Libc>
    long follow(Engine&& ask, Libc&& libc) {
        if (handle_ != nullptr) {
            const long answer = ask();
            if (answer == XSOCK_PLAIN) drop();
            if (answer != XSOCK_PASS && answer != XSOCK_PLAIN) return answer;
        }
        return libc();
    }

    int fd_ = -1;
    xsock_socket* handle_ = nullptr;
};

/// Calls `done` until it is true, or too long has passed.
inline bool soon(const std::function<bool()>& done, int limit_ms = 20'000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

/// A listening socket in message mode.
inline Sock listening(bool require = false, const std::function<void(Sock&)>& adjust = {}) {
    Sock s = Sock::fresh();
    EXPECT_EQ(s.set(DDPMODE, DDPMODE_MESSAGE), 0) << strerror(errno);
    if (require) {
        EXPECT_EQ(s.set(DDPREQUIRE, 1), 0);
    }
    if (adjust) adjust(s);
    EXPECT_EQ(s.bind_and_listen(), 0) << strerror(errno);
    return s;
}

/// A listening socket of plain TCP.
inline Sock plain_listener() {
    Sock s = Sock::fresh();
    EXPECT_EQ(s.bind_and_listen(), 0) << strerror(errno);
    return s;
}

/// A port at which nothing listens.
inline int unused_port() { return plain_listener().port(); }

/// Two connected sockets in message mode.
struct SockPair {
    Sock client, server;
    explicit SockPair(const std::function<void(Sock& socket, bool is_client)>& adjust = {},
                      bool require = true) {
        Sock listener = listening(require, [&](Sock& s) {
            if (adjust) adjust(s, false);
        });
        client = Sock::fresh();
        EXPECT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
        if (adjust) adjust(client, true);
        if (require) {
            std::thread peer([&] { server = listener.accept(); });
            EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
            peer.join();
            EXPECT_GE(server.fd(), 0);
        } else {
            std::thread peer([&] {
                server = listener.accept();
                // The first peek decides; nothing is there yet.
                EXPECT_EQ(server.recv(MSG_DONTWAIT), "!EAGAIN");
                EXPECT_TRUE(soon([&] {
                    server.recv(MSG_DONTWAIT);
                    return server.status().state == XSOCK_STATUS_OPEN;
                }));
            });
            EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
            peer.join();
        }
    }
};

inline std::string text_of(std::size_t n, unsigned seed = 1) {
    return pattern_of<std::string>(n, seed);
}

}  // namespace xsock::test
