// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A ULP that sends what a test gives it and records all that MPA tells it; and small makers of test
// data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ulp.hpp"
#include "mpa/tx_batch.hpp"
#include "tests/support/pattern.hpp"
#include "tests/support/stepwise_ulp.hpp"

namespace xsock::test {

using ByteVector = std::vector<std::byte>;

inline ByteVector bytes_of(const std::vector<int>& values) {
    ByteVector out;
    for (const int v : values) out.push_back(static_cast<std::byte>(v));
    return out;
}

inline ByteVector pattern(std::size_t n, unsigned seed = 1) {
    return pattern_of<ByteVector>(n, seed);
}

inline ByteVector flatten(const TxBatch& batch, std::size_t limit = SIZE_MAX) {
    ByteVector out;
    for (const struct iovec& v : batch.iov) {
        const auto* from = static_cast<const std::byte*>(v.iov_base);
        const std::size_t n = std::min(v.iov_len, limit - out.size());
        out.insert(out.end(), from, from + n);
    }
    return out;
}

class RecordingUlp final : public StepwiseUlp {
  public:
    struct Outgoing {
        ByteVector header;
        std::vector<ByteVector> payload;
        bool unstable = false;
    };

    // What to send, and what became of it.
    std::vector<Outgoing> outgoing;
    std::size_t given = 0, done = 0;
    bool intact = true;
    std::size_t last_mulpdu = 0;
    bool writes = true;       // small ones itself
    std::size_t written = 0;  // so many

    // How targets are cut, and what was received.
    std::size_t header_octets = 18;       // the first target of each ULPDU
    std::size_t target_bytes = SIZE_MAX;  // the others
    std::size_t block_at = SIZE_MAX;      // octets of a ULPDU after which there is no room
    std::vector<ByteVector> delivered;
    std::vector<ByteVector> refused;  // rx_end(false)
    std::vector<std::string> events;
    std::vector<StreamError> failures;
    Negotiated negotiated;
    std::size_t begun = 0;
    std::size_t taken_whole = 0;  // of those, by rx_ulpdu()
    std::vector<PlacedWrites> placed;
    std::vector<std::pair<ByteVector, std::size_t>> placed_responses;

    UlpdusGiven tx_fill(const UlpduBatch& batch) override {
        last_mulpdu = batch.mulpdu;
        std::size_t n = 0, at = 0;
        const bool takes = writes && (!batch.single || given + 1 == outgoing.size());
        for (; takes && n < batch.sizes.size() && given < outgoing.size(); ++n, ++given) {
            const ByteVector ulpdu = whole(outgoing[given]);
            const std::size_t bytes = batch.bytes(ulpdu.size());
            if (ulpdu.size() > batch.small || bytes > batch.room.size() - at) break;
            std::copy(ulpdu.begin(), ulpdu.end(),
                      batch.room.begin() + static_cast<std::ptrdiff_t>(at + batch.before));
            batch.sizes[n] = static_cast<std::uint16_t>(ulpdu.size());
            at += bytes;
        }
        written += n;
        const bool full = n != 0 && n == batch.sizes.size();
        const bool described = !batch.single && !full && describe(batch.mulpdu, *batch.described);
        return {n, described, described && given < outgoing.size()};
    }
    void tx_done(std::uint32_t n) override { done += n; }
    bool tx_intact() override { return intact; }
    std::size_t rx_ulpdu(ConstBytes ulpdu) override {
        ++taken_whole;
        return StepwiseUlp::rx_ulpdu(ulpdu);
    }

    void rx_begin(std::size_t ulpdu_length) override {
        ++begun;
        current_.assign(ulpdu_length, std::byte{0xee});
        at_ = 0;
    }
    Bytes rx_target() override {
        std::size_t n = at_ < header_octets ? header_octets - at_ : target_bytes;
        if (at_ <= block_at) n = std::min(n, block_at - at_);
        return Bytes(current_).subspan(at_, std::min(n, current_.size() - at_));
    }
    void rx_advance(std::size_t n) override { at_ += n; }
    void rx_end(bool is_intact) override {
        if (is_intact && at_ != current_.size()) events.push_back("short");
        (is_intact ? delivered : refused).push_back(std::move(current_));
        current_.clear();
    }

    void rx_placed(const PlacedWrites& run) override {
        if (!current_.empty()) events.push_back("placed inside a ULPDU");
        placed.push_back(run);
    }
    void rx_placed_response(ConstBytes header, std::size_t bytes) override {
        if (!current_.empty()) events.push_back("placed inside a ULPDU");
        placed_responses.emplace_back(ByteVector(header.begin(), header.end()), bytes);
    }

    void llp_established(const Negotiated& n) override {
        negotiated = n;
        events.push_back("established");
    }
    void llp_failed(StreamError v) override {
        failures.push_back(v);
        events.push_back("failed");
    }
    void llp_closed(CloseKind kind) override {
        events.push_back(kind == CloseKind::peer_finished ? "finished" : "reset");
    }
    void llp_probe() override { events.push_back("probe"); }

    /// A ULPDU to send: `header` octets of header, the payload cut into `pieces`.
    void queue(std::size_t header, std::size_t payload, std::size_t pieces = 1) {
        const auto seed = static_cast<unsigned>(outgoing.size() + 1);
        const ByteVector all = pattern(payload, seed);
        Outgoing next{pattern(header, seed + 1000), {}};
        std::size_t at = 0;
        for (std::size_t i = 0; i < pieces && payload != 0; ++i) {
            const std::size_t end = i + 1 == pieces ? payload : payload * (i + 1) / pieces;
            next.payload.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                                      all.begin() + static_cast<std::ptrdiff_t>(end));
            at = end;
        }
        outgoing.push_back(std::move(next));
    }
    [[nodiscard]] std::vector<ByteVector> queued() const {
        std::vector<ByteVector> out;
        for (const Outgoing& o : outgoing) out.push_back(whole(o));
        return out;
    }

  private:
    bool describe(std::size_t mulpdu, UlpduOut& out) {
        if (given == outgoing.size()) return false;
        const Outgoing& next = outgoing[given];
        std::copy(next.header.begin(), next.header.end(), out.header.begin());
        out.header_size = next.header.size();
        out.payload_count = next.payload.size();
        out.unstable = next.unstable;
        std::copy(next.payload.begin(), next.payload.end(), out.payload.begin());
        if (out.size() > mulpdu) return false;
        ++given;
        return true;
    }

    static ByteVector whole(const Outgoing& o) {
        ByteVector out = o.header;
        for (const ByteVector& p : o.payload) out.insert(out.end(), p.begin(), p.end());
        return out;
    }

    ByteVector current_;
    std::size_t at_ = 0;
};

}  // namespace xsock::test
