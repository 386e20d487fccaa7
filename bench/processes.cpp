// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many client processes with one connection each, all to one server (many_connections'). Each has
// one 64 B echo under way and sleeps until it comes. Figure 0: thousand echoes a second of all.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "bench/endpoint.hpp"
#include "bench/many_connections.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::processes {
namespace {

using Message = std::array<std::uint8_t, many_connections::kSize>;

struct alignas(64) Counter {
    std::atomic<std::uint64_t> echoes;
};

// In memory of parent and children.
struct Shared {
    std::atomic<unsigned> started;  // connections that are established
    std::atomic<bool> stop;
    std::atomic<unsigned> ended;  // children that will send no more, and the server
    Counter counters[];
};

template <typename Predicate>
void wait_until(Predicate holds, const std::vector<pid_t>& children) {
    while (!holds()) {
        usleep(1000);
        for (const pid_t child : children) {
            if (waitpid(child, nullptr, WNOHANG) != 0) fail("a client process has ended");
        }
    }
}

// Keeps one echo under way, from the end of file at `begin` until the parent ends it. `echo(last)`
// is one round trip.
template <typename Echo>
void echo_until_told(Shared& shared, unsigned index, int begin, Echo echo) {
    shared.started++;
    char none = 0;
    if (read(begin, &none, 1) != 0) fail_errno("read");
    while (!shared.stop) {
        echo(false);
        shared.counters[index].echoes.fetch_add(1, std::memory_order_relaxed);
    }
    shared.ended++;
}

// `client(index, work)` makes a connection and calls work(echo).
template <typename Client>
void run_clients(Child& child, const Run& run, Client client) {
    const std::size_t length = sizeof(Shared) + run.connections * sizeof(Counter);
    void* const memory =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_errno("mmap");
    Shared& shared = *static_cast<Shared*>(memory);
    const auto port = child.hear<std::uint16_t>();
    // One that waits sleeps: a thousand that look once a millisecond take a whole processor.
    int begin[2];
    if (pipe2(begin, O_CLOEXEC) != 0) fail_errno("pipe2");
    const pid_t parent = getpid();
    std::vector<pid_t> children;
    for (unsigned index = 0; index < run.connections; index++) {
        const pid_t pid = fork();
        if (pid < 0) fail_errno("fork");
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(2);
            close(begin[1]);
            client(port, [&](auto echo) {
                echo_until_told(shared, index, begin[0], echo);
                // The last message of all ends the server.
                if (index == 0) {
                    while (shared.ended < run.connections) usleep(1000);
                    echo(true);
                    shared.ended++;
                }
            });
            for (;;) pause();
        }
        children.push_back(pid);
        // So that the server's limit on half-open start-ups is not what we measure.
        wait_until([&] { return shared.started + 32 > index; }, {pid});
    }
    wait_until([&] { return shared.started == run.connections; }, children);
    child.meet();
    close(begin[1]);
    const auto echoes = [&] {
        std::uint64_t sum = 0;
        for (unsigned i = 0; i < run.connections; i++) sum += shared.counters[i].echoes;
        return static_cast<double>(sum);
    };
    usleep(static_cast<useconds_t>(warm_up_seconds(run) * 1e6));
    const std::int64_t before = now_ns();
    const double first = echoes();
    usleep(static_cast<useconds_t>(run.seconds * 1e6));
    const double counted = echoes() - first;
    const auto took_ns = static_cast<double>(now_ns() - before);
    shared.stop = true;
    wait_until([&] { return shared.ended == run.connections + 1; }, children);
    for (const pid_t pid : children) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    child.report({counted / took_ns * 1e6, 0, 0, 0});
}

}  // namespace

void tcp_client(Child& child, const Run& run) {
    run_clients(child, run, [&](std::uint16_t port, auto work) {
        const int fd = tcp_connect(run, port);
        set_nodelay(fd);
        Message message{};
        work([&](bool last) {
            message[0] = last;
            send_all(fd, message.data(), message.size());
            if (!receive_all(fd, message.data(), message.size(), 0)) fail("end of stream");
        });
    });
}

void echo_client(Child& child, const Run& run) {
    run_clients(child, run, [&](std::uint16_t port, auto work) {
        many_connections::ClientConnections all;
        all.port = port;
        all.cq = xsock_cq_create(nullptr);
        if (all.cq == nullptr) fail_errno("xsock_cq_create");
        many_connections::connect_some(all, run, 1);
        Completions completions(all.cq);
        Message message{};
        Message answer{};
        work([&](bool last) {
            message[0] = last;
            must(xsock_recv(all.eps[0], 0, answer.data(), answer.size()), "xsock_recv");
            must(xsock_send(all.eps[0], 0, message.data(), message.size(),
                            XSOCK_INLINE | XSOCK_UNSIGNALED),
                 "xsock_send");
            completions.wait();
        });
    });
}

}  // namespace xsock::bench::processes
