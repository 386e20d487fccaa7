// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names to connections: xsock_connect(), xsock_listen() and listeners.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "libxsock/api.hpp"
#include "libxsock/endpoint.hpp"
#include "libxsock/sleep.hpp"
#include "transport/log.hpp"

namespace xsock::api {
namespace {

/// Closes a descriptor unless it was handed on.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) {
            const int saved = errno;
            ::close(fd_);
            errno = saved;
        }
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int get() const noexcept { return fd_; }
    void handed_on() noexcept { fd_ = -1; }

  private:
    int fd_;
};

struct Addresses {
    addrinfo* list = nullptr;
    ~Addresses() {
        if (list != nullptr) freeaddrinfo(list);
    }
};

bool resolve(const char* host, const char* service, int flags, Addresses& out) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    const int error = getaddrinfo(host, service, &hints, &out.list);
    if (error == 0) return true;
    log(LogLevel::warn, "name-not-found", "%s port %s: %s", host != nullptr ? host : "(any)",
        service != nullptr ? service : "(any)", gai_strerror(error));
    errno = error == EAI_SYSTEM ? errno : error == EAI_MEMORY ? ENOMEM : EADDRNOTAVAIL;
    return false;
}

/// A non-blocking connect that ends at `deadline`. 0 or an errno.
int connect_until(int fd, const addrinfo& address, Time deadline) {
    if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    for (;;) {
        const Time now = monotonic_now();
        if (deadline != kNever && now >= deadline) return ETIMEDOUT;
        const int wait_ms =
            deadline == kNever
                ? -1
                : static_cast<int>(std::min<Time>((deadline - now) / kMillisecond + 1, 1u << 30));
        pollfd p{fd, POLLOUT, 0};
        const int n = ::poll(&p, 1, wait_ms);
        if (n < 0 && errno != EINTR) return errno;
        if (n <= 0) continue;
        int error = 0;
        socklen_t size = sizeof error;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
        return error;
    }
}

int port_of(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
    if (address.ss_family == AF_INET) {
        return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    }
    if (address.ss_family == AF_INET6) {
        return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    }
    return 0;
}

int bind_and_listen(const addrinfo& address, int backlog) {
    Descriptor fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
    if (fd.get() < 0) return -1;
    const int on = 1, off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ai_family == AF_INET6) {
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return -1;
    if (::listen(fd.get(), backlog > 0 ? backlog : SOMAXCONN) != 0) return -1;
    const int result = fd.get();
    fd.handed_on();
    return result;
}

}  // namespace

xsock_ep* connect(const char* host, const char* service, const xsock_ep_attr* given,
                  int timeout_ms) noexcept {
    if (host == nullptr || service == nullptr) {
        errno = EINVAL;
        return nullptr;
    }
    if (device() == nullptr) return nullptr;
    CheckedAttr checked;
    if (!checked.from(given, ConnectAttr::Role::initiator)) return nullptr;
    return guarded<xsock_ep*>(nullptr, [&]() -> xsock_ep* {
        const Time deadline = deadline_of(timeout_ms);
        Addresses addresses;
        if (!resolve(host, service, AI_ADDRCONFIG, addresses)) return nullptr;
        int error = EADDRNOTAVAIL;
        for (const addrinfo* a = addresses.list; a != nullptr; a = a->ai_next) {
            Descriptor fd(
                ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
            if (fd.get() < 0) {
                error = errno;
                continue;
            }
            error = connect_until(fd.get(), *a, deadline);
            if (error != 0) continue;
            std::unique_ptr<xsock_ep> ep(make_endpoint(fd.get(), checked));
            if (ep == nullptr) return nullptr;
            fd.handed_on();
            ep->qp->wait_started(deadline);
            if (started(*ep->qp) == 0) return ep.release();
            error = errno;
            ep->qp->abort();
            break;  // TCP works there; another address would not speak MPA better
        }
        errno = error;
        return nullptr;
    });
}

xsock_listener* listener_create(int fd, const xsock_ep_attr* given) noexcept {
    Device* const d = device();
    if (d == nullptr) return nullptr;
    CheckedAttr checked;
    if (!checked.from(given, ConnectAttr::Role::responder)) return nullptr;
    return guarded<xsock_listener*>(nullptr, [&]() -> xsock_listener* {
        const int port = port_of(fd);
        auto listener = d->listen(fd, checked.qp, checked.connect);
        if (!listener) {
            errno = listener.error().code;
            return nullptr;
        }
        // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): guarded
        return new xsock_listener{std::move(*listener), ObjectRefs(checked.attr),
                                  checked.connect.ird, checked.connect.ord, port};
    });
}

xsock_listener* listen(const char* host, const char* service, int backlog,
                       const xsock_ep_attr* given) noexcept {
    if (service == nullptr) {
        errno = EINVAL;
        return nullptr;
    }
    if (device() == nullptr) return nullptr;
    return guarded<xsock_listener*>(nullptr, [&]() -> xsock_listener* {
        Addresses addresses;
        if (!resolve(host, service, AI_PASSIVE, addresses)) return nullptr;
        // Any address: an IPv6 socket takes IPv4 too, so it is tried first.
        std::vector<const addrinfo*> order;
        for (const addrinfo* a = addresses.list; a != nullptr; a = a->ai_next) order.push_back(a);
        std::stable_sort(order.begin(), order.end(), [](const addrinfo* x, const addrinfo* y) {
            return (x->ai_family == AF_INET6) > (y->ai_family == AF_INET6);
        });
        int fd = -1;
        for (const addrinfo* a : order) {
            fd = bind_and_listen(*a, backlog);
            if (fd >= 0) break;
        }
        if (fd < 0) return nullptr;
        Descriptor owner(fd);
        xsock_listener* const listener = listener_create(fd, given);
        if (listener != nullptr) owner.handed_on();
        return listener;
    });
}

xsock_ep* accept(xsock_listener* listener, int timeout_ms, xsock_sleep* sleep) noexcept {
    if (sleep->asleep == 0 && !usable(listener)) return nullptr;
    return guarded<xsock_ep*>(nullptr, [&]() -> xsock_ep* {
        Listener& from = *listener->listener;
        PollGroup* const group = &from.group();
        for (;;) {
            if (!wait_outside(
                    *sleep, {&group, 1}, [&from] { return from.has_ready(); }, timeout_ms)) {
                return nullptr;
            }
            if (auto qp = from.accept()) {
                // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): guarded
                return new xsock_ep{std::move(qp), listener->refs.again(), listener->ird,
                                    listener->ord};
            }
            if (may_wait(*sleep)) continue;  // another thread took what this one was woken for
            errno = EAGAIN;
            return nullptr;
        }
    });
}

int listener_port(const xsock_listener* listener) noexcept {
    return listener != nullptr ? listener->port : fail(EINVAL);
}

int listener_fd(xsock_listener* listener) noexcept {
    if (!usable(listener)) return -1;
    return guarded(-1, [&] { return finish(listener->listener->fd()); });
}

int listener_close(xsock_listener* listener) noexcept {
    if (!usable(listener)) return -1;
    return guarded(-1, [&] {
        delete listener;
        return 0;
    });
}

}  // namespace xsock::api
