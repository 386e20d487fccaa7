// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/link.hpp"

#include <algorithm>

#include "tests/sim/trace.hpp"

namespace xsock::sim {

Time Pipe::arrival(Time now) {
    Time at = now + options_.delay + rng_.below(options_.jitter + 1);
    if (rng_.chance(options_.stall_percent)) at += rng_.below(options_.stall + 1);
    last_arrival_ = std::max(last_arrival_, at);
    return last_arrival_;
}

std::size_t Pipe::write(ConstBytes bytes, Time now) {
    const std::size_t n = std::min(bytes.size(), room());
    for (std::size_t at = 0; at < n;) {
        const std::size_t size =
            std::min<std::size_t>(n - at, rng_.between(1, options_.segment_max));
        const ConstBytes piece = bytes.subspan(at, size);
        segments_.push_back({arrival(now), {piece.begin(), piece.end()}});
        for (const std::uint64_t flip : options_.flips) {
            if (flip < written_ + at || flip >= written_ + at + size) continue;
            segments_.back().bytes[flip - written_ - at] ^= std::byte{1} << rng_.below(8);
            first_damage_ = std::min(first_damage_, flip);
            SIM_TRACE("    byte %llu of the stream is damaged",
                      static_cast<unsigned long long>(flip));
        }
        at += size;
    }
    written_ += n;
    held_ += n;
    return n;
}

void Pipe::finish(Time now) {
    if (finished_) return;
    finished_ = true;
    segments_.push_back({arrival(now), {}});
}

std::size_t Pipe::read(Bytes out, Time now) {
    std::size_t n = 0;
    while (n < out.size() && readable(now)) {
        Segment& first = segments_.front();
        const std::size_t piece = std::min(out.size() - n, first.bytes.size() - first.used);
        std::copy_n(first.bytes.begin() + static_cast<std::ptrdiff_t>(first.used), piece,
                    out.begin() + static_cast<std::ptrdiff_t>(n));
        first.used += piece;
        n += piece;
        if (first.used == first.bytes.size()) segments_.pop_front();
    }
    held_ -= n;
    taken_ += n;
    return n;
}

bool Pipe::readable(Time now) const noexcept {
    return !segments_.empty() && segments_.front().at <= now && !segments_.front().bytes.empty();
}

bool Pipe::at_end(Time now) const noexcept {
    return !segments_.empty() && segments_.front().at <= now && segments_.front().bytes.empty();
}

Time Pipe::next_arrival() const noexcept {
    return segments_.empty() ? kNever : segments_.front().at;
}

void Pipe::drop() {
    segments_.clear();
    held_ = 0;
}

}  // namespace xsock::sim
