// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the parts of `xsock ping` share: its options, and the two protocols it speaks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xsock::tools {

struct PingOptions {
    std::string host;  // client: of the server; server: to listen on, empty: everywhere
    std::string port;
    bool listen = false;
    bool sends = false, reads = false;  // client: which kinds; neither: both
    bool quiet = false;
    bool json = false;
    bool verbose = false;
    bool once = false;        // server: ends with the first client
    std::uint64_t count = 0;  // 0: until interrupted
    std::uint64_t size = 56;  // bytes
    double interval_s = 1;
    double timeout_s = 10;
};

inline constexpr std::uint64_t kPingMaxSize = 1u << 20;

/// Round trips in nanoseconds, as ping(8) sums them up.
class RoundTrips {
  public:
    void add(double ns);
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] double min() const { return min_; }
    [[nodiscard]] double max() const { return max_; }
    [[nodiscard]] double average() const { return mean_; }
    /// Standard deviation, which ping(8) calls mdev.
    [[nodiscard]] double deviation() const;
    /// "min/avg/max/mdev = 1.000/2.000/3.000/0.500 us"
    [[nodiscard]] std::string text() const;

  private:
    std::uint64_t count_ = 0;
    double min_ = 0, max_ = 0;
    double mean_ = 0, squares_ = 0;  // Welford
};

/// Both throw Failure, and answer with an exit status.
int ping_client(const PingOptions& options);
int ping_server(const PingOptions& options);
/// rdma-core's rping: as `rping -c` and `rping -s`.
int rping_client(const PingOptions& options);
int rping_server(const PingOptions& options);

}  // namespace xsock::tools
