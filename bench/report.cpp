// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace xsock::bench {
namespace {

// A base that spreads more than this says that the machine was busy with something else.
constexpr double kNoisySpread = 1.3;

bool has_base(const Row& row) { return row.base != Row::kNone; }

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f",
                  value < 0.1   ? 3
                  : value < 10  ? 2
                  : value < 100 ? 1
                                : 0,
                  value);
    return text;
}

std::string with_unit(double value, const char* unit) { return number(value) + " " + unit; }

bool has_goal(const Row& row) { return row.limit != 0 || row.zero; }

std::string goal(const Row& row, double value) {
    if (!has_goal(row)) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%s%g", row.better == Better::lower ? "<=" : ">=", value);
    return text;
}

bool reaches(const RowResult& result, double value) {
    return result.row.better == Better::lower ? result.median <= value : result.median >= value;
}

const char* verdict(const RowResult& result) {
    if (!result.skipped.empty()) return "not measured";
    if (!has_goal(result.row)) return "for comparison";
    if (reaches(result, result.row.aim)) return "reaches the aim";
    if (reaches(result, result.row.limit)) return "within the limit";
    return "MISSES the limit";
}

bool noisy(const RowResult& result) {
    if (std::string_view(result.row.unit) == "KiB") return false;  // memory does not hurry
    return result.base_spread > kNoisySpread || result.foreign_cpus > kNoisyCpus;
}

// Breaks a sentence into lines of at most `width`, all but the first indented.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
    std::string out;
    std::istringstream words(text);
    std::size_t column = 0;
    for (std::string word; words >> word; column += word.size() + 1) {
        if (column > 0 && column + word.size() > width) {
            out += '\n' + std::string(indent, ' ');
            column = 0;
        } else if (column > 0) {
            out += ' ';
        }
        out += word;
    }
    return out;
}

std::string json_string(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + '"';
}

}  // namespace

RowResult evaluate(const Row& row, const Samples& samples, const std::string& error) {
    RowResult result;
    result.row = row;
    result.skipped = error;
    std::vector<double> ratios;
    for (const auto& round : samples) {
        if (!round[row.subject] || (has_base(row) && !round[row.base])) continue;
        const double subject = (*round[row.subject])[row.figure];
        const double base = has_base(row) ? (*round[row.base])[row.figure] : 1;
        result.subjects.push_back(subject);
        result.bases.push_back(base);
        ratios.push_back(base > 0 ? subject / base : 0);
    }
    if (ratios.empty()) {
        if (error.empty()) result.skipped = "no round was complete";
        return result;
    }
    // Some rounds were fine and one was not: say so rather than show the good ones only.
    if (!error.empty()) return result;
    const auto [smallest, largest] = std::minmax_element(ratios.begin(), ratios.end());
    const auto [base_low, base_high] =
        std::minmax_element(result.bases.begin(), result.bases.end());
    result.min = *smallest;
    result.max = *largest;
    result.median = median(ratios);
    result.base = median(result.bases);
    result.subject = median(result.subjects);
    result.base_spread = *base_low > 0 ? *base_high / *base_low : 1;
    return result;
}

void print_table_head() {
    double load = 0;
    if (getloadavg(&load, 1) != 1) load = 0;
    std::printf("%ld CPUs, load %.1f when we began\n", sysconf(_SC_NPROCESSORS_ONLN), load);
    std::printf("%-25s %11s %11s | %6s %6s %6s | %7s %7s | %s\n", "", "TCP", "xsock", "min",
                "median", "max", "limit", "aim", "verdict");
    std::fflush(stdout);
}

void print_table_row(const RowResult& result) {
    const Row& row = result.row;
    if (!result.skipped.empty()) {
        std::printf("%-25s not measured: %s\n", row.name, result.skipped.c_str());
        std::fflush(stdout);
        return;
    }
    char noise[64] = "";
    if (noisy(result)) {
        std::snprintf(noise, sizeof noise, ", noisy (TCP spread %.1fx, %.1f CPUs busy elsewhere)",
                      result.base_spread, result.foreign_cpus);
    }
    char hop[64] = "";
    if (result.in_memory) {
        const auto [least, most] =
            std::minmax_element(result.hops_ns.begin(), result.hops_ns.end());
        std::snprintf(hop, sizeof hop, ", hop %.0f..%.0f ns", *least, *most);
    }
    std::printf("%-25s %11s %11s | %6s %6s %6s | %7s %7s | %s%s%s\n", row.name,
                has_base(row) ? with_unit(result.base, row.unit).c_str() : "-",
                with_unit(result.subject, row.unit).c_str(), number(result.min).c_str(),
                number(result.median).c_str(), number(result.max).c_str(),
                goal(row, row.limit).c_str(), goal(row, row.aim).c_str(), verdict(result), noise,
                hop);
    std::fflush(stdout);
}

void print_explanations(const std::vector<RowResult>& results) {
    std::printf(
        "\nmin, median and max are of the ratio xsock / TCP within each round (of the figure "
        "itself\nwhere there is no TCP); the verdict is about the median. Each sample is two "
        "fresh processes.\nnoisy: TCP alone differed more than 1.3 times between rounds, so "
        "measure again.\n\n");
    for (const RowResult& result : results) {
        std::printf("%-25s %s\n", result.row.name, wrapped(result.row.what, 74, 26).c_str());
    }
}

namespace {

void print_json_list(const char* name, const std::vector<double>& values) {
    std::printf(", \"%s\": [", name);
    for (std::size_t i = 0; i < values.size(); i++) {
        std::printf("%s%.6g", i == 0 ? "" : ", ", values[i]);
    }
    std::printf("]");
}

}  // namespace

void print_json(const std::vector<RowResult>& results) {
    std::printf("[");
    const char* separator = "\n";
    for (const RowResult& r : results) {
        std::printf("%s {\"row\": \"%s\", \"what\": %s, \"unit\": \"%s\", \"better\": \"%s\",\n",
                    separator, r.row.name, json_string(r.row.what).c_str(), r.row.unit,
                    r.row.better == Better::lower ? "lower" : "higher");
        std::printf("  \"rounds\": %zu, \"ratio\": %s", r.subjects.size(),
                    has_base(r.row) ? "true" : "false");
        if (r.skipped.empty()) {
            if (has_base(r.row)) {
                std::printf(", \"tcp\": %.6g, \"tcp_spread\": %.3f", r.base, r.base_spread);
                print_json_list("tcp_by_round", r.bases);
            }
            print_json_list("xsock_by_round", r.subjects);
            std::printf(", \"xsock\": %.6g, \"min\": %.6g, \"median\": %.6g, \"max\": %.6g",
                        r.subject, r.min, r.median, r.max);
        } else {
            std::printf(", \"error\": %s", json_string(r.skipped).c_str());
        }
        std::printf(", \"foreign_cpus\": %.2f", r.foreign_cpus);
        if (r.in_memory) print_json_list("hop_ns_by_round", r.hops_ns);
        if (has_goal(r.row)) std::printf(", \"limit\": %g, \"aim\": %g", r.row.limit, r.row.aim);
        std::printf(", \"noisy\": %s, \"verdict\": \"%s\"}", noisy(r) ? "true" : "false",
                    verdict(r));
        separator = ",\n";
    }
    std::printf("\n]\n");
}

}  // namespace xsock::bench
