// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/bootstrap.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/startup.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr Time kWaitForQp = 60 * kSecond;
constexpr Time kPause = 100 * kMillisecond;
constexpr std::size_t kArrivedMax = 1024;
constexpr std::array<unsigned char, 6> kGidPrefix = {0xfd, 'x', 's', 'o', 'c', 'k'};
constexpr char kMagic[8] = {'x', 's', 'o', 'c', 'k', 'G', 'I', 'D'};
constexpr std::size_t kDataBytes = sizeof kMagic + 8;  // and two QP numbers: ours, the target's

void close_if_open(int& fd) noexcept {
    if (fd >= 0) close(fd);
    fd = -1;
}

// As InfiniBand's: what has completed is at the peer, and that the peer is gone only a Send
// notices.
ConnectAttr attr_of(const VerbsState& engine, std::span<const std::byte> private_data) {
    ConnectAttr attr;
    attr.acknowledged = engine.acknowledge != VerbsState::Acknowledge::never;
    attr.outlives_peer = true;
    attr.ird = attr.ord = kMaxReads;
    attr.private_data = private_data;
    return attr;
}

}  // namespace

struct Bootstrap::Dialing {
    int fd = -1;
    Loop::Token token = 0, timer = 0;
    std::uint32_t target = 0;
    ~Dialing() { close_if_open(fd); }
};

struct Bootstrap::Arrived {
    int fd = -1;
    Loop::Token token = 0, timer = 0;
    bool read = false;
    std::uint32_t from = 0, target = 0;  // QP numbers
    ~Arrived() { close_if_open(fd); }
};

std::unique_ptr<Bootstrap> Bootstrap::create(VerbsState& engine) {
    auto made = std::make_unique<Bootstrap>();
    sockaddr_in any{};
    any.sin_family = AF_INET;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    socklen_t size = sizeof any;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || ::bind(fd, address, size) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, address, &size) != 0) {
        log(LogLevel::error, "gid-bootstrap", "cannot listen: %s", std::strerror(errno));
        if (fd >= 0) close(fd);
        return nullptr;
    }
    made->listen_fd_ = fd;
    made->port_ = ntohs(any.sin_port);
    made->listen_token_ = engine.loop().watch(
        fd, Loop::kReadable, [&engine, b = made.get()](unsigned) { b->accept_some(engine); });
    return made;
}

std::vector<LocalAddress> Bootstrap::usable(std::vector<LocalAddress> all) const {
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const LocalAddress& a) { return a.address.ss_family != AF_INET; }),
              all.end());
    return all;
}

ibv_gid Bootstrap::gid_of(const sockaddr_storage& address) const noexcept {
    ibv_gid gid{};
    std::copy(kGidPrefix.begin(), kGidPrefix.end(), gid.raw);
    gid.raw[6] = static_cast<std::uint8_t>(port_ >> 8);
    gid.raw[7] = static_cast<std::uint8_t>(port_);
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return gid;
}

int Bootstrap::connect(VerbsState& engine, Qp& qp) {
    const auto& dgid = qp.asked.ah_attr.grh.dgid;
    if (!std::equal(kGidPrefix.begin(), kGidPrefix.end(), dgid.raw)) {
        log(LogLevel::error, "gid-bootstrap",
            "the peer's GID is not one of xsock's with XSOCK_VERBS_GID=1; use rdma_cm");
        return EOPNOTSUPP;
    }
    const std::uint16_t port = load_be16(reinterpret_cast<const std::byte*>(dgid.raw + 6));
    const auto ours = std::pair(port_, qp.num()), theirs = std::pair(port, qp.asked.dest_qp_num);
    if (ours == theirs) return EOPNOTSUPP;  // a QP connected to itself
    if (theirs < ours) {
        match(engine, qp);  // the lower one dials
        return 0;
    }
    auto dialing = std::make_shared<Dialing>();
    dialing->target = qp.asked.dest_qp_num;
    dialing->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (dialing->fd < 0) return errno;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, dgid.raw + 12, 4);
    if (::connect(dialing->fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 &&
        errno != EINPROGRESS) {
        return errno;
    }
    const std::uint32_t num = qp.num();
    // Watched last: a watch must not outlive its descriptor, and what comes before may throw.
    dialing->timer = engine.loop().at(monotonic_now() + kConnectTimeout, [this, &engine, num] {
        const auto found = engine.qps.find(num);
        const auto mine = dialing_.find(num);
        if (mine != dialing_.end()) {
            engine.loop().forget(mine->second->token);
            dialing_.erase(mine);
        }
        if (found != engine.qps.end()) fail_qp_locked(engine, *found->second);
    });
    dialing_[num] = dialing;
    dialing->token = engine.loop().watch(dialing->fd, Loop::kWritable,
                                         [this, &engine, num](unsigned) { dial(engine, num); });
    if (dialing->token != 0) return 0;
    const int error = errno;
    engine.loop().forget(dialing->timer);
    dialing_.erase(num);
    return error;
}

void Bootstrap::dial(VerbsState& engine, std::uint32_t num) {
    const auto mine = dialing_.find(num);
    if (mine == dialing_.end()) return;
    const std::shared_ptr<Dialing> dialing = mine->second;
    dialing_.erase(mine);
    engine.loop().forget(dialing->token);
    engine.loop().forget(dialing->timer);
    const auto found = engine.qps.find(num);
    if (found == engine.qps.end()) return;
    Qp& qp = *found->second;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(dialing->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0) {
        std::array<std::byte, kDataBytes> data;
        std::memcpy(data.data(), kMagic, sizeof kMagic);
        store_be32(data.data() + 8, num);
        store_be32(data.data() + 12, dialing->target);
        ConnectAttr attr = attr_of(engine, data);
        attr.role = ConnectAttr::Role::initiator;
        attr.rtr = mpa::kRtrWrite;
        const ibv_qp_state state = qp.state.load();
        const auto r = connect_qp_locked(engine, qp, dialing->fd, attr);
        qp.state.store(state);  // the program moves it to RTS
        qp.base.qp_base.state = state;
        if (r) {
            dialing->fd = -1;
            return;
        }
        error = r.error().code;
    }
    log(LogLevel::error, "gid-bootstrap", "connecting QP %u: %s", num, std::strerror(error));
    fail_qp_locked(engine, qp);
}

void Bootstrap::accept_some(VerbsState& engine) {
    for (;;) {
        const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            // No descriptors, or no memory: it would be called again and again.
            if (errno != EAGAIN) engine.loop().pause(listen_token_, kPause);
            return;
        }
        if (arrived_.size() >= kArrivedMax) {
            // The connection that has been silent for longest is dropped.
            const auto silent = std::find_if(arrived_.begin(), arrived_.end(),
                                             [](const auto& entry) { return !entry.second->read; });
            if (silent == arrived_.end()) {
                close(fd);
                continue;
            }
            drop(engine, silent->first);
        }
        const std::uint64_t number = ++numbers_;
        auto arrived = std::make_shared<Arrived>();
        arrived->fd = fd;
        // Watched last: a watch must not outlive its descriptor, and what comes before may throw.
        arrived->timer = engine.loop().at(monotonic_now() + kWaitForQp,
                                          [this, &engine, number] { drop(engine, number); });
        arrived_.emplace(number, arrived);
        arrived->token = engine.loop().watch(
            fd, Loop::kReadable | Loop::kPeerFinished,
            [this, &engine, number](unsigned ready) { on_bytes(engine, number, ready); });
        if (arrived->token == 0) drop(engine, number);
    }
}

void Bootstrap::drop(VerbsState& engine, std::uint64_t number) {
    const auto found = arrived_.find(number);
    if (found == arrived_.end()) return;
    engine.loop().forget(found->second->token);
    engine.loop().forget(found->second->timer);
    arrived_.erase(found);
}

void Bootstrap::on_bytes(VerbsState& engine, std::uint64_t number, unsigned readiness) {
    const auto found = arrived_.find(number);
    if (found == arrived_.end() || found->second->read) return;
    Arrived& arrived = *found->second;
    std::array<std::byte, sizeof(mpa_frame) + sizeof(mpa_enhanced) + kDataBytes> bytes;
    const ssize_t n = recv(arrived.fd, bytes.data(), bytes.size(), MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0 && static_cast<std::size_t>(n) < bytes.size() &&
        (readiness & Loop::kPeerFinished) == 0) {
        expect_more_than(arrived.fd, static_cast<std::size_t>(n));
        return;
    }
    const std::byte* const data = bytes.data() + sizeof(mpa_frame) + sizeof(mpa_enhanced);
    if (n != std::ssize(bytes) || std::memcmp(bytes.data(), MPA_KEY_REQUEST, MPA_KEY_OCTETS) != 0 ||
        std::memcmp(data, kMagic, sizeof kMagic) != 0) {
        drop(engine, number);
        return;
    }
    expect_more_than(arrived.fd, 0);
    arrived.read = true;
    arrived.from = load_be32(data + 8);
    arrived.target = load_be32(data + 12);
    engine.loop().forget(arrived.token);
    if (const auto qp = engine.qps.find(arrived.target); qp != engine.qps.end()) {
        match(engine, *qp->second);
    }
}

void Bootstrap::match(VerbsState& engine, Qp& qp) {
    if (qp.connected() || qp.asked.dest_qp_num == 0) return;
    for (auto& [number, arrived] : arrived_) {
        if (!arrived->read || arrived->target != qp.num() ||
            arrived->from != qp.asked.dest_qp_num) {
            continue;
        }
        ConnectAttr attr = attr_of(engine, {});
        attr.role = ConnectAttr::Role::responder;
        const ibv_qp_state state = qp.state.load();
        const auto r = connect_qp_locked(engine, qp, arrived->fd, attr);
        qp.state.store(state);
        qp.base.qp_base.state = state;
        if (r) arrived->fd = -1;
        drop(engine, number);
        return;
    }
}

void Bootstrap::forget(Qp& qp) {
    const auto mine = dialing_.find(qp.num());
    if (mine == dialing_.end()) return;
    qp.engine->loop().forget(mine->second->token);
    qp.engine->loop().forget(mine->second->timer);
    dialing_.erase(mine);
}

}  // namespace xsock::verbs
