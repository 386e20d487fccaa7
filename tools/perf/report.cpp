// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cstdio>

#include "tools/json.hpp"
#include "tools/perf/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {

const char* measure_name(Measure measure) {
    static constexpr const char* kNames[] = {"latency", "bandwidth", "rate"};
    return kNames[static_cast<std::size_t>(measure)];
}

std::string figure_text(Measure measure, double value) {
    if (measure == Measure::latency) return time_text(value);
    const bool bytes = measure == Measure::bandwidth;
    const double large = bytes ? 1e9 : 1e6;
    if (value >= large) return fmt::format("{:.2f} {}/s", value / large, bytes ? "GB" : "M");
    return fmt::format("{:.1f} {}/s", value / large * 1e3, bytes ? "MB" : "k");
}

void print_table(const Report& report) {
    const ClientOptions& o = report.options;
    fmt::print("{}: CRC {}, {}, depth {}, {} connection{}{}, {} rounds\n\n", report.peer,
               report.crc ? "on" : "off", o.polling ? "polling" : "blocking", o.depth,
               o.connections, o.connections == 1 ? "" : "s", o.both_ways ? ", both ways" : "",
               o.rounds);
    fmt::print("{:10} {:6} {:>9} {:>13}", "TEST", "OP", "SIZE", "XSOCK");
    if (!o.no_tcp) fmt::print(" {:>13}  {:7} {}", "TCP", "RATIO", "(LEAST..MOST)");
    fmt::print("\n");
    for (const Row& row : report.rows) {
        fmt::print("{:10} {:6} {:>9} {:>13}", measure_name(row.measure), op_name(row.op),
                   bytes_text(row.size), figure_text(row.measure, median(row.ddp)));
        if (!row.ratios.empty()) {
            const auto [least, most] = std::minmax_element(row.ratios.begin(), row.ratios.end());
            fmt::print(" {:>13}  {:<7.2f} ({:.2f}..{:.2f})",
                       figure_text(row.measure, median(row.tcp)), median(row.ratios), *least,
                       *most);
        }
        fmt::print("\n");
    }
    if (!o.no_tcp) {
        fmt::print(
            "\nMedians; ratios are xsock over TCP of the same round: latency is better below "
            "1,\nbandwidth and rate above. Send and Write latencies are one way, Reads there and "
            "back.\n");
    }
}

void print_report_json(const Report& report) {
    static constexpr const char* kUnits[] = {"ns", "bytes/s", "messages/s"};
    const ClientOptions& o = report.options;
    Json rows = Json::array();
    for (const Row& row : report.rows) {
        Json json = object({{"test", measure_name(row.measure)},
                            {"op", op_name(row.op)},
                            {"size", row.size},
                            {"unit", kUnits[static_cast<std::size_t>(row.measure)]},
                            {"xsock", median(row.ddp)}});
        if (!row.tcp.empty()) {
            json["tcp"] = median(row.tcp);
            json["ratio"] = median(row.ratios);
        }
        json["xsock_rounds"] = row.ddp;
        json["tcp_rounds"] = row.tcp;
        json["ratio_rounds"] = row.ratios;
        rows.push_back(std::move(json));
    }
    print_json(object({{"peer", report.peer},
                       {"crc", report.crc},
                       {"polling", o.polling},
                       {"depth", o.depth},
                       {"connections", o.connections},
                       {"both_ways", o.both_ways},
                       {"rounds", o.rounds},
                       {"rows", rows}}));
}

}  // namespace xsock::tools::perf
