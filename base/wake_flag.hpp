// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Wakes a consumer only if it sleeps. The consumer is a thread that sleeps in the kernel (epoll); a
// producer, any thread, hands it work through some queue. The flag decides whether a producer must
// notify; the notification itself (an eventfd) is its users'.
//
//   consumer                                  producer
//   C1 begin_sleep()   asleep = true          P1 publish work
//   C2 check for work again                   P2 should_notify(): read asleep; if false, done
//      found: end_sleep(), do it              P3   exchange asleep -> false; if it was true:
//   C3 else sleep until notified              P4   notify
//   C4 end_sleep()     asleep = false
//
// All of these are sequentially consistent, publishing and checking for work included: each side
// writes its own word before it reads the other's, so that at least one sees the other.
//
//   P1 before C2             the consumer finds the work itself; if also C1 before P2, a
//                            notification is not needed and only makes it check once more.
//   C2 before P1             then C1 < C2 < P1 < P2: the producer sees it asleep and notifies,
//                            before or after C3; a written eventfd stays readable, so it is not
//                            lost.
//   several producers        the exchange lets one of them notify per sleep. Another that read
//                            false had published before; the notified consumer finds that when it
//                            wakes or, at the latest, at its next C2.
//   P2 true, C4, then P3     the consumer woke for another reason: the exchange says false, so no
//                            notification; it checks for work before its next C3 and finds it.
//   P2 true, C4, C1, P3      the exchange belongs to the next sleep: notifies; C2 or C3 gets it.
//
// tests/unit/base/wake_flag_test.cpp walks through every interleaving.
#pragma once

#include <atomic>

namespace xsock {

/// `Flag` is std::atomic<bool>, or a test's model of one.
template <typename Flag>
class BasicWakeFlag {
  public:
    // -- the consumer, one thread at a time --

    /// Announces sleep. Afterwards check for work again (seq_cst); only if there is none, sleep.
    void begin_sleep() { asleep_.store(true, std::memory_order_seq_cst); }
    /// Awake, or not going to sleep after all. Check for work before the next begin_sleep().
    void end_sleep() { asleep_.store(false, std::memory_order_seq_cst); }

    // -- producers, any thread --

    /// After work was published (seq_cst). True: the caller must notify now.
    [[nodiscard]] bool should_notify() {
        return asleep_.load(std::memory_order_seq_cst) &&
               asleep_.exchange(false, std::memory_order_seq_cst);
    }

  private:
    Flag asleep_{false};
};

using WakeFlag = BasicWakeFlag<std::atomic<bool>>;

}  // namespace xsock
