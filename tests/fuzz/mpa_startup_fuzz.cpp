// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPA start-up against any peer, in both roles: octets in any pieces lead to the same end as octets
// one by one, and nothing grows beyond what the RFCs allow.
//
// Input: two octets of configuration, then pieces, each behind an octet with its length.
#include "mpa/startup.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using mpa::Startup;
using State = Startup::State;

struct Outcome {
    std::size_t used = 0;
    State state = State::idle;
    Violation violation = Violation::none;
    std::vector<std::byte> private_data = {}, answer = {};
    bool crc = false, markers_tx = false, peer_is_xsock = false;
    std::uint16_t ird = 0, ord = 0;
    Rtr rtr = Rtr::none;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

mpa::StartupConfig config_of(unsigned a, unsigned b) {
    mpa::StartupConfig config;
    config.role = (a & 1) != 0 ? mpa::Role::responder : mpa::Role::initiator;
    config.revision = (a & 2) != 0 ? 1 : 2;
    config.crc = (a & 4) != 0;
    config.markers = (a & 8) != 0;
    config.accept_markers = (a & 16) == 0;
    config.negotiate_depths = (a & 32) == 0;
    config.xsock_mark = (a & 64) == 0;
    config.defer_reply = (a & 128) != 0;
    config.rtr = static_cast<std::uint8_t>(b & 7);
    config.ird = static_cast<std::uint16_t>(b >> 3 & 3);
    config.ord = static_cast<std::uint16_t>(b >> 5 & 3);
    config.private_data.resize((b & 128) != 0 ? 508 : 3);
    return config;
}

Outcome outcome_of(Startup& startup, std::size_t used, bool accept) {
    if (startup.state() == State::await_decision) {
        FUZZ_CHECK(startup.request().private_data.size() <= MPA_PD_MAX);
        FUZZ_CHECK(accept ? startup.accept({}, 4, 4) : startup.reject({}));
    }
    Outcome outcome{.used = used, .state = startup.state(), .violation = startup.violation()};
    const ConstBytes data = startup.private_data();
    FUZZ_CHECK(data.size() <= MPA_PD_MAX);
    outcome.private_data.assign(data.begin(), data.end());
    const ConstBytes answer = startup.tx();
    FUZZ_CHECK(answer.size() <= sizeof(mpa_frame) + MPA_PD_MAX);
    outcome.answer.assign(answer.begin(), answer.end());
    const Negotiated& n = startup.negotiated();
    outcome.crc = n.crc;
    outcome.markers_tx = n.markers_tx;
    outcome.peer_is_xsock = n.peer_is_xsock;
    outcome.ird = n.ird;
    outcome.ord = n.ord;
    outcome.rtr = n.rtr;
    if (!answer.empty()) startup.tx_commit(answer.size());
    FUZZ_CHECK(startup.tx().empty());
    const bool failed = startup.state() == State::failed || startup.state() == State::rejected;
    FUZZ_CHECK(failed == (startup.violation() != Violation::none));
    startup.rx_eof();
    startup.on_time(kNever - 1);
    FUZZ_CHECK(startup.state() != State::idle && startup.state() != State::await_reply &&
               startup.state() != State::await_request && startup.state() != State::replying);
    return outcome;
}

Outcome run(const mpa::StartupConfig& config, const std::vector<std::vector<std::byte>>& pieces,
            bool accept) {
    Startup startup(config);
    startup.begin(0);
    if (!startup.tx().empty()) startup.tx_commit(startup.tx().size());
    std::size_t used = 0;
    for (const auto& piece : pieces) {
        const std::size_t n = startup.rx(piece);
        FUZZ_CHECK(n <= piece.size());
        used += n;
        if (n < piece.size()) break;
    }
    return outcome_of(startup, used, accept);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned a = input.octet(), b = input.octet();
    const mpa::StartupConfig config = config_of(a, b);
    const bool accept = size % 2 == 0;
    std::vector<std::vector<std::byte>> pieces, singles;
    while (!input.empty()) {
        pieces.push_back(input.take(1 + input.octet()));
        for (const std::byte octet : pieces.back()) singles.push_back({octet});
    }
    // What an answer drops behind a violation is not counted alike: the rest of the piece goes too.
    Outcome whole = run(config, pieces, accept), one_by_one = run(config, singles, accept);
    if (whole.state == State::failed || whole.state == State::rejecting)
        whole.used = one_by_one.used = 0;
    FUZZ_CHECK(whole == one_by_one);
    return 0;
}
