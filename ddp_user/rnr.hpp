// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages that find no receive (docs/wire.md, "Receiver not ready"). RnrWait is the end where one
// waits, and RnrRetries the one that has sent it. Sans-IO, one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/device.hpp"

namespace xsock::ddp {

/// The wait of a message for a receive, its limit, and when the peer is told of it: as hardware's
/// RNR NAKs, one at the end of each time that hardware lets pass before it tries again.
class RnrWait {
  public:
    /// How often the peer is told of one message: no number of retries that is a limit needs more.
    static constexpr std::uint8_t kMostNotices = kRnrForever;

    /// @param limit how long one may wait; kNever: for ever
    /// @param notice_every 0: the peer is not told
    void begin(Time now, Time limit, Time notice_every) noexcept {
        until_ = after(now, limit);
        notice_at_ = notice_every != 0 ? after(now, notice_every) : kNever;
        notices_ = 0;
        begun_ = true;
    }
    void end() noexcept { *this = {}; }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

    [[nodiscard]] Time next_timeout() const noexcept { return std::min(until_, notice_at_); }
    [[nodiscard]] bool over(Time now) const noexcept { return until_ <= now; }
    /// The peer is to be told, once for each true.
    [[nodiscard]] bool notice_due(Time now, Time notice_every) noexcept {
        if (notice_at_ > now) return false;
        const bool last = ++notices_ == kMostNotices || notice_every == 0;
        notice_at_ = last ? kNever : after(now, notice_every);
        return true;
    }

  private:
    [[nodiscard]] static Time after(Time now, Time delay) noexcept {
        return delay < kNever - now ? now + delay : kNever;
    }

    Time until_ = kNever, notice_at_ = kNever;
    std::uint8_t notices_ = 0;
    bool begun_ = false;
};

/// How often the peer has told that one message of ours waits.
class RnrRetries {
  public:
    void set_most(std::uint8_t most) noexcept { most_ = most; }
    /// A notice that came when `taken` messages had been taken. True: it is one too many.
    [[nodiscard]] bool exceeded_by(std::uint32_t taken) noexcept {
        if (taken != taken_) heard_ = 0;
        taken_ = taken;
        heard_ = static_cast<std::uint8_t>(std::min(heard_ + 1, 255));
        return most_ < kRnrForever && heard_ > most_;
    }

  private:
    std::uint8_t most_ = kRnrForever;
    std::uint8_t heard_ = 0;
    std::uint32_t taken_ = 0;
};

}  // namespace xsock::ddp
