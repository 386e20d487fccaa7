// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two processes, several endpoints and threads, random verified traffic both ways for some seconds;
// then both ends agree to stop, close, and check what they hold. The environment (XSOCK_PROGRESS,
// XSOCK_THREADS, XSOCK_SPIN_US) says which threads move the bytes.
//
//   stress [--seed N] [--seconds S] [--endpoints N] [--threads N] [--loop wait|poll|epoll]
//   [--shared]
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>

#include "tests/system/traffic.hpp"

namespace xsock::test {
namespace {

struct Plan {
    std::uint64_t seed = 1;
    double seconds = 2;
    std::uint32_t endpoints = 6;
    std::uint32_t threads = 2;
    std::string loop = "wait";
    bool shared = false;  // one completion queue for all threads
    int peer_port = 0;    // not 0: this is the child, which connects
};

// Completions of one queue, and whose they are.
struct Share {
    xsock_cq* cq = nullptr;
    std::vector<std::unique_ptr<Traffic>> traffics;
};

class Stress {
  public:
    explicit Stress(const Plan& plan) : plan_(plan), shares_(plan.shared ? 1 : plan.threads) {
        for (Share& share : shares_) REQUIRE((share.cq = xsock_cq_create(nullptr)) != nullptr);
    }

    void connect() {
        const std::string port = std::to_string(plan_.peer_port);
        for (std::uint32_t i = 0; i < plan_.endpoints; ++i) {
            Traffic& traffic = add(i);
            XSOCK_INIT(xsock_ep_attr, attr);
            attr.send_cq = shares_[i % shares_.size()].cq;
            traffic.fill(attr);
            xsock_ep* const ep = xsock_connect("127.0.0.1", port.c_str(), &attr, 20'000);
            REQUIRE(ep != nullptr);
            traffic.attach(ep);
            traffic.begin();
        }
    }

    // Accepts plain TCP connections, so that each endpoint can have a queue of our choice.
    void listen_and_accept(const std::function<void(int)>& tell_port) {
        int port = 0;
        const int listener = listen_on_loopback(port);
        tell_port(port);
        for (std::uint32_t i = 0; i < plan_.endpoints; ++i) {
            const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            REQUIRE(fd >= 0);
            Traffic& traffic = add(i);
            XSOCK_INIT(xsock_ep_attr, attr);
            attr.send_cq = shares_[i % shares_.size()].cq;
            attr.role = XSOCK_ROLE_RESPONDER;
            traffic.start(fd, attr);
        }
        ::close(listener);
    }

    void run() {
        end_us_ = now_us() + static_cast<std::uint64_t>(plan_.seconds * 1e6);
        std::vector<std::thread> threads;
        for (std::uint32_t i = 0; i < plan_.threads; ++i) {
            threads.emplace_back([this, i] { work(shares_[i % shares_.size()]); });
        }
        for (std::thread& t : threads) t.join();
    }

    // Nothing moves any more: no thread may be busy. Then everything is given back.
    void rest_and_close() {
        const std::uint64_t before = cpu_us();
        const std::uint64_t begin = now_us();
        sleep_us(300'000);
        const double busy =
            static_cast<double>(cpu_us() - before) / static_cast<double>(now_us() - begin);
        if (busy > 0.5) die("seed %llu: %.0f %% of a CPU while idle", seed(), busy * 100);

        std::uint64_t operations = 0, bytes = 0;
        for (Share& share : shares_) {
            for (auto& traffic : share.traffics) traffic->close();
            const std::uint64_t limit = now_us() + 10'000'000u;
            while (std::any_of(share.traffics.begin(), share.traffics.end(),
                               [](const auto& t) { return t->outstanding() != 0; })) {
                if (now_us() > limit) die("seed %llu: receives not flushed by close", seed());
                take(share, 10);
            }
            for (auto& traffic : share.traffics) {
                operations += traffic->operations();
                bytes += traffic->bytes();
            }
            xsock_wc wc;
            if (xsock_cq_wait(share.cq, &wc, 1, 1, 50) != 0) die("a completion too many");
            share.traffics.clear();
            const std::uint64_t close_limit = now_us() + 10'000'000u;
            while (xsock_cq_destroy(share.cq) != 0) {
                if (now_us() > close_limit) die("seed %llu: xsock_cq_destroy: %m", seed());
                sleep_us(1000);
            }
        }
        std::fprintf(stderr, "%s: %llu operations, %llu MB, idle CPU %.0f %%\n",
                     plan_.peer_port != 0 ? "client" : "server",
                     static_cast<unsigned long long>(operations),
                     static_cast<unsigned long long>(bytes / 1'000'000u), busy * 100);
    }

  private:
    [[nodiscard]] unsigned long long seed() const { return plan_.seed; }

    Traffic& add(std::uint32_t index) {
        TrafficOptions options;
        options.seed = plan_.seed * 1000 + index * 2 + (plan_.peer_port != 0 ? 1 : 0);
        options.ordered = !plan_.shared;
        Share& share = shares_[index % shares_.size()];
        share.traffics.push_back(std::make_unique<Traffic>(options));
        return *share.traffics.back();
    }

    // Takes completions, waiting at most `wait_ms` when there are none. @return how many
    int take(Share& share, int wait_ms) {
        xsock_wc wc[32];
        const int n = wait_ms == 0 ? xsock_cq_poll(share.cq, wc, 32)
                                   : xsock_cq_wait(share.cq, wc, 1, 32, wait_ms);
        REQUIRE(n >= 0);
        for (int i = 0; i < n; ++i) {
            auto& traffic = *static_cast<Traffic*>(wc[i].context);
            const std::lock_guard lock(traffic.mutex);
            traffic.on_completion(wc[i]);
            traffic.pump();
        }
        return n;
    }

    void work(Share& share) {
        int epoll_fd = -1;
        if (plan_.loop == "epoll") {
            epoll_fd = epoll_create1(EPOLL_CLOEXEC);
            const int fd = xsock_cq_fd(share.cq);
            REQUIRE(fd >= 0);
            epoll_event event{};
            event.events = EPOLLIN;
            REQUIRE(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
        }
        std::uint64_t last_progress = now_us();
        for (;;) {
            bool all_done = true;
            const bool over = now_us() >= end_us_;
            for (auto& traffic : share.traffics) {
                const std::lock_guard lock(traffic->mutex);
                if (over) traffic->finish();
                traffic->pump();
                all_done = all_done && traffic->done();
            }
            if (all_done) break;
            int n = 0;
            if (epoll_fd >= 0) {
                epoll_event event;
                REQUIRE(epoll_wait(epoll_fd, &event, 1, 100) >= 0);
                while (const int more = take(share, 0)) n += more;
            } else if (plan_.loop == "poll") {
                n = take(share, 0);
            } else {
                n = take(share, 100);
            }
            if (n > 0) last_progress = now_us();
            if (now_us() - last_progress > 20'000'000u * kSlow) {
                std::string where;
                for (auto& traffic : share.traffics) where += "\n  " + traffic->state();
                die("seed %llu: nothing completes any more:%s", seed(), where.c_str());
            }
        }
        if (epoll_fd >= 0) ::close(epoll_fd);
    }

    const Plan plan_;
    std::vector<Share> shares_;
    std::uint64_t end_us_ = 0;
};

int run(const Plan& plan, const std::vector<std::string>& arguments) {
    Stress stress(plan);
    if (plan.peer_port != 0) {
        Child::end_with_parent();
        stress.connect();
        stress.run();
        stress.rest_and_close();
        return 0;
    }
    std::unique_ptr<Child> child;
    stress.listen_and_accept([&](int port) {
        std::vector<std::string> all = arguments;
        all.push_back("--peer");
        all.push_back(std::to_string(port));
        child = std::make_unique<Child>(all);
    });
    stress.run();
    stress.rest_and_close();
    return child->status();
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    Plan plan;
    parse_only_options(argc, argv, {{"--shared", &plan.shared}},
                       {{"--seed", into(plan.seed)},
                        {"--seconds", into(plan.seconds)},
                        {"--endpoints", into(plan.endpoints)},
                        {"--threads", into(plan.threads)},
                        {"--loop", into(plan.loop)},
                        {"--peer", into(plan.peer_port)}});
    return run(plan, {argv + 1, argv + argc});
}
