// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock_bench: the library beside plain TCP, in one table with a plain verdict for each row.
#include <fcntl.h>
#include <getopt.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include "bench/hop.hpp"
#include "bench/pair.hpp"
#include "bench/report.hpp"

namespace xsock::bench {
namespace {

struct Options {
    bool quick = false;
    bool json = false;
    bool tcp_only = false;
    unsigned rounds = 0;  // 0: 7, or 3 with --quick
    double seconds = 0;   // 0: 0.4, or 0.1 with --quick
    std::vector<std::string> rows;
};

void print_help() {
    std::printf(
        "xsock_bench: the library beside plain TCP\n\n"
        "  --quick         the most telling rows in some ten seconds\n"
        "  --rows A,B      only these rows\n"
        "  --rounds N      rounds for each row (7; with --quick 3)\n"
        "  --seconds S     timed part of each sample (0.4; with --quick 0.1)\n"
        "  --json          for machines\n"
        "  --tcp-only      plain TCP alone: its medians and how far they spread\n"
        "  --help\n\n"
        "Exit status: 0 all measured, 1 some row was not, 2 wrong use. The rows:\n");
    for (const Experiment& experiment : all_experiments()) {
        for (const Row& row : experiment.rows) std::printf("  %s\n", row.name);
    }
}

[[noreturn]] void wrong_use(const char* why, const char* what) {
    std::fprintf(stderr, "xsock_bench: %s: %s (--help tells more)\n", why, what);
    std::exit(2);
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> names;
    std::stringstream stream(list);
    for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
    return names;
}

Options parse(int argc, char** argv) {
    static const option kLong[] = {
        {"quick", no_argument, nullptr, 'q'},        {"rows", required_argument, nullptr, 'r'},
        {"rounds", required_argument, nullptr, 'n'}, {"seconds", required_argument, nullptr, 's'},
        {"json", no_argument, nullptr, 'j'},         {"tcp-only", no_argument, nullptr, 't'},
        {"help", no_argument, nullptr, 'h'},         {nullptr, 0, nullptr, 0}};
    Options options;
    for (int c = 0; (c = getopt_long(argc, argv, "h", kLong, nullptr)) != -1;) {
        switch (c) {
            case 'q':
                options.quick = true;
                break;
            case 'r':
                options.rows = split(optarg);
                break;
            case 'n':
                options.rounds = static_cast<unsigned>(std::strtoul(optarg, nullptr, 10));
                if (options.rounds == 0) wrong_use("not a number of rounds", optarg);
                break;
            case 's':
                options.seconds = std::strtod(optarg, nullptr);
                if (!(options.seconds > 0 && options.seconds <= 60)) {
                    wrong_use("not a number of seconds", optarg);
                }
                break;
            case 'j':
                options.json = true;
                break;
            case 't':
                options.tcp_only = true;
                break;
            case 'h':
                print_help();
                std::exit(0);
            default:
                std::exit(2);
        }
    }
    if (optind < argc) wrong_use("unexpected argument", argv[optind]);
    if (options.rounds == 0) options.rounds = options.quick ? 3 : 7;
    if (options.seconds == 0) options.seconds = options.quick ? 0.1 : 0.4;
    return options;
}

// The experiments asked for, each with the rows asked for.
std::vector<Experiment> choose(const Options& options) {
    std::vector<Experiment> chosen;
    std::vector<std::string> unknown = options.rows;
    for (Experiment& experiment : all_experiments()) {
        if (options.rows.empty()) {
            if (!options.quick || experiment.quick) chosen.push_back(std::move(experiment));
            continue;
        }
        std::erase_if(experiment.rows, [&](const Row& row) {
            std::erase(unknown, row.name);
            return std::find(options.rows.begin(), options.rows.end(), row.name) ==
                   options.rows.end();
        });
        if (!experiment.rows.empty()) chosen.push_back(std::move(experiment));
    }
    if (!unknown.empty()) wrong_use("no such row", unknown[0].c_str());
    return chosen;
}

// One line on the terminal that tells where we are; nothing when there is no terminal.
class Progress {
  public:
    void show(const Experiment& experiment, unsigned round, unsigned rounds, const char* variant) {
        if (!visible_) return;
        std::fprintf(stderr, "\r\033[K%s: round %u of %u, %s", experiment.name, round + 1, rounds,
                     variant);
    }
    void clear() {
        if (visible_) std::fprintf(stderr, "\r\033[K");
    }

  private:
    bool visible_ = isatty(STDERR_FILENO) != 0;
};

// Two network namespaces joined by veth, made and taken away by the script beside this program.
class Veth {
  public:
    ~Veth() {
        if (up_) (void)script("down", 0);
    }
    /// @return "" or why there is no such path
    std::string open(unsigned mtu) {
        const int status = script("up", mtu);
        up_ = status == 0;
        if (up_) return "";
        return status == 77 ? "veth needs root and iproute2 (skipped)" : "veth.sh failed";
    }
    void describe(Run& run) const {
        run.server_netns = name_ + "-a";
        run.client_netns = name_ + "-b";
        run.server_address = "198.18.77.1";  // RFC 2544: for benchmarks
    }

  private:
    int script(const char* verb, unsigned mtu) {
        std::string path(4096, '\0');
        const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
        path.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        path = path.substr(0, path.rfind('/') + 1) + "veth.sh";
        const std::string mtu_text = std::to_string(mtu);
        const pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", path.c_str(), verb, name_.c_str(), mtu_text.c_str(), nullptr);
            _exit(127);
        }
        int status = 0;
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    std::string name_ = "xsb" + std::to_string(getpid());
    bool up_ = false;
};

// As many descriptors as allowed; answers how many of them an end's connections can then have.
unsigned descriptors_possible() {
    constexpr rlim_t kWanted = 32'768;
    constexpr rlim_t kOthers = 256;  // the library's and our own
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
    const rlim_t old_hard = limit.rlim_max;
    limit.rlim_cur = limit.rlim_max = std::max(kWanted, old_hard);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        limit.rlim_cur = limit.rlim_max = old_hard;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return static_cast<unsigned>(std::min(limit.rlim_cur, kWanted) - kOthers);
}

struct Measured {
    Samples samples;
    std::vector<double> hops_ns;      // by round, before it
    std::vector<std::string> errors;  // by variant, "" if fine
    double foreign_cpus = 0;          // mean over the rounds, of the worst sample of each
};

Measured measure(const Experiment& experiment, const Options& options, unsigned most_descriptors,
                 Progress& progress) {
    const std::size_t variants = experiment.variants.size();
    Measured measured;
    measured.errors.resize(variants);
    Run run;
    run.seconds = options.seconds;
    run.depth = experiment.depth;
    run.one_cpu = experiment.one_cpu;
    run.connections = std::min(experiment.connections, most_descriptors / experiment.descriptors);
    if (run.connections < experiment.connections) {
        std::fprintf(stderr, "%s: only %u connections (RLIMIT_NOFILE)\n", experiment.name,
                     run.connections);
    }
    Veth veth;
    if (experiment.mtu != 0) {
        const std::string why = veth.open(experiment.mtu);
        if (!why.empty()) {
            measured.errors.assign(variants, why);
            return measured;
        }
        veth.describe(run);
    }
    const auto needed = [&](std::size_t variant) {
        return std::any_of(experiment.rows.begin(), experiment.rows.end(), [&](const Row& row) {
            return variant == row.base || (variant == row.subject && !options.tcp_only);
        });
    };
    // A round during which others kept the machine busy is taken again, within the time limit.
    unsigned spare_rounds = options.quick ? 0 : options.rounds;
    double foreign_cpus = 0;
    for (unsigned round = 0; round < options.rounds && !interrupted();) {
        std::vector<std::optional<Figures>> samples(variants);
        double most_foreign_cpus = 0;
        const double hop = hop_ns();
        for (std::size_t v = 0; v < variants && !interrupted(); v++) {
            if (!needed(v) || !measured.errors[v].empty()) continue;
            progress.show(experiment, round, options.rounds, experiment.variants[v].name);
            const Outcome outcome = run_pair(experiment.variants[v], run, experiment.timeout_s);
            most_foreign_cpus = std::max(most_foreign_cpus, outcome.foreign_cpus);
            if (outcome.ok) {
                samples[v] = outcome.figures;
            } else {
                measured.errors[v] = experiment.variants[v].name + (": " + outcome.error);
            }
        }
        if (most_foreign_cpus > kNoisyCpus && spare_rounds > 0) {
            spare_rounds--;
            continue;
        }
        measured.samples.push_back(std::move(samples));
        measured.hops_ns.push_back(hop);
        foreign_cpus += most_foreign_cpus;
        round++;
    }
    if (!measured.samples.empty()) {
        measured.foreign_cpus = foreign_cpus / static_cast<double>(measured.samples.size());
    }
    progress.clear();
    return measured;
}

// With --tcp-only the base takes both places: its ratio is 1, its spread is what one wants to see.
RowResult judge(Row row, const Measured& measured, bool in_memory, bool tcp_only) {
    if (tcp_only) row.subject = row.base;
    std::string error = measured.errors[row.subject];
    if (row.base != Row::kNone && error.empty()) error = measured.errors[row.base];
    RowResult result = evaluate(row, measured.samples, error);
    result.foreign_cpus = measured.foreign_cpus;
    result.hops_ns = measured.hops_ns;
    result.in_memory = in_memory;
    return result;
}

void print_tcp(const RowResult& result) {
    std::printf("%-25s %10.4g %-6s spread %.2fx, %.1f CPUs busy elsewhere %s\n", result.row.name,
                result.base, result.row.unit, result.base_spread, result.foreign_cpus,
                result.skipped.c_str());
    std::fflush(stdout);
}

int run(const Options& options) {
    const std::vector<Experiment> experiments = choose(options);
    catch_interrupts();
    const unsigned most_descriptors = descriptors_possible();
    Progress progress;
    std::vector<RowResult> results;
    if (!options.json && !options.tcp_only) print_table_head();
    for (const Experiment& experiment : experiments) {
        const bool has_tcp = experiment.variants[0].is_tcp;
        if ((options.tcp_only && !has_tcp) || interrupted()) continue;
        const Measured measured = measure(experiment, options, most_descriptors, progress);
        if (interrupted()) break;
        const bool in_memory = std::any_of(experiment.variants.begin(), experiment.variants.end(),
                                           [](const Variant& v) { return v.shm != nullptr; });
        for (const Row& row : experiment.rows) {
            results.push_back(judge(row, measured, in_memory, options.tcp_only));
            if (options.json) continue;
            options.tcp_only ? print_tcp(results.back()) : print_table_row(results.back());
        }
    }
    if (options.json) {
        print_json(results);
    } else if (!options.tcp_only && !results.empty()) {
        print_explanations(results);
    }
    const bool complete = std::all_of(results.begin(), results.end(),
                                      [](const RowResult& r) { return r.skipped.empty(); });
    return complete && !interrupted() ? 0 : 1;
}

}  // namespace
}  // namespace xsock::bench

int main(int argc, char** argv) {
    for (const char* setting : {"XSOCK_SHM", "XSOCK_KERNEL"}) {
        setenv(setting, "off", 0);  // beside plain TCP
    }
    return xsock::bench::run(xsock::bench::parse(argc, argv));
}
