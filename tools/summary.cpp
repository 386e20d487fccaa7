// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/summary.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/kernel_reason.hpp"
#include "tools/command.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kSignals[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                            SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

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
            // By the terminal: until we are continued, the shell has it. SIGSTOP was sent to the
            // child by its number, and SIGCONT will be, or was already.
            if (WSTOPSIG(status) != SIGSTOP) raise(SIGSTOP);
            continue;
        }
        return status;
    }
}

/// Why the kernel module does not place, where nothing is amiss.
bool is_usual(std::string_view why_not) {
    using kernel::Reason;
    constexpr Reason kUsual[] = {Reason::absent, Reason::capture, Reason::shared_memory};
    return std::any_of(std::begin(kUsual), std::end(kUsual),
                       [&](Reason reason) { return why_not == kernel::name_of(reason); });
}

}  // namespace

void Summary::add(std::string_view text) {
    static constexpr std::string_view kStart = "xsock-summary 1 ";
    static constexpr std::pair<std::string_view, std::uint64_t Summary::*> kCounts[] = {
        {"sockets", &Summary::made},        {"accepted", &Summary::accepted},
        {"connected", &Summary::connected}, {"listening", &Summary::listening},
        {"asked", &Summary::asked},         {"inherited", &Summary::inherited}};
    auto lines = split(text, '\n');
    lines.pop_back();  // empty, or cut short
    for (const std::string_view line : lines) {
        if (line.substr(0, kStart.size()) != kStart) continue;
        ++processes;
        for (const std::string_view word : split(line.substr(kStart.size()), ' ')) {
            const std::size_t equals = word.find('=');
            const std::string_view name = word.substr(0, equals);
            if (name == "program") break;  // the rest of the line, blanks and all
            if (equals == word.npos || name == "pid" || name == "ppid") continue;
            const auto count =
                parse_number<std::uint64_t>(word.substr(equals + 1), 1, std::uint64_t{1} << 60);
            if (!count) continue;
            static constexpr std::string_view kStack = "stack:";
            if (name.substr(0, kStack.size()) == kStack) {
                stacks[printable(name.substr(kStack.size()))] += *count;
                continue;
            }
            static constexpr std::string_view kUnpinned = "unpinned:";
            if (name.substr(0, kUnpinned.size()) == kUnpinned) {
                unpinned[printable(name.substr(kUnpinned.size()))] += *count;
                continue;
            }
            const auto* known = std::find_if(std::begin(kCounts), std::end(kCounts),
                                             [&](const auto& c) { return c.first == name; });
            (known != std::end(kCounts) ? this->*known->second : verdicts[printable(name)]) +=
                *count;
        }
    }
}

std::string Summary::text() const {
    if (processes == 0) {
        return "xsock: no TCP sockets were seen (a program that is killed tells nothing)\n";
    }
    std::string said = fmt::format(
        "xsock: {} TCP sockets in {} process{}: {} connected, {} accepted, {} listening\n",
        made + accepted, processes, processes == 1 ? "" : "es", connected, accepted, listening);
    std::uint64_t told = 0;
    for (const auto& [verdict, counted] : verdicts) {
        if (verdict == "handed-on") {  // no socket that is not among the others
            said += fmt::format(
                "xsock: {:10} uses refused: handed-on (a started connection in another process)\n",
                counted);
            continue;
        }
        // The parent's word for what it accepted for a child.
        const std::uint64_t count =
            verdict == "undecided" ? counted - std::min(counted, inherited) : counted;
        if (count == 0) continue;
        told += count;
        if (verdict == "message" || verdict == "stream") {
            said += fmt::format("xsock: {:10} carried over iWARP ({} mode)\n", count, verdict);
        } else {
            const char* words =
                verdict == "undecided"        ? "ended before it was decided"
                : verdict == "off"            ? "DDPMODE was switched off again"
                : verdict == "connect-failed" ? "connect-failed (no TCP connection)"
                : verdict == "start-failed" ? "start-failed (the peer got no byte of the program's)"
                : verdict == "fast-open"    ? "fast-open (connected by MSG_FASTOPEN)"
                : verdict == "policy-tcp"   ? "policy-tcp (the policy says tcp)"
                : verdict == "unknown-peer" ? "unknown-peer (the server is not known to take iWARP)"
                                            : verdict.c_str();
            said += fmt::format("xsock: {:10} passed through: {}\n", count, words);
        }
    }
    for (const auto& [stack, count] : stacks) {
        if (stack == "kernel") {
            said += fmt::format("xsock: {:10} of these placed by the kernel module\n", count);
        } else if (kernel_named || !is_usual(stack)) {
            said += fmt::format("xsock: {:10} of these placed at user level: {}\n", count, stack);
        }
    }
    for (std::size_t i = 0; i < kernel::kUnpinnedReasons; ++i) {
        const auto reason = static_cast<kernel::Unpinned>(i);
        if (const auto found = unpinned.find(kernel::name_of(reason)); found != unpinned.end()) {
            said +=
                fmt::format("xsock: {:10} memory regions not pinned for the kernel module: {}\n",
                            found->second, kernel::text_of(reason));
        }
    }
    if (made + accepted > told) {
        said += fmt::format("xsock: {:10} passed through: did not ask for DDPMODE\n",
                            made + accepted - told);
    }
    return said;
}

int run_with_summary(const std::string& path, char* const* argv) {
    // Reached through /proc, so that no file is left behind whatever happens.
    const int sink = memfd_create("xsock-summary", MFD_CLOEXEC);
    if (sink < 0) {
        print_error("run", "cannot keep a summary: {}", std::strerror(errno));
        return kRunFailed;
    }
    setenv("XSOCK_SUMMARY", fmt::format("/proc/{}/fd/{}", static_cast<int>(getpid()), sink).c_str(),
           1);

    sigset_t watched;
    sigset_t before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (const int signal : kSignals) sigaddset(&watched, signal);
    sigprocmask(SIG_BLOCK, &watched, &before);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        print_error("run", "fork: {}", std::strerror(errno));
        return kRunFailed;
    }
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, nullptr);
        execv(path.c_str(), argv);
        print_error("run", "{}: {}", path, std::strerror(errno));
        _exit(kCannotExec);
    }
    const int status = wait_passing_signals(child, watched);

    Summary summary;
    const char* const kernel_mode = std::getenv("XSOCK_KERNEL");
    summary.kernel_named = kernel_mode != nullptr && *kernel_mode != '\0';
    summary.add(file_text(fmt::format("/proc/self/fd/{}", sink), 1 << 20));
    std::fputs(summary.text().c_str(), stderr);
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    // End as the program did, for the status; its core is enough.
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
