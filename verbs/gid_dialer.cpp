// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_dialer.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/random.hpp"
#include "libxsock/engine/runtime.hpp"
#include "mpa/startup.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "transport/mpa_config.hpp"
#include "verbs/addresses.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_table.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kFirstPause = kMillisecond, kLongestPause = kSecond;
constexpr Time kConnectLimit = 10 * kSecond;
constexpr int kAtOnce = 64;  // to a peer that is known to be there
constexpr Time kRetryAfter = 10 * kMillisecond;
constexpr Time kMissLimit = kSecond / 4;  // of the second that datagrams have

mpa::Startup initiator(const ConnectAttr& attr) {
    mpa::Startup startup(mpa_config(attr, mpa::Role::initiator, runtime::config()).startup);
    startup.begin(0);
    return startup;
}

Time longer(Time pause) noexcept {
    return pause == 0 ? kFirstPause : std::min(2 * pause, kLongestPause);
}

// What a Reply says, as far as it is there.
enum class Answer : std::uint8_t { incomplete, accepted, refused, wrong };

}  // namespace

struct GidDialer::Dial {
    DialTarget target;
    std::array<std::byte, kGreetingBytes> greeting{};
    std::uint32_t attempt = 0;
    int fd = -1;
    Loop::Token token = 0, timer = 0;
    Time pause = 0;           ///< after a refusal
    Time again_at = 0;        ///< when it ends
    bool connecting = false;  ///< counted in Peer::connecting
    bool told = false;        ///< there is a line in the log
    Time started = 0;         ///< this attempt
    Time missed = 0;          ///< when the first started for which the peer named a connection
                              ///< that is not here, or not up

    [[nodiscard]] ConnectAttr attr() const {
        ConnectAttr full = target.attr;
        full.role = ConnectAttr::Role::initiator;
        full.private_data = greeting;
        return full;
    }
    [[nodiscard]] Answer answer(ConstBytes bytes, Greeting& reply) const;
    [[nodiscard]] std::string text() const {
        sockaddr_storage to;
        (void)address_of(target.peer, port_in(target.to), to);
        return text_of(reinterpret_cast<const sockaddr*>(&to));
    }
};

struct GidDialer::Peer {
    std::deque<std::uint64_t> waiting;  ///< ids
    int dials = 0, connecting = 0;
    bool there = false;  ///< a connection has come about since the last that did not
    Time pause = 0;
    Time again_at = 0;  ///< when it ends
    Loop::Token timer = 0;
};

Answer GidDialer::Dial::answer(ConstBytes bytes, Greeting& reply) const {
    mpa::Startup startup = initiator(attr());
    startup.tx_commit(startup.tx().size());
    startup.rx(bytes);
    switch (startup.state()) {
        case mpa::Startup::State::await_reply:
            return Answer::incomplete;
        case mpa::Startup::State::rejected:
        case mpa::Startup::State::exchanging:
        case mpa::Startup::State::established:
            break;
        default:
            return Answer::wrong;
    }
    const auto decoded = decode(startup.private_data());
    if (!decoded || decoded->refusal != GreetingRefusal::none) return Answer::wrong;
    reply = decoded->greeting;
    // One that goes both ways has a name there instead.
    const bool repeats = reply.attempt == attempt || (target.both_ways && reply.both_ways);
    if (!repeats || reply.from != target.to || reply.to != target.from) {
        // A rejection by one that could not read ours names nothing.
        if (reply.kind != GreetingKind::rejected) return Answer::wrong;
    }
    if (startup.state() == mpa::Startup::State::rejected) {
        return reply.kind == GreetingKind::rejected ? Answer::refused : Answer::wrong;
    }
    return reply.kind == target.kind ? Answer::accepted : Answer::wrong;
}

GidDialer::GidDialer(VerbsState& engine, Handler handler, Named named)
    : engine_(engine), handler_(std::move(handler)), named_(std::move(named)) {}

GidDialer::~GidDialer() = default;

GidDialer::PeerKey GidDialer::key_of(const DialTarget& target) noexcept {
    PeerKey key;
    std::copy(std::begin(target.peer.raw), std::end(target.peer.raw), key.first.begin());
    key.second = port_in(target.to);
    return key;
}

void GidDialer::dial(const DialTarget& target) {
    forget(target.id);
    auto made = std::make_unique<Dial>();
    made->target = target;
    const PeerKey key = key_of(target);
    Peer& peer = peers_[key];
    peer.waiting.push_back(target.id);
    dials_.emplace(target.id, std::move(made));
    ++peer.dials;
    go_on(key);
}

// It needs no dialing any more. The descriptor is the caller's.
std::unique_ptr<GidDialer::Dial> GidDialer::remove(std::uint64_t id) {
    const auto found = dials_.find(id);
    if (found == dials_.end()) return nullptr;
    std::unique_ptr<Dial> dial = std::move(found->second);
    dials_.erase(found);
    const PeerKey key = key_of(dial->target);
    quiet(*dial);
    Peer& peer = peers_.find(key)->second;
    peer.waiting.erase(std::remove(peer.waiting.begin(), peer.waiting.end(), id),
                       peer.waiting.end());
    if (--peer.dials != 0) {
        go_on(key);
        return dial;
    }
    engine_.loop().forget(peer.timer);
    peers_.erase(key);
    return dial;
}

void GidDialer::forget(std::uint64_t id) {
    // First, since what others dial there, which goes on then, may find no memory.
    if (const auto found = dials_.find(id); found != dials_.end()) stop(*found->second);
    (void)remove(id);
}

bool GidDialer::is_unanswered(std::uint64_t id) const {
    const auto found = dials_.find(id);
    if (found == dials_.end()) return false;
    const Dial& dial = *found->second;
    return dial.fd >= 0 && !dial.connecting && dial.target.both_ways;
}

void GidDialer::retry_soon(std::uint64_t id) {
    const auto found = dials_.find(id);
    if (found == dials_.end() || found->second->fd >= 0) return;
    Dial& dial = *found->second;
    const PeerKey key = key_of(dial.target);
    Peer& peer = peers_.find(key)->second;
    if (const Time at = dial.started + kRetryAfter; monotonic_now() < at) {
        if (dial.timer != 0 && at < dial.again_at) try_again_at(dial, at);
        if (peer.timer != 0 && at < peer.again_at) try_again_at(key, peer, at);
        return;
    }
    if (dial.timer != 0) peer.waiting.push_back(id);
    engine_.loop().forget(std::exchange(dial.timer, 0));
    engine_.loop().forget(std::exchange(peer.timer, 0));
    go_on(key);
}

// Nothing comes of its descriptor any more.
void GidDialer::quiet(Dial& dial) noexcept {
    engine_.loop().forget(std::exchange(dial.token, 0));
    engine_.loop().forget(std::exchange(dial.timer, 0));
    if (std::exchange(dial.connecting, false)) {
        --peers_.find(key_of(dial.target))->second.connecting;
    }
}

void GidDialer::stop(Dial& dial) noexcept {
    quiet(dial);
    if (dial.fd >= 0) close(std::exchange(dial.fd, -1));
}

void GidDialer::go_on(const PeerKey& key) {
    for (int tried = 0;; ++tried) {
        const auto found = peers_.find(key);
        if (found == peers_.end()) return;
        Peer& peer = found->second;
        if (peer.waiting.empty() || peer.timer != 0) return;
        // On this host each may have connected by now: what else the loop has goes between.
        if (tried == kAtOnce) return try_again_at(key, peer, monotonic_now());
        if (peer.connecting >= (peer.there ? kAtOnce : 1)) return;
        const auto next = dials_.find(peer.waiting.front());
        peer.waiting.pop_front();
        if (next == dials_.end()) continue;  // for want of memory it was never there
        Dial& dial = *next->second;
        start(dial);
    }
}

void GidDialer::start(Dial& dial) {
    dial.started = monotonic_now();
    dial.attempt = random_u32();
    dial.greeting = encode({.kind = dial.target.kind,
                            .from = dial.target.from,
                            .to = dial.target.to,
                            .attempt = dial.attempt,
                            .both_ways = dial.target.both_ways});
    dial.connecting = true;
    ++peers_.find(key_of(dial.target))->second.connecting;
    if (!open(dial)) return unreachable(dial, errno);
    // On this host it is connected already.
    if (!send_request(dial)) wait_connected(dial);
}

// False with errno.
bool GidDialer::open(Dial& dial) {
    sockaddr_storage own, peer;
    if (!address_of(dial.target.own, 0, own) ||
        !address_of(dial.target.peer, port_in(dial.target.to), peer)) {
        errno = EADDRNOTAVAIL;
        return false;
    }
    const auto* const from = reinterpret_cast<const sockaddr*>(&own);
    const auto* const to = reinterpret_cast<const sockaddr*>(&peer);
    dial.fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (dial.fd < 0) return false;
    const int on = 1;
    // The peer takes the connection for its QP only if it comes from the address that it was told.
    setsockopt(dial.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(dial.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(dial.fd, from, length_of(from)) != 0) return false;
    return ::connect(dial.fd, to, length_of(to)) == 0 || errno == EINPROGRESS;
}

void GidDialer::wait_connected(Dial& dial) {
    dial.timer = engine_.loop().at(monotonic_now() + kConnectLimit, [this, &dial] {
        dial.timer = 0;
        unreachable(dial, ETIMEDOUT);
    });
    dial.token = engine_.loop().watch(dial.fd, Loop::kWritable,
                                      [this, &dial](unsigned) { on_connected(dial); });
    if (dial.token == 0) unreachable(dial, errno);
}

// The process cannot be reached: the pause is for all that want to.
void GidDialer::unreachable(Dial& dial, int error) {
    if (!std::exchange(dial.told, true)) {
        log(LogLevel::info, "gid-dial", "QP 0x%06x: %s: %s; trying again", dial.target.from,
            dial.text().c_str(), std::strerror(error));
    }
    const PeerKey key = key_of(dial.target);
    stop(dial);
    Peer& peer = peers_.find(key)->second;
    peer.there = false;
    peer.pause = longer(peer.pause);
    peer.waiting.push_back(dial.target.id);
    if (peer.timer == 0) try_again_at(key, peer, monotonic_now() + peer.pause);
}

void GidDialer::try_again_at(const PeerKey& key, Peer& peer, Time at) {
    const Loop::Token made = engine_.loop().at(at, [this, key] {
        const auto found = peers_.find(key);
        if (found == peers_.end()) return;
        found->second.timer = 0;
        go_on(key);
    });
    engine_.loop().forget(std::exchange(peer.timer, made));
    peer.again_at = at;
}

void GidDialer::try_again_at(Dial& dial, Time at) {
    const Loop::Token made = engine_.loop().at(at, [this, &dial] {
        dial.timer = 0;
        const PeerKey key = key_of(dial.target);
        peers_[key].waiting.push_back(dial.target.id);
        go_on(key);
    });
    engine_.loop().forget(std::exchange(dial.timer, made));
    dial.again_at = at;
}

// The process is there, and its QP is not, or not ours.
void GidDialer::again_later(Dial& dial, const std::string& why) {
    if (!std::exchange(dial.told, true)) {
        log(LogLevel::info, "gid-dial", "QP 0x%06x: %s, QP 0x%06x: %s; trying again",
            dial.target.from, dial.text().c_str(), dial.target.to, why.c_str());
    }
    stop(dial);
    dial.pause = longer(dial.pause);
    try_again_at(dial, monotonic_now() + dial.pause);
}

void GidDialer::on_connected(Dial& dial) {
    const PeerKey key = key_of(dial.target);
    engine_.loop().forget(std::exchange(dial.token, 0));
    engine_.loop().forget(std::exchange(dial.timer, 0));
    if (!send_request(dial)) return unreachable(dial, EAGAIN);  // its buffer is new, and empty
    go_on(key);
}

// False: it is not connected yet. True, too, if it cannot be: then it is dialed again.
bool GidDialer::send_request(Dial& dial) {
    const mpa::Startup startup = initiator(dial.attr());
    const ConstBytes request = startup.tx();
    const ssize_t n = send(dial.fd, request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    if (n != static_cast<ssize_t>(request.size())) {
        unreachable(dial, n < 0 ? errno : EAGAIN);
        return true;
    }
    dial.token =
        engine_.loop().watch(dial.fd, Loop::kReadable | Loop::kPeerFinished,
                             [this, &dial](unsigned readiness) { on_reply(dial, readiness); });
    if (dial.token == 0) {
        again_later(dial, std::strerror(errno));
        return true;
    }
    // The Reply may take as long as the peer's program: that its host is there TCP finds out.
    const int on = 1;
    setsockopt(dial.fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    Peer& peer = peers_.find(key_of(dial.target))->second;
    dial.connecting = false;
    --peer.connecting;
    peer.there = true;
    peer.pause = 0;
    return true;
}

void GidDialer::on_reply(Dial& dial, unsigned readiness) {
    std::array<std::byte, sizeof(mpa_frame) + MPA_PD_MAX> bytes;
    const ssize_t n = recv(dial.fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        again_later(dial, n == 0 ? "it has closed the connection" : std::strerror(errno));
        return;
    }
    const auto have = static_cast<std::size_t>(n);
    Greeting reply;
    switch (dial.answer(ConstBytes(bytes).first(have), reply)) {
        case Answer::incomplete:
            if ((readiness & Loop::kPeerFinished) == 0) {
                expect_more_than(dial.fd, have);
            } else {
                again_later(dial, "it has closed the connection");
            }
            return;
        case Answer::refused:
            if (reply.refusal == GreetingRefusal::already_connected && dial.target.both_ways &&
                reply.attempt != dial.attempt) {
                const std::uint64_t id = dial.target.id;
                if (named_(id, reply.attempt)) return forget(id);
                if (dial.missed == 0) dial.missed = dial.started;
                if (monotonic_now() - dial.missed >= kMissLimit) {
                    dial.target.both_ways = false;
                    dial.pause = 0;
                }
            }
            again_later(dial, text_of(reply.refusal));
            return;
        case Answer::wrong:
            again_later(dial, "its answer is none of an xsock");
            return;
        case Answer::accepted:
            break;
    }
    expect_more_than(dial.fd, 0);
    const std::uint64_t id = dial.target.id;
    const std::unique_ptr<Dial> done = remove(id);
    Accepted accepted{id, std::exchange(done->fd, -1), done->attr(),
                      done->target.both_ways && reply.both_ways, reply.attempt};
    accepted.attr.request_sent = true;
    handler_(accepted);
}

}  // namespace xsock::verbs
