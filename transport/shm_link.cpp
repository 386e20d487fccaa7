// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

/// One link's share of a poll cycle.
constexpr std::size_t kBytesPerCycle = std::size_t{512} << 10;

}  // namespace

ShmLink::ShmLink(MadeLink made, Progress& progress, Owner& owner)
    : made_(std::move(made)),
      progress_(progress),
      owner_(owner),
      link_(SharedMemory(made_.memory.bytes()), made_.layout, made_.side, *this),
      ring_memory_(made_.memory.bytes().subspan(made_.layout.ring_of(made_.side).at,
                                                made_.layout.ring_bytes),
                   link_.writer()) {}

ShmLink::~ShmLink() {
    if (!closed_) close_internal_fd(made_.socket);
}

Result<void> ShmLink::start(PollCycle& cycle) {
    auto added = progress_.add(shared_from_this(), made_.socket, EPOLLIN | EPOLLRDHUP);
    if (!added) return added;
    progress_.watch_for_end_only(*this);
    resume_polling(cycle);
    count_idle_time(cycle);
    return {};
}

// ---- connections ------------------------------------------------------------

bool ShmLink::open(shm::Stream& stream, std::uint64_t token, PollCycle& cycle) {
    if (closed_) return false;
    cycle_ = &cycle;
    const bool opened = link_.open(stream, token);
    if (opened) published();  // and so count_idle_time()
    return opened;
}

void ShmLink::join_channels(const std::shared_ptr<CqCore>& sends,
                            const std::shared_ptr<CqCore>& receives) {
    if (closed_ || progress_.mode() == ProgressMode::thread) return;
    for (const auto& cq : {sends, receives}) {
        if (auto joined = channels_.join(progress_, *this, made_.socket, cq); !joined) {
            log(LogLevel::warn, "channel-not-joined", "%s: %s; the background thread serves it",
                std::strerror(joined.error().code), joined.error().what);
        }
    }
}

void ShmLink::leave_channels(const CqCore& sends, const CqCore& receives) noexcept {
    for (const CqCore* cq : {&sends, &receives}) channels_.leave(made_.socket, *cq);
}

void ShmLink::published() { progress_.call_at_cycle_end(*this); }

// What the ring holds now was published before this; what the peer adds meanwhile may wait.
void ShmLink::poll_now(PollCycle& cycle) { static_cast<void>(poll(made_.layout.bytes(), cycle)); }

shm::Stream* ShmLink::on_open(std::uint64_t token) {
    try {
        return owner_.on_open(*this, token);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

// ---- polling ----------------------------------------------------------------

bool ShmLink::poll_memory(PollCycle& cycle) { return poll(kBytesPerCycle, cycle); }

bool ShmLink::poll(std::size_t byte_budget, PollCycle& cycle) {
    if (closed_) return false;
    cycle_ = &cycle;
    const bool busy = link_.poll(cycle.staging, byte_budget);
    idle_ = !busy;
    if (made_.memory.lost()) [[unlikely]]
        link_.end(StreamError::shm_garbage);
    if (link_.ended()) [[unlikely]] {
        close();
        return true;
    }
    wake_peer(cycle);
    if (link_.writer().wants_more()) [[unlikely]]
        grow(cycle);
    if (busy) count_idle_time(cycle);
    return busy;
}

void ShmLink::grow(PollCycle& cycle) {
    ring_memory_.grow(cycle.now());
    if (ring_check_ != kNever || !ring_memory_.has_grown()) return;
    ring_check_ = cycle.now() + RingMemory::kIdle;
    set_timer();
}

void ShmLink::set_timer() {
    progress_.set_deadline(*this, std::min({idle_check_, ring_check_, wake_again_}));
}

void ShmLink::count_idle_time(PollCycle& cycle) {
    if (link_.connections() != 0) {
        idle_since_ = kNever;
        return;
    }
    if (idle_since_ == kNever) idle_since_ = cycle.now();
    if (idle_check_ != kNever) return;
    idle_check_ = idle_since_ + kIdleLimit;
    set_timer();
}

// The peer's flag is read behind what was published.
void ShmLink::wake_peer(PollCycle& cycle) {
    if (link_.end_cycle(idle_)) send_wake_up(cycle);
}

// The flag asks once: a wake-up that the kernel has no room for now is sent again.
void ShmLink::send_wake_up(PollCycle& cycle) {
    const std::byte octet{0};
    if (::send(made_.socket, &octet, sizeof octet, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) return;
    wake_again_ = cycle.now() + kWakePause;
    set_timer();
}

bool ShmLink::arm() {
    armed_ = link_.begin_sleep();
    return armed_;
}

void ShmLink::disarm() {
    if (std::exchange(armed_, false)) link_.end_sleep();
}

/// Where too many are polled it stays armed, unless there is something to do.
void ShmLink::resume_polling(PollCycle& cycle) {
    if (closed_ || progress_.begin_memory_polling(*this)) return;
    disarm();
    for (int tries = 0; !arm(); ++tries) {
        static_cast<void>(poll_memory(cycle));
        if (closed_) return;
        if (tries == 0) continue;
        progress_.notify_later(*this);
        return;
    }
}

// One octet at a time: epoll tells of those that are left.
void ShmLink::on_ready(std::uint32_t, PollCycle& cycle) {
    if (closed_) return;
    std::byte octet{};
    const ssize_t n = ::recv(made_.socket, &octet, sizeof octet, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        poll_now(cycle);
        return end(StreamError::none, cycle);
    }
    if (n < 0) return;
    channels_.count_arrival();
    resume_polling(cycle);
    cycle.active |= poll_memory(cycle);
}

void ShmLink::on_notify(PollCycle& cycle) { resume_polling(cycle); }

void ShmLink::on_cycle_end(PollCycle& cycle) {
    if (closed_) return;
    if (made_.memory.lost()) [[unlikely]]
        return end(StreamError::shm_garbage, cycle);
    wake_peer(cycle);
    // Some stream waits for room, which the peer was not asked to tell.
    if (armed_ && link_.must_sleep_anew() && !arm()) resume_polling(cycle);
    if (!closed_ && link_.writer().wants_more()) grow(cycle);
    if (closed_) return;
    count_idle_time(cycle);
}

// ---- the end ----------------------------------------------------------------

void ShmLink::on_time(PollCycle& cycle) {
    if (cycle.now() >= wake_again_) {
        wake_again_ = kNever;
        send_wake_up(cycle);
    }
    if (cycle.now() >= ring_check_) {
        ring_check_ = kNever;
        ring_memory_.check_idle();
        if (ring_memory_.has_grown()) ring_check_ = cycle.now() + RingMemory::kIdle;
    }
    if (cycle.now() >= idle_check_) {
        idle_check_ = kNever;
        poll_now(cycle);  // the peer may have opened a slot
        if (closed_) return;
        count_idle_time(cycle);
        const bool idle = idle_since_ != kNever && cycle.now() - idle_since_ >= kIdleLimit;
        if (idle) return end(StreamError::none, cycle);
    }
    set_timer();
}

void ShmLink::on_failure(PollCycle& cycle) noexcept {
    try {
        end(StreamError::none, cycle);
    } catch (...) {  // a connection that could not say so ends with its socket
        close();
    }
}

void ShmLink::end(StreamError why, PollCycle& cycle) {
    if (closed_) return;
    cycle_ = &cycle;
    cycle.active = true;
    link_.end(why);
    close();
}

void ShmLink::close() {
    if (std::exchange(closed_, true)) return;
    progress_.end_memory_polling(*this);
    channels_.leave_all(made_.socket);
    const DescriptorChange change;
    progress_.remove(*this);
    close_internal_fd(made_.socket);
    owner_.on_link_closed(*this);
}

}  // namespace xsock
