// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/background_listener.hpp"

#include "libxsock/socket/call.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {

std::shared_ptr<PolledListener> BackgroundListener::get() {
    const std::lock_guard hold(mutex_);
    return listener_;
}

int BackgroundListener::ensure_open(int fd, PollGroup& poller, const Make& make) {
    const std::lock_guard hold(mutex_);
    if (listener_ != nullptr && generation_ == process_generation()) return 0;
    if (is_ended()) return 0;
    if (listener_ != nullptr) {
        // The parent's: its descriptors were closed when this process was forked, and their numbers
        // may be others' now. It stays where it is.
        set_now(nullptr);
        is_inherited_ = true;
        leak_after_fork(std::move(listener_));
    }
    if (auto r = tcp::check_listening(fd); !r) return no(r.error().code);
    could_not_open();
    auto copy = duplicate_descriptor(fd);
    if (!copy) return no(copy.error().code);
    if (auto r = tcp::make_nonblocking(*copy); !r) {
        close_internal_fd(*copy);
        return no(r.error().code);
    }
    std::shared_ptr<PolledListener> listener;
    try {
        listener = make(*copy);
    } catch (...) {
        close_internal_fd(*copy);
        throw;
    }
    Result<void> opened;
    poller.locked([&](PollCycle& cycle) { opened = listener->open(cycle); });
    if (!opened) {
        close_internal_fd(*copy);
        return no(opened.error().code);
    }
    listener_ = std::move(listener);
    progress_ = &poller;
    generation_ = process_generation();
    set_now(listener_);
    open_failed_.store(false, std::memory_order_release);
    poller.ensure_thread();
    return 0;
}

bool BackgroundListener::close() {
    const std::lock_guard hold(mutex_);
    set_now(nullptr);
    if (listener_ == nullptr) return !is_inherited_;
    if (generation_ != process_generation()) return false;
    progress_->locked([this](PollCycle& cycle) {
        listener_->set_observer({});
        listener_->close(cycle);
    });
    listener_.reset();
    return !is_inherited_;
}

}  // namespace xsock::sockets
