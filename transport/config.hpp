// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the environment says (XSOCK_*), read once when the device is made. A value that makes no
// sense is reported once and the default stays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/device.hpp"

namespace xsock {

class KernelCalls;

enum class ProgressMode : std::uint8_t {
    app,     ///< only calls that poll or wait; no thread is ever made
    thread,  ///< only the threads poll
    both,    ///< calls that poll or wait; threads poll when no call does
};

struct TransportConfig {
    ProgressMode progress = ProgressMode::both;  ///< XSOCK_PROGRESS=app|thread|both
    unsigned threads = 1;                        ///< XSOCK_THREADS, 1 to 64
    unsigned socket_groups = 1;                  ///< progresses that sockets may spread over
    std::vector<int> cpus;                       ///< XSOCK_CPUS=0,2-3: affinity of the threads
    Time spin = 50'000;                          ///< XSOCK_SPIN_US: longest spin before blocking
    Time rnr_timeout = kSecond;                  ///< XSOCK_RNR_MS; 0: no Send waits
    Time peer_silence = kNever;       ///< XSOCK_PEER_SILENT_MS; kNever: as each connection says
    std::size_t copy_limit = 4096;    ///< XSOCK_COPY_LIMIT: bytes copied beside a header
    bool snapshot = false;            ///< XSOCK_SNAPSHOT=0|1: QpAttr::snapshot for all
    std::uint32_t fpdu_limit = 0;     ///< XSOCK_FPDU_LIMIT: largest ULPDU; 0: no limit
    bool extensions = true;           ///< XSOCK_EXTENSIONS=0|1: extension frames toward xsocks
    bool short_rto = true;            ///< XSOCK_SHORT_RTO=0|1: loss_recovery.hpp, between xsocks
    std::size_t max_starting = 4096;  ///< XSOCK_MAX_STARTING: start-ups a listener
    std::string congestion;           ///< XSOCK_CONGESTION: TCP's control; empty: the system's
    /// XSOCK_KERNEL=off|auto|require: auto where not set; never `usual`
    KernelMode kernel = KernelMode::off;
    std::optional<bool> kernel_ooo;  ///< XSOCK_KERNEL_OOO=0|1: out of order; not set: by API
    std::size_t kernel_pin = std::size_t{64} << 20;  ///< XSOCK_KERNEL_PIN: longest region pinned
    /// The module of tests; null: the system's.
    KernelCalls* kernel_calls = nullptr;
    ShmMode shm = ShmMode::off;  ///< XSOCK_SHM=off|auto|require: auto where not set; never `usual`
    /// XSOCK_SHM_MEMORY: bytes that peers may send through shared memory ahead of the program.
    std::size_t shm_memory = std::size_t{256} << 20;
    /// XSOCK_SHM_TIMEOUT_MS: for the hello of a link in shared memory, and for its answer.
    Time shm_timeout = 200 * kMillisecond;
    std::vector<std::uint32_t> shm_users;  ///< XSOCK_SHM_USERS=UID,...: peers besides our own user
    std::string shm_folder;  ///< XSOCK_SHM_DIR: for peers of other network namespaces; empty: none

    /// Most progresses that there may be.
    [[nodiscard]] unsigned groups() const noexcept { return std::max(threads, socket_groups); }

    /// Reads the environment. Problems go to the log.
    static TransportConfig from_environment();
};

/// "0,2-3" -> {0, 2, 3}; empty when malformed.
std::vector<int> parse_cpu_list(const std::string& text);

/// "1000,1001" -> {1000, 1001}; empty when malformed, or when one is 65534 or above 2^32 - 2. (The
/// kernel shows 65534 for every user that a namespace does not map.)
std::vector<std::uint32_t> parse_users(std::string_view text);

}  // namespace xsock
