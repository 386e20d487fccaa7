// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SDP's messages in words, for `xsock decode`.
#pragma once

#include <string>

#include "tools/decode/sdp.hpp"

namespace xsock::decode {

/// "Data", "SrcAvail", ...; "MID 0x40" for one that SDP does not have.
[[nodiscard]] std::string sdp_name(unsigned mid);
[[nodiscard]] std::string sdp_words(const SdpUnit& unit);

}  // namespace xsock::decode
