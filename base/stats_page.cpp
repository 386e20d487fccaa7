// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stats_page.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace xsock {
namespace {

// The environment of a setuid program is set by its caller, which must not choose where it writes.
std::string setting(const char* name) {
    const char* value = secure_getenv(name);
    return value != nullptr ? value : "";
}

std::string in_shared_memory() { return "/dev/shm/xsock-" + std::to_string(geteuid()); }

}  // namespace

std::string stats_folder() {
    const std::string told = setting("XSOCK_STAT");
    if (told == "off") return {};
    if (!told.empty() && told[0] == '/') return told;
    const std::string runtime = setting("XDG_RUNTIME_DIR");
    if (!runtime.empty() && runtime[0] == '/') return runtime + "/xsock";
    return in_shared_memory();
}

std::vector<std::string> stats_folders() {
    const std::string told = setting("XSOCK_STAT");
    if (!told.empty() && told[0] == '/') return {told};
    std::vector<std::string> folders{in_shared_memory()};
    const auto add = [&](std::string folder) {
        for (const std::string& known : folders) {
            if (known == folder) return;
        }
        folders.push_back(std::move(folder));
    };
    add("/run/user/" + std::to_string(geteuid()) + "/xsock");
    const std::string runtime = setting("XDG_RUNTIME_DIR");
    if (!runtime.empty() && runtime[0] == '/') add(runtime + "/xsock");
    return folders;
}

int open_stats_folder(const std::string& path, bool make) {
    if (make && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return -1;
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    struct stat s {};
    if (fstat(fd, &s) == 0 && s.st_uid == geteuid() && (s.st_mode & 077) == 0) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

bool parse_stats_name(const char* name, StatsName& out) {
    const char* end = name + std::strlen(name);
    const auto [dash, error] = std::from_chars(name, end, out.pid);
    if (error != std::errc{} || dash == end || *dash != '-' || out.pid == 0) return false;
    const auto [dash2, error2] = std::from_chars(dash + 1, end, out.pid_namespace);
    if (error2 != std::errc{} || dash2 == end || *dash2 != '-') return false;
    const std::string_view random(dash2 + 1);
    return !random.empty() &&
           random.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::uint64_t own_pid_namespace() {
    struct stat s {};
    return stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

std::uint64_t process_start_time(std::uint32_t pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[1024];
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    // The second field is the name in parentheses and may contain anything, these too.
    const char* at = std::strrchr(text, ')');
    for (int field = 2; at != nullptr && field < 22; ++field) {
        at = std::strchr(at + 1, ' ');
    }
    return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

void sweep_stats_folder(int folder) {
    const std::uint64_t here = own_pid_namespace();
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (again < 0) return;
    DIR* entries = fdopendir(again);
    if (entries == nullptr) {
        close(again);
        return;
    }
    while (const dirent* entry = readdir(entries)) {
        StatsName name;
        if (!parse_stats_name(entry->d_name, name) || name.pid_namespace != here) continue;
        if (kill(static_cast<pid_t>(name.pid), 0) != 0 && errno == ESRCH) {
            unlinkat(folder, entry->d_name, 0);
        }
    }
    closedir(entries);
}

}  // namespace xsock
