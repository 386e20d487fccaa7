// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/readiness/wait.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "transport/interrupt.hpp"
#include "transport/log.hpp"

namespace xsock::readiness {
namespace {

// While it spins, it asks the kernel for the plain descriptors once in so many passes.
constexpr unsigned kPassesBetweenKernel = 8;
// Without an eventfd to be woken by, the longest nap.
constexpr Time kNap = kMillisecond;

void drive(Target& target) {
    for (Progress* progress : target.progresses()) progress->drive();
}

// From the first pass of a spin until the end of the wait, signals arrive only inside ppoll(): so a
// handler that ran always means EINTR, as with the kernel's poll(), and none finds this thread with
// a lock in its hand. Those of our own guarded copies (base/fault.hpp) stay.
class SignalsHeld {
  public:
    SignalsHeld() {
        const sigset_t set = signals_from_outside();
        pthread_sigmask(SIG_BLOCK, &set, &before_);
    }
    ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;
    [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

  private:
    sigset_t before_{};
};

int spin(Target& target, Time deadline) {
    const auto progresses = target.progresses();
    if (progresses.empty()) return 0;
    Progress& first = *progresses.front();
    const Time budget = first.spin_budget();
    if (budget == 0) return 0;
    const Time end = std::min(deadline, time_after(monotonic_now(), budget));
    unsigned passes = 0;
    do {
        drive(target);
        const bool ask = ++passes % kPassesBetweenKernel == 0;
        if (const int n = target.look(ask ? Kernel::ask : Kernel::skip); n != 0) {
            first.count_spin(true);
            return n;
        }
    } while (monotonic_now() < end);
    first.count_spin(false);
    return 0;
}

// The Progresses that this thread leads and those that it follows, for one sleep.
class Roles {
  public:
    Roles(std::span<Progress* const> all, Sleeper* sleeper) : sleeper_(sleeper) {
        all_count_ = std::min(all.size(), all_.size());
        std::copy_n(all.begin(), all_count_, all_.begin());
        for (Progress* progress : all) {
            if (led_count_ < led_.size() && progress->lead()) {
                led_[led_count_++] = progress;
            } else if (sleeper != nullptr && followed_count_ < followed_.size()) {
                progress->follow(*sleeper);
                followed_[followed_count_++] = progress;
            }
        }
    }
    ~Roles() {
        for (Progress* progress : followed()) progress->unfollow(*sleeper_);
        for (std::size_t i = 0; i < led_count_; ++i) led_[i]->end_lead(rung_[i]);
    }
    Roles(const Roles&) = delete;
    Roles& operator=(const Roles&) = delete;

    /// Were the roles taken for these?
    [[nodiscard]] bool are_for(std::span<Progress* const> all) const noexcept {
        return std::equal(all.begin(), all.end(), all_.begin(),
                          all_.begin() + static_cast<std::ptrdiff_t>(all_count_));
    }
    [[nodiscard]] bool work_waiting() const noexcept {
        return std::any_of(led_.begin(), led_.begin() + led_count_,
                           [](const Progress* p) { return p->work_waiting(); });
    }
    std::size_t add_fds(std::span<pollfd> out) const {
        std::size_t n = 0;
        for (std::size_t i = 0; i < led_count_; ++i) {
            for (const int fd : led_[i]->lead_fds()) out[n++] = {fd, POLLIN, 0};
        }
        return n;
    }
    void take_results(std::span<const pollfd> fds) {
        for (std::size_t i = 0; i < led_count_; ++i) rung_[i] = fds[2 * i + 1].revents != 0;
    }

  private:
    std::span<Progress* const> followed() const {
        return std::span(followed_).first(followed_count_);
    }
    Sleeper* sleeper_;
    std::array<Progress*, Target::kMaxProgresses> all_;
    std::array<Progress*, Target::kMaxLeads> led_{};
    std::array<bool, Target::kMaxLeads> rung_{};
    std::array<Progress*, Target::kMaxProgresses> followed_{};
    std::size_t all_count_ = 0, led_count_ = 0, followed_count_ = 0;
};

// One sleep. 0, or EINTR.
int sleep(Target& target, Sleeper* sleeper, Roles& roles, Time deadline, const sigset_t& mask) {
    const Target::KernelSet kernel = target.kernel();
    std::size_t used = kernel.used;
    if (sleeper != nullptr) kernel.fds[used++] = {sleeper->fd(), POLLIN, 0};
    const std::size_t leads = used;
    used += roles.add_fds(kernel.fds.subspan(used));

    if (sleeper == nullptr) deadline = std::min(deadline, time_after(monotonic_now(), kNap));
    timespec left{};
    if (deadline != kNever) {
        const Time now = monotonic_now();
        const Time ns = deadline > now ? deadline - now : 0;
        left.tv_sec = static_cast<time_t>(ns / kSecond);
        left.tv_nsec = static_cast<long>(ns % kSecond);
    }
    const int n = ppoll(kernel.fds.data(), used, deadline == kNever ? nullptr : &left, &mask);
    const int error = n < 0 ? errno : 0;
    if (n <= 0) {
        // `revents` are not written, and look(Kernel::polled) is about to read them.
        for (std::size_t i = 0; i < used; ++i) kernel.fds[i].revents = 0;
    }
    if (sleeper != nullptr && kernel.fds[kernel.used].revents != 0) sleeper->clear();
    roles.take_results(kernel.fds.subspan(leads));
    return error;
}

int sleep_until(Target& target, Time deadline, const sigset_t& mask) {
    auto lent = SleeperPool::instance().lend();
    if (!lent) {
        log(LogLevel::warn, "no-sleeper", "no eventfd to sleep on: looking once a millisecond");
    }
    Sleeper* const sleeper = lent ? lent->get() : nullptr;
    for (;;) {
        int n = 0, error = 0;
        bool slept = false;
        if (sleeper != nullptr) target.fall_asleep(*sleeper);
        {
            Roles roles(target.progresses(), sleeper);
            // What was published before this look is seen by it; what comes later rings. That may
            // be a Progress more, which rang before this thread was in the list: nobody would lead
            // it.
            n = target.look(Kernel::skip);
            if (n == 0 && roles.are_for(target.progresses()) && !roles.work_waiting()) {
                error = sleep(target, sleeper, roles, deadline, mask);
                slept = true;
            }
            // Awake before the pass that ends the lead: what it finds need not ring.
            if (sleeper != nullptr) target.wake_up(*sleeper);
        }
        if (n != 0) return n;
        n = target.look(slept ? Kernel::polled : Kernel::skip);
        if (n != 0) return n;
        if (error != 0 && error != EAGAIN) return -error;
        if (deadline != kNever && monotonic_now() >= deadline) return 0;
    }
}

}  // namespace

int wait_for(Target& target, Time deadline, const sigset_t* mask) {
    if (deadline == 0) {
        // "Nothing" is an answer that the program may build on.
        for (Progress* progress : target.progresses()) progress->drive_thoroughly();
        return target.look(Kernel::ask);
    }
    // Driven first even if something is ready already: what has arrived by now must be told.
    drive(target);
    int n = target.look(Kernel::ask);
    if (n != 0) return n;

    const SignalsHeld held;
    n = spin(target, deadline);
    if (n != 0) return n;
    if (deadline != kNever && monotonic_now() >= deadline) return 0;
    return sleep_until(target, deadline, mask != nullptr ? *mask : held.before());
}

}  // namespace xsock::readiness
