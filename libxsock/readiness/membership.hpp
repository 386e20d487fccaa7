// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lock over who is a member of which epoll set, and what a fork does to it.
//
// Locks of this folder, outermost first: membership(), EpollSet's mutex, Source's spin lock,
// EpollSet's spin lock. Drivers take the two spin locks only, and never wait for a program.
#pragma once

#include <cstdint>
#include <mutex>

namespace xsock::readiness {

/// Held while a member joins or leaves a set, and while a source or a set ends: so neither finds
/// the other half gone.
std::mutex& membership() noexcept;

/// Counts the forks between the first process and this one. What another generation left in memory
/// (locks that were held, lists of its threads) is not ours to use.
std::uint32_t generation() noexcept;

/// Before the first use of the two in a process; again is harmless.
void watch_forks() noexcept;

/// In a child that no fork handler has told of its birth (_Fork(), clone()): what another thread of
/// the parent held at that moment is given up.
void forked_unannounced() noexcept;

}  // namespace xsock::readiness
