// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/ring_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/page_size.hpp"

namespace xsock {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, since Linux 5.14

/// Of `memory`, the pages that have no byte of anything else.
Bytes whole_pages(Bytes memory) noexcept {
    const std::size_t page = page_size();
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data()) & (page - 1);
    const std::size_t skipped = past == 0 ? 0 : page - past;
    if (memory.size() < skipped) return {};
    memory = memory.subspan(skipped);
    return memory.first(memory.size() & ~(page - 1));
}

/// The pages of `memory`; what else is in the first and the last is the ring's or its neighbours'.
int populate(Bytes memory) noexcept {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data()) & (page_size() - 1);
    return madvise(memory.data() - past, memory.size() + past, kPopulateWrite) == 0 ? 0 : errno;
}

}  // namespace

void RingMemory::grow(Time now) noexcept {
    if (now < try_from_) return;
    const std::size_t from = writer_.allowed();
    const std::size_t bytes = std::min(kStep, ring_.size() - from);
    const int error = populate(ring_.subspan(from, bytes));
    // An older kernel allocates pages when they are touched, and a fault then ends the link.
    const bool is_unknown = error == EINVAL && populate(ring_.first(1)) == EINVAL;
    if (error == 0 || is_unknown) {
        writer_.allow(from + bytes);
    } else {
        try_from_ = now + kIdle;
    }
}

void RingMemory::check_idle() noexcept {
    if (writer_.position() != seen_ || !writer_.drained()) {
        seen_ = writer_.position();
        return;
    }
    for (const RingWriter::Unused& part : writer_.give_back(page_size())) {
        const Bytes pages = whole_pages(ring_.subspan(part.at, part.bytes));
        // What cannot be given back stays; its bytes are not read before they are written anew.
        if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_REMOVE);
    }
}

}  // namespace xsock
