// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/wait.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "transport/at_rest.hpp"
#include "transport/log.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock::readiness {
namespace {

// While it spins, it asks the kernel for the plain descriptors once in so many cycles.
constexpr unsigned kCyclesBetweenKernel = 8;
// Without an eventfd to be woken by, the longest sleep.
constexpr Time kNap = kMillisecond;

void poll_all(Target& target) {
    for (PollGroup* progress : target.progresses()) progress->poll();
}

// From the first round of a spin until the end of the wait, signals arrive only inside ppoll(): so
// a handler that ran always means EINTR, as with the kernel's poll(), and none finds this thread
// while it holds a lock. Those of our own guarded copies (base/fault.hpp) stay.
class SignalsHeld {
  public:
    SignalsHeld() {
        const sigset_t set = signals_from_outside();
        pthread_sigmask(SIG_BLOCK, &set, &before_);
    }
    ~SignalsHeld() {
        raise_deferred();
        const AtRest rest;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;
    [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

  private:
    sigset_t before_{};
};

int spin(Target& target, Time deadline) {
    const auto progresses = target.progresses();
    if (progresses.empty()) return 0;
    PollGroup& first = *progresses.front();
    const Time budget = first.spin_budget();
    if (budget == 0) return 0;
    const Time end = std::min(deadline, time_after(monotonic_now(), budget));
    unsigned cycles = 0;
    do {
        poll_all(target);
        const bool ask = ++cycles % kCyclesBetweenKernel == 0;
        if (const int n = target.check(ask ? Kernel::ask : Kernel::skip); n != 0) {
            first.count_spin(true);
            return n;
        }
    } while (monotonic_now() < end);
    first.count_spin(false);
    return 0;
}

int yield(Target& target) {
    const auto progresses = target.progresses();
    int found = 0;
    if (progresses.size() == 1) {
        progresses.front()->yield([&] {
            found = target.check(Kernel::skip);
            return found != 0;
        });
    }
    return found;
}

// The Progresses that this thread leads and those that it follows, for one sleep.
class Roles {
  public:
    Roles(std::span<PollGroup* const> all, Waiter* waiter) : waiter_(waiter) {
        all_count_ = std::min(all.size(), all_.size());
        std::copy_n(all.begin(), all_count_, all_.begin());
        for (PollGroup* progress : all) {
            if (led_count_ < led_.size() && progress->lead()) {
                led_[led_count_++] = progress;
            } else if (waiter != nullptr && followed_count_ < followed_.size()) {
                progress->follow(*waiter);
                followed_[followed_count_++] = progress;
            }
        }
    }
    ~Roles() {
        for (PollGroup* progress : followed()) progress->unfollow(*waiter_);
        for (std::size_t i = 0; i < led_count_; ++i) led_[i]->end_lead(notified_[i]);
    }
    Roles(const Roles&) = delete;
    Roles& operator=(const Roles&) = delete;

    /// Were the roles taken for these?
    [[nodiscard]] bool are_for(std::span<PollGroup* const> all) const noexcept {
        return std::equal(all.begin(), all.end(), all_.begin(),
                          all_.begin() + static_cast<std::ptrdiff_t>(all_count_));
    }
    [[nodiscard]] bool work_waiting() const noexcept {
        return std::any_of(led_.begin(), led_.begin() + led_count_,
                           [](const PollGroup* p) { return p->work_waiting(); });
    }
    std::size_t add_fds(std::span<pollfd> out) const {
        std::size_t n = 0;
        for (std::size_t i = 0; i < led_count_; ++i) {
            for (const int fd : led_[i]->lead_fds()) out[n++] = {fd, POLLIN, 0};
        }
        return n;
    }
    void take_results(std::span<const pollfd> fds) {
        for (std::size_t i = 0; i < led_count_; ++i) notified_[i] = fds[2 * i + 1].revents != 0;
    }

  private:
    std::span<PollGroup* const> followed() const {
        return std::span(followed_).first(followed_count_);
    }
    Waiter* waiter_;
    std::array<PollGroup*, Target::kMaxProgresses> all_;
    std::array<PollGroup*, Target::kMaxLeads> led_{};
    std::array<bool, Target::kMaxLeads> notified_{};
    std::array<PollGroup*, Target::kMaxProgresses> followed_{};
    std::size_t all_count_ = 0, led_count_ = 0, followed_count_ = 0;
};

// One sleep. 0, or EINTR.
int sleep(Target& target, Waiter* waiter, Roles& roles, Time deadline, const sigset_t& mask) {
    const Target::KernelSet kernel = target.kernel();
    std::size_t used = kernel.used;
    if (waiter != nullptr) kernel.fds[used++] = {waiter->fd(), POLLIN, 0};
    const std::size_t leads = used;
    used += roles.add_fds(kernel.fds.subspan(used));

    if (waiter == nullptr) deadline = std::min(deadline, time_after(monotonic_now(), kNap));
    timespec left{};
    if (deadline != kNever) {
        const Time now = monotonic_now();
        const Time ns = deadline > now ? deadline - now : 0;
        left.tv_sec = static_cast<time_t>(ns / kSecond);
        left.tv_nsec = static_cast<long>(ns % kSecond);
    }
    raise_deferred();  // it gets through in ppoll()
    int n = 0, error = 0;
    {
        const AtRestAsLeader rest;
        n = ppoll(kernel.fds.data(), used, deadline == kNever ? nullptr : &left, &mask);
        error = n < 0 ? errno : 0;
    }
    if (n <= 0) {
        // `revents` are not written, and check(Kernel::polled) is about to read them.
        for (std::size_t i = 0; i < used; ++i) kernel.fds[i].revents = 0;
    }
    if (waiter != nullptr && kernel.fds[kernel.used].revents != 0) waiter->clear();
    roles.take_results(kernel.fds.subspan(leads));
    return error;
}

int sleep_until(Target& target, Time deadline, const sigset_t& mask) {
    auto lease = WaiterPool::instance().acquire();
    if (!lease) {
        log(LogLevel::warn, "no-waiter", "no eventfd to sleep on: checking once a millisecond");
    }
    Waiter* const waiter = lease ? lease->get() : nullptr;
    for (;;) {
        int n = 0, error = 0;
        bool slept = false;
        if (waiter != nullptr) target.prepare_wait(*waiter);
        {
            Roles roles(target.progresses(), waiter);
            // This check sees what was published before it; what comes later notifies. That may be
            // one Progress more, which notified before this thread was in the list: no thread would
            // lead it.
            n = target.check(Kernel::skip);
            if (n == 0 && roles.are_for(target.progresses()) && !roles.work_waiting()) {
                error = sleep(target, waiter, roles, deadline, mask);
                slept = true;
            }
            // Awake before the cycle that ends the lead: what it finds need not notify.
            if (waiter != nullptr) target.finish_wait(*waiter);
        }
        if (n != 0) return n;
        n = target.check(slept ? Kernel::polled : Kernel::skip);
        if (n != 0) return n;
        if (error != 0 && error != EAGAIN) return -error;
        if (deadline != kNever && monotonic_now() >= deadline) return 0;
    }
}

}  // namespace

int wait_for(Target& target, Time deadline, const sigset_t* mask) {
    if (deadline == 0) {
        // "Nothing" is an answer that the program may build on.
        for (PollGroup* progress : target.progresses()) progress->try_poll_thoroughly();
        return target.check(Kernel::ask);
    }
    // Polled first even if something is ready already: what has arrived by now must be told.
    poll_all(target);
    int n = target.check(Kernel::ask);
    if (n != 0) return n;
    if (leads_below()) return -EDEADLK;

    const SignalsHeld held;
    n = spin(target, deadline);
    if (n == 0) n = yield(target);
    if (n != 0) return n;
    if (deadline != kNever && monotonic_now() >= deadline) {
        poll_all(target);
        return target.check(Kernel::ask);
    }
    return sleep_until(target, deadline, mask != nullptr ? *mask : held.before());
}

}  // namespace xsock::readiness
