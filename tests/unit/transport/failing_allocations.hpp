// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that runs out at a chosen allocation. The program's operator new is replaced for that.
#pragma once

namespace xsock::test {

/// While it lives, the `at`th allocation of this thread by operator new throws, counted from 0, and
/// with `all` those behind it.
class FailAllocation {
  public:
    explicit FailAllocation(int at, bool all = false) noexcept;
    ~FailAllocation();
    FailAllocation(const FailAllocation&) = delete;
    FailAllocation& operator=(const FailAllocation&) = delete;
    /// It was reached.
    [[nodiscard]] bool happened() const noexcept;
};

}  // namespace xsock::test
