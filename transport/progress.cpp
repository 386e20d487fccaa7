// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "base/biased_lock.hpp"
#include "transport/clock.hpp"
#include "transport/fault_handler.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/progress_thread.hpp"
#include "transport/shm_node.hpp"
#include "transport/watch_item.hpp"

namespace xsock {

[[gnu::tls_model("initial-exec")]] thread_local constinit char this_poller = 0;

namespace {

constexpr std::size_t kStagingBytes = 512 * 1024;
constexpr int kRoundsForOthers = 64;
constexpr std::size_t kSpareTxBuffers = 4;

void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

Progress::Progress(Epochs& epochs, const TransportConfig& config, unsigned index)
    : config_(config),
      mode_(config.progress),
      index_(index),
      reader_(epochs),
      staging_(new std::byte[kStagingBytes]) {
    tx_buffers_.reserve(kSpareTxBuffers);  // a connection that ends gives its own back
}

Result<std::unique_ptr<Progress>> Progress::create(Epochs& epochs, const TransportConfig& config,
                                                   unsigned index) {
    BiasedLock::prepare();
    std::unique_ptr<Progress> p(new Progress(epochs, config, index));
    if (auto opened = p->poll_set_.open(); !opened) return opened.error();
    if (auto opened = p->wait_group_.open(); !opened) return opened.error();
    add_to_forks(*p);
    return p;
}

Progress::~Progress() {
    thread_.reset();  // joins
    remove_from_forks(*this);
    poll_set_.close();
    wait_group_.close();
}

void Progress::abandon() noexcept {
    if (fork_in_cycle_) return;
    poll_set_.abandon();
    wait_group_.close();
    lock_.store(&kAfterFork, std::memory_order_relaxed);
}

void Progress::ensure_thread() noexcept {
    if (mode() == ProgressMode::app) return;
    if (notifiable_.load(std::memory_order_acquire) != nullptr) return;
    try {
        // No call_once(): an exception that passes it is libc's to unwind, which needs a descriptor
        // for libgcc_s.so.1 and aborts where there is none.
        const std::lock_guard hold(thread_lock_);
        if (thread_ != nullptr) return;
        thread_ = ProgressThread::start(*this, config_, index_);
        notifiable_.store(thread_.get(), std::memory_order_seq_cst);
        locked([this](PollCycle&) {
            poll_set_.attach_busy_polled();
        });  // a poller may have detached it before that
    } catch (const std::exception&) {
        // No descriptors, memory or threads: the next connection tries again.
        static std::atomic<bool> told{false};
        if (told.exchange(true)) return;
        log(LogLevel::error, "no-thread",
            "no background thread could be made: connections move only while the program polls");
    }
}

void Progress::need_thread() {
    ProgressMode expected = ProgressMode::app;
    if (mode_.compare_exchange_strong(expected, ProgressMode::both)) ensure_thread();
}

// ---- the progress lock ------------------------------------------------------

// The nap is for a thread of a real-time priority, whose yielding would keep the holder, of a lower
// one, from the processor for ever.
void Progress::lock() noexcept {
    constexpr timespec kNap{0, 50'000};
    for (int tries = 0; !try_lock(); ++tries) {
        if (tries < 100) {
            cpu_relax();
        } else if (tries < 1000) {
            sched_yield();
        } else {
            nanosleep(&kNap, nullptr);
        }
    }
}

void Progress::begin_fork() noexcept {
    const bool mine = polled_by_this_thread();
    if (!mine) lock();
    fork_in_cycle_ = mine;
}

void Progress::end_fork() noexcept {
    if (!fork_in_cycle_) unlock();
}

// A poster that finds the lock taken publishes its item, sets urgent_, and tries the lock once
// more; the holder frees the lock and then reads urgent_. Both steps of both sides are
// sequentially consistent, so either the poster's second try or the holder's read succeeds.
void Progress::unlock() noexcept {
    lock_.store(nullptr, std::memory_order_seq_cst);
    for (int round = 0; urgent_.load(std::memory_order_seq_cst); ++round) {
        // Posters that never pause must not make one of them work for all, for ever.
        ProgressThread* const thread = notifiable_.load(std::memory_order_acquire);
        if (round == kRoundsForOthers && thread != nullptr) {
            handed_over_.store(true, std::memory_order_release);  // the thread need not check twice
            thread->notify();
            wake_waiters();  // a leader that sleeps: the thread leaves the work to it
            return;
        }
        if (!try_lock()) return;  // the new holder will check
        urgent_.store(false, std::memory_order_seq_cst);
        PollCycle cycle = begin_cycle();
        serve_pending(cycle);
        end_cycle(cycle);
        lock_.store(nullptr, std::memory_order_seq_cst);
    }
}

PollCycle Progress::begin_cycle() noexcept {
    return PollCycle(Bytes(staging_.get(), kStagingBytes), reader_);
}

void Progress::end_cycle(PollCycle& cycle) noexcept {
    if (has_idle_calls()) [[unlikely]]
        poll_set_.idle().end_cycle(cycle, epoll_is_relied_on());
    poll_set_.serve_cycle_end(cycle);
    if (poll_set_.polls_memory()) [[unlikely]]
        arm_memory(cycle);
    if (has_idle_calls() && cycle.by != PollCycle::By::thread) [[unlikely]]
        leave_idle_calls();
    cycle.leave_section();
    completions_.flush();
    poll_set_.forget_removed();
    if (cycle.active) wait_group_.wake();
}

// ---- poll cycles ----------------------------------------------------------

// False: only the thread polls, which is told to.
bool Progress::begin_caller_cycle() {
    if (!callers_poll()) {
        notify_thread();
        return false;
    }
    count_caller_cycle();
    return true;
}

void Progress::try_poll_thoroughly() {
    if (!begin_caller_cycle() || !try_lock()) return;
    CycleScope scope(*this);
    scope.cycle.by = PollCycle::By::caller;
    // Alone, the busy-polled item answers for all: epoll could only tell of timers and wake flags.
    scope.cycle.thorough = poll_set_.watches_several();
    poll_set_.read_next_time();
    run_cycle(scope.cycle);
}

bool Progress::poll_once() {
    if (!begin_caller_cycle() || !try_lock()) return false;
    CycleScope scope(*this);
    scope.cycle.by = PollCycle::By::caller;
    run_cycle(scope.cycle);
    return scope.cycle.active;
}

// What has woken a leader may be about to be served by a thread that polls just now. To sleep again
// at once would find it still there, again and again.
bool Progress::poll_behind_others() {
    constexpr int kSpins = 100, kTries = 120;
    for (int tries = 0; lock_.load(std::memory_order_relaxed) != nullptr; ++tries) {
        if (tries == kTries || abandoned()) return false;
        if (tries < kSpins) {
            cpu_relax();
        } else {
            sched_yield();
        }
    }
    return poll_once();
}

void Progress::poll_thoroughly() {
    if (!begin_caller_cycle()) return;
    lock();
    CycleScope scope(*this);
    scope.cycle.by = PollCycle::By::caller;
    scope.cycle.thorough = true;
    run_cycle(scope.cycle);
}

void Progress::poll_channel(SoftChannel& channel) {
    if (!begin_caller_cycle()) return;
    lock();
    CycleScope scope(*this);
    scope.cycle.by = PollCycle::By::caller;
    interval_.store(interval() + 1, std::memory_order_relaxed);
    serve_pending(scope.cycle);
    // What comes into memory no channel tells of.
    if (!poll_set_.polls_memory() && poll_set_.serve_channel(channel, scope.cycle)) return;
    scope.cycle.thorough = true;
    run_cycle(scope.cycle);
}

Progress::ThreadCycle Progress::thread_cycle(bool take_over) {
    if (!try_lock()) return ThreadCycle::busy;
    CycleScope scope(*this);
    scope.cycle.by = PollCycle::By::thread;
    if (take_over) poll_set_.rely_on_epoll();  // what woke the thread is known to it
    run_cycle(scope.cycle);
    return scope.cycle.active ? ThreadCycle::moved : ThreadCycle::idle;
}

void Progress::pause(Time duration) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    poll_set_.count_pause();
    const Time end = monotonic_now() + duration;
    do {
        cpu_relax();
    } while (!urgent_.load(relaxed) && !pending_.any(relaxed) && monotonic_now() < end);
}

void Progress::run_cycle(PollCycle& cycle) {
    interval_.store(interval_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    serve_pending(cycle);
    poll_set_.serve_ready(cycle);
    if (poll_set_.should_detach()) detach_busy_polled();
}

void Progress::serve_pending(PollCycle& cycle) {
    if (!work_waiting()) return;
    pending_.serve([&](Pollable& item) {
        item.sync_with_posters();
        if (item.registered_) {
            call(item, cycle, [&] { item.on_notify(cycle); });
        } else {
            completions_.flush();  // into queues that it may be the last to keep
        }
    });
    completions_.flush();
}

Result<std::shared_ptr<DescriptorWatch>> Progress::watch(std::shared_ptr<DescriptorWatcher> watcher,
                                                         int fd, std::uint32_t events) {
    try {
        auto item = std::make_shared<WatchItem>(*this, std::move(watcher));
        if (auto r = add(item, fd, events); !r) return r.error();
        return std::shared_ptr<DescriptorWatch>(std::move(item));
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory to watch the descriptor"};
    }
}

std::unique_ptr<TxBuffer> Progress::take_tx_buffer() {
    if (tx_buffers_.empty()) return std::make_unique<TxBuffer>();
    auto buffer = std::move(tx_buffers_.back());
    tx_buffers_.pop_back();
    return buffer;
}

void Progress::give_tx_buffer(std::unique_ptr<TxBuffer> buffer) {
    if (tx_buffers_.size() < kSpareTxBuffers) tx_buffers_.push_back(std::move(buffer));
}

// ---- notifications --------------------------------------------------------

void Progress::notify_later_slow(Pollable& item) noexcept {
    if (!pending_.add(item)) return;
    if (mode() != ProgressMode::app) {
        notify_thread();
    } else {
        poll_set_.notify_embedder();  // a loop that embeds us must come round
    }
}

void Progress::notify_soon(Pollable& item) {
    if (item.pending_.load(std::memory_order_seq_cst) || !pending_.add(item)) return;
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire)) {
        thread->notify_soon();
    } else if (mode() == ProgressMode::app) {
        poll_set_.notify_embedder();
    } else {
        notify_now(item);  // no thread could be made
    }
}

// No other cycle may follow this one. The background thread looks by itself while it ticks, a
// leader looks before it sleeps (lead()). A thread that sleeps in epoll must be told, for what was
// taken here may not have woken it; and so must a loop that embeds us.
void Progress::leave_idle_calls() noexcept {
    if (is_thread_ticking()) return;
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire)) {
        thread->notify_soon();
    } else if (embedded_.load(std::memory_order_relaxed)) {
        poll_set_.notify_embedder();
    }
}

bool Progress::serve_notified() {
    if (!try_lock()) return false;
    CycleScope scope(*this);
    serve_pending(scope.cycle);
    if (has_idle_calls()) poll_set_.idle().call_all(scope.cycle);
    return true;
}

void Progress::notify_now(Pollable& item) {
    if (!callers_poll()) {
        pending_.add(item);
        notify_thread();
        return;
    }
    if (!try_lock()) {
        pending_.add(item);
        urgent_.store(true, std::memory_order_seq_cst);
        if (!try_lock()) return;
        urgent_.store(false, std::memory_order_seq_cst);
        CycleScope scope(*this);
        serve_pending(scope.cycle);
        return;
    }
    CycleScope scope(*this);
    if (item.registered_) call(item, scope.cycle, [&] { item.on_notify(scope.cycle); });
}

void Progress::hand_over() noexcept {
    if (mode() == ProgressMode::app) return;
    if (!is_thread_ticking()) return;  // it watches already
    handed_over_.store(true, std::memory_order_release);
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire))
        thread->notify();
}

void Progress::notify_thread() {
    if (!thread_wake_.should_notify()) return;
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire))
        thread->notify();
}

}  // namespace xsock
