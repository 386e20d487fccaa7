// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connects QPs to peers that GIDs and QP numbers name, for as long as it takes: a peer that is not
// there yet, has not moved its QP so far, or refuses, is dialed again. The MPA Request is written
// here and the Reply peeked; the QP gets the connection once it is a good one, and so nothing that
// the program has posted is lost with an attempt. With the engine's mutex held.
//
// To a peer (address and port) of which nothing is known one connection at a time is tried, so that
// a thousand QPs do not knock at a dead process together; once one has come about the others
// follow. Pauses grow from 1 ms to 1 s.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "verbs/gid_greeting.hpp"
#include "verbs/loop.hpp"

namespace xsock::verbs {

class VerbsState;

/// What is dialed.
struct DialTarget {
    std::uint64_t id = 0;            ///< what the dialer knows it by: for a QP, its number
    ibv_gid own{}, peer{};           ///< addresses that go by address_of()
    std::uint32_t from = 0, to = 0;  ///< QP numbers
    GreetingKind kind = GreetingKind::rc;
    bool both_ways = false;  ///< Greeting::both_ways
    ConnectAttr attr;        ///< but for role, private data and Request
};

class GidDialer {
  public:
    /// The Reply accepts.
    struct Accepted {
        std::uint64_t id = 0;    ///< DialTarget::id
        int fd = -1;             ///< the handler's
        ConnectAttr attr;        ///< how the connection is to be started; valid during the call
        bool both_ways = false;  ///< both greetings say so
        std::uint32_t name = 0;  ///< then: what the peer calls it, Greeting::attempt of its Reply
    };
    using Handler = std::function<void(const Accepted& accepted)>;
    /// The peer refuses one that may go both ways, because it has dialed one itself, which this end
    /// has called `name`. True: that connection serves, and nothing is dialed for `id` any more.
    /// False: it is dialed again; after a while as one that goes one way.
    using Named = std::function<bool(std::uint64_t id, std::uint32_t name)>;
    GidDialer(VerbsState& engine, Handler handler, Named named);
    ~GidDialer();

    /// One for each id at a time. Throws std::bad_alloc, and then does nothing.
    void dial(const DialTarget& target);
    /// Without effect where nothing is dialed for it.
    void forget(std::uint64_t id);
    /// Its Request may go both ways, and a peer that is there has still to answer it.
    [[nodiscard]] bool is_unanswered(std::uint64_t id) const;
    /// The peer is said to be there: ends a pause between two attempts, at the earliest 10 ms after
    /// the last began.
    void retry_soon(std::uint64_t id);

  private:
    struct Dial;
    struct Peer;
    using PeerKey = std::pair<std::array<std::uint8_t, 16>, std::uint16_t>;

    static PeerKey key_of(const DialTarget& target) noexcept;
    void go_on(const PeerKey& key);
    void start(Dial& dial);
    bool open(Dial& dial);
    void wait_connected(Dial& dial);
    void on_connected(Dial& dial);
    bool send_request(Dial& dial);
    void on_reply(Dial& dial, unsigned readiness);
    std::unique_ptr<Dial> remove(std::uint64_t id);
    void quiet(Dial& dial) noexcept;
    void stop(Dial& dial) noexcept;
    void unreachable(Dial& dial, int error);
    void again_later(Dial& dial, const std::string& why);
    void try_again_at(const PeerKey& key, Peer& peer, Time at);
    void try_again_at(Dial& dial, Time at);

    VerbsState& engine_;
    const Handler handler_;
    const Named named_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Dial>> dials_;  // by DialTarget::id
    std::map<PeerKey, Peer> peers_;                                   // those that dials are for
};

}  // namespace xsock::verbs
