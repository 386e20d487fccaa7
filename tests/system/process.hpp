// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the system tests share: errors that end the test, options, a seeded generator, figures
// of the own process, and a second process made from the same program.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <semaphore>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "include/xsock/xsock.h"

extern char** environ;

namespace xsock::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr int kSlow = kSanitized ? 8 : 1;  // factor on what a test waits for

/// Ends the process; its children see their parent go and end too.
[[noreturn]] inline void die [[gnu::format(printf, 1, 2)]] (const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fprintf(stderr, "FAIL [%d] ", static_cast<int>(getpid()));
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

#define REQUIRE(condition)                                                              \
    do {                                                                                \
        if (!(condition)) {                                                             \
            ::xsock::test::die("%s:%d: %s (errno: %s)", __FILE__, __LINE__, #condition, \
                               std::strerror(errno));                                   \
        }                                                                               \
    } while (false)

/// What an option with a value does: sets a variable.
using Setter = std::function<void(const std::string& value)>;
template <typename T>
Setter into(T& to) {
    return [&to](const std::string& value) {
        if constexpr (std::is_same_v<T, std::string>) {
            to = value;
        } else if constexpr (std::is_floating_point_v<T>) {
            to = std::stod(value);
        } else {
            to = static_cast<T>(std::stoull(value));
        }
    };
}

/// Reads the options of a test: `flags` stand alone, those of `values` have a value behind them.
/// @return what is no option
inline std::vector<std::string> parse_options(const std::vector<std::string>& arguments,
                                              const std::map<std::string, bool*>& flags,
                                              const std::map<std::string, Setter>& values) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& name = arguments[i];
        if (name.rfind("--", 0) != 0) {
            words.push_back(name);
        } else if (const auto flag = flags.find(name); flag != flags.end()) {
            *flag->second = true;
        } else if (const auto value = values.find(name); value == values.end()) {
            die("unknown option %s", name.c_str());
        } else if (++i == arguments.size()) {
            die("%s: value missing", name.c_str());
        } else {
            value->second(arguments[i]);
        }
    }
    return words;
}

/// The same of a test that has options alone: the arguments of its main().
inline void parse_only_options(int argc, char** argv, const std::map<std::string, bool*>& flags,
                               const std::map<std::string, Setter>& values) {
    const auto words = parse_options({argv + 1, argv + argc}, flags, values);
    if (!words.empty()) die("what is %s?", words[0].c_str());
}

/// A TCP socket that listens at a port of the loopback that the kernel has chosen.
inline int listen_on_loopback(int& port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(fd, generic, size) == 0 && listen(fd, 64) == 0);
    REQUIRE(getsockname(fd, generic, &size) == 0);
    port = ntohs(address.sin_port);
    return fd;
}

/// The memory that the peer of an established endpoint offers, from the private data.
inline xsock_remote memory_of_peer(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    REQUIRE(xsock_ep_query(ep, &info) == 0);
    REQUIRE(info.private_data_length == sizeof(xsock_key));
    xsock_key key;
    std::memcpy(key.bytes, info.private_data, sizeof key.bytes);
    xsock_remote remote{};
    xsock_key_read(&key, &remote);
    return remote;
}

/// splitmix64.
class Rng {
  public:
    explicit Rng(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// 0 to n - 1.
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(next() % n); }
    bool one_in(std::uint32_t n) { return below(n) == 0; }

  private:
    std::uint64_t state_;
};

inline std::uint64_t now_us() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec) / 1000u;
}
inline void sleep_us(std::uint64_t us) { usleep(static_cast<useconds_t>(us)); }

inline std::uint64_t cpu_us() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    const auto us = [](const timeval& t) {
        return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000u +
               static_cast<std::uint64_t>(t.tv_usec);
    };
    return us(use.ru_utime) + us(use.ru_stime);
}

inline std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

inline long rss_anon_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("RssAnon:", 0) == 0) return std::atol(line.c_str() + 8);
    }
    return 0;
}

/// This program once more, with other arguments. It reads a pipe from us as descriptor 0 (its end
/// tells that we are gone) and says one line on descriptor 1.
class Child {
  public:
    explicit Child(const std::vector<std::string>& arguments) {
        int in[2], out[2];
        REQUIRE(pipe2(in, O_CLOEXEC) == 0);
        REQUIRE(pipe2(out, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], 0);
        posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        std::vector<char*> argv{const_cast<char*>("child")};
        for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
        argv.push_back(nullptr);
        REQUIRE((errno = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(),
                                     environ)) == 0);
        posix_spawn_file_actions_destroy(&actions);
        close(in[0]);
        close(out[1]);
        to_ = in[1];
        from_ = out[0];
    }
    ~Child() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(to_);
        close(from_);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    void signal(int number) const { REQUIRE(kill(pid_, number) == 0); }
    std::string line() {
        std::string line;
        for (char c = 0; read(from_, &c, 1) == 1 && c != '\n';) line += c;
        return line;
    }
    /// True once it is over; status() then answers at once.
    [[nodiscard]] bool ended() const {
        siginfo_t info{};
        return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == pid_;
    }
    /// Waits for its end. @return its exit status, 128 + number when a signal ended it
    int status() {
        int status = 0;
        REQUIRE(waitpid(pid_, &status, 0) == pid_);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    /// Lets one wait_for_parent() of the child return, or the next one.
    void release() const { REQUIRE(write(to_, "\n", 1) == 1); }

    /// In the child: ends it as soon as its parent is gone.
    static void end_with_parent() {
        std::thread([] {
            char c = 0;
            while (read(0, &c, 1) > 0) released().release();
            _exit(3);
        }).detach();
    }
    /// In the child, behind end_with_parent(): waits for the parent's release().
    static void wait_for_parent() { released().acquire(); }

  private:
    static std::counting_semaphore<>& released() {
        static std::counting_semaphore<> semaphore{0};
        return semaphore;
    }

    pid_t pid_ = -1;
    int to_ = -1, from_ = -1;
};

}  // namespace xsock::test
