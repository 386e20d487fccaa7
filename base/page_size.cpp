// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/page_size.hpp"

#include <unistd.h>

namespace xsock {

std::size_t page_size() noexcept {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

}  // namespace xsock
