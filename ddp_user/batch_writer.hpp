// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes the ULPDUs of a batch (base/ulp.hpp), one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ulp.hpp"

namespace xsock::ddp {

class BatchWriter {
  public:
    explicit BatchWriter(const UlpduBatch& batch)
        : batch_(&batch), at_(batch.room.data()), end_(at_ + batch.room.size()) {}

    [[nodiscard]] bool full() const noexcept { return count_ == batch_->sizes.size(); }
    [[nodiscard]] bool takes(std::size_t size) const noexcept {
        return !full() && size <= batch_->small &&
               batch_->bytes(size) <= static_cast<std::size_t>(end_ - at_);
    }
    /// Where the next one belongs.
    [[nodiscard]] std::byte* at() const noexcept { return at_ + batch_->before; }
    void advance(std::size_t size) noexcept {
        batch_->sizes[count_++] = static_cast<std::uint16_t>(size);
        at_ += batch_->bytes(size);
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

  private:
    const UlpduBatch* batch_;
    std::byte* at_;
    std::byte* end_;
    std::size_t count_ = 0;
};

}  // namespace xsock::ddp
