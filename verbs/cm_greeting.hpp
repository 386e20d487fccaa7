// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an id that connects without a queue pair of its own says ahead of the program's private
// data, in the MPA Request and Reply (docs/wire.md). Sans-IO.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace xsock::verbs {

inline constexpr std::size_t kCmGreetingBytes = 16;

struct CmGreeting {
    /// The number that the sender's program names in rdma_conn_param.qp_num: 1 to 0xffffff.
    /// 0: these octets begin as a greeting, and are none.
    std::uint32_t qp_num = 0;
    ConstBytes data;  ///< the program's private data, behind it
};

std::array<std::byte, kCmGreetingBytes> encode_cm_greeting(std::uint32_t qp_num) noexcept;
/// Nothing: all of it is the program's.
std::optional<CmGreeting> decode_cm_greeting(ConstBytes private_data) noexcept;

}  // namespace xsock::verbs
