// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints for the measured bodies, through the public C API only. Failures end the child with
// the library's own words.
#pragma once

#include <xsock/xsock.h>

#include <array>
#include <cstdint>
#include <span>

#include "bench/pair.hpp"

namespace xsock::bench {

/// One endpoint with a completion queue to itself, established, CRC on.
struct Endpoint {
    xsock_cq* cq = nullptr;
    xsock_ep* ep = nullptr;
};

struct Depths {
    std::uint32_t send = 0;  ///< 0: the library's default
    std::uint32_t receive = 0;
};

Endpoint server_endpoint(Child& child, const Run& run, Depths depths = {});
Endpoint client_endpoint(Child& child, const Run& run, Depths depths = {});

/// Takes completions, and ends the child if one of them failed.
class Completions {
  public:
    static constexpr int kMax = 256;

    explicit Completions(xsock_cq* cq) : cq_(cq) {}

    /// What is there now, moving bytes meanwhile; perhaps nothing.
    std::span<const xsock_wc> poll() { return checked(xsock_cq_poll(cq_, wc_.data(), kMax)); }
    /// At least one, asleep until then.
    std::span<const xsock_wc> wait() {
        return checked(xsock_cq_wait(cq_, wc_.data(), 1, kMax, XSOCK_FOREVER));
    }
    /// At least one, awake until then.
    std::span<const xsock_wc> spin() {
        for (;;) {
            if (const auto taken = poll(); !taken.empty()) return taken;
        }
    }

  private:
    std::span<const xsock_wc> checked(int count) {
        if (count < 0) fail_errno("completion queue");
        const std::span<const xsock_wc> taken(wc_.data(), static_cast<std::size_t>(count));
        for (const xsock_wc& wc : taken) {
            if (wc.status != XSOCK_WC_SUCCESS) fail_completion(wc);
        }
        return taken;
    }
    [[noreturn]] static void fail_completion(const xsock_wc& wc);

    xsock_cq* cq_;
    std::array<xsock_wc, kMax> wc_;
};

/// Ends the child unless `result` is 0.
inline void must(int result, const char* what) {
    if (result != 0) fail_errno(what);
}

/// A region that the peer may use, described to it over the side channel.
xsock_mr* share_memory(Child& child, void* address, std::size_t length, unsigned access);
/// What the peer shared.
xsock_remote shared_memory(Child& child);

/// Fails unless `ep` is established with CRCs on: figures without them would not be comparable.
void check_crc(const xsock_ep* ep);

}  // namespace xsock::bench
