// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One TCP connection of a capture as MPA, DDP and RDMAP: start-up frames, FPDUs with their markers
// and CRCs, Terminates. Lost bytes cost the FPDUs they lay in: each later TCP segment is tried as
// the beginning of an FPDU until one proves to be. Holds one FPDU per direction at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/stream.hpp"
#include "ddp_user/terminate.hpp"
#include "mpa/extension_frame.hpp"
#include "tools/decode/tcp.hpp"

namespace xsock::decode {

/// Which end sent it.
enum class End : std::uint8_t { first, second };

/// Where in the capture something lay.
struct Place {
    std::uint64_t packet = 0;        ///< the latest that held bytes of it
    std::uint64_t first_packet = 0;  ///< that held its first byte: not always the earliest
    std::uint64_t time_ns = 0;       ///< of the packet that made it whole: a later one, perhaps,
                                     ///< that filled a gap before it
    End from = End::first;
};

struct StartupFrame {
    bool reply = false;
    bool whole = true;  ///< false: bytes of it are missing; only the header was seen
    unsigned flags = 0, revision = 0;
    std::size_t pd_length = 0;
    bool enhanced = false;                ///< the next two are there (RFC 6581)
    unsigned ird = 0, ord = 0;            ///< with their flag bits
    std::vector<std::byte> private_data;  ///< without the enhanced bytes
};

enum class Crc : std::uint8_t { good, bad, off, unchecked };

/// What two xsocks say directly behind start-up (docs/wire.md).
struct ExtensionFrame {
    struct Tlv {
        unsigned type = 0;
        std::size_t bytes = 0;  ///< of the value
    };
    std::size_t ulpdu_bytes = 0;
    std::size_t bytes = 0;  ///< all
    bool whole = true;      ///< false: bytes of it are missing, and nothing else is known
    Crc crc = Crc::unchecked;
    mpa::ExtensionError error = mpa::ExtensionError::none;
    std::vector<Tlv> tlvs;
    std::optional<Implementation> implementation;
};

struct Fpdu {
    std::uint64_t stream_byte = 0;  ///< of full operation, where it begins
    std::size_t ulpdu_bytes = 0;
    std::size_t bytes = 0;  ///< all, markers included
    unsigned markers = 0;
    unsigned bad_markers = 0;
    Crc crc = Crc::unchecked;
    bool whole = true;            ///< false: bytes of it are missing
    bool resynchronised = false;  ///< the first one after bytes were lost
    bool has_header = false;
    StreamError stream_error =
        StreamError::none;  ///< what is wrong with the header, as a receiver sees it
    ddp::Segment segment;
    std::size_t payload_bytes = 0;  ///< behind the DDP header
    ConstBytes payload;  ///< of it what was captured, up to a hole; valid during the call
    std::optional<ddp::ReadRequest> read_request;
    std::vector<std::byte> terminate;  ///< the Terminate's payload
};

/// What is told, in the order in which it is found.
class MpaListener {
  public:
    virtual void on_startup(const Place& place, const StartupFrame& frame) = 0;
    virtual void on_extension_frame(const Place& place, const ExtensionFrame& frame) = 0;
    virtual void on_fpdu(const Place& place, const Fpdu& fpdu) = 0;
    /// A direction lost step: a gap, a broken FPDU, or MPA that is none. `why` has static storage.
    virtual void on_lost(const Place& place, const char* why, std::uint64_t bytes) = 0;

  protected:
    ~MpaListener() = default;
};

class MpaConnection {
  public:
    MpaConnection(MpaListener& listener, ReassemblyBudget& budget)
        : directions_{Direction(*this, End::first, budget), Direction(*this, End::second, budget)},
          listener_(listener) {}
    MpaConnection(const MpaConnection&) = delete;
    MpaConnection& operator=(const MpaConnection&) = delete;

    TcpDirection& tcp(End end) noexcept { return direction(end).tcp; }
    /// A TCP segment that `from` sent.
    void segment(End from, std::uint32_t sequence, ConstBytes captured, std::size_t bytes_on_wire,
                 std::uint64_t packet, std::uint64_t time_ns);
    /// The capture, or the connection, is over.
    void finish();

    /// A start-up frame or an FPDU was found.
    [[nodiscard]] bool is_mpa() const noexcept { return is_mpa_; }
    /// The end that sent the Request, if one was seen.
    [[nodiscard]] std::optional<End> initiator() const noexcept { return initiator_; }

  private:
    enum class Phase : std::uint8_t {
        startup,    // nothing seen yet, or a start-up frame under way
        extension,  // an extension frame may come: both ends must have agreed to it
        fpdus,      // full operation, in step
        lost,       // full operation perhaps, out of step
        other,      // no MPA, until a start-up frame begins with a segment
    };
    struct Direction final : StreamSink {
        Direction(MpaConnection& owner, End which, ReassemblyBudget& shared)
            : connection(owner), budget(shared), end(which), tcp(shared) {}
        void stream_bytes(ConstBytes bytes, std::uint64_t packet, bool starts_segment) override;
        void stream_gap(std::uint64_t bytes, std::uint64_t packet) override;

        void begin_unit();
        [[nodiscard]] std::size_t unit_needs() const;
        void try_segment(ConstBytes bytes);
        void take(ConstBytes bytes);
        void grew(std::uint64_t packet);
        void end_startup(std::uint64_t packet);
        void end_extension(std::uint64_t packet);
        void end_fpdu(std::uint64_t packet);
        void end_early();
        void lose(const char* why, std::uint64_t bytes, std::uint64_t packet);
        [[nodiscard]] bool markers() const;
        [[nodiscard]] Place place(std::uint64_t packet) const;

        MpaConnection& connection;
        ReassemblyBudget& budget;
        const End end;
        TcpDirection tcp;
        Phase phase = Phase::startup;
        bool tentative = false;       // the unit is only tried
        bool resynchronised = false;  // the next FPDU is the first after a loss
        bool holed = false;           // bytes of the unit are missing
        bool asks_for_markers = false;
        unsigned senseless_run = 0;     // FPDUs in a row that no receiver would take
        std::uint64_t offset = 0;       // of the unit, from the start of full operation
        bool offset_known = false;      // full operation was seen to begin
        std::vector<std::byte> unit;    // a start-up frame or an FPDU, up to the first hole
        std::size_t unit_bytes = 0;     // of it so far, holes included
        std::size_t unit_total = 0;     // 0: not known yet
        std::uint64_t unit_packet = 0;  // that held its first byte
        std::uint64_t unit_latest = 0;  // of those that held bytes of it
        std::uint64_t lost_bytes = 0;   // since step was lost
    };

    [[nodiscard]] Direction& direction(End end) noexcept {
        return directions_[static_cast<std::size_t>(end)];
    }
    [[nodiscard]] Direction& other(End end) noexcept {
        return direction(end == End::first ? End::second : End::first);
    }

    std::array<Direction, 2> directions_;
    MpaListener& listener_;
    std::uint64_t time_ns_ = 0;  // of the packet at hand
    bool is_mpa_ = false;
    std::optional<bool> crc_;  // on, off; nothing: no start-up frame was seen
    std::optional<End> initiator_;
};

}  // namespace xsock::decode
