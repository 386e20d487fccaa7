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
    : owner_(owner), ends_(std::move(ends)), dialed_(ends_.sender != nullptr) {
    if (dialed_) owner_.outgoing().fetch_add(1, std::memory_order_relaxed);
}

DatagramCarrier::~DatagramCarrier() {
    if (dialed_) owner_.outgoing().fetch_sub(1, std::memory_order_relaxed);
}

std::shared_ptr<PolledQp> DatagramCarrier::make_connection() {
    const bool sends = dialed_ || ends_.both_ways;
    PolledQpAttr polled;
    polled.argument = this;
    polled.keeper = shared_from_this();
    polled.qp.sq_depth = sends ? kSendDepth : 1;  // a receiver answers nothing
    polled.listener = [this](PolledQp& qp, QpState state) { on_state(qp, state); };
    polled.on_completion = [](void* self, const Wc& wc) { of(self)->on_completion(wc); };
    polled.on_poll = [](void* self) { return of(self)->on_poll(); };
    if (sends) {
        polled.on_exit = [](void* self, ExitStep step, bool& brief) {
            brief = true;
            return step == ExitStep::over || of(self)->on_exit();
        };
        polled.exits_briefly = true;
    }
    if (ends_.receiver != nullptr) {
        polled.qp.read_most = kReadMost;
        polled.provide_receive = [](void* self, std::uint32_t, RecvWqe& out) {
            return of(self)->ends_.receiver->provide_receive(out);
        };
    }
    auto qp = owner_.make_carrier(std::move(polled));
    qp_ = qp.get();
    if (ends_.receiver != nullptr) ends_.receiver->set_connection(qp);
    return qp;
}

bool DatagramCarrier::lend(const std::shared_ptr<DatagramSender>& sender) {
    if (!ends_.both_ways || !up_ || ended_ || ends_.sender != nullptr) return false;
    ends_.sender = sender;  // what it is given may complete at once
    if (sender->adopt(ends_.receiver->connection())) return true;
    ends_.sender.reset();
    return false;
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
            up_ = true;
            if (dialed_) ends_.sender->on_up(qp);
            return;
        case QpState::peer_closed:
            up_ = false;
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

void DatagramCarrier::on_ended(PolledQp& qp) {
    if (std::exchange(ended_, true)) return;
    owner_.count_ended(qp);
    qp.request_end(PolledQp::End::release);
    if (ends_.sender != nullptr) ends_.sender->leave(qp);
    if (ends_.receiver != nullptr) ends_.receiver->end();
}

}  // namespace xsock::verbs
