// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A descriptor that an API watches (PollGroup::watch()), as an item of a Progress.
#pragma once

#include <memory>
#include <utility>

#include "transport/progress.hpp"

namespace xsock {

class WatchItem final : public Pollable, public DescriptorWatch {
  public:
    WatchItem(Progress& progress, std::shared_ptr<DescriptorWatcher> watcher)
        : progress_(progress), watcher_(std::move(watcher)) {}

    void set_deadline(Time deadline) override { progress_.set_deadline(*this, deadline); }
    void end() override { progress_.remove(*this); }

    void on_ready(std::uint32_t, PollCycle& cycle) override { watcher_->on_ready(cycle); }
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle& cycle) override { watcher_->on_time(cycle); }
    void on_failure(PollCycle& cycle) noexcept override { watcher_->on_failure(cycle); }
    void on_exit(PollCycle& cycle) override { watcher_->on_exit(cycle); }
    bool draining() const override { return watcher_->is_owing(exit_limit_); }
    bool unsent() const override { return draining(); }
    Time exit_limit() const override { return exit_limit_; }

  private:
    Progress& progress_;
    const std::shared_ptr<DescriptorWatcher> watcher_;
    mutable Time exit_limit_ = 0;
};

}  // namespace xsock
