// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Source whose meaning is known exactly: a byte stream over a real TCP connection, moved by a
// real Progress as a connection of the engine is. What poll and epoll say of it must be what the
// kernel says of the bare socket.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>

#include "libxsock/poll/source.hpp"
#include "transport/progress.hpp"

namespace xsock::readiness {

class TcpSource final : public Pollable, public Source {
  public:
    /// Takes `fd`, the program's descriptor; works on a duplicate.
    static std::shared_ptr<TcpSource> make(Progress& progress, int fd, bool kernel_ready = false) {
        std::shared_ptr<TcpSource> source(new TcpSource(progress, fd));
        source->kernel_ready_ = kernel_ready;
        if (!kernel_ready) source->begin();
        return source;
    }
    ~TcpSource() override {
        if (program_fd >= 0) ::close(program_fd);
        ::close(own_fd_);
    }

    /// Starts to be the engine's.
    void begin() {
        progress_.locked([this](PollCycle&) {
            (void)progress_.add(shared_from_this(), own_fd_, EPOLLIN | EPOLLRDHUP);
        });
    }
    void become_engine() {
        kernel_ready_ = false;
        begin();
        mode_changed();
    }
    /// Turns out to be plain: nothing has been taken from the kernel's queue.
    void become_kernel_ready() {
        progress_.locked([this](PollCycle&) { progress_.remove(*this); });
        kernel_ready_ = true;
        mode_changed();
    }
    /// What close() of the last descriptor does.
    void close() {
        retire();
        progress_.locked([this](PollCycle&) { progress_.remove(*this); });
        ::close(program_fd);
        program_fd = -1;
    }

    /// As when the thin layer drops its handle of a plain socket.
    void retire_for_test() { retire(); }
    /// What arrives by TCP is left alone.
    void detach_for_test() {
        progress_.locked([this](PollCycle&) { progress_.remove(*this); });
    }

    ssize_t recv(std::size_t n) {
        const std::lock_guard hold(mutex_);
        if (queue_.empty()) {
            if (eof_) return 0;
            errno = EAGAIN;
            return -1;
        }
        n = std::min(n, queue_.size());
        queue_.erase(0, n);
        bytes_ = queue_.size();
        return static_cast<ssize_t>(n);
    }
    ssize_t send(const void* bytes, std::size_t n) {
        const ssize_t sent = ::send(own_fd_, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            writable_ = false;
            progress_.locked(
                [this](PollCycle&) { progress_.modify(*this, EPOLLIN | EPOLLRDHUP | EPOLLOUT); });
            errno = EAGAIN;
        }
        return sent;
    }
    void shutdown_write() {
        ::shutdown(own_fd_, SHUT_WR);
        finished_ = true;
    }
    /// As a message that arrived; for tests without a peer.
    void inject(std::size_t n) {
        {
            const std::lock_guard hold(mutex_);
            queue_.append(n, 'x');
            bytes_ = queue_.size();
        }
        wake(EPOLLIN | EPOLLRDNORM);
    }

    std::uint32_t events() const noexcept override {
        std::uint32_t now = 0;
        if (bytes_ > 0 || eof_) now |= EPOLLIN | EPOLLRDNORM;
        if (eof_) now |= EPOLLRDHUP;
        if (eof_ && finished_) now |= EPOLLHUP;
        if (writable_) now |= EPOLLOUT | EPOLLWRNORM;
        if (error_) now |= EPOLLERR | EPOLLHUP;
        return now;
    }
    bool kernel_ready() const noexcept override { return kernel_ready_; }
    Progress* progress() const noexcept override { return &progress_; }
    void begin_watch(int) noexcept override { ++watched; }

    void on_ready(std::uint32_t events, PollCycle& cycle) override {
        std::uint32_t news = 0;
        if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !eof_) {
            const ssize_t n =
                ::recv(own_fd_, cycle.staging.data(), cycle.staging.size(), MSG_DONTWAIT);
            if (n > 0) {
                const std::lock_guard hold(mutex_);
                queue_.append(reinterpret_cast<char*>(cycle.staging.data()),
                              static_cast<std::size_t>(n));
                bytes_ = queue_.size();
                news |= EPOLLIN | EPOLLRDNORM;
            } else if (n == 0) {
                eof_ = true;
                progress_.modify(*this, writable_ ? EPOLLET : EPOLLOUT);
                news |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
            } else if (errno != EAGAIN) {
                error_ = eof_ = true;
                progress_.modify(*this, EPOLLET);
                news |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLERR | EPOLLHUP | EPOLLOUT;
            }
        }
        if ((events & EPOLLOUT) != 0 && !writable_) {
            writable_ = true;
            progress_.modify(*this, eof_ ? EPOLLET : EPOLLIN | EPOLLRDHUP);
            news |= EPOLLOUT | EPOLLWRNORM;
        }
        if (news == 0) return;
        cycle.active = true;
        wake(news);
    }
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override { std::abort(); }

    int program_fd;
    std::atomic<int> watched{0};

  private:
    TcpSource(Progress& progress, int fd) : program_fd(fd), progress_(progress), own_fd_(dup(fd)) {}

    Progress& progress_;
    const int own_fd_;
    std::mutex mutex_;
    std::string queue_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<bool> eof_{false}, error_{false}, writable_{true}, kernel_ready_{false};
    std::atomic<bool> finished_{false};
};

}  // namespace xsock::readiness
