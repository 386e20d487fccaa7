// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Stream is in the middle of receiving: the ULPDU in hand, the Send or Immediate Data that
// fills a receive, and the Write before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "ddp_user/cursor.hpp"
#include "ddp_user/opcode.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/terminate.hpp"

namespace xsock::ddp {

/// The ULPDU in hand.
struct RxUlpdu {
    enum class Phase : std::uint8_t { start, blocked, rest, payload, discard };
    Phase phase = Phase::discard;
    std::uint32_t length = 0;
    std::uint32_t have = 0;  // octets of it stored
    Segment segment;
    const OpcodeInfo* op = nullptr;
    Cursor* cursor = nullptr;  // where payload goes, if into SGEs
    // Found while the ULPDU was coming in. Raised when it has proved intact: of a corrupted one the
    // CRC error is the truth.
    StreamError fault = StreamError::none;
    WcStatus fault_status = WcStatus::success;  // and what it does to its work request
    std::array<std::byte, kUntaggedOctets> header;
    std::array<std::byte, kTerminateOctets> body;  // RDMAP's part of an untagged message
    static_assert(kTerminateOctets >= kAtomicRequestOctets);
    std::array<std::byte, 56> discarded;

    [[nodiscard]] std::size_t header_octets() const noexcept {
        return segment.tagged ? kTaggedOctets : kUntaggedOctets;
    }
    [[nodiscard]] std::size_t payload_bytes() const noexcept { return length - header_octets(); }
    [[nodiscard]] std::size_t remaining() const noexcept { return length - have; }

    void begin(std::size_t ulpdu_length, Phase with) noexcept {
        XSOCK_ASSERT(ulpdu_length <= UINT32_MAX);
        phase = with;
        length = static_cast<std::uint32_t>(ulpdu_length);
        have = 0;
        op = nullptr;
        cursor = nullptr;
        fault = StreamError::none;
        fault_status = WcStatus::success;
    }
    /// Something is wrong with it: the rest of it goes nowhere.
    Bytes fail(StreamError v, WcStatus status = WcStatus::success) noexcept {
        fault = v;
        fault_status = status;
        phase = Phase::discard;
        return discard();
    }
    Bytes discard() noexcept {
        return Bytes(discarded).first(std::min(remaining(), discarded.size()));
    }
};

/// The Write before a message, for Immediate Data to tell.
class RxWrite {
  public:
    void add(std::size_t bytes, bool last) noexcept {
        bytes_ = (over_ ? 0 : bytes_) + bytes;
        over_ = last;
    }
    /// Bytes of the Write that has ended just before; forgets it.
    std::uint32_t take() noexcept {
        constexpr std::uint64_t kMost = 0xffffffff;
        const std::uint64_t bytes = over_ ? std::min(bytes_, kMost) : 0;
        forget();
        return static_cast<std::uint32_t>(bytes);
    }
    void forget() noexcept { bytes_ = 0; }

  private:
    std::uint64_t bytes_ = 0;
    bool over_ = true;
};

/// The message that is coming in for a receive.
struct RxMessage {
    enum class Into : std::uint8_t {
        none,  // there is no such message
        receive,
        rtr,  // the RTR message: takes no receive, is not delivered
    };
    Into into = Into::none;
    std::uint8_t opcode = 0;
    std::uint32_t stag = 0;
    std::uint32_t offset = 0;
    Cursor cursor;
    RxWrite write;  // before it
    RecvWqe receive;

    void begin(Into what, const Segment& first) noexcept {
        into = what;
        opcode = first.opcode;
        stag = first.stag;
        offset = 0;
        cursor = {};
    }
    /// True: `receive` is free to be completed.
    bool end() noexcept {
        const bool taken = into == Into::receive;
        into = Into::none;
        return taken;
    }
    /// Copies what was placed so far, of the FPDU in hand too, to `other`, which is filled from now
    /// on. @pre it has room for as many octets
    void move_to(const RecvWqe& other);
};

}  // namespace xsock::ddp
