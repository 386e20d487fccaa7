// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the device seam offers to a verbs API beyond the C library's needs.
#include "transport/soft_device.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/polled_qp.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"
#include "tests/unit/transport/soon.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/progress.hpp"
#include "transport/soft_cq.hpp"

namespace xsock {
namespace {

using test::soon;

// Two QPs of one device, connected over loopback.
class SoftDeviceTest : public ::testing::Test {
  protected:
    void SetUp() override { connect_both({}); }
    void connect_both(const TransportConfig& config) {
        auto made = make_soft_device(config);
        ASSERT_TRUE(made);
        device = std::move(*made);
        cq = std::move(*device->create_cq(64, false));
        const auto [client, server] = test::loopback_pair();
        QpAttr attr;
        attr.send_cq = attr.recv_cq = cq.get();
        attr.rnr_timeout = kNever;
        for (auto* qp : {&a, &b}) *qp = std::move(*device->create_qp(attr));
        ConnectAttr connect;
        connect.role = ConnectAttr::Role::responder;
        ASSERT_TRUE(b->connect(server, connect));
        connect.role = ConnectAttr::Role::initiator;
        ASSERT_TRUE(a->connect(client, connect));
        ASSERT_EQ(a->wait_started(soon()), QpState::established);
        ASSERT_EQ(b->wait_started(soon()), QpState::established);
    }
    std::vector<Wc> poll_all() {
        std::vector<Wc> all;
        std::array<Wc, 8> some;
        while (const std::size_t n = cq->poll(some)) all.insert(all.end(), &some[0], &some[0] + n);
        return all;
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<Cq> cq;
    std::unique_ptr<Qp> a, b;
    std::array<std::byte, 4096> memory{};
};

TEST_F(SoftDeviceTest, a_detached_qp_completes_nothing_more) {
    const Sge sge{memory.data(), 100, kLkeyNone};
    ASSERT_TRUE(b->post_recv({.wr_id = 7, .sges = {&sge, 1}}));
    b->detach();
    cq->purge(b->num());
    b.reset();
    ASSERT_TRUE(a->shutdown());
    EXPECT_EQ(a->wait_ended(soon()), QpState::closed);
    EXPECT_TRUE(poll_all().empty());
}

TEST_F(SoftDeviceTest, completions_are_there_before_the_state_that_follows_them) {
    const Sge sge{memory.data(), 100, kLkeyNone};
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(a->post_recv({.wr_id = id, .sges = {&sge, 1}}));
    }
    struct Seen {
        Qp& qp;
        int times = 0;
        QpState state = QpState::fresh;
    } seen{*a};
    cq->set_notifier(
        [](void* argument) {
            auto& s = *static_cast<Seen*>(argument);
            s.state = s.qp.state();
            ++s.times;
        },
        &seen);
    cq->arm(/*solicited_only=*/false);
    a->abort();
    EXPECT_EQ(seen.times, 1);
    EXPECT_EQ(seen.state, QpState::established);
    EXPECT_EQ(a->state(), QpState::error);
    EXPECT_EQ(poll_all().size(), 3u);
    cq->set_notifier(nullptr, nullptr);
}

TEST_F(SoftDeviceTest, detaching_with_work_outstanding_resets_the_connection) {
    // The peer does not receive: the Send stays with us, or with TCP, without a receive at the
    // other end.
    const Sge sge{memory.data(), 4096, kLkeyNone};
    SendWr read;
    read.opcode = SendOpcode::read;
    read.remote_stag = 1;
    read.sges = {&sge, 1};
    SendWr send;
    send.sges = {&sge, 1};
    ASSERT_TRUE(a->post_send(send));  // holds up the Read behind it at the peer
    ASSERT_TRUE(a->post_send(read));
    a->detach();
    cq->purge(a->num());
    const std::uint32_t num = a->num();
    a.reset();
    EXPECT_EQ(b->wait_ended(soon()), QpState::error);
    for (const Wc& wc : poll_all()) EXPECT_NE(wc.qp_num, num);
}

std::set<int> descriptor_numbers() {
    std::set<int> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(entry.path().filename());
        if (fcntl(fd, F_GETFD) >= 0) all.insert(fd);
    }
    return all;
}

// A program that closes every descriptor but its own must not close these and get their numbers.
TEST_F(SoftDeviceTest, owns_the_descriptors_that_it_opens) {
    test::LoopbackListener from;
    QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    const std::set<int> before = descriptor_numbers();
    auto listener = device->listen(dup(from.fd()), attr, {});
    ASSERT_TRUE(listener);
    ASSERT_TRUE((*listener)->fd());
    ASSERT_TRUE(device->event_fd());
    std::set<int> opened = descriptor_numbers();
    for (const int fd : before) opened.erase(fd);
    EXPECT_GE(opened.size(), 4u);
    for (const int fd : opened) EXPECT_FALSE(is_program_fd(fd)) << fd;
    listener->reset();
    for (const int fd : opened) {
        if (fcntl(fd, F_GETFD) < 0) {
            EXPECT_FALSE(is_internal_fd(fd)) << fd;
        }
    }
}

TEST(SrqCore, forgets_rnr_waiters_that_went) {
    SrqCore core(8, nullptr);
    for (int i = 0; i < 10000; ++i) core.add_rnr_waiter({});
    EXPECT_LE(core.take_rnr_waiters().size(), 64u);
}

TEST_F(SoftDeviceTest, an_api_may_add_completions_and_wait_for_them) {
    EXPECT_FALSE(cq->wait_until(cq->enough(1), monotonic_now() + kMillisecond));
    Wc wc;
    wc.wr_id = 99;
    cq->push(wc);
    EXPECT_TRUE(cq->wait_until(cq->enough(1), soon()));
    const auto all = poll_all();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].wr_id, 99u);
}

// Two QPs whose Sends complete once the other has them; each has a queue of its own.
class AcknowledgedTest : public ::testing::Test {
  protected:
    struct End {
        std::unique_ptr<Cq> cq;
        std::unique_ptr<Qp> qp;
    };
    void SetUp() override {
        auto made = make_soft_device({});
        ASSERT_TRUE(made);
        device = std::move(*made);
        for (End* const end : {&a, &b}) {
            end->cq = std::move(*device->create_cq(64, false));
            QpAttr attr;
            attr.send_cq = attr.recv_cq = end->cq.get();
            end->qp = std::move(*device->create_qp(attr));
        }
        const auto [client, server] = test::loopback_pair();
        ConnectAttr connect;
        connect.acknowledged = true;
        connect.role = ConnectAttr::Role::responder;
        ASSERT_TRUE(b.qp->connect(server, connect));
        connect.role = ConnectAttr::Role::initiator;
        ASSERT_TRUE(a.qp->connect(client, connect));
        ASSERT_EQ(a.qp->wait_started(soon()), QpState::established);
        ASSERT_EQ(b.qp->wait_started(soon()), QpState::established);
    }

    std::unique_ptr<Device> device;
    End a, b;
    std::array<std::byte, 64> memory{};
};

TEST_F(AcknowledgedTest, the_peer_is_told_though_the_program_polls_no_more) {
    const Sge sge{memory.data(), 64, kLkeyNone};
    std::atomic<int> told{0};
    a.cq->set_notifier([](void* times) { ++*static_cast<std::atomic<int>*>(times); }, &told);
    for (int round = 1; round <= 20; ++round) {
        usleep(20'000);  // the background thread watches, without a clock
        ASSERT_TRUE(b.qp->post_recv({.wr_id = 1, .sges = {&sge, 1}}));
        SendWr send;
        send.sges = {&sge, 1};
        send.flags = kSendSignaled;
        a.cq->arm(/*solicited_only=*/false);
        ASSERT_TRUE(a.qp->post_send(send));
        Wc wc;
        const Time limit = soon();
        std::size_t came = 0;
        while (came == 0 && monotonic_now() < limit) came = b.cq->poll({&wc, 1});
        ASSERT_EQ(came, 1u);
        while (told != round && monotonic_now() < limit) usleep(200);
        ASSERT_EQ(told, round);
        ASSERT_EQ(a.cq->poll({&wc, 1}), 1u);
    }
    a.cq->set_notifier(nullptr, nullptr);
}

TEST_F(SoftDeviceTest, an_srq_below_its_limit_is_an_event) {
    ASSERT_TRUE(device->event_fd());
    auto srq = std::move(*device->create_srq(8, 42));
    QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    attr.srq = srq.get();
    auto receiver = std::move(*device->create_qp(attr));
    attr.srq = nullptr;
    auto sender = std::move(*device->create_qp(attr));
    const auto [client, server] = test::loopback_pair();
    ConnectAttr connect;
    connect.role = ConnectAttr::Role::responder;
    ASSERT_TRUE(receiver->connect(server, connect));
    connect.role = ConnectAttr::Role::initiator;
    ASSERT_TRUE(sender->connect(client, connect));
    const Sge sge{memory.data(), 100, kLkeyNone};
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(srq->post_recv({.sges = {&sge, 1}}));
    srq->arm_limit(2);
    ASSERT_TRUE(sender->post_send({.sges = {&sge, 1}}));
    bool seen = false;
    EXPECT_TRUE(cq->wait_until(
        [&] {
            AsyncEvent event;
            while (device->next_event(event)) {
                seen = seen || (event.kind == AsyncEventKind::srq_limit && event.context == 42);
            }
            return seen;
        },
        soon()));
}

// A program that sleeps in its own poll(), though it polled until then.
TEST_F(SoftDeviceTest, a_program_that_has_handed_over_is_told) {
    const Sge sge{memory.data(), 100, kLkeyNone};
    ASSERT_TRUE(b->post_recv({.wr_id = 1, .sges = {&sge, 1}}));
    for (int i = 0; i < 100; ++i) poll_all();
    std::atomic<int> told{0};
    cq->set_notifier([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &told);
    cq->arm(false);
    cq->hand_over();
    ASSERT_TRUE(a->post_send({.flags = 0, .sges = {&sge, 1}}));
    const Time limit = soon();
    while (told == 0 && monotonic_now() < limit) usleep(1000);
    EXPECT_EQ(told, 1);
    cq->set_notifier(nullptr, nullptr);
}

// As at exit() in a signal handler that runs in the middle of a poll cycle.
TEST_F(SoftDeviceTest, draining_in_the_middle_of_a_cycle_waits_for_nothing) {
    device->polled().group_of_thread().locked([&](PollCycle&) {
        const Time begin = monotonic_now();
        drain_soft_device(*device, 20 * kSecond);
        flush_soft_device(*device, 20 * kSecond);
        EXPECT_LT(monotonic_now() - begin, 10 * kSecond);
    });
    EXPECT_EQ(a->state(), QpState::established);
    drain_soft_device(*device, kSecond);
    EXPECT_NE(a->state(), QpState::established);
}

// Only callers poll here.
class SoftDeviceExit : public SoftDeviceTest {
  protected:
    void SetUp() override {
        TransportConfig config;
        config.progress = ProgressMode::app;
        connect_both(config);
    }
};

// exit() may have interrupted a call of its thread that holds the lock of a queue.
TEST_F(SoftDeviceExit, completes_nothing_that_is_left_when_its_time_is_over) {
    std::vector<std::byte> large(32 << 20);
    const Sge sge{large.data(), static_cast<std::uint32_t>(large.size()), kLkeyNone};
    ASSERT_TRUE(a->post_send({.wr_id = 1, .sges = {&sge, 1}}));  // the peer has no receive for it
    ASSERT_TRUE(b->shutdown());
    const Time limit = soon();
    while (a->state() != QpState::peer_closed && monotonic_now() < limit) (void)poll_all();
    ASSERT_EQ(a->state(), QpState::peer_closed);
    int told = 0;
    cq->set_notifier([](void* count) { ++*static_cast<int*>(count); }, &told);
    cq->arm(/*solicited_only=*/false);
    drain_soft_device(*device, 20 * kMillisecond);
    EXPECT_EQ(told, 0);
    cq->set_notifier(nullptr, nullptr);
    std::vector<Wc> all;
    while (all.empty() && monotonic_now() < limit) all = poll_all();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].status, WcStatus::flushed);
}

TEST(SoftDeviceGroups, a_thread_has_one_and_the_next_thread_another) {
    TransportConfig config;
    config.threads = 2;
    const auto device = std::move(*make_soft_device(config));
    const auto groups = [&] {
        PolledDevice& polled = device->polled();
        return std::pair(&polled.group_of_thread(), &polled.group_of_thread());
    };
    std::pair<PollGroup*, PollGroup*> of[2];
    std::thread([&] { of[0] = groups(); }).join();
    std::thread([&] { of[1] = groups(); }).join();
    EXPECT_EQ(of[0].first, of[0].second);
    EXPECT_EQ(of[1].first, of[1].second);
    EXPECT_NE(of[0].first, of[1].first);
}

// Each of `count` threads, one behind the other.
std::set<PollGroup*> groups_of_threads(Device& device, int count) {
    std::set<PollGroup*> groups;
    for (int i = 0; i < count; ++i) {
        std::thread([&] { groups.insert(&device.polled().group_of_thread()); }).join();
    }
    return groups;
}

TEST(SoftDeviceGroups, sockets_have_more_than_the_queues) {
    TransportConfig config;
    config.socket_groups = 3;
    const auto device = std::move(*make_soft_device(config));
    EXPECT_EQ(groups_of_threads(*device, 6).size(), 3u);
}

TEST(SoftDeviceGroups, a_thread_in_a_poll_cycle_stays_in_it) {
    TransportConfig config;
    config.socket_groups = 3;
    const auto device = std::move(*make_soft_device(config));
    PollGroup& group = device->polled().group_of_thread();
    PollGroup* inside = nullptr;
    std::thread([&] {
        group.locked([&](PollCycle&) { inside = &device->polled().group_of_thread(); });
    }).join();
    EXPECT_EQ(inside, &group);
}

TEST(SoftDeviceGroups, without_descriptors_for_another_one_the_first_is_shared) {
#ifdef XSOCK_TEST_ASAN
    GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors to check a pointer";
#endif
    TransportConfig config;
    config.socket_groups = 2;
    const auto device = std::move(*make_soft_device(config));
    std::optional<test::ResourceLimit> none(std::in_place, RLIMIT_NOFILE, 0);
    const std::size_t without = groups_of_threads(*device, 2).size();
    none.reset();
    EXPECT_EQ(without, 1u);
    EXPECT_EQ(groups_of_threads(*device, 2).size(), 2u);  // and is made when there are
}

}  // namespace
}  // namespace xsock
