// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FPDUs as they lie on the wire (RFC 5044 §4), for tests of what receives them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/crc32c.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/fpdu.hpp"
#include "mpa/marker.hpp"

namespace xsock::test {

/// Appends the FPDU of a ULPDU, with pad and CRC.
inline void append_fpdu(std::vector<std::byte>& stream, ConstBytes ulpdu) {
    const std::size_t from = stream.size();
    stream.resize(from + mpa::fpdu_octets(ulpdu.size()));
    store_be16(&stream[from], static_cast<std::uint16_t>(ulpdu.size()));
    std::copy(ulpdu.begin(), ulpdu.end(),
              stream.begin() + static_cast<std::ptrdiff_t>(from + MPA_LENGTH_OCTETS));
    const std::size_t covered = stream.size() - from - MPA_CRC_OCTETS;
    const ConstBytes octets = ConstBytes(stream).subspan(from, covered);
    store_le32(&stream[from + covered], crc32c_finish(crc32c(kCrc32cInit, octets)));
}

/// The same with markers. `stream` has begun with the first of them.
inline void append_marked_fpdu(std::vector<std::byte>& stream, ConstBytes ulpdu) {
    std::vector<std::byte> plain;
    append_fpdu(plain, ulpdu);
    const std::size_t from = stream.size();
    std::size_t length_at = from;
    const auto marker_if_due = [&] {
        if (stream.size() % MPA_MARKER_SPACING != 0) return;
        const auto marker = mpa::marker_octets(stream.size() - length_at);
        if (stream.size() == from) length_at += marker.size();
        stream.insert(stream.end(), marker.begin(), marker.end());
    };
    for (std::size_t i = 0; i + MPA_CRC_OCTETS < plain.size(); ++i) {
        marker_if_due();
        stream.push_back(plain[i]);
    }
    marker_if_due();
    const ConstBytes covered = ConstBytes(stream).subspan(from);
    const std::uint32_t crc = crc32c_finish(crc32c(kCrc32cInit, covered));
    stream.resize(stream.size() + MPA_CRC_OCTETS);
    store_le32(&stream[stream.size() - MPA_CRC_OCTETS], crc);
}

/// A Write of one segment: its header, and `n` bytes that depend on `to`.
inline std::vector<std::byte> write_ulpdu(std::uint32_t stag, std::uint64_t to, std::size_t n,
                                          bool last = true) {
    std::vector<std::byte> ulpdu(sizeof(ddp_tagged) + n);
    ulpdu[0] = static_cast<std::byte>(DDP_FLAG_TAGGED | DDP_VERSION | (last ? DDP_FLAG_LAST : 0));
    ulpdu[1] = std::byte{RDMAP_VERSION | RDMAP_WRITE};
    store_be32(&ulpdu[2], stag);
    store_be64(&ulpdu[6], to);
    for (std::size_t i = 0; i < n; ++i) {
        ulpdu[sizeof(ddp_tagged) + i] = static_cast<std::byte>(i * 31 + to);
    }
    return ulpdu;
}

/// A Send of one segment of `n` zeros.
inline std::vector<std::byte> send_ulpdu(std::uint32_t msn, std::size_t n) {
    std::vector<std::byte> ulpdu(sizeof(ddp_untagged) + n);
    ulpdu[0] = std::byte{DDP_FLAG_LAST | DDP_VERSION};
    ulpdu[1] = std::byte{RDMAP_VERSION | RDMAP_SEND};
    store_be32(&ulpdu[10], msn);
    return ulpdu;
}

}  // namespace xsock::test
