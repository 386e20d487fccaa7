// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an end of a connection says of itself in its extension frame (docs/wire.md): a value that
// travels from the transport to the wire, and from the peer's frame up to the APIs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xsock {

struct Implementation {
    /// As many bytes as a name or a version has on the wire; longer ones are cut.
    static constexpr std::size_t kTextMax = 64;
    using Text = std::array<char, kTextMax + 1>;  // NUL-terminated

    std::uint64_t features = 0;        ///< MPA_FEATURE_*
    std::uint16_t delayed_ack_ms = 0;  ///< 0 without MPA_FEATURE_DELAYED_ACK
    Text name{};
    Text version{};

    /// Printable ASCII of `text`; other bytes become '?', for it goes to terminals.
    static Text text(std::string_view text) noexcept {
        Text out{};
        const std::size_t n = std::min(text.size(), kTextMax);
        std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n), out.begin(),
                       [](char c) { return c >= 0x20 && c < 0x7f ? c : '?'; });
        return out;
    }

    friend bool operator==(const Implementation&, const Implementation&) = default;
};

}  // namespace xsock
