// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/readiness/membership.hpp"

#include <pthread.h>

#include <atomic>
#include <new>

#include "libxsock/readiness/sleeper.hpp"

namespace xsock::readiness {
namespace {

std::atomic<std::uint32_t> forks{0};

}  // namespace

std::mutex& membership() noexcept {
    static std::mutex& mutex = *new std::mutex;  // used until the very end of the process
    return mutex;
}

std::uint32_t generation() noexcept { return forks.load(std::memory_order_relaxed); }

void forked_unannounced() noexcept {
    forks.fetch_add(1, std::memory_order_relaxed);
    new (&membership()) std::mutex;
    SleeperPool::instance().forget_all();
}

void watch_forks() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        membership();
        // The child of a program with threads must find the lists whole and the locks free.
        pthread_atfork(
            [] {
                membership().lock();
                SleeperPool::instance().lock();
            },
            [] {
                SleeperPool::instance().unlock();
                membership().unlock();
            },
            [] {
                forks.fetch_add(1, std::memory_order_relaxed);
                SleeperPool::instance().forget_after_fork();
                SleeperPool::instance().unlock();
                membership().unlock();
            });
    });
}

}  // namespace xsock::readiness
