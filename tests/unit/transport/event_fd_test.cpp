// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/event_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "transport/descriptors.hpp"

namespace xsock {
namespace {

bool readable(int fd) {
    pollfd waiting{fd, POLLIN, 0};
    return poll(&waiting, 1, 0) == 1 && (waiting.revents & POLLIN) != 0;
}

TEST(EventFd, a_flag_is_taken_whole) {
    EventFd event;
    ASSERT_TRUE(event.open());
    EXPECT_FALSE(readable(event.fd()));
    EXPECT_FALSE(event.take());
    event.notify();
    event.notify();
    EXPECT_TRUE(readable(event.fd()));
    EXPECT_TRUE(event.take());
    EXPECT_FALSE(readable(event.fd()));
    EXPECT_FALSE(event.take());
}

TEST(EventFd, a_semaphore_is_taken_one_by_one) {
    EventFd event;
    ASSERT_TRUE(event.open(EventFd::Kind::semaphore, 1));
    event.notify();
    EXPECT_TRUE(event.take());
    EXPECT_TRUE(readable(event.fd()));
    EXPECT_TRUE(event.take());
    EXPECT_FALSE(event.take());
}

TEST(EventFd, is_the_library_s_own_and_not_inherited_by_exec) {
    EventFd event;
    ASSERT_TRUE(event.open());
    const int fd = event.fd();
    EXPECT_TRUE(is_internal_fd(fd));
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    EXPECT_GE(fd, 100);  // out of the way of select()
    event.close();
    EXPECT_FALSE(is_internal_fd(fd));
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);
    EXPECT_EQ(event.fd(), -1);
    event.close();
}

TEST(EventFd, does_nothing_while_it_is_not_open) {
    EventFd event;
    EXPECT_FALSE(event.is_open());
    event.notify();
    EXPECT_FALSE(event.take());
}

TEST(EventFd, moves_with_its_count) {
    EventFd event;
    ASSERT_TRUE(event.open());
    event.notify();
    EventFd other(std::move(event));
    EXPECT_FALSE(event.is_open());
    EXPECT_TRUE(other.take());
    event = std::move(other);
    EXPECT_TRUE(event.is_open());
    EXPECT_FALSE(other.is_open());
}

TEST(EventFd, of_a_program_outlives_the_program_s_number) {
    EventFd event;
    auto fd = event.open_for_program();
    ASSERT_TRUE(fd);
    EXPECT_NE(*fd, event.fd());
    EXPECT_FALSE(is_internal_fd(*fd));
    EXPECT_TRUE(is_internal_fd(event.fd()));
    EXPECT_EQ(fcntl(*fd, F_GETFL) & O_NONBLOCK, 0);
    event.notify();
    event.notify();
    event.take();
    std::uint64_t count = 0;
    EXPECT_EQ(read(*fd, &count, sizeof count), 8);  // the program may take one itself
    EXPECT_EQ(count, 1u);
    EXPECT_FALSE(readable(*fd));
    close(*fd);
    event.notify();
    EXPECT_TRUE(event.take());
}

}  // namespace
}  // namespace xsock
