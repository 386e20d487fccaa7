// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/startup.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::mpa {
namespace {

using test::bytes_of;
using test::ByteVector;
using State = Startup::State;

constexpr int kM = MPA_FLAG_MARKERS, kC = MPA_FLAG_CRC, kR = MPA_FLAG_REJECT;
constexpr int kS = MPA_FLAG_ENHANCED, kGso = MPA_FLAG_SIW_GSO;
constexpr int kXq = MPA_FLAG_XSOCK_REQUEST, kXr = MPA_FLAG_XSOCK_REPLY, kXe = MPA_FLAG_EXTENSIONS;

ByteVector frame(const char* key, int flags, int revision, const ByteVector& pd,
                 int pd_length = -1) {
    ByteVector out(sizeof(mpa_frame) + pd.size());
    std::memcpy(out.data(), key, MPA_KEY_OCTETS);
    out[16] = static_cast<std::byte>(flags);
    out[17] = static_cast<std::byte>(revision);
    store_be16(out.data() + 18,
               static_cast<std::uint16_t>(pd_length < 0 ? static_cast<int>(pd.size()) : pd_length));
    std::copy(pd.begin(), pd.end(), out.begin() + sizeof(mpa_frame));
    return out;
}
ByteVector request(int flags, int revision, const ByteVector& pd = {}, int pd_length = -1) {
    return frame(MPA_KEY_REQUEST, flags, revision, pd, pd_length);
}
ByteVector reply(int flags, int revision, const ByteVector& pd = {}, int pd_length = -1) {
    return frame(MPA_KEY_REPLY, flags, revision, pd, pd_length);
}
ByteVector enhanced(unsigned ird, unsigned ord, const char* private_data = "") {
    ByteVector out(4);
    store_be16(out.data(), static_cast<std::uint16_t>(ird));
    store_be16(out.data() + 2, static_cast<std::uint16_t>(ord));
    for (; *private_data != 0; ++private_data) {
        out.push_back(static_cast<std::byte>(*private_data));
    }
    return out;
}
ByteVector bytes(ConstBytes span) { return {span.begin(), span.end()}; }
ByteVector bytes(const char* text) {
    return bytes(std::as_bytes(std::span(text, std::strlen(text))));
}

StartupConfig initiator() { return {.role = Role::initiator, .ird = 16, .ord = 16}; }
StartupConfig responder() { return {.role = Role::responder, .ird = 16, .ord = 16}; }

/// Writes out all that is queued.
ByteVector written(Startup& s) {
    const ByteVector out = bytes(s.tx());
    s.tx_commit(out.size());
    return out;
}

// -- initiator: Request --

TEST(StartupInitiator, asks_with_crc_depths_and_the_mark_by_default) {
    Startup s({.role = Role::initiator});
    s.begin(0);
    EXPECT_EQ(bytes(s.tx()), request(kC | kS | kXq | kXe, 2, enhanced(255, 255)));
    EXPECT_EQ(s.state(), State::await_reply);
}

TEST(StartupInitiator, revision_1_has_no_enhanced_data) {
    StartupConfig c = initiator();
    c.revision = 1;
    c.crc = false;
    c.markers = true;
    c.xsock_mark = false;
    c.rtr = kRtrWrite;
    c.private_data = bytes("hello");
    Startup s(c);
    s.begin(0);
    EXPECT_EQ(bytes(s.tx()), request(kM, 1, bytes("hello")));
}

TEST(StartupInitiator, offers_rtr_kinds_as_siw_does) {
    StartupConfig c = initiator();
    c.ird = c.ord = 1;
    c.rtr = kRtrWrite | kRtrRead;
    c.xsock_mark = false;
    Startup s(c);
    s.begin(0);
    EXPECT_EQ(bytes(s.tx()), request(kC | kS, 2, enhanced(0x8001, 0xc001)));
}

TEST(StartupInitiator, request_may_be_written_byte_by_byte) {
    Startup s(initiator());
    s.begin(0);
    const ByteVector all = bytes(s.tx());
    ByteVector out;
    while (!s.tx().empty()) {
        out.push_back(s.tx().front());
        s.tx_commit(1);
    }
    EXPECT_EQ(out, all);
}

// -- initiator: Reply --

/// What came of one end's start-up, and `c`, which has what should.
template <typename Case>
void expect_outcome(const Startup& s, const Case& c, bool is_initiator) {
    ASSERT_EQ(s.state(), c.state);
    EXPECT_EQ(s.stream_error(), c.stream_error);
    if (c.state != State::established) return;
    EXPECT_EQ(s.negotiated().initiator, is_initiator);
    EXPECT_EQ(s.negotiated().ird, c.ird);
    EXPECT_EQ(s.negotiated().ord, c.ord);
    EXPECT_EQ(s.negotiated().rtr, c.rtr);
}

/// Gives `frame` to `s`, at once or octet by octet; the latter only as long as it is in `state`, if
/// one is given.
void receive(Startup& s, const ByteVector& frame, bool byte_by_byte,
             std::optional<State> state = {}) {
    if (!byte_by_byte) {
        s.rx(frame);
        return;
    }
    for (const std::byte& b : frame) {
        if (!state || s.state() == *state) s.rx({&b, 1});
    }
}

struct ReplyCase {
    const char* name;
    StartupConfig config;
    ByteVector reply;
    State state;
    StreamError stream_error;
    std::uint16_t ird, ord;
    Rtr rtr;
    bool crc;
};

StartupConfig with(void (*change)(StartupConfig&), StartupConfig c = initiator()) {
    change(c);
    return c;
}

TEST(StartupInitiator, judges_replies) {
    const auto none = StreamError::none;
    const auto bad = StreamError::mpa_startup_frame;
    const StartupConfig plain = initiator();
    const StartupConfig no_crc = with([](StartupConfig& c) { c.crc = false; });
    const StartupConfig p2p = with([](StartupConfig& c) { c.rtr = kRtrWrite | kRtrRead; });
    const StartupConfig p2p_send = with([](StartupConfig& c) { c.rtr = kRtrSend; });
    const StartupConfig p2p_no_ord = with([](StartupConfig& c) {
        c.rtr = kRtrRead;
        c.ord = 0;
    });
    const StartupConfig revision_1 = with([](StartupConfig& c) { c.revision = 1; });
    const StartupConfig no_depths = with([](StartupConfig& c) { c.negotiate_depths = false; });
    const ReplyCase cases[] = {
        {"as asked", plain, reply(kC | kS, 2, enhanced(16, 16)), State::established, none, 16, 16,
         Rtr::none, true},
        {"lower depths", plain, reply(kC | kS, 2, enhanced(3, 5)), State::established, none, 5, 3,
         Rtr::none, true},
        {"higher IRD than needed", plain, reply(kC | kS, 2, enhanced(99, 5)), State::established,
         none, 5, 16, Rtr::none, true},
        {"ORD above our IRD", plain, reply(kC | kS, 2, enhanced(16, 17)), State::failed,
         StreamError::mpa_insufficient_ird, 0, 0, Rtr::none, true},
        {"depths not negotiated", plain, reply(kC | kS, 2, enhanced(0x3fff, 0x3fff)),
         State::established, none, 16, 16, Rtr::none, true},
        {"zero depths", plain, reply(kC | kS, 2, enhanced(0, 0)), State::established, none, 0, 0,
         Rtr::none, true},
        {"CRC only of ours", plain, reply(kS, 2, enhanced(16, 16)), State::established, none, 16,
         16, Rtr::none, true},
        {"CRC only of theirs", no_crc, reply(kC, 2), State::established, none, 16, 16, Rtr::none,
         true},
        {"CRC off", no_crc, reply(0, 2), State::established, none, 16, 16, Rtr::none, false},
        {"revision 1 to 2", plain, reply(kC, 1), State::established, none, 16, 16, Rtr::none, true},
        {"S of revision 1 is ignored", plain, reply(kC | kS, 1, bytes("x")), State::established,
         none, 16, 16, Rtr::none, true},
        {"revision 2 without S", plain, reply(kC, 2, bytes("x")), State::established, none, 16, 16,
         Rtr::none, true},
        {"revision 2 to 1", revision_1, reply(kC, 2), State::failed, bad, 0, 0, Rtr::none, true},
        {"revision 0", plain, reply(kC, 0), State::failed, bad, 0, 0, Rtr::none, true},
        {"revision 3", plain, reply(kC, 3), State::failed, bad, 0, 0, Rtr::none, true},
        {"S not offered", no_depths, reply(kC | kS, 2, enhanced(1, 1)), State::failed, bad, 0, 0,
         Rtr::none, true},
        {"S without its data", plain, reply(kC | kS, 2, bytes("abc")), State::failed, bad, 0, 0,
         Rtr::none, true},
        {"private data too long", plain, reply(kC, 2, {}, 513), State::failed, bad, 0, 0, Rtr::none,
         true},
        {"peer to peer by Write", p2p, reply(kC | kS, 2, enhanced(0x8010, 0x8010)),
         State::established, none, 16, 16, Rtr::write, true},
        {"peer to peer by Read", p2p, reply(kC | kS, 2, enhanced(0x8010, 0x4010)),
         State::established, none, 16, 16, Rtr::read, true},
        {"peer to peer by Send, not offered", p2p, reply(kC | kS, 2, enhanced(0xc010, 0x0010)),
         State::failed, StreamError::mpa_no_rtr, 0, 0, Rtr::none, true},
        {"peer to peer by Write, not offered: siw's answer to Send", p2p_send,
         reply(kC | kS, 2, enhanced(0x8010, 0x8010)), State::established, none, 16, 16, Rtr::write,
         true},
        {"peer to peer declined", p2p, reply(kC | kS, 2, enhanced(16, 16)), State::established,
         none, 16, 16, Rtr::none, true},
        {"Read as RTR needs ORD 1", p2p_no_ord, reply(kC | kS, 2, enhanced(0x8001, 0x4000)),
         State::established, none, 0, 1, Rtr::read, true},
        {"rejected", plain, reply(kC | kR | kS, 2, enhanced(1, 1, "no")), State::rejected,
         StreamError::startup_rejected, 0, 0, Rtr::none, true},
        {"rejected by siw, S without data", plain, reply(kC | kR | kS, 2), State::rejected,
         StreamError::startup_rejected, 0, 0, Rtr::none, true},
        {"a Request", plain, request(kC, 2), State::failed, StreamError::startup_both_initiators, 0,
         0, Rtr::none, true},
    };
    for (const ReplyCase& c : cases) {
        for (const bool byte_by_byte : {false, true}) {
            SCOPED_TRACE(std::string(c.name) + (byte_by_byte ? ", by octets" : ""));
            Startup s(c.config);
            s.begin(0);
            written(s);
            receive(s, c.reply, byte_by_byte);
            expect_outcome(s, c, true);
            EXPECT_EQ(s.next_timeout(), kNever);
            if (c.state == State::established) {
                EXPECT_EQ(s.negotiated().crc, c.crc);
            }
        }
    }
}

TEST(StartupInitiator, private_data_of_the_reply_comes_without_enhanced_bytes) {
    Startup s(initiator());
    s.begin(0);
    written(s);
    s.rx(reply(kS | kR, 2, enhanced(1, 2, "sorry")));
    EXPECT_EQ(bytes(s.private_data()), bytes("sorry"));
}

TEST(StartupInitiator, takes_no_byte_behind_the_reply) {
    Startup s(initiator());
    s.begin(0);
    written(s);
    ByteVector in = reply(kC | kS, 2, enhanced(1, 2, "x"));
    const std::size_t size = in.size();
    in.resize(size + 9);
    EXPECT_EQ(s.rx(in), size);
    EXPECT_EQ(s.state(), State::established);
}

TEST(StartupInitiator, fails_at_the_first_wrong_byte_of_the_key) {
    for (std::size_t wrong = 0; wrong < MPA_KEY_OCTETS; ++wrong) {
        ByteVector in = reply(kC, 1);
        in[wrong] ^= std::byte{0x80};
        Startup s(initiator());
        s.begin(0);
        written(s);
        s.rx(ConstBytes(in).first(wrong));
        EXPECT_EQ(s.state(), State::await_reply);
        s.rx(ConstBytes(in).subspan(wrong, 1));
        EXPECT_EQ(s.state(), State::failed);
        EXPECT_EQ(s.stream_error(), StreamError::startup_not_mpa);
    }
}

TEST(StartupInitiator, reply_before_the_request_was_written_is_a_stream_error) {
    Startup s(initiator());
    s.begin(0);
    s.rx(reply(kC, 2));
    EXPECT_EQ(s.stream_error(), StreamError::mpa_startup_frame);
}

TEST(StartupInitiator, knows_an_xsock_by_the_mark_it_changed) {
    const auto peer_is_xsock = [](int flags, bool mark) {
        StartupConfig c = initiator();
        c.xsock_mark = mark;
        Startup s(c);
        s.begin(0);
        written(s);
        s.rx(reply(kC | flags, 2));
        EXPECT_EQ(s.state(), State::established);
        return s.negotiated().peer_is_xsock;
    };
    EXPECT_TRUE(peer_is_xsock(kXr, true));
    EXPECT_FALSE(peer_is_xsock(kXq, true)) << "echoed";
    EXPECT_FALSE(peer_is_xsock(kXq | kXr, true));
    EXPECT_FALSE(peer_is_xsock(0, true));
    EXPECT_FALSE(peer_is_xsock(kXr, false)) << "not asked for";
}

TEST(StartupInitiator, sees_siws_private_bit) {
    Startup s(initiator());
    s.begin(0);
    written(s);
    s.rx(reply(kC | kGso, 2));
    EXPECT_TRUE(s.negotiated().peer_accepts_gso);
}

// -- responder --

struct RequestCase {
    const char* name;
    StartupConfig config;
    ByteVector request;
    ByteVector reply;
    State state;  // after the Reply, if any, is written
    StreamError stream_error;
    std::uint16_t ird, ord;
    Rtr rtr;
};

TEST(StartupResponder, judges_requests) {
    const auto none = StreamError::none;
    const auto bad = StreamError::mpa_startup_frame;
    const auto change = [](void (*f)(StartupConfig&)) { return with(f, responder()); };
    const StartupConfig plain = responder();
    const StartupConfig no_crc = change([](StartupConfig& c) { c.crc = false; });
    const StartupConfig markers = change([](StartupConfig& c) { c.markers = true; });
    const StartupConfig revision_1 = change([](StartupConfig& c) { c.revision = 1; });
    const StartupConfig all_rtr =
        change([](StartupConfig& c) { c.rtr = kRtrSend | kRtrWrite | kRtrRead; });
    const StartupConfig send_rtr = change([](StartupConfig& c) { c.rtr = kRtrSend; });
    const StartupConfig data = change([](StartupConfig& c) { c.private_data = bytes("hi"); });
    const RequestCase cases[] = {
        {"siw's", plain, request(kC | kS, 2, enhanced(1, 1)), reply(kC | kS, 2, enhanced(1, 1)),
         State::established, none, 1, 1, Rtr::none},
        {"deep", plain, request(kC | kS, 2, enhanced(200, 128)),
         reply(kC | kS, 2, enhanced(16, 16)), State::established, none, 16, 16, Rtr::none},
        {"crossed depths", plain, request(kC | kS, 2, enhanced(3, 5)),
         reply(kC | kS, 2, enhanced(5, 3)), State::established, none, 5, 3, Rtr::none},
        {"depths not negotiated", plain, request(kC | kS, 2, enhanced(0x3fff, 0x3fff)),
         reply(kC | kS, 2, enhanced(0x3fff, 0x3fff)), State::established, none, 16, 16, Rtr::none},
        {"zero depths", plain, request(kC | kS, 2, enhanced(0, 0)),
         reply(kC | kS, 2, enhanced(0, 0)), State::established, none, 0, 0, Rtr::none},
        {"private data both ways", data, request(kC | kS, 2, enhanced(1, 1, "hello")),
         reply(kC | kS, 2, enhanced(1, 1, "hi")), State::established, none, 1, 1, Rtr::none},
        {"without S", plain, request(kC, 2, bytes("x")), reply(kC, 2), State::established, none, 16,
         16, Rtr::none},
        {"revision 1, S ignored", plain, request(kC | kS, 1, bytes("x")), reply(kC, 1),
         State::established, none, 16, 16, Rtr::none},
        {"revision 0", plain, request(kC, 0), reply(kC, 0), State::established, none, 16, 16,
         Rtr::none},
        {"R is ignored", plain, request(kC | kR, 1), reply(kC, 1), State::established, none, 16, 16,
         Rtr::none},
        {"reserved bits are not echoed", plain, request(kC | 1, 1), reply(kC, 1),
         State::established, none, 16, 16, Rtr::none},
        {"siw's private bit: any size may come", plain, request(kC | kGso, 1), reply(kC | kGso, 1),
         State::established, none, 16, 16, Rtr::none},
        {"xsock", plain, request(kC | kXq, 1), reply(kC | kXr, 1), State::established, none, 16, 16,
         Rtr::none},
        {"CRC off", no_crc, request(0, 1), reply(0, 1), State::established, none, 16, 16,
         Rtr::none},
        {"CRC theirs", no_crc, request(kC, 1), reply(kC, 1), State::established, none, 16, 16,
         Rtr::none},
        {"CRC ours", plain, request(0, 1), reply(kC, 1), State::established, none, 16, 16,
         Rtr::none},
        {"markers both ways", markers, request(kC | kM, 1), reply(kC | kM, 1), State::established,
         none, 16, 16, Rtr::none},
        {"revision 3", plain, request(kC, 3), {}, State::failed, bad, 0, 0, Rtr::none},
        {"revision 2 to a responder of 1",
         revision_1,
         request(kC, 2),
         {},
         State::failed,
         bad,
         0,
         0,
         Rtr::none},
        {"private data too long",
         plain,
         request(kC, 2, {}, 513),
         {},
         State::failed,
         bad,
         0,
         0,
         Rtr::none},
        {"enhanced without its data", plain, request(kC | kS, 2), reply(kC | kR, 2), State::failed,
         bad, 0, 0, Rtr::none},
        {"enhanced with half its data", plain, request(kC | kS, 2, bytes("ab")), reply(kC | kR, 2),
         State::failed, bad, 0, 0, Rtr::none},
        {"a Reply",
         plain,
         reply(kC, 2),
         {},
         State::failed,
         StreamError::startup_not_mpa,
         0,
         0,
         Rtr::none},
        {"RTR: Write first, as siw", all_rtr, request(kC | kS, 2, enhanced(0x8001, 0xc001)),
         reply(kC | kS, 2, enhanced(0x8001, 0x8001)), State::established, none, 1, 1, Rtr::write},
        {"RTR: Read before Send", all_rtr, request(kC | kS, 2, enhanced(0xc001, 0x4001)),
         reply(kC | kS, 2, enhanced(0x8001, 0x4001)), State::established, none, 1, 1, Rtr::read},
        {"RTR: Read raises IRD to 1", all_rtr, request(kC | kS, 2, enhanced(0x8000, 0x4000)),
         reply(kC | kS, 2, enhanced(0x8001, 0x4000)), State::established, none, 1, 0, Rtr::read},
        {"RTR: Send", send_rtr, request(kC | kS, 2, enhanced(0xc001, 0xc001)),
         reply(kC | kS, 2, enhanced(0xc001, 0x0001)), State::established, none, 1, 1, Rtr::send},
        {"RTR: none in common", send_rtr, request(kC | kS, 2, enhanced(0x8001, 0xc001)),
         reply(kC | kR | kS, 2, enhanced(16, 16)), State::failed, StreamError::mpa_no_rtr, 0, 0,
         Rtr::none},
    };
    for (const RequestCase& c : cases) {
        for (const bool byte_by_byte : {false, true}) {
            SCOPED_TRACE(std::string(c.name) + (byte_by_byte ? ", by octets" : ""));
            Startup s(c.config);
            s.begin(0);
            receive(s, c.request, byte_by_byte, State::await_request);
            EXPECT_EQ(written(s), c.reply);
            expect_outcome(s, c, false);
        }
    }
}

TEST(StartupResponder, is_established_only_once_all_of_the_reply_is_written) {
    Startup s(responder());
    s.begin(0);
    s.rx(request(kC, 1));
    while (s.tx().size() > 1) {
        s.tx_commit(1);
        EXPECT_EQ(s.state(), State::replying);
    }
    s.tx_commit(1);
    EXPECT_EQ(s.state(), State::established);
}

TEST(StartupResponder, bytes_behind_the_request_are_a_stream_error) {
    ByteVector in = request(kC, 1);
    in.push_back(std::byte{0});
    Startup together(responder());
    together.begin(0);
    together.rx(in);
    EXPECT_EQ(together.stream_error(), StreamError::mpa_startup_frame);
    EXPECT_TRUE(together.tx().empty());

    Startup apart(with([](StartupConfig& c) { c.defer_reply = true; }, responder()));
    apart.begin(0);
    apart.rx(ConstBytes(in).first(in.size() - 1));
    EXPECT_EQ(apart.state(), State::await_decision);
    apart.rx(ConstBytes(in).last(1));
    EXPECT_EQ(apart.stream_error(), StreamError::mpa_startup_frame);
}

TEST(StartupResponder, defers_and_accepts) {
    Startup s(with([](StartupConfig& c) { c.defer_reply = true; }, responder()));
    s.begin(0);
    EXPECT_FALSE(s.accept({}, 1, 1));
    s.rx(request(kC | kS | kXq, 2, enhanced(7, 9, "who")));
    ASSERT_EQ(s.state(), State::await_decision);
    EXPECT_EQ(s.request().ird, 7);
    EXPECT_EQ(s.request().ord, 9);
    EXPECT_TRUE(s.request().enhanced);
    EXPECT_TRUE(s.request().xsock);
    EXPECT_EQ(s.request().private_data, bytes("who"));
    EXPECT_EQ(bytes(s.private_data()), bytes("who"));
    EXPECT_FALSE(s.accept(test::pattern(509), 4, 4));
    EXPECT_TRUE(s.accept(bytes("ok"), 4, 5));
    EXPECT_EQ(written(s), reply(kC | kS | kXr, 2, enhanced(4, 5, "ok")));
    EXPECT_EQ(s.state(), State::established);
    EXPECT_EQ(s.negotiated().ird, 4);
    EXPECT_EQ(s.negotiated().ord, 5);
    EXPECT_FALSE(s.accept({}, 1, 1));
}

TEST(StartupResponder, takes_the_longest_private_data) {
    Startup s(with([](StartupConfig& c) { c.defer_reply = true; }, responder()));
    s.begin(0);
    s.rx(request(kC | kXq, 2, test::pattern(512)));
    EXPECT_EQ(s.request().private_data, test::pattern(512));
    EXPECT_FALSE(s.accept(test::pattern(513), 4, 4));
    EXPECT_TRUE(s.accept(test::pattern(512, 2), 4, 4));
    EXPECT_EQ(written(s), reply(kC | kXr, 2, test::pattern(512, 2)));
}

TEST(StartupResponder, sends_no_more_private_data_than_siw_survives) {
    for (const bool depths : {false, true}) {
        const std::size_t most = depths ? 252 : 256;
        const int flags = kC | (depths ? kS : 0);
        const ByteVector asked = depths ? request(flags, 2, enhanced(1, 1)) : request(flags, 2);
        Startup later(with([](StartupConfig& c) { c.defer_reply = true; }, responder()));
        later.begin(0);
        later.rx(asked);
        EXPECT_FALSE(later.accept(test::pattern(most + 1), 1, 1));
        EXPECT_FALSE(later.reject(test::pattern(most + 1)));
        EXPECT_TRUE(later.accept(test::pattern(most), 1, 1));

        StartupConfig config = responder();
        config.private_data = test::pattern(most + 1);
        Startup now(config);
        now.begin(0);
        now.rx(asked);
        EXPECT_EQ(now.state(), State::rejecting);
        written(now);
        EXPECT_EQ(now.stream_error(), StreamError::mpa_startup_frame);
    }
}

TEST(StartupResponder, defers_and_rejects) {
    Startup s(with([](StartupConfig& c) { c.defer_reply = true; }, responder()));
    s.begin(0);
    s.rx(request(kC, 1));
    EXPECT_TRUE(s.reject(bytes("no")));
    EXPECT_EQ(s.state(), State::rejecting);
    EXPECT_EQ(written(s), reply(kC | kR, 1, bytes("no")));
    EXPECT_EQ(s.state(), State::failed);
    EXPECT_EQ(s.stream_error(), StreamError::startup_rejected);
}

// -- both --

TEST(Startup, both_ends_agree) {
    StartupConfig a = initiator(), b = responder();
    a.rtr = b.rtr = kRtrRead;
    a.ird = 3;
    a.markers = true;
    Startup i(a), r(b);
    i.begin(0);
    r.begin(0);
    r.rx(written(i));
    i.rx(written(r));
    r.rx(written(i));  // its extension frame
    ASSERT_EQ(i.state(), State::established);
    ASSERT_EQ(r.state(), State::established);
    EXPECT_TRUE(i.negotiated().peer_is_xsock && r.negotiated().peer_is_xsock);
    EXPECT_TRUE(i.negotiated().markers_rx && r.negotiated().markers_tx);
    EXPECT_FALSE(i.negotiated().markers_tx || r.negotiated().markers_rx);
    EXPECT_EQ(i.negotiated().ird, r.negotiated().ord);
    EXPECT_EQ(i.negotiated().ord, r.negotiated().ird);
    EXPECT_EQ(i.negotiated().rtr, Rtr::read);
    EXPECT_EQ(r.negotiated().rtr, Rtr::read);
}

TEST(Startup, times_out_whichever_role) {
    for (const StartupConfig& c : {initiator(), responder()}) {
        Startup s(c);
        EXPECT_EQ(s.next_timeout(), kNever);
        s.begin(5);
        EXPECT_EQ(s.next_timeout(), 5 + 10 * kSecond);
        s.on_time(4 + 10 * kSecond);
        EXPECT_NE(s.state(), State::failed);
        s.on_time(5 + 10 * kSecond);
        EXPECT_EQ(s.state(), State::failed);
        EXPECT_EQ(s.stream_error(), StreamError::startup_timeout);
    }
}

TEST(Startup, end_of_stream_is_a_lost_connection) {
    for (const StartupConfig& c : {initiator(), responder()}) {
        for (const std::size_t bytes_before : {0, 7}) {
            Startup s(c);
            s.begin(0);
            written(s);
            const ByteVector in = c.role == Role::initiator ? reply(kC, 2) : request(kC, 2);
            s.rx(ConstBytes(in).first(bytes_before));
            s.rx_eof();
            EXPECT_EQ(s.stream_error(), StreamError::mpa_connection_lost);
        }
    }
}

}  // namespace
}  // namespace xsock::mpa
