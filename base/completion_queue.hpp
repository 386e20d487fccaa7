// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completions on their way from pollers to any number of polling threads. Never loses one: it
// grows beyond its depth instead (what is outstanding is bounded by the queues that feed it),
// unless made strict, where what does not fit is dropped and remembered as overrun() (verbs).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/work.hpp"

namespace xsock {

class CompletionQueue {
  public:
    explicit CompletionQueue(std::uint32_t depth, bool strict = false);
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;

    /// Completions go there, in the poller that makes them, instead of into the queue. Before the
    /// first push. The sink must not end the stream that it is called for: it is being completed.
    using Sink = void (*)(void* argument, const Wc& wc);
    void set_sink(Sink sink, void* argument) noexcept {
        sink_ = sink;
        sink_argument_ = argument;
    }

    [[nodiscard]] bool has_sink() const noexcept { return sink_ != nullptr; }

    /// Pollers. Order of one poller's pushes is kept. Fires an armed notifier.
    void push(const Wc& wc) { push(std::span(&wc, 1)); }
    /// The same for several, oldest first, which become visible together.
    void push(std::span<const Wc> wcs);

    /// Takes up to out.size() completions, oldest first; none where fewer than `at_least` wait. Any
    /// thread. Moves no bytes.
    std::size_t take(std::span<Wc> out, std::size_t at_least = 0) {
        return size() == 0 ? 0 : take_waiting(out, at_least);
    }

    /// Completions waiting; without a lock, so a hint to other threads.
    [[nodiscard]] std::size_t size() const noexcept {
        return count_.load(std::memory_order_seq_cst);
    }

    /// One-shot: the next push() after arm() (with solicited_only: the next receive of a solicited
    /// Send, or the next failure) calls the notifier once, outside the lock, in the poller's
    /// thread. What waits already does not fire it. arm(true) does not weaken an earlier
    /// arm(false). A strict queue's first overrun calls it too, armed or not.
    using Notifier = void (*)(void* argument);
    void set_notifier(Notifier notifier, void* argument);
    void arm(bool solicited_only);
    /// Takes back an arm(false) that has not fired. False: there is none.
    bool disarm();
    /// Without a lock, so a hint to other threads; in one order with arm() and what else is
    /// sequentially consistent.
    [[nodiscard]] bool armed() const noexcept {
        return armed_.load(std::memory_order_seq_cst) != Armed::no;
    }

    /// An armed queue was polled and is empty. Any thread; not exact.
    void note_empty_poll() noexcept {
        const std::uint32_t polls = armed_polls_.load(std::memory_order_relaxed);
        if (polls < kPollsOfWaiter) armed_polls_.store(polls + 1, std::memory_order_relaxed);
    }
    /// Armed by a program that is about to sleep: it has not been polled on and on since. (UCX arms
    /// its queues once, and then polls for ever.) A hint to other threads.
    [[nodiscard]] bool awaited() const noexcept {
        return armed() && armed_polls_.load(std::memory_order_relaxed) < kPollsOfWaiter;
    }

    /// A completion was lost: the strict queue was full, or there was no memory to grow.
    [[nodiscard]] bool overrun() const noexcept { return overrun_.load(std::memory_order_relaxed); }
    /// Another depth from now on. False: more than `wanted` completions wait, which may be fewer.
    bool resize(std::uint32_t depth, std::uint32_t wanted);

    /// Removes completions of a QP that is being destroyed (verbs: they must not surface later).
    /// @return how many of them were is_signaled_send()
    std::size_t purge(std::uint32_t qp_num);
    /// Completions of this QP wait. Reads all that wait.
    [[nodiscard]] bool holds(std::uint32_t qp_num) const;

  private:
    std::size_t take_waiting(std::span<Wc> out, std::size_t at_least);
    void put(std::size_t n, std::span<const Wc> wcs) noexcept;
    bool grow();
    [[nodiscard]] bool room_for(std::size_t n) { return n < ring_.size() || grow(); }

    // More than programs spin before they sleep.
    static constexpr std::uint32_t kPollsOfWaiter = 1000;

    std::uint32_t depth_;
    bool strict_;
    mutable SpinLock mutex_;
    std::vector<Wc> ring_;  // power of two, grows
    std::size_t head_ = 0;
    enum class Armed : std::uint8_t { no, any, solicited };
    std::atomic<Armed> armed_{Armed::no};        // written under mutex_
    std::atomic<std::uint32_t> armed_polls_{0};  // note_empty_poll()s since arm()
    Sink sink_ = nullptr;
    void* sink_argument_ = nullptr;
    Notifier notifier_ = nullptr;
    void* notifier_argument_ = nullptr;
    std::atomic<std::size_t> count_{0};  // written under mutex_
    std::atomic<bool> overrun_{false};
};

/// What a poller has completed in this cycle and has not published yet: one lock and one wake-up
/// for many completions. All pushes of a poller go through its batch, so that their order is kept.
class CompletionBatch {
  public:
    /// The queue must live until flush().
    void push(CompletionQueue& queue, const Wc& wc) {
        if (queue.has_sink()) {  // which is called at once
            queue.push(wc);
            return;
        }
        place(queue) = wc;
    }
    /// Where the next completion of a queue without sink is to be written, every word of it: one
    /// that is put together elsewhere and copied costs more than all the rest.
    [[nodiscard]] Wc& place(CompletionQueue& queue) {
        if (queue_ != &queue || count_ == wcs_.size()) flush();
        queue_ = &queue;
        return wcs_[count_++];
    }
    void flush() {
        if (count_ == 0) return;
        queue_->push(std::span(wcs_).first(std::exchange(count_, 0)));
    }

  private:
    static constexpr std::size_t kMost = 32;
    CompletionQueue* queue_ = nullptr;
    std::size_t count_ = 0;
    std::array<Wc, kMost> wcs_;
};

}  // namespace xsock
