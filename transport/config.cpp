// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/config.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

// Without XSOCK_THREADS. A thread that sleeps for its own sockets leads their progress; with one
// for all, half of what arrives for two threads would wake the other one.
constexpr unsigned kSocketGroups = 4;

// True: it is set, and good.
template <typename T>
bool read_number(const char* name, T& value, std::uint64_t low, std::uint64_t high,
                 std::uint64_t scale = 1) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return false;
    std::uint64_t n = 0;
    const char* end = text + std::strlen(text);
    auto [rest, error] = std::from_chars(text, end, n);
    if (error != std::errc{} || rest != end || n < low || n > high) {
        log(LogLevel::error, "bad-setting", "%s=%s is not a number from %llu to %llu; ignored",
            name, text, static_cast<unsigned long long>(low),
            static_cast<unsigned long long>(high));
        return false;
    }
    value = static_cast<T>(n * scale);
    return true;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
    std::vector<int> cpus;
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
        int first = 0;
        auto [after, error] = std::from_chars(at, end, first);
        if (error != std::errc{} || first < 0 || first > 4095) return {};
        int last = first;
        if (after < end && *after == '-') {
            auto [after_last, error_last] = std::from_chars(after + 1, end, last);
            if (error_last != std::errc{} || last < first || last > 4095) return {};
            after = after_last;
        }
        for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
        if (after < end && (*after != ',' || after + 1 == end)) return {};
        at = after + 1;
    }
    return cpus;
}

TransportConfig TransportConfig::from_environment() {
    TransportConfig config;
    if (const char* mode = std::getenv("XSOCK_PROGRESS"); mode != nullptr && *mode != '\0') {
        const std::string_view m = mode;
        if (m == "app") {
            config.progress = ProgressMode::app;
        } else if (m == "thread") {
            config.progress = ProgressMode::thread;
        } else if (m == "both") {
            config.progress = ProgressMode::both;
        } else {
            log(LogLevel::error, "bad-setting",
                "XSOCK_PROGRESS=%s is none of app, thread, both; ignored", mode);
        }
    }
    if (std::thread::hardware_concurrency() <= 1)
        config.spin = 0;  // spinning would only be in the way
    const bool threads_set = read_number("XSOCK_THREADS", config.threads, 1, 64);
    read_number("XSOCK_SPIN_US", config.spin, 0, 1'000'000, 1000);
    read_number("XSOCK_RNR_MS", config.rnr_timeout, 0, 86'400'000, kMillisecond);
    read_number("XSOCK_PEER_SILENT_MS", config.peer_silence, 0, 86'400'000, kMillisecond);
    read_number("XSOCK_COPY_LIMIT", config.copy_limit, 0, 65536);
    read_number("XSOCK_SNAPSHOT", config.snapshot, 0, 1);
    read_number("XSOCK_FPDU_LIMIT", config.fpdu_limit, 128, 65535);
    read_number("XSOCK_EXTENSIONS", config.extensions, 0, 1);
    read_number("XSOCK_SHORT_RTO", config.short_rto, 0, 1);
    read_number("XSOCK_MAX_STARTING", config.max_starting, 1, 1'000'000);
    if (const char* name = std::getenv("XSOCK_CONGESTION"); name != nullptr && *name != '\0') {
        // Whether the kernel has it, and permits it, the first connection finds out.
        if (std::strlen(name) <= tcp::kCongestionMost) {
            config.congestion = name;
        } else {
            log(LogLevel::error, "bad-setting",
                "XSOCK_CONGESTION=%s is longer than a name may be; ignored", name);
        }
    }
    if (const char* cpus = std::getenv("XSOCK_CPUS"); cpus != nullptr && *cpus != '\0') {
        config.cpus = parse_cpu_list(cpus);
        if (config.cpus.empty()) {
            log(LogLevel::error, "bad-setting",
                "XSOCK_CPUS=%s is not a list such as 0,2-3; ignored", cpus);
        }
    }
    if (config.progress == ProgressMode::both && !threads_set) config.socket_groups = kSocketGroups;
    if (config.progress == ProgressMode::app) config.threads = 1;
    return config;
}

}  // namespace xsock
