// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Octets of the full-operation phase -> ULPDUs (RFC 5044 §4). Used by mpa::Stream, one for each
// stream; its state survives any split of the input, octet by octet.
//
// Placement may run ahead of the CRC, delivery never does: rx_end(true) follows a CRC that held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/crc32c.hpp"
#include "base/stream_error.hpp"
#include "base/ulp.hpp"
#include "mpa/marker.hpp"

namespace xsock::mpa {

class FpduReceiver {
  public:
    FpduReceiver(bool crc, bool markers) : crc_(crc), markers_(markers) {}

    /// Takes octets in stream order. Answers how many were consumed: fewer than given only when
    /// rx_target() was empty, or when an error was found; it goes on from there.
    ///
    /// `bytes` is memory of the transport alone: it may be read twice.
    std::size_t consume(ConstBytes bytes, Ulp& ulp);

    /// Why reception is over; none while it goes on. Set by consume(), reported by its caller.
    [[nodiscard]] StreamError stream_error() const noexcept { return stream_error_; }
    /// FPDUs passed another way: so many octets of the stream, markers included. @pre
    /// between_fpdus()
    void skip(std::uint64_t octets) noexcept { markers_.skip(octets); }
    /// One did, whose ULPDU has this length. @return octets of the stream that it was
    std::uint64_t skip_fpdu(std::size_t ulpdu_length) noexcept;
    /// At least one FPDU was delivered.
    [[nodiscard]] bool delivered_any() const noexcept { return delivered_any_; }
    /// No octet of an FPDU, nor part of a marker, is being held: the stream may end here.
    [[nodiscard]] bool between_fpdus() const noexcept {
        return step_ == Step::length && held_count_ == 0 && marker_count_ == 0;
    }

  private:
    enum class Step : std::uint8_t { length, ulpdu, pad, crc };
    struct Input;

    void take_whole_fpdus(Input& in, Ulp& ulp);
    bool take_marker(Input& in);
    bool hold(Input& in, std::size_t limit, std::size_t octets);
    void take_length(Input& in, std::size_t limit, Ulp& ulp);
    bool take_ulpdu(Input& in, std::size_t limit, Ulp& ulp);
    void take_pad(Input& in, std::size_t limit);
    void take_crc(Input& in, std::size_t limit, Ulp& ulp);
    void suspend(const std::byte* fpdu, std::size_t covered, std::size_t left);
    void passed(std::size_t n) noexcept;
    void end_fpdu() noexcept;

    bool crc_;
    bool delivered_any_ = false;
    Step step_ = Step::length;
    StreamError stream_error_ = StreamError::none;
    std::uint8_t held_count_ = 0;    // of held_
    std::uint8_t marker_count_ = 0;  // of marker_
    std::uint8_t pad_ = 0;           // octets of PAD to come
    std::uint32_t register_ = kCrc32cInit;
    std::uint32_t left_ = 0;           // octets of the ULPDU to come
    std::uint32_t since_length_ = 0;   // octets of stream since the ULPDU_Length, markers included
    std::array<std::byte, 4> held_{};  // octets of ULPDU_Length or CRC, while incomplete
    std::array<std::byte, 4> marker_{};  // octets of a marker, while incomplete
    MarkerGrid markers_;
};

}  // namespace xsock::mpa
