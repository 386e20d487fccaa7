// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From samples to a table, or to JSON for machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/bench.hpp"

namespace xsock::bench {

/// A round with more foreign work than this counts as disturbed: both processes of a pair may want
/// a CPU each.
constexpr double kNoisyCpus = 0.25;

/// All samples of one experiment: [round][variant]; a variant that failed or was left out has none.
using Samples = std::vector<std::vector<std::optional<Figures>>>;

struct RowResult {
    Row row;
    std::string skipped;        ///< why there are no figures, "" if there are
    std::vector<double> bases;  ///< by round, rounds that have both sides
    std::vector<double> subjects;
    double base = 0;  ///< medians over the rounds, in the row's unit
    double subject = 0;
    double base_spread = 1;               ///< largest over smallest
    std::vector<double> hops_ns;          ///< hop_ns() before each round
    bool in_memory = false;               ///< its figure follows the hop
    double foreign_cpus = 0;              ///< how many CPUs worked for others meanwhile
    double min = 0, median = 0, max = 0;  ///< of the ratios; of the figure itself without a base
};

RowResult evaluate(const Row& row, const Samples& samples, const std::string& error);

void print_table_head();
void print_table_row(const RowResult& result);
/// One sentence for each row, and how to read the table.
void print_explanations(const std::vector<RowResult>& results);
void print_json(const std::vector<RowResult>& results);

}  // namespace xsock::bench
