// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_listener.hpp"

#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/unit/sanitizers.hpp"
#include "tests/unit/transport/failing_allocations.hpp"
#include "tests/unit/transport/shm_peer.hpp"

namespace xsock {
namespace {

using shm::HelloError;
using test::open_descriptors;

class ShmListenerTest : public test::ShmTest, public ShmListener::Owner {
  protected:
    void SetUp() override {
        test::ShmTest::SetUp();
        listen();
    }
    void TearDown() override {
        if (listener != nullptr) listener->close();
        end_links();
    }
    void listen(Time timeout = test::kLong) {
        auto made = ShmListener::create(*progress, key, users, timeout, *this);
        ASSERT_TRUE(made);
        listener = *made;
    }
    void on_hello(MadeLink&& made, PollCycle&) noexcept override {
        const int fd = made.socket;
        try {
            links.push_back(std::make_unique<MadeLink>(std::move(made)));
        } catch (const std::bad_alloc&) {
            return close_internal_fd(fd);
        }
        EXPECT_TRUE(shm_socket::send(fd, ok));
    }
    void end_links() {
        for (const auto& link : links) close_internal_fd(link->socket);
        links.clear();
    }
    /// The peer's.
    int dial() const {
        auto fd = shm_socket::connect_to(key);
        EXPECT_TRUE(fd);
        return *fd;
    }
    [[nodiscard]] shm::Hello hello() const {
        return {.link = 77,
                .creator = creator,
                .page_bytes = static_cast<std::uint32_t>(page_size()),
                .layout = {}};
    }
    /// What is said to these bytes, with this descriptor.
    std::optional<HelloError> answer_to(ConstBytes datagram, int descriptor) {
        const int fd = dial();
        EXPECT_TRUE(shm_socket::send(fd, datagram, descriptor));
        const auto answer = answer_at(fd);
        if (answer && *answer != HelloError::none) {
            EXPECT_EQ(answer_at(fd), std::nullopt);  // it is closed behind that
        }
        close_internal_fd(fd);
        return answer;
    }
    std::optional<HelloError> answer_to_memory(int descriptor) {
        return answer_to(shm::encode(hello()), descriptor);
    }
    static int right_memory() {
        auto fd = make_shm_memfd({});
        EXPECT_TRUE(fd);
        return *fd;
    }

    const shm::Key key = test::random_key(), creator = test::random_key();
    const std::vector<std::byte> ok = shm::encode_answer(HelloError::none);
    std::vector<uid_t> users;
    std::shared_ptr<ShmListener> listener;
    std::vector<std::unique_ptr<MadeLink>> links;
};

TEST_F(ShmListenerTest, takes_a_link) {
    const int memory = right_memory();
    auto ours = ShmMemory::map(memory, {});
    EXPECT_EQ(answer_to_memory(memory), HelloError::none);
    ASSERT_EQ(links.size(), 1u);
    const MadeLink& link = *links[0];
    EXPECT_EQ(link.id, 77u);
    EXPECT_EQ(link.peer, creator);
    EXPECT_EQ(link.side, shm::Side::acceptor);
    EXPECT_EQ(link.layout, shm::Layout{});
    ours->bytes()[5] = std::byte{9};
    EXPECT_EQ(link.memory.bytes()[5], std::byte{9});
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, waits_for_a_hello_that_comes_later) {
    const int fd = dial();
    ASSERT_TRUE(wait([&] { return progress->size() == 2; }));
    const int memory = right_memory();
    ASSERT_TRUE(shm_socket::send(fd, shm::encode(hello()), memory));
    EXPECT_EQ(answer_at(fd), HelloError::none);
    EXPECT_EQ(progress->size(), 1u);
    close_internal_fd(memory);
    close_internal_fd(fd);
}

TEST_F(ShmListenerTest, refuses_hellos_that_it_does_not_know) {
    const int memory = right_memory();
    const std::size_t before = open_descriptors();
    const auto good = shm::encode(hello());
    for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
        EXPECT_EQ(answer_to(ConstBytes(good).first(bytes), memory), HelloError::version) << bytes;
    }
    for (const std::size_t bytes : {good.size() + 1, good.size() + 100}) {
        auto longer = good;
        longer.resize(bytes);
        EXPECT_EQ(answer_to(longer, memory), HelloError::version) << bytes;
    }
    auto other = hello();
    other.page_bytes *= 2;
    EXPECT_EQ(answer_to(shm::encode(other), memory), HelloError::version);
    other = hello();
    other.layout.slots = 0xffffffff;
    EXPECT_EQ(answer_to(shm::encode(other), memory), HelloError::version);
    EXPECT_EQ(answer_to(shm::encode_answer(HelloError::none), memory), HelloError::version);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_TRUE(links.empty());
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, refuses_memory_that_is_not_as_it_must_be) {
    const int memory = right_memory();
    const std::size_t before = open_descriptors();
    EXPECT_EQ(answer_to_memory(-1), HelloError::memory);
    EXPECT_EQ(answer_to_memory(0), HelloError::memory);
    const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(answer_to_memory(unsealed), HelloError::memory);
    ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(shm::Layout{}.bytes())), 0);
    EXPECT_EQ(answer_to_memory(unsealed), HelloError::memory);
    close(unsealed);
    auto other = make_shm_memfd({.ring_bytes = 65536, .slots = 64});
    EXPECT_EQ(answer_to_memory(*other), HelloError::memory);
    close_internal_fd(*other);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(answer_to_memory(memory), HelloError::none);
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, a_peer_that_says_nothing_or_leaves_is_closed) {
    constexpr Time kTimeout = 50 * kMillisecond;
    listener->close();
    listen(kTimeout);
    const std::size_t before = open_descriptors();
    const int silent = dial();
    const Time begin = monotonic_now();
    EXPECT_EQ(answer_at(silent), std::nullopt);
    EXPECT_GE(monotonic_now() - begin, kTimeout);
    close_internal_fd(silent);
    const int empty = dial();
    EXPECT_TRUE(shm_socket::send(empty, {}));
    EXPECT_EQ(answer_at(empty), std::nullopt);
    close_internal_fd(empty);
    close_internal_fd(dial());
    EXPECT_TRUE(wait([&] { return progress->size() == 1; }));
    EXPECT_EQ(open_descriptors(), before);
}

// What comes behind a hello is the link's.
TEST_F(ShmListenerTest, reads_one_hello) {
    const int memory = right_memory();
    const int fd = dial();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(shm_socket::send(fd, shm::encode(hello()), memory));
    }
    EXPECT_EQ(answer_at(fd), HelloError::none);
    ASSERT_EQ(links.size(), 1u);
    std::array<std::byte, 64> bytes;
    for (int i = 0; i < 2; ++i) {
        const auto more = shm_socket::receive(links.at(0)->socket, bytes);
        ASSERT_TRUE(more);
        EXPECT_EQ(more.value().bytes, shm::encode(hello()).size());
        close_internal_fd(more.value().descriptor);
    }
    close_internal_fd(fd);
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, of_too_many_that_say_nothing_the_oldest_are_closed) {
    constexpr std::size_t kMore = 6;
    std::vector<int> fds;
    for (std::size_t i = 0; i < ShmListener::kMostUnfinished + kMore; ++i) fds.push_back(dial());
    for (std::size_t i = 0; i < kMore; ++i) EXPECT_EQ(answer_at(fds[i]), std::nullopt);
    EXPECT_EQ(progress->size(), 1 + ShmListener::kMostUnfinished) << "the younger ones stay";
    const int memory = right_memory();
    EXPECT_EQ(answer_to_memory(memory), HelloError::none);
    close_internal_fd(memory);
    for (const int fd : fds) close_internal_fd(fd);
}

TEST_F(ShmListenerTest, serves_many_that_come_at_once) {
    constexpr int kPeers = 300;
    const int memory = right_memory();
    std::vector<int> fds;
    for (int i = 0; i < kPeers; ++i) {
        fds.push_back(dial());
        ASSERT_TRUE(shm_socket::send(fds.back(), shm::encode(hello()), memory));
    }
    for (const int fd : fds) EXPECT_EQ(answer_at(fd), HelloError::none);
    EXPECT_EQ(links.size(), static_cast<std::size_t>(kPeers));
    for (const int fd : fds) close_internal_fd(fd);
    close_internal_fd(memory);
}

// Sends a hello, and answers: 0, it was taken; 1, closed without an answer.
int say_hello(const shm::Key& key, const std::vector<std::byte>& hello, int memory) {
    const auto fd = shm_socket::connect_to(key);
    if (!fd) return 10;
    static_cast<void>(shm_socket::send(fd.value(), hello, memory));
    std::array<std::byte, 64> bytes;
    pollfd p{fd.value(), POLLIN, 0};
    if (::poll(&p, 1, static_cast<int>(test::kLong / kMillisecond)) != 1) return 11;
    const auto received = shm_socket::receive(fd.value(), bytes);
    return received && received.value().bytes == 8 ? 0 : 1;
}

TEST_F(ShmListenerTest, other_users_are_closed_without_an_answer) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    const int memory = right_memory();
    const auto datagram = shm::encode(hello());
    const auto from_child = [&](uid_t user) {
        return polled_child([&] {
            const bool is = setresuid(user, user, user) == 0;
            return is ? say_hello(key, datagram, memory) : 99;
        });
    };
    EXPECT_EQ(from_child(test::kOtherUser), 1);
    EXPECT_TRUE(links.empty());
    users = {test::kOtherUser};
    listener->close();
    listen();
    EXPECT_EQ(from_child(test::kOtherUser), 0);
    EXPECT_EQ(links.size(), 1u);
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, goes_on_when_there_are_descriptors_again) {
    const int memory = right_memory();
    const int fd = dial();
    ASSERT_TRUE(shm_socket::send(fd, shm::encode(hello()), memory));
    {
        const test::DescriptorLimit none(0);
        progress->poll_thoroughly();
        progress->poll_thoroughly();
        EXPECT_TRUE(links.empty());
    }
    EXPECT_EQ(answer_at(fd), HelloError::none);
    close_internal_fd(fd);
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, is_told_of_a_lack_of_descriptors_for_the_memory) {
    const int memory = right_memory();
    const int fd = dial();
    ASSERT_TRUE(wait([&] { return progress->size() == 2; }));
    ASSERT_TRUE(shm_socket::send(fd, shm::encode(hello()), memory));
    {
        const test::DescriptorLimit none(0);
        progress->poll_thoroughly();
    }
    EXPECT_EQ(answer_at(fd), HelloError::memory);
    close_internal_fd(fd);
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, close_closes_all) {
    const std::size_t before = open_descriptors();
    const int fds[] = {dial(), dial(), dial()};
    ASSERT_TRUE(wait([&] { return progress->size() == 4; }));
    listener->close();
    EXPECT_EQ(progress->size(), 0u);
    for (const int fd : fds) {
        EXPECT_EQ(answer_at(fd), std::nullopt);
        close_internal_fd(fd);
    }
    EXPECT_EQ(shm_socket::connect_to(key).error().code, ECONNREFUSED);
    EXPECT_EQ(open_descriptors(), before - 1);
}

// A link or none, and nothing is left, whichever allocation fails.
TEST_F(ShmListenerTest, memory_that_runs_out_costs_one_link) {
#if defined(XSOCK_TEST_ASAN)
    GTEST_SKIP() << "AddressSanitizer wants the allocator for itself: no allocation fails";
#endif
    const int memory = right_memory();
    const std::size_t before = open_descriptors();
    for (const bool all : {false, true}) {
        bool more = true;
        for (int at = 0; more; ++at) {
            const int fd = dial();
            ASSERT_TRUE(shm_socket::send(fd, shm::encode(hello()), memory));
            {
                const test::FailAllocation fail(at, all);
                progress->poll_thoroughly();
                more = fail.happened();
            }
            const auto answer = answer_at(fd);
            EXPECT_TRUE(more || answer == HelloError::none);
            close_internal_fd(fd);
            end_links();
            EXPECT_TRUE(wait([&] { return progress->size() == 1; }));
            EXPECT_EQ(open_descriptors(), before) << at << all;
            ASSERT_LT(at, 100);
        }
    }
    close_internal_fd(memory);
}

TEST_F(ShmListenerTest, a_name_in_use_is_an_error) {
    const std::size_t before = open_descriptors();
    EXPECT_EQ(ShmListener::create(*progress, key, users, test::kLong, *this).error().code,
              EADDRINUSE);
    EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace xsock
