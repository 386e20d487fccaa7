// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Descriptors that are the library's own, in a program that does not know of them: a program that
// closes whole ranges must be kept from closing these. Lock-free and async-signal-safe.
#pragma once

#include "base/result.hpp"

namespace xsock {

/// `fd` is ours until disown(). -1 is ignored.
void own_descriptor(int fd) noexcept;
void disown_descriptor(int fd) noexcept;
[[nodiscard]] bool owns_descriptor(int fd) noexcept;

/// Another descriptor of the same open file, close-on-exec and owned, with a number out of the way
/// of the program's where the limits allow one. EMFILE.
Result<int> duplicate_descriptor(int fd) noexcept;

}  // namespace xsock
