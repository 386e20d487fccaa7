// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The part of a connection that the kernel module has: start-up is read octet by octet so far that
// the first FPDU stays unread, the module is bound when start-up has ended, and from then on what
// is read is records. Everything runs in the poller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "ddp_user/connection.hpp"
#include "mpa/stream.hpp"
#include "transport/clock.hpp"
#include "transport/kernel_choice.hpp"
#include "transport/kernel_ddp.hpp"

namespace xsock {

class ConnectionKernel final : private ddp::WriteObserver {
  public:
    /// All outlive it. `choice` says why not, as soon as that is known.
    ConnectionKernel(KernelDdp& module, KernelChoice& choice) noexcept
        : module_(module), choice_(choice) {}

    /// Asks the peer to align FPDUs, where they may be placed behind a hole and the module is
    /// required: short FPDUs cost 64 MiB of Writes a fifth more instructions (docs/kernel.md).
    void prepare(mpa::StartupConfig& config) const;
    /// How much of `staging` is to be read: never an octet behind start-up. One octet where none is
    /// wanted, so that a peer that sends all the same is seen.
    [[nodiscard]] Bytes room(const mpa::Stream& layer, Bytes staging) const noexcept;
    /// Start-up has ended, and `layer` is going to be opened for the data: the module begins with
    /// the next octet of `socket`, or it is said why not.
    void bind(mpa::Stream& layer, ddp::Stream& stream, int socket, const char* peer);
    [[nodiscard]] bool bound() const noexcept { return socket_ >= 0; }
    /// @pre bound()
    [[nodiscard]] long receive(Bytes into) noexcept { return module_.receive(socket_, into); }
    /// What the records that were taken since the last call stood for, bytes of the TCP stream.
    [[nodiscard]] std::uint64_t take_stream_bytes(const mpa::Stream& layer) noexcept;
    /// A stream that receives no more has nothing placed any more either.
    void follow(const ddp::Stream& stream) noexcept;
    /// What the peer may do, Access, until it is said anew; 0: nothing is placed on return.
    void set_rights(std::uint32_t rights) noexcept;
    /// Placement ends for good: on return nothing is placed, and set_rights() has no effect any
    /// more. The descriptor may be closed afterwards.
    void stop() noexcept;
    /// Payload that was placed behind a hole, bytes; at the end of placement the last count stays.
    [[nodiscard]] std::uint64_t placed_early() noexcept;
    /// When the module is to be asked next what it has placed: Writes wake no thread.
    [[nodiscard]] Time due() const noexcept { return stopped_ ? kNever : report_at_; }
    void reported(Time now) noexcept { report_at_ = time_after(now, kReportPeriod); }

  private:
    void on_stored_write(std::uint32_t stag) noexcept override;

    static constexpr Time kReportPeriod = kSecond;

    KernelDdp& module_;
    KernelChoice& choice_;
    int socket_ = -1;
    bool stopped_ = false;
    std::uint64_t counted_ = 0;
    std::uint64_t early_ = 0;  // of the last answer
    Time report_at_ = kNever;
};

/// What a connection has of the module.
struct KernelUse {
    KernelChoice choice;
    std::unique_ptr<ConnectionKernel> part;  ///< null: octets are read
};

}  // namespace xsock
