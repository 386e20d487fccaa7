// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_table.hpp"

#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "transport/log.hpp"
#include "verbs/addresses.hpp"
#include "verbs/device_profile.hpp"

namespace xsock::verbs {
namespace {

std::vector<std::string> interfaces_wanted() {
    const char* const value = std::getenv("XSOCK_VERBS_INTERFACES");
    if (value == nullptr || *value == '\0') return {};
    std::vector<std::string> names = parse_interfaces(value);
    if (names.empty()) {
        log(LogLevel::error, "bad-setting",
            "XSOCK_VERBS_INTERFACES=%s is no list of interfaces; ignored", value);
    }
    return names;
}

GidList roce_gids() {
    const char* const tree = std::getenv("XSOCK_VERBS_TREE");
    if (tree != nullptr && *tree != '\0') {
        auto read = read_gids(tree);
        if (read) return std::move(*read);
        log(LogLevel::error, "bad-setting", "XSOCK_VERBS_TREE=%s: %s; ignored", tree,
            read.error().what);
    }
    return local_gids(interfaces_wanted());
}

}  // namespace

const GidTable& DeviceGids::get() {
    if (frozen_) return table_;
    GidTable made;
    if (device_profile().frozen_gids) {
        for (const GidEntry& entry : roce_gids()) {
            DeviceGid& gid = made.emplace_back();
            std::copy(entry.gid.begin(), entry.gid.end(), gid.gid.raw);
            gid.interface = if_nametoindex(entry.interface.c_str());
        }
        frozen_ = !made.empty();  // for want of descriptors or memory it may be
    } else {
        for (const LocalAddress& address : local_addresses()) {
            made.push_back({gid_of(address.address), address.interface});
        }
    }
    table_ = std::move(made);
    return table_;
}

bool address_of(const ibv_gid& gid, std::uint16_t port, sockaddr_storage& to) noexcept {
    in6_addr v6{};
    std::memcpy(&v6, gid.raw, sizeof v6);
    to = {};
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        auto& address = reinterpret_cast<sockaddr_in&>(to);
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        std::memcpy(&address.sin_addr, gid.raw + 12, 4);
        const std::uint32_t host = ntohl(address.sin_addr.s_addr);
        return !IN_MULTICAST(host) && host != INADDR_BROADCAST && host != INADDR_ANY;
    }
    auto& address = reinterpret_cast<sockaddr_in6&>(to);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = v6;
    return !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_UNSPECIFIED(&v6) &&
           !IN6_IS_ADDR_LINKLOCAL(&v6);
}

}  // namespace xsock::verbs
