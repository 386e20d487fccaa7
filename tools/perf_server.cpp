// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The serving side of `xsock perf`: one thread takes connections and tells them apart, the other
// serves one session at a time. Strangers cannot hold either of them up: a connection that does not
// say what it is within seconds is closed, and one that is not of the session under way at once.
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
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/random.hpp"
#include "include/xsock/iwarp.h"
#include "tools/command.hpp"
#include "tools/perf.hpp"
#include "tools/perf_lanes.hpp"
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
    int fd = -1;
};

class Server {
  public:
    explicit Server(const ServerOptions& options) : options_(options) { open_listener(); }
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    int run();

  private:
    struct Pending {
        int fd = -1;
        std::uint64_t deadline = 0;
    };

    void open_listener();
    void accept_loop();
    /// True when the connection was dealt with.
    bool sort_out(const Pending& pending);
    void hand_over(Sort sort, int fd);
    Arrival next(int limit_ms, bool data);
    void serve_session(int control);
    void open_session(int control, const Control& wish, std::uint64_t token,
                      std::unique_ptr<DdpLanes>& ddp, std::unique_ptr<TcpLanes>& tcp);
    void say(const char* format, ...) __attribute__((format(printf, 2, 3)));

    const ServerOptions& options_;
    int listener_ = -1;
    int stop_ = -1;  // eventfd
    std::thread acceptor_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Arrival> control_, data_;  // under mutex_
    bool in_session_ = false, opening_ = false;
};

void Server::open_listener() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* list = nullptr;
    const char* host = options_.host.empty() ? nullptr : options_.host.c_str();
    // "::" takes IPv4 too; where there is no IPv6, the rest of the list does.
    const int error = getaddrinfo(host, options_.port.c_str(), &hints, &list);
    if (error != 0) {
        fail("%s port %s: %s", host != nullptr ? host : "*", options_.port.c_str(),
             gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(list, &freeaddrinfo);
    int why = 0;
    for (const int family : {AF_INET6, AF_INET}) {
        for (const addrinfo* a = list; a != nullptr && listener_ < 0; a = a->ai_next) {
            if (a->ai_family != family) continue;
            const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            if (fd < 0) {
                why = errno;
                continue;
            }
            const int on = 1;
            const int off = 0;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0) {
                listener_ = fd;
            } else {
                why = errno;
                close(fd);
            }
        }
    }
    errno = why;
    if (listener_ < 0) fail_errno("cannot listen on port %s", options_.port.c_str());
    stop_ = eventfd(0, EFD_CLOEXEC);
    if (stop_ < 0) fail_errno("eventfd");
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &size);
    const unsigned port = bound.ss_family == AF_INET6
                              ? ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port)
                              : ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    std::printf("listening on port %u\n", port);
    std::fflush(stdout);
}

Server::~Server() {
    if (acceptor_.joinable()) {
        const std::uint64_t one = 1;
        if (write(stop_, &one, sizeof one) == sizeof one) acceptor_.join();
    }
    for (const std::deque<Arrival>* queue : {&control_, &data_}) {
        for (const Arrival& arrival : *queue) close(arrival.fd);
    }
    if (listener_ >= 0) close(listener_);
    if (stop_ >= 0) close(stop_);
}

void Server::say(const char* format, ...) {
    if (options_.quiet) return;
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::fflush(stdout);
}

// ---- the accepting thread -------------------------------------------------

void Server::hand_over(Sort sort, int fd) {
    const std::lock_guard lock(mutex_);
    if (sort == Sort::control) {
        if (in_session_ || !control_.empty()) {
            Control busy;
            busy.kind = Kind::refused;
            busy.text = "busy with another client; try again later";
            const ControlMessage message = encode(busy);
            // A fresh socket has room for it.
            if (send(fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) errno = 0;
            shutdown(fd, SHUT_WR);
            close(fd);
            return;
        }
        control_.push_back({sort, fd});
    } else if (opening_ && data_.size() < 2 * Limits::connections) {
        data_.push_back({sort, fd});
    } else {
        close(fd);
        return;
    }
    arrived_.notify_one();
}

bool Server::sort_out(const Pending& pending) {
    char start[kMagicOctets];
    const ssize_t n = recv(pending.fd, start, sizeof start, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n >= 8 && std::memcmp(start, kControlMagic, sizeof kControlMagic) == 0) {
        hand_over(Sort::control, pending.fd);
        return true;
    }
    if (n == sizeof start && std::memcmp(start, kDataMagic, sizeof start) == 0) {
        hand_over(Sort::tcp, pending.fd);
        return true;
    }
    if (n == sizeof start && std::memcmp(start, MPA_KEY_REQUEST, sizeof start) == 0) {
        hand_over(Sort::ddp, pending.fd);
        return true;
    }
    // May it still become one of the three?
    const auto have = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    const bool may =
        n > 0 && (std::memcmp(start, kControlMagic, std::min<std::size_t>(have, 8)) == 0 ||
                  std::memcmp(start, kDataMagic, have) == 0 ||
                  std::memcmp(start, MPA_KEY_REQUEST, have) == 0);
    if (may) return false;
    close(pending.fd);
    return true;
}

void Server::accept_loop() {
    std::deque<Pending> waiting;
    std::vector<pollfd> polled;
    for (;;) {
        polled.assign(1, {stop_, POLLIN, 0});
        polled.push_back({listener_, POLLIN, 0});
        for (const Pending& p : waiting) polled.push_back({p.fd, POLLIN, 0});
        poll(polled.data(), polled.size(), waiting.empty() ? -1 : 200);
        if (polled[0].revents != 0) break;
        const std::uint64_t now = now_ns();
        bool began = false;  // somebody has said a part of his first words
        for (std::size_t i = 0; i < polled.size() - 2; ++i) {
            Pending& p = waiting[i];
            if (polled[i + 2].revents != 0) {
                if (sort_out(p)) {
                    p.fd = -1;
                } else {
                    began = true;
                }
            }
            if (p.fd >= 0 && now >= p.deadline) {
                close(p.fd);
                p.fd = -1;
            }
        }
        std::erase_if(waiting, [](const Pending& p) { return p.fd < 0; });
        if (polled[1].revents != 0) {
            const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd >= 0) {
                waiting.push_back({fd, now + kHelloNs});
                if (waiting.size() > kMaxPending) {
                    close(waiting.front().fd);
                    waiting.pop_front();
                }
            } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                began = true;  // out of descriptors: not in a tight loop
            }
        }
        if (began) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const Pending& p : waiting) close(p.fd);
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
    const Arrival arrival = queue.front();
    queue.pop_front();
    if (!data) in_session_ = true;
    return arrival;
}

void Server::open_session(int control, const Control& wish, std::uint64_t token,
                          std::unique_ptr<DdpLanes>& ddp, std::unique_ptr<TcpLanes>& tcp) {
    if (wish.size == 0 || wish.depth == 0 || wish.connections == 0) fail("a wish for nothing");
    ddp = std::make_unique<DdpLanes>(static_cast<std::uint32_t>(wish.size),
                                     static_cast<std::uint32_t>(wish.depth),
                                     (wish.flags & kNoCrc) == 0);
    tcp = std::make_unique<TcpLanes>(static_cast<std::uint32_t>(wish.size));
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
        const Arrival arrival = next(static_cast<int>((deadline - now) / 1'000'000u + 1), true);
        if (arrival.fd < 0) continue;
        try {
            if (arrival.sort == Sort::ddp) {
                std::uint32_t index = 0;
                index = ddp->accept(arrival.fd, token);
                if (index >= wish.connections) fail("a connection too many");
            } else {
                char words[kMagicOctets + sizeof(DataHello)];
                const timeval limit{5, 0};
                setsockopt(arrival.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
                DataHello hello{};
                const ssize_t n = recv(arrival.fd, words, sizeof words, MSG_WAITALL);
                if (n == sizeof words) std::memcpy(&hello, words + kMagicOctets, sizeof hello);
                const std::uint32_t index = load_be32(hello.index);
                if (load_be64(hello.token) != token || index >= wish.connections) {
                    close(arrival.fd);
                    continue;  // a stranger
                }
                tcp->adopt(arrival.fd, index);
            }
            --missing;
        } catch (const Failure& failure) {
            if (interrupted()) throw;
            say("  turned away: %s\n", failure.what());
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
            format("this server speaks version %u, the client %u", kVersion, hello.version);
        send_control(control, answer);
        fail("%s", answer.text.c_str());
    }
    send_control(control, answer);
    std::unique_ptr<DdpLanes> ddp;
    std::unique_ptr<TcpLanes> tcp;
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
    say("  done: %llu samples\n", static_cast<unsigned long long>(samples));
}

int Server::run() {
    acceptor_ = std::thread([this] { accept_loop(); });
    std::uint64_t clients = 0;
    while (!interrupted()) {
        const Arrival arrival = next(1000, false);
        if (arrival.fd < 0) continue;
        ++clients;
        say("client %llu\n", static_cast<unsigned long long>(clients));
        bool well = true;
        try {
            serve_session(arrival.fd);
        } catch (const Failure& failure) {
            well = false;
            say("  ended: %s\n", failure.what());
        }
        close(arrival.fd);
        {
            const std::lock_guard lock(mutex_);
            in_session_ = opening_ = false;
            for (const Arrival& late : data_) close(late.fd);
            data_.clear();
        }
        if (options_.once) return well ? kOk : kFailed;
    }
    return kOk;
}

}  // namespace

int serve(const ServerOptions& options) { return Server(options).run(); }

}  // namespace xsock::tools::perf
