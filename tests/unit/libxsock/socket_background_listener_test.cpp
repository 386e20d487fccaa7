// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "libxsock/objects.hpp"
#include "libxsock/socket/background_listener.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "transport/descriptors.hpp"

namespace xsock::test {
namespace {

struct NoListener final : PolledListener {
    explicit NoListener(int copy) : fd(copy) {}
    void set_observer(Observer) override {}
    Result<void> open(PollCycle&) override { return {}; }
    void close(PollCycle&) override { close_internal_fd(fd); }
    std::shared_ptr<PolledQp> take() override { return nullptr; }
    void give_back(std::shared_ptr<PolledQp>) override {}
    [[nodiscard]] bool has_ready() const noexcept override { return false; }
    [[nodiscard]] int shortage() const noexcept override { return 0; }
    void retry(PollCycle&) override {}
    const int fd;
};

struct BackgroundListenerTest : ::testing::Test {
    int ensure_open() {
        return listener.ensure_open(socket.fd(), api::device()->polled().group_of_thread(),
                                    [this](int copy) {
                                        ++made;
                                        return std::make_shared<NoListener>(copy);
                                    });
    }

    Sock socket = listening();
    sockets::BackgroundListener listener;
    int made = 0;
};

TEST_F(BackgroundListenerTest, is_opened_anew_behind_close) {
    EXPECT_EQ(ensure_open(), 0);
    EXPECT_EQ(ensure_open(), 0);
    EXPECT_EQ(made, 1);
    EXPECT_TRUE(listener.close());
    EXPECT_FALSE(listener.is_open());
    EXPECT_EQ(ensure_open(), 0);
    EXPECT_EQ(made, 2);
    EXPECT_TRUE(listener.is_open());
    EXPECT_TRUE(listener.close());
}

TEST_F(BackgroundListenerTest, is_not_opened_behind_its_end) {
    EXPECT_EQ(ensure_open(), 0);
    listener.end();
    EXPECT_TRUE(listener.is_ended());
    EXPECT_TRUE(listener.is_open());  // until close()
    EXPECT_TRUE(listener.close());
    EXPECT_EQ(ensure_open(), 0);
    EXPECT_EQ(made, 1);
    EXPECT_FALSE(listener.is_open());
    EXPECT_EQ(::fcntl(socket.fd(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);  // as the first one left it
}

TEST_F(BackgroundListenerTest, is_opened_in_a_child_that_was_forked_behind_its_end) {
    EXPECT_EQ(ensure_open(), 0);  // what tells of forks begins
    EXPECT_TRUE(listener.close());
    listener.end();
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        listener.renew_lock();
        _exit(ensure_open() == 0 && listener.is_open() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(BackgroundListenerTest, is_not_opened_on_a_socket_that_was_shut_down) {
    ASSERT_EQ(::shutdown(socket.fd(), SHUT_RDWR), 0);
    EXPECT_EQ(ensure_open(), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(made, 0);
}

}  // namespace
}  // namespace xsock::test
