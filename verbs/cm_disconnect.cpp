// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a connection, or the attempt to make one, ends for rdma_cm.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "transport/clock.hpp"
#include "verbs/cm.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kPartTimeout = 5 * kSecond;
constexpr Time kUnpolledLimit = 128 * kMillisecond;  // see disconnected_when_polled()

// Of a path with the lifetime that fill_path() tells of. iWARP has no such time.
constexpr Time kTimewait = (Time{1} << (kPacketLifetime + 1 - 8)) * kMillisecond;
// Linux' IB_CM_REJ_INVALID_SERVICE_ID, IB_CM_REJ_CONSUMER_DEFINED.
constexpr int kNobodyListens = 8, kProgramRejected = 28;

// Both ends have disconnected.
void begin_timewait(VerbsState& engine, CmId& id) {
    id.events.timewait_owed = false;
    if (!device_profile().infiniband_cm) return;
    try {
        id.timer = engine.loop().at(monotonic_now() + kTimewait, [&engine, &id] {
            id.timer = 0;
            tell(engine, id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        });
    } catch (const std::bad_alloc&) {
        tell(engine, id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    }
}

enum class Left : std::uint8_t { program, peer };

void disconnected(VerbsState& engine, CmId& id, Left first) {
    stop_timer(engine, id);
    id.state = IdState::ended;
    tell(engine, id, RDMA_CM_EVENT_DISCONNECTED);
    if (first == Left::program) {
        begin_timewait(engine, id);
    } else {
        id.events.timewait_owed = true;
    }
}

bool has_unpolled(const Qp& which) {
    const ibv_qp& qp = which.base.qp_base;
    const std::uint32_t num = which.qp->num();  // the engine's
    return Cq::of(qp.recv_cq)->cq->holds(num) ||
           (qp.send_cq != qp.recv_cq && Cq::of(qp.send_cq)->cq->holds(num));
}

// Of an id without a queue pair: those that GIDs connect to its peer.
bool has_unpolled_by_gid(VerbsState& engine, const CmId& id) {
    ibv_ah_attr way;
    fill_way(engine.gids(), id, way);
    return std::any_of(engine.qps.begin(), engine.qps.end(), [&](const auto& each) {
        const Qp& qp = *each.second;
        return qp.by_gid &&
               std::memcmp(&qp.asked.ah_attr.grh.dgid, &way.grh.dgid, sizeof way.grh.dgid) == 0 &&
               has_unpolled(qp);
    });
}

// A program may have given the QP to another id meanwhile.
bool has_unpolled(VerbsState& engine, const CmId& id) {
    if (id.qp == nullptr) return false;
    return is_stand_in(*id.qp) ? has_unpolled_by_gid(engine, id) : has_unpolled(*id.qp);
}

// Programs that are told DISCONNECTED destroy the QP, and with it what they have not polled. On
// InfiniBand the event comes long after the peer's last message, through the kernels of both ends;
// here both may come in one segment, between a poll and a check for events. So the event waits
// until what came before it was polled: checked after 1, 2, 4 ... ms, at most until kUnpolledLimit.
// Of an id without a queue pair it always waits for a millisecond: what its program makes of what
// it has just polled by GID is not seen here.
void disconnected_when_polled(VerbsState& engine, CmId& id, Time asked_after) {
    const bool waits = (asked_after == 0 && id.stand_in.qp != nullptr) || has_unpolled(engine, id);
    if (2 * asked_after > kUnpolledLimit || !waits) {
        disconnected(engine, id, Left::peer);
        return;
    }
    const Time next = asked_after != 0 ? 2 * asked_after : kMillisecond;
    try {
        id.timer = engine.loop().at(monotonic_now() + next - asked_after, [&engine, &id, next] {
            id.timer = 0;
            if (id.state == IdState::ending) disconnected_when_polled(engine, id, next);
        });
        id.state = IdState::ending;
    } catch (const std::bad_alloc&) {
        disconnected(engine, id, Left::peer);
    }
}

}  // namespace

void stop_timer(VerbsState& engine, CmId& id) {
    if (id.timer != 0) engine.loop().forget(id.timer);
    id.timer = 0;
}

void report_failure(VerbsState& engine, CmId& id, int error, ConstBytes private_data) {
    rdma_cm_event_type type = RDMA_CM_EVENT_CONNECT_ERROR;
    int status = -error;
    switch (error) {
        case ECONNREFUSED:
        case ECONNRESET:
            type = RDMA_CM_EVENT_REJECTED;
            if (device_profile().infiniband_cm) {
                const bool listened = id.state == IdState::starting || error == ECONNRESET;
                status = listened ? kProgramRejected : kNobodyListens;
            }
            break;
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case ENETUNREACH:
            type = RDMA_CM_EVENT_UNREACHABLE;
            break;
        default:
            break;
    }
    id.state = IdState::ended;
    ++engine.refused;
    tell(engine, id, type, status, private_data);
}

void on_ended_locked(VerbsState& engine, CmId& id, const QpInfo& info) {
    switch (id.state) {
        case IdState::starting: {
            const bool rejected = info.stream_error == StreamError::startup_rejected;
            report_failure(engine, id,
                           rejected          ? ECONNREFUSED
                           : info.error != 0 ? info.error
                                             : EPROTO,
                           rejected ? ConstBytes(info.private_data) : ConstBytes{});
            return;
        }
        case IdState::connected:
            // Of an end that is not the peer's, what is flushed is in the queue by now.
            if (id.qp->end_unconfirmed.load()) {
                disconnected_when_polled(engine, id, 0);
            } else {
                disconnected(engine, id, Left::peer);
            }
            return;
        case IdState::disconnecting:
            disconnected(engine, id, Left::program);
            return;
        case IdState::idle:
        case IdState::bound:
        case IdState::addr_resolved:
        case IdState::route_resolved:
        case IdState::dialing:
        case IdState::listening:
        case IdState::requested:
        case IdState::ending:
        case IdState::ended:
            return;
    }
}

void on_qp_reset_locked(VerbsState& engine, CmId& id) {
    if (id.of_datagrams()) return;
    switch (id.state) {
        case IdState::connected:
        case IdState::ending:
        case IdState::disconnecting:
            disconnected(engine, id, Left::program);
            return;
        case IdState::starting:
            report_failure(engine, id, ECONNABORTED);
            return;
        case IdState::idle:
        case IdState::bound:
        case IdState::addr_resolved:
        case IdState::route_resolved:
        case IdState::dialing:
        case IdState::listening:
        case IdState::requested:
        case IdState::ended:
            return;
    }
}

void on_qp_destroyed_locked(VerbsState& engine, CmId& id) {
    if (id.base.qp != nullptr && Qp::of(id.base.qp) == id.qp) id.base.qp = nullptr;
    release_qp(id);
    if (id.state != IdState::dialing || id.of_datagrams()) return on_qp_reset_locked(engine, id);
    close_sockets(engine, id);
    report_failure(engine, id, ECONNABORTED);
}

int cm::disconnect(rdma_cm_id* given) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        // Nothing ends with it (as on InfiniBand): the queue pair goes on.
        if (id.of_datagrams()) return id.state == IdState::connected ? 0 : fail(EINVAL);
        switch (id.state) {
            case IdState::starting:
            case IdState::connected:
                break;
            case IdState::ending:
                disconnected(engine, id, Left::peer);
                [[fallthrough]];
            case IdState::disconnecting:
            case IdState::ended:
                if (id.events.timewait_owed) begin_timewait(engine, id);
                if (id.qp != nullptr) confirm_end_locked(engine, *id.qp);
                // As on InfiniBand, where the answer to a disconnect is the program's: until then
                // the peer's program keeps its queue pairs that GIDs connect to ours.
                if (id.stand_in.qp != nullptr) (void)id.stand_in.qp->qp->shutdown();
                return 0;
            case IdState::idle:
            case IdState::bound:
            case IdState::addr_resolved:
            case IdState::route_resolved:
            case IdState::dialing:
            case IdState::listening:
            case IdState::requested:
                return fail(EINVAL);
        }
        if (id.qp == nullptr) {
            disconnected(engine, id, Left::program);
            return 0;
        }
        const std::uint32_t num = id.qp->num();
        // A peer that does not finish its half must not keep the program.
        id.timer = engine.loop().at(monotonic_now() + kPartTimeout, [&engine, &id, num] {
            id.timer = 0;
            if (const auto found = engine.qps.find(num); found != engine.qps.end()) {
                fail_qp_locked(engine, *found->second);
            }
            if (id.state == IdState::disconnecting) disconnected(engine, id, Left::program);
        });
        id.state = IdState::disconnecting;
        confirm_end_locked(engine, *id.qp);
        (void)id.qp->qp->shutdown();
        return 0;
    });
}

}  // namespace xsock::verbs
