// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/liveness.hpp"

#include <algorithm>

#include "transport/clock.hpp"

namespace xsock {
namespace {

// Checks, and keepalive probes to an idle peer, within the limit. Each probe may be lost once.
constexpr Time kChecks = 3;
constexpr Time kProbes = 6;

int whole_seconds(Time time) noexcept {
    constexpr Time kLongest = 32767;  // what TCP takes
    return static_cast<int>(std::clamp<Time>(time / kSecond, 1, kLongest));
}

}  // namespace

void Liveness::begin(Time limit, Time now) noexcept {
    limit_ = limit;
    stuck_since_ = now;
    due_ = limit != 0 ? time_after(now, limit / kChecks) : kNever;
}

bool Liveness::check(TcpSocket& socket, bool owed, Time now) noexcept {
    if (is_dead(socket.peer_info(), owed, now)) return true;
    const Time left = limit_ - std::min(silence_, limit_);
    due_ = time_after(now, std::clamp(left, limit_ / kProbes, limit_ / kChecks));
    if (wants_probes_ && !usual_) {
        usual_ = socket.keepalive();
        socket.set_keepalive(
            {true, whole_seconds(limit_ / kChecks), whole_seconds(limit_ / kProbes)});
    } else if (!wants_probes_ && usual_) {
        socket.set_keepalive(*usual_);
        usual_.reset();
    }
    return false;
}

bool Liveness::is_dead(const TcpSocket::PeerInfo& peer_info, bool owed, Time now) noexcept {
    if (!peer_info.waiting || peer_info.acknowledged != acknowledged_) {
        acknowledged_ = peer_info.acknowledged;
        stuck_since_ = now;
    }
    // Once TCP sends probes it goes on as long as something is owed: it was silent before, and may
    // be again.
    wants_probes_ = owed && (wants_probes_ || peer_info.since_heard >= limit_ / kChecks);
    attempts_ = peer_info.attempts;
    if (peer_info.waiting && !peer_info.window_closed) {
        silence_ = now - stuck_since_;
    } else if (peer_info.waiting || owed) {
        silence_ = peer_info.since_heard;
    } else {
        silence_ = 0;  // nothing is wanted of the peer; whether it lives, keepalive finds out
    }
    return attempts_ >= 2 && silence_ >= limit_;
}

}  // namespace xsock
