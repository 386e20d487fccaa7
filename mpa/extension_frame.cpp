// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/extension_frame.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/assert.hpp"
#include "base/crc32c.hpp"
#include "mpa/fpdu.hpp"

namespace xsock::mpa {
namespace {

constexpr std::size_t kExtensionHeaderBytes = sizeof(mpa_extension_frame);
/// What a ULPDU has besides the TLVs.
constexpr std::size_t kUlpduBytes = kExtensionHeaderBytes - MPA_LENGTH_OCTETS;
constexpr std::size_t kTlvsLengthAt = offsetof(mpa_extension_frame, tlvs_length);
constexpr std::size_t kVersionAt = offsetof(mpa_extension_frame, version);

static_assert(Implementation::kTextMax == MPA_TLV_TEXT_MAX);

/// The header of every frame, but for its lengths.
constexpr mpa_extension_frame kHeader = {
    .ulpdu_length = {},
    .control = DDP_FLAG_LAST | DDP_VERSION,
    .rdmap = RDMAP_VERSION | MPA_EXTENSION_OPCODE,
    .stag = {},
    .qn = {0, 0, 0, MPA_EXTENSION_QN},
    .msn = {0, 0, 0, MPA_EXTENSION_MSN},
    .mo = {},
    .version = MPA_EXTENSION_VERSION,
    .reserved = 0,
    .tlvs_length = {},
};

std::uint32_t crc_of(ConstBytes covered) noexcept {
    return crc32c_finish(crc32c(kCrc32cInit, covered));
}

void append(std::vector<std::byte>& out, const void* bytes, std::size_t n) {
    const std::size_t at = out.size();
    out.resize(at + n);
    std::copy_n(static_cast<const std::byte*>(bytes), n, out.data() + at);
}

void append_text(std::vector<std::byte>& out, const Implementation::Text& text) {
    const std::string_view view(text.data());
    out.push_back(static_cast<std::byte>(view.size()));
    append(out, view.data(), view.size());
}

/// Takes a text and its length off the front; false: it is too long, or not there.
bool take_text(ConstBytes& from, Implementation::Text& out) noexcept {
    if (from.empty()) return false;
    const auto length = std::to_integer<std::size_t>(from[0]);
    from = from.subspan(1);
    if (length > MPA_TLV_TEXT_MAX || length > from.size()) return false;
    out = Implementation::text({reinterpret_cast<const char*>(from.data()), length});
    from = from.subspan(length);
    return true;
}

}  // namespace

const char* extension_error_text(ExtensionError error) noexcept {
    static constexpr const char* kTexts[] = {
        // by ExtensionError
        "Nothing is wrong with the frame.",
        "The length of the frame is impossible, or not that of its TLVs.",
        "Something else came in place of the frame.",
        "The version of the frame is unknown.",
        "The CRC of the frame is wrong.",
        "The types of the TLVs do not ascend.",
        "A TLV is longer than what is left of the frame.",
        "The TLV that names the implementation is too short, or a text in it too long.",
    };
    static_assert(std::size(kTexts) ==
                  static_cast<std::size_t>(ExtensionError::implementation) + 1);
    const auto index = static_cast<std::size_t>(error);
    return index < std::size(kTexts) ? kTexts[index] : "";
}

// -- encoding --

void append_tlv(std::vector<std::byte>& tlvs, std::uint16_t type, ConstBytes value) {
    XSOCK_ASSERT(tlvs.size() + sizeof(mpa_tlv) <= MPA_EXTENSION_TLVS_MAX &&
                 value.size() <= MPA_EXTENSION_TLVS_MAX - sizeof(mpa_tlv) - tlvs.size());
    mpa_tlv header;
    store_be16(header.type, type);
    store_be16(header.length, static_cast<std::uint16_t>(value.size()));
    append(tlvs, &header, sizeof header);
    append(tlvs, value.data(), value.size());
}

void insert_tlv(std::vector<std::byte>& tlvs, std::uint16_t type, ConstBytes value) {
    std::size_t below = 0;  // octets of the TLVs of lower types
    TlvReader reader(tlvs);
    for (Tlv tlv; reader.next(tlv) && tlv.type < type;) below = tlvs.size() - reader.bytes_left();
    const std::vector<std::byte> above(tlvs.begin() + static_cast<std::ptrdiff_t>(below),
                                       tlvs.end());
    tlvs.resize(below);
    append_tlv(tlvs, type, value);
    XSOCK_ASSERT(above.size() <= MPA_EXTENSION_TLVS_MAX - tlvs.size());
    append(tlvs, above.data(), above.size());
}

void append_tlv(std::vector<std::byte>& tlvs, const Implementation& implementation) {
    const bool delayed_ack = (implementation.features & MPA_FEATURE_DELAYED_ACK) != 0;
    mpa_tlv_implementation fixed;
    store_be64(fixed.features, implementation.features);
    store_be16(fixed.delayed_ack_ms, delayed_ack ? implementation.delayed_ack_ms : 0);
    std::vector<std::byte> value;
    append(value, &fixed, sizeof fixed);
    append_text(value, implementation.name);
    append_text(value, implementation.version);
    append_tlv(tlvs, MPA_TLV_IMPLEMENTATION, value);
}

void append_extension_frame(std::vector<std::byte>& out, ConstBytes tlvs) {
    XSOCK_ASSERT(tlvs.size() <= MPA_EXTENSION_TLVS_MAX);
    const std::size_t begin = out.size();
    const std::size_t ulpdu = kUlpduBytes + tlvs.size();
    mpa_extension_frame header = kHeader;
    store_be16(header.ulpdu_length, static_cast<std::uint16_t>(ulpdu));
    store_be16(header.tlvs_length, static_cast<std::uint16_t>(tlvs.size()));
    append(out, &header, sizeof header);
    append(out, tlvs.data(), tlvs.size());
    out.resize(out.size() + fpdu_pad(ulpdu));
    std::byte crc[MPA_CRC_OCTETS];
    store_le32(crc, crc_of(ConstBytes(out).subspan(begin)));
    append(out, crc, sizeof crc);
}

// -- decoding --

bool TlvReader::next(Tlv& out) noexcept {
    if (error_ != ExtensionError::none || rest_.empty()) return false;
    const auto refuse = [&](ExtensionError why) {
        error_ = why;
        return false;
    };
    if (rest_.size() < sizeof(mpa_tlv)) return refuse(ExtensionError::tlv_overrun);
    const std::uint16_t type = load_be16(rest_.data() + offsetof(mpa_tlv, type));
    const std::size_t length = load_be16(rest_.data() + offsetof(mpa_tlv, length));
    if (type <= last_type_) return refuse(ExtensionError::tlv_order);
    if (length > rest_.size() - sizeof(mpa_tlv)) return refuse(ExtensionError::tlv_overrun);
    last_type_ = type;
    out = {type, rest_.subspan(sizeof(mpa_tlv), length)};
    rest_ = rest_.subspan(sizeof(mpa_tlv) + length);
    return true;
}

ConstBytes find_tlv(ConstBytes tlvs, std::uint16_t type) noexcept {
    TlvReader reader(tlvs);
    for (Tlv tlv; reader.next(tlv);) {
        if (tlv.type == type) return tlv.value;
    }
    return {};
}

std::size_t extension_frame_bytes(const std::byte* ulpdu_length) noexcept {
    const std::size_t ulpdu = load_be16(ulpdu_length);
    if (ulpdu < kUlpduBytes || ulpdu - kUlpduBytes > MPA_EXTENSION_TLVS_MAX) return 0;
    return fpdu_octets(ulpdu);
}

bool looks_like_extension_frame(const std::byte* bytes) noexcept {
    return extension_frame_bytes(bytes) != 0 &&
           bytes[offsetof(mpa_extension_frame, control)] == std::byte{kHeader.control} &&
           bytes[offsetof(mpa_extension_frame, rdmap)] == std::byte{kHeader.rdmap};
}

ExtensionError check_extension_header(const std::byte* frame) noexcept {
    const auto* const expected = reinterpret_cast<const std::byte*>(&kHeader);
    if (!std::equal(frame + MPA_LENGTH_OCTETS, frame + kVersionAt, expected + MPA_LENGTH_OCTETS)) {
        return ExtensionError::header;
    }
    if (frame[kVersionAt] != std::byte{MPA_EXTENSION_VERSION}) return ExtensionError::version;
    if (extension_frame_bytes(frame) == 0 ||
        load_be16(frame) - kUlpduBytes != load_be16(frame + kTlvsLengthAt)) {
        return ExtensionError::length;
    }
    return ExtensionError::none;
}

ConstBytes extension_tlvs(ConstBytes frame) noexcept {
    return frame.subspan(kExtensionHeaderBytes, load_be16(frame.data() + kTlvsLengthAt));
}

bool extension_crc_holds(ConstBytes frame) noexcept {
    const std::size_t covered = extension_frame_bytes(frame.data()) - MPA_CRC_OCTETS;
    return crc_of(frame.first(covered)) == load_le32(frame.data() + covered);
}

ExtensionError decode(ConstBytes value, Implementation& out) noexcept {
    if (value.size() < sizeof(mpa_tlv_implementation)) return ExtensionError::implementation;
    Implementation read;
    read.features = load_be64(value.data() + offsetof(mpa_tlv_implementation, features));
    if ((read.features & MPA_FEATURE_DELAYED_ACK) != 0) {
        read.delayed_ack_ms =
            load_be16(value.data() + offsetof(mpa_tlv_implementation, delayed_ack_ms));
    }
    ConstBytes texts = value.subspan(sizeof(mpa_tlv_implementation));
    if (!take_text(texts, read.name) || !take_text(texts, read.version)) {
        return ExtensionError::implementation;
    }
    out = read;
    return ExtensionError::none;
}

ExtensionError decode(ConstBytes frame, ExtensionFrame& out) {
    if (frame.size() < kExtensionHeaderBytes) return ExtensionError::length;
    const ExtensionError header = check_extension_header(frame.data());
    if (header != ExtensionError::none) return header;
    if (frame.size() != extension_frame_bytes(frame.data())) return ExtensionError::length;
    if (!extension_crc_holds(frame)) return ExtensionError::crc;
    ExtensionFrame read;
    TlvReader tlvs(extension_tlvs(frame));
    for (Tlv tlv; tlvs.next(tlv);) {
        if (tlv.type == MPA_TLV_IMPLEMENTATION) {
            const ExtensionError error = decode(tlv.value, read.implementation.emplace());
            if (error != ExtensionError::none) return error;
        } else if (tlv.type == MPA_TLV_ALIGN) {
            read.align = true;  // whatever a later version gives it for a value
        } else if (tlv.type == MPA_TLV_SHM_OFFER) {
            read.shm_offer.assign(tlv.value.begin(), tlv.value.end());
        } else if (tlv.type == MPA_TLV_SHM_ANSWER) {
            read.shm_answer.assign(tlv.value.begin(), tlv.value.end());
        }
    }
    if (tlvs.error() != ExtensionError::none) return tlvs.error();
    out = std::move(read);
    return ExtensionError::none;
}

std::size_t ExtensionReceiver::consume(ConstBytes bytes) {
    std::size_t used = 0;
    while (used < bytes.size() && !complete_ && error_ == ExtensionError::none) {
        const ConstBytes piece =
            bytes.subspan(used, std::min(wanted_ - bytes_.size(), bytes.size() - used));
        bytes_.insert(bytes_.end(), piece.begin(), piece.end());
        used += piece.size();
        if (bytes_.size() == wanted_) on_wanted();
    }
    return used;
}

std::size_t ExtensionReceiver::rx_wanted() const noexcept {
    if (complete_ || error_ != ExtensionError::none) return 0;
    const bool known = bytes_.size() >= MPA_LENGTH_OCTETS;
    return (known ? extension_frame_bytes(bytes_.data()) : wanted_) - bytes_.size();
}

/// Refuses what is no frame as early as it shows: the rest of it may never come.
void ExtensionReceiver::on_wanted() {
    if (wanted_ == MPA_LENGTH_OCTETS) {
        if (extension_frame_bytes(bytes_.data()) == 0) error_ = ExtensionError::length;
        wanted_ = kExtensionHeaderBytes;
    } else if (wanted_ == kExtensionHeaderBytes) {
        error_ = check_extension_header(bytes_.data());
        wanted_ = extension_frame_bytes(bytes_.data());
    } else {
        error_ = decode(bytes_, frame_);
        complete_ = error_ == ExtensionError::none;
    }
}

}  // namespace xsock::mpa
