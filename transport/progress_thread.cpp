// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>

#include "transport/descriptors.hpp"
#include "transport/fault_handler.hpp"
#include "transport/progress.hpp"
#include "transport/uv_loop.hpp"

namespace xsock {
namespace {

constexpr std::uint64_t kTickMin = 1;  // ms
constexpr std::uint64_t kTickMax = 4;
// After traffic, where a caller sleeps as leader: whether it still does.
constexpr std::uint64_t kLookAgain = 2;  // ms
constexpr Time kSoon = 500'000;          // ns
constexpr int kCyclesPerWake = 16;       // before the loop checks its other handles

}  // namespace

struct ProgressThread::Loop {
    Progress& progress;
    const TransportConfig& config;
    unsigned index;
    uv_timer_t tick{};
    uv_poll_t poll{};
    uv_prepare_t before_sleep{};
    uv_check_t after_sleep{};
    uv_poll_t soon{};
    UvLoop uv;
    std::thread thread;
    std::atomic<bool> stop{false};
    std::atomic<bool> soon_armed{false};
    const int soon_fd = make_timer();

    // The loop's thread only.
    enum class Mode : std::uint8_t {
        ticking,
        watching,  // poll is active: callers are inactive
        resting,   // a caller sleeps as leader: no clock runs
    };
    Mode mode = Mode::ticking;
    bool passed = false;       // callers have polled since the wake-up before
    bool looks_again = false;  // the tick that runs is a short one
    std::uint64_t seen_cycles = 0;
    std::uint64_t tick_ms = kTickMin;

    Loop(Progress& p, const TransportConfig& c, unsigned i) : progress(p), config(c), index(i) {}
    ~Loop() {
        uv.close();
        if (soon_fd >= 0) close_internal_fd(soon_fd);
    }

    static int make_timer() noexcept {
        const DescriptorChange change;
        const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        return move_and_register(fd);
    }
    void arm_soon() noexcept {
        if (soon_armed.exchange(true, std::memory_order_seq_cst)) return;
        itimerspec at{};
        at.it_value.tv_nsec = static_cast<long>(kSoon);
        timerfd_settime(soon_fd, 0, &at, nullptr);
    }
    // What was notified before the flag was taken back is served here; after it, the timer runs.
    void on_soon() {
        std::uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t n = read(soon_fd, &expirations, sizeof expirations);
        soon_armed.store(false, std::memory_order_seq_cst);
        const bool waits = progress.work_waiting() || progress.has_idle_calls();
        if (waits && !progress.serve_notified()) arm_soon();
        if (mode == Mode::resting && !progress.thread_rests()) {
            end_rest();
            start_tick(kTickMin);
        }
    }

    // A caller sleeps as leader and is woken for all that comes. The thread is not needed before it
    // leaves, which end_lead() tells.
    void try_to_rest() {
        if (passed || posts_wait() || !progress.begin_rest()) return;
        mode = Mode::resting;
        uv_timer_stop(&tick);
    }
    void end_rest() {
        if (mode == Mode::resting) {
            mode = Mode::ticking;
            progress.end_rest();
        }
    }

    // Once a second while something moves: with a timer of its own an idle process would wake up
    // for nothing.
    void check_fault_handler() {
        static std::atomic<std::uint64_t> checked{0};  // ms
        const std::uint64_t now = uv_now(uv.get());
        std::uint64_t before = checked.load(std::memory_order_relaxed);
        if (now - before < 1000 || !checked.compare_exchange_strong(before, now)) return;
        keep_fault_handler();
    }

    static Loop& of(uv_handle_t* handle) { return *static_cast<Loop*>(handle->data); }
    template <typename Handle>
    static Loop& of(Handle* handle) {
        return of(reinterpret_cast<uv_handle_t*>(handle));
    }

    bool callers_active() {
        if (progress.mode() == ProgressMode::thread) return false;
        const std::uint64_t cycles = progress.caller_cycles();
        const bool handed_over = progress.take_hand_over();
        // Of callers that went to sleep after their last cycle nothing more is to be expected.
        passed = cycles != seen_cycles && !progress.idle_since(cycles);
        const bool active = (passed && !handed_over) || progress.has_leader();
        seen_cycles = cycles;
        return active;
    }

    void watch() {
        if (mode == Mode::watching) return;
        mode = Mode::watching;
        tick_ms = kTickMin;
        uv_timer_stop(&tick);
        uv_poll_start(&poll, UV_READABLE, [](uv_poll_t* p, int, int) { of(p).on_wake(); });
        if (uv.watch_ahead(progress.epoll_fd())) return;
        mode = Mode::ticking;  // no kernel memory: polls by its own clock, and tries again then
        uv_poll_stop(&poll);
        start_tick(tick_ms);
    }

    void step_back() {
        if (mode == Mode::watching) {
            mode = Mode::ticking;
            uv_poll_stop(&poll);
            tick_ms = kTickMin;
        } else {
            tick_ms = std::min(tick_ms * 2, kTickMax);
        }
        looks_again = passed && !looks_again && progress.has_leader();
        start_tick(looks_again ? std::min(kLookAgain, tick_ms) : tick_ms);
        progress.set_thread_ticking(true);
    }

    void start_tick(std::uint64_t ms) {
        uv_timer_start(
            &tick, [](uv_timer_t* t) { of(t).on_wake(); }, ms, 0);
    }

    [[nodiscard]] bool posts_wait() const {
        return progress.work_waiting() && !progress.has_leader();
    }

    void check_again() {
        if (progress.caller_cycles() == seen_cycles && posts_wait()) progress.thread_cycle(false);
        start_tick(std::max(tick_ms - kTickMin, kTickMin));  // as if there had been no second check
    }

    void on_wake() {
        progress.thread_wake().end_sleep();
        if (stop.load(std::memory_order_acquire)) {
            uv_stop(uv.get());
            return;
        }
        end_rest();
        check_fault_handler();
        if (callers_active()) {
            // A caller polls: leave the receiving to it, but do not let gathered posts wait. They
            // may be of this very moment, and the caller about to send them: sending them here
            // would cost it the bias of its locks (base/biased_lock.hpp).
            step_back();
            if (posts_wait()) {
                uv_timer_start(
                    &tick, [](uv_timer_t* t) { of(t).check_again(); }, kTickMin, 0);
            }
            try_to_rest();
            return;
        }
        progress.set_thread_ticking(false);
        for (int i = 0; i < kCyclesPerWake; ++i) {
            const Progress::ThreadCycle did = progress.thread_cycle(true);
            if (did == Progress::ThreadCycle::busy && progress.mode() != ProgressMode::thread) {
                step_back();
                return;
            }
            if (did != Progress::ThreadCycle::moved) break;
        }
        // The last cycle moved something, or another thread has held the lock.
        if (progress.has_idle_calls()) arm_soon();
        watch();
    }

    void run() {
        if (!config.cpus.empty()) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(config.cpus[index % config.cpus.size()], &set);
            pthread_setaffinity_np(pthread_self(), sizeof set, &set);
        }
        watch();
        // Producers notify only while we sleep with nothing but the wake flag and the descriptor to
        // wake us; with a tick running they need not.
        uv_prepare_start(&before_sleep, [](uv_prepare_t* p) {
            Loop& self = of(p);
            if (self.mode != Mode::watching) return;
            self.progress.thread_wake().begin_sleep();
            if (self.progress.work_waiting()) self.uv.notify();
        });
        uv_check_start(&after_sleep,
                       [](uv_check_t* c) { of(c).progress.thread_wake().end_sleep(); });
        uv_run(uv.get(), UV_RUN_DEFAULT);
    }

    bool init() {
        if (!uv.open([](void* self) { static_cast<Loop*>(self)->on_wake(); }, this)) return false;
        uv_timer_init(uv.get(), &tick);
        uv_prepare_init(uv.get(), &before_sleep);
        uv_check_init(uv.get(), &after_sleep);
        if (uv_poll_init(uv.get(), &poll, progress.epoll_fd()) != 0) return false;
        if (soon_fd < 0 || uv_poll_init(uv.get(), &soon, soon_fd) != 0) return false;
        tick.data = poll.data = before_sleep.data = after_sleep.data = soon.data = this;
        uv_poll_start(&soon, UV_READABLE, [](uv_poll_t* p, int, int) { of(p).on_soon(); });
        return uv.watch_ahead(soon_fd);  // behind the start, which takes it out of the set
    }
};

ProgressThread::ProgressThread(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

std::unique_ptr<ProgressThread> ProgressThread::start(Progress& progress,
                                                      const TransportConfig& config,
                                                      unsigned index) {
    std::unique_ptr<ProgressThread> made(
        new ProgressThread(std::make_unique<Loop>(progress, config, index)));
    Loop& loop = *made->loop_;
    if (loop.init()) {
        loop.thread = UvLoop::start_thread("xsock-progress", [l = &loop] { l->run(); });
    }
    if (!loop.thread.joinable()) {
        throw std::system_error(EAGAIN, std::generic_category(), "no progress thread");
    }
    return made;
}

ProgressThread::~ProgressThread() {
    if (!loop_->thread.joinable()) return;
    loop_->stop.store(true, std::memory_order_release);
    loop_->uv.notify();
    loop_->thread.join();
}

void ProgressThread::notify() noexcept { loop_->uv.notify(); }

void ProgressThread::notify_soon() noexcept { loop_->arm_soon(); }

}  // namespace xsock
