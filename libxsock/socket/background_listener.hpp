// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engine's half of a listening socket with DDPREQUIRE: accepts in the background, from the
// first wait or accept() until the socket is closed, shut down or switched off. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/polled_qp.hpp"
#include "base/spin_lock.hpp"
#include "transport/fork.hpp"

namespace xsock::sockets {

class BackgroundListener {
  public:
    /// It accepts. (In a forked child: the parent's does.)
    [[nodiscard]] bool is_open() const noexcept { return now() != nullptr; }
    /// A connection, or the reason why there is none, waits for accept().
    [[nodiscard]] bool has_news() const noexcept {
        const std::shared_ptr<PolledListener> open = now();
        if (open == nullptr) return open_failed_.load(std::memory_order_acquire);
        return open->has_ready() || open->shortage() != 0;
    }
    /// For accept(); null while it is not open.
    [[nodiscard]] std::shared_ptr<PolledListener> get();

    using Make = std::function<std::shared_ptr<PolledListener>(int fd)>;
    /// Opens it, unless it is open or ended: `make` is given a number of our own for the program's
    /// `fd`.
    /// @return 0; -1 with errno
    int ensure_open(int fd, PollGroup& poller, const Make& make);
    /// That failed: accept() shall try again and tell why. Nothing else would wake a program that
    /// waits for it.
    void could_not_open() noexcept { open_failed_.store(true, std::memory_order_release); }
    /// Ahead of the last close(): no thread of this process opens it any more. (A child, forked
    /// before the socket shows why, does.)
    void end() noexcept { ended_in_.store(process_generation()); }
    [[nodiscard]] bool is_ended() const noexcept {
        return ended_in_.load() == process_generation();
    }
    /// @return false: a parent accepts on the same socket, for all that is known here
    bool close();
    /// In a forked child: a thread that is not here may have held the locks.
    void renew_lock() noexcept {
        new (&mutex_) std::mutex;
        new (&now_lock_) SpinLock;
    }

    // By shutdown(), until listen() is called again. @return true: that is a change

    bool shut() noexcept { return !is_shut_.exchange(true); }
    bool reopen() noexcept { return is_shut_.exchange(false); }
    [[nodiscard]] bool is_shut() const noexcept { return is_shut_.load(std::memory_order_acquire); }

  private:
    [[nodiscard]] std::shared_ptr<PolledListener> now() const noexcept {
        const std::lock_guard hold(now_lock_);
        return now_;
    }
    void set_now(std::shared_ptr<PolledListener> next) noexcept {
        const std::lock_guard hold(now_lock_);
        now_.swap(next);  // what it was goes behind the lock
    }

    std::mutex mutex_;
    std::shared_ptr<PolledListener> listener_;
    PollGroup* progress_ = nullptr;  // of listener_
    std::uint32_t generation_ = 0;
    bool is_inherited_ = false;  // there was one in a parent, too
    mutable SpinLock now_lock_;  // pollers ask, and must not wait for mutex_
    std::shared_ptr<PolledListener> now_;
    std::atomic<bool> open_failed_{false};
    std::atomic<bool> is_shut_{false};
    std::atomic<std::int64_t> ended_in_{-1};  // which process_generation()
};

}  // namespace xsock::sockets
