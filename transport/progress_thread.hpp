// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The asynchronous send and receive thread of a Progress: a libuv loop that polls what no caller
// polls. It watches the Progress's epoll descriptor only while callers are inactive; while they are
// active it polls once a tick (1 to 4 ms), so that it neither steals their wake-ups nor leaves a
// gathered post or a peer's Read Request lying for long.
#pragma once

#include <memory>

#include "transport/config.hpp"

namespace xsock {

class Progress;

class ProgressThread {
  public:
    /// Throws std::bad_alloc or std::system_error when no thread or loop can be made. `index` picks
    /// the CPU from config.cpus.
    static std::unique_ptr<ProgressThread> start(Progress& progress, const TransportConfig& config,
                                                 unsigned index);
    /// Stops and joins.
    ~ProgressThread();
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;

    /// Wakes the loop. Any thread.
    void notify() noexcept;
    /// Has Progress::serve_notified() called half a millisecond from now; the calls until then are
    /// one. Any thread.
    void notify_soon() noexcept;

  private:
    struct Loop;
    explicit ProgressThread(std::unique_ptr<Loop> loop);
    std::unique_ptr<Loop> loop_;
};

}  // namespace xsock
