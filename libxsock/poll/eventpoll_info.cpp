// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/eventpoll_info.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "transport/descriptors.hpp"

namespace xsock::readiness {
namespace {

struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
struct CloseFolder {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
};

// Calls `f(number, line)` for each "tfd:" line, one for each descriptor registered. False: no such
// file.
template <typename F>
bool each_registered(int epfd, F&& f) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epfd);
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "re"));
    if (file == nullptr) return false;
    char line[512];
    while (std::fgets(line, sizeof line, file.get()) != nullptr) {
        int number = -1;
        if (std::sscanf(line, "tfd: %d", &number) == 1) f(number, line);
    }
    return true;
}

// Calls `f(number)` for each epoll descriptor of this process. False: no /proc.
template <typename F>
bool each_epoll(F&& f) {
    const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
    if (folder == nullptr) return false;
    while (const dirent* const entry = readdir(folder.get())) {
        char kind[32];
        const ssize_t n = readlinkat(dirfd(folder.get()), entry->d_name, kind, sizeof kind - 1);
        if (n <= 0) continue;
        kind[n] = '\0';
        if (std::strcmp(kind, "anon_inode:[eventpoll]") == 0) f(std::atoi(entry->d_name));
    }
    return true;
}

// Of a socket; 0: is none.
ino_t socket_inode(int fd) noexcept {
    struct stat status {};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

bool waits_for_epoll(long number) noexcept {
    switch (number) {
#ifdef SYS_epoll_wait
        case SYS_epoll_wait:
#endif
        case SYS_epoll_pwait:
#ifdef SYS_epoll_pwait2
        case SYS_epoll_pwait2:
#endif
            return true;
        default:
            return false;
    }
}

}  // namespace

std::optional<std::size_t> count_registered(int epfd) noexcept {
    std::size_t count = 0;
    if (!each_registered(epfd, [&](int, const char*) { ++count; })) return std::nullopt;
    return count;
}

std::optional<bool> is_nested(int epfd) noexcept {
    bool nested = false;
    const bool known = each_epoll([&](int outer) {
        each_registered(outer, [&](int number, const char*) { nested |= number == epfd; });
    });
    if (!known) return std::nullopt;
    return nested;
}

// A registration outlives the number it was made by, as long as the socket has another one; such a
// number may be anything by now, and is left to the kernel.
std::vector<Registration> registrations_of(int fd, int epfd) {
    std::vector<Registration> found;
    const ino_t inode = socket_inode(fd);
    if (inode == 0) return found;
    each_registered(epfd, [&](int number, const char* line) {
        unsigned events = 0;
        unsigned long long data = 0;
        unsigned long registered_inode = inode;  // Linux before 4.13 does not tell
        const int fields = std::sscanf(line, "tfd: %*d events: %x data: %llx pos:%*d ino:%lx",
                                       &events, &data, &registered_inode);
        if (fields < 2 || registered_inode != inode || socket_inode(number) != inode) return;
        if (is_internal_fd(number)) return;
        Registration registration;
        registration.fd = number;
        registration.event.events = events;
        registration.event.data.u64 = data;
        found.push_back(registration);
    });
    return found;
}

int next_registered(int fd, int after) {
    int next = INT_MAX;
    each_epoll([&](int epfd) {
        if (epfd <= after || epfd >= next || is_internal_fd(epfd)) return;
        if (!registrations_of(fd, epfd).empty()) next = epfd;
    });
    return next != INT_MAX ? next : -1;
}

// One that has been woken runs, and may sleep again, until it is seen doing something else.
bool KernelWaiters::check() {
    const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/task"));
    if (folder == nullptr) return false;
    const pid_t self = gettid();
    std::vector<int> now;
    while (const dirent* const entry = readdir(folder.get())) {
        const int thread = std::atoi(entry->d_name);
        if (thread <= 0 || thread == self) continue;
        char path[64];
        std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
        const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "re"));
        if (file == nullptr) continue;
        long number = -1;
        unsigned long epfd = 0;
        bool sleeps = false;
        if (std::fscanf(file.get(), "%ld %lx", &number, &epfd) != 2) {  // "running"
            sleeps = std::find(threads_.begin(), threads_.end(), thread) != threads_.end();
        } else if (waits_for_epoll(number) && epfd <= INT_MAX &&
                   !is_internal_fd(static_cast<int>(epfd))) {
            each_registered(static_cast<int>(epfd),
                            [&](int member, const char*) { sleeps |= member == marker_; });
        }
        if (sleeps) now.push_back(thread);
    }
    threads_.swap(now);
    return !threads_.empty();
}

}  // namespace xsock::readiness
