// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/device_profile.hpp"

#include <cstdlib>
#include <cstring>

#include "base/once.hpp"
#include "transport/log.hpp"

namespace xsock::verbs {
namespace {

constexpr DeviceProfile kIwarp = {
    .roce = false,
    .node_type = IBV_NODE_RNIC,
    .transport = IBV_TRANSPORT_IWARP,
    .dev_name = "xsock0",
    // There is none: programs that look find no such file.
    .dev_path = "/sys/class/infiniband_verbs/xsock0",
    .index = 0,
    .active_mtu = IBV_MTU_1024,
    .atomic_cap = IBV_ATOMIC_GLOB,
    .port_cap_flags = 0,
    .port_flags = 0,
    .gid_type = IBV_GID_TYPE_IB,
    .private_gid_type = 0,  // neither RoCE v1 nor v2
    .frozen_gids = false,
    .first_state = IBV_QPS_INIT,
    .infiniband_states = false,
    .infiniband_cm = false,
    .checks_memory = false,
};

constexpr std::uint32_t kCmSupported = 1u << 16, kIpBasedGids = 1u << 26;

constexpr DeviceProfile kRoce = {
    .roce = true,
    .node_type = IBV_NODE_CA,
    .transport = IBV_TRANSPORT_IB,
    .dev_name = "uverbs0",  // of /dev/infiniband
    .dev_path = "/sys/class/infiniband_verbs/uverbs0",
    .index = -1,
    .active_mtu = IBV_MTU_4096,
    .atomic_cap = IBV_ATOMIC_HCA,
    .port_cap_flags = kCmSupported | kIpBasedGids,
    .port_flags = IBV_QPF_GRH_REQUIRED,
    .gid_type = IBV_GID_TYPE_ROCE_V2,
    .private_gid_type = 1,  // IBV_GID_TYPE_SYSFS_ROCE_V2
    .frozen_gids = true,
    .first_state = IBV_QPS_RESET,
    .infiniband_states = true,
    .infiniband_cm = true,
    .checks_memory = true,
};

const DeviceProfile& chosen() noexcept {
    const char* const value = std::getenv("XSOCK_VERBS");
    if (value == nullptr || *value == '\0' || std::strcmp(value, "iwarp") == 0) return kIwarp;
    if (std::strcmp(value, "roce") == 0) return kRoce;
    log(LogLevel::error, "bad-setting", "XSOCK_VERBS=%s is neither iwarp nor roce; ignored", value);
    return kIwarp;
}

}  // namespace

const DeviceProfile& device_profile() noexcept {
    static constinit Once<const DeviceProfile*> profile;
    return *profile.get([] { return &chosen(); });
}

}  // namespace xsock::verbs
