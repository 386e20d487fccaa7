// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cstdio>

#include "tools/json.hpp"
#include "tools/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {

const char* measure_name(Measure measure) {
    switch (measure) {
        case Measure::latency:
            return "latency";
        case Measure::bandwidth:
            return "bandwidth";
        case Measure::rate:
            return "rate";
    }
    return "?";
}

std::string figure_text(Measure measure, double value) {
    switch (measure) {
        case Measure::latency:
            return time_text(value);
        case Measure::bandwidth:
            return value >= 1e9 ? format("%.2f GB/s", value / 1e9)
                                : format("%.1f MB/s", value / 1e6);
        case Measure::rate:
            return value >= 1e6 ? format("%.2f M/s", value / 1e6) : format("%.1f k/s", value / 1e3);
    }
    return {};
}

void print_table(const Report& report) {
    const ClientOptions& o = report.options;
    std::printf("%s: CRC %s, %s, depth %llu, %llu connection%s%s, %llu rounds\n\n",
                report.peer.c_str(), report.crc ? "on" : "off", o.polling ? "polling" : "blocking",
                static_cast<unsigned long long>(o.depth),
                static_cast<unsigned long long>(o.connections), o.connections == 1 ? "" : "s",
                o.both_ways ? ", both ways" : "", static_cast<unsigned long long>(o.rounds));
    std::printf("%-10s %-6s %9s %13s", "TEST", "OP", "SIZE", "XSOCK");
    if (!o.no_tcp) std::printf(" %13s  %-7s %s", "TCP", "RATIO", "(LEAST..MOST)");
    std::printf("\n");
    for (const Row& row : report.rows) {
        std::printf("%-10s %-6s %9s %13s", measure_name(row.measure), op_name(row.op),
                    octets_text(row.size).c_str(),
                    figure_text(row.measure, median(row.ddp)).c_str());
        if (!row.ratios.empty()) {
            const auto [least, most] = std::minmax_element(row.ratios.begin(), row.ratios.end());
            std::printf(" %13s  %-7.2f (%.2f..%.2f)",
                        figure_text(row.measure, median(row.tcp)).c_str(), median(row.ratios),
                        *least, *most);
        }
        std::printf("\n");
    }
    if (!o.no_tcp) {
        std::printf(
            "\nMedians; ratios are xsock over TCP of the same round: latency is better "
            "below 1,\nbandwidth and rate above. Send and Write latencies are one way, "
            "Reads there and back.\n");
    }
}

void print_report_json(const Report& report) {
    const ClientOptions& o = report.options;
    Json json;
    json.object();
    json("peer", report.peer)("crc", report.crc)("polling", o.polling)("depth", o.depth);
    json("connections", o.connections)("both_ways", o.both_ways)("rounds", o.rounds);
    json.key("rows").array();
    for (const Row& row : report.rows) {
        const auto list = [&](const char* name, const std::vector<double>& values) {
            json.key(name).array();
            for (const double value : values) json.value(value);
            json.end();
        };
        json.object();
        json("test", measure_name(row.measure))("op", op_name(row.op))("size", row.size);
        json("unit", row.measure == Measure::latency     ? "ns"
                     : row.measure == Measure::bandwidth ? "octets/s"
                                                         : "messages/s");
        json("xsock", median(row.ddp));
        if (!row.tcp.empty()) json("tcp", median(row.tcp))("ratio", median(row.ratios));
        list("xsock_rounds", row.ddp);
        list("tcp_rounds", row.tcp);
        list("ratio_rounds", row.ratios);
        json.end();
    }
    json.end().end();
    json.print();
}

}  // namespace xsock::tools::perf
