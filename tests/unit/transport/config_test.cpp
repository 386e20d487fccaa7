// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace xsock {
namespace {

using Cpus = std::vector<int>;
using Users = std::vector<std::uint32_t>;

TEST(ParseCpuList, takes_numbers_and_ranges) {
    EXPECT_EQ(parse_cpu_list("0"), Cpus({0}));
    EXPECT_EQ(parse_cpu_list("0,2-3"), Cpus({0, 2, 3}));
    EXPECT_EQ(parse_cpu_list("7-7,1"), Cpus({7, 1}));
    EXPECT_EQ(parse_cpu_list("4095"), Cpus({4095}));
    EXPECT_EQ(parse_cpu_list("0-4095").size(), 4096u);
}

TEST(ParseCpuList, is_empty_when_malformed) {
    for (const char* bad : {"",
                            ",",
                            "a",
                            "1,",
                            ",1",
                            "1,,2",
                            "1-",
                            "-1",
                            "3-2",
                            "1-2-3",
                            "1 ,2",
                            " 1",
                            "1;2",
                            "4096",
                            "0-4096",
                            "99999999999",
                            "0-99999999999",
                            "1,x",
                            "0x1",
                            "+1"}) {
        EXPECT_TRUE(parse_cpu_list(bad).empty()) << bad;
    }
}

TEST(ParseUsers, takes_numbers) {
    EXPECT_EQ(parse_users("0"), Users({0}));
    EXPECT_EQ(parse_users("1000,0,4294967294"), Users({1000, 0, 4294967294}));
}

TEST(ParseUsers, is_empty_when_malformed_or_of_nobody) {
    for (const char* bad : {"", ",", "1,", ",1", "a", "-1", "1 ,2", "1-2", "65534", "0,65534",
                            "4294967295", "4294967296"}) {
        EXPECT_TRUE(parse_users(bad).empty()) << bad;
    }
}

class Environment : public ::testing::Test {
  protected:
    static constexpr const char* kNames[] = {
        "XSOCK_PROGRESS",   "XSOCK_THREADS",        "XSOCK_CPUS",
        "XSOCK_SPIN_US",    "XSOCK_RNR_MS",         "XSOCK_COPY_LIMIT",
        "XSOCK_FPDU_LIMIT", "XSOCK_MAX_STARTING",   "XSOCK_EXTENSIONS",
        "XSOCK_SNAPSHOT",   "XSOCK_CONGESTION",     "XSOCK_SHORT_RTO",
        "XSOCK_SHM",        "XSOCK_SHM_MEMORY",     "XSOCK_SHM_USERS",
        "XSOCK_SHM_DIR",    "XSOCK_SHM_TIMEOUT_MS", "XSOCK_KERNEL",
        "XSOCK_KERNEL_OOO", "XSOCK_KERNEL_PIN",     "XSOCK_PEER_SILENT_MS"};

    void SetUp() override { clear(); }
    void TearDown() override { clear(); }
    static void clear() {
        for (const char* name : kNames) unsetenv(name);
    }
    static void expect_defaults(const TransportConfig& config, const char* why) {
        SCOPED_TRACE(why);
        const TransportConfig defaults;
        EXPECT_EQ(config.progress, defaults.progress);
        EXPECT_EQ(config.threads, defaults.threads);
        EXPECT_EQ(config.socket_groups, 4u);
        EXPECT_EQ(config.cpus, defaults.cpus);
        EXPECT_EQ(config.spin, std::thread::hardware_concurrency() <= 1 ? Time{0} : defaults.spin);
        EXPECT_EQ(config.rnr_timeout, defaults.rnr_timeout);
        EXPECT_EQ(config.copy_limit, defaults.copy_limit);
        EXPECT_EQ(config.fpdu_limit, defaults.fpdu_limit);
        EXPECT_EQ(config.max_starting, defaults.max_starting);
        EXPECT_EQ(config.extensions, defaults.extensions);
        EXPECT_EQ(config.snapshot, defaults.snapshot);
        EXPECT_EQ(config.congestion, "");
        EXPECT_EQ(config.short_rto, defaults.short_rto);
        EXPECT_EQ(config.peer_silence, defaults.peer_silence);
        EXPECT_EQ(config.shm, ShmMode::automatic);
        EXPECT_EQ(config.shm_memory, std::size_t{256} << 20);
        EXPECT_TRUE(config.shm_users.empty());
        EXPECT_TRUE(config.shm_folder.empty());
        EXPECT_EQ(config.shm_timeout, 200 * kMillisecond);
        EXPECT_EQ(config.kernel, KernelMode::automatic);
        EXPECT_FALSE(config.kernel_ooo.has_value());
        EXPECT_EQ(config.kernel_pin, std::size_t{64} << 20);
    }
};

TEST_F(Environment, unset_and_empty_mean_defaults) {
    expect_defaults(TransportConfig::from_environment(), "unset");
    for (const char* name : kNames) setenv(name, "", 1);
    expect_defaults(TransportConfig::from_environment(), "empty");
}

TEST_F(Environment, good_values_are_taken) {
    setenv("XSOCK_PROGRESS", "thread", 1);
    setenv("XSOCK_THREADS", "64", 1);
    setenv("XSOCK_CPUS", "0,2-3", 1);
    setenv("XSOCK_SPIN_US", "7", 1);
    setenv("XSOCK_RNR_MS", "0", 1);
    setenv("XSOCK_COPY_LIMIT", "65536", 1);
    setenv("XSOCK_FPDU_LIMIT", "128", 1);
    setenv("XSOCK_MAX_STARTING", "1", 1);
    setenv("XSOCK_EXTENSIONS", "0", 1);
    setenv("XSOCK_SHORT_RTO", "0", 1);
    setenv("XSOCK_PEER_SILENT_MS", "1500", 1);
    setenv("XSOCK_SNAPSHOT", "1", 1);
    setenv("XSOCK_CONGESTION", "fifteen-letters", 1);
    setenv("XSOCK_SHM", "require", 1);
    setenv("XSOCK_SHM_MEMORY", "16MiB", 1);
    setenv("XSOCK_SHM_USERS", "1000,0", 1);
    setenv("XSOCK_SHM_DIR", "/tmp", 1);
    setenv("XSOCK_SHM_TIMEOUT_MS", "60000", 1);
    setenv("XSOCK_KERNEL", "require", 1);
    setenv("XSOCK_KERNEL_OOO", "0", 1);
    setenv("XSOCK_KERNEL_PIN", "2M", 1);
    const TransportConfig config = TransportConfig::from_environment();
    EXPECT_EQ(config.progress, ProgressMode::thread);
    EXPECT_EQ(config.threads, 64u);
    EXPECT_EQ(config.cpus, Cpus({0, 2, 3}));
    EXPECT_EQ(config.spin, 7'000u);
    EXPECT_EQ(config.rnr_timeout, 0u);
    EXPECT_EQ(config.copy_limit, 65536u);
    EXPECT_EQ(config.fpdu_limit, 128u);
    EXPECT_EQ(config.max_starting, 1u);
    EXPECT_FALSE(config.extensions);
    EXPECT_FALSE(config.short_rto);
    EXPECT_EQ(config.peer_silence, 1500 * kMillisecond);
    EXPECT_TRUE(config.snapshot);
    EXPECT_EQ(config.congestion, "fifteen-letters");
    EXPECT_EQ(config.shm, ShmMode::require);
    EXPECT_EQ(config.shm_memory, std::size_t{16} << 20);
    EXPECT_EQ(config.shm_users, Users({1000, 0}));
    EXPECT_EQ(config.shm_folder, "/tmp");
    EXPECT_EQ(config.shm_timeout, 60 * kSecond);
    EXPECT_EQ(config.kernel, KernelMode::require);
    EXPECT_EQ(config.kernel_ooo, std::optional(false));
    EXPECT_EQ(config.kernel_pin, std::size_t{2} << 20);
    setenv("XSOCK_SHM", "auto", 1);
    EXPECT_EQ(TransportConfig::from_environment().shm, ShmMode::automatic);
    setenv("XSOCK_SHM", "off", 1);
    EXPECT_EQ(TransportConfig::from_environment().shm, ShmMode::off);
}

TEST_F(Environment, bad_values_leave_the_default) {
    struct Bad {
        const char* name;
        const char* value;
    };
    for (const Bad& bad :
         {Bad{"XSOCK_PROGRESS", "App"},      Bad{"XSOCK_PROGRESS", "app "},
          Bad{"XSOCK_THREADS", "0"},         Bad{"XSOCK_THREADS", "65"},
          Bad{"XSOCK_THREADS", "-1"},        Bad{"XSOCK_THREADS", "2x"},
          Bad{"XSOCK_THREADS", " 2"},        Bad{"XSOCK_THREADS", "18446744073709551617"},
          Bad{"XSOCK_SPIN_US", "1000001"},   Bad{"XSOCK_RNR_MS", "forever"},
          Bad{"XSOCK_COPY_LIMIT", "65537"},  Bad{"XSOCK_FPDU_LIMIT", "127"},
          Bad{"XSOCK_FPDU_LIMIT", "65536"},  Bad{"XSOCK_MAX_STARTING", "0"},
          Bad{"XSOCK_SHORT_RTO", "2"},       Bad{"XSOCK_PEER_SILENT_MS", "86400001"},
          Bad{"XSOCK_EXTENSIONS", "2"},      Bad{"XSOCK_EXTENSIONS", "off"},
          Bad{"XSOCK_SNAPSHOT", "2"},        Bad{"XSOCK_CONGESTION", "sixteen-letters-"},
          Bad{"XSOCK_KERNEL", "on"},         Bad{"XSOCK_KERNEL_OOO", "2"},
          Bad{"XSOCK_KERNEL_PIN", "64MB/s"}, Bad{"XSOCK_SHM", "1"},
          Bad{"XSOCK_SHM", "automatic"},     Bad{"XSOCK_SHM_MEMORY", "255K"},
          Bad{"XSOCK_SHM_MEMORY", "1T"},     Bad{"XSOCK_SHM_MEMORY", "1025G"},
          Bad{"XSOCK_SHM_DIR", "tmp"},       Bad{"XSOCK_SHM_DIR", "/no/such/folder"},
          Bad{"XSOCK_SHM_TIMEOUT_MS", "9"},  Bad{"XSOCK_SHM_TIMEOUT_MS", "60001"},
          Bad{"XSOCK_SHM_USERS", "root"},    Bad{"XSOCK_SHM_USERS", "1000,65534"},
          Bad{"XSOCK_CPUS", "none"}}) {
        setenv(bad.name, bad.value, 1);
        expect_defaults(TransportConfig::from_environment(), bad.name);
        unsetenv(bad.name);
    }
}

TEST_F(Environment, without_threads_there_is_one_progress) {
    setenv("XSOCK_PROGRESS", "app", 1);
    setenv("XSOCK_THREADS", "8", 1);
    EXPECT_EQ(TransportConfig::from_environment().threads, 1u);
    unsetenv("XSOCK_THREADS");
    EXPECT_EQ(TransportConfig::from_environment().socket_groups, 1u);
}

TEST_F(Environment, a_number_of_threads_holds_for_sockets_too) {
    setenv("XSOCK_THREADS", "1", 1);
    EXPECT_EQ(TransportConfig::from_environment().socket_groups, 1u);
}

}  // namespace
}  // namespace xsock
