// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The device seam for callers that wait: what moves the bytes of a group of connections, as sockets
// and poll, select and epoll see it (docs/threading.md). The software device has Progress.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace xsock {

/// One poll cycle. What takes one is called inside it: by locked(), or by what the poller calls.
class PollCycle;

/// Told, by the poller, of a descriptor that an API watches until it hands it to a connection.
class DescriptorWatcher {
  public:
    virtual void on_ready(PollCycle& cycle) = 0;
    /// The deadline of the watch has come.
    virtual void on_time(PollCycle& cycle) = 0;
    /// Something that it did ran out of memory: end, without asking for more.
    virtual void on_failure(PollCycle& cycle) noexcept = 0;
    /// The process is about to exit.
    virtual void on_exit(PollCycle& cycle) = 0;
    /// Bytes of the program wait for what the watcher is told: exit() and exec() wait for it, up to
    /// `limit_out`.
    [[nodiscard]] virtual bool is_owing(Time& /*limit_out*/) const { return false; }

  protected:
    ~DescriptorWatcher() = default;
};

/// Inside a poll cycle.
class DescriptorWatch {
  public:
    virtual void set_deadline(Time deadline) = 0;
    /// The watcher is told no more. Does not close the descriptor.
    virtual void end() = 0;

  protected:
    ~DescriptorWatch() = default;
};

class PollGroup {
  public:
    // -- callers, any thread --

    /// One poll cycle, if no other thread polls.
    virtual void poll() = 0;
    /// The same, and asks the kernel in any case: nothing that has arrived by now is left for
    /// later.
    virtual void try_poll_thoroughly() = 0;
    /// Runs `f(cycle)` as the poller. Waits for the lock; not from inside a poll cycle.
    template <typename F>
    void locked(F&& f) {
        run_locked([](void* g,
                      PollCycle& cycle) { (*static_cast<std::remove_reference_t<F>*>(g))(cycle); },
                   &f);
    }
    enum class Waited : std::uint8_t { done, timeout, interrupted };
    /// Polls, then sleeps, until `done()`, the deadline or a signal. `done` must be cheap and free
    /// of locks that pollers take. `restart`: handlers with SA_RESTART do not interrupt, as long as
    /// there is no deadline (signal(7)).
    virtual Waited wait_interruptibly(const std::function<bool()>& done, Time deadline,
                                      bool restart) = 0;
    /// Wakes callers that sleep, so that they check again what they wait for.
    virtual void wake_waiters() noexcept = 0;
    /// Makes the background thread if there shall be one and it is not there yet. Where none can be
    /// made, callers go on without, and the next call tries again.
    virtual void ensure_thread() noexcept = 0;

    // -- callers that sleep in a poll() of their own, with other descriptors beside ours --

    /// A caller that sleeps while another one leads; notified when none does any more.
    class Follower {
      public:
        /// The caller must lead(), or unfollow() so that the next one is notified. A lock of the
        /// group is held.
        virtual void on_lead_free() noexcept = 0;

      protected:
        ~Follower() = default;
    };

    /// Makes the caller the leader if there is none and callers may poll at all. As leader it
    /// checks once more what it waits for and work_waiting(), then polls lead_fds() for POLLIN, and
    /// calls end_lead() when it woke.
    [[nodiscard]] virtual bool lead() = 0;
    [[nodiscard]] virtual std::array<int, 2> lead_fds() const noexcept = 0;
    /// `notified`: the second of lead_fds() was readable. Makes a poll cycle. @return something
    /// moved
    virtual bool end_lead(bool notified) = 0;
    /// Between these two the follower is notified when there is no leader; at once if that is so
    /// already.
    virtual void follow(Follower& follower) = 0;
    virtual void unfollow(Follower& follower) = 0;
    /// The same for one that waits for `done()`: its descriptor becomes readable when that holds
    /// after a poll cycle, or when no one leads. `done`: cheap, free of locks that pollers take.
    /// @return the descriptor, until end_wait(); -1: there is none left
    [[nodiscard]] virtual int begin_wait(const std::function<bool()>& done) = 0;
    virtual void end_wait(int fd) = 0;
    /// Polls until `done()`, as long as something moves, or for as long as that has paid of late.
    /// @return done()
    virtual bool spin(const std::function<bool()>& done, Time deadline) = 0;
    /// How long a caller that waits now may spin before it sleeps; 0: not at all. Call
    /// count_spin(found) after spinning.
    [[nodiscard]] virtual Time spin_budget() noexcept = 0;
    virtual void count_spin(bool found) noexcept = 0;
    /// Once for each wait, where spinning has found nothing: a peer that shares the processor goes
    /// on, and what it sends is there when we are back. Only where that has paid of late. @return
    /// done() after a poll; false where it was not tried
    virtual bool yield(const std::function<bool()>& done) = 0;
    /// It has paid each time of late, and nothing waits to be sent: a wait begins with it rather
    /// than with a poll, since nothing can have come from a peer that has not had the processor.
    [[nodiscard]] virtual bool yields_first() const noexcept = 0;
    /// True when a poll cycle is owed that no caller may be about to make.
    [[nodiscard]] virtual bool work_waiting() const noexcept = 0;
    /// Polls readable when a poll cycle may find something: for loops that embed us. -1 where
    /// callers do not poll.
    [[nodiscard]] virtual int embed() = 0;

    // -- inside a poll cycle --

    /// Watches `fd` (epoll bits) for `watcher`, which is kept until DescriptorWatch::end().
    virtual Result<std::shared_ptr<DescriptorWatch>> watch(
        std::shared_ptr<DescriptorWatcher> watcher, int fd, std::uint32_t events) = 0;

  protected:
    ~PollGroup() = default;
    virtual void run_locked(void (*f)(void* argument, PollCycle& cycle), void* argument) = 0;
};

}  // namespace xsock
