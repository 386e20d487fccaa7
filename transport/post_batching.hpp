// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When what was posted to a connection is sent: at once, or together with what is posted after it
// (docs/threading.md). Any poster; relaxed, exactness does not matter.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/completion_queue.hpp"
#include "transport/progress.hpp"

namespace xsock {

class PostBatching {
  public:
    PostBatching(Pollable& item, Progress& progress, const CompletionQueue& sends,
                 const CompletionQueue& receives)
        : item_(item), progress_(progress), sends_(sends), receives_(receives) {}

    /// A request of `length` bytes was posted. `more`: another follows at once.
    void posted(std::uint64_t length, bool more);
    /// A receive was posted that the connection waits for.
    void receive_posted();

  private:
    [[nodiscard]] bool begin_interval(std::uint64_t interval, std::uint32_t bytes, bool more);
    [[nodiscard]] bool is_awaited() const noexcept {
        return sends_.awaited() || receives_.awaited();
    }

    Pollable& item_;
    Progress& progress_;
    const CompletionQueue& sends_;
    const CompletionQueue& receives_;
    std::atomic<std::uint64_t> interval_{0};
    std::atomic<std::uint32_t> posts_{0};             ///< in it
    std::atomic<std::uint32_t> bytes_{0};             ///< since the connection was last notified
    std::atomic<std::uint32_t> bytes_before_{0};      ///< in this interval, before that
    std::atomic<std::uint32_t> bytes_max_{0};         ///< how much may wait
    std::atomic<std::uint64_t> receive_interval_{0};  ///< of the last receive that was waited for
};

}  // namespace xsock
