// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers from a peer: what parses encodes to the same octets (reserved bits apart), a Terminate is
// read without going astray, and one of ours is read as it was meant.
#include "ddp_user/segment.hpp"
#include "ddp_user/terminate.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using namespace xsock::ddp;

void header(ConstBytes octets) {
    if (octets.size() < kTaggedOctets) return;
    Segment segment;
    const OpcodeInfo* info = nullptr;
    const Violation violation = parse_start(octets.first<kTaggedOctets>(), segment, info);
    if (violation != Violation::none) {
        FUZZ_CHECK(violation_info(violation).layer != TermLayer::none);
        return;
    }
    FUZZ_CHECK(info != nullptr && info->opcode == segment.opcode && info->tagged == segment.tagged);
    if (!segment.tagged) {
        if (octets.size() < kUntaggedOctets) return;
        FUZZ_CHECK(queue_known(segment.qn) && segment.qn == info->qn);
        parse_untagged_rest(octets.first<kUntaggedOctets>(), segment);
    }
    std::byte again[kUntaggedOctets];
    const std::size_t n = encode(segment, again);
    FUZZ_CHECK(n == (segment.tagged ? kTaggedOctets : kUntaggedOctets));
    Segment twice;
    FUZZ_CHECK(parse_start(std::span<const std::byte, kTaggedOctets>(again, kTaggedOctets), twice,
                           info) == Violation::none);
    if (!twice.tagged) {
        parse_untagged_rest(std::span<const std::byte, kUntaggedOctets>(again, kUntaggedOctets),
                            twice);
    }
    FUZZ_CHECK(twice == segment);
    // Control and opcode have reserved bits, and so has the STag of most untagged messages.
    const std::size_t from = segment.tagged ? 2 : 6;
    FUZZ_CHECK(std::memcmp(again + from, octets.data() + from, n - from) == 0);
}

void read_request(ConstBytes octets) {
    if (octets.size() < kReadRequestOctets) return;
    std::byte again[kReadRequestOctets];
    encode(parse_read_request(octets.first<kReadRequestOctets>()), again);
    FUZZ_CHECK(std::memcmp(again, octets.data(), sizeof again) == 0);
}

void atomic_request(ConstBytes octets) {
    if (octets.size() < kAtomicRequestOctets) return;
    std::byte again[kAtomicRequestOctets];
    encode(parse_atomic_request(octets.first<kAtomicRequestOctets>()), again);
    // 28 bits are reserved.
    FUZZ_CHECK((again[3] & std::byte{15}) == (octets[3] & std::byte{15}));
    FUZZ_CHECK(std::memcmp(again + 4, octets.data() + 4, sizeof again - 4) == 0);
}

void atomic_response(ConstBytes octets) {
    if (octets.size() < kAtomicResponseOctets) return;
    std::byte again[kAtomicResponseOctets];
    encode(parse_atomic_response(octets.first<kAtomicResponseOctets>()), again);
    FUZZ_CHECK(std::memcmp(again, octets.data(), sizeof again) == 0);
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
    const auto violation =
        static_cast<Violation>(input.octet() % static_cast<unsigned>(Violation::kCount));
    if (violation_info(violation).layer == TermLayer::none) return;
    const std::size_t header_octets = (input.octet() & 1) != 0 ? kTaggedOctets : kUntaggedOctets;
    const std::size_t segment_octets = input.octet() << 8 | input.octet();
    const auto ddp_header = input.take(header_octets),
               rdmap_header = input.take(kReadRequestOctets);
    Offender offender{.segment_octets = segment_octets};
    if (ddp_header.size() == header_octets) offender.ddp_header = ddp_header;
    if (rdmap_header.size() == kReadRequestOctets) offender.rdmap_header = rdmap_header;
    const TerminateMessage message = build_terminate(violation, offender);
    FUZZ_CHECK(message.size >= kUntaggedOctets + sizeof(rdmap_terminate));
    FUZZ_CHECK(message.size <= message.octets.size());
    TerminateInfo info;
    Terminated about;
    FUZZ_CHECK(
        parse_terminate(ConstBytes(message.octets).first(message.size).subspan(kUntaggedOctets),
                        info, about, true));
    FUZZ_CHECK(info.layer == message.info.layer && info.etype == message.info.etype &&
               info.code == message.info.code && !info.swapped);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    terminate_out(input);
    header(input.rest());
    read_request(input.rest());
    atomic_request(input.rest());
    atomic_response(input.rest());
    terminate_in(input.rest());
    if (input.rest().size() > kUntaggedOctets) terminate_in(input.rest().subspan(kUntaggedOctets));
    return 0;
}
