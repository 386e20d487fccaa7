// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/learned_peers.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/folder.hpp"
#include "base/listener_registry.hpp"
#include "base/netlink.hpp"

namespace xsock {
namespace {

using State = Learned::State;

constexpr unsigned kNotesPerSweep = 64;

std::string registry() { return registry_folder(geteuid()); }
std::string folder_below(const std::string& registry) { return registry + "/learned"; }

std::string file_name(const LearnedPlace& place, State state) {
    char text[112];
    int n = std::snprintf(text, sizeof text, "%016" PRIx64 "-%" PRIu32 "-", place.network,
                          place.interface);
    for (const std::uint8_t octet : place.peer.address.octets) {
        n += std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n), "%02x", octet);
    }
    std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n), "-%u-%s",
                  unsigned{place.peer.port}, state == State::answered ? "sdp" : "failed");
    return text;
}

/// Whether file_name() makes such a name.
bool is_own_name(const char* name) {
    LearnedPlace place;
    char address[33] = "", state[8] = "";
    if (std::sscanf(name, "%16" SCNx64 "-%10" SCNu32 "-%32[0-9a-f]-%5" SCNu16 "-%7s",
                    &place.network, &place.interface, address, &place.peer.port, state) != 5 ||
        std::strlen(address) != 32) {
        return false;
    }
    for (std::size_t i = 0; i < place.peer.address.octets.size(); ++i) {
        const char digits[] = {address[2 * i], address[2 * i + 1], '\0'};
        place.peer.address.octets[i] = static_cast<std::uint8_t>(std::strtoul(digits, nullptr, 16));
    }
    return file_name(place, State::answered) == name || file_name(place, State::failed) == name;
}

/// A folder that this user alone may write to.
bool is_own_folder(const std::string& path) {
    struct stat s {};
    if (lstat(path.c_str(), &s) != 0) return false;
    if (S_ISDIR(s.st_mode) && s.st_uid == geteuid() && (s.st_mode & 022) == 0) return true;
    errno = EPERM;
    return false;
}

bool make_folder(const std::string& path, mode_t mode) {
    if (mkdir(path.c_str(), mode) == 0) return chmod(path.c_str(), mode) == 0;  // the umask
    return errno == EEXIST && is_own_folder(path);
}

Time time_of(const struct stat& s) {
    if (s.st_mtim.tv_sec < 0) return 0;
    return static_cast<Time>(s.st_mtim.tv_sec) * kSecond + static_cast<Time>(s.st_mtim.tv_nsec);
}

/// Of an entry from `then`. Where the clock was put back that may be in the future: then nothing
/// can be said, so that only what warns holds.
bool holds(Time then, Time now, State state) {
    if (then > now) return state == State::failed && then - now < kLearnedFor;
    return now - then < kLearnedFor;
}

/// Removes what does not hold any more. How much is left, up to kMostLearned.
unsigned sweep(const std::string& folder, Time now) {
    const Folder entries(opendir(folder.c_str()));
    if (entries == nullptr) return 0;  // no descriptor: what is there is not known
    unsigned seen = 0, removed = 0;
    while (const dirent* const entry = readdir(entries.get())) {
        if (entry->d_name[0] == '.') continue;
        if (++seen >= kMostLearned) break;
        struct stat s {};
        const int at = dirfd(entries.get());
        if (!is_own_name(entry->d_name) ||
            fstatat(at, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        const Time then = time_of(s);
        const bool is_old = then <= now && now - then >= kLearnedFor;
        if (is_old && unlinkat(at, entry->d_name, 0) == 0) ++removed;
    }
    return seen - removed;
}

bool has_room(const std::string& folder, Time now) {
    static std::atomic<unsigned> notes{0};
    static std::atomic<bool> is_full{false};
    if (notes.fetch_add(1) % kNotesPerSweep == 0) {
        is_full.store(sweep(folder, now) >= kMostLearned);
    }
    return !is_full.load();
}

/// The entry is there, with that time.
bool note(const std::string& folder, const LearnedPlace& place, State state, Time now) {
    const std::string file = folder + "/" + file_name(place, state);
    const timespec then{static_cast<time_t>(now / kSecond), static_cast<long>(now % kSecond)};
    const timespec times[] = {then, then};
    if (utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return true;
    if (errno != ENOENT) return false;
    if (!has_room(folder, now)) {
        errno = ENOSPC;
        return false;
    }
    // Needs no descriptor, of which there may be none.
    if (mknod(file.c_str(), S_IFREG | 0600, 0) != 0 && errno != EEXIST) return false;
    return utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0;
}

/// Empty with errno: nothing can be noted.
std::string make_folders(const LearnedPlace& place) {
    const std::string parent = registry();
    errno = place.network == 0 ? EOPNOTSUPP : 0;
    if (place.network == 0 || parent.empty() || !make_folder(parent, 0755)) return {};
    std::string folder = folder_below(parent);
    if (!make_folder(folder, 0700)) return {};
    return folder;
}

}  // namespace

std::optional<bool> learn_setting() noexcept {
    const char* const value = secure_getenv("XSOCK_POLICY_LEARN");
    if (value == nullptr || *value == '\0' || std::strcmp(value, "0") == 0) return false;
    if (std::strcmp(value, "1") == 0) return true;
    return std::nullopt;
}

LearnedPlace learned_place(int fd, const IpEndpoint& peer, unsigned scope) noexcept {
    // An inode's number would be another namespace's soon.
    LearnedPlace place{network_cookie(fd), scope, peer};
    int bound = 0;
    socklen_t length = sizeof bound;
    if (getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &bound, &length) == 0 && bound > 0) {
        place.interface = static_cast<std::uint32_t>(bound);
    }
    return place;
}

Learned look_up_learned(const LearnedPlace& place, Time now) {
    const std::string parent = registry();
    if (place.network == 0 || parent.empty()) return {};
    const std::string folder = folder_below(parent);
    if (!is_own_folder(parent) || !is_own_folder(folder)) return {};
    const auto check = [&](State state) -> std::optional<Learned> {
        struct stat s {};
        if (lstat((folder + "/" + file_name(place, state)).c_str(), &s) != 0) return std::nullopt;
        if (state == State::answered && (!S_ISREG(s.st_mode) || s.st_uid != geteuid())) {
            return std::nullopt;
        }
        const Time then = time_of(s);
        if (!holds(then, now, state)) return std::nullopt;
        return Learned{state, then < now ? now - then : 0};
    };
    if (const auto found = check(State::failed)) return *found;
    return check(State::answered).value_or(Learned{});
}

bool note_answered(const LearnedPlace& place, Time now) {
    const std::string folder = make_folders(place);
    return !folder.empty() && note(folder, place, State::answered, now);
}

bool note_failed(const LearnedPlace& place, Time now) {
    const std::string folder = make_folders(place);
    if (folder.empty()) return false;
    note(folder, place, State::failed, now);  // first, so that there is no moment with neither
    return unlink((folder + "/" + file_name(place, State::answered)).c_str()) == 0;
}

}  // namespace xsock
