// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The GIDs of the device, for queries and for connecting by GID. That of the RoCE-like device is
// made once, when it is first asked for: from the files that `xsock run` has written
// (XSOCK_VERBS_TREE), else from the interfaces (verbs/files/local_gids.hpp). The iWARP device's is
// that of the moment. With the engine's mutex held.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xsock::verbs {

struct DeviceGid {
    ibv_gid gid{};
    unsigned interface = 0;  ///< its index; 0: it is gone
};
using GidTable = std::vector<DeviceGid>;

class DeviceGids {
  public:
    /// Throws std::bad_alloc. Valid until the next call.
    const GidTable& get();

  private:
    GidTable table_;
    bool frozen_ = false;
};

/// The address that a GID is, with `port`; false: it is no unicast address that a peer could have
/// (multicast, unspecified, IPv6 link-local).
[[nodiscard]] bool address_of(const ibv_gid& gid, std::uint16_t port,
                              sockaddr_storage& to) noexcept;

}  // namespace xsock::verbs
