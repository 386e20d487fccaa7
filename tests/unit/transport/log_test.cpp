// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The log reads its setting once in a process, so each case runs in a child.
#include "transport/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace xsock {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class Log : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = ::testing::TempDir() + "xsock-log-XXXXXX";
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder); }

    // What `body` writes to stderr in a child whose setting is `setting`.
    std::string said(const std::string& setting, const std::function<void()>& body) const {
        const std::string path = folder / "stderr";
        const pid_t child = fork();
        if (child == 0) {
            const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            dup2(fd, STDERR_FILENO);
            setenv("XSOCK_LOG", setting.c_str(), 1);
            body();
            _exit(0);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        return content(path);
    }
    static std::string content(const std::filesystem::path& path) {
        std::ostringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    static void one_of_each() {
        log(LogLevel::error, "code-e", "number %d", 1);
        log(LogLevel::warn, "code-w", "number %d", 2);
        log(LogLevel::info, "code-i", "number %d", 3);
        log(LogLevel::debug, "code-d", "number %d", 4);
    }

    std::filesystem::path folder;
};

TEST_F(Log, is_silent_by_default) {
    EXPECT_EQ(said("", one_of_each), "");
    EXPECT_EQ(said("off", one_of_each), "");
}

TEST_F(Log, writes_its_level_and_what_is_worse) {
    const std::string warn = said("warn", [] {
        one_of_each();
        if (!log_enabled(LogLevel::warn) || log_enabled(LogLevel::info)) _exit(1);
    });
    EXPECT_THAT(warn, HasSubstr("] error code-e: number 1\n"));
    EXPECT_THAT(warn, HasSubstr("] warn code-w: number 2\n"));
    EXPECT_THAT(warn, Not(HasSubstr("code-i")));
    EXPECT_THAT(said("debug", one_of_each), HasSubstr("] debug code-d: number 4\n"));
    EXPECT_THAT(said("error", one_of_each), Not(HasSubstr("code-w")));
}

TEST_F(Log, an_unknown_level_is_reported_and_means_error) {
    for (const char* unknown : {"loud", "warning", "warn ", "WARN", "2"}) {
        const std::string text = said(unknown, one_of_each);
        EXPECT_THAT(text, HasSubstr("bad-setting")) << unknown;
        EXPECT_THAT(text, HasSubstr("code-e")) << unknown;
        EXPECT_THAT(text, Not(HasSubstr("code-w"))) << unknown;
    }
}

TEST_F(Log, cuts_long_lines_and_ends_them) {
    const std::string text =
        said("error", [] { log(LogLevel::error, "long", "%s", std::string(5000, 'x').c_str()); });
    EXPECT_LE(text.size(), 512u);
    EXPECT_THAT(text, EndsWith("x\n"));
}

TEST_F(Log, a_code_that_comes_too_often_is_counted) {
    const std::string text = said("error", [] {
        for (int i = 0; i < 1000; ++i) log(LogLevel::error, "often", "again");
        log(LogLevel::error, "seldom", "heard");
        usleep(1'050'000);
        log(LogLevel::error, "often", "later");
    });
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_GE(lines, 22);
    EXPECT_LE(lines, 42) << "two seconds may have been touched";
    EXPECT_THAT(text, HasSubstr("seldom: heard"));
    EXPECT_THAT(text, HasSubstr("often: later ("));
    EXPECT_THAT(text, EndsWith(" more before)\n"));
}

TEST_F(Log, writes_to_a_file_of_its_own) {
    const std::filesystem::path file = folder / "log";
    EXPECT_EQ(said("error:" + file.string(), one_of_each), "");
    EXPECT_THAT(content(file), HasSubstr("code-e: number 1\n"));
    EXPECT_EQ(said("error:" + file.string(), one_of_each), "");
    const std::string twice = content(file);
    EXPECT_EQ(std::count(twice.begin(), twice.end(), '\n'), 2) << "appends";
    struct stat info{};
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Log, refuses_a_link_and_falls_back_to_stderr) {
    const std::filesystem::path target = folder / "target", link = folder / "link";
    std::ofstream(target) << "precious";
    std::filesystem::create_symlink(target, link);
    const std::string text = said("error:" + link.string(), one_of_each);
    EXPECT_THAT(text, HasSubstr("cannot write"));
    EXPECT_THAT(text, HasSubstr("code-e"));
    EXPECT_EQ(content(target), "precious");
}

}  // namespace
}  // namespace xsock
