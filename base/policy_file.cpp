// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/policy_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace xsock {
namespace {

constexpr const char* kSystemFile = "/etc/xsock/policy";

// Without secure_getenv() a setuid program would read what its caller names.
std::string setting(const char* name) {
    const char* const value = secure_getenv(name);
    return value != nullptr ? value : "";
}

PolicyError system_error(int error) { return {0, std::strerror(error)}; }

/// The user's own file; "" without a home.
std::string user_file() {
    const std::string config = setting("XDG_CONFIG_HOME");
    if (!config.empty() && config[0] == '/') return config + "/xsock/policy";
    const std::string home = setting("HOME");
    return !home.empty() && home[0] == '/' ? home + "/.config/xsock/policy" : "";
}

std::optional<PolicyError> read_open_file(int fd, std::string& text) {
    struct stat s {};
    if (fstat(fd, &s) != 0) return system_error(errno);
    if (S_ISDIR(s.st_mode)) return system_error(EISDIR);
    if (!S_ISREG(s.st_mode)) return PolicyError{0, "is no regular file"};
    // Not by its size, which may change. The parser refuses what is longer than may be.
    char piece[16384];
    while (text.size() <= kMaxPolicyBytes) {
        const ssize_t n = read(fd, piece, sizeof piece);
        if (n == 0) break;
        if (n < 0 && errno != EINTR) return system_error(errno);
        if (n > 0) text.append(piece, static_cast<std::size_t>(n));
    }
    return {};
}

/// Why there is nothing to read at `path`; "" where there is something. A folder that cannot be
/// searched, such as root's in a service that has dropped its rights, counts as nothing.
std::string why_not_there(const std::string& path) {
    struct stat s {};
    if (stat(path.c_str(), &s) == 0) return {};
    return errno == ENOENT || errno == ENOTDIR ? "not there" : std::strerror(errno);
}

void take(LoadedPolicy& loaded, const std::string& path) {
    loaded.path = path;
    loaded.error = read_policy_file(path, loaded.policy);
    loaded.places.push_back({path, loaded.error ? loaded.error->reason : "taken"});
}

}  // namespace

std::optional<PolicyError> read_policy_file(const std::string& path, Policy& policy) {
    policy = {};
    // O_NONBLOCK: a FIFO without a writer would block.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return system_error(errno);
    std::string text;
    const auto error = read_open_file(fd, text);
    close(fd);
    return error ? error : parse_policy(text, policy);
}

LoadedPolicy load_policy() {
    LoadedPolicy loaded;
    if (const std::string stream = setting("XSOCK_STREAM"); !stream.empty()) {
        loaded.stream = parse_policy_mode(stream);
        if (!loaded.stream) loaded.stream_error = "none of tcp, both, sdp";
    }
    const std::string named = setting("XSOCK_POLICY");
    if (!named.empty() && named[0] != '/') {
        // The program, and those that it starts, may change their folders.
        loaded.path = named;
        loaded.error = PolicyError{0, "is no absolute path"};
        loaded.places.push_back({named, loaded.error->reason});
        return loaded;
    }
    if (!named.empty()) {
        take(loaded, named);
        return loaded;
    }
    for (const std::string& path : {user_file(), std::string(kSystemFile)}) {
        if (path.empty()) continue;
        const std::string absent = why_not_there(path);
        if (!absent.empty()) {
            loaded.places.push_back({path, absent});
        } else if (!loaded.path.empty()) {
            loaded.places.push_back({path, "behind the one that is taken"});
        } else {
            take(loaded, path);
        }
    }
    return loaded;
}

}  // namespace xsock
