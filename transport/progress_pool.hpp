// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The Progresses of a device, and which of them serves what is made next. Those that
// TransportConfig::threads asks for are made at once, further ones when threads start sockets.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/epoch.hpp"
#include "base/result.hpp"
#include "transport/config.hpp"
#include "transport/progress.hpp"

namespace xsock {

class ProgressPool {
  public:
    /// Both must outlive it.
    ProgressPool(Epochs& epochs, const TransportConfig& config)
        : epochs_(epochs), config_(config) {}

    /// Makes those that the configuration asks for. Before anything else.
    Result<void> open();

    /// One of the configured ones, by turns. Any thread.
    Progress& next() noexcept;
    /// Always the same for one thread: threads are spread over the configured ones and those that
    /// TransportConfig::socket_groups permits beside them. One that cannot be made for want of
    /// descriptors or memory is replaced by the first. In a poll cycle, the one that is polled.
    /// Any thread.
    Progress& of_thread();

    /// Calls `f(Progress&)` for those that are there. Any thread, also in a signal handler.
    template <typename F>
    void for_each(F&& f) const {
        for (const auto& slot : slots_) {
            if (Progress* const progress = slot.load(std::memory_order_acquire)) f(*progress);
        }
    }

    /// Process exit, as drain_soft_device().
    void drain(Time limit) const;

  private:
    static constexpr std::size_t kMost = 64;
    Result<void> make(unsigned index);

    Epochs& epochs_;
    const TransportConfig& config_;
    std::mutex making_;
    std::array<std::unique_ptr<Progress>, kMost> owned_;  // under making_
    std::array<std::atomic<Progress*>, kMost> slots_{};   // of owned_; one that is there stays
    std::atomic<unsigned> turn_{0};
};

}  // namespace xsock
