// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections of QPs whose programs do without rdma_cm: they tell each other GID and QP number by
// means of their own, and move the QP to RTR with those of the peer. A GID is an address, a QP
// number has the TCP port of its process in it (qp_numbers.hpp), and both ends know both: the one
// with the lower number dials (equal: with the lower GID), the other waits. What the two say to
// each other is gid_greeting.hpp. Not a standard: both ends must be xsock.
//
// Always on the device that looks like RoCE; on the iWARP device with XSOCK_VERBS_GID=1. With the
// engine's mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <unordered_map>

#include "transport/startup_table.hpp"
#include "verbs/datagrams.hpp"
#include "verbs/gid_dialer.hpp"
#include "verbs/gid_listener.hpp"

namespace xsock::verbs {

struct Qp;
class VerbsState;

class GidRendezvous {
  public:
    explicit GidRendezvous(VerbsState& engine);

    /// The QP goes to RTR: its peer is `asked.ah_attr` and `asked.dest_qp_num`. Begins and returns
    /// at once; goes on until the QP is connected, or forget(). 0 or an errno: EINVAL for an
    /// address that is none, or what the kernel says about a way to it.
    int connect(Qp& qp);
    /// The QP is reset, destroyed or in the error state.
    void forget(Qp& qp);
    /// Listens, for datagrams: a UD QP goes to RTR. 0 or an errno.
    int listen();
    [[nodiscard]] Datagrams& datagrams() noexcept { return datagrams_; }

  private:
    struct Waiting {
        GreetedConnection connection;
        Loop::Token token = 0;  ///< tells that the dialer has left
    };
    using WaitingList = std::list<Waiting>;

    int check_way(const ibv_gid& own, const ibv_gid& peer, std::uint16_t port) const;
    int make_twin(Qp& qp);
    void on_greeting(GreetedConnection connection);
    void on_accepted(const GidDialer::Accepted& accepted);
    GreetingRefusal refusal_for(const Qp& qp, const GreetedConnection& connection) const;
    void keep(GreetedConnection connection);
    void answer(Qp& qp, GreetedConnection connection);
    void make_room();
    void drop(std::uint32_t qp_num, WaitingList::iterator waiting);

    VerbsState& engine_;
    GidListener listener_;
    GidDialer dialer_;
    Datagrams datagrams_;
    /// Connections for QPs that are not at RTR yet, by the QP's number; the oldest first.
    std::unordered_map<std::uint32_t, WaitingList> waiting_;
    StartupTable parked_;  ///< all of them; the id of one is the address of its Waiting
};

}  // namespace xsock::verbs
