// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/plain_connections.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/stats_page.hpp"
#include "tools/stats_reader.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

const char* state_of_tcp(unsigned state) {
    static constexpr const char* kNames[] = {"?",          "established", "syn-sent",  "syn-recv",
                                             "fin-wait-1", "fin-wait-2",  "time-wait", "closed",
                                             "close-wait", "last-ack",    "listen",    "closing"};
    return state < std::size(kNames) ? kNames[state] : "?";
}

template <typename F>
void for_each_line(const std::string& path, F&& take) {
    FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return;
    char* line = nullptr;
    std::size_t room = 0;
    while (getline(&line, &room, file) > 0 && take(line)) {
    }
    std::free(line);
    std::fclose(file);
}

/// The TCP sockets of a network namespace.
struct Network {
    std::unordered_map<std::uint64_t, TcpLine> connections;  // by inode
    std::vector<TcpLine> listeners;
};

Network read_network(std::uint32_t pid) {
    Network network;
    for (const char* table : {"tcp", "tcp6"}) {
        for_each_line(fmt::format("/proc/{}/net/{}", pid, table), [&](const char* text) {
            TcpLine line;
            if (!parse_tcp_line(text, line)) return true;
            if (line.state == TCP_LISTEN) {
                network.listeners.push_back(std::move(line));
            } else if (line.inode != 0) {
                network.connections.emplace(line.inode, std::move(line));
            }
            return true;
        });
    }
    return network;
}

/// By the inode of the namespace.
class Networks {
  public:
    const Network& of(std::uint32_t pid) {
        struct stat s {};
        const std::string path = fmt::format("/proc/{}/ns/net", pid);
        // Of a process that may not be looked into: most are in this one.
        if (stat(path.c_str(), &s) != 0 && stat("/proc/self/ns/net", &s) != 0) s.st_ino = 0;
        const auto known = networks_.find(s.st_ino);
        if (known != networks_.end()) return known->second;
        return networks_.emplace(s.st_ino, read_network(pid)).first->second;
    }

  private:
    std::map<std::uint64_t, Network> networks_;
};

/// "[::1]" and "80"
std::pair<std::string_view, std::string_view> parts(std::string_view endpoint) {
    const std::size_t colon = endpoint.rfind(':');
    return {endpoint.substr(0, colon), endpoint.substr(colon)};
}

bool accepts(const TcpLine& listener, const TcpLine& connection) {
    const auto [host, port] = parts(listener.local);
    const auto [local_host, local_port] = parts(connection.local);
    if (port != local_port) return false;
    return host == local_host || host == (local_host[0] == '[' ? "[::]" : "0.0.0.0");
}

/// The inodes of a process's sockets. Nothing when its descriptors may not be seen.
std::optional<std::vector<std::uint64_t>> sockets_of(std::uint32_t pid) {
    const std::string path = fmt::format("/proc/{}/fd", pid);
    DIR* const all = opendir(path.c_str());
    if (all == nullptr) return {};
    std::vector<std::uint64_t> inodes;
    while (const dirent* entry = readdir(all)) {
        char target[64];
        const ssize_t n = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        std::uint64_t inode = 0;
        if (std::sscanf(target, "socket:[%" SCNu64, &inode) == 1) inodes.push_back(inode);
    }
    closedir(all);
    return inodes;
}

/// The policy was asked: such a program's sockets are all meant to be seen. One that has asked for
/// DDPMODE itself may have others.
bool is_of_policy(const PublishedPlain& record) {
    return record.role == PlainRole::listener || record.reason == PlainReason::policy_tcp ||
           record.reason == PlainReason::unknown_peer || record.reason == PlainReason::fast_open;
}

class Finder {
  public:
    Finder(const std::vector<std::string>& folders, std::vector<ProcessStats>& processes)
        : folders_(folders), processes_(processes) {
        for (const ProcessStats& process : processes) {
            for (const ConnectionStats& c : process.connections) {
                carried_.insert(std::string(c.description.local) + ' ' + c.description.peer);
            }
            for (const PublishedPlain& record : process.published) {
                PublishedPlain& newest = published_[record.inode];
                if (newest.inode == 0 || newest.since <= record.since) newest = record;
            }
            if (process.foreign || process.published.empty()) continue;
            publish_.insert(process.pid);
            if (std::any_of(process.published.begin(), process.published.end(), is_of_policy)) {
                with_policy_.insert(process.pid);
            }
        }
    }

    void find() {
        // A forked child may have its parent's sockets: they are shown as the parent's.
        std::vector<std::uint32_t> pids(publish_.begin(), publish_.end());
        std::sort(pids.begin(), pids.end());
        const std::size_t own = pids.size();
        if (DIR* const all = opendir("/proc")) {
            while (const dirent* entry = readdir(all)) {
                const auto pid = parse_number<std::uint32_t>(entry->d_name, 1, 0x7fffffff);
                struct stat s {};
                if (!pid || publish_.contains(*pid) ||
                    fstatat(dirfd(all), entry->d_name, &s, 0) != 0 || s.st_uid != geteuid()) {
                    continue;
                }
                pids.push_back(*pid);
            }
            closedir(all);
        }
        std::sort(pids.begin() + static_cast<std::ptrdiff_t>(own), pids.end());
        for (std::size_t i = 0; i < pids.size(); ++i) find_of(pids[i], i < own);
        std::stable_sort(
            processes_.begin(), processes_.end(),
            [](const ProcessStats& a, const ProcessStats& b) { return a.pid < b.pid; });
    }

  private:
    void find_of(std::uint32_t pid, bool publishes) {
        auto inodes = sockets_of(pid);
        if (!inodes) {  // not dumpable: what it has published may be open still
            inodes.emplace();
            if (publishes) {
                for (const PublishedPlain& r : entry_of(pid).published) inodes->push_back(r.inode);
            }
        }
        if (inodes->empty()) return;
        std::optional<bool> under_policy;
        if (with_policy_.contains(pid)) under_policy = true;
        const Network& network = networks_.of(pid);
        for (const std::uint64_t inode : *inodes) {
            const auto socket = network.connections.find(inode);
            if (socket == network.connections.end() || listed_.contains(inode)) continue;
            const TcpLine& line = socket->second;
            if (carried_.contains(line.local + ' ' + line.peer)) continue;
            const auto record = published_.find(inode);
            PlainConnection found;
            if (record != published_.end() && record->second.role != PlainRole::listener) {
                found.since = record->second.since;
                found.reason = record->second.reason;
                found.role = record->second.role;
            } else {
                if (!under_policy) under_policy = shares_page(pid);
                if (!*under_policy) continue;
                judge_by_listener(network, line, found);
            }
            found.state = state_of_tcp(line.state);
            found.local = line.local;
            found.peer = line.peer;
            listed_.insert(inode);
            entry_of(pid).plain.push_back(std::move(found));
        }
    }

    /// Of a socket that nothing was published of.
    void judge_by_listener(const Network& network, const TcpLine& line,
                           PlainConnection& out) const {
        for (const TcpLine& listener : network.listeners) {
            if (!accepts(listener, line)) continue;
            out.role = PlainRole::server;
            out.reason = PlainReason::undecided;
            const auto record = published_.find(listener.inode);
            if (record == published_.end() || record->second.reason == PlainReason::none) continue;
            out.reason = record->second.reason;
            return;
        }
    }

    /// A forked child has its parent's page mapped.
    bool shares_page(std::uint32_t pid) const {
        bool shares = false;
        for_each_line(fmt::format("/proc/{}/maps", pid), [&](const char* line) {
            for (const std::string& folder : folders_) {
                const char* const at = std::strstr(line, (folder + "/").c_str());
                if (at == nullptr) continue;
                const std::uint64_t owner = std::strtoul(at + folder.size() + 1, nullptr, 10);
                shares = with_policy_.contains(static_cast<std::uint32_t>(owner));
            }
            return !shares;
        });
        return shares;
    }

    ProcessStats& entry_of(std::uint32_t pid) {
        for (ProcessStats& process : processes_) {
            if (process.pid == pid && !process.foreign) return process;
        }
        ProcessStats process;
        process.pid = pid;
        process.program = printable(trimmed(file_text(fmt::format("/proc/{}/comm", pid))));
        return processes_.emplace_back(std::move(process));
    }

    const std::vector<std::string>& folders_;
    std::vector<ProcessStats>& processes_;
    Networks networks_;
    std::unordered_set<std::string> carried_;  // "LOCAL PEER"
    std::unordered_map<std::uint64_t, PublishedPlain> published_;
    std::unordered_set<std::uint32_t> publish_, with_policy_;  // processes; the latter is within
    std::unordered_set<std::uint64_t> listed_;
};

std::string endpoint_text(const char* hex, unsigned port) {
    char text[INET6_ADDRSTRLEN] = "?";
    unsigned char octets[16];
    const std::size_t size = std::strlen(hex) / 2;
    for (std::size_t i = 0; i < size; i += 4) {
        // The kernel prints each word as a number of this machine.
        const std::string word(hex + 2 * i, 8);
        const auto number = static_cast<std::uint32_t>(std::strtoul(word.c_str(), nullptr, 16));
        std::memcpy(octets + i, &number, sizeof number);
    }
    inet_ntop(size == 4 ? AF_INET : AF_INET6, octets, text, sizeof text);
    return size == 4 ? fmt::format("{}:{}", text, port) : fmt::format("[{}]:{}", text, port);
}

}  // namespace

bool parse_tcp_line(const char* line, TcpLine& out) {
    char local[33], peer[33];
    unsigned local_port = 0, peer_port = 0;
    if (std::sscanf(line,
                    " %*u: %32[0-9A-Fa-f]:%4x %32[0-9A-Fa-f]:%4x %2x %*s %*s %*s %*u %*u %" SCNu64,
                    local, &local_port, peer, &peer_port, &out.state, &out.inode) != 6) {
        return false;
    }
    const std::size_t length = std::strlen(local);
    if ((length != 8 && length != 32) || std::strlen(peer) != length) return false;
    out.local = endpoint_text(local, local_port);
    out.peer = endpoint_text(peer, peer_port);
    return true;
}

void find_plain_connections(const std::vector<std::string>& folders,
                            std::vector<ProcessStats>& processes) {
    Finder(folders, processes).find();
}

}  // namespace xsock::tools
