// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Taking completions out of a Cq for an API that has a form of its own for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/device.hpp"

namespace xsock {

/// Room for completions, not initialised: clearing it would cost as much as an empty poll.
template <std::size_t size>
union WcBatch {
    WcBatch() {}
    std::array<Wc, size> wcs;
};

/// Polls for up to `most` completions, in batches of `kBatch` until one is not full, and calls
/// `each(wc)` for each of them, oldest first. @return how many there were
template <std::size_t kBatch, typename F>
std::size_t poll_batches(Cq& cq, std::size_t most, F&& each) {
    WcBatch<kBatch> batch;
    std::size_t total = 0;
    while (total < most) {
        const std::size_t want = std::min(kBatch, most - total);
        const std::size_t got = cq.poll(std::span(batch.wcs).first(want));
        for (std::size_t i = 0; i < got; ++i) each(batch.wcs[i]);
        total += got;
        if (got < want) break;
    }
    return total;
}

}  // namespace xsock
