// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/capture_file.hpp"

#include <algorithm>
#include <array>

namespace xsock::decode {
namespace {

// What Wireshark takes at most; longer packets are a sign of a broken file.
constexpr std::uint32_t kPacketMax = 262144;
constexpr std::uint32_t kBlockMax = 16 * 1024 * 1024;
constexpr std::size_t kInterfacesMax = 1024;

constexpr std::uint32_t kPcapMicro = 0xa1b2c3d4, kPcapNano = 0xa1b23c4d;
constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a, kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint32_t kInterfaceBlock = 1, kSimplePacket = 3, kEnhancedPacket = 6;
constexpr std::uint16_t kOptEnd = 0, kOptTsResol = 9;
constexpr std::uint64_t kNs = 1'000'000'000;

/// ticks / per_second in nanoseconds, without overflow on the way.
std::uint64_t to_ns(std::uint64_t ticks, std::uint64_t per_second) {
    if (per_second == kNs) return ticks;
    const std::uint64_t seconds = ticks / per_second;
    const auto rest = static_cast<unsigned __int128>(ticks % per_second) * kNs / per_second;
    return seconds * kNs + static_cast<std::uint64_t>(rest);
}

constexpr std::size_t padded(std::size_t n) { return (n + 3) & ~std::size_t{3}; }

}  // namespace

bool CaptureFile::next(Packet& packet) {
    if (kind_ == Kind::unknown && !begin()) return false;
    switch (kind_) {
        case Kind::pcap:
            return next_pcap(packet);
        case Kind::pcapng:
            return next_pcapng(packet);
        case Kind::unknown:
        case Kind::over:
            return false;
    }
    return false;
}

bool CaptureFile::begin() {
    std::array<std::byte, 4> magic{};
    if (!read(magic)) return fail("no capture file: shorter than any");
    const std::uint32_t big = load_be32(magic.data()), little = load_le32(magic.data());
    if (big == kSectionHeader) {  // reads the same both ways
        kind_ = Kind::pcapng;
        std::array<std::byte, 4> length{};
        if (!read(length)) return fail("the first block is cut");
        big_endian_ = true;
        return begin_section(load_be32(length.data()));
    }
    big_endian_ = big == kPcapMicro || big == kPcapNano;
    const std::uint32_t kind = big_endian_ ? big : little;
    if (kind != kPcapMicro && kind != kPcapNano) {
        return fail("no capture file: begins neither as pcap nor as pcapng does");
    }
    nanoseconds_ = kind == kPcapNano;
    std::array<std::byte, 20> header{};
    if (!read(header)) return fail("the pcap header is cut");
    link_type_ = static_cast<std::uint16_t>(u32(header.data() + 16));
    kind_ = Kind::pcap;
    return true;
}

/// The header of a packet or block, behind which or before which a file may end; `cut` says that it
/// does so in the middle.
bool CaptureFile::read_first(Bytes header, const char* cut) {
    const std::uint64_t before = position_;
    if (read(header)) return true;
    if (position_ != before) return fail(cut);
    kind_ = Kind::over;
    return false;
}

bool CaptureFile::next_pcap(Packet& packet) {
    std::array<std::byte, 16> header{};
    if (!read_first(header, "the last packet is cut")) return false;
    const std::uint32_t captured = u32(header.data() + 8);
    if (captured > kPacketMax) return fail("a packet longer than any");
    if (!read_body(captured)) return fail("the last packet is cut");
    packet.number = ++packets_;
    packet.time_ns = std::uint64_t{u32(header.data())} * kNs +
                     std::uint64_t{u32(header.data() + 4)} * (nanoseconds_ ? 1 : 1000);
    packet.link_type = link_type_;
    packet.bytes = body_;
    packet.original_bytes = std::max(captured, u32(header.data() + 12));
    return true;
}

// The first eight bytes of a section header block were read, its length by the old byte order.
bool CaptureFile::begin_section(std::uint32_t length) {
    std::array<std::byte, 4> magic{};
    if (!read(magic)) return fail("a section header is cut");
    const bool was_big = big_endian_;
    if (load_be32(magic.data()) == kByteOrderMagic) {
        big_endian_ = true;
    } else if (load_le32(magic.data()) == kByteOrderMagic) {
        big_endian_ = false;
    } else {
        return fail("a section header without its byte-order magic");
    }
    if (big_endian_ != was_big) length = __builtin_bswap32(length);
    if (length < 28 || length % 4 != 0 || length > kBlockMax) {
        return fail("a section header of impossible length");
    }
    interfaces_.clear();
    return skip(length - 12) || fail("a section header is cut");
}

bool CaptureFile::next_pcapng(Packet& packet) {
    for (;;) {
        std::array<std::byte, 8> header{};
        if (!read_first(header, "the last block is cut")) return false;
        const std::uint32_t type = u32(header.data());
        const std::uint32_t length = u32(header.data() + 4);
        if (type == kSectionHeader) {
            if (!begin_section(length)) return false;
            continue;
        }
        if (length < 12 || length % 4 != 0 || length > kBlockMax) {
            return fail("a block of impossible length");
        }
        const std::size_t body = length - 12;
        if (type != kInterfaceBlock && type != kEnhancedPacket && type != kSimplePacket) {
            if (!skip(body + 4)) return fail("the last block is cut");
            continue;
        }
        if (!read_body(body) || !skip(4)) return fail("the last block is cut");
        if (type == kInterfaceBlock) {
            if (interfaces_.size() == kInterfacesMax) return fail("too many interfaces");
            add_interface(body_);
        } else if (type == kEnhancedPacket ? take_enhanced(body_, packet)
                                           : take_simple(body_, packet)) {
            return true;
        } else {
            return fail("a packet block that contradicts itself");
        }
    }
}

void CaptureFile::add_interface(ConstBytes body) {
    Interface made;
    if (body.size() < 8) {
        interfaces_.push_back(made);  // link type 0: nothing is decoded
        return;
    }
    made.link_type = u16(body.data());
    made.snap = u32(body.data() + 4);
    for (std::size_t at = 8; body.size() - at >= 4;) {
        const std::uint16_t code = u16(body.data() + at), length = u16(body.data() + at + 2);
        at += 4;
        if (code == kOptEnd || length > body.size() - at) break;
        if (code == kOptTsResol && length == 1) {
            const auto value = std::to_integer<unsigned>(body[at]);
            const unsigned exponent = value & 0x7f;
            std::uint64_t ticks = 1;
            if ((value & 0x80) != 0) {
                if (exponent <= 63) made.ticks_per_second = ticks << exponent;
            } else if (exponent <= 19) {
                for (unsigned i = 0; i < exponent; ++i) ticks *= 10;
                made.ticks_per_second = ticks;
            }
        }
        at += std::min(padded(length), body.size() - at);
    }
    interfaces_.push_back(made);
}

bool CaptureFile::take_enhanced(ConstBytes body, Packet& packet) {
    if (body.size() < 20) return false;
    const std::uint32_t interface = u32(body.data());
    const std::uint32_t captured = u32(body.data() + 12);
    if (interface >= interfaces_.size() || captured > body.size() - 20) return false;
    const std::uint64_t ticks = std::uint64_t{u32(body.data() + 4)} << 32 | u32(body.data() + 8);
    packet.number = ++packets_;
    packet.time_ns = to_ns(ticks, interfaces_[interface].ticks_per_second);
    packet.link_type = interfaces_[interface].link_type;
    packet.bytes = body.subspan(20, captured);
    packet.original_bytes = std::max(captured, u32(body.data() + 16));
    return true;
}

bool CaptureFile::take_simple(ConstBytes body, Packet& packet) {
    if (body.size() < 4 || interfaces_.empty()) return false;
    const std::uint32_t original = u32(body.data());
    std::size_t captured = std::min<std::size_t>(original, body.size() - 4);
    if (interfaces_[0].snap != 0) captured = std::min<std::size_t>(captured, interfaces_[0].snap);
    packet.number = ++packets_;
    packet.time_ns = 0;
    packet.link_type = interfaces_[0].link_type;
    packet.bytes = body.subspan(4, captured);
    packet.original_bytes = original;
    return true;
}

// ---- bytes -----------------------------------------------------------------

bool CaptureFile::read(Bytes bytes) {
    while (!bytes.empty()) {
        const std::size_t n = source_.read(bytes);
        if (n == 0) return false;
        position_ += n;
        bytes = bytes.subspan(n);
    }
    return true;
}

/// Piece by piece: a length that the file does not have costs no memory.
bool CaptureFile::read_body(std::size_t n) {
    body_.clear();
    while (body_.size() < n) {
        const std::size_t have = body_.size();
        body_.resize(have + std::min<std::size_t>(n - have, 65536));
        if (!read(Bytes(body_).subspan(have))) return false;
    }
    return true;
}

bool CaptureFile::skip(std::uint64_t n) {
    std::array<std::byte, 4096> nowhere;
    while (n > 0) {
        const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(n, nowhere.size()));
        if (!read(Bytes(nowhere).first(piece))) return false;
        n -= piece;
    }
    return true;
}

bool CaptureFile::fail(const std::string& what) {
    kind_ = Kind::over;
    if (error_.empty()) error_ = what + " (at byte " + std::to_string(position_) + ")";
    return false;
}

std::uint16_t CaptureFile::u16(const std::byte* p) const noexcept {
    return big_endian_ ? load_be16(p) : __builtin_bswap16(load_be16(p));
}

std::uint32_t CaptureFile::u32(const std::byte* p) const noexcept {
    return big_endian_ ? load_be32(p) : load_le32(p);
}

}  // namespace xsock::decode
