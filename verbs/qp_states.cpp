// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The states of a queue pair as the program moves it through them, and what it may ask.
#include <algorithm>
#include <utility>

#include "verbs/cm.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"
#include "verbs/qp_state_table.hpp"
#include "verbs/rnr_timer.hpp"

namespace xsock::verbs {
namespace {

// Which state may follow which (InfiniBand volume 1, §10.3; RESET and ERR may always follow).
bool may_follow(ibv_qp_state from, ibv_qp_state to) noexcept {
    switch (to) {
        case IBV_QPS_RESET:
        case IBV_QPS_ERR:
            return true;
        case IBV_QPS_INIT:
            return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
        case IBV_QPS_RTR:
            return from == IBV_QPS_INIT;
        case IBV_QPS_RTS:
            return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQE;
        default:
            // SQD as well: iWARP's verbs have no drained send queue (RFC 5040's QP has no such
            // state), and IBV_EVENT_SQ_DRAINED would never come.
            return false;
    }
}

constexpr std::uint32_t kPsnMask = 0xffffff;

std::uint32_t rights_of(unsigned flags) noexcept {
    std::uint32_t rights = 0;
    if ((flags & IBV_ACCESS_REMOTE_WRITE) != 0) rights |= kRemoteWrite;
    if ((flags & IBV_ACCESS_REMOTE_READ) != 0) rights |= kRemoteRead;
    if ((flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights |= kRemoteAtomic;
    return rights;
}

/// Of values that were given, those that no device takes.
bool values_hold(const ibv_qp_attr& attr, int mask) noexcept {
    const auto given = [mask](int which) { return (mask & which) != 0; };
    const std::uint32_t mtu = value_in(attr.path_mtu);
    return !(given(IBV_QP_PATH_MTU) && (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)) &&
           !(given(IBV_QP_PORT) && attr.port_num != kPort) &&
           !(given(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) &&
           !(given(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxReads) &&
           !(given(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxReads);
}

/// Those that InfiniBand has fewer bits for, and the address of the peer.
bool values_hold_strictly(VerbsState& engine, const ibv_qp_attr& attr, int mask) {
    const auto given = [mask](int which) { return (mask & which) != 0; };
    const ibv_ah_attr& way = attr.ah_attr;
    return !(given(IBV_QP_TIMEOUT) && attr.timeout > 31) &&
           !(given(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) &&
           !(given(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) &&
           !(given(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) &&
           !(given(IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xffffff) &&
           !(given(IBV_QP_AV) && (way.is_global == 0 || way.port_num != kPort ||
                                  way.grh.sgid_index >= engine.gids().size()));
}

void set_rights(Qp& qp, std::uint32_t rights) {
    qp.attr.rights = rights;
    qp.qp->set_rights(rights);
}

/// As hardware has them; before RTS nothing is sent. What rdma_cm connects waits for ever.
void set_rnr(Qp& qp) {
    if (!device_profile().infiniband_states || !qp.by_gid || qp.unreliable()) return;
    const RnrAttr rnr{.notice_every = rnr_time(qp.asked.min_rnr_timer),
                      .retries = qp.asked.rnr_retry};
    qp.qp->set_rnr(rnr);
    if (xsock::Qp* const twin = qp.sender.load()) twin->set_rnr(rnr);
}

/// What ibv_query_qp() answers, and what the connection goes by.
void keep(Qp& qp, const ibv_qp_attr& attr, int mask) {
    ibv_qp_attr& asked = qp.asked;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        asked.qp_access_flags = attr.qp_access_flags;
        set_rights(qp, rights_of(attr.qp_access_flags));
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0) asked.pkey_index = attr.pkey_index;
    if ((mask & IBV_QP_PORT) != 0) asked.port_num = attr.port_num;
    if ((mask & IBV_QP_QKEY) != 0) {
        asked.qkey = attr.qkey;
        if (qp.datagrams != nullptr) qp.datagrams->set_qkey(attr.qkey);
    }
    if ((mask & IBV_QP_AV) != 0) asked.ah_attr = attr.ah_attr;
    if ((mask & IBV_QP_PATH_MTU) != 0) asked.path_mtu = attr.path_mtu;
    if ((mask & IBV_QP_TIMEOUT) != 0) asked.timeout = attr.timeout;
    if ((mask & IBV_QP_RETRY_CNT) != 0) asked.retry_cnt = attr.retry_cnt;
    if ((mask & IBV_QP_RNR_RETRY) != 0) asked.rnr_retry = attr.rnr_retry;
    if ((mask & IBV_QP_RQ_PSN) != 0) asked.rq_psn = attr.rq_psn & kPsnMask;
    if ((mask & IBV_QP_SQ_PSN) != 0) asked.sq_psn = attr.sq_psn & kPsnMask;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) asked.max_rd_atomic = attr.max_rd_atomic;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
        asked.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    }
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) asked.min_rnr_timer = attr.min_rnr_timer;
    if ((mask & (IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER)) != 0) set_rnr(qp);
    if ((mask & IBV_QP_DEST_QPN) != 0) asked.dest_qp_num = attr.dest_qp_num;
    if ((mask & IBV_QP_ALT_PATH) != 0) {
        asked.alt_ah_attr = attr.alt_ah_attr;
        asked.alt_pkey_index = attr.alt_pkey_index;
        asked.alt_port_num = attr.alt_port_num;
        asked.alt_timeout = attr.alt_timeout;
    }
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0) asked.path_mig_state = attr.path_mig_state;
}

/// A fresh connection, and nothing left of the old one. 0 or an errno.
int reset(VerbsState& engine, Qp& qp) {
    if (qp.datagrams != nullptr) qp.event_room->renew();
    QpAttr next = qp.attr;
    next.context = device_context(engine, qp.num());
    next.rights = kRemoteAccess;
    auto fresh = engine.device().create_qp(next);
    if (!fresh) return fresh.error().code;
    qp.attr = next;
    if (engine.rendezvous != nullptr) engine.rendezvous->forget(qp);
    confirm_end_locked(engine, qp);
    count_bytes_locked(engine, qp);
    if (qp.datagrams != nullptr) {
        Cq::of(qp.base.qp_base.send_cq)->give_slots(qp.datagrams->reset());
    }
    detach_locked(qp);
    qp.qp.replace(std::move(*fresh));
    if (qp.datagrams != nullptr) qp.datagrams->set_purge_num(qp.qp->num());
    qp.connection = Qp::Connection::none;
    qp.last_wqe_reported = qp.by_gid = false;
    qp.sends_at_rtr.store(false, std::memory_order_relaxed);
    qp.writes_reported = 0;
    qp.asked = {};
    qp.state.store(IBV_QPS_RESET, std::memory_order_release);
    qp.base.qp_base.state = IBV_QPS_RESET;
    if (qp.id != nullptr) on_qp_reset_locked(engine, *qp.id);
    return 0;
}

/// 0 or an errno.
int connect_by_gid(VerbsState& engine, Qp& qp) {
    if (engine.rendezvous == nullptr) return EOPNOTSUPP;
    qp.by_gid = true;
    const int error = engine.rendezvous->connect(qp);
    qp.by_gid = error == 0;
    set_rnr(qp);
    const bool sends = qp.by_gid && !device_profile().infiniband_states;
    qp.sends_at_rtr.store(sends, std::memory_order_relaxed);
    return error;
}

/// The QP goes to RTR: 0 or an errno.
int begin_receiving(VerbsState& engine, Qp& qp, const ibv_qp_attr& attr, int mask) {
    if (qp.datagrams != nullptr) {
        const int error = engine.rendezvous->listen();
        if (error == 0) qp.datagrams->begin_receiving();
        return error;
    }
    // Without rdma_cm the other end is named by its GID and QP number. (Of a QP that rdma_cm
    // connects it says number 0.)
    const bool by_gid = !qp.connected() && qp.id == nullptr && (mask & IBV_QP_DEST_QPN) != 0 &&
                        attr.dest_qp_num != 0;
    return by_gid ? connect_by_gid(engine, qp) : 0;
}

}  // namespace

int modify_qp(ibv_qp* given, ibv_qp_attr* attr, int mask) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::qp)) return EINVAL;
        Qp& qp = *Qp::of(given);
        const ibv_qp_state from = qp.state.load();
        if ((mask & IBV_QP_CUR_STATE) != 0 && value_in(attr->cur_qp_state) != from) return EINVAL;
        if ((mask & IBV_QP_STATE) != 0 && value_in(attr->qp_state) > IBV_QPS_ERR) return EINVAL;
        const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
        if (!may_follow(from, to) || !values_hold(*attr, mask)) return EINVAL;
        if (device_profile().infiniband_states &&
            !(permits_attributes(given->qp_type, from, to, static_cast<unsigned>(mask)) &&
              values_hold_strictly(engine, *attr, mask))) {
            return EINVAL;
        }
        if (to == IBV_QPS_RESET && from != to) return reset(engine, qp);
        const ibv_qp_attr before = qp.asked;
        const std::uint32_t rights = qp.attr.rights;
        keep(qp, *attr, mask);
        if (to == IBV_QPS_ERR && from != to) fail_qp_locked(engine, qp);
        if (to == IBV_QPS_ERR || from == to) return 0;
        if (to == IBV_QPS_RTR) {
            if (const int error = begin_receiving(engine, qp, *attr, mask); error != 0) {
                qp.asked = before;
                if (qp.datagrams != nullptr) qp.datagrams->set_qkey(before.qkey);
                set_rights(qp, rights);
                return error;
            }
        }
        // Of UD alone: its send queue goes on.
        if (from == IBV_QPS_SQE) qp.datagrams->sends().set_failed(false);
        qp.state.store(to, std::memory_order_release);
        given->state = to;
        return 0;
    });
}

int query_qp(ibv_qp* given, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::qp)) return EINVAL;
        Qp& qp = *Qp::of(given);
        *attr = qp.asked;
        given->state = qp.state.load();
        attr->qp_state =
            given->state == IBV_QPS_RESET ? device_profile().first_state : given->state;
        attr->cur_qp_state = attr->qp_state;
        attr->cap = qp.cap;
        // iWARP's programs are told what start-up has agreed on.
        if (qp.connected() && !(device_profile().infiniband_states && qp.by_gid)) {
            const QpInfo info = qp.qp->info();
            attr->max_rd_atomic = static_cast<std::uint8_t>(std::min<int>(info.ord, 255));
            attr->max_dest_rd_atomic = static_cast<std::uint8_t>(std::min<int>(info.ird, 255));
        }
        *init = {};
        init->qp_context = given->qp_context;
        init->send_cq = given->send_cq;
        init->recv_cq = given->recv_cq;
        init->srq = given->srq;
        init->cap = qp.cap;
        init->qp_type = given->qp_type;
        init->sq_sig_all = qp.signal_all;
        return 0;
    });
}

}  // namespace xsock::verbs
