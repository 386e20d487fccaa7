// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_carrier.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace xsock::verbs {
namespace {

constexpr std::uint32_t kSendDepth = 4096;
/// What has been read waits outside of DatagramPool while a QP does not receive.
constexpr std::uint32_t kReadMost = 64 * 1024;

DatagramCarrier* of(void* argument) noexcept { return static_cast<DatagramCarrier*>(argument); }

}  // namespace

DatagramCarrier::DatagramCarrier(CarrierOwner& owner, Ends ends) noexcept
    : owner_(owner), ends_(std::move(ends)) {
    if (ends_.dialed) owner_.outgoing().fetch_add(1, std::memory_order_relaxed);
}

DatagramCarrier::~DatagramCarrier() {
    if (ends_.dialed) owner_.outgoing().fetch_sub(1, std::memory_order_relaxed);
}

std::shared_ptr<PolledQp> DatagramCarrier::make(CarrierOwner& owner, Ends ends) {
    const auto carrier = std::make_shared<DatagramCarrier>(owner, std::move(ends));
    const bool sends = carrier->ends_.sender != nullptr;
    PolledQpAttr polled;
    polled.argument = carrier.get();
    polled.keeper = carrier;
    polled.qp.sq_depth = sends ? kSendDepth : 1;  // a receiver answers nothing
    polled.listener = [self = carrier.get()](PolledQp& qp, QpState state) {
        self->on_state(qp, state);
    };
    polled.on_completion = [](void* self, const Wc& wc) { of(self)->on_completion(wc); };
    polled.on_poll = [](void* self) { return of(self)->on_poll(); };
    if (sends) {
        polled.on_exit = [](void* self, bool& brief) {
            brief = true;
            return of(self)->on_exit();
        };
        polled.exits_briefly = true;
    }
    if (carrier->ends_.receiver != nullptr) {
        polled.qp.read_most = kReadMost;
        polled.provide_receive = [](void* self, std::uint32_t, RecvWqe& out) {
            return of(self)->ends_.receiver->provide_receive(out);
        };
    }
    auto qp = owner.make_carrier(std::move(polled));
    carrier->qp_ = qp.get();
    if (carrier->ends_.receiver != nullptr) carrier->ends_.receiver->set_connection(qp);
    return qp;
}

void DatagramCarrier::on_completion(const Wc& wc) {
    if (wc.opcode == WcOpcode::recv) {
        if (ends_.receiver == nullptr) return;
        if (ends_.sender != nullptr) ends_.sender->note_used();
        ends_.receiver->on_completion(wc);
    } else if (wc.opcode == WcOpcode::send && ends_.sender != nullptr) {
        if (ends_.receiver != nullptr) ends_.receiver->note_used();
        ends_.sender->on_completion(*qp_, wc);
    }
}

Time DatagramCarrier::on_poll() {
    Time next = kNever;
    if (ends_.receiver != nullptr) next = ends_.receiver->on_poll();
    if (ends_.sender != nullptr) next = std::min(next, ends_.sender->on_poll());
    return next;
}

bool DatagramCarrier::on_exit() { return ends_.sender != nullptr && ends_.sender->on_exit(*qp_); }

void DatagramCarrier::on_state(PolledQp& qp, QpState state) {
    switch (state) {
        case QpState::fresh:
        case QpState::starting:
        case QpState::requested:
        case QpState::closing:
            return;
        case QpState::established:
            return on_established(qp);
        case QpState::peer_closed:
            if (ends_.receiver == nullptr || ends_.receiver->finish()) {
                qp.request_end(PolledQp::End::shutdown);
            }
            if (ends_.sender != nullptr) ends_.sender->leave(qp);
            return;
        case QpState::error:
        case QpState::closed:
            return on_ended(qp);
    }
}

void DatagramCarrier::on_established(PolledQp& qp) {
    if (ends_.sender == nullptr) return;
    if (ends_.dialed) {
        // Another may have taken its place before it was started, when nothing could end it.
        if (!ends_.sender->on_up(qp)) qp.request_end(PolledQp::End::shutdown);
    } else if (!ends_.sender->adopt(ends_.receiver->connection(), ends_.preferred)) {
        ends_.sender.reset();
    }
}

void DatagramCarrier::on_ended(PolledQp& qp) {
    if (std::exchange(ended_, true)) return;
    owner_.count_ended(qp);
    qp.request_end(PolledQp::End::release);
    if (ends_.sender != nullptr) ends_.sender->leave(qp);
    if (ends_.receiver != nullptr) ends_.receiver->end();
}

}  // namespace xsock::verbs
