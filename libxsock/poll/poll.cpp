// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// poll() over plain descriptors, DDPMODE sockets and epoll sets.
#include "libxsock/poll/poll.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "libxsock/poll/epoll_set.hpp"

namespace xsock::readiness {
namespace {

constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;

#define SAME(poll_bit, epoll_bit) static_assert((poll_bit) == static_cast<int>(epoll_bit))
SAME(POLLIN, EPOLLIN);
SAME(POLLPRI, EPOLLPRI);
SAME(POLLOUT, EPOLLOUT);
SAME(POLLERR, EPOLLERR);
SAME(POLLHUP, EPOLLHUP);
SAME(POLLRDHUP, EPOLLRDHUP);
SAME(POLLRDNORM, EPOLLRDNORM);
SAME(POLLWRNORM, EPOLLWRNORM);
#undef SAME

std::uint32_t wanted_of(const pollfd& entry) noexcept {
    return static_cast<std::uint16_t>(entry.events) | kAlways;
}

}  // namespace

PollTarget::PollTarget(std::span<pollfd> entries, std::span<const Handle> handles,
                       std::span<const short> counting)
    : entries_(entries),
      handles_(handles),
      counting_(counting),
      fds_(entries.size() + kExtraFds),
      at_(entries.size()) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        entries_[i].revents = 0;
        if (entries_[i].fd < 0) continue;
        if (Source* const source = handles_[i].source()) {
            ++sources_;
            source->begin_watch(entries_[i].fd);
        }
    }
    choose_kernel();
}

PollTarget::~PollTarget() {
    for (std::size_t i = 0; i < watch_count_; ++i) {
        watches_[i].source->remove_watcher(watches_[i]);
    }
}

// Which entries the kernel answers for, and what moves the bytes of the others. A socket may become
// kernel-ready, or cease to be, at any time.
void PollTarget::choose_kernel() {
    kernel_count_ = 0;
    progress_count_ = 0;
    kernel_ready_count_ = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].fd < 0) continue;
        Source* const source = handles_[i].source();
        bool kernel = source == nullptr;
        if (source != nullptr && handles_[i].set() == nullptr) {
            kernel = source->kernel_ready();
            if (kernel) {
                ++kernel_ready_count_;
            } else {
                add_progress(source->progress());
            }
        } else if (EpollSet* const set = handles_[i].set()) {
            kernel = true;  // for its plain members
            for (PollGroup* progress : set->progresses()) add_progress(progress);
        }
        if (!kernel) continue;
        fds_[kernel_count_] = {entries_[i].fd, entries_[i].events, 0};
        at_[kernel_count_++] = i;
    }
}

void PollTarget::add_progress(PollGroup* progress) {
    if (progress == nullptr) return;
    const auto end = progresses_.begin() + static_cast<std::ptrdiff_t>(progress_count_);
    if (std::find(progresses_.begin(), end, progress) != end) return;
    if (progress_count_ < progresses_.size()) progresses_[progress_count_++] = progress;
}

int PollTarget::check(Kernel kernel) {
    std::size_t kernel_ready_count = 0;
    if (sources_ != 0) {
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            Source* const source = entries_[i].fd >= 0 ? handles_[i].source() : nullptr;
            if (source == nullptr || handles_[i].set() != nullptr) continue;
            kernel_ready_count += source->kernel_ready() ? 1 : 0;
        }
    }
    if (kernel_ready_count != kernel_ready_count_) {
        choose_kernel();
        kernel = Kernel::ask;
    }
    if (kernel == Kernel::ask && kernel_count_ != 0 &&
        ::poll(fds_.data(), static_cast<nfds_t>(kernel_count_), 0) < 0 && errno != EINTR) {
        return -errno;
    }

    int found = 0;
    for (std::size_t i = 0; sources_ != 0 && i < entries_.size(); ++i) {
        pollfd& entry = entries_[i];
        Source* const source = entry.fd >= 0 ? handles_[i].source() : nullptr;
        if (source == nullptr || (handles_[i].set() == nullptr && source->kernel_ready())) continue;
        entry.revents = static_cast<short>(source->events() & wanted_of(entry)) & counting(i);
        if (entry.revents != 0) ++found;
    }
    if (kernel == Kernel::skip) return found;
    for (std::size_t k = 0; k < kernel_count_; ++k) {
        pollfd& entry = entries_[at_[k]];
        const bool counted = handles_[at_[k]].set() != nullptr && entry.revents != 0;
        if (!counted) entry.revents = 0;
        const short revents = fds_[k].revents & counting(at_[k]);
        // It would end every sleep, and no caller asks for it.
        if (fds_[k].revents != 0 && revents == 0) fds_[k].fd = -1;
        entry.revents = static_cast<short>(entry.revents | revents);
        if (entry.revents != 0 && !counted) ++found;
    }
    return found;
}

void PollTarget::prepare_wait(Waiter& waiter) {
    // A call has one waiter: it is set before the first watcher can read it, and stays.
    if (watches_ == nullptr) waiter_ = &waiter;
    wake_flag_.begin_sleep();
    if (watches_ != nullptr || sources_ == 0) return;
    watches_ = std::make_unique<Watch[]>(sources_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        Source* const source = entries_[i].fd >= 0 ? handles_[i].source() : nullptr;
        if (source == nullptr) continue;
        Watch& watch = watches_[watch_count_++];
        watch.target = this;
        watch.source = source;
        watch.wanted = wanted_of(entries_[i]);
        source->add_watcher(watch);
    }
}

void PollTarget::finish_wait(Waiter&) { wake_flag_.end_sleep(); }

bool PollTarget::Watch::on_wake(std::uint32_t events) noexcept {
    if ((events & wanted) == 0) return false;
    if (target->wake_flag_.should_notify()) target->waiter_->notify();
    return true;
}

void PollTarget::Watch::on_mode_changed() noexcept {
    if (target->wake_flag_.should_notify()) target->waiter_->notify();
}

// The caller of poll() holds a reference, so this is a close() of a forked child's parent object at
// most: nothing of ours is in the list then.
void PollTarget::Watch::on_retired() noexcept { source->remove_watcher(*this); }

}  // namespace xsock::readiness
