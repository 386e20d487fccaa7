// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// sim: runs simulated worlds. A failure prints its seed and the command line that repeats it.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/mutant.hpp"
#include "tests/sim/options.hpp"
#include "tests/sim/trace.hpp"
#include "tests/sim/world.hpp"

namespace {

using namespace xsock::sim;

struct Arguments {
    std::uint64_t first = 1, count = 1000;
    bool single = false;
    bool progress = false;
    bool links = false;
    bool records = false;
    bool expect_caught = false;
    Mutant mutant = Mutant::none;
    const char* mutant_name = "none";
    std::string regressions;
};

// For the handlers: what to say when the process dies.
char death_note[256];
const char* program_name = "sim";
bool died_of_mutant_is_caught = false;

const char* way(const Arguments& arguments) {
    return arguments.links ? " --links" : arguments.records ? " --records" : "";
}

void write_note(const Arguments& arguments, std::uint64_t seed) {
    std::snprintf(death_note, sizeof death_note,
                  "\nsim: died in seed %llu; to repeat: %s --seed %llu%s%s%s\n",
                  static_cast<unsigned long long>(seed), program_name,
                  static_cast<unsigned long long>(seed), way(arguments),
                  arguments.mutant == Mutant::none ? "" : " --mutant ",
                  arguments.mutant == Mutant::none ? "" : arguments.mutant_name);
}

void on_death(int signal) {
    // An assertion of the stack may see it before the oracle does.
    if (died_of_mutant_is_caught && signal == SIGABRT) _exit(0);
    [[maybe_unused]] const auto written = write(2, death_note, std::strlen(death_note));
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void usage() {
    std::puts(
        "usage: sim [options]\n"
        "  --seeds FIRST..LAST   worlds to run (1..1000)\n"
        "  --seed N              one world\n"
        "  --verbose             trace what happens\n"
        "  --regressions FILE    also the seeds in FILE\n"
        "  --mutant NAME         with a fault put in on purpose; `list` names them\n"
        "  --expect-caught       succeed if a world fails, as it must with a mutant\n"
        "  --links               over a link in shared memory instead of TCP\n"
        "  --records             with a kernel module that places Writes\n"
        "  --progress            one line per second");
}

bool parse(int argc, char** argv, Arguments& arguments) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        const auto value = [&]() -> const char* { return i + 1 < argc ? argv[++i] : ""; };
        if (option == "--seed") {
            arguments.first = std::strtoull(value(), nullptr, 0);
            arguments.count = 1;
            arguments.single = true;
        } else if (option == "--seeds") {
            const char* const text = value();
            char* rest = nullptr;
            arguments.first = std::strtoull(text, &rest, 0);
            if (std::strncmp(rest, "..", 2) != 0) return false;
            const std::uint64_t last = std::strtoull(rest + 2, nullptr, 0);
            if (last < arguments.first) return false;
            arguments.count = last - arguments.first + 1;
        } else if (option == "--verbose") {
            verbose = true;
        } else if (option == "--links") {
            arguments.links = true;
        } else if (option == "--progress") {
            arguments.progress = true;
        } else if (option == "--records") {
            arguments.records = true;
        } else if (option == "--expect-caught") {
            arguments.expect_caught = true;
        } else if (option == "--regressions") {
            arguments.regressions = value();
        } else if (option == "--mutant") {
            arguments.mutant_name = value();
            const auto named = mutant_named(arguments.mutant_name);
            if (!named) {
                for (const MutantName& row : mutants()) std::puts(row.name);
                return false;
            }
            arguments.mutant = *named;
        } else {
            return false;
        }
    }
    return true;
}

std::vector<std::uint64_t> read_seeds(const std::string& path) {
    std::vector<std::uint64_t> seeds;
    std::ifstream in(path);
    if (!in) {
        std::perror(path.c_str());
        std::exit(2);
    }
    for (std::string line; std::getline(in, line);) {
        line = line.substr(0, line.find('#'));
        if (line.find_first_of("0123456789") != std::string::npos) {
            seeds.push_back(std::strtoull(line.c_str(), nullptr, 0));
        }
    }
    return seeds;
}

std::string source_version() {
    std::string version;
    if (FILE* const pipe = popen("git describe --always --dirty --tags 2>/dev/null", "r")) {
        char text[128] = "";
        if (std::fgets(text, sizeof text, pipe) != nullptr) version = text;
        pclose(pipe);
    }
    while (!version.empty() && version.back() == '\n') version.pop_back();
    return version.empty() ? "not under git" : version;
}

}  // namespace

// Sanitizers call it before they report.
extern "C" void __asan_on_error();
extern "C" void __asan_on_error() {
    [[maybe_unused]] const auto written = write(2, death_note, std::strlen(death_note));
}

int main(int argc, char** argv) {
    Arguments arguments;
    program_name = argv[0];
    if (!parse(argc, argv, arguments)) {
        usage();
        return 2;
    }
    std::signal(SIGABRT, on_death);
    std::signal(SIGSEGV, on_death);
    died_of_mutant_is_caught = arguments.expect_caught;

    std::vector<std::uint64_t> seeds;
    if (!arguments.regressions.empty()) seeds = read_seeds(arguments.regressions);
    const std::size_t always = seeds.size();
    for (std::uint64_t i = 0; i < arguments.count; ++i) seeds.push_back(arguments.first + i);

    Result sum;
    std::uint64_t worst_steps = 0, worst_seed = 0, done = 0;
    std::time_t told = std::time(nullptr);
    for (const std::uint64_t seed : seeds) {
        write_note(arguments, seed);
        Options options = draw_options(seed);
        if (arguments.links) use_links(options);
        options.records = arguments.records;
        if (verbose) describe(options);
        try {
            const Result result = run_world(options, arguments.mutant);
            sum.steps += result.steps;
            sum.bytes += result.bytes;
            sum.operations += result.operations;
            sum.messages += result.messages;
            sum.established += result.established;
            sum.linked += result.linked;
            sum.failed += result.failed;
            if (result.steps > worst_steps) worst_steps = result.steps, worst_seed = seed;
        } catch (const Failure& failure) {
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.what());
            if (arguments.expect_caught) return 0;
            std::printf("to repeat: %s --seed %llu%s%s%s --verbose\nsource: %s\n", program_name,
                        static_cast<unsigned long long>(seed), way(arguments),
                        arguments.mutant == Mutant::none ? "" : " --mutant ",
                        arguments.mutant == Mutant::none ? "" : arguments.mutant_name,
                        source_version().c_str());
            return 1;
        }
        ++done;
        if (arguments.progress && std::time(nullptr) != told) {
            told = std::time(nullptr);
            std::printf("%llu of %zu\n", static_cast<unsigned long long>(done), seeds.size());
            std::fflush(stdout);
        }
    }
    std::string linked;
    if (arguments.links) linked = " (" + std::to_string(sum.linked) + " over links)";
    std::printf(
        "%zu worlds (%zu of them regressions): %u ends established%s, %u with failed work, %llu "
        "operations, %llu messages, %llu bytes, %llu steps (most: %llu in seed %llu)\n",
        seeds.size(), always, sum.established, linked.c_str(), sum.failed,
        static_cast<unsigned long long>(sum.operations),
        static_cast<unsigned long long>(sum.messages), static_cast<unsigned long long>(sum.bytes),
        static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(worst_steps),
        static_cast<unsigned long long>(worst_seed));
    if (arguments.expect_caught) {
        std::printf("mutant %s was not caught\n", arguments.mutant_name);
        return 1;
    }
    // Worlds over links that never use one prove nothing.
    return arguments.links && seeds.size() >= 20 && sum.linked < seeds.size() / 2 ? 1 : 0;
}
