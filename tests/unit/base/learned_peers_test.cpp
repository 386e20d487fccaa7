// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is learned of servers elsewhere: how long it holds, for whom, and that nothing which lies in
// its folder instead is believed.
#include "base/learned_peers.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/folder.hpp"

namespace xsock {
namespace {

namespace fs = std::filesystem;
using State = Learned::State;

constexpr Time kStart = 1'700'000'000 * kSecond;

LearnedPlace place(unsigned port, const char* address = "10.0.0.5") {
    return {7, 0, {*parse_ip_address(address), static_cast<std::uint16_t>(port)}};
}

class LearnedPeers : public ::testing::Test {
  protected:
    LearnedPeers() { setenv("XSOCK_REGISTRY", registry().c_str(), 1); }
    ~LearnedPeers() override {
        unsetenv("XSOCK_REGISTRY");
        unsetenv("XSOCK_POLICY_LEARN");
    }
    [[nodiscard]] std::string registry() const { return folder_.path() + "/listeners"; }
    [[nodiscard]] std::string folder() const { return registry() + "/learned"; }
    [[nodiscard]] std::string only_file() const {
        return fs::directory_iterator(folder())->path().string();
    }
    [[nodiscard]] std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
    }
    static State state(const LearnedPlace& of, Time now) { return look_up_learned(of, now).state; }

    test::Folder folder_;
};

TEST_F(LearnedPeers, an_answer_holds_for_ten_minutes) {
    EXPECT_EQ(state(place(80), kStart), State::unknown);
    ASSERT_TRUE(note_answered(place(80), kStart));
    EXPECT_EQ(state(place(80), kStart), State::answered);
    EXPECT_EQ(look_up_learned(place(80), kStart + 5 * kSecond).age, 5 * kSecond);
    EXPECT_EQ(state(place(80), kStart + 600 * kSecond - 1), State::answered);
    EXPECT_EQ(state(place(80), kStart + 600 * kSecond), State::unknown);
}

TEST_F(LearnedPeers, each_answer_begins_the_ten_minutes_again) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    ASSERT_TRUE(note_answered(place(80), kStart + 500 * kSecond));
    EXPECT_EQ(state(place(80), kStart + 1000 * kSecond), State::answered);
    EXPECT_EQ(files(), 1u);
}

TEST_F(LearnedPeers, an_answer_is_of_one_server_in_one_network) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    EXPECT_EQ(state(place(81), kStart), State::unknown);
    EXPECT_EQ(state(place(80, "10.0.0.6"), kStart), State::unknown);
    EXPECT_EQ(state(place(80, "::10.0.0.5"), kStart), State::unknown) << "not the IPv4 address";
    LearnedPlace other = place(80);
    other.network = 8;
    EXPECT_EQ(state(other, kStart), State::unknown);
    other = place(80);
    other.interface = 2;
    EXPECT_EQ(state(other, kStart), State::unknown);
}

TEST_F(LearnedPeers, without_a_known_network_nothing_is_learned) {
    LearnedPlace unknown = place(80);
    unknown.network = 0;
    EXPECT_FALSE(note_answered(unknown, kStart));
    EXPECT_FALSE(note_failed(unknown, kStart));
    EXPECT_EQ(state(unknown, kStart), State::unknown);
}

TEST_F(LearnedPeers, a_failure_forgets) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    EXPECT_TRUE(note_failed(place(80), kStart + kSecond)) << "it was known";
    EXPECT_EQ(state(place(80), kStart + kSecond), State::failed);
    EXPECT_FALSE(note_failed(place(80), kStart + 2 * kSecond)) << "it was not any more";
}

// Behind one address there may be several servers, of which some take byte streams.
TEST_F(LearnedPeers, a_failure_holds_for_ten_minutes_whatever_answers_meanwhile) {
    EXPECT_FALSE(note_failed(place(80), kStart));
    ASSERT_TRUE(note_answered(place(80), kStart + 599 * kSecond));
    EXPECT_EQ(state(place(80), kStart + 599 * kSecond), State::failed);
    EXPECT_EQ(look_up_learned(place(80), kStart + 599 * kSecond).age, 599 * kSecond);
    EXPECT_EQ(state(place(80), kStart + 600 * kSecond), State::answered);
    EXPECT_EQ(state(place(81), kStart), State::unknown) << "of one port";
}

TEST_F(LearnedPeers, of_a_clock_that_was_put_back_only_failures_hold) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    note_failed(place(81), kStart);
    EXPECT_EQ(state(place(80), kStart - 1), State::unknown);
    EXPECT_EQ(state(place(81), kStart - 1), State::failed);
    EXPECT_EQ(look_up_learned(place(81), kStart - 1).age, 0u);
}

TEST_F(LearnedPeers, other_processes_see_it) {
    const pid_t child = fork();
    if (child == 0) _exit(note_answered(place(80), kStart) ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(state(place(80), kStart), State::answered);
}

TEST_F(LearnedPeers, needs_no_descriptor) {
    ASSERT_TRUE(note_answered(place(79), kStart));  // the folder has been tidied up since
    const pid_t child = fork();
    if (child == 0) {
        while (open("/dev/null", O_RDONLY) >= 0) {
        }
        const bool noted = note_answered(place(80), kStart);
        _exit(noted && state(place(80), kStart) == State::answered ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(LearnedPeers, off_with_the_registry) {
    setenv("XSOCK_REGISTRY", "off", 1);
    EXPECT_FALSE(note_answered(place(80), kStart));
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(state(place(80), kStart), State::unknown);
}

// ---- what else may lie there ---------------------------------------------------

TEST_F(LearnedPeers, folders_that_others_may_write_to_are_not_believed) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    for (const std::string& which : {folder(), registry()}) {
        struct stat s {};
        ASSERT_EQ(stat(which.c_str(), &s), 0);
        for (const mode_t more : {020, 002}) {
            ASSERT_EQ(chmod(which.c_str(), s.st_mode | more), 0);
            EXPECT_EQ(state(place(80), kStart), State::unknown) << which;
            EXPECT_FALSE(note_answered(place(81), kStart));
            EXPECT_EQ(errno, EPERM);
        }
        ASSERT_EQ(chmod(which.c_str(), s.st_mode), 0);
        EXPECT_EQ(state(place(80), kStart), State::answered);
    }
}

TEST_F(LearnedPeers, what_is_of_another_user_is_not_believed) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_TRUE(note_answered(place(80), kStart));
    for (const std::string& which : {only_file(), folder(), registry()}) {
        ASSERT_EQ(chown(which.c_str(), 12345, 12345), 0);
        EXPECT_EQ(state(place(80), kStart), State::unknown) << which;
        ASSERT_EQ(chown(which.c_str(), 0, 0), 0);
        EXPECT_EQ(state(place(80), kStart), State::answered) << which;
    }
}

TEST_F(LearnedPeers, links_are_not_followed) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    const std::string file = only_file(), elsewhere = folder_.path() + "/elsewhere";
    for (const std::string& which : {file, folder(), registry()}) {
        fs::rename(which, elsewhere);
        fs::create_symlink(elsewhere, which);
        EXPECT_EQ(state(place(80), kStart), State::unknown) << which;
        fs::remove(which);
        fs::rename(elsewhere, which);
        EXPECT_EQ(state(place(80), kStart), State::answered) << which;
    }
}

TEST_F(LearnedPeers, only_files_are_believed) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    const std::string file = only_file();
    const auto replaced_by = [&](auto make) {
        fs::remove(file);
        make();
        note_answered(place(80), kStart);
        EXPECT_EQ(state(place(80), kStart), State::unknown);
    };
    replaced_by([&] { fs::create_directory(file); });
    replaced_by([&] { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); });
    fs::remove(file);
    ASSERT_TRUE(note_answered(place(80), kStart));
    EXPECT_EQ(state(place(80), kStart), State::answered);
}

TEST_F(LearnedPeers, something_else_in_place_of_the_folder) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    for (const std::string& which : {folder(), registry()}) {
        fs::remove_all(which);
        std::ofstream(which).put('x');
        EXPECT_EQ(state(place(80), kStart), State::unknown);
        EXPECT_FALSE(note_answered(place(80), kStart));
        fs::remove(which);
        ASSERT_EQ(mkfifo(which.c_str(), 0700), 0);
        EXPECT_EQ(state(place(80), kStart), State::unknown);
        EXPECT_FALSE(note_failed(place(80), kStart));
        fs::remove(which);
    }
}

TEST_F(LearnedPeers, what_is_too_old_is_removed_and_nothing_else) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    note_failed(place(81), kStart);
    const std::string foreign = folder() + "/" + fs::path(only_file()).filename().string() + "x";
    const timespec old[] = {{1, 0}, {1, 0}};
    std::ofstream(foreign).put('x');
    ASSERT_EQ(utimensat(AT_FDCWD, foreign.c_str(), old, 0), 0);
    ASSERT_EQ(files(), 3u);
    // From the 64th entry of this process on at the latest.
    for (unsigned port = 100; port < 164; ++port) {
        ASSERT_TRUE(note_answered(place(port), kStart + 601 * kSecond));
    }
    EXPECT_EQ(files(), 65u);
    EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(LearnedPeers, there_is_a_limit) {
    ASSERT_TRUE(note_answered(place(80), kStart));
    for (unsigned i = 0; i < kMostLearned; ++i) std::ofstream(folder() + "/" + std::to_string(i));
    unsigned made = 0;
    while (made < 200 && note_answered(place(100 + made), kStart)) ++made;
    EXPECT_LT(made, 200u);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_TRUE(note_answered(place(80), kStart + kSecond)) << "it is there";
    EXPECT_TRUE(note_failed(place(80), kStart + kSecond)) << "and can be forgotten";
    EXPECT_EQ(state(place(80), kStart + kSecond), State::unknown);
    // For the cases to come.
    fs::remove_all(folder());
    for (unsigned i = 0; i < 64; ++i) note_answered(place(100), kStart);
    EXPECT_TRUE(note_answered(place(300), kStart));
}

// ---- the setting, and the socket ------------------------------------------------

TEST_F(LearnedPeers, the_setting) {
    EXPECT_EQ(learn_setting(), false);
    for (const auto& [value, meant] :
         {std::pair{"", std::optional(false)}, {"0", false}, {"1", true}}) {
        setenv("XSOCK_POLICY_LEARN", value, 1);
        EXPECT_EQ(learn_setting(), meant) << value;
    }
    for (const char* const bad : {"2", "01", "yes", "1 ", "-1"}) {
        setenv("XSOCK_POLICY_LEARN", bad, 1);
        EXPECT_EQ(learn_setting(), std::nullopt) << bad;
    }
}

TEST_F(LearnedPeers, the_place_is_that_of_the_socket) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int other = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const IpEndpoint peer = place(80).peer;
    const LearnedPlace of = learned_place(fd, peer, 3);
    EXPECT_EQ(of.peer, peer);
    EXPECT_EQ(of.interface, 3u);
    EXPECT_EQ(of, learned_place(other, peer, 3));
    if (of.network == 0) GTEST_SKIP() << "the kernel does not name network namespaces";
    const int loopback = 1;
    const bool bound =
        setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &loopback, sizeof loopback) == 0;
    EXPECT_EQ(learned_place(fd, peer, 0).interface, bound ? 1u : 0u);
    ::close(fd);
    ::close(other);
    EXPECT_EQ(learned_place(-1, peer, 0).network, 0u);
    if (!bound) GTEST_SKIP() << "a socket may not be bound to an interface here";
}

}  // namespace
}  // namespace xsock
