// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Owners of the C library's objects, and the waiting that ping and perf have in common.
#pragma once

#include <xsock/xsock.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

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
/// Throws Failure. `format` as printf.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// The same, with ": " and the words for errno.
[[noreturn]] void fail_errno(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// A new completion queue. Throws Failure.
[[nodiscard]] CqPtr make_cq();
/// What is known about the endpoint; all zero when it cannot be asked.
[[nodiscard]] xsock_ep_info info_of(const xsock_ep* ep);
/// How the endpoint ended, in words.
[[nodiscard]] std::string end_of(const xsock_ep* ep);
/// Why xsock_connect() failed, for people. `error`: errno.
[[nodiscard]] std::string connect_error(int error);

/// From now on SIGINT and SIGTERM set interrupted() instead of ending the process.
void catch_interrupts();
[[nodiscard]] bool interrupted();

/// Waits for the next completion in slices, so that an interrupt is noticed; with `spin`, polls.
/// False: `limit_ms` (negative: none) passed, or interrupted.
[[nodiscard]] bool next_completion(xsock_cq* cq, xsock_wc& wc, int limit_ms, bool spin = false);

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t now_ns();

}  // namespace xsock::tools
