// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Extension frames of any peer: no read beyond their end, the same outcome however they are cut,
// and what was taken comes back from an encoder as it was.
//
// Input: a byte that says what follows, a byte that says where to cut, and a frame, or TLVs
// that are put into a valid one (no fuzzer guesses a CRC).
#include "mpa/extension_frame.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using namespace xsock::mpa;
using ByteVector = std::vector<std::byte>;

struct Outcome {
    std::size_t used = 0;
    bool complete = false;
    ExtensionError error = ExtensionError::none;
    ExtensionFrame frame;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const ByteVector& bytes, std::size_t step) {
    ExtensionReceiver receiver;
    Outcome outcome;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
        const std::size_t most = std::min(step, bytes.size() - at);
        // In memory of its own size, so that a sanitizer sees a read beyond it.
        const ByteVector piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                               bytes.begin() + static_cast<std::ptrdiff_t>(at + most));
        const std::size_t n = receiver.consume(piece);
        FUZZ_CHECK(n <= piece.size());
        outcome.used += n;
        if (n < piece.size()) break;
    }
    outcome.complete = receiver.complete();
    outcome.error = receiver.error();
    FUZZ_CHECK(!outcome.complete || outcome.error == ExtensionError::none);
    if (outcome.complete) outcome.frame = receiver.frame();
    return outcome;
}

void check_text(const Implementation::Text& text) {
    FUZZ_CHECK(text.back() == '\0');
    for (const char c : text) FUZZ_CHECK(c == '\0' || (c >= 0x20 && c < 0x7f));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const bool tlvs_only = (input.next_byte() & 1) != 0;
    const std::size_t step = 1 + input.next_byte();
    ByteVector bytes;
    if (tlvs_only) {
        append_extension_frame(bytes, input.take(MPA_EXTENSION_TLVS_MAX));
    } else {
        bytes = input.take(input.rest().size());
    }
    const Outcome whole = run(bytes, SIZE_MAX / 2);
    FUZZ_CHECK(whole == run(bytes, step));
    if (!whole.complete) {
        FUZZ_CHECK(!tlvs_only || whole.error >= ExtensionError::tlv_order);
        return 0;
    }
    if (!whole.frame.implementation) return 0;
    const Implementation& implementation = *whole.frame.implementation;
    check_text(implementation.name);
    check_text(implementation.version);
    ByteVector again, tlvs;
    append_tlv(tlvs, implementation);
    if (whole.frame.align) insert_tlv(tlvs, MPA_TLV_ALIGN, {});
    if (!whole.frame.shm_answer.empty()) {
        insert_tlv(tlvs, MPA_TLV_SHM_ANSWER, whole.frame.shm_answer);
    }
    if (!whole.frame.shm_offer.empty()) {
        insert_tlv(tlvs, MPA_TLV_SHM_OFFER, whole.frame.shm_offer);
    }
    append_extension_frame(again, tlvs);
    ExtensionFrame frame;
    FUZZ_CHECK(decode(again, frame) == ExtensionError::none);
    FUZZ_CHECK(frame == whole.frame);
    return 0;
}
