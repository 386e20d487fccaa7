// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lock over the members of epoll sets, and what a fork does to it.
//
// Locks of this folder, outermost first: epoll_membership_lock(), EpollSet's mutex, Source's spin
// lock, EpollSet's spin lock. Pollers take the two spin locks only, and never wait for a program.
#pragma once

#include <mutex>

namespace xsock::readiness {

/// Held while a member joins or leaves a set, and while a source or a set ends: so neither finds
/// the other half gone.
std::mutex& epoll_membership_lock() noexcept;

/// Before the first use of epoll_membership_lock() and process_generation() here; again is
/// harmless. What another generation left in memory (locks that were held, lists of its threads) is
/// not used.
void watch_forks();

}  // namespace xsock::readiness
