// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queue and shared receive queue of the software device: the objects of base/ joined
// with the Progresses that feed them.
#pragma once

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/completion_queue.hpp"
#include "base/device.hpp"
#include "base/recv_queue.hpp"
#include "transport/event_fd.hpp"
#include "transport/progress.hpp"
#include "transport/soft_channel.hpp"

namespace xsock {

class Connection;

/// What outlives the Cq object: connections that still drain keep pushing into it.
class CqCore final : public CompletionTarget {
  public:
    CqCore(Progress& home, std::uint32_t depth, bool strict,
           std::shared_ptr<SoftChannel> of = nullptr)
        : queue(depth, strict), channel(std::move(of)), home_(home), sources_{&home} {}

    CompletionQueue queue;
    const std::shared_ptr<SoftChannel> channel;  ///< may be null
    /// Behind SoftCq::fd(), where it is opened; here because a poller may be about to notify it
    /// when the SoftCq goes.
    EventFd waiting;

    void push(const Wc& wc) override { queue.push(wc); }
    /// A connection of `progress` will push here.
    void add_source(Progress& progress);
    [[nodiscard]] Progress& home() const noexcept { return home_; }

    template <typename F>
    void each_source(F&& f) {
        if (count_.load(std::memory_order_acquire) == 1) {
            f(home_);
            return;
        }
        std::vector<Progress*> copy;
        {
            const std::lock_guard lock(mutex_);
            copy = sources_;
        }
        for (Progress* p : copy) f(*p);
    }
    [[nodiscard]] bool many_sources() const noexcept { return sources() > 1; }
    /// How many there are; only grows.
    [[nodiscard]] std::size_t sources() const noexcept {
        return count_.load(std::memory_order_seq_cst);
    }

  private:
    Progress& home_;
    std::mutex mutex_;
    std::vector<Progress*> sources_;
    std::atomic<std::size_t> count_{1};
};

class SoftCq final : public Cq {
  public:
    SoftCq(Progress& home, std::uint32_t depth, bool strict, std::shared_ptr<SoftChannel> channel)
        : core_(std::make_shared<CqCore>(home, depth, strict, std::move(channel))) {}
    ~SoftCq() override;

    std::size_t poll(std::span<Wc> out) override;
    std::size_t take(std::span<Wc> out, std::size_t at_least) override;
    std::size_t groups(std::span<PollGroup*> out) override;
    std::function<bool()> enough(std::size_t at_least) override;
    Result<int> fd() override;
    void set_notifier(Notifier notifier, void* argument) override {
        core_->queue.set_notifier(notifier, argument);
    }
    void arm(bool solicited_only) override;
    bool disarm() override { return core_->queue.disarm(); }
    Result<void> resize(std::uint32_t depth, std::uint32_t wanted) override {
        if (!core_->queue.resize(depth, wanted))
            return Error{EINVAL, "more completions wait than that"};
        return {};
    }
    bool overrun() const override { return core_->queue.overrun(); }
    void push(const Wc& wc) override { core_->queue.push(wc); }
    std::size_t purge(std::uint32_t qp_num) override { return core_->queue.purge(qp_num); }
    bool holds(std::uint32_t qp_num) const override { return core_->queue.holds(qp_num); }
    bool wait_until(const std::function<bool()>& done, Time deadline) override;
    void hand_over() override;
    std::shared_ptr<CompletionTarget> target(PollGroup& group) override {
        core_->add_source(static_cast<Progress&>(group));
        return core_;
    }

    [[nodiscard]] const std::shared_ptr<CqCore>& core() const noexcept { return core_; }

  private:
    std::size_t take_waiting(std::span<Wc> out, std::size_t at_least = 0);
    [[nodiscard]] bool channel_will_tell() noexcept;

    std::shared_ptr<CqCore> core_;
    std::atomic<std::uint32_t> polls_without_progress_{0};
    std::atomic<bool> found_nothing_{false};  // at the last poll
    // fd(): an epoll descriptor over those of the sources and an eventfd that says "completions are
    // waiting".
    std::mutex fd_mutex_;
    std::atomic<int> fd_{-1};
};

/// Receives that many connections share, and those connections that wait for one.
class SrqCore {
  public:
    /// `on_limit`: called in a poller when the limit is reached, at most once for each arming.
    SrqCore(std::uint32_t depth, std::function<void()> on_limit)
        : queue(std::make_shared<RecvQueue>(depth)), on_limit_(std::move(on_limit)) {
        if (on_limit_) {
            queue->set_limit_notifier([](void* core) { static_cast<SrqCore*>(core)->on_limit_(); },
                                      this);
        }
    }

    const std::shared_ptr<RecvQueue> queue;

    /// The poller of a connection that found the queue empty. It must check once more afterwards.
    void add_rnr_waiter(std::weak_ptr<Connection> connection);
    /// The connections that wait for a receive, for the thread that posted some.
    [[nodiscard]] std::vector<std::weak_ptr<Connection>> take_rnr_waiters();

  private:
    const std::function<void()> on_limit_;
    std::mutex mutex_;
    std::vector<std::weak_ptr<Connection>> rnr_waiters_;
    static constexpr std::size_t kPruneAtLeast = 64;
    std::size_t prune_at_ = kPruneAtLeast;
};

class SoftSrq final : public Srq {
  public:
    SoftSrq(std::uint32_t depth, std::function<void()> on_limit)
        : core_(std::make_shared<SrqCore>(depth, std::move(on_limit))) {}
    Result<void> post_recv(const RecvWr& wr) override;
    bool take(RecvWqe& out) override { return core_->queue->take(out); }
    void arm_limit(std::uint32_t limit) override { core_->queue->arm_limit(limit); }
    std::uint32_t size() const override { return core_->queue->size(); }
    [[nodiscard]] const std::shared_ptr<SrqCore>& core() const noexcept { return core_; }

  private:
    std::shared_ptr<SrqCore> core_;
};

}  // namespace xsock
