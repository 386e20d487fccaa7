// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of poll_table.h.
#include <algorithm>
#include <climits>
#include <optional>

#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"
#include "libxsock/poll/eventpoll_info.hpp"
#include "libxsock/poll/handle.hpp"
#include "libxsock/poll/poll.hpp"
#include "libxsock/poll/select.hpp"

namespace xsock::api {
namespace {

using readiness::EpollSet;
using readiness::Handle;
using readiness::Source;

constexpr std::size_t kFewHandles = 32;

static_assert(alignof(EpollSet) > 1);

xsock_socket* handle_of(EpollSet* set) noexcept {
    return reinterpret_cast<xsock_socket*>(reinterpret_cast<std::uintptr_t>(set) | 1);
}
EpollSet& set_of(xsock_socket* handle) noexcept {
    return *reinterpret_cast<EpollSet*>(reinterpret_cast<std::uintptr_t>(handle) &
                                        ~std::uintptr_t{1});
}

Handle known(xsock_socket* handle) noexcept {
    if (handle == nullptr) return {};
    if (XSOCK_IS_SET(handle)) return Handle(&set_of(handle));
    return Handle(readiness::source_of(handle));
}

// A point in time for a relative limit; nothing when that is malformed.
std::optional<Time> deadline_of(const timespec* timeout) noexcept {
    if (timeout == nullptr) return kNever;
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000) {
        return std::nullopt;
    }
    if (timeout->tv_sec == 0 && timeout->tv_nsec == 0) return 0;
    const auto seconds = static_cast<Time>(timeout->tv_sec);
    if (seconds > kNever / kSecond - 1) return kNever;
    return time_after(monotonic_now(), seconds * kSecond + static_cast<Time>(timeout->tv_nsec));
}

int libc_result(int result) noexcept { return result < 0 ? fail(-result) : result; }

}  // namespace

int socket_poll(pollfd* fds, nfds_t count, xsock_socket* const* socks, const timespec* timeout,
                const sigset_t* mask) noexcept {
    const auto deadline = deadline_of(timeout);
    if (!deadline) return fail(EINVAL);
    return guarded(-1, [&] {
        readiness::ShortArray<Handle, kFewHandles> handles(count);
        std::transform(socks, socks + count, handles.data(), known);
        readiness::PollTarget target({fds, count}, handles.span());
        return libc_result(wait_for(target, *deadline, mask));
    });
}

int socket_select(int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,
                  xsock_socket* const* socks, timespec* timeout, const sigset_t* mask) noexcept {
    const auto deadline = deadline_of(timeout);
    if (!deadline || nfds < 0) return fail(EINVAL);
    const int result = guarded(-1, [&] {
        const auto count = static_cast<std::size_t>(nfds);
        readiness::ShortArray<Handle, kFewHandles> handles(count);
        std::transform(socks, socks + count, handles.data(), known);
        return libc_result(
            readiness::select(handles.span(), readable, writable, exceptional, *deadline, mask));
    });
    if (timeout != nullptr && *deadline != kNever) {
        const Time now = monotonic_now();
        const Time left = *deadline > now ? *deadline - now : 0;
        timeout->tv_sec = static_cast<time_t>(left / kSecond);
        timeout->tv_nsec = static_cast<long>(left % kSecond);
    }
    return result;
}

xsock_socket* socket_epoll_open(int epfd) noexcept {
    return guarded<xsock_socket*>(nullptr, [&]() -> xsock_socket* {
        auto set = EpollSet::create(epfd);
        if (!set) {
            errno = set.error().code;
            return nullptr;
        }
        return handle_of(set->release());
    });
}

void socket_epoll_close(xsock_socket* handle) noexcept { delete &set_of(handle); }

int socket_epoll_ctl(xsock_socket* handle, int epfd, int op, int fd, xsock_socket* sock,
                     epoll_event* event) noexcept {
    if (op != EPOLL_CTL_DEL && event == nullptr) return fail(EFAULT);
    return guarded(-1, [&] {
        const Handle member = known(sock);
        if (member.set() != nullptr || handle == nullptr) {
            // A nested set stays in the kernel's; ours makes itself seen there.
            if (member.set() != nullptr && op == EPOLL_CTL_ADD) member.set()->allow_outside_watch();
            if (handle == nullptr) return epoll_ctl(epfd, op, fd, event);
        }
        Source* const source = member.set() != nullptr ? nullptr : member.source();
        EpollSet& set = set_of(handle);
        switch (op) {
            case EPOLL_CTL_ADD:
                return libc_result(set.add(fd, source, *event));
            case EPOLL_CTL_MOD:
                return libc_result(set.modify(fd, source, *event));
            case EPOLL_CTL_DEL:
                return libc_result(set.remove(fd, source));
            default:
                return fail(EINVAL);
        }
    });
}

void socket_epoll_wake_kernel(xsock_socket* handle) noexcept {
    guarded(0, [&] {
        set_of(handle).wake_kernel_waiters();
        return 0;
    });
}

int socket_epoll_filter(epoll_event* events, int count) noexcept {
    return readiness::KernelEpoll::filter_internal(events, count);
}

int socket_epoll_next(int fd, int after) noexcept {
    return guarded(-1, [&] { return readiness::next_registered(fd, after); });
}

int socket_epoll_adopt(xsock_socket* handle, int fd, xsock_socket* sock) noexcept {
    return guarded(-1, [&] {
        Source* const source = known(sock).source();
        if (source == nullptr) return fail(EINVAL);
        return libc_result(set_of(handle).adopt(fd, *source));
    });
}

int socket_epoll_wait(xsock_socket* handle, int, epoll_event* events, int max,
                      const timespec* timeout, const sigset_t* mask) noexcept {
    const auto deadline = deadline_of(timeout);
    if (!deadline || max <= 0 || max > INT_MAX / static_cast<int>(sizeof(epoll_event))) {
        return fail(EINVAL);
    }
    return guarded(-1,
                   [&] { return libc_result(set_of(handle).wait(events, max, *deadline, mask)); });
}

}  // namespace xsock::api
