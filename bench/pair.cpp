// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/pair.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xsock::bench {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
int this_childs_report_fd = -1;

// What a child sends its parent, in one write: shorter than PIPE_BUF.
struct Report {
    bool ok;
    Figures figures;
    char error[256];
};

void enter_netns(const std::string& name) {
    if (name.empty()) return;
    const std::string path = "/run/netns/" + name;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail_errno(path.c_str());
    if (setns(fd, CLONE_NEWNET) != 0) fail_errno("setns");
    close(fd);
}

void send_report(int fd, const Report& report) {
    if (write(fd, &report, sizeof report) < 0) _exit(2);
}

struct Process {
    pid_t pid = -1;
    int report_fd = -1;
};

[[noreturn]] void child_main(const Variant& variant, const Run& run, bool is_server, int peer_fd,
                             int report_fd, pid_t parent) {
    this_childs_report_fd = report_fd;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(2);
    pin_to_cpu(is_server || run.one_cpu ? 0 : 1);
    enter_netns(is_server ? run.server_netns : run.client_netns);
    if (variant.spin_us != nullptr) setenv("XSOCK_SPIN_US", variant.spin_us, 1);
    if (variant.shm != nullptr) setenv("XSOCK_SHM", variant.shm, 1);
    if (variant.fpdu_limit != nullptr) setenv("XSOCK_FPDU_LIMIT", variant.fpdu_limit, 1);

    Child child(peer_fd, report_fd);
    (is_server ? variant.server : variant.client)(child, run);
    child.meet();  // neither tears the connection down under the other's last messages
    send_report(report_fd, Report{.ok = true, .figures = child.figures(), .error = {}});
    _exit(0);
}

Process start(const Variant& variant, const Run& run, bool is_server, const int peer[2]) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) return {};
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        close(report[0]);
        close(peer[is_server ? 1 : 0]);
        child_main(variant, run, is_server, peer[is_server ? 0 : 1], report[1], parent);
    }
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        return {};
    }
    return {.pid = pid, .report_fd = report[0]};
}

// Waits for both reports until `deadline_ns`. When one process fails, the other follows at once or
// waits for it forever: it gets a moment to tell its own reason.
void hear_reports(const std::array<Process, 2>& processes, std::int64_t deadline_ns,
                  std::array<Report, 2>& reports) {
    constexpr std::int64_t kGraceNs = 500'000'000;
    std::array<pollfd, 2> waits{};
    for (std::size_t i = 0; i < 2; i++) {
        waits[i] = {.fd = processes[i].report_fd, .events = POLLIN, .revents = 0};
        std::strcpy(reports[i].error, "no answer in time");
    }
    const auto refuse = [&](std::size_t i, const char* why) {
        reports[i] = Report{};
        std::snprintf(reports[i].error, sizeof reports[i].error, "%s", why);
    };
    while (waits[0].fd >= 0 || waits[1].fd >= 0) {
        const std::int64_t left_ms = (deadline_ns - now_ns()) / 1'000'000;
        if (left_ms <= 0) return;
        const int n = poll(waits.data(), waits.size(), static_cast<int>(left_ms));
        for (std::size_t i = 0; i < 2; i++) {
            if (waits[i].fd < 0) continue;
            if (interrupt_seen != 0) {
                refuse(i, "interrupted");
                waits[i].fd = -1;
            } else if (n > 0 && waits[i].revents != 0) {
                if (read(waits[i].fd, &reports[i], sizeof(Report)) != sizeof(Report)) {
                    refuse(i, "died");
                }
                waits[i].fd = -1;
                if (!reports[i].ok) deadline_ns = std::min(deadline_ns, now_ns() + kGraceNs);
            }
        }
    }
}

// Ends the process; answers the CPU seconds that it used in all.
double finish(const Process& process, bool by_force) {
    if (process.pid < 0) return 0;
    if (by_force) kill(process.pid, SIGKILL);
    rusage used{};
    while (wait4(process.pid, nullptr, 0, &used) < 0 && errno == EINTR) {
    }
    close(process.report_fd);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// CPU seconds that the whole machine has worked, or waited for its host, so far.
double machine_busy_seconds() {
    std::FILE* file = std::fopen("/proc/stat", "re");
    if (file == nullptr) return 0;
    std::array<unsigned long long, 8> t{};  // user nice system idle iowait irq softirq steal
    const int n = std::fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1],
                              &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
    std::fclose(file);
    if (n != 8) return 0;
    return static_cast<double>(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) /
           static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void pin_to_cpu(int index) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

void Child::send_bytes(const void* data, std::size_t size) {
    if (send(peer_fd_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
        fail("the other process of the pair is gone");
    }
}

void Child::receive_bytes(void* data, std::size_t size) {
    if (recv(peer_fd_, data, size, 0) != static_cast<ssize_t>(size)) {
        fail("the other process of the pair is gone");
    }
}

void fail(const char* format, ...) {
    Report report{};
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(report.error, sizeof report.error, format, arguments);
    va_end(arguments);
    send_report(this_childs_report_fd, report);
    _exit(1);
}

void fail_errno(const char* what) { fail("%s: %s", what, std::strerror(errno)); }

Outcome run_pair(const Variant& variant, const Run& run, int timeout_s) {
    int peer[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peer) != 0) {
        return {.error = std::strerror(errno)};
    }
    const std::int64_t start_ns = now_ns();
    const std::int64_t deadline_ns = start_ns + std::int64_t{timeout_s} * 1'000'000'000;
    const double busy_before = machine_busy_seconds();
    const Process server = start(variant, run, true, peer);
    const Process client = start(variant, run, false, peer);
    close(peer[0]);
    close(peer[1]);

    Outcome outcome;
    std::array<Report, 2> reports{};
    if (server.pid < 0 || client.pid < 0) {
        outcome.error = "cannot start the processes";
    } else {
        hear_reports({server, client}, deadline_ns, reports);
        outcome.ok = reports[0].ok && reports[1].ok;
        outcome.figures = reports[1].figures;
        if (!reports[0].ok) outcome.error = std::string("server: ") + reports[0].error;
        if (!reports[1].ok) {
            outcome.error += (reports[0].ok ? "client: " : "; client: ");
            outcome.error += reports[1].error;
        }
    }
    const double ours = finish(server, !outcome.ok) + finish(client, !outcome.ok);
    const double others = machine_busy_seconds() - busy_before - ours;
    outcome.foreign_cpus = std::max(0.0, others * 1e9 / static_cast<double>(now_ns() - start_ns));
    return outcome;
}

void catch_interrupts() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupt_seen = 1; };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }

}  // namespace xsock::bench
