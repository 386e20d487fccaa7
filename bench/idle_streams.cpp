// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What byte streams over iWARP cost while nothing happens on them: memory, and processor time.
#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>

#include "bench/many_connections.hpp"
#include "bench/resident.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::idle_streams {
namespace {

using Message = std::array<std::uint8_t, many_connections::kSize>;

// Ends of connections that have carried `depth` echoes each.
class Ends {
  public:
    static Ends of_server(Child& child, const Run& run) {
        Ends ends(child, run);
        ends.listener_ = tcp_listen(run, ends.port_);
        switch_to_streams(ends.listener_);
        child.tell(ends.port_);
        return ends;
    }
    static Ends of_client(Child& child, const Run& run) {
        Ends ends(child, run);
        ends.port_ = child.hear<std::uint16_t>();
        return ends;
    }

    /// So many more. Both processes.
    void add(unsigned count) {
        const std::size_t first = fds_.size();
        for (unsigned i = 0; i < count; i++) {
            const int fd = listener_ < 0 ? tcp_connect(run_, port_, true)
                                         : accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd < 0) fail_errno("accept");
            fds_.push_back(fd);
        }
        child_.meet();
        Message message{};
        for (std::size_t i = first; i < fds_.size(); i++) {
            for (unsigned n = 0; n < run_.depth; n++) {
                if (listener_ < 0) send_all(fds_[i], message.data(), message.size());
                if (!receive_all(fds_[i], message.data(), message.size(), 0)) fail("end of file");
                if (listener_ >= 0) send_all(fds_[i], message.data(), message.size());
            }
        }
        child_.meet();
    }
    void check() const {
        for (const int fd : fds_) check_path(fd, true);
    }
    /// As a program waits that has nothing to do.
    void wait_in_poll(int ms) const {
        std::vector<pollfd> waits;
        for (const int fd : fds_) waits.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        if (poll(waits.data(), waits.size(), ms) != 0) fail("poll() found something");
    }

  private:
    Ends(Child& child, const Run& run) : child_(child), run_(run) {
        fds_.reserve(run.connections + kUncounted);
    }

    Child& child_;
    const Run& run_;
    std::uint16_t port_ = 0;
    int listener_ = -1;  // of the server
    std::vector<int> fds_;

  public:
    /// These pay for queues and threads that all share.
    static constexpr unsigned kUncounted = 16;
};

double weight_of_end(Ends& ends, const Run& run) {
    ends.add(Ends::kUncounted);
    wait_until_quiet();
    const double before = resident_kib();
    ends.add(run.connections);
    wait_until_quiet();
    const double after = resident_kib();
    ends.check();
    return (after - before) / run.connections;
}

struct Work {
    double cpu_us = 0;
    double switches = 0;
};

// What all threads of a process have done so far, `but_for` (a thread, or 0) left out.
Work work_of(pid_t pid, pid_t but_for) {
    Work work;
    const std::string folder = "/proc/" + std::to_string(pid) + "/task/";
    DIR* const threads = opendir(folder.c_str());
    if (threads == nullptr) fail_errno(folder.c_str());
    while (const dirent* entry = readdir(threads)) {
        if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == but_for) continue;
        const std::string path = folder + entry->d_name + "/schedstat";
        std::FILE* const file = std::fopen(path.c_str(), "re");
        if (file == nullptr) fail_errno(path.c_str());
        unsigned long long ran_ns = 0, times = 0;
        const int n = std::fscanf(file, "%llu %*u %llu", &ran_ns, &times);
        std::fclose(file);
        if (n != 2) fail("%s is not understood", path.c_str());
        work.cpu_us += static_cast<double>(ran_ns) / 1e3;
        work.switches += static_cast<double>(times);
    }
    closedir(threads);
    return work;
}

constexpr int kIdleMs = 10;
constexpr int kWatchedMs = 1000;

}  // namespace

// Figures: 0 KiB for each end, of the heavier process; 1 server's; 2 client's.
void memory_server(Child& child, const Run& run) {
    Ends ends = Ends::of_server(child, run);
    child.tell(weight_of_end(ends, run));
}

void memory_client(Child& child, const Run& run) {
    Ends ends = Ends::of_client(child, run);
    const double ours = weight_of_end(ends, run);
    const auto theirs = child.hear<double>();
    child.report({std::max(ours, theirs), theirs, ours, 0});
}

// The client sleeps in poll() on all its connections. The server watches it for a second that
// begins when all have been idle for 10 ms, and its own threads but the one that watches. Figures:
// 0 processor time of both in us; 1 how often one of their threads was given a processor.
void cpu_server(Child& child, const Run& run) {
    Ends ends = Ends::of_server(child, run);
    ends.add(run.connections);
    const auto client = child.hear<pid_t>();
    const auto both = [client, us = static_cast<pid_t>(syscall(SYS_gettid))] {
        const Work theirs = work_of(client, 0), ours = work_of(getpid(), us);
        return Work{theirs.cpu_us + ours.cpu_us, theirs.switches + ours.switches};
    };
    usleep(kIdleMs * 1000);
    const Work before = both();
    if (before.cpu_us == 0 || before.switches == 0) fail("this kernel counts no processor time");
    usleep(kWatchedMs * 1000);
    const Work after = both();
    child.tell(Work{after.cpu_us - before.cpu_us, after.switches - before.switches});
    ends.check();
}

void cpu_client(Child& child, const Run& run) {
    Ends ends = Ends::of_client(child, run);
    ends.add(run.connections);
    child.tell(getpid());
    ends.wait_in_poll(2 * kWatchedMs);
    const auto work = child.hear<Work>();
    ends.check();
    child.report({work.cpu_us, work.switches, 0, 0});
}

}  // namespace xsock::bench::idle_streams
