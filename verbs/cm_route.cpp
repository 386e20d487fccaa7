// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The way from an id to its peer, as InfiniBand's programs want it told: an address vector, a path.
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/host_address.hpp"
#include "verbs/addresses.hpp"
#include "verbs/cm.hpp"
#include "verbs/device_profile.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint8_t kWayHopLimit = 64;
constexpr std::uint8_t kExactly = 2;  // selectors of ibv_sa_path_rec
constexpr std::uint8_t kRate = IBV_RATE_100_GBPS;

bool is_v4(const ibv_gid& gid) noexcept { return is_ipv4(std::as_bytes(std::span(gid.raw))); }

bool is_loopback(const ibv_gid& gid) noexcept {
    in6_addr address;
    std::memcpy(&address, gid.raw, sizeof address);
    return is_v4(gid) ? gid.raw[12] == IN_LOOPBACKNET : IN6_IS_ADDR_LOOPBACK(&address);
}

auto find_gid(const GidTable& gids, const ibv_gid& gid) noexcept {
    return std::find_if(gids.begin(), gids.end(), [&](const DeviceGid& each) {
        return std::memcmp(each.gid.raw, gid.raw, sizeof gid.raw) == 0;
    });
}

// The entry that stands for our end: its address, or, of one that is in no table (that of the
// loopback interface beside others), the first of the same family.
std::size_t own_index(const GidTable& gids, const ibv_gid& own) noexcept {
    auto found = find_gid(gids, own);
    if (found == gids.end()) {
        found = std::find_if(gids.begin(), gids.end(),
                             [&](const DeviceGid& each) { return is_v4(each.gid) == is_v4(own); });
    }
    return found != gids.end() ? static_cast<std::size_t>(found - gids.begin()) : 0;
}

}  // namespace

void fill_way(const GidTable& gids, const CmId& id, ibv_ah_attr& way) noexcept {
    sockaddr_storage own{}, peer{};
    way = {};
    way.is_global = 1;
    way.port_num = kPort;
    way.grh.hop_limit = kWayHopLimit;
    if (id.options.tos >= 0) way.grh.traffic_class = static_cast<std::uint8_t>(id.options.tos);
    if (!copy_address(peer, &id.base.route.addr.dst_addr)) return;
    way.grh.dgid = gid_of(peer);
    if (!copy_address(own, &id.base.route.addr.src_addr)) return;
    const std::size_t index = own_index(gids, gid_of(own));
    way.grh.sgid_index = static_cast<std::uint8_t>(index);
    // The peer is on this host, and no queue pair is reached by an address that is no GID.
    if (index < gids.size() && is_loopback(way.grh.dgid) &&
        find_gid(gids, way.grh.dgid) == gids.end()) {
        way.grh.dgid = gids[index].gid;
    }
}

void fill_path(const GidTable& gids, CmId& id) {
    rdma_route& route = id.base.route;
    if (!device_profile().roce || route.path_rec != nullptr) return;
    ibv_ah_attr way;
    fill_way(gids, id, way);
    auto* const path = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
    if (path == nullptr) throw std::bad_alloc();
    path->dgid = way.grh.dgid;
    if (way.grh.sgid_index < gids.size()) path->sgid = gids[way.grh.sgid_index].gid;
    path->hop_limit = way.grh.hop_limit;
    path->traffic_class = way.grh.traffic_class;
    path->reversible = path->numb_path = 1;
    path->pkey = route.addr.addr.ibaddr.pkey;
    path->mtu_selector = path->rate_selector = path->packet_life_time_selector = kExactly;
    path->mtu = static_cast<std::uint8_t>(device_profile().active_mtu);
    path->rate = kRate;
    path->packet_life_time = kPacketLifetime;
    route.path_rec = path;
    route.num_paths = 1;
}

void free_path(CmId& id) noexcept {
    std::free(id.base.route.path_rec);
    id.base.route.path_rec = nullptr;
    id.base.route.num_paths = 0;
}

}  // namespace xsock::verbs
