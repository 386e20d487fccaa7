// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What another process says while a link is agreed on and made: no read beyond its end, and what is
// taken comes back from an encoder as it was.
//
// Input: a byte that says what it is, and the value or datagram.
#include <algorithm>

#include "shm/hello.hpp"
#include "shm/offer.hpp"
#include "tests/fuzz/input.hpp"

using namespace xsock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned what = input.next_byte();
    const std::vector<std::byte> bytes = input.take(input.rest().size());
    const auto same = [&bytes](const std::vector<std::byte>& again, std::size_t ignored) {
        FUZZ_CHECK(again.size() <= bytes.size());
        for (std::size_t i = 0; i < again.size(); ++i) {
            FUZZ_CHECK(again[i] == bytes[i] || (i >= ignored && i < ignored + 2));
        }
    };
    switch (what % 4) {
        case 0:
            if (const auto offer = shm::decode_offer(bytes)) same(encode(*offer), 0);
            break;
        case 1:
            if (const auto answer = shm::decode_answer(bytes)) {
                same(encode(*answer), bytes.size());
                FUZZ_CHECK(shm::name_of(answer->reason)[0] != '\0');
            }
            break;
        case 2: {
            const shm::HelloResult result = shm::decode_hello(bytes, 4096);
            if (result.error == shm::HelloError::none) same(encode(result.hello), 6);
            break;
        }
        default:
            if (const auto error = shm::decode_hello_answer(bytes)) {
                same(shm::encode_answer(*error), bytes.size());
            }
            break;
    }
    return 0;
}
