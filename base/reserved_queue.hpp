// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A queue for events that must not be lost when there is no memory: who may cause some reserves
// room for them beforehand, where it can still fail. Not synchronised.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace xsock {

template <typename T>
class ReservedQueue {
  public:
    /// Room for `n` more entries than those that are reserved or queued already. Throws
    /// std::bad_alloc, with nothing changed.
    void reserve(std::size_t n) {
        make_room(size_ + reserved_ + n);
        reserved_ += n;
    }
    /// `n` of the reserved entries will not be pushed any more, or have been.
    void release(std::size_t n) noexcept { reserved_ -= std::min(n, reserved_); }

    /// Cannot fail as long as nobody pushes more than was reserved; else it may throw
    /// std::bad_alloc.
    void push(const T& value) {
        make_room(size_ + 1);
        at(size_++) = value;
    }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// @pre !empty()
    [[nodiscard]] const T& front() const noexcept { return ring_[first_]; }
    /// @pre !empty()
    void pop() noexcept {
        first_ = (first_ + 1) & (ring_.size() - 1);
        --size_;
    }
    /// Takes out what `f` says; the order of the others stays. @return how many
    template <typename F>
    std::size_t erase_if(F&& f) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i) {
            if (!f(at(i))) at(kept++) = at(i);
        }
        const std::size_t erased = size_ - kept;
        size_ = kept;
        return erased;
    }

  private:
    T& at(std::size_t i) noexcept { return ring_[(first_ + i) & (ring_.size() - 1)]; }
    void make_room(std::size_t n) {
        if (n <= ring_.size()) return;
        std::vector<T> larger(std::bit_ceil(n));
        for (std::size_t i = 0; i < size_; ++i) larger[i] = at(i);
        ring_.swap(larger);
        first_ = 0;
    }

    std::vector<T> ring_;  // a power of two, or empty
    std::size_t first_ = 0, size_ = 0;
    std::size_t reserved_ = 0;
};

}  // namespace xsock
