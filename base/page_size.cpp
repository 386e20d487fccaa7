// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/page_size.hpp"

#include <unistd.h>

#include "base/once.hpp"

namespace xsock {

std::size_t page_size() noexcept {
    static constinit Once<std::size_t> bytes;
    return bytes.get([] { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); });
}

}  // namespace xsock
