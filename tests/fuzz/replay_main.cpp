// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a fuzz target without libFuzzer: over every file of its corpus, then over seeded mutations
// of them, the same ones each time. So every build and every compiler replays what the fuzzer once
// found, and a crash names the input that made it.
//
//   fuzz_<name> [--mutations N] [--seed S] [FILE or FOLDER]...
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
/// Of the sanitizers' runtime; null in a build without.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kMaxInput = 16384;

struct Seed {
    std::string name;
    Input bytes;
};

/// What is running now; named when the target does not come back.
char running[512];

void name_input() {
    constexpr char kLead[] = "\ninput: ";
    // write(2), not stdio: this runs in a signal handler.
    if (write(STDERR_FILENO, kLead, sizeof(kLead) - 1) < 0 ||
        write(STDERR_FILENO, running, std::strlen(running)) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0) {
        return;
    }
}

void on_signal(int signal) {
    name_input();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void run(const std::string& name, const Input& bytes) {
    std::snprintf(running, sizeof(running), "%s", name.c_str());
    // A copy of exactly the right size: a sanitizer then sees each byte read behind the end.
    const Input exact(bytes);
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Input read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Files in the order of their names, so that a run repeats on another machine.
std::vector<Seed> read_seeds(const std::vector<std::string>& places) {
    std::vector<std::filesystem::path> paths;
    for (const auto& place : places) {
        std::error_code error;
        if (std::filesystem::is_directory(place, error)) {
            for (const auto& entry : std::filesystem::directory_iterator(place)) {
                if (entry.is_regular_file()) paths.push_back(entry.path());
            }
        } else if (std::filesystem::exists(place, error)) {
            paths.emplace_back(place);
        }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<Seed> seeds;
    for (const auto& path : paths) seeds.push_back({path.string(), read_file(path)});
    return seeds;
}

class Mutator {
  public:
    explicit Mutator(std::uint64_t seed) : engine_(seed) {}

    std::size_t below(std::size_t limit) { return limit == 0 ? 0 : engine_() % limit; }

    void mutate(Input& bytes, const Input& other) {
        for (std::size_t steps = 1 + below(4); steps > 0; --steps) step(bytes, other);
        if (bytes.size() > kMaxInput) bytes.resize(kMaxInput);
    }

  private:
    void step(Input& bytes, const Input& other) {
        if (bytes.empty()) {
            bytes.resize(1 + below(64));
            for (auto& value : bytes) value = random_byte();
            return;
        }
        const std::size_t at = below(bytes.size());
        const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        switch (below(7)) {
            case 0:
                bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1u << below(8)));
                break;
            case 1:
                bytes[at] = random_byte();
                break;
            case 2: {  // the numbers at which lengths and counters turn
                static constexpr std::uint8_t kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
                const std::size_t width = std::min(std::size_t{1} << below(4), bytes.size() - at);
                std::fill_n(place, width, kEdges[below(std::size(kEdges))]);
                break;
            }
            case 3:
                bytes.resize(at);
                break;
            case 4:
                bytes.erase(place,
                            place + static_cast<std::ptrdiff_t>(
                                        1 + below(std::min<std::size_t>(16, bytes.size() - at))));
                break;
            case 5:
                bytes.insert(place, 1 + below(16), random_byte());
                break;
            default: {  // from here on as another input
                const std::size_t from = below(other.size());
                bytes.resize(at);
                bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from),
                             other.end());
                break;
            }
        }
    }

    std::uint8_t random_byte() { return static_cast<std::uint8_t>(engine_()); }

    std::mt19937_64 engine_;
};

}  // namespace

int main(int argc, char** argv) {
    std::size_t mutations = 0;
    std::uint64_t seed = 1;
    std::vector<std::string> places;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--mutations" && i + 1 < argc) {
            mutations = std::strtoull(argv[++i], nullptr, 0);
        } else if (argument == "--seed" && i + 1 < argc) {
            seed = std::strtoull(argv[++i], nullptr, 0);
        } else {
            places.push_back(argument);
        }
    }

    std::signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback != nullptr) {
        __sanitizer_set_death_callback(name_input);
    } else {
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
    }
    std::vector<Seed> seeds = read_seeds(places);
    for (const auto& one : seeds) run(one.name, one.bytes);
    const std::size_t files = seeds.size();
    if (!places.empty() && files == 0) {
        std::fprintf(stderr, "no files in %s\n", places.front().c_str());
        return 1;
    }
    if (seeds.empty()) seeds.push_back({"nothing", {}});
    for (std::size_t i = 0; i < mutations; ++i) {
        // Each has a generator of its own: --seed <seed + i> --mutations 1 repeats the i-th alone.
        Mutator mutator(seed + i);
        const Seed& from = seeds[mutator.below(seeds.size())];
        const Seed& other = seeds[mutator.below(seeds.size())];
        Input bytes = from.bytes;
        mutator.mutate(bytes, other.bytes);
        run(from.name + " --mutations 1 --seed " + std::to_string(seed + i), bytes);
    }
    std::printf("%zu files, %zu mutations, seed %llu\n", files, mutations,
                static_cast<unsigned long long>(seed));
    return 0;
}
