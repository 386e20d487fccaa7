// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/engine/runtime.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "base/permanent.hpp"
#include "transport/clock.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/soft_device.hpp"

namespace xsock::runtime {
namespace {

constexpr Time kExitDrain = kSecond;

std::mutex making;
std::atomic<Device*> the_device{nullptr};
std::atomic<bool> threads_needed{false};
TransportConfig the_config;

std::atomic<pid_t> exiting_thread{0};

struct ExitHandlers {
    std::mutex mutex;
    std::vector<void (*)()> all;
};

constinit Permanent<ExitHandlers> the_exit_handlers;
ExitHandlers& exit_handlers() { return the_exit_handlers.value; }

// exit() and quick_exit() send what is queued, for a moment.
void at_exit() {
    drain();
    // One that exit() interrupted may be adding another, and never go on.
    ExitHandlers& handlers = exit_handlers();
    const std::unique_lock lock(handlers.mutex, std::try_to_lock);
    if (!lock) return;
    for (void (*handler)() : handlers.all) handler();
}

// A forked child owns nothing of its parent's device and sends nothing: it leaves it where it is,
// and makes one of its own when it needs one. (Memory of the old one cannot be given back: threads
// that the child does not have may have been in the middle of it, or of making it.)
// No memory is asked for: it may be a signal handler that forks.
void begin_in_child() {
    static std::array<Device* volatile, 16> left;  // of so many generations: for leak checkers
    static std::size_t generation = 0;
    new (&making) std::mutex;
    new (&exit_handlers().mutex) std::mutex;
    threads_needed.store(false, std::memory_order_relaxed);
    exiting_thread.store(0, std::memory_order_relaxed);
    left[generation++ % left.size()] = the_device.exchange(nullptr);
}

// When the engine is loaded, not at its first use: a child that is forked while another thread is
// in atexit() finds the lock of libc's list held for ever.
[[gnu::constructor]] void register_for_process() {
    call_in_child(begin_in_child);
    std::atexit(at_exit);
    std::at_quick_exit(at_exit);
}

Device* make(Threads threads) {
    (void)log_enabled(LogLevel::error);  // its settings are read here, where no thread is cancelled
    const std::lock_guard lock(making);
    Device* device = the_device.load(std::memory_order_acquire);
    if (device == nullptr) {
        the_config = TransportConfig::from_environment();
        auto made = make_soft_device(the_config);
        if (!made) {
            log(LogLevel::error, "no-device", "%s", made.error().what);
            errno = made.error().code;
            return nullptr;
        }
        device = made->release();
        the_device.store(device, std::memory_order_release);
    }
    if (threads == Threads::needed && !threads_needed.load(std::memory_order_relaxed)) {
        need_soft_threads(*device);
        threads_needed.store(true, std::memory_order_release);
    }
    return device;
}

}  // namespace

Device* device(Threads threads) noexcept {
    Device* const device = the_device.load(std::memory_order_acquire);
    if (device != nullptr &&
        (threads == Threads::as_configured || threads_needed.load(std::memory_order_acquire))) {
        return device;
    }
    try {
        return make(threads);
    } catch (...) {
        errno = ENOMEM;
        return nullptr;
    }
}

const TransportConfig& config() noexcept { return the_config; }

void flush(int timeout_ms) noexcept {
    Device* const device = the_device.load(std::memory_order_acquire);
    if (device == nullptr) return;
    const Time limit =
        timeout_ms < 0 ? kExitDrain : Time{static_cast<unsigned>(timeout_ms)} * kMillisecond;
    try {
        flush_soft_device(*device, limit);
    } catch (...) {
        return;  // out of memory: the rest goes with the next call that waits
    }
}

void drain() noexcept {
    exiting_thread.store(gettid(), std::memory_order_release);
    Device* const device = the_device.load(std::memory_order_acquire);
    if (device == nullptr) return;
    try {
        drain_soft_device(*device, kExitDrain);
    } catch (...) {
        return;  // out of memory: the process ends without
    }
}

bool ends_elsewhere() noexcept {
    const pid_t thread = exiting_thread.load(std::memory_order_acquire);
    return thread != 0 && thread != gettid();
}

bool interrupted() noexcept {
    const Device* const device = the_device.load(std::memory_order_acquire);
    return device != nullptr && soft_device_interrupted(*device);
}

void call_at_exit(void (*handler)()) {
    ExitHandlers& handlers = exit_handlers();
    const std::lock_guard lock(handlers.mutex);
    handlers.all.push_back(handler);
}

}  // namespace xsock::runtime
