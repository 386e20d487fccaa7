// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Descriptors that are the library's own, in a program that does not know of them: a program that
// closes whole ranges must be kept from closing these. Lock-free and async-signal-safe.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/result.hpp"

namespace xsock {

/// `fd` is ours until unregister_internal_fd(). -1 is ignored.
void register_internal_fd(int fd) noexcept;
void unregister_internal_fd(int fd) noexcept;
[[nodiscard]] bool is_internal_fd(int fd) noexcept;
/// Unregisters and closes: in this order, because the program may be given the number at once.
void close_internal_fd(int fd) noexcept;

/// How many descriptors the process may have (RLIMIT_NOFILE); SIZE_MAX: the kernel does not say.
[[nodiscard]] std::size_t descriptor_limit() noexcept;

/// While one lives, in any thread, an internal descriptor may be open and not registered yet, or
/// not registered any more: between open and register, or unregister and close. Nests; no copy, no
/// move.
class DescriptorChange {
  public:
    DescriptorChange() noexcept;
    ~DescriptorChange();
    DescriptorChange(const DescriptorChange&) = delete;
    DescriptorChange& operator=(const DescriptorChange&) = delete;
};

/// In a forked child: none is under way, nor does a thread make InternalPipes.
void forget_descriptor_changes() noexcept;

/// Whether `fd` is open and not ours: waits for changes under way, for about a second at most: a
/// signal handler may have interrupted one.
[[nodiscard]] bool is_program_fd(int fd) noexcept;

/// Another descriptor of the same open file, close-on-exec and registered as internal, with a
/// number out of the way of the program's where the limits allow one. EMFILE.
Result<int> duplicate_descriptor(int fd) noexcept;

/// Moves a descriptor that was just opened, if it was (`fd` >= 0), to such a number. What is left
/// where there is none is `fd` itself, registered. Within a DescriptorChange that began before the
/// open.
int move_and_register(int fd) noexcept;

/// A descriptor on which the kernel answers EBADF to every call but those that take any descriptor
/// (close(), dup(), fstat()): an O_PATH one of /dev/null. Registered as internal. EMFILE, or what
/// open() may fail with.
Result<int> open_inactive_descriptor() noexcept;

/// Registers the pipe that a library opens for itself on first use, without a way to ask for it:
/// libuv's for its signals, one byte in it. A forked child closes it and opens another, which is
/// registered in its place there. Make one before, claim() after; any thread.
class InternalPipes {
  public:
    /// Waits for one that another thread has made until it has claimed, or is gone: what the
    /// library opened in this thread meanwhile would be taken for the program's by that one. May
    /// throw std::bad_alloc.
    InternalPipes();
    /// Both ends of each pipe that has appeared, with one byte unread. One that the program makes
    /// at the same time is empty still, or not close-on-exec. Once.
    void claim() noexcept;

  private:
    std::unique_lock<std::mutex> first_;  // held: none has claimed in this process
    std::vector<int> before_;             // ascending
};

}  // namespace xsock
