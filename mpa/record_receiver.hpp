// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records of the kernel module -> ULPDUs (include/xsock/ddp_uapi.h). Used by mpa::Stream in the
// place of the FpduReceiver, which takes the octets that come in records; the records' state
// survives any split of the input, byte by byte.
//
// The records are our own kernel's, and are checked all the same: what they claim to stand for is
// never believed where it contradicts itself or the octets before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "base/ulp.hpp"
#include "mpa/fpdu_receiver.hpp"

namespace xsock::mpa {

class RecordReceiver {
  public:
    RecordReceiver(bool crc, bool markers) : octets_(crc, markers) {}

    /// Takes bytes of records in their order. Answers how many were consumed: fewer than given only
    /// when rx_target() was empty, or when an error was found; it goes on from there.
    std::size_t consume(ConstBytes bytes, Ulp& ulp);

    /// Why reception is over; none while it goes on. mpa_local_catastrophic: a record is wrong.
    [[nodiscard]] StreamError stream_error() const noexcept {
        return stream_error_ != StreamError::none ? stream_error_ : octets_.stream_error();
    }
    /// At least one FPDU was delivered, or had been placed.
    [[nodiscard]] bool delivered_any() const noexcept {
        return delivered_any_ || octets_.delivered_any();
    }
    /// No part of an FPDU or of a record is being held: the stream may end here.
    [[nodiscard]] bool between_fpdus() const noexcept {
        return step_ == Step::header && have_ == 0 && octets_.between_fpdus();
    }
    /// Octets of the stream that the records stood for, as far as they were consumed.
    [[nodiscard]] std::uint64_t stream_octets() const noexcept { return stream_octets_; }
    /// The module is unbound: octets follow. @pre no part of a record is being held
    [[nodiscard]] FpduReceiver octets() const noexcept { return octets_; }

  private:
    enum class Step : std::uint8_t { header, raw, ulpdu, body, skip };

    void take_header(ConstBytes& in, Ulp& ulp);
    void begin(Ulp& ulp);
    bool take_raw(ConstBytes& in, Ulp& ulp);
    bool take_ulpdu(ConstBytes& in, Ulp& ulp);
    bool ulpdu_in_steps(ConstBytes& in, Ulp& ulp);
    void take_body(ConstBytes& in, Ulp& ulp);
    void skip(ConstBytes& in);
    bool gather(ConstBytes& in, std::size_t bytes);
    void end_ulpdu();
    void placed(Ulp& ulp);
    void response(Ulp& ulp);
    void passed(std::uint64_t wire);
    void end_body(std::size_t known);
    void fail() noexcept { stream_error_ = StreamError::mpa_local_catastrophic; }

    static constexpr std::size_t kMostKnown = 64;

    FpduReceiver octets_;
    StreamError stream_error_ = StreamError::none;
    Step step_ = Step::header;
    bool delivered_any_ = false;
    bool begun_ = false;      // the ULPDU in hand goes in steps
    std::uint8_t have_ = 0;   // of held_
    std::uint16_t type_ = 0;  // of the record in hand
    std::uint32_t left_ = 0;  // bytes of its body to come
    std::uint32_t length_ = 0;
    std::uint64_t to_skip_ = 0;
    std::uint64_t stream_octets_ = 0;
    std::array<std::byte, kMostKnown> held_{};  // header or body, while incomplete
};

}  // namespace xsock::mpa
