// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the other process of a link would do, for tests of how links are made.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/page_size.hpp"
#include "base/random.hpp"
#include "shm/hello.hpp"
#include "tests/unit/open_descriptors.hpp"
#include "tests/unit/transport/polled_progress.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/shm_memory.hpp"
#include "transport/shm_socket.hpp"

namespace xsock::test {

inline constexpr uid_t kOtherUser = 1234;
inline constexpr Time kLong = 30 * kSecond;

inline shm::Key random_key() {
    const std::uint64_t words[] = {random_u64(), random_u64()};
    shm::Key key;
    std::memcpy(key.data(), words, key.size());
    return key;
}

/// Lowers RLIMIT_NOFILE to `spare` numbers above the highest that is in use.
class DescriptorLimit {
  public:
    explicit DescriptorLimit(int spare) {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        int highest = 2;
        for (int fd = 0; fd < 8192; ++fd) {
            if (fcntl(fd, F_GETFD) >= 0) highest = fd;
        }
        rlimit limit = before_;
        // What is free below the highest is taken, so that each number counts.
        for (;;) {
            const int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);
            if (fd < 0 || fd > highest) {
                if (fd >= 0) close(fd);
                break;
            }
            fillers_.push_back(fd);
        }
        limit.rlim_cur = static_cast<rlim_t>(highest + 1 + spare);
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    ~DescriptorLimit() {
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
        for (const int fd : fillers_) close(fd);
    }
    DescriptorLimit(const DescriptorLimit&) = delete;
    DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  private:
    rlimit before_{};
    std::vector<int> fillers_;
};

/// What `f` returns, from a child that is `user`, as its exit status. f may use no more than system
/// calls.
template <typename F>
int as_user(uid_t user, F&& f) {
    const pid_t child = fork();
    if (child == 0) _exit(setresuid(user, user, user) == 0 ? f() : 99);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ShmTest : public PolledProgressTest {
  protected:
    [[nodiscard]] bool wait(const std::function<bool()>& done) {
        return progress->wait(done, monotonic_now() + kLong);
    }
    /// Polls until `fd` is readable or has ended.
    [[nodiscard]] bool wait_for(int fd) {
        const Time end = monotonic_now() + kLong;
        while (monotonic_now() < end) {
            progress->poll_thoroughly();
            pollfd p{fd, POLLIN, 0};
            if (::poll(&p, 1, 1) == 1) return true;
        }
        return false;
    }
    /// The exit status of a child that runs `f`, while this polls. f makes no more than system
    /// calls.
    template <typename F>
    int polled_child(F&& f) {
        int done[2];
        EXPECT_EQ(pipe2(done, O_CLOEXEC), 0);
        const pid_t child = fork();
        if (child == 0) _exit(f());
        close(done[1]);
        EXPECT_TRUE(wait_for(done[0]));  // the child's end is closed when it exits
        close(done[0]);
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    /// What arrives at `fd`: an answer; nothing if it is closed instead.
    std::optional<shm::HelloError> answer_at(int fd) {
        EXPECT_TRUE(wait_for(fd));
        std::array<std::byte, 64> bytes;
        const auto received = shm_socket::receive(fd, bytes);
        if (!received) return std::nullopt;
        return shm::decode_hello_answer(ConstBytes(bytes).first(received.value().bytes));
    }
};

}  // namespace xsock::test
