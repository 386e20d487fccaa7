// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A libuv loop of the engine, and its thread. What libuv opens is the library's own; signals stay
// the program's.
#pragma once

#include <uv.h>

#include <array>
#include <functional>
#include <thread>

namespace xsock {

class UvLoop {
  public:
    UvLoop() = default;
    ~UvLoop() { close(); }
    UvLoop(const UvLoop&) = delete;
    UvLoop& operator=(const UvLoop&) = delete;

    /// Once. `on_notified` is called in the loop, after notify(): at least once for all calls so
    /// far. False: no descriptors, or no memory. May throw std::bad_alloc.
    [[nodiscard]] bool open(void (*on_notified)(void* argument), void* argument);
    /// Runs the loop until every handle that was made in it is closed: their memory must still be
    /// there. Not while a thread runs it; again is harmless.
    void close() noexcept;

    /// Watches `fd` in the loop's epoll, for nothing yet. libuv aborts where the kernel has no
    /// memory for a descriptor that it adds; one that is there already it only changes. False: that
    /// memory is missing.
    [[nodiscard]] bool watch_ahead(int fd) const noexcept;
    [[nodiscard]] uv_loop_t* get() noexcept { return &loop_; }
    /// Any thread; async-signal-safe.
    void notify() noexcept;

    /// A thread that calls `run`. No signal is delivered to it, but for those that its own
    /// instructions raise (base/fault.hpp). Not joinable: none could be made.
    /// @param name  for the kernel, 15 characters at most
    [[nodiscard]] static std::thread start_thread(const char* name, std::function<void()> run);

  private:
    void close_handles() noexcept;
    [[nodiscard]] std::array<int, 5> descriptors() const;

    uv_loop_t loop_{};
    uv_async_t notified_{};
    void (*on_notified_)(void*) = nullptr;
    void* argument_ = nullptr;
    bool open_ = false;
};

}  // namespace xsock
