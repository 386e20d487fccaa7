// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posting: requests of verbs.h into the device's queues. Never blocks (the device's send queue does
// not), and moves bytes only when no other thread does at the moment.
#include <cstring>

#include "ddp_user/opcode.hpp"
#include "verbs/cancel.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

/// SGEs as the device wants them: the same but for regions whose addresses are not their own.
class Sges {
  public:
    /// 0 or an errno. `relocatable`: not of inline data, whose addresses are the process's.
    int assign(VerbsState& engine, const ibv_sge* list, int count, bool relocatable) {
        if (count < 0 || static_cast<std::size_t>(count) > kMaxSge) return EINVAL;
        if (count > 0 && list == nullptr) return EINVAL;
        count_ = static_cast<std::size_t>(count);
        for (std::size_t i = 0; i < count_; ++i) {
            sges_[i].address =
                reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(list[i].addr));
            sges_[i].length = list[i].length;
            sges_[i].lkey = list[i].lkey;
        }
        if (relocatable) relocate(engine, std::span(sges_).first(count_));
        return 0;
    }
    [[nodiscard]] std::span<const Sge> span() const noexcept { return {sges_.data(), count_}; }

  private:
    std::array<Sge, kMaxSge> sges_;
    std::size_t count_ = 0;
};

std::uint8_t flags_of(const Qp& qp, unsigned given) noexcept {
    unsigned flags = 0;
    if ((given & IBV_SEND_SIGNALED) != 0 || qp.signal_all) flags |= kSendSignaled;
    if ((given & IBV_SEND_SOLICITED) != 0) flags |= kSendSolicited;
    if ((given & IBV_SEND_FENCE) != 0) flags |= kSendFence;
    if ((given & IBV_SEND_INLINE) != 0) flags |= kSendInline;
    return static_cast<std::uint8_t>(flags);
}

/// Of UC (for ibv_qp_ex: kUnreliableSendOps).
bool is_for_unreliable(std::uint32_t opcode) noexcept {
    switch (opcode) {
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_LOCAL_INV:
        case IBV_WR_BIND_MW:
            return true;
        default:
            return false;
    }
}

/// 0 or an errno.
int translate(Qp& qp, const ibv_send_wr& from, SendWr& to, Atomic& atomic) noexcept {
    if (qp.unreliable() && !is_for_unreliable(value_in(from.opcode))) return EINVAL;
    switch (value_in(from.opcode)) {
        case IBV_WR_SEND:
            to.opcode = SendOpcode::send;
            return 0;
        case IBV_WR_SEND_WITH_INV:
            to.opcode = SendOpcode::send_invalidate;
            to.invalidate_stag = from.invalidate_rkey;
            return 0;
        case IBV_WR_SEND_WITH_IMM:
            to.opcode = SendOpcode::send_immediate;
            to.immediate = immediate_of(from.imm_data) >> 32;
            return 0;
        case IBV_WR_RDMA_WRITE:
            to.opcode = SendOpcode::write;
            break;
        case IBV_WR_RDMA_READ:
            to.opcode = SendOpcode::read;
            break;
        case IBV_WR_LOCAL_INV:
            to.opcode = SendOpcode::local_invalidate;
            to.invalidate_stag = from.invalidate_rkey;
            return 0;
        case IBV_WR_BIND_MW:
            if (from.bind_mw.mw == nullptr || from.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
            return prepare_binding(qp, from.bind_mw.mw, from.bind_mw.rkey, from.bind_mw.bind_info,
                                   to);
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            to.opcode = SendOpcode::write_immediate;
            to.immediate = immediate_of(from.imm_data);
            break;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            to.opcode = SendOpcode::fetch_add;
            atomic = fetch_add_of(from.wr.atomic.compare_add);
            to.atomic = &atomic;
            to.remote_to = from.wr.atomic.remote_addr;
            to.remote_stag = from.wr.atomic.rkey;
            return 0;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            to.opcode = SendOpcode::compare_swap;
            atomic = compare_swap_of(from.wr.atomic.compare_add, from.wr.atomic.swap);
            to.atomic = &atomic;
            to.remote_to = from.wr.atomic.remote_addr;
            to.remote_stag = from.wr.atomic.rkey;
            return 0;
        default:
            return EOPNOTSUPP;
    }
    to.remote_to = from.wr.rdma.remote_addr;
    to.remote_stag = from.wr.rdma.rkey;
    return 0;
}

bool over(Qp& qp) noexcept {
    // Not flushed yet.
    if (qp.end_unconfirmed.load(std::memory_order_acquire) && !qp.unreliable()) return false;
    const QpState state = qp.qp.use()->state();
    return state == QpState::closed || state == QpState::error;
}

// A post on a QP whose connection ends or has ended. It is accepted, as verbs have it, and
// completes as flushed, behind everything that was posted before.
void post_late(Qp& qp, const Wc& wc) {
    {
        const std::lock_guard lock(qp.late_mutex);
        qp.late.push_back(wc);
    }
    if (over(qp)) flush_late(qp);
}

Wc flushed(Qp& qp, std::uint64_t wr_id, WcOpcode opcode) noexcept {
    Wc wc;
    wc.wr_id = wr_id;
    wc.qp_context = qp.num();
    wc.qp_num = qp.qp.use()->num();  // what purge() goes by
    wc.opcode = opcode;
    wc.status = WcStatus::flushed;
    return wc;
}

/// Why a device's queue did not take a request, as verbs have it.
int errno_of(const Error& error) noexcept { return error.code == ENOBUFS ? ENOMEM : error.code; }

int post_receive(Qp& qp, const RecvWr& wr) {
    const auto posted =
        qp.datagrams != nullptr ? qp.datagrams->post_recv(wr) : qp.qp.use()->post_recv(wr);
    if (posted) return 0;
    if (posted.error().code != EPIPE) return errno_of(posted.error());
    post_late(qp, flushed(qp, wr.wr_id, WcOpcode::recv));
    return 0;
}

/// Posts a list of receives until one fails. `error`: why none may be posted, or 0.
template <typename Post>
int post_receives(VerbsState& engine, int error, std::uint32_t max_sge, ibv_recv_wr* wr,
                  ibv_recv_wr** bad, Post&& post) {
    for (; error == 0 && wr != nullptr; wr = wr->next) {
        Sges sges;
        try {
            error = sges.assign(engine, wr->sg_list, wr->num_sge, true);
            if (error == 0 && sges.span().size() > max_sge) error = EINVAL;
            if (error == 0) error = post(RecvWr{.wr_id = wr->wr_id, .sges = sges.span()});
        } catch (...) {
            error = ENOMEM;
        }
        if (error != 0) break;
    }
    if (error != 0 && bad != nullptr) *bad = wr;
    return error;
}

}  // namespace

void relocate(VerbsState& engine, std::span<Sge> sges) {
    if (engine.regions_elsewhere.load(std::memory_order_relaxed) == 0) return;
    const std::lock_guard lock(engine.mutex);
    for (Sge& sge : sges) {
        const auto found = engine.mrs.find(sge.lkey);
        if (found == engine.mrs.end()) continue;
        const Mr& mr = *found->second;
        const std::uint64_t at = reinterpret_cast<std::uintptr_t>(sge.address);
        sge.address = static_cast<std::byte*>(mr.base.addr) + (at - mr.iova);
    }
}

void flush_late(Qp& qp) {
    const std::lock_guard lock(qp.late_mutex);
    for (const Wc& wc : qp.late) {
        (wc.opcode == WcOpcode::recv ? Cq::of(qp.base.qp_base.recv_cq)
                                     : Cq::of(qp.base.qp_base.send_cq))
            ->cq->push(wc);
    }
    qp.late.clear();
}

int post_one(Qp& qp, const SendWr& wr) noexcept {
    const bool asked = (wr.flags & kSendSignaled) != 0;
    Cq& cq = *Cq::of(qp.base.qp_base.send_cq);
    if (asked && !cq.take_slots(1)) return ENOMEM;
    const int error = post_taken(qp, wr);
    if (error != 0 && asked) cq.give_slots(1);
    return error;
}

int post_taken(Qp& qp, const SendWr& wr) noexcept {
    try {
        xsock::Qp* const twin = qp.sender.load(std::memory_order_acquire);
        const auto posted = twin != nullptr ? twin->post_send(wr) : qp.qp.use()->post_send(wr);
        if (posted) return 0;
        if (posted.error().code != EPIPE) return errno_of(posted.error());
        Wc wc = flushed(qp, wr.wr_id, ddp::send_info(wr.opcode).completion);
        if ((wr.flags & kSendSignaled) == 0) wc.flags |= kWcUnsignaled;
        if (wr.opcode == SendOpcode::bind_window && wr.remote_stag != 0) {
            qp.engine->device().abandon_window(wr.remote_stag);
        }
        // Dropped; but for what is done at this end.
        if (qp.unreliable() && !ddp::sends_nothing(wr.opcode) &&
            qp.state.load(std::memory_order_acquire) != IBV_QPS_ERR) {
            if ((wr.flags & kSendSignaled) == 0) return 0;
            wc.status = WcStatus::success;
        }
        post_late(qp, wc);
        return 0;
    } catch (...) {
        return ENOMEM;
    }
}

int post_send(ibv_qp* given, ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
    const HoldCancellation hold;
    Qp& qp = *Qp::of(given);
    int error = 0;
    if (qp.engine != VerbsState::current()) {
        error = EPERM;
    } else if (qp.datagrams != nullptr) {
        return post_datagrams(qp, wr, bad);
    } else if (!qp.takes_sends()) {
        error = EINVAL;
    }
    for (; error == 0 && wr != nullptr; wr = wr->next) {
        Sges sges;
        SendWr ours;
        Atomic atomic;
        ours.wr_id = wr->wr_id;
        ours.flags = flags_of(qp, wr->send_flags);
        if (wr->next != nullptr) ours.flags |= kSendMore;
        // Of what has no data, devices do not read the list.
        const auto opcode = value_in(wr->opcode);
        const bool has_data = opcode != IBV_WR_LOCAL_INV && opcode != IBV_WR_BIND_MW;
        try {
            const bool relocatable = (ours.flags & kSendInline) == 0;
            if ((error = sges.assign(*qp.engine, wr->sg_list, has_data ? wr->num_sge : 0,
                                     relocatable)) != 0) {
                break;
            }
        } catch (...) {
            error = ENOMEM;
            break;
        }
        if ((error = translate(qp, *wr, ours, atomic)) != 0) break;
        ours.sges = sges.span();
        if (ours.sges.size() > qp.cap.max_send_sge) error = EINVAL;
        if ((ours.flags & kSendInline) != 0 && total_length(ours.sges) > qp.cap.max_inline_data) {
            error = EINVAL;
        }
        if (error == 0) error = post_one(qp, ours);
        if (error != 0 && ours.opcode == SendOpcode::bind_window) {
            cancel_binding(wr->bind_mw.mw, ours);
        }
        if (error != 0) break;
    }
    if (error != 0 && bad != nullptr) *bad = wr;
    return error;
}

int post_recv(ibv_qp* given, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
    const HoldCancellation hold;
    Qp& qp = *Qp::of(given);
    int error = 0;
    if (qp.engine != VerbsState::current()) {
        error = EPERM;
    } else if (qp.state.load(std::memory_order_acquire) == IBV_QPS_RESET ||
               qp.base.qp_base.srq != nullptr) {
        error = EINVAL;
    }
    return post_receives(*qp.engine, error, qp.cap.max_recv_sge, wr, bad,
                         [&](const RecvWr& ours) { return post_receive(qp, ours); });
}

int post_srq_recv(ibv_srq* given, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
    const HoldCancellation hold;
    Srq& srq = *Srq::of(given);
    const int error = srq.engine == VerbsState::current() ? 0 : EPERM;
    const int failed =
        post_receives(*srq.engine, error, srq.max_sge, wr, bad, [&](const RecvWr& ours) {
            const auto posted = srq.srq->post_recv(ours);
            return posted ? 0 : errno_of(posted.error());
        });
    if (error == 0) srq.receives->posted();
    return failed;
}

}  // namespace xsock::verbs
