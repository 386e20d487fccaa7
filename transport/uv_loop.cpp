// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/uv_loop.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "transport/descriptors.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock {

bool UvLoop::open(void (*on_notified)(void*), void* argument) {
    const DescriptorChange change;
    const InternalPipes finder;
    if (uv_loop_init(&loop_) != 0) return false;
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
    notified_.data = this;
    for (const int fd : descriptors()) register_internal_fd(fd);
    open_ = true;
    return true;
}

void UvLoop::close() noexcept {
    if (!std::exchange(open_, false)) return;
    const DescriptorChange change;
    for (const int fd : descriptors()) unregister_internal_fd(fd);
    uv_walk(
        &loop_,
        [](uv_handle_t* handle, void*) {
            if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
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
