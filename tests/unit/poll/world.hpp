// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The same program run twice: once on plain TCP sockets and the kernel's epoll and poll, once on
// Sources and ours. What the first one sees is what the second one must see.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/epoch.hpp"
#include "libxsock/poll/epoll_set.hpp"
#include "libxsock/poll/poll.hpp"
#include "libxsock/poll/select.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/poll/tcp_source.hpp"

namespace xsock::readiness {

/// A connected pair over loopback: the program's end and the peer's, both non-blocking, with small
/// buffers.
inline std::pair<int, int> tcp_pair() {
    const auto [peer, ours] = test::loopback_pair();
    for (const int fd : {peer, ours}) {
        const int on = 1, small = 16384;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return {ours, peer};
}

/// A Progress that callers poll, for the tests' Sources.
inline Progress& test_progress() {
    static Progress& progress = [&]() -> Progress& {
        TransportConfig config;
        config.progress = ProgressMode::app;
        static Epochs epochs;
        auto made = Progress::create(epochs, config, 0);
        EXPECT_TRUE(made);
        return *made->release();
    }();
    return progress;
}

class World {
  public:
    virtual ~World() {
        for (const int fd : peers) {
            if (fd >= 0) ::close(fd);
        }
    }
    virtual std::size_t connect() = 0;
    virtual int ctl(int op, std::size_t which, std::uint32_t events, std::uint64_t data) = 0;
    virtual std::vector<epoll_event> wait(int max, int timeout_ms) = 0;
    virtual int poll(std::vector<pollfd>& fds, int timeout_ms) = 0;
    virtual int select(int nfds, fd_set* r, fd_set* w, fd_set* x, int timeout_ms) = 0;
    virtual ssize_t recv(std::size_t which, std::size_t n) = 0;
    virtual ssize_t send(std::size_t which, const std::string& bytes) = 0;
    virtual void finish(std::size_t which) = 0;  // shutdown(SHUT_WR)
    virtual void close(std::size_t which) = 0;
    virtual int fd(std::size_t which) = 0;

    // The peer, plain TCP in both worlds.
    void peer_send(std::size_t which, std::size_t n) {
        const std::string bytes(n, 'p');
        EXPECT_EQ(::send(peers[which], bytes.data(), n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
    }
    void peer_finish(std::size_t which) { ::shutdown(peers[which], SHUT_WR); }
    void peer_reset(std::size_t which) {
        const linger hard{1, 0};
        setsockopt(peers[which], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        ::close(peers[which]);
        peers[which] = -1;
    }
    void peer_drain(std::size_t which) {
        char bytes[65536];
        for (int quiet = 0; quiet < 20;) {
            if (::recv(peers[which], bytes, sizeof bytes, 0) > 0) {
                quiet = 0;
            } else {
                ++quiet;
                usleep(2000);
            }
        }
    }
    void fill(std::size_t which) {
        const std::string bytes(4096, 'f');
        // TCP may take a little more once its timers have run.
        for (int quiet = 0; quiet < 3;) {
            if (send(which, bytes) > 0) {
                quiet = 0;
            } else {
                ++quiet;
                usleep(5000);
            }
        }
    }

    std::vector<int> peers;
};

class KernelWorld final : public World {
  public:
    ~KernelWorld() override {
        for (const int fd : fds_) {
            if (fd >= 0) ::close(fd);
        }
        ::close(epfd_);
    }
    std::size_t connect() override {
        const auto [ours, peer] = tcp_pair();
        fds_.push_back(ours);
        peers.push_back(peer);
        return fds_.size() - 1;
    }
    int ctl(int op, std::size_t which, std::uint32_t events, std::uint64_t data) override {
        epoll_event event{};
        event.events = events;
        event.data.u64 = data;
        return epoll_ctl(epfd_, op, fds_[which], &event) == 0 ? 0 : -errno;
    }
    std::vector<epoll_event> wait(int max, int timeout_ms) override {
        std::vector<epoll_event> out(static_cast<std::size_t>(max));
        const int n = epoll_wait(epfd_, out.data(), max, timeout_ms);
        out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        return out;
    }
    int poll(std::vector<pollfd>& fds, int timeout_ms) override {
        return ::poll(fds.data(), fds.size(), timeout_ms);
    }
    int select(int nfds, fd_set* r, fd_set* w, fd_set* x, int timeout_ms) override {
        timeval limit{timeout_ms / 1000, timeout_ms % 1000 * 1000};
        const int n = ::select(nfds, r, w, x, &limit);
        return n < 0 ? -errno : n;
    }
    ssize_t recv(std::size_t which, std::size_t n) override {
        std::string bytes(n, '\0');
        return ::recv(fds_[which], bytes.data(), n, 0);
    }
    ssize_t send(std::size_t which, const std::string& bytes) override {
        return ::send(fds_[which], bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    void finish(std::size_t which) override { ::shutdown(fds_[which], SHUT_WR); }
    void close(std::size_t which) override { ::close(std::exchange(fds_[which], -1)); }
    int fd(std::size_t which) override { return fds_[which]; }

  private:
    const int epfd_ = epoll_create1(EPOLL_CLOEXEC);
    std::vector<int> fds_;
};

class EngineWorld final : public World {
  public:
    EngineWorld() {
        auto made = EpollSet::create(epfd_);
        EXPECT_TRUE(made);
        set_ = std::move(*made);
    }
    ~EngineWorld() override {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            if (sources[i]->program_fd >= 0) close(i);
        }
        set_.reset();
        ::close(epfd_);
    }
    std::size_t connect() override { return connect(/*kernel-ready=*/false); }
    std::size_t connect(bool kernel_ready) {
        const auto [ours, peer] = tcp_pair();
        peers.push_back(peer);
        sources.push_back(TcpSource::make(test_progress(), ours, kernel_ready));
        return sources.size() - 1;
    }
    int ctl(int op, std::size_t which, std::uint32_t events, std::uint64_t data) override {
        TcpSource& source = *sources[which];
        epoll_event event{};
        event.events = events;
        event.data.u64 = data;
        switch (op) {
            case EPOLL_CTL_ADD:
                return set_->add(source.program_fd, &source, event);
            case EPOLL_CTL_MOD:
                return set_->modify(source.program_fd, &source, event);
            default:
                return set_->remove(source.program_fd, &source);
        }
    }
    /// For long. A wait checks once more at its deadline: an event found only then woke no thread.
    std::vector<epoll_event> wait_woken(int max) {
        const Time begin = monotonic_now();
        auto found = wait(max, 20'000);
        EXPECT_LT(monotonic_now() - begin, 10 * kSecond);
        return found;
    }
    std::vector<epoll_event> wait(int max, int timeout_ms) override {
        std::vector<epoll_event> out(static_cast<std::size_t>(max));
        const int n = set_->wait(out.data(), max, deadline(timeout_ms), nullptr);
        EXPECT_GE(n, 0);
        out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        return out;
    }
    int poll(std::vector<pollfd>& fds, int timeout_ms) override {
        std::vector<Handle> handles;
        for (const pollfd& entry : fds) handles.push_back(handle_of(entry.fd));
        PollTarget target(fds, handles);
        return wait_for(target, deadline(timeout_ms), nullptr);
    }
    int select(int nfds, fd_set* r, fd_set* w, fd_set* x, int timeout_ms) override {
        std::vector<Handle> handles;
        for (int fd = 0; fd < nfds; ++fd) handles.push_back(handle_of(fd));
        return readiness::select(handles, r, w, x, deadline(timeout_ms), nullptr);
    }
    ssize_t recv(std::size_t which, std::size_t n) override { return sources[which]->recv(n); }
    ssize_t send(std::size_t which, const std::string& bytes) override {
        return sources[which]->send(bytes.data(), bytes.size());
    }
    void finish(std::size_t which) override { sources[which]->shutdown_write(); }
    void close(std::size_t which) override { sources[which]->close(); }
    int fd(std::size_t which) override { return sources[which]->program_fd; }

    static Time deadline(int timeout_ms) {
        if (timeout_ms < 0) return kNever;
        if (timeout_ms == 0) return 0;
        return time_after(monotonic_now(), static_cast<Time>(timeout_ms) * kMillisecond);
    }
    Handle handle_of(int fd) {
        for (const auto& source : sources) {
            if (source->program_fd == fd) return Handle(source.get());
        }
        return {};
    }
    EpollSet& set() { return *set_; }
    int epfd() const { return epfd_; }
    std::vector<std::shared_ptr<TcpSource>> sources;

  private:
    const int epfd_ = epoll_create1(EPOLL_CLOEXEC);
    std::unique_ptr<EpollSet> set_;
};

/// What a program saw, line by line.
using Log = std::vector<std::string>;

inline std::string text_of(std::uint32_t events) {
    std::string text;
    const std::pair<std::uint32_t, const char*> names[] = {
        {EPOLLIN, "IN"},         {EPOLLPRI, "PRI"},       {EPOLLOUT, "OUT"},
        {EPOLLRDNORM, "RDNORM"}, {EPOLLWRNORM, "WRNORM"}, {EPOLLRDHUP, "RDHUP"},
        {EPOLLHUP, "HUP"},       {EPOLLERR, "ERR"},       {POLLNVAL, "NVAL"},
    };
    for (const auto& [bit, name] : names) {
        if ((events & bit) != 0) text += (text.empty() ? "" : "|") + std::string(name);
    }
    return text.empty() ? "-" : text;
}

inline std::string text_of(const std::vector<epoll_event>& events) {
    std::string text;
    for (const epoll_event& event : events) {
        text += std::to_string(event.data.u64) + ":" + text_of(event.events) + " ";
    }
    return text.empty() ? "nothing" : text;
}

using Program = std::function<void(World&, Log&)>;

/// Both worlds must see the same.
inline void expect_same(const Program& program) {
    Log kernel, ours;
    {
        KernelWorld world;
        program(world, kernel);
    }
    {
        EngineWorld world;
        program(world, ours);
    }
    EXPECT_EQ(ours, kernel);
    EXPECT_FALSE(kernel.empty());
}

}  // namespace xsock::readiness
