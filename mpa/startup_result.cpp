// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/startup_result.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "mpa/extension_frame.hpp"

namespace xsock::mpa {

void PeerImplementation::set(const Implementation& peer) {
    std::vector<std::byte> tlv;
    append_tlv(tlv, peer);
    const ConstBytes value = ConstBytes(tlv).subspan(sizeof(mpa_tlv));
    value_ = std::make_unique<std::byte[]>(value.size());
    bytes_ = static_cast<std::uint16_t>(value.size());
    std::copy(value.begin(), value.end(), value_.get());
}

std::optional<Implementation> PeerImplementation::get() const noexcept {
    std::optional<Implementation> peer;
    if (value_) {
        [[maybe_unused]] const ExtensionError error =
            decode({value_.get(), bytes_}, peer.emplace());
        XSOCK_ASSERT(error == ExtensionError::none);
    }
    return peer;
}

}  // namespace xsock::mpa
