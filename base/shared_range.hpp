// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Faults in memory that is shared with another process, which can end what is mapped there at any
// time: it punches a hole, and on a full machine there is no page to fill it (SIGBUS).
//
// The first fault in a range makes it ours: the signal handler (base/fault.hpp) puts zeroed private
// memory in place of all of it, and the instruction that faulted is repeated. So nothing has to be
// abandoned in the middle. The thread that serves the range asks for lost() and ends what uses it;
// until then the zeros are what the other process might have written itself. A page that the
// machine has lost (a memory error) is not replaced: half of it may have been delivered.
#pragma once

#include <cstdint>
#include <utility>

#include "base/bytes.hpp"

namespace xsock {

/// Movable; one thread at a time. A forked child's copy stands for nothing.
class SharedRange {
  public:
    /// Installs the handler. May throw std::bad_alloc.
    /// @param memory whole pages of one mapping, which is unmapped after this is destroyed
    explicit SharedRange(Bytes memory);
    SharedRange(SharedRange&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    SharedRange& operator=(SharedRange&&) = delete;
    ~SharedRange();

    /// There was a fault: what is there is not shared any more.
    [[nodiscard]] bool lost() const noexcept;

    /// For the handler: a fault at `address`. False: it is in no range, or there is no memory.
    [[nodiscard]] static bool replace(std::uintptr_t address) noexcept;

  private:
    struct Entry;
    friend struct SharedRanges;
    Entry* entry_;
};

}  // namespace xsock
