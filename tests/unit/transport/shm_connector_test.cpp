// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_connector.hpp"

#include <sys/socket.h>

#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"
#include "tests/unit/transport/failing_allocations.hpp"
#include "tests/unit/transport/shm_peer.hpp"
#include "transport/shm_listener.hpp"

namespace xsock {
namespace {

using shm::HelloError;
using shm::Reason;
using test::open_descriptors;

class ShmConnectorTest : public test::ShmTest,
                         public ShmConnector::Owner,
                         public ShmListener::Owner {
  protected:
    void TearDown() override {
        if (listening >= 0) close_internal_fd(listening);
        end_links();
    }
    void on_made(ShmConnector&, MadeLink&& link, PollCycle&) noexcept override {
        ++calls;
        made.emplace(std::move(link));
    }
    void on_failed(ShmConnector&, Reason reason, PollCycle&) noexcept override {
        ++calls;
        why = reason;
    }
    void on_hello(MadeLink&& link, PollCycle&) noexcept override {
        accepted.emplace(std::move(link));
        static_cast<void>(shm_socket::send(accepted->socket, ok));  // unless it has given up
    }
    void end_links() {
        for (auto* const link : {&made, &accepted}) {
            if (link->has_value()) close_internal_fd((*link)->socket);
            link->reset();
        }
    }
    /// What start() says.
    Reason start() {
        const auto connector = std::make_shared<ShmConnector>(*progress, key, own, *this);
        id = connector->link();
        return progress->locked(
            [&](PollCycle& cycle) { return connector->start(users, timeout, cycle); });
    }
    /// The peer's socket, behind a start(). It has read the hello.
    int meet() {
        if (listening < 0) listening = *shm_socket::listen_at(key);
        EXPECT_EQ(start(), Reason::none);
        const int fd = *shm_socket::accept_from(listening);
        std::array<std::byte, 64> bytes;
        auto received = shm_socket::receive(fd, bytes);
        EXPECT_TRUE(received);
        hello = shm::decode_hello(ConstBytes(bytes).first(received->bytes),
                                  static_cast<std::uint32_t>(page_size()));
        auto mapped = ShmMemory::map(received->descriptor, hello.hello.layout);
        EXPECT_TRUE(mapped);
        memory.emplace(std::move(*mapped));
        close_internal_fd(received->descriptor);
        return fd;
    }
    /// How it ends when the peer says this.
    Reason end_after(ConstBytes answer, int descriptor = -1) {
        calls = 0;
        const int fd = meet();
        EXPECT_TRUE(shm_socket::send(fd, answer, descriptor));
        EXPECT_TRUE(wait([&] { return calls != 0; }));
        close_internal_fd(fd);
        EXPECT_EQ(calls, 1);
        return why;
    }

    const shm::Key key = test::random_key(), own = test::random_key();
    const std::vector<std::byte> ok = shm::encode_answer(HelloError::none);
    std::vector<uid_t> users;
    Time timeout = test::kLong;
    int listening = -1;
    std::uint64_t id = 0;
    shm::HelloResult hello;
    std::optional<ShmMemory> memory;
    std::optional<MadeLink> made, accepted;
    Reason why = Reason::none;
    int calls = 0;
};

TEST_F(ShmConnectorTest, makes_a_link) {
    const int fd = meet();
    EXPECT_EQ(hello.error, HelloError::none);
    EXPECT_EQ(hello.hello.link, id);
    EXPECT_EQ(hello.hello.creator, own);
    ASSERT_TRUE(shm_socket::send(fd, ok));
    ASSERT_TRUE(wait([&] { return calls != 0; }));
    ASSERT_TRUE(made);
    EXPECT_EQ(made->id, id);
    EXPECT_EQ(made->peer, key);
    EXPECT_EQ(made->side, shm::Side::creator);
    EXPECT_EQ(made->layout, hello.hello.layout);
    made->memory.bytes()[3] = std::byte{8};
    EXPECT_EQ(memory->bytes()[3], std::byte{8});
    EXPECT_EQ(progress->size(), 0u);
    ASSERT_TRUE(shm_socket::send(made->socket, ok));  // it is connected
    std::array<std::byte, 64> bytes;
    EXPECT_EQ(shm_socket::receive(fd, bytes).value().bytes, ok.size());
    close_internal_fd(fd);
}

TEST_F(ShmConnectorTest, ids_differ) {
    const ShmConnector a(*progress, key, own, *this), b(*progress, key, own, *this);
    EXPECT_NE(a.link(), b.link());
}

TEST_F(ShmConnectorTest, says_that_nothing_listens) {
    const std::size_t before = open_descriptors();
    EXPECT_EQ(start(), Reason::unreachable);
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ShmConnectorTest, says_why_the_peer_refuses) {
    EXPECT_EQ(end_after(shm::encode_answer(HelloError::version)), Reason::version);
    EXPECT_EQ(end_after(shm::encode_answer(HelloError::memory)), Reason::version);
    EXPECT_EQ(end_after(shm::encode_answer(HelloError::limits)), Reason::limits);
    EXPECT_EQ(progress->size(), 0u);
    EXPECT_FALSE(made);
}

TEST_F(ShmConnectorTest, an_answer_that_makes_no_sense_is_of_another_version) {
    const std::size_t before = (static_cast<void>(end_after(ok)), end_links(), open_descriptors());
    EXPECT_EQ(end_after(ConstBytes(ok).first(ok.size() - 1)), Reason::version);
    auto longer = ok;
    longer.resize(100);
    EXPECT_EQ(end_after(longer), Reason::version);
    auto other = ok;
    other.back() = std::byte{99};
    EXPECT_EQ(end_after(other, 0), Reason::version);
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ShmConnectorTest, a_descriptor_beside_the_answer_is_closed) {
    const std::size_t before = open_descriptors();
    static_cast<void>(end_after(ok, 0));
    EXPECT_TRUE(made);
    end_links();
    EXPECT_EQ(open_descriptors(), before + 1);  // the listener
}

TEST_F(ShmConnectorTest, a_peer_that_closes_has_refused_the_user) {
    const int fd = meet();
    close_internal_fd(fd);
    ASSERT_TRUE(wait([&] { return calls != 0; }));
    EXPECT_EQ(why, Reason::user);
    EXPECT_EQ(calls, 1);
}

TEST_F(ShmConnectorTest, a_peer_that_says_nothing_is_not_waited_for) {
    timeout = 50 * kMillisecond;
    const Time begin = monotonic_now();
    const int fd = meet();
    ASSERT_TRUE(wait([&] { return calls != 0; }));
    EXPECT_EQ(why, Reason::timeout);
    EXPECT_GE(monotonic_now() - begin, timeout);
    EXPECT_EQ(progress->size(), 0u);
    EXPECT_TRUE(shm_socket::send(fd, ok).error().code == EPIPE);
    close_internal_fd(fd);
}

TEST_F(ShmConnectorTest, a_full_queue_of_connections_is_a_limit) {
    listening = *shm_socket::listen_at(key);
    ASSERT_EQ(::listen(listening, 0), 0);
    const auto first = shm_socket::connect_to(key);
    ASSERT_TRUE(first);
    EXPECT_EQ(start(), Reason::limits);
    close_internal_fd(first.value());
}

TEST_F(ShmConnectorTest, another_user_who_listens_is_told_nothing) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(seteuid(test::kOtherUser), 0);
    listening = *shm_socket::listen_at(key);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_EQ(start(), Reason::user);
    const int fd = *shm_socket::accept_from(listening);
    std::array<std::byte, 64> bytes;
    EXPECT_EQ(shm_socket::receive(fd, bytes).value().bytes, 0u);
    close_internal_fd(fd);
    users = {test::kOtherUser};
    const int permitted = meet();
    close_internal_fd(permitted);
}

TEST_F(ShmConnectorTest, one_that_is_given_up_leaves_nothing) {
    listening = *shm_socket::listen_at(key);
    const std::size_t before = open_descriptors();
    EXPECT_EQ(start(), Reason::none);
    progress.reset();
    EXPECT_EQ(open_descriptors(), before - 4);  // those of the Progress too
}

// ---- with a listener, when something runs out --------------------------------

class ShmHandshakeTest : public ShmConnectorTest {
  protected:
    void SetUp() override {
        ShmConnectorTest::SetUp();
        auto created = ShmListener::create(*progress, key, users, timeout, *this);
        ASSERT_TRUE(created);
        listener = *created;
    }
    void TearDown() override {
        listener->close();
        ShmConnectorTest::TearDown();
    }
    /// Polls until the connector has an end. Its owner is called once, or start() has said why.
    void shake_hands() {
        calls = 0;
        try {
            const Reason refused = start();
            if (refused != Reason::none) return;
        } catch (const std::bad_alloc&) {
            return;
        }
        for (int i = 0; i < 50 && calls == 0; ++i) progress->poll_thoroughly();
    }
    /// A connector that failed may have been heard.
    void end_all() {
        progress->poll_thoroughly();
        end_links();
    }

    std::shared_ptr<ShmListener> listener;
};

TEST_F(ShmHandshakeTest, both_ends_may_share_a_progress_object) {
    shake_hands();
    ASSERT_TRUE(made);
    ASSERT_TRUE(accepted);
    EXPECT_EQ(made->id, accepted->id);
    EXPECT_EQ(accepted->peer, own);
    made->memory.bytes()[0] = std::byte{4};
    EXPECT_EQ(accepted->memory.bytes()[0], std::byte{4});
}

TEST_F(ShmHandshakeTest, memory_that_runs_out_costs_a_link_and_nothing_else) {
#if defined(XSOCK_TEST_ASAN)
    GTEST_SKIP() << "AddressSanitizer wants the allocator for itself: no allocation fails";
#endif
    const std::size_t before = open_descriptors();
    for (const bool all : {false, true}) {
        bool more = true;
        for (int at = 0; more; ++at) {
            {
                const test::FailAllocation fail(at, all);
                shake_hands();
                more = fail.happened();
            }
            EXPECT_LE(calls, 1);
            EXPECT_TRUE(more || made) << at << all;
            end_all();
            ASSERT_TRUE(wait([&] { return progress->size() == 1; })) << at << all;
            EXPECT_EQ(open_descriptors(), before) << at << all;
            ASSERT_LT(at, 100);
        }
    }
}

TEST_F(ShmHandshakeTest, descriptors_that_run_out_cost_a_link_and_nothing_else) {
#if defined(XSOCK_TEST_ASAN)
    GTEST_SKIP() << "the sanitizer needs descriptors for its own checks";
#endif
    const std::size_t before = open_descriptors();
    bool more = true;
    for (int spare = 0; more; ++spare) {
        {
            const test::DescriptorLimit limit(spare);
            shake_hands();
            more = !made;
        }
        EXPECT_LE(calls, 1);
        end_all();
        ASSERT_TRUE(wait([&] { return progress->size() == 1; })) << spare;
        EXPECT_EQ(open_descriptors(), before) << spare;
        ASSERT_LT(spare, 20);
    }
}

TEST_F(ShmHandshakeTest, address_space_that_runs_out_costs_a_link_and_nothing_else) {
#if defined(XSOCK_TEST_ASAN) || defined(XSOCK_TEST_TSAN)
    GTEST_SKIP() << "the sanitizer's memory is beyond any limit";
#endif
    const std::size_t before = open_descriptors();
    std::optional<test::ResourceLimit> none(std::in_place, RLIMIT_AS, 1 << 20);
    const Reason refused = start();
    none.reset();
    EXPECT_EQ(refused, Reason::limits);
    ASSERT_TRUE(wait([&] { return progress->size() == 1; }));
    EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace xsock
