// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What only two processes of one host are asked: large Writes beside small messages, many idle
// connections beside a busy one, start-up, memory.
#include <algorithm>

#include "bench/endpoint.hpp"
#include "bench/many_connections.hpp"
#include "bench/resident.hpp"
#include "bench/round_trips.hpp"

namespace xsock::bench::same_host {
namespace {

constexpr std::size_t kSize = 64;
constexpr std::size_t kLarge = std::size_t{1024} * 1024;
constexpr unsigned kOutstanding = 8;
constexpr std::uint32_t kFlags = XSOCK_INLINE | XSOCK_UNSIGNALED;
using Message = std::array<std::uint8_t, kSize>;

// 1 MiB Writes over one connection, always kOutstanding of them.
class Writer {
  public:
    Writer(Child& child, const Run& run)
        : end_(client_endpoint(child, run, {.send = kOutstanding + 1})),
          completions_(end_.cq),
          target_(shared_memory(child)) {}

    void keep_busy() {
        outstanding_ -= static_cast<unsigned>(completions_.poll().size());
        for (; outstanding_ < kOutstanding; outstanding_++) {
            must(xsock_write(end_.ep, 0, source_.data(), kLarge, &target_, 0, 0), "xsock_write");
        }
    }

  private:
    Endpoint end_;
    Completions completions_;
    xsock_remote target_;
    std::vector<std::uint8_t> source_ = std::vector<std::uint8_t>(kLarge, 0x5a);
    unsigned outstanding_ = 0;
};

}  // namespace

// Figures of time_round_trips(): of 64 B Sends, while 1 MiB Writes never stop on another connection
// of the same processes. Both sides poll.

void beside_writes_server(Child& child, const Run& run) {
    const Endpoint large = server_endpoint(child, run);
    std::vector<std::uint8_t> target(kLarge);
    share_memory(child, target.data(), kLarge, XSOCK_REMOTE_WRITE);
    Completions placed(large.cq);
    const Endpoint small = server_endpoint(child, run);
    Completions completions(small.cq);
    Message message{};
    must(xsock_recv(small.ep, 0, message.data(), kSize), "xsock_recv");
    child.meet();
    for (bool last = false; !last;) {
        placed.poll();
        for (const xsock_wc& wc : completions.poll()) {
            if (wc.op != XSOCK_OP_RECV) continue;
            last = message[0] != 0;
            const Message answer = message;
            must(xsock_recv(small.ep, 0, message.data(), kSize), "xsock_recv");
            must(xsock_send(small.ep, 0, answer.data(), kSize, kFlags), "xsock_send");
        }
    }
}

void beside_writes_client(Child& child, const Run& run) {
    Writer writer(child, run);
    const Endpoint small = client_endpoint(child, run);
    Completions completions(small.cq);
    child.meet();
    Message message{};
    Message answer{};
    child.report(time_round_trips(run, [&](bool last) {
        message[0] = last;
        must(xsock_recv(small.ep, 0, answer.data(), kSize), "xsock_recv");
        must(xsock_send(small.ep, 0, message.data(), kSize, kFlags), "xsock_send");
        do {
            writer.keep_busy();
        } while (completions.poll().empty());
    }));
}

// Figures of latency::send_poll_*, with run.connections idle ones between the same processes.

void beside_idle_server(Child& child, const Run& run) {
    many_connections::Connections idle = many_connections::open_server(child, run);
    many_connections::accept_some(idle, run.connections);
    latency::send_poll_server(child, run);
}

void beside_idle_client(Child& child, const Run& run) {
    many_connections::ClientConnections idle = many_connections::open_client(child, false);
    many_connections::connect_some(idle, run, run.connections);
    latency::send_poll_client(child, run);
}

// ---- start-up and memory ----

namespace {

// One end of connections of which each is told whether it shares memory. Everything that the first
// connection of a process costs has been paid over TCP.
class Ends {
  public:
    Ends(Child& child, const Run& run, bool is_server) : child_(child), run_(run) {
        if (is_server) {
            server_ = many_connections::open_server(child, run);
        } else {
            client_ = many_connections::open_client(child, false);
        }
        is_server_ = is_server;
        add(kUncounted, false);
    }

    static constexpr unsigned kUncounted = 64;

    /// So many more. Both processes; ends when both ends of all are established.
    void add(unsigned count, bool in_memory) {
        if (is_server_) {
            many_connections::accept_some(server_, count);
        } else {
            client_.shm = in_memory ? XSOCK_SHM_REQUIRE : XSOCK_SHM_OFF;
            many_connections::connect_some(client_, run_, count);
        }
        child_.meet();
    }
    /// CPU time of both processes, for each of `count` connections, in us. Both call it; the
    /// server's answer is its own part.
    double cpu_us_of_each(unsigned count, bool in_memory) {
        child_.meet();
        const std::int64_t before = cpu_ns();
        add(count, in_memory);
        auto took = static_cast<double>(cpu_ns() - before);
        if (is_server_) {
            child_.tell(took);
        } else {
            took += child_.hear<double>();
        }
        return took / 1e3 / count;
    }
    /// Growth of this process's memory by so many more.
    Weight grown(unsigned count, bool in_memory) {
        const Weight before = weigh();
        add(count, in_memory);
        wait_until_quiet();
        const Weight after = weigh();
        child_.meet();
        return {.anonymous = after.anonymous - before.anonymous,
                .shared = after.shared - before.shared,
                .tables = after.tables - before.tables};
    }

  private:
    Child& child_;
    const Run& run_;
    bool is_server_ = false;
    many_connections::Connections server_;
    many_connections::ClientConnections client_;
};

// CPU time of the two first connections, and of run.connections later ones by turns.
Figures startup(Ends& ends, const Run& run) {
    constexpr unsigned kTurns = 8;
    const unsigned each = run.connections / kTurns;
    const double tcp_alone = ends.cpu_us_of_each(1, false);
    const double first = ends.cpu_us_of_each(1, true);
    double tcp = 0;
    double memory = 0;
    for (unsigned turn = 0; turn < kTurns; turn++) {
        tcp += ends.cpu_us_of_each(each, false) / kTurns;
        memory += ends.cpu_us_of_each(each, true) / kTurns;
    }
    return {first - tcp_alone, memory - tcp, memory, tcp};
}

struct Memory {
    double end_bytes = 0;  // of an idle end above one over TCP; slots count at both ends
    Weight link;           // the first connection above one over TCP
};

Memory memory(Ends& ends, const Run& run) {
    const Weight tcp_alone = ends.grown(1, false);
    Memory taken{.link = ends.grown(1, true)};
    taken.link.anonymous -= tcp_alone.anonymous;
    taken.link.tables -= tcp_alone.tables;
    const Weight tcp = ends.grown(run.connections, false);
    const Weight shm = ends.grown(run.connections, true);
    taken.end_bytes =
        (shm.anonymous + shm.shared - tcp.anonymous - tcp.shared) * 1024 / run.connections;
    return taken;
}

}  // namespace

// Figures, us of CPU time of both processes above TCP's: 0 first connection, which makes the link;
// 1 later ones; 2 later ones in all; 3 the same over TCP.
void startup_server(Child& child, const Run& run) {
    Ends ends(child, run, true);
    (void)startup(ends, run);
}
void startup_client(Child& child, const Run& run) {
    Ends ends(child, run, false);
    child.report(startup(ends, run));
}

// Figures: 0 bytes of an idle end above TCP's, of the heavier process; 1 KiB of the link: both
// processes' memory and page tables, what they share counted once.
void memory_server(Child& child, const Run& run) {
    Ends ends(child, run, true);
    child.tell(memory(ends, run));
}
void memory_client(Child& child, const Run& run) {
    Ends ends(child, run, false);
    const Memory ours = memory(ends, run);
    const auto theirs = child.hear<Memory>();
    child.report({std::max(ours.end_bytes, theirs.end_bytes),
                  ours.link.anonymous + ours.link.tables + theirs.link.anonymous +
                      theirs.link.tables + std::max(ours.link.shared, theirs.link.shared),
                  0, 0});
}

}  // namespace xsock::bench::same_host
