// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_qp.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "transport/clock.hpp"

namespace xsock::verbs {
namespace {

/// So long a QP may be without receives before it counts as one that does not receive.
constexpr Time kReceiveLimit = kSecond;

void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

bool DatagramPool::take(std::size_t bytes) noexcept {
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
        if (used > kBytes || bytes > kBytes - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
}

DatagramQp::DatagramQp(const Config& config)
    : config_(config), sends_(config.num, config.send_cq), receives_(config.rq_depth) {}

DatagramQp::~DatagramQp() { config_.pool->give(held_bytes_); }

// ---- states ---------------------------------------------------------------------

void DatagramQp::begin_receiving() {
    const std::lock_guard lock(rx_lock_);
    receiving_.store(true);
}

void DatagramQp::fail() {
    failed_.store(true);
    sends_.set_failed(true);
    sends_.flush();
    Waiters waiters;
    {
        const std::lock_guard lock(rx_lock_);
        receiving_.store(false);
        drop_held(config_.counters->no_qp);
        flush_receives();
        waiters = std::exchange(waiters_, {});
    }
    tell(waiters);
}

// With rx_lock_ held. Shared ones stay for others.
void DatagramQp::flush_receives() {
    if (config_.shared != nullptr) return;
    while (find_receive()) {
        const RecvWqe wqe = *std::exchange(next_, std::nullopt);
        config_.recv_cq->push(datagram_wc(config_.num, purge_num_.load(), wqe.wr_id, WcOpcode::recv,
                                          WcStatus::flushed));
    }
}

std::size_t DatagramQp::reset(bool last) {
    if (last) closed_.store(true);
    const std::size_t signaled = sends_.discard();
    sends_.set_failed(false);
    failed_.store(false);
    Waiters waiters;
    {
        const std::lock_guard lock(rx_lock_);
        receiving_.store(false);
        qkey_.store(0);
        drop_held(config_.counters->no_qp);
        while (config_.shared == nullptr && find_receive()) next_.reset();
        empty_since_ = kNever;
        waiters = std::exchange(waiters_, {});
    }
    tell(waiters);
    return signaled;
}

// ---- receives -------------------------------------------------------------------

// With rx_lock_ held. True: next_ is one.
bool DatagramQp::find_receive() {
    if (next_) return true;
    if (config_.shared != nullptr) return find_shared();
    RecvWqe wqe;
    if (!receives_.take(wqe)) return false;
    next_ = wqe;
    return true;
}

bool DatagramQp::find_shared() {
    RecvWqe wqe;
    bool found = config_.shared->take(wqe);
    if (!found && !waits_for_shared_) {
        waits_for_shared_ = config_.shared->add_waiter(weak_from_this());
        found = config_.shared->take(wqe);
    }
    if (found) next_ = wqe;
    return found;
}

Result<void> DatagramQp::post_recv(const RecvWr& wr) {
    auto posted = receives_.post(wr);
    if (!posted) return posted.error();
    if (failed_.load()) {
        const std::lock_guard lock(rx_lock_);
        if (failed_.load()) flush_receives();
        return {};
    }
    if (*posted) on_receives();
    return {};
}

void DatagramQp::on_receives() {
    Waiters waiters;
    {
        const std::lock_guard lock(rx_lock_);
        deliver_held();
        waiters = std::exchange(waiters_, {});
    }
    tell(waiters);
}

void DatagramQp::on_shared_posted() {
    {
        const std::lock_guard lock(rx_lock_);
        waits_for_shared_ = false;
    }
    on_receives();
}

void DatagramQp::tell(const Waiters& waiters) {
    for (const auto& weak : waiters) {
        if (const auto waiter = weak.lock()) waiter->on_receives_posted();
    }
}

// With rx_lock_ held, receives having been posted.
void DatagramQp::deliver_held() {
    if (!held_.empty() && config_.clock() >= time_after(empty_since_, kReceiveLimit)) {
        drop_held(config_.counters->no_receive);
    }
    empty_since_ = kNever;
    while (!held_.empty() && find_receive()) {
        const Held& held = held_.front();
        place(held.header, held.octets);
        held_bytes_ -= held.octets.size();
        config_.pool->give(held.octets.size());
        held_.pop_front();
    }
    if (!held_.empty()) empty_since_ = config_.clock();
}

// With rx_lock_ held.
void DatagramQp::drop_held(std::atomic<std::uint64_t>& counter) {
    count(counter, held_.size());
    config_.pool->give(std::exchange(held_bytes_, 0));
    held_.clear();
}

bool DatagramQp::take(const DatagramHeader& header, ConstBytes octets,
                      const std::shared_ptr<ReceiveWaiter>& waiter) {
    const std::lock_guard lock(rx_lock_);
    if (!receiving_.load() || closed()) {
        count(config_.counters->no_qp);
        return true;
    }
    if (header.pkey != kDefaultPkey) {
        count(config_.counters->wrong_pkey);
        return true;
    }
    if (header.qkey != qkey_.load()) {
        count(config_.counters->wrong_qkey);
        return true;
    }
    if (held_.empty() && find_receive()) {
        empty_since_ = kNever;
        place(header, octets);
        return true;
    }
    const Time now = config_.clock();
    if (empty_since_ == kNever) empty_since_ = now;
    if (now >= time_after(empty_since_, kReceiveLimit)) {
        drop_held(config_.counters->no_receive);
        count(config_.counters->no_receive);
        return true;
    }
    try {
        return hold(header, octets, waiter);
    } catch (const std::bad_alloc&) {
        count(config_.counters->no_receive);
        return true;
    }
}

// With rx_lock_ held. Throws std::bad_alloc, and has changed nothing then.
bool DatagramQp::hold(const DatagramHeader& header, ConstBytes octets,
                      const std::shared_ptr<ReceiveWaiter>& waiter) {
    if (octets.size() <= DatagramPool::kShare - held_bytes_ && config_.pool->take(octets.size())) {
        try {
            held_.push_back({header, {octets.begin(), octets.end()}});
        } catch (...) {
            config_.pool->give(octets.size());
            throw;
        }
        held_bytes_ += octets.size();
        count(config_.counters->held);
        return true;
    }
    const auto is_it = [&](const std::weak_ptr<ReceiveWaiter>& other) {
        return !other.owner_before(waiter) && !waiter.owner_before(other);
    };
    if (std::none_of(waiters_.begin(), waiters_.end(), is_it)) waiters_.push_back(waiter);
    return false;
}

Time DatagramQp::drop_overdue() {
    const std::lock_guard lock(rx_lock_);
    if (held_.empty()) return kNever;
    const Time due = time_after(empty_since_, kReceiveLimit);
    if (config_.clock() < due) return due;
    drop_held(config_.counters->no_receive);
    return 0;
}

Time DatagramQp::drops_from() noexcept {
    const std::lock_guard lock(rx_lock_);
    return empty_since_ == kNever ? kNever : time_after(empty_since_, kReceiveLimit);
}

// With rx_lock_ held, into next_.
void DatagramQp::place(const DatagramHeader& header, ConstBytes octets) {
    if (octets.size() > next_->length) {
        count(config_.counters->too_long);
        if (config_.shared != nullptr)
            config_.shared->give_back(*std::exchange(next_, std::nullopt));
        return;
    }
    const RecvWqe wqe = *std::exchange(next_, std::nullopt);
    const WcStatus status = config_.scatter(octets, std::span(wqe.sge).first(wqe.sge_count));
    Wc wc = datagram_wc(config_.num, purge_num_.load(), wqe.wr_id, WcOpcode::recv, status);
    wc.qp_context |= std::uint64_t{header.from} << 32;
    wc.byte_len = static_cast<std::uint32_t>(octets.size());
    wc.flags = kWcDatagram;
    if (header.solicited) wc.flags |= kWcSolicited;
    if (header.immediate) {
        wc.flags |= kWcSendImmediate;
        wc.immediate = load_be32(header.data.data());
    }
    count(config_.counters->received);
    config_.recv_cq->push(wc);
}

}  // namespace xsock::verbs
