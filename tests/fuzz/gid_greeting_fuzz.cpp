// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Private data of MPA frames on the ports of QP numbers: what is a greeting is written again as it
// was.
//
// Input: the private data.
#include <algorithm>

#include "tests/fuzz/input.hpp"
#include "verbs/gid_greeting.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace xsock;
    const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto decoded = verbs::decode(bytes);
    if (!decoded) return 0;
    if (decoded->refusal != verbs::GreetingRefusal::none) {
        FUZZ_CHECK(decoded->refusal == verbs::GreetingRefusal::other_version ||
                   decoded->refusal == verbs::GreetingRefusal::other_kind);
        return 0;
    }
    const auto again = verbs::encode(decoded->greeting);
    FUZZ_CHECK(size == again.size());
    // The reserved octet is not looked at.
    FUZZ_CHECK(std::equal(again.begin(), again.begin() + 11, bytes.begin()));
    FUZZ_CHECK(std::equal(again.begin() + 12, again.end(), bytes.begin() + 12));
    FUZZ_CHECK(*verbs::text_of(decoded->greeting.refusal) != '\0');
    return 0;
}
