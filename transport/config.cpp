// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/config.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include "base/parse_size.hpp"
#include "base/shm_folder_fault.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

constexpr std::uint64_t kShmMemoryLeast = std::uint64_t{256} << 10;  // 4 KiB for 64 progresses
constexpr std::uint64_t kShmMemoryMost = std::uint64_t{1} << 40;

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

void read_size(const char* name, std::size_t& value, std::uint64_t low, std::uint64_t high) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return;
    const std::optional<std::uint64_t> size = parse_size(text, high);
    if (!size || *size < low) {
        log(LogLevel::error, "bad-setting",
            "%s=%s is not a size from %llu to %llu bytes (K, M, G may follow); ignored", name, text,
            static_cast<unsigned long long>(low), static_cast<unsigned long long>(high));
        return;
    }
    value = static_cast<std::size_t>(*size);
}

// ShmMode or KernelMode.
template <typename Mode>
void read_mode(const char* name, Mode& value) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0') return;
    const std::string_view m = text;
    if (m == "off") {
        value = Mode::off;
    } else if (m == "auto") {
        value = Mode::automatic;
    } else if (m == "require") {
        value = Mode::require;
    } else {
        log(LogLevel::error, "bad-setting", "%s=%s is none of off, auto, require; ignored", name,
            text);
    }
}

void read_shm(TransportConfig& config) {
    config.shm = ShmMode::automatic;
    read_mode("XSOCK_SHM", config.shm);
    read_size("XSOCK_SHM_MEMORY", config.shm_memory, kShmMemoryLeast, kShmMemoryMost);
    read_number("XSOCK_SHM_TIMEOUT_MS", config.shm_timeout, 10, 60'000, kMillisecond);
    if (const char* users = std::getenv("XSOCK_SHM_USERS"); users != nullptr && *users != '\0') {
        config.shm_users = parse_users(users);
        if (config.shm_users.empty()) {
            log(LogLevel::error, "bad-setting",
                "XSOCK_SHM_USERS=%s is not a list of user ids such as 1000,1001; ignored", users);
        }
    }
    if (const char* folder = std::getenv("XSOCK_SHM_DIR"); folder != nullptr && *folder != '\0') {
        if (const char* const fault = shm_folder_fault(folder)) {
            log(LogLevel::error, "bad-setting", "XSOCK_SHM_DIR=%s %s; ignored", folder, fault);
        } else {
            config.shm_folder = folder;
        }
    }
}

void read_kernel(TransportConfig& config) {
    config.kernel = KernelMode::automatic;
    read_mode("XSOCK_KERNEL", config.kernel);
    bool ooo = false;
    if (read_number("XSOCK_KERNEL_OOO", ooo, 0, 1)) config.kernel_ooo = ooo;
    read_size("XSOCK_KERNEL_PIN", config.kernel_pin, 0, std::uint64_t{1} << 40);
}

}  // namespace

std::vector<std::uint32_t> parse_users(std::string_view text) {
    constexpr std::uint32_t kUnmapped = 65534, kNone = ~std::uint32_t{0};
    std::vector<std::uint32_t> users;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
        std::uint32_t user = 0;
        auto [after, error] = std::from_chars(at, end, user);
        if (error != std::errc{} || user == kUnmapped || user == kNone) return {};
        users.push_back(user);
        if (after < end && (*after != ',' || after + 1 == end)) return {};
        at = after + 1;
    }
    return users;
}

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
    read_shm(config);
    read_kernel(config);
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
