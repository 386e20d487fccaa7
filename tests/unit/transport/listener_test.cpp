// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The listener when nothing can be made of what it accepts. What it does with connections is in
// tests/unit/libxsock/listener_test.cpp.
#include "transport/listener.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "tests/unit/open_descriptors.hpp"
#include "tests/unit/transport/polled_progress.hpp"

namespace xsock {
namespace {

class ListenSocketTest : public test::PolledProgressTest {
  protected:
    void SetUp() override {
        test::PolledProgressTest::SetUp();
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        socklen_t size = sizeof address;
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        ASSERT_EQ(bind(fd, any, size), 0);
        ASSERT_EQ(listen(fd, 4), 0);
        ASSERT_EQ(getsockname(fd, any, &size), 0);
    }
    std::shared_ptr<ListenSocket> make(int on) {
        return std::make_shared<ListenSocket>(
            on, *progress, ConnectAttr{},
            [this](PolledQp::StateListener) -> std::shared_ptr<PolledQp> {
                ++makes;
                throw std::bad_alloc();
            },
            4);
    }
    [[nodiscard]] int dial() const {
        const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
            return client;
        }
        close(client);
        return -1;
    }
    // Closed, by FIN or by reset.
    static bool closed(int client) {
        pollfd p{client, POLLIN, 0};
        char byte;
        return poll(&p, 1, 10'000) == 1 && recv(client, &byte, 1, MSG_DONTWAIT) <= 0;
    }

    sockaddr_in address{};
    int fd = -1;
    int makes = 0;
};

TEST_F(ListenSocketTest, drops_what_it_has_no_memory_for_and_goes_on) {
    const auto listener = make(fd);
    progress->locked([&](PollCycle& cycle) { ASSERT_TRUE(listener->open(cycle)); });
    for (int i = 1; i <= 6; ++i) {  // more than may be starting at once
        const int client = dial();
        ASSERT_GE(client, 0);
        EXPECT_TRUE(progress->wait([&] { return makes == i; }, monotonic_now() + 10 * kSecond));
        EXPECT_TRUE(closed(client));
        close(client);
    }
    EXPECT_FALSE(listener->has_ready());
    EXPECT_EQ(listener->take(), nullptr);
    progress->locked([&](PollCycle& cycle) { listener->close(cycle); });
}

TEST_F(ListenSocketTest, serves_what_came_before_it_was_opened) {
    const int client = dial();
    const auto listener = make(fd);
    progress->locked([&](PollCycle& cycle) { ASSERT_TRUE(listener->open(cycle)); });
    EXPECT_EQ(makes, 1);
    EXPECT_TRUE(closed(client));
    close(client);
    progress->locked([&](PollCycle& cycle) { listener->close(cycle); });
}

TEST_F(ListenSocketTest, a_pause_after_failure_ends_by_itself) {
    const auto listener = make(fd);
    progress->locked([&](PollCycle& cycle) {
        ASSERT_TRUE(listener->open(cycle));
        listener->on_failure(cycle);
    });
    const int client = dial();
    progress->poll();
    EXPECT_EQ(makes, 0);
    EXPECT_TRUE(progress->wait([&] { return makes == 1; }, monotonic_now() + 10 * kSecond));
    close(client);
    progress->locked([&](PollCycle& cycle) { listener->close(cycle); });
}

TEST_F(ListenSocketTest, close_is_final_and_may_come_twice) {
    const auto listener = make(fd);
    progress->locked([&](PollCycle& cycle) {
        ASSERT_TRUE(listener->open(cycle));
        listener->close(cycle);
        listener->close(cycle);
        listener->on_failure(cycle);
    });
    EXPECT_EQ(progress->size(), 0u);
    EXPECT_EQ(dial(), -1) << "the port is still open";
}

TEST_F(ListenSocketTest, a_descriptor_that_cannot_be_watched_stays_the_callers) {
    const auto twice = make(fd), listener = make(fd);
    progress->locked([&](PollCycle& cycle) {
        ASSERT_TRUE(listener->open(cycle));
        const auto opened = twice->open(cycle);
        ASSERT_FALSE(opened);
        EXPECT_EQ(opened.error().code, EEXIST);
        twice->close(cycle);
    });
    const int client = dial();
    EXPECT_GE(client, 0) << "the descriptor was closed";
    close(client);
    progress->locked([&](PollCycle& cycle) { listener->close(cycle); });
}

TEST_F(ListenSocketTest, the_descriptor_is_made_when_asked_for) {
    const std::size_t before = test::open_descriptors();
    const auto listener = make(fd);
    EXPECT_EQ(test::open_descriptors(), before);
    auto ready = listener->ready_fd();
    ASSERT_TRUE(ready);
    EXPECT_EQ(test::open_descriptors(), before + 1);
    auto again = listener->ready_fd();
    EXPECT_EQ(*again, *ready);
    pollfd p{*ready, POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 0), 0);
}

}  // namespace
}  // namespace xsock
