// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_sends.hpp"

#include <algorithm>
#include <mutex>

namespace xsock::verbs {

Wc datagram_wc(std::uint32_t num, QpNum purge_num, std::uint64_t wr_id, WcOpcode opcode,
               WcStatus status) noexcept {
    Wc wc;
    wc.wr_id = wr_id;
    wc.qp_context = num;
    wc.qp_num = purge_num;
    wc.opcode = opcode;
    wc.status = status;
    return wc;
}

// With lock_ held.
void DatagramSends::complete(const Send& send) {
    if (!send.signaled && send.status == WcStatus::success) return;
    Wc wc = datagram_wc(num_, purge_num_.load(std::memory_order_relaxed), send.wr_id,
                        WcOpcode::send, send.status);
    if (!send.signaled) wc.flags |= kWcUnsignaled;
    cq_->push(wc);
}

void DatagramSends::add_done(const Send& send) {
    const std::lock_guard lock(lock_);
    if (waiting_.empty()) return complete(send);
    waiting_.push_back({send, true});
    waiting_count_.store(waiting_.size());
}

std::uint64_t DatagramSends::begin(const Send& send) {
    const std::lock_guard lock(lock_);
    waiting_.push_back({send, false});
    waiting_count_.store(waiting_.size());
    return first_ + waiting_.size() - 1;
}

void DatagramSends::end(std::uint64_t number) {
    const std::lock_guard lock(lock_);
    if (number < first_) return;  // flushed since
    waiting_[static_cast<std::size_t>(number - first_)].done = true;
    while (!waiting_.empty() && waiting_.front().done) {
        complete(waiting_.front().send);
        waiting_.pop_front();
        ++first_;
    }
    waiting_count_.store(waiting_.size());
}

std::size_t DatagramSends::discard() {
    const std::lock_guard lock(lock_);
    const auto signaled = std::count_if(waiting_.begin(), waiting_.end(),
                                        [](const Waiting& w) { return w.send.signaled; });
    first_ += waiting_.size();
    waiting_.clear();
    waiting_count_.store(0);
    return static_cast<std::size_t>(signaled);
}

void DatagramSends::flush() {
    const std::lock_guard lock(lock_);
    for (const Waiting& waiting : waiting_) {
        Send send = waiting.send;
        if (!waiting.done) send.status = WcStatus::flushed;
        complete(send);
    }
    first_ += waiting_.size();
    waiting_.clear();
    waiting_count_.store(0);
}

}  // namespace xsock::verbs
