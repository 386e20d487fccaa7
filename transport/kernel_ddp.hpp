// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel module (docs/architecture.md, *Kernel placement*) as a device's connections reach it:
// one domain for all of them, opened on first need. Every request to the module is here and in
// kernel_regions. Any thread, unless a function says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/bytes.hpp"
#include "base/kernel_reason.hpp"
#include "base/memory_table.hpp"
#include "include/xsock/ddp_uapi.h"
#include "transport/kernel_calls.hpp"
#include "transport/kernel_regions.hpp"

namespace xsock {

class KernelDdp final {
  public:
    /// All outlive it; it outlives the table's regions.
    KernelDdp(KernelCalls& calls, MemoryTable& table, KernelRegions::Limits limits)
        : calls_(calls), regions_(calls, table, limits) {}
    ~KernelDdp();
    KernelDdp(const KernelDdp&) = delete;
    KernelDdp& operator=(const KernelDdp&) = delete;

    /// Is the module there, and ours to use? `none`: the domain is open. Another answer is asked
    /// for again a second later, and written into the log once.
    [[nodiscard]] kernel::Reason open(Time now) noexcept;

    struct Binding {
        int socket = -1;
        bool crc = true, markers = false;
        bool in_order = true;  ///< nothing is placed behind a hole
        PdId pd = 0;
        QpNum qp = 0;
        std::uint32_t rights = kRemoteAccess;  ///< Access, of the QP
    };
    /// From the next octet on, receive() answers records. The open() before answered `none`.
    /// @param error  errno, where the answer is Reason::socket
    [[nodiscard]] kernel::Reason bind(const Binding& binding, int& error) noexcept;
    /// On return nothing is placed that the peer may not write (Access; 0: nothing at all).
    void set_rights(int socket, std::uint32_t rights) noexcept;
    [[nodiscard]] long receive(int socket, Bytes into) noexcept {
        return calls_.receive(socket, into);
    }
    /// Payload that was placed behind a hole, bytes, since bind(). False: unknown.
    [[nodiscard]] bool placed_early(int socket, std::uint64_t& bytes) const noexcept;

    [[nodiscard]] KernelRegions& regions() noexcept { return regions_; }

  private:
    [[nodiscard]] kernel::Reason probe(int& domain, int& error) noexcept;

    KernelCalls& calls_;
    std::mutex opening_;
    std::atomic<int> domain_{-1};
    ddp_hello hello_{};  // valid once domain_ is
    kernel::Reason why_not_ = kernel::Reason::absent;
    Time ask_again_ = 0;
    bool told_ = false;
    KernelRegions regions_;
};

}  // namespace xsock
