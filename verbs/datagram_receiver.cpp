// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_receiver.hpp"

#include <algorithm>
#include <utility>

#include "transport/log.hpp"
#include "verbs/datagrams.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {

IncomingCarriers::Carrier DatagramReceiver::place(std::shared_ptr<PolledQp> connection,
                                                  const Greeting& greeting) const {
    IncomingCarriers::Carrier carrier;
    carrier.key = {peer_, own_, port_in(greeting.from), port_in(greeting.to)};
    carrier.connection = std::move(connection);
    carrier.used = &used_;
    return carrier;
}

void DatagramReceiver::set_connection(const std::shared_ptr<PolledQp>& connection) {
    note_used();
    qp_ = connection;
}

void DatagramReceiver::note_used() noexcept {
    used_.store(owner_.receivers_clock(), std::memory_order_relaxed);
}

bool DatagramReceiver::provide_receive(RecvWqe& out) noexcept {
    if (waits_) return false;
    out.internal = true;
    out.length = kDatagramHeader + kDatagramPayload;
    out.wr_id = 0;
    out.sge_count = 1;
    out.sge[0] = {memory_.data() + kSpare, out.length, kLkeyNone};
    return true;
}

void DatagramReceiver::on_completion(const Wc& wc) {
    if (wc.opcode != WcOpcode::recv || wc.status != WcStatus::success) return;
    const ConstBytes frame = ConstBytes(memory_).subspan(kSpare, wc.byte_len);
    // A datagram is a plain Send.
    constexpr unsigned kOther = kWcImmediate | kWcSendImmediate | kWcInvalidated;
    const bool is_send = (wc.flags & kOther) == 0;
    const auto decoded = is_send ? decode_datagram(frame) : std::nullopt;
    if (!decoded) {
        owner_.counters().malformed.fetch_add(1, std::memory_order_relaxed);
        log(LogLevel::warn, "datagram-malformed",
            "a peer's frame of %u bytes is no datagram; its connection ends",
            static_cast<unsigned>(wc.byte_len));
        if (const auto qp = qp_.lock()) qp->request_end(PolledQp::End::abort);
        return;
    }
    note_used();
    header_ = decoded->header;
    const auto grh = make_grh(header_, peer_, own_, decoded->payload.size());
    octets_ = kGrhBytes + decoded->payload.size();
    std::copy(grh.begin(), grh.end(), memory_.begin());
    waits_ = !deliver();
    if (!waits_) return;
    if (const auto qp = qp_.lock()) qp->poll_soon();  // so that on_poll() says until when
}

DatagramQp* DatagramReceiver::destination(std::uint32_t num) {
    if (destination_ == nullptr || destination_num_ != num || destination_->closed()) {
        destination_ = owner_.find(num);
        destination_num_ = num;
    }
    return destination_.get();
}

// False: it has to wait.
bool DatagramReceiver::deliver() {
    DatagramQp* const to = destination(header_.to);
    if (to == nullptr) {
        owner_.counters().no_qp.fetch_add(1, std::memory_order_relaxed);
        return true;
    }
    const ConstBytes octets = ConstBytes(memory_).first(octets_);
    overdue_ = kNever;
    if (to->take(header_, octets, shared_from_this())) return true;
    // The room may be that of QPs that do not receive, and get nothing any more.
    return owner_.drop_overdue(octets_, overdue_) && to->take(header_, octets, shared_from_this());
}

Time DatagramReceiver::on_poll() {
    if (!waits_) return kNever;
    waits_ = !deliver();
    if (waits_) return std::min(destination_->drops_from(), overdue_);
    const auto qp = qp_.lock();
    if (qp != nullptr && finished_) qp->request_end(PolledQp::End::shutdown);
    if (qp != nullptr && !finished_) qp->receive_posted();  // go on reading
    return kNever;
}

bool DatagramReceiver::finish() noexcept {
    finished_ = true;
    return !waits_;
}

void DatagramReceiver::end() noexcept {
    if (std::exchange(waits_, false)) {
        owner_.counters().no_receive.fetch_add(1, std::memory_order_relaxed);
    }
    owner_.remove(*this);
}

}  // namespace xsock::verbs
