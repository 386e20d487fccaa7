// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Callers that wait: they spin, then lead or follow (wait_group.hpp).
#include <sched.h>

#include <algorithm>

#include "transport/at_rest.hpp"
#include "transport/clock.hpp"
#include "transport/fault_handler.hpp"
#include "transport/fork.hpp"
#include "transport/progress.hpp"
#include "transport/progress_thread.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock {
namespace {

constexpr Time kMostSpins = 20;      // times the length of a spin that finds nothing
constexpr Time kUnheldSpin = 5'000;  // longer than a round trip over loopback
constexpr Time kSignalCheck = 100'000;
constexpr int kYields = 2;
constexpr Time kLongYield = 200'000;  // another thread had the processor, not the peer

}  // namespace

Time Progress::spin_budget() noexcept {
    if (config_.spin == 0 || !callers_poll()) return 0;
    return wait_group_.worth_spinning() ? config_.spin : 0;
}

// Twice, for the first may not have been the peer's turn. Where another thread has the processor
// for long, sleeping is better: who is woken goes ahead of it. A signal that comes meanwhile has
// come before the call slept, as in the first moments of spin(); its handler meets no lock.
bool Progress::yield(const std::function<bool()>& done) {
    SpinScore& score = wait_group_.yield_score();
    if (!callers_poll() || !score.worth_while()) return false;
    for (int tries = 0; tries < kYields; ++tries) {
        const Time before = monotonic_now();
        {
            const AtRest rest;
            sched_yield();
        }
        const bool is_long = monotonic_now() - before >= kLongYield;
        poll_once();
        if (is_long) {
            score.give_up();
            return done();
        }
        if (done()) {
            score.count(true);
            return true;
        }
    }
    score.count(false);
    return false;
}

// Signals are held back behind the first moments, in which most waits end: a handler would meet
// locks of this thread, and what it does to the call could not be told.
bool Progress::spin(const std::function<bool()>& done, Time deadline, SignalBlocker* blocker) {
    const Time budget = spin_budget();
    if (budget == 0) return false;
    Time now = monotonic_now();
    // What moves for others, a peer's Reads mostly, goes on: it is served until it pauses, and no
    // longer than a signal may have to wait.
    const Time latest = std::min(deadline, time_after(now, kMostSpins * budget));
    Time end = std::min(latest, time_after(now, budget));
    Time check_signals = time_after(now, kUnheldSpin);
    bool found = false;
    do {
        const bool moved = poll_once();
        if (done()) {
            count_spin(true);
            return true;
        }
        now = monotonic_now();
        if (moved) {
            found = true;
            end = std::min(latest, time_after(now, budget));
        }
        if (blocker != nullptr && now >= check_signals) {
            if (blocker->is_pending()) break;
            blocker->hold();
            check_signals = time_after(now, kSignalCheck);
        }
    } while (now < end);
    count_spin(found);
    return false;
}

void Progress::call_idle() {
    if (has_idle_calls()) locked([this](PollCycle& cycle) { poll_set_.idle().call_all(cycle); });
}

bool Progress::lead() {
    if (!callers_poll() || !wait_group_.try_lead()) return false;
    count_caller_cycle();
    if (poll_set_.is_detached()) {
        locked([this](PollCycle&) { poll_set_.attach_busy_polled(); });
    }
    call_idle();
    wait_group_.begin_sleep();
    call_idle();  // for what was added before this waiter could be seen, nobody wakes it
    return true;
}

bool Progress::end_lead(bool notified) {
    wait_group_.end_sleep(notified);
    // The thread has not looked at it since.
    if (!abandoned() && thread_rests()) keep_fault_handler();
    const bool moved = poll_behind_others();
    wait_group_.end_lead();
    // In one order with begin_rest(): either the thread sees that the lead has ended, or this sees
    // that the thread rests.
    if (ThreadClock rests = ThreadClock::rests;
        !abandoned() && thread_rests() &&
        thread_clock_.compare_exchange_strong(rests, ThreadClock::ticks)) {
        if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire)) {
            thread->notify_soon();
        }
    }
    offer_lead();
    return moved;
}

void Progress::offer_lead() noexcept {
    if (!abandoned()) wait_group_.offer_lead();  // else those in the lists are the parent's
}

void Progress::unfollow(Follower& follower) {
    if (!abandoned()) wait_group_.unfollow(follower, callers_poll());
}

void Progress::end_wait(int fd) {
    if (!abandoned()) wait_group_.end_wait(fd, callers_poll());
}

bool Progress::wait(const std::function<bool()>& done, Time deadline) {
    return wait(done, deadline, nullptr) == Waited::done;
}

Progress::Waited Progress::wait_interruptibly(const std::function<bool()>& done, Time deadline,
                                              bool restart) {
    SignalBlocker blocker(restart && deadline == kNever);
    return wait(done, deadline, &blocker);
}

Progress::Waited Progress::wait(const std::function<bool()>& done, Time deadline,
                                SignalBlocker* blocker) {
    if (done()) return Waited::done;
    // A handler that runs in between may fork, and return in the child: there nothing comes.
    const std::uint32_t generation = process_generation();
    const bool may_poll = callers_poll();
    if (may_poll) {
        const bool first = deadline != 0 && yields_first();
        if (first && yield(done)) return Waited::done;
        poll();
        if (done()) return Waited::done;
        if (deadline == 0 || monotonic_now() >= deadline) return Waited::timeout;
        if (spin(done, deadline, blocker)) return Waited::done;
        if (blocker != nullptr && blocker->handle_pending()) return Waited::interrupted;
        if (!first && yield(done)) return Waited::done;
    } else {
        notify_thread();
    }
    for (;;) {
        if (process_generation() != generation) return Waited::interrupted;
        if (may_poll && lead()) {
            // What completed before this line is seen here; what completes later notifies.
            const bool notified = !done() && !work_waiting() &&
                                  wait_group_.sleep_as_leader(epoll_fd(), deadline, blocker);
            const bool moved = end_lead(notified);
            if (done()) return Waited::done;
            if (blocker != nullptr && blocker->handle_pending()) return Waited::interrupted;
            // A peer that reads and writes our memory goes on while this call sees nothing of it.
            if (moved && spin(done, deadline, blocker)) return Waited::done;
            if (moved && blocker != nullptr && blocker->handle_pending()) {
                return Waited::interrupted;
            }
        } else if (blocker != nullptr &&
                   wait_group_.sleep_interruptibly(done, may_poll, deadline, *blocker)) {
            const bool found = done();
            const bool ends = !found && blocker->handle_pending();
            if (found || ends || (deadline != kNever && monotonic_now() >= deadline)) {
                // It may be this one that was told to lead.
                if (may_poll && !has_leader()) offer_lead();
                return found ? Waited::done : ends ? Waited::interrupted : Waited::timeout;
            }
        } else {
            if (blocker != nullptr) blocker->unblock();
            const bool undisturbed = wait_group_.sleep_as_follower(done, may_poll, deadline);
            if (done()) return Waited::done;
            if (!undisturbed && blocker != nullptr) return Waited::interrupted;
        }
        if (deadline != kNever && monotonic_now() >= deadline) return Waited::timeout;
    }
}

}  // namespace xsock
