// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/sleep.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"

namespace xsock::api {
namespace {

/// The longest nap where no descriptor is left to be woken by.
constexpr Time kNap = kMillisecond;

/// What a thread is for each group while it sleeps: the leader, or one that the leader wakes.
class Roles {
  public:
    Roles(std::span<PollGroup* const> groups, std::function<bool()> done)
        : done_(std::move(done)), count_(std::min<std::size_t>(groups.size(), XSOCK_MAX_THREADS)) {
        for (std::size_t i = 0; i < count_; ++i) roles_[i].group = groups[i];
    }

    /// False: what is waited for is there, or a poll cycle is owed.
    [[nodiscard]] bool take(xsock_sleep& sleep, Time deadline) {
        sleep.count = 0;
        bool work = false;
        for (Role& role : std::span(roles_).first(count_)) {
            role.leads = role.group->lead();
            if (role.leads) {
                for (const int fd : role.group->lead_fds()) add(sleep, fd);
                work |= role.group->work_waiting();
            } else {
                role.waiter = role.group->begin_wait(done_);
                add(sleep, role.waiter);
                if (role.waiter < 0)
                    deadline = std::min(deadline, time_after(monotonic_now(), kNap));
            }
        }
        // What completed before this line is seen here; what completes later notifies.
        if (work || done_()) return false;
        sleep.timeout_ms = milliseconds_until(deadline);
        return true;
    }

    /// True: something moved while this thread led.
    bool leave(const xsock_sleep& sleep) {
        const pollfd* slept = sleep.fds;
        bool moved = false;
        for (const Role& role : std::span(roles_).first(count_)) {
            if (role.leads) {
                moved |= role.group->end_lead(slept[1].revents != 0);
                slept += 2;
            } else {
                role.group->end_wait(role.waiter);
                slept += 1;
            }
        }
        return moved;
    }

    /// A peer that reads and writes our memory goes on while this call sees nothing of it.
    void leave_and_spin(const xsock_sleep& sleep) {
        if (leave(sleep) && count_ == 1 && !done_()) roles_[0].group->spin(done_, sleep.deadline);
    }

    [[nodiscard]] bool done() const { return done_(); }

  private:
    struct Role {
        PollGroup* group;
        int waiter;  // begin_wait()
        bool leads;
    };
    static void add(xsock_sleep& sleep, int fd) noexcept {
        sleep.fds[sleep.count++] = {fd, POLLIN, 0};
    }

    const std::function<bool()> done_;
    const std::size_t count_;
    std::array<Role, XSOCK_MAX_THREADS> roles_;
};
static_assert(sizeof(Roles) <= sizeof(xsock_sleep::state));

Roles& roles_of(xsock_sleep& sleep) noexcept {
    return *std::launder(reinterpret_cast<Roles*>(sleep.state));
}

}  // namespace

bool may_wait(const xsock_sleep& sleep) noexcept {
    return sleep.generation == process_generation() &&
           (sleep.deadline == kNever || monotonic_now() < sleep.deadline);
}

bool wait_outside(xsock_sleep& sleep, std::span<PollGroup* const> groups,
                  std::function<bool()> done, int timeout_ms) {
    if (sleep.asleep == 0) {
        if (sleep.begun == 0) {
            sleep.begun = 1;
            sleep.deadline = deadline_of(timeout_ms);
            sleep.generation = process_generation();
        }
        // (several: their threads poll while this one sleeps)
        const bool alone = groups.size() == 1;
        const bool first = alone && sleep.deadline != 0 && groups[0]->yields_first();
        if (first && groups[0]->yield(done)) return true;
        for (PollGroup* const group : groups) group->poll();
        if (done() || !may_wait(sleep)) return true;
        if (alone && groups[0]->spin(done, sleep.deadline)) return true;
        if (alone && !first && groups[0]->yield(done)) return true;
        new (sleep.state) Roles(groups, std::move(done));
        sleep.asleep = 1;
    } else {
        roles_of(sleep).leave_and_spin(sleep);
    }
    Roles& roles = roles_of(sleep);
    while (!roles.done() && may_wait(sleep)) {
        if (roles.take(sleep, sleep.deadline)) return false;
        roles.leave(sleep);
    }
    roles.~Roles();
    sleep.asleep = 0;
    return true;
}

void sleep_end(xsock_sleep* sleep) noexcept {
    roles_of(*sleep).leave(*sleep);
    roles_of(*sleep).~Roles();
}

}  // namespace xsock::api
