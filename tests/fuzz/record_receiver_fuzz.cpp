// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The record receiver on any bytes, as a kernel module with a fault would give them: however they
// are cut the ULP hears the same, nothing is placed or delivered inside another ULPDU, and what a
// run claims adds up.
#include "mpa/record_receiver.hpp"
#include "tests/fuzz/receiver.hpp"

namespace {

using namespace xsock;

struct Heard {
    std::vector<std::vector<std::byte>> delivered;
    std::vector<PlacedWrites> placed;
    std::vector<std::vector<std::byte>> responses;
    StreamError stream_error = StreamError::none;
    std::uint64_t octets = 0;
    friend bool operator==(const Heard&, const Heard&) = default;
};

class Sink final : public fuzz::Sink {
  public:
    using fuzz::Sink::Sink;
    Heard heard;

    void rx_placed(const PlacedWrites& writes) override {
        FUZZ_CHECK(!inside_ && writes.segments != 0 && writes.messages <= writes.segments);
        FUZZ_CHECK(writes.last_bytes <= writes.bytes);
        heard.placed.push_back(writes);
    }
    void rx_placed_response(ConstBytes header, std::size_t bytes) override {
        FUZZ_CHECK(!inside_ && header.size() == sizeof(ddp_tagged));
        FUZZ_CHECK(bytes <= MPA_ULPDU_MAX - sizeof(ddp_tagged));
        heard.responses.emplace_back(header.begin(), header.end());
    }
};

Heard run(bool crc, bool markers, bool stalls, ConstBytes records, std::size_t step) {
    Sink sink(stalls);
    mpa::RecordReceiver receiver(crc, markers);
    fuzz::feed(receiver, sink, stalls, records, step);
    sink.heard.delivered = std::move(sink.delivered);
    sink.heard.stream_error = receiver.stream_error();
    if (receiver.stream_error() == StreamError::none) sink.heard.octets = receiver.stream_octets();
    return std::move(sink.heard);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::receive_whole_and_cut({data, size}, run);
    return 0;
}
