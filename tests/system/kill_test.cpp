// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a peer's sudden end does to the other: it is killed, or stopped, at a random moment of
// traffic at depth. The survivor gets every completion, once, in order, and soon.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "tests/system/traffic.hpp"

namespace xsock::test {
namespace {

constexpr std::uint64_t kBoundUs = 5'000'000u * kSlow;

TrafficOptions options_for(std::uint64_t seed, bool reads) {
    Rng rng(seed);
    TrafficOptions options;
    options.seed = seed;
    options.sq_depth = 1 + rng.below(64);
    options.rq_depth = 1 + rng.below(32);
    // Both ends must agree: it is part of what they know about each other's window.
    options.bytes_max = 32 * 1024;
    options.may_fail = true;
    options.reads = reads;
    return options;
}

/// One end: a queue, an endpoint, its traffic.
class End {
  public:
    explicit End(std::uint64_t seed, bool reads = true) : traffic(options_for(seed, reads)) {
        REQUIRE((cq = xsock_cq_create(nullptr)) != nullptr);
    }
    ~End() { REQUIRE(xsock_cq_destroy(cq) == 0); }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    void start(int fd, std::uint32_t role, std::int32_t linger_ms = 0) {
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = cq;
        attr.role = role;
        attr.linger_ms = linger_ms;
        traffic.start(fd, attr);
    }
    /// Traffic until `until_us`, or until nothing is outstanding after the connection's end. The
    /// end may come while no Send is under way: then no completion tells of it, but the next post.
    void run(std::uint64_t until_us) {
        while (now_us() < until_us) {
            traffic.pump();
            take(10);
            if (traffic.ended() && traffic.outstanding() == 0) return;
        }
    }
    void take(int wait_ms) {
        xsock_wc wc[32];
        const int n = xsock_cq_wait(cq, wc, 1, 32, wait_ms);
        REQUIRE(n >= 0);
        for (int i = 0; i < n; ++i) traffic.on_completion(wc[i]);  // dies of one too many
    }
    /// Takes until nothing is outstanding.
    void wait_until_quiet(const char* what) {
        const std::uint64_t begin = now_us();
        while (traffic.outstanding() != 0) {
            take(10);
            if (now_us() - begin > kBoundUs) die("%s: %s", what, traffic.state().c_str());
        }
        longest_us = std::max(longest_us, now_us() - begin);
        take(20);
    }

    xsock_cq* cq = nullptr;
    Traffic traffic;
    static inline std::uint64_t longest_us = 0;
};

int connect_to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
}

// The victim: connects, and keeps the traffic up until it dies.
int victim(int port, std::uint64_t seed, std::uint32_t role) {
    Child::end_with_parent();
    End end(seed);
    end.start(connect_to(port), role);
    std::printf("ready\n");
    std::fflush(stdout);
    end.run(~std::uint64_t{0});
    end.traffic.close();
    end.wait_until_quiet("victim");
    return 0;
}

/// A victim and its survivor with traffic between them.
struct Couple {
    // The end that connected need not be the initiator: either may die.
    Couple(std::uint64_t seed, bool victim_initiates, std::int32_t linger_ms = 0, bool reads = true)
        : end(seed * 2, reads) {
        int port = 0;
        const int listener = listen_on_loopback(port);
        child = std::make_unique<Child>(std::vector<std::string>{
            "--victim", std::to_string(port), std::to_string(seed * 2 + 1),
            std::to_string(victim_initiates ? XSOCK_ROLE_INITIATOR : XSOCK_ROLE_RESPONDER)});
        fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        REQUIRE(fd >= 0);
        close(listener);
        end.start(fd, victim_initiates ? XSOCK_ROLE_RESPONDER : XSOCK_ROLE_INITIATOR, linger_ms);
        REQUIRE(child->line() == "ready");
    }
    std::unique_ptr<Child> child;
    End end;
    int fd = -1;
};

void killed(std::uint64_t seed) {
    Rng rng(seed);
    Couple couple(seed, rng.one_in(2));
    couple.end.run(now_us() + rng.below(60'000));
    couple.child->signal(SIGKILL);
    // An end that still posts learns of it that way; one that does not, by what is outstanding.
    couple.end.run(now_us() + (rng.one_in(2) ? kBoundUs : 0));
    couple.end.wait_until_quiet("after a kill");
    couple.end.traffic.close();
}

// A stopped peer's kernel goes on acknowledging until its buffers are full. Then the traffic waits,
// and goes on when the peer does.
void stopped_and_continued(std::uint64_t seed) {
    Couple couple(seed, true);
    couple.end.run(now_us() + 20'000);
    couple.child->signal(SIGSTOP);
    couple.end.run(now_us() + 300'000);
    REQUIRE(!couple.end.traffic.ended());
    couple.child->signal(SIGCONT);
    const std::uint64_t before = couple.end.traffic.operations();
    couple.end.run(now_us() + 200'000 * kSlow);
    REQUIRE(!couple.end.traffic.ended());
    REQUIRE(couple.end.traffic.operations() > before);
    couple.end.traffic.close(true);
    couple.end.wait_until_quiet("after an abort");
    const std::uint64_t begin = now_us();
    while (!couple.child->ended()) {
        if (now_us() - begin > kBoundUs) die("the peer of an abort goes on");
        sleep_us(10'000);
    }
    REQUIRE(couple.child->status() == 0);  // the victim had to become quiet, too
}

// A peer that is stopped for good is given up after the time that TCP was told. Without Reads:
// their answers are nothing that TCP waits for, so a window that is open is no reason to give up.
void stopped_until_timeout(std::uint64_t seed) {
    Couple couple(seed, false, 0, false);
    const unsigned limit_ms = 1500;
    REQUIRE(setsockopt(couple.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms) == 0);
    couple.end.run(now_us() + 20'000);
    couple.child->signal(SIGSTOP);
    const std::uint64_t begin = now_us();
    couple.end.run(begin + 15'000'000u);
    if (!couple.end.traffic.ended()) die("no time-out: %s", couple.end.traffic.state().c_str());
    REQUIRE(now_us() - begin >= (limit_ms - 100) * 1000u);
    couple.end.wait_until_quiet("after a time-out");
    couple.end.traffic.close();
    std::printf("stopped peer given up after %.1f s\n",
                static_cast<double>(now_us() - begin) / 1e6);
}

// Closing toward a stopped peer takes the linger time and not more.
void stopped_and_closed(std::uint64_t seed) {
    Couple couple(seed, true, 300);
    couple.end.run(now_us() + 20'000);
    couple.child->signal(SIGSTOP);
    couple.end.run(now_us() + 300'000);
    const std::uint64_t begin = now_us();
    couple.end.traffic.close();
    couple.end.wait_until_quiet("after close");
    const std::uint64_t took = now_us() - begin;
    if (took < 250'000u || took > 2'000'000u * kSlow)
        die("close took %llu us", static_cast<unsigned long long>(took));
}

// A peer that is stopped before it has said anything.
void stopped_in_startup() {
    int port = 0;
    const int listener = listen_on_loopback(port);  // the kernel accepts, no program answers
    xsock_cq* const cq = xsock_cq_create(nullptr);
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq;
    attr.startup_timeout_ms = 300;
    const std::uint64_t begin = now_us();
    errno = 0;
    xsock_ep* const ep =
        xsock_connect("127.0.0.1", std::to_string(port).c_str(), &attr, XSOCK_FOREVER);
    const std::uint64_t took = now_us() - begin;
    if (ep != nullptr || errno != ETIMEDOUT) die("connect to the silent: %m");
    if (took < 250'000u || took > 2'000'000u * kSlow) {
        die("startup time-out after %llu us", static_cast<unsigned long long>(took));
    }
    REQUIRE(xsock_cq_destroy(cq) == 0);
    close(listener);
}

int run(std::uint64_t seed, int kills) {
    // Tells which trial it was; then nothing more is printed.
    std::size_t warm = 0;
    for (int i = 0; i < kills; ++i) {
        std::fprintf(stderr, "kill %d, seed %llu\n", i,
                     static_cast<unsigned long long>(seed + static_cast<unsigned>(i)));
        killed(seed + static_cast<unsigned>(i));
        if (i == 2) warm = open_descriptors();
    }
    stopped_and_continued(seed + 1000);
    // In shared memory nothing but the program tells that it is stopped, and it is waited for.
    const char* const shm = std::getenv("XSOCK_SHM");
    if (shm != nullptr && std::strcmp(shm, "off") == 0) stopped_until_timeout(seed + 1001);
    stopped_and_closed(seed + 1002);
    stopped_in_startup();
    const std::uint64_t limit = now_us() + 10'000'000u;
    while (kills > 2 && open_descriptors() > warm && now_us() < limit) sleep_us(10'000);
    if (kills > 2 && open_descriptors() > warm) {
        die("%zu descriptors, %zu after warm-up", open_descriptors(), warm);
    }
    std::printf("%d kills survived; all completions within %.0f ms\n", kills,
                static_cast<double>(End::longest_us) / 1000);
    return 0;
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    if (argc == 5 && std::strcmp(argv[1], "--victim") == 0) {
        return victim(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
                      static_cast<std::uint32_t>(std::atoi(argv[4])));
    }
    return run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1,
               argc > 2 ? std::atoi(argv[2]) : 20);
}
