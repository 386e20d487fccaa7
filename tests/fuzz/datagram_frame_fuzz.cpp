// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames of datagrams: what is one is written again as it was.
//
// Input: the frame.
#include <algorithm>

#include "tests/fuzz/input.hpp"
#include "verbs/datagram_frame.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace xsock;
    const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto decoded = verbs::decode_datagram(bytes);
    if (!decoded) return 0;
    const auto again = verbs::encode(decoded->header);
    FUZZ_CHECK(again.size() + decoded->payload.size() == size);
    FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin()));
    FUZZ_CHECK(decoded->payload.size() <= verbs::kDatagramPayload);
    const auto grh = verbs::make_grh(decoded->header, {}, {}, decoded->payload.size());
    FUZZ_CHECK((grh[0] >> 4) == std::byte{6});
    return 0;
}
