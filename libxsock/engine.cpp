// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The process's engine: the device behind the C functions, made on first use and never destroyed
// (other threads may still be in it at exit), and the table that leads to them.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/crc32c.hpp"
#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"
#include "transport/log.hpp"
#include "transport/soft_device.hpp"

namespace xsock::api {
namespace {

constexpr Time kExitDrain = kSecond;

std::mutex mutex;
std::atomic<Device*> the_device{nullptr};
TransportConfig the_config;

// exit() and quick_exit() send what is queued, for a moment.
void at_exit() {
    if (Device* const device = the_device.load(std::memory_order_acquire)) {
        drain_soft_device(*device, kExitDrain);
    }
}

// A forked child owns nothing of its parent's device and sends nothing: it leaves it where it is,
// and makes one of its own when it needs one. (Memory of the old one cannot be given back: threads
// that the child does not have may have been in the middle of it, or of making it.)
// No memory is asked for: it may be a signal handler that forks.
void begin_again() {
    static std::array<Device* volatile, 16> left;  // of so many generations: for leak checkers
    static std::size_t generation = 0;
    new (&mutex) std::mutex;
    left[generation++ % left.size()] = the_device.exchange(nullptr);
}

void register_for_process() {
    static std::once_flag once;
    std::call_once(once, [] {
        call_in_child(begin_again);
        std::atexit(at_exit);
        std::at_quick_exit(at_exit);
    });
}

}  // namespace

Device* device() noexcept {
    if (Device* d = the_device.load(std::memory_order_acquire)) return d;
    return guarded<Device*>(nullptr, []() -> Device* {
        register_for_process();  // before the lock is held: making a device takes its time
        const std::lock_guard lock(mutex);
        if (Device* d = the_device.load(std::memory_order_acquire)) return d;
        the_config = TransportConfig::from_environment();
        auto made = make_soft_device(the_config);
        if (!made) {
            log(LogLevel::error, "no-device", "%s", made.error().what);
            errno = made.error().code;
            return nullptr;
        }
        the_device.store(made->release(), std::memory_order_release);
        return the_device.load(std::memory_order_acquire);
    });
}

void flush_device(int timeout_ms) noexcept {
    Device* const device = the_device.load(std::memory_order_acquire);
    if (device == nullptr) return;
    guarded(0, [&] {
        flush_soft_device(*device, timeout_ms < 0
                                       ? kExitDrain
                                       : Time{static_cast<unsigned>(timeout_ms)} * kMillisecond);
        return 0;
    });
}

const TransportConfig& transport_config() noexcept { return the_config; }

const char* version() noexcept {
    static char text[64];
    static std::once_flag once;
    std::call_once(once, [] {
        std::snprintf(text, sizeof text, "%d.%d.%d (crc32c: %s)", XSOCK_VERSION_MAJOR,
                      XSOCK_VERSION_MINOR, XSOCK_VERSION_PATCH, crc32c_method());
    });
    return text;
}

}  // namespace xsock::api

// In verbs/, which not every engine has.
extern "C" __attribute__((weak)) const xsock_verbs* xsock_verbs_table(void);

extern "C" const xsock_engine* xsock_engine_table(void) {
#define XSOCK_FILL(type, name, failed, parameters, arguments) xsock::api::name,
#define XSOCK_SOCK_FILL(type, name, parameters) xsock::api::name,
    static const xsock_engine table = {XSOCK_ENGINE_VERSION, sizeof(xsock_engine),
                                       xsock_verbs_table != nullptr ? xsock_verbs_table() : nullptr,
                                       XSOCK_FUNCTIONS(XSOCK_FILL)
                                           XSOCK_SOCK_FUNCTIONS(XSOCK_SOCK_FILL)
                                               XSOCK_READY_FUNCTIONS(XSOCK_SOCK_FILL)};
#undef XSOCK_SOCK_FILL
#undef XSOCK_FILL
    return &table;
}
