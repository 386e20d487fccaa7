// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Synchronous ids: what rdma_create_ep(), rdma_get_request() and the waiting of the others consist
// of, in steps that never block (the drop-in library waits between them).
#include <cstring>
#include <optional>

#include "verbs/cm.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

// Gives back the event that a synchronous id shows.
void drop_shown_event(VerbsState& engine, rdma_cm_id& id) {
    if (id.event == nullptr) return;
    auto* const event = reinterpret_cast<CmEvent*>(id.event);
    id.event = nullptr;
    if (engine.alive(event, Kind::cm_event)) acknowledge_locked(engine, *event);
}

}  // namespace

int try_complete(rdma_cm_id* given) noexcept {
    const int error = locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return EINVAL;
        CmId& id = *CmId::of(given);
        if (id.sync == 0) return ECANCELED;  // asynchronous: nothing to wait for
        drop_shown_event(engine, *given);
        auto& channel = *reinterpret_cast<CmChannel*>(given->channel);
        // Ended earlier, and told: there is nothing to come. Nor is there of datagrams, where
        // accepting and disconnecting tell nothing.
        if (channel.events.empty() &&
            (id.state == IdState::ended || (id.of_datagrams() && id.state == IdState::connected))) {
            return ECANCELED;
        }
        return 0;
    });
    if (error == ECANCELED) return 0;
    if (error != 0) return error;
    rdma_cm_event* event = nullptr;
    if (const int none = try_cm_event(given->channel, &event); none != 0) return none;
    given->event = event;
    const bool refused = event->event == RDMA_CM_EVENT_UNREACHABLE && event->status > 0;
    if (event->event == RDMA_CM_EVENT_REJECTED || refused) return ECONNREFUSED;
    return event->status < 0 ? -event->status : event->status;
}

int begin_ep(rdma_cm_id** out, rdma_addrinfo* res) noexcept {
    rdma_cm_id* id = nullptr;
    const auto ps = static_cast<rdma_port_space>(res->ai_port_space);
    const int type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
    if (res->ai_qp_type != 0 && res->ai_qp_type != type) return EOPNOTSUPP;
    if (cm::create_id(nullptr, &id, nullptr, ps) != 0) return errno;
    if ((res->ai_flags & RAI_PASSIVE) != 0 && cm::bind_addr(id, res->ai_src_addr) != 0) {
        const int error = errno;
        (void)cm::destroy_id(id);
        return error;
    }
    *out = id;
    return 0;
}

int finish_ep(rdma_cm_id* given, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
    const bool passive = (res->ai_flags & RAI_PASSIVE) != 0;
    // Programs leave the type to the address information.
    if (attr != nullptr) attr->qp_type = given->qp_type;
    if (attr != nullptr && !passive && cm::create_qp(given, pd, attr) != 0) return errno;
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return EINVAL;
        CmId& id = *CmId::of(given);
        if (passive) {
            if (attr != nullptr) id.qp_init = std::make_unique<ibv_qp_init_attr>(*attr);
            if (pd != nullptr) given->pd = pd;
            return 0;
        }
        if (res->ai_connect_len != 0 && res->ai_connect_len <= 255) {
            const auto* const data = static_cast<const std::byte*>(res->ai_connect);
            id.ep_connect_data.assign(data, data + res->ai_connect_len);
        }
        return 0;
    });
}

int try_request(rdma_cm_id* listen, rdma_cm_id** out) noexcept {
    const int error = locked_errno([&](VerbsState& engine) {
        if (!engine.alive(listen, Kind::cm_id) || CmId::of(listen)->sync == 0) return EINVAL;
        drop_shown_event(engine, *listen);
        return 0;
    });
    if (error != 0) return error;
    rdma_cm_event* event = nullptr;
    if (const int none = try_cm_event(listen->channel, &event); none != 0) return none;
    std::optional<ibv_qp_init_attr> attr;
    const int taken = locked_errno([&](VerbsState&) {
        int failed = event->status < 0 ? -event->status : event->status;
        if (failed == 0 && event->event != RDMA_CM_EVENT_CONNECT_REQUEST) failed = EINVAL;
        if (failed != 0) {
            listen->event = event;
            return failed;
        }
        if (CmId::of(listen)->qp_init != nullptr) attr = *CmId::of(listen)->qp_init;
        event->id->event = event;
        return 0;
    });
    if (taken != 0) return taken;
    if (attr && cm::create_qp(event->id, listen->pd, &*attr) != 0) {
        const int failed = errno;
        (void)cm::destroy_id(event->id);  // and it is rejected
        return failed;
    }
    *out = event->id;
    return 0;
}

}  // namespace xsock::verbs
