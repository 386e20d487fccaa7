// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages that find no receive (docs/wire.md, "Receiver not ready"). RnrWait is the end where one
// waits, and RnrRetries the one that has sent it. Sans-IO, one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/device.hpp"

namespace xsock::ddp {

/// The wait of a message for a receive, its limit, and when the peer is told of it. Hardware's RNR
/// NAKs come at once, and after each time that the peer lets pass before it tries again; these come
/// one such time later, so that a receive posted meanwhile counts.
class RnrWait {
  public:
    /// How often the peer is told of one message: no number of retries that is a limit needs more.
    static constexpr std::uint8_t kMostNotices = kRnrForever;

    /// @param limit how long one may wait; kNever: for ever
    /// @param notice_every 0: the peer is not told
    void begin(Time now, Time limit, Time notice_every) noexcept {
        until_ = after(now, limit);
        notice_at_ = notice_every != 0 ? after(now, notice_every) : kNever;
        since_ = now;
        notices_ = 0;
        begun_ = true;
    }
    void end() noexcept { *this = {}; }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

    [[nodiscard]] Time next_timeout() const noexcept { return std::min(until_, notice_at_); }
    [[nodiscard]] bool over(Time now) const noexcept { return until_ <= now; }
    /// The peer is to be told; then noticed().
    [[nodiscard]] bool notice_due(Time now) const noexcept { return notice_at_ <= now; }
    /// @param given false: it could not be told now, which does not count. As that may last, it is
    /// tried again less and less often.
    void noticed(Time now, Time notice_every, bool given) noexcept {
        if (given) ++notices_;
        const bool last = notices_ == kMostNotices || notice_every == 0;
        const Time pause = given ? notice_every : std::max(notice_every, now - since_);
        notice_at_ = last ? kNever : after(now, pause);
    }

  private:
    [[nodiscard]] static Time after(Time now, Time delay) noexcept {
        return delay < kNever - now ? now + delay : kNever;
    }

    Time since_ = 0, until_ = kNever, notice_at_ = kNever;
    std::uint8_t notices_ = 0;
    bool begun_ = false;
};

/// How often the peer has told that one message of ours waits.
class RnrRetries {
  public:
    void set_most(std::uint8_t most) noexcept {
        most_ = most;
        exceeded_ = is_too_often();
    }
    /// The peer has taken so many messages: others may wait now.
    void taken(std::uint32_t messages) noexcept {
        if (messages == taken_) return;
        taken_ = messages;
        dismiss();
    }
    /// It has told that the next one waits.
    void notice() noexcept {
        heard_ = static_cast<std::uint8_t>(std::min(heard_ + 1, 255));
        exceeded_ = is_too_often();
    }
    /// Once too often.
    [[nodiscard]] bool exceeded() const noexcept { return exceeded_; }
    void dismiss() noexcept {
        heard_ = 0;
        exceeded_ = false;
    }

  private:
    [[nodiscard]] bool is_too_often() const noexcept {
        return most_ < kRnrForever && heard_ > most_;
    }

    std::uint8_t most_ = kRnrForever;
    std::uint8_t heard_ = 0;
    bool exceeded_ = false;
    std::uint32_t taken_ = 0;
};

}  // namespace xsock::ddp
