// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/uv_loop.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/descriptors.hpp"
#include "transport/event_fd.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock {

namespace {

/// Whether there is room for so many descriptors as libuv opens for its first loop: it aborts where
/// its pipe for signals cannot be made. (Another thread may still be quicker.)
bool room_for_loop() noexcept {
    std::array<EventFd, 6> descriptors;
    return std::all_of(descriptors.begin(), descriptors.end(),
                       [](EventFd& descriptor) { return bool(descriptor.open()); });
}

}  // namespace

bool UvLoop::open(void (*on_notified)(void*), void* argument) {
    const DescriptorChange change;
    InternalPipes finder;
    if (!room_for_loop() || uv_loop_init(&loop_) != 0) return false;
    finder.claim();
    on_notified_ = on_notified;
    argument_ = argument;
    const auto call = [](uv_async_t* handle) {
        const UvLoop& self = *static_cast<UvLoop*>(handle->data);
        self.on_notified_(self.argument_);
    };
    if (uv_async_init(&loop_, &notified_, call) != 0) {
        uv_loop_close(&loop_);
        return false;
    }
    if (!watch_ahead(loop_.async_io_watcher.fd) || !watch_ahead(loop_.signal_pipefd[0])) {
        close_handles();
        return false;
    }
    notified_.data = this;
    for (const int fd : descriptors()) register_internal_fd(fd);
    open_ = true;
    return true;
}

// libuv's write() is a cancellation point of the thread that notifies.
void UvLoop::notify() noexcept {
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    uv_async_send(&notified_);
    pthread_setcancelstate(before, nullptr);
}

void UvLoop::close() noexcept {
    if (!std::exchange(open_, false)) return;
    const DescriptorChange change;
    for (const int fd : descriptors()) unregister_internal_fd(fd);
    close_handles();
}

void UvLoop::close_handles() noexcept {
    uv_walk(
        &loop_,
        [](uv_handle_t* handle, void*) {
            if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
}

bool UvLoop::watch_ahead(int fd) const noexcept {
    epoll_event nothing{};
    nothing.data.fd = fd;
    return epoll_ctl(uv_backend_fd(&loop_), EPOLL_CTL_ADD, fd, &nothing) == 0 || errno == EEXIST;
}

// What libuv has opened for the loop.
std::array<int, 5> UvLoop::descriptors() const {
    return {uv_backend_fd(&loop_), loop_.async_io_watcher.fd, loop_.async_wfd,
            loop_.signal_pipefd[0], loop_.signal_pipefd[1]};
}

std::thread UvLoop::start_thread(const char* name, std::function<void()> run) {
    const sigset_t set = signals_from_outside();
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &set, &before);
    std::thread thread;
    try {
        thread = std::thread([name, run = std::move(run)] {
            pthread_setname_np(pthread_self(), name);
            run();
        });
    } catch (...) {
        // Without threads or memory: said by the thread that is not joinable.
        thread = {};
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace xsock
