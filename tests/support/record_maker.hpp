// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the kernel module does, in user space and in order: octets of a TCP stream without markers
// -> records. Its owner has the memory. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/crc32c.hpp"
#include "mpa/fpdu.hpp"
#include "tests/support/records.hpp"

namespace xsock::test {

class RecordMaker {
  public:
    /// Stores the payload of a Write, if its header permits it here. False: it goes up.
    using Place = std::function<bool(const std::byte* header, ConstBytes payload)>;

    RecordMaker(bool crc, Place place) : crc_(crc), place_(std::move(place)) {}

    /// Takes the octets that follow: one recv(). What is incomplete goes up as it came. Once a
    /// Write has gone up nothing is placed until the next recv(): its owner will store it, and
    /// would do so over a later one.
    void feed(ConstBytes octets, Records& out) {
        write_went_up_ = false;
        while (!octets.empty()) {
            const std::size_t n = fpdu(octets);
            if (raw_left_ != 0 || n == 0) {
                tell(out);
                if (raw_left_ == 0) raw_left_ = begin_raw(octets);
                write_went_up_ = true;  // it may be one
                const std::size_t piece = std::min(raw_left_, octets.size());
                out.raw(octets.first(piece));
                raw_left_ -= raw_left_ == SIZE_MAX ? 0 : piece;
                octets = octets.subspan(piece);
                continue;
            }
            take(octets.first(n), out);
            octets = octets.subspan(n);
        }
        tell(out);
    }

    std::uint64_t placed = 0;           ///< FPDUs
    bool places_behind_writes = false;  ///< a fault: also behind one that has gone up

  private:
    /// Octets of the sound FPDU that lies here as a whole; 0: there is none.
    [[nodiscard]] std::size_t fpdu(ConstBytes octets) const {
        if (raw_left_ != 0 || octets.size() < 2) return 0;
        const std::size_t n = mpa::fpdu_octets(load_be16(octets.data()));
        if (n > octets.size()) return 0;
        const ConstBytes covered = octets.first(n - 4);
        const bool sound = !crc_ || crc32c_finish(crc32c(kCrc32cInit, covered)) ==
                                        load_le32(octets.data() + n - 4);
        return sound ? n : 0;
    }
    /// How many octets go up: the rest of an FPDU that is not there, or all that comes behind a
    /// wrong CRC, or behind a single octet of a length.
    [[nodiscard]] static std::size_t begin_raw(ConstBytes octets) {
        if (octets.size() < 2) return SIZE_MAX;
        const std::size_t n = mpa::fpdu_octets(load_be16(octets.data()));
        return n > octets.size() ? n : SIZE_MAX;
    }
    void take(ConstBytes fpdu, Records& out) {
        const std::size_t length = load_be16(fpdu.data());
        const ConstBytes ulpdu = fpdu.subspan(2, length);
        const auto control = length >= 2 ? load_be16(ulpdu.data()) : 0u;
        const bool write = length > sizeof(ddp_tagged) &&
                           (control & 0x83cf) ==
                               ((DDP_FLAG_TAGGED | DDP_VERSION) << 8 | RDMAP_VERSION | RDMAP_WRITE);
        const bool stored = write && (!write_went_up_ || places_behind_writes) &&
                            place_(ulpdu.data(), ulpdu.subspan(sizeof(ddp_tagged)));
        if (!stored) {
            write_went_up_ |= (control & DDP_FLAG_TAGGED << 8) != 0;
            tell(out);
            out.ulpdu(ulpdu);
            return;
        }
        ++placed;
        const bool last = (control & DDP_FLAG_LAST << 8) != 0;
        if (over()) run_.message_octets = 0;
        run_.message_octets += length - sizeof(ddp_tagged);
        run_.wire += fpdu.size();
        run_.octets += length - sizeof(ddp_tagged);
        run_.fpdus += 1;
        run_.messages += last ? 1 : 0;
        run_.last_length = static_cast<std::uint32_t>(length - sizeof(ddp_tagged));
        run_.last_control = static_cast<std::uint8_t>(control >> 8);
        run_.last_rdmap = static_cast<std::uint8_t>(control);
    }
    /// The last FPDU of the run, if there is one, has ended a message.
    [[nodiscard]] bool over() const { return (run_.last_control & DDP_FLAG_LAST) != 0; }
    void tell(Records& out) {
        if (run_.fpdus != 0) out.structure(DDP_RECORD_PLACED, run_);
        run_ = {};
    }

    bool crc_;
    Place place_;
    bool write_went_up_ = false;
    std::size_t raw_left_ = 0;  // SIZE_MAX: all
    ddp_placed run_{};
};

}  // namespace xsock::test
