// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a stream receives in full operation: octets, or records of the kernel module in their place.
// Used by mpa::Stream, one for each stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "base/ulp.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "mpa/record_receiver.hpp"

namespace xsock::mpa {

class Reception {
  public:
    /// As start-up has negotiated; by records if use_records() was called before.
    void begin(bool crc, bool markers) { octets_ = FpduReceiver(crc, markers); }
    /// Records from now on. Throws std::bad_alloc.
    void use_records(bool crc, bool markers) {
        records_ = std::make_unique<RecordReceiver>(crc, markers);
    }
    /// Octets again. @pre use_records(), and no part of a record is being held
    void use_octets() {
        octets_ = records_->octets();
        records_.reset();
    }

    // See FpduReceiver and RecordReceiver.
    std::size_t consume(ConstBytes bytes, Ulp& ulp) {
        return records_ ? records_->consume(bytes, ulp) : octets_.consume(bytes, ulp);
    }
    [[nodiscard]] StreamError stream_error() const noexcept {
        return records_ ? records_->stream_error() : octets_.stream_error();
    }
    [[nodiscard]] bool delivered_any() const noexcept {
        return records_ ? records_->delivered_any() : octets_.delivered_any();
    }
    [[nodiscard]] bool between_fpdus() const noexcept {
        return records_ ? records_->between_fpdus() : octets_.between_fpdus();
    }
    /// Octets of the stream that records stood for.
    [[nodiscard]] std::uint64_t record_octets() const noexcept {
        return records_ ? records_->stream_octets() : 0;
    }

  private:
    FpduReceiver octets_{true, false};
    std::unique_ptr<RecordReceiver> records_;  // null: octets are read
};

}  // namespace xsock::mpa
