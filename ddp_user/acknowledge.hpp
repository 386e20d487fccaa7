// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which messages the other end has taken (docs/wire.md, Acknowledge). AckRequests is the end that
// sends them and waits, AckReplies the one that takes them and tells; also that the next one finds
// no receive (rnr.hpp). Sans-IO, one thread.
//
// Both count the same messages, those of is_counted() in the order in which they are sent, without
// the RTR message. Numbers on the wire are modulo 2^31.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/send_queue.hpp"
#include "ddp_user/opcode.hpp"

namespace xsock::ddp {

/// Entries of the send queue that complete once the peer has taken them: what it was asked, and
/// what it has answered. Peers without the feature are asked by Reads of no octets.
class AckRequests {
  public:
    enum class By : std::uint8_t {
        nothing,   ///< completions do not wait
        reads,     ///< RFC 5040 §5.5: they are answered after what came before
        messages,  ///< RDMAP_ACKNOWLEDGE
    };

    /// @param first entry of the queue, which has room for `depth`
    AckRequests(std::uint64_t first, std::uint32_t depth)
        : wanted_(first),
          asked_(first),
          confirmed_(first),
          most_unrequested_(std::max(depth / 2, 1u)) {}

    void set(By by) noexcept { by_ = by; }
    [[nodiscard]] By by() const noexcept { return by_; }
    [[nodiscard]] bool any() const noexcept { return by_ != By::nothing; }

    // -- asking --

    /// The last message of entry `sequence` is given now. True: it carries the question.
    [[nodiscard]] bool give(std::uint64_t sequence, unsigned flags) noexcept {
        if (by_ == By::nothing) return false;
        if (!is_wanted(sequence, flags) && (by_ != By::messages || asked_ >= wanted_)) return false;
        wanted_ = sequence + 1;
        if (by_ != By::messages) return false;
        asked_ = wanted_;
        return true;
    }
    /// Messages that are counted were given.
    void count(std::uint32_t messages) noexcept { given_ += messages; }
    /// Something that was given has an answer that confirms all entries below `sequence`.
    void asked(std::uint64_t sequence) noexcept {
        asked_ = std::max(asked_, sequence);
        wanted_ = std::max(wanted_, sequence);
    }
    /// Entry `sequence` is for no peer, and completes behind those before it.
    void skip(std::uint64_t sequence, unsigned flags) noexcept {
        if (asked_ == sequence) {
            asked_ = sequence + 1;
            wanted_ = std::max(wanted_, asked_);
        } else if (is_wanted(sequence, flags)) {
            wanted_ = sequence + 1;
        }
    }
    /// A question is to go by itself: entries wait for it that no message of theirs can ask for.
    [[nodiscard]] bool due() const noexcept {
        return asked_ < wanted_ && (by_ == By::reads || (by_ == By::messages && !write_sent()));
    }
    /// It goes by an empty Write, ahead of entry `next`; one at a time.
    void ask_by_write(std::uint64_t next) noexcept {
        write_before_ = next;
        asked(next);
        count(1);
    }
    /// Up to where a question was sent.
    [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }
    /// The peer was not asked for this entry, nor will be unless more is posted.
    [[nodiscard]] bool unrequested(std::uint64_t sequence) const noexcept {
        return sequence >= wanted_;
    }

    // -- the answers --

    /// The peer has taken all entries below `sequence`; those that are not retired are in `sq`.
    void confirm(std::uint64_t sequence, SendQueue& sq) noexcept {
        if (by_ == By::messages) {
            for (std::uint64_t i = oldest(sq); i < sequence; ++i) told_ += counted(sq.at(i));
            if (write_before_ < sequence) take_write();
            if (static_cast<std::int32_t>(heard_ - told_) < 0) heard_ = told_;
        }
        confirmed_ = std::max(confirmed_, sequence);
    }
    /// An Acknowledge of so many messages. False: there cannot be that many, or there were more
    /// before. @param end behind the last entry of which something was given
    [[nodiscard]] bool take(std::uint32_t messages, std::uint64_t end, SendQueue& sq) noexcept {
        const std::uint32_t more = (messages - heard_) & RDMAP_ACKNOWLEDGE_MASK;
        if (more > given_ - heard_) return false;
        heard_ += more;
        std::uint64_t next = oldest(sq);
        for (;; ++next) {
            if (write_before_ <= next && heard_ != told_) take_write();
            if (write_before_ <= next || next >= end) break;
            const std::uint32_t of_entry = counted(sq.at(next));
            if (of_entry > heard_ - told_) break;
            told_ += of_entry;
        }
        confirmed_ = std::max(confirmed_, next);
        return true;
    }
    /// Entries below this are at the peer.
    [[nodiscard]] std::uint64_t confirmed() const noexcept { return confirmed_; }

  private:
    static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

    /// Must the program hear of it, or would its queue fill up with what nobody asks for?
    [[nodiscard]] bool is_wanted(std::uint64_t sequence, unsigned flags) const noexcept {
        return (flags & kSendSignaled) != 0 || sequence + 1 - wanted_ >= most_unrequested_;
    }
    [[nodiscard]] bool write_sent() const noexcept { return write_before_ != kNowhere; }
    void take_write() noexcept {
        write_before_ = kNowhere;
        ++told_;
    }
    /// The oldest entry that may not be confirmed; of those retired before it none was counted.
    [[nodiscard]] std::uint64_t oldest(const SendQueue& sq) const noexcept {
        return std::max(confirmed_, sq.retired());
    }
    [[nodiscard]] static std::uint32_t counted(const SendWqe& wqe) noexcept {
        return send_info(wqe.opcode).counted;
    }

    By by_ = By::nothing;
    std::uint64_t wanted_;  // behind the last entry that must be confirmed
    std::uint64_t asked_;
    std::uint64_t confirmed_;
    std::uint64_t write_before_ = kNowhere;  // the entry that an empty Write went ahead of
    std::uint32_t most_unrequested_;
    // Messages; they wrap.
    std::uint32_t given_ = 0;
    std::uint32_t heard_ = 0;  // what the peer has taken
    std::uint32_t told_ = 0;   // those of entries below confirmed_
};

/// Messages of the peer's that were taken here, and what it was told of them.
class AckReplies {
  public:
    explicit AckReplies(std::uint32_t first_msn) : msn_(first_msn) {}

    /// Messages that are counted were taken; the last of them asks.
    void took(bool asks, std::uint32_t messages = 1) noexcept {
        taken_ += messages;
        if (asks && !stopped_) asked_ = taken_;
    }
    /// Later messages are dropped: the peer is told of none.
    void stop() noexcept {
        stopped_ = true;
        rnr_ = false;
        asked_ = told_;
    }
    /// Nothing is waited for any more: what is owed goes as soon as it can.
    void hurry() noexcept { hurries_ = true; }
    /// The same for what is owed now.
    void release() noexcept { released_ = true; }

    /// The next one has no receive: the peer is told at once. False: it has still to be told of
    /// that.
    [[nodiscard]] bool tell_rnr() noexcept {
        if (rnr_) return false;
        rnr_ = !stopped_;
        return true;
    }

    /// It has found one.
    void drop_rnr() noexcept { rnr_ = false; }

    /// The peer waits for an Acknowledge.
    [[nodiscard]] bool owed() const noexcept { return asked_ != told_ || rnr_; }
    /// It goes now. @param others something else does
    [[nodiscard]] bool due(bool others) const noexcept {
        return owed() && (others || released_ || hurries_ || rnr_ || taken_ - told_ >= kMostUntold);
    }
    /// What it says.
    [[nodiscard]] std::uint32_t value() const noexcept {
        return (taken_ & RDMAP_ACKNOWLEDGE_MASK) | (rnr_ ? RDMAP_ACKNOWLEDGE_RNR : 0);
    }
    /// An Acknowledge of value() is given. @return its MSN
    std::uint32_t give() noexcept {
        told_ = asked_ = taken_;
        released_ = rnr_ = false;
        return msn_++;
    }

  private:
    static constexpr std::uint32_t kMostUntold = 16;

    std::uint32_t msn_;
    std::uint32_t taken_ = 0, asked_ = 0, told_ = 0;
    bool stopped_ = false, hurries_ = false, released_ = false, rnr_ = false;
};

}  // namespace xsock::ddp
