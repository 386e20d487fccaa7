// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the targets of the two receivers of MPA share: a Ulp that has no room at times, and input
// cut into pieces.
//
// Input: a byte (1: CRC, 2: markers, 4: the ULP stalls), one for the cuts, then what is received.
#pragma once

#include <algorithm>
#include <vector>

#include "base/stream_error.hpp"
#include "include/xsock/iwarp.h"
#include "tests/fuzz/input.hpp"
#include "tests/support/stepwise_ulp.hpp"

namespace xsock::fuzz {

class Sink : public test::StepwiseUlp {
  public:
    explicit Sink(bool stalls) : stalls_(stalls) {}

    std::vector<std::vector<std::byte>> delivered;

    UlpdusGiven tx_fill(const UlpduBatch&) override { return {}; }
    void tx_done(std::uint32_t) override {}
    bool tx_intact() override { return true; }
    void rx_begin(std::size_t length) override {
        FUZZ_CHECK(!inside_ && length <= MPA_ULPDU_MAX);
        inside_ = true;
        have_ = 0;
        ulpdu_.assign(length, std::byte{0});
    }
    Bytes rx_target() override {
        FUZZ_CHECK(inside_);
        if (stalls_ && have_ > 0 && ++asked_ % 3 == 0) return {};
        // Not always all of it.
        const std::size_t left = ulpdu_.size() - have_;
        return Bytes(ulpdu_).subspan(have_, left > 20 ? 14 : left);
    }
    void rx_advance(std::size_t n) override {
        FUZZ_CHECK(n <= ulpdu_.size() - have_);
        have_ += n;
    }
    void rx_end(bool intact) override {
        FUZZ_CHECK(inside_ && have_ == ulpdu_.size());
        inside_ = false;
        if (intact) delivered.push_back(ulpdu_);
    }
    void llp_established(const Negotiated&) override {}
    void llp_failed(StreamError) override {}
    void llp_closed(CloseKind) override {}
    void llp_probe() override {}

  protected:
    bool inside_ = false;

  private:
    bool stalls_;
    unsigned asked_ = 0;
    std::size_t have_ = 0;
    std::vector<std::byte> ulpdu_;
};

/// Gives the receiver all of `stream`, in pieces of `step` bytes.
template <typename Receiver>
void feed(Receiver& receiver, Sink& sink, bool stalls, ConstBytes stream, std::size_t step) {
    std::vector<std::byte> waiting;
    for (std::size_t at = 0; at < stream.size() && receiver.stream_error() == StreamError::none;) {
        const std::size_t n = std::min(step, stream.size() - at);
        // Memory of exactly that size: a sanitizer sees a read beyond it.
        waiting.insert(waiting.end(), stream.begin() + static_cast<std::ptrdiff_t>(at),
                       stream.begin() + static_cast<std::ptrdiff_t>(at + n));
        waiting.shrink_to_fit();
        at += n;
        for (int tries = 0; !waiting.empty() && receiver.stream_error() == StreamError::none;
             ++tries) {
            const std::size_t used = receiver.consume(waiting, sink);
            FUZZ_CHECK(used <= waiting.size());
            FUZZ_CHECK(used > 0 || tries < 4 || !stalls);
            FUZZ_CHECK(stalls || used == waiting.size() ||
                       receiver.stream_error() != StreamError::none);
            waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
        }
    }
}

struct ReceiverInput {
    ReceiverInput(const std::uint8_t* data, std::size_t size) : input(data, size) {}

    Input input;
    const unsigned mode = input.next_byte();
    const std::size_t step = std::size_t{1} + input.next_byte();
    const bool crc = (mode & 1) != 0, markers = (mode & 2) != 0, stalls = (mode & 4) != 0;
    const ConstBytes bytes = input.rest();
};

/// What `receive`(crc, markers, stalls, bytes, step) answers for the whole at once. It must answer
/// the same for the pieces.
template <typename Receive>
auto receive_whole_and_cut(const ReceiverInput& in, Receive receive) {
    auto whole = receive(in.crc, in.markers, false, in.bytes, in.bytes.size() + 1);
    FUZZ_CHECK(whole == receive(in.crc, in.markers, in.stalls, in.bytes, in.step));
    return whole;
}

}  // namespace xsock::fuzz
