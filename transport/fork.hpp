// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fork() and the engine: the one place that registers fork handlers (but for one that must run
// behind libuv's, in descriptors.cpp), and counts the generations. Before a fork every progress
// lock is taken, so that the child finds nothing half done. The child has none of the parent's
// threads; connections go on in the parent only: the child closes its copies of their descriptors,
// which tells no peer anything, and makes a device of its own when it needs one.
#pragma once

#include <cstdint>
#include <memory>

namespace xsock {

class Progress;

/// Counts the forks between the first process that used the library and this one: what was made
/// under another number belongs to a parent. Any thread, async-signal-safe.
[[nodiscard]] std::uint32_t process_generation() noexcept;

/// From now on, until remove_from_forks(), this Progress is handled as said above.
void add_to_forks(Progress& progress);
void remove_from_forks(Progress& progress) noexcept;

/// An object, or a started socket, of a parent is used in this process, and its call fails: one log
/// line for each process. `what` it is: "a DDPMODE socket".
void report_inherited(const char* what) noexcept;

/// For a child that no fork handler has announced (_Fork(), clone()): what another thread
/// of the parent held at that moment is given up. Does nothing in a process that was announced.
void detect_fork() noexcept;

/// Keeps what a parent's device or connection consists of where it is, in a child that must neither
/// use nor destroy it.
void leak_after_fork(std::shared_ptr<void> object);

/// What a client of this folder does around fork(): each may be null. Children are told oldest
/// first, behind everything else.
struct ForkHandlers {
    void (*before)() = nullptr;     ///< takes locks, which are outside of those of this folder
    void (*in_parent)() = nullptr;  ///< gives them back
    void (*in_child)() = nullptr;   ///< the same, and forgets what is the parent's
    /// detect_fork(): `before` was not called, and what the locks guard may be half changed.
    void (*in_unannounced_child)() = nullptr;
};
/// Static storage; once for each.
void add_fork_handlers(const ForkHandlers& handlers);
/// The same with nothing but a handler for each child.
inline void call_in_child(void (*handler)()) {
    add_fork_handlers({nullptr, nullptr, handler, handler});
}

}  // namespace xsock
