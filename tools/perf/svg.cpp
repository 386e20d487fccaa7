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
#include <set>

#include "tools/endpoint.hpp"
#include "tools/perf/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

constexpr double kWidth = 760, kPanel = 340;
constexpr double kLeft = 90, kRight = 150, kTop = 50, kBottom = 60;
constexpr const char* kColours[] = {"#1b6ca8", "#d1662c", "#3a8c4d"};  // Send, Write, Read
constexpr const char* kTitles[] = {"Latency (Send, Write: one way; Read: there and back)",
                                   "Bandwidth", "Message rate"};

/// The shapes that a picture is made of, each with attributes as they stand in the file.
class Svg {
  public:
    explicit Svg(double height) {
        text_ = fmt::format(
            R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
            R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="12">)"
            R"(<rect width="100%" height="100%" fill="white"/>)",
            kWidth, height);
    }
    void line(double x1, double y1, double x2, double y2, const std::string& attributes) {
        add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", x1, y1, x2, y2,
            attributes);
    }
    void circle(double x, double y, double r, const std::string& attributes) {
        add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{}" {}/>)", x, y, r, attributes);
    }
    void curve(const std::vector<std::pair<double, double>>& points,
               const std::string& attributes) {
        std::string list;
        for (const auto& [x, y] : points) list += fmt::format("{:.1f},{:.1f} ", x, y);
        add(R"(<polyline fill="none" points="{}" {}/>)", list, attributes);
    }
    /// `words` need no escapes.
    void label(double x, double y, const std::string& attributes, const std::string& words) {
        add(R"(<text x="{:.1f}" y="{:.1f}" {}>{}</text>)", x, y, attributes, words);
    }
    [[nodiscard]] std::string text() const { return text_ + "\n</svg>\n"; }

  private:
    template <typename... T>
    void add(fmt::format_string<T...> format, T&&... values) {
        text_ += '\n' + fmt::format(format, std::forward<T>(values)...);
    }
    std::string text_;
};

/// Where values lie on an axis from `low` to `high`.
struct Axis {
    double low = 0, high = 1, from = 0, to = 1;
    bool logarithmic = false;
    [[nodiscard]] double scaled(double value) const {
        return logarithmic ? std::log10(std::max(value, 1e-9)) : value;
    }
    [[nodiscard]] double at(double value) const {
        const double part = (scaled(value) - scaled(low)) / (scaled(high) - scaled(low));
        return from + part * (to - from);
    }
};

/// Round values between the ends of an axis.
std::vector<double> ticks(const Axis& axis) {
    std::vector<double> values;
    if (!axis.logarithmic) {
        const double rough = (axis.high - axis.low) / 5;
        const double power = std::pow(10, std::floor(std::log10(rough)));
        const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : 2);
        for (int i = 0; i * step <= axis.high * 1.001; ++i) values.push_back(i * step);
        return values;
    }
    const bool few = axis.high / axis.low < 30;
    const auto last = static_cast<int>(std::floor(axis.scaled(axis.high)));
    for (auto exponent = static_cast<int>(std::floor(axis.scaled(axis.low))); exponent <= last;
         ++exponent) {
        const double decade = std::pow(10, exponent);
        for (const double step : {1.0, 2.0, 5.0}) {
            const double v = decade * step;
            const bool wanted = step == 1.0 || few;
            if (wanted && v >= axis.low * 0.999 && v <= axis.high * 1.001) values.push_back(v);
        }
    }
    return values;
}

using Rows = std::vector<const Row*>;

Axis value_axis(Measure measure, const Rows& rows, double bottom, double top) {
    double low = 1e300, high = 0;
    for (const Row* row : rows) {
        for (const auto* list : {&row->ddp, &row->tcp}) {
            for (const double v : *list) {
                low = std::min(low, v);
                high = std::max(high, v);
            }
        }
    }
    const bool logarithmic = measure != Measure::bandwidth;
    Axis axis{logarithmic ? low / 1.4 : 0, high * (logarithmic ? 1.4 : 1.1), bottom, top,
              logarithmic};
    if (axis.high <= axis.low) axis.high = axis.low + 1;
    return axis;
}

void draw_line(Svg& svg, const Rows& rows, bool plain, const Axis& x, const Axis& y,
               const std::string& stroke, const std::string& fill) {
    std::vector<std::pair<double, double>> points;
    for (const Row* row : rows) {
        const std::vector<double>& values = plain ? row->tcp : row->ddp;
        if (values.empty()) continue;
        const double px = x.at(static_cast<double>(row->size));
        points.emplace_back(px, y.at(median(values)));
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        svg.line(px, y.at(*least), px, y.at(*most), stroke + R"( stroke-opacity="0.45")");
        svg.circle(px, points.back().second, plain ? 3 : 3.5, stroke + fill);
    }
    const char* dashes = plain ? R"( stroke-dasharray="6 4")" : "";
    if (!points.empty()) svg.curve(points, stroke + R"( stroke-width="2")" + dashes);
}

void draw_panel(Svg& svg, const Report& report, Measure measure, double offset) {
    std::map<Op, Rows> lines;
    Rows all;
    std::set<std::uint64_t> sizes;
    for (const Row& row : report.rows) {
        if (row.measure != measure) continue;
        lines[row.op].push_back(&row);
        all.push_back(&row);
        sizes.insert(row.size);
    }
    const double top = offset + kTop;
    const double bottom = offset + kPanel - kBottom;
    const Axis x{static_cast<double>(*sizes.begin()) / 1.5,
                 static_cast<double>(*sizes.rbegin()) * 1.5, kLeft, kWidth - kRight, true};
    const Axis y = value_axis(measure, all, bottom, top);
    svg.label(kLeft, top - 14, R"(font-weight="bold")", kTitles[static_cast<std::size_t>(measure)]);
    for (const double v : ticks(y)) {
        svg.line(x.from, y.at(v), x.to, y.at(v), R"(stroke="#ddd")");
        svg.label(x.from - 8, y.at(v) + 4, R"(text-anchor="end")",
                  v == 0 ? "0" : figure_text(measure, v));
    }
    double last = -1e9;
    for (const std::uint64_t size : sizes) {
        const double px = x.at(static_cast<double>(size));
        svg.line(px, bottom, px, bottom + 5, R"(stroke="#888")");
        if (px - last < 48) continue;  // no room for its name
        last = px;
        svg.label(px, bottom + 20, R"(text-anchor="middle")", bytes_text(size));
    }
    svg.label((x.from + x.to) / 2, bottom + 40, R"(text-anchor="middle")", "bytes of a message");
    svg.curve({{x.from, top}, {x.from, bottom}, {x.to, bottom}}, R"(stroke="#444")");
    double key_y = top + 10;
    for (const auto& [op, rows] : lines) {
        const char* colour = kColours[static_cast<std::size_t>(op)];
        const std::string stroke = fmt::format(R"(stroke="{}")", colour);
        for (const bool plain : {false, true}) {
            if (plain && report.options.no_tcp) continue;
            draw_line(svg, rows, plain, x, y, stroke,
                      fmt::format(R"( fill="{}")", plain ? "white" : colour));
            svg.line(x.to + 16, key_y, x.to + 44, key_y,
                     stroke + R"( stroke-width="2")" + (plain ? R"( stroke-dasharray="6 4")" : ""));
            svg.label(x.to + 50, key_y + 4, "",
                      fmt::format("{} {}", plain ? "TCP, as" : "xsock", op_name(op)));
            key_y += 20;
        }
    }
}

}  // namespace

void write_svg(const Report& report, const std::string& path) {
    std::set<Measure> measures;
    for (const Row& row : report.rows) measures.insert(row.measure);
    Svg svg(40 + kPanel * static_cast<double>(measures.size()));
    const ClientOptions& o = report.options;
    svg.label(kLeft, 26, R"(font-size="15" font-weight="bold")",
              fmt::format("xsock perf to {}: CRC {}, {}, depth {}", report.peer,
                          report.crc ? "on" : "off", o.polling ? "polling" : "blocking", o.depth));
    double offset = 30;
    for (const Measure measure : measures) {
        draw_panel(svg, report, measure, offset);
        offset += kPanel;
    }
    const std::string text = svg.text();
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"),
                                                               &std::fclose);
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fflush(file.get()) != 0) {
        fail_errno("{}", path);
    }
}

}  // namespace xsock::tools::perf
