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

namespace xsock::test {

using Octets = std::vector<std::byte>;

inline Octets octets_of(const std::vector<int>& values) {
    Octets out;
    for (const int v : values) out.push_back(static_cast<std::byte>(v));
    return out;
}

/// `n` octets that differ from their neighbours and from those of another `seed`.
inline Octets pattern(std::size_t n, unsigned seed = 1) {
    Octets out(n);
    std::uint32_t x = seed * 2654435761u + 1;
    for (std::byte& b : out) {
        x = x * 1664525u + 1013904223u;
        b = static_cast<std::byte>(x >> 24);
    }
    return out;
}

inline Octets flatten(const mpa::TxBatch& batch, std::size_t limit = SIZE_MAX) {
    Octets out;
    for (const struct iovec& v : batch.iov) {
        const auto* from = static_cast<const std::byte*>(v.iov_base);
        const std::size_t n = std::min(v.iov_len, limit - out.size());
        out.insert(out.end(), from, from + n);
    }
    return out;
}

class RecordingUlp final : public Ulp {
  public:
    struct Outgoing {
        Octets header;
        std::vector<Octets> payload;
    };

    // What to send, and what became of it.
    std::vector<Outgoing> outgoing;
    std::size_t given = 0, done = 0;
    bool intact = true;
    std::size_t last_mulpdu = 0;
    bool lone = true;             // answers tx_lone()
    bool runs = false;            // answers tx_run()
    std::size_t in_runs = 0;      // ULPDUs given by it
    std::size_t head_octets = 0;  // that rx_head() takes
    bool wholes = false;          // answers rx_whole()
    std::size_t taken_whole = 0;

    // How targets are cut, and what was received.
    std::size_t header_octets = 18;        // the first target of each ULPDU
    std::size_t target_octets = SIZE_MAX;  // the others
    std::size_t block_at = SIZE_MAX;       // octets of a ULPDU after which there is no room
    std::vector<Octets> delivered;
    std::vector<Octets> refused;  // rx_end(false)
    std::vector<std::string> events;
    std::vector<Violation> failures;
    Negotiated negotiated;
    std::size_t begun = 0;

    bool tx_next(std::size_t mulpdu, UlpduOut& out) override {
        last_mulpdu = mulpdu;
        if (given == outgoing.size()) return false;
        const Outgoing& next = outgoing[given];
        std::size_t size = next.header.size();
        std::copy(next.header.begin(), next.header.end(), out.header.begin());
        out.header_size = next.header.size();
        out.payload_count = next.payload.size();
        for (std::size_t i = 0; i < next.payload.size(); ++i) {
            out.payload[i] = next.payload[i];
            size += next.payload[i].size();
        }
        if (size > mulpdu) return false;
        ++given;
        return true;
    }
    void tx_done() override { ++done; }
    bool tx_intact() override { return intact; }
    std::size_t tx_run(const UlpduRun& run) override {
        std::size_t n = 0, at = 0;
        for (; runs && n < run.sizes.size() && given < outgoing.size(); ++n, ++given) {
            const Octets ulpdu = whole(outgoing[given]);
            if (ulpdu.size() > run.most || run.octets(ulpdu.size()) > run.room.size() - at) break;
            std::copy(ulpdu.begin(), ulpdu.end(),
                      run.room.begin() + static_cast<std::ptrdiff_t>(at + run.before));
            run.sizes[n] = static_cast<std::uint16_t>(ulpdu.size());
            at += run.octets(ulpdu.size());
        }
        in_runs += n;
        return n;
    }
    Bytes rx_whole(ConstBytes ulpdu) override {
        if (!wholes || ulpdu.size() <= header_octets) return {};
        current_.assign(ulpdu.size(), std::byte{0xee});
        std::copy_n(ulpdu.begin(), header_octets, current_.begin());
        return Bytes(current_).subspan(header_octets);
    }
    void rx_whole_done() override {
        ++taken_whole;
        delivered.push_back(std::move(current_));
        current_.clear();
    }
    std::size_t tx_lone(Bytes ulpdu) override {
        if (!lone || given + 1 != outgoing.size()) return 0;
        const Octets last = whole(outgoing[given]);
        if (last.size() > ulpdu.size()) return 0;
        std::copy(last.begin(), last.end(), ulpdu.begin());
        return last.size();
    }
    void tx_lone_done() override {
        ++given;
        ++done;
    }
    std::size_t rx_head(ConstBytes ulpdu) override {
        const std::size_t n = std::min(head_octets, ulpdu.size());
        std::copy_n(ulpdu.begin(), n, current_.begin());
        at_ = n;
        return n;
    }

    void rx_begin(std::size_t ulpdu_length) override {
        ++begun;
        current_.assign(ulpdu_length, std::byte{0xee});
        at_ = 0;
    }
    Bytes rx_target() override {
        std::size_t n = at_ < header_octets ? header_octets - at_ : target_octets;
        if (at_ <= block_at) n = std::min(n, block_at - at_);
        return Bytes(current_).subspan(at_, std::min(n, current_.size() - at_));
    }
    void rx_advance(std::size_t n) override { at_ += n; }
    void rx_end(bool is_intact) override {
        if (is_intact && at_ != current_.size()) events.push_back("short");
        (is_intact ? delivered : refused).push_back(std::move(current_));
        current_.clear();
    }

    void llp_established(const Negotiated& n) override {
        negotiated = n;
        events.push_back("established");
    }
    void llp_failed(Violation v) override {
        failures.push_back(v);
        events.push_back("failed");
    }
    void llp_closed(CloseKind kind) override {
        events.push_back(kind == CloseKind::peer_finished ? "finished"
                         : kind == CloseKind::reset       ? "reset"
                                                          : "local");
    }
    void llp_nudge() override { events.push_back("nudge"); }

    /// A ULPDU to send: `header` octets of header, the payload cut into `pieces`.
    void queue(std::size_t header, std::size_t payload, std::size_t pieces = 1) {
        const auto seed = static_cast<unsigned>(outgoing.size() + 1);
        const Octets all = pattern(payload, seed);
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
    [[nodiscard]] std::vector<Octets> queued() const {
        std::vector<Octets> out;
        for (const Outgoing& o : outgoing) out.push_back(whole(o));
        return out;
    }

  private:
    static Octets whole(const Outgoing& o) {
        Octets out = o.header;
        for (const Octets& p : o.payload) out.insert(out.end(), p.begin(), p.end());
        return out;
    }

    Octets current_;
    std::size_t at_ = 0;
};

}  // namespace xsock::test
