// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The FPDU receiver on any bytes. CRCs are really checked, and once more by a slow one of our own:
// whatever is delivered had a right one; however the stream is cut, the same is delivered; a ULP
// that has no room for a while changes nothing.
//
// Input: a byte (1: CRC, 2: markers, 4: the ULP stalls), one for the cuts, then the stream.
#include "mpa/fpdu.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/stepwise_ulp.hpp"

namespace {

using namespace xsock;

std::uint32_t slow_crc(ConstBytes bytes) {
    std::uint32_t reg = ~0u;
    for (const std::byte value : bytes) {
        reg ^= std::to_integer<std::uint32_t>(value);
        for (int i = 0; i < 8; ++i) reg = reg >> 1 ^ (0x82f63b78u & (0 - (reg & 1)));
    }
    return ~reg;
}

class Sink final : public test::StepwiseUlp {
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

  private:
    bool stalls_;
    bool inside_ = false;
    unsigned asked_ = 0;
    std::size_t have_ = 0;
    std::vector<std::byte> ulpdu_;
};

struct Outcome {
    std::vector<std::vector<std::byte>> delivered;
    StreamError stream_error = StreamError::none;
    bool between = false;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(bool crc, bool markers, bool stalls, ConstBytes stream, std::size_t step) {
    Sink sink(stalls);
    mpa::FpduReceiver receiver(crc, markers);
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
    return {std::move(sink.delivered), receiver.stream_error(), receiver.between_fpdus()};
}

/// What a reader of RFC 5044 would deliver of a stream without markers.
std::vector<std::vector<std::byte>> expected(bool crc, ConstBytes stream) {
    std::vector<std::vector<std::byte>> ulpdus;
    while (stream.size() >= MPA_LENGTH_OCTETS) {
        const std::size_t length = load_be16(stream.data());
        const std::size_t bytes = mpa::fpdu_octets(length);
        if (bytes > stream.size()) break;
        const std::size_t covered = bytes - MPA_CRC_OCTETS;
        if (crc && slow_crc(stream.first(covered)) != load_le32(stream.data() + covered)) break;
        const ConstBytes ulpdu = stream.subspan(MPA_LENGTH_OCTETS, length);
        ulpdus.emplace_back(ulpdu.begin(), ulpdu.end());
        stream = stream.subspan(bytes);
    }
    return ulpdus;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned mode = input.next_byte();
    const std::size_t step = 1 + input.next_byte();
    const bool crc = (mode & 1) != 0, markers = (mode & 2) != 0, stalls = (mode & 4) != 0;
    const ConstBytes stream = input.rest();
    const Outcome whole = run(crc, markers, false, stream, stream.size() + 1);
    FUZZ_CHECK(whole == run(crc, markers, stalls, stream, step));
    if (!markers) FUZZ_CHECK(whole.delivered == expected(crc, stream));
    return 0;
}
