// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Owners of the C library's objects, and the waiting that ping and perf have in common.
#pragma once

#include <fmt/format.h>
#include <netdb.h>
#include <xsock/xsock.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace xsock::tools {

struct Deleter {
    void operator()(xsock_cq* cq) const { xsock_cq_destroy(cq); }
    void operator()(xsock_ep* ep) const { xsock_ep_close(ep); }
    void operator()(xsock_mr* mr) const { xsock_mr_deregister(mr); }
    void operator()(xsock_listener* listener) const { xsock_listener_close(listener); }
};
using CqPtr = std::unique_ptr<xsock_cq, Deleter>;
using EpPtr = std::unique_ptr<xsock_ep, Deleter>;
using MrPtr = std::unique_ptr<xsock_mr, Deleter>;
using ListenerPtr = std::unique_ptr<xsock_listener, Deleter>;

/// A sentence for the user; ends what was under way.
class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};
/// Throws Failure.
template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> format, T&&... arguments) {
    throw Failure(fmt::format(format, std::forward<T>(arguments)...));
}
/// The same, with ": " and the words for errno.
template <typename... T>
[[noreturn]] void fail_errno(fmt::format_string<T...> format, T&&... arguments) {
    const int error = errno;  // formatting may change it
    fail("{}: {}", fmt::format(format, std::forward<T>(arguments)...), std::strerror(error));
}
/// fail_errno() with the name of the call unless its result is 0.
void ensure(int result, const char* call);

/// What a peer is to be told of the front of a region. Throws Failure.
[[nodiscard]] xsock_remote remote_of(const xsock_mr* mr, std::size_t bytes);
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
/// The TCP addresses of a name; `host` empty: to listen on. Throws Failure.
[[nodiscard]] Addresses resolve(const std::string& host, const std::string& port);
/// "127.0.0.1 port 7473"
[[nodiscard]] std::string address_text(const addrinfo& address);

/// A new completion queue. Throws Failure.
[[nodiscard]] CqPtr make_cq();
/// A connection that is established. Throws Failure.
[[nodiscard]] EpPtr connect_to(const std::string& host, const std::string& port,
                               const xsock_ep_attr& attr, double limit_s);
/// Listens (on every address when `host` is empty) and says on which port. Throws Failure.
[[nodiscard]] ListenerPtr listen_on(const std::string& host, const std::string& port,
                                    const xsock_ep_attr& attr);
/// What is known about the endpoint; all zero when it cannot be asked.
[[nodiscard]] xsock_ep_info info_of(const xsock_ep* ep);
/// ", xsock 0.1.0" where the peer's extension frame names it, ", xsock" of an older one, else "".
[[nodiscard]] std::string peer_words(const xsock_ep_info& info);
/// "by shared memory", or "by TCP (shared memory: remote)".
[[nodiscard]] std::string path_words(const xsock_ep_info& info);
/// How the endpoint ended, in words.
[[nodiscard]] std::string end_of(const xsock_ep* ep);

/// From now on SIGINT and SIGTERM set interrupted() instead of ending the process.
void catch_interrupts();
[[nodiscard]] bool interrupted();

/// Waits for the next completion in slices, so that an interrupt is noticed; with `spin`, polls.
/// False: `limit_ms` (negative: none) passed, or interrupted.
[[nodiscard]] bool next_completion(xsock_cq* cq, xsock_wc& wc, int limit_ms, bool spin = false);

/// Less when a signal comes.
void sleep_for(double seconds);
/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t now_ns();

}  // namespace xsock::tools
