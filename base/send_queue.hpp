// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The send queue of a QP: the hand-off from any number of posting threads to the one poller.
//
// Posters serialise on a lock; the poller reads without it. A slot is occupied from post() until
// retire(): depth bounds what is posted and not yet completed. Memory: base/wqe_chunks.hpp.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/biased_lock.hpp"
#include "base/result.hpp"
#include "base/work.hpp"
#include "base/wqe_chunks.hpp"

namespace xsock {

class SendQueue {
  public:
    static constexpr std::uint32_t kLeastDepth = 4;

    /// `depth` is rounded up to a power of two of at least kLeastDepth.
    explicit SendQueue(std::uint32_t depth);
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;

    // -- posters, any thread --

    /// Copies the request in (and, for kSendInline, its payload). Never blocks on anything but
    /// other posters.
    ///
    /// ENOBUFS: queue full. EINVAL: too many SGEs, inline data too long, inline on a Read, an
    /// opcode with SGEs that takes none, an atomic operation without operands or with a result of
    /// other than 8 bytes. EMSGSIZE: more than 2^32-1 bytes in all. ENOMEM.
    /// EPIPE: closed for posting.
    Result<void> post(const SendWr& wr);
    /// The same for a Send of one piece of memory, not inline: there is nothing to refuse in it.
    Result<void> post_plain(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags);

    /// What post() would refuse in any queue. Error::code 0: nothing.
    [[nodiscard]] static Error check(const SendWr& wr) noexcept;

    /// From now on post() answers EPIPE. What was posted before stays. Any thread.
    void close();

    /// Free slots; a hint for writability.
    [[nodiscard]] std::uint32_t room() const noexcept;
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }

    // -- the poller only --

    /// Sequence number one past the newest posted entry. Entries are numbered from 0, 64 bits,
    /// never wrapping.
    [[nodiscard]] std::uint64_t posted() const noexcept {
        return posted_.load(std::memory_order_acquire);
    }
    /// Between taking back a sign that says "will be checked" and the check: afterwards posted()
    /// counts every entry whose poster still saw the sign behind its post(). One costly step here
    /// for many posts spares each of them its own.
    ///
    /// Both sides take the posters' lock. A poster that took it first has let go by now, so its
    /// entry is seen here; one that takes it later sees that the sign is gone.
    void sync_with_posters();
    /// Oldest entry not yet retired.
    [[nodiscard]] std::uint64_t retired() const noexcept {
        return retired_.load(std::memory_order_relaxed);
    }
    /// @pre retired() <= sequence < posted()
    [[nodiscard]] SendWqe& at(std::uint64_t sequence) noexcept { return chunks_.at(sequence); }
    /// Frees the oldest slot. @pre retired() < posted()
    void retire() noexcept { retire_to(retired() + 1); }
    /// Frees all slots older than `sequence`. @pre retired() <= sequence <= posted()
    void retire_to(std::uint64_t sequence) noexcept {
        retired_.store(sequence, std::memory_order_release);
    }

  private:
    template <typename Fill>
    Result<void> post_filled(Fill&& fill);

    std::uint32_t depth_;  // power of two
    WqeChunks chunks_;

    // Posters' and poller's words lie on cache lines of their own, and posters read the poller's
    // only when the queue seems full.
    alignas(64) std::atomic<std::uint64_t> posted_{0};
    std::uint64_t retired_seen_ = 0;  // what posters last saw of retired_
    bool closed_ = false;
    mutable BiasedLock mutex_;  // posters
    alignas(64) std::atomic<std::uint64_t> retired_{0};
};

}  // namespace xsock
