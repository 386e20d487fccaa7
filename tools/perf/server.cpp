// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The serving side of `xsock perf`: one thread takes connections and tells them apart, the other
// serves one session at a time. Standard peers cannot hold either of them up: a connection that
// does not say what it is within seconds is closed, and one that is not of the session under way at
// once.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/random.hpp"
#include "include/xsock/iwarp.h"
#include "tools/command.hpp"
#include "tools/fd.hpp"
#include "tools/perf/connections.hpp"
#include "tools/perf/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

constexpr std::uint64_t kHelloNs = 5'000'000'000;
constexpr std::size_t kMaxPending = 64;
constexpr int kIdleMs = 60'000;  // between two wishes of a client
constexpr int kOpenMs = 20'000;

enum class Sort : std::uint8_t { control, tcp, ddp };

struct Arrival {
    Sort sort = Sort::control;
    Fd fd;
};

/// What the first bytes of a connection say it is.
struct Greeting {
    Sort sort;
    const char* bytes;
    std::size_t size;
};
constexpr Greeting kGreetings[] = {{Sort::control, kControlMagic, sizeof kControlMagic},
                                   {Sort::tcp, kDataMagic, kMagicBytes},
                                   {Sort::ddp, MPA_KEY_REQUEST, kMagicBytes}};

class Server {
  public:
    explicit Server(const ServerOptions& options) : options_(options) { open_listener(); }
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    int run();

  private:
    struct Pending {
        Fd fd;
        std::uint64_t deadline = 0;
    };

    void open_listener();
    void accept_loop();
    /// True when the connection was dealt with.
    bool sort_out(Pending& pending);
    void hand_over(Sort sort, Fd fd);
    Arrival next(int limit_ms, bool data);
    void serve_session(int control);
    void open_session(int control, const Control& wish, std::uint64_t token,
                      std::unique_ptr<DdpConnections>& ddp, std::unique_ptr<TcpConnections>& tcp);
    template <typename... T>
    void say(fmt::format_string<T...> format, T&&... values) const {
        if (!options_.quiet) print_now(format, std::forward<T>(values)...);
    }

    const ServerOptions& options_;
    Fd listener_;
    Fd stop_;  // eventfd
    std::thread acceptor_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Arrival> control_, data_;  // under mutex_
    bool in_session_ = false, opening_ = false;
};

void Server::open_listener() {
    // "::" takes IPv4 too; where there is no IPv6, the rest of the list does.
    const Addresses addresses = resolve(options_.host, options_.port);
    int why = 0;
    for (const int family : {AF_INET6, AF_INET}) {
        for (const addrinfo* a = addresses.get(); a != nullptr && !listener_.good();
             a = a->ai_next) {
            if (a->ai_family != family) continue;
            Fd owner(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            const int fd = owner.get();
            if (fd < 0) {
                why = errno;
                continue;
            }
            const int on = 1;
            const int off = 0;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0) {
                listener_ = std::move(owner);
            } else {
                why = errno;
            }
        }
    }
    errno = why;
    if (!listener_.good()) fail_errno("cannot listen on port {}", options_.port);
    stop_ = Fd(eventfd(0, EFD_CLOEXEC));
    if (!stop_.good()) fail_errno("eventfd");
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    const unsigned port = bound.ss_family == AF_INET6
                              ? ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port)
                              : ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    print_now("listening on port {}\n", port);
}

Server::~Server() {
    if (!acceptor_.joinable()) return;
    const std::uint64_t one = 1;
    if (write(stop_.get(), &one, sizeof one) == sizeof one) acceptor_.join();
}

// ---- the accepting thread -------------------------------------------------

void Server::hand_over(Sort sort, Fd fd) {
    const std::lock_guard lock(mutex_);
    if (sort != Sort::control) {
        if (!opening_ || data_.size() >= 2 * Limits::connections) return;
        data_.push_back({sort, std::move(fd)});
    } else if (in_session_ || !control_.empty()) {
        Control busy;
        busy.kind = Kind::refused;
        busy.text = "busy with another client; try again later";
        const ControlMessage message = encode(busy);
        // A fresh socket has room for it.
        if (send(fd.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) errno = 0;
        shutdown(fd.get(), SHUT_WR);
        return;
    } else {
        control_.push_back({sort, std::move(fd)});
    }
    arrived_.notify_one();
}

bool Server::sort_out(Pending& pending) {
    char start[kMagicBytes];
    const ssize_t n = recv(pending.fd.get(), start, sizeof start, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    const auto have = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    Fd fd = std::move(pending.fd);
    for (const Greeting& greeting : kGreetings) {
        if (std::memcmp(start, greeting.bytes, std::min(have, greeting.size)) != 0) continue;
        if (have >= greeting.size) {
            hand_over(greeting.sort, std::move(fd));
        } else if (have > 0) {  // it may still become one of them
            pending.fd = std::move(fd);
        }
        break;
    }
    return !pending.fd.good();
}

void Server::accept_loop() {
    std::deque<Pending> waiting;
    std::vector<pollfd> polled;
    for (;;) {
        polled.assign(1, {stop_.get(), POLLIN, 0});
        polled.push_back({listener_.get(), POLLIN, 0});
        for (const Pending& p : waiting) polled.push_back({p.fd.get(), POLLIN, 0});
        poll(polled.data(), polled.size(), waiting.empty() ? -1 : 200);
        if (polled[0].revents != 0) break;
        const std::uint64_t now = now_ns();
        bool began = false;  // a client has sent a part of its hello
        for (std::size_t i = 0; i < polled.size() - 2; ++i) {
            Pending& p = waiting[i];
            if (polled[i + 2].revents != 0 && !sort_out(p)) began = true;
        }
        std::erase_if(waiting, [&](const Pending& p) { return !p.fd.good() || now >= p.deadline; });
        if (polled[1].revents != 0) {
            Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (fd.good()) {
                waiting.push_back({std::move(fd), now + kHelloNs});
                if (waiting.size() > kMaxPending) waiting.pop_front();
            } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                began = true;  // out of descriptors: not in a tight loop
            }
        }
        if (began) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

// ---- the serving thread ---------------------------------------------------

Arrival Server::next(int limit_ms, bool data) {
    const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(limit_ms) * 1'000'000u;
    std::unique_lock lock(mutex_);
    std::deque<Arrival>& queue = data ? data_ : control_;
    while (queue.empty()) {
        if (interrupted() || now_ns() >= deadline) return {};
        arrived_.wait_for(lock, std::chrono::milliseconds(100));
    }
    Arrival arrival = std::move(queue.front());
    queue.pop_front();
    if (!data) in_session_ = true;
    return arrival;
}

void Server::open_session(int control, const Control& wish, std::uint64_t token,
                          std::unique_ptr<DdpConnections>& ddp,
                          std::unique_ptr<TcpConnections>& tcp) {
    if (wish.size == 0 || wish.depth == 0 || wish.connections == 0) fail("a wish for nothing");
    ddp = std::make_unique<DdpConnections>(static_cast<std::uint32_t>(wish.size),
                                           static_cast<std::uint32_t>(wish.depth),
                                           (wish.flags & kNoCrc) == 0);
    tcp = std::make_unique<TcpConnections>(static_cast<std::uint32_t>(wish.size));
    {
        const std::lock_guard lock(mutex_);
        opening_ = true;
    }
    Control answer;
    answer.kind = Kind::ready;
    answer.token = token;
    send_control(control, answer);
    std::uint64_t missing = 2 * wish.connections;
    const std::uint64_t deadline = now_ns() + std::uint64_t{kOpenMs} * 1'000'000u;
    while (missing > 0) {
        const std::uint64_t now = now_ns();
        if (now >= deadline) fail("the client's connections did not come in time");
        Arrival arrival = next(static_cast<int>((deadline - now) / 1'000'000u + 1), true);
        if (!arrival.fd.good()) continue;
        try {
            if (arrival.sort == Sort::ddp) {
                const std::uint32_t index = ddp->accept(arrival.fd.release(), token);
                if (index >= wish.connections) fail("a connection too many");
            } else {
                char words[kMagicBytes + sizeof(DataHello)];
                const timeval limit{5, 0};
                setsockopt(arrival.fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
                DataHello hello{};
                const ssize_t n = recv(arrival.fd.get(), words, sizeof words, MSG_WAITALL);
                if (n == sizeof words) std::memcpy(&hello, words + kMagicBytes, sizeof hello);
                const std::uint32_t index = load_be32(hello.index);
                if (load_be64(hello.token) != token || index >= wish.connections) continue;
                tcp->adopt(std::move(arrival.fd), index);
            }
            --missing;
        } catch (const Failure& failure) {
            if (interrupted()) throw;
            say("  turned away: {}\n", failure.what());
        }
    }
    const std::lock_guard lock(mutex_);
    opening_ = false;
}

void Server::serve_session(int control) {
    const std::uint64_t token = std::uint64_t{random_u32()} << 32 | random_u32();
    const Control hello = receive_control(control, 5000);
    Control answer;
    answer.kind = Kind::welcome;
    answer.token = token;
    if (hello.kind != Kind::hello) fail("the client does not begin with a greeting");
    if (hello.version != kVersion) {
        answer.kind = Kind::refused;
        answer.text =
            fmt::format("this server speaks version {}, the client {}", kVersion, hello.version);
        send_control(control, answer);
        fail("{}", answer.text);
    }
    send_control(control, answer);
    std::unique_ptr<DdpConnections> ddp;
    std::unique_ptr<TcpConnections> tcp;
    std::uint64_t samples = 0;
    Control open;
    for (;;) {
        const Control wish = receive_control(control, kIdleMs);
        if (wish.token != token) fail("a wish of another session");
        if (wish.kind == Kind::done) break;
        if (wish.kind == Kind::open && ddp == nullptr) {
            open = wish;
            open_session(control, wish, token, ddp, tcp);
            answer.kind = Kind::opened;
            answer.flags = ddp->crc() ? 0 : kNoCrc;
            send_control(control, answer);
            continue;
        }
        if (wish.kind != Kind::sample || ddp == nullptr || wish.size == 0 ||
            wish.size > open.size || wish.depth == 0 || wish.depth > open.depth ||
            wish.count == 0) {
            fail("a wish that makes no sense");
        }
        Sample sample;
        sample.test = wish.test;
        sample.op = wish.op;
        sample.size = static_cast<std::uint32_t>(wish.size);
        sample.depth = static_cast<std::uint32_t>(wish.depth);
        sample.count = wish.count;
        sample.polling = (wish.flags & kPolling) != 0;
        sample.both_ways = (wish.flags & kBothWays) != 0;
        const bool plain = (wish.flags & kPlainTcp) != 0;
        if (!plain) ddp->prepare(sample);
        answer.kind = Kind::ready;
        send_control(control, answer);
        (void)(plain ? tcp->run(sample) : ddp->run(sample));
        answer.kind = Kind::done;
        send_control(control, answer);
        ++samples;
    }
    say("  done: {} samples\n", samples);
}

int Server::run() {
    acceptor_ = std::thread([this] { accept_loop(); });
    std::uint64_t clients = 0;
    while (!interrupted()) {
        Arrival arrival = next(1000, false);
        if (!arrival.fd.good()) continue;
        ++clients;
        say("client {}\n", clients);
        bool well = true;
        try {
            serve_session(arrival.fd.get());
        } catch (const Failure& failure) {
            well = false;
            say("  ended: {}\n", failure.what());
        }
        arrival.fd = Fd();
        {
            const std::lock_guard lock(mutex_);
            in_session_ = opening_ = false;
            data_.clear();
        }
        if (options_.once) return well ? kOk : kFailed;
    }
    return kOk;
}

}  // namespace

int serve(const ServerOptions& options) { return Server(options).run(); }

}  // namespace xsock::tools::perf
