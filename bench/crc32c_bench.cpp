// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Compares all ways of CRC32c that this CPU can run: a table size x method, memory in the cache.
// Methods take turns inside each round, so that a slow moment of the machine strikes all of them;
// what counts is the ratio within a table.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/crc32c.hpp"

namespace {

using xsock::crc32c_detail::Method;
using Clock = std::chrono::steady_clock;

constexpr std::array<std::size_t, 13> kSizes{8,   20,   64,   128,  192,   256,    384,
                                             512, 1460, 4096, 8948, 65536, 1048576};
constexpr int kRounds = 7;

// Results go here, so that no call can be left out.
volatile std::uint32_t sink;

/// Nanoseconds of one call, from enough calls to fill about `budget_bytes`.
template <typename Call>
double time_call(std::size_t bytes, std::size_t budget_bytes, Call call) {
    const std::size_t calls = std::clamp<std::size_t>(budget_bytes / bytes, 4, 20000);
    std::uint32_t sum = 0;
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) sum ^= call();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    sink = sum;
    return took.count() / static_cast<double>(calls);
}

struct Column {
    const char* name;
    Method method;
    std::array<double, kRounds> ns{};
};

void table(const char* title, bool copy, const std::vector<Method>& methods,
           std::size_t budget_bytes) {
    std::vector<std::byte> from(kSizes.back() + 64, std::byte{0x5a});
    std::vector<std::byte> to(kSizes.back() + 64);
    std::printf("\n%s\n%8s  %-10s %10s   GB/s min, median, max of %d rounds\n", title, "bytes",
                "method", "median ns", kRounds);
    for (const std::size_t bytes : kSizes) {
        std::vector<Column> columns;
        for (const Method& m : methods) columns.push_back({m.name, m, {}});
        for (int round = -1; round < kRounds; ++round) {  // the first only warms up
            for (Column& c : columns) {
                const double ns =
                    copy ? time_call(bytes, budget_bytes,
                                     [&] {
                                         return c.method.copy(xsock::kCrc32cInit, to.data(),
                                                              from.data(), bytes);
                                     })
                         : time_call(bytes, budget_bytes, [&] {
                               return c.method.crc(xsock::kCrc32cInit, from.data(), bytes);
                           });
                if (round >= 0) c.ns[static_cast<std::size_t>(round)] = ns;
            }
        }
        for (Column& c : columns) {
            std::sort(c.ns.begin(), c.ns.end());
            const auto rate = [&](double ns) { return static_cast<double>(bytes) / ns; };
            std::printf("%8zu  %-10s %10.1f   %6.2f %6.2f %6.2f\n", bytes, c.name,
                        c.ns[kRounds / 2], rate(c.ns.back()), rate(c.ns[kRounds / 2]),
                        rate(c.ns.front()));
        }
    }
}

std::uint32_t public_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    return xsock::crc32c(reg, {from, n});
}

std::uint32_t only_memcpy(std::uint32_t reg, std::byte* to, const std::byte* from,
                          std::size_t n) noexcept {
    std::memcpy(to, from, n);
    __asm__ volatile("" ::: "memory");
    return reg;
}

std::uint32_t copy_then_crc(std::uint32_t reg, std::byte* to, const std::byte* from,
                            std::size_t n) noexcept {
    return xsock::crc32c(only_memcpy(reg, to, from, n), {to, n});
}

std::uint32_t no_crc(std::uint32_t reg, const std::byte*, std::size_t) noexcept { return reg; }

constexpr std::string_view kUsage =
    "usage: crc32c_bench [--quick]\n"
    "Prints GB/s (1e9) of every CRC32c method of this CPU, by size, alone and fused with a copy.\n"
    "'chosen' is the public function; 'memcpy' and 'two passes' are for comparison.\n"
    "  --quick   a tenth of the work\n"
    "  --help    this text\n";

}  // namespace

int main(int argc, char** argv) {
    std::size_t budget_bytes = 4 << 20;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--quick") {
            budget_bytes /= 10;
        } else {
            const bool asked = argument == "--help";
            std::fputs(kUsage.data(), asked ? stdout : stderr);
            return asked ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    }
    const auto usable = xsock::crc32c_detail::usable_methods();
    std::vector<Method> methods(usable.begin(), usable.end());
    methods.push_back({"chosen", public_crc, xsock::crc32c_copy});
    std::printf("crc32c uses: %s\n", xsock::crc32c_method());
    table("crc", false, methods, budget_bytes);
    methods.push_back({"memcpy", no_crc, only_memcpy});
    methods.push_back({"two passes", no_crc, copy_then_crc});
    table("crc and copy", true, methods, budget_bytes);
    return EXIT_SUCCESS;
}
