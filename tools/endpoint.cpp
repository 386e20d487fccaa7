// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/endpoint.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kSliceMs = 100;
std::atomic<int> interrupt_signal{0};

std::string vtext(const char* format, va_list arguments) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, arguments);
    return text;
}

}  // namespace

void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string text = vtext(format, arguments);
    va_end(arguments);
    throw Failure(text);
}

void fail_errno(const char* format, ...) {
    const int error = errno;
    va_list arguments;
    va_start(arguments, format);
    const std::string text = vtext(format, arguments);
    va_end(arguments);
    throw Failure(text + ": " + std::strerror(error));
}

CqPtr make_cq() {
    CqPtr cq(xsock_cq_create(nullptr));
    if (cq == nullptr) fail_errno("the engine does not start");
    return cq;
}

xsock_ep_info info_of(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    if (xsock_ep_query(ep, &info) != 0) {
        info = {};
        info.size = sizeof info;
    }
    return info;
}

std::string end_of(const xsock_ep* ep) {
    const xsock_ep_info info = info_of(ep);
    if (info.error_text[0] != '\0') return printable(info.error_text);
    if (info.error != 0) return std::strerror(info.error);
    return info.state >= XSOCK_EP_PEER_CLOSED ? "the peer closed the connection"
                                              : "still connected";
}

std::string connect_error(int error) {
    switch (error) {
        case ECONNREFUSED:
            return "refused: nobody listens there, or the program said no";
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

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace xsock::tools
