// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/readiness/sleeper.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "libxsock/readiness/membership.hpp"
#include "transport/descriptors.hpp"

namespace xsock::readiness {
namespace {

constexpr std::size_t kIdleSleepers = 16;

}  // namespace

Sleeper::~Sleeper() {
    if (event_.fd >= 0) close_owned(event_.fd);
}

void EventFd::write() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);  // cannot be full
}

void EventFd::read() noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd, &count, sizeof count);
}

SleeperPool& SleeperPool::instance() noexcept {
    static SleeperPool& pool = *new SleeperPool;  // threads may sleep until the process ends
    return pool;
}

Result<SleeperPool::Lease> SleeperPool::lend() {
    watch_forks();  // an eventfd of the parent's is not to be rung, or read, by its child
    {
        const std::lock_guard hold(mutex_);
        if (!idle_.empty()) {
            Lease lease(idle_.back().release());
            idle_.pop_back();
            return lease;
        }
    }
    auto made = std::make_unique<Sleeper>();
    made->event_.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->event_.fd < 0) return Error{errno, "eventfd failed"};
    own_descriptor(made->event_.fd);
    return Lease(made.release());
}

void SleeperPool::Return::operator()(Sleeper* sleeper) const noexcept {
    std::unique_ptr<Sleeper> owned(sleeper);
    // Lent before a fork in a signal handler: the parent's thread sleeps on the same eventfd.
    if (owned->generation_ != generation()) return;
    if (owned->rung()) owned->clear();
    SleeperPool& pool = instance();
    const std::lock_guard hold(pool.mutex_);
    if (pool.idle_.size() >= kIdleSleepers) return;
    try {
        pool.idle_.push_back(std::move(owned));
    } catch (...) {
        owned.reset();
    }
}

void SleeperPool::forget_after_fork() noexcept { idle_.clear(); }

void SleeperPool::forget_all() noexcept {
    new (&mutex_) std::mutex;
    new (&idle_) std::vector<std::unique_ptr<Sleeper>>;
}

}  // namespace xsock::readiness
