// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies to and from program memory that cannot crash the process.
//
// A poller calls guarded(); inside, code that touches program memory names the range by a
// fault::Touch object first. A SIGSEGV or SIGBUS at an address inside a named range ends the
// guarded call with false. One in a SharedRange (base/shared_range.hpp) is repaired; any other goes
// to the handler that was there before. Frames between guarded() and the fault are abandoned
// without unwinding: they hold no locks and own nothing while a Touch is alive.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xsock::fault {

/// Installs the SIGSEGV/SIGBUS handlers, if they are not there; chains to what is there. For the
/// program ours is the same as what it chains to: it may call the one that sigaction() returns from
/// a handler of its own, or restore it.
/// @return true: the program had replaced one of ours
bool install() noexcept;

/// Runs `body(argument)`. False when it touched a named range that was not mapped (or not
/// writable). Nests: the innermost call is the one that ends.
[[nodiscard]] bool guarded(void (*body)(void*), void* argument) noexcept;

template <typename F>
[[nodiscard]] bool guard(F&& f) noexcept {
    return fault::guarded([](void* p) { (*static_cast<F*>(p))(); }, &f);
}

/// Whether [p, p + n) is mapped for reading, without a copy of it: reads one byte of each page.
[[nodiscard]] bool readable(const std::byte* p, std::size_t n) noexcept;

struct Range {
    std::uintptr_t low = 0, high = 0;
};
inline constexpr int kSlots = 2;
/// Ranges of each thread: what a copy reads, and what it writes. Initial-exec, for the signal
/// handler's sake: the general model may allocate at a thread's first access.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Range touched_ranges[kSlots];

/// Names [p, p + n) for as long as it lives. `slot` 0: read, 1: written. Cheap: two stores.
class Touch {
  public:
    Touch(int slot, const void* p, std::size_t n) noexcept : range_(touched_ranges[slot]) {
        range_.low = reinterpret_cast<std::uintptr_t>(p);
        range_.high = range_.low + n;
        __asm__ volatile("" ::: "memory");
    }
    ~Touch() {
        __asm__ volatile("" ::: "memory");
        range_.high = range_.low = 0;
    }
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;

  private:
    Range& range_;
};

}  // namespace xsock::fault
