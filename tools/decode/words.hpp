// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Start-up frames, FPDUs and Terminates in words, for `xsock decode`.
#pragma once

#include <string>

#include "tools/decode/stream.hpp"

namespace xsock::decode {

/// "Send", "Read Request", ...; "opcode 12" for one that RDMAP does not have.
[[nodiscard]] std::string opcode_name(unsigned opcode);
[[nodiscard]] const char* crc_name(Crc crc) noexcept;

[[nodiscard]] std::string startup_words(const StartupFrame& frame);
[[nodiscard]] std::string extension_words(const ExtensionFrame& frame);
[[nodiscard]] std::string fpdu_words(const Fpdu& fpdu);

/// A Terminate's control word read in one way.
struct TerminateReading {
    unsigned layer = 0, etype = 0, code = 0;
    std::string words;
};
struct TerminateWords {
    std::string control;        ///< the four bytes, in hexadecimal
    TerminateReading rfc;       ///< as RFC 5040 §4.8 lays it out
    TerminateReading siw;       ///< as Linux siw does on little-endian machines: nibbles swapped
    bool siw_is_meant = false;  ///< which of them a receiver of ours takes
    std::string about;          ///< the message that it is about, if its header is attached
};
/// @pre the payload holds at least the control word
[[nodiscard]] TerminateWords terminate_words(ConstBytes payload);

[[nodiscard]] std::string hexadecimal(ConstBytes bytes);

}  // namespace xsock::decode
