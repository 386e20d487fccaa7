// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/startup_table.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/stats.hpp"

namespace xsock {
namespace {

constexpr Time kLogInterval = 60 * kSecond;
constexpr std::size_t kLoggedMax = 1024;  // addresses

}  // namespace

StartupTable::StartupTable(std::size_t capacity)
    : capacity_(std::min(capacity, std::max<std::size_t>(1, descriptor_limit() / 2))) {}

HostAddress StartupTable::address_of(const sockaddr& peer) noexcept {
    in6_addr address{};
    if (peer.sa_family == AF_INET) {
        address.s6_addr[10] = address.s6_addr[11] = 0xff;
        std::memcpy(&address.s6_addr[12], &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, 4);
    } else if (peer.sa_family == AF_INET6) {
        address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    }
    return host_of(std::as_bytes(std::span(address.s6_addr)));
}

StartupTable::Rank StartupTable::rank_of(const HostAddress& address,
                                         const Starts& starts) noexcept {
    return {starts.size(), starts.begin()->first, address};
}

void StartupTable::add(Id id, int fd, Time now) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size);  // one that has gone: no address
    add(id, reinterpret_cast<const sockaddr&>(peer), now);
}

void StartupTable::add(Id id, const sockaddr& peer, Time now) {
    const HostAddress address = address_of(peer);
    const std::uint64_t number = ++numbers_;
    places_.emplace(id, Place{address, number});
    try {
        Starts& starts = addresses_[address];
        if (starts.empty()) {
            ranks_.insert(Rank{1, number, address});
            starts.emplace(number, Start{id, now});
            return;
        }
        const Rank before = rank_of(address, starts);
        starts.emplace(number, Start{id, now});
        auto node = ranks_.extract(before);
        node.value() = rank_of(address, starts);
        ranks_.insert(std::move(node));
    } catch (...) {
        places_.erase(id);
        if (const auto found = addresses_.find(address);
            found != addresses_.end() && found->second.empty()) {
            ranks_.erase(Rank{1, number, address});
            addresses_.erase(found);
        }
        throw;
    }
}

bool StartupTable::remove(Id id) noexcept {
    const auto found = places_.find(id);
    if (found == places_.end()) return false;
    erase(found->second.address, found->second.number);
    places_.erase(found);
    return true;
}

bool StartupTable::remove_failed(Id id, Time now) noexcept {
    const auto found = places_.find(id);
    if (found == places_.end()) return false;
    if (full() && !found->second.makes_room) crowded_until_ = time_after(now, kCrowdTime);
    return remove(id);
}

void StartupTable::clear() noexcept {
    addresses_.clear();
    ranks_.clear();
    places_.clear();
}

void StartupTable::erase(const HostAddress& address, std::uint64_t number) noexcept {
    const auto found = addresses_.find(address);
    Starts& starts = found->second;
    auto node = ranks_.extract(rank_of(address, starts));
    starts.erase(number);
    if (starts.empty()) {
        addresses_.erase(found);
        return;
    }
    node.value() = rank_of(address, starts);
    ranks_.insert(std::move(node));
}

const StartupTable::Start& StartupTable::next_to_go() const noexcept {
    return addresses_.find(ranks_.begin()->address)->second.begin()->second;
}

bool StartupTable::should_wait(Time now) const noexcept {
    return full() && ranks_.size() == 1 && now >= crowded_until_ &&
           now - next_to_go().since < kMinAge;
}

StartupTable::Id StartupTable::make_room(Time now, Time min_age) noexcept {
    if (ranks_.empty()) return nullptr;
    const Start& oldest = next_to_go();
    const Time age = now - oldest.since;
    if (age < min_age) return nullptr;
    if (age >= kMinAge) crowded_until_ = time_after(now, kCrowdTime);
    places_.find(oldest.id)->second.makes_room = true;
    count_startup_dropped();
    try {
        report(*ranks_.begin(), now);
    } catch (const std::bad_alloc&) {
        return oldest.id;  // without a line
    }
    return oldest.id;
}

void StartupTable::report(const Rank& rank, Time now) {
    if (closed_.size() >= kLoggedMax) {
        std::erase_if(closed_,
                      [&](const auto& c) { return now - c.second.logged >= kLogInterval; });
    }
    if (closed_.size() >= kLoggedMax && closed_.count(rank.address) == 0) return;
    const auto [found, added] = closed_.try_emplace(rank.address, Closed{now, 0});
    Closed& closed = found->second;
    ++closed.since_logged;
    if (!added && now - closed.logged < kLogInterval) return;
    const bool v4 = is_ipv4(rank.address);
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(v4 ? AF_INET : AF_INET6, rank.address.data() + (v4 ? kIpv4Mapped.size() : 0), text,
              sizeof text);
    log(LogLevel::warn, "startup-crowded",
        "%s%s: holds %zu of %zu connections whose start-up has not ended; its oldest make room for "
        "new ones (%llu closed since the last such line)",
        text, v4 ? "" : "/64", rank.held, places_.size(),
        static_cast<unsigned long long>(closed.since_logged));
    closed = {now, 0};
}

}  // namespace xsock
