// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Capture files: pcap (both byte orders, micro- and nanoseconds) and pcapng -> packets, in the
// order of the file. Reads bytes from a source and holds one block at a time, so that size does not
// matter; checks every length. Used by `xsock decode` and its fuzz target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace xsock::decode {

/// Where the bytes of a file come from (already uncompressed).
class ByteSource {
  public:
    /// Up to bytes.size() bytes. @return how many; 0: the end
    virtual std::size_t read(Bytes bytes) = 0;

  protected:
    ~ByteSource() = default;
};

struct Packet {
    std::uint64_t number = 0;          ///< from 1, as Wireshark counts
    std::uint64_t time_ns = 0;         ///< since 1970; 0: unknown
    std::uint16_t link_type = 0;       ///< LINKTYPE_* of pcap
    ConstBytes bytes;                  ///< valid until the next packet
    std::uint32_t original_bytes = 0;  ///< on the wire; more than bytes.size() when cut
};

class CaptureFile {
  public:
    explicit CaptureFile(ByteSource& source) : source_(source) {}

    /// False: no (further) packet; error() then says whether the file ended well.
    bool next(Packet& packet);
    /// Empty, or one sentence about where and why reading stopped.
    [[nodiscard]] const std::string& error() const noexcept { return error_; }

  private:
    struct Interface {
        std::uint16_t link_type = 0;
        std::uint32_t snap = 0;
        std::uint64_t ticks_per_second = 1'000'000;
    };
    enum class Kind : std::uint8_t { unknown, pcap, pcapng, over };

    bool begin();
    bool next_pcap(Packet& packet);
    bool next_pcapng(Packet& packet);
    bool begin_section(std::uint32_t length);
    void add_interface(ConstBytes body);
    bool take_enhanced(ConstBytes body, Packet& packet);
    bool take_simple(ConstBytes body, Packet& packet);
    bool read(Bytes bytes);
    bool read_first(Bytes header, const char* cut);
    bool read_body(std::size_t n);
    bool skip(std::uint64_t n);
    bool fail(const std::string& what);
    [[nodiscard]] std::uint16_t u16(const std::byte* p) const noexcept;
    [[nodiscard]] std::uint32_t u32(const std::byte* p) const noexcept;

    ByteSource& source_;
    Kind kind_ = Kind::unknown;
    bool big_endian_ = false;
    bool nanoseconds_ = false;
    std::uint16_t link_type_ = 0;
    std::uint64_t position_ = 0;
    std::uint64_t packets_ = 0;
    std::vector<Interface> interfaces_;
    std::vector<std::byte> body_;
    std::string error_;
};

}  // namespace xsock::decode
