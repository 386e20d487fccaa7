// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Listening sockets. Without DDPREQUIRE the kernel accepts, and the protocol of the peer shows
// later. With it the engine accepts in the background and hands out connections whose start-up
// succeeded.
#include <utility>

#include "libxsock/socket/socket.hpp"

namespace xsock::sockets {

int Socket::listen(int fd, int backlog) {
    if (::listen(fd, backlog) != 0) return -1;
    if (listener_.reopen()) mode_changed();
    if (phase() == Phase::fresh && on()) {
        begin_listening(fd);
    } else if (phase() == Phase::listening && on()) {
        publish_listener(fd);
    }
    return 0;
}

void Socket::begin_listening(int fd) {
    counters_ = std::make_shared<ListenCounters>();
    if (options_.mode == DDPMODE_STREAM && save_syns(fd)) syn_ = Syn::saved;
    phase_.store(Phase::listening, std::memory_order_release);
    publish_listener(fd);
    if (options_.requires_ddp()) mode_changed();
}

// Also in a child that goes on with its parent's socket.
void Socket::publish_listener(int fd) noexcept {
    if (options_.mode == DDPMODE_STREAM && !listener_.is_shut()) listener_entry_.publish(fd);
}

// As TCP: ends accept() in other threads, unless only the sending half is meant, of which a
// listening socket has none.
int Socket::shut_listening(int fd, int how) {
    if (how == SHUT_WR) return XSOCK_PASS;
    if (::shutdown(fd, how) != 0) return -1;
    listener_entry_.withdraw();
    close_listener();
    if (listener_.shut() && options_.requires_ddp()) mode_changed();
    wake_callers();
    return 0;
}

int Socket::accept(int fd, sockaddr* address, socklen_t* length, int flags,
                   xsock_socket** accepted) {
    *accepted = nullptr;
    if (phase() != Phase::listening) return XSOCK_PASS;
    if (!on()) return XSOCK_PASS;
    publish_listener(fd);
    if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return no(EINVAL);
    if (options_.requires_ddp() && !listener_.is_shut()) {
        return accept_required(fd, address, length, flags, accepted);
    }

    const int taken = ::accept4(fd, address, length, flags);
    return taken < 0 ? -1 : keep_accepted(taken, flags, accepted);
}

bool Socket::accept_waits(int fd) noexcept {
    if (phase() != Phase::listening || !on() || !blocking(0)) return false;
    if (options_.requires_ddp() && !listener_.is_shut()) return false;
    publish_listener(fd);
    return true;
}

// @return `taken`; on -1 that is closed
int Socket::keep_accepted(int taken, int flags, xsock_socket** accepted) {
    *accepted = nullptr;
    std::shared_ptr<Socket> made;
    try {
        made = std::make_shared<Socket>(XSOCK_HINT_ACCEPTED);
    } catch (...) {
        ::close(taken);
        throw;
    }
    counters_->accepted.fetch_add(1, std::memory_order_relaxed);
    made->inherit(*this, flags);
    if (syn_ == Syn::saved && had_marked_syn(taken)) made->syn_ = Syn::marked;
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
    PollGroup* const poller = ensure_progress();
    if (poller == nullptr) {
        listener_.could_not_open();
        return -1;
    }
    return listener_.ensure_open(fd, *poller, [&](int copy) {
        if (options_.mode == DDPMODE_STREAM) take_over_stream_settings(fd);
        ConnectAttr attr = options_.connect_attr();
        attr.defer_reply = true;
        auto listener = api::device()->polled().create_polled_listener(
            copy, *poller, attr, [this](PolledQp::StateListener tell) {
                auto made = std::make_shared<Socket>(XSOCK_HINT_ACCEPTED);
                made->inherit(*this, 0);
                made->ensure_progress();
                made->progress_.store(progress());  // start-ups of one listener share its poller
                made->kernel_ready_.store(false);
                made->phase_.store(Phase::starting, std::memory_order_release);
                Socket* const raw = made.get();
                auto connection = made->make_connection(
                    [raw, tell = std::move(tell)](PolledQp& qp, QpState state) {
                        raw->on_state(qp, state);
                        tell(qp, state);
                    });
                counters_->accepted.fetch_add(1, std::memory_order_relaxed);
                return connection;
            });
        listener->set_observer(
            {[this] { wake(kReadable); },
             [this](PolledQp&) { counters_->refused.fetch_add(1, std::memory_order_relaxed); }});
        return listener;
    });
}

bool Socket::close_listener() {
    // In a child that has not used it the lock may be a thread's that is not here.
    return in_own_process() ? listener_.close() : !listener_.is_open();
}

int Socket::accept_required(int fd, sockaddr* address, socklen_t* length, int flags,
                            xsock_socket** accepted) {
    if (ensure_listener(fd) != 0) return -1;
    for (bool tried = false, ended = false;;) {
        const std::shared_ptr<PolledListener> listener = listener_.get();
        if (phase() != Phase::listening) return XSOCK_PLAIN;  // DDPMODE was switched off meanwhile
        if (listener == nullptr) {
            if (!listener_.is_ended()) return no(EINVAL);  // shut down meanwhile
            if (wait_switched_off() != 0) return -1;
            continue;
        }
        if (auto connection = listener->take()) {
            auto* const raw =
                reinterpret_cast<Socket*>(static_cast<std::uintptr_t>(connection->context()));
            const int number = raw->hand_out(connection, flags);
            if (number >= 0) {
                if (address != nullptr && length != nullptr) getpeername(number, address, length);
                *accepted = raw;
                return number;
            }
            if (errno == ENOTCONN) {  // it has ended while it waited
                ended = true;
                continue;
            }
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
        // poll() has told of it: a program that believes that would block until the next one comes.
        if (ended) return no(ECONNABORTED);
        const auto may_end = [this] {
            return listener_.has_news() || listener_.is_shut() || phase() != Phase::listening;
        };
        const auto waited = wait(*progress(), may_end, receive_timeout_.load());
        if (waited != PollGroup::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// DDPMODE is about to be off: 0 when it is.
int Socket::wait_switched_off() {
    if (!blocking(0)) return no(EAGAIN);
    const auto is_off = [this] { return phase() != Phase::listening; };
    const auto waited = wait(*progress(), is_off, receive_timeout_.load());
    return waited == PollGroup::Waited::done ? 0 : fail_wait(waited, EAGAIN);
}

// Of a connection that waited to be accepted: a number for the program, which owns it from now on.
int Socket::hand_out(const std::shared_ptr<PolledQp>& connection, int flags) {
    Result<int> copy = Error{ENOTCONN, ""};
    const std::shared_ptr<Socket> keep = shared_from_this();
    progress()->locked([&](PollCycle& cycle) {
        copy = connection->descriptor();
        if (!copy) {
            if (copy.error().code == ENOTCONN) connection->release(cycle);
            return;
        }
        connection->set_listener([this](PolledQp& qp, QpState s) { on_state(qp, s); });
        connection_ = connection;
        held_ = keep;
    });
    if (!copy) return no(copy.error().code);
    nonblocking_.store((flags & SOCK_NONBLOCK) != 0);
    exec_kept_.store(true);
    return *copy;
}

}  // namespace xsock::sockets
