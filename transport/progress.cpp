// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/assert.hpp"
#include "base/biased_lock.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/progress_thread.hpp"
#include "transport/signal_blocker.hpp"
#include "transport/soft_channel.hpp"

namespace xsock {

[[gnu::tls_model("initial-exec")]] thread_local constinit char this_poller = 0;

namespace {

constexpr std::size_t kStagingBytes = 512 * 1024;
constexpr std::uint32_t kCyclesBetweenEpoll = 8;
constexpr std::uint32_t kCyclesBetweenEpollAlone = 64;
constexpr std::uint32_t kBusyPolledIdleCycles = 1024;  // then it is not busy-polled any more
constexpr std::uint32_t kCyclesUntilDetach = 256;
constexpr int kRereadsWhenAlone = 4;
constexpr std::uint32_t kReadsPutOff = 16;
constexpr int kEventsPerCycle = 64;
constexpr int kRoundsForOthers = 64;
constexpr std::size_t kSpareTxBuffers = 4;

// epoll data of what is no Pollable.
int embed_tag;
int timer_tag;

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
      staging_(new std::byte[kStagingBytes]) {}

Result<std::unique_ptr<Progress>> Progress::create(Epochs& epochs, const TransportConfig& config,
                                                   unsigned index) {
    BiasedLock::prepare();
    std::unique_ptr<Progress> p(new Progress(epochs, config, index));
    p->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll_fd_ < 0) return Error{errno, "epoll_create1 failed"};
    if (auto opened = p->wait_group_.open(); !opened) return opened.error();
    if (auto opened = p->embed_.open(); !opened) return opened.error();
    p->timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (p->timer_fd_ < 0) return Error{errno, "timerfd_create failed"};
    for (const auto& [fd, tag] :
         {std::pair{p->embed_.fd(), &embed_tag}, std::pair{p->timer_fd_, &timer_tag}}) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = tag;
        if (epoll_ctl(p->epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
            return Error{errno, "epoll_ctl failed"};
        }
    }
    for (const int fd : {p->epoll_fd_, p->timer_fd_}) register_internal_fd(fd);
    add_to_forks(*p);
    return p;
}

Progress::~Progress() {
    thread_.reset();  // joins
    remove_from_forks(*this);
    close_descriptors();
}

void Progress::close_descriptors() noexcept {
    for (const int fd : {epoll_fd_, timer_fd_}) {
        if (fd >= 0) close_internal_fd(fd);
    }
    wait_group_.close();
    embed_.close();
}

void Progress::abandon() noexcept {
    if (fork_in_cycle_) return;
    for (const auto& entry : items_) close_internal_fd(entry.first->fd_);
    close_descriptors();
    lock_.store(&kAfterFork, std::memory_order_relaxed);
}

void Progress::ensure_thread() {
    if (mode() == ProgressMode::app) return;
    std::call_once(thread_once_, [this] {
        thread_ = ProgressThread::start(*this, config_, index_);
        if (thread_ == nullptr) {
            log(LogLevel::error, "no-thread",
                "no background thread could be made: connections move only while the program "
                "polls");
        }
        notifiable_.store(thread_.get(), std::memory_order_seq_cst);
        locked([this](PollCycle&) {
            attach_busy_polled();
        });  // a poller may have detached it before that
    });
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
// more; the holder frees the lock and then looks at urgent_. Both steps of both sides are
// sequentially consistent, so either the poster's second try or the holder's look succeeds.
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
        if (!try_lock()) return;  // the new holder will look
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
    cycle.leave_section();
    completions_.flush();
    if (!removed_.empty()) removed_.clear();
    if (cycle.active) wake_waiters();
}

// ---- poll cycles ----------------------------------------------------------

void Progress::try_poll_thoroughly() {
    if (!callers_poll()) {
        notify_thread();
        return;
    }
    count_caller_cycle();
    if (!try_lock()) return;
    CycleScope scope(*this);
    scope.cycle.by_caller = true;
    // Alone, the busy-polled item answers for all: epoll could only tell of timers and wake flags.
    thorough_ = items_.size() > 1;
    reads_put_off_ = kReadsPutOff;
    run_cycle(scope.cycle);
    thorough_ = false;
}

void Progress::poll() {
    if (!callers_poll()) {
        notify_thread();
        return;
    }
    count_caller_cycle();
    if (!try_lock()) return;
    CycleScope scope(*this);
    scope.cycle.by_caller = true;
    run_cycle(scope.cycle);
}

void Progress::poll_thoroughly() {
    if (!callers_poll()) {
        notify_thread();
        return;
    }
    count_caller_cycle();
    lock();
    CycleScope scope(*this);
    scope.cycle.by_caller = true;
    thorough_ = true;
    run_cycle(scope.cycle);
    thorough_ = false;
}

void Progress::poll_channel(SoftChannel& channel) {
    if (!callers_poll()) {
        notify_thread();
        return;
    }
    count_caller_cycle();
    lock();
    CycleScope scope(*this);
    PollCycle& cycle = scope.cycle;
    cycle.by_caller = true;
    interval_.store(interval() + 1, std::memory_order_relaxed);
    serve_pending(cycle);
    // Of one member recv() itself tells what came in.
    if (Pollable* const item = channel.single_member();
        item != nullptr && (item->events_ & (EPOLLIN | EPOLLOUT)) == EPOLLIN) {
        call(*item, cycle, [&] { item->on_ready(EPOLLIN, cycle); });
        return;
    }
    std::array<epoll_event, kEventsPerCycle> events;
    const int n = epoll_wait(channel.fd(), events.data(), kEventsPerCycle, 0);
    if (channel.several()) {  // since just now: an event may be of another Progress's item
        thorough_ = true;
        run_cycle(cycle);
        thorough_ = false;
        return;
    }
    for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        auto* const item = static_cast<Pollable*>(event.data.ptr);
        // An earlier item of this cycle may have removed it; removed items live until its end.
        if (!item->registered_) continue;
        const std::uint32_t ready = event.events;
        call(*item, cycle, [&] { item->on_ready(ready, cycle); });
    }
}

Progress::ThreadCycle Progress::thread_cycle(bool take_over) {
    if (!try_lock()) return ThreadCycle::busy;
    CycleScope scope(*this);
    if (take_over) {
        attach_busy_polled();
        last_epoll_was_single_ = false;  // what woke the thread is known to epoll
    }
    run_cycle(scope.cycle);
    return scope.cycle.active ? ThreadCycle::moved : ThreadCycle::idle;
}

void Progress::pause(Time duration) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    ++cycles_since_epoll_;  // in the time of a poll cycle, so that what only epoll sees waits no
                            // longer
    const Time end = monotonic_now() + duration;
    do {
        cpu_relax();
    } while (!urgent_.load(relaxed) && pending_count_.load(relaxed) == 0 && monotonic_now() < end);
}

void Progress::run_cycle(PollCycle& cycle) {
    interval_.store(interval_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    serve_pending(cycle);
    serve_ready(cycle);
}

void Progress::serve_pending(PollCycle& cycle) {
    if (pending_count_.load(std::memory_order_seq_cst) == 0) return;
    {
        const BiasedLock::Guard lock(pending_lock_);
        serving_.swap(pending_);
        // A thread that reads the old count makes a poll cycle in vain.
        pending_count_.store(0, std::memory_order_relaxed);
    }
    for (auto& item : serving_) {
        // Cleared first: a notification from now on puts the item into the list again.
        item->pending_.store(false, std::memory_order_seq_cst);
        item->sync_with_posters();
        if (item->registered_) call(*item, cycle, [&] { item->on_notify(cycle); });
    }
    completions_.flush();  // into queues that an item may have been the last to keep
    serving_.clear();
}

void Progress::serve_ready(PollCycle& cycle) {
    if (busy_polled_ != nullptr &&
        (last_epoll_was_single_ || busy_polled_detached_.load(std::memory_order_relaxed))) {
        const bool moved = serve_busy_polled(cycle);
        // Alone, epoll can only tell of timers and wake flags, which can wait for a few cycles.
        std::uint32_t epoll_interval = 0;
        if (busy_polled_ == nullptr || (busy_polled_->events_ & EPOLLOUT) != 0) {
            epoll_interval = 0;
        } else if (items_.size() <= 1) {
            epoll_interval = kCyclesBetweenEpollAlone;
        } else if (moved || busy_polled_idle_ < kBusyPolledIdleCycles) {
            epoll_interval = kCyclesBetweenEpoll;
        }
        if (++cycles_since_epoll_ < epoll_interval && !thorough_) return;
    }
    cycles_since_epoll_ = 0;
    std::array<epoll_event, kEventsPerCycle> events;
    const int n = epoll_wait(epoll_fd_, events.data(), kEventsPerCycle, 0);
    int items = 0;
    for (int i = 0; i < n; ++i) {
        void* const tag = events[static_cast<std::size_t>(i)].data.ptr;
        if (tag == &embed_tag) {
            embed_.take();
            continue;
        }
        if (tag == &timer_tag) {
            std::uint64_t expirations = 0;
            [[maybe_unused]] const ssize_t r = read(timer_fd_, &expirations, sizeof expirations);
            armed_timer_ = kNever;
            serve_deadlines(cycle);
            continue;
        }
        auto* item = static_cast<Pollable*>(tag);
        // An earlier item of this cycle may have removed it; the list of removed items keeps the
        // memory.
        if (!item->registered_) continue;
        ++items;
        begin_busy_poll(*item);
        const std::uint32_t ready = events[static_cast<std::size_t>(i)].events;
        call(*item, cycle, [&] { item->on_ready(ready, cycle); });
    }
    if (items > 0) last_epoll_was_single_ = items == 1;
    if (n == 0 && items_.size() <= 1) last_epoll_was_single_ = true;
}

// With one busy connection, recv() itself is the cheapest question. True when it moved something.
bool Progress::serve_busy_polled(PollCycle& cycle) {
    const bool was_active = cycle.active;
    // A caller that sends in each cycle and receives nothing reads less often: an empty recv() for
    // every batch that goes out costs as much as ten small messages.
    if (was_active && !cycle.sent_much && busy_polled_idle_ > 0 && reads_put_off_ < kReadsPutOff) {
        ++reads_put_off_;
        return true;
    }
    reads_put_off_ = 0;
    cycle.active = false;
    Pollable& item = *busy_polled_;
    // A caller that polls one connection alone reads more often than one read for each call would
    // let it.
    if (busy_polled_detached_.load(std::memory_order_relaxed) && !was_active) {
        cycle.rereads = kRereadsWhenAlone;
    }
    call(item, cycle, [&] { item.on_ready(EPOLLIN, cycle); });
    cycle.rereads = 0;
    const bool moved = cycle.active;
    cycle.active = was_active || moved;
    busy_polled_idle_ = moved ? 0 : busy_polled_idle_ + 1;
    // recv() tells of what comes in; that there is room to send, only epoll does.
    const bool reads_only = busy_polled_ != nullptr && (busy_polled_->events_ & EPOLLOUT) == 0;
    if (cycle.by_caller && reads_only && ++busy_polled_cycles_ >= kCyclesUntilDetach)
        detach_busy_polled();
    return moved;
}

void Progress::begin_busy_poll(Pollable& item) {
    if (busy_polled_ == &item) return;
    attach_busy_polled();
    busy_polled_ = &item;
    busy_polled_idle_ = 0;
    busy_polled_cycles_ = 0;
}

// While callers poll one connection all the time, epoll's work for each of its segments (a callback
// and a lock in the sender's path, 0.3 us of a 3.8 us ping-pong) has no use: the connection is
// taken out, as long as no one sleeps in epoll or relies on it. Those are a leader, the thread
// unless it looks in by its own clock, and loops that embed us. Each of them publishes itself and
// then makes sure that all is attached; here the detachment is published first and they are looked
// for after.
void Progress::detach_busy_polled() {
    if (busy_polled_detached_.load(std::memory_order_relaxed)) return;
    busy_polled_cycles_ = 0;
    if (mode() == ProgressMode::thread) return;
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, busy_polled_->fd_, nullptr);
    busy_polled_detached_.store(true, std::memory_order_seq_cst);
    const bool thread_sleeps = notifiable_.load(std::memory_order_seq_cst) != nullptr &&
                               !thread_ticking_.load(std::memory_order_seq_cst);
    if (thread_sleeps || wait_group_.has_leader() || embedded_.load(std::memory_order_seq_cst)) {
        attach_busy_polled();
    }
}

void Progress::attach_busy_polled() {
    busy_polled_cycles_ = 0;
    if (!busy_polled_detached_.load(std::memory_order_relaxed)) return;
    watch(*busy_polled_);
    busy_polled_detached_.store(false, std::memory_order_seq_cst);
}

// Puts an item into epoll again. That can fail for want of kernel memory only; the lock holder has
// nothing better to do than insist.
void Progress::watch(Pollable& item) {
    epoll_event event{};
    event.events = item.events_;
    event.data.ptr = &item;
    while (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, item.fd_, &event) != 0 && errno == ENOMEM) {
        sched_yield();
    }
}

int Progress::embed() {
    embedded_.store(true, std::memory_order_seq_cst);
    locked([this](PollCycle&) { attach_busy_polled(); });
    return epoll_fd_;
}

void Progress::serve_deadlines(PollCycle& cycle) {
    // Not more than there are now: one that is set to the past again must not keep the poller.
    for (std::size_t left = deadlines_.size();
         left > 0 && !deadlines_.empty() && deadlines_.begin()->first <= cycle.now(); --left) {
        Pollable* const item = deadlines_.begin()->second;
        deadlines_.erase(deadlines_.begin());
        item->deadline_ = kNever;
        call(*item, cycle, [&] { item->on_time(cycle); });
    }
    update_timer();
}

// ---- registration ---------------------------------------------------------

Result<void> Progress::add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events) {
    Pollable* const key = item.get();
    auto entry = items_.end();
    try {
        removed_.reserve(items_.size() + 1);  // so that remove() cannot fail
        entry = items_.emplace(key, std::move(item)).first;
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory to watch the descriptor"};
    }
    epoll_event event{};
    event.events = events;
    event.data.ptr = key;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int error = errno;
        items_.erase(entry);
        return Error{error, "the descriptor cannot be watched"};
    }
    key->fd_ = fd;
    key->events_ = events;
    key->registered_ = true;
    key->owns_fd_ = !is_internal_fd(fd);
    register_internal_fd(fd);
    registered_count_.store(items_.size(), std::memory_order_relaxed);
    return {};
}

// The kernel wakes the watchers of a socket while it holds the socket's lock, the latest first. The
// program that sleeps on a channel shall be woken last: awake on another processor, it would wait
// in recv() for that lock.
void Progress::join_channels(Pollable& item) {
    if (!item.registered_ || item.in_channels_ || mode() == ProgressMode::thread ||
        (item.channels_[0] == nullptr && item.channels_[1] == nullptr)) {
        return;
    }
    if (&item == busy_polled_) attach_busy_polled();
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, item.fd_, nullptr);
    for (const auto& channel : item.channels_) {
        if (channel == nullptr) continue;
        if (auto joined = channel->add(*this, item, item.fd_, item.events_); !joined) {
            log(LogLevel::warn, "channel-not-joined", "%s: %s; the background thread serves it",
                std::strerror(joined.error().code), joined.error().what);
        }
    }
    item.in_channels_ = true;
    watch(item);
}

void Progress::modify(Pollable& item, std::uint32_t events) {
    XSOCK_ASSERT(item.registered_);
    item.events_ = events;
    if (item.in_channels_) {
        for (const auto& channel : item.channels_) {
            if (channel != nullptr) channel->modify(item, item.fd_, events);
        }
    }
    if (&item == busy_polled_) attach_busy_polled();
    epoll_event event{};
    event.events = events;
    event.data.ptr = &item;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, item.fd_, &event);
}

void Progress::remove(Pollable& item) {
    if (!item.registered_) return;
    if (&item == busy_polled_) {
        attach_busy_polled();
        busy_polled_ = nullptr;
    }
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, item.fd_, nullptr);
    if (item.in_channels_) {
        for (const auto& channel : item.channels_) {
            if (channel != nullptr) channel->remove(item.fd_);
        }
        item.in_channels_ = false;
    }
    if (item.owns_fd_) unregister_internal_fd(item.fd_);
    item.registered_ = false;
    item.fd_ = -1;
    set_deadline(item, kNever);
    const auto found = items_.find(&item);
    XSOCK_ASSERT(found != items_.end());
    removed_.push_back(std::move(found->second));
    items_.erase(found);
    registered_count_.store(items_.size(), std::memory_order_relaxed);
}

void Progress::set_deadline(Pollable& item, Time deadline) {
    if (item.deadline_ == deadline) return;
    if (item.deadline_ != kNever) deadlines_.erase({item.deadline_, &item});
    item.deadline_ = deadline;
    if (deadline != kNever) deadlines_.emplace(deadline, &item);
    update_timer();
}

// The timer is only ever moved forward in time when it fires: an early wake-up is cheaper than a
// system call for each deadline that is put off.
void Progress::update_timer() {
    if (deadlines_.empty()) return;
    const Time earliest = deadlines_.begin()->first;
    if (earliest >= armed_timer_) return;
    armed_timer_ = earliest;
    itimerspec at{};
    at.it_value.tv_sec = static_cast<time_t>(earliest / kSecond);
    at.it_value.tv_nsec = static_cast<long>(earliest % kSecond);
    if (at.it_value.tv_sec == 0 && at.it_value.tv_nsec == 0) at.it_value.tv_nsec = 1;
    timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &at, nullptr);
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

bool Progress::add_pending(Pollable& item) {
    // The server clears the flag before it checks what was posted: set means that check is to come.
    if (item.pending_.load(std::memory_order_seq_cst)) return false;
    const BiasedLock::Guard lock(pending_lock_);
    if (item.pending_.load(std::memory_order_seq_cst)) return false;
    pending_.push_back(item.shared_from_this());  // may throw, with nothing else changed
    pending_count_.store(pending_.size(), std::memory_order_seq_cst);
    // Behind the count: a poster that finds the flag set relies on the count being checked.
    item.pending_.store(true, std::memory_order_release);
    return true;
}

void Progress::notify_later_slow(Pollable& item) {
    if (!add_pending(item)) return;
    if (mode() != ProgressMode::app) {
        notify_thread();
    } else {
        embed_.notify();  // a loop that embeds us must come round
    }
}

void Progress::notify_now(Pollable& item) {
    if (!callers_poll()) {
        add_pending(item);
        notify_thread();
        return;
    }
    if (!try_lock()) {
        add_pending(item);
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
    if (!thread_ticking_.load(std::memory_order_seq_cst)) return;  // it watches already
    handed_over_.store(true, std::memory_order_release);
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire))
        thread->notify();
}

void Progress::notify_thread() {
    if (!thread_wake_.should_notify()) return;
    if (ProgressThread* const thread = notifiable_.load(std::memory_order_acquire))
        thread->notify();
}

// ---- waiting --------------------------------------------------------------

Time Progress::spin_budget() noexcept {
    if (config_.spin == 0 || !callers_poll()) return 0;
    return wait_group_.worth_spinning() ? config_.spin : 0;
}

bool Progress::spin(const std::function<bool()>& done, Time deadline) {
    const Time budget = spin_budget();
    if (budget == 0) return false;
    const Time begin = monotonic_now();
    const Time end = std::min(deadline, time_after(begin, budget));
    do {
        poll();
        if (done()) {
            count_spin(true);
            return true;
        }
    } while (monotonic_now() < end);
    count_spin(false);
    return false;
}

bool Progress::lead() {
    if (!callers_poll() || !wait_group_.try_lead()) return false;
    count_caller_cycle();
    if (busy_polled_detached_.load(std::memory_order_seq_cst)) {
        locked([this](PollCycle&) { attach_busy_polled(); });
    }
    wait_group_.begin_sleep();
    return true;
}

void Progress::end_lead(bool notified) {
    wait_group_.end_sleep(notified);
    poll();
    wait_group_.end_lead();
    offer_lead();
}

void Progress::offer_lead() {
    if (!abandoned()) wait_group_.offer_lead();  // else those in the lists are the parent's
}

void Progress::unfollow(Follower& follower) {
    if (!abandoned()) wait_group_.unfollow(follower, callers_poll());
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
        poll();
        if (done()) return Waited::done;
        if (deadline == 0 || monotonic_now() >= deadline) return Waited::timeout;
        if (spin(done, deadline)) return Waited::done;
    } else {
        notify_thread();
    }
    for (;;) {
        if (process_generation() != generation) return Waited::interrupted;
        if (may_poll && lead()) {
            // What completed before this line is seen here; what completes later notifies.
            const bool notified = !done() && !work_waiting() &&
                                  wait_group_.sleep_as_leader(epoll_fd_, deadline, blocker);
            end_lead(notified);
            if (done()) return Waited::done;
            if (blocker != nullptr && blocker->handle_pending()) return Waited::interrupted;
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

void Progress::flush(Time deadline) {
    for (bool busy = true; busy;) {
        locked([&](PollCycle& cycle) {
            run_cycle(cycle);
            busy = std::any_of(items_.begin(), items_.end(),
                               [](const auto& entry) { return entry.second->unsent(); });
        });
        if (!busy || monotonic_now() >= deadline) return;
        pollfd ready{epoll_fd_, POLLIN, 0};
        ::poll(&ready, 1, 1);
    }
}

void Progress::drain(Time deadline) {
    bool busy = false;
    const auto look = [&](PollCycle&) {
        busy = std::any_of(items_.begin(), items_.end(),
                           [](const auto& entry) { return entry.second->draining(); });
    };
    locked([&](PollCycle& cycle) {
        std::vector<std::shared_ptr<Pollable>> all;
        for (const auto& entry : items_) all.push_back(entry.second);
        for (const auto& item : all) call(*item, cycle, [&] { item->on_exit(cycle); });
        look(cycle);
    });
    while (busy && monotonic_now() < deadline) {
        pollfd ready{epoll_fd_, POLLIN, 0};
        ::poll(&ready, 1, 1);
        locked([&](PollCycle& cycle) {
            run_cycle(cycle);
            look(cycle);
        });
    }
}

}  // namespace xsock
