// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagrams that wait for their carrier, or are with it, in memory of their own; and a queue of
// them that wants no memory itself, since pollers and what ends a carrier must not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "verbs/datagram_frame.hpp"

namespace xsock::verbs {

class DatagramQp;

/// A datagram that goes by memory of its own: its header and payload.
struct DatagramBuffer {
    std::shared_ptr<DatagramQp> qp;  ///< whose send it is; null: the send is complete
    std::uint64_t number = 0;        ///< of DatagramSends::begin()
    Time queued = 0;
    std::uint32_t bytes = 0;
    std::unique_ptr<DatagramBuffer> next;  ///< in a DatagramQueue
    std::array<std::byte, kDatagramHeader + kDatagramPayload> octets;
};

/// First in, first out. Not thread-safe.
class DatagramQueue {
  public:
    DatagramQueue() = default;
    DatagramQueue(DatagramQueue&& from) noexcept { swap(from); }
    DatagramQueue& operator=(DatagramQueue&& from) noexcept {
        swap(from);
        return *this;
    }
    ~DatagramQueue() {
        while (!empty()) pop();  // one by one, not each within the one before
    }

    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Of the datagrams, without what is around them in memory.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// @pre not empty(), as for pop()
    [[nodiscard]] DatagramBuffer& front() noexcept { return *first_; }

    void push(std::unique_ptr<DatagramBuffer> buffer) noexcept {
        ++size_;
        bytes_ += buffer->bytes;
        std::unique_ptr<DatagramBuffer>& end = empty() ? first_ : last_->next;
        end = std::move(buffer);
        last_ = end.get();
    }
    std::unique_ptr<DatagramBuffer> pop() noexcept {
        std::unique_ptr<DatagramBuffer> buffer = std::move(first_);
        first_ = std::move(buffer->next);
        --size_;
        bytes_ -= buffer->bytes;
        return buffer;
    }

  private:
    void swap(DatagramQueue& other) noexcept {
        std::swap(first_, other.first_);
        std::swap(last_, other.last_);
        std::swap(size_, other.size_);
        std::swap(bytes_, other.bytes_);
    }

    std::unique_ptr<DatagramBuffer> first_;
    DatagramBuffer* last_ = nullptr;  ///< where there is a first
    std::size_t size_ = 0, bytes_ = 0;
};

}  // namespace xsock::verbs
