// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The queues of ids: rdma_create_qp(), rdma_create_srq(), and what goes with them.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs/cm.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

void destroy_queue(ibv_cq*& cq, ibv_comp_channel*& channel) noexcept {
    if (cq != nullptr) (void)verbs::destroy_cq(cq);
    if (channel != nullptr) (void)verbs::destroy_comp_channel(channel);
    cq = nullptr;
    channel = nullptr;
}

// A UD QP goes as far as it sends and receives. 0 or an errno; the QP is gone then.
int start_id_qp(rdma_cm_id& id) noexcept {
    if (id.ps != RDMA_PS_UDP) return 0;
    const int error = start_datagram_qp(id.qp);
    if (error == 0) return 0;
    (void)verbs::destroy_qp(id.qp);
    id.qp = nullptr;
    return error;
}

int create_id_qp(VerbsState& engine, CmId& id, ibv_pd* pd, ibv_qp_init_attr& attr) {
    if (id.base.verbs == nullptr || id.base.qp != nullptr) return EINVAL;
    if (id.stand_in.qp != nullptr && id.stand_in.qp->connected()) return EINVAL;  // for good
    if (pd == nullptr) pd = id.base.pd;
    if (!engine.alive(pd, Kind::pd)) return EINVAL;
    Context& context = *Context::of(id.base.verbs);
    const auto queue = [&](ibv_comp_channel*& channel, std::uint32_t depth) -> ibv_cq* {
        channel = create_channel_locked(engine, context);
        if (channel == nullptr) return nullptr;
        return create_cq_locked(engine, context, std::max(1u, depth), &id.base, channel);
    };
    if (attr.send_cq == nullptr) {
        id.base.send_cq = queue(id.base.send_cq_channel, attr.cap.max_send_wr);
        if (id.base.send_cq == nullptr) return errno;
        attr.send_cq = id.base.send_cq;
    }
    if (attr.recv_cq == nullptr) {
        id.base.recv_cq = queue(id.base.recv_cq_channel, attr.cap.max_recv_wr);
        if (id.base.recv_cq == nullptr) return errno;
        attr.recv_cq = id.base.recv_cq;
    }
    if (attr.srq == nullptr) attr.srq = id.base.srq;
    if (value_in(attr.qp_type) != value_in(id.base.qp_type))
        return EOPNOTSUPP;  // of its port space
    ibv_qp* const qp = create_qp_locked(engine, pd, attr, engine.rnr_timeout);
    if (qp == nullptr) return errno;
    id.base.pd = pd;
    id.base.qp = qp;
    release_qp(id);  // of one that the program has moved to another id
    id.qp = Qp::of(qp);
    id.qp->id = &id;
    if (id.of_datagrams()) return 0;
    id.qp->state.store(IBV_QPS_INIT);
    qp->state = IBV_QPS_INIT;
    return 0;
}

}  // namespace

namespace cm {

int create_qp(rdma_cm_id* given, ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
    ibv_cq* const send_cq = attr->send_cq;
    ibv_cq* const recv_cq = attr->recv_cq;
    bool begun = false;
    int result = locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        begun = given->qp == nullptr;
        const int error = create_id_qp(engine, *CmId::of(given), pd, *attr);
        return error == 0 ? 0 : fail(error);
    });
    if (result == 0) {
        if (const int unstarted = start_id_qp(*given); unstarted != 0) result = fail(unstarted);
    }
    if (result == 0 || !begun) return result;
    const int error = errno;
    attr->send_cq = send_cq;
    attr->recv_cq = recv_cq;
    if (send_cq == nullptr) destroy_queue(given->send_cq, given->send_cq_channel);
    if (recv_cq == nullptr) destroy_queue(given->recv_cq, given->recv_cq_channel);
    return fail(error);
}

int create_qp_ex(rdma_cm_id* given, ibv_qp_init_attr_ex* attr) noexcept {
    ibv_pd* pd = nullptr;
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0) pd = attr->pd;
    constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if ((attr->comp_mask & ~kKnown) != 0) return fail(EOPNOTSUPP);
    const bool ops_given = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (ops_given && (attr->send_ops_flags & ~send_ops_of(value_in(attr->qp_type))) != 0) {
        return fail(EOPNOTSUPP);
    }
    ibv_qp_init_attr plain;
    std::memcpy(&plain, attr, sizeof plain);
    if (create_qp(given, pd, &plain) != 0) return -1;
    std::memcpy(static_cast<void*>(attr), &plain, sizeof plain);
    if (ops_given) {
        set_send_ops(*Qp::of(given->qp), attr->send_ops_flags);
    }
    return 0;
}

void destroy_qp(rdma_cm_id* given) noexcept {
    const int ok = locked_cm(
        [&](VerbsState& engine) { return engine.alive(given, Kind::cm_id) ? 0 : fail(EINVAL); });
    if (ok != 0) return;
    if (given->qp != nullptr) (void)verbs::destroy_qp(given->qp);
    given->qp = nullptr;
    destroy_queue(given->send_cq, given->send_cq_channel);
    destroy_queue(given->recv_cq, given->recv_cq_channel);
}

int create_srq(rdma_cm_id* given, ibv_pd* pd, ibv_srq_init_attr* attr) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id) || given->verbs == nullptr) return fail(EINVAL);
        if (pd == nullptr) pd = given->pd;
        if (pd == nullptr) {
            if (engine.own.pd == nullptr) {
                engine.own.pd = alloc_pd_locked(engine, *Context::of(given->verbs));
            }
            pd = engine.own.pd;
        }
        if (!engine.alive(pd, Kind::pd)) return fail(EINVAL);
        ibv_srq* const srq = create_srq_locked(engine, pd, *attr);
        if (srq == nullptr) return -1;
        given->srq = srq;
        given->pd = pd;
        return 0;
    });
}

int create_srq_ex(rdma_cm_id* given, ibv_srq_init_attr_ex* attr) noexcept {
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 &&
        value_in(attr->srq_type) != IBV_SRQT_BASIC) {
        return fail(EOPNOTSUPP);
    }
    ibv_srq_init_attr plain{attr->srq_context, attr->attr};
    ibv_pd* const pd = (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 ? attr->pd : nullptr;
    if (create_srq(given, pd, &plain) != 0) return -1;
    attr->attr = plain.attr;
    return 0;
}

void destroy_srq(rdma_cm_id* given) noexcept {
    const int ok = locked_cm(
        [&](VerbsState& engine) { return engine.alive(given, Kind::cm_id) ? 0 : fail(EINVAL); });
    if (ok != 0 || given->srq == nullptr) return;
    (void)verbs::destroy_srq(given->srq);
    given->srq = nullptr;
}

}  // namespace cm
}  // namespace xsock::verbs
