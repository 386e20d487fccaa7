// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The options of SOL_XSOCK as one value: what accepted sockets inherit, and what start-up is made
// from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/device.hpp"
#include "include/xsock/xsock.h"

namespace xsock::sockets {

struct Options {
    int mode = DDPMODE_OFF;
    int role = XSOCK_ROLE_AUTO;
    int require = 0;
    int crc = 1;
    int markers = 0;
    int revision = 2;
    int rtr = 0;
    int ird = kDefaultReads, ord = kDefaultReads;
    int fpdu_limit = 0;
    int shm = XSOCK_SHM_DEFAULT;
    int kernel = XSOCK_KERNEL_DEFAULT;
    int sq_depth = 128, rq_depth = 128;
    int buffer_count = 1024;
    int buffer_size = 1 << 20;
    int inline_limit = XSOCK_MAX_INLINE;
    int startup_ms = 10'000, user_timeout_ms = 30'000, keepalive_s = 60, linger_ms = 5000;
    std::vector<std::byte> private_data;
    /// Of a byte stream, as the kernel's socket had them at the start.
    struct Stream {
        std::uint64_t send_bytes = 256 * 1024;
        std::uint64_t receive_bytes = 4 << 20;
        int nodelay = 0, cork = 0, oob_inline = 0, receive_low = 1;
    } stream;

    /// An int option by its number (DDPMODE and DDPSTATUS are none of these). ENOPROTOOPT: unknown;
    /// EINVAL: out of range.
    [[nodiscard]] Result<void> set(int name, int value);
    [[nodiscard]] Result<int> get(int name) const;

    /// accept() returns connections only that have started: what ends up on plain TCP, or may not
    /// stay on TCP or at user level, is closed.
    [[nodiscard]] bool requires_ddp() const noexcept {
        return require != 0 || shm == XSOCK_SHM_REQUIRE || kernel == XSOCK_KERNEL_REQUIRE;
    }
    [[nodiscard]] QpAttr qp_attr() const;
    /// Refers to private_data.
    [[nodiscard]] ConnectAttr connect_attr() const;
    [[nodiscard]] Time startup_limit() const {
        return Time{static_cast<unsigned>(startup_ms)} * kMillisecond;
    }
    [[nodiscard]] Time linger_limit() const {
        return Time{static_cast<unsigned>(linger_ms)} * kMillisecond;
    }
};

}  // namespace xsock::sockets
