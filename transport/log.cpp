// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// By hand: a line needs no memory of the heap and may be written by a forked child, and the engine
// (RTLD_DEEPBIND) brings no logging library that a program may have in another version.
#include "transport/log.hpp"

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/biased_lock.hpp"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

constexpr int kLinesPerSecond = 20;  // for each code

std::array<char, 512> default_setting{};

// Read once, not under a guard: a child forked meanwhile would wait for ever.
constexpr int kUnread = -1;
std::atomic<int> sink_level{kUnread};
std::atomic<int> sink_fd{kUnread};
std::atomic<bool> told_bad_setting{false};

constexpr std::array<const char*, 5> kLevelNames{"off", "error", "warn", "info", "debug"};

// The level that `name` of `n` bytes names, or -1.
int level_named(const char* name, std::size_t n) noexcept {
    for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
        if (std::strlen(kLevelNames[i]) == n && std::memcmp(kLevelNames[i], name, n) == 0) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

void open_file(const char* path) noexcept {
    // Our own file, not a link of another user's: the path may lie in a world-writable folder.
    const DescriptorChange change;
    const int file =
        move_and_register(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file < 0) {
        const int error = errno;
        if (told_bad_setting.exchange(true)) return;
        dprintf(STDERR_FILENO, "xsock[%d] error bad-setting: XSOCK_LOG: cannot write %s: %s\n",
                static_cast<int>(getpid()), path, std::strerror(error));
        return;
    }
    int none = kUnread;
    if (!sink_fd.compare_exchange_strong(none, file)) close_internal_fd(file);
}

// Threads that meet here come to the same.
int read_setting() noexcept {
    const char* setting = std::getenv("XSOCK_LOG");
    if (setting == nullptr || *setting == '\0') setting = default_setting.data();
    int level = 0;
    if (*setting != '\0') {
        const char* const colon = std::strchr(setting, ':');
        level = level_named(setting, colon != nullptr ? static_cast<std::size_t>(colon - setting)
                                                      : std::strlen(setting));
        if (level < 0) {
            level = static_cast<int>(LogLevel::error);
            if (!told_bad_setting.exchange(true)) {
                dprintf(STDERR_FILENO,
                        "xsock[%d] error bad-setting: XSOCK_LOG=%s: the level is one of off, "
                        "error, warn, info, debug\n",
                        static_cast<int>(getpid()), setting);
            }
        }
        if (colon != nullptr && colon[1] != '\0') open_file(colon + 1);
    }
    int none = kUnread;
    sink_fd.compare_exchange_strong(none, STDERR_FILENO);
    sink_level.store(level, std::memory_order_release);
    return level;
}

struct Bucket {
    const char* code = nullptr;
    time_t second = 0;
    int lines = 0;
    unsigned long suppressed = 0;
};

std::array<Bucket, 64> buckets;

// The lock over them knows its holder: a signal handler that interrupts it may fork, which takes
// the lock, or write a line.
std::atomic<const ThreadTag*> holder{nullptr};
bool fork_in_line = false;  // between log_begin_fork() and log_end_fork()

// False: this thread has it, and a signal handler interrupted that.
bool lock() noexcept {
    constexpr timespec kNap{0, 50'000};  // for a holder of a lower real-time priority
    for (int tries = 0;; ++tries) {
        const ThreadTag* other = nullptr;
        if (holder.compare_exchange_strong(other, &this_thread_tag, std::memory_order_acquire)) {
            return true;
        }
        if (other == &this_thread_tag) return false;
        if (tries < 100) {
            sched_yield();
        } else {
            nanosleep(&kNap, nullptr);
        }
    }
}

void unlock() noexcept { holder.store(nullptr, std::memory_order_release); }

// With the lock. True when a line of `code` may be written in this second; `suppressed` then tells
// how many were not.
bool count_line(const char* code, time_t second, unsigned long& suppressed) noexcept {
    Bucket* bucket = nullptr;
    for (Bucket& b : buckets) {
        if (b.code == nullptr) b.code = code;
        if (b.code == code) {
            bucket = &b;
            break;
        }
    }
    if (bucket == nullptr) return true;
    if (bucket->second != second) {
        bucket->second = second;
        bucket->lines = 0;
    }
    if (++bucket->lines > kLinesPerSecond) {
        ++bucket->suppressed;
        return false;
    }
    suppressed = bucket->suppressed;
    bucket->suppressed = 0;
    return true;
}

bool may_write(const char* code, unsigned long& suppressed) noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!lock()) return true;  // a handler's line is not counted then
    const bool may = count_line(code, now.tv_sec, suppressed);
    unlock();
    return may;
}

}  // namespace

void log_begin_fork() noexcept { fork_in_line = !lock(); }
void log_end_fork() noexcept {
    if (!fork_in_line) unlock();
}
void log_forget_lock() noexcept { unlock(); }

void log_set_default(const char* setting) noexcept {
    const std::size_t n = std::strlen(setting);
    if (n < default_setting.size()) std::memcpy(default_setting.data(), setting, n + 1);
}

bool log_enabled(LogLevel level) noexcept {
    int most = sink_level.load(std::memory_order_acquire);
    if (most == kUnread) most = read_setting();
    return static_cast<int>(level) <= most;
}

void log(LogLevel level, const char* code, const char* format, ...) noexcept {
    if (!log_enabled(level)) return;
    unsigned long suppressed = 0;
    if (!may_write(code, suppressed)) return;

    char line[512];
    int n = std::snprintf(line, sizeof line, "xsock[%d] %s %s: ", static_cast<int>(getpid()),
                          kLevelNames[static_cast<std::size_t>(level)], code);
    va_list arguments;
    va_start(arguments, format);
    n += std::vsnprintf(line + n, sizeof line - static_cast<std::size_t>(n), format, arguments);
    va_end(arguments);
    n = std::min(n, static_cast<int>(sizeof line) - 48);
    if (suppressed != 0) {
        n += std::snprintf(line + n, sizeof line - static_cast<std::size_t>(n),
                           " (%lu more before)", suppressed);
    }
    line[n++] = '\n';
    // Nothing can be done when the log itself cannot be written.
    [[maybe_unused]] const ssize_t written =
        write(sink_fd.load(), line, static_cast<std::size_t>(n));
}

}  // namespace xsock
