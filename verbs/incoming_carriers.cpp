// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/incoming_carriers.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace xsock::verbs {

HostAddress IncomingCarriers::address_of(const IncomingKey& key) noexcept {
    return host_of(std::as_bytes(std::span(key.peer)));
}

IncomingCarriers::Replaced IncomingCarriers::add(Id id, Carrier carrier, std::size_t limit) {
    const IncomingKey key = carrier.key;
    std::size_t& held = held_[address_of(key)];
    ++held;  // it counts for its own address
    try {
        carriers_.emplace(id, std::move(carrier));
    } catch (...) {
        if (--held == 0) held_.erase(address_of(key));
        throw;
    }
    clock_.fetch_add(1, std::memory_order_relaxed);
    Replaced replaced;
    const auto same = std::find_if(carriers_.begin(), carriers_.end(), [&](const auto& other) {
        return other.first != id && other.second.key == key;
    });
    if (same != carriers_.end()) replaced.same = take(same);
    if (carriers_.size() <= limit) return replaced;
    auto added = carriers_.extract(id);  // it does not make room for itself
    if (const auto idlest = crowding(); idlest != carriers_.end()) replaced.crowding = take(idlest);
    carriers_.insert(std::move(added));
    return replaced;
}

std::shared_ptr<PolledQp> IncomingCarriers::remove(Id id) noexcept {
    const auto found = carriers_.find(id);
    return found != carriers_.end() ? take(found) : nullptr;
}

std::shared_ptr<DatagramCarrier> IncomingCarriers::find(const IncomingKey& key,
                                                        std::uint32_t name) const {
    const auto found = std::find_if(carriers_.begin(), carriers_.end(), [&](const auto& carrier) {
        return carrier.second.key == key && carrier.second.name == name;
    });
    return found != carriers_.end() ? found->second.ends : nullptr;
}

std::shared_ptr<PolledQp> IncomingCarriers::take(Carriers::iterator carrier) noexcept {
    const auto held = held_.find(address_of(carrier->second.key));
    if (--held->second == 0) held_.erase(held);
    std::shared_ptr<PolledQp> connection = std::move(carrier->second.connection);
    carriers_.erase(carrier);
    return connection;
}

IncomingCarriers::Carriers::iterator IncomingCarriers::crowding() noexcept {
    std::size_t most = 0;
    for (const auto& [address, held] : held_) most = std::max(most, held);
    auto idlest = carriers_.end();
    for (auto carrier = carriers_.begin(); carrier != carriers_.end(); ++carrier) {
        // Of the newcomer's own address the others may hold one less, and still be the crowd.
        if (held_.find(address_of(carrier->second.key))->second != most) continue;
        if (idlest == carriers_.end() || *carrier->second.used < *idlest->second.used) {
            idlest = carrier;
        }
    }
    return idlest;
}

}  // namespace xsock::verbs
