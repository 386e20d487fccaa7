// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_greeting.hpp"

#include <cstring>

namespace xsock::verbs {
namespace {

constexpr char kMagic[8] = {'x', 's', 'o', 'c', 'k', '-', 'Q', 'P'};
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kBothWays = 0x01;

struct GreetingLayout {
    char magic[8];
    std::uint8_t version;
    std::uint8_t kind;
    std::uint8_t refusal;  // 0 unless the kind is rejected
    std::uint8_t flags;    // kBothWays; others are 0, and ignored
    std::uint8_t from[4];  // big-endian, as are the next
    std::uint8_t to[4];
    std::uint8_t attempt[4];
};
static_assert(sizeof(GreetingLayout) == kGreetingBytes);

}  // namespace

const char* text_of(GreetingRefusal why) noexcept {
    switch (why) {
        case GreetingRefusal::none:
            return "nothing";
        case GreetingRefusal::no_such_qp:
            return "there is no such QP";
        case GreetingRefusal::other_peer:
            return "the QP is to be connected to another one";
        case GreetingRefusal::other_kind:
            return "the QP is of another kind";
        case GreetingRefusal::other_version:
            return "the peer speaks another version";
        case GreetingRefusal::too_many:
            return "the peer has too many connections that wait";
        case GreetingRefusal::not_permitted:
            return "the peer is another user's (XSOCK_VERBS_PEER_USERS=any there)";
        case GreetingRefusal::already_connected:
            return "it is connected already";
    }
    return "a reason that is not known";
}

std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting) noexcept {
    std::array<std::byte, kGreetingBytes> data{};
    std::memcpy(data.data(), kMagic, sizeof kMagic);
    data[offsetof(GreetingLayout, version)] = std::byte{kVersion};
    data[offsetof(GreetingLayout, kind)] = static_cast<std::byte>(greeting.kind);
    data[offsetof(GreetingLayout, refusal)] = static_cast<std::byte>(greeting.refusal);
    if (greeting.both_ways) data[offsetof(GreetingLayout, flags)] = std::byte{kBothWays};
    store_be32(data.data() + offsetof(GreetingLayout, from), greeting.from);
    store_be32(data.data() + offsetof(GreetingLayout, to), greeting.to);
    store_be32(data.data() + offsetof(GreetingLayout, attempt), greeting.attempt);
    return data;
}

std::optional<DecodedGreeting> decode(ConstBytes data) noexcept {
    constexpr std::size_t kVersionAt = offsetof(GreetingLayout, version);
    if (data.size() <= kVersionAt || std::memcmp(data.data(), kMagic, sizeof kMagic) != 0) {
        return std::nullopt;
    }
    DecodedGreeting decoded;
    if (std::to_integer<std::uint8_t>(data[kVersionAt]) != kVersion) {
        decoded.refusal = GreetingRefusal::other_version;
        return decoded;
    }
    if (data.size() != kGreetingBytes) return std::nullopt;
    Greeting& greeting = decoded.greeting;
    greeting.from = load_be32(data.data() + offsetof(GreetingLayout, from));
    greeting.to = load_be32(data.data() + offsetof(GreetingLayout, to));
    greeting.attempt = load_be32(data.data() + offsetof(GreetingLayout, attempt));
    if (greeting.from > kQpNumMax || greeting.to > kQpNumMax) return std::nullopt;
    const auto kind = std::to_integer<std::uint8_t>(data[offsetof(GreetingLayout, kind)]);
    const auto refusal = std::to_integer<std::uint8_t>(data[offsetof(GreetingLayout, refusal)]);
    if (kind > static_cast<std::uint8_t>(GreetingKind::datagrams)) {
        decoded.refusal = GreetingRefusal::other_kind;
        return decoded;
    }
    greeting.kind = static_cast<GreetingKind>(kind);
    const auto flags = std::to_integer<std::uint8_t>(data[offsetof(GreetingLayout, flags)]);
    greeting.both_ways = greeting.kind == GreetingKind::datagrams && (flags & kBothWays) != 0;
    if ((greeting.kind == GreetingKind::rejected) != (refusal != 0)) return std::nullopt;
    if (refusal > static_cast<std::uint8_t>(GreetingRefusal::already_connected)) {
        return std::nullopt;
    }
    greeting.refusal = static_cast<GreetingRefusal>(refusal);
    return decoded;
}

}  // namespace xsock::verbs
