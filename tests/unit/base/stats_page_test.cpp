// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stats_page.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tests/unit/folder.hpp"

namespace xsock {
namespace {

class StatsFolder : public ::testing::Test {
  protected:
    void TearDown() override { unsetenv("XSOCK_STAT"); }
    const test::Folder folder;
    const std::string top = folder.path();
};

TEST(StatsName, takes_only_what_the_engine_makes) {
    StatsName name;
    ASSERT_TRUE(parse_stats_name("4711-4026531836-0123456789abcdef", name));
    EXPECT_EQ(name.pid, 4711u);
    EXPECT_EQ(name.pid_namespace, 4026531836u);
    for (const char* wrong : {"", ".", "4711", "4711-", "4711-1", "4711-1-", "4711-1-xyz", "0-1-a",
                              "-1-1-a", "4294967296-1-a", "4711-1-a/b", "4711-1-a.tmp"}) {
        EXPECT_FALSE(parse_stats_name(wrong, name)) << wrong;
    }
}

TEST_F(StatsFolder, is_taken_only_when_it_is_ours_alone) {
    int fd = open_stats_folder(top + "/new", true);
    ASSERT_GE(fd, 0);
    close(fd);
    EXPECT_LT(open_stats_folder(top + "/none", false), 0);
    EXPECT_EQ(chmod((top + "/new").c_str(), 0710), 0);
    EXPECT_LT(open_stats_folder(top + "/new", true), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(chmod((top + "/new").c_str(), 0700), 0);
    if (geteuid() == 0 && chown((top + "/new").c_str(), 12345, 12345) == 0) {
        EXPECT_LT(open_stats_folder(top + "/new", true), 0);
        EXPECT_EQ(errno, EPERM);
    }
    EXPECT_EQ(symlink(top.c_str(), (top + "/link").c_str()), 0);
    EXPECT_LT(open_stats_folder(top + "/link", true), 0);
}

TEST_F(StatsFolder, comes_from_the_environment) {
    setenv("XSOCK_STAT", "off", 1);
    EXPECT_EQ(stats_folder(), "");
    EXPECT_FALSE(stats_folders().empty());  // others may publish
    setenv("XSOCK_STAT", top.c_str(), 1);
    EXPECT_EQ(stats_folder(), top);
    EXPECT_EQ(stats_folders(), std::vector<std::string>{top});
    setenv("XSOCK_STAT", "relative", 1);
    EXPECT_NE(stats_folder(), "relative");
}

TEST_F(StatsFolder, sweep_takes_the_dead_only) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    const std::string here = std::to_string(own_pid_namespace());
    const std::string dead = std::to_string(child) + "-" + here + "-ab";
    const std::string living = std::to_string(getpid()) + "-" + here + "-ab";
    const std::string elsewhere = std::to_string(child) + "-1-ab";
    for (const std::string& name : {dead, living, elsewhere, std::string("notes")}) {
        close(open((top + "/" + name).c_str(), O_CREAT | O_WRONLY, 0600));
    }
    const int fd = open_stats_folder(top, false);
    ASSERT_GE(fd, 0);
    sweep_stats_folder(fd);
    close(fd);
    EXPECT_FALSE(std::filesystem::exists(top + "/" + dead));
    EXPECT_TRUE(std::filesystem::exists(top + "/" + living));
    EXPECT_TRUE(std::filesystem::exists(top + "/" + elsewhere));
    EXPECT_TRUE(std::filesystem::exists(top + "/notes"));
}

TEST(ProcessStartTime, is_that_of_the_process) {
    EXPECT_NE(process_start_time(static_cast<std::uint32_t>(getpid())), 0u);
    EXPECT_EQ(process_start_time(0x7fffffff), 0u);
    // A later process has begun later; nothing else that it shares with us has.
    usleep(50'000);
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    EXPECT_GT(process_start_time(static_cast<std::uint32_t>(child)),
              process_start_time(static_cast<std::uint32_t>(getpid())));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace xsock
