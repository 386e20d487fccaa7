// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_listener.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/once.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/startup.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/engine.hpp"
#include "verbs/peer_owner.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kRequestTimeout = 10 * kSecond;
constexpr Time kPause = 100 * kMillisecond;
constexpr Time kPauseWhenFull = 20 * kMillisecond;
constexpr int kAcceptsPerTurn = 64;
constexpr std::size_t kRequestMax = sizeof(mpa_frame) + MPA_PD_MAX;
using RequestBytes = std::array<std::byte, kRequestMax>;

// Is a dialer that is another user of this machine let in?
bool any_user() noexcept {
    static constinit Once<bool> any;
    return any.get([] {
        const char* const value = std::getenv("XSOCK_VERBS_PEER_USERS");
        if (value == nullptr || *value == '\0') return false;
        if (std::strcmp(value, "any") == 0) return true;
        log(LogLevel::error, "bad-setting", "XSOCK_VERBS_PEER_USERS=%s is not any; ignored", value);
        return false;
    });
}

mpa::Startup responder(ConstBytes request) {
    mpa::Startup startup({.role = mpa::Role::responder, .defer_reply = true});
    startup.begin(0);
    startup.rx(request);
    return startup;
}

sockaddr_storage peer_of(int fd) noexcept {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size);
    return peer;
}

void write_rejection(int fd, const Greeting& asked, GreetingRefusal why, std::uint32_t attempt) {
    RequestBytes bytes;
    // Read, so that closing does not reset the connection ahead of what is written.
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n <= 0) return;
    mpa::Startup startup = responder(ConstBytes(bytes).first(static_cast<std::size_t>(n)));
    const auto answer = encode({.kind = GreetingKind::rejected,
                                .refusal = why,
                                .from = asked.to,
                                .to = asked.from,
                                .attempt = attempt});
    if (!startup.reject(answer)) return;
    const ConstBytes reply = startup.tx();
    (void)!send(fd, reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

GreetedConnection::GreetedConnection(GreetedConnection&& from) noexcept
    : fd(std::exchange(from.fd, -1)), greeting(from.greeting), peer(from.peer) {}

GreetedConnection& GreetedConnection::operator=(GreetedConnection&& from) noexcept {
    std::swap(fd, from.fd);
    greeting = from.greeting;
    peer = from.peer;
    return *this;
}

GreetedConnection::~GreetedConnection() {
    if (fd >= 0) close(fd);
}

void GreetedConnection::reject(GreetingRefusal why, std::optional<std::uint32_t> name) noexcept {
    if (fd < 0) return;
    try {
        write_rejection(fd, greeting, why, name.value_or(greeting.attempt));
    } catch (const std::bad_alloc&) {
        // The dialer finds it closed.
    }
    close(std::exchange(fd, -1));
}

struct GidListener::Reading {
    GreetedConnection connection;
    Loop::Token token = 0, timer = 0;
};

GidListener::GidListener(VerbsState& engine, Handler handler)
    : engine_(engine), handler_(std::move(handler)), table_(engine.max_starting) {}

GidListener::~GidListener() = default;

int GidListener::listen(const QpNumbers& numbers) {
    for (; listening_ < numbers.ports().size(); ++listening_) {
        const int fd = numbers.ports()[listening_].fd;
        if (::listen(fd, SOMAXCONN) != 0) return errno;
        auto token = std::make_shared<Loop::Token>(0);
        *token = engine_.loop().watch(fd, Loop::kReadable,
                                      [this, fd, token](unsigned) { accept_some(fd, *token); });
        if (*token == 0) return errno;
    }
    return 0;
}

bool GidListener::make_room(Time min_age) {
    auto* const crowding = static_cast<Reading*>(table_.make_room(monotonic_now(), min_age));
    if (crowding == nullptr) return false;
    ++engine_.refused;
    drop(*crowding);
    return true;
}

void GidListener::accept_some(int listen_fd, Loop::Token token) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        if (table_.should_wait(monotonic_now())) {
            engine_.loop().pause(token, kPauseWhenFull);
            return;
        }
        const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno == EAGAIN) return;
            const int error = errno;
            if (make_room(StartupTable::kMinAge)) continue;
            log(LogLevel::error, "accept-failed", "%s; trying again soon", std::strerror(error));
            engine_.loop().pause(token, kPause);
            return;
        }
        if (table_.full()) make_room();
        read_request(fd);
    }
}

// Out of memory: the connection is closed, and its dialer comes again.
void GidListener::read_request(int fd) {
    GreetedConnection accepted;
    accepted.fd = fd;
    auto made = std::make_unique<Reading>();
    Reading& reading = *made;
    reading.connection = std::move(accepted);
    reading_.emplace(&reading, std::move(made));
    try {
        table_.add(&reading, fd, monotonic_now());
        reading.timer = engine_.loop().at(monotonic_now() + kRequestTimeout, [this, &reading] {
            reading.timer = 0;
            log(LogLevel::warn, "startup-timeout", "no greeting within 10 s; closed");
            ++engine_.refused;
            drop(reading);
        });
        reading.token = engine_.loop().watch(
            fd, Loop::kReadable | Loop::kPeerFinished,
            [this, &reading](unsigned readiness) { on_bytes(reading, readiness); });
        if (reading.token == 0) drop(reading);
    } catch (const std::bad_alloc&) {
        drop(reading);
    }
}

void GidListener::drop(Reading& reading) {
    engine_.loop().forget(reading.token);
    engine_.loop().forget(reading.timer);
    table_.remove_failed(&reading, monotonic_now());
    reading_.erase(&reading);
}

void GidListener::on_bytes(Reading& reading, unsigned readiness) {
    const int fd = reading.connection.fd;
    RequestBytes bytes;
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const std::size_t have = n > 0 ? static_cast<std::size_t>(n) : 0;
    mpa::Startup startup = responder(ConstBytes(bytes).first(have));
    if (have != 0 && startup.state() == mpa::Startup::State::await_request &&
        (readiness & Loop::kPeerFinished) == 0) {
        expect_more_than(fd, have);
        return;
    }
    std::optional<DecodedGreeting> decoded;
    if (startup.state() == mpa::Startup::State::await_decision) {
        decoded = decode(startup.request().private_data);
    }
    const sockaddr_storage peer = peer_of(fd);
    if (!decoded) {
        log(LogLevel::warn, "startup-not-mpa", "%s: no greeting of a QP; connection closed",
            text_of(reinterpret_cast<const sockaddr*>(&peer)).c_str());
        ++engine_.refused;
        drop(reading);
        return;
    }
    expect_more_than(fd, 0);
    GreetedConnection connection = std::move(reading.connection);
    engine_.loop().forget(reading.token);
    engine_.loop().forget(reading.timer);
    table_.remove(&reading);
    reading_.erase(&reading);
    connection.greeting = decoded->greeting;
    connection.peer = gid_of(peer);
    if (decoded->refusal != GreetingRefusal::none ||
        connection.greeting.kind == GreetingKind::rejected) {
        ++engine_.refused;
        connection.reject(decoded->refusal != GreetingRefusal::none ? decoded->refusal
                                                                    : GreetingRefusal::other_kind);
        return;
    }
    if (!any_user() && place_of_peer(connection.fd) == PeerPlace::others) {
        log(LogLevel::warn, "gid-user",
            "%s: a process of another user wants to be the peer of QP 0x%06x; refused "
            "(XSOCK_VERBS_PEER_USERS=any would let it)",
            text_of(reinterpret_cast<const sockaddr*>(&peer)).c_str(), connection.greeting.to);
        ++engine_.refused;
        connection.reject(GreetingRefusal::not_permitted);
        return;
    }
    handler_(std::move(connection));
}

}  // namespace xsock::verbs
