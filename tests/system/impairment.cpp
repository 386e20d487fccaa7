// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Verified traffic (traffic.hpp) between two programs over a network that impairment.sh impairs; it
// starts them, and tests/long/soak.sh does. Every byte is checked and every operation completes
// once; nothing may stand still.
//
//   impairment serve ADDRESS PORT [options]     accepts --connections, carries traffic, ends
//   impairment drive ADDRESS PORT [options]     the other end
//   impairment proxy ADDRESS PORT TARGET TARGET-PORT [--seed N]
//                                               cuts and joins the stream at random
//   options: --seconds S  --connections N  --seed N  --bytes N (largest operation)  --depth N
//            --may-fail (connections may end early)  --must-fail (all of them must)
//            --only-reads  --timeout S (longest time without a completion)
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "tests/system/traffic.hpp"

namespace xsock::test {
namespace {

constexpr double kFaultTimeout = 180;

struct Plan {
    std::string verb, address, target;
    int port = 0, target_port = 0;
    double seconds = 3, timeout = 120;  // an idle peer that dies is noticed after 90 s
    std::uint32_t connections = 3, bytes = 32 * 1024, depth = 32;
    std::uint64_t seed = 1;
    bool may_fail = false, must_fail = false, only_reads = false;
};

sockaddr_in address_of(const std::string& text, int port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(inet_pton(AF_INET, text.c_str(), &in.sin_addr) == 1);
    return in;
}

int listen_on(const std::string& address, int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in in = address_of(address, port);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0 && listen(fd, 64) == 0);
    return fd;
}

int connect_to(const std::string& address, int port) {
    sockaddr_in in = address_of(address, port);
    const std::uint64_t limit = now_us() + 30'000'000u;
    for (;;) {  // its listener may be a moment late
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0) return fd;
        ::close(fd);
        if (now_us() > limit) die("connect: %m");
        sleep_us(50'000);
    }
}

// To impairment.sh, which waits for it.
void say(const char* word) {
    std::printf("%s\n", word);
    std::fflush(stdout);
}

// ---- traffic ----------------------------------------------------------------

class Exchange {
  public:
    explicit Exchange(const Plan& plan) : plan_(plan), cq_(xsock_cq_create(nullptr)) {
        REQUIRE(cq_ != nullptr);
    }

    void connect() {
        const bool server = plan_.verb == "serve";
        const int listener = server ? listen_on(plan_.address, plan_.port) : -1;
        if (server) say("listening");
        for (std::uint32_t i = 0; i < plan_.connections; ++i) {
            const int fd = server ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)
                                  : connect_to(plan_.address, plan_.port);
            REQUIRE(fd >= 0);
            TrafficOptions options;
            options.seed = plan_.seed * 1000 + i * 2 + (server ? 0 : 1);
            options.bytes_max = plan_.bytes;
            options.sq_depth = plan_.depth;
            options.only_reads = plan_.only_reads;
            options.may_fail = plan_.may_fail || plan_.must_fail;
            traffics_.push_back(std::make_unique<Traffic>(options));
            Traffic& traffic = *traffics_.back();
            XSOCK_INIT(xsock_ep_attr, attr);
            attr.send_cq = cq_;
            attr.role = server ? XSOCK_ROLE_RESPONDER : XSOCK_ROLE_INITIATOR;
            attr.startup_timeout_ms = 60'000;
            traffic.start(fd, attr, 60'000);
        }
        if (listener >= 0) ::close(listener);
        say("started");
    }

    void run() {
        const auto us = [](double seconds) { return static_cast<std::uint64_t>(seconds * 1e6); };
        const std::uint64_t end = now_us() + us(plan_.seconds);
        std::uint64_t last = now_us();
        for (;;) {
            // What shall end the connections may come late.
            const bool over = now_us() >= end && !plan_.must_fail;
            if (plan_.must_fail && now_us() > end + us(kFaultTimeout) * kSlow) {
                die("%s: nothing has ended the connections", plan_.verb.c_str());
            }
            bool all = true;
            for (auto& traffic : traffics_) {
                if (over) traffic->finish();
                traffic->pump();
                // One that ended early is over when all that was posted has completed.
                all = all && (traffic->done() || (traffic->ended() && traffic->outstanding() == 0));
            }
            if (all) break;
            if (take(100) > 0) last = now_us();
            if (now_us() - last > us(plan_.timeout) * kSlow) {
                std::string where;
                for (auto& traffic : traffics_) where += "\n  " + traffic->state();
                die("%s: nothing completes any more:%s", plan_.verb.c_str(), where.c_str());
            }
        }
    }

    void close() {
        std::uint64_t operations = 0, bytes = 0;
        std::size_t failed = 0;
        for (auto& traffic : traffics_) {
            failed += traffic->ended() ? 1 : 0;
            traffic->close();
        }
        const std::uint64_t limit = now_us() + 60'000'000u * kSlow;
        while (std::any_of(traffics_.begin(), traffics_.end(),
                           [](const auto& t) { return t->outstanding() != 0; })) {
            if (now_us() > limit) die("%s: close leaves work behind", plan_.verb.c_str());
            take(10);
        }
        for (auto& traffic : traffics_) {
            operations += traffic->operations();
            bytes += traffic->bytes();
        }
        xsock_wc wc;
        if (xsock_cq_wait(cq_, &wc, 1, 1, 50) != 0) die("a completion too many");
        traffics_.clear();
        while (xsock_cq_destroy(cq_) != 0) {
            if (now_us() > limit) die("xsock_cq_destroy: %m");
            sleep_us(1000);
        }
        if (plan_.must_fail && failed != plan_.connections) {
            die("%s: %zu of %u connections ended, all should have", plan_.verb.c_str(), failed,
                plan_.connections);
        }
        std::printf("%s: %llu operations, %.1f MB, %zu of %u connections ended early\n",
                    plan_.verb.c_str(), static_cast<unsigned long long>(operations),
                    static_cast<double>(bytes) / 1e6, failed, plan_.connections);
        if (!plan_.must_fail && operations == 0) die("nothing was done");
    }

  private:
    int take(int wait_ms) {
        xsock_wc wc[32];
        const int n = xsock_cq_wait(cq_, wc, 1, 32, wait_ms);
        REQUIRE(n >= 0);
        for (int i = 0; i < n; ++i) {
            auto& traffic = *static_cast<Traffic*>(wc[i].context);
            traffic.on_completion(wc[i]);
            traffic.pump();
        }
        return n;
    }

    const Plan plan_;
    xsock_cq* cq_;
    std::vector<std::unique_ptr<Traffic>> traffics_;
};

// ---- a middle box -----------------------------------------------------------

/// One direction of one relayed connection.
struct Pipe {
    int from = -1, to = -1;
    std::vector<unsigned char> held;
    std::uint64_t until_us = 0;  // held back
    bool ended = false, told = false;
};

/// Relays until it is killed. What goes on is cut anywhere, a single byte at times, and joined.
void relay(const Plan& plan) {
    constexpr std::size_t kHeldMax = 256 * 1024;
    Rng rng(plan.seed);
    const int listener = listen_on(plan.address, plan.port);
    say("listening");
    std::vector<std::unique_ptr<Pipe>> pipes;
    std::vector<unsigned char> buffer(65536);
    for (;;) {
        std::vector<pollfd> fds{{listener, POLLIN, 0}};
        for (auto& pipe : pipes) {
            const bool read = !pipe->ended && pipe->held.size() < kHeldMax;
            fds.push_back({read ? pipe->from : -1, POLLIN, 0});
        }
        (void)poll(fds.data(), fds.size(), 1);
        for (std::size_t i = 0; i < pipes.size(); ++i) {
            Pipe& pipe = *pipes[i];
            if (fds[i + 1].revents != 0) {
                const std::size_t wanted = 1 + rng.below(rng.one_in(4) ? 16 : 65535);
                const ssize_t n = recv(pipe.from, buffer.data(), wanted, MSG_DONTWAIT);
                if (n > 0) {
                    pipe.held.insert(pipe.held.end(), buffer.begin(), buffer.begin() + n);
                } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                    pipe.ended = true;
                }
            }
            const std::uint64_t now = now_us();
            for (int rounds = 0; rounds < 64 && !pipe.held.empty() && now >= pipe.until_us;
                 ++rounds) {
                const std::uint32_t most = rng.one_in(3) ? 8 : rng.one_in(2) ? 3000 : 65535;
                const std::size_t n = std::min<std::size_t>(pipe.held.size(), 1 + rng.below(most));
                const ssize_t sent =
                    send(pipe.to, pipe.held.data(), n, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent < 0) {
                    if (errno != EAGAIN) pipe.held.clear();
                    break;
                }
                pipe.held.erase(pipe.held.begin(), pipe.held.begin() + sent);
                if (rng.one_in(8)) pipe.until_us = now + rng.below(3000);
            }
            if (pipe.ended && pipe.held.empty() && !pipe.told) {
                shutdown(pipe.to, SHUT_WR);
                pipe.told = true;
            }
        }
        if (fds[0].revents != 0) {
            const int near = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            if (near < 0) continue;
            const int far = connect_to(plan.target, plan.target_port);
            const int yes = 1;
            for (const int fd : {near, far}) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            }
            for (const auto& [from, to] : {std::pair{near, far}, std::pair{far, near}}) {
                pipes.push_back(std::make_unique<Pipe>());
                pipes.back()->from = from;
                pipes.back()->to = to;
            }
        }
    }
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    Plan plan;
    const auto words = parse_options({argv + 1, argv + argc},
                                     {{"--may-fail", &plan.may_fail},
                                      {"--only-reads", &plan.only_reads},
                                      {"--must-fail", &plan.must_fail}},
                                     {{"--seconds", into(plan.seconds)},
                                      {"--timeout", into(plan.timeout)},
                                      {"--connections", into(plan.connections)},
                                      {"--bytes", into(plan.bytes)},
                                      {"--depth", into(plan.depth)},
                                      {"--seed", into(plan.seed)}});
    if (words.size() < 3) die("usage: impairment serve|drive|proxy ADDRESS PORT ...");
    plan.verb = words[0];
    plan.address = words[1];
    plan.port = std::stoi(words[2]);
    if (plan.verb == "proxy") {
        if (words.size() != 5) die("usage: impairment proxy ADDRESS PORT TARGET TARGET-PORT");
        plan.target = words[3];
        plan.target_port = std::stoi(words[4]);
        relay(plan);
        return 0;
    }
    if (plan.verb != "serve" && plan.verb != "drive") die("no verb %s", plan.verb.c_str());
    Exchange exchange(plan);
    exchange.connect();
    exchange.run();
    exchange.close();
    return 0;
}
