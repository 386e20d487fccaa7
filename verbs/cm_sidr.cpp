// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/cm_sidr.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/random.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "verbs/address_handle.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr int kRequestsPerTurn = 64;
// A server may tell its port before it listens there, as of a connection.
constexpr Time kRefusalFinal = 2 * kSecond;

ConstBytes private_data_of(const rdma_conn_param* param) noexcept {
    if (param == nullptr || param->private_data == nullptr) return {};
    return {static_cast<const std::byte*>(param->private_data), param->private_data_len};
}

// ---- a server's -----------------------------------------------------------------

SidrKey key_of(const sockaddr_storage& peer, std::uint32_t number) noexcept {
    return {octets_of(gid_of(peer)), port_of(reinterpret_cast<const sockaddr*>(&peer)), number};
}

void drop_request(VerbsState& engine, CmId& id) {
    id.sidr->socket.reset();  // without an answer: it comes again
    detach_locked(engine, id);
    free_id_locked(engine, id);
}

// Gives the id of a request its addresses, its device and its place with the listener, and tells
// the program. Throws std::bad_alloc. False: it cannot have the device.
bool begin_request(VerbsState& engine, CmId& listener, CmId& id,
                   const SidrSocket::Received& received, const SidrRequest& request) {
    id.base.qp_type = listener.base.qp_type;
    id.sidr->peer = received.peer;
    id.sidr->own = received.own;
    id.sidr->key = key_of(received.peer, request.number);
    rdma_addr& addr = id.base.route.addr;
    addr.src_storage = received.own;
    addr.dst_storage = received.peer;
    to_program_port(&addr.src_addr, engine.port_offset);
    to_program_port(&addr.dst_addr, engine.port_offset);
    addr.addr.ibaddr.sgid = gid_of(addr.src_storage);
    addr.addr.ibaddr.dgid = gid_of(addr.dst_storage);
    if (attach_device(engine, id) != 0) return false;
    reserve_events(engine, id, 1);
    listener.sidr->asked.emplace(id.sidr->key, &id);
    id.listener = &listener;
    listener.reading->add(&id, reinterpret_cast<const sockaddr&>(received.peer), monotonic_now());
    id.sidr->socket = listener.sidr->socket;
    id.state = IdState::requested;
    tell_datagrams(engine, id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, {}, request.data);
    return true;
}

void take_request(VerbsState& engine, CmId& listener, const SidrSocket::Received& received,
                  const SidrRequest& request) {
    if (listener.reading->full()) {
        auto* const crowding = static_cast<CmId*>(listener.reading->make_room(monotonic_now()));
        if (crowding != nullptr) {
            ++engine.refused;
            drop_request(engine, *crowding);
        }
    }
    CmId* id = nullptr;
    bool taken = false;
    try {
        auto* const channel = reinterpret_cast<CmChannel*>(listener.base.channel);
        id = create_id_locked(engine, channel, listener.base.context, listener.base.ps);
        if (id == nullptr) return;
        id->passive = true;
        taken = begin_request(engine, listener, *id, received, request);
    } catch (const std::bad_alloc&) {
        log(LogLevel::error, "accept-failed", "out of memory; the request is dropped");
    }
    if (!taken && id != nullptr) drop_request(engine, *id);
}

void note_malformed(CmId& listener, const SidrSocket::Received& received) {
    if (++listener.sidr->malformed != 1) return;
    log(LogLevel::warn, "sidr-malformed",
        "%s: %zu octets on a port of RDMA_PS_UDP are no request; dropped, as are others like it",
        text_of(reinterpret_cast<const sockaddr*>(&received.peer)).c_str(), received.size);
}

void on_requests(VerbsState& engine, CmId& listener) {
    const std::shared_ptr<SidrSocket> socket = listener.sidr->socket;
    SidrSocket::Received received;
    for (int i = 0; i < kRequestsPerTurn && socket->receive(received); ++i) {
        const auto request = decode_sidr_request(received.octets());
        if (!request) {
            ++engine.refused;
            note_malformed(listener, received);
            continue;
        }
        const SidrKey key = key_of(received.peer, request->number);
        if (const auto* const answer = listener.sidr->answers.find(key, monotonic_now())) {
            socket->send(answer->octets(), received.peer, received.own);
        } else if (listener.sidr->asked.count(key) == 0) {
            take_request(engine, listener, received, *request);
        }
    }
}

// What a queue pair in RESET will have is what rdma_init_qp_attr() gives it.
std::uint32_t qkey_of(VerbsState& engine, std::uint32_t num) {
    const auto found = engine.qps.find(num);
    const bool known = found != engine.qps.end() && found->second->datagrams != nullptr &&
                       found->second->state.load() != IBV_QPS_RESET;
    return known ? found->second->asked.qkey : RDMA_UDP_QKEY;
}

void answer(VerbsState& engine, CmId& id, SidrAnswer fields) {
    SidrId& sidr = *id.sidr;
    fields.number = sidr.key.number;
    const EncodedSidrAnswer encoded = encode(fields);
    if (id.listener != nullptr) {
        id.listener->sidr->answers.add(sidr.key, encoded, monotonic_now());
    }
    leave_listener(engine, id);
    sidr.socket->send(encoded.octets(), sidr.peer, sidr.own);
    sidr.socket.reset();
}

// ---- a client's -----------------------------------------------------------------

void end_request(VerbsState& engine, CmId& id) {
    close_sockets(engine, id);
    id.sidr->repeat.reset();
}

void fail_request(VerbsState& engine, CmId& id, int status, ConstBytes private_data = {}) {
    id.state = IdState::ended;
    ++engine.refused;
    tell_datagrams(engine, id, RDMA_CM_EVENT_UNREACHABLE, status, {}, private_data);
}

// What the kernel says of a request. Those that may pass are nothing.
void on_request_error(VerbsState& engine, CmId& id, int error) {
    int status = -error;
    switch (error) {
        case EHOSTUNREACH:
        case ENETUNREACH:
            break;
        case ECONNREFUSED:
            id.refused = true;
            if (monotonic_now() < id.refusal_final_at) return;
            status = static_cast<int>(sidr_status::kUnsupported);
            break;
        default:
            return;
    }
    end_request(engine, id);
    fail_request(engine, id, status);
}

// 0 or an errno.
int send_request(CmId& id) noexcept {
    const auto octets = encode(SidrRequest{id.sidr->key.number, id.private_data});
    return send(id.fd, octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

void await_answer(VerbsState& engine, CmId& id);

void repeat_request(VerbsState& engine, CmId& id) {
    id.timer = 0;
    const Time now = monotonic_now();
    if (id.sidr->repeat->is_over(now)) {
        end_request(engine, id);
        fail_request(engine, id, -ETIMEDOUT);
        return;
    }
    if (const int error = send_request(id); error != 0) {
        on_request_error(engine, id, error);
        if (id.state != IdState::dialing) return;
    }
    id.sidr->repeat->sent(now);
    try {
        await_answer(engine, id);
    } catch (const std::bad_alloc&) {
        end_request(engine, id);
        fail_request(engine, id, -ENOMEM);
    }
}

void await_answer(VerbsState& engine, CmId& id) {
    id.timer =
        engine.loop().at(id.sidr->repeat->due(), [&engine, &id] { repeat_request(engine, id); });
}

void on_answer(VerbsState& engine, CmId& id, const SidrAnswer& answer) {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (getsockname(id.fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
        to_program_port(reinterpret_cast<sockaddr*>(&own), engine.port_offset);
        id.base.route.addr.src_storage = own;
    }
    if (answer.status != sidr_status::kAccepted) {
        const auto status = static_cast<int>(std::min<std::uint32_t>(answer.status, 255));
        end_request(engine, id);
        fail_request(engine, id, status, answer.data);
        return;
    }
    rdma_ud_param told{};
    fill_way(engine.gids(), id, told.ah_attr);
    told.qp_num = answer.qp_num;
    told.qkey = answer.qkey;
    end_request(engine, id);
    id.state = IdState::connected;
    tell_datagrams(engine, id, RDMA_CM_EVENT_ESTABLISHED, 0, told, answer.data);
}

void on_answers(VerbsState& engine, CmId& id) {
    engine.loop().resume(id.fd_token);  // of a socket that has an error it watches no more
    std::array<std::byte, kSidrAnswerBytes + 1> memory;
    for (int i = 0; i < kRequestsPerTurn; ++i) {
        const ssize_t n = recv(id.fd, memory.data(), memory.size(), MSG_DONTWAIT);
        if (n < 0) {
            on_request_error(engine, id, errno);
            return;
        }
        const auto octets = ConstBytes(memory).first(static_cast<std::size_t>(n));
        const auto answer = decode_sidr_answer(octets);
        if (answer && answer->number == id.sidr->key.number) return on_answer(engine, id, *answer);
    }
}

// 0 or an errno. May throw, with a socket made.
int begin_asking(VerbsState& engine, CmId& id) {
    sockaddr_storage there, here{};
    if (const int e = tcp_address(engine, &id.base.route.addr.dst_addr, there); e != 0) return e;
    if (const int e = tcp_address(engine, &id.base.route.addr.src_addr, here); e != 0) return e;
    id.fd = open_sidr_client(reinterpret_cast<const sockaddr&>(there),
                             reinterpret_cast<const sockaddr&>(here), id.options.tos);
    if (id.fd < 0) return errno;
    id.fd_token = engine.loop().watch(id.fd, Loop::kReadable,
                                      [&engine, &id](unsigned) { on_answers(engine, id); });
    if (id.fd_token == 0) return errno;
    const Time now = monotonic_now();
    id.sidr->key.number = random_u32();
    id.sidr->repeat.emplace(now, kConnectTimeout);
    id.refusal_final_at = now + kRefusalFinal;
    id.refused = false;
    await_answer(engine, id);
    id.state = IdState::dialing;
    const int error = send_request(id);  // of one that was not sent: told as an event
    if (error != 0) on_request_error(engine, id, error);
    return 0;
}

}  // namespace

int bind_datagrams(VerbsState& engine, CmId& id) {
    sockaddr* const shown = &id.base.route.addr.src_addr;
    sockaddr_storage at;
    if (const int error = tcp_address(engine, shown, at); error != 0) return error;
    for (int left = kEphemeralTries; left > 0; --left) {
        auto socket = SidrSocket::open(reinterpret_cast<const sockaddr&>(at), id.options.v6_only);
        if (!socket) {
            // rsockets bind an id to the port of a UDP socket of theirs, and never listen there.
            const bool held = socket.error().code == EADDRINUSE && id.state == IdState::idle;
            return held ? 0 : socket.error().code;
        }
        sockaddr_storage bound = (*socket)->bound();
        if (!show_port(engine, bound)) continue;
        id.sidr->socket = std::move(*socket);
        id.base.route.addr.src_storage = bound;
        return 0;
    }
    return no_port_shown(engine);
}

int listen_datagrams(VerbsState& engine, CmId& id, std::size_t backlog) {
    if (id.sidr->socket == nullptr) {
        if (const int error = bind_datagrams(engine, id); error != 0) return error;
    }
    id.reading = std::make_unique<StartupTable>(backlog);
    id.listen_token = engine.loop().watch(id.sidr->socket->fd(), Loop::kReadable,
                                          [&engine, &id](unsigned) { on_requests(engine, id); });
    if (id.listen_token == 0) return errno;
    id.backlog = backlog;
    id.state = IdState::listening;
    return 0;
}

int connect_datagrams(VerbsState& engine, CmId& id, const rdma_conn_param* param) {
    ConstBytes data = private_data_of(param);
    if (param == nullptr) data = id.ep_connect_data;
    if (data.size() > kSidrRequestData) return EINVAL;
    reserve_events(engine, id, 1);
    id.private_data.assign(data.begin(), data.end());
    id.sidr->socket.reset();  // its port is the request's
    int error = ENOMEM;
    try {
        error = begin_asking(engine, id);
    } catch (const std::bad_alloc&) {
    }
    if (error == 0) return 0;
    end_request(engine, id);
    id.state = IdState::route_resolved;
    return error;
}

int accept_datagrams(VerbsState& engine, CmId& id, const rdma_conn_param* param) {
    const ConstBytes data = private_data_of(param);
    // The program may have destroyed it without rdma_cm.
    if (id.base.qp != nullptr && !engine.alive(id.base.qp, Kind::qp)) return EINVAL;
    const std::uint32_t num = id.base.qp != nullptr ? id.base.qp->qp_num
                              : param != nullptr    ? param->qp_num
                                                    : 0;
    if (num == 0 || num > kQpNumMax || data.size() > kSidrAnswerData) return EINVAL;
    answer(engine, id, {.qp_num = num, .qkey = qkey_of(engine, num), .data = data});
    id.state = IdState::connected;
    return 0;
}

int reject_datagrams(VerbsState& engine, CmId& id, ConstBytes private_data) {
    if (private_data.size() > kSidrAnswerData) return EINVAL;
    answer(engine, id, {.status = sidr_status::kRejected, .data = private_data});
    ++engine.refused;
    id.state = IdState::ended;
    return 0;
}

int fill_datagram_attr(ibv_qp_attr& attr) noexcept {
    switch (attr.qp_state) {
        case IBV_QPS_INIT:
            attr.port_num = kPort;
            attr.pkey_index = 0;
            attr.qkey = RDMA_UDP_QKEY;
            return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        case IBV_QPS_RTS:
            attr.sq_psn = 0;
            return IBV_QP_STATE | IBV_QP_SQ_PSN;
        default:
            return IBV_QP_STATE;
    }
}

void on_request_taken(CmId& id) {
    if (id.listener == nullptr) return;
    id.listener->waiting.insert(&id);
    id.listener->reading->remove(&id);
}

void detach_datagrams(VerbsState& engine, CmId& id) {
    id.sidr->repeat.reset();
    if (id.state == IdState::requested && id.sidr->socket != nullptr) {
        const EncodedSidrAnswer encoded =
            encode({.number = id.sidr->key.number, .status = sidr_status::kRejected, .data = {}});
        try {
            if (id.listener != nullptr) {
                id.listener->sidr->answers.add(id.sidr->key, encoded, monotonic_now());
            }
        } catch (const std::bad_alloc&) {  // a repeated request is told as a new one
        }
        id.sidr->socket->send(encoded.octets(), id.sidr->peer, id.sidr->own);
        ++engine.refused;
    }
    id.sidr->socket.reset();
}

int start_datagram_qp(ibv_qp* qp) noexcept {
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        ibv_qp_attr attr{};
        attr.qp_state = next;
        const int mask = fill_datagram_attr(attr);
        if (const int error = modify_qp(qp, &attr, mask); error != 0) return error;
    }
    return 0;
}

}  // namespace xsock::verbs
