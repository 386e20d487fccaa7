// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An object that is there before any code runs, and until the very end of the process.
#pragma once

namespace xsock {

/// For a `constinit` variable of a namespace: it is made by no code, and never destroyed. Unlike a
/// static local it has no guard, which a child that was forked while another thread initialised it
/// would find taken for ever.
template <typename T>
union Permanent {
    constexpr Permanent() : value() {}
    Permanent(const Permanent&) = delete;
    Permanent& operator=(const Permanent&) = delete;
    ~Permanent() {}

    T value;
};

}  // namespace xsock
