// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `xsock decode` takes any file: whatever is in it is decoded within bounds, put into words, and
// the same again when the bytes come one by one.
#include <set>
#include <string>

#include "include/xsock/iwarp.h"
#include "tests/fuzz/input.hpp"
#include "tools/decode/capture.hpp"
#include "tools/decode/sdp_words.hpp"
#include "tools/decode/words.hpp"

namespace {

using namespace xsock;
using namespace xsock::decode;

class MemorySource final : public ByteSource {
  public:
    MemorySource(ConstBytes bytes, std::size_t step) : bytes_(bytes), step_(step) {}
    std::size_t read(Bytes into) override {
        const std::size_t n = std::min({into.size(), bytes_.size(), step_});
        std::copy_n(bytes_.begin(), n, into.begin());
        bytes_ = bytes_.subspan(n);
        return n;
    }

  private:
    ConstBytes bytes_;
    const std::size_t step_;
};

class Recorder final : public CaptureListener {
  public:
    explicit Recorder(std::size_t file_bytes) : file_bytes_(file_bytes) {}

    void on_connection(const ConnectionSummary& c) override {
        FUZZ_CHECK(c.number == ++connections_);
        open_.insert(c.number);
        text += c.first.text() + c.second.text();
    }
    void on_startup(const ConnectionSummary& c, const Place& place,
                    const StartupFrame& frame) override {
        check(c, place);
        FUZZ_CHECK(frame.private_data.size() <= MPA_PD_MAX);
        text += startup_words(frame);
    }
    void on_extension_frame(const ConnectionSummary& c, const Place& place,
                            const ExtensionFrame& frame) override {
        check(c, place);
        FUZZ_CHECK(frame.whole == (frame.crc != Crc::unchecked));
        FUZZ_CHECK(frame.whole || frame.tlvs.empty());
        text += extension_words(frame);
    }
    void on_fpdu(const ConnectionSummary& c, const Place& place, const Fpdu& fpdu) override {
        check(c, place);
        FUZZ_CHECK(fpdu.ulpdu_bytes <= MPA_ULPDU_MAX);
        FUZZ_CHECK(fpdu.payload_bytes <= fpdu.ulpdu_bytes);
        FUZZ_CHECK(fpdu.whole || fpdu.crc == Crc::unchecked || fpdu.crc == Crc::off);
        // What is whole was in the file, and nowhere twice.
        if (fpdu.whole) whole_bytes_ += fpdu.bytes;
        FUZZ_CHECK(whole_bytes_ <= file_bytes_);
        text += fpdu_words(fpdu);
    }
    void on_sdp(const ConnectionSummary& c, const Place& place, const SdpUnit& unit) override {
        check(c, place);
        FUZZ_CHECK(unit.payload_bytes <= unit.bytes);
        text += sdp_words(unit);
    }
    void on_lost(const ConnectionSummary& c, const Place& place, const char* why,
                 std::uint64_t) override {
        check(c, place);
        text += why;
    }
    void on_end(const ConnectionSummary& c) override { FUZZ_CHECK(open_.erase(c.number) == 1); }

    void end(const CaptureDecoder::Totals& totals) {
        FUZZ_CHECK(open_.empty());
        FUZZ_CHECK(totals.mpa_connections == connections_);
        text += std::to_string(totals.packets);
    }

    std::string text;

  private:
    void check(const ConnectionSummary& c, const Place& place) {
        FUZZ_CHECK(open_.count(c.number) == 1);
        FUZZ_CHECK(place.first_packet <= place.packet && place.packet != 0);
    }

    const std::size_t file_bytes_;
    std::uint64_t connections_ = 0;
    std::uint64_t whole_bytes_ = 0;
    std::set<std::uint64_t> open_;
};

std::string decoded(ConstBytes file, std::size_t step) {
    MemorySource source(file, step);
    CaptureFile capture(source);
    Recorder recorder(file.size());
    CaptureDecoder decoder(recorder);
    Packet packet;
    while (capture.next(packet)) decoder.add(packet);
    FUZZ_CHECK(!capture.next(packet));
    decoder.finish();
    recorder.end(decoder.totals());
    return recorder.text + capture.error();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ConstBytes file(reinterpret_cast<const std::byte*>(data), size);
    FUZZ_CHECK(decoded(file, SIZE_MAX) == decoded(file, 1));
    return 0;
}
