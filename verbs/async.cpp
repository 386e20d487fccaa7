// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asynchronous events: what happened to a QP, CQ or SRQ that no completion tells.
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

enum class Element : std::uint8_t { none, cq, qp, srq };

Element element_of(ibv_event_type type) noexcept {
    switch (type) {
        case IBV_EVENT_CQ_ERR:
            return Element::cq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return Element::qp;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return Element::srq;
        default:
            return Element::none;
    }
}

}  // namespace

// Events are kept per context with a mutex of their own: a CQ's overrun is told by a notifier.
void VerbsState::raise(Context& context, const ibv_async_event& event) {
    const std::lock_guard lock(context.events_mutex);
    context.events.push(event);
    context.events_waiting.notify();
}

int try_async_event(ibv_context* context, ibv_async_event* event) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context)) return EINVAL;
        (void)engine.loop();  // a wait for events needs them collected
        Context& ours = *Context::of(context);
        const std::lock_guard lock(ours.events_mutex);
        if (ours.events.empty()) return EAGAIN;
        *event = ours.events.front();
        ours.events.pop();
        ours.events_waiting.take();
        switch (element_of(event->event_type)) {
            case Element::cq:
                ++Cq::of(event->element.cq)->async_delivered;
                break;
            case Element::qp:
                ++Qp::of(event->element.qp)->async_delivered;
                break;
            case Element::srq:
                ++Srq::of(event->element.srq)->async_delivered;
                break;
            case Element::none:
                break;
        }
        return 0;
    });
}

void ack_async_event(ibv_async_event* event) noexcept {
    const auto acknowledge = [](pthread_mutex_t& mutex, pthread_cond_t& cond,
                                std::uint32_t& completed) {
        pthread_mutex_lock(&mutex);
        ++completed;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    };
    switch (element_of(event->event_type)) {
        case Element::cq:
            acknowledge(event->element.cq->mutex, event->element.cq->cond,
                        event->element.cq->async_events_completed);
            break;
        case Element::qp:
            acknowledge(event->element.qp->mutex, event->element.qp->cond,
                        event->element.qp->events_completed);
            break;
        case Element::srq:
            acknowledge(event->element.srq->mutex, event->element.srq->cond,
                        event->element.srq->events_completed);
            break;
        case Element::none:
            break;
    }
}

}  // namespace xsock::verbs
