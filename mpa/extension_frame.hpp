// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The extension frame (docs/wire.md): what two xsocks tell each other directly behind Request and
// Reply, as TLVs in something that has the shape of an FPDU. Encoding, decoding, and reception in
// pieces; sans-IO. Used by mpa::Startup; the transport encodes TLVs, tools and tests decode them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/implementation.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::mpa {

/// Why a frame is refused.
enum class ExtensionError : std::uint8_t {
    none,
    length,          ///< ULPDU_Length is none that a frame can have, or not the one of its TLVs
    header,          ///< not the header of an extension frame: an FPDU, or anything else
    version,         ///< of the frame
    crc,             ///< which is checked whether CRCs were agreed on or not
    tlv_order,       ///< types do not ascend, or one comes twice
    tlv_overrun,     ///< a TLV reaches beyond the others' end
    implementation,  ///< the value of MPA_TLV_IMPLEMENTATION is too short for what it says
};

/// One sentence. Static storage.
[[nodiscard]] const char* extension_error_text(ExtensionError error) noexcept;

// -- encoding --

/// Appends a TLV. @pre `type` is above those before it, and all TLVs together stay within
/// MPA_EXTENSION_TLVS_MAX octets
void append_tlv(std::vector<std::byte>& tlvs, std::uint16_t type, ConstBytes value);
/// Puts a TLV among those that are there, by its type. @pre none of them has that type; all
/// together stay within MPA_EXTENSION_TLVS_MAX octets
void insert_tlv(std::vector<std::byte>& tlvs, std::uint16_t type, ConstBytes value);
/// Appends MPA_TLV_IMPLEMENTATION.
void append_tlv(std::vector<std::byte>& tlvs, const Implementation& implementation);
/// Appends the frame around these TLVs, with pad and CRC. @pre tlvs.size() <=
/// MPA_EXTENSION_TLVS_MAX
void append_extension_frame(std::vector<std::byte>& out, ConstBytes tlvs);

// -- decoding --

struct Tlv {
    std::uint16_t type = 0;
    ConstBytes value;
};

/// Steps through TLVs and checks their order and lengths on the way.
class TlvReader {
  public:
    explicit TlvReader(ConstBytes tlvs) noexcept : rest_(tlvs) {}
    /// The next one; false at the end, or at a TLV that is wrong: error() tells.
    [[nodiscard]] bool next(Tlv& out) noexcept;
    [[nodiscard]] ExtensionError error() const noexcept { return error_; }
    [[nodiscard]] std::size_t bytes_left() const noexcept { return rest_.size(); }

  private:
    ConstBytes rest_;
    std::int32_t last_type_ = -1;
    ExtensionError error_ = ExtensionError::none;
};

/// The value of the TLV of this type; empty: there is none. Of TLVs that are in order.
[[nodiscard]] ConstBytes find_tlv(ConstBytes tlvs, std::uint16_t type) noexcept;

/// The TLVs that we know; others are skipped.
struct ExtensionFrame {
    std::optional<Implementation> implementation;
    bool align = false;  ///< MPA_TLV_ALIGN is there
    /// Values as they came, of MPA_TLV_SHM_OFFER and MPA_TLV_SHM_ANSWER: shm/offer.hpp reads them.
    /// Empty: there is none.
    std::vector<std::byte> shm_offer = {}, shm_answer = {};

    friend bool operator==(const ExtensionFrame&, const ExtensionFrame&) = default;
};

/// Octets of the whole frame that begins with these two; 0: no frame has such a ULPDU_Length.
[[nodiscard]] std::size_t extension_frame_bytes(const std::byte* ulpdu_length) noexcept;
/// Octets by which a frame can be told from an FPDU that comes first, and from a marker before it.
inline constexpr std::size_t kExtensionPeekBytes = 4;
/// Do these kExtensionPeekBytes look like the front of a frame?
[[nodiscard]] bool looks_like_extension_frame(const std::byte* bytes) noexcept;
/// Does a frame begin here? Checks its first sizeof(mpa_extension_frame) octets.
[[nodiscard]] ExtensionError check_extension_header(const std::byte* frame) noexcept;
/// The TLVs of a frame whose header was checked. @pre frame.size() >= extension_frame_bytes()
[[nodiscard]] ConstBytes extension_tlvs(ConstBytes frame) noexcept;
/// Does the CRC of a frame hold? The same precondition.
[[nodiscard]] bool extension_crc_holds(ConstBytes frame) noexcept;
/// Takes the value of MPA_TLV_IMPLEMENTATION. What follows the version is for later xsocks.
[[nodiscard]] ExtensionError decode(ConstBytes value, Implementation& out) noexcept;
/// Takes a whole frame. `out` is as it was unless the answer is `none`.
[[nodiscard]] ExtensionError decode(ConstBytes frame, ExtensionFrame& out);

/// Takes a frame in pieces, and never more memory than a frame may have.
class ExtensionReceiver {
  public:
    /// Takes octets of the stream; answers how many were the frame's: fewer than given only once
    /// it is complete, or refused.
    std::size_t consume(ConstBytes bytes);
    /// Octets to come of which it is known that they are the frame's; 0 once it is complete, or
    /// refused.
    [[nodiscard]] std::size_t rx_wanted() const noexcept;
    /// The whole frame was there, and was in order.
    [[nodiscard]] bool complete() const noexcept { return complete_; }
    [[nodiscard]] ExtensionError error() const noexcept { return error_; }
    /// Valid once complete().
    [[nodiscard]] const ExtensionFrame& frame() const noexcept { return frame_; }

  private:
    void on_wanted();

    std::vector<std::byte> bytes_;
    std::size_t wanted_ = MPA_LENGTH_OCTETS;  // then the header, then the frame
    bool complete_ = false;
    ExtensionError error_ = ExtensionError::none;
    ExtensionFrame frame_;
};

}  // namespace xsock::mpa
