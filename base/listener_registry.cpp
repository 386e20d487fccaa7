// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/listener_registry.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/folder.hpp"
#include "base/netlink.hpp"
#include "base/stats_page.hpp"

namespace xsock {
namespace {

constexpr unsigned kMostEntries = 4096;  // of one port that are looked at

/// Null with errno: it is not there, or `user` is not the only one who may write there.
Folder open_folder(const std::string& path, uid_t user) {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return nullptr;
    struct stat s {};
    if (fstat(fd, &s) != 0 || s.st_uid != user || (s.st_mode & 022) != 0) {
        close(fd);
        errno = EPERM;
        return nullptr;
    }
    Folder folder(fdopendir(fd));
    if (folder == nullptr) close(fd);
    return folder;
}

/// Of all users to read, whatever the umask.
Folder make_folder(const std::string& path) {
    const bool made = mkdir(path.c_str(), 0755) == 0;
    if (!made && errno != EEXIST) return nullptr;
    Folder folder = open_folder(path, geteuid());
    if (folder != nullptr && made && fchmod(dirfd(folder.get()), 0755) != 0) return nullptr;
    return folder;
}

struct Entry {
    std::uint64_t cookie = 0;
    std::uint32_t pid = 0;
    std::uint64_t pid_namespace = 0;
    std::uint64_t start_time = 0;
};

std::string text_of(const Entry& e) {
    char name[96];
    std::snprintf(name, sizeof name, "%016" PRIx64 "-%" PRIu32 "-%" PRIu64 "-%" PRIu64 "-sdp",
                  e.cookie, e.pid, e.pid_namespace, e.start_time);
    return name;
}

std::optional<Entry> parse(const char* name) {
    Entry e;
    if (std::sscanf(name, "%16" SCNx64 "-%10" SCNu32 "-%20" SCNu64 "-%20" SCNu64 "-sdp", &e.cookie,
                    &e.pid, &e.pid_namespace, &e.start_time) != 4) {
        return std::nullopt;
    }
    // Only what we would have written ourselves.
    if (text_of(e) != name) return std::nullopt;
    return e;
}

/// The process still runs. Of another PID namespace that cannot be told; where /proc does not show
/// it, there is one of that number.
bool is_alive(const Entry& e) {
    if (e.pid_namespace != own_pid_namespace() || e.pid > INT_MAX) return false;
    const std::uint64_t start = process_start_time(e.pid);
    if (start != 0) return start == e.start_time;
    return e.pid != 0 && (kill(static_cast<pid_t>(e.pid), 0) == 0 || errno == EPERM);
}

bool is_left_behind(const Entry& e) {
    return e.pid_namespace == own_pid_namespace() && !is_alive(e);
}

template <typename F>
void for_entries(DIR* folder, F f) {
    unsigned seen = 0;
    while (const dirent* const entry = readdir(folder)) {
        if (++seen > kMostEntries) return;
        if (const auto parsed = parse(entry->d_name)) f(*parsed, entry->d_name);
    }
}

std::string port_folder(const std::string& folder, unsigned port) {
    return folder + "/" + std::to_string(port);
}

/// Removes entries of processes that are gone, and folders of ports that are empty then. Once in a
/// process.
void sweep(const std::string& path, DIR* folder) {
    static std::atomic<pid_t> swept_by{0};
    const pid_t self = getpid();
    if (swept_by.exchange(self) == self) return;
    unsigned seen = 0;
    while (const dirent* const port = readdir(folder)) {
        if (++seen > kMostEntries) return;
        if (port->d_name[0] < '0' || port->d_name[0] > '9') continue;
        const std::string below = path + "/" + port->d_name;
        const Folder entries = open_folder(below, geteuid());
        if (entries == nullptr) continue;
        for_entries(entries.get(), [&](const Entry& e, const char* name) {
            if (is_left_behind(e)) unlinkat(dirfd(entries.get()), name, 0);
        });
        rmdir(below.c_str());  // if it is empty
    }
}

}  // namespace

std::string registry_folder(uid_t user) {
    const char* const told = secure_getenv("XSOCK_REGISTRY");
    if (told != nullptr && std::strcmp(told, "off") == 0) return {};
    if (told != nullptr && told[0] == '/') return told;
    return "/dev/shm/xsock-listeners-" + std::to_string(user);
}

std::string publish_listener(std::uint16_t port, std::uint64_t cookie) {
    const std::string path = registry_folder(geteuid());
    errno = 0;
    if (path.empty()) return {};
    const Folder folder = make_folder(path);
    if (folder == nullptr) return {};
    sweep(path, folder.get());
    Entry entry;
    entry.cookie = cookie;
    entry.pid = static_cast<std::uint32_t>(getpid());
    entry.pid_namespace = own_pid_namespace();
    entry.start_time = process_start_time(entry.pid);
    const std::string below = port_folder(path, port);
    std::string file = below + "/" + text_of(entry);
    // Another process may be removing the folder of the port, which was empty.
    for (int tries = 0; tries < 10; ++tries) {
        if (make_folder(below) == nullptr) {
            if (errno == ENOENT) continue;
            return {};
        }
        // (O_NONBLOCK: a FIFO of that name would wait for a reader.)
        const int fd =
            open(file.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
        if (fd >= 0) {
            close(fd);
            return file;
        }
        if (errno != ENOENT) return {};
    }
    return {};
}

void withdraw_listener(const std::string& path) noexcept {
    if (path.empty() || unlink(path.c_str()) != 0) return;
    char below[512];
    const std::size_t n = path.rfind('/');
    if (n >= sizeof below) return;
    std::memcpy(below, path.data(), n);
    below[n] = '\0';
    rmdir(below);  // if it is empty
}

PeerKnowledge look_up_listener(const IpEndpoint& to, unsigned scope) {
    const uid_t self = geteuid();
    Folder folders[2];
    for (int i = 0; i < 2; ++i) {
        const uid_t user = i == 0 ? self : 0;
        const std::string path = registry_folder(user);
        if (path.empty() || (i == 1 && path == registry_folder(self))) continue;
        folders[i] = open_folder(port_folder(path, to.port), user);
    }
    if (folders[0] == nullptr && folders[1] == nullptr) return {};
    const auto cookie = find_listener(to, scope);
    if (!cookie) return {PeerKnown::elsewhere};
    PeerKnowledge found{PeerKnown::elsewhere, *cookie};
    for (const Folder& folder : folders) {
        if (folder == nullptr) continue;
        for_entries(folder.get(), [&](const Entry& e, const char*) {
            if (e.cookie != *cookie || found.known == PeerKnown::sdp) return;
            found.known = is_alive(e) ? PeerKnown::sdp : PeerKnown::gone;
        });
    }
    return found;
}

}  // namespace xsock
