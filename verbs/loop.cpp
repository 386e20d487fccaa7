// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/loop.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "transport/clock.hpp"

namespace xsock::verbs {

static_assert(Loop::kReadable == unsigned{UV_READABLE} &&
              Loop::kWritable == unsigned{UV_WRITABLE} &&
              Loop::kPeerFinished == unsigned{UV_DISCONNECT});

// Owned by libuv from its start to the end of its closing.
struct Loop::Entry {
    Loop* loop = nullptr;
    Token token = 0;
    int fd = -1;
    unsigned readiness = 0;
    bool late = false;  // is to be started, as soon as the kernel has memory for it
    Handler handler;
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_timer_t timer;
    };
};

Result<std::unique_ptr<Loop>> Loop::create(std::mutex& mutex) {
    std::unique_ptr<Loop> loop(new Loop(mutex));
    if (!loop->uv_.open([](void*) {}, nullptr)) return Error{ENOMEM, "no libuv loop"};
    std::thread thread = UvLoop::start_thread("xsock-verbs", [l = loop.get()] { l->run(); });
    if (!thread.joinable()) return Error{EAGAIN, "no thread for the verbs API"};
    thread.detach();
    loop->running_ = true;
    return loop;
}

Loop::~Loop() {
    XSOCK_ASSERT(!running_);  // its thread still uses all this
}

// Known by its token, but nothing of libuv's yet.
std::unique_ptr<Loop::Entry> Loop::make(Handler handler) {
    auto entry = std::make_unique<Entry>();
    entry->loop = this;
    entry->token = next_++;
    entry->handler = std::move(handler);
    entry->handle.data = entry.get();
    entries_.emplace(entry->token, entry.get());
    return entry;
}

Loop::Token Loop::watch(int fd, unsigned readiness, Handler handler) {
    auto made = make(std::move(handler));
    made->fd = fd;
    made->readiness = readiness;
    // Asks epoll whether it takes the descriptor.
    if (const int error = uv_poll_init(uv_.get(), &made->poll, fd); error != 0) {
        entries_.erase(made->token);
        errno = -error;
        return 0;
    }
    Entry& entry = *made.release();
    if (!start(entry)) {
        const int error = errno;
        forget(entry.token);
        errno = error;
        return 0;
    }
    changed();
    return entry.token;
}

// False with errno: the kernel does not watch the descriptor. (libuv would abort.)
bool Loop::start(Entry& entry) noexcept {
    uv_poll_start(
        &entry.poll, static_cast<int>(entry.readiness),
        [](uv_poll_t* poll, int status, int events) {
            const Entry& ready = *static_cast<Entry*>(poll->data);
            try {
                // An error is for the owner of the descriptor to find; libuv watches it no more.
                ready.handler(status == 0 ? static_cast<unsigned>(events) : ready.readiness);
            } catch (...) {
                ready.loop->out_of_memory_ = true;  // and the descriptor is ready still
            }
        });
    if (uv_.watch_ahead(entry.fd)) return true;
    const int error = errno;
    uv_poll_stop(&entry.poll);
    errno = error;
    return false;
}

void Loop::start_late() noexcept {
    if (!std::exchange(late_, false)) return;
    for (const auto& [token, entry] : entries_) {
        if (entry->late) entry->late = !start(*entry);
        if (entry->late) late_ = true;
    }
}

void Loop::pause(Token token, Time time) {
    const auto found = entries_.find(token);
    if (found == entries_.end()) return;
    at(monotonic_now() + time, [this, token] { resume(token); });
    found->second->late = false;
    uv_poll_stop(&found->second->poll);
}

void Loop::resume(Token token) noexcept {
    const auto found = entries_.find(token);
    if (found == entries_.end() || uv_is_active(&found->second->handle) != 0) return;
    if (!start(*found->second)) late_ = found->second->late = true;
    changed();
}

Loop::Token Loop::at(Time when, std::function<void()> handler) {
    Entry& entry = *make([call = std::move(handler)](unsigned) { call(); }).release();
    uv_timer_init(uv_.get(), &entry.timer);
    // Both clocks are CLOCK_MONOTONIC. libuv adds what is left to its own notion of now, however
    // old that is, and so has the same millisecond for the same `when`: timers that become overdue
    // together, though set at different times, come in order.
    const Time due_ms = when / kMillisecond + 1;
    const Time now_ms = uv_now(uv_.get());
    const Time wait_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    uv_timer_start(
        &entry.timer,
        [](uv_timer_t* timer) {
            Entry& due = *static_cast<Entry*>(timer->data);
            due.loop->forget(due.token);
            try {
                due.handler(0);
            } catch (...) {
                return;  // out of memory
            }
        },
        wait_ms, 0);
    changed();
    return entry.token;
}

void Loop::forget(Token token) noexcept {
    const auto found = entries_.find(token);
    if (found == entries_.end()) return;
    Entry& entry = *found->second;
    entries_.erase(found);
    close(entry);
}

// It may be that its handler is being called: it goes at the end of a turn.
void Loop::close(Entry& entry) noexcept {
    uv_close(&entry.handle, [](uv_handle_t* handle) { delete static_cast<Entry*>(handle->data); });
}

// What is watched, and until when the thread sleeps, it learns at its next turn.
void Loop::changed() noexcept {
    if (changing_) {
        again_ = true;
    } else {
        uv_.notify();
    }
}

void Loop::run() {
    for (;;) {
        int timeout_ms = 0;
        bool out_of_memory = false;
        {
            const std::lock_guard lock(mutex_);
            changing_ = true;
            again_ = false;
            start_late();
            uv_run(uv_.get(), UV_RUN_NOWAIT);
            changing_ = false;
            out_of_memory = std::exchange(out_of_memory_, false) || late_;
            if (!again_) timeout_ms = uv_backend_timeout(uv_.get());
        }
        if (out_of_memory) {
            constexpr int kMomentMs = 10;
            poll(nullptr, 0, kMomentMs);
            timeout_ms = 0;
        }
        pollfd loop{uv_backend_fd(uv_.get()), POLLIN, 0};
        poll(&loop, 1, timeout_ms);
    }
}

void expect_more_than(int fd, std::size_t bytes) noexcept {
    const int least = static_cast<int>(bytes) + 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

}  // namespace xsock::verbs
