// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/endpoint.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>

#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kSliceMs = 100;
std::atomic<int> interrupt_signal{0};

/// Why xsock_connect() failed, for people.
std::string connect_error(int error) {
    switch (error) {
        case ECONNREFUSED:
            return "refused: no listener there, or the program refused";
        case EPROTO:
            return "the peer does not speak MPA: another program listens on that port";
        case ETIMEDOUT:
            return "no answer in time";
        case EADDRNOTAVAIL:
            return "the name or port was not found";
        default:
            return std::strerror(error);
    }
}

}  // namespace

void ensure(int result, const char* call) {
    if (result != 0) fail_errno("{}", call);
}

xsock_remote remote_of(const xsock_mr* mr, std::size_t bytes) {
    xsock_key key;
    xsock_remote remote;
    ensure(xsock_mr_key(mr, 0, bytes, &key), "xsock_mr_key");
    xsock_key_read(&key, &remote);
    return remote;
}

Addresses resolve(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = host.empty() ? AI_PASSIVE : 0;
    addrinfo* list = nullptr;
    const int error =
        getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &list);
    if (error == 0) return {list, &freeaddrinfo};
    fail("{} port {}: {}", host.empty() ? "*" : host, port,
         error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
}

std::string address_text(const addrinfo& address) {
    char host[NI_MAXHOST] = "?";
    char port[NI_MAXSERV] = "?";
    getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    return fmt::format("{} port {}", host, port);
}

CqPtr make_cq() {
    CqPtr cq(xsock_cq_create(nullptr));
    if (cq == nullptr) fail_errno("the engine does not start");
    return cq;
}

EpPtr connect_to(const std::string& host, const std::string& port, const xsock_ep_attr& attr,
                 double limit_s) {
    EpPtr ep(xsock_connect(host.c_str(), port.c_str(), &attr, static_cast<int>(limit_s * 1000)));
    if (ep == nullptr) fail("{} port {}: {}", host, port, connect_error(errno));
    return ep;
}

ListenerPtr listen_on(const std::string& host, const std::string& port, const xsock_ep_attr& attr) {
    ListenerPtr listener(
        xsock_listen(host.empty() ? nullptr : host.c_str(), port.c_str(), 64, &attr));
    if (listener == nullptr) {
        fail_errno("cannot listen on {} port {}", host.empty() ? "any address" : host, port);
    }
    print_now("listening on port {}\n", xsock_listener_port(listener.get()));
    return listener;
}

xsock_ep_info info_of(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    if (xsock_ep_query(ep, &info) != 0) {
        info = {};
        info.size = sizeof info;
    }
    return info;
}

std::string peer_words(const xsock_ep_info& info) {
    if (info.peer.name[0] == '\0') return info.peer_is_xsock != 0 ? ", xsock" : "";
    return std::string(", ") + info.peer.name + " " + info.peer.version;
}

std::string path_words(const xsock_ep_info& info) {
    if (info.path == XSOCK_PATH_SHM) return "by shared memory";
    return std::string("by TCP (shared memory: ") + info.shm_reason + ")";
}

std::string end_of(const xsock_ep* ep) {
    const xsock_ep_info info = info_of(ep);
    if (info.error_text[0] != '\0') return printable(info.error_text);
    if (info.error != 0) return std::strerror(info.error);
    return info.state >= XSOCK_EP_PEER_CLOSED ? "the peer closed the connection"
                                              : "still connected";
}

void catch_interrupts() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { interrupt_signal.store(signal); };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_signal.load(std::memory_order_relaxed) != 0; }

bool next_completion(xsock_cq* cq, xsock_wc& wc, int limit_ms, bool spin) {
    std::uint64_t deadline = 0;  // asked for only once there is something to wait for
    for (;;) {
        int n = xsock_cq_poll(cq, &wc, 1);
        const int slice_ms = limit_ms < 0 ? kSliceMs : std::min(limit_ms, kSliceMs);
        if (n == 0 && !spin) n = xsock_cq_wait(cq, &wc, 1, 1, slice_ms);
        if (n == 1) return true;
        if (n < 0) fail_errno("xsock_cq_wait");
        if (interrupted()) return false;
        if (limit_ms < 0) continue;
        const std::uint64_t now = now_ns();
        if (deadline == 0) deadline = now + static_cast<std::uint64_t>(limit_ms) * 1'000'000u;
        if (now >= deadline) return false;
    }
}

void sleep_for(double seconds) {
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
    nanosleep(&time, nullptr);
}

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace xsock::tools
