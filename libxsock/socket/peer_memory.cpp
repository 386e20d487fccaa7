// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/peer_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace xsock::sockets {

bool PeerMemory::holds(const IpEndpoint& peer, const Place& place, Time now) const noexcept {
    const Found* const known = find(peer);
    return known != nullptr && !known->is_wrong && place.network != 0 && known->place == place &&
           now - known->at < kHolds;
}

bool PeerMemory::found(const IpEndpoint& peer, std::uint64_t cookie, const Place& place,
                       Time now) noexcept {
    Found* known = find(peer);
    if (known == nullptr) {
        known = &found_[next_to_go_];
        next_to_go_ = (next_to_go_ + 1) % found_.size();
        used_ = std::min(used_ + 1, found_.size());
        *known = {};
    }
    const bool is_wrong = known->is_wrong && known->cookie == cookie;
    *known = {peer, cookie, place, now, is_wrong};
    return !is_wrong;
}

void PeerMemory::found_none(const IpEndpoint& peer, const Place& place, Time now) noexcept {
    none_ = {peer, 0, place, now, false};
}

bool PeerMemory::has_none(const IpEndpoint& peer, const Place& place, Time now) const noexcept {
    return place.network != 0 && none_.peer == peer && none_.place == place &&
           now - none_.at < kNoneHolds;
}

bool PeerMemory::mark_wrong(const IpEndpoint& peer) noexcept {
    Found* const known = find(peer);
    if (known == nullptr || known->is_wrong) return false;
    known->is_wrong = true;
    return true;
}

const PeerMemory::Found* PeerMemory::find(const IpEndpoint& peer) const noexcept {
    const auto end = found_.begin() + static_cast<std::ptrdiff_t>(used_);
    const auto at =
        std::find_if(found_.begin(), end, [&](const Found& f) { return f.peer == peer; });
    return at != end ? &*at : nullptr;
}

PeerMemory::Found* PeerMemory::find(const IpEndpoint& peer) noexcept {
    return const_cast<Found*>(std::as_const(*this).find(peer));
}

}  // namespace xsock::sockets
