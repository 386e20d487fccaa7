// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/stats.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/epoch.hpp"
#include "tests/unit/folder.hpp"
#include "tests/unit/sanitizers.hpp"
#include "transport/plain_sockets.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

/// Each test is a process of its own: the page is the process's.
class Stats : public ::testing::Test {
  protected:
    /// Runs `body` in a child whose pages go to `folder`; its exit status, or 128 + its signal.
    template <typename F>
    int in_child(F&& body) {
        const pid_t child = fork();
        if (child == 0) {
            setenv("XSOCK_STAT", folder.c_str(), 1);
            std::exit(body());
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::vector<std::string> files() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            found.push_back(entry.path());
        }
        return found;
    }
    /// The only page there is, as a reader sees it.
    std::string page() const {
        const auto all = files();
        if (all.size() != 1) return {};
        std::ifstream in(all[0], std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    static StatsHeader header(const std::string& page) {
        StatsHeader h{};
        std::memcpy(&h, page.data(), sizeof h);
        return h;
    }
    static StatsSlot slot(const std::string& page, std::size_t i) {
        StatsSlot s{};
        std::memcpy(&s, page.data() + kStatsSlotsAt + i * sizeof s, sizeof s);
        return s;
    }
    static PlainRecord plain(const std::string& page, int fd) {
        PlainRecord r{};
        std::memcpy(&r, page.data() + kStatsPlainAt + static_cast<std::size_t>(fd) * sizeof r,
                    sizeof r);
        return r;
    }
    static std::uint64_t inode_of(int fd) {
        struct stat s {};
        return fstat(fd, &s) == 0 ? s.st_ino : 0;
    }
    const test::Folder made;
    const std::string folder = made.path();
};

TEST_F(Stats, entries_are_seen_while_they_live) {
    EXPECT_EQ(in_child([&] {
                  auto entry = std::make_unique<StatsEntry>();
                  StatsDescription d{};
                  d.qp_num = 77;
                  set_stats_text(d.peer, "peer");
                  entry->describe(d);
                  entry->counters().tx_payload_bytes = 5;
                  entry->tx_bytes() = 9;
                  const std::string there = page();
                  if (header(there).pid != static_cast<std::uint32_t>(getpid())) return 1;
                  if (header(there).connections != 1 || header(there).unlisted != 0) return 2;
                  const StatsSlot s = slot(there, 0);
                  if (s.taken != 1 || s.sequence % 2 != 0) return 3;
                  if (s.description.qp_num != 77 || s.description.opened_ns == 0) return 4;
                  if (s.counters.tx_payload_bytes != 5 || s.tx_bytes != 9) return 5;
                  entry.reset();
                  if (slot(page(), 0).taken != 0) return 6;
                  const StatsEntry next;  // the same slot, fresh
                  const StatsSlot again = slot(page(), 0);
                  if (again.taken != 1 || again.tx_bytes != 0 || again.description.qp_num != 0) {
                      return 7;
                  }
                  return again.sequence != s.sequence ? 0 : 8;
              }),
              0);
    EXPECT_TRUE(files().empty());  // gone with the process
}

TEST_F(Stats, more_than_there_are_slots_are_counted) {
    EXPECT_EQ(in_child([&] {
                  std::vector<std::unique_ptr<StatsEntry>> entries;
                  for (std::uint32_t i = 0; i < kStatsMaxSlots + 5; ++i) {
                      entries.push_back(std::make_unique<StatsEntry>());
                      entries.back()->counters().tx_segments = i;
                      if (entries.back()->listed() != (i < kStatsMaxSlots)) return 1;
                  }
                  const StatsHeader h = header(page());
                  if (h.slots != kStatsMaxSlots || h.unlisted != 5) return 2;
                  if (h.connections != kStatsMaxSlots + 5) return 3;
                  entries.erase(entries.begin());
                  const StatsEntry late;
                  return late.listed() ? 0 : 4;
              }),
              0);
}

TEST_F(Stats, dropped_startups_are_counted_without_a_connection) {
    EXPECT_EQ(in_child([&] {
                  count_startup_dropped();
                  count_startup_dropped();
                  const StatsHeader h = header(page());
                  return h.startups_dropped == 2 && h.connections == 0 ? 0 : 1;
              }),
              0);
}

TEST_F(Stats, regions_that_are_not_pinned_are_counted_by_reason) {
    EXPECT_EQ(in_child([&] {
                  count_unpinned(kernel::Unpinned::memlock);
                  count_unpinned(kernel::Unpinned::memlock);
                  count_unpinned(kernel::Unpinned::other);
                  const StatsHeader h = header(page());
                  return h.unpinned[0] == 2 && h.unpinned[1] == 0 && h.unpinned[3] == 1 ? 0 : 1;
              }),
              0);
}

TEST_F(Stats, plain_sockets_are_noted_at_their_number) {
    EXPECT_EQ(in_child([&] {
                  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                  errno = 4711;
                  note_plain_socket(fd, PlainReason::not_mpa, PlainRole::server);
                  if (errno != 4711) return 1;
                  const PlainRecord there = plain(page(), fd);
                  if (there.inode != inode_of(fd) || there.since == 0) return 2;
                  if (there.reason != static_cast<std::uint8_t>(PlainReason::not_mpa)) return 3;
                  if (there.role != static_cast<std::uint8_t>(PlainRole::server)) return 4;
                  note_plain_socket(fd, PlainReason::policy_tcp, PlainRole::client);
                  const PlainRecord again = plain(page(), fd);
                  if (again.reason != static_cast<std::uint8_t>(PlainReason::policy_tcp)) return 5;
                  note_plain_socket(STDIN_FILENO, PlainReason::eof, PlainRole::server);
                  note_plain_socket(-1, PlainReason::eof, PlainRole::server);
                  note_plain_socket(fd + 1, PlainReason::eof, PlainRole::server);  // closed
                  if (plain(page(), STDIN_FILENO).inode != 0) return 6;
                  if (plain(page(), fd + 1).inode != 0) return 7;
                  return header(page()).plain_unlisted == 0 ? 0 : 8;
              }),
              0);
    EXPECT_TRUE(files().empty());
}

TEST_F(Stats, plain_sockets_of_high_numbers_find_a_place_or_are_counted) {
    constexpr int kHigh = 5000, kTooHigh = static_cast<int>(kStatsMaxPlain);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max <= kTooHigh) GTEST_SKIP() << "the hard limit of descriptors is too low";
    EXPECT_EQ(in_child([&] {
                  files.rlim_cur = kTooHigh + 1;
                  setrlimit(RLIMIT_NOFILE, &files);
                  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                  if (dup2(fd, kHigh) != kHigh || dup2(fd, kTooHigh) != kTooHigh) return 1;
                  const StatsEntry entry;  // behind the records, and untouched by them
                  note_plain_socket(fd, PlainReason::eof, PlainRole::server);
                  note_plain_socket(kHigh, PlainReason::slow, PlainRole::server);
                  note_plain_socket(kTooHigh, PlainReason::slow, PlainRole::server);
                  const std::string there = page();
                  if (plain(there, fd).reason != static_cast<std::uint8_t>(PlainReason::eof)) {
                      return 2;
                  }
                  if (plain(there, kHigh).inode != inode_of(fd)) return 3;
                  if (header(there).plain_records <= kHigh) return 4;
                  if (header(there).plain_records > kStatsMaxPlain) return 5;
                  if (slot(there, 0).taken != 1) return 6;
                  return header(there).plain_unlisted == 1 ? 0 : 7;
              }),
              0);
}

TEST_F(Stats, a_child_notes_its_plain_sockets_in_a_page_of_its_own) {
    EXPECT_EQ(in_child([&] {
                  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                  note_plain_socket(fd, PlainReason::policy_tcp, PlainRole::listener);
                  const std::string parents = files().at(0);
                  const pid_t child = fork();
                  if (child == 0) {
                      note_plain_socket(fd, PlainReason::eof, PlainRole::server);
                      if (files().size() != 2) _exit(1);
                      std::exit(0);
                  }
                  int status = 0;
                  waitpid(child, &status, 0);
                  if (status != 0) return 1;
                  if (files() != std::vector<std::string>{parents}) return 2;
                  return plain(page(), fd).reason ==
                                 static_cast<std::uint8_t>(PlainReason::policy_tcp)
                             ? 0
                             : 3;
              }),
              0);
}

TEST_F(Stats, works_where_nothing_can_be_published) {
    const auto works_unlisted = [] {
        note_plain_socket(STDIN_FILENO, PlainReason::eof, PlainRole::client);
        StatsEntry entry;
        entry.describe({});
        entry.counters().rx_segments = 1;
        return entry.listed() ? 1 : 0;
    };
    EXPECT_EQ(in_child([&] {
                  setenv("XSOCK_STAT", "off", 1);
                  return works_unlisted();
              }),
              0);
    EXPECT_EQ(in_child([&] {
                  setenv("XSOCK_STAT", (folder + "/no/such").c_str(), 1);
                  return works_unlisted();
              }),
              0);
    EXPECT_EQ(in_child([&] {
                  const rlimit small{2048, 2048};  // a file that grows beyond it costs a signal
                  setrlimit(RLIMIT_FSIZE, &small);
                  return works_unlisted();
              }),
              0);
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(in_child([&] {
                  const rlimit small{kStatsSlotsAt - 1, kStatsSlotsAt - 1};
                  setrlimit(RLIMIT_FSIZE, &small);
                  return works_unlisted();
              }),
              0);
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(in_child([&] {
                  const rlimit small{kStatsSlotsAt, kStatsSlotsAt};  // the header, and no slot
                  setrlimit(RLIMIT_FSIZE, &small);
                  if (works_unlisted() != 0) return 1;
                  return header(page()).unlisted == 1 ? 0 : 2;
              }),
              0);
}

TEST_F(Stats, a_forked_child_has_a_page_of_its_own) {
    EXPECT_EQ(in_child([&] {
                  auto parents = std::make_unique<StatsEntry>();
                  StatsDescription d{};
                  d.qp_num = 1;
                  parents->describe(d);
                  const pid_t child = fork();
                  if (child == 0) {
                      const StatsEntry own;
                      if (!own.listed() || files().size() != 2) _exit(1);
                      parents.reset();  // must not free the parent's slot
                      std::exit(0);     // takes the own page away, and only that
                  }
                  int status = 0;
                  waitpid(child, &status, 0);
                  if (status != 0) return 1;
                  if (files().size() != 1) return 2;
                  return slot(page(), 0).taken == 1 && slot(page(), 0).description.qp_num == 1 ? 0
                                                                                               : 3;
              }),
              0);
}

// Another thread may be taking a slot while this one forks.
TEST_F(Stats, a_forked_child_finds_no_lock_taken) {
#ifdef XSOCK_TEST_TSAN
    GTEST_SKIP() << "libtsan's allocator may be locked by a thread that the child does not have";
#endif
    EXPECT_EQ(in_child([&] {
                  Epochs epochs;
                  const auto progress = Progress::create(epochs, TransportConfig{}, 0);
                  std::atomic<bool> stop{false};
                  std::thread busy([&] {
                      while (!stop) const StatsEntry entry;
                  });
                  int failed = 0;
                  for (int i = 0; i < 200 && failed == 0; ++i) {
                      const pid_t child = fork();
                      if (child == 0) {
                          alarm(60);
                          { const StatsEntry own; }
                          _exit(0);
                      }
                      int status = 0;
                      waitpid(child, &status, 0);
                      failed = status;
                  }
                  stop = true;
                  busy.join();
                  return failed == 0 ? 0 : 1;
              }),
              0);
}

TEST_F(Stats, the_next_process_sweeps_up_behind_a_killed_one) {
    EXPECT_EQ(in_child([&] {
                  const StatsEntry entry;
                  kill(getpid(), SIGKILL);
                  return 0;
              }),
              128 + SIGKILL);
    EXPECT_EQ(files().size(), 1u);
    EXPECT_EQ(in_child([&] {
                  const StatsEntry entry;
                  return files().size() == 1 ? 0 : 1;
              }),
              0);
    EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace xsock
