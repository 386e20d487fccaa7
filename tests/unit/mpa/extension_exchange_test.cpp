// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The extension frames behind Request and Reply: when each end sends its own, how start-up ends,
// and that DDP sees nothing of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "mpa/fpdu.hpp"
#include "mpa/startup.hpp"
#include "mpa/stream.hpp"
#include "tests/unit/mpa/stream_end.hpp"

namespace xsock::mpa {
namespace {

using State = Startup::State;

constexpr int kC = MPA_FLAG_CRC, kXq = MPA_FLAG_XSOCK_REQUEST, kXr = MPA_FLAG_XSOCK_REPLY;
constexpr int kXe = MPA_FLAG_EXTENSIONS;

ByteVector operator+(ByteVector a, const ByteVector& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

ByteVector bytes(ConstBytes span) { return {span.begin(), span.end()}; }

/// A Request or Reply of revision 1, without private data.
ByteVector frame(const char* key, int flags) {
    ByteVector out(sizeof(mpa_frame));
    std::memcpy(out.data(), key, MPA_KEY_OCTETS);
    out[16] = static_cast<std::byte>(flags);
    out[17] = std::byte{1};
    return out;
}
ByteVector request(int flags) { return frame(MPA_KEY_REQUEST, flags); }
ByteVector reply(int flags) { return frame(MPA_KEY_REPLY, flags); }
int flags_of(const ByteVector& startup_frame) { return std::to_integer<int>(startup_frame.at(16)); }

Implementation named(const char* name) {
    return {.features = MPA_FEATURE_HAND_OVER,
            .name = Implementation::text(name),
            .version = Implementation::text("1.2.3")};
}

ByteVector extension_frame(const char* name) {
    ByteVector out, tlvs;
    append_tlv(tlvs, named(name));
    append_extension_frame(out, tlvs);
    return out;
}

StartupConfig config(Role role) {
    StartupConfig c{.role = role};
    append_tlv(c.extension_tlvs, named(role == Role::initiator ? "initiator" : "responder"));
    return c;
}

/// A state machine that has begun.
struct Begun : Startup {
    explicit Begun(StartupConfig c) : Startup(std::move(c)) { begin(0); }
    explicit Begun(Role role) : Begun(config(role)) {}
    ByteVector write(std::size_t most = SIZE_MAX) {
        const ByteVector out = bytes(tx().first(std::min(most, tx().size())));
        tx_commit(out.size());
        return out;
    }
};

/// An initiator whose Request is written, and a responder whose Reply is not yet.
struct Asked {
    Asked() { r.rx(i.write()); }
    Begun i{Role::initiator}, r{Role::responder};
};

// -- the flag --

TEST(ExtensionFlag, stands_beside_the_mark_in_a_request) {
    const auto asks = [](bool mark, bool extensions) {
        StartupConfig c = config(Role::initiator);
        c.xsock_mark = mark;
        c.extensions = extensions;
        return flags_of(Begun(c).write()) & (kXq | kXe);
    };
    EXPECT_EQ(asks(true, true), kXq | kXe);
    EXPECT_EQ(asks(true, false), kXq);
    EXPECT_EQ(asks(false, true), 0) << "nothing without the mark";
}

TEST(ExtensionFlag, is_answered_when_the_request_has_it_beside_the_mark) {
    const auto answers = [](int flags, bool mark, bool extensions) {
        StartupConfig c = config(Role::responder);
        c.xsock_mark = mark;
        c.extensions = extensions;
        Begun r(c);
        r.rx(request(flags));
        const ByteVector out = r.write();
        const bool flag = (flags_of(out) & kXe) != 0;
        EXPECT_EQ(out.size() > sizeof(mpa_frame), flag) << "a frame follows";
        EXPECT_EQ(r.state(), flag ? State::exchanging : State::established);
        EXPECT_EQ(r.negotiated().extensions, flag);
        return flag;
    };
    EXPECT_TRUE(answers(kC | kXq | kXe, true, true));
    EXPECT_FALSE(answers(kC | kXq, true, true)) << "an older xsock";
    EXPECT_FALSE(answers(kC | kXe, true, true)) << "without the mark";
    EXPECT_FALSE(answers(kC | kXq | kXr | kXe, true, true)) << "both marks";
    EXPECT_FALSE(answers(kC | kXq | kXe, true, false)) << "turned off";
    EXPECT_FALSE(answers(kC | kXq | kXe, false, true)) << "no mark of our own";
}

TEST(ExtensionFlag, counts_in_a_reply_with_its_mark_only) {
    const auto exchanges = [](int flags, bool extensions) {
        StartupConfig c = config(Role::initiator);
        c.extensions = extensions;
        Begun i(c);
        i.write();
        const ByteVector in = reply(flags);
        EXPECT_EQ(i.rx(in), in.size());
        const bool flag = i.state() == State::exchanging;
        EXPECT_EQ(i.state(), flag ? State::exchanging : State::established);
        EXPECT_EQ(i.tx().empty(), !flag);
        EXPECT_EQ(i.negotiated().extensions, flag);
        return flag;
    };
    EXPECT_TRUE(exchanges(kC | kXr | kXe, true));
    EXPECT_FALSE(exchanges(kC | kXr, true)) << "an older xsock";
    EXPECT_FALSE(exchanges(kC | kXq | kXe, true)) << "siw's echo";
    EXPECT_FALSE(exchanges(kC | kXq | kXr | kXe, true)) << "a greater echo";
    EXPECT_FALSE(exchanges(kC | kXe, true));
    EXPECT_FALSE(exchanges(kC | kXr | kXe, false)) << "not asked for";
}

TEST(ExtensionFlag, a_reply_that_rejects_has_none_and_no_frame) {
    StartupConfig c = config(Role::responder);
    c.defer_reply = true;
    Begun i(Role::initiator), r(c);
    r.rx(i.write());
    ASSERT_TRUE(r.reject({}));
    const ByteVector out = r.write();
    EXPECT_EQ(flags_of(out) & kXe, 0);
    EXPECT_EQ(i.rx(out), out.size());
    EXPECT_EQ(i.state(), State::rejected);
    EXPECT_TRUE(i.tx().empty());

    // Nor is one awaited of a peer that sets the flag all the same.
    Begun other(Role::initiator);
    other.write();
    other.rx(reply(kC | kXr | kXe | MPA_FLAG_REJECT));
    EXPECT_EQ(other.state(), State::rejected);
}

// -- the exchange --

TEST(ExtensionExchange, tells_each_end_of_the_other) {
    Asked a;
    EXPECT_FALSE(a.r.peer());
    a.i.rx(a.r.write());
    a.r.rx(a.i.write());
    ASSERT_EQ(a.i.state(), State::established);
    ASSERT_EQ(a.r.state(), State::established);
    ASSERT_TRUE(a.i.peer());
    ASSERT_TRUE(a.r.peer());
    EXPECT_EQ(*a.i.peer(), named("responder"));
    EXPECT_EQ(*a.r.peer(), named("initiator"));
    EXPECT_EQ(a.i.next_timeout(), kNever);
    EXPECT_EQ(a.r.next_timeout(), kNever);
}

TEST(ExtensionExchange, takes_frames_that_name_nothing) {
    StartupConfig ci{.role = Role::initiator}, cr{.role = Role::responder};
    Begun i(ci), r(cr);
    r.rx(i.write());
    i.rx(r.write());
    r.rx(i.write());
    EXPECT_EQ(i.state(), State::established);
    EXPECT_EQ(r.state(), State::established);
    EXPECT_FALSE(i.peer());
    EXPECT_FALSE(r.peer());
}

TEST(ExtensionExchange, responder_writes_its_frame_together_with_its_reply) {
    Asked a;
    const ByteVector all = bytes(a.r.tx());
    const ByteVector expected = extension_frame("responder");
    ASSERT_GT(all.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.rbegin(), expected.rend(), all.rbegin()));
    a.r.tx_commit(all.size());
    EXPECT_EQ(a.r.state(), State::exchanging) << "until the initiator's has come";
}

TEST(ExtensionExchange, initiator_writes_its_frame_as_soon_as_it_has_the_reply) {
    Asked a;
    const ByteVector all = a.r.write();
    const std::size_t n = all.size() - extension_frame("responder").size();
    a.i.rx(ConstBytes(all).first(n - 1));
    EXPECT_TRUE(a.i.tx().empty());
    a.i.rx(ConstBytes(all).subspan(n - 1, 1));
    EXPECT_EQ(bytes(a.i.tx()), extension_frame("initiator"));
    a.i.write();
    EXPECT_EQ(a.i.state(), State::exchanging) << "until the responder's has come";
    a.i.rx(ConstBytes(all).subspan(n));
    EXPECT_EQ(a.i.state(), State::established);
}

TEST(ExtensionExchange, initiator_is_established_once_its_frame_is_written) {
    Asked a;
    a.i.rx(a.r.write());
    EXPECT_EQ(a.i.state(), State::exchanging);
    EXPECT_EQ(a.i.next_timeout(), 10 * kSecond);
    a.i.write(a.i.tx().size() - 1);
    EXPECT_EQ(a.i.state(), State::exchanging);
    a.i.write();
    EXPECT_EQ(a.i.state(), State::established);
}

TEST(ExtensionExchange, responder_takes_a_frame_while_the_rest_of_its_own_waits) {
    Asked a;
    const std::size_t reply_bytes = a.r.tx().size() - extension_frame("responder").size();
    const ByteVector some = a.r.write(reply_bytes);
    a.i.rx(some);
    EXPECT_EQ(a.r.rx(a.i.write()), extension_frame("initiator").size());
    EXPECT_EQ(a.r.state(), State::exchanging);
    a.i.rx(a.r.write());
    EXPECT_EQ(a.i.state(), State::established);
    EXPECT_EQ(a.r.state(), State::established);
}

TEST(ExtensionExchange, nothing_comes_before_the_reply_is_written) {
    Asked a;
    a.r.write(19);
    a.r.rx(extension_frame("initiator"));
    EXPECT_EQ(a.r.stream_error(), StreamError::mpa_startup_frame);
}

TEST(ExtensionExchange, deferred_replies_have_a_frame_too) {
    StartupConfig c = config(Role::responder);
    c.defer_reply = true;
    Begun i(Role::initiator), r(c);
    r.rx(i.write());
    EXPECT_TRUE(r.tx().empty());
    ASSERT_TRUE(r.accept(test::pattern(300), 1, 1));
    i.rx(r.write());
    r.rx(i.write());
    EXPECT_EQ(i.private_data().size(), 300u);
    EXPECT_EQ(*i.peer(), named("responder"));
    EXPECT_EQ(r.state(), State::established);
}

TEST(ExtensionExchange, cut_at_every_byte_is_the_same) {
    Asked model;
    const ByteVector from_responder = model.r.write(), behind = test::pattern(7);
    for (std::size_t cut = 0; cut <= from_responder.size(); ++cut) {
        Begun i(Role::initiator);
        i.write();
        EXPECT_EQ(i.rx(ConstBytes(from_responder).first(cut)), cut);
        i.write();
        const ByteVector rest = bytes(ConstBytes(from_responder).subspan(cut));
        EXPECT_EQ(i.rx(rest), rest.size());
        i.write();
        ASSERT_EQ(i.state(), State::established) << cut;
        EXPECT_EQ(*i.peer(), named("responder"));
    }
    const ByteVector from_initiator = extension_frame("initiator") + behind;
    for (std::size_t cut = 0; cut <= from_initiator.size(); ++cut) {
        Asked a;
        a.r.write();
        std::size_t used = a.r.rx(ConstBytes(from_initiator).first(cut));
        used += a.r.rx(ConstBytes(from_initiator).subspan(used));
        EXPECT_EQ(used, from_initiator.size() - behind.size()) << cut;
        ASSERT_EQ(a.r.state(), State::established) << cut;
    }
}

TEST(ExtensionExchange, nothing_may_follow_a_frame_before_ours_is_written) {
    Asked a;
    const ByteVector in = a.r.write() + test::pattern(1);
    EXPECT_EQ(a.i.rx(in), in.size());
    EXPECT_EQ(a.i.stream_error(), StreamError::mpa_extension_frame);

    Asked b;
    b.r.write(b.r.tx().size() - 1);
    b.r.rx(extension_frame("initiator"));
    EXPECT_EQ(b.r.state(), State::exchanging);
    b.r.rx(test::pattern(1));
    EXPECT_EQ(b.r.stream_error(), StreamError::mpa_extension_frame);
}

TEST(ExtensionExchange, ends_at_a_frame_that_is_wrong) {
    ByteVector bad_crc = extension_frame("other");
    bad_crc.back() ^= std::byte{1};
    ByteVector twice, tlvs, probe(20);
    append_tlv(tlvs, named("other"));
    append_extension_frame(twice, tlvs + tlvs);
    probe[1] = std::byte{14}, probe[2] = std::byte{0xc1}, probe[3] = std::byte{0x40};
    for (const ByteVector& bad : {bad_crc, twice, probe}) {
        Begun i(Role::initiator);
        i.write();
        i.rx(reply(kC | kXr | kXe) + bad);
        EXPECT_EQ(i.state(), State::failed);
        EXPECT_EQ(i.stream_error(), StreamError::mpa_extension_frame);
        EXPECT_TRUE(i.tx().empty());
        EXPECT_FALSE(i.peer());

        Asked a;
        a.r.write();
        a.r.rx(bad);
        EXPECT_EQ(a.r.state(), State::failed);
        EXPECT_EQ(a.r.stream_error(), StreamError::mpa_extension_frame);
    }
}

TEST(ExtensionExchange, checks_the_crc_though_none_was_agreed_on) {
    StartupConfig c = config(Role::responder);
    c.crc = false;
    Begun r(c);
    r.rx(request(kXq | kXe));
    r.write();
    EXPECT_FALSE(r.negotiated().crc);
    ByteVector bad = extension_frame("initiator");
    bad.back() ^= std::byte{1};
    r.rx(bad);
    EXPECT_EQ(r.stream_error(), StreamError::mpa_extension_frame);
}

TEST(ExtensionExchange, only_the_start_up_time_ends_the_wait) {
    Asked a;
    a.i.rx(a.r.write(20));
    a.r.write();
    for (Begun* end : {&a.i, &a.r}) {
        EXPECT_EQ(end->next_timeout(), 10 * kSecond);
        end->on_time(10 * kSecond - 1);
        EXPECT_NE(end->state(), State::failed);
        end->on_time(10 * kSecond);
        EXPECT_EQ(end->stream_error(), StreamError::startup_timeout);
    }
}

TEST(ExtensionExchange, end_of_stream_is_a_lost_connection) {
    Asked a;
    a.r.write();
    a.r.rx(ConstBytes(extension_frame("initiator")).first(5));
    a.r.rx_eof();
    EXPECT_EQ(a.r.stream_error(), StreamError::mpa_connection_lost);
}

TEST(ExtensionExchange, comes_before_what_is_wrong_with_the_reply) {
    StartupConfig ci = config(Role::initiator), cr = config(Role::responder);
    ci.ird = 1;
    cr.ord = 9;
    Begun i(ci), r(cr);
    r.rx(i.write());
    ByteVector in = r.write();
    store_be16(in.data() + sizeof(mpa_frame) + 2, 9);  // more Reads than we answer
    i.rx(in);
    EXPECT_EQ(i.state(), State::exchanging);
    r.rx(i.write());
    EXPECT_EQ(i.stream_error(), StreamError::mpa_insufficient_ird);
    EXPECT_EQ(r.state(), State::established) << "the Terminate will be read";
}

// -- in a stream --

struct End : test::StreamEnd {
    using test::StreamEnd::StreamEnd;
    explicit End(Role role) : StreamEnd(Config{.startup = config(role)}) {}
};

void exchange(End& i, End& r, Time now = 0) {
    r.read(i.write(now), now);
    i.read(r.write(now), now);
    r.read(i.write(now), now);
    ASSERT_EQ(i.stream.state(), Stream::State::operational);
    ASSERT_EQ(r.stream.state(), Stream::State::operational);
}

TEST(ExtensionStream, ddp_sees_nothing_of_the_frames) {
    End i(Role::initiator), r(Role::responder);
    exchange(i, r);
    for (const End* end : {&i, &r}) {
        EXPECT_EQ(end->ulp.begun, 0u);
        EXPECT_EQ(end->ulp.given, 0u);
        EXPECT_EQ(end->ulp.done, 0u);
        EXPECT_TRUE(end->ulp.negotiated.extensions);
    }
    EXPECT_STREQ(i.stream.peer()->name.data(), "responder");
    EXPECT_STREQ(r.stream.peer()->name.data(), "initiator");
}

TEST(ExtensionStream, responder_may_send_once_the_frame_has_come_and_not_before) {
    End i(Role::initiator), r(Role::responder);
    r.read(i.write());
    r.ulp.queue(18, 30);
    i.read(r.write());
    EXPECT_TRUE(r.ulp.events.empty());
    EXPECT_EQ(r.stream.status().next_timeout, 10 * kSecond) << "not the hold of 200 ms";
    r.stream.on_time(kSecond);
    EXPECT_TRUE(r.write(kSecond).empty());
    const ByteVector frame = i.write();
    r.read(ConstBytes(frame).first(frame.size() - 1));
    EXPECT_FALSE(r.stream.status().tx_allowed) << "it must be whole";
    r.read(ConstBytes(frame).last(1));
    EXPECT_TRUE(r.stream.status().tx_allowed);
    EXPECT_EQ(r.stream.status().next_timeout, kNever);
    i.read(r.write());
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
}

TEST(ExtensionStream, initiator_sends_no_probe) {
    End i(Role::initiator), r(Role::responder);
    exchange(i, r);
    EXPECT_EQ(i.ulp.events, Events{"established"});
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
}

TEST(ExtensionStream, an_rtr_message_is_awaited_all_the_same) {
    Config ci{.startup = config(Role::initiator)}, cr{.startup = config(Role::responder)};
    ci.startup.rtr = cr.startup.rtr = kRtrWrite;
    End i(ci), r(cr);
    exchange(i, r);
    EXPECT_EQ(i.ulp.negotiated.rtr, Rtr::write);
    EXPECT_FALSE(r.stream.status().tx_allowed);
    EXPECT_EQ(r.stream.status().next_timeout, kNever);
    i.ulp.queue(14, 0);
    r.read(i.write());
    EXPECT_TRUE(r.stream.status().tx_allowed);
}

TEST(ExtensionStream, fpdus_may_come_together_with_the_initiators_frame) {
    End i(Role::initiator), r(Role::responder);
    r.read(i.write());
    i.read(r.write());
    i.ulp.queue(14, 100);
    i.ulp.queue(18, 4000);
    const ByteVector in = i.write();
    EXPECT_EQ(r.read(in), in.size());
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
}

TEST(ExtensionStream, markers_begin_behind_the_frames) {
    Config ci{.startup = config(Role::initiator)}, cr{.startup = config(Role::responder)};
    ci.startup.markers = cr.startup.markers = true;
    End i(ci), r(cr);
    exchange(i, r);
    i.ulp.queue(14, 5000);
    r.ulp.queue(18, 3000);
    const ByteVector first = i.write();
    EXPECT_EQ(load_be32(first.data()), 0u) << "a marker between FPDUs";
    r.read(first);
    i.read(r.write());
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
}

TEST(ExtensionStream, a_frame_that_is_wrong_closes_without_a_terminate) {
    End i(Role::initiator), r(Role::responder);
    r.read(i.write());
    i.read(r.write());
    ByteVector frame = i.write();
    frame[30] ^= std::byte{1};
    EXPECT_EQ(r.read(frame), frame.size());
    EXPECT_EQ(r.stream.state(), Stream::State::closed);
    EXPECT_EQ(r.ulp.failures, std::vector{StreamError::mpa_extension_frame});
    r.ulp.queue(40, 0);
    EXPECT_TRUE(r.write().empty());
}

TEST(ExtensionStream, an_older_xsock_of_either_role_is_treated_as_before) {
    for (const Role older : {Role::initiator, Role::responder}) {
        Config ci{.startup = config(Role::initiator)}, cr{.startup = config(Role::responder)};
        (older == Role::initiator ? ci : cr).startup.extensions = false;
        End i(ci), r(cr);
        exchange(i, r);
        EXPECT_EQ(i.ulp.events, (Events{"established", "probe"}));
        EXPECT_EQ(r.stream.status().next_timeout, 200 * kMillisecond);
        EXPECT_FALSE(r.stream.status().tx_allowed);
        EXPECT_FALSE(i.stream.peer());
        EXPECT_FALSE(r.stream.peer());
        EXPECT_TRUE(i.ulp.negotiated.peer_is_xsock && r.ulp.negotiated.peer_is_xsock);
        EXPECT_FALSE(i.ulp.negotiated.extensions || r.ulp.negotiated.extensions);
    }
}

TEST(ExtensionStream, the_frame_precedes_a_terminate_of_the_initiator) {
    Config ci{.startup = config(Role::initiator)};
    ci.startup.ird = 1;
    End i(ci), r(Role::responder);
    r.read(i.write());
    ByteVector in = r.write();
    store_be16(in.data() + sizeof(mpa_frame) + 2, 9);  // more Reads than we answer
    i.read(in);
    EXPECT_TRUE(i.ulp.failures.empty());
    i.ulp.queue(40, 0);
    const ByteVector out = i.write();
    EXPECT_EQ(i.ulp.failures, std::vector{StreamError::mpa_insufficient_ird});
    EXPECT_EQ(i.stream.state(), Stream::State::failed);
    EXPECT_EQ(out.size(), extension_frame("initiator").size() + fpdu_octets(40));
    EXPECT_EQ(r.read(out), out.size());
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
}

}  // namespace
}  // namespace xsock::mpa
