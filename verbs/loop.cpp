// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/loop.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/interrupt.hpp"

namespace xsock::verbs {
namespace {
constexpr Loop::Token kBell = 0;
}

Result<std::unique_ptr<Loop>> Loop::create(std::mutex& mutex) {
    std::unique_ptr<Loop> loop(new Loop(mutex));
    {
        const DescriptorChange change;
        loop->epoll_fd_ = move_and_own(epoll_create1(EPOLL_CLOEXEC));
        loop->bell_fd_ = move_and_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    if (loop->epoll_fd_ < 0 || loop->bell_fd_ < 0) return Error{errno, "no descriptors"};
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kBell;
    epoll_ctl(loop->epoll_fd_, EPOLL_CTL_ADD, loop->bell_fd_, &event);
    // Signals are the program's business, but for those that our own code may raise.
    const sigset_t set = signals_from_outside();
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &set, &before);
    bool made = true;
    try {
        std::thread([l = loop.get()] { l->run(); }).detach();
    } catch (...) {
        made = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!made) return Error{EAGAIN, "no thread for the verbs face"};
    loop->running_ = true;
    return loop;
}

Loop::~Loop() {
    if (running_) return;  // its thread still uses them
    if (epoll_fd_ >= 0) close_owned(epoll_fd_);
    if (bell_fd_ >= 0) close_owned(bell_fd_);
}

Loop::Token Loop::watch(int fd, std::uint32_t events, Handler handler) {
    const Token token = next_++;
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    watched_.emplace(token, Watched{fd, std::make_shared<Handler>(std::move(handler))});
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int error = errno;
        watched_.erase(token);
        errno = error;
        return 0;
    }
    return token;
}

void Loop::forget(Token token) {
    const auto found = watched_.find(token);
    if (found == watched_.end()) return;
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, found->second.fd, nullptr);
    watched_.erase(found);
}

Loop::Token Loop::at(Time when, std::function<void()> handler) {
    const Token token = next_++;
    const bool first = timers_.empty() || when < timers_.begin()->first.first;
    timers_.emplace(std::pair(when, token), std::move(handler));
    timer_times_.emplace(token, when);
    if (first) wake();
    return token;
}

void Loop::cancel(Token token) {
    const auto found = timer_times_.find(token);
    if (found == timer_times_.end()) return;
    timers_.erase({found->second, token});
    timer_times_.erase(found);
}

void Loop::wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(bell_fd_, &one, sizeof one);
}

void Loop::run() {
    pthread_setname_np(pthread_self(), "xsock-verbs");
    std::array<epoll_event, 32> events;
    for (;;) {
        int timeout_ms = -1;
        {
            const std::lock_guard lock(mutex_);
            if (!timers_.empty()) {
                const Time now = monotonic_now(), when = timers_.begin()->first.first;
                timeout_ms = when <= now ? 0
                                         : static_cast<int>(std::min<Time>(
                                               (when - now) / kMillisecond + 1, 1u << 30));
            }
        }
        const int n = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
        const std::lock_guard lock(mutex_);
        for (int i = 0; i < n; ++i) {
            const Token token = events[static_cast<std::size_t>(i)].data.u64;
            if (token == kBell) {
                std::uint64_t count = 0;
                [[maybe_unused]] const ssize_t r = read(bell_fd_, &count, sizeof count);
                continue;
            }
            const auto found = watched_.find(token);
            if (found == watched_.end()) continue;
            const auto handler = found->second.handler;  // it may forget itself
            try {
                (*handler)(events[static_cast<std::size_t>(i)].events);
            } catch (...) {
                forget(token);  // out of memory: that connection is given up
            }
        }
        while (!timers_.empty() && timers_.begin()->first.first <= monotonic_now()) {
            auto timer = timers_.extract(timers_.begin());
            timer_times_.erase(timer.key().second);
            try {
                timer.mapped()();
            } catch (...) {
                continue;
            }
        }
    }
}

}  // namespace xsock::verbs
