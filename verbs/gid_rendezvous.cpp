// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_rendezvous.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "mpa/startup.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_table.hpp"
#include "verbs/ops.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {
namespace {

/// Connections that wait for one QP. Only the peer that the QP is going to name counts; who cannot
/// know that may crowd here, but not keep out others for long: the oldest goes.
constexpr std::size_t kWaitingMax = 64;
/// And for all together; of the address that has most of them the oldest goes.
constexpr std::size_t kParkedMax = 1024;

// As InfiniBand's: what has completed is at the peer, and that the peer is gone only a Send
// notices.
ConnectAttr attr_of(const VerbsState& engine, const Qp& qp) {
    ConnectAttr attr;
    attr.crc = engine.crc;
    attr.acknowledged = engine.acknowledge != VerbsState::Acknowledge::never && !qp.unreliable();
    attr.unreliable = qp.unreliable();
    attr.outlives_peer = true;
    attr.confirmed = true;  // the loss of the peer is not told before its time (qp.cpp)
    attr.ird = attr.ord = kMaxReads;
    return attr;
}

GreetingKind kind_of(const Qp& qp) noexcept {
    return qp.unreliable() ? GreetingKind::uc : GreetingKind::rc;
}

bool same(const ibv_gid& a, const ibv_gid& b) noexcept {
    return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

// Of the two ends, the one with the lower number dials; of equal numbers, the lower GID.
bool dials(const ibv_gid& own, std::uint32_t num, const ibv_gid& peer,
           std::uint32_t dest) noexcept {
    if (num != dest) return num < dest;
    return std::memcmp(own.raw, peer.raw, sizeof own.raw) <= 0;
}

std::string text_of_gid(const ibv_gid& gid) {
    std::array<std::uint8_t, 16> octets{};
    std::copy(std::begin(gid.raw), std::end(gid.raw), octets.begin());
    return gid_text(octets);
}

}  // namespace

GidRendezvous::GidRendezvous(VerbsState& engine)
    : engine_(engine),
      listener_(engine, [this](GreetedConnection c) { on_greeting(std::move(c)); }),
      dialer_(
          engine, [this](const GidDialer::Accepted& accepted) { on_accepted(accepted); },
          [this](std::uint64_t id, std::uint32_t name) {
              return datagrams_.send_by_theirs(id, name);
          }),
      datagrams_(engine, dialer_),
      parked_(std::clamp<std::size_t>(descriptor_limit() / 8, 1, kParkedMax)) {}

// The kernel's answer to whether there is a way to the peer, from the address that it was told.
int GidRendezvous::check_way(const ibv_gid& own, const ibv_gid& peer, std::uint16_t port) const {
    sockaddr_storage from, to;
    int error = EINVAL;
    if (address_of(own, 0, from) && address_of(peer, port, to)) {
        const int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) return errno;
        const auto* const source = reinterpret_cast<const sockaddr*>(&from);
        const auto* const target = reinterpret_cast<const sockaddr*>(&to);
        const bool good = ::bind(fd, source, length_of(source)) == 0 &&
                          ::connect(fd, target, length_of(target)) == 0;
        error = good ? 0 : errno;
        close(fd);
    }
    if (error != 0) {
        log(LogLevel::error, "gid-address", "no way to the GID %s: %s", text_of_gid(peer).c_str(),
            std::strerror(error));
    }
    return error;
}

int GidRendezvous::listen() {
    const int error = listener_.listen(engine_.qp_numbers);
    if (error != 0) log(LogLevel::error, "gid-address", "cannot listen: %s", std::strerror(error));
    return error;
}

int GidRendezvous::connect(Qp& qp) {
    const ibv_ah_attr& way = qp.asked.ah_attr;
    const GidTable& gids = engine_.gids();
    if (way.is_global == 0 || way.grh.sgid_index >= gids.size()) {
        log(LogLevel::error, "gid-address",
            "QP 0x%06x: an address needs a GID of the peer (is_global) and an index of ours below "
            "%zu; it has %u",
            qp.num(), gids.size(), unsigned{way.grh.sgid_index});
        return EINVAL;
    }
    const ibv_gid own = gids[way.grh.sgid_index].gid;
    const std::uint32_t dest = qp.asked.dest_qp_num;
    if (const int error = check_way(own, way.grh.dgid, port_in(dest)); error != 0) return error;
    if (const int error = listen(); error != 0) return error;
    if (dest == qp.num() && same(own, way.grh.dgid)) {
        if (const int error = make_twin(qp); error != 0) return error;
    }
    qp.own_gid = own;
    if (dials(own, qp.num(), way.grh.dgid, dest)) {
        dialer_.dial({.id = qp.num(),
                      .own = own,
                      .peer = way.grh.dgid,
                      .from = qp.num(),
                      .to = dest,
                      .kind = kind_of(qp),
                      .attr = attr_of(engine_, qp)});
    }
    // Those that came early; of a QP that dials, none is right.
    auto early = waiting_.extract(qp.num());
    if (early.empty()) return 0;
    for (Waiting& waiting : early.mapped()) {
        engine_.loop().forget(waiting.token);
        parked_.remove(&waiting);
        answer(qp, std::move(waiting.connection));
    }
    return 0;
}

// A QP connected to itself: what sends is another one, and the QP receives.
int GidRendezvous::make_twin(Qp& qp) {
    qp.twins.reserve(qp.twins.size() + 1);
    QpAttr attr = qp.attr;
    attr.srq = nullptr;
    attr.rq_depth = 1;
    attr.async_events = false;
    auto made = engine_.device().create_qp(attr);
    if (!made) return made.error().code;
    qp.twins.push_back(std::move(*made));
    qp.sender.store(qp.twins.back().get(), std::memory_order_release);
    return 0;
}

void GidRendezvous::forget(Qp& qp) {
    dialer_.forget(qp.num());
    const auto early = waiting_.find(qp.num());
    if (early == waiting_.end()) return;
    for (Waiting& waiting : early->second) {
        engine_.loop().forget(waiting.token);
        parked_.remove(&waiting);
        waiting.connection.reject(GreetingRefusal::no_such_qp);
    }
    waiting_.erase(early);
}

GreetingRefusal GidRendezvous::refusal_for(const Qp& qp,
                                           const GreetedConnection& connection) const {
    const Greeting& greeting = connection.greeting;
    if (greeting.kind != kind_of(qp)) return GreetingRefusal::other_kind;
    const ibv_gid& dgid = qp.asked.ah_attr.grh.dgid;
    if (greeting.from != qp.asked.dest_qp_num || !same(connection.peer, dgid)) {
        return GreetingRefusal::other_peer;
    }
    // One that should have waited for us.
    if (!dials(dgid, greeting.from, qp.own_gid, qp.num())) return GreetingRefusal::other_peer;
    return qp.connected() ? GreetingRefusal::already_connected : GreetingRefusal::none;
}

void GidRendezvous::on_greeting(GreetedConnection connection) {
    if (connection.greeting.kind == GreetingKind::datagrams) {
        datagrams_.accept(std::move(connection));
        return;
    }
    const auto found = engine_.qps.find(connection.greeting.to);
    if (found == engine_.qps.end()) {
        connection.reject(GreetingRefusal::no_such_qp);
        return;
    }
    Qp& qp = *found->second;
    if (qp.datagrams != nullptr) {
        connection.reject(GreetingRefusal::other_kind);  // in whatever state
    } else if (qp.by_gid) {
        answer(qp, std::move(connection));
    } else if (qp.id == nullptr && !qp.connected() && qp.state.load() <= IBV_QPS_INIT) {
        keep(std::move(connection));
    } else {
        connection.reject(GreetingRefusal::other_peer);
    }
}

// Until the QP goes to RTR.
void GidRendezvous::keep(GreetedConnection connection) {
    const std::uint32_t num = connection.greeting.to;
    WaitingList& list = waiting_[num];
    if (list.size() >= kWaitingMax) drop(num, list.begin());
    if (parked_.full()) make_room();
    WaitingList& here = waiting_[num];
    const int fd = connection.fd;
    const auto added = here.insert(here.end(), Waiting{std::move(connection), 0});
    try {
        parked_.add(&*added, fd, monotonic_now());
    } catch (const std::bad_alloc&) {
        drop(num, added);
        return;
    }
    // Its Request stays unread: only the end is of interest.
    added->token = engine_.loop().watch(fd, Loop::kPeerFinished,
                                        [this, num, added](unsigned) { drop(num, added); });
    if (added->token == 0) drop(num, added);
}

void GidRendezvous::make_room() {
    const auto* const crowding = static_cast<Waiting*>(parked_.make_room(monotonic_now()));
    if (crowding == nullptr) return;
    ++engine_.refused;
    const std::uint32_t num = crowding->connection.greeting.to;
    WaitingList& list = waiting_.find(num)->second;
    drop(num, std::find_if(list.begin(), list.end(),
                           [&](const Waiting& waiting) { return &waiting == crowding; }));
}

void GidRendezvous::drop(std::uint32_t qp_num, WaitingList::iterator waiting) {
    const auto found = waiting_.find(qp_num);
    engine_.loop().forget(waiting->token);
    parked_.remove(&*waiting);
    waiting->connection.reject(GreetingRefusal::too_many);
    found->second.erase(waiting);
    if (found->second.empty()) waiting_.erase(found);
}

void GidRendezvous::answer(Qp& qp, GreetedConnection connection) {
    const GreetingRefusal why = refusal_for(qp, connection);
    if (why != GreetingRefusal::none) {
        ++engine_.refused;
        log(LogLevel::info, "gid-refused", "QP 0x%06x refuses QP 0x%06x at %s: %s", qp.num(),
            connection.greeting.from, text_of_gid(connection.peer).c_str(), text_of(why));
        connection.reject(why);
        return;
    }
    const auto reply = encode({.kind = kind_of(qp),
                               .from = qp.num(),
                               .to = connection.greeting.from,
                               .attempt = connection.greeting.attempt});
    ConnectAttr attr = attr_of(engine_, qp);
    attr.role = ConnectAttr::Role::responder;
    attr.private_data = reply;
    if (connect_qp_locked(engine_, qp, connection.fd, attr)) {
        connection.fd = -1;  // the QP's
    }
}

void GidRendezvous::on_accepted(const GidDialer::Accepted& accepted) {
    const auto from = static_cast<std::uint32_t>(accepted.id);
    if (accepted.id != from) {
        datagrams_.on_accepted(accepted);
        return;
    }
    const auto found = engine_.qps.find(from);
    xsock::Qp* const twin = found != engine_.qps.end() ? found->second->sender.load() : nullptr;
    if (found != engine_.qps.end() && found->second->by_gid &&
        (twin != nullptr || !found->second->connected())) {
        ConnectAttr of_twin = accepted.attr;
        of_twin.confirmed = of_twin.unreliable = false;  // its events go nowhere
        const auto started = twin != nullptr ? twin->connect(accepted.fd, of_twin)
                                             : connect_qp_locked(engine_, *found->second,
                                                                 accepted.fd, accepted.attr);
        if (started) return;
        log(LogLevel::error, "gid-dial", "QP 0x%06x: %s", from, started.error().what);
        fail_qp_locked(engine_, *found->second);
    }
    close(accepted.fd);
}

}  // namespace xsock::verbs
