// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace xsock {
namespace {

using namespace std::chrono_literals;

TEST(Descriptors, a_duplicate_is_owned_until_it_is_closed) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    EXPECT_TRUE(is_program_fd(fd));
    Result<int> made = duplicate_descriptor(fd);
    const int copy = made ? *made : -1;
    ASSERT_GE(copy, 0);
    EXPECT_TRUE(is_internal_fd(copy));
    EXPECT_FALSE(is_program_fd(copy));
    close_internal_fd(copy);
    EXPECT_FALSE(is_internal_fd(copy));
    EXPECT_FALSE(is_program_fd(copy));  // closed
    EXPECT_EQ(fcntl(copy, F_GETFD), -1);
    close(fd);
}

TEST(Descriptors, one_that_is_being_opened_or_closed_is_not_the_programs) {
    // Out of the way: UBSan's run time opens pipes, which take the lowest numbers that are free.
    const int opening = eventfd(0, EFD_CLOEXEC);
    const int closing = fcntl(opening, F_DUPFD_CLOEXEC, opening + 64);
    std::atomic<bool> begun{false}, over{false};
    std::thread other([&] {
        const DescriptorChange change;
        begun = true;
        std::this_thread::sleep_for(2ms);
        over = true;
        register_internal_fd(opening);
        close(closing);
    });
    while (!begun) std::this_thread::yield();
    EXPECT_FALSE(is_program_fd(opening));
    EXPECT_FALSE(is_program_fd(closing));
    EXPECT_TRUE(over);
    other.join();
    close_internal_fd(opening);
}

TEST(Descriptors, a_signal_handler_in_the_middle_of_a_change_gets_an_answer) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    {
        const DescriptorChange change;  // of this thread: it does not end while it waits
        EXPECT_TRUE(is_program_fd(fd));
    }
    close(fd);
}

TEST(Descriptors, a_child_does_not_wait_for_its_parents_changes) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    const DescriptorChange change;
    const pid_t child = fork();
    if (child == 0) {
        forget_descriptor_changes();
        const auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < 100; ++i) {
            if (!is_program_fd(fd)) _exit(1);
        }
        // Each wait in vain takes half a second or more.
        _exit(std::chrono::steady_clock::now() - begun < 10s ? 0 : 2);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    close(fd);
}

// In a new program, where nothing has claimed yet.
TEST(InternalPipesDeathTest, a_second_waits_until_the_first_has_claimed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto both = [] {
        InternalPipes first;
        std::atomic<int> made{0};
        const auto make = [&made] {
            const InternalPipes other;
            ++made;
        };
        std::thread second(make), third(make);
        std::this_thread::sleep_for(100ms);
        const int early = made;
        first.claim();
        second.join();
        third.join();
        std::_Exit(early == 0 && made == 2 ? 0 : 1);
    };
    EXPECT_EXIT(both(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace xsock
