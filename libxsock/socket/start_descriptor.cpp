// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/start_descriptor.hpp"

#include <sys/socket.h>

#include <algorithm>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"

namespace xsock::sockets {

void StartDescriptor::close() noexcept {
    if (fd_ >= 0) close_internal_fd(release());
}

void StartDescriptor::forget() noexcept {
    fd_ = -1;
    deadline_ = kNever;
    watch_.reset();
    unclaim_watch();
}

Result<void> StartDescriptor::watch(PollGroup& group, std::shared_ptr<DescriptorWatcher> watcher,
                                    std::uint32_t events) {
    auto watch = group.watch(std::move(watcher), fd_, events);
    if (!watch) return watch.error();
    watch_ = std::move(*watch);
    return {};
}

void StartDescriptor::end_watch() {
    if (watch_ != nullptr) std::exchange(watch_, nullptr)->end();
    if (low_water_ < 0 || fd_ < 0) return;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &low_water_, sizeof low_water_);
    low_water_ = -1;
}

void StartDescriptor::set_limit(Time limit) {
    if (deadline_ == kNever) shorten_limit(limit);  // a forked child begins anew
}

void StartDescriptor::shorten_limit(Time limit) {
    deadline_ = std::min(deadline_, time_after(monotonic_now(), limit));
    watch_->set_deadline(deadline_);
}

void StartDescriptor::await_more_than(std::size_t bytes, Time limit) {
    if (low_water_ < 0) {
        low_water_ = 1;
        socklen_t size = sizeof low_water_;
        getsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &low_water_, &size);
    }
    set_limit(limit);
    const int wanted = static_cast<int>(bytes) + 1;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

}  // namespace xsock::sockets
