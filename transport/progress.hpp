// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress: which thread moves the bytes of a set of connections, and when (docs/threading.md).
//
// The calls that wait also poll. A poll cycle over the connections runs under the progress lock,
// which is only ever tried on the data path: a poster that finds it taken flags its connection and
// goes on, and the holder checks the flags after releasing it. A blocking caller becomes the
// leader, sleeps in epoll without the lock and is woken through an eventfd only if it does sleep. A
// libuv thread (progress_thread) takes over when no caller has polled for a tick.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "base/completion_queue.hpp"
#include "base/epoch.hpp"
#include "base/poll_group.hpp"
#include "base/result.hpp"
#include "base/wake_flag.hpp"
#include "transport/config.hpp"
#include "transport/pending_list.hpp"
#include "transport/poll_set.hpp"
#include "transport/pollable.hpp"
#include "transport/wait_group.hpp"

namespace xsock {

class ProgressThread;
class ShmNode;
class SignalBlocker;

/// Its address identifies the holder of a progress lock. Initial-exec: found without a call.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit char this_poller;

/// Memory for headers, trailers and small payloads on their way out; kept by a connection only
/// while it has unwritten bytes.
struct TxBuffer {
    static constexpr std::size_t kBytes = 256 * 1024;
    std::unique_ptr<std::byte[]> memory{new std::byte[kBytes]};
    [[nodiscard]] Bytes bytes() const noexcept { return {memory.get(), kBytes}; }
};

class Progress final : public PollGroup {
  public:
    static Result<std::unique_ptr<Progress>> create(Epochs& epochs, const TransportConfig& config,
                                                    unsigned index);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // -- callers, any thread --

    /// One poll cycle, if no other thread polls. What every poll does.
    void poll() override { poll_once(); }
    /// The same, and asks epoll in any case: nothing that has arrived by now is left for later.
    void try_poll_thoroughly() override;
    /// try_poll_thoroughly() that waits for the lock.
    void poll_thoroughly();
    /// Serves the ready members of `channel`, which are all items of this Progress, and what was
    /// posted to any item. Waits for the lock: the caller was woken for them.
    void poll_channel(SoftChannel& channel);
    /// A queue was armed, and its channel is watched: from now on the channel tells of what comes
    /// into memory, too (link_channels.hpp). Not from inside a poll cycle.
    void prepare_channel_sleep();

    /// Polls, then sleeps, until `done()` or the deadline. `done` must be cheap and free of locks
    /// that pollers take. @return done()
    bool wait(const std::function<bool()>& done, Time deadline);

    /// `item` has something to send that may wait for others (gather): it goes with the next cycle.
    void notify_later(Pollable& item) noexcept {
        if (!item.pending_.load(std::memory_order_seq_cst)) notify_later_slow(item);
    }
    /// The same, at the latest half a millisecond from now where there is a background thread.
    void notify_soon(Pollable& item);
    /// `item` has something to do: now, in this thread, or by the thread that polls at the moment.
    void notify_now(Pollable& item);

    /// What `f(cycle)` answers, run as the poller. Waits for the lock; not from inside a poll
    /// cycle.
    template <typename F>
    auto locked(F&& f) {
        lock();
        CycleScope scope(*this);
        return f(scope.cycle);
    }

    /// The same for calls that signals interrupt.
    Waited wait_interruptibly(const std::function<bool()>& done, Time deadline,
                              bool restart) override;

    // -- callers that sleep in a poll() of their own, with other descriptors beside ours --

    [[nodiscard]] bool lead() override;
    [[nodiscard]] std::array<int, 2> lead_fds() const noexcept override {
        return {poll_set_.epoll_fd(), wait_group_.wake_fd()};
    }
    bool end_lead(bool notified) override;
    void follow(Follower& follower) override { wait_group_.follow(follower, callers_poll()); }
    void unfollow(Follower& follower) override;
    [[nodiscard]] int begin_wait(const std::function<bool()>& done) override {
        return wait_group_.begin_wait(done, callers_poll());
    }
    void end_wait(int fd) override;
    bool spin(const std::function<bool()>& done, Time deadline) override {
        return spin(done, deadline, nullptr);
    }
    [[nodiscard]] Time spin_budget() noexcept override;
    void count_spin(bool found) noexcept override { wait_group_.count_spin(found); }
    bool yield(const std::function<bool()>& done) override;
    [[nodiscard]] bool yields_first() const noexcept override {
        return wait_group_.yield_score().pays() && !work_waiting();
    }
    /// For callers that stop polling and sleep: the thread polls.
    void notify_thread();
    /// The caller will not poll for a while: the background thread takes over at once instead of
    /// after its tick.
    void hand_over() noexcept;
    /// The thread: was hand_over() called since the last time it asked?
    [[nodiscard]] bool take_hand_over() noexcept {
        return handed_over_.load(std::memory_order_relaxed) &&
               handed_over_.exchange(false, std::memory_order_acquire);
    }
    /// A caller has polled an armed, empty queue: unless another cycle follows, callers are
    /// inactive from now on, and the background thread serves what comes next.
    void note_idle() noexcept {
        idle_after_.store(caller_cycles() + kIdleMark, std::memory_order_relaxed);
    }
    /// The number of caller cycles is that at the last note_idle().
    [[nodiscard]] bool idle_since(std::uint64_t cycles) const noexcept {
        return idle_after_.load(std::memory_order_relaxed) == cycles + kIdleMark;
    }

    /// Grows with every cycle that a caller made or slept for: the thread's sign that it is not
    /// needed.
    [[nodiscard]] std::uint64_t caller_cycles() const noexcept {
        return caller_cycles_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] int embed() override;
    [[nodiscard]] ProgressMode mode() const noexcept {
        return mode_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] const TransportConfig& config() const noexcept { return config_; }
    /// Counts poll cycles; posts with the same number belong to one poll interval.
    [[nodiscard]] std::uint64_t interval() const noexcept {
        return interval_.load(std::memory_order_relaxed);
    }
    /// Makes the background thread if the mode wants one and it is not there yet. Where none can be
    /// made it says so in the log.
    void ensure_thread() noexcept override;
    /// Callers wait in ways that are not seen here: `app` becomes `both`, for good.
    void need_thread();
    [[nodiscard]] bool has_thread() const noexcept {
        return notifiable_.load(std::memory_order_relaxed) != nullptr;
    }
    /// Wakes callers that sleep, so that they check again what they wait for. Any thread.
    void wake_waiters() noexcept override {
        // What the caller published goes before the check for waiters (base/wake_flag.hpp).
        std::atomic_thread_fence(std::memory_order_seq_cst);
        wait_group_.wake();
    }
    /// Around fork() (transport/fork.hpp): nothing is under way in between, unless fork() is called
    /// by a signal handler that interrupted a poll cycle. The child abandon()s: its copies of all
    /// descriptors are closed, and nothing of this is used any more; what is in the middle of a
    /// wait, because a handler of its thread forked, ends it. (After a handler that interrupted a
    /// poll cycle they stay open, for the list of them may be half changed.)
    void begin_fork() noexcept;
    void end_fork() noexcept;
    void abandon() noexcept;
    /// This thread is inside a poll cycle: asked by what a signal handler may call in the middle of
    /// one.
    [[nodiscard]] bool polled_by_this_thread() const noexcept {
        return lock_.load(std::memory_order_relaxed) == &this_poller;
    }
    /// Tells every item that the process exits.
    void begin_exit();
    /// Behind that: polls until none is draining, or `limit` after `begin` (an item's own
    /// exit_limit(), if that is longer).
    void drain(Time begin, Time limit);
    /// Tells them that this is over.
    void end_exit();
    /// Polls until no item has unsent() bytes, with the limits of drain(). None is told.
    void flush(Time begin, Time limit);

    // -- the poller only (inside a poll cycle) --

    /// Pauses the processor for so long, some us at most, or until an item was notified.
    void pause(Time duration) noexcept;

    /// Emptied at the end of the cycle, or earlier.
    [[nodiscard]] CompletionBatch& completions() noexcept { return completions_; }
    /// Registered items.
    [[nodiscard]] std::size_t size() const noexcept { return poll_set_.size(); }
    Result<void> add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events) {
        return poll_set_.add(std::move(item), fd, events);
    }
    Result<std::shared_ptr<DescriptorWatch>> watch(std::shared_ptr<DescriptorWatcher> watcher,
                                                   int fd, std::uint32_t events) override;
    /// An item without a descriptor, or with one that another item has registered and serves it
    /// by. Completion channels do not watch it.
    Result<void> add(std::shared_ptr<Pollable> item) { return poll_set_.add(std::move(item)); }
    /// @pre the item has a descriptor
    void modify(Pollable& item, std::uint32_t events) { poll_set_.modify(item, events); }
    /// The item may be destroyed after this cycle. Does not close the descriptor.
    void remove(Pollable& item) { poll_set_.remove(item); }
    /// Data do not come by the item's descriptor any more; as the next, this matters only while
    /// memory is polled.
    void watch_for_end_only(Pollable& item) { poll_set_.watch_for_end_only(item); }
    /// Its descriptor tells of little, and that may wait a millisecond.
    void watch_rarely(Pollable& item) { poll_set_.watch_rarely(item); }
    /// Poll cycles check the item's memory from now on. False: they check enough already.
    [[nodiscard]] bool begin_memory_polling(PolledMemory& item) {
        return poll_set_.memory().begin(item);
    }
    void end_memory_polling(PolledMemory& item) noexcept { poll_set_.memory().end(item); }
    void set_deadline(Pollable& item, Time deadline) { poll_set_.set_deadline(item, deadline); }
    /// Calls item.on_cycle_end() once all items of this cycle have been served: once, however often
    /// this is asked for before. Other items' on_cycle_end() may ask for it again.
    void call_at_cycle_end(Pollable& item) noexcept { poll_set_.call_at_cycle_end(item); }
    /// Calls item.on_idle() once cycles have moved nothing for 20 us, or a thread is about to
    /// sleep. Asking again changes nothing.
    void call_when_idle(Pollable& item) noexcept { poll_set_.idle().add(item); }
    /// From now on the item's completion channels watch its descriptor too.
    void join_channels(Pollable& item) {
        if (mode() != ProgressMode::thread) poll_set_.join_channels(*this, item);
    }
    /// Its links of shared memory; made on first use. Owners of streams keep it.
    Result<std::shared_ptr<ShmNode>> shm_node(PollCycle& cycle);
    [[nodiscard]] std::unique_ptr<TxBuffer> take_tx_buffer();
    void give_tx_buffer(std::unique_ptr<TxBuffer> buffer);

    // -- the background thread only --

    enum class ThreadCycle : std::uint8_t {
        busy,  ///< a caller polls at this moment
        idle,  ///< nothing moved
        moved,
    };
    /// One poll cycle if no other thread polls. `take_over`: everything is watched by epoll
    /// afterwards.
    ThreadCycle thread_cycle(bool take_over);
    /// The thread polls by itself every few milliseconds; then callers need not keep everything
    /// watched by epoll. Set to false before thread_cycle(true).
    void set_thread_ticking(bool ticking) noexcept {
        thread_clock_.store(ticking ? ThreadClock::ticks : ThreadClock::none,
                            std::memory_order_seq_cst);
    }
    [[nodiscard]] bool is_thread_ticking() const noexcept {
        return thread_clock_.load(std::memory_order_seq_cst) != ThreadClock::none;
    }
    /// The thread is going to sleep with no clock of its own until end_lead() ends this and
    /// notifies it. False: no caller leads.
    [[nodiscard]] bool begin_rest() noexcept {
        thread_clock_.store(ThreadClock::rests, std::memory_order_seq_cst);
        if (has_leader()) return true;
        end_rest();
        return false;
    }
    void end_rest() noexcept { thread_clock_.store(ThreadClock::ticks, std::memory_order_seq_cst); }
    [[nodiscard]] bool thread_rests() const noexcept {
        return thread_clock_.load(std::memory_order_seq_cst) == ThreadClock::rests;
    }
    /// Serves what was notified, and what waits for call_when_idle(). False: another thread polls.
    bool serve_notified();
    [[nodiscard]] int epoll_fd() const noexcept { return poll_set_.epoll_fd(); }
    [[nodiscard]] bool work_waiting() const noexcept override {
        return pending_.any(std::memory_order_seq_cst);
    }
    /// Items wait for call_when_idle(): polling on is of use though nothing comes. Any thread.
    [[nodiscard]] bool has_idle_calls() const noexcept { return poll_set_.idle().any(); }
    WakeFlag& thread_wake() noexcept { return thread_wake_; }
    [[nodiscard]] bool has_leader() const noexcept { return wait_group_.has_leader(); }

  private:
    Progress(Epochs& epochs, const TransportConfig& config, unsigned index);

    // Callers that race may lose a count; the thread needs to know only that it changed.
    void count_caller_cycle() noexcept {
        caller_cycles_.store(caller_cycles_.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
    }
    /// A poll cycle under way, by the holder of the lock; ends and unlocks also when something
    /// throws.
    struct CycleScope {
        explicit CycleScope(Progress& progress) noexcept
            : owner(progress), cycle(progress.begin_cycle()) {}
        ~CycleScope() {
            owner.end_cycle(cycle);
            owner.unlock();
        }
        CycleScope(const CycleScope&) = delete;
        CycleScope& operator=(const CycleScope&) = delete;
        Progress& owner;
        PollCycle cycle;
    };
    void leave_idle_calls() noexcept;
    void call_idle();
    [[nodiscard]] bool callers_poll() const noexcept {
        return mode() != ProgressMode::thread ||
               notifiable_.load(std::memory_order_relaxed) == nullptr;
    }

    static inline const char kAfterFork = 0;  // its address, as that of a holder that never unlocks
    [[nodiscard]] bool abandoned() const noexcept {
        return lock_.load(std::memory_order_relaxed) == &kAfterFork;
    }
    bool try_lock() noexcept {
        const char* nobody = nullptr;
        return lock_.compare_exchange_strong(nobody, &this_poller, std::memory_order_seq_cst);
    }
    void lock() noexcept;
    void unlock() noexcept;
    void run_locked(void (*f)(void* argument, PollCycle& cycle), void* argument) override {
        locked([&](PollCycle& cycle) { f(argument, cycle); });
    }
    PollCycle begin_cycle() noexcept;
    void arm_memory(PollCycle& cycle);
    void end_cycle(PollCycle& cycle) noexcept;
    bool begin_caller_cycle();
    bool poll_once();           ///< poll(); true: something moved
    bool poll_behind_others();  ///< the same, behind a cycle of another thread
    void run_cycle(PollCycle& cycle);
    void serve_pending(PollCycle& cycle);
    void detach_busy_polled();
    [[nodiscard]] bool epoll_is_relied_on() const noexcept;
    Waited wait(const std::function<bool()>& done, Time deadline, SignalBlocker* blocker);
    void offer_lead() noexcept;
    bool spin(const std::function<bool()>& done, Time deadline, SignalBlocker* blocker);
    template <typename Busy>
    void poll_while_any(Busy busy);
    void tell_all(void (Pollable::*what)(PollCycle&));
    void notify_later_slow(Pollable& item) noexcept;

    const TransportConfig config_;
    std::atomic<ProgressMode> mode_;
    const unsigned index_;

    alignas(64) std::atomic<const char*> lock_{nullptr};  // the progress lock: its holder
    bool fork_in_cycle_ = false;                          // between begin_fork() and end_fork()
    std::atomic<bool> urgent_{false};                     // notified while the lock was taken
    std::atomic<std::uint64_t> interval_{0};
    std::atomic<std::uint64_t> caller_cycles_{0};
    static constexpr std::uint64_t kIdleMark = 1;  // 0: note_idle() was never called
    std::atomic<std::uint64_t> idle_after_{0};

    alignas(64) PendingList pending_;

    WaitGroup wait_group_;

    WakeFlag thread_wake_;
    enum class ThreadClock : std::uint8_t {
        none,   ///< it watches epoll
        ticks,  ///< it looks every few milliseconds
        rests,  ///< it does so again when the leader of this moment has left
    };
    std::atomic<ThreadClock> thread_clock_{ThreadClock::none};
    std::atomic<bool> handed_over_{false};
    std::atomic<bool> embedded_{false};  // epoll_fd() is watched from outside
    std::mutex thread_lock_;             // making thread_
    std::unique_ptr<ProgressThread> thread_;
    std::atomic<ProgressThread*> notifiable_{nullptr};  // thread_, once it runs

    // Under the progress lock.
    Epochs::Reader reader_;
    std::unique_ptr<std::byte[]> staging_;
    CompletionBatch completions_;
    std::vector<std::unique_ptr<TxBuffer>> tx_buffers_;
    std::shared_ptr<ShmNode> shm_node_;
    PollSet poll_set_;
};

}  // namespace xsock
