// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/shared_range.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "base/fault.hpp"
#include "base/page_size.hpp"
#include "base/shared_ring.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock {
namespace {

// Pages of a file, which can be taken away.
class Mapping {
  public:
    explicit Mapping(std::size_t pages) : bytes_(pages * page_size()) {
        fd_ = memfd_create("shared-range", MFD_CLOEXEC);
        EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes_)), 0);
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        EXPECT_NE(at, MAP_FAILED);
        at_ = static_cast<std::byte*>(at);
    }
    ~Mapping() {
        munmap(at_, bytes_);
        close(fd_);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    [[nodiscard]] Bytes bytes() const { return {at_, bytes_}; }
    [[nodiscard]] std::byte load(std::size_t page) const {
        return static_cast<const volatile std::byte&>(at_[page * page_size()]);
    }
    void store(std::size_t page, std::byte value) const {
        static_cast<volatile std::byte&>(at_[page * page_size()]) = value;
    }
    /// From that page on there is none any more.
    void cut(std::size_t first) const {
        const Bytes gone = bytes().subspan(first * page_size());
        EXPECT_EQ(mprotect(gone.data(), gone.size(), PROT_NONE), 0);
    }
    void end_file() const { EXPECT_EQ(ftruncate(fd_, 0), 0); }
    /// What another process would read.
    [[nodiscard]] std::byte in_file(std::size_t page) const {
        std::byte byte{1};
        EXPECT_EQ(pread(fd_, &byte, 1, static_cast<off_t>(page * page_size())), 1);
        return byte;
    }

  private:
    int fd_;
    std::byte* at_ = nullptr;
    std::size_t bytes_;
};

constexpr std::byte kMark{7};

TEST(SharedRange, a_load_of_what_is_gone_reads_zeros) {
    const Mapping mapping(4);
    const SharedRange range(mapping.bytes());
    mapping.store(0, kMark);
    EXPECT_FALSE(range.lost());
    mapping.cut(1);
    EXPECT_EQ(mapping.load(3), std::byte{0});
    EXPECT_TRUE(range.lost());
    EXPECT_EQ(mapping.load(0), std::byte{0});  // all of it is replaced
}

// SIGBUS, as in a hole that nothing can fill.
TEST(SharedRange, a_file_that_ends_is_replaced) {
    const Mapping mapping(2);
    const SharedRange range(mapping.bytes());
    mapping.store(1, kMark);
    mapping.end_file();
    EXPECT_EQ(mapping.load(1), std::byte{0});
    EXPECT_TRUE(range.lost());
}

TEST(SharedRange, a_store_to_what_is_gone_goes_to_private_memory) {
    const Mapping mapping(4);
    const SharedRange range(mapping.bytes());
    mapping.cut(1);
    mapping.store(2, kMark);
    EXPECT_TRUE(range.lost());
    EXPECT_EQ(mapping.load(2), kMark);
    mapping.store(1, kMark);
    EXPECT_EQ(mapping.in_file(1), std::byte{0});
}

TEST(SharedRange, one_fault_costs_the_others_nothing) {
    const Mapping gone(2), sound(2);
    const SharedRange a(gone.bytes()), b(sound.bytes());
    sound.store(1, kMark);
    gone.cut(0);
    EXPECT_EQ(gone.load(0), std::byte{0});
    EXPECT_TRUE(a.lost());
    EXPECT_FALSE(b.lost());
    EXPECT_EQ(sound.load(1), kMark);
}

TEST(SharedRange, many_are_replaced_one_after_another_of_any_size) {
    std::vector<std::unique_ptr<Mapping>> mappings;
    std::vector<SharedRange> ranges;
    for (std::size_t i = 0; i < 8; ++i) {
        mappings.push_back(std::make_unique<Mapping>(1 + i % 3));
        ranges.emplace_back(mappings.back()->bytes());
        mappings.back()->cut(0);
    }
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_FALSE(ranges[i].lost());
        EXPECT_EQ(mappings[i]->load(0), std::byte{0});
        EXPECT_TRUE(ranges[i].lost());
    }
}

TEST(SharedRange, a_copy_goes_on_behind_the_fault) {
    const Mapping mapping(2);
    const SharedRange range(mapping.bytes());
    mapping.store(0, kMark);
    mapping.cut(1);
    std::vector<std::byte> out(2 * page_size(), std::byte{9});
    const SharedMemory memory(mapping.bytes());
    const bool done = fault::guard([&] {
        const fault::Touch touch(1, out.data(), out.size());
        memory.copy_out(0, out);
    });
    EXPECT_TRUE(done);  // the guard is for the program's memory
    EXPECT_TRUE(range.lost());
    EXPECT_EQ(out.back(), std::byte{0});
}

TEST(SharedRange, is_forgotten_with_its_object) {
    const Mapping mapping(2);
    const auto address = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
    for (int i = 0; i < 3; ++i) {
        SharedRange range(mapping.bytes());
        const SharedRange moved(std::move(range));
        EXPECT_TRUE(SharedRange::replace(address + 5));
        EXPECT_TRUE(moved.lost());
    }
    EXPECT_FALSE(SharedRange::replace(address + 5));
}

TEST(SharedRange, ends_where_its_memory_does) {
    const Mapping mapping(2);
    const auto address = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
    const SharedRange range(mapping.bytes().first(page_size()));
    EXPECT_FALSE(SharedRange::replace(address - 1));
    EXPECT_FALSE(SharedRange::replace(address + page_size()));
    EXPECT_FALSE(range.lost());
    EXPECT_TRUE(SharedRange::replace(address + page_size() - 1));
}

TEST(SharedRange, errno_survives_a_fault) {
    const Mapping mapping(2);
    const SharedRange range(mapping.bytes());
    mapping.cut(0);
    errno = EXDEV;
    mapping.store(1, kMark);
#ifndef XSOCK_TEST_TSAN  // its handler leaves its own mark in errno
    EXPECT_EQ(errno, EXDEV);
#endif
    EXPECT_TRUE(range.lost());
}

// At the parent's address a child has memory of its own, whose faults are its own too.
TEST(SharedRange, is_none_in_a_forked_child) {
    const Mapping mapping(2);
    const SharedRange range(mapping.bytes());
    const auto address = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
    const pid_t child = fork();
    if (child == 0) _exit(SharedRange::replace(address) ? 1 : 0);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(range.lost());
}

TEST(SharedRange, threads_add_ranges_and_fault_at_a_time) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([] {
            for (int i = 0; i < 50; ++i) {
                const Mapping mapping(2);
                const SharedRange range(mapping.bytes());
                mapping.cut(0);
                mapping.store(1, kMark);
                EXPECT_TRUE(range.lost());
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace xsock
