// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>

namespace xsock {
/// Bytes of a page of memory, as the kernel maps them: a power of two.
[[nodiscard]] std::size_t page_size() noexcept;
}  // namespace xsock
