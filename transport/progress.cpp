// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/assert.hpp"
#include "base/biased_lock.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/interrupt.hpp"
#include "transport/log.hpp"
#include "transport/progress_thread.hpp"
#include "transport/soft_channel.hpp"

namespace xsock {

[[gnu::tls_model("initial-exec")]] thread_local constinit char this_driver = 0;

namespace {

constexpr std::size_t kStagingOctets = 512 * 1024;
constexpr std::uint32_t kPassesBetweenEpoll = 8;
constexpr std::uint32_t kPassesBetweenEpollAlone = 64;
constexpr std::uint32_t kHotIdlePasses = 1024;  // then it is not hot any more
constexpr std::uint32_t kPassesUntilDetach = 256;
constexpr int kLooksMoreWhenAlone = 4;
constexpr std::uint32_t kLooksPutOff = 16;
constexpr int kEventsPerPass = 64;
constexpr int kRoundsForOthers = 64;
constexpr std::size_t kSpareTxBuffers = 4;

// epoll data of what is no Pollable.
int embed_tag;
int timer_tag;

// Fails only when the counter is full, and then the descriptor is readable already.
void signal_event(int fd) noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof one);
}

void clear_event(int fd) noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof count);
}

// For poll(): rounded up; -1 for kNever.
int milliseconds_until(Time deadline) noexcept {
    if (deadline == kNever) return -1;
    const Time now = monotonic_now();
    const Time left = deadline > now ? deadline - now : 0;
    return static_cast<int>(
        std::min<Time>((left + kMillisecond - 1) / kMillisecond, 1'000'000'000));
}

void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

Progress::Progress(Epochs& epochs, const TransportConfig& config, unsigned index)
    : config_(config), index_(index), reader_(epochs), staging_(new std::byte[kStagingOctets]) {}

Result<std::unique_ptr<Progress>> Progress::create(Epochs& epochs, const TransportConfig& config,
                                                   unsigned index) {
    BiasedLock::prepare();
    std::unique_ptr<Progress> p(new Progress(epochs, config, index));
    p->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll_fd_ < 0) return Error{errno, "epoll_create1 failed"};
    p->bell_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->embed_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->bell_fd_ < 0 || p->embed_fd_ < 0) return Error{errno, "eventfd failed"};
    p->timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (p->timer_fd_ < 0) return Error{errno, "timerfd_create failed"};
    for (const auto& [fd, tag] :
         {std::pair{p->embed_fd_, &embed_tag}, std::pair{p->timer_fd_, &timer_tag}}) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = tag;
        if (epoll_ctl(p->epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
            return Error{errno, "epoll_ctl failed"};
        }
    }
    for (const int fd : {p->epoll_fd_, p->bell_fd_, p->embed_fd_, p->timer_fd_}) own_descriptor(fd);
    add_to_forks(*p);
    return p;
}

Progress::~Progress() {
    thread_.reset();  // joins
    remove_from_forks(*this);
    close_descriptors();
}

void Progress::close_descriptors() noexcept {
    for (const int fd : {epoll_fd_, bell_fd_, embed_fd_, timer_fd_, signal_fd_.load()}) {
        if (fd >= 0) close_owned(fd);
    }
    for (const int fd : events_) close_owned(fd);
}

void Progress::abandon() noexcept {
    if (fork_in_pass_) return;
    for (const auto& entry : items_) close_owned(entry.first->fd_);
    close_descriptors();
    lock_.store(&kAbandoned, std::memory_order_relaxed);
}

void Progress::ensure_thread() {
    if (config_.progress == ProgressMode::app) return;
    std::call_once(thread_once_, [this] {
        thread_ = ProgressThread::start(*this, config_, index_);
        if (thread_ == nullptr) {
            log(LogLevel::error, "no-thread",
                "no background thread could be made: connections move only while the program "
                "polls");
        }
        ringable_.store(thread_.get(), std::memory_order_seq_cst);
        locked([this](Pass&) { attach_hot(); });  // a poller may have detached it before that
    });
}

// ---- the driver lock ------------------------------------------------------

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
    const bool mine = driven_by_this_thread();
    if (!mine) lock();
    fork_in_pass_ = mine;
}

void Progress::end_fork() noexcept {
    if (!fork_in_pass_) unlock();
}

// A poster that finds the lock taken publishes its item, sets urgent_, and tries the lock once
// more; the holder frees the lock and then looks at urgent_. Both steps of both sides are
// sequentially consistent, so either the poster's second try or the holder's look succeeds.
void Progress::unlock() noexcept {
    lock_.store(nullptr, std::memory_order_seq_cst);
    for (int round = 0; urgent_.load(std::memory_order_seq_cst); ++round) {
        // Posters that never pause must not make one of them work for all, for ever.
        ProgressThread* const thread = ringable_.load(std::memory_order_acquire);
        if (round == kRoundsForOthers && thread != nullptr) {
            handed_over_.store(true, std::memory_order_release);  // he need not look twice
            thread->ring();
            wake_sleepers();  // a leader that sleeps: the thread leaves it to him
            return;
        }
        if (!try_lock()) return;  // the new holder will look
        urgent_.store(false, std::memory_order_seq_cst);
        Pass pass = begin_pass();
        serve_kicked(pass);
        end_pass(pass);
        lock_.store(nullptr, std::memory_order_seq_cst);
    }
}

Pass Progress::begin_pass() noexcept {
    return Pass(Bytes(staging_.get(), kStagingOctets), reader_);
}

void Progress::end_pass(Pass& pass) noexcept {
    pass.leave_section();
    completions_.flush();
    if (!graveyard_.empty()) graveyard_.clear();
    if (pass.active) wake_sleepers();
}

void Progress::wake_sleepers() {
    if (leader_bell_.should_ring()) signal_event(bell_fd_);
    wake_followers();
}

// ---- passes ---------------------------------------------------------------

void Progress::drive_thoroughly() {
    if (!callers_drive()) {
        ring_thread();
        return;
    }
    count_caller_pass();
    if (!try_lock()) return;
    Driving driving(*this);
    driving.pass.by_caller = true;
    // Alone, the hot one answers for all: epoll could only tell of timers and bells.
    thorough_ = items_.size() > 1;
    looks_put_off_ = kLooksPutOff;
    run_pass(driving.pass);
    thorough_ = false;
}

void Progress::drive() {
    if (!callers_drive()) {
        ring_thread();
        return;
    }
    count_caller_pass();
    if (!try_lock()) return;
    Driving driving(*this);
    driving.pass.by_caller = true;
    run_pass(driving.pass);
}

void Progress::poll_thoroughly() {
    if (!callers_drive()) {
        ring_thread();
        return;
    }
    count_caller_pass();
    lock();
    Driving driving(*this);
    driving.pass.by_caller = true;
    thorough_ = true;
    run_pass(driving.pass);
    thorough_ = false;
}

void Progress::poll_channel(SoftChannel& channel) {
    if (!callers_drive()) {
        ring_thread();
        return;
    }
    count_caller_pass();
    lock();
    Driving driving(*this);
    Pass& pass = driving.pass;
    pass.by_caller = true;
    interval_.store(interval() + 1, std::memory_order_relaxed);
    serve_kicked(pass);
    // Of one member recv() itself tells what came in.
    if (Pollable* const item = channel.single_member();
        item != nullptr && (item->events_ & (EPOLLIN | EPOLLOUT)) == EPOLLIN) {
        call(*item, pass, [&] { item->on_ready(EPOLLIN, pass); });
        return;
    }
    std::array<epoll_event, kEventsPerPass> events;
    const int n = epoll_wait(channel.fd(), events.data(), kEventsPerPass, 0);
    if (channel.several()) {  // since just now: an event may be of another Progress's item
        thorough_ = true;
        run_pass(pass);
        thorough_ = false;
        return;
    }
    for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        auto* const item = static_cast<Pollable*>(event.data.ptr);
        // An earlier item of this pass may have removed it; removed items live until its end.
        if (!item->registered_) continue;
        const std::uint32_t ready = event.events;
        call(*item, pass, [&] { item->on_ready(ready, pass); });
    }
}

Progress::ThreadPass Progress::thread_pass(bool take_over) {
    if (!try_lock()) return ThreadPass::busy;
    Driving driving(*this);
    if (take_over) {
        attach_hot();
        last_epoll_was_single_ = false;  // what woke the thread is known to epoll
    }
    run_pass(driving.pass);
    return driving.pass.active ? ThreadPass::moved : ThreadPass::idle;
}

void Progress::relax(Time duration) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    ++passes_since_epoll_;  // in the time of a pass, so that what only epoll sees waits no longer
    const Time end = monotonic_now() + duration;
    do {
        cpu_relax();
    } while (!urgent_.load(relaxed) && kicked_count_.load(relaxed) == 0 && monotonic_now() < end);
}

void Progress::run_pass(Pass& pass) {
    interval_.store(interval_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    serve_kicked(pass);
    serve_ready(pass);
}

void Progress::serve_kicked(Pass& pass) {
    if (kicked_count_.load(std::memory_order_seq_cst) == 0) return;
    {
        const BiasedLock::Guard lock(kicked_lock_);
        serving_.swap(kicked_);
        // Whoever reads the old count makes a pass in vain.
        kicked_count_.store(0, std::memory_order_relaxed);
    }
    for (auto& item : serving_) {
        // Cleared first: a kick from now on puts the item into the list again.
        item->kicked_.store(false, std::memory_order_seq_cst);
        item->meet_kickers();
        if (item->registered_) call(*item, pass, [&] { item->on_kick(pass); });
    }
    completions_.flush();  // into queues that an item may have been the last to keep
    serving_.clear();
}

void Progress::serve_ready(Pass& pass) {
    if (hot_ != nullptr &&
        (last_epoll_was_single_ || hot_detached_.load(std::memory_order_relaxed))) {
        const bool moved = serve_hot(pass);
        // Alone, epoll can only tell of timers and bells, which can wait for a few passes.
        std::uint32_t patience = 0;
        if (hot_ == nullptr || (hot_->events_ & EPOLLOUT) != 0) {
            patience = 0;
        } else if (items_.size() <= 1) {
            patience = kPassesBetweenEpollAlone;
        } else if (moved || hot_idle_ < kHotIdlePasses) {
            patience = kPassesBetweenEpoll;
        }
        if (++passes_since_epoll_ < patience && !thorough_) return;
    }
    passes_since_epoll_ = 0;
    std::array<epoll_event, kEventsPerPass> events;
    const int n = epoll_wait(epoll_fd_, events.data(), kEventsPerPass, 0);
    int items = 0;
    for (int i = 0; i < n; ++i) {
        void* const tag = events[static_cast<std::size_t>(i)].data.ptr;
        if (tag == &embed_tag) {
            clear_event(embed_fd_);
            continue;
        }
        if (tag == &timer_tag) {
            clear_event(timer_fd_);
            armed_timer_ = kNever;
            serve_deadlines(pass);
            continue;
        }
        auto* item = static_cast<Pollable*>(tag);
        // An earlier item of this pass may have removed it; the graveyard keeps the memory.
        if (!item->registered_) continue;
        ++items;
        make_hot(*item);
        const std::uint32_t ready = events[static_cast<std::size_t>(i)].events;
        call(*item, pass, [&] { item->on_ready(ready, pass); });
    }
    if (items > 0) last_epoll_was_single_ = items == 1;
    if (n == 0 && items_.size() <= 1) last_epoll_was_single_ = true;
}

// With one busy connection, recv() itself is the cheapest question. True when it moved something.
bool Progress::serve_hot(Pass& pass) {
    const bool was_active = pass.active;
    // Who sends in each pass and hears nothing back asks less often: an empty recv() for every
    // batch that goes out costs as much as ten small messages.
    if (was_active && !pass.sent_much && hot_idle_ > 0 && looks_put_off_ < kLooksPutOff) {
        ++looks_put_off_;
        return true;
    }
    looks_put_off_ = 0;
    pass.active = false;
    Pollable& item = *hot_;
    // Whoever polls one connection and nothing else asks the kernel more often than the way through
    // here and back would let it.
    if (hot_detached_.load(std::memory_order_relaxed) && !was_active) {
        pass.patience = kLooksMoreWhenAlone;
    }
    call(item, pass, [&] { item.on_ready(EPOLLIN, pass); });
    pass.patience = 0;
    const bool moved = pass.active;
    pass.active = was_active || moved;
    hot_idle_ = moved ? 0 : hot_idle_ + 1;
    // recv() tells of what comes in; that there is room to send, only epoll does.
    const bool reads_only = hot_ != nullptr && (hot_->events_ & EPOLLOUT) == 0;
    if (pass.by_caller && reads_only && ++hot_passes_ >= kPassesUntilDetach) detach_hot();
    return moved;
}

void Progress::make_hot(Pollable& item) {
    if (hot_ == &item) return;
    attach_hot();
    hot_ = &item;
    hot_idle_ = 0;
    hot_passes_ = 0;
}

// While callers poll one connection all the time, epoll's work for each of its segments (a callback
// and a lock in the sender's path, 0.3 us of a 3.8 us ping-pong) is for nobody: the connection is
// taken out, as long as no one sleeps in epoll or relies on it. Those are a leader, the thread
// unless it looks in by its own clock, and loops that embed us. Each of them publishes itself and
// then makes sure that all is attached; here the detachment is published first and they are looked
// for after.
void Progress::detach_hot() {
    if (hot_detached_.load(std::memory_order_relaxed)) return;
    hot_passes_ = 0;
    if (config_.progress == ProgressMode::thread) return;
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, hot_->fd_, nullptr);
    hot_detached_.store(true, std::memory_order_seq_cst);
    const bool thread_sleeps = ringable_.load(std::memory_order_seq_cst) != nullptr &&
                               !thread_ticking_.load(std::memory_order_seq_cst);
    if (thread_sleeps || leader_.load(std::memory_order_seq_cst) ||
        embedded_.load(std::memory_order_seq_cst)) {
        attach_hot();
    }
}

void Progress::attach_hot() {
    hot_passes_ = 0;
    if (!hot_detached_.load(std::memory_order_relaxed)) return;
    watch(*hot_);
    hot_detached_.store(false, std::memory_order_seq_cst);
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
    locked([this](Pass&) { attach_hot(); });
    return epoll_fd_;
}

void Progress::serve_deadlines(Pass& pass) {
    // Not more than there are now: one that is set to the past again must not keep the driver.
    for (std::size_t left = deadlines_.size();
         left > 0 && !deadlines_.empty() && deadlines_.begin()->first <= pass.now(); --left) {
        Pollable* const item = deadlines_.begin()->second;
        deadlines_.erase(deadlines_.begin());
        item->deadline_ = kNever;
        call(*item, pass, [&] { item->on_time(pass); });
    }
    update_timer();
}

// ---- registration ---------------------------------------------------------

Result<void> Progress::add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events) {
    Pollable* const key = item.get();
    auto entry = items_.end();
    try {
        graveyard_.reserve(items_.size() + 1);  // so that remove() cannot fail
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
    key->owns_fd_ = !owns_descriptor(fd);
    own_descriptor(fd);
    registered_count_.store(items_.size(), std::memory_order_relaxed);
    return {};
}

// The kernel wakes the watchers of a socket while it holds the socket's lock, the latest first. The
// program that sleeps on a channel shall be woken last: awake on another processor, it would wait
// in recv() for that lock.
void Progress::join_channels(Pollable& item) {
    if (!item.registered_ || item.in_channels_ || config_.progress == ProgressMode::thread ||
        (item.channels_[0] == nullptr && item.channels_[1] == nullptr)) {
        return;
    }
    if (&item == hot_) attach_hot();
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
    if (&item == hot_) attach_hot();
    epoll_event event{};
    event.events = events;
    event.data.ptr = &item;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, item.fd_, &event);
}

void Progress::remove(Pollable& item) {
    if (!item.registered_) return;
    if (&item == hot_) {
        attach_hot();
        hot_ = nullptr;
    }
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, item.fd_, nullptr);
    if (item.in_channels_) {
        for (const auto& channel : item.channels_) {
            if (channel != nullptr) channel->remove(item.fd_);
        }
        item.in_channels_ = false;
    }
    if (item.owns_fd_) disown_descriptor(item.fd_);
    item.registered_ = false;
    item.fd_ = -1;
    set_deadline(item, kNever);
    const auto found = items_.find(&item);
    XSOCK_ASSERT(found != items_.end());
    graveyard_.push_back(std::move(found->second));
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

// ---- kicks ----------------------------------------------------------------

bool Progress::add_kicked(Pollable& item) {
    // The server clears the flag before it looks at what was posted: set means it has yet to look.
    if (item.kicked_.load(std::memory_order_seq_cst)) return false;
    const BiasedLock::Guard lock(kicked_lock_);
    if (item.kicked_.load(std::memory_order_seq_cst)) return false;
    kicked_.push_back(item.shared_from_this());  // may throw, with nothing else changed
    kicked_count_.store(kicked_.size(), std::memory_order_seq_cst);
    // Behind the count: who takes the flag for sufficient must leave something that is looked for.
    item.kicked_.store(true, std::memory_order_release);
    return true;
}

void Progress::kick_later_anew(Pollable& item) {
    if (!add_kicked(item)) return;
    if (config_.progress != ProgressMode::app) {
        ring_thread();
    } else {
        signal_event(embed_fd_);  // a loop that embeds us must come round
    }
}

void Progress::kick_now(Pollable& item) {
    if (!callers_drive()) {
        add_kicked(item);
        ring_thread();
        return;
    }
    if (!try_lock()) {
        add_kicked(item);
        urgent_.store(true, std::memory_order_seq_cst);
        if (!try_lock()) return;
        urgent_.store(false, std::memory_order_seq_cst);
        Driving driving(*this);
        serve_kicked(driving.pass);
        return;
    }
    Driving driving(*this);
    if (item.registered_) call(item, driving.pass, [&] { item.on_kick(driving.pass); });
}

void Progress::hand_over() noexcept {
    if (config_.progress == ProgressMode::app) return;
    if (!thread_ticking_.load(std::memory_order_seq_cst)) return;  // it watches already
    handed_over_.store(true, std::memory_order_release);
    if (ProgressThread* const thread = ringable_.load(std::memory_order_acquire)) thread->ring();
}

void Progress::ring_thread() {
    if (!thread_bell_.should_ring()) return;
    if (ProgressThread* const thread = ringable_.load(std::memory_order_acquire)) thread->ring();
}

// ---- waiting --------------------------------------------------------------

Time Progress::spin_budget() noexcept {
    if (config_.spin == 0 || !callers_drive()) return 0;
    return spin_score_.worth_while() ? config_.spin : 0;
}

bool Progress::spin(const std::function<bool()>& done, Time deadline) {
    const Time budget = spin_budget();
    if (budget == 0) return false;
    const Time begin = monotonic_now();
    const Time end = std::min(deadline, time_after(begin, budget));
    do {
        drive();
        if (done()) {
            count_spin(true);
            return true;
        }
    } while (monotonic_now() < end);
    count_spin(false);
    return false;
}

bool Progress::lead() {
    if (!callers_drive() || leader_.exchange(true, std::memory_order_seq_cst)) return false;
    count_caller_pass();
    if (hot_detached_.load(std::memory_order_seq_cst)) {
        locked([this](Pass&) { attach_hot(); });
    }
    leader_bell_.begin_sleep();
    return true;
}

void Progress::end_lead(bool rung) {
    if (rung) clear_event(bell_fd_);
    leader_bell_.end_sleep();
    drive();
    leader_.store(false, std::memory_order_seq_cst);
    offer_lead();
}

// Whoever stops leading lets the others know: those of wait() all look again, of those in poll()
// and in calls that signals interrupt one each is told, who leads or passes it on.
void Progress::offer_lead() {
    if (abandoned()) return;  // those in the lists are the parent's
    if (polling_count_.load(std::memory_order_seq_cst) != 0) {
        const std::lock_guard lock(followers_mutex_);
        if (!polling_followers_.empty()) polling_followers_.front()->on_lead_free();
    }
    if (waiter_count_.load(std::memory_order_seq_cst) != 0) {
        const std::lock_guard lock(followers_mutex_);
        const auto asleep = std::find_if(waiters_.begin(), waiters_.end(),
                                         [](const Waiter* waiter) { return !waiter->rung; });
        if (asleep != waiters_.end()) ring(**asleep);
    }
    wake_followers();
}

void Progress::follow(Follower& follower) {
    const std::lock_guard lock(followers_mutex_);
    polling_followers_.push_back(&follower);
    polling_count_.store(polling_followers_.size(), std::memory_order_seq_cst);
    if (callers_drive() && !leader_.load(std::memory_order_seq_cst)) follower.on_lead_free();
}

void Progress::unfollow(Follower& follower) {
    if (abandoned()) return;
    const std::lock_guard lock(followers_mutex_);
    polling_followers_.erase(
        std::find(polling_followers_.begin(), polling_followers_.end(), &follower));
    polling_count_.store(polling_followers_.size(), std::memory_order_seq_cst);
    if (!polling_followers_.empty() && callers_drive() &&
        !leader_.load(std::memory_order_seq_cst)) {
        polling_followers_.front()->on_lead_free();
    }
}

// A follower counts itself, reads the number of wake-ups, looks at what it waits for, and sleeps
// while the number stays as it was; a waker makes its news visible, looks at the count, and if
// there is anybody raises the number and wakes. All in one order: either the waker sees the
// follower, or the follower the news; and a number raised after the follower read it does not let
// it sleep.
void Progress::wake_followers() {
    if (waiter_count_.load(std::memory_order_seq_cst) != 0) {
        const std::lock_guard lock(followers_mutex_);
        for (Waiter* const waiter : waiters_) {
            if (!waiter->rung && (*waiter->done)()) ring(*waiter);
        }
    }
    if (followers_.load(std::memory_order_seq_cst) == 0) return;
    follower_wakes_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &follower_wakes_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// False: a signal handler ran that ends system calls. (Without a time limit the kernel itself goes
// on after those with SA_RESTART.)
bool Progress::sleep_as_follower(std::uint32_t seen, Time deadline) {
    timespec until{};
    if (deadline != kNever) {
        until.tv_sec = static_cast<time_t>(deadline / kSecond);
        until.tv_nsec = static_cast<long>(deadline % kSecond);
    }
    const long n = syscall(SYS_futex, &follower_wakes_, FUTEX_WAIT_BITSET_PRIVATE, seen,
                           deadline != kNever ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    return n == 0 || errno != EINTR;
}

void Progress::ring(Waiter& waiter) noexcept {
    waiter.rung = true;
    signal_event(waiter.fd);
}

// A signal handler ends a blocking call however it is asleep, and also where it runs between two
// looks of the call: so signals are held back all the time, and a descriptor says that one has
// come. A futex cannot wait for that; a waiter has an eventfd, which is written when what it waits
// for is there, or when it shall lead. The rule against lost wake-ups is that of the other
// followers: it is in the list before it looks, they have published before they look into the list.
// False: there are no descriptors for that, or no memory. (It must not throw: what its caller waits
// for may be the end of what the driver does with the caller's memory.)
bool Progress::sleep_as_waiter(const std::function<bool()>& done, bool may_drive, Time deadline,
                               Interrupt& interrupt) {
    const int signals = signal_descriptor();
    if (signals < 0) return false;
    Waiter self{&done, -1, false};
    {
        const std::lock_guard lock(followers_mutex_);
        try {
            waiters_.reserve(waiters_.size() + 1);
            events_.reserve(events_.size() + 1);
            idle_events_.reserve(events_.size() + 1);  // giving back must not fail
        } catch (...) {
            return false;
        }
        if (idle_events_.empty()) {
            self.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
            if (self.fd < 0) return false;
            own_descriptor(self.fd);
            events_.push_back(self.fd);
        } else {
            self.fd = idle_events_.back();
            idle_events_.pop_back();
        }
        waiters_.push_back(&self);
        waiter_count_.store(waiters_.size(), std::memory_order_seq_cst);
    }
    const bool lead_free = may_drive && !leader_.load(std::memory_order_seq_cst);
    if (!lead_free && !done()) {
        interrupt.hold();
        std::array<pollfd, 2> fds{{{self.fd, POLLIN, 0}, {signals, POLLIN, 0}}};
        poll(fds.data(), fds.size(), milliseconds_until(deadline));
    }
    const std::lock_guard lock(followers_mutex_);
    std::erase(waiters_, &self);
    waiter_count_.store(waiters_.size(), std::memory_order_seq_cst);
    if (self.rung) clear_event(self.fd);
    idle_events_.push_back(self.fd);
    return true;
}

// -1 when no descriptor is left: then a handler ends the call whatever its flags say.
int Progress::signal_descriptor() {
    int fd = signal_fd_.load(std::memory_order_acquire);
    if (fd >= 0) return fd;
    const int made = make_signal_descriptor();
    if (made < 0) return -1;
    if (signal_fd_.compare_exchange_strong(fd, made, std::memory_order_acq_rel)) {
        own_descriptor(made);
        return made;
    }
    close(made);
    return fd;
}

bool Progress::sleep_as_leader(Time deadline, Interrupt* interrupt) {
    // Looked at, not taken: an epoll_wait() here would eat the edge of an EPOLLET item.
    std::array<pollfd, 3> fds{{{epoll_fd_, POLLIN, 0}, {bell_fd_, POLLIN, 0}, {-1, POLLIN, 0}}};
    if (interrupt != nullptr) {
        fds[2].fd = signal_descriptor();
        if (fds[2].fd >= 0) interrupt->hold();
    }
    const int n = poll(fds.data(), fds.size(), milliseconds_until(deadline));
    if (n < 0 && errno == EINTR && interrupt != nullptr) interrupt->note();
    return n > 0 && fds[1].revents != 0;
}

bool Progress::wait(const std::function<bool()>& done, Time deadline) {
    return wait(done, deadline, nullptr) == Waited::done;
}

Progress::Waited Progress::wait_interruptibly(const std::function<bool()>& done, Time deadline,
                                              bool restart) {
    Interrupt interrupt(restart && deadline == kNever);
    return wait(done, deadline, &interrupt);
}

Progress::Waited Progress::wait(const std::function<bool()>& done, Time deadline,
                                Interrupt* interrupt) {
    if (done()) return Waited::done;
    // A handler that runs in between may fork, and return in the child: there nothing comes.
    const std::uint32_t generation = process_generation();
    const bool may_drive = callers_drive();
    if (may_drive) {
        drive();
        if (done()) return Waited::done;
        if (deadline == 0 || monotonic_now() >= deadline) return Waited::timeout;
        if (spin(done, deadline)) return Waited::done;
    } else {
        ring_thread();
    }
    for (;;) {
        if (process_generation() != generation) return Waited::interrupted;
        if (may_drive && lead()) {
            // Whatever completed before this line is seen here; whatever completes later rings.
            const bool rung = !done() && !work_waiting() && sleep_as_leader(deadline, interrupt);
            end_lead(rung);
            if (done()) return Waited::done;
            if (interrupt != nullptr && interrupt->admit()) return Waited::interrupted;
        } else if (interrupt != nullptr && sleep_as_waiter(done, may_drive, deadline, *interrupt)) {
            const bool found = done();
            const bool ends = !found && interrupt->admit();
            if (found || ends || (deadline != kNever && monotonic_now() >= deadline)) {
                // It may be this one that was told to lead.
                if (may_drive && !leader_.load(std::memory_order_seq_cst)) offer_lead();
                return found ? Waited::done : ends ? Waited::interrupted : Waited::timeout;
            }
        } else {
            if (interrupt != nullptr) interrupt->let_in();
            followers_.fetch_add(1, std::memory_order_seq_cst);
            const std::uint32_t seen = follower_wakes_.load(std::memory_order_seq_cst);
            const bool lead_free = may_drive && !leader_.load(std::memory_order_seq_cst);
            const bool undisturbed = done() || lead_free || sleep_as_follower(seen, deadline);
            followers_.fetch_sub(1, std::memory_order_seq_cst);
            if (done()) return Waited::done;
            if (!undisturbed && interrupt != nullptr) return Waited::interrupted;
        }
        if (deadline != kNever && monotonic_now() >= deadline) return Waited::timeout;
    }
}

void Progress::flush(Time deadline) {
    for (bool busy = true; busy;) {
        locked([&](Pass& pass) {
            run_pass(pass);
            busy = std::any_of(items_.begin(), items_.end(),
                               [](const auto& entry) { return entry.second->unsent(); });
        });
        if (!busy || monotonic_now() >= deadline) return;
        pollfd ready{epoll_fd_, POLLIN, 0};
        poll(&ready, 1, 1);
    }
}

void Progress::drain(Time deadline) {
    bool busy = false;
    const auto look = [&](Pass&) {
        busy = std::any_of(items_.begin(), items_.end(),
                           [](const auto& entry) { return entry.second->draining(); });
    };
    locked([&](Pass& pass) {
        std::vector<std::shared_ptr<Pollable>> all;
        for (const auto& entry : items_) all.push_back(entry.second);
        for (const auto& item : all) call(*item, pass, [&] { item->on_exit(pass); });
        look(pass);
    });
    while (busy && monotonic_now() < deadline) {
        pollfd ready{epoll_fd_, POLLIN, 0};
        poll(&ready, 1, 1);
        locked([&](Pass& pass) {
            run_pass(pass);
            look(pass);
        });
    }
}

}  // namespace xsock
