// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Times round trips one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bench/bench.hpp"
#include "bench/pair.hpp"

namespace xsock::bench {

inline double percentile_us(const std::vector<std::uint32_t>& sorted, std::size_t percent) {
    return sorted[(sorted.size() - 1) * percent / 100] / 1e3;
}

/// Calls round_trip(last) over and over; only the last call has last = true. Figures: 0 median one
/// way, 1 99th percentile one way, 2 median of the whole round trip; all in us.
template <typename RoundTrip>
Figures time_round_trips(const Run& run, RoundTrip round_trip) {
    constexpr std::size_t kMost = 1'000'000;
    std::vector<std::uint32_t> took_ns(kMost, 0);  // touched now, not while the clock runs
    std::size_t count = 0;
    for (const auto end = now_ns() + to_ns(warm_up_seconds(run)); now_ns() < end;) {
        round_trip(false);
    }
    std::int64_t before = now_ns();
    const std::int64_t end = before + to_ns(run.seconds);
    while (before < end && count < kMost) {
        round_trip(false);
        const std::int64_t after = now_ns();
        took_ns[count++] = static_cast<std::uint32_t>(after - before);
        before = after;
    }
    round_trip(true);
    if (count == 0) fail("no round trip ended in time");
    took_ns.resize(count);
    std::sort(took_ns.begin(), took_ns.end());
    const double median = percentile_us(took_ns, 50);
    return {median / 2, percentile_us(took_ns, 99) / 2, median, 0};
}

}  // namespace xsock::bench
