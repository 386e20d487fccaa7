// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections by the thousand between two processes: opened together, used, closed, round after
// round; then opened and broken off at random moments. Neither end may keep descriptors or memory.
//
//   churn_test [CONNECTIONS [ABORTS [SEED]]]
#include <netinet/in.h>
#include <sys/socket.h>

#include <string_view>

#include "include/xsock/xsock.h"
#include "tests/system/process.hpp"

namespace xsock::test {
namespace {

constexpr int kLimitMs = 20'000;
constexpr int kWarmRounds = 3;

// What a process holds, measured after each round.
class Resources {
  public:
    explicit Resources(const char* who) : who_(who) {}

    /// From here on nothing may be added.
    void begin_count() {
        wait_until_quiet();
        descriptors_ = open_descriptors();
        rss_kib_ = rss_anon_kib();
    }
    void count(std::size_t connections) { connections_ += connections; }
    /// Closing goes on in the background for a moment: waits until nothing changes any more.
    void wait_until_quiet() const {
        std::size_t before = 0;
        for (int i = 0, quiet = 0; i < 200 && quiet < 25; ++i) {
            const std::size_t now = open_descriptors();
            quiet = now == before ? quiet + 1 : 0;
            before = now;
            sleep_us(50'000);
        }
    }
    void end_count() const {
        wait_until_quiet();
        const std::size_t descriptors = open_descriptors();
        const long grown_kib = rss_anon_kib() - rss_kib_;
        std::fprintf(stderr,
                     "%s: %zu connections, %zu descriptors (%zu after warm-up), "
                     "RssAnon %+ld KiB from %ld KiB\n",
                     who_, connections_, descriptors, descriptors_, grown_kib, rss_kib_);
        if (descriptors > descriptors_) die("%s leaks descriptors", who_);
        // A leak of 150 bytes for each of 8,000 would show; the buffers that a Progress keeps not.
        const long allowed = 1024 + static_cast<long>(connections_) * 16 / 1024;
        if (!kSanitized && grown_kib > allowed) {
            die("%s grew by %ld KiB; %ld allowed", who_, grown_kib, allowed);
        }
    }

  private:
    const char* who_;
    std::size_t descriptors_ = 0, connections_ = 0;
    long rss_kib_ = 0;
};

xsock_ep_attr small(xsock_cq* cq) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq;
    attr.sq_depth = 4;
    attr.rq_depth = 4;
    attr.linger_ms = 1000;  // shorter than wait_until_quiet() watches
    return attr;
}

/// Takes exactly `n` completions; the connections of some may have been broken off.
void expect_completions(xsock_cq* cq, std::size_t n, bool may_fail = false) {
    xsock_wc wc[64];
    for (std::size_t taken = 0; taken < n;) {
        const int want = static_cast<int>(std::min<std::size_t>(64, n - taken));
        const int got = xsock_cq_wait(cq, wc, 1, want, kLimitMs * kSlow);
        if (got <= 0) die("%zu of %zu completions came", taken, n);
        for (int i = 0; i < got; ++i) REQUIRE(may_fail || wc[i].status == XSOCK_WC_SUCCESS);
        taken += static_cast<std::size_t>(got);
    }
}

/// Each of the first `n` buffers, 8 bytes long, begins with `text`.
void expect_each(const std::vector<char>& in, std::size_t n, std::string_view text) {
    for (std::size_t i = 0; i < n; ++i) {
        REQUIRE(std::memcmp(&in[i * 8], text.data(), text.size()) == 0);
    }
}

// ---- opened and closed -----------------------------------------------------

// One message to the server over each connection; the server ends first in odd rounds.
void serve_round(xsock_listener* listener, xsock_cq* cq, int round, std::size_t n) {
    std::vector<xsock_ep*> eps;
    std::vector<char> in(n * 8);
    for (std::size_t i = 0; i < n; ++i) {
        xsock_ep* const ep = xsock_accept(listener, kLimitMs * kSlow);
        REQUIRE(ep != nullptr);
        REQUIRE(xsock_recv(ep, i, &in[i * 8], 8) == 0);
        eps.push_back(ep);
    }
    expect_completions(cq, n);
    expect_each(in, n, "hello");
    for (xsock_ep* const ep : eps) REQUIRE(xsock_send(ep, 0, "answer", 6, XSOCK_INLINE) == 0);
    expect_completions(cq, n);
    if (round % 2 == 0) sleep_us(20'000);
    for (xsock_ep* const ep : eps) REQUIRE(xsock_ep_close(ep) == 0);
}

void connect_round(const std::string& port, xsock_cq* cq, int round, std::size_t n) {
    std::vector<xsock_ep*> eps;
    std::vector<char> in(n * 8);
    // Many addresses of the loopback network: ports of closed connections rest for a minute.
    const std::string host = "127.0.0." + std::to_string(1 + round % 200);
    const xsock_ep_attr attr = small(cq);
    for (std::size_t i = 0; i < n; ++i) {
        xsock_ep* const ep = xsock_connect(host.c_str(), port.c_str(), &attr, kLimitMs * kSlow);
        REQUIRE(ep != nullptr);
        REQUIRE(xsock_recv(ep, i, &in[i * 8], 8) == 0);
        REQUIRE(xsock_send(ep, i, "hello", 5, XSOCK_INLINE) == 0);
        eps.push_back(ep);
    }
    expect_completions(cq, 2 * n);
    expect_each(in, n, "answer");
    if (round % 2 == 1) sleep_us(20'000);
    for (xsock_ep* const ep : eps) REQUIRE(xsock_ep_close(ep) == 0);
}

// ---- opened and broken off -------------------------------------------------

/// Connects and breaks off somewhere: before, in or after start-up, with work posted or without.
void break_off(int port, xsock_cq* cq, Rng& rng) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + rng.below(200));
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    if (rng.one_in(8)) {  // says half a Request
        static const char kRequest[] = "MPA ID Req Frame\x40\x01\0\x08";
        const std::size_t n = rng.below(sizeof kRequest);
        REQUIRE(write(fd, kRequest, n) == static_cast<ssize_t>(n));
        const linger reset{1, 0};
        if (rng.one_in(2)) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
        return;
    }
    const xsock_ep_attr attr = small(cq);
    xsock_ep* const ep = xsock_ep_create(fd, &attr);
    REQUIRE(ep != nullptr);
    static char memory[4][4096];
    std::size_t posted = 0;
    if (rng.one_in(2)) {
        for (std::uint32_t i = rng.below(4); i > 0; --i) {
            if (xsock_send(ep, i, memory[i], rng.below(4096), 0) == 0) ++posted;
            if (xsock_recv(ep, i, memory[i], 4096) == 0) ++posted;
        }
    }
    if (rng.one_in(3)) {
        xsock_ep_wait(ep, static_cast<int>(rng.below(3)));
    } else {
        sleep_us(rng.below(500));
    }
    REQUIRE((rng.one_in(4) ? xsock_ep_close(ep) : xsock_ep_abort(ep)) == 0);
    expect_completions(cq, posted, true);
}

/// Accepts whatever survives start-up, and ends some of it first.
void serve_broken(xsock_listener* listener, xsock_cq* cq, std::size_t n, Rng& rng) {
    char memory[64];
    for (std::size_t i = 0; i < n; ++i) {
        xsock_ep* const ep = xsock_accept(listener, 0);
        if (ep == nullptr) {
            xsock_wc wc;
            xsock_cq_wait(cq, &wc, 1, 1, 1);
            continue;
        }
        std::size_t posted = 0;
        if (xsock_recv(ep, 0, memory, sizeof memory) == 0) ++posted;
        if (xsock_send(ep, 0, "bye", 3, XSOCK_INLINE) == 0) ++posted;
        REQUIRE((rng.one_in(2) ? xsock_ep_close(ep) : xsock_ep_abort(ep)) == 0);
        expect_completions(cq, posted, true);
    }
}

// ---- the two processes -----------------------------------------------------

struct Plan {
    std::size_t rounds = 0, per_round = 0, aborts = 0;
    std::uint64_t seed = 1;
};

int client(int port, const Plan& plan) {
    Child::end_with_parent();
    xsock_cq* const cq = xsock_cq_create(nullptr);
    REQUIRE(cq != nullptr);
    Resources resources("client");
    for (int round = 0; round < static_cast<int>(plan.rounds); ++round) {
        if (round == kWarmRounds) {
            resources.begin_count();
            std::puts("counted");
            std::fflush(stdout);
            Child::wait_for_parent();
        }
        connect_round(std::to_string(port), cq, round, plan.per_round);
        resources.count(plan.per_round);
    }
    Rng rng(plan.seed);
    for (std::size_t i = 0; i < plan.aborts; ++i) {
        if (i == plan.aborts / 4) resources.begin_count();
        break_off(port, cq, rng);
        resources.count(1);
    }
    resources.end_count();
    REQUIRE(xsock_cq_destroy(cq) == 0);
    return 0;
}

std::vector<std::string> client_arguments(xsock_listener* listener, const Plan& plan) {
    return {"--client",
            std::to_string(xsock_listener_port(listener)),
            std::to_string(plan.rounds),
            std::to_string(plan.per_round),
            std::to_string(plan.aborts),
            std::to_string(plan.seed)};
}

int server(const Plan& plan) {
    xsock_cq* const cq = xsock_cq_create(nullptr);
    REQUIRE(cq != nullptr);
    const xsock_ep_attr attr = small(cq);
    xsock_listener* listener = xsock_listen("0.0.0.0", "0", 4096, &attr);
    REQUIRE(listener != nullptr);
    Resources resources("server");
    {
        Plan rounds = plan;
        rounds.aborts = 0;
        Child child(client_arguments(listener, rounds));
        for (int round = 0; round < static_cast<int>(plan.rounds); ++round) {
            if (round == kWarmRounds) {
                // Nothing may come in meanwhile: it would change the count, and its first message
                // would wait longer for its receive than a peer may have to (the RNR timeout).
                child.line();
                resources.begin_count();
                child.release();
            }
            serve_round(listener, cq, round, plan.per_round);
            resources.count(plan.per_round);
        }
        if (const int status = child.status(); status != 0) return status;
    }
    {
        Plan aborts = plan;
        aborts.rounds = 0;
        Child child(client_arguments(listener, aborts));
        Rng rng(plan.seed + 1);
        while (!child.ended()) serve_broken(listener, cq, 64, rng);
        serve_broken(listener, cq, 64, rng);
        if (const int status = child.status(); status != 0) return status;
        resources.count(plan.aborts);
    }
    resources.end_count();
    REQUIRE(xsock_listener_close(listener) == 0);
    const std::uint64_t limit = now_us() + 10'000'000u;
    while (xsock_cq_destroy(cq) != 0) {
        if (now_us() > limit) die("xsock_cq_destroy: %m");
        sleep_us(1000);
    }
    return 0;
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    if (argc == 7 && std::strcmp(argv[1], "--client") == 0) {
        Plan plan;
        plan.rounds = std::stoul(argv[3]);
        plan.per_round = std::stoul(argv[4]);
        plan.aborts = std::stoul(argv[5]);
        plan.seed = std::stoull(argv[6]);
        return client(std::atoi(argv[2]), plan);
    }
    const std::size_t connections = argc > 1 ? std::stoul(argv[1]) : 10'000;
    Plan plan;
    plan.aborts = argc > 2 ? std::stoul(argv[2]) : 1000;
    plan.seed = argc > 3 ? std::stoull(argv[3]) : 1;
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    plan.per_round = std::min<std::size_t>(1000, connections / 10);
    if (files.rlim_cur < 2 * plan.per_round + 100) {
        plan.per_round = (files.rlim_cur - 100) / 2;
        std::fprintf(stderr, "only %zu connections at once: RLIMIT_NOFILE is %llu\n",
                     plan.per_round, static_cast<unsigned long long>(files.rlim_cur));
    }
    plan.rounds = (connections + plan.per_round - 1) / plan.per_round;
    return server(plan);
}
