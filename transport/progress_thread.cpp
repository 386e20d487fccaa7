// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "transport/descriptors.hpp"
#include "transport/interrupt.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

constexpr std::uint64_t kTickMin = 1;  // ms
constexpr std::uint64_t kTickMax = 8;
constexpr int kPassesPerWake = 16;  // before the loop looks at its other handles

}  // namespace

struct ProgressThread::Loop {
    Progress& progress;
    const TransportConfig& config;
    unsigned index;
    uv_loop_t loop{};
    uv_async_t bell{};
    uv_timer_t tick{};
    uv_poll_t poll{};
    uv_prepare_t before_sleep{};
    uv_check_t after_sleep{};
    std::thread thread;
    std::atomic<bool> stop{false};

    // The loop's thread only.
    bool watching = false;  // poll is active: callers are inactive
    std::uint64_t seen_passes = 0;
    std::uint64_t tick_ms = kTickMin;

    Loop(Progress& p, const TransportConfig& c, unsigned i) : progress(p), config(c), index(i) {}

    static Loop& of(uv_handle_t* handle) { return *static_cast<Loop*>(handle->data); }
    template <typename Handle>
    static Loop& of(Handle* handle) {
        return of(reinterpret_cast<uv_handle_t*>(handle));
    }

    bool callers_active() {
        if (progress.mode() == ProgressMode::thread) return false;
        const std::uint64_t passes = progress.caller_passes();
        const bool handed_over = progress.take_hand_over();
        // Of callers that went to sleep after their last pass nothing more is to be expected.
        const bool passed = passes != seen_passes && !progress.idle_since(passes);
        const bool active = (passed && !handed_over) || progress.has_leader();
        seen_passes = passes;
        return active;
    }

    void watch() {
        if (watching) return;
        watching = true;
        tick_ms = kTickMin;
        uv_timer_stop(&tick);
        uv_poll_start(&poll, UV_READABLE, [](uv_poll_t* p, int, int) { of(p).on_wake(); });
    }

    void step_back() {
        if (watching) {
            watching = false;
            uv_poll_stop(&poll);
            tick_ms = kTickMin;
        } else {
            tick_ms = std::min(tick_ms * 2, kTickMax);
        }
        start_tick(tick_ms);
        progress.set_thread_ticking(true);
    }

    void start_tick(std::uint64_t ms) {
        uv_timer_start(
            &tick, [](uv_timer_t* t) { of(t).on_wake(); }, ms, 0);
    }

    [[nodiscard]] bool posts_wait() const {
        return progress.work_waiting() && !progress.has_leader();
    }

    void look_again() {
        if (progress.caller_passes() == seen_passes && posts_wait()) progress.thread_pass(false);
        start_tick(std::max(tick_ms - kTickMin, kTickMin));  // as if there had been no second look
    }

    void on_wake() {
        progress.thread_bell().end_sleep();
        if (stop.load(std::memory_order_acquire)) {
            uv_stop(&loop);
            return;
        }
        if (callers_active()) {
            // Somebody polls: leave the receiving to him, but do not let gathered posts wait. They
            // may be of this very moment, and he about to send them: taken out of his hands they
            // would cost him the favour of his locks (base/biased_lock.hpp).
            step_back();
            if (posts_wait()) {
                uv_timer_start(
                    &tick, [](uv_timer_t* t) { of(t).look_again(); }, kTickMin, 0);
            }
            return;
        }
        progress.set_thread_ticking(false);
        for (int i = 0; i < kPassesPerWake; ++i) {
            const Progress::ThreadPass did = progress.thread_pass(true);
            if (did == Progress::ThreadPass::busy && progress.mode() != ProgressMode::thread) {
                step_back();
                return;
            }
            if (did != Progress::ThreadPass::moved) break;
        }
        watch();
    }

    void run() {
        pthread_setname_np(pthread_self(), "xsock-progress");
        if (!config.cpus.empty()) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(config.cpus[index % config.cpus.size()], &set);
            pthread_setaffinity_np(pthread_self(), sizeof set, &set);
        }
        watch();
        // Producers ring only while we sleep with nothing but the bell and the descriptor to wake
        // us; with a tick running they need not.
        uv_prepare_start(&before_sleep, [](uv_prepare_t* p) {
            Loop& self = of(p);
            if (!self.watching) return;
            self.progress.thread_bell().begin_sleep();
            if (self.progress.work_waiting()) uv_async_send(&self.bell);
        });
        uv_check_start(&after_sleep,
                       [](uv_check_t* c) { of(c).progress.thread_bell().end_sleep(); });
        uv_run(&loop, UV_RUN_DEFAULT);
    }

    bool init() {
        const PipeFinder finder;
        if (uv_loop_init(&loop) != 0) return false;
        finder.claim();
        const auto on_bell = [](uv_async_t* a) { of(a).on_wake(); };
        if (uv_async_init(&loop, &bell, on_bell) != 0) {
            uv_loop_close(&loop);
            return false;
        }
        uv_timer_init(&loop, &tick);
        uv_prepare_init(&loop, &before_sleep);
        uv_check_init(&loop, &after_sleep);
        for (uv_handle_t* h :
             {reinterpret_cast<uv_handle_t*>(&bell), reinterpret_cast<uv_handle_t*>(&tick),
              reinterpret_cast<uv_handle_t*>(&before_sleep),
              reinterpret_cast<uv_handle_t*>(&after_sleep)}) {
            h->data = this;
        }
        if (uv_poll_init(&loop, &poll, progress.epoll_fd()) != 0) {
            close_handles();
            return false;
        }
        poll.data = this;
        for (const int fd : descriptors()) own_descriptor(fd);
        return true;
    }

    // What libuv has opened for the loop.
    [[nodiscard]] std::array<int, 5> descriptors() const {
        return {uv_backend_fd(&loop), loop.async_io_watcher.fd, loop.async_wfd,
                loop.signal_pipefd[0], loop.signal_pipefd[1]};
    }

    void close_handles() {
        for (const int fd : descriptors()) disown_descriptor(fd);
        uv_walk(
            &loop,
            [](uv_handle_t* h, void*) {
                if (!uv_is_closing(h)) uv_close(h, nullptr);
            },
            nullptr);
        uv_run(&loop, UV_RUN_DEFAULT);
        uv_loop_close(&loop);
    }
};

ProgressThread::ProgressThread(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

std::unique_ptr<ProgressThread> ProgressThread::start(Progress& progress,
                                                      const TransportConfig& config,
                                                      unsigned index) {
    auto loop = std::make_unique<Loop>(progress, config, index);
    if (!loop->init()) return nullptr;
    // Signals are the program's business: none is delivered to our thread, but for those that our
    // own copies may raise (base/fault.hpp).
    const sigset_t set = signals_from_outside();
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &set, &before);
    bool made = true;
    try {
        loop->thread = std::thread([l = loop.get()] { l->run(); });
    } catch (...) {
        made = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!made) {
        loop->close_handles();
        return nullptr;
    }
    return std::unique_ptr<ProgressThread>(new ProgressThread(std::move(loop)));
}

ProgressThread::~ProgressThread() {
    loop_->stop.store(true, std::memory_order_release);
    uv_async_send(&loop_->bell);
    loop_->thread.join();
    loop_->close_handles();
}

void ProgressThread::ring() noexcept { uv_async_send(&loop_->bell); }

}  // namespace xsock
