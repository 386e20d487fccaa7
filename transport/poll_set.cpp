// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/poll_set.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/soft_channel.hpp"

namespace xsock {
namespace {

constexpr std::uint32_t kCyclesBetweenEpoll = 8;
constexpr std::uint32_t kCyclesBetweenEpollAlone = 64;
constexpr std::uint32_t kBusyPolledIdleCycles = 1024;  // then it is not busy-polled any more
constexpr int kRereadsWhenAlone = 4;
constexpr int kEventsPerCycle = 64;

// epoll data of what is no Pollable.
int embed_tag;
int timer_tag;

int control(int epoll_fd, int operation, int fd, std::uint32_t events, void* tag) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.ptr = tag;
    return epoll_ctl(epoll_fd, operation, fd, &event);
}

}  // namespace

Result<void> PollSet::open() {
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd_ < 0) return Error{errno, "epoll_create1 failed"};
    if (auto opened = embed_.open(); !opened) return opened;
    timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer_fd_ < 0) return Error{errno, "timerfd_create failed"};
    for (const auto& [fd, tag] :
         {std::pair{embed_.fd(), &embed_tag}, std::pair{timer_fd_, &timer_tag}}) {
        if (control(epoll_fd_, EPOLL_CTL_ADD, fd, EPOLLIN, tag) != 0) {
            return Error{errno, "epoll_ctl failed"};
        }
    }
    for (const int fd : {epoll_fd_, timer_fd_}) register_internal_fd(fd);
    return {};
}

void PollSet::close() noexcept {
    for (const int fd : {epoll_fd_, timer_fd_}) {
        if (fd >= 0) close_internal_fd(fd);
    }
    embed_.close();
}

void PollSet::abandon() noexcept {
    for (const auto& entry : items_) {
        if (entry.first->fd_ >= 0) close_internal_fd(entry.first->fd_);
    }
    close();
}

// ---- a poll cycle -----------------------------------------------------------

void PollSet::serve_ready(PollCycle& cycle) {
    bool asks_epoll = true;
    if (busy_polled_ != nullptr &&
        (last_epoll_was_single_ || detached_.load(std::memory_order_relaxed))) {
        const bool moved = serve_busy_polled(cycle);
        // Alone, epoll can only tell of timers and wake flags, which can wait for a few cycles.
        std::uint32_t epoll_interval = 0;
        if (busy_polled_ == nullptr || (busy_polled_->events_ & EPOLLOUT) != 0) {
            epoll_interval = 0;
        } else if (!watches_several()) {
            epoll_interval = kCyclesBetweenEpollAlone;
        } else if (moved || busy_polled_idle_ < kBusyPolledIdleCycles) {
            epoll_interval = kCyclesBetweenEpoll;
        }
        asks_epoll = ++cycles_since_epoll_ >= epoll_interval || cycle.thorough;
    }
    if (!memory_.empty()) [[unlikely]]
        asks_epoll = serve_memory(cycle, asks_epoll);
    if (!asks_epoll) return;
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
        if (item->tells_ != Pollable::Tells::end) {
            ++items;
            begin_busy_poll(*item);
        }
        const std::uint32_t ready = events[static_cast<std::size_t>(i)].events;
        call(*item, cycle, [&] { item->on_ready(ready, cycle); });
    }
    if (items > 0) last_epoll_was_single_ = items == 1;
    if (n == 0 && !watches_several()) last_epoll_was_single_ = true;
}

// Whether to ask epoll in this cycle. Beside connections over TCP it is asked as often as beside a
// busy-polled one; else it tells of ends, new connections, timers and wake flags only.
bool PollSet::serve_memory(PollCycle& cycle, bool asks_epoll) {
    const bool moved = memory_.poll(cycle);
    if (!cycle.thorough && busy_polled_ == nullptr) {
        asks_epoll = watched_ > rare_ ? !moved || ++cycles_since_epoll_ >= kCyclesBetweenEpoll
                                      : memory_.epoll_due(cycle);
    }
    if (asks_epoll) memory_.epoll_asked(cycle);
    return asks_epoll;
}

// What comes while this is under way is taken by the cycle that epoll is made to wake the thread
// for.
void PollSet::arm_memory(PollCycle& cycle) {
    const bool armed = memory_.arm_all(cycle);
    serve_cycle_end(cycle);
    if (armed && memory_.empty()) return;
    memory_.ask_epoll_next();
    embed_.notify();
}

bool PollSet::arm_for_channels(PollCycle& cycle) {
    const bool armed = memory_.arm_relied_on(cycle);
    serve_cycle_end(cycle);  // one that waits for room may be polled again by it
    return armed && !memory_.any_relied_on();
}

bool PollSet::serve_channel(SoftChannel& channel, PollCycle& cycle) {
    // Of one member recv() itself tells what came in.
    if (Pollable* const item = channel.single_member();
        item != nullptr && (item->events_ & (EPOLLIN | EPOLLOUT)) == EPOLLIN) {
        call(*item, cycle, [&] { item->on_ready(EPOLLIN, cycle); });
        return true;
    }
    std::array<epoll_event, kEventsPerCycle> events;
    const int n = epoll_wait(channel.fd(), events.data(), kEventsPerCycle, 0);
    if (channel.several()) return false;  // since just now: an event may be of another's item
    for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        auto* const item = static_cast<Pollable*>(event.data.ptr);
        // An earlier item of this cycle may have removed it; removed items live until its end.
        if (!item->registered_) continue;
        const std::uint32_t ready = event.events;
        call(*item, cycle, [&] { item->on_ready(ready, cycle); });
    }
    return true;
}

// For those that wait there is room since add(), one place each. Those that were called give theirs
// back.
void PollSet::call_at_cycle_end(Pollable& item) noexcept {
    if (item.at_cycle_end_ || !item.registered_) return;
    if (at_cycle_end_.size() == at_cycle_end_.capacity()) {
        const auto called = static_cast<std::ptrdiff_t>(std::exchange(cycle_ends_called_, 0));
        at_cycle_end_.erase(at_cycle_end_.begin(), at_cycle_end_.begin() + called);
    }
    at_cycle_end_.push_back(&item);
    item.at_cycle_end_ = true;
}

void PollSet::call_cycle_ends(PollCycle& cycle) noexcept {
    while (cycle_ends_called_ < at_cycle_end_.size()) {  // they may ask for more
        Pollable& item = *at_cycle_end_[cycle_ends_called_++];
        if (!std::exchange(item.at_cycle_end_, false)) continue;  // removed since
        call(item, cycle, [&] { item.on_cycle_end(cycle); });
    }
    at_cycle_end_.clear();
    cycle_ends_called_ = 0;
}

// With one busy connection, recv() itself is the cheapest check. True when it moved something.
bool PollSet::serve_busy_polled(PollCycle& cycle) {
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
    if (detached_.load(std::memory_order_relaxed) && !was_active) {
        cycle.rereads = kRereadsWhenAlone;
    }
    call(item, cycle, [&] { item.on_ready(EPOLLIN, cycle); });
    cycle.rereads = 0;
    const bool moved = cycle.active;
    cycle.active = was_active || moved;
    busy_polled_idle_ = moved ? 0 : busy_polled_idle_ + 1;
    // recv() tells of what comes in; that there is room to send, only epoll does.
    const bool reads_only = busy_polled_ != nullptr && (busy_polled_->events_ & EPOLLOUT) == 0;
    if (cycle.by == PollCycle::By::caller && reads_only) ++busy_polled_cycles_;
    return moved;
}

void PollSet::begin_busy_poll(Pollable& item) noexcept {
    if (busy_polled_ == &item) return;
    attach_busy_polled();
    busy_polled_ = &item;
    busy_polled_idle_ = 0;
    busy_polled_cycles_ = 0;
}

void PollSet::detach_busy_polled() noexcept {
    busy_polled_cycles_ = 0;
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, busy_polled_->fd_, nullptr);
    detached_.store(true, std::memory_order_seq_cst);
}

void PollSet::attach_busy_polled() noexcept {
    busy_polled_cycles_ = 0;
    if (!detached_.load(std::memory_order_relaxed)) return;
    XSOCK_ASSERT(busy_polled_ != nullptr);
    watch(*busy_polled_);
    detached_.store(false, std::memory_order_seq_cst);
}

// Puts an item into epoll again. That can fail for want of kernel memory only; the lock holder
// tries again until it succeeds.
void PollSet::watch(Pollable& item) noexcept {
    while (control(epoll_fd_, EPOLL_CTL_ADD, item.fd_, item.events_, &item) != 0 &&
           errno == ENOMEM) {
        sched_yield();
    }
}

void PollSet::serve_deadlines(PollCycle& cycle) {
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

// ---- registration -----------------------------------------------------------

Result<void> PollSet::add(std::shared_ptr<Pollable> item) {
    Pollable* const key = item.get();
    try {
        // So that neither remove() nor call_at_cycle_end() can fail.
        const std::size_t most = removed_.size() + items_.size() + 1;
        removed_.reserve(most);
        at_cycle_end_.reserve(most);
        idle_.reserve(most);
        items_.emplace(key, std::move(item));
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory to watch the descriptor"};
    }
    key->registered_ = true;
    return {};
}

Result<void> PollSet::add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events) {
    Pollable& added = *item;
    if (auto r = add(std::move(item)); !r) return r;
    if (control(epoll_fd_, EPOLL_CTL_ADD, fd, events, &added) != 0) {
        const int error = errno;
        remove(added);
        return Error{error, "the descriptor cannot be watched"};
    }
    added.fd_ = fd;
    added.events_ = events;
    added.owns_fd_ = !is_internal_fd(fd);
    register_internal_fd(fd);
    ++watched_;
    return {};
}

// The kernel wakes the watchers of a socket while it holds the socket's lock, the latest first. The
// program that sleeps on a channel shall be woken last: awake on another processor, it would wait
// in recv() for that lock.
void PollSet::join_channels(Progress& progress, Pollable& item) {
    if (item.fd_ < 0 || item.in_channels_ ||
        (item.channels_[0] == nullptr && item.channels_[1] == nullptr)) {
        return;
    }
    if (&item == busy_polled_) attach_busy_polled();
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, item.fd_, nullptr);
    for (const auto& channel : item.channels_) {
        if (channel == nullptr) continue;
        if (auto joined = channel->add(progress, item, item.fd_, item.events_); !joined) {
            log(LogLevel::warn, "channel-not-joined", "%s: %s; the background thread serves it",
                std::strerror(joined.error().code), joined.error().what);
        }
    }
    item.in_channels_ = true;
    watch(item);
}

void PollSet::modify(Pollable& item, std::uint32_t events) {
    XSOCK_ASSERT(item.fd_ >= 0);
    const std::uint32_t before = std::exchange(item.events_, events);
    if (item.in_channels_) {
        for (const auto& channel : item.channels_) {
            if (channel != nullptr) channel->modify(item, item.fd_, before, events);
        }
    }
    if (&item == busy_polled_) attach_busy_polled();
    control(epoll_fd_, EPOLL_CTL_MOD, item.fd_, events, &item);
}

void PollSet::remove(Pollable& item) {
    if (!item.registered_) return;
    if (item.fd_ >= 0) unwatch(item);
    idle_.remove(item);
    item.registered_ = item.at_cycle_end_ = false;
    set_deadline(item, kNever);
    const auto found = items_.find(&item);
    XSOCK_ASSERT(found != items_.end());
    removed_.push_back(std::move(found->second));
    items_.erase(found);
}

void PollSet::unwatch(Pollable& item) {
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
    item.fd_ = -1;
    if (item.tells_ != Pollable::Tells::end) --watched_;
    if (item.tells_ == Pollable::Tells::little) --rare_;
    item.tells_ = Pollable::Tells::data;
}

void PollSet::watch_rarely(Pollable& item) {
    if (item.fd_ < 0 || item.tells_ != Pollable::Tells::data) return;
    item.tells_ = Pollable::Tells::little;
    ++rare_;
}

void PollSet::watch_for_end_only(Pollable& item) {
    if (item.fd_ < 0 || item.tells_ != Pollable::Tells::data) return;
    item.tells_ = Pollable::Tells::end;
    if (&item == busy_polled_) {
        attach_busy_polled();
        busy_polled_ = nullptr;
    }
    --watched_;
}

std::vector<std::shared_ptr<Pollable>> PollSet::items() const {
    std::vector<std::shared_ptr<Pollable>> all;
    for (const auto& entry : items_) all.push_back(entry.second);
    return all;
}

// ---- deadlines --------------------------------------------------------------

void PollSet::set_deadline(Pollable& item, Time deadline) {
    if (item.deadline_ == deadline) return;
    if (item.deadline_ != kNever) deadlines_.erase({item.deadline_, &item});
    item.deadline_ = deadline;
    if (deadline != kNever) deadlines_.emplace(deadline, &item);
    update_timer();
}

// The timer is only ever moved forward in time when it fires: an early wake-up is cheaper than a
// system call for each deadline that is put off.
void PollSet::update_timer() noexcept {
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

}  // namespace xsock
