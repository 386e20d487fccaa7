// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What poll, select and epoll ask of a DDPMODE socket, and how it tells them that something
// changed. A socket derives from Source; the waiters (poll.cpp, epoll_set.cpp) derive from Watcher.
//
// It is the kernel's own division of labour: events() is tcp_poll(), wake() is the wake-up of the
// socket's wait queue, and a Watcher is an entry of that queue. So level-triggered waiters read
// events() again and again, edge-triggered ones count wake-ups, as Linux does it.
//
// A socket is kernel-ready while the kernel's readiness of its descriptor is the program's too: not
// started yet, listening without DDPREQUIRE, or turned out to be plain TCP. Then nothing here is
// asked but kernel_ready().
#pragma once

#include <atomic>
#include <cstdint>

#include "base/spin_lock.hpp"
#include "libxsock/poll/intrusive_list.hpp"

namespace xsock {

class PollGroup;

namespace readiness {

class Source;

/// A waiter for a Source.
class Watcher : public ListLink<Watcher> {
  public:
    Watcher() = default;
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    /// Events may have come (epoll bits, never 0). Any thread, often the poller inside a poll
    /// cycle; a spin lock of the source is held: short, and no call of the source's list from here.
    /// @return true: no other exclusive watcher needs to be told
    virtual bool on_wake(std::uint32_t events) noexcept = 0;
    /// The source has become kernel-ready, or has ceased to be; Source::kernel_ready() says which.
    /// As on_wake().
    virtual void on_mode_changed() noexcept = 0;
    /// The source is about to go. Called by Source::retire() with epoll_membership_lock() held and
    /// no lock of the source; the watcher must have removed itself when it returns.
    virtual void on_retired() noexcept = 0;

  protected:
    ~Watcher() = default;
    /// Told after those that are not, and only until one of them says that this was enough
    /// (EPOLLEXCLUSIVE). Before add_watcher().
    void set_exclusive(bool exclusive) noexcept { exclusive_ = exclusive; }

  private:
    friend class Source;
    bool exclusive_ = false;
};

class Source {
  public:
    Source() noexcept;
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;

    // -- what a socket answers; any thread --

    /// What is ready now: EPOLLIN | EPOLLRDNORM, EPOLLOUT | EPOLLWRNORM, EPOLLRDHUP, EPOLLHUP,
    /// EPOLLERR, EPOLLPRI, as poll() of a TCP socket in the same situation. Exact, takes no lock
    /// that is held around wake(), and moves no bytes.
    [[nodiscard]] virtual std::uint32_t events() const noexcept = 0;
    /// The kernel's readiness of the descriptor is the program's too (see above).
    [[nodiscard]] virtual bool kernel_ready() const noexcept = 0;
    /// What moves this socket's bytes; the same one all the time that kernel_ready() is false.
    [[nodiscard]] virtual PollGroup* progress() const noexcept = 0;
    /// A wait begins: a kernel-ready socket that does not know yet what its peer speaks begins to
    /// check, and is kernel-ready no more. `fd` is the program's number. Not from inside a poll
    /// cycle.
    virtual void begin_watch(int /*fd*/) noexcept {}

    // -- watchers --

    /// Wake-ups that come after this are told. Read events() and kernel_ready() afterwards:
    /// those before are not.
    void add_watcher(Watcher& watcher) noexcept;
    /// When it returns, no call of the watcher is under way.
    void remove_watcher(Watcher& watcher) noexcept;

    // -- what a socket says --

    /// Events may have come: one call for each message that was queued (EPOLLIN | EPOLLRDNORM), as
    /// the kernel wakes for each segment; when events() begins to tell of room to send after it had
    /// not (EPOLLOUT | EPOLLWRNORM); at the end of file (with EPOLLRDHUP), an error or the end of
    /// the connection (with EPOLLERR, EPOLLHUP); when start-up has ended; for each connection that
    /// accept would return. Any thread, inside a poll cycle or not; to be called after events()
    /// tells of it.
    void wake(std::uint32_t events) noexcept {
        // Pairs with add_watcher(): its count is published before its caller reads events(),
        // the event here before the count is read. One of the two sees the other.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (watchers_.load(std::memory_order_relaxed) != 0) notify_watchers(events);
    }

  protected:
    ~Source() = default;

    /// kernel_ready() has changed. To kernel-ready: any thread, after what the kernel's descriptor
    /// shall show is there. From kernel-ready: a thread of the program, before the call that starts
    /// the socket.
    void mode_changed() noexcept;
    /// The last descriptor of the socket is being closed: takes it out of every epoll set. Before
    /// destruction, in a thread of the program, with no lock held.
    void retire() noexcept;

  private:
    void notify_watchers(std::uint32_t events) noexcept;
    void forget_if_forked() noexcept;

    std::atomic<std::uint32_t> watchers_{0};
    std::atomic<std::uint32_t> generation_;  // of processes: a child has none of our watchers
    SpinLock lock_;
    IntrusiveList<Watcher> list_;  // exclusive ones last
};

}  // namespace readiness
}  // namespace xsock
