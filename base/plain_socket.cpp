// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/plain_socket.hpp"

#include <cstddef>
#include <cstring>
#include <iterator>

namespace xsock {
namespace {

struct Words {
    const char* code;
    const char* text;
};
constexpr Words kWords[] = {
    {"", ""},
    {"policy-tcp", "the policy says tcp"},
    {"unknown-peer", "the server is not known to take byte streams"},
    {"fallback-not-mpa", "the peer spoke something else than MPA"},
    {"fallback-server-first", "the program spoke before the peer had"},
    {"fallback-eof", "the peer finished before a whole Request had come"},
    {"fallback-slow", "the peer's Request did not come in time"},
    {"fallback-no-watch", "the socket could not be watched"},
    {"fallback-async", "the program set O_ASYNC"},
    {"off", "the program switched DDPMODE off"},
    {"fast-open", "the program connected by MSG_FASTOPEN"},
    {"undecided", "accepted, and nothing has been said on it that the overlay has seen"},
    {"unseen", "the overlay has not seen it made"},
};
static_assert(std::size(kWords) == static_cast<std::size_t>(PlainReason::kCount));

}  // namespace

const char* plain_reason_code(PlainReason reason) noexcept {
    const auto i = static_cast<std::size_t>(reason);
    return i < std::size(kWords) ? kWords[i].code : "";
}

const char* plain_reason_text(PlainReason reason) noexcept {
    const auto i = static_cast<std::size_t>(reason);
    return i < std::size(kWords) ? kWords[i].text : "";
}

PlainReason plain_reason_of(const char* code) noexcept {
    for (std::size_t i = 1; i < static_cast<std::size_t>(PlainReason::undecided); ++i) {
        if (std::strcmp(kWords[i].code, code) == 0) return static_cast<PlainReason>(i);
    }
    return PlainReason::none;
}

}  // namespace xsock
