// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/hop.hpp"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "bench/pair.hpp"

namespace xsock::bench {
namespace {

constexpr unsigned kWarmUp = 100;
constexpr unsigned kRoundTrips = 400;

struct alignas(128) Word {
    std::atomic<unsigned> value{0};

    void wait_for(unsigned expected) const {
        while (value.load(std::memory_order_acquire) != expected) {
        }
    }
};

}  // namespace

double hop_ns() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return 0;
    Word there, back;
    std::thread echo([&] {
        pin_to_cpu(1);
        for (unsigned i = 1; i <= kWarmUp + kRoundTrips; i++) {
            there.wait_for(i);
            back.value.store(i, std::memory_order_release);
        }
    });
    pin_to_cpu(0);
    std::int64_t begin = 0;
    for (unsigned i = 1; i <= kWarmUp + kRoundTrips; i++) {
        if (i == kWarmUp + 1) begin = now_ns();
        there.value.store(i, std::memory_order_release);
        back.wait_for(i);
    }
    const auto took_ns = static_cast<double>(now_ns() - begin);
    echo.join();
    sched_setaffinity(0, sizeof allowed, &allowed);
    return took_ns / kRoundTrips / 2;
}

}  // namespace xsock::bench
