// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Peers that connect and are killed, one after the other by the thousand: in start-up, in traffic
// or while they close. Of those killed in start-up some have ended it. The one process that they
// connect to gets every completion once and soon, and keeps neither descriptors nor memory.
//
//   kill_cycles start|traffic|close [CYCLES [SEED]]
//
// The first process uses nothing of the library: it makes the survivor and the victims by fork(),
// which takes a tenth of what a new program would.
#include <sys/mman.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <unordered_map>

#include "tests/system/process.hpp"

namespace xsock::test {
namespace {

constexpr std::uint64_t kBoundUs = 5'000'000u * kSlow;
constexpr std::uint32_t kBytes = 4096;
constexpr std::uint32_t kReceives = 8;
constexpr std::uint64_t kWarmCycles = 100;

/// What the processes tell each other.
struct Shared {
    std::atomic<int> port{0};
    std::atomic<int> victim_at{0};  // 1: about to connect, 2: traffic, 3: about to close
    std::atomic<std::uint64_t> cycles{0};
    std::atomic<std::uint64_t> accepted{0};
    std::atomic<bool> over{false};
};
Shared* shared = nullptr;

struct Memory {
    Memory() {
        mr = xsock_mr_register(nullptr, bytes.data(), bytes.size(),
                               XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, nullptr);
        REQUIRE(mr != nullptr && xsock_mr_key(mr, 0, bytes.size(), &key) == 0);
    }
    alignas(64) std::array<char, std::size_t{2} * kBytes> bytes{};
    xsock_mr* mr = nullptr;
    xsock_key key{};
};

xsock_ep_attr attributes(xsock_cq* cq, const Memory& memory) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq;
    attr.private_data = &memory.key;
    attr.private_data_length = sizeof memory.key;
    attr.linger_ms = 1000;
    return attr;
}

/// One connection with a few messages, a Write and a Read always under way.
class Traffic {
  public:
    Traffic(xsock_ep* ep, Memory& memory, std::uint64_t number)
        : ep_(ep), memory_(memory), number_(number), remote_(memory_of_peer(ep)) {
        for (std::uint32_t i = 0; i < kReceives; ++i) receive();
        for (std::uint32_t i = 0; i < kReceives / 2; ++i) send();
    }
    /// Closes an endpoint that has failed; completions may still come.
    void on_completion(const xsock_wc& wc) {
        const auto at = outstanding_.find(wc.wr_id);
        REQUIRE(at != outstanding_.end() && at->second == wc.op);  // once, each as what it was
        outstanding_.erase(at);
        if (wc.status != XSOCK_WC_SUCCESS) close();
        if (wc.op == XSOCK_OP_RECV) receive();
        if (wc.op == XSOCK_OP_READ) send();
    }
    void close() {
        if (ep_ != nullptr) REQUIRE(xsock_ep_close(std::exchange(ep_, nullptr)) == 0);
    }
    [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
    [[nodiscard]] bool is_open() const { return ep_ != nullptr; }
    [[nodiscard]] bool is_over() const { return ep_ == nullptr && outstanding_.empty(); }
    /// The number of the connection that has this request.
    static std::uint64_t number_of(std::uint64_t wr_id) { return wr_id >> 24; }
    const std::uint64_t born_us = now_us();

  private:
    template <typename... Arguments>
    void post(xsock_op op, int (*function)(xsock_ep*, std::uint64_t, Arguments...),
              std::common_type_t<Arguments>... arguments) {
        if (ep_ == nullptr) return;
        const std::uint64_t wr_id = number_ << 24 | posted_++ % (1u << 24);
        if (function(ep_, wr_id, arguments...) == 0) {
            REQUIRE(outstanding_.emplace(wr_id, op).second);
        } else {
            REQUIRE(errno == EPIPE);  // it has ended, perhaps before it was accepted
            close();
        }
    }
    void receive() { post(XSOCK_OP_RECV, xsock_recv, memory_.bytes.data(), kBytes); }
    void send() {
        char* const at = memory_.bytes.data() + kBytes;
        post(XSOCK_OP_SEND, xsock_send, at, static_cast<std::uint32_t>(100 + number_ % 3000), 0u);
        post(XSOCK_OP_WRITE, xsock_write, at, kBytes, &remote_, std::uint64_t{0}, 0u);
        post(XSOCK_OP_READ, xsock_read, at, kBytes, &remote_, std::uint64_t{kBytes}, 0u);
    }

    xsock_ep* ep_;
    Memory& memory_;
    const std::uint64_t number_;
    const xsock_remote remote_;
    std::uint64_t posted_ = 0;
    std::unordered_map<std::uint64_t, xsock_op> outstanding_;  // by wr_id
};

void take(xsock_cq* cq, std::unordered_map<std::uint64_t, std::unique_ptr<Traffic>>& all,
          int wait_ms) {
    xsock_wc wc[64];
    const int n = xsock_cq_wait(cq, wc, 1, 64, wait_ms);
    REQUIRE(n >= 0);
    for (int i = 0; i < n; ++i) {
        const auto at = all.find(Traffic::number_of(wc[i].wr_id));
        REQUIRE(at != all.end());
        at->second->on_completion(wc[i]);
        if (at->second->is_over()) all.erase(at);
    }
}

[[noreturn]] void survive() {
    xsock_cq* const cq = xsock_cq_create(nullptr);
    REQUIRE(cq != nullptr);
    Memory memory;
    const xsock_ep_attr attr = attributes(cq, memory);
    xsock_listener* const listener = xsock_listen(nullptr, "0", 64, &attr);
    REQUIRE(listener != nullptr);
    std::unordered_map<std::uint64_t, std::unique_ptr<Traffic>> all;
    std::size_t warm_descriptors = 0;
    long warm_kib = 0;
    std::uint64_t next = 0, longest_us = 0;
    shared->port.store(xsock_listener_port(listener));
    while (!shared->over.load() || !all.empty()) {
        while (xsock_ep* const ep = xsock_accept(listener, 0)) {
            auto traffic = std::make_unique<Traffic>(ep, memory, next);
            if (!traffic->is_over()) all.emplace(next, std::move(traffic));
            ++next;
            shared->accepted.store(next);
        }
        take(cq, all, 1);
        for (const auto& [number, traffic] : all) {
            const std::uint64_t age_us = now_us() - traffic->born_us;
            longest_us = std::max(longest_us, age_us);
            if (age_us < kBoundUs) continue;
            die("connection %llu has not ended: %zu outstanding, %s",
                static_cast<unsigned long long>(number), traffic->outstanding(),
                traffic->is_open() ? "open" : "closed");
        }
        if (warm_descriptors == 0 && shared->cycles.load() >= kWarmCycles) {
            warm_descriptors = open_descriptors() + 4;  // those that are just beginning or ending
            warm_kib = rss_anon_kib();
        }
    }
    const std::uint64_t limit = now_us() + 2 * kBoundUs;
    while (warm_descriptors != 0 && open_descriptors() > warm_descriptors && now_us() < limit) {
        take(cq, all, 10);
    }
    const long grown_kib = rss_anon_kib() - warm_kib;
    std::printf(
        "%llu connections of %llu victims; the longest took %.0f ms; %zu descriptors "
        "(%zu), RssAnon %+ld KiB\n",
        static_cast<unsigned long long>(next),
        static_cast<unsigned long long>(shared->cycles.load()),
        static_cast<double>(longest_us) / 1000, open_descriptors(), warm_descriptors,
        warm_descriptors != 0 ? grown_kib : 0);
    std::fflush(stdout);
    if (warm_descriptors != 0) {
        if (open_descriptors() > warm_descriptors) die("descriptors are kept");
        // A Progress keeps up to four buffers of 256 KiB.
        const long allowed = 1024 + static_cast<long>(next) * 16 / 1024;
        if (!kSanitized && grown_kib > allowed) die("memory is kept: %ld KiB", allowed);
    }
    REQUIRE(xsock_listener_close(listener) == 0);
    REQUIRE(xsock_mr_deregister(memory.mr) == 0);
    REQUIRE(xsock_cq_destroy(cq) == 0);
    std::exit(0);
}

[[noreturn]] void be_victim(std::uint64_t number, bool closes) {
    xsock_cq* const cq = xsock_cq_create(nullptr);
    REQUIRE(cq != nullptr);
    Memory memory;
    const xsock_ep_attr attr = attributes(cq, memory);
    // Many addresses: ports of closed connections rest for a minute.
    const std::string host = "127.0.0." + std::to_string(1 + number % 200);
    const std::string port = std::to_string(shared->port.load());
    shared->victim_at.store(1);
    xsock_ep* const ep = xsock_connect(host.c_str(), port.c_str(), &attr, 5000);
    REQUIRE(ep != nullptr);
    std::unordered_map<std::uint64_t, std::unique_ptr<Traffic>> all;
    all.emplace(0, std::make_unique<Traffic>(ep, memory, 0));
    shared->victim_at.store(2);
    const std::uint64_t end_us = now_us() + (closes ? number % 2000 : kBoundUs * 4);
    while (now_us() < end_us) take(cq, all, 1);
    shared->victim_at.store(3);
    if (!all.empty()) all.begin()->second->close();
    while (!all.empty()) take(cq, all, 1);
    pause();
    std::exit(0);
}

template <typename F>
pid_t forked(F&& be) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be();
    std::abort();
}

int run(const std::string& variant, std::uint64_t cycles, std::uint64_t seed) {
    const int kill_at = variant == "start" ? 1 : variant == "traffic" ? 2 : 3;
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    shared = new (memory) Shared;
    xsock_version();  // loads the engine, once for all
    const pid_t survivor = forked([] { survive(); });
    Rng rng(seed);
    const auto is_alive = [survivor] { return waitpid(survivor, nullptr, WNOHANG) == 0; };
    while (shared->port.load() == 0) {
        if (!is_alive()) return 1;
        sleep_us(100);
    }
    std::uint64_t start_us = 1000;
    for (std::uint64_t i = 0; i < cycles; ++i) {
        shared->victim_at.store(0);
        const pid_t victim = forked([&] { be_victim(i, kill_at == 3); });
        const std::uint64_t limit = now_us() + kBoundUs * 2;
        while (shared->victim_at.load() < kill_at) {
            if (now_us() > limit || !is_alive()) {
                die("cycle %llu, seed %llu: the victim is at %d",
                    static_cast<unsigned long long>(i), static_cast<unsigned long long>(seed),
                    shared->victim_at.load());
            }
            sleep_us(50);
        }
        const std::uint64_t most_us = kill_at == 1 ? start_us : kill_at == 2 ? 3000 : 1000;
        sleep_us(rng.below(static_cast<std::uint32_t>(most_us)));
        kill(victim, SIGKILL);
        int status = 0;
        REQUIRE(waitpid(victim, &status, 0) == victim);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            die("cycle %llu: the victim ended by itself: %x", static_cast<unsigned long long>(i),
                static_cast<unsigned>(status));
        }
        if (kill_at == 1) {  // about half of the victims shall get through start-up
            const bool is_through = shared->victim_at.load() >= 2;
            start_us = is_through ? start_us * 7 / 8 + 1 : start_us * 8 / 7 + 1;
        }
        shared->cycles.store(i + 1);
    }
    shared->over.store(true);
    int status = 0;
    REQUIRE(waitpid(survivor, &status, 0) == survivor);
    // In traffic and in close each has connected. In start-up some must have, and some not.
    const std::uint64_t accepted = shared->accepted.load();
    const bool is_enough = kill_at == 1 ? accepted >= cycles / 10 && accepted < cycles - cycles / 20
                                        : accepted >= cycles - cycles / 10;
    if (!is_enough && cycles >= 100) {
        die("%llu of %llu victims reached the survivor", static_cast<unsigned long long>(accepted),
            static_cast<unsigned long long>(cycles));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    const std::string variant = argc > 1 ? argv[1] : "";
    if (variant != "start" && variant != "traffic" && variant != "close") {
        std::fprintf(stderr, "usage: %s start|traffic|close [CYCLES [SEED]]\n", argv[0]);
        return 2;
    }
    return xsock::test::run(variant, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000,
                            argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
}
