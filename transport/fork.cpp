// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "base/assert.hpp"
#include "base/permanent.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/progress.hpp"
#include "transport/stats.hpp"

namespace xsock {
namespace {

std::atomic<std::uint32_t> forks{0};
std::atomic<pid_t> process{0};     // the one that was announced; 0: none yet
bool renewed_unannounced = false;  // by detect_fork(), in a child of the last fork()

struct Registry {
    std::mutex mutex;
    std::vector<Progress*> progresses;
    std::vector<std::shared_ptr<void>> left;
};

// Read without a lock: `before` of one of them may wait for a thread that adds another.
constexpr std::size_t kHandlersMost = 16;
std::array<ForkHandlers, kHandlersMost> handlers;
std::atomic<std::size_t> handler_count{0};
std::size_t prepared = 0;  // so many were called before the fork that is under way

using Handler = void (*ForkHandlers::*)();

void call_handlers(Handler which, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        if (handlers[i].*which != nullptr) (handlers[i].*which)();
    }
}

constinit Permanent<Registry> the_registry;
Registry& registry() { return the_registry.value; }

void before() {
    const std::size_t count = handler_count.load(std::memory_order_acquire);
    call_handlers(&ForkHandlers::before, 0, count);
    registry().mutex.lock();
    prepared = count;
    renewed_unannounced = false;
    for (Progress* p : registry().progresses) p->begin_fork();
    log_begin_fork();  // last: pollers write lines
}

void in_parent() {
    log_end_fork();
    for (Progress* p : registry().progresses) p->end_fork();
    const std::size_t count = prepared;
    registry().mutex.unlock();
    call_handlers(&ForkHandlers::in_parent, 0, count);
}

void in_child() {
    // A handler of the program's that ran before this one used the library.
    if (renewed_unannounced) return;
    log_end_fork();
    StatsEntry::forget_lock();
    forget_descriptor_changes();
    process.store(getpid(), std::memory_order_relaxed);
    forks.fetch_add(1, std::memory_order_seq_cst);
    for (Progress* p : registry().progresses) p->abandon();
    registry().progresses.clear();
    registry().mutex.unlock();
    call_handlers(&ForkHandlers::in_child, 0, prepared);
    // Added while the locks were being taken.
    call_handlers(&ForkHandlers::in_unannounced_child, prepared, handler_count.load());
}

void watch() {
    static std::once_flag once;
    std::call_once(once, [] {
        process.store(getpid(), std::memory_order_relaxed);
        pthread_atfork(before, in_parent, in_child);
    });
}

}  // namespace

std::uint32_t process_generation() noexcept { return forks.load(std::memory_order_relaxed); }

void report_inherited(const char* what) noexcept {
    static std::atomic<std::uint32_t> reported{0};  // the process that has its line; 0: none
    const std::uint32_t generation = process_generation();
    if (reported.exchange(generation, std::memory_order_relaxed) == generation) return;
    log(LogLevel::warn, "inherited-handle",
        "%s of the parent process is used after fork(): calls on it fail, make new ones", what);
}

void detect_fork() noexcept {
    const pid_t known = process.load(std::memory_order_relaxed);
    if (known == 0 || known == getpid()) return;
    // Locks may be held by threads that are not here, and lists half changed: all is left behind,
    // descriptors included, for the little time that such a child usually has.
    renewed_unannounced = true;
    process.store(getpid(), std::memory_order_relaxed);
    forks.fetch_add(1, std::memory_order_seq_cst);
    log_forget_lock();
    StatsEntry::forget_lock();
    forget_descriptor_changes();
    new (&registry().mutex) std::mutex;
    new (&registry().progresses) std::vector<Progress*>;
    call_handlers(&ForkHandlers::in_unannounced_child, 0, handler_count.load());
}

void add_to_forks(Progress& progress) {
    watch();
    const std::lock_guard lock(registry().mutex);
    registry().progresses.push_back(&progress);
}

void remove_from_forks(Progress& progress) noexcept {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().progresses, &progress);
}

void leak_after_fork(std::shared_ptr<void> object) {
    const std::lock_guard lock(registry().mutex);
    registry().left.push_back(std::move(object));
}

void add_fork_handlers(const ForkHandlers& added) {
    watch();
    const std::lock_guard lock(registry().mutex);
    const std::size_t count = handler_count.load(std::memory_order_relaxed);
    XSOCK_ASSERT(count < kHandlersMost);
    handlers[count] = added;
    handler_count.store(count + 1, std::memory_order_release);
}

}  // namespace xsock
