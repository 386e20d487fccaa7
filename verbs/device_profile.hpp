// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What differs between the iWARP device and the one that looks like RoCE, in one table. Everything
// else is the same device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace xsock::verbs {

struct DeviceProfile {
    bool roce;
    ibv_node_type node_type;
    ibv_transport_type transport;
    const char* dev_name;
    const char* dev_path;
    /// ibv_get_device_index(): the kernel's number. UCX asks netlink about a device that has one.
    int index;
    ibv_mtu active_mtu;
    /// The CPU does atomics, so they are atomic also to it (IBV_ATOMIC_GLOB). RoCE cards promise
    /// less, and UCX 1.13 uses none of a device that promises that much.
    ibv_atomic_cap atomic_cap;
    std::uint32_t port_cap_flags;
    std::uint8_t port_flags;
    std::uint32_t gid_type;  ///< ibv_gid_type
    int private_gid_type;    ///< what ibv_query_gid_type() says
    /// The GID table is made once, in the order that gid_table.hpp says; else at each question.
    bool frozen_gids;
    /// What ibv_query_qp() calls a QP that has just been made: siw and RNICs know no RESET.
    ibv_qp_state first_state;
    /// QPs move as InfiniBand's do: with the attributes that qp_state_table.hpp says, and none
    /// sends at RTR. iWARP has no such attributes, and its programs leave them out.
    bool infiniband_states;
    /// rdma_cm says what Linux' says of InfiniBand: reasons of a rejection, private data in a room
    /// of one size, TIMEWAIT_EXIT.
    bool infiniband_cm;
    /// Registering memory that is not there is EFAULT. The iWARP device learns of it later.
    bool checks_memory;
};

/// As XSOCK_VERBS (iwarp, roce) says when this is first called. Any thread.
const DeviceProfile& device_profile() noexcept;

}  // namespace xsock::verbs
