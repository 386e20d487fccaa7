// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a link: a sealed memfd, and its mapping in this process. Without a name, it is gone
// with the last process that has it. Forked children and core dumps have no part of it.
#pragma once

#include <cstdint>
#include <utility>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/shared_range.hpp"
#include "shm/layout.hpp"

namespace xsock {

/// A descriptor of new memory for such a layout: zero, and sealed, so that neither process can
/// change its size. Close-on-exec, registered as internal, the caller's. EMFILE, ENFILE, ENOMEM;
/// EPERM, ENOSYS where the system permits none.
Result<int> make_shm_memfd(const shm::Layout& layout) noexcept;

/// A mapping. Any thread, one at a time; movable.
class ShmMemory {
  public:
    /// Maps what make_shm_memfd() made, or what a peer has sent, which is checked: EINVAL unless it
    /// is memory (no file, no huge pages), of exactly this size, sealed, and writable. `fd` stays
    /// the caller's, and may be closed. ENOMEM.
    static Result<ShmMemory> map(int fd, const shm::Layout& layout);
    ShmMemory(ShmMemory&& other) noexcept;
    ShmMemory& operator=(ShmMemory&&) = delete;
    /// Unmaps, but in a forked child.
    ~ShmMemory();

    [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
    /// There was a fault: the memory is private now, and whatever is in it has no meaning.
    [[nodiscard]] bool lost() const noexcept { return range_.lost(); }

  private:
    explicit ShmMemory(Bytes bytes);

    Bytes bytes_;
    SharedRange range_;
    std::uint32_t generation_;  // of the process
};

}  // namespace xsock
