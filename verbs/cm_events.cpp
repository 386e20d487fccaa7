// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event channels. A descriptor that counts the events (an eventfd as a semaphore) beside a queue,
// so that events of an id that goes away can be taken back.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "verbs/cm.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {

CmChannel* create_channel(VerbsState& engine) {
    auto channel = std::make_unique<CmChannel>();
    Registration registration(engine, channel.get(), Kind::cm_channel);
    auto fd = channel->events_waiting.open_for_program();
    if (!fd) return fail<CmChannel>(fd.error().code);
    channel->base.fd = *fd;
    registration.keep();
    return channel.release();
}

void destroy_channel(VerbsState& engine, CmChannel& channel) {
    for (CmEvent* const event : channel.events) {
        engine.remove(event);
        delete event;
    }
    engine.remove(&channel);
    close(channel.base.fd);
    delete &channel;
}

void reserve_events(VerbsState& engine, CmId& id, std::size_t n) {
    while (id.reserved.size() < n) {
        auto event = std::make_unique<CmEvent>();
        Registration registration(engine, event.get(), Kind::cm_event_reserved);
        id.reserved.push_back(event.get());
        registration.keep();
        (void)event.release();
    }
}

namespace {

bool is_request(rdma_cm_event_type type) noexcept { return type == RDMA_CM_EVENT_CONNECT_REQUEST; }

// The next that is reserved, with all but its parameters.
CmEvent& begin_event(CmId& id, rdma_cm_event_type type, int status) noexcept {
    XSOCK_ASSERT(!id.reserved.empty());
    CmEvent& event = *id.reserved.front();
    event.owner = is_request(type) ? id.listener : &id;
    event.base.id = &id.base;
    event.base.listen_id = is_request(type) ? &id.listener->base : nullptr;
    event.base.event = type;
    event.base.status = status;
    return event;
}

// Bytes of private data that InfiniBand's messages have room for, and rdma_cm(7) tells of: a
// program may read as many, whatever was sent (rdma_get_cm_event(3)).
std::size_t private_data_room(const CmId& id, rdma_cm_event_type type, int status) noexcept {
    if (!device_profile().infiniband_cm) return 0;
    const bool datagrams = id.of_datagrams();
    switch (type) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            return datagrams ? 180 : 56;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
            return 196;
        case RDMA_CM_EVENT_ESTABLISHED:
            if (datagrams) return 136;
            return id.passive ? 0 : 196;
        case RDMA_CM_EVENT_REJECTED:
            return 148;
        case RDMA_CM_EVENT_UNREACHABLE:
            return datagrams && status > 0 ? 136 : 0;  // InfiniBand's status is an answer's
        default:
            return 0;
    }
}

template <typename Param>
void keep_private_data(CmEvent& event, ConstBytes private_data, std::size_t room,
                       Param& param) noexcept {
    const std::size_t sent =
        std::min({private_data.size(), event.private_data.size(), std::size_t{255}});
    const std::size_t n = std::max(sent, room);
    event.private_data.fill(std::byte{0});
    std::copy_n(private_data.data(), sent, event.private_data.data());
    param.private_data = n != 0 ? event.private_data.data() : nullptr;
    param.private_data_len = static_cast<std::uint8_t>(n);
}

/// The event comes to its channel's queue, or leaves it.
void count_queued(const CmEvent& event, bool comes) noexcept {
    const auto count = [comes](CmId& id) { id.events.queued += comes ? 1u : ~0u; };
    count(*event.owner);
    if (event.base.id != &event.owner->base) count(*CmId::of(event.base.id));
}

void queue_event(VerbsState& engine, CmId& id, CmEvent& event) noexcept {
    count_queued(event, true);
    auto& channel = *reinterpret_cast<CmChannel*>(event.owner->base.channel);
    engine.turn(&event, Kind::cm_event);
    channel.events.splice(channel.events.end(), id.reserved, id.reserved.begin());
    channel.events_waiting.notify();
}

}  // namespace

void tell(VerbsState& engine, CmId& id, rdma_cm_event_type type, int status,
          ConstBytes private_data) noexcept {
    if (id.of_datagrams()) {
        tell_datagrams(engine, id, type, status, {}, private_data);
        return;
    }
    CmEvent& event = begin_event(id, type, status);
    rdma_conn_param& param = event.base.param.conn;
    keep_private_data(event, private_data, private_data_room(id, type, status), param);
    // From the peer's point of view to ours: what it will issue is what we answer.
    const bool request = is_request(type);
    param.responder_resources = request ? id.peer_ord : id.responder_resources;
    param.initiator_depth = request ? id.peer_ird : id.initiator_depth;
    param.qp_num = id.stand_in.peer_num != 0 ? id.stand_in.peer_num
                   : id.qp != nullptr        ? id.qp->num()
                                             : 0;
    queue_event(engine, id, event);
}

void tell_datagrams(VerbsState& engine, CmId& id, rdma_cm_event_type type, int status,
                    const rdma_ud_param& told, ConstBytes private_data) noexcept {
    CmEvent& event = begin_event(id, type, status);
    event.base.param.ud = told;
    keep_private_data(event, private_data, private_data_room(id, type, status),
                      event.base.param.ud);
    queue_event(engine, id, event);
}

void acknowledge_locked(VerbsState& engine, CmEvent& event) {
    if (engine.alive(event.owner, Kind::cm_id) || engine.alive(event.owner, Kind::cm_id_ending)) {
        ++event.owner->events.acknowledged;
        engine.acknowledged.notify_all();
    }
    engine.remove(&event);
    delete &event;
}

void purge_events(VerbsState& engine, CmId& id) {
    auto& channel = *reinterpret_cast<CmChannel*>(id.base.channel);
    std::vector<CmId*> unseen;
    for (auto i = channel.events.begin(); id.events.queued != 0;) {
        CmEvent* const event = *i;
        if (event->owner != &id && event->base.id != &id.base) {
            ++i;
            continue;
        }
        if (event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST && event->base.id != &id.base) {
            unseen.push_back(CmId::of(event->base.id));
        }
        count_queued(*event, false);
        i = channel.events.erase(i);
        channel.events_waiting.take();
        engine.remove(event);
        delete event;
    }
    for (CmId* const child : unseen) {
        detach_locked(engine, *child);
        free_id_locked(engine, *child);
    }
}

namespace {

/// What a request needs before the program is told of it. 0 or an errno; throws std::bad_alloc. It
/// may be called again then.
int prepare_request(VerbsState& engine, CmChannel& channel, CmId& listener, CmId& child) {
    if (child.of_datagrams()) on_request_taken(child);
    // The child of a synchronous listener waits on a channel of its own.
    if (listener.sync == 0 || child.base.channel != &channel.base) return 0;
    CmChannel* const own = create_channel(engine);
    if (own == nullptr) return errno;
    --channel.ids;
    ++own->ids;
    child.base.channel = &own->base;
    child.own_channel = true;
    child.sync = 1;
    return 0;
}

}  // namespace

int try_cm_event(rdma_event_channel* given, rdma_cm_event** out) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_channel)) return EINVAL;
        auto& channel = *reinterpret_cast<CmChannel*>(given);
        if (channel.events.empty()) return EAGAIN;
        CmEvent* const event = channel.events.front();
        if (is_request(event->base.event)) {
            const int error =
                prepare_request(engine, channel, *event->owner, *CmId::of(event->base.id));
            if (error != 0) return error;
        }
        count_queued(*event, false);
        channel.events.pop_front();
        channel.events_waiting.take();
        event->got = true;
        if (event->base.event == RDMA_CM_EVENT_DISCONNECTED && event->owner->qp != nullptr) {
            confirm_end_locked(engine, *event->owner->qp);
        }
        ++event->owner->events.delivered;
        *out = &event->base;
        return 0;
    });
}

namespace cm {

rdma_event_channel* create_event_channel() noexcept {
    return locked_object<rdma_event_channel>([](VerbsState& engine) -> rdma_event_channel* {
        CmChannel* const channel = create_channel(engine);
        return channel != nullptr ? &channel->base : nullptr;
    });
}

void destroy_event_channel(rdma_event_channel* given) noexcept {
    locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_channel)) return fail(EINVAL);
        auto& channel = *reinterpret_cast<CmChannel*>(given);
        if (channel.ids != 0) {
            // Ids that are left tell it what nobody hears: it goes with the last of them.
            engine.remove(&channel);
            channel.destroyed = true;
            return 0;
        }
        destroy_channel(engine, channel);
        return 0;
    });
}

int ack_cm_event(rdma_cm_event* given) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_event)) return fail(EINVAL);
        auto* const event = reinterpret_cast<CmEvent*>(given);
        if (!event->got) return fail(EINVAL);
        acknowledge_locked(engine, *event);
        return 0;
    });
}

}  // namespace cm
}  // namespace xsock::verbs
