// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPA start-up against any peer, in both roles: bytes in any pieces lead to the same end as bytes
// one by one, and nothing grows beyond what the RFCs allow.
//
// Input: three bytes of configuration, then pieces, each behind a byte with its length; so many
// of them as the upper half of the third says, and one, come before our answer is written.
#include <array>

#include "mpa/fpdu.hpp"
#include "mpa/startup.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using mpa::Startup;
using State = Startup::State;

constexpr std::size_t kLargestExtensionFrame =
    mpa::fpdu_octets(sizeof(mpa_extension_frame) - MPA_LENGTH_OCTETS + MPA_EXTENSION_TLVS_MAX);

constexpr std::array<std::byte, sizeof(mpa_tlv_shm_offer)> kOffer{};
constexpr std::array<std::byte, sizeof(mpa_tlv_shm_answer)> kAnswer{};

struct Outcome {
    std::size_t used = 0;
    State before_answer = State::idle, state = State::idle;
    StreamError stream_error = StreamError::none;
    std::vector<std::byte> private_data = {}, answer = {}, shm = {};
    bool crc = false, markers_tx = false, peer_is_xsock = false, extensions = false;
    Implementation peer = {};
    std::uint16_t ird = 0, ord = 0;
    Rtr rtr = Rtr::none;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

mpa::StartupConfig config_of(unsigned a, unsigned b, unsigned c) {
    mpa::StartupConfig config;
    config.role = (a & 1) != 0 ? mpa::Role::responder : mpa::Role::initiator;
    config.revision = (a & 2) != 0 ? 1 : 2;
    config.crc = (a & 4) != 0;
    config.markers = (a & 8) != 0;
    config.negotiate_depths = (a & 32) == 0;
    config.xsock_mark = (a & 64) == 0;
    config.defer_reply = (a & 128) != 0;
    config.rtr = static_cast<std::uint8_t>(b & 7);
    config.ird = static_cast<std::uint16_t>(b >> 3 & 3);
    config.ord = static_cast<std::uint16_t>(b >> 5 & 3);
    config.private_data.resize((b & 128) != 0 ? 508 : 3);
    config.extensions = (c & 1) == 0;
    if ((c & 2) != 0) mpa::append_tlv(config.extension_tlvs, Implementation{});
    config.answers_offer = (c & 4) != 0;
    if ((c & 8) != 0) mpa::append_tlv(config.extension_tlvs, MPA_TLV_SHM_OFFER, kOffer);
    return config;
}

using IovSpan = std::vector<std::vector<std::byte>>;

/// What it wants to write, written.
void write(Startup& startup, Outcome& outcome) {
    const ConstBytes answer = startup.tx();
    FUZZ_CHECK(answer.size() <= sizeof(mpa_frame) + MPA_PD_MAX + kLargestExtensionFrame);
    outcome.answer.insert(outcome.answer.end(), answer.begin(), answer.end());
    if (!answer.empty()) startup.tx_commit(answer.size());
    FUZZ_CHECK(startup.tx().empty());
}

void read(Startup& startup, const IovSpan& pieces, Outcome& outcome) {
    for (const auto& piece : pieces) {
        const std::size_t n = startup.rx(piece);
        FUZZ_CHECK(n <= piece.size());
        outcome.used += n;
        if (n < piece.size()) return;
    }
}

void answer_offer(Startup& startup, Outcome& outcome) {
    if (startup.offer().empty()) return;
    FUZZ_CHECK(startup.state() == State::exchanging && startup.tx().empty());
    outcome.shm.assign(startup.offer().begin(), startup.offer().end());
    FUZZ_CHECK(startup.answer_offer(kAnswer) && startup.offer().empty());
    write(startup, outcome);
    FUZZ_CHECK(startup.state() == State::established);
}

void complete(const Startup& startup, Outcome& outcome) {
    outcome.state = startup.state();
    outcome.stream_error = startup.stream_error();
    const ConstBytes data = startup.private_data();
    FUZZ_CHECK(data.size() <= MPA_PD_MAX);
    outcome.private_data.assign(data.begin(), data.end());
    const Negotiated& n = startup.negotiated();
    outcome.crc = n.crc;
    outcome.markers_tx = n.markers_tx;
    outcome.peer_is_xsock = n.peer_is_xsock;
    outcome.extensions = n.extensions;
    outcome.ird = n.ird;
    outcome.ord = n.ord;
    outcome.rtr = n.rtr;
    FUZZ_CHECK(n.peer_is_xsock || !n.extensions);
    FUZZ_CHECK(n.extensions || !startup.peer());
    if (startup.peer()) outcome.peer = *startup.peer();
    const bool failed = startup.state() == State::failed || startup.state() == State::rejected;
    FUZZ_CHECK(failed == (startup.stream_error() != StreamError::none));
}

/// What the peer sends before it can have received our answer, and behind it.
Outcome run(const mpa::StartupConfig& config, const IovSpan& first, const IovSpan& second,
            bool accept) {
    Startup startup(config);
    startup.begin(0);
    if (!startup.tx().empty()) startup.tx_commit(startup.tx().size());
    Outcome outcome;
    read(startup, first, outcome);
    if (startup.state() == State::await_decision) {
        FUZZ_CHECK(startup.request().private_data.size() <= MPA_PD_MAX);
        FUZZ_CHECK(accept ? startup.accept({}, 4, 4) : startup.reject({}));
    }
    outcome.before_answer = startup.state();
    write(startup, outcome);
    if (startup.state() == State::exchanging) read(startup, second, outcome);
    answer_offer(startup, outcome);
    if (!startup.answer().empty()) {
        FUZZ_CHECK(config.role == mpa::Role::responder && outcome.shm.empty());
        outcome.shm.assign(startup.answer().begin(), startup.answer().end());
    }
    complete(startup, outcome);
    startup.rx_eof();
    startup.on_time(kNever - 1);
    FUZZ_CHECK(startup.state() == State::established || startup.state() == State::rejected ||
               startup.state() == State::failed);
    return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned a = input.next_byte(), b = input.next_byte(), c = input.next_byte();
    const mpa::StartupConfig config = config_of(a, b, c);
    const bool accept = size % 2 == 0;
    std::array<IovSpan, 2> pieces, singles;
    for (std::size_t n = 0; !input.empty(); ++n) {
        const std::size_t part = n < 1 + (c >> 4) ? 0 : 1;
        pieces[part].push_back(input.take(1 + input.next_byte()));
        for (const std::byte value : pieces[part].back()) singles[part].push_back({value});
    }
    // What an answer drops behind a stream error is not counted alike: the rest of the piece goes
    // too.
    Outcome whole = run(config, pieces[0], pieces[1], accept);
    Outcome one_by_one = run(config, singles[0], singles[1], accept);
    if (whole.state == State::failed || whole.before_answer == State::rejecting)
        whole.used = one_by_one.used = 0;
    FUZZ_CHECK(whole == one_by_one);
    return 0;
}
