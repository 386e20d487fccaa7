// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two processes of a sample: forked by the parent, which never touches the library itself,
// pinned to one CPU each, joined by a side channel for ports and keys, and ended by the parent if
// they overstay.
#pragma once

#include <string>
#include <type_traits>

#include "bench/bench.hpp"

namespace xsock::bench {

/// What a body has at hand in its process.
class Child {
  public:
    Child(int peer_fd, int report_fd) : peer_fd_(peer_fd), report_fd_(report_fd) {}

    /// Hands a value to the other process of the pair. Not used while the clock runs.
    template <typename T>
    void tell(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        send_bytes(&value, sizeof value);
    }
    /// Waits for the value that the other process tells.
    template <typename T>
    T hear() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        receive_bytes(&value, sizeof value);
        return value;
    }
    /// Both processes call this; neither returns before the other has come.
    void meet() {
        tell('.');
        (void)hear<char>();
    }
    /// The outcome, once, from the client.
    void report(const Figures& figures) { figures_ = figures; }

    [[nodiscard]] const Figures& figures() const { return figures_; }
    [[nodiscard]] int report_fd() const { return report_fd_; }

  private:
    void send_bytes(const void* data, std::size_t size);
    void receive_bytes(void* data, std::size_t size);

    int peer_fd_;
    int report_fd_;
    Figures figures_{};
};

/// Ends this child with a sentence for the parent. `format` as printf.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
/// The same, with ": " and the words for errno.
[[noreturn]] void fail_errno(const char* what);

/// Keeps the calling thread on the index-th CPU that it may use. With one CPU there is nothing to
/// choose.
void pin_to_cpu(int index);

struct Outcome {
    bool ok = false;
    Figures figures{};
    std::string error;        ///< why not ok
    double foreign_cpus = 0;  ///< how many CPUs worked for others meanwhile, on average
};

/// Takes one sample. Returns within about timeout_s; no process of the pair is left then.
Outcome run_pair(const Variant& variant, const Run& run, int timeout_s);

/// From now on SIGINT and SIGTERM make run_pair() return early instead of ending the parent.
void catch_interrupts();
bool interrupted();

}  // namespace xsock::bench
