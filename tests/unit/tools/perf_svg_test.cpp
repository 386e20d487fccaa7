// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tools/perf/perf.hpp"

namespace xsock::tools::perf {
namespace {

std::string picture_of(Measure measure, std::vector<double> values) {
    Report report;
    report.options.no_tcp = true;
    Row& row = report.rows.emplace_back();
    row.measure = measure;
    row.size = 64;
    row.ddp = std::move(values);
    const std::string path = ::testing::TempDir() + "perf_svg_test.svg";
    write_svg(report, path);
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    std::filesystem::remove(path);
    return text.str();
}

bool has_mark(const std::string& picture, Measure measure, double value) {
    return picture.find(">" + figure_text(measure, value) + "<") != std::string::npos;
}

TEST(PerfSvg, the_marks_of_a_rate_are_powers_of_ten) {
    const std::string picture = picture_of(Measure::rate, {2e3, 5e5});
    for (const double rate : {1e4, 1e5})
        EXPECT_TRUE(has_mark(picture, Measure::rate, rate)) << rate;
    for (const double rate : {1e3, 2e4, 1e6}) {
        EXPECT_FALSE(has_mark(picture, Measure::rate, rate)) << rate;
    }
}

TEST(PerfSvg, the_marks_of_bandwidth_begin_at_0) {
    const std::string picture = picture_of(Measure::bandwidth, {4e9, 5e9});
    EXPECT_NE(picture.find(">0<"), std::string::npos);
    for (const double bandwidth : {2e9, 4e9}) {
        EXPECT_TRUE(has_mark(picture, Measure::bandwidth, bandwidth)) << bandwidth;
    }
}

TEST(PerfSvg, a_sample_in_which_nothing_came_is_drawn) {
    const std::string picture = picture_of(Measure::rate, {0, 1e5});
    EXPECT_TRUE(has_mark(picture, Measure::rate, 1e5));
    EXPECT_TRUE(has_mark(picture, Measure::rate, 1e3)) << "the axis goes down to it";
    EXPECT_TRUE(picture.ends_with("</svg>\n"));
    EXPECT_EQ(picture.find("nan"), std::string::npos);
    EXPECT_EQ(picture.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace xsock::tools::perf
