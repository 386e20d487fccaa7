// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/descriptors.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace xsock {
namespace {

constexpr int kMost = 1 << 20;  // the kernel's own limit unless an administrator raises it
constexpr int kOutOfTheWay = 4096;

std::array<std::atomic<std::uint64_t>, kMost / 64> owned;

// Changes. Those of its parent's other threads never end in a forked child, which resets them.
std::atomic<std::uint64_t> begun{0}, ended{0};

std::uint64_t bit(int fd) noexcept { return std::uint64_t{1} << (fd % 64); }
bool in_range(int fd) noexcept { return fd >= 0 && fd < kMost; }
std::atomic<std::uint64_t>& word(int fd) noexcept {
    return owned[static_cast<std::size_t>(fd) / 64];
}

// Calls `found` with each, ascending. Numbers are given out from below: a long stretch of free ones
// is the end.
template <typename F>
void for_each_pipe(F&& found) {
    constexpr int kFreeInARow = 256;
    int free_in_a_row = 0;
    for (int fd = 0; free_in_a_row < kFreeInARow; fd++) {
        struct stat status {};
        // By number: a check of a descriptor that is another thread's is no race, but one of
        // ThreadSanitizer's.
        if (syscall(SYS_fstat, fd, &status) != 0) {
            free_in_a_row++;
            continue;
        }
        free_in_a_row = 0;
        if (S_ISFIFO(status.st_mode)) found(fd);
    }
}

bool one_byte_unread(int fd) noexcept {
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes == 1 && fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

// ---- the pipe that each forked child opens anew ----------------------------------------------

std::mutex claiming;
bool is_claimed = false;  // under it
std::array<int, 2> claimed{-1, -1};
timespec fork_began;

void note_fork() noexcept { clock_gettime(CLOCK_REALTIME_COARSE, &fork_began); }

// A pipe's times are those of its making, or of what was written to it.
bool is_older_than_fork(const struct stat& status) noexcept {
    const timespec& made = status.st_ctim;
    return made.tv_sec != fork_began.tv_sec ? made.tv_sec < fork_began.tv_sec
                                            : made.tv_nsec < fork_began.tv_nsec;
}

// In the child, right behind the library's own handler: the old numbers are free, and the new ones
// were the lowest that were free.
void claim_in_child() noexcept {
    std::size_t found = 0;
    for (int& fd : claimed) unregister_internal_fd(std::exchange(fd, -1));
    struct stat status {};
    for (int fd = 0; found < claimed.size() && syscall(SYS_fstat, fd, &status) == 0; fd++) {
        if (!S_ISFIFO(status.st_mode) || is_older_than_fork(status) || !one_byte_unread(fd)) {
            continue;
        }
        register_internal_fd(fd);
        claimed[found++] = fd;
    }
}

}  // namespace

InternalPipes::InternalPipes() : first_(claiming) {
    if (is_claimed) {
        first_.unlock();
    } else {
        for_each_pipe([this](int fd) { before_.push_back(fd); });
    }
}

void InternalPipes::claim() noexcept {
    if (!first_) return;
    std::size_t found = 0;
    for_each_pipe([this, &found](int fd) {
        if (std::binary_search(before_.begin(), before_.end(), fd) || !one_byte_unread(fd)) return;
        register_internal_fd(fd);
        if (found < claimed.size()) claimed[found++] = fd;
    });
    // Now, because handlers of children run in the order in which they were registered.
    if (found != 0) pthread_atfork(note_fork, nullptr, claim_in_child);
    is_claimed = true;
    first_.unlock();
}

void register_internal_fd(int fd) noexcept {
    if (in_range(fd)) word(fd).fetch_or(bit(fd), std::memory_order_relaxed);
}

void unregister_internal_fd(int fd) noexcept {
    if (in_range(fd)) word(fd).fetch_and(~bit(fd), std::memory_order_relaxed);
}

bool is_internal_fd(int fd) noexcept {
    return in_range(fd) && (word(fd).load(std::memory_order_relaxed) & bit(fd)) != 0;
}

DescriptorChange::DescriptorChange() noexcept {
    begun.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

DescriptorChange::~DescriptorChange() { ended.fetch_add(1); }

void forget_descriptor_changes() noexcept {
    ended.store(begun.load());
    new (&claiming) std::mutex;
}

bool is_program_fd(int fd) noexcept {
    constexpr int kYields = 1000, kNaps = 10'000;
    for (int tries = 0;; ++tries) {
        const std::uint64_t over = ended.load();
        const std::uint64_t before = begun.load();
        const bool program_fd = fcntl(fd, F_GETFD) >= 0 && !is_internal_fd(fd);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (!program_fd || (over >= before && begun.load() == before) || tries == kYields + kNaps) {
            return program_fd;
        }
        if (tries < kYields) {
            sched_yield();
        } else {
            constexpr timespec kNap{0, 50'000};
            nanosleep(&kNap, nullptr);
        }
    }
}

std::size_t descriptor_limit() noexcept {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : SIZE_MAX;
}

void close_internal_fd(int fd) noexcept {
    const DescriptorChange change;
    unregister_internal_fd(fd);
    close(fd);
}

namespace {

Result<int> duplicate(int fd) noexcept {
    const auto from = static_cast<int>(std::min<std::size_t>(descriptor_limit() / 2, kOutOfTheWay));
    const DescriptorChange change;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (copy < 0 && errno != EBADF) copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return Error{errno, "the descriptor cannot be duplicated"};
    register_internal_fd(copy);
    return copy;
}

}  // namespace

Result<int> duplicate_descriptor(int fd) noexcept {
    Result<int> copy = duplicate(fd);
    // The number is being closed by another thread (open_inactive_descriptor()).
    if (copy && (fcntl(*copy, F_GETFL) & O_PATH) != 0) {
        close_internal_fd(*copy);
        return Error{EBADF, "the descriptor is being closed"};
    }
    return copy;
}

int move_and_register(int fd) noexcept {
    if (fd < 0) return fd;
    Result<int> copy = duplicate(fd);
    if (!copy) {
        register_internal_fd(fd);
        return fd;
    }
    close(fd);
    return *copy;
}

Result<int> open_inactive_descriptor() noexcept {
    const DescriptorChange change;
    // No directory, if there is anything else: openat() and fchdir() would work on it.
    int opened = open("/dev/null", O_PATH | O_CLOEXEC);
    if (opened < 0) opened = open("/", O_PATH | O_CLOEXEC);
    const int fd = move_and_register(opened);
    if (fd < 0) return Error{errno, "neither /dev/null nor the root folder can be opened"};
    return fd;
}

}  // namespace xsock
