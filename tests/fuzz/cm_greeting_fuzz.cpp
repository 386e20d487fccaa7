// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What ids without a queue pair say ahead of their private data: what is such is written again as
// it was.
//
// Input: the private data of an MPA frame.
#include <algorithm>

#include "tests/fuzz/input.hpp"
#include "verbs/cm_greeting.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace xsock;
    const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto greeting = verbs::decode_cm_greeting(bytes);
    if (!greeting || greeting->qp_num == 0) return 0;
    FUZZ_CHECK(greeting->data.size() == bytes.size() - verbs::kCmGreetingBytes);
    const auto again = verbs::encode_cm_greeting(greeting->qp_num);
    FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin()));
    return 0;
}
