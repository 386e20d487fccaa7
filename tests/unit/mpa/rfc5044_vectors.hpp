// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The FPDUs that RFC 5044 prints, figures 5 and 6.
#pragma once

#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::test {

inline constexpr std::size_t kFigureHeader = 18, kFigurePayload = 24;

inline ByteVector figure_ulpdu(int msn) {
    ByteVector out = bytes_of({0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0});
    out.resize(kFigureHeader + kFigurePayload);
    return out;
}

/// Figure 5: the first FPDU of a stream, the first marker before it.
inline ByteVector figure5() {
    ByteVector out = bytes_of({0, 0, 0, 0, 0x00, 0x2a});
    const ByteVector ulpdu = figure_ulpdu(1);
    out.insert(out.end(), ulpdu.begin(), ulpdu.end());
    for (const int v : {0x52, 0x23, 0x99, 0x83}) out.push_back(static_cast<std::byte>(v));
    return out;
}

/// Figure 6: an FPDU that begins 492 octets into the stream, a marker 20 octets into it.
inline ByteVector figure6() {
    ByteVector out = bytes_of({0x00, 0x2a});
    const ByteVector ulpdu = figure_ulpdu(2);
    out.insert(out.end(), ulpdu.begin(), ulpdu.begin() + kFigureHeader);
    for (const int v : {0x00, 0x00, 0x00, 0x14}) out.push_back(static_cast<std::byte>(v));
    out.insert(out.end(), ulpdu.begin() + kFigureHeader, ulpdu.end());
    for (const int v : {0x84, 0x92, 0x58, 0x98}) out.push_back(static_cast<std::byte>(v));
    return out;
}
inline constexpr std::size_t kFigure6Offset = 492;

}  // namespace xsock::test
