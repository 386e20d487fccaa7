// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/connection.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/fault.hpp"
#include "tests/unit/ddp_user/pipe.hpp"
#include "tests/unit/ddp_user/pipe_layer.hpp"

namespace xsock::ddp {
namespace {

using test::PipeLayer;
using States = std::vector<QpState>;

constexpr Time kRnr = 20 * kMillisecond;
constexpr Time kLinger = 300 * kMillisecond;
constexpr Time kFinDelay = 100 * kMillisecond;

struct Options {
    PipeLayer::Options layer;
    StartAttr attr{.rtr_timeout = 50 * kMillisecond};
    bool shared_receives = false;
    bool events = false;
    std::uint32_t receives = 4;  ///< posted before the start
};

/// One end: what a transport is, with vectors for a socket.
class Side final : private Connection::Delegate {
  public:
    Side(World& world, const Options& options, QpNum num)
        : options_(options), connection(config(world, num), *this), layer(options.layer, ulp()) {
        for (std::uint32_t i = 0; i < options.receives; ++i) post_recv();
    }

    void start(Time now) { connection.start(layer, options_.attr, now); }
    Stream& ulp() { return connection.stream(); }
    /// One that start-up may choose for the data.
    void add_other_layer() {
        other = std::make_unique<PipeLayer>(options_.layer, ulp());
        other->skip_startup();
    }

    void post_recv(std::size_t bytes = 256) {
        receives_.emplace_back(bytes);
        const Sge s = sge(receives_.back());
        ASSERT_TRUE(rq.post({.wr_id = 100 + receives_.size(), .sges = {&s, 1}}).ok());
        ++receives_posted;
    }
    void post_send(ByteVector& memory) {
        const Sge s = sge(memory);
        ASSERT_TRUE(sq.post({.wr_id = ++sends_posted, .sges = {&s, 1}}).ok());
    }

    /// What a poll cycle does. False: nothing moved.
    bool poll(Side& peer, Time now) {
        if (connection.layer() == nullptr) return false;
        bool moved = false;
        if (connection.rx_waiting()) connection.resume(now);
        if (!connection.closed() && connection.rx_wanted()) {
            if (!in.empty()) {
                const ByteVector bytes = std::exchange(in, {});
                connection.rx(bytes, now);
                connection.resume(now);
                moved = true;
            } else if (peer_fin) {
                connection.rx_eof(now);
                moved = true;
            }
        }
        while (!connection.ended() && connection.tx_wanted() && !blocked) {
            const TxBatch batch = connection.tx_prepare(scratch_, 4096, now);
            if (connection.ended() || batch.bytes == 0) break;
            const auto* const from = static_cast<const std::byte*>(batch.iov[0].iov_base);
            const std::size_t n = std::min(batch.bytes, write_max);
            peer.in.insert(peer.in.end(), from, from + n);
            connection.tx_commit(n, now);
            moved = true;
        }
        connection.update(now);
        peer.peer_fin = fin;
        return moved;
    }

    /// What can be seen of it: its state, FIN, and how its descriptor went.
    [[nodiscard]] std::string seen() const {
        static constexpr const char* kNames[] = {"fresh",       "starting",    "requested",
                                                 "established", "peer_closed", "closing",
                                                 "error",       "closed"};
        std::string out = kNames[static_cast<int>(connection.state())];
        if (fin) out += " FIN";
        if (closed) out += reset ? " reset" : " close";
        return out;
    }
    [[nodiscard]] std::vector<Wc> sent() { return End::take(send_cq); }
    [[nodiscard]] std::vector<Wc> received() { return End::take(recv_cq); }

    SendQueue sq{16};
    RecvQueue rq{16};
    CompletionQueue send_cq{64}, recv_cq{64};

  private:
    const Options options_;

  public:
    Connection connection;
    PipeLayer layer;
    std::unique_ptr<PipeLayer> other;  ///< data goes by it
    bool refuses_layers = false;       ///< or may go by none
    ByteVector in;                     ///< under way to us
    bool peer_fin = false;             ///< and behind it
    bool blocked = false;              ///< nothing can be written
    std::size_t write_max = SIZE_MAX;
    bool fin = false, closed = false, reset = false;
    unsigned rnrs = 0, started = 0;
    bool fill_at_rnr = false;
    States states;
    std::uint64_t sends_posted = 0;
    std::size_t receives_posted = 0;

  private:
    ConnectionConfig config(World& world, QpNum num) {
        ConnectionConfig c;
        c.stream.qp_num = num;
        c.stream.pd = 1;
        c.stream.memory = &world.table;
        c.stream.sq = &sq;
        c.stream.rq = &rq;
        c.stream.rq_shared = options_.shared_receives;
        c.stream.send_cq = &send_cq;
        c.stream.recv_cq = &recv_cq;
        c.event_completions = options_.events;
        c.limits.rnr_timeout = kRnr;
        c.limits.linger = kLinger;
        c.limits.fin_delay = kFinDelay;
        return c;
    }
    Llp& data_layer(Llp& startup) override {
        if (refuses_layers) connection.lost(EPROTONOSUPPORT, EndCause::path_refused);
        return other ? *other : startup;
    }
    void on_started() override { ++started; }
    void on_state(QpState state) override { states.push_back(state); }
    void on_rnr() override {
        ++rnrs;
        if (fill_at_rnr) post_recv();
    }
    void finish() override {
        EXPECT_FALSE(fin || closed);
        fin = true;
    }
    void close(bool with_reset) override {
        EXPECT_FALSE(closed);
        closed = true;
        reset = with_reset;
    }

    std::deque<ByteVector> receives_;
    ByteVector scratch_ = ByteVector(64 * 1024);
};

struct Rig {
    explicit Rig(Options of_a = {}, Options of_b = {})
        : a(world, of_a, 1), b(world, responder(of_b), 2) {}

    static Options responder(Options options) {
        options.layer.initiator = false;
        return options;
    }
    void start() {
        a.start(now);
        b.start(now);
        run();
    }
    /// Until nothing moves.
    void run() {
        for (bool moved = true; moved;) {
            moved = a.poll(b, now);
            moved = b.poll(a, now) || moved;
        }
        a.poll(b, now);
    }
    /// Lets time pass: each end is told when it asked to be.
    void pass(Time duration) {
        const Time until = now + duration;
        for (;;) {
            Time next = until;
            for (Side* side : {&a, &b}) {
                next = std::min(next, std::max(side->connection.next_timeout(now), now + 1));
            }
            now = next;
            for (Side* side : {&a, &b}) {
                if (side->connection.next_timeout(now) <= now) side->connection.on_time(now);
            }
            run();
            if (now == until) return;
        }
    }

    World world;
    Time now = 1;
    Side a, b;
};

/// Established; `a` has sent to `b`, which has no receive.
struct RnrRig : Rig {
    explicit RnrRig(int sends) : Rig({}, without_receives()) {
        start();
        for (int i = 0; i < sends; ++i) a.post_send(memory);
        run();
    }
    static Options without_receives() {
        Options options;
        options.receives = 0;
        return options;
    }
    ByteVector memory = pattern(30);
};

/// The same, where `b` tells of messages that wait.
struct NoticeRig : Rig {
    static constexpr Time kEvery = kMillisecond;
    explicit NoticeRig(std::uint8_t retries,
                       std::uint64_t features = MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR,
                       bool acknowledged = true)
        : Rig(with(features, acknowledged), with(features, acknowledged)) {
        a.connection.set_rnr({.retries = retries});
        b.connection.set_rnr({.notice_every = kEvery});
        start();
        a.post_send(memory);
        run();
    }
    static Options with(std::uint64_t features, bool acknowledged) {
        Options options;
        options.receives = 0;
        options.layer.features = features;
        options.attr.acknowledged = acknowledged;
        return options;
    }
    ByteVector memory = pattern(30);
};

/// Established; the lower layer of `a` takes nothing, and a Send waits for it.
struct BlockedRig : Rig {
    BlockedRig() {
        start();
        a.blocked = true;
        a.post_send(memory);
    }
    ByteVector memory = pattern(10);
};

Options standard_peer() {
    Options options;
    options.layer.peer_is_xsock = false;
    return options;
}
Options confirmed() {
    Options options;
    options.attr.confirmed = true;
    return options;
}
Options deferring() {
    Options options;
    options.layer.defer = true;
    return options;
}

// -- start-up --

TEST(Connection, goes_from_fresh_to_closed) {
    Rig rig;
    EXPECT_EQ(rig.a.connection.state(), QpState::fresh);
    rig.start();
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_EQ(rig.b.seen(), "established");
    EXPECT_TRUE(rig.a.connection.quiet());
    EXPECT_FALSE(rig.a.connection.needs_time());
    ByteVector memory = pattern(50);
    rig.a.post_send(memory);
    rig.b.post_send(memory);
    EXPECT_FALSE(rig.a.connection.quiet());
    rig.run();
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_THAT(rig.b.received(), testing::ElementsAre(Completed(101, WcStatus::success)));
    EXPECT_THAT(rig.a.received(), testing::ElementsAre(Completed(101, WcStatus::success)));
    rig.a.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closing FIN");
    EXPECT_EQ(rig.b.seen(), "peer_closed");
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.states,
              (States{QpState::starting, QpState::established, QpState::closing, QpState::closed}));
    EXPECT_EQ(rig.b.states, (States{QpState::starting, QpState::established, QpState::peer_closed,
                                    QpState::closed}));
    EXPECT_EQ(rig.a.seen(), "closed FIN close");
    EXPECT_EQ(rig.b.seen(), "closed FIN close");
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::none);
    EXPECT_EQ(rig.a.connection.error().code, 0);
    EXPECT_EQ(rig.a.layer.asked_after_finish + rig.b.layer.asked_after_finish, 0u);
}

TEST(Connection, is_the_same_byte_by_byte) {
    Rig rig;
    rig.a.write_max = rig.b.write_max = 1;
    rig.start();
    ByteVector memory = pattern(200);
    rig.a.post_send(memory);
    rig.run();
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_THAT(rig.b.received(), testing::ElementsAre(Completed(101, WcStatus::success)));
}

TEST(Connection, tells_of_itself_ahead_of_the_first_message) {
    Options events;
    events.events = true;
    Rig rig(events, events);
    ByteVector memory = pattern(10);
    rig.a.start(rig.now);
    rig.b.start(rig.now);
    rig.a.post_send(memory);
    rig.b.post_send(memory);
    rig.run();
    for (Side* side : {&rig.a, &rig.b}) {
        const auto wcs = side->received();
        ASSERT_EQ(wcs.size(), 2u);
        EXPECT_EQ(wcs[0].opcode, WcOpcode::connected);
        EXPECT_EQ(wcs[1].opcode, WcOpcode::recv);
        EXPECT_EQ(side->started, 1u);
    }
    rig.a.connection.abort();
    EXPECT_EQ(rig.a.received().back().opcode, WcOpcode::closed);
}

TEST(Connection, asks_the_program_and_is_accepted) {
    Rig rig({}, deferring());
    rig.start();
    EXPECT_EQ(rig.b.seen(), "requested");
    EXPECT_EQ(rig.a.seen(), "starting");
    EXPECT_EQ(rig.b.connection.accept(ByteVector(513), 1, 1, rig.now).error().code, EINVAL);
    ASSERT_TRUE(rig.b.connection.accept({}, 1, 1, rig.now).ok());
    EXPECT_EQ(rig.b.connection.accept({}, 1, 1, rig.now).error().code, EINVAL);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_EQ(rig.b.seen(), "established");
}

TEST(Connection, rejects_at_once_or_toward_a_standard_peer_a_little_later) {
    for (const bool standard : {false, true}) {
        Options options = deferring();
        options.layer.peer_is_xsock = !standard;
        Rig rig({}, options);
        rig.start();
        ASSERT_TRUE(rig.b.connection.reject({}, rig.now).ok());
        rig.b.poll(rig.a, rig.now);
        EXPECT_EQ(rig.b.seen(), standard ? "error" : "error FIN");
        EXPECT_EQ(rig.b.connection.error().code, ECONNREFUSED);
        rig.pass(kFinDelay);
        EXPECT_EQ(rig.a.connection.error().stream_error, StreamError::startup_rejected);
        EXPECT_EQ(rig.b.seen(), "error FIN close");
    }
}

TEST(Connection, start_up_may_last_so_long) {
    Rig rig;
    rig.a.start(rig.now);
    rig.pass(9 * kSecond);
    EXPECT_EQ(rig.a.seen(), "starting");
    rig.pass(2 * kSecond);
    EXPECT_EQ(rig.a.connection.state(), QpState::error);
    EXPECT_EQ(rig.a.connection.error().code, ETIMEDOUT);
    EXPECT_EQ(rig.a.connection.error().stream_error, StreamError::startup_timeout);
}

TEST(Connection, rtr_message_may_take_so_long) {
    for (const bool silent : {false, true}) {
        Options rtr;
        rtr.layer.rtr = Rtr::write;
        Rig rig(rtr, rtr);
        rig.a.start(rig.now);
        rig.b.start(rig.now);
        rig.a.poll(rig.b, rig.now);  // Request
        rig.b.poll(rig.a, rig.now);  // Reply
        rig.a.blocked = silent;
        rig.run();
        EXPECT_EQ(rig.a.seen(), "established");
        if (!silent) {
            EXPECT_EQ(rig.b.seen(), "established");
            continue;
        }
        EXPECT_EQ(rig.b.seen(), "starting");
        EXPECT_EQ(rig.b.connection.next_timeout(rig.now), 1 + 50 * kMillisecond);
        rig.pass(50 * kMillisecond);
        EXPECT_EQ(rig.b.connection.error().code, ETIMEDOUT);
    }
}

TEST(Connection, says_that_it_is_established_before_it_delivers_what_follows_the_rtr_message) {
    Options rtr;
    rtr.layer.rtr = Rtr::write;
    rtr.attr.confirmed = true;
    Rig rig({.layer = rtr.layer}, rtr);
    ByteVector memory = pattern(10);
    rig.a.start(rig.now);
    rig.b.start(rig.now);
    rig.a.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.b.seen(), "established");
    EXPECT_TRUE(rig.b.connection.rx_waiting());
    EXPECT_TRUE(rig.b.received().empty());
    EXPECT_TRUE(rig.b.connection.confirm_start());
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
}

TEST(Connection, neither_sends_nor_delivers_until_its_start_is_confirmed) {
    Rig rig(confirmed(), {});
    ByteVector memory = pattern(10);
    rig.a.post_send(memory);
    rig.b.post_send(memory);
    rig.start();
    EXPECT_TRUE(rig.a.connection.is_start_held());
    EXPECT_FALSE(rig.a.connection.quiet());
    EXPECT_TRUE(rig.a.sent().empty() && rig.a.received().empty());
    EXPECT_TRUE(rig.a.connection.confirm_start());
    EXPECT_FALSE(rig.a.connection.confirm_start());
    rig.run();
    EXPECT_EQ(rig.a.sent().size(), 1u);
    EXPECT_EQ(rig.a.received().size(), 1u);
}

TEST(Connection, holds_what_was_posted_before_a_start_that_ends_by_what_is_written) {
    Rig rig({}, confirmed());
    ByteVector memory = pattern(10);
    rig.b.post_send(memory);
    rig.start();
    EXPECT_TRUE(rig.b.connection.is_start_held());
    EXPECT_TRUE(rig.b.sent().empty());
    EXPECT_TRUE(rig.a.received().empty());
    EXPECT_TRUE(rig.b.connection.confirm_start());
    rig.run();
    EXPECT_THAT(rig.b.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_THAT(rig.a.received(), testing::ElementsAre(Completed(101, WcStatus::success)));
}

TEST(Connection, tells_its_start_ahead_of_an_error_of_what_was_posted_before) {
    Rig rig;
    ByteVector memory = pattern(10);
    Sge s = sge(memory);
    s.lkey = 0x7777;
    ASSERT_TRUE(rig.b.sq.post({.wr_id = 1, .sges = {&s, 1}}).ok());
    rig.start();
    EXPECT_EQ(rig.b.started, 1u);
    ASSERT_GE(rig.b.states.size(), 3u);
    EXPECT_EQ(rig.b.states[1], QpState::established);
    EXPECT_EQ(rig.b.states.back(), QpState::error);
}

TEST(Connection, keeps_what_is_handed_in_while_its_start_is_held) {
    Rig rig(confirmed(), {});
    rig.start();
    ByteVector memory = pattern(10);
    rig.b.post_send(memory);
    rig.b.poll(rig.a, rig.now);
    rig.a.connection.rx(std::exchange(rig.a.in, {}), rig.now);
    rig.a.connection.rx_eof(rig.now);
    rig.a.connection.update(rig.now);
    EXPECT_TRUE(rig.a.received().empty());
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_TRUE(rig.a.connection.confirm_start());
    EXPECT_TRUE(rig.a.connection.resume(rig.now));
    rig.a.connection.update(rig.now);
    const auto wcs = rig.a.received();
    ASSERT_FALSE(wcs.empty());
    EXPECT_THAT(wcs.front(), Completed(101, WcStatus::success));
    EXPECT_EQ(rig.a.seen(), "peer_closed");
}

TEST(Connection, flushes_nothing_until_its_end_is_confirmed) {
    for (const bool reset : {false, true}) {
        Rig rig(confirmed(), {});
        rig.start();
        rig.a.connection.confirm_start();
        if (reset) {
            rig.a.connection.lost(ECONNRESET);
        } else {
            rig.b.connection.shutdown(rig.now);
            rig.run();
        }
        EXPECT_EQ(rig.a.connection.state(), reset ? QpState::error : QpState::peer_closed);
        EXPECT_TRUE(rig.a.received().empty());
        rig.a.connection.confirm_end();
        EXPECT_EQ(rig.a.received().size(), rig.a.receives_posted);
    }
}

TEST(Connection, drops_what_it_sends_to_a_peer_that_is_gone_if_unreliable) {
    for (const bool refused : {false, true}) {
        Options options = confirmed();
        options.attr.outlives_peer = options.attr.unreliable = true;
        Rig rig(options, {});
        rig.start();
        rig.a.connection.confirm_start();
        ByteVector memory = pattern(50);
        rig.a.post_send(memory);
        rig.a.post_send(memory);
        if (refused) {
            rig.b.connection.abort();
            rig.run();
        }
        rig.a.connection.lost(ECONNRESET);
        EXPECT_EQ(rig.a.connection.state(), QpState::error);
        const auto sent = rig.a.sent();
        ASSERT_EQ(sent.size(), 2u);
        for (const Wc& wc : sent) EXPECT_EQ(wc.status, WcStatus::success);
        EXPECT_TRUE(rig.a.received().empty()) << "receives stay posted";
        rig.a.connection.confirm_end();
        EXPECT_EQ(rig.a.received().size(), rig.a.receives_posted);
    }
}

// -- the peer's end --

// b finishes, and a, which is confirmed(), is told.
void start_and_leave(Rig& rig) {
    rig.start();
    rig.a.connection.confirm_start();
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.connection.state(), QpState::peer_closed);
}

TEST(Connection, outlives_its_peer_if_it_is_to) {
    Options outlives;
    outlives.attr.outlives_peer = true;
    Rig rig(outlives, {});
    rig.start();
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_TRUE(rig.a.connection.peer_finished());
    EXPECT_TRUE(rig.a.received().empty()) << "receives stay posted";
    ByteVector memory = pattern(10);
    rig.a.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.a.sent().size(), 1u);
    EXPECT_EQ(rig.b.received().size(), 1u);
}

TEST(Connection, fails_nothing_that_its_peer_left_until_the_end_is_confirmed) {
    Options options = confirmed();
    options.attr.outlives_peer = options.attr.acknowledged = true;
    Rig rig(options, {});
    start_and_leave(rig);
    ByteVector memory = pattern(10);
    rig.a.post_send(memory);
    rig.run();
    EXPECT_TRUE(rig.a.sent().empty());
    EXPECT_TRUE(rig.a.received().empty()) << "receives stay posted";
    rig.a.connection.confirm_end();
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::connection_lost)));
    EXPECT_TRUE(rig.a.received().empty()) << "receives stay posted";
}

TEST(Connection, waits_for_a_receive_and_then_terminates) {
    for (const bool posted : {true, false}) {
        RnrRig rig(1);
        EXPECT_TRUE(rig.b.connection.rx_waiting());
        EXPECT_FALSE(rig.b.connection.rx_wanted());
        EXPECT_EQ(rig.b.connection.next_timeout(rig.now), rig.now + kRnr);
        EXPECT_EQ(rig.b.rnrs, 0u) << "the queue is its own";
        if (posted) {
            rig.b.post_recv();
            rig.run();
            EXPECT_EQ(rig.b.received().size(), 1u);
            EXPECT_EQ(rig.b.connection.next_timeout(rig.now), kNever);
            continue;
        }
        rig.pass(kRnr);
        EXPECT_EQ(rig.b.connection.error().stream_error, StreamError::untagged_no_buffer);
        EXPECT_EQ(rig.b.connection.error().cause, EndCause::stream_error);
        EXPECT_EQ(rig.a.connection.error().cause, EndCause::terminated);
        EXPECT_EQ(rig.a.seen(), "error FIN close");
        EXPECT_EQ(rig.b.seen(), "error FIN close");
    }
}

TEST(Connection, waits_as_long_for_the_receive_of_each_send) {
    RnrRig rig(2);
    rig.pass(kRnr - 1);
    rig.b.post_recv();
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    EXPECT_EQ(rig.b.connection.next_timeout(rig.now), rig.now + kRnr);
    rig.pass(kRnr - 1);
    EXPECT_EQ(rig.b.seen(), "established");
    rig.pass(1);
    EXPECT_EQ(rig.b.connection.error().stream_error, StreamError::untagged_no_buffer);
}

TEST(Connection, fails_a_send_whose_peer_has_told_too_often_that_it_waits) {
    for (std::uint8_t retries = 0; retries < kRnrForever; ++retries) {
        NoticeRig rig(retries);
        rig.a.post_send(rig.memory);
        rig.pass((retries + 1) * NoticeRig::kEvery - 1);
        EXPECT_EQ(rig.a.seen(), "established") << int{retries};
        rig.pass(1);
        EXPECT_EQ(rig.a.seen(), "error reset") << int{retries};
        EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::rnr_retries_exceeded),
                                                       Completed(2, WcStatus::flushed)));
        EXPECT_EQ(rig.a.connection.error().stream_error, StreamError::rnr_retries_exceeded);
        EXPECT_EQ(rig.b.seen(), "established") << "it is not told";
    }
}

TEST(Connection, fails_a_send_though_nothing_can_be_written) {
    NoticeRig rig(1);
    rig.a.blocked = true;
    rig.a.post_send(rig.memory);
    ByteVector scratch(4096);
    ASSERT_NE(rig.a.connection.tx_prepare(scratch, scratch.size(), rig.now).bytes, 0u);
    rig.pass(2 * NoticeRig::kEvery);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::rnr_retries_exceeded),
                                                   Completed(2, WcStatus::flushed)));
}

TEST(Connection, waits_for_ever_if_it_may_for_a_peer_that_tells_so) {
    NoticeRig rig(kRnrForever);
    rig.pass(kRnr - 1);
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_EQ(rig.b.connection.stream().counters().tx_messages[RDMAP_ACKNOWLEDGE],
              RnrWait::kMostNotices);
    rig.b.post_recv();
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    EXPECT_EQ(rig.b.connection.next_timeout(rig.now), kNever);
}

TEST(Connection, counts_what_it_is_told_for_each_message) {
    NoticeRig rig(1);
    for (int i = 0; i < 5; ++i) {
        rig.pass(NoticeRig::kEvery);
        rig.b.post_recv();
        rig.run();
        EXPECT_EQ(rig.b.received().size(), 1u);
        rig.a.post_send(rig.memory);
        rig.run();
    }
    EXPECT_EQ(rig.a.seen(), "established");
}

TEST(Connection, tells_nothing_of_a_message_that_was_taken_meanwhile) {
    NoticeRig rig(0);
    rig.b.blocked = true;
    rig.pass(NoticeRig::kEvery);
    rig.b.post_recv();
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    rig.a.post_send(rig.memory);
    rig.b.blocked = false;
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
}

TEST(Connection, tells_nothing_of_a_message_whose_end_is_still_under_way) {
    Rig rig(NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true),
            NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true));
    rig.a.connection.set_rnr({.retries = 0});
    rig.b.connection.set_rnr({.notice_every = NoticeRig::kEvery});
    rig.start();
    ByteVector memory = pattern(1500);
    rig.a.post_send(memory);
    rig.a.poll(rig.b, rig.now);
    const auto first = 2 + (std::to_integer<std::ptrdiff_t>(rig.b.in[0]) << 8 |
                            std::to_integer<std::ptrdiff_t>(rig.b.in[1]));
    const ByteVector rest(rig.b.in.begin() + first, rig.b.in.end());
    ASSERT_FALSE(rest.empty());
    rig.b.in.resize(static_cast<std::size_t>(first));
    rig.b.blocked = true;
    rig.run();
    rig.pass(NoticeRig::kEvery);
    rig.b.post_recv(memory.size());
    rig.run();
    rig.b.blocked = false;
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
    rig.b.in = rest;
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    EXPECT_EQ(rig.a.seen(), "established");
}

TEST(Connection, looks_for_a_receive_before_it_tells_of_a_message) {
    NoticeRig rig(0);
    rig.b.post_recv();
    rig.now += NoticeRig::kEvery;
    rig.b.connection.on_time(rig.now);
    EXPECT_EQ(rig.b.received().size(), 1u);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
}

TEST(Connection, counts_no_notice_that_it_cannot_send) {
    NoticeRig rig(RnrWait::kMostNotices - 1);  // all are needed
    rig.b.blocked = true;
    rig.pass(4 * NoticeRig::kEvery);
    rig.b.blocked = false;
    rig.run();
    rig.pass(10 * NoticeRig::kEvery);
    EXPECT_EQ(rig.a.seen(), "error reset");
}

TEST(Connection, answers_reads_before_it_tells_of_a_message_that_waits) {
    Rig rig(NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true),
            NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true));
    rig.a.connection.set_rnr({.retries = 0});
    rig.b.connection.set_rnr({.notice_every = NoticeRig::kEvery});
    rig.start();
    ByteVector source = pattern(20000), sink(20000), memory = pattern(30);
    const std::uint32_t stag = rig.world.add(source, kRemoteRead);
    rig.b.blocked = true;
    const Sge s = sge(sink);
    for (std::uint64_t id = 1; id <= 2; ++id) {
        ASSERT_TRUE(rig.a.sq
                        .post({.wr_id = ++rig.a.sends_posted,
                               .opcode = SendOpcode::read,
                               .remote_stag = stag,
                               .sges = {&s, 1}})
                        .ok());
    }
    rig.a.post_send(memory);
    rig.run();
    rig.pass(4 * NoticeRig::kEvery);
    rig.b.blocked = false;
    rig.run();
    rig.pass(10 * NoticeRig::kEvery);
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success),
                                                   Completed(2, WcStatus::success),
                                                   Completed(3, WcStatus::rnr_retries_exceeded)));
}

// It had no receive itself, and so has read nothing for a while.
TEST(Connection, reads_on_before_it_believes_that_a_message_waits) {
    NoticeRig rig(3);
    rig.b.post_send(rig.memory);
    rig.run();
    rig.pass(10 * NoticeRig::kEvery);
    EXPECT_EQ(rig.a.seen(), "established");
    rig.b.post_recv();
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    rig.b.connection.stream().acknowledge();
    rig.run();
    rig.a.post_recv();
    rig.run();
    EXPECT_EQ(rig.a.received().size(), 1u);
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
}

/// `a` has read, at once, that its message has waited too often, and a Send that finds no receive.
struct UnjudgedRig : NoticeRig {
    UnjudgedRig() : NoticeRig(3) {
        for (int i = 0; i < 10; ++i) {
            b.connection.on_time(now += kEvery);
            b.poll(a, now);
        }
        b.post_send(memory);
        b.poll(a, now);
        a.poll(b, now);
        EXPECT_EQ(a.seen(), "established");
    }
    /// A poll cycle that reads nothing.
    void give_receive() {
        a.post_recv();
        EXPECT_TRUE(a.connection.resume(now));
        a.connection.update(now);
        EXPECT_EQ(a.received().size(), 1u);
    }
};

TEST(Connection, reads_what_has_come_meanwhile_before_it_believes_that_a_message_waits) {
    UnjudgedRig rig;
    rig.b.post_recv();
    rig.b.poll(rig.a, rig.now);
    rig.b.connection.stream().acknowledge();
    rig.b.poll(rig.a, rig.now);
    rig.give_receive();
    EXPECT_EQ(rig.a.seen(), "established");
    rig.run();
    rig.pass(10 * NoticeRig::kEvery);
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
}

TEST(Connection, believes_a_little_later_that_a_message_waits) {
    UnjudgedRig rig;
    rig.give_receive();
    EXPECT_EQ(rig.a.seen(), "established");
    rig.pass(kMillisecond);
    EXPECT_EQ(rig.a.seen(), "error reset");
}

// The program did not ask to be told of that one, and the request behind the answer may wait.
TEST(Connection, takes_the_answer_to_a_read_for_a_message_that_was_taken) {
    Rig rig(NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true),
            NoticeRig::with(MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, true));
    rig.a.connection.set_rnr({.retries = 0});
    rig.b.connection.set_rnr({.notice_every = NoticeRig::kEvery});
    rig.start();
    ByteVector source = pattern(100), sink(100), memory = pattern(30);
    const std::uint32_t stag = rig.world.add(source, kRemoteRead);
    const Sge from = sge(memory), to = sge(sink);
    ASSERT_TRUE(
        rig.a.sq.post({.wr_id = ++rig.a.sends_posted, .flags = 0, .sges = {&from, 1}}).ok());
    ASSERT_TRUE(rig.a.sq
                    .post({.wr_id = ++rig.a.sends_posted,
                           .opcode = SendOpcode::read,
                           .remote_stag = stag,
                           .sges = {&to, 1}})
                    .ok());
    rig.a.post_send(memory);
    rig.a.poll(rig.b, rig.now);
    rig.b.poll(rig.a, rig.now);
    rig.b.connection.on_time(rig.now += NoticeRig::kEvery);
    rig.b.poll(rig.a, rig.now);
    rig.b.post_recv();
    rig.b.poll(rig.a, rig.now);
    EXPECT_EQ(rig.b.received().size(), 1u);
    rig.a.poll(rig.b, rig.now);
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_EQ(sink, source);
    rig.b.post_recv();
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 1u);
    EXPECT_EQ(rig.a.seen(), "established");
}

TEST(Connection, fails_nothing_where_completions_do_not_wait_for_the_peer) {
    NoticeRig rig(0, MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR, false);
    rig.pass(10 * NoticeRig::kEvery);
    EXPECT_EQ(rig.a.seen(), "established");
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
}

TEST(Connection, tells_no_peer_that_does_not_know_it) {
    for (const std::uint64_t features : {MPA_FEATURE_ACKNOWLEDGE, MPA_FEATURE_RNR}) {
        NoticeRig rig(0, features);
        rig.pass(kRnr - 1);
        EXPECT_EQ(rig.a.seen(), "established");
        EXPECT_EQ(rig.b.connection.stream().counters().tx_messages[RDMAP_ACKNOWLEDGE], 0u);
    }
}

TEST(Connection, asks_a_shared_queue_again_after_it_has_said_that_it_waits) {
    Options shared;
    shared.receives = 0;
    shared.shared_receives = true;
    Rig rig({}, shared);
    rig.b.fill_at_rnr = true;
    rig.start();
    ByteVector memory = pattern(30);
    rig.a.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.b.rnrs, 1u);
    EXPECT_EQ(rig.b.received().size(), 1u);
}

// -- our end --

TEST(Connection, finishes_toward_a_standard_peer_a_little_later) {
    Rig rig(standard_peer(), {});
    rig.start();
    rig.a.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closing");
    EXPECT_EQ(rig.a.connection.next_timeout(rig.now), rig.now + kFinDelay);
    rig.pass(kFinDelay);
    EXPECT_EQ(rig.a.seen(), "closing FIN");
}

TEST(Connection, finishes_not_before_the_layer_permits) {
    Options options;
    options.layer.finish_at = 150 * kMillisecond;
    Rig rig(options, {});
    rig.start();
    rig.a.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.connection.next_timeout(rig.now), 150 * kMillisecond);
    rig.pass(150 * kMillisecond);
    EXPECT_EQ(rig.a.seen(), "closing FIN");
}

TEST(Connection, finishes_at_once_when_the_peer_has) {
    Rig rig(standard_peer(), {});
    rig.start();
    rig.b.connection.shutdown(rig.now);
    rig.run();
    rig.a.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closed FIN close");
}

TEST(Connection, sends_what_is_queued_before_it_finishes) {
    BlockedRig rig;
    rig.a.connection.shutdown(rig.now);
    EXPECT_FALSE(rig.a.sq.post({.wr_id = 9}).ok());
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closing");
    EXPECT_TRUE(rig.a.connection.draining());
    rig.a.blocked = false;
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closing FIN");
    EXPECT_FALSE(rig.a.connection.draining());
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
}

TEST(Connection, that_is_released_lingers_and_gives_up) {
    BlockedRig rig;
    rig.a.connection.release(rig.now);
    EXPECT_EQ(rig.a.received().size(), 4u) << "receives are flushed at once";
    rig.pass(kLinger - 1);
    EXPECT_EQ(rig.a.seen(), "closing");
    rig.pass(1);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::linger_expired);
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::flushed)));
}

TEST(Connection, that_is_to_linger_gives_up_unless_it_is_told_again) {
    BlockedRig rig;
    rig.a.connection.linger(rig.now);
    rig.pass(kLinger - 1);
    rig.a.connection.linger(rig.now);
    rig.pass(kLinger - 1);
    EXPECT_EQ(rig.a.seen(), "established");
    rig.pass(1);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::linger_expired);
    EXPECT_EQ(rig.a.received().size(), 4u);
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::flushed)));
}

// Of a process that exits: the memory may be gone, and locks of the queues may be held for good.
TEST(Connection, that_leaves_sends_no_more_and_completes_nothing_until_the_peer_leaves) {
    BlockedRig rig;
    rig.a.connection.shutdown(rig.now);
    rig.a.connection.leave(rig.now);
    EXPECT_EQ(rig.a.seen(), "closing FIN") << "no reset: TCP delivers what it has";
    EXPECT_EQ(rig.a.sent().size() + rig.a.received().size(), 0u);
    rig.a.blocked = false;
    rig.run();
    EXPECT_FALSE(rig.a.connection.tx_wanted());
    EXPECT_EQ(rig.a.seen(), "closing FIN");
    const auto received = rig.b.received();
    EXPECT_EQ(received.size(), 4u);
    EXPECT_THAT(received, testing::Each(testing::Field(&Wc::status, WcStatus::flushed)))
        << "nothing of the message";
    EXPECT_TRUE(rig.b.connection.peer_finished());
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::flushed)));
    EXPECT_EQ(rig.a.received().size(), 4u);
}

TEST(Connection, that_leaves_drops_what_comes) {
    RnrRig rig(1);
    ByteVector memory = pattern(10);
    rig.b.connection.leave(rig.now);
    EXPECT_EQ(rig.b.seen(), "closing FIN");
    EXPECT_TRUE(rig.b.connection.rx_wanted()) << "the message that waited has gone by";
    rig.b.post_recv();
    rig.a.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.b.received().size(), 0u);
    rig.pass(kLinger);
    EXPECT_THAT(rig.b.received(),
                testing::ElementsAre(testing::Field(&Wc::status, WcStatus::flushed)));
}

TEST(Connection, that_is_released_waits_for_the_fin_of_the_peer_only_so_long) {
    Rig rig;
    rig.start();
    rig.a.connection.release(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closing FIN");
    rig.pass(kLinger);
    EXPECT_EQ(rig.a.seen(), "closed FIN close");
}

TEST(Connection, that_is_released_does_not_hold_a_peer_that_sends) {
    Rig rig;
    rig.start();
    rig.a.connection.release(rig.now);
    ByteVector memory = pattern(10);
    rig.b.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.a.connection.state(), QpState::closed);
    EXPECT_TRUE(rig.a.connection.rx_wanted()) << "what the peer sends is read";
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closed FIN close");
}

TEST(Connection, that_is_released_during_start_up_still_sends_what_was_posted) {
    for (const bool posted : {false, true}) {
        Rig rig;
        ByteVector memory = pattern(10);
        rig.a.start(rig.now);
        rig.b.start(rig.now);
        if (posted) rig.a.post_send(memory);
        rig.a.connection.release(rig.now);
        EXPECT_EQ(rig.a.seen(), posted ? "starting" : "error reset");
        if (!posted) continue;
        rig.run();
        EXPECT_EQ(rig.a.connection.fin_sent(), true);
        EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::success)));
        const auto got = rig.b.received();  // the others end with the peer's half
        ASSERT_EQ(got.size(), 4u);
        EXPECT_EQ(got[0].status, WcStatus::success);
        EXPECT_EQ(got[0].byte_len, memory.size());
        EXPECT_EQ(rig.b.seen(), "peer_closed");
    }
}

TEST(Connection, that_is_detached_completes_nothing_more) {
    for (const bool outstanding : {false, true}) {
        Rig rig;
        rig.start();
        ByteVector memory = pattern(10);
        rig.a.blocked = true;
        if (outstanding) rig.a.post_send(memory);
        rig.a.connection.detach(rig.now);
        EXPECT_EQ(rig.a.received().size(), 4u);
        EXPECT_EQ(rig.a.sent().size(), outstanding ? 1u : 0u);
        EXPECT_EQ(rig.a.seen(), outstanding ? "error reset" : "closing");
        rig.a.blocked = false;
        rig.b.post_send(memory);
        rig.pass(kLinger);
        EXPECT_TRUE(rig.a.received().empty() && rig.a.sent().empty());
        EXPECT_TRUE(rig.a.closed);
    }
}

// -- faults --

TEST(Connection, terminates_over_a_fault_of_the_layer) {
    Rig rig;
    rig.start();
    rig.a.layer.break_reception();
    rig.run();
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::stream_error);
    EXPECT_EQ(rig.a.connection.error().stream_error, StreamError::mpa_crc);
    EXPECT_EQ(rig.a.connection.error().code, EPROTO);
    EXPECT_EQ(rig.b.connection.error().cause, EndCause::terminated);
    EXPECT_EQ(rig.a.seen(), "error FIN close");
}

TEST(Connection, does_not_wait_for_ever_to_send_a_terminate) {
    Rig rig;
    rig.start();
    rig.a.blocked = true;
    rig.a.layer.break_reception();
    rig.run();
    EXPECT_EQ(rig.a.seen(), "established");
    rig.pass(kLinger);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_EQ(rig.a.connection.error().code, ETIMEDOUT);
}

TEST(Connection, that_is_lost_says_how) {
    Rig rig;
    rig.start();
    rig.a.connection.lost(ENETDOWN);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::lost);
    EXPECT_EQ(rig.a.connection.error().code, ENETDOWN);
    rig.b.connection.lost(ETIMEDOUT, EndCause::peer_silent);
    EXPECT_EQ(rig.b.connection.error().cause, EndCause::peer_silent);
}

// The kernel's siw closes while our probe is under way, and answers that with a reset.
TEST(Connection, that_has_sent_nothing_ends_well_by_a_reset_behind_the_end_of_its_peer) {
    for (const bool sends : {false, true}) {
        for (const bool is_confirmed : {false, true}) {
            SCOPED_TRACE(testing::Message() << "sends " << sends << ", confirmed " << is_confirmed);
            Options options = is_confirmed ? confirmed() : Options{};
            options.events = true;
            Rig rig(options, {});
            rig.start();
            rig.a.connection.confirm_start();
            ByteVector memory = pattern(10);
            if (sends) rig.a.post_send(memory);
            rig.run();
            rig.b.connection.shutdown(rig.now);
            rig.run();
            EXPECT_EQ(rig.a.seen(), "peer_closed");
            rig.a.connection.lost(ECONNRESET);
            EXPECT_EQ(rig.a.seen(), sends ? "error reset" : "closed close");
            EXPECT_EQ(rig.a.connection.error().code, sends ? ECONNRESET : 0);
            EXPECT_EQ(rig.a.connection.stream_error(),
                      sends ? StreamError::mpa_connection_lost : StreamError::none);
            rig.a.connection.confirm_end();
            unsigned ends = 0;
            for (const Wc& wc : rig.a.received()) {
                if (wc.opcode != WcOpcode::closed) continue;
                ++ends;
                EXPECT_EQ(wc.status, WcStatus::success);
            }
            EXPECT_EQ(ends, 1u);
        }
    }
}

TEST(Connection, does_not_end_well_by_a_reset_behind_a_fault_of_the_stream) {
    Rig rig;
    rig.start();
    rig.b.connection.shutdown(rig.now);
    rig.run();
    rig.a.connection.stream().fail(StreamError::local_catastrophic);
    rig.a.connection.lost(ECONNRESET);
    EXPECT_EQ(rig.a.connection.state(), QpState::error);
    EXPECT_EQ(rig.a.connection.error().code, ECONNRESET);
    EXPECT_EQ(rig.a.connection.stream_error(), StreamError::local_catastrophic);
}

// A queue pair of the RoCE-like device: what it sends to a peer that is gone is lost.
TEST(Connection, that_outlives_its_peer_is_lost_by_a_reset_behind_the_end_of_its_peer) {
    for (const bool unreliable : {false, true}) {
        SCOPED_TRACE(testing::Message() << "unreliable " << unreliable);
        Options options = confirmed();
        options.attr.outlives_peer = true;
        options.attr.unreliable = unreliable;
        Rig rig(options, {});
        start_and_leave(rig);
        rig.a.connection.lost(ECONNRESET);
        EXPECT_EQ(rig.a.connection.state(), QpState::error);
        EXPECT_TRUE(rig.a.received().empty()) << "receives stay posted";
        if (unreliable) continue;  // takes no sends any more
        ByteVector memory = pattern(10);
        rig.a.post_send(memory);
        rig.a.connection.confirm_end();
        EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::connection_lost)));
    }
}

TEST(Connection, is_lost_when_memory_runs_out) {
    for (const bool sending : {false, true}) {
        Rig rig;
        rig.start();
        ByteVector memory = pattern(10);
        rig.a.post_send(memory);
        (sending ? rig.a : rig.b).layer.throws = true;
        rig.run();
        EXPECT_EQ((sending ? rig.a : rig.b).connection.error().code, ENOMEM);
    }
}

TEST(Connection, ends_when_memory_of_the_program_is_gone) {
    fault::install();
    for (const bool sending : {false, true}) {
        Rig rig;
        rig.start();
        void* const hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const Sge gone{static_cast<std::byte*>(hole), 10, 0};
        ByteVector memory = pattern(10);
        Side& hurt = sending ? rig.a : rig.b;
        if (sending) {
            ASSERT_TRUE(rig.a.sq.post({.wr_id = 1, .sges = {&gone, 1}}).ok());
        } else {
            RecvWqe wqe;
            while (rig.b.rq.take(wqe)) {
            }
            ASSERT_TRUE(rig.b.rq.post({.wr_id = 1, .sges = {&gone, 1}}).ok());
            rig.a.post_send(memory);
        }
        rig.run();
        EXPECT_EQ(hurt.connection.error().cause,
                  sending ? EndCause::tx_memory_unmapped : EndCause::rx_memory_unmapped);
        EXPECT_EQ(hurt.connection.error().code, EFAULT);
        EXPECT_EQ(hurt.seen(), "error reset");
        EXPECT_EQ((sending ? hurt.sent() : hurt.received()).front().status,
                  WcStatus::local_protection_error);
        munmap(hole, 4096);
    }
}

TEST(Connection, fails_only_the_request_whose_memory_is_gone_if_its_end_is_confirmed_late) {
    fault::install();
    Rig rig(confirmed(), {});
    rig.start();
    rig.a.connection.confirm_start();
    rig.b.connection.shutdown(rig.now);
    rig.run();
    ASSERT_EQ(rig.a.seen(), "peer_closed");
    void* const hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Sge gone{static_cast<std::byte*>(hole), 10, 0};
    ByteVector memory = pattern(10);
    ASSERT_TRUE(rig.a.sq.post({.wr_id = 1, .sges = {&gone, 1}}).ok());
    rig.a.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.a.connection.error().cause, EndCause::tx_memory_unmapped);
    EXPECT_TRUE(rig.a.sent().empty());
    rig.a.connection.confirm_end();
    const auto sent = rig.a.sent();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].status, WcStatus::local_protection_error);
    EXPECT_EQ(sent[1].status, WcStatus::flushed);
    munmap(hole, 4096);
}

// -- two layers --

TEST(Connection, ends_over_octets_behind_a_start_up_whose_data_go_by_another_layer) {
    Rig rig;
    rig.a.add_other_layer();
    rig.a.start(rig.now);
    const ByteVector bytes{std::byte{'a'}, std::byte{0}, std::byte{1}};  // accepted, and more
    rig.a.connection.rx(bytes, rig.now);
    rig.a.connection.update(rig.now);
    EXPECT_TRUE(rig.a.connection.ended());
    EXPECT_EQ(rig.a.connection.error().code, EPROTO);
    EXPECT_FALSE(rig.a.connection.is_started());
}

TEST(Connection, hands_data_to_the_layer_that_start_up_chose_and_back_when_it_is_detached) {
    Rig rig;
    for (Side* side : {&rig.a, &rig.b}) side->add_other_layer();
    rig.start();
    for (Side* side : {&rig.a, &rig.b}) {
        EXPECT_EQ(side->seen(), "established");
        EXPECT_EQ(side->connection.layer(), side->other.get());
        EXPECT_EQ(side->other->opened_as, std::vector{Llp::Opening::first});
        EXPECT_TRUE(side->layer.opened_as.empty()) << "start-up's carries nothing more";
        EXPECT_EQ(side->layer.state(), Llp::State::started);
    }
    ByteVector memory = pattern(100);
    rig.a.post_send(memory);
    rig.b.post_send(memory);
    rig.run();
    EXPECT_EQ(rig.a.received().size() + rig.b.received().size(), 2u);
    EXPECT_TRUE(rig.a.connection.quiet());

    // The peer goes on by the other layer's successor: both are between two ULPDUs.
    rig.b.connection.hand_over(rig.b.layer, rig.now);
    EXPECT_EQ(rig.b.layer.opened_as, std::vector{Llp::Opening::resumed});
    rig.a.connection.detach(rig.now);
    EXPECT_EQ(rig.a.connection.layer(), &rig.a.layer);
    EXPECT_EQ(rig.a.layer.opened_as, std::vector{Llp::Opening::resumed});
    EXPECT_EQ(rig.a.ulp().stream_error(), StreamError::none);
    rig.b.post_send(memory);
    rig.run();
    EXPECT_THAT(rig.b.sent().back(), Completed(2, WcStatus::success));
    EXPECT_EQ(rig.a.seen(), "closing FIN");
    EXPECT_EQ(rig.b.seen(), "peer_closed");
    rig.b.connection.shutdown(rig.now);
    rig.run();
    EXPECT_EQ(rig.a.seen(), "closed FIN close");
    EXPECT_EQ(rig.b.seen(), "closed FIN close");
}

TEST(Connection, that_is_detached_sends_a_terminate_by_the_layer_that_carried_the_data) {
    Rig rig;
    for (Side* side : {&rig.a, &rig.b}) side->add_other_layer();
    rig.start();
    rig.a.blocked = true;
    rig.a.other->break_reception();
    EXPECT_EQ(rig.a.ulp().state(), Stream::State::terminating);
    rig.a.connection.detach(rig.now);
    EXPECT_EQ(rig.a.connection.layer(), rig.a.other.get());
    rig.a.blocked = false;
    rig.run();
    EXPECT_EQ(rig.b.connection.error().cause, EndCause::terminated);
    EXPECT_TRUE(rig.a.layer.opened_as.empty());
}

TEST(Connection, that_may_go_by_no_layer_ends_before_it_is_established) {
    for (const bool other : {false, true}) {
        Options events;
        events.events = true;
        Rig rig(events, events);
        rig.a.refuses_layers = true;
        if (other) rig.a.other = std::make_unique<PipeLayer>(PipeLayer::Options{}, rig.a.ulp());
        ByteVector memory = pattern(10);
        rig.a.post_send(memory);
        rig.start();
        EXPECT_EQ(rig.a.started, 0u);
        EXPECT_EQ(rig.a.connection.state(), QpState::error);
        EXPECT_EQ(rig.a.connection.error().code, EPROTONOSUPPORT);
        EXPECT_EQ(rig.a.connection.error().cause, EndCause::path_refused);
        EXPECT_THAT(rig.a.sent(), testing::ElementsAre(Completed(1, WcStatus::connection_lost)));
        EXPECT_EQ(rig.a.received().back().opcode, WcOpcode::closed);
        EXPECT_TRUE(rig.a.connection.closed());
        EXPECT_TRUE(rig.a.layer.opened_as.empty());
        if (other) {
            EXPECT_TRUE(rig.a.other->opened_as.empty());
        }
    }
}

TEST(Connection, that_is_lost_during_start_up_never_opens_the_other_layer) {
    Rig rig;
    rig.a.other = std::make_unique<PipeLayer>(PipeLayer::Options{}, rig.a.ulp());
    rig.a.start(rig.now);
    rig.a.connection.lost(ECONNRESET);
    EXPECT_EQ(rig.a.seen(), "error reset");
    EXPECT_TRUE(rig.a.other->opened_as.empty());
}

// -- every state, every event --

enum class In {
    fresh,
    starting,
    requested,
    held,
    established,
    half,
    draining,
    finished,
    ending,
    over
};
enum class Event {
    shutdown,
    abort,
    release,
    linger,
    detach,
    confirm,
    accept,
    reject,
    eof,
    lost,
    time
};

constexpr In kIns[] = {In::fresh, In::starting, In::requested, In::held,   In::established,
                       In::half,  In::draining, In::finished,  In::ending, In::over};
constexpr Event kEvents[] = {Event::shutdown, Event::abort,   Event::release, Event::linger,
                             Event::detach,   Event::confirm, Event::accept,  Event::reject,
                             Event::eof,      Event::lost,    Event::time};

/// b, in this state; a is there to bring it about.
std::unique_ptr<Rig> rig_in(In in) {
    auto rig = std::make_unique<Rig>(Options{}, in == In::requested ? deferring()
                                                : in == In::held    ? confirmed()
                                                                    : Options{});
    Side& b = rig->b;
    switch (in) {
        case In::fresh:
            return rig;
        case In::starting:
            b.start(rig->now);
            return rig;
        default:
            rig->start();
    }
    switch (in) {
        case In::half:
            rig->a.connection.shutdown(rig->now);
            rig->run();
            break;
        case In::draining:
            b.blocked = true;
            static ByteVector memory = pattern(10);
            b.post_send(memory);
            b.connection.shutdown(rig->now);
            b.poll(rig->a, rig->now);
            break;
        case In::finished:
            b.connection.shutdown(rig->now);
            b.poll(rig->a, rig->now);
            break;
        case In::ending:  // its Terminate and FIN were sent, the peer's FIN has not come
            b.layer.break_reception();
            b.poll(rig->a, rig->now);
            break;
        case In::over:
            b.connection.abort();
            break;
        default:
            break;
    }
    return rig;
}

void happen(Rig& rig, Event event) {
    Side& b = rig.b;
    Connection& c = b.connection;
    switch (event) {
        case Event::shutdown:
            return c.shutdown(rig.now);
        case Event::abort:
            return c.abort();
        case Event::release:
            return c.release(rig.now);
        case Event::linger:
            return c.linger(rig.now);
        case Event::detach:
            return c.detach(rig.now);
        case Event::confirm:
            c.confirm_start();
            return c.confirm_end();
        case Event::accept:
            static_cast<void>(c.accept({}, 1, 1, rig.now));
            return;
        case Event::reject:
            static_cast<void>(c.reject({}, rig.now));
            return;
        case Event::eof:
            if (c.layer() != nullptr && c.rx_wanted()) c.rx_eof(rig.now);
            return;
        case Event::lost:
            if (c.layer() != nullptr) c.lost(ECONNRESET);
            return;
        case Event::time:
            rig.now += 20 * kSecond;
            return c.on_time(rig.now);
    }
}

// What is seen right after the event and one poll of it.
constexpr const char* kExpected[std::size(kIns)][std::size(kEvents)] = {
    {"closed", "error", "closed", "fresh", "error", "fresh", "fresh", "fresh", "fresh", "fresh",
     "fresh"},  // In::fresh
    {"starting", "error reset", "error reset", "starting", "error reset", "starting", "starting",
     "starting", "error reset", "error reset", "error reset"},  // In::starting
    {"requested", "error reset", "error reset", "requested", "error reset", "requested",
     "established", "error FIN", "error reset", "error reset", "requested"},  // In::requested
    {"closing FIN", "error reset", "closing FIN", "established", "closing FIN", "established",
     "established", "established", "established", "error reset", "established"},  // In::held
    {"closing FIN", "error reset", "closing FIN", "established", "closing FIN", "established",
     "established", "established", "peer_closed", "error reset", "established"},  // In::established
    {"closed FIN close", "error reset", "closed FIN close", "peer_closed", "closed FIN close",
     "peer_closed", "peer_closed", "peer_closed", "peer_closed", "closed close",
     "peer_closed"},  // In::half
    {"closing", "error reset", "closing", "closing", "error reset", "closing", "closing", "closing",
     "closing", "error reset", "closing"},  // In::draining
    {"closing FIN", "error FIN reset", "closing FIN", "closing FIN", "closing FIN", "closing FIN",
     "closing FIN", "closing FIN", "closed FIN close", "error FIN reset",
     "closing FIN"},  // In::finished
    {"error FIN", "error FIN reset", "error FIN", "error FIN", "error FIN", "error FIN",
     "error FIN", "error FIN", "error FIN close", "error FIN close",
     "error FIN close"},  // In::ending
    {"error reset", "error reset", "error reset", "error reset", "error reset", "error reset",
     "error reset", "error reset", "error reset", "error reset", "error reset"},  // In::over
};

TEST(Connection, does_what_it_must_in_every_state_at_every_event) {
    for (const In in : kIns) {
        for (const Event event : kEvents) {
            const auto i = static_cast<std::size_t>(in), e = static_cast<std::size_t>(event);
            SCOPED_TRACE("state " + std::to_string(i) + ", event " + std::to_string(e));
            const auto rig = rig_in(in);
            Side& b = rig->b;
            happen(*rig, event);
            b.poll(rig->a, rig->now);
            EXPECT_EQ(b.seen(), kExpected[i][e]);
            // Whatever comes next, all that was posted completes once, and nothing follows the end.
            b.connection.abort();
            b.connection.confirm_end();
            EXPECT_TRUE(b.connection.ended());
            EXPECT_TRUE(b.closed || b.connection.layer() == nullptr);
            EXPECT_EQ(b.received().size(), b.receives_posted);
            EXPECT_EQ(b.sent().size(), b.sends_posted);
            EXPECT_EQ(b.connection.next_timeout(rig->now), kNever);
            happen(*rig, event);
            EXPECT_TRUE(b.sent().empty() && b.received().empty());
            EXPECT_EQ(b.layer.asked_after_finish, 0u);
        }
    }
}

}  // namespace
}  // namespace xsock::ddp
