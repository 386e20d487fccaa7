// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two queues of RDMA Reads (RFC 5040 §6.4), which atomic operations share (RFC 7306 §5): ORQ,
// what we asked for, and IRQ, what the peer asked for. A connection that never asks pays nothing;
// one that does grows to the depth it uses, which the negotiated limit bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/assert.hpp"
#include "ddp_user/segment.hpp"

namespace xsock::ddp {

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
    static constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};
    std::uint64_t sequence = kNoEntry;  ///< entry of the send queue; kNoEntry: of none, such as
                                        ///< the RTR message
    std::uint64_t confirms = 0;   ///< its answer says that the peer has taken all entries below
    std::uint32_t sink_stag = 0;  ///< atomic: the Request Identifier
    std::uint32_t length = 0;     ///< octets asked for
    std::uint32_t msn = 0;        ///< of the Request
    bool atomic = false;
};

/// A Read of the peer's that we have not finished answering, or the answer to an atomic operation
/// that has been done and not yet been told.
struct InboundRead {
    ReadRequest request = {};      ///< atomic: of size 0
    AtomicResponse response = {};  ///< atomic
    std::uint32_t msn = 0;         ///< of the Request: a Terminate quotes it
    bool atomic = false;
};

}  // namespace xsock::ddp
