// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/hello.hpp"

#include <algorithm>
#include <cstring>

#include "shm/bytes_of.hpp"

namespace xsock::shm {
namespace {

constexpr std::uint16_t kVersion = 1;
/// Of the words in shared memory: an emulated process may have another order than its kernel.
constexpr std::uint32_t kByteOrder = 0x01020304;

// As it lies in the datagram; numbers big-endian but for the mark.
struct RawHello {
    std::byte name[4];        // "xshm"
    std::byte version[2];     // kVersion
    std::byte reserved[2];    // 0
    std::byte byte_order[4];  // kByteOrder in the order of the sender's memory
    std::byte page_bytes[4];
    std::byte ring_bytes[4];
    std::byte slots[4];
    std::byte link[8];
    std::byte creator[16];
};
static_assert(sizeof(RawHello) == 48);

struct RawAnswer {
    std::byte name[4];     // "xshm"
    std::byte version[2];  // kVersion
    std::byte error[2];    // HelloError
};
static_assert(sizeof(RawAnswer) == 8);

constexpr char kName[] = "xshm";

/// Copies a datagram of exactly this shape, name and version.
template <typename T>
bool take(ConstBytes datagram, T& out) noexcept {
    if (datagram.size() != sizeof out) return false;
    std::memcpy(&out, datagram.data(), sizeof out);
    return std::memcmp(out.name, kName, sizeof out.name) == 0 && load_be16(out.version) == kVersion;
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
    RawHello raw{};
    std::memcpy(raw.name, kName, sizeof raw.name);
    store_be16(raw.version, kVersion);
    std::memcpy(raw.byte_order, &kByteOrder, sizeof kByteOrder);
    store_be32(raw.page_bytes, hello.page_bytes);
    store_be32(raw.ring_bytes, hello.layout.ring_bytes);
    store_be32(raw.slots, hello.layout.slots);
    store_be64(raw.link, hello.link);
    std::copy(hello.creator.begin(), hello.creator.end(), raw.creator);
    return bytes_of(raw);
}

HelloResult decode_hello(ConstBytes datagram, std::uint32_t page_bytes) noexcept {
    RawHello raw;
    if (!take(datagram, raw)) return {};
    HelloResult result;
    Hello& hello = result.hello;
    hello.page_bytes = load_be32(raw.page_bytes);
    hello.layout = {.ring_bytes = load_be32(raw.ring_bytes), .slots = load_be32(raw.slots)};
    hello.link = load_be64(raw.link);
    std::copy_n(raw.creator, hello.creator.size(), hello.creator.begin());
    // One layout is all that there is; another is another version's.
    if (std::memcmp(raw.byte_order, &kByteOrder, sizeof kByteOrder) == 0 &&
        hello.page_bytes == page_bytes && hello.layout == Layout{}) {
        result.error = HelloError::none;
    }
    return result;
}

std::vector<std::byte> encode_answer(HelloError error) {
    RawAnswer raw{};
    std::memcpy(raw.name, kName, sizeof raw.name);
    store_be16(raw.version, kVersion);
    store_be16(raw.error, static_cast<std::uint16_t>(error));
    return bytes_of(raw);
}

std::optional<HelloError> decode_hello_answer(ConstBytes datagram) noexcept {
    RawAnswer raw;
    if (!take(datagram, raw)) return std::nullopt;
    const std::uint16_t error = load_be16(raw.error);
    if (error > static_cast<std::uint16_t>(HelloError::limits)) return std::nullopt;
    return static_cast<HelloError>(error);
}

}  // namespace xsock::shm
