// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/soft_cq.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "transport/clock.hpp"
#include "transport/connection.hpp"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

// A poller that always finds something must still move the bytes now and then.
constexpr std::uint32_t kPollsWithoutProgress = 16;

void add_to_epoll(int epoll_fd, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

void CqCore::add_source(Progress& progress) {
    const std::lock_guard lock(mutex_);
    if (std::find(sources_.begin(), sources_.end(), &progress) != sources_.end()) return;
    sources_.push_back(&progress);
    count_.store(sources_.size(), std::memory_order_seq_cst);
    home_.wake_waiters();  // its waiters must watch the new one too
}

SoftCq::~SoftCq() {
    core_->queue.set_notifier(nullptr, nullptr);
    if (fd_ >= 0) close_internal_fd(fd_);
}

// Takes, and keeps the descriptor's promise: readable while completions wait.
std::size_t SoftCq::take_waiting(std::span<Wc> out, std::size_t at_least) {
    const std::size_t n = core_->queue.take(out, at_least);
    if (fd_.load(std::memory_order_acquire) >= 0 && core_->queue.size() == 0) {
        if (core_->waiting.take()) {
            core_->queue.arm(false);
            // What was pushed between the check and the arming has not notified a waiter.
            if (core_->queue.size() != 0) core_->waiting.notify();
        }
    }
    return n;
}

std::size_t SoftCq::poll(std::span<Wc> out) {
    std::size_t n = 0;
    if (core_->queue.size() != 0) {
        n = take_waiting(out);
        if (core_->channel != nullptr) found_nothing_.store(false, std::memory_order_relaxed);
        if (n == out.size() ||
            (n > 0 && polls_without_progress_.fetch_add(1, std::memory_order_relaxed) <
                          kPollsWithoutProgress)) {
            return n;
        }
    }
    polls_without_progress_.store(0, std::memory_order_relaxed);
    if (n == 0 && channel_will_tell()) return 0;
    core_->each_source([](Progress& p) { p.poll(); });
    if (core_->queue.size() != 0) n += take_waiting(out.subspan(n));
    if (core_->channel == nullptr) return n;
    found_nothing_.store(n == 0, std::memory_order_relaxed);
    if (n == 0 && core_->queue.armed()) {
        core_->queue.note_empty_poll();
        // The program is about to sleep where only a thread of ours can wake it.
        if (core_->queue.awaited() && !core_->channel->watched()) {
            core_->each_source([](Progress& p) { p.note_idle(); });
        }
    }
    return n;
}

// The last poll before a program sleeps on its channel finds the queue empty. What has come since
// the one before makes the channel readable, so that this poll need not ask the kernel for it;
// another one right behind it does.
bool SoftCq::channel_will_tell() noexcept {
    return core_->channel != nullptr && core_->channel->watched() && core_->queue.awaited() &&
           !core_->many_sources() && !core_->home().work_waiting() &&
           !core_->home().has_idle_calls() &&
           !found_nothing_.exchange(true, std::memory_order_relaxed);
}

void SoftCq::arm(bool solicited_only) {
    core_->queue.arm(solicited_only);
    if (core_->channel == nullptr || !core_->channel->watched()) return;
    core_->each_source([](Progress& p) { p.prepare_channel_sleep(); });
}

std::size_t SoftCq::take(std::span<Wc> out, std::size_t at_least) {
    if (core_->queue.size() >= at_least &&
        polls_without_progress_.fetch_add(1, std::memory_order_relaxed) >= kPollsWithoutProgress) {
        polls_without_progress_.store(0, std::memory_order_relaxed);
        core_->each_source([](Progress& p) { p.poll(); });
    }
    return take_waiting(out, at_least);
}

std::size_t SoftCq::groups(std::span<PollGroup*> out) {
    std::size_t n = 0;
    core_->each_source([&](Progress& p) {
        if (n < out.size()) out[n++] = &p;
    });
    return n;
}

std::function<bool()> SoftCq::enough(std::size_t at_least) {
    polls_without_progress_.store(0, std::memory_order_relaxed);  // the wait begins with one
    // Two words, which a std::function takes without memory of its own.
    return [core = core_.get(), at_least = static_cast<std::uint32_t>(at_least),
            sources = static_cast<std::uint32_t>(core_->sources())] {
        return core->queue.size() >= at_least || core->sources() != sources;
    };
}

bool SoftCq::wait_until(const std::function<bool()>& done, Time deadline) {
    if (!core_->many_sources()) return core_->home().wait(done, deadline);
    for (;;) {
        core_->each_source([](Progress& p) { p.poll(); });
        if (done()) return true;
        const Time now = monotonic_now();
        if (now >= deadline) return false;
        core_->home().wait(done, std::min(deadline, time_after(now, kMillisecond)));
    }
}

// (A thread that watches already would take the cycles of this caller for those of one that goes
// on, and leave it the first message.)
void SoftCq::hand_over() {
    core_->each_source([](Progress& p) {
        p.note_idle();
        p.hand_over();
    });
}

Result<int> SoftCq::fd() {
    const std::lock_guard lock(fd_mutex_);
    if (fd_ >= 0) return fd_.load();
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) return Error{errno, "epoll_create1 failed"};
    // Set: completions may be waiting already.
    if (auto opened = core_->waiting.open(EventFd::Kind::flag, 1); !opened) {
        close(epoll_fd);
        return opened.error();
    }
    register_internal_fd(epoll_fd);
    add_to_epoll(epoll_fd, core_->waiting.fd());
    core_->each_source([epoll_fd](Progress& p) {
        if (const int fd = p.embed(); fd >= 0) add_to_epoll(epoll_fd, fd);
    });
    core_->queue.set_notifier(
        [](void* argument) { static_cast<CqCore*>(argument)->waiting.notify(); }, core_.get());
    fd_.store(epoll_fd, std::memory_order_release);
    return epoll_fd;
}

void SrqCore::add_rnr_waiter(std::weak_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    if (rnr_waiters_.size() >= prune_at_) {
        // Peers that come, ask for more than there is, and go must not pile up.
        std::erase_if(rnr_waiters_, [](const auto& weak) { return weak.expired(); });
        prune_at_ = std::max(kPruneAtLeast, 2 * rnr_waiters_.size());
    }
    rnr_waiters_.push_back(std::move(connection));
}

std::vector<std::weak_ptr<Connection>> SrqCore::take_rnr_waiters() {
    const std::lock_guard lock(mutex_);
    return std::exchange(rnr_waiters_, {});
}

Result<void> SoftSrq::post_recv(const RecvWr& wr) {
    auto posted = core_->queue->post(wr);
    if (!posted) return posted.error();
    if (*posted) {
        for (const auto& weak : core_->take_rnr_waiters()) {
            if (const auto connection = weak.lock()) connection->receive_posted();
        }
    }
    return {};
}

}  // namespace xsock
