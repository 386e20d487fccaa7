// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the peer of a socket speaks that was accepted, and what a connect() in the background has
// come to: the socket's own number is watched until that is known.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "libxsock/socket/socket.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {

void Socket::begin_watch(int fd) noexcept {
    const Phase now = phase();
    try {
        if (now == Phase::listening && on()) publish_listener(fd);
        if (now == Phase::listening && on() && options_.requires_ddp()) {
            const int saved = errno;
            ensure_listener(fd);
            errno = saved;
            return;
        }
        // TCP may have connected just now: that is for this call to tell, and no later edge.
        if (now == Phase::connecting && in_own_process()) check_connecting();
        if (now != Phase::undecided || foreign()) return;
        PollGroup* const poller = ensure_progress();
        if (poller == nullptr || !own_fd_.claim_watch()) return;
        auto copy = duplicate_descriptor(fd);
        // Without a descriptor the first bytes cannot be peeked at; then recv() decides.
        if (!copy) {
            own_fd_.unclaim_watch();
            log(LogLevel::error, "no-descriptor", "%s: %s", copy.error().what,
                std::strerror(copy.error().code));
            return;
        }
        kernel_ready_.store(false, std::memory_order_release);
        mode_changed();
        poller->locked([&](PollCycle& cycle) {
            if (phase() != Phase::undecided || own_fd_.is_watched()) {
                close_internal_fd(*copy);
                return;
            }
            own_fd_.assign(*copy);
            if (watch_undecided()) check_undecided(cycle);
        });
        poller->ensure_thread();
    } catch (...) {
        log(LogLevel::error, "no-memory", "a socket cannot be watched");
    }
}

// Without waiting for a poll cycle that asks: another thread may be in the middle of one that has
// asked before TCP was connected.
void Socket::check_connecting() {
    if (phase() != Phase::connecting) return;
    progress()->locked([this](PollCycle& cycle) {
        if (phase() != Phase::connecting || !own_fd_.is_open()) return;
        pollfd connecting{own_fd_.fd(), POLLOUT, 0};
        if (::poll(&connecting, 1, 0) != 1) return;
        try {
            on_ready(cycle);
        } catch (const std::bad_alloc&) {
            on_failure(cycle);
        }
    });
}

void Socket::on_ready(PollCycle& cycle) {
    if (phase() == Phase::undecided) return check_undecided(cycle);
    if (phase() != Phase::connecting) return;
    syn_mark_.restore(own_fd_.fd());
    const int error = tcp::pending_error(own_fd_.fd());
    if (error == 0) {
        start(ConnectAttr::Role::initiator, cycle);
        if (!is_usable()) return;
        wake(kWritable);
        return progress()->wake_waiters();
    }
    own_fd_.end_watch();
    own_fd_.close();
    fail_start(error);
}

// The poller: what was seen of the peer decides. False: not yet.
bool Socket::decide_by(PeerPeek::Kind seen, PollCycle& cycle) {
    switch (seen) {
        case PeerPeek::Kind::mpa: {
            const bool was_writable = (events() & kWritable) != 0;
            start(ConnectAttr::Role::responder, cycle);
            if (!was_writable && is_usable()) wake(kWritable);
            return true;
        }
        case PeerPeek::Kind::other:
            fall_back_to_tcp("fallback-not-mpa");
            return true;
        case PeerPeek::Kind::finished:
        case PeerPeek::Kind::failed:
            fall_back_to_tcp("fallback-eof");
            return true;
        case PeerPeek::Kind::silent:
        case PeerPeek::Kind::beginning:
            break;
    }
    return false;
}

// The poller, with own_fd_ open. False: it has fallen back to TCP.
bool Socket::watch_undecided() {
    if (own_fd_.watch(*progress(), shared_from_this(), EPOLLIN | EPOLLRDHUP)) return true;
    fall_back_to_tcp("fallback-no-watch");
    return false;
}

// The poller, of a watched socket that is undecided.
void Socket::check_undecided(PollCycle& cycle) {
    const PeerPeek peek = peek_peer(own_fd_.fd());
    if (!decide_by(peek.kind, cycle)) limit_undecided(peek);
}

void Socket::limit_undecided(const PeerPeek& peek) {
    if (will_ask()) own_fd_.set_limit(options_.startup_limit());
    if (peek.kind == PeerPeek::Kind::silent) return;
    own_fd_.await_more_than(peek.bytes, options_.startup_limit());
}

void Socket::on_time(PollCycle&) {
    if (phase() == Phase::undecided) fall_back_to_tcp("fallback-slow");
}

void Socket::on_failure(PollCycle&) noexcept {
    syn_mark_.restore(own_fd_.fd());
    own_fd_.end_watch();
    if (phase() == Phase::undecided) early_.send_by_tcp(own_fd_.fd());
    own_fd_.close();
    if (phase() == Phase::undecided) {
        become_plain("fallback-no-watch");
        progress()->wake_waiters();
    } else if (!is_known(phase())) {
        fail_start(ENOMEM);
    }
}

// Plain TCP, with every byte where it was.
void Socket::fall_back_to_tcp(const char* code) {
    const int fd = own_fd_.fd();
    own_fd_.end_watch();
    if (log_enabled(LogLevel::info)) {
        log(LogLevel::info, code, "%s: served as plain TCP",
            fd >= 0 ? tcp::name_of(tcp::peer_of(fd)).data() : "a peer");
    }
    early_.send_by_tcp(fd);
    own_fd_.close();
    own_fd_.unclaim_watch();
    become_plain(code);
    progress()->wake_waiters();
}

void Socket::become_plain(const char* code) noexcept {
    if (counters_ != nullptr) counters_->fallbacks.fetch_add(1, std::memory_order_relaxed);
    code_.store(code, std::memory_order_relaxed);
    kernel_ready_.store(true, std::memory_order_release);
    phase_.store(Phase::plain, std::memory_order_release);
    mode_changed();
}

// Without descriptors for the engine, as in a process that has set RLIMIT_NOFILE to 0 for its own
// safety: nothing can be carried, but a plain peer is served. 0, or -1 with errno as it is: the
// peer speaks MPA, or will.
int Socket::decide_without_progress(int fd) noexcept {
    const int reason = errno;
    if (will_ask() || peek_peer(fd).kind == PeerPeek::Kind::mpa) return no(reason);
    log(LogLevel::info, "fallback-no-watch", "%s: served as plain TCP", std::strerror(reason));
    become_plain("fallback-no-watch");
    return 0;
}

// A call of the program on an undecided socket: peeks now. 0, with the phase as it then is, or -1.
int Socket::decide(int fd, bool writing) {
    PollGroup* const poller = ensure_progress();
    if (poller == nullptr) return decide_without_progress(fd);
    int error = 0;
    bool awaited = false;
    poller->locked([&](PollCycle& cycle) {
        if (phase() != Phase::undecided) return;
        const PeerPeek seen = peek_peer(fd);
        // The rest of a key may come while the program polls by calling us: limit that in time.
        awaited = will_ask() || seen.kind == PeerPeek::Kind::beginning;
        const bool borrowed = !own_fd_.is_open();
        if (borrowed) {
            // For the log, and for the connection that it may become.
            auto copy = duplicate_descriptor(fd);
            if (!copy) {
                if (will_ask() || seen.kind == PeerPeek::Kind::mpa) {
                    error = copy.error().code;
                } else if (!decide_by(seen.kind, cycle)) {
                    fall_back_to_tcp("fallback-no-watch");
                }
                return;
            }
            own_fd_.assign(*copy);
        }
        if (decide_by(seen.kind, cycle)) return;
        if (writing && !will_ask()) {
            fall_back_to_tcp("fallback-server-first");
        } else if (borrowed && awaited && own_fd_.claim_watch()) {
            kernel_ready_.store(false, std::memory_order_release);
            mode_changed();
            if (watch_undecided()) limit_undecided(seen);
        } else if (borrowed) {
            own_fd_.close();
        }
    });
    if (error != 0) return no(error);
    const Phase now = phase();
    if (now == Phase::undecided ? awaited : now != Phase::plain) poller->ensure_thread();
    return 0;
}

// The socket is watched by then: decide() has come first.
ssize_t Socket::send_early(int fd, const IovSpan& iovs, int flags) {
    std::array<std::byte, EarlySends::kMost> copy;
    const auto bytes = Bytes(copy).first(std::min(copy.size(), iovs.bytes));
    if (!iovs.gather(0, bytes)) return no(EFAULT);
    std::optional<std::size_t> taken;
    bool is_shut = false;
    progress()->locked([&](PollCycle&) {
        if (phase() != Phase::undecided) return;
        is_shut = early_.is_shut();
        taken = 0;
        if (is_shut) return;
        const bool whole = bytes.size() == iovs.bytes;
        if (own_fd_.is_open()) taken = early_.add(bytes, whole ? flags : flags & ~MSG_OOB);
    });
    if (!taken) return send(fd, iovs, flags);
    if (is_shut) return no_pipe(flags);
    if (*taken > 0) keep_from_exec(fd);
    return *taken > 0 || iovs.bytes == 0 ? static_cast<ssize_t>(*taken) : no(EAGAIN);
}

// shutdown() waits with what was sent, and of one that does not block in any case. False: it is to
// be done now.
bool Socket::shut_early(int how) {
    bool kept = false;
    if (!sends_early() || how != SHUT_WR || (blocking(0) && early_.is_empty())) return false;
    progress()->locked([&](PollCycle&) {
        kept = phase() == Phase::undecided && own_fd_.is_open();
        if (kept) early_.shutdown(how);
    });
    return kept;
}

// What the client has sent, or is about to, is its Request: to close TCP on it would be a reset. So
// iWARP begins, and the stream ends behind that; where the Request is still to come, without the
// program. Not where another process may go on with it, but for one whose first bytes are here.
void Socket::closing(int fd, bool may_be_shared) {
    if (phase() != Phase::undecided || options_.mode != DDPMODE_STREAM || foreign()) return;
    const bool has_sent = !early_.is_empty();
    const bool is_handed_on = hint_ == XSOCK_HINT_HANDED_ON;  // the other process may have kept it
    if ((may_be_shared || is_handed_on) && !has_sent) return;
    const PeerPeek::Kind seen = peek_peer(fd).kind;
    const bool may_come =
        will_ask() && (seen == PeerPeek::Kind::silent || seen == PeerPeek::Kind::beginning);
    if (seen != PeerPeek::Kind::mpa && !may_come && !has_sent) return;
    PollGroup* const poller = ensure_progress();
    if (poller == nullptr) return;
    poller->locked([&](PollCycle& cycle) {
        if (phase() != Phase::undecided) return;
        if (!own_fd_.is_open()) {
            auto copy = duplicate_descriptor(fd);
            if (!copy) return;
            own_fd_.assign(*copy);
        }
        wait_closed(cycle);
    });
    poller->ensure_thread();
    poller->poll();  // a Request that is there is answered before the process may exit
}

// The poller: what was sent ahead of the client's Request, and the end behind it, goes by what the
// client turns out to speak, within the time that it has for it.
void Socket::wait_closed(PollCycle& cycle) {
    const PeerPeek peek = peek_peer(own_fd_.fd());
    if (decide_by(peek.kind, cycle)) return;
    early_.close();
    // Another thread may have claimed the watch, and not have begun it.
    static_cast<void>(own_fd_.claim_watch());
    if (own_fd_.is_watched() || watch_undecided()) limit_undecided(peek);
}

// The program has closed it. True: that waits for the client.
bool Socket::close_undecided(PollCycle& cycle) {
    if (phase() != Phase::undecided || !own_fd_.is_open() || early_.is_empty()) return false;
    wait_closed(cycle);
    return phase() != Phase::plain;
}

// start() of one that the program has closed.
void Socket::close_behind_start(PollCycle& cycle) {
    const auto keep = shared_from_this();
    const auto connection = connection_;
    if (linger_s_.load(std::memory_order_relaxed) == 0) connection->abort(cycle);
    if (!channel_->close([this] { connection_.reset(); })) return;
    connection->release(cycle);
    connection_.reset();
}

void Socket::on_exit(PollCycle& cycle) {
    if (close_undecided(cycle) && phase() == Phase::undecided) {
        own_fd_.shorten_limit(options_.linger_limit());
    }
}

bool Socket::is_owing(Time& limit_out) const {
    if (phase() != Phase::undecided || (early_.is_empty() && !early_.is_closed())) return false;
    const Time now = monotonic_now(), due = own_fd_.deadline();
    if (due == kNever) return false;
    // The end alone is not worth the time.
    limit_out = early_.size() == 0 ? 0 : (due > now ? due - now : 0) + kSecond;
    return true;
}

// O_ASYNC: SIGIO would tell of TCP's bytes, not of the stream's. 0: it may be set; or what the call
// answers. A connection that has not begun is plain from now on.
int Socket::begin_async(int fd) {
    if (options_.mode != DDPMODE_STREAM) return no(EOPNOTSUPP);
    if (phase() == Phase::listening && !options_.requires_ddp()) return 0;  // the kernel accepts
    if (phase() != Phase::undecided || will_ask()) return no(EOPNOTSUPP);
    if (decide(fd, false) != 0) return -1;
    if (phase() == Phase::undecided) {
        progress()->locked([&](PollCycle&) {
            const bool begins = peek_peer(fd).kind == PeerPeek::Kind::beginning;
            if (phase() == Phase::undecided && !begins) fall_back_to_tcp("fallback-async");
        });
    }
    return phase() == Phase::plain ? XSOCK_PLAIN : no(EOPNOTSUPP);
}

}  // namespace xsock::sockets
