// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_sender.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "transport/clock.hpp"

namespace xsock::verbs {
namespace {

/// What the connection is given at once; more than TCP takes waits here, where it can be dropped.
constexpr std::uint32_t kInFlight = 256 * 1024;
/// What may wait: of 64 deep send queues, full of the largest.
constexpr std::size_t kQueued = 16 << 20;
constexpr Time kWait = kSecond;
constexpr Time kFirstPause = kSecond / 5, kLongestPause = 5 * kSecond;

// wr_id of a send: an address, or the size of one that is in the send queue itself.
constexpr std::uint64_t kInline = 1;
static_assert(alignof(DatagramBuffer) > kInline);

constexpr std::uint64_t inline_id(std::uint32_t bytes) noexcept {
    return std::uint64_t{bytes} << 1 | kInline;
}

}  // namespace

// ---- posting --------------------------------------------------------------------

// The connection, if it can be given so much more now.
std::shared_ptr<PolledQp> DatagramSender::take_room(std::uint32_t bytes) {
    note_used();
    const std::lock_guard lock(lock_);
    if (state_ != State::up || !queued_.empty() || in_flight_ >= kInFlight) return nullptr;
    in_flight_ += bytes;
    return qp_;
}

// (The connection that had the room may have ended, and another one taken its place.)
bool DatagramSender::sent(const PolledQp& qp, const Result<void>& posted, std::uint32_t bytes) {
    if (posted) {
        owner_.counters().sent.fetch_add(1, std::memory_order_relaxed);
        return true;
    }
    const std::lock_guard lock(lock_);
    if (qp_.get() == &qp) in_flight_ -= bytes;
    return false;
}

bool DatagramSender::try_send(ConstBytes frame, Gather gather) {
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    const auto qp = take_room(bytes);
    if (qp == nullptr) return false;
    const Sge sge{const_cast<std::byte*>(frame.data()), bytes, kLkeyNone};
    SendWr wr;
    wr.wr_id = inline_id(bytes);
    wr.flags = kSendSignaled | kSendInline;
    if (gather == Gather::more) wr.flags |= kSendMore;
    wr.sges = {&sge, 1};
    return sent(*qp, qp->post_send(wr, gather != Gather::no), bytes);
}

bool DatagramSender::try_send(std::unique_ptr<DatagramBuffer>& buffer, Gather gather) {
    const std::uint32_t bytes = buffer->bytes;
    const auto qp = take_room(bytes);
    if (qp == nullptr) return false;
    const Sge sge{buffer->octets.data(), bytes, kLkeyNone};
    SendWr wr;
    wr.flags = kSendSignaled;
    if (gather == Gather::more) wr.flags |= kSendMore;
    wr.sges = {&sge, 1};
    // It may be complete, and free, before this returns.
    DatagramBuffer* const given = buffer.release();
    wr.wr_id = reinterpret_cast<std::uintptr_t>(given);
    const bool taken = sent(*qp, qp->post_send(wr, gather != Gather::no), bytes);
    if (!taken) buffer.reset(given);
    return taken;
}

void DatagramSender::queue(std::unique_ptr<DatagramBuffer> buffer) {
    buffer->queued = owner_.now();
    bool dials = false;
    std::shared_ptr<PolledQp> qp;
    DatagramQueue dropped;
    std::shared_ptr<DatagramQp> done;
    const std::uint64_t number = buffer->number;
    {
        const std::lock_guard lock(lock_);
        const bool pausing = state_ == State::paused && buffer->queued < paused_until_;
        if (pausing || stalled_ || queued_.bytes() >= kQueued) {
            dropped.push(std::move(buffer));
        } else {
            // Sends complete in order: a process that did not answer the last time is not to keep
            // up those behind it again. (Else the program may exit once they are complete.)
            const bool doubtful = state_ != State::up && pause_ != 0;
            if (doubtful && queued_.bytes() < kInFlight) done = std::move(buffer->qp);
            queued_.push(std::move(buffer));
            dials = state_ == State::idle || state_ == State::paused;
            if (dials) state_ = State::dialing;
            if (state_ == State::up) qp = qp_;
        }
    }
    drop(std::move(dropped));
    if (done != nullptr) done->sends().end(number);
    if (dials) owner_.dial(shared_from_this());
    if (qp != nullptr) feed();
    if (qp != nullptr) qp->send_queued();  // and on_poll() says until when it waits
}

// ---- the connection -------------------------------------------------------------

// With lock_ held. False: it dials no more, or has one.
bool DatagramSender::take_connection(std::shared_ptr<PolledQp> qp) {
    if (state_ != State::dialing || qp_ != nullptr) return false;
    qp_ = std::move(qp);
    in_flight_ = 0;
    taken_ = stalled_ = false;
    return true;
}

bool DatagramSender::connect(std::shared_ptr<PolledQp> qp, std::optional<std::uint32_t> name) {
    const std::lock_guard lock(lock_);
    if (!take_connection(std::move(qp))) return false;
    adopted_ = false;
    name_ = name;
    return true;
}

std::optional<std::uint32_t> DatagramSender::dialed_name() {
    const std::lock_guard lock(lock_);
    if (qp_ == nullptr || adopted_) return std::nullopt;
    note_used();
    return name_;
}

bool DatagramSender::adopt(std::shared_ptr<PolledQp> qp) {
    {
        const std::lock_guard lock(lock_);
        if (!take_connection(std::move(qp))) return false;
        adopted_ = true;
        state_ = State::up;
        pause_ = 0;
    }
    note_used();
    feed();
    return true;
}

std::shared_ptr<PolledQp> DatagramSender::try_connection() {
    const std::unique_lock lock(lock_, std::try_to_lock);
    return lock ? qp_ : nullptr;
}

// With lock_ held.
DatagramQueue DatagramSender::begin_pause() {
    state_ = State::paused;
    pause_ = pause_ == 0 ? kFirstPause : std::min(2 * pause_, kLongestPause);
    paused_until_ = time_after(owner_.now(), pause_);
    return std::move(queued_);
}

void DatagramSender::give_up() noexcept {
    std::shared_ptr<PolledQp> former;
    DatagramQueue dropped;
    {
        const std::lock_guard lock(lock_);
        if (state_ != State::dialing) return;
        former = std::exchange(qp_, nullptr);
        dropped = begin_pause();
    }
    if (former != nullptr) former->request_end(PolledQp::End::release);
    drop(std::move(dropped));
}

void DatagramSender::end_pause() {
    const std::lock_guard lock(lock_);
    paused_until_ = 0;
}

void DatagramSender::drop(DatagramQueue buffers) {
    if (buffers.empty()) return;
    owner_.counters().unsent.fetch_add(buffers.size(), std::memory_order_relaxed);
    while (!buffers.empty()) {
        const auto buffer = buffers.pop();
        if (buffer->qp != nullptr) buffer->qp->sends().end(buffer->number);
    }
}

bool DatagramSender::is_unused(Time now) {
    const std::lock_guard lock(lock_);
    return state_ == State::idle || (state_ == State::paused && now >= paused_until_);
}

bool DatagramSender::close_if_idle() {
    std::shared_ptr<PolledQp> idle;
    {
        const std::lock_guard lock(lock_);
        // What the other process has dialed, that one closes.
        if (used_.exchange(false) || state_ != State::up || adopted_ || in_flight_ != 0 ||
            !queued_.empty()) {
            return false;
        }
        state_ = State::idle;
        idle = std::exchange(qp_, nullptr);
    }
    idle->request_end(PolledQp::End::shutdown);
    return true;
}

// ---- pollers -----------------------------------------------------------------

void DatagramSender::on_completion(const PolledQp& qp, const Wc& wc) {
    std::unique_ptr<DatagramBuffer> buffer;
    if ((wc.wr_id & kInline) == 0) {
        buffer.reset(reinterpret_cast<DatagramBuffer*>(static_cast<std::uintptr_t>(wc.wr_id)));
    }
    if (wc.status != WcStatus::success) {
        owner_.counters().unsent.fetch_add(1, std::memory_order_relaxed);
    }
    bool waiting = false;
    {
        // Another thread's feed() holds it until it has let go of what it has given.
        const std::lock_guard lock(lock_);
        if (qp_.get() != &qp) return;
        const auto bytes =
            buffer != nullptr ? buffer->bytes : static_cast<std::uint32_t>(wc.wr_id >> 1);
        in_flight_ -= std::min(in_flight_, bytes);
        taken_ = true;
        stalled_ = false;
        waiting = !queued_.empty();
    }
    if (waiting) feed();
}

// Gives the connection what has waited, as far as it may have it now, and some at a time: what is
// completed asks again.
void DatagramSender::feed() {
    constexpr std::size_t kAtOnce = 64;
    struct Done {
        std::shared_ptr<DatagramQp> qp;
        std::uint64_t number;
    };
    std::array<Done, kAtOnce> done;  // in the poller nothing may want memory
    std::size_t count = 0;
    std::shared_ptr<PolledQp> qp;
    {
        const std::lock_guard lock(lock_);
        if (state_ != State::up) return;
        qp = qp_;
        while (!queued_.empty() && count < kAtOnce && in_flight_ < kInFlight &&
               qp->send_room() > 0) {
            DatagramBuffer& buffer = queued_.front();
            const Sge sge{buffer.octets.data(), buffer.bytes, kLkeyNone};
            SendWr wr;
            wr.wr_id = reinterpret_cast<std::uintptr_t>(&buffer);
            wr.sges = {&sge, 1};
            done[count] = {buffer.qp, buffer.number};
            if (!qp->queue_send(wr)) break;
            ++count;
            in_flight_ += buffer.bytes;
            (void)queued_.pop().release();
        }
    }
    if (count == 0) return;
    qp->send_queued();
    owner_.counters().sent.fetch_add(count, std::memory_order_relaxed);
    for (const Done& send : std::span(done).first(count)) {
        if (send.qp != nullptr) send.qp->sends().end(send.number);
    }
}

Time DatagramSender::on_poll() {
    DatagramQueue late;
    Time next = kNever;
    {
        const std::lock_guard lock(lock_);
        if (queued_.empty()) return kNever;
        const Time now = owner_.now();
        while (!queued_.empty() && time_after(queued_.front().queued, kWait) <= now) {
            late.push(queued_.pop());
        }
        // A peer that has stopped: from now on nothing waits for it.
        if (!late.empty() && !std::exchange(taken_, false)) {
            stalled_ = true;
            while (!queued_.empty()) late.push(queued_.pop());
        }
        if (!queued_.empty()) next = time_after(queued_.front().queued, kWait);
    }
    drop(std::move(late));
    return next;
}

// What waits goes to the connection first; its end comes behind that.
bool DatagramSender::on_exit(const PolledQp& qp) {
    std::shared_ptr<PolledQp> empty;
    {
        const std::unique_lock lock(lock_, std::try_to_lock);
        if (!lock) return true;  // asked again; perhaps by the thread that exit() interrupted
        if (state_ != State::up || qp_.get() != &qp) return false;
        if (queued_.empty()) empty = qp_;
    }
    if (empty != nullptr) empty->request_end(PolledQp::End::shutdown);
    return true;
}

void DatagramSender::on_up(const PolledQp& qp) {
    {
        const std::lock_guard lock(lock_);
        if (qp_.get() != &qp) return;
        state_ = State::up;
        stalled_ = false;
        pause_ = 0;
    }
    feed();
}

void DatagramSender::leave(const PolledQp& qp) {
    std::shared_ptr<PolledQp> former;
    DatagramQueue dropped;
    {
        const std::lock_guard lock(lock_);
        if (qp_.get() != &qp) return;
        former = std::exchange(qp_, nullptr);
        stalled_ = false;
        if (adopted_) {
            // The other process may be there still: it closes what is idle.
            state_ = State::idle;
            dropped = std::move(queued_);
        } else {
            dropped = begin_pause();
        }
    }
    drop(std::move(dropped));
}

}  // namespace xsock::verbs
