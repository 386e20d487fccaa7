// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The states of a queue pair as the program moves it through them, and what it may ask.
#include <algorithm>

#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"

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
            return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
        default:
            // SQD as well: iWARP's verbs have no drained send queue (RFC 5040's QP has no such
            // state), and IBV_EVENT_SQ_DRAINED would never come.
            return false;
    }
}

std::uint32_t rights_of(unsigned flags) noexcept {
    std::uint32_t rights = 0;
    if ((flags & IBV_ACCESS_REMOTE_WRITE) != 0) rights |= kRemoteWrite;
    if ((flags & IBV_ACCESS_REMOTE_READ) != 0) rights |= kRemoteRead;
    if ((flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights |= kRemoteAtomic;
    return rights;
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
        if ((mask & IBV_QP_PATH_MTU) != 0 &&
            (value_in(attr->path_mtu) < IBV_MTU_256 || value_in(attr->path_mtu) > IBV_MTU_4096)) {
            return EINVAL;
        }
        if (!may_follow(from, to)) return EINVAL;
        if ((mask & IBV_QP_PORT) != 0 && attr->port_num != kPort) return EINVAL;
        if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0) return EINVAL;
        if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr->max_rd_atomic > kMaxReads) {
            return EINVAL;
        }
        if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr->max_dest_rd_atomic > kMaxReads) {
            return EINVAL;
        }

        ibv_qp_attr& asked = qp.asked;
        if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
            asked.qp_access_flags = attr->qp_access_flags;
            qp.attr.rights = rights_of(attr->qp_access_flags);
            qp.qp->set_rights(qp.attr.rights);
        }
        if ((mask & IBV_QP_PKEY_INDEX) != 0) asked.pkey_index = attr->pkey_index;
        if ((mask & IBV_QP_PORT) != 0) asked.port_num = attr->port_num;
        if ((mask & IBV_QP_QKEY) != 0) asked.qkey = attr->qkey;
        if ((mask & IBV_QP_AV) != 0) asked.ah_attr = attr->ah_attr;
        if ((mask & IBV_QP_PATH_MTU) != 0) asked.path_mtu = attr->path_mtu;
        if ((mask & IBV_QP_TIMEOUT) != 0) asked.timeout = attr->timeout;
        if ((mask & IBV_QP_RETRY_CNT) != 0) asked.retry_cnt = attr->retry_cnt;
        if ((mask & IBV_QP_RNR_RETRY) != 0) asked.rnr_retry = attr->rnr_retry;
        if ((mask & IBV_QP_RQ_PSN) != 0) asked.rq_psn = attr->rq_psn;
        if ((mask & IBV_QP_SQ_PSN) != 0) asked.sq_psn = attr->sq_psn;
        if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) asked.max_rd_atomic = attr->max_rd_atomic;
        if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
            asked.max_dest_rd_atomic = attr->max_dest_rd_atomic;
        }
        if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) asked.min_rnr_timer = attr->min_rnr_timer;
        if ((mask & IBV_QP_DEST_QPN) != 0) asked.dest_qp_num = attr->dest_qp_num;

        if (to == from) return 0;
        if (to == IBV_QPS_ERR) {
            fail_qp_locked(engine, qp);
            return 0;
        }
        if (to == IBV_QPS_RESET) {
            // A fresh connection, and nothing left of the old one.
            QpAttr next = qp.attr;
            next.context = device_context(engine, qp.num());
            next.rights = kRemoteAccess;
            auto fresh = engine.device().create_qp(next);
            if (!fresh) return fresh.error().code;
            qp.attr = next;
            if (engine.rendezvous != nullptr) engine.rendezvous->forget(qp);
            confirm_end_locked(engine, qp);
            count_bytes_locked(engine, qp);
            detach_locked(qp);
            qp.qp.replace(std::move(*fresh));
            qp.connection = Qp::Connection::none;
            qp.last_wqe_reported = qp.by_gid = false;
            qp.writes_reported = 0;
            qp.asked = {};
        }
        if (to == IBV_QPS_RTR && !qp.connected() && qp.id == nullptr &&
            (mask & IBV_QP_DEST_QPN) != 0) {
            // Without rdma_cm the other end is named by its GID and QP number.
            if (engine.rendezvous == nullptr) return EOPNOTSUPP;
            qp.by_gid = true;
            if (const int error = engine.rendezvous->connect(qp); error != 0) {
                qp.by_gid = false;
                return error;
            }
        }
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
        if (qp.connected()) {
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
