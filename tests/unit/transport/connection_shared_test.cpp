// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections through shared memory, of two devices of this process or of one: what two processes
// would see.
#include "transport/connection_shared.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/polled_qp.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/transport/soon.hpp"
#include "transport/clock.hpp"
#include "transport/soft_device.hpp"

namespace xsock {
namespace {

// A process that has to wait for a processor is no reason for TCP.
constexpr Time kShmTimeout = 30 * kSecond;

using test::soon;

struct Options {
    ProgressMode progress = ProgressMode::both;
    bool one_device = false;
    ShmMode shm_a = ShmMode::require, shm_b = ShmMode::require;
    std::size_t memory_a = TransportConfig().shm_memory;
};

// A link has one at each of its ends.
std::size_t unix_sockets() {
    std::size_t count = 0;
    for (int fd = 0; fd < 8192; ++fd) {
        int domain = 0;
        socklen_t size = sizeof domain;
        const bool is_socket = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0;
        count += is_socket && domain == AF_UNIX ? 1 : 0;
    }
    return count;
}

class ConnectionSharedTest : public ::testing::TestWithParam<bool> {
  protected:
    void make(const Options& setup) {
        for (int i = 0; i < 2; ++i) {
            TransportConfig config;
            config.progress = setup.progress;
            config.shm = i == 0 ? setup.shm_a : setup.shm_b;
            config.shm_timeout = kShmTimeout;
            if (i == 0) config.shm_memory = setup.memory_a;
            if (i == 1 && setup.one_device) {
                device[1] = device[0];
            } else {
                auto made = make_soft_device(config);
                ASSERT_TRUE(made);
                device[i] = std::move(*made);
            }
            cq[i] = std::move(*device[i]->create_cq(1024, false));
        }
    }
    struct Pair {
        std::unique_ptr<Qp> a, b;
    };
    Pair start(bool outlives_peer = false) {
        Pair pair;
        const auto [client, server] = test::loopback_pair();
        QpAttr attr;
        attr.rnr_timeout = kNever;
        attr.linger_ms = linger_ms;
        ConnectAttr connect;
        connect.outlives_peer = outlives_peer;
        for (int i = 1; i >= 0; --i) {
            attr.send_cq = attr.recv_cq = cq[i].get();
            auto& qp = i == 0 ? pair.a : pair.b;
            qp = std::move(*device[i]->create_qp(attr));
            connect.role = i == 0 ? ConnectAttr::Role::initiator : ConnectAttr::Role::responder;
            EXPECT_TRUE(qp->connect(i == 0 ? client : server, connect));
        }
        return pair;
    }
    void expect_path(const Pair& pair, DataPath path) {
        EXPECT_EQ(pair.a->wait_started(soon()), QpState::established);
        EXPECT_EQ(pair.b->wait_started(soon()), QpState::established);
        EXPECT_EQ(pair.a->info().path, path);
        EXPECT_EQ(pair.b->info().path, path);
    }
    Pair connect() {
        Pair pair = start();
        expect_path(pair, DataPath::shm);
        return pair;
    }
    std::vector<Wc> wait(int i, std::size_t count) {
        std::vector<Wc> all;
        const Time end = soon();
        while (all.size() < count && monotonic_now() < end) {
            std::array<Wc, 8> some;
            const std::size_t n = cq[i]->poll(some);
            all.insert(all.end(), &some[0], &some[0] + n);
            if (n == 0) static_cast<void>(cq[1 - i]->poll({}));
        }
        EXPECT_EQ(all.size(), count);
        return all;
    }
    static Result<void> post_recv(Qp& qp, std::vector<std::byte>& to, std::uint64_t id = 1) {
        const Sge sge{to.data(), static_cast<std::uint32_t>(to.size()), kLkeyNone};
        return qp.post_recv({.wr_id = id, .sges = {&sge, 1}});
    }
    static Result<void> post_send(Qp& qp, std::vector<std::byte>& from, std::uint64_t id = 1) {
        const Sge sge{from.data(), static_cast<std::uint32_t>(from.size()), kLkeyNone};
        SendWr send;
        send.wr_id = id;
        send.sges = {&sge, 1};
        return qp.post_send(send);
    }
    static std::vector<std::byte> bytes(std::size_t n) {
        std::vector<std::byte> all(n);
        for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<std::byte>(i * 7 + i / 251);
        return all;
    }
    void TearDown() override {
        for (int i : {0, 1}) cq[i].reset();
    }

    std::uint32_t linger_ms = QpAttr{}.linger_ms;
    std::shared_ptr<Device> device[2];
    std::unique_ptr<Cq> cq[2];
};

TEST_P(ConnectionSharedTest, carries_sends_of_all_sizes) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    for (const std::size_t size : {1u, 64u, 1000u, 5000u, 40'000u, 300'000u, 3'000'000u}) {
        auto from = bytes(size), to = std::vector<std::byte>(size);
        ASSERT_TRUE(post_recv(*pair.b, to));
        ASSERT_TRUE(post_send(*pair.a, from));
        EXPECT_EQ(wait(0, 1).at(0).status, WcStatus::success);
        EXPECT_EQ(wait(1, 1).at(0).status, WcStatus::success);
        EXPECT_EQ(from, to);
    }
}

TEST_P(ConnectionSharedTest, a_first_message_needs_no_other_call) {
    make({.progress = ProgressMode::app, .one_device = GetParam()});
    const Pair pair = start();
    const Time end = soon();
    while (pair.a->state() != QpState::established && monotonic_now() < end) {
        static_cast<void>(cq[0]->poll({}));
        if (pair.a->state() != QpState::established) static_cast<void>(cq[1]->poll({}));
    }
    auto from = bytes(1000), to = std::vector<std::byte>(1000);
    ASSERT_TRUE(post_recv(*pair.b, to));
    ASSERT_TRUE(post_send(*pair.a, from));
    Wc wc;
    while (cq[1]->poll({&wc, 1}) == 0 && monotonic_now() < end) {
    }
    EXPECT_EQ(wc.status, WcStatus::success);
    EXPECT_EQ(from, to);
    EXPECT_EQ(pair.b->info().path, DataPath::shm);
}

TEST_P(ConnectionSharedTest, carries_writes_and_reads) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    auto target = bytes(200'000), memory = bytes(100'000);
    auto stag = device[1]->register_memory({.address = target.data(),
                                            .length = target.size(),
                                            .access = kRemoteAccess | kLocalWrite,
                                            .pd = 0});
    ASSERT_TRUE(stag);
    SendWr write;
    const Sge sge{memory.data(), static_cast<std::uint32_t>(memory.size()), kLkeyNone};
    write.opcode = SendOpcode::write;
    write.remote_stag = *stag;
    write.remote_to = reinterpret_cast<std::uint64_t>(target.data()) + 50'000;
    write.sges = {&sge, 1};
    ASSERT_TRUE(pair.a->post_send(write));
    std::vector<std::byte> back(memory.size());
    const Sge sink{back.data(), static_cast<std::uint32_t>(back.size()), kLkeyNone};
    SendWr read = write;
    read.opcode = SendOpcode::read;
    read.sges = {&sink, 1};
    ASSERT_TRUE(pair.a->post_send(read));
    for (const Wc& wc : wait(0, 2)) EXPECT_EQ(wc.status, WcStatus::success);
    EXPECT_EQ(back, memory);
    EXPECT_TRUE(device[1]->deregister_memory(*stag));
}

TEST_P(ConnectionSharedTest, a_shutdown_follows_what_was_posted) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    auto from = bytes(500'000), to = std::vector<std::byte>(from.size());
    ASSERT_TRUE(post_recv(*pair.b, to));
    ASSERT_TRUE(post_send(*pair.a, from));
    ASSERT_TRUE(pair.a->shutdown());
    EXPECT_EQ(wait(1, 1).at(0).status, WcStatus::success);
    EXPECT_EQ(from, to);
    ASSERT_TRUE(pair.b->shutdown());
    EXPECT_EQ(pair.a->wait_ended(soon()), QpState::closed);
    EXPECT_EQ(pair.b->wait_ended(soon()), QpState::closed);
}

TEST_P(ConnectionSharedTest, an_abort_resets_the_peer) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    pair.a->abort();
    EXPECT_EQ(pair.b->wait_ended(soon()), QpState::error);
    EXPECT_EQ(pair.b->info().error, ECONNRESET);
}

TEST_P(ConnectionSharedTest, a_send_waits_for_its_receive) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    auto from = bytes(70'000), to = std::vector<std::byte>(from.size());
    ASSERT_TRUE(post_send(*pair.a, from));
    for (int i = 0; i < 100; ++i) {
        for (int side : {0, 1}) static_cast<void>(cq[side]->poll({}));
    }
    ASSERT_TRUE(post_recv(*pair.b, to));
    EXPECT_EQ(wait(1, 1).at(0).status, WcStatus::success);
    EXPECT_EQ(from, to);
}

TEST_P(ConnectionSharedTest, what_nobody_will_receive_holds_up_no_one) {
    linger_ms = 60'000;
    make({.one_device = GetParam()});
    Pair pair = connect();
    std::vector<std::vector<std::byte>> all(40, bytes(100'000));
    for (auto& from : all) ASSERT_TRUE(post_send(*pair.a, from));
    ASSERT_TRUE(pair.a->shutdown());
    pair.b.reset();
    const Time begin = monotonic_now();
    pair.a->wait_ended(begin + 50 * kSecond);
    EXPECT_LT(monotonic_now() - begin, 30 * kSecond);  // of a linger time of 60
    EXPECT_TRUE(pair.a->state() == QpState::closed || pair.a->state() == QpState::error);
}

TEST_F(ConnectionSharedTest, an_initiator_without_memory_answers_by_tcp) {
    make({.shm_a = ShmMode::automatic, .shm_b = ShmMode::automatic, .memory_a = 1});
    const Pair pair = start();
    expect_path(pair, DataPath::tcp);
    EXPECT_EQ(pair.a->info().shm_reason, shm::Reason::limits);
    EXPECT_EQ(pair.b->info().shm_reason, shm::Reason::limits);
    auto from = bytes(100), to = bytes(0);
    to.resize(100);
    ASSERT_TRUE(post_recv(*pair.b, to));
    ASSERT_TRUE(post_send(*pair.a, from));
    wait(1, 1);
    EXPECT_EQ(to, from);
}

TEST_F(ConnectionSharedTest, a_start_that_fails_may_be_repeated) {
    make({});
    std::unique_ptr<Qp> qp[2];
    ConnectAttr connect;
    for (int i : {0, 1}) {
        QpAttr attr;
        attr.send_cq = attr.recv_cq = cq[i].get();
        qp[i] = std::move(*device[i]->create_qp(attr));
        const auto [client, server] = test::loopback_pair();
        connect.congestion = "no-such-control";
        connect.role = i == 0 ? ConnectAttr::Role::initiator : ConnectAttr::Role::responder;
        EXPECT_FALSE(qp[i]->connect(i == 0 ? client : server, connect));
        close(client);
        close(server);
    }
    const auto [client, server] = test::loopback_pair();
    connect.congestion = {};
    ASSERT_TRUE(qp[1]->connect(server, connect));
    connect.role = ConnectAttr::Role::initiator;
    ASSERT_TRUE(qp[0]->connect(client, connect));
    expect_path({std::move(qp[0]), std::move(qp[1])}, DataPath::shm);
}

TEST_P(ConnectionSharedTest, data_before_fin_outlive_the_linger_time_of_their_sender) {
    linger_ms = 100;
    make({.one_device = GetParam()});
    Pair pair = start(/*outlives_peer=*/true);
    expect_path(pair, DataPath::shm);
    auto from = bytes(1000), to = std::vector<std::byte>(from.size());
    ASSERT_TRUE(post_send(*pair.a, from));
    pair.a.reset();
    const Time late = monotonic_now() + kSecond;
    while (monotonic_now() < late) {
        for (int side : {0, 1}) static_cast<void>(cq[side]->poll({}));
    }
    ASSERT_EQ(pair.b->state(), QpState::established);
    ASSERT_TRUE(post_recv(*pair.b, to));
    EXPECT_EQ(wait(1, 1).at(0).status, WcStatus::success);
    EXPECT_EQ(from, to);
    // What it sends now is taken by no one.
    ASSERT_TRUE(post_send(*pair.b, from));
    EXPECT_EQ(wait(1, 1).at(0).status, WcStatus::connection_lost);
    EXPECT_EQ(pair.b->wait_ended(soon()), QpState::error);
    EXPECT_EQ(pair.b->info().error, ECONNRESET);
}

/// Of a byte stream, on which PolledQpAttr::on_exit is set; the peer posts a receive now and then.
TEST_F(ConnectionSharedTest, a_stream_that_has_ended_delivers_beyond_its_linger_time) {
    constexpr std::chrono::milliseconds kLinger{500};
    linger_ms = static_cast<std::uint32_t>(kLinger.count());
    make({.one_device = true});
    PollGroup& group = device[0]->polled().group_of_thread();
    PolledQpAttr attr;
    attr.group = &group;
    attr.qp.linger_ms = linger_ms;
    attr.on_completion = [](void*, const Wc&) {};
    attr.on_exit = [](void*, ExitStep, bool&) { return false; };
    const auto a = device[0]->polled().create_polled_qp(attr);
    QpAttr plain;
    plain.rnr_timeout = kNever;
    plain.send_cq = plain.recv_cq = cq[1].get();
    const auto b = std::move(*device[1]->create_qp(plain));
    const auto [client, server] = test::loopback_pair();
    ConnectAttr connect;
    connect.role = ConnectAttr::Role::responder;
    ASSERT_TRUE(b->connect(server, connect));
    connect.role = ConnectAttr::Role::initiator;
    group.locked([&, fd = client](PollCycle& cycle) { EXPECT_TRUE(a->start(fd, connect, cycle)); });
    ASSERT_EQ(b->wait_started(soon()), QpState::established);
    ASSERT_EQ(b->info().path, DataPath::shm);

    constexpr int kMessages = 30;  // far more than the peer takes within the linger time
    auto from = bytes(200'000), to = std::vector<std::byte>(from.size());
    const Sge sge{from.data(), static_cast<std::uint32_t>(from.size()), kLkeyNone};
    SendWr send;
    send.sges = {&sge, 1};
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(a->post_send(send, /*gather=*/false));
    group.locked([&](PollCycle& cycle) { a->release(cycle); });
    for (int i = 0; i < kMessages; ++i) {
        std::this_thread::sleep_for(kLinger / 10);
        ASSERT_TRUE(post_recv(*b, to));
        ASSERT_EQ(wait(1, 1).at(0).status, WcStatus::success) << i;
        ASSERT_EQ(to, from) << i;
    }
    ASSERT_TRUE(b->shutdown());
    EXPECT_EQ(b->wait_ended(soon()), QpState::closed);
}

TEST_P(ConnectionSharedTest, a_half_closed_peer_ends_in_order_behind_the_linger_time) {
    linger_ms = 100;
    make({.one_device = GetParam()});
    Pair pair = connect();
    pair.a.reset();
    const Time late = monotonic_now() + kSecond;
    while (monotonic_now() < late) {
        for (int side : {0, 1}) static_cast<void>(cq[side]->poll({}));
    }
    EXPECT_EQ(pair.b->state(), QpState::peer_closed);
    ASSERT_TRUE(pair.b->shutdown());
    EXPECT_EQ(pair.b->wait_ended(soon()), QpState::closed);
}

TEST_P(ConnectionSharedTest, many_connections_share_a_link) {
    make({.one_device = GetParam()});
    std::vector<Pair> pairs;
    pairs.push_back(connect());
    const std::size_t sockets = unix_sockets();
    while (pairs.size() < 64) pairs.push_back(connect());
    EXPECT_EQ(unix_sockets(), sockets) << "a link of its own";
    auto from = bytes(3000);
    std::vector<std::vector<std::byte>> to(pairs.size(), std::vector<std::byte>(from.size()));
    for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_TRUE(post_recv(*pairs[i].b, to[i], i));
    for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_TRUE(post_send(*pairs[i].a, from, i));
    wait(0, pairs.size());
    wait(1, pairs.size());
    for (const auto& one : to) EXPECT_EQ(one, from);
}

TEST_P(ConnectionSharedTest, both_ends_send_at_once) {
    make({.one_device = GetParam()});
    const Pair pair = connect();
    constexpr int kMessages = 100;
    auto from = bytes(50'000);
    std::vector<std::vector<std::byte>> to(2 * kMessages, std::vector<std::byte>(from.size()));
    for (int i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(post_recv(*pair.a, to[static_cast<std::size_t>(i)]));
        ASSERT_TRUE(post_recv(*pair.b, to[static_cast<std::size_t>(kMessages + i)]));
    }
    for (int i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(post_send(*pair.a, from));
        ASSERT_TRUE(post_send(*pair.b, from));
    }
    if (GetParam()) {
        std::size_t done = 0;
        const Time end = soon();
        while (done < 4 * kMessages && monotonic_now() < end) {
            std::array<Wc, 8> some;
            done += cq[0]->poll(some) + cq[1]->poll(some);
        }
        EXPECT_EQ(done, 4u * kMessages);
    } else {
        wait(0, 2 * kMessages);
        wait(1, 2 * kMessages);
    }
    for (const auto& one : to) EXPECT_EQ(one, from);
}

// ---- two processes ----------------------------------------------------------

/// A responder in a process of its own, that answers each message by the same.
class Echo {
  public:
    explicit Echo(int fd, int not_its) : pid_(fork()) {
        if (pid_ == 0) {
            close(not_its);
            serve(fd);
            _exit(0);
        }
        close(fd);
    }
    ~Echo() {
        kill(pid_, SIGKILL);
        int status = 0;
        waitpid(pid_, &status, 0);
    }
    Echo(const Echo&) = delete;
    Echo& operator=(const Echo&) = delete;
    void signal(int number) const { EXPECT_EQ(kill(pid_, number), 0); }

  private:
    static void serve(int fd) {
        TransportConfig config;
        config.shm = ShmMode::require;
        config.shm_timeout = kShmTimeout;
        std::unique_ptr<Device> device = std::move(*make_soft_device(config));
        std::unique_ptr<Cq> cq = std::move(*device->create_cq(256, false));
        QpAttr attr;
        attr.rnr_timeout = kNever;
        attr.send_cq = attr.recv_cq = cq.get();
        std::unique_ptr<Qp> qp = std::move(*device->create_qp(attr));
        std::vector<std::vector<std::byte>> all(32, std::vector<std::byte>(100'000));
        const auto receive = [&](std::uint64_t id) {
            const Sge sge{all[id].data(), 100'000, kLkeyNone};
            return qp->post_recv({.wr_id = id, .sges = {&sge, 1}});
        };
        for (std::uint64_t id = 0; id < all.size(); ++id) {
            if (!receive(id)) return;
        }
        ConnectAttr connect;
        connect.role = ConnectAttr::Role::responder;
        if (!qp->connect(fd, connect)) return;
        for (;;) {
            Wc wc;
            if (cq->poll({&wc, 1}) == 0) {
                if (qp->state() == QpState::error || qp->state() == QpState::closed) return;
                continue;
            }
            if (wc.status != WcStatus::success) continue;
            if (wc.opcode != WcOpcode::recv) {
                if (!receive(wc.wr_id)) return;
                continue;
            }
            const Sge sge{all[wc.wr_id].data(), wc.byte_len, kLkeyNone};
            SendWr send;
            send.wr_id = wc.wr_id;
            send.sges = {&sge, 1};
            if (!qp->post_send(send)) return;
        }
    }

    const pid_t pid_;
};

class ConnectionSharedProcessTest : public ::testing::Test {
  protected:
    /// Fork comes before this process has an engine.
    void SetUp() override {
        const auto [client, server] = test::loopback_pair();
        peer = std::make_unique<Echo>(server, client);
        TransportConfig config;
        config.shm = ShmMode::require;
        config.shm_timeout = kShmTimeout;
        config.peer_silence = peer_silence;
        device = std::move(*make_soft_device(config));
        cq = std::move(*device->create_cq(256, false));
        QpAttr attr;
        attr.send_cq = attr.recv_cq = cq.get();
        qp = std::move(*device->create_qp(attr));
        ConnectAttr connect;
        connect.role = ConnectAttr::Role::initiator;
        ASSERT_TRUE(qp->connect(client, connect));
        ASSERT_EQ(qp->wait_started(soon()), QpState::established);
        ASSERT_EQ(qp->info().path, DataPath::shm);
    }
    /// The answer to one message, or nothing in time.
    bool exchange(std::size_t bytes, bool blocks) {
        std::vector<std::byte> from(bytes, std::byte{7}), to(bytes);
        const Sge send_sge{from.data(), static_cast<std::uint32_t>(bytes), kLkeyNone};
        const Sge recv_sge{to.data(), static_cast<std::uint32_t>(bytes), kLkeyNone};
        EXPECT_TRUE(qp->post_recv({.wr_id = 1, .sges = {&recv_sge, 1}}));
        SendWr send;
        send.sges = {&send_sge, 1};
        if (!qp->post_send(send)) return false;
        std::size_t done = 0;
        const Time end = soon();
        while (done < 2 && monotonic_now() < end) {
            Wc wc;
            if (blocks) static_cast<void>(cq->wait_until(cq->enough(1), end));
            const std::size_t n = cq->poll({&wc, 1});
            if (n != 0 && wc.status != WcStatus::success) return false;
            done += n;
        }
        return done == 2 && from == to;
    }

    Time peer_silence = kNever;
    std::unique_ptr<Echo> peer;
    std::unique_ptr<Device> device;
    std::unique_ptr<Cq> cq;
    std::unique_ptr<Qp> qp;
};

TEST_F(ConnectionSharedProcessTest, messages_go_there_and_back) {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(exchange(i % 3 == 0 ? 64 : 60'000, false));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(exchange(i % 3 == 0 ? 64 : 60'000, true));
}

TEST_F(ConnectionSharedProcessTest, ends_when_the_peer_is_killed) {
    ASSERT_TRUE(exchange(64, false));
    peer->signal(SIGKILL);
    const Time end = soon();
    while (qp->state() == QpState::established && monotonic_now() < end) {
        static_cast<void>(cq->poll({}));
    }
    EXPECT_TRUE(qp->state() == QpState::peer_closed || qp->state() == QpState::error);
}

TEST_F(ConnectionSharedProcessTest, what_waits_for_credit_fails_when_the_peer_is_killed) {
    peer->signal(SIGSTOP);
    std::vector<std::byte> from(100'000);
    for (int i = 0; i < 40; ++i) {
        const Sge sge{from.data(), static_cast<std::uint32_t>(from.size()), kLkeyNone};
        SendWr send;
        send.sges = {&sge, 1};
        ASSERT_TRUE(qp->post_send(send));
    }
    peer->signal(SIGKILL);
    EXPECT_EQ(qp->wait_ended(soon()), QpState::error);
    std::array<Wc, 64> all;
    ASSERT_EQ(cq->poll(all), 40u);
    // The link takes what there is credit for, 64 KiB and more; not the last.
    EXPECT_NE(all[39].status, WcStatus::success);
}

class ConnectionSharedSilentProcessTest : public ConnectionSharedProcessTest {
  protected:
    void SetUp() override {
        peer_silence = 100 * kMillisecond;
        ConnectionSharedProcessTest::SetUp();
    }
};

TEST_F(ConnectionSharedSilentProcessTest, waits_for_a_peer_that_is_stopped) {
    ASSERT_TRUE(exchange(64, false));
    peer->signal(SIGSTOP);
    std::thread waker([&] {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        EXPECT_EQ(qp->state(), QpState::established);
        peer->signal(SIGCONT);
    });
    EXPECT_TRUE(exchange(64, false));
    waker.join();
}

INSTANTIATE_TEST_SUITE_P(devices, ConnectionSharedTest, ::testing::Values(false, true),
                         [](const auto& p) { return p.param ? "one" : "two"; });

}  // namespace
}  // namespace xsock
