// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Draws a report: a panel for each measure, sizes along, figures up (logarithmic for latency and
// rate), a line for each operation, plain TCP dashed; bars from the least to the most of the
// rounds.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "tools/endpoint.hpp"
#include "tools/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

constexpr double kWidth = 760, kPanel = 340;
constexpr double kLeft = 90, kRight = 150, kTop = 50, kBottom = 60;
constexpr const char* kColours[] = {"#1b6ca8", "#d1662c", "#3a8c4d"};  // Send, Write, Read

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '&':
                safe += "&amp;";
                break;
            case '<':
                safe += "&lt;";
                break;
            case '>':
                safe += "&gt;";
                break;
            default:
                safe += c;
        }
    }
    return safe;
}

/// Where values lie on an axis from `low` to `high`.
struct Axis {
    double low = 0, high = 1, from = 0, to = 1;
    bool logarithmic = false;
    [[nodiscard]] double at(double value) const {
        const double v = logarithmic ? std::log10(std::max(value, 1e-9)) : value;
        const double l = logarithmic ? std::log10(low) : low;
        const double h = logarithmic ? std::log10(high) : high;
        return from + (v - l) / (h - l) * (to - from);
    }
};

/// Round values between the ends of an axis.
std::vector<double> ticks(const Axis& axis) {
    std::vector<double> values;
    if (axis.logarithmic) {
        const bool few = axis.high / axis.low < 30;
        for (double decade = std::pow(10, std::floor(std::log10(axis.low))); decade <= axis.high;
             decade *= 10) {
            for (const double step : {1.0, 2.0, 5.0}) {
                if (step != 1.0 && !few) continue;
                const double v = decade * step;
                if (v >= axis.low * 0.999 && v <= axis.high * 1.001) values.push_back(v);
            }
        }
        return values;
    }
    const double rough = (axis.high - axis.low) / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double step = rough / power > 5 ? 10 * power : rough / power > 2 ? 5 * power : 2 * power;
    for (double v = 0; v <= axis.high * 1.001; v += step) values.push_back(v);
    return values;
}

Axis value_axis(Measure measure, const std::vector<const Row*>& rows, double top, double bottom) {
    double low = 1e300;
    double high = 0;
    for (const Row* row : rows) {
        for (const auto* list : {&row->ddp, &row->tcp}) {
            for (const double v : *list) {
                low = std::min(low, v);
                high = std::max(high, v);
            }
        }
    }
    Axis axis;
    axis.logarithmic = measure != Measure::bandwidth;
    axis.low = axis.logarithmic ? low / 1.4 : 0;
    axis.high = axis.logarithmic ? high * 1.4 : high * 1.1;
    if (axis.high <= axis.low) axis.high = axis.low + 1;
    axis.from = bottom;
    axis.to = top;
    return axis;
}

void draw_line(std::string& svg, const std::vector<const Row*>& rows, bool plain, const Axis& x,
               const Axis& y, const char* colour) {
    std::string points;
    for (const Row* row : rows) {
        const std::vector<double>& values = plain ? row->tcp : row->ddp;
        if (values.empty()) continue;
        const double px = x.at(static_cast<double>(row->size));
        const double py = y.at(median(values));
        points += format("%s%.1f,%.1f", points.empty() ? "" : " ", px, py);
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        svg += format(
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
            "stroke-opacity=\"0.45\"/>\n",
            px, y.at(*least), px, y.at(*most), colour);
        svg += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\" stroke=\"%s\"/>\n", px,
                      py, plain ? "3" : "3.5", plain ? "white" : colour, colour);
    }
    if (points.empty()) return;
    svg += format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"%s\"/>\n",
                  colour, plain ? " stroke-dasharray=\"6 4\"" : "", points.c_str());
}

void draw_panel(std::string& svg, const Report& report, Measure measure, double offset) {
    std::map<Op, std::vector<const Row*>> lines;
    std::vector<const Row*> all;
    for (const Row& row : report.rows) {
        if (row.measure != measure) continue;
        lines[row.op].push_back(&row);
        all.push_back(&row);
    }
    const double top = offset + kTop;
    const double bottom = offset + kPanel - kBottom;
    Axis x;
    x.logarithmic = true;
    x.low = 1e300;
    x.high = 0;
    for (const Row* row : all) {
        x.low = std::min(x.low, static_cast<double>(row->size) / 1.5);
        x.high = std::max(x.high, static_cast<double>(row->size) * 1.5);
    }
    x.from = kLeft;
    x.to = kWidth - kRight;
    const Axis y = value_axis(measure, all, top, bottom);
    const char* title = measure == Measure::latency
                            ? "Latency (Send, Write: one way; Read: there and back)"
                        : measure == Measure::bandwidth ? "Bandwidth"
                                                        : "Message rate";
    svg += format("<text x=\"%.0f\" y=\"%.0f\" font-weight=\"bold\">%s</text>\n", kLeft, top - 14,
                  title);
    for (const double v : ticks(y)) {
        svg += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                      x.from, y.at(v), x.to, y.at(v));
        svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", x.from - 8,
                      y.at(v) + 4, v == 0 ? "0" : figure_text(measure, v).c_str());
    }
    std::vector<std::uint64_t> sizes;
    for (const Row* row : all) sizes.push_back(row->size);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    double last = -1e9;
    for (const std::uint64_t size : sizes) {
        const double px = x.at(static_cast<double>(size));
        svg += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#888\"/>\n",
                      px, bottom, px, bottom + 5);
        if (px - last < 48) continue;  // no room for its name
        last = px;
        svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", px,
                      bottom + 20, octets_text(size).c_str());
    }
    svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">octets of a message</text>\n",
                  (x.from + x.to) / 2, bottom + 40);
    svg += format(
        "<polyline fill=\"none\" stroke=\"#444\" points=\"%.1f,%.1f %.1f,%.1f "
        "%.1f,%.1f\"/>\n",
        x.from, top, x.from, bottom, x.to, bottom);
    double key_y = top + 10;
    for (const auto& [op, rows] : lines) {
        const char* colour = kColours[static_cast<std::size_t>(op)];
        for (const bool plain : {true, false}) {
            if (plain && report.options.no_tcp) continue;
            draw_line(svg, rows, plain, x, y, colour);
        }
        for (const bool plain : {false, true}) {
            if (plain && report.options.no_tcp) continue;
            svg += format(
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"2\"%s/>\n",
                x.to + 16, key_y, x.to + 44, key_y, colour,
                plain ? " stroke-dasharray=\"6 4\"" : "");
            svg += format("<text x=\"%.1f\" y=\"%.1f\">%s%s</text>\n", x.to + 50, key_y + 4,
                          plain ? "TCP, as " : "xsock ", op_name(op));
            key_y += 20;
        }
    }
}

}  // namespace

void write_svg(const Report& report, const std::string& path) {
    std::vector<Measure> measures;
    for (const Row& row : report.rows) {
        if (std::find(measures.begin(), measures.end(), row.measure) == measures.end()) {
            measures.push_back(row.measure);
        }
    }
    const double height = 40 + kPanel * static_cast<double>(measures.size());
    std::string svg = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
        "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n",
        kWidth, height, kWidth, height);
    const ClientOptions& o = report.options;
    svg += format(
        "<text x=\"%.0f\" y=\"26\" font-size=\"15\" font-weight=\"bold\">xsock perf to "
        "%s: CRC %s, %s, depth %llu</text>\n",
        kLeft, escaped(report.peer).c_str(), report.crc ? "on" : "off",
        o.polling ? "polling" : "blocking", static_cast<unsigned long long>(o.depth));
    double offset = 30;
    for (const Measure measure : measures) {
        draw_panel(svg, report, measure, offset);
        offset += kPanel;
    }
    svg += "</svg>\n";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"),
                                                               &std::fclose);
    if (file == nullptr || std::fwrite(svg.data(), 1, svg.size(), file.get()) != svg.size() ||
        std::fflush(file.get()) != 0) {
        fail_errno("%s", path.c_str());
    }
}

}  // namespace xsock::tools::perf
