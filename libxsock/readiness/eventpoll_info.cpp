// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/readiness/eventpoll_info.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace xsock::readiness {
namespace {

struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
struct CloseFolder {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
};

// Calls `f(number)` for each "tfd:" line, one for each descriptor registered. False: no such file.
template <typename F>
bool each_registered(int epfd, F&& f) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epfd);
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "re"));
    if (file == nullptr) return false;
    char line[512];
    while (std::fgets(line, sizeof line, file.get()) != nullptr) {
        int number = -1;
        if (std::sscanf(line, "tfd: %d", &number) == 1) f(number);
    }
    return true;
}

}  // namespace

std::optional<std::size_t> count_registered(int epfd) noexcept {
    std::size_t count = 0;
    if (!each_registered(epfd, [&](int) { ++count; })) return std::nullopt;
    return count;
}

std::optional<bool> is_nested(int epfd) noexcept {
    const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
    if (folder == nullptr) return std::nullopt;
    bool nested = false;
    while (const dirent* const entry = readdir(folder.get())) {
        char kind[32];
        const ssize_t n = readlinkat(dirfd(folder.get()), entry->d_name, kind, sizeof kind - 1);
        if (n <= 0) continue;
        kind[n] = '\0';
        if (std::strcmp(kind, "anon_inode:[eventpoll]") != 0) continue;
        each_registered(std::atoi(entry->d_name), [&](int number) { nested |= number == epfd; });
    }
    return nested;
}

}  // namespace xsock::readiness
