// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of one simulated program, and a shadow copy of it. Buffers are cut from it with guard
// bytes between them; only what is inside an open window may differ from the shadow.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "base/bytes.hpp"
#include "tests/sim/rng.hpp"

namespace xsock::sim {

class Arena {
  public:
    /// `memory` is filled with noise and stays the caller's.
    Arena(Bytes memory, Rng& rng);

    /// A buffer of `n` bytes, at any alignment. Null: no room now.
    std::byte* take(std::size_t n, Rng& rng);
    void give(const std::byte* buffer);
    [[nodiscard]] bool empty() const noexcept { return used_.empty(); }

    /// The program stores into its own memory.
    void store(std::byte* to, ConstBytes bytes);

    /// The stack may write here from now on.
    void open(std::byte* at, std::size_t n);
    /// No longer: what is there now stays.
    void close(std::byte* at);
    /// The shadow of what lies at `at`: inside a window, as it was when the window was opened.
    [[nodiscard]] ConstBytes before(const std::byte* at, std::size_t n) const;

    /// Fails if a byte outside of every window has changed.
    void check(const char* whose) const;

    [[nodiscard]] Bytes memory() const noexcept { return memory_; }
    [[nodiscard]] bool contains(const std::byte* at) const noexcept {
        return at >= memory_.data() && at < memory_.data() + memory_.size();
    }

  private:
    [[nodiscard]] std::size_t offset(const std::byte* at) const noexcept {
        return static_cast<std::size_t>(at - memory_.data());
    }
    void compare(std::size_t from, std::size_t to, const char* whose) const;

    Bytes memory_;
    std::vector<std::byte> shadow_;
    std::map<std::size_t, std::size_t> used_;     // offset -> bytes, guard behind included
    std::map<std::size_t, std::size_t> windows_;  // offset -> bytes
};

}  // namespace xsock::sim
