// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Listening sockets. Without DDPREQUIRE the kernel accepts, and the protocol of the peer shows
// later. With it the engine accepts in the background and hands out connections whose start-up
// succeeded.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "libxsock/socket/socket.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/soft_device.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {

int Socket::listen(int fd, int backlog) {
    if (::listen(fd, backlog) != 0) return -1;
    if (listener_shut_.exchange(false)) mode_changed();
    if (phase() == Phase::fresh && on()) {
        counters_ = std::make_shared<ListenCounters>();
        phase_.store(Phase::listening, std::memory_order_release);
        if (options_.require != 0) mode_changed();
    }
    return 0;
}

bool Socket::connection_waits() const noexcept {
    const ListenSocket* const listener = listener_now_.load(std::memory_order_acquire);
    return listener != nullptr && (listener->has_ready() || listener->shortage() != 0);
}

// A blocked accept() has something to look at.
bool Socket::accept_may_end() const noexcept {
    return connection_waits() || listener_shut_.load(std::memory_order_acquire) ||
           phase() != Phase::listening;
}

// As TCP: ends accept() in other threads, unless only the sending half is meant, of which a
// listening socket has none.
int Socket::shut_listening(int fd, int how) {
    if (how == SHUT_WR) return XSOCK_PASS;
    if (::shutdown(fd, how) != 0) return -1;
    close_listener();
    if (!listener_shut_.exchange(true) && options_.require != 0) mode_changed();
    wake_callers();
    return 0;
}

int Socket::accept(int fd, sockaddr* address, socklen_t* length, int flags,
                   xsock_socket** accepted) {
    *accepted = nullptr;
    if (phase() != Phase::listening) return XSOCK_PASS;
    if (!on()) return XSOCK_PASS;
    if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return no(EINVAL);
    if (options_.require != 0 && !listener_shut_.load(std::memory_order_acquire)) {
        return accept_required(fd, address, length, flags, accepted);
    }

    auto made = std::make_shared<Socket>(XSOCK_HINT_ACCEPTED);
    const int taken = ::accept4(fd, address, length, flags);
    if (taken < 0) return -1;
    counters_->accepted.fetch_add(1, std::memory_order_relaxed);
    made->inherit(*this, flags);
    made->phase_.store(Phase::undecided, std::memory_order_release);
    made->held_ = made;
    *accepted = made.get();
    return taken;
}

void Socket::inherit(const Socket& listening, int flags) {
    options_ = listening.options_;
    counters_ = listening.counters_;
    mode_on_.store(true, std::memory_order_relaxed);
    nonblocking_.store((flags & SOCK_NONBLOCK) != 0);
    receive_timeout_.store(listening.receive_timeout_.load());
    send_timeout_.store(listening.send_timeout_.load());
}

// ---- DDPREQUIRE ---------------------------------------------------------------

int Socket::ensure_listener(int fd) {
    Progress* const poller = ensure_progress();
    if (poller == nullptr) return -1;
    const std::lock_guard hold(listener_mutex_);
    if (listener_ != nullptr && listener_generation_ == process_generation()) return 0;
    if (listener_ != nullptr) {
        // The parent's: its descriptors were closed when this process was forked, and their numbers
        // may be others' now. It stays where it is.
        listener_now_.store(nullptr, std::memory_order_release);
        listener_inherited_ = true;
        leak_after_fork(std::move(listener_));
    }
    if (auto r = tcp::check_listening(fd); !r) return no(r.error().code);
    auto copy = duplicate_descriptor(fd);
    if (!copy) return no(copy.error().code);
    if (auto r = tcp::make_nonblocking(*copy); !r) {
        close_internal_fd(*copy);
        return no(r.error().code);
    }
    Device& device = *api::device();
    ConnectAttr attr = options_.connect_attr();
    attr.role = ConnectAttr::Role::responder;
    auto listener = std::make_shared<ListenSocket>(
        *copy, *poller, attr,
        [this, &device](Connection::StateListener tell) {
            auto made = std::make_shared<Socket>(XSOCK_HINT_ACCEPTED);
            made->inherit(*this, 0);
            made->ensure_progress();
            made->progress_.store(progress());  // start-ups of one listener share its poller
            made->kernel_ready_.store(false);
            made->phase_.store(Phase::starting, std::memory_order_release);
            Socket* const raw = made.get();
            auto connection = make_soft_connection(
                device,
                made->connection_parts([raw, tell = std::move(tell)](Connection& c, QpState state) {
                    raw->on_state(c, state);
                    tell(c, state);
                }));
            made->connection_now_.store(connection.get(), std::memory_order_release);
            counters_->accepted.fetch_add(1, std::memory_order_relaxed);
            return connection;
        },
        soft_max_starting(device));
    listener->set_observer(
        {[this] { wake(EPOLLIN | EPOLLRDNORM); },
         [this](Connection&) { counters_->refused.fetch_add(1, std::memory_order_relaxed); }});
    Result<void> opened;
    poller->locked([&](PollCycle& cycle) { opened = listener->open(cycle); });
    if (!opened) {
        close_internal_fd(*copy);
        return no(opened.error().code);
    }
    listener_ = std::move(listener);
    listener_generation_ = process_generation();
    listener_now_.store(listener_.get(), std::memory_order_release);
    poller->ensure_thread();
    return 0;
}

// False: a parent accepts on the same socket, for all that is known here.
bool Socket::close_listener() {
    if (generation_.load(std::memory_order_acquire) != process_generation()) {
        return listener_now_.load(std::memory_order_acquire) == nullptr;
    }
    const std::lock_guard hold(listener_mutex_);
    listener_now_.store(nullptr, std::memory_order_release);
    if (listener_ == nullptr) return !listener_inherited_;
    if (listener_generation_ != process_generation()) return false;
    progress()->locked([this](PollCycle& cycle) {
        listener_->set_observer({});
        listener_->close(cycle);
    });
    listener_.reset();
    return !listener_inherited_;
}

int Socket::accept_required(int fd, sockaddr* address, socklen_t* length, int flags,
                            xsock_socket** accepted) {
    if (ensure_listener(fd) != 0) return -1;
    for (bool tried = false;;) {
        std::shared_ptr<ListenSocket> listener;
        {
            const std::lock_guard hold(listener_mutex_);
            listener = listener_;
        }
        if (phase() != Phase::listening) return XSOCK_PLAIN;  // DDPMODE was switched off meanwhile
        if (listener == nullptr) return no(EINVAL);           // shut down meanwhile
        if (auto connection = listener->take()) {
            auto* const raw =
                reinterpret_cast<Socket*>(static_cast<std::uintptr_t>(connection->attr().context));
            const int number = raw->hand_out(connection, flags);
            if (number >= 0) {
                if (address != nullptr && length != nullptr) getpeername(number, address, length);
                *accepted = raw;
                return number;
            }
            if (errno == ENOTCONN) continue;  // it has ended while it waited
            const int error = errno;
            listener->give_back(std::move(connection));
            return no(error);
        }
        if (listener->shortage() != 0) {
            progress()->locked([&](PollCycle& cycle) { listener->retry(cycle); });
            if (const int error = listener->shortage(); error != 0) return no(error);
        }
        if (!blocking(0)) {
            if (tried) return no(EAGAIN);
            tried = true;
            progress()->poll();
            continue;
        }
        const auto waited = wait(&Socket::accept_may_end, receive_timeout_.load());
        if (waited != Progress::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// Of a connection that waited to be accepted: a number for the program, which owns it from now on.
int Socket::hand_out(const std::shared_ptr<Connection>& connection, int flags) {
    Result<int> copy = Error{ENOTCONN, ""};
    const std::shared_ptr<Socket> keep = self();
    progress()->locked([&](PollCycle& cycle) {
        copy = connection->descriptor();
        if (!copy) {
            if (copy.error().code == ENOTCONN) connection->release(cycle);
            return;
        }
        connection->set_listener([this](Connection& c, QpState s) { on_state(c, s); });
        connection_ = connection;
        held_ = keep;
    });
    if (!copy) return no(copy.error().code);
    nonblocking_.store((flags & SOCK_NONBLOCK) != 0);
    exec_kept_.store(true);
    return *copy;
}

}  // namespace xsock::sockets
