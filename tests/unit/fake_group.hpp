// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A PollGroup of which nothing comes but what the test says.
#pragma once

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/poll_group.hpp"
#include "transport/pollable.hpp"

namespace xsock::test {

class FakeGroup : public PollGroup {
  public:
    using Done = std::function<bool()>;
    // Each is called once.
    std::function<Waited(const Done&)> on_wait;
    std::function<void()> after_locked;

    void poll() override {}
    void try_poll_thoroughly() override {}
    Waited wait_interruptibly(const Done& done, Time, bool) override {
        const auto now = std::exchange(on_wait, {});
        return now ? now(done) : Waited::timeout;
    }
    void wake_waiters() noexcept override {}
    void ensure_thread() noexcept override {}
    bool lead() override { return false; }
    std::array<int, 2> lead_fds() const noexcept override { return {-1, -1}; }
    bool end_lead(bool) override { return false; }
    void follow(Follower&) override {}
    void unfollow(Follower&) override {}
    int begin_wait(const Done&) override { return -1; }
    void end_wait(int) override {}
    bool spin(const Done& done, Time) override { return done(); }
    Time spin_budget() noexcept override { return 0; }
    void count_spin(bool) noexcept override {}
    bool yield(const Done&) override { return false; }
    bool yields_first() const noexcept override { return false; }
    bool work_waiting() const noexcept override { return false; }
    int embed() override { return -1; }
    Result<std::shared_ptr<DescriptorWatch>> watch(std::shared_ptr<DescriptorWatcher>, int,
                                                   std::uint32_t) override {
        return Error{ENOSYS, "a fake"};
    }

  protected:
    void run_locked(void (*f)(void*, PollCycle&), void* argument) override {
        {
            const std::lock_guard hold(lock_);
            PollCycle cycle({}, reader_);
            f(argument, cycle);
        }
        if (const auto now = std::exchange(after_locked, {})) now();
    }

  private:
    std::mutex lock_;
    Epochs epochs_;
    Epochs::Reader reader_{epochs_};
};

}  // namespace xsock::test
