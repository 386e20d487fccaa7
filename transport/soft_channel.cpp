// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/soft_channel.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>

#include "transport/descriptors.hpp"
#include "transport/progress.hpp"

namespace xsock {

Result<std::shared_ptr<SoftChannel>> SoftChannel::create() {
    const DescriptorChange change;
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return Error{errno, "epoll_create1 failed"};
    register_internal_fd(fd);
    std::unique_ptr<SoftChannel> made(new (std::nothrow) SoftChannel(fd));
    if (made == nullptr) {
        close_internal_fd(fd);
        return Error{ENOMEM, "no memory for a completion channel"};
    }
    return std::shared_ptr<SoftChannel>(std::move(made));
}

SoftChannel::~SoftChannel() { close_internal_fd(epoll_fd_); }

void SoftChannel::poll() {
    if (!several_.load(std::memory_order_acquire)) {
        if (Progress* const only = only_.load(std::memory_order_acquire)) {
            only->poll_channel(*this);
        }
        return;
    }
    // The events of a member are followed under the lock of its own Progress only.
    for (Progress* const progress : progresses()) progress->poll_thoroughly();
    forget_events();
}

void SoftChannel::prepare_sleep() {
    if (!several_.load(std::memory_order_acquire)) {
        if (Progress* const only = only_.load(std::memory_order_acquire)) {
            only->prepare_channel_sleep();
        }
        return;
    }
    for (Progress* const progress : progresses()) progress->prepare_channel_sleep();
}

std::vector<Progress*> SoftChannel::progresses() {
    const std::lock_guard lock(mutex_);
    return progresses_;
}

// A hang-up that cannot be masked (EPOLLET) makes the set readable until it is fetched.
void SoftChannel::forget_events() const noexcept {
    std::array<epoll_event, 64> events;
    epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), 0);
}

Result<void> SoftChannel::add(Progress& progress, Pollable& item, int fd, std::uint32_t events) {
    {
        const std::lock_guard lock(mutex_);
        if (std::find(progresses_.begin(), progresses_.end(), &progress) == progresses_.end()) {
            progresses_.push_back(&progress);
            if (progresses_.size() == 1) only_.store(&progress, std::memory_order_release);
            if (progresses_.size() > 1) several_.store(true, std::memory_order_release);
        }
    }
    epoll_event event{};
    event.events = events;
    event.data.ptr = &item;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
        return Error{errno, "the channel cannot watch the connection"};
    }
    if (!several_.load(std::memory_order_relaxed)) {
        single_member_ = members_++ == 0 ? &item : nullptr;
    }
    return {};
}

void SoftChannel::modify(Pollable& item, int fd, std::uint32_t before,
                         std::uint32_t events) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &item;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event);
    // A program may have found the set readable for what is asked no more.
    if ((before & ~events) != 0) count_arrival();
}

void SoftChannel::remove(int fd) noexcept {
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr) != 0) return;  // it could not be added
    count_arrival();
    if (several_.load(std::memory_order_relaxed)) return;
    --members_;
    single_member_ = nullptr;
}

}  // namespace xsock
