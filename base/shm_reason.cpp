// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/shm_reason.hpp"

#include <cstddef>
#include <iterator>

namespace xsock::shm {

const char* name_of(Reason reason) noexcept {
    static constexpr const char* kNames[] = {
        // by Reason
        "none", "off",     "capture", "markers", "remote", "addresses",      "unreachable",
        "user", "version", "limits",  "timeout", "kernel", "extensions-off", "peer-off"};
    static_assert(std::size(kNames) == static_cast<std::size_t>(Reason::kCount));
    const auto index = static_cast<std::size_t>(reason);
    return index < std::size(kNames) ? kNames[index] : "unknown";
}

}  // namespace xsock::shm
