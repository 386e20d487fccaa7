// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/arena.hpp"

#include <algorithm>

#include "tests/sim/trace.hpp"

namespace xsock::sim {
namespace {
constexpr std::size_t kGuard = 16;
}

Arena::Arena(Bytes memory, Rng& rng) : memory_(memory) {
    rng.fill(memory_);
    shadow_.assign(memory_.begin(), memory_.end());
}

std::byte* Arena::take(std::size_t n, Rng& rng) {
    const std::size_t before = kGuard + rng.below(16);
    const std::size_t wanted = before + n + kGuard;
    std::size_t at = 0;
    for (const auto& [offset, bytes] : used_) {
        if (offset - at >= wanted) break;
        at = offset + bytes;
    }
    if (memory_.size() - at < wanted) return nullptr;
    used_.emplace(at + before, n + kGuard);
    return memory_.data() + at + before;
}

void Arena::give(const std::byte* buffer) {
    if (used_.erase(offset(buffer)) != 1) fail("sim: a buffer was given back twice");
}

void Arena::store(std::byte* to, ConstBytes bytes) {
    std::copy(bytes.begin(), bytes.end(), to);
    std::copy(bytes.begin(), bytes.end(),
              shadow_.begin() + static_cast<std::ptrdiff_t>(offset(to)));
}

void Arena::open(std::byte* at, std::size_t n) { windows_[offset(at)] = n; }

void Arena::close(std::byte* at) {
    const auto window = windows_.find(offset(at));
    if (window == windows_.end()) fail("sim: no such window");
    std::copy_n(at, window->second, shadow_.begin() + static_cast<std::ptrdiff_t>(window->first));
    windows_.erase(window);
}

ConstBytes Arena::before(const std::byte* at, std::size_t n) const {
    return ConstBytes(shadow_).subspan(offset(at), n);
}

void Arena::check(const char* whose) const {
    std::size_t at = 0;
    for (const auto& [from, bytes] : windows_) {
        compare(at, from, whose);
        at = from + bytes;
    }
    compare(at, memory_.size(), whose);
}

void Arena::compare(std::size_t from, std::size_t to, const char* whose) const {
    if (from >= to || std::memcmp(memory_.data() + from, shadow_.data() + from, to - from) == 0) {
        return;
    }
    while (memory_[from] == shadow_[from]) ++from;
    fail("memory of %s changed outside every window, at offset %zu", whose, from);
}

}  // namespace xsock::sim
