// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/kernel_ddp.hpp"

#include <cerrno>
#include <cstring>
#include <new>

#include "transport/clock.hpp"
#include "transport/log.hpp"

namespace xsock {
namespace {

using kernel::Reason;

std::uint32_t module_rights(std::uint32_t access) noexcept {
    std::uint32_t rights = 0;
    if ((access & kRemoteWrite) != 0) rights |= DDP_RIGHT_WRITE;
    if ((access & kRemoteAtomic) != 0 && rights != 0) rights |= DDP_RIGHT_ATOMIC;
    return rights;
}

Reason reason_of_open(int error) noexcept {
    switch (error) {
        case ENOENT:
        case ENXIO:
        case ENODEV:
            return Reason::absent;
        case EACCES:
        case EPERM:
            return Reason::denied;
        default:
            return Reason::socket;
    }
}

}  // namespace

KernelDdp::~KernelDdp() {
    regions_.stop();
    if (const int domain = domain_.load(); domain >= 0) calls_.close(domain);
}

Reason KernelDdp::open(Time now) noexcept {
    if (domain_.load(std::memory_order_acquire) >= 0) return Reason::none;
    const std::lock_guard lock(opening_);
    if (domain_.load(std::memory_order_relaxed) >= 0) return Reason::none;
    if (now < ask_again_) return why_not_;
    ask_again_ = time_after(now, kSecond);
    int domain = -1, error = 0;
    why_not_ = probe(domain, error);
    if (why_not_ == Reason::none) {
        regions_.open(domain);
        domain_.store(domain, std::memory_order_release);
        log(LogLevel::info, "kernel-module", "ABI %u, features %#llx", hello_.abi,
            static_cast<unsigned long long>(hello_.features));
        return Reason::none;
    }
    if (!told_) {
        told_ = true;
        log(LogLevel::info, kernel::name_of(why_not_), "%s%s%s; connections stay at user level",
            kernel::text_of(why_not_), error != 0 ? ": " : "",
            error != 0 ? std::strerror(error) : "");
    }
    return why_not_;
}

Reason KernelDdp::probe(int& domain, int& error) noexcept {
    try {
        domain = calls_.open();
    } catch (const std::bad_alloc&) {
        domain = -ENOMEM;
    }
    if (domain < 0) {
        error = -domain;
        return reason_of_open(error);
    }
    hello_ = {};
    const int result = calls_.control(domain, DDP_IOC_HELLO, &hello_);
    if (result == 0 && hello_.abi == DDP_ABI && hello_.recv_min <= DDP_RECV_MIN) {
        return Reason::none;
    }
    error = -result;
    calls_.close(domain);
    return Reason::abi;
}

Reason KernelDdp::bind(const Binding& binding, int& error) noexcept {
    error = 0;
    if ((!binding.crc && (hello_.features & DDP_FEATURE_NO_CRC) == 0) ||
        (binding.markers && (hello_.features & DDP_FEATURE_MARKERS) == 0)) {
        return Reason::abi;
    }
    error = -calls_.attach(binding.socket);
    // ENOENT: the module has gone meanwhile, or is another one of that name.
    if (error == ENOENT) return Reason::absent;
    if (error != 0 && error != EEXIST) return Reason::socket;
    ddp_bind request{};
    request.socket = binding.socket;
    if (binding.crc) request.flags |= DDP_BIND_CRC;
    if (binding.markers) request.flags |= DDP_BIND_MARKERS;
    if (binding.in_order || (hello_.features & DDP_FEATURE_AHEAD) == 0) {
        request.flags |= DDP_BIND_IN_ORDER;
    }
    request.pd = binding.pd;
    request.qp = binding.qp;
    request.rights = module_rights(binding.rights);
    error = -calls_.control(domain_.load(), DDP_IOC_BIND, &request);
    return error == 0 ? Reason::none : Reason::socket;
}

void KernelDdp::set_rights(int socket, std::uint32_t rights) noexcept {
    ddp_rights request{};
    request.socket = socket;
    request.rights = module_rights(rights);
    calls_.control(domain_.load(), DDP_IOC_RIGHTS, &request);
}

bool KernelDdp::placed_early(int socket, std::uint64_t& bytes) const noexcept {
    ddp_stats stats{};
    stats.socket = socket;
    if (calls_.control(domain_.load(), DDP_IOC_STATS, &stats) != 0) return false;
    bytes = stats.ahead_octets;
    return true;
}

}  // namespace xsock
