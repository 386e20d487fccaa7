// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connecting and answering.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "mpa/startup.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/cm_greeting.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/gid_table.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

// A server may tell its port before it listens there (qperf and perftest do, over the kernel's siw,
// and perhaps on a busy machine): a refused connect is tried again.
constexpr Time kRefusedLinger = 2 * kSecond;
constexpr Time kRedialAfter = 10 * kMillisecond;

// The QP that the program wants connected: the one in rdma_cm_id.qp, where rdma_create_qp() puts it
// and some programs put one that they have made with another id; or one named by its number.
Qp* named_qp(VerbsState& engine, const CmId& id, const rdma_conn_param* param) {
    if (id.base.qp != nullptr) {
        return engine.alive(id.base.qp, Kind::qp) ? Qp::of(id.base.qp) : nullptr;
    }
    if (param == nullptr) return nullptr;
    const auto found = engine.qps.find(param->qp_num);
    return found != engine.qps.end() ? found->second : nullptr;
}

// Makes it this id's. Null with errno: there is none, or it has or awaits a connection.
Qp* qp_for(VerbsState& engine, CmId& id, const rdma_conn_param* param) {
    if (needs_stand_in(engine, id, param)) return open_stand_in(engine, id, *param);
    close_stand_in(engine, id);
    errno = EINVAL;
    Qp* const qp = named_qp(engine, id, param);
    if (qp == nullptr || qp->connected() || qp->datagrams != nullptr) return nullptr;
    if (qp == id.qp) return qp;
    if (qp->id != nullptr) {
        if (qp->id->state == IdState::dialing) return nullptr;
        release_qp(*qp->id);
    }
    release_qp(id);
    id.qp = qp;
    qp->id = &id;
    return qp;
}

void keep_param(CmId& id, const rdma_conn_param* param) {
    if (param == nullptr) {
        // What the device can; of an accept, what the peer has asked for.
        if (!id.passive) id.responder_resources = id.initiator_depth = kMaxReads;
        return;
    }
    if (param->private_data != nullptr && param->private_data_len != 0) {
        const auto* const data = static_cast<const std::byte*>(param->private_data);
        id.private_data.assign(data, data + param->private_data_len);
    } else {
        id.private_data.clear();
    }
    id.responder_resources =
        static_cast<std::uint8_t>(std::min<int>(param->responder_resources, kMaxReads));
    id.initiator_depth =
        static_cast<std::uint8_t>(std::min<int>(param->initiator_depth, kMaxReads));
    if (id.stand_in.qp == nullptr) return;
    const auto greeting = encode_cm_greeting(id.stand_in.own_num);
    id.private_data.insert(id.private_data.begin(), greeting.begin(), greeting.end());
}

int dial(VerbsState& engine, CmId& id) noexcept;

// True: the refusal is not told; the id dials again in a moment.
bool retries_connect(VerbsState& engine, CmId& id, int error) noexcept {
    if (error != ECONNREFUSED || monotonic_now() + kRedialAfter > id.refusal_final_at) return false;
    try {
        id.timer = engine.loop().at(monotonic_now() + kRedialAfter, [&engine, &id] {
            id.timer = 0;
            if (const int again = dial(engine, id); again != 0) {
                close_sockets(engine, id);
                report_failure(engine, id, again);
            }
        });
    } catch (const std::bad_alloc&) {
        return false;
    }
    id.state = IdState::dialing;
    id.refused = true;
    return true;
}

// The descriptor becomes the QP's connection. 0 or an errno: then it is closed.
int start(VerbsState& engine, CmId& id, Qp& qp, int fd, ConnectAttr::Role role) noexcept {
    int error = ENOMEM;
    try {
        ConnectAttr attr = connect_attr(id);
        attr.role = role;
        if (role == ConnectAttr::Role::responder) attr.rtr = 0;  // as the initiator wishes
        const auto started = connect_qp_locked(engine, qp, fd, attr);
        if (started) return 0;
        error = started.error().code;
    } catch (const std::bad_alloc&) {
    }
    close(fd);
    return error;
}

void dialed(VerbsState& engine, CmId& id) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(id.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    engine.loop().forget(id.fd_token);
    id.fd_token = 0;
    stop_timer(engine, id);
    const int fd = id.fd;
    id.fd = -1;
    if (error != 0 || id.qp == nullptr) {
        close(fd);
        if (id.qp != nullptr && retries_connect(engine, id, error)) return;
        report_failure(engine, id, error != 0 ? error : ECONNABORTED);
        return;
    }
    if (id.refused) {
        const Time waited = monotonic_now() + kRefusedLinger - id.refusal_final_at;
        log(LogLevel::info, "listened-late", "%s: connected after being refused for %d ms",
            text_of(&id.base.route.addr.dst_addr).c_str(), static_cast<int>(waited / kMillisecond));
    }
    size = sizeof(sockaddr_storage);
    getsockname(fd, &id.base.route.addr.src_addr, &size);
    to_program_port(&id.base.route.addr.src_addr, engine.port_offset);
    id.state = IdState::starting;
    if ((error = start(engine, id, *id.qp, fd, ConnectAttr::Role::initiator)) != 0) {
        report_failure(engine, id, error);
    }
}

// 0 or an errno. May throw, with a socket made.
int begin_dial(VerbsState& engine, CmId& id) {
    sockaddr_storage there, here{};
    if (const int e = tcp_address(engine, &id.base.route.addr.dst_addr, there); e != 0) return e;
    if (const int e = tcp_address(engine, &id.base.route.addr.src_addr, here); e != 0) return e;
    const auto* const to = reinterpret_cast<const sockaddr*>(&there);
    const auto* const from = reinterpret_cast<const sockaddr*>(&here);
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    id.fd = fd;
    if (id.options.tos >= 0) {
        setsockopt(fd, to->sa_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP,
                   to->sa_family == AF_INET6 ? IPV6_TCLASS : IP_TOS, &id.options.tos,
                   sizeof id.options.tos);
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (length_of(from) != 0 && from->sa_family == to->sa_family) {
        if (port_of(from) == 0) {
            setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        }
        if (::bind(fd, from, length_of(from)) != 0) return errno;
    }
    if (::connect(fd, to, length_of(to)) != 0 && errno != EINPROGRESS) {
        // Told as an event, like the refusals that come later.
        id.fd = -1;
        const int error = errno;
        close(fd);
        if (!retries_connect(engine, id, error)) report_failure(engine, id, error);
        return 0;
    }
    id.state = IdState::dialing;
    id.fd_token =
        engine.loop().watch(fd, Loop::kWritable, [&engine, &id](unsigned) { dialed(engine, id); });
    if (id.fd_token == 0) return errno;
    id.timer = engine.loop().at(monotonic_now() + kConnectTimeout, [&engine, &id] {
        id.timer = 0;
        close_sockets(engine, id);
        report_failure(engine, id, ETIMEDOUT);
    });
    return 0;
}

// 0 or an errno; the id's sockets are to be closed then.
int dial(VerbsState& engine, CmId& id) noexcept {
    try {
        return begin_dial(engine, id);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

constexpr std::uint8_t reads_of(std::uint8_t depth) noexcept {
    return std::min<std::uint8_t>(depth, kMaxReads);
}

// What InfiniBand needs at RTR and RTS (qp_state_table.hpp). Where the connection is the id's, the
// peer's QP number is 0, of which no queue pair is. @return of ibv_qp_attr_mask
int fill_rtr(const GidTable& gids, const CmId& id, ibv_qp_attr& attr) noexcept {
    fill_way(gids, id, attr.ah_attr);
    attr.path_mtu = device_profile().active_mtu;
    attr.dest_qp_num = id.stand_in.peer_num;
    attr.rq_psn = 0;
    attr.max_dest_rd_atomic = reads_of(id.responder_resources);
    attr.min_rnr_timer = 0;
    return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int fill_rts(const CmId& id, ibv_qp_attr& attr) noexcept {
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.sq_psn = 0;
    attr.max_rd_atomic = reads_of(id.initiator_depth);
    return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
}

}  // namespace

ConnectAttr connect_attr(const CmId& id) {
    ConnectAttr attr;
    // Programs that name no depth and read all the same are common.
    attr.ird = std::max<std::uint16_t>(1, id.responder_resources);
    attr.ord = std::max<std::uint16_t>(1, id.initiator_depth);
    // Which end sends first is the program's affair under verbs; MPA wants it to be the initiator.
    // The ready-to-receive message of RFC 6581 §9 makes it so.
    attr.rtr = mpa::kRtrWrite | mpa::kRtrRead | mpa::kRtrSend;
    attr.private_data = id.private_data;
    attr.crc = id.engine->crc;
    attr.confirmed = true;  // this id's events come before completions
    // Programs for InfiniBand count on it, however they connect.
    attr.acknowledged =
        id.engine->acknowledge == VerbsState::Acknowledge::always ||
        (id.engine->acknowledge == VerbsState::Acknowledge::as_usual && device_profile().roce);
    if (id.stand_in.qp != nullptr) {  // it carries nothing
        attr.shm = ShmMode::off;
        attr.kernel = KernelMode::off;
    }
    return attr;
}

void on_established_locked(VerbsState& engine, CmId& id, const QpInfo& info) {
    if (id.state != IdState::starting) return;
    ConstBytes data = id.passive ? ConstBytes{} : ConstBytes(info.private_data);
    if (id.stand_in.qp != nullptr && !id.passive && !take_reply(id, data)) {
        report_failure(engine, id, EPROTO);
        fail_qp_locked(engine, *id.stand_in.qp);
        return;
    }
    id.state = IdState::connected;
    id.responder_resources = static_cast<std::uint8_t>(std::min<int>(info.ird, 255));
    id.initiator_depth = static_cast<std::uint8_t>(std::min<int>(info.ord, 255));
    tell(engine, id,
         id.program_moves_qp() ? RDMA_CM_EVENT_CONNECT_RESPONSE : RDMA_CM_EVENT_ESTABLISHED, 0,
         data);
}

namespace cm {

int connect(rdma_cm_id* given, rdma_conn_param* param) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state != IdState::route_resolved && id.state != IdState::addr_resolved) {
            return fail(EINVAL);
        }
        if (id.of_datagrams()) {
            const int error = connect_datagrams(engine, id, param);
            return error == 0 ? 0 : fail(error);
        }
        reserve_events(engine, id, kEventsOfAttempt);
        Qp* const qp = qp_for(engine, id, param);
        if (qp == nullptr) return fail(errno);
        if (param == nullptr && !id.ep_connect_data.empty()) {
            id.private_data = id.ep_connect_data;
        }
        keep_param(id, param);
        // The socket that listened at bind gives way, and its port serves this connection.
        if (id.listen_fd >= 0) close(id.listen_fd);
        id.listen_fd = -1;
        id.refusal_final_at = monotonic_now() + kRefusedLinger;
        id.refused = false;
        if (const int error = dial(engine, id); error != 0) {
            close_sockets(engine, id);
            id.state = IdState::route_resolved;
            return fail(error);
        }
        if (!id.program_moves_qp()) {
            qp->state.store(IBV_QPS_RTS, std::memory_order_release);
            qp->base.qp_base.state = IBV_QPS_RTS;
        }
        return 0;
    });
}

int accept(rdma_cm_id* given, rdma_conn_param* param) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state != IdState::requested) return fail(EINVAL);
        if (id.of_datagrams()) {
            const int error = accept_datagrams(engine, id, param);
            return error == 0 ? 0 : fail(error);
        }
        reserve_events(engine, id, kEventsOfAttempt);
        if (const int other = check_accept(id, needs_stand_in(engine, id, param)); other != 0) {
            return fail(other);
        }
        Qp* const qp = qp_for(engine, id, param);
        if (qp == nullptr) return fail(errno);
        keep_param(id, param);
        leave_listener(engine, id);
        id.state = IdState::starting;
        const int fd = std::exchange(id.fd, -1);
        const int error = start(engine, id, *qp, fd, ConnectAttr::Role::responder);
        if (error == 0) return 0;
        id.state = IdState::ended;
        return fail(error);
    });
}

int establish(rdma_cm_id* given) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state != IdState::connected && id.state != IdState::ending) return fail(EINVAL);
        // The peer has been told: MPA ends with the Reply. A QP that the program has not moved is
        // connected like the others.
        if (id.program_moves_qp() && id.qp != nullptr && id.qp->state.load() < IBV_QPS_RTS) {
            id.qp->state.store(IBV_QPS_RTS, std::memory_order_release);
            id.qp->base.qp_base.state = IBV_QPS_RTS;
        }
        return 0;
    });
}

int notify(rdma_cm_id* given, ibv_event_type) noexcept {
    return locked_cm(
        [&](VerbsState& engine) { return engine.alive(given, Kind::cm_id) ? 0 : fail(EINVAL); });
}

int init_qp_attr(rdma_cm_id* given, ibv_qp_attr* attr, int* mask) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        const CmId& id = *CmId::of(given);
        if (id.of_datagrams()) {
            if (value_in(attr->qp_state) > IBV_QPS_RTS) return fail(EINVAL);
            *mask = fill_datagram_attr(*attr);
            return 0;
        }
        const bool infiniband = device_profile().infiniband_states;
        switch (attr->qp_state) {
            case IBV_QPS_INIT:
            case IBV_QPS_RTR:
                *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
                attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
                if (attr->qp_state == IBV_QPS_INIT) {
                    *mask |= IBV_QP_PORT | IBV_QP_PKEY_INDEX;
                    attr->port_num = kPort;
                    attr->pkey_index = 0;
                } else if (infiniband) {
                    *mask = IBV_QP_STATE | fill_rtr(engine.gids(), id, *attr);
                }
                return 0;
            case IBV_QPS_RTS:
                *mask = IBV_QP_STATE;
                if (infiniband) *mask |= fill_rts(id, *attr);
                return 0;
            default:
                return fail(EINVAL);
        }
    });
}

}  // namespace cm
}  // namespace xsock::verbs
