// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The log reads its setting once in a process, so each case runs in one of its own.
#include "transport/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "tests/unit/folder.hpp"
#include "transport/fork.hpp"

namespace xsock {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

void one_of_each() {
    log(LogLevel::error, "code-e", "number %d", 1);
    log(LogLevel::warn, "code-w", "number %d", 2);
    log(LogLevel::info, "code-i", "number %d", 3);
    log(LogLevel::debug, "code-d", "number %d", 4);
}

void warnings_are_enabled() {
    if (!log_enabled(LogLevel::warn) || log_enabled(LogLevel::info)) _exit(1);
}

void a_long_line() { log(LogLevel::error, "long", "%s", std::string(5000, 'x').c_str()); }

void too_often() {
    for (int i = 0; i < 1000; ++i) log(LogLevel::error, "often", "again");
    log(LogLevel::error, "seldom", "heard");
    usleep(1'050'000);
    log(LogLevel::error, "often", "later");
}

// Threads write lines all the time. A signal handler that interrupts one of them forks; parent and
// child go on where they were interrupted.
constexpr int kForks = 100;
constexpr unsigned kHangs = 20;  // s
volatile sig_atomic_t forks = 0, is_child = 0;

void fork_in_handler(int) {
    // A child made behind the loop would wait for a thread that it has not.
    if (forks >= kForks) return;
    const pid_t child = fork();
    is_child = child == 0 ? 1 : 0;
    if (child == 0) {
        alarm(kHangs);  // is not inherited
        log(LogLevel::debug, "handler", "in the child");
        return;
    }
    forks = forks + 1;
    alarm(kHangs);  // of one fork: under AddressSanitizer each takes long
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) _exit(1);
}

void forks_in_a_handler() {
    alarm(kHangs);
    add_fork_handlers({});
    struct sigaction action {};
    action.sa_handler = fork_in_handler;
    sigaction(SIGUSR1, &action, nullptr);
    std::atomic<bool> over{false};
    const pthread_t interrupted = pthread_self();
    std::thread other([&] {
        while (!over.load()) {
            pthread_kill(interrupted, SIGUSR1);
            for (int i = 0; i < 2000; ++i) log(LogLevel::debug, "often", "here too");
            usleep(1000);  // fork() waits for a mutex that this thread would take again at once
        }
    });
    while (forks < kForks && is_child == 0) log(LogLevel::debug, "often", "and here");
    if (is_child != 0) {
        log(LogLevel::debug, "child", "goes on");
        _exit(0);
    }
    over.store(true);
    other.join();
}

const std::map<std::string, void (*)()> kBodies = {{"one_of_each", one_of_each},
                                                   {"warnings_are_enabled", warnings_are_enabled},
                                                   {"a_long_line", a_long_line},
                                                   {"too_often", too_often},
                                                   {"forks_in_a_handler", forks_in_a_handler}};

// Not a test: what the child of Log::said() does.
TEST(LogChild, DISABLED_speaks) {
    const char* const body = std::getenv("XSOCK_LOG_TEST_BODY");
    ASSERT_NE(body, nullptr);
    kBodies.at(body)();
    _exit(0);
}

class Log : public ::testing::Test {
  protected:
    // What `body` writes to stderr in this program started anew with XSOCK_LOG=`setting`, or
    // without it.
    [[nodiscard]] std::string said(const std::optional<std::string>& setting,
                                   const char* body) const {
        const std::string path = folder / "stderr";
        const pid_t child = fork();
        if (child == 0) {
            dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
            dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
            unsetenv("XSOCK_LOG");
            if (setting) setenv("XSOCK_LOG", setting->c_str(), 1);
            setenv("XSOCK_LOG_TEST_BODY", body, 1);
            execl("/proc/self/exe", "unit_transport", "--gtest_filter=LogChild.*",
                  "--gtest_also_run_disabled_tests", nullptr);
            _exit(127);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << body;
        return content(path);
    }
    static std::string content(const std::filesystem::path& path) {
        std::ostringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }

    const test::Folder made;
    const std::filesystem::path folder = made.path();
};

TEST_F(Log, is_silent_by_default) {
    EXPECT_EQ(said(std::nullopt, "one_of_each"), "");
    EXPECT_EQ(said("", "one_of_each"), "");
    EXPECT_EQ(said("off", "one_of_each"), "");
}

TEST_F(Log, writes_its_level_and_what_is_worse) {
    const std::string warn = said("warn", "one_of_each");
    EXPECT_EQ(said("warn", "warnings_are_enabled"), "");
    EXPECT_THAT(warn, HasSubstr("] error code-e: number 1\n"));
    EXPECT_THAT(warn, HasSubstr("] warn code-w: number 2\n"));
    EXPECT_THAT(warn, Not(HasSubstr("code-i")));
    EXPECT_THAT(said("debug", "one_of_each"), HasSubstr("] debug code-d: number 4\n"));
    EXPECT_THAT(said("error", "one_of_each"), Not(HasSubstr("code-w")));
}

TEST_F(Log, an_unknown_level_is_reported_and_means_error) {
    for (const char* unknown : {"loud", "warning", "warn ", "WARN", "2"}) {
        const std::string text = said(unknown, "one_of_each");
        EXPECT_THAT(text, HasSubstr("bad-setting")) << unknown;
        EXPECT_THAT(text, HasSubstr("code-e")) << unknown;
        EXPECT_THAT(text, Not(HasSubstr("code-w"))) << unknown;
    }
}

TEST_F(Log, cuts_long_lines_and_ends_them) {
    const std::string text = said("error", "a_long_line");
    EXPECT_LE(text.size(), 512u);
    EXPECT_THAT(text, EndsWith("x\n"));
}

TEST_F(Log, a_code_that_comes_too_often_is_counted) {
    const std::string text = said("error", "too_often");
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_GE(lines, 22);
    EXPECT_LE(lines, 42) << "two seconds may have been touched";
    EXPECT_THAT(text, HasSubstr("seldom: heard"));
    EXPECT_THAT(text, HasSubstr("often: later ("));
    EXPECT_THAT(text, EndsWith(" more before)\n"));
}

TEST_F(Log, lets_a_signal_handler_fork_in_the_middle_of_a_line) {
    EXPECT_THAT(said("debug", "forks_in_a_handler"), HasSubstr("child: goes on"));
}

TEST_F(Log, writes_to_a_file_of_its_own) {
    const std::filesystem::path file = folder / "log";
    EXPECT_EQ(said("error:" + file.string(), "one_of_each"), "");
    EXPECT_THAT(content(file), HasSubstr("code-e: number 1\n"));
    EXPECT_EQ(said("error:" + file.string(), "one_of_each"), "");
    const std::string twice = content(file);
    EXPECT_EQ(std::count(twice.begin(), twice.end(), '\n'), 2) << "appends";
    struct stat info {};
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Log, refuses_a_link_and_falls_back_to_stderr) {
    const std::filesystem::path target = folder / "target", link = folder / "link";
    std::ofstream(target) << "precious";
    std::filesystem::create_symlink(target, link);
    const std::string text = said("error:" + link.string(), "one_of_each");
    EXPECT_THAT(text, HasSubstr("cannot write"));
    EXPECT_THAT(text, HasSubstr("code-e"));
    EXPECT_EQ(content(target), "precious");
}

}  // namespace
}  // namespace xsock
