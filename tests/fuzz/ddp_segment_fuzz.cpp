// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers from a peer: what parses encodes to the same bytes (reserved bits apart), a Terminate is
// read without going astray, and one of ours is read as it was meant.
#include "ddp_user/segment.hpp"
#include "ddp_user/terminate.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using namespace xsock::ddp;

void header(ConstBytes bytes) {
    if (bytes.size() < kTaggedOctets) return;
    Segment segment;
    const OpcodeInfo* info = nullptr;
    const StreamError stream_error = parse_start(bytes.first<kTaggedOctets>(), segment, info);
    if (stream_error != StreamError::none) {
        FUZZ_CHECK(stream_error_info(stream_error).layer != TermLayer::none);
        return;
    }
    FUZZ_CHECK(info != nullptr && info->opcode == segment.opcode && info->tagged == segment.tagged);
    if (!segment.tagged) {
        if (bytes.size() < kUntaggedOctets) return;
        FUZZ_CHECK(queue_known(segment.qn) && segment.qn == info->qn);
        parse_untagged_rest(bytes.first<kUntaggedOctets>(), segment);
    }
    std::byte again[kUntaggedOctets];
    const std::size_t n = encode(segment, again);
    FUZZ_CHECK(n == (segment.tagged ? kTaggedOctets : kUntaggedOctets));
    Segment twice;
    FUZZ_CHECK(parse_start(std::span<const std::byte, kTaggedOctets>(again, kTaggedOctets), twice,
                           info) == StreamError::none);
    if (!twice.tagged) {
        parse_untagged_rest(std::span<const std::byte, kUntaggedOctets>(again, kUntaggedOctets),
                            twice);
    }
    FUZZ_CHECK(twice == segment);
    // Control and opcode have reserved bits, and so has the STag of most untagged messages.
    const std::size_t from = segment.tagged ? 2 : 6;
    FUZZ_CHECK(std::memcmp(again + from, bytes.data() + from, n - from) == 0);
}

/// What `parse` makes of the first octets is encoded as it was; but for 28 reserved bits, if any.
template <std::size_t octets, typename Parse>
void parse_and_encode(ConstBytes bytes, Parse parse, bool has_reserved = false) {
    if (bytes.size() < octets) return;
    std::byte again[octets];
    encode(parse(bytes.first<octets>()), again);
    const std::size_t from = has_reserved ? 4 : 0;
    if (has_reserved) FUZZ_CHECK((again[3] & std::byte{15}) == (bytes[3] & std::byte{15}));
    FUZZ_CHECK(std::memcmp(again + from, bytes.data() + from, sizeof again - from) == 0);
}

void terminate_in(ConstBytes payload) {
    TerminateInfo info;
    Terminated about;
    const bool sound = parse_terminate(payload, info, about, payload.size() % 2 == 0);
    FUZZ_CHECK(sound == (payload.size() >= sizeof(rdmap_terminate)));
    FUZZ_CHECK(info.layer <= 15 && info.etype <= 15);
    FUZZ_CHECK(!about.has_read_request || about.known);
    FUZZ_CHECK(about.known == info.has_ddp_header);
    FUZZ_CHECK(terminate_text(info.layer, info.etype, info.code) != nullptr);
    FUZZ_CHECK(status_of(info) != WcStatus::success);
}

void terminate_out(fuzz::Input input) {
    const auto stream_error =
        static_cast<StreamError>(input.next_byte() % static_cast<unsigned>(StreamError::kCount));
    if (stream_error_info(stream_error).layer == TermLayer::none) return;
    const std::size_t header_octets =
        (input.next_byte() & 1) != 0 ? kTaggedOctets : kUntaggedOctets;
    const std::size_t segment_bytes = input.next_byte() << 8 | input.next_byte();
    const auto ddp_header = input.take(header_octets),
               rdmap_header = input.take(kReadRequestOctets);
    ErrorContext error_context{.segment_bytes = segment_bytes};
    if (ddp_header.size() == header_octets) error_context.ddp_header = ddp_header;
    if (rdmap_header.size() == kReadRequestOctets) error_context.rdmap_header = rdmap_header;
    const TerminateMessage message = build_terminate(stream_error, error_context);
    FUZZ_CHECK(message.size >= kUntaggedOctets + sizeof(rdmap_terminate));
    FUZZ_CHECK(message.size <= message.bytes.size());
    TerminateInfo info;
    Terminated about;
    FUZZ_CHECK(parse_terminate(
        ConstBytes(message.bytes).first(message.size).subspan(kUntaggedOctets), info, about, true));
    FUZZ_CHECK(info.layer == message.info.layer && info.etype == message.info.etype &&
               info.code == message.info.code && !info.swapped);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    terminate_out(input);
    header(input.rest());
    parse_and_encode<kReadRequestOctets>(input.rest(), parse_read_request);
    parse_and_encode<kAtomicRequestOctets>(input.rest(), parse_atomic_request, true);
    parse_and_encode<kAtomicResponseOctets>(input.rest(), parse_atomic_response);
    terminate_in(input.rest());
    if (input.rest().size() > kUntaggedOctets) terminate_in(input.rest().subspan(kUntaggedOctets));
    return 0;
}
