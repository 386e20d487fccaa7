// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stays of a start-up that has ended well. A Startup takes three times as much memory, and
// there may be many thousands of connections that need no more than this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/implementation.hpp"
#include "base/ulp.hpp"

namespace xsock::mpa {

/// What the peer's extension frame says of it, kept as it is on the wire: a sixth of what an
/// Implementation takes.
class PeerImplementation {
  public:
    /// Throws std::bad_alloc.
    void set(const Implementation& peer);
    /// Nothing: set() was not called.
    [[nodiscard]] std::optional<Implementation> get() const noexcept;

  private:
    std::unique_ptr<std::byte[]> value_;  // of MPA_TLV_IMPLEMENTATION
    std::uint16_t bytes_ = 0;
};

struct StartupResult {
    Negotiated negotiated;
    std::vector<std::byte> private_data;  ///< the peer's, enhanced octets taken off
    PeerImplementation peer;
    std::vector<std::byte> answer;  ///< the peer's MPA_TLV_SHM_ANSWER; empty: its frame has none
};

}  // namespace xsock::mpa
