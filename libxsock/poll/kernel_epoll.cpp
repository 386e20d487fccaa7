// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/kernel_epoll.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/once.hpp"
#include "base/random.hpp"
#include "transport/descriptors.hpp"
#include "transport/event_fd.hpp"
#include "transport/log.hpp"

namespace xsock::readiness {
namespace {

// When the kernel's answer was filled by what is not shown, it is asked again.
constexpr int kKernelRounds = 4;

// What the kernel tells of our own descriptors in a program's set, never shown to the program. A
// random number, since any number may be one of the program's.
std::uint64_t hidden_data() noexcept {
    static constinit Once<std::uint64_t> number;
    return number.get([] { return std::uint64_t{random_u32()} << 32 | random_u32(); });
}

epoll_event internal_event(std::uint32_t events) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.u64 = hidden_data();
    return event;
}

}  // namespace

KernelEpoll::~KernelEpoll() { close_internal_fd(epfd_); }

int KernelEpoll::add(int fd, const epoll_event& event) noexcept {
    epoll_event copy = event;
    if (epoll_ctl(epfd_, EPOLL_CTL_ADD, fd, &copy) != 0) return -errno;
    ++members_;
    return 0;
}

int KernelEpoll::modify(int fd, const epoll_event& event) noexcept {
    epoll_event copy = event;
    return epoll_ctl(epfd_, EPOLL_CTL_MOD, fd, &copy) == 0 ? 0 : -errno;
}

int KernelEpoll::remove(int fd) noexcept {
    epoll_event event{};
    if (epoll_ctl(epfd_, EPOLL_CTL_DEL, fd, &event) != 0) return -errno;
    if (members_ > 0) --members_;
    return 0;
}

int KernelEpoll::probe(int fd) noexcept {
    epoll_event event = internal_event(EPOLLET | EPOLLONESHOT);
    if (epoll_ctl(epfd_, EPOLL_CTL_ADD, fd, &event) != 0) return -errno;
    epoll_ctl(epfd_, EPOLL_CTL_DEL, fd, &event);
    return 0;
}

int KernelEpoll::add_internal(int fd) noexcept { return add(fd, internal_event(EPOLLIN)); }

std::vector<Registration> KernelEpoll::registrations(int fd) {
    members_ = count_registered(epfd_).value_or(members_);
    std::vector<Registration> all = registrations_of(fd, epfd_);
    std::erase_if(all, [](const Registration& r) { return r.event.data.u64 == hidden_data(); });
    return all;
}

int KernelEpoll::collect(epoll_event* out, int room) noexcept {
    int found = 0;
    for (int round = 0; round < kKernelRounds; ++round) {
        const int asked = room - found;
        const int n = epoll_wait(epfd_, out + found, asked, 0);
        if (n < 0) return found > 0 || errno == EINTR ? found : -errno;
        const int shown = filter_internal(out + found, n);
        found += shown;
        if (shown > 0 || n < asked) break;
    }
    return found;
}

int KernelEpoll::filter_internal(epoll_event* events, int count) noexcept {
    const std::uint64_t hidden = hidden_data();
    epoll_event* const end = std::remove_if(
        events, events + count, [&](const epoll_event& e) { return e.data.u64 == hidden; });
    return static_cast<int>(end - events);
}

// Level-triggered, so that none is left out; the kernel wakes one after the other. What comes new
// is in our wait already. A thread that has checked for a handle, but not entered the kernel yet,
// is not seen; it sleeps until something plain happens, or its time limit.
void KernelEpoll::wake_waiters() {
    constexpr int kChecks = 2000;  // one that runs on in the program is not waited for any longer
    constexpr unsigned kPauseUs = 500;
    EventFd always;
    // Nothing is asked of it yet: it only marks the instance.
    epoll_event event = internal_event(0);
    if (!always.open(EventFd::Kind::flag, 1) ||
        epoll_ctl(epfd_, EPOLL_CTL_ADD, always.fd(), &event) != 0) {
        log(LogLevel::warn, "epoll-wake", "threads asleep in an epoll set cannot be woken: %s",
            std::strerror(errno));
        return;
    }
    try {
        KernelWaiters waiters(always.fd());
        if (waiters.check()) {
            event.events = EPOLLIN;
            epoll_ctl(epfd_, EPOLL_CTL_MOD, always.fd(), &event);
            for (int checks = 0; checks < kChecks && waiters.check(); ++checks) usleep(kPauseUs);
        }
    } catch (...) {
        log(LogLevel::error, "no-memory", "threads asleep in an epoll set cannot be woken");
    }
    epoll_ctl(epfd_, EPOLL_CTL_DEL, always.fd(), &event);
}

}  // namespace xsock::readiness
