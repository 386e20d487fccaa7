// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/cm_greeting.hpp"

#include <cstddef>
#include <cstring>

#include "verbs/gid_greeting.hpp"

namespace xsock::verbs {
namespace {

constexpr char kCmMagic[8] = {'x', 's', 'o', 'c', 'k', '-', 'C', 'M'};
constexpr std::uint8_t kCmVersion = 1;

struct CmGreetingLayout {
    char magic[8];
    std::uint8_t version;
    std::uint8_t reserved[3];  // 0
    std::uint8_t qp_num[4];    // big-endian
};
static_assert(sizeof(CmGreetingLayout) == kCmGreetingBytes);

}  // namespace

std::array<std::byte, kCmGreetingBytes> encode_cm_greeting(std::uint32_t qp_num) noexcept {
    std::array<std::byte, kCmGreetingBytes> octets{};
    std::memcpy(octets.data(), kCmMagic, sizeof kCmMagic);
    octets[offsetof(CmGreetingLayout, version)] = std::byte{kCmVersion};
    store_be32(octets.data() + offsetof(CmGreetingLayout, qp_num), qp_num);
    return octets;
}

std::optional<CmGreeting> decode_cm_greeting(ConstBytes private_data) noexcept {
    const std::byte* const in = private_data.data();
    if (private_data.size() < sizeof kCmMagic || std::memcmp(in, kCmMagic, sizeof kCmMagic) != 0) {
        return std::nullopt;
    }
    if (private_data.size() < kCmGreetingBytes) return CmGreeting{};
    const std::uint32_t fixed = load_be32(in + offsetof(CmGreetingLayout, version));
    const std::uint32_t num = load_be32(in + offsetof(CmGreetingLayout, qp_num));
    if (fixed != std::uint32_t{kCmVersion} << 24 || num > kQpNumMax) return CmGreeting{};
    return CmGreeting{num, private_data.subspan(kCmGreetingBytes)};
}

}  // namespace xsock::verbs
