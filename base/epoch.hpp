// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which threads may be touching registered memory now. A poller (transport/progress) wraps each
// cycle over its connections in a Reader section; the revocation of a region waits until every
// section that was under way has ended (RFC 5040 §8.1: after revocation the peer can no longer
// modify the buffer).
#pragma once

#include <atomic>
#include <cstdint>

namespace xsock {

class Epochs {
    // Lives as long as the Epochs; a later Reader takes over what an earlier one left. So a waiting
    // thread may read it without a lock, while readers come and go.
    struct alignas(64) Section {
        std::atomic<std::uint64_t> sequence{0};  // odd: inside a section
        std::atomic<bool> taken{true};
        Section* next = nullptr;
    };

  public:
    Epochs() = default;
    ~Epochs();  ///< after every Reader
    Epochs(const Epochs&) = delete;
    Epochs& operator=(const Epochs&) = delete;

    /// One per poller. Registered for its whole life; enter/leave only by the thread that polls.
    class Reader {
      public:
        explicit Reader(Epochs& epochs);
        ~Reader();
        Reader(const Reader&) = delete;
        Reader& operator=(const Reader&) = delete;

        /// What was revoked (by a seq_cst store) before this is seen as revoked (by a seq_cst load)
        /// inside.
        void enter() noexcept { section_.sequence.fetch_add(1, std::memory_order_seq_cst); }
        void leave() noexcept {
            // The poller is the only writer: no read-modify-write is needed.
            section_.sequence.store(section_.sequence.load(std::memory_order_relaxed) + 1,
                                    std::memory_order_release);
        }

      private:
        Section& section_;
    };

    /// Returns when every section that was under way at the call has ended. Never called from
    /// inside a section. Bounded by one cycle (a fraction of a millisecond). Takes no lock.
    void wait_for_readers() noexcept;

  private:
    std::atomic<Section*> sections_{nullptr};
};

}  // namespace xsock
