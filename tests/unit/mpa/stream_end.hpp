// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A stream with what its owner would do for it, for the tests of mpa::Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mpa/stream.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::test {

/// A stream, its ULP and its scratch.
struct StreamEnd {
    explicit StreamEnd(mpa::Config c) : stream(std::move(c), ulp) { stream.start(0); }

    /// Everything it wants to write, at most `step` octets at a time.
    ByteVector write(Time now = 0, std::size_t step = SIZE_MAX) {
        ByteVector out;
        for (;;) {
            const TxBatch batch = stream.tx_prepare(scratch, 1 << 20, now);
            EXPECT_EQ(batch.bytes, stream.status().tx_pending);
            if (batch.bytes == 0) return out;
            const ByteVector piece = flatten(batch, step);
            out.insert(out.end(), piece.begin(), piece.end());
            commit(piece.size(), now);
        }
    }
    void commit(std::size_t n, Time now = 0) {
        stream.tx_commit(n, now);
        open(now);
    }
    /// Acts on boundaries as an owner does, and goes on behind them.
    std::size_t read(ConstBytes bytes, Time now = 0) {
        std::size_t taken = 0;
        for (Llp::Rx rx{.taken = 0, .boundary = true}; rx.boundary;) {
            rx = stream.rx(bytes.subspan(taken), now);
            taken += rx.taken;
            if (rx.boundary) boundaries.push_back(taken);
            open(now);
        }
        return taken;
    }
    void open(Time now) {
        if (stream.state() != Llp::State::started) return;
        stream.open(Llp::Opening::first, stream.negotiated(), now);
    }

    RecordingUlp ulp;
    ByteVector scratch = ByteVector(mpa::kMinTxScratch);
    std::vector<std::size_t> boundaries;
    mpa::Stream stream;
};

}  // namespace xsock::test

namespace xsock::mpa {

using test::ByteVector;
using test::flatten;
using test::RecordingUlp;
using Events = std::vector<std::string>;

}  // namespace xsock::mpa
