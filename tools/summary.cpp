// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/summary.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kRunItself = 125;
constexpr int kCannotExec = 126;
constexpr int kSignals[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                            SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

bool read_count(std::string_view text, std::uint64_t& count) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    return error == std::errc{} && rest == end && count < 1ull << 60;
}

/// Waits for `child`, passing on what was sent to this process alone. What the terminal sends, it
/// sends to the child as well.
int wait_passing_signals(pid_t child, const sigset_t& watched) {
    for (;;) {
        siginfo_t info{};
        if (sigwaitinfo(&watched, &info) < 0) continue;
        if (info.si_signo != SIGCHLD) {
            if (info.si_code != SI_KERNEL) kill(child, info.si_signo);
            continue;
        }
        int status = 0;
        if (waitpid(child, &status, WNOHANG | WUNTRACED) != child) continue;
        if (WIFSTOPPED(status)) {
            raise(SIGSTOP);  // and until we are continued, the shell has the terminal
            continue;
        }
        return status;
    }
}

}  // namespace

void Summary::add(std::string_view text) {
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text = end == text.npos ? std::string_view() : text.substr(end + 1);
        static constexpr std::string_view kStart = "xsock-summary 1 ";
        if (end == text.npos || line.substr(0, kStart.size()) != kStart) continue;
        line.remove_prefix(kStart.size());
        ++processes;
        while (!line.empty()) {
            const std::size_t space = line.find(' ');
            const std::string_view word = line.substr(0, space);
            line = space == line.npos ? std::string_view() : line.substr(space + 1);
            const std::size_t equals = word.find('=');
            if (equals == word.npos) continue;
            const std::string_view name = word.substr(0, equals);
            if (name == "program") break;  // the rest of the line, blanks and all
            std::uint64_t count = 0;
            if (name == "pid" || name == "ppid" || !read_count(word.substr(equals + 1), count)) {
                continue;
            }
            if (name == "sockets") {
                made += count;
            } else if (name == "accepted") {
                accepted += count;
            } else if (name == "connected") {
                connected += count;
            } else if (name == "listening") {
                listening += count;
            } else if (name == "asked") {
                asked += count;
            } else if (count > 0) {
                verdicts[printable(name)] += count;
            }
        }
    }
}

std::string Summary::text() const {
    if (processes == 0) {
        return "xsock: no TCP sockets were seen (a program that is killed tells nothing)\n";
    }
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    std::string said = format(
        "xsock: %llu TCP sockets in %llu process%s: %llu connected, %llu accepted, %llu "
        "listening\n",
        number(made + accepted), number(processes), processes == 1 ? "" : "es", number(connected),
        number(accepted), number(listening));
    std::uint64_t told = 0;
    for (const auto& [verdict, count] : verdicts) {
        told += count;
        if (verdict == "message" || verdict == "stream") {
            said += format("xsock: %10llu carried over iWARP (%s mode)\n", number(count),
                           verdict.c_str());
        } else {
            const char* words = verdict == "undecided" ? "ended before it was decided"
                                : verdict == "off"     ? "DDPMODE was switched off again"
                                                       : verdict.c_str();
            said += format("xsock: %10llu passed through: %s\n", number(count), words);
        }
    }
    if (made + accepted > told) {
        said += format("xsock: %10llu passed through: did not ask for DDPMODE\n",
                       number(made + accepted - told));
    }
    return said;
}

int run_with_summary(const std::string& path, char** argv) {
    // Reached through /proc, so that no file is left behind whatever happens.
    const int sink = memfd_create("xsock-summary", MFD_CLOEXEC);
    if (sink < 0) {
        complain("run", "cannot keep a summary: %s", std::strerror(errno));
        return kRunItself;
    }
    setenv("XSOCK_SUMMARY", format("/proc/%d/fd/%d", static_cast<int>(getpid()), sink).c_str(), 1);

    sigset_t watched;
    sigset_t before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (const int signal : kSignals) sigaddset(&watched, signal);
    sigprocmask(SIG_BLOCK, &watched, &before);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        complain("run", "fork: %s", std::strerror(errno));
        return kRunItself;
    }
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, nullptr);
        execv(path.c_str(), argv);
        complain("run", "%s: %s", path.c_str(), std::strerror(errno));
        _exit(kCannotExec);
    }
    const int status = wait_passing_signals(child, watched);

    Summary summary;
    summary.add(file_text(format("/proc/self/fd/%d", sink), 1 << 20));
    std::fputs(summary.text().c_str(), stderr);
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    // End as the program did, for whoever looks at the status; its core is enough.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const int signal = WTERMSIG(status);
    std::signal(signal, SIG_DFL);
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, signal);
    kill(getpid(), signal);
    sigprocmask(SIG_UNBLOCK, &it, nullptr);
    return 128 + signal;
}

}  // namespace xsock::tools
