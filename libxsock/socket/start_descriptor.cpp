// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/start_descriptor.hpp"

#include <sys/socket.h>

#include "transport/descriptors.hpp"

namespace xsock::sockets {

void StartDescriptor::close() noexcept {
    if (fd_ >= 0) close_internal_fd(release());
}

void StartDescriptor::forget() noexcept {
    fd_ = -1;
    key_begun_ = false;
    end_watch();
}

bool StartDescriptor::await_more_than(std::size_t bytes) noexcept {
    if (low_water_ < 0) {
        low_water_ = 1;
        socklen_t size = sizeof low_water_;
        getsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &low_water_, &size);
    }
    const int wanted = static_cast<int>(bytes) + 1;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
    return !std::exchange(key_begun_, true);
}

void StartDescriptor::restore_low_water() noexcept {
    if (low_water_ < 0 || fd_ < 0) return;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &low_water_, sizeof low_water_);
    low_water_ = -1;
}

}  // namespace xsock::sockets
