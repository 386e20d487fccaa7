// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/progress.hpp"
#include "transport/stats.hpp"

namespace xsock {
namespace {

std::atomic<std::uint32_t> forks{0};
std::atomic<pid_t> process{0};  // the one that was told of its birth; 0: nothing to tell yet

struct Registry {
    std::mutex mutex;
    std::vector<Progress*> progresses;
    std::vector<void (*)()> in_child;
    std::vector<std::shared_ptr<void>> left;
};

Registry& registry() {
    static Registry& r = *new Registry;  // used until the very end of the process
    return r;
}

void before() {
    registry().mutex.lock();
    for (Progress* p : registry().progresses) p->begin_fork();
    log_begin_fork();  // last: drivers write lines
}

void in_parent() {
    log_end_fork();
    for (Progress* p : registry().progresses) p->end_fork();
    registry().mutex.unlock();
}

void in_child() {
    log_end_fork();
    StatsEntry::forget_lock();
    forget_descriptor_changes();
    process.store(getpid(), std::memory_order_relaxed);
    forks.fetch_add(1, std::memory_order_seq_cst);
    for (Progress* p : registry().progresses) p->abandon();
    registry().progresses.clear();
    registry().mutex.unlock();
    for (void (*handler)() : registry().in_child) handler();
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

bool forked_unannounced() noexcept {
    const pid_t known = process.load(std::memory_order_relaxed);
    if (known == 0 || known == getpid()) return false;
    // Locks may be held by threads that are not here, and lists half changed: all is left behind,
    // descriptors included, for the little time that such a child usually has.
    process.store(getpid(), std::memory_order_relaxed);
    forks.fetch_add(1, std::memory_order_seq_cst);
    log_forget_lock();
    StatsEntry::forget_lock();
    forget_descriptor_changes();
    new (&registry().mutex) std::mutex;
    new (&registry().progresses) std::vector<Progress*>;
    for (void (*handler)() : registry().in_child) handler();
    return true;
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

void leave_behind(std::shared_ptr<void> object) {
    const std::lock_guard lock(registry().mutex);
    registry().left.push_back(std::move(object));
}

void call_in_child(void (*handler)()) {
    watch();
    const std::lock_guard lock(registry().mutex);
    registry().in_child.push_back(handler);
}

}  // namespace xsock
