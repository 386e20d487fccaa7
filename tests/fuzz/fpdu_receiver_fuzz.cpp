// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The FPDU receiver on any bytes. CRCs are really checked, and once more by a slow one of our own:
// whatever is delivered had a right one; however the stream is cut, the same is delivered; a ULP
// that has no room for a while changes nothing.
#include "mpa/fpdu.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "tests/fuzz/receiver.hpp"

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

struct Outcome {
    std::vector<std::vector<std::byte>> delivered;
    StreamError stream_error = StreamError::none;
    bool between = false;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(bool crc, bool markers, bool stalls, ConstBytes stream, std::size_t step) {
    fuzz::Sink sink(stalls);
    mpa::FpduReceiver receiver(crc, markers);
    fuzz::feed(receiver, sink, stalls, stream, step);
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
    const fuzz::ReceiverInput in(data, size);
    const Outcome whole = fuzz::receive_whole_and_cut(in, run);
    if (!in.markers) FUZZ_CHECK(whole.delivered == expected(in.crc, in.bytes));
    return 0;
}
