// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/listener_registry.hpp"

#include <arpa/inet.h>
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
#include <iterator>
#include <random>
#include <string>

#include "base/netlink.hpp"
#include "base/stats_page.hpp"
#include "tests/unit/folder.hpp"

namespace xsock {
namespace {

/// A TCP socket that listens on a port of the kernel's choice.
struct Listening {
    int fd;
    std::uint16_t port = 0;
    std::uint64_t cookie = 0;

    explicit Listening(const char* address, bool v6_only = false) {
        const bool v6 = std::string(address).find(':') != std::string::npos;
        fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int only = v6_only ? 1 : 0;
        if (v6) {
            EXPECT_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only), 0);
        }
        sockaddr_in6 in6{};
        sockaddr_in in{};
        in6.sin6_family = AF_INET6;
        in.sin_family = AF_INET;
        EXPECT_EQ(inet_pton(v6 ? AF_INET6 : AF_INET, address,
                            v6 ? static_cast<void*>(&in6.sin6_addr) : &in.sin_addr),
                  1);
        auto* const name =
            v6 ? reinterpret_cast<sockaddr*>(&in6) : reinterpret_cast<sockaddr*>(&in);
        socklen_t size = v6 ? sizeof in6 : sizeof in;
        EXPECT_EQ(::bind(fd, name, size), 0) << address;
        EXPECT_EQ(::listen(fd, 4), 0);
        EXPECT_EQ(getsockname(fd, name, &size), 0);
        port = ntohs(v6 ? in6.sin6_port : in.sin_port);
        socklen_t length = sizeof cookie;
        EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length), 0);
    }
    ~Listening() { ::close(fd); }
    [[nodiscard]] IpEndpoint at(const char* address) const {
        return {*parse_ip_address(address), port};
    }
};

bool finds(const Listening& listening, const char* address) {
    return find_listener(listening.at(address), 0) == listening.cookie;
}

TEST(FindListener, finds_the_socket_that_a_connection_would_reach) {
    const Listening one("127.0.0.1"), all("0.0.0.0"), six("::1"), both("::"), only_six("::", true);
    EXPECT_TRUE(finds(one, "127.0.0.1"));
    EXPECT_FALSE(finds(one, "127.0.0.2"));
    EXPECT_FALSE(finds(one, "::1"));
    EXPECT_TRUE(finds(one, "0.0.0.0")) << "which is the loopback address";
    EXPECT_TRUE(finds(all, "127.0.0.1"));
    EXPECT_TRUE(finds(all, "127.1.2.3"));
    EXPECT_TRUE(finds(six, "::1"));
    EXPECT_TRUE(finds(six, "::"));
    EXPECT_FALSE(finds(six, "127.0.0.1"));
    EXPECT_TRUE(finds(both, "127.0.0.1"));
    EXPECT_TRUE(finds(both, "::1"));
    EXPECT_TRUE(finds(only_six, "::1"));
    EXPECT_FALSE(finds(only_six, "127.0.0.1"));
}

TEST(FindListener, nobody_listens) {
    const Listening one("127.0.0.1");
    EXPECT_FALSE(find_listener({*parse_ip_address("127.0.0.1"), 1}, 0));
    EXPECT_EQ(::shutdown(one.fd, SHUT_RDWR), 0);
    EXPECT_FALSE(finds(one, "127.0.0.1"));
}

// One that listens on all addresses is not reached by those of others (RFC 5737, RFC 3849).
TEST(FindListener, addresses_of_others) {
    const Listening all("0.0.0.0"), both("::");
    EXPECT_FALSE(finds(all, "192.0.2.1"));
    EXPECT_FALSE(finds(both, "192.0.2.1"));
    EXPECT_FALSE(finds(both, "2001:db8::1"));
    EXPECT_FALSE(finds(all, "224.0.0.1"));
}

class Registry : public ::testing::Test {
  protected:
    Registry() { setenv("XSOCK_REGISTRY", path().c_str(), 1); }
    ~Registry() override { unsetenv("XSOCK_REGISTRY"); }
    [[nodiscard]] std::string path() const { return folder_.path() + "/listeners"; }
    [[nodiscard]] std::string path(std::uint16_t port) const {
        return path() + "/" + std::to_string(port);
    }
    PeerKnown known(const char* address) const {
        return look_up_listener(listening_.at(address), 0).known;
    }
    PeerKnown known() const { return known("127.0.0.1"); }
    /// An entry as a file, made by hand.
    void forge(const std::string& name) const {
        std::filesystem::create_directories(path(listening_.port));
        std::ofstream(path(listening_.port) + "/" + name).put(' ');
    }
    [[nodiscard]] std::string name(std::uint64_t cookie, long pid, std::uint64_t start) const {
        char text[128];
        std::snprintf(text, sizeof text, "%016llx-%ld-%llu-%llu-sdp",
                      static_cast<unsigned long long>(cookie), pid,
                      static_cast<unsigned long long>(own_pid_namespace()),
                      static_cast<unsigned long long>(start));
        return text;
    }

    test::Folder folder_;
    Listening listening_{"127.0.0.1"};
};

TEST_F(Registry, what_was_published_is_known_until_it_is_withdrawn) {
    EXPECT_EQ(known(), PeerKnown::unlisted);
    const std::string entry = publish_listener(listening_.port, listening_.cookie);
    EXPECT_NE(entry, "");
    EXPECT_EQ(known(), PeerKnown::sdp);
    EXPECT_EQ(look_up_listener(listening_.at("127.0.0.1"), 0).cookie, listening_.cookie);
    EXPECT_EQ(known("127.0.0.2"), PeerKnown::elsewhere);
    EXPECT_EQ(known("192.0.2.1"), PeerKnown::elsewhere);
    withdraw_listener(entry);
    EXPECT_EQ(known(), PeerKnown::unlisted);
    EXPECT_TRUE(std::filesystem::is_empty(path()));
}

TEST_F(Registry, two_processes_share_a_socket) {
    const std::string entry = publish_listener(listening_.port, listening_.cookie);
    int ready[2], end[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(end), 0);
    const pid_t child = fork();
    if (child == 0) {
        ::close(end[1]);
        char byte = publish_listener(listening_.port, listening_.cookie).empty() ? 'n' : 'y';
        if (::write(ready[1], &byte, 1) != 1) _exit(1);
        _exit(::read(end[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    withdraw_listener(entry);
    EXPECT_EQ(known(), PeerKnown::sdp) << "the child goes on";
    ::close(end[1]);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(known(), PeerKnown::gone) << "it has not taken it back";
    for (const int fd : {ready[0], ready[1], end[0]}) ::close(fd);
}

TEST_F(Registry, what_others_have_left_is_removed_and_not_believed) {
    forge(name(listening_.cookie, 0x7ffffff0, 1));
    forge(name(listening_.cookie, getpid(),
               process_start_time(static_cast<std::uint32_t>(getpid())) + 1));
    EXPECT_EQ(known(), PeerKnown::gone);
    const pid_t child = fork();  // the first one of a process looks
    if (child == 0) _exit(publish_listener(1, 1).empty() ? 1 : 0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(std::filesystem::exists(path(listening_.port)));
    EXPECT_EQ(known(), PeerKnown::unlisted);
}

TEST_F(Registry, an_entry_speaks_for_no_other_socket) {
    const auto start = process_start_time(static_cast<std::uint32_t>(getpid()));
    forge(name(listening_.cookie + 1, getpid(), start));
    EXPECT_EQ(known(), PeerKnown::elsewhere);
    forge(name(listening_.cookie, getpid(), start));
    EXPECT_EQ(known(), PeerKnown::sdp);
}

TEST_F(Registry, names_that_are_none_of_ours_are_passed_over) {
    const auto start = process_start_time(static_cast<std::uint32_t>(getpid()));
    const std::string good = name(listening_.cookie, getpid(), start);
    for (const std::string& bad :
         {std::string("x"), good + "x", "0" + good, good.substr(1), good.substr(0, 40),
          std::string(200, '9'), good + "-", std::string("-1") + good.substr(2)}) {
        forge(bad);
    }
    EXPECT_EQ(known(), PeerKnown::elsewhere);
    // Of another PID namespace it cannot be told whether the process lives.
    std::string other = good;
    other.replace(other.find(std::to_string(own_pid_namespace())),
                  std::to_string(own_pid_namespace()).size(), "12345");
    forge(other);
    EXPECT_EQ(known(), PeerKnown::gone);
}

TEST_F(Registry, a_folder_that_others_may_write_to_is_not_believed) {
    ASSERT_NE(publish_listener(listening_.port, listening_.cookie), "");
    ASSERT_EQ(chmod(path(listening_.port).c_str(), 0777), 0);
    EXPECT_EQ(known(), PeerKnown::unlisted);
    ASSERT_EQ(chmod(path(listening_.port).c_str(), 0755), 0);
    EXPECT_EQ(known(), PeerKnown::sdp);
    ASSERT_EQ(chmod(path().c_str(), 0777), 0);
    EXPECT_EQ(publish_listener(listening_.port, listening_.cookie), "");
    EXPECT_EQ(errno, EPERM);
}

TEST_F(Registry, of_another_user) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_NE(publish_listener(listening_.port, listening_.cookie), "");
    ASSERT_EQ(chown(path(listening_.port).c_str(), 12345, 12345), 0);
    EXPECT_EQ(known(), PeerKnown::unlisted);
}

TEST_F(Registry, a_link_is_not_followed) {
    ASSERT_NE(publish_listener(listening_.port, listening_.cookie), "");
    std::filesystem::rename(path(listening_.port), folder_.path() + "/moved");
    std::filesystem::create_directory_symlink(folder_.path() + "/moved", path(listening_.port));
    EXPECT_EQ(known(), PeerKnown::unlisted);
}

TEST_F(Registry, full_of_lies) {
    const auto start = process_start_time(static_cast<std::uint32_t>(getpid()));
    std::mt19937_64 random(1);
    // (No neighbour of a process's number: that may have begun in the same tick.)
    const auto number = [&](std::uint64_t good) -> std::uint64_t {
        const std::uint64_t wrong[] = {0, 1, good ^ 1ull << 31, random(), ~0ull};
        return wrong[random() % std::size(wrong)];
    };
    // Each has at least one wrong field.
    for (int i = 0; i < 500; ++i) {
        std::uint64_t cookie = listening_.cookie, began = start;
        auto pid = static_cast<std::uint64_t>(getpid());
        const auto which = 1 + random() % 7;
        if ((which & 1) != 0) cookie = number(cookie);
        if ((which & 2) != 0) pid = number(pid);
        if ((which & 4) != 0) began = number(began);
        forge(name(cookie, static_cast<long>(pid % 0xffffffff), began));
    }
    for (int i = 0; i < 500; ++i) {
        std::string octets(1 + random() % 200, ' ');
        for (char& octet : octets) octet = static_cast<char>(random());
        for (char& octet : octets) octet = octet == '\0' || octet == '/' ? '-' : octet;
        forge("x" + octets);
    }
    EXPECT_NE(known(), PeerKnown::sdp);
    EXPECT_NE(publish_listener(listening_.port, listening_.cookie), "");
    EXPECT_EQ(known(), PeerKnown::sdp) << "the truth is found among them";
}

TEST_F(Registry, of_any_size_is_swept_in_limits) {
    constexpr std::ptrdiff_t kDead = 6'000, kMostEntries = 4'096;
    for (std::uint64_t i = 0; i < kDead; ++i) forge(name(i + 1, 0x7ffffff0, 1));
    EXPECT_NE(known(), PeerKnown::sdp);
    // A process sweeps when it publishes for the first time.
    const pid_t child = fork();
    if (child == 0) _exit(publish_listener(1, 1).empty() ? 1 : 0);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    using Entries = std::filesystem::directory_iterator;
    const std::ptrdiff_t left = std::distance(Entries(path(listening_.port)), Entries());
    EXPECT_GE(left, kDead - kMostEntries);
    EXPECT_LT(left, kDead);
}

TEST_F(Registry, an_entry_with_bytes_in_it_is_as_one_without) {
    const std::string entry = publish_listener(listening_.port, listening_.cookie);
    ASSERT_NE(entry, "");
    std::ofstream(entry) << std::string(100'000, 'x');
    EXPECT_EQ(known(), PeerKnown::sdp) << "its name says all";
}

TEST_F(Registry, something_else_in_place_of_a_folder) {
    std::filesystem::create_directory(path());
    for (const std::string& which : {path(listening_.port), path()}) {
        std::filesystem::remove_all(which);
        std::ofstream(which).put('x');
        EXPECT_EQ(known(), PeerKnown::unlisted);
        EXPECT_EQ(publish_listener(listening_.port, listening_.cookie), "");
        EXPECT_NE(errno, 0);
        std::filesystem::remove(which);
        ASSERT_EQ(mkfifo(which.c_str(), 0755), 0);
        EXPECT_EQ(known(), PeerKnown::unlisted);
        EXPECT_EQ(publish_listener(listening_.port, listening_.cookie), "");
        std::filesystem::remove(which);
    }
}

TEST_F(Registry, something_else_in_place_of_an_entry) {
    const std::string entry = publish_listener(listening_.port, listening_.cookie);
    ASSERT_NE(entry, "");
    withdraw_listener(entry);
    const auto publishes = [&] {
        return publish_listener(listening_.port, listening_.cookie) == entry;
    };
    std::filesystem::create_directories(entry);
    EXPECT_FALSE(publishes());
    std::filesystem::remove(entry);
    ASSERT_EQ(mkfifo(entry.c_str(), 0644), 0);
    EXPECT_FALSE(publishes()) << "it has no reader, and nothing waits for one";
    std::filesystem::remove(entry);
    std::filesystem::create_symlink(folder_.path() + "/elsewhere", entry);
    EXPECT_FALSE(publishes());
    EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/elsewhere"));
    std::filesystem::remove(entry);
    EXPECT_TRUE(publishes());
}

// Not root, which reads all.
TEST_F(Registry, that_cannot_be_read) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (setgid(12345) != 0 || setuid(12345) != 0) _exit(1);
        if (publish_listener(listening_.port, listening_.cookie).empty()) _exit(2);
        if (known() != PeerKnown::sdp) _exit(3);
        for (const std::string& which : {path(listening_.port), path()}) {
            if (chmod(which.c_str(), 0) != 0 || known() != PeerKnown::unlisted) _exit(4);
            if (!publish_listener(listening_.port, listening_.cookie).empty()) _exit(5);
            if (chmod(which.c_str(), 0755) != 0 || known() != PeerKnown::sdp) _exit(6);
        }
        _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

TEST_F(Registry, off) {
    setenv("XSOCK_REGISTRY", "off", 1);
    EXPECT_EQ(publish_listener(listening_.port, listening_.cookie), "");
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(known(), PeerKnown::unlisted);
}

TEST_F(Registry, is_there_whatever_the_umask) {
    const mode_t before = umask(077);
    const std::string entry = publish_listener(listening_.port, listening_.cookie);
    umask(before);
    EXPECT_NE(entry, "");
    EXPECT_EQ(known(), PeerKnown::sdp);
    struct stat s {};
    ASSERT_EQ(stat(path().c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0755u);
    ASSERT_EQ(stat(path(listening_.port).c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0755u);
}

}  // namespace
}  // namespace xsock
