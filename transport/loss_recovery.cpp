// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/loss_recovery.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/once.hpp"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

constexpr int kRtoMinUs = 45;     // TCP_RTO_MIN_US, which older headers lack
constexpr int kDelackMaxUs = 46;  // TCP_DELACK_MAX_US

// The kernel's timers of TCP go by ticks.
int tick_ms() noexcept {
    timespec tick{};
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec != 0) return 10;
    return static_cast<int>(std::clamp<long>(tick.tv_nsec / 1'000'000, 1, 10));
}

bool has_option(int fd, int name) noexcept {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, IPPROTO_TCP, name, &value, &size) == 0;
}

std::uint16_t find_out() noexcept {
    const DescriptorChange change;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    const bool has_both = has_option(fd, kRtoMinUs) && has_option(fd, kDelackMaxUs);
    close(fd);
    return has_both ? static_cast<std::uint16_t>(2 * tick_ms()) : 0;
}

void set_us(int fd, int name, int ms) noexcept {
    const int us = ms * 1000;
    setsockopt(fd, IPPROTO_TCP, name, &us, sizeof us);
}

}  // namespace

std::uint16_t shortest_delayed_ack_ms() noexcept {
    static constinit Once<std::uint16_t> found;
    return found.get(find_out);
}

void limit_delayed_ack(int fd) noexcept {
    if (const int ms = shortest_delayed_ack_ms(); ms != 0) set_us(fd, kDelackMaxUs, ms);
}

void shorten_retransmission(int fd, std::uint16_t peer_ms) noexcept {
    constexpr int kUsual = 200;  // TCP_RTO_MIN: a longer one is none of ours to set
    const int ms = peer_ms + tick_ms();  // its timer may fire a tick late
    if (shortest_delayed_ack_ms() != 0 && ms < kUsual) set_us(fd, kRtoMinUs, ms);
}

}  // namespace xsock
