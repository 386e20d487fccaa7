// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two queues of RDMA Reads (RFC 5040 §5.2; their depths: RFC 6581 §9), which atomic operations
// share (RFC 7306 §5): ORQ, our requests, and IRQ, the peer's. A connection without requests pays
// nothing; another grows to the depth it uses, which the negotiated limit bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/assert.hpp"
#include "base/random.hpp"
#include "ddp_user/cursor.hpp"
#include "ddp_user/segment.hpp"

namespace xsock::ddp {

inline constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};  // of the send queue

/// First in, first out; grows by doubling, never shrinks.
template <typename T>
class ReadQueue {
  public:
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// False: no memory.
    [[nodiscard]] bool push(const T& entry) noexcept {
        if (size_ == capacity_ && !grow()) return false;
        ring_[(head_ + size_) & (capacity_ - 1)] = entry;
        ++size_;
        return true;
    }
    /// The i-th oldest. @pre i < size()
    [[nodiscard]] T& operator[](std::uint32_t i) noexcept {
        XSOCK_ASSERT(i < size_);
        return ring_[(head_ + i) & (capacity_ - 1)];
    }
    [[nodiscard]] T& front() noexcept { return (*this)[0]; }
    void pop() noexcept {
        XSOCK_ASSERT(size_ > 0);
        head_ = (head_ + 1) & (capacity_ - 1);
        --size_;
    }
    void clear() noexcept { size_ = 0; }

  private:
    bool grow() noexcept {
        const std::uint32_t wider = capacity_ == 0 ? 4 : capacity_ * 2;
        std::unique_ptr<T[]> ring(new (std::nothrow) T[wider]);
        if (ring == nullptr) return false;
        for (std::uint32_t i = 0; i < size_; ++i) ring[i] = (*this)[i];
        ring_ = std::move(ring);
        capacity_ = wider;
        head_ = 0;
        return true;
    }

    std::unique_ptr<T[]> ring_;
    std::uint32_t capacity_ = 0;  // 0 or a power of two
    std::uint32_t head_ = 0;
    std::uint32_t size_ = 0;
};

/// A Read or atomic operation of ours that the peer has not finished answering.
struct OutboundRead {
    std::uint64_t sequence = kNoEntry;  ///< entry of the send queue; kNoEntry: of none, such as
                                        ///< the RTR message
    std::uint64_t confirms = 0;   ///< its answer says that the peer has taken all entries below
    std::uint32_t sink_stag = 0;  ///< atomic: the Request Identifier
    std::uint32_t length = 0;     ///< octets asked for
    std::uint32_t msn = 0;        ///< of the Request
    bool atomic = false;
};

/// The ORQ, from a Request until its entry of the send queue may complete.
class OutboundReads : private ReadQueue<OutboundRead> {
  public:
    using ReadQueue::empty, ReadQueue::size, ReadQueue::front, ReadQueue::operator[];
    explicit OutboundReads(std::uint32_t first_msn = 1) : msn_(first_msn) {}

    // How far the answer to front() has come, if it is a Read.
    std::uint32_t offset = 0;
    Cursor cursor;

    /// MSN of the next Request.
    [[nodiscard]] std::uint32_t next_msn() const noexcept { return msn_; }
    /// A sink STag is no region's: only the head of the ORQ is compared with it, so that the sink
    /// needs no registration and the peer can reach nothing by it but this one answer. Never 0, and
    /// another one for each of 2^32 Requests.
    [[nodiscard]] std::uint32_t next_sink_stag() noexcept {
        constexpr std::uint32_t kStep = 0x9e3779b9;  // odd
        do {
            sink_stag_ = sink_stag_ == 0 ? random_u32() : sink_stag_ + kStep;
        } while (sink_stag_ == 0);
        return sink_stag_;
    }
    /// False: no memory.
    [[nodiscard]] bool push(const OutboundRead& read) noexcept {
        if (!ReadQueue::push(read)) return false;
        ++msn_;
        return true;
    }
    /// front() was answered in full.
    void pop() noexcept {
        if (front().sequence != kNoEntry) ++delivered_;
        offset = 0;
        cursor = {};
        ReadQueue::pop();
    }
    /// The oldest entry that is not retired asks: was it answered? Once for each answer.
    [[nodiscard]] bool take_delivered() noexcept {
        if (delivered_ == 0) return false;
        --delivered_;
        return true;
    }
    /// The peer has finished: no Read can succeed any more.
    void abandon() noexcept {
        abandoned_ = true;
        clear();
    }
    [[nodiscard]] bool abandoned() const noexcept { return abandoned_; }

  private:
    std::uint32_t msn_;
    std::uint32_t sink_stag_ = 0;  // the last
    std::uint32_t delivered_ = 0;  // answered, and the entry is not yet retired
    bool abandoned_ = false;
};

/// A Read of the peer's that we have not finished answering, or the answer to an atomic operation
/// that has been done and not yet been told.
struct InboundRead {
    ReadRequest request = {};           ///< atomic: of size 0
    const std::byte* source = nullptr;  ///< where its bytes lie; null: none was given yet
    AtomicResponse response = {};       ///< atomic
    std::uint32_t msn = 0;              ///< of the Request: a Terminate quotes it
    bool atomic = false;
};

/// The IRQ, from a Request until the LLP has the answer: the oldest are given in full, the one
/// behind them up to offset().
class InboundReads : private ReadQueue<InboundRead> {
  public:
    using ReadQueue::empty, ReadQueue::size, ReadQueue::push, ReadQueue::operator[];
    explicit InboundReads(std::uint32_t first_msn = 1) : response_msn_(first_msn) {}

    /// Is there one that is not given in full?
    [[nodiscard]] bool due() const noexcept { return answered_ < size(); }
    /// The oldest such. @pre due()
    [[nodiscard]] InboundRead& current() noexcept { return (*this)[answered_]; }
    [[nodiscard]] std::uint32_t offset() const noexcept { return offset_; }
    /// Octets of the i-th oldest that were given.
    [[nodiscard]] std::uint32_t given(std::uint32_t i) noexcept {
        return i < answered_ ? (*this)[i].request.size : i == answered_ ? offset_ : 0;
    }
    void advance(std::uint32_t bytes) noexcept { offset_ += bytes; }
    /// The last segment of current() was given.
    void finish() noexcept {
        ++answered_;
        offset_ = 0;
    }
    /// The LLP has the `n` oldest.
    void pop(std::uint32_t n) noexcept {
        answered_ -= n;
        for (; n != 0; --n) ReadQueue::pop();
    }
    /// MSN of the answer to an atomic operation that is given now.
    [[nodiscard]] std::uint32_t take_response_msn() noexcept { return response_msn_++; }
    void clear() noexcept {
        ReadQueue::clear();
        answered_ = 0;
    }

  private:
    std::uint32_t answered_ = 0;
    std::uint32_t offset_ = 0;
    std::uint32_t response_msn_;
};

}  // namespace xsock::ddp
