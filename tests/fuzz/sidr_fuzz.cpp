// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Requests and answers of RDMA_PS_UDP: what is one is written again as it was.
//
// Input: the UDP payload.
#include <algorithm>

#include "tests/fuzz/input.hpp"
#include "verbs/sidr.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace xsock;
    const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
    if (const auto request = verbs::decode_sidr_request(bytes)) {
        FUZZ_CHECK(!verbs::decode_sidr_answer(bytes));
        const auto again = verbs::encode(*request);
        FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
    }
    if (const auto answer = verbs::decode_sidr_answer(bytes)) {
        const auto again = verbs::encode(*answer);
        FUZZ_CHECK(again.size <= verbs::kSidrAnswerBytes);
        const ConstBytes octets = again.octets();
        FUZZ_CHECK(std::equal(octets.begin(), octets.end(), bytes.begin(), bytes.end()));
    }
    return 0;
}
