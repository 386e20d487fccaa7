// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/address_handle.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint32_t kFlowLabelMask = 0xfffff;
constexpr std::uint8_t kHopLimit = 0xff;

/// 0 or an errno. (The LID is not looked at: on Ethernet it means nothing, and programs set it.)
int route_of(VerbsState& engine, ibv_pd* pd, const ibv_ah_attr& attr, Route& route) {
    if (attr.port_num != kPort) return EINVAL;
    const GidTable& gids = engine.gids();
    if (attr.is_global == 0) {
        // RoCE has no such handle. But rsockets make one to their own queue pair, in the domain
        // that ids have, and could send no datagram without it.
        if (pd != engine.own.pd || gids.empty()) return EINVAL;
        route.own = route.peer = octets_of(gids.front().gid);
        return 0;
    }
    sockaddr_storage peer;
    if (attr.grh.sgid_index >= gids.size() || !address_of(attr.grh.dgid, 0, peer)) return EINVAL;
    route.own = octets_of(gids[attr.grh.sgid_index].gid);
    route.peer = octets_of(attr.grh.dgid);
    route.traffic_class = attr.grh.traffic_class;
    route.flow_label = attr.grh.flow_label & kFlowLabelMask;
    return 0;
}

ibv_ah* create_ah_locked(VerbsState& engine, ibv_pd* pd, const ibv_ah_attr& attr) {
    if (!device_profile().roce) return fail<ibv_ah>(EOPNOTSUPP);
    if (!engine.alive(pd, Kind::pd)) return fail<ibv_ah>(EINVAL);
    auto ah = std::make_unique<Ah>();
    if (const int error = route_of(engine, pd, attr, ah->route); error != 0) {
        return fail<ibv_ah>(error);
    }
    ah->number = engine.next_number();
    ah->base.context = pd->context;
    ah->base.pd = pd;
    ah->base.handle = static_cast<std::uint32_t>(ah->number);
    engine.add(ah.get(), Kind::ah);
    ++reinterpret_cast<Pd*>(pd)->users;
    return &ah.release()->base;
}

/// The way back to the sender of a datagram, of which `grh` are the first octets. 0 or an errno.
int route_back(VerbsState& engine, const ibv_wc& wc, const ibv_grh& grh, ibv_ah_attr& attr) {
    if ((wc.wc_flags & IBV_WC_GRH) == 0) return EINVAL;
    const GidTable& gids = engine.gids();
    const auto own = std::find_if(gids.begin(), gids.end(), [&](const DeviceGid& entry) {
        return std::memcmp(entry.gid.raw, grh.dgid.raw, sizeof grh.dgid.raw) == 0;
    });
    if (own == gids.end()) return EINVAL;
    attr = {};
    attr.is_global = 1;
    attr.port_num = kPort;
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.grh.dgid = grh.sgid;
    attr.grh.sgid_index = static_cast<std::uint8_t>(own - gids.begin());
    const std::uint32_t flow = ntohl(grh.version_tclass_flow);
    attr.grh.flow_label = flow & kFlowLabelMask;
    attr.grh.traffic_class = static_cast<std::uint8_t>(flow >> 20);
    attr.grh.hop_limit = kHopLimit;
    return 0;
}

}  // namespace

GidOctets octets_of(const ibv_gid& gid) noexcept {
    GidOctets octets;
    std::copy(std::begin(gid.raw), std::end(gid.raw), octets.begin());
    return octets;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept {
    return locked_object<ibv_ah>(
        [&](VerbsState& engine) { return create_ah_locked(engine, pd, *attr); });
}

int init_ah_from_wc(ibv_context*, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                    ibv_ah_attr* attr) noexcept {
    return locked_cm([&](VerbsState& engine) {
        if (!device_profile().roce) return fail(EOPNOTSUPP);
        if (port != kPort) return fail(EINVAL);
        const int error = route_back(engine, *wc, *grh, *attr);
        return error == 0 ? 0 : fail(error);
    });
}

ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) noexcept {
    ibv_ah_attr attr;
    if (init_ah_from_wc(nullptr, port, wc, grh, &attr) != 0) return nullptr;
    return create_ah(pd, &attr);
}

int destroy_ah(ibv_ah* given) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::ah)) return EINVAL;
        engine.remove(given);
        --reinterpret_cast<Pd*>(given->pd)->users;
        delete reinterpret_cast<Ah*>(given);
        return 0;
    });
}

}  // namespace xsock::verbs
