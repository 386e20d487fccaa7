// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The passive side: listening sockets, and the MPA Requests of those that connect. A Request is
// peeked (MSG_PEEK) without being taken: the program decides with its private data in hand, and
// only then is there a QP, whose connection reads the Request once more and answers it.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "include/xsock/iwarp.h"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kRequestTimeout = 10 * kSecond;
constexpr Time kPause = 100 * kMillisecond;
constexpr Time kPauseWhenFull = 20 * kMillisecond;
constexpr Time kRejectTimeout = 2 * kSecond;
constexpr int kAcceptsPerTurn = 64;
constexpr int kBacklogMin = 16, kBacklogDefault = 1024, kBacklogMax = 4096;

void drop(VerbsState& engine, CmId& id) {
    detach_locked(engine, id);
    free_id_locked(engine, id);
}

// What the Request says, once it is all there.
enum class Look : std::uint8_t { incomplete, complete, not_mpa };

Look look_at_request(CmId& id) {
    std::array<std::byte, sizeof(mpa_frame) + MPA_PD_MAX> bytes;
    const ssize_t n = recv(id.fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? Look::incomplete : Look::not_mpa;
    if (n == 0) return Look::not_mpa;
    const auto have = static_cast<std::size_t>(n);
    if (std::memcmp(bytes.data(), MPA_KEY_REQUEST, std::min<std::size_t>(have, MPA_KEY_OCTETS)) !=
        0) {
        return Look::not_mpa;
    }
    expect_more_than(id.fd, have);
    if (have < sizeof(mpa_frame)) return Look::incomplete;
    const std::size_t length = load_be16(bytes.data() + offsetof(mpa_frame, pd_length));
    if (length > MPA_PD_MAX) return Look::not_mpa;
    if (have < sizeof(mpa_frame) + length) return Look::incomplete;
    expect_more_than(id.fd, 0);
    ConstBytes data = ConstBytes(bytes).subspan(sizeof(mpa_frame), length);
    const auto flags = std::to_integer<unsigned>(bytes[offsetof(mpa_frame, flags)]);
    const auto revision = std::to_integer<unsigned>(bytes[offsetof(mpa_frame, revision)]);
    id.peer_ird = id.peer_ord = kMaxReads;
    if (revision >= MPA_REVISION_2 && (flags & MPA_FLAG_ENHANCED) != 0 &&
        data.size() >= sizeof(mpa_enhanced)) {
        const auto at_most = [](unsigned field) {
            return static_cast<std::uint8_t>(
                std::min<unsigned>(field & MPA_ENH_DEPTH_MASK, kMaxReads));
        };
        id.peer_ird = at_most(load_be16(data.data() + offsetof(mpa_enhanced, ird)));
        id.peer_ord = at_most(load_be16(data.data() + offsetof(mpa_enhanced, ord)));
        data = data.subspan(sizeof(mpa_enhanced));
    }
    if (!take_peer_num(id, data)) return Look::not_mpa;
    id.peer_private_data.assign(data.begin(), data.end());
    return Look::complete;
}

void on_request_bytes(VerbsState& engine, CmId& id, unsigned readiness) {
    const Look look = look_at_request(id);
    // The rest of a Request does not come behind a FIN.
    if (look == Look::incomplete && (readiness & Loop::kPeerFinished) == 0) return;
    if (look != Look::complete) {
        log(LogLevel::warn, "startup-not-mpa", "%s: not an MPA Request; connection closed",
            text_of(&id.base.route.addr.dst_addr).c_str());
        ++engine.refused;
        drop(engine, id);
        return;
    }
    // Out of memory: comes again in a moment, until the time for the Request is over.
    reserve_events(engine, id, 1);
    id.listener->waiting.insert(&id);
    engine.loop().forget(id.fd_token);
    id.fd_token = 0;
    engine.loop().forget(id.timer);
    id.timer = 0;
    id.listener->reading->remove(&id);
    id.state = IdState::requested;
    id.responder_resources = id.peer_ord;
    id.initiator_depth = id.peer_ird;
    tell(engine, id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, id.peer_private_data);
}

// Begins to read the Request of a connection, whose id has its descriptor. False: it cannot.
bool read_request(VerbsState& engine, CmId& listener, CmId* id) {
    const int fd = id->fd;
    id->base.qp_type = listener.base.qp_type;
    socklen_t size = sizeof(sockaddr_storage);
    getsockname(fd, &id->base.route.addr.src_addr, &size);
    size = sizeof(sockaddr_storage);
    getpeername(fd, &id->base.route.addr.dst_addr, &size);
    to_program_port(&id->base.route.addr.src_addr, engine.port_offset);
    to_program_port(&id->base.route.addr.dst_addr, engine.port_offset);
    id->base.route.addr.addr.ibaddr.sgid = gid_of(id->base.route.addr.src_storage);
    id->base.route.addr.addr.ibaddr.dgid = gid_of(id->base.route.addr.dst_storage);
    if (attach_device(engine, *id) != 0) return false;
    listener.reading->add(id, fd, monotonic_now());
    id->listener = &listener;
    id->fd_token = engine.loop().watch(
        fd, Loop::kReadable | Loop::kPeerFinished,
        [&engine, id](unsigned readiness) { on_request_bytes(engine, *id, readiness); });
    if (id->fd_token == 0) return false;
    id->timer = engine.loop().at(monotonic_now() + kRequestTimeout, [&engine, id] {
        id->timer = 0;
        log(LogLevel::warn, "startup-timeout", "%s: no MPA Request within 10 s; closed",
            text_of(&id->base.route.addr.dst_addr).c_str());
        ++engine.refused;
        drop(engine, *id);
    });
    return true;
}

void take_connection(VerbsState& engine, CmId& listener, int fd) {
    CmId* id = nullptr;
    bool taken = false;
    try {
        auto* const channel = reinterpret_cast<CmChannel*>(listener.base.channel);
        id = create_id_locked(engine, channel, listener.base.context, listener.base.ps);
        id->passive = true;
        id->fd = fd;
        taken = read_request(engine, listener, id);
    } catch (const std::bad_alloc&) {
        log(LogLevel::error, "accept-failed", "out of memory; the connection is dropped");
    }
    if (taken) return;
    if (id != nullptr) {
        drop(engine, *id);
    } else {
        close(fd);
    }
}

// Closes one whose Request is being read, as StartupTable::make_room() says. False: there is none.
bool make_room(VerbsState& engine, CmId& listener, Time min_age = 0) {
    auto* const crowding =
        static_cast<CmId*>(listener.reading->make_room(monotonic_now(), min_age));
    if (crowding == nullptr) return false;
    ++engine.refused;
    drop(engine, *crowding);  // leaves the table by leave_listener()
    return true;
}

void accept_some(VerbsState& engine, CmId& listener) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        if (listener.waiting.size() >= listener.backlog) {
            engine.loop().pause(listener.listen_token, kPause);  // the others: in TCP's queue
            return;
        }
        if (listener.reading->should_wait(monotonic_now())) {
            engine.loop().pause(listener.listen_token, kPauseWhenFull);
            return;
        }
        const int fd = accept4(listener.listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == ECONNABORTED || errno == EINTR) continue;
            if (const int error = errno; error != EAGAIN) {
                if (make_room(engine, listener, StartupTable::kMinAge)) continue;
                log(LogLevel::error, "accept-failed", "%s; trying again soon",
                    std::strerror(error));
                engine.loop().pause(listener.listen_token, kPause);
            }
            return;
        }
        if (listener.reading->full()) make_room(engine, listener);
        take_connection(engine, listener, fd);
    }
}

}  // namespace

void leave_listener(VerbsState& engine, CmId& id) {
    CmId* const listener = std::exchange(id.listener, nullptr);
    if (listener == nullptr) return;
    listener->reading->remove_failed(&id, monotonic_now());  // before its Request was complete
    listener->waiting.erase(&id);
    if (id.of_datagrams()) listener->sidr->asked.erase(id.sidr->key);
    // It may have made a pause, perhaps for want of this place.
    engine.loop().resume(listener->listen_token);
}

// Binds, and listens already: programs such as qperf tell their peer the port before they call
// rdma_listen(). Early connections wait in TCP's queue.
int open_listener(VerbsState& engine, CmId& id) {
    if (id.of_datagrams()) return bind_datagrams(engine, id);
    sockaddr* const shown = &id.base.route.addr.src_addr;
    sockaddr_storage storage;
    if (const int error = tcp_address(engine, shown, storage); error != 0) return error;
    for (int left = kEphemeralTries; left > 0; --left) {
        sockaddr_storage bound = storage;
        auto* const address = reinterpret_cast<sockaddr*>(&bound);
        const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) return errno;
        const int reuse = id.options.reuse_address, v6_only = id.options.v6_only;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
        if (address->sa_family == AF_INET6) {
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
        }
        socklen_t size = sizeof bound;
        if (::bind(fd, address, length_of(address)) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
            getsockname(fd, address, &size) != 0) {
            const int error = errno;
            close(fd);
            return error;
        }
        if (show_port(engine, bound)) {
            copy_address(id.base.route.addr.src_storage, address);
            id.listen_fd = fd;
            return 0;
        }
        close(fd);
    }
    return no_port_shown(engine);
}

// Of a port that the kernel has chosen, the program tells its peers the number that it is shown,
// and they must get here by it.
bool show_port(const VerbsState& engine, sockaddr_storage& bound) noexcept {
    auto* const address = reinterpret_cast<sockaddr*>(&bound);
    const std::uint16_t chosen = port_of(address);
    to_program_port(address, engine.port_offset);
    return port_of(address) + engine.port_offset == chosen;
}

int no_port_shown(const VerbsState& engine) {
    log(LogLevel::error, "port-offset",
        "no free port that is XSOCK_VERBS_PORT_OFFSET=%d from another port", engine.port_offset);
    return EADDRNOTAVAIL;
}

namespace cm {

int listen(rdma_cm_id* given, int backlog) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id)) return fail(EINVAL);
        CmId& id = *CmId::of(given);
        if (id.state == IdState::idle) {  // any address, any port
            sockaddr_in any{};
            any.sin_family = AF_INET;
            copy_address(given->route.addr.src_storage, reinterpret_cast<sockaddr*>(&any));
            if (const int error = open_listener(engine, id); error != 0) return fail(error);
            id.state = IdState::bound;
        }
        if (id.state != IdState::bound) return fail(EINVAL);
        // 0: as many as the device chooses, as Linux has it.
        const auto room = static_cast<std::size_t>(
            backlog <= 0 ? kBacklogDefault : std::clamp(backlog, kBacklogMin, kBacklogMax));
        if (id.of_datagrams()) {
            const int error = listen_datagrams(engine, id, room);
            return error == 0 ? 0 : fail(error);
        }
        id.backlog = room;
        id.reading = std::make_unique<StartupTable>(engine.max_starting);
        id.listen_token = engine.loop().watch(
            id.listen_fd, Loop::kReadable, [&engine, &id](unsigned) { accept_some(engine, id); });
        if (id.listen_token == 0) return -1;
        id.state = IdState::listening;
        return 0;
    });
}

int reject(rdma_cm_id* given, const void* private_data, std::uint8_t length) noexcept {
    // A QP only for the Reply.
    std::unique_ptr<xsock::Cq> cq;
    std::unique_ptr<xsock::Qp> qp;
    const int begun = locked_cm([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cm_id) || (private_data == nullptr && length != 0)) {
            return fail(EINVAL);
        }
        CmId& id = *CmId::of(given);
        if (id.state != IdState::requested) return fail(EINVAL);
        if (id.of_datagrams()) {
            const int error =
                reject_datagrams(engine, id, {static_cast<const std::byte*>(private_data), length});
            return error == 0 ? 0 : fail(error);
        }
        leave_listener(engine, id);
        ++engine.refused;
        id.state = IdState::ended;
        auto made_cq = engine.device().create_cq(8, false);
        if (!made_cq) return fail(made_cq.error().code);
        cq = std::move(*made_cq);
        auto made_qp = engine.device().create_qp({.send_cq = cq.get(),
                                                  .recv_cq = cq.get(),
                                                  .sq_depth = 4,
                                                  .rq_depth = 4,
                                                  .api = Api::verbs});
        if (!made_qp) return fail(made_qp.error().code);
        qp = std::move(*made_qp);
        const int fd = std::exchange(id.fd, -1);
        ConnectAttr attr;
        attr.role = ConnectAttr::Role::responder;
        attr.defer_reply = true;
        const auto r = qp->connect(fd, attr);
        if (!r) close(fd);
        return r ? 0 : fail(r.error().code);
    });
    if (begun != 0 || qp == nullptr) return begun;
    // Without the mutex: what waits for a peer must not stop every other call.
    try {
        if (qp->wait_started(monotonic_now() + kRejectTimeout) == QpState::requested) {
            (void)qp->reject({static_cast<const std::byte*>(private_data), length});
        }
        return 0;
    } catch (const std::exception&) {
        return fail(ENOMEM);
    }
}

int reject_ece(rdma_cm_id* id, const void* private_data, std::uint8_t length) noexcept {
    return reject(id, private_data, length);
}

}  // namespace cm
}  // namespace xsock::verbs
