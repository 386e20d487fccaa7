// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connection management: what stands behind rdma_cm_id, rdma_event_channel and rdma_cm_event, each
// beginning with the public structure. All of it is touched with the engine's mutex held.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/startup_table.hpp"
#include "verbs/cm_sidr.hpp"
#include "verbs/cm_stand_in.hpp"
#include "verbs/engine.hpp"
#include "verbs/loop.hpp"

namespace xsock::verbs {

struct CmEvent;

struct CmChannel {
    rdma_event_channel base{};
    std::list<CmEvent*> events;
    EventFd events_waiting;
    int ids = 0;
    bool destroyed = false;  ///< by the program, before its ids
};

enum class IdState : std::uint8_t {
    idle,
    bound,  ///< has an address; its socket listens already (rdma_listen() is soon)
    addr_resolved,
    route_resolved,
    dialing,   ///< TCP connect under way
    starting,  ///< MPA start-up under way
    listening,
    requested,  ///< passive: the peer's Request was read, not yet answered
    connected,
    ending,         ///< the peer has left; the program is told when it has polled what came before
    disconnecting,  ///< rdma_disconnect() was called
    ended,
};

/// rdma_set_option(): independent of each other, and kept until a socket is made.
struct CmOptions {
    bool reuse_address = true;
    bool v6_only = false;
    int tos = -1;  ///< -1: the system's
};

/// Of the events that are an id's, as CmEvent::owner says.
struct CmEvents {
    /// Waiting in the channel; also those about it that are its listener's.
    std::uint32_t queued = 0;
    std::uint32_t delivered = 0;  ///< got by the program
    std::uint32_t acknowledged = 0;
    bool timewait_owed = false;  ///< the peer has left; the program has not disconnected yet
};

struct CmId {
    rdma_cm_id base{};
    // The host's librdmacm, when it runs rsockets over us, reads one field of its own structure
    // behind the public one; this is where.
    std::array<std::byte, 32> rsockets_looks_behind{};
    int sync = 0;

    VerbsState* engine = nullptr;
    IdState state = IdState::idle;
    bool passive = false;
    bool own_channel = false;
    bool use_counted = false;  ///< counted in Context::objects
    Qp* qp = nullptr;          ///< made by rdma_create_qp(), or connected: see qp_for()
    CmStandIn stand_in;

    CmOptions options;

    // Sockets.
    int listen_fd = -1;
    Loop::Token listen_token = 0;
    std::size_t backlog = 0;
    int fd = -1;  ///< dialing; or accepted, before rdma_accept() hands it to the QP
    Loop::Token fd_token = 0;
    Loop::Token timer = 0;
    Time refusal_final_at = 0;  ///< dialing: a refused connection is dialed again before this
    bool refused = false;       ///< dialing: at least once
    std::unique_ptr<StartupTable> reading;  ///< listening: CmId*, whose Request is being read
    std::set<CmId*>
        waiting;  ///< listening: those whose Request is told or to be told; no answer yet

    // Parameters.
    std::vector<std::byte> private_data;  ///< ours
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t peer_ird = 0, peer_ord = 0;  ///< of the peer's Request, at most kMaxReads
    std::vector<std::byte> peer_private_data;
    CmId* listener = nullptr;      ///< while it is in one of the listener's sets
    std::unique_ptr<SidrId> sidr;  ///< of RDMA_PS_UDP; null: of another port space

    // Events.
    std::list<CmEvent*> reserved;  ///< for what may have to be told: see reserve_events()
    CmEvents events;

    // rdma_create_ep().
    std::unique_ptr<ibv_qp_init_attr> qp_init;
    std::vector<std::byte> ep_connect_data;

    static CmId* of(rdma_cm_id* id) noexcept { return reinterpret_cast<CmId*>(id); }

    /// An active id without a QP of its own: the program names another in rdma_connect(), is told
    /// CONNECT_RESPONSE, moves that QP through its states and calls rdma_establish().
    [[nodiscard]] bool program_moves_qp() const noexcept { return !passive && base.qp == nullptr; }
    /// Its queue pair is a UD one, and nothing is connected: cm_sidr.hpp.
    [[nodiscard]] bool of_datagrams() const noexcept { return sidr != nullptr; }
};
static_assert(offsetof(CmId, sync) == 448);

struct CmEvent {
    rdma_cm_event base{};
    std::array<std::byte, 256> private_data;
    CmId* owner = nullptr;  ///< whose acknowledgements it counts among: listen_id if there is one
    bool got = false;
};

// cm_events.cpp

/// Before anything is promised that ends in events: from now on `n` can be told about `id`, whether
/// there is memory or not. Throws std::bad_alloc.
void reserve_events(VerbsState& engine, CmId& id, std::size_t n);
/// An attempt to connect has an outcome, and a connection an end.
inline constexpr std::size_t kEventsOfAttempt = 3;  // its answer, its end, TIMEWAIT_EXIT
/// Queues an event about `id` (with CONNECT_REQUEST: for its listener).
/// @pre one is reserved
void tell(VerbsState& engine, CmId& id, rdma_cm_event_type type, int status = 0,
          ConstBytes private_data = {}) noexcept;
/// The same of an id of RDMA_PS_UDP: with what `told` says, but its private data's place.
void tell_datagrams(VerbsState& engine, CmId& id, rdma_cm_event_type type, int status,
                    const rdma_ud_param& told, ConstBytes private_data) noexcept;
/// The program has given an event back that it had got: its owner counts it, and a thread in
/// rdma_destroy_id() that waits for it wakes up. Frees the event.
void acknowledge_locked(VerbsState& engine, CmEvent& event);
/// Drops what is queued about `id`; requests that will not be reported are dropped with their ids.
void purge_events(VerbsState& engine, CmId& id);
CmChannel* create_channel(VerbsState& engine);
void destroy_channel(VerbsState& engine, CmChannel& channel);

// cm_id.cpp

CmId* create_id_locked(VerbsState& engine, CmChannel* channel, void* context, rdma_port_space ps);
/// Sockets, timers, queue membership: everything that could call back. Not the memory.
void detach_locked(VerbsState& engine, CmId& id);
void free_id_locked(VerbsState& engine, CmId& id);
/// Gives the id its device. 0 or an errno.
int attach_device(VerbsState& engine, CmId& id);
void close_sockets(VerbsState& engine, CmId& id);
/// In a forked child: the parent's sockets. A peer that connects to them must not wait for it.
void close_inherited(CmId& id) noexcept;
/// The id and its QP know nothing of each other any more. Without effect where there is none.
void release_qp(CmId& id) noexcept;
/// The address of TCP for one that the program names. 0, or EADDRNOTAVAIL and a line in the log.
int tcp_address(const VerbsState& engine, const sockaddr* named, sockaddr_storage& to);

// cm_route.cpp

/// To the peer of an id that has both addresses, by those of the GID table.
void fill_way(const GidTable& gids, const CmId& id, ibv_ah_attr& way) noexcept;
/// What programs find at rdma_cm_id.route once it is resolved. Throws std::bad_alloc.
void fill_path(const GidTable& gids, CmId& id);
/// Of the paths that it tells of: 4.096 us * 2^14.
inline constexpr std::uint8_t kPacketLifetime = 14;
void free_path(CmId& id) noexcept;

// cm_connect.cpp

/// The limits of Reads that are announced to a peer.
ConnectAttr connect_attr(const CmId& id);
void on_established_locked(VerbsState& engine, CmId& id, const QpInfo& info);

// cm_disconnect.cpp

void stop_timer(VerbsState& engine, CmId& id);
/// Tells of a connect that came to nothing, in the words that rdma_cm has for it.
void report_failure(VerbsState& engine, CmId& id, int error, ConstBytes private_data = {});
void on_ended_locked(VerbsState& engine, CmId& id, const QpInfo& info);
/// The id's QP goes, perhaps with the connection: programs (cmtime) wait for the event all the
/// same.
void on_qp_destroyed_locked(VerbsState& engine, CmId& id);
/// The id's QP was reset: its connection is no more, and nothing else can tell of the end.
void on_qp_reset_locked(VerbsState& engine, CmId& id);

// cm_listen.cpp

int open_listener(VerbsState& engine, CmId& id);
/// Ports that the kernel chooses are tried so often until one has a program's number.
inline constexpr int kEphemeralTries = 64;
/// To the program's number of the port that a socket has; false: it does not lead there.
[[nodiscard]] bool show_port(const VerbsState& engine, sockaddr_storage& bound) noexcept;
/// EADDRNOTAVAIL, and a line in the log.
int no_port_shown(const VerbsState& engine);
/// The id was answered or goes: its listener knows it no more.
void leave_listener(VerbsState& engine, CmId& id);

}  // namespace xsock::verbs
