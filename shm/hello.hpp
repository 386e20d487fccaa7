// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the two processes of a link say when it is made, over a socket of their host: the creator's
// hello, with the memory's descriptor, and the acceptor's ok. Each is one datagram.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "shm/layout.hpp"
#include "shm/offer.hpp"

namespace xsock::shm {

struct Hello {
    std::uint64_t link = 0;  ///< id, random
    Key creator{};           ///< so that the acceptor's connections to the creator use the link too
    std::uint32_t page_bytes = 0;
    Layout layout;

    friend bool operator==(const Hello&, const Hello&) = default;
};

/// Why a hello is refused; it travels in the answer.
enum class HelloError : std::uint8_t {
    none,     ///< ok
    version,  ///< of hello, layout or byte order; pages of another size
    memory,   ///< the descriptor is not what it must be
    limits,   ///< descriptors or memory have run out
};

[[nodiscard]] std::vector<std::byte> encode(const Hello& hello);
/// What was received, all of it. `page_bytes`: ours.
struct HelloResult {
    HelloError error = HelloError::version;
    Hello hello;  ///< valid without an error
};
[[nodiscard]] HelloResult decode_hello(ConstBytes datagram, std::uint32_t page_bytes) noexcept;

[[nodiscard]] std::vector<std::byte> encode_answer(HelloError error);
/// Nothing: it is no answer.
[[nodiscard]] std::optional<HelloError> decode_hello_answer(ConstBytes datagram) noexcept;

}  // namespace xsock::shm
