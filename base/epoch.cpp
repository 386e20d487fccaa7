// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
//
// Why no thread touches revoked memory after wait_for_readers(). Four steps, all sequentially
// consistent:
//
//   revoker: A1 mark the region invalid       A2 read the reader's sequence
//   reader:  B1 sequence becomes odd (enter)  B2 read the region's mark
//
// A2 before B1 (it reads an even sequence and does not wait): then A1 < A2 < B1 < B2, and B2 finds
// the region invalid. A2 after B1: it reads an odd sequence and waits for it to change, which
// happens by leave(); its release meets the acquire here, so everything the section wrote is done
// and visible. A later section of the same reader began after A1 and needs no waiting for.
//
// By hand: liburcu wants each thread registered and told of fork(), and the threads here are the
// program's.
#include "base/epoch.hpp"

#include "base/spin_lock.hpp"

namespace xsock {

Epochs::~Epochs() {
    for (Section* s = sections_.load(std::memory_order_acquire); s != nullptr;) {
        Section* const next = s->next;
        delete s;
        s = next;
    }
}

namespace {
template <typename Section>
Section& join(std::atomic<Section*>& list) {
    for (Section* s = list.load(std::memory_order_acquire); s != nullptr; s = s->next) {
        bool taken = false;
        if (s->taken.compare_exchange_strong(taken, true, std::memory_order_acq_rel)) return *s;
    }
    auto* const fresh = new Section;
    fresh->next = list.load(std::memory_order_relaxed);
    // Sequentially consistent: a revoker that does not find it in the list comes before its first
    // section, as in A2 before B1 above.
    while (!list.compare_exchange_weak(fresh->next, fresh, std::memory_order_seq_cst,
                                       std::memory_order_relaxed)) {
    }
    return *fresh;
}
}  // namespace

Epochs::Reader::Reader(Epochs& epochs) : section_(join(epochs.sections_)) {}

Epochs::Reader::~Reader() { section_.taken.store(false, std::memory_order_release); }

void Epochs::wait_for_readers() noexcept {
    for (Section* s = sections_.load(std::memory_order_seq_cst); s != nullptr; s = s->next) {
        const std::uint64_t sequence = s->sequence.load(std::memory_order_seq_cst);
        if (sequence % 2 == 0) continue;
        wait_until([&] { return s->sequence.load(std::memory_order_acquire) != sequence; });
    }
}

}  // namespace xsock
