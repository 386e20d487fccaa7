// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Shared receive queues.
#include <algorithm>

#include "verbs/engine.hpp"
#include "verbs/events.hpp"
#include "verbs/ops.hpp"
#include "verbs/shared_receives.hpp"

namespace xsock::verbs {

ibv_srq* create_srq_locked(VerbsState& engine, ibv_pd* pd, ibv_srq_init_attr& attr) {
    if (attr.attr.max_wr == 0 || attr.attr.max_wr > kMaxSrqWr || attr.attr.max_sge > kMaxSge) {
        return fail<ibv_srq>(EINVAL);
    }
    auto srq = std::make_unique<Srq>();
    Registration registration(engine, srq.get(), Kind::srq);
    srq->engine = &engine;
    srq->event_room.emplace(*Context::of(pd->context), 1);
    srq->id = engine.next_number();
    srq->max_wr = attr.attr.max_wr;
    srq->max_sge = std::max(1u, attr.attr.max_sge);
    auto made = engine.device().create_srq(srq->max_wr, srq->id);
    if (!made) return fail<ibv_srq>(made.error().code);
    srq->srq = std::move(*made);
    srq->receives = std::make_shared<SharedReceives>(
        [queue = srq->srq.get()](RecvWqe& out) { return queue->take(out); });
    srq->base.context = pd->context;
    srq->base.srq_context = attr.srq_context;
    srq->base.pd = pd;
    srq->base.handle = static_cast<std::uint32_t>(srq->id);
    pthread_mutex_init(&srq->base.mutex, nullptr);
    pthread_cond_init(&srq->base.cond, nullptr);
    engine.srqs.emplace(srq->id, srq.get());
    registration.keep();
    ++reinterpret_cast<Pd*>(pd)->users;
    attr.attr.max_wr = srq->max_wr;
    attr.attr.max_sge = srq->max_sge;
    return &srq.release()->base;
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) noexcept {
    return locked_object<ibv_srq>([&](VerbsState& engine) {
        if (!engine.alive(pd, Kind::pd)) return fail<ibv_srq>(EINVAL);
        return create_srq_locked(engine, pd, *attr);
    });
}

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attr) noexcept {
    return locked_object<ibv_srq>([&](VerbsState& engine) {
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || !engine.alive(attr->pd, Kind::pd)) {
            return fail<ibv_srq>(EINVAL);
        }
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 &&
            value_in(attr->srq_type) != IBV_SRQT_BASIC) {
            return fail<ibv_srq>(EOPNOTSUPP);
        }
        ibv_srq_init_attr plain{attr->srq_context, attr->attr};
        ibv_srq* const srq = create_srq_locked(engine, attr->pd, plain);
        if (srq != nullptr) attr->attr = plain.attr;
        return srq;
    });
}

int modify_srq(ibv_srq* given, ibv_srq_attr* attr, int mask) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::srq)) return EINVAL;
        if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;
        Srq& srq = *Srq::of(given);
        if ((mask & IBV_SRQ_LIMIT) != 0) {
            if (attr->srq_limit > srq.max_wr) return EINVAL;
            (void)engine.loop();  // collects the event
            srq.event_room->renew();
            srq.limit = attr->srq_limit;
            srq.srq->arm_limit(attr->srq_limit);
        }
        return 0;
    });
}

int query_srq(ibv_srq* given, ibv_srq_attr* attr) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::srq)) return EINVAL;
        const Srq& srq = *Srq::of(given);
        attr->max_wr = srq.max_wr;
        attr->max_sge = srq.max_sge;
        attr->srq_limit = srq.limit;
        return 0;
    });
}

int destroy_srq(ibv_srq* given) noexcept {
    Srq* srq = nullptr;
    const int error = locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::srq)) return EINVAL;
        if (Srq::of(given)->users != 0) return EBUSY;
        srq = Srq::of(given);
        engine.remove(srq);
        engine.srqs.erase(srq->id);
        --reinterpret_cast<Pd*>(srq->base.pd)->users;
        forget_async(*Context::of(srq->base.context), [&](const ibv_async_event& event) {
            return (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ||
                    event.event_type == IBV_EVENT_SRQ_ERR) &&
                   event.element.srq == given;
        });
        srq->event_room.reset();  // before the context may go with the domain
        return 0;
    });
    if (error != 0) return error;
    wait_acknowledged(srq->base.mutex, srq->base.cond, srq->base.events_completed,
                      srq->async_delivered);
    pthread_mutex_destroy(&srq->base.mutex);
    pthread_cond_destroy(&srq->base.cond);
    delete srq;
    return 0;
}

}  // namespace xsock::verbs
