// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/random.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

namespace xsock {
namespace {

using Numbers = std::array<std::uint32_t, 16>;

Numbers draw() {
    Numbers numbers;
    for (auto& n : numbers) n = random_u32();
    return numbers;
}

int in_common(const Numbers& a, const Numbers& b) {
    return static_cast<int>(std::count_if(a.begin(), a.end(), [&](std::uint32_t n) {
        return std::find(b.begin(), b.end(), n) != b.end();
    }));
}

TEST(Random, sets_every_bit_about_half_of_the_time) {
    constexpr int kDraws = 10'000;  // standard deviation 50
    std::array<int, 32> ones{};
    for (int i = 0; i < kDraws; ++i) {
        const std::uint32_t n = random_u32();
        for (std::size_t bit = 0; bit < 32; ++bit) ones[bit] += static_cast<int>((n >> bit) & 1);
    }
    for (const int count : ones) EXPECT_NEAR(count, kDraws / 2, 500);
}

TEST(Random, does_not_repeat_over_batches) {
    std::vector<std::uint32_t> seen(5000);
    for (auto& n : seen) n = random_u32();
    std::sort(seen.begin(), seen.end());
    const auto repeats = seen.end() - std::unique(seen.begin(), seen.end());
    EXPECT_LE(repeats, 3);  // one is expected in 340 runs
}

TEST(Random, threads_get_different_numbers) {
    std::vector<std::vector<std::uint32_t>> drawn(4);
    std::vector<std::thread> threads;
    for (auto& mine : drawn) {
        threads.emplace_back([&mine] {
            for (int i = 0; i < 5000; ++i) mine.push_back(random_u32());
        });
    }
    for (auto& t : threads) t.join();
    std::vector<std::uint32_t> all;
    for (const auto& mine : drawn) all.insert(all.end(), mine.begin(), mine.end());
    std::sort(all.begin(), all.end());
    EXPECT_LE(all.end() - std::unique(all.begin(), all.end()), 5);
}

TEST(Random, forked_child_does_not_repeat_its_parent) {
    (void)random_u32();  // a batch is there for the child to inherit
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const Numbers numbers = draw();
        _exit(write(fds[1], numbers.data(), sizeof numbers) == sizeof numbers ? 0 : 1);
    }
    const Numbers ours = draw();
    Numbers theirs;
    ASSERT_EQ(read(fds[0], theirs.data(), sizeof theirs), static_cast<ssize_t>(sizeof theirs));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    close(fds[0]);
    close(fds[1]);
    EXPECT_EQ(in_common(ours, theirs), 0);
}

}  // namespace
}  // namespace xsock
