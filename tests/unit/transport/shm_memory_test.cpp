// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"
#include "tests/unit/transport/mapped_memory.hpp"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

const shm::Layout kLayout{.ring_bytes = 65536, .slots = 64};

int sealed_memfd(std::size_t bytes, int seals, unsigned flags = 0) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t memfd_bytes() {
    auto fd = make_shm_memfd(kLayout);
    EXPECT_TRUE(fd);
    struct stat status {};
    EXPECT_EQ(fstat(*fd, &status), 0);
    close_internal_fd(*fd);
    return static_cast<std::size_t>(status.st_size);
}

// Closes it.
int error_of_mapping(int fd) {
    auto mapped = ShmMemory::map(fd, kLayout);
    close(fd);
    return mapped.error().code;
}

class MappedShmMemory : public test::MappedMemoryTest {
  protected:
    MappedShmMemory() : MappedMemoryTest(kLayout) {}
};

TEST(ShmMemory, two_mappings_are_the_same_memory) {
    auto fd = make_shm_memfd(kLayout);
    ASSERT_TRUE(fd);
    EXPECT_TRUE(is_internal_fd(*fd));
    EXPECT_EQ(fcntl(*fd, F_GETFD), FD_CLOEXEC);
    auto a = ShmMemory::map(*fd, kLayout);
    auto b = ShmMemory::map(*fd, kLayout);
    close_internal_fd(*fd);
    ASSERT_TRUE(a);
    ASSERT_TRUE(b);
    ASSERT_GE(a->bytes().size(), kLayout.bytes());
    EXPECT_EQ(a->bytes().front(), std::byte{0});
    a->bytes()[kLayout.bytes() - 1] = std::byte{3};
    EXPECT_EQ(b->bytes()[kLayout.bytes() - 1], std::byte{3});
    EXPECT_FALSE(a->lost());
}

TEST(ShmMemory, its_size_is_fixed_and_it_is_not_executable) {
    auto fd = make_shm_memfd(kLayout);
    ASSERT_TRUE(fd);
    EXPECT_EQ(ftruncate(*fd, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(ftruncate(*fd, 1 << 30), -1);
    EXPECT_EQ(fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3
    const int known = memfd_create("xsock-test", MFD_CLOEXEC | kNoExecSeal);
    if (known >= 0) {
        struct stat status {};
        ASSERT_EQ(fstat(*fd, &status), 0);
        EXPECT_EQ(status.st_mode & 0111, 0u);
        close(known);
    }
    close_internal_fd(*fd);
}

TEST_F(MappedShmMemory, is_unmapped_with_its_object) {
    {
        const ShmMemory moved(std::move(*memory));
        EXPECT_EQ(moved.bytes().data(), bytes.data());
        EXPECT_EQ(madvise(bytes.data(), bytes.size(), MADV_NORMAL), 0);
    }
    EXPECT_EQ(madvise(bytes.data(), bytes.size(), MADV_NORMAL), -1);
}

TEST_F(MappedShmMemory, is_in_no_forked_child) {
    const pid_t child = fork();
    if (child == 0) {
        const bool absent = madvise(bytes.data(), bytes.size(), MADV_NORMAL) != 0;
        _exit(absent ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// "VmFlags: ... dd ..." of the mapping says that no core dump has it.
TEST_F(MappedShmMemory, is_in_no_core_dump) {
    std::ifstream maps("/proc/self/smaps");
    bool inside = false, found = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/memfd:xsock-shm") != std::string::npos) inside = true;
        if (!inside || line.rfind("VmFlags:", 0) != 0) continue;
        found = true;
        EXPECT_NE(line.find(" dd"), std::string::npos) << line;
        inside = false;
    }
    EXPECT_TRUE(found);
}

TEST_F(MappedShmMemory, a_fault_makes_it_private) {
    ASSERT_EQ(mprotect(bytes.data(), bytes.size(), PROT_NONE), 0);
    static_cast<volatile std::byte&>(bytes[0]) = std::byte{1};
    EXPECT_TRUE(memory->lost());
}

TEST(ShmMemory, takes_only_memory_of_its_size_with_all_seals) {
    const std::size_t right = memfd_bytes();
    EXPECT_EQ(error_of_mapping(sealed_memfd(right, kSeals)), 0);
    EXPECT_EQ(error_of_mapping(sealed_memfd(right, kSeals | F_SEAL_FUTURE_WRITE)), EINVAL);
    EXPECT_EQ(error_of_mapping(sealed_memfd(right, kSeals | F_SEAL_WRITE)), EINVAL);
    EXPECT_EQ(error_of_mapping(sealed_memfd(right + 4096, kSeals)), EINVAL);
    EXPECT_EQ(error_of_mapping(sealed_memfd(right - 4096, kSeals)), EINVAL);
    EXPECT_EQ(error_of_mapping(sealed_memfd(0, kSeals)), EINVAL);
    for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
        EXPECT_EQ(error_of_mapping(sealed_memfd(right, kSeals & ~seal)), EINVAL) << seal;
    }
}

TEST(ShmMemory, takes_no_memory_opened_for_reading_or_by_path) {
    for (const int how : {O_RDONLY, O_PATH}) {
        const int fd = sealed_memfd(memfd_bytes(), kSeals);
        const int other = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), how | O_CLOEXEC);
        ASSERT_GE(other, 0);
        EXPECT_EQ(error_of_mapping(other), EINVAL);
        close(fd);
    }
}

TEST(ShmMemory, takes_no_files_and_pipes) {
    EXPECT_EQ(error_of_mapping(open("/dev/zero", O_RDWR | O_CLOEXEC)), EINVAL);
    EXPECT_EQ(error_of_mapping(open("/", O_RDONLY | O_CLOEXEC)), EINVAL);
    for (const char* folder : {"/tmp", "/dev/shm"}) {  // the second is tmpfs
        std::string name = std::string(folder) + "/xsock-shm-test-XXXXXX";
        const int fd = mkostemp(name.data(), O_CLOEXEC);
        if (fd < 0) continue;
        unlink(name.c_str());
        EXPECT_EQ(ftruncate(fd, static_cast<off_t>(memfd_bytes())), 0);
        EXPECT_EQ(error_of_mapping(fd), EINVAL) << folder;
    }
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(error_of_mapping(ends[0]), EINVAL);
    close(ends[1]);
    EXPECT_EQ(ShmMemory::map(-1, kLayout).error().code, EINVAL);
}

TEST(ShmMemory, takes_no_huge_pages) {
    const int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0) GTEST_SKIP() << "no huge pages";
    const shm::Layout layout{.ring_bytes = 1 << 20, .slots = (2 << 20) / 128 - 32};
    ASSERT_EQ(layout.bytes(), std::size_t{4} << 20);
    ASSERT_EQ(ftruncate(fd, 4 << 20), 0);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, kSeals), 0);
    EXPECT_EQ(ShmMemory::map(fd, layout).error().code, EINVAL);
    close(fd);
}

TEST(ShmMemory, says_that_there_are_no_descriptors) {
    const test::ResourceLimit none(RLIMIT_NOFILE, 0);
    EXPECT_EQ(make_shm_memfd(kLayout).error().code, EMFILE);
}

TEST(ShmMemory, says_that_there_is_no_memory) {
#if defined(XSOCK_TEST_ASAN) || defined(XSOCK_TEST_TSAN)
    GTEST_SKIP() << "the sanitizer's memory is beyond any limit";
#endif
    auto fd = make_shm_memfd(kLayout);
    ASSERT_TRUE(fd);
    std::optional<test::ResourceLimit> none(std::in_place, RLIMIT_AS, 1 << 20);
    const int error = ShmMemory::map(*fd, kLayout).error().code;
    none.reset();
    EXPECT_EQ(error, ENOMEM);
    close_internal_fd(*fd);
}

}  // namespace
}  // namespace xsock
