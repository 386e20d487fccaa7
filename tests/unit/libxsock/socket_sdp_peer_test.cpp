// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A byte stream whose peer is made of plain socket calls: what is on the wire, octet by octet, and
// what the program sees of a peer that does not keep the protocol.
#include <linux/sockios.h>

#include <functional>
#include <memory>
#include <span>

#include "stream/sdp_wire.hpp"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "tests/unit/loopback.hpp"

namespace xsock::test {
namespace {

using stream::SdpMessage;

std::string text(ConstBytes octets) {
    return {reinterpret_cast<const char*>(octets.data()), octets.size()};
}

/// An initiator of MPA revision 1, and the socket that has accepted it.
struct SdpPeer {
    Sock listener = Sock::fresh(), server;
    std::unique_ptr<RawPeer> raw;
    std::uint32_t mseq = 0, ack = 0, msn = 0, bufs = 50;
    stream::SdpHello answer;

    SdpPeer() {
        EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0);
        EXPECT_EQ(listener.bind_and_listen(), 0);
    }
    /// @return octets of the Reply, private data included
    std::string start(const std::string& private_data) {
        raw = std::make_unique<RawPeer>(listener.port());
        server = listener.accept();
        EXPECT_TRUE(raw->say(RawPeer::request(MPA_FLAG_CRC, 1, private_data)));
        EXPECT_TRUE(soon([&] {
            server.recv(MSG_DONTWAIT | MSG_PEEK);
            const auto state = server.status().state;
            return state == XSOCK_STATUS_OPEN || state == XSOCK_STATUS_ENDED;
        }));
        std::string reply = raw->hear(sizeof(mpa_frame));
        if (reply.size() != sizeof(mpa_frame)) return reply;
        return reply + raw->hear(load_be16(reply.data() + 18));
    }
    void begin() {
        const auto hello = stream::encode_hello({.bufs = static_cast<std::uint16_t>(bufs),
                                                 .desired_remote_size = 4096,
                                                 .local_size = 4096});
        const std::string reply = start(text(hello));
        ASSERT_EQ(reply.size(), sizeof(mpa_frame) + stream::kHelloAckOctets);
        const auto ack_octets =
            stream::decode_hello_ack(std::as_bytes(std::span(reply).subspan(sizeof(mpa_frame))));
        ASSERT_TRUE(ack_octets.has_value());
        answer = *ack_octets;
    }
    bool say(std::uint8_t mid, const std::string& payload = "", SdpMessage with = {}) {
        with.header.mid = mid;
        with.header.mseq = ++mseq;
        with.header.mseq_ack = ack;
        with.header.bufs = static_cast<std::uint16_t>(bufs);
        std::vector<std::byte> headers(stream::header_octets(mid));
        stream::encode(with, payload.size(), headers);
        return raw->say(RawPeer::send_message(++msn, text(headers) + payload));
    }
    /// The next message of the server.
    SdpMessage hear(std::string* payload = nullptr) {
        const std::string head = raw->hear(2);
        SdpMessage message;
        message.header.mid = 0;
        if (head.size() != 2) return message;
        const std::size_t ulpdu = load_be16(head.data());
        const std::string rest = raw->hear((2 + ulpdu + 3) / 4 * 4 - 2 + 4);
        const std::string octets = rest.substr(sizeof(ddp_untagged), ulpdu - sizeof(ddp_untagged));
        opcode = rest[1] & RDMAP_OPCODE_MASK;
        EXPECT_EQ(stream::decode(std::as_bytes(std::span(octets)), message), StreamError::none);
        if (payload != nullptr) *payload = text(message.payload);
        message.payload = {};
        ack = message.header.mseq;
        return message;
    }
    int opcode = 0;
};

TEST(SockSdpPeer, exchanges_hello_and_data) {
    SdpPeer p;
    p.begin();
    EXPECT_EQ(p.answer.local_size, 65'456u);
    EXPECT_EQ(p.answer.bufs, (4u << 20) / 65'456 + 2);
    EXPECT_EQ(p.answer.max_adverts, 1);
    ASSERT_TRUE(p.say(SDP_DATA, "hello"));
    char buffer[5];
    EXPECT_EQ(p.server.recv(buffer, sizeof buffer, MSG_WAITALL), 5);
    EXPECT_EQ(p.server.send(std::string("world")), 5);
    std::string payload;
    const SdpMessage data = p.hear(&payload);
    EXPECT_EQ(data.header.mid, SDP_DATA);
    EXPECT_EQ(data.header.mseq, 1u);
    EXPECT_EQ(data.header.mseq_ack, 1u);
    EXPECT_EQ(payload, "world");
    EXPECT_EQ(p.opcode, RDMAP_SEND);
    EXPECT_EQ(p.server.send(std::string("!"), MSG_OOB | MSG_NOSIGNAL), 1);
    EXPECT_EQ(p.hear(&payload).header.flags, SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES);
    EXPECT_EQ(p.opcode, RDMAP_SEND_SE);
    EXPECT_EQ(p.server.shutdown(SHUT_WR), 0);
    EXPECT_EQ(p.hear().header.mid, SDP_DISCONN);
    ASSERT_TRUE(p.say(SDP_DISCONN));
    std::string rest;
    EXPECT_TRUE(p.raw->hear_end(rest));  // the second DisConn ends TCP
    EXPECT_EQ(rest, "");
    EXPECT_EQ(p.server.recv(), "");
    EXPECT_EQ(p.server.error(), 0);
}

TEST(SockSdpPeer, a_source_is_declined) {
    SdpPeer p;
    p.begin();
    SdpMessage source;
    source.length = 100;
    source.stag = 7;
    source.address = 4096;
    ASSERT_TRUE(p.say(SDP_SRC_AVAIL, "ab", source));
    EXPECT_EQ(p.server.recv(), "ab");
    EXPECT_EQ(p.hear().header.mid, SDP_SEND_SM);
    EXPECT_EQ(p.opcode, RDMAP_SEND_SE);
    ASSERT_TRUE(p.say(SDP_DATA, std::string(98, 'c')));
    EXPECT_EQ(p.server.recv(), std::string(98, 'c'));
}

TEST(SockSdpPeer, a_peer_that_gives_no_credit_holds_the_writer) {
    SdpPeer p;
    p.bufs = 5;
    p.begin();
    ASSERT_TRUE(p.say(SDP_DATA));  // the responder may speak
    p.server.nonblocking();
    for (int full = 0; full < 3;) {
        if (p.server.send(text_of(10'000)) < 0) {
            EXPECT_EQ(errno, EAGAIN);
            ++full;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(p.hear().header.mid, SDP_DATA);
    EXPECT_EQ(p.raw->hear(1, 100), "");
    ASSERT_TRUE(p.say(SDP_DATA));  // three more
    for (int i = 0; i < 3; ++i) EXPECT_EQ(p.hear().header.mid, SDP_DATA);
}

// Messages that TCP holds for several reads, and behind them the peer's reset, which a send of ours
// meets first.
void expect_words_ahead_of_a_reset() {
    SdpPeer p;
    p.begin();
    // Behind a small message less is read at a time.
    ASSERT_TRUE(p.say(SDP_DATA, "x"));
    EXPECT_EQ(p.server.recv(), "x");
    const std::string piece = text_of(14'000);
    std::string sent;
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(p.say(SDP_DATA, piece));
        sent += piece;
    }
    int unacknowledged = 0;
    EXPECT_TRUE(soon(
        [&] { return ioctl(p.raw->fd(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0; }));
    p.raw->reset();
    pollfd kernels{p.server.fd(), POLLIN, 0};
    EXPECT_TRUE(
        soon([&] { return ::poll(&kernels, 1, 1000) == 1 && (kernels.revents & POLLHUP) != 0; }));

    EXPECT_EQ(p.server.send(std::string("y")), 1);

    std::string got(sent.size(), '\0');
    EXPECT_EQ(p.server.recv(got.data(), got.size(), MSG_WAITALL), ssize_t(sent.size()));
    EXPECT_EQ(got, sent);
    EXPECT_EQ(p.server.recv(), "!ECONNRESET");
}

TEST(SockSdpPeer, a_send_that_meets_a_reset_leaves_what_came_ahead_of_it) {
    // Only calls of this thread poll.
    with_environment("XSOCK_PROGRESS", "app", expect_words_ahead_of_a_reset);
}

struct Offence {
    const char* name;
    std::function<void(SdpPeer&)> commit;
};

TEST(SockSdpPeer, one_that_breaks_a_rule_is_reset_behind_its_data) {
    const std::vector<Offence> offences{
        {"unknown MID",
         [](SdpPeer& p) {
             p.raw->say(RawPeer::send_message(
                 2, std::string("\x0f\0\0\x50\0\0\0\x10", 8) + std::string("\0\0\0\2\0\0\0\0", 8)));
         }},
        {"cut header", [](SdpPeer& p) { p.raw->say(RawPeer::send_message(2, "short")); }},
        {"empty message", [](SdpPeer& p) { p.raw->say(RawPeer::send_message(2, "")); }},
        {"number skipped",
         [](SdpPeer& p) {
             ++p.mseq;
             p.say(SDP_DATA, "x");
         }},
        {"not ours to acknowledge",
         [](SdpPeer& p) {
             p.ack = 5;
             p.say(SDP_DATA, "x");
         }},
        {"credit taken back",
         [](SdpPeer& p) {
             p.bufs = 3;
             p.say(SDP_DATA, "x");
         }},
        {"Hello again",
         [](SdpPeer& p) {
             const auto hello =
                 stream::encode_hello({.bufs = 9, .desired_remote_size = 99, .local_size = 99});
             p.raw->say(RawPeer::send_message(2, text(hello)));
         }},
        {"abort before the end", [](SdpPeer& p) { p.say(SDP_ABORT_CONN); }},
        {"SendSm for nothing", [](SdpPeer& p) { p.say(SDP_SEND_SM); }},
        {"suspension", [](SdpPeer& p) { p.say(SDP_SUSP_COMM); }},
        {"FIN without DisConn", [](SdpPeer& p) { p.raw->finish(); }},
    };
    for (const Offence& offence : offences) {
        SCOPED_TRACE(offence.name);
        SdpPeer p;
        p.begin();
        ASSERT_TRUE(p.say(SDP_DATA, "data"));
        offence.commit(p);
        std::string rest;
        EXPECT_TRUE(p.raw->hear_end(rest));
        EXPECT_TRUE(p.raw->was_reset());
        EXPECT_EQ(p.server.recv(), "data");
        EXPECT_EQ(p.server.recv(), "!ECONNRESET");
        EXPECT_EQ(p.server.recv(), "");
        EXPECT_EQ(p.server.send(std::string("x")), -1);
        EXPECT_EQ(errno, EPIPE);
    }
}

TEST(SockSdpPeer, a_hello_that_cannot_be_is_refused) {
    const auto good =
        text(stream::encode_hello({.bufs = 9, .desired_remote_size = 99, .local_size = 99}));
    std::string few = good, old = good;
    few[3] = 2;
    old[16] = 0x21;
    for (const std::string& hello : {few, old, good.substr(0, 31), good + "x", std::string()}) {
        SdpPeer p;
        const std::string reply = p.start(hello);
        ASSERT_GE(reply.size(), sizeof(mpa_frame));
        EXPECT_NE(reply[16] & MPA_FLAG_REJECT, 0) << hello.size();
    }
}

TEST(SockSdpPeer, a_reply_without_hello_ack_is_a_reset) {
    LoopbackListener listener;
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
    std::thread peer([&] {
        RawPeer raw(RawPeer::Connected{listener.accept()});
        const std::string request = raw.hear(sizeof(mpa_frame));
        raw.hear(load_be16(request.data() + 18));
        EXPECT_TRUE(raw.say(RawPeer::reply()));
        std::string rest;
        EXPECT_TRUE(raw.hear_end(rest));
        EXPECT_TRUE(raw.was_reset());
    });
    EXPECT_EQ(client.connect(listener.port()), 0);
    char byte = 0;
    EXPECT_EQ(client.recv(&byte, 1), -1);
    EXPECT_EQ(errno, ECONNRESET);
    peer.join();
}

}  // namespace
}  // namespace xsock::test
