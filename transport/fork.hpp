// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fork() and the library. Before a fork every driver's lock is taken, so that the child finds
// nothing half done. The child has none of the parent's threads; connections go on in the parent
// only: the child closes its copies of their descriptors, which tells no peer anything, and makes a
// device of its own when it needs one.
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

/// For a child that no fork handler has told of its birth (_Fork(), clone()): what another thread
/// of the parent held at that moment is given up. Does nothing in a process that was told.
/// @return true: this one was not
bool forked_unannounced() noexcept;

/// Keeps what a parent's device or connection consists of where it is, in a child that must neither
/// use nor destroy it.
void leave_behind(std::shared_ptr<void> object);

/// Called in the child behind everything else, oldest first. Static storage; once for each.
void call_in_child(void (*handler)());

}  // namespace xsock
