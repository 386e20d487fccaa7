// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two sides of `xsock perf` and what they report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/perf/protocol.hpp"

namespace xsock::tools::perf {

struct ServerOptions {
    std::string host;  ///< empty: every address
    std::string port = kPort;
    bool once = false;
    bool quiet = false;
};

enum class Measure : std::uint8_t { latency, bandwidth, rate };

struct ClientOptions {
    std::string host, port = kPort;
    std::vector<Measure> measures;
    std::vector<Op> ops;
    std::vector<std::uint64_t> sizes;  ///< empty: what suits the measure
    std::uint64_t depth = 32;
    std::uint64_t connections = 1;
    std::uint64_t rounds = 5;
    std::uint64_t count = 0;  ///< messages of a sample; 0: as many as fit into seconds
    double seconds = 0.25;    ///< of a sample
    bool both_ways = false, polling = false, no_crc = false, no_tcp = false;
    bool json = false, quiet = false;
    std::string svg;
};

/// A line of the table: the same thing over DDP and over TCP, round by round.
struct Row {
    Measure measure = Measure::latency;
    Op op = Op::send;
    std::uint64_t size = 0;
    std::vector<double> ddp, tcp;  ///< latency: ns; bandwidth: bytes/s; rate: messages/s
    std::vector<double> ratios;    ///< ddp / tcp of each round
};

struct Report {
    ClientOptions options;
    bool crc = false;
    std::string peer;
    std::vector<Row> rows;
};

[[nodiscard]] const char* measure_name(Measure measure);
[[nodiscard]] double median(std::vector<double> values);
/// A figure of `measure` with its unit.
[[nodiscard]] std::string figure_text(Measure measure, double value);

/// All answer with an exit status and may throw Failure.
int serve(const ServerOptions& options);
int measure(const ClientOptions& options);

void print_table(const Report& report);
void print_report_json(const Report& report);
/// The report as a picture. Throws Failure when the file cannot be written.
void write_svg(const Report& report, const std::string& path);

}  // namespace xsock::tools::perf
