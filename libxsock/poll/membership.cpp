// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/membership.hpp"

#include <new>

#include "base/permanent.hpp"
#include "libxsock/poll/waiter.hpp"
#include "transport/fork.hpp"

namespace xsock::readiness {

namespace {
constinit Permanent<std::mutex> the_lock;
}  // namespace

std::mutex& epoll_membership_lock() noexcept { return the_lock.value; }

void watch_forks() {
    static std::once_flag once;
    std::call_once(once, [] {
        WaiterPool::instance();
        // The child of a program with threads must find the lists whole and the locks free.
        ForkHandlers handlers;
        handlers.before = [] {
            epoll_membership_lock().lock();
            WaiterPool::instance().lock();
        };
        handlers.in_parent = [] {
            WaiterPool::instance().unlock();
            epoll_membership_lock().unlock();
        };
        handlers.in_child = [] {
            WaiterPool::instance().forget_after_fork();
            WaiterPool::instance().unlock();
            epoll_membership_lock().unlock();
        };
        handlers.in_unannounced_child = [] {
            new (&epoll_membership_lock()) std::mutex;
            WaiterPool::instance().forget_all();
        };
        add_fork_handlers(handlers);
    });
}

}  // namespace xsock::readiness
