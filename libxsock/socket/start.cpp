// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How iWARP begins on a socket: connect(), a switch of a connected one, or the discovery that an
// accepted peer speaks MPA; and what the connection then tells us.
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>

#include "libxsock/socket/key.hpp"
#include "libxsock/socket/socket.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/soft_device.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {
namespace {

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kEverything = kReadable | kWritable | EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// Around the first use of a socket in a process. One for all, so that a forked child, whose
// parent's threads may have held it, can reset it.
std::mutex beginning;

void set_int(int fd, int level, int name, int value) noexcept {
    setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

void reset_start_lock() noexcept { new (&beginning) std::mutex; }

// The poller of this socket in this process; null with errno when there can be none.
Progress* Socket::ensure_progress() {
    const std::uint32_t now = process_generation();
    if (generation_.load(std::memory_order_acquire) == now && progress() != nullptr) {
        return progress();
    }
    Device* const device = api::device();
    if (device == nullptr) return nullptr;
    const std::lock_guard hold(beginning);
    if (progress() != nullptr && generation_.load(std::memory_order_relaxed) == now) {
        return progress();
    }
    // A child begins anew: what its parent had begun here was closed when it was forked, and a
    // thread that is not here may have held the lock.
    if (generation_.load(std::memory_order_relaxed) != now) new (&listener_mutex_) std::mutex;
    if (progress() != nullptr) forget_progress();
    own_fd_ = -1;
    watched_ = beginning_ = false;
    watched_now_.store(false, std::memory_order_relaxed);
    kernel_ready_.store(true, std::memory_order_relaxed);
    progress_.store(&soft_progress(*device), std::memory_order_release);
    generation_.store(now, std::memory_order_release);
    return progress();
}

// Calls that sleep on this socket check again. In a child that has not used it there are none: its
// progress() is the parent's, whose descriptors' numbers may be other files' here.
void Socket::wake_callers() noexcept {
    if (generation_.load(std::memory_order_acquire) != process_generation()) return;
    if (Progress* const poller = progress()) poller->wake_waiters();
}

// Program calls on a descriptor tell us its number; from the start on exec() must not hand it on.
void Socket::keep_from_exec(int fd) noexcept {
    if (exec_kept_.load(std::memory_order_relaxed)) return;
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0) ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    exec_kept_.store(true, std::memory_order_relaxed);
}

void Socket::close_own_fd() noexcept {
    if (own_fd_ < 0) return;
    close_internal_fd(own_fd_);
    own_fd_ = -1;
}

void Socket::leave_progress(PollCycle&) {
    progress()->remove(*this);
    if (low_water_ >= 0 && own_fd_ >= 0) {
        set_int(own_fd_, SOL_SOCKET, SO_RCVLOWAT, low_water_);
        low_water_ = -1;
    }
}

// What the program set for a stream and what would be in the way of FPDUs.
void Socket::take_over_settings(int fd) noexcept {
    linger how{};
    socklen_t size = sizeof how;
    if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &how, &size) == 0 && how.l_onoff != 0) {
        linger_s_.store(how.l_linger, std::memory_order_relaxed);
        const linger off{};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    }
    set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
    set_int(fd, IPPROTO_TCP, TCP_CORK, 0);
}

Connection::Parts Socket::connection_parts(Connection::StateListener listener) {
    cq_.emplace(*progress(), 4, false);
    cq_->queue.set_sink(on_completion, this);
    Connection::Parts parts;
    parts.attr = options_.qp_attr();
    parts.attr.context = reinterpret_cast<std::uintptr_t>(this);
    // The queue is part of this object, so the connection keeps the whole of it.
    parts.send_cq = parts.recv_cq = std::shared_ptr<CqCore>(self(), &*cq_);
    parts.progress = progress();
    parts.listener = std::move(listener);
    parts.spare_receive = spare_receive;
    parts.spare_argument = this;
    return parts;
}

// The poller: MPA start-up on own_fd_, which then is the connection's.
void Socket::start(mpa::Role role, PollCycle& cycle) {
    leave_progress(cycle);
    take_over_settings(own_fd_);
    connection_ = make_soft_connection(
        *api::device(), connection_parts([this](Connection& c, QpState s) { on_state(c, s); }));
    connection_now_.store(connection_.get(), std::memory_order_release);
    kernel_ready_.store(false, std::memory_order_release);
    phase_.store(Phase::starting, std::memory_order_release);
    cycle.active = true;
    ConnectAttr attr = options_.connect_attr();
    attr.role =
        role == mpa::Role::initiator ? ConnectAttr::Role::initiator : ConnectAttr::Role::responder;
    if (auto r = connection_->start(own_fd_, attr, role, cycle); !r) {
        close_own_fd();
        fail_start(r.error().code);
        return;
    }
    own_fd_ = -1;
}

void Socket::fail_start(int error) {
    error_.store(error, std::memory_order_release);
    phase_.store(Phase::ended, std::memory_order_release);
    over_.store(true, std::memory_order_release);
    wake(kEverything);
}

// A call of the program: start-up on a connected socket. 0, or -1 with errno and nothing changed.
int Socket::begin(int fd, mpa::Role role) {
    Progress* const poller = ensure_progress();
    if (poller == nullptr) return -1;
    auto copy = duplicate_descriptor(fd);
    if (!copy) return no(copy.error().code);
    kernel_ready_.store(false, std::memory_order_release);
    mode_changed();
    try {
        poller->locked([&](PollCycle& cycle) {
            own_fd_ = *copy;
            start(role, cycle);
        });
    } catch (...) {
        close_own_fd();
        kernel_ready_.store(true, std::memory_order_release);
        mode_changed();
        throw;
    }
    keep_from_exec(fd);
    poller->ensure_thread();
    return 0;
}

// Waits until start-up has ended. 0, or -1 with what it ended with.
int Socket::wait_started() {
    const auto waited = wait(&Socket::is_mode_known, send_timeout_.load());
    if (waited != Progress::Waited::done) return fail_wait(waited, EINPROGRESS);
    if (phase() == Phase::open) return 0;
    const int error = error_.exchange(0);
    return no(error != 0 ? error : ECONNABORTED);
}

// ---- connect() ------------------------------------------------------------

int Socket::connect(int fd, const sockaddr* address, socklen_t length) {
    if (!on()) return XSOCK_PASS;
    const bool blocks = blocking(0);
    switch (phase()) {
        case Phase::fresh:
            break;
        case Phase::listening:
        case Phase::undecided:
            return XSOCK_PASS;  // the kernel says what is wrong with it
        case Phase::plain:
            return tcp_answer(fd);
        case Phase::connecting:
        case Phase::starting:
            if (foreign()) return inherited();
            if (!blocks) {
                progress()->poll();
                return no(phase() == Phase::open ? EISCONN : EALREADY);
            }
            return wait_started();
        case Phase::open:
            return foreign() ? inherited() : no(EISCONN);
        case Phase::ended: {
            if (foreign()) return inherited();
            const int error = error_.exchange(0);
            return no(error != 0 ? error : opened_.load() ? EISCONN : ECONNABORTED);
        }
    }
    if (address != nullptr && length >= sizeof address->sa_family &&
        address->sa_family == AF_UNSPEC) {
        return XSOCK_PASS;
    }
    if (ensure_progress() == nullptr) return -1;
    if (::connect(fd, address, length) == 0) {
        if (begin(fd, mpa::Role::initiator) != 0) return -1;
        return blocks ? wait_started() : no(EINPROGRESS);
    }
    if (errno != EINPROGRESS && errno != EINTR) return -1;
    const int reason = errno;
    watch_connect(fd);
    return no(reason);
}

// TCP connects in the background; MPA begins when it has.
void Socket::watch_connect(int fd) {
    auto copy = duplicate_descriptor(fd);
    kernel_ready_.store(false, std::memory_order_release);
    mode_changed();
    progress()->locked([&](PollCycle& cycle) {
        phase_.store(Phase::connecting, std::memory_order_release);
        if (!copy) {
            fail_start(copy.error().code);
            return;
        }
        own_fd_ = *copy;
        if (auto r = progress()->add(shared_from_this(), own_fd_, EPOLLOUT); !r) {
            close_own_fd();
            fail_start(r.error().code);
        }
        cycle.active = true;
    });
    keep_from_exec(fd);
    progress()->ensure_thread();
}

// ---- a connected socket that both programs switch ---------------------------

int Socket::switch_connected(int fd) {
    mpa::Role role = mpa::Role::initiator;
    switch (options_.role) {
        case XSOCK_ROLE_INITIATOR:
            break;
        case XSOCK_ROLE_RESPONDER:
            role = mpa::Role::responder;
            break;
        default:
            if (hint_ == XSOCK_HINT_NONE) return no(EINVAL);
            if (hint_ == XSOCK_HINT_ACCEPTED) role = mpa::Role::responder;
            break;
    }
    // A Request toward an initiator is no reason to hold back: it must get ours to know that both
    // began (EPROTO at either end).
    if (peek_peer(fd).kind == PeerPeek::Kind::other) return no(EBUSY);
    if (begin(fd, role) != 0) return -1;
    return blocking(0) ? wait_started() : no(EINPROGRESS);
}

// ---- what does the peer speak? ----------------------------------------------

void Socket::begin_watch(int fd) noexcept {
    const Phase now = phase();
    if (now == Phase::listening && on() && options_.require != 0) {
        const int saved = errno;
        ensure_listener(fd);
        errno = saved;
        return;
    }
    if (now != Phase::undecided) return;
    try {
        Progress* const poller = ensure_progress();
        if (poller == nullptr || watched_now_.exchange(true)) return;
        auto copy = duplicate_descriptor(fd);
        // Without a descriptor the first bytes cannot be peeked at; then recv() decides.
        if (!copy) {
            watched_now_.store(false);
            log(LogLevel::error, "no-descriptor", "%s: %s", copy.error().what,
                std::strerror(copy.error().code));
            return;
        }
        kernel_ready_.store(false, std::memory_order_release);
        mode_changed();
        poller->locked([&](PollCycle& cycle) {
            if (phase() != Phase::undecided) {
                close_internal_fd(*copy);
                return;
            }
            own_fd_ = *copy;
            watched_ = true;
            if (!poller->add(shared_from_this(), own_fd_, EPOLLIN | EPOLLRDHUP)) {
                fall_back_to_tcp("fallback-no-watch", cycle);
                return;
            }
            check_undecided(cycle);
        });
        poller->ensure_thread();
    } catch (...) {
        log(LogLevel::error, "no-memory", "a socket cannot be watched");
    }
}

void Socket::on_ready(std::uint32_t, PollCycle& cycle) {
    switch (phase()) {
        case Phase::undecided:
            check_undecided(cycle);
            return;
        case Phase::connecting: {
            const int error = tcp::pending_error(own_fd_);
            if (error == 0) {
                start(mpa::Role::initiator, cycle);
                return;
            }
            leave_progress(cycle);
            close_own_fd();
            fail_start(error);
            cycle.active = true;
            return;
        }
        case Phase::fresh:
        case Phase::listening:
        case Phase::starting:
        case Phase::open:
        case Phase::ended:
        case Phase::plain:
            return;
    }
}

// The poller, of a watched socket that is undecided.
void Socket::check_undecided(PollCycle& cycle) {
    const PeerPeek peek = peek_peer(own_fd_);
    switch (peek.kind) {
        case PeerPeek::Kind::silent:
            return;
        case PeerPeek::Kind::beginning:
            // The kernel says "readable" again when there is more than this.
            if (low_water_ < 0) {
                low_water_ = 1;
                socklen_t size = sizeof low_water_;
                getsockopt(own_fd_, SOL_SOCKET, SO_RCVLOWAT, &low_water_, &size);
            }
            if (!beginning_) {  // a forked child begins anew, with its parent's SO_RCVLOWAT
                beginning_ = true;
                progress()->set_deadline(*this, time_after(cycle.now(), options_.startup_limit()));
            }
            set_int(own_fd_, SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(peek.bytes) + 1);
            return;
        case PeerPeek::Kind::mpa:
            start(mpa::Role::responder, cycle);
            return;
        case PeerPeek::Kind::other:
            fall_back_to_tcp("fallback-not-mpa", cycle);
            return;
        case PeerPeek::Kind::finished:
        case PeerPeek::Kind::failed:
            fall_back_to_tcp("fallback-eof", cycle);
            return;
    }
}

void Socket::on_time(PollCycle& cycle) {
    if (phase() == Phase::undecided) fall_back_to_tcp("fallback-slow", cycle);
}

void Socket::on_failure(PollCycle& cycle) noexcept {
    leave_progress(cycle);
    close_own_fd();
    if (phase() == Phase::undecided) {
        kernel_ready_.store(true, std::memory_order_release);
        code_.store("fallback-no-watch", std::memory_order_relaxed);
        phase_.store(Phase::plain, std::memory_order_release);
        mode_changed();
    } else if (!is_mode_known()) {
        fail_start(ENOMEM);
    }
    cycle.active = true;
}

// Plain TCP, with every byte where it was.
void Socket::fall_back_to_tcp(const char* code, PollCycle& cycle) {
    const int fd = own_fd_;
    if (watched_) leave_progress(cycle);
    if (log_enabled(LogLevel::info)) {
        log(LogLevel::info, code, "%s: served as plain TCP",
            fd >= 0 ? tcp::peer_name(fd).c_str() : "a peer");
    }
    close_own_fd();
    watched_ = false;
    watched_now_.store(false, std::memory_order_relaxed);
    if (counters_ != nullptr) counters_->fallbacks.fetch_add(1, std::memory_order_relaxed);
    code_.store(code, std::memory_order_relaxed);
    kernel_ready_.store(true, std::memory_order_release);
    phase_.store(Phase::plain, std::memory_order_release);
    cycle.active = true;
    mode_changed();
}

int Socket::tcp_answer(int) noexcept { return XSOCK_PLAIN; }

// A call of the program on an undecided socket: looks now. 0, with the phase as it then is, or -1.
int Socket::decide(int fd, bool writing) {
    Progress* const poller = ensure_progress();
    if (poller == nullptr) return -1;
    int error = 0;
    poller->locked([&](PollCycle& cycle) {
        if (phase() != Phase::undecided) return;
        const PeerPeek seen = peek_peer(fd);
        const bool borrowed = own_fd_ < 0;
        if (borrowed) {
            // For the log, and for the connection that it may become.
            auto copy = duplicate_descriptor(fd);
            if (!copy) {
                error = copy.error().code;
                return;
            }
            own_fd_ = *copy;
        }
        switch (seen.kind) {
            case PeerPeek::Kind::mpa:
                start(mpa::Role::responder, cycle);
                return;
            case PeerPeek::Kind::other:
                fall_back_to_tcp("fallback-not-mpa", cycle);
                return;
            case PeerPeek::Kind::finished:
            case PeerPeek::Kind::failed:
                fall_back_to_tcp("fallback-eof", cycle);
                return;
            case PeerPeek::Kind::silent:
            case PeerPeek::Kind::beginning:
                break;
        }
        if (writing) {
            fall_back_to_tcp("fallback-server-first", cycle);
        } else if (borrowed) {
            close_own_fd();
        }
    });
    if (error != 0) return no(error);
    if (phase() == Phase::undecided) {
        // The rest of a key may come while the program polls by calling us: limit that in time.
        if (peek_peer(fd).kind == PeerPeek::Kind::beginning) begin_watch(fd);
    } else if (phase() != Phase::plain) {
        poller->ensure_thread();
    }
    return 0;
}

// ---- what the connection says ------------------------------------------------

void Socket::on_state(Connection& connection, QpState state) {
    switch (state) {
        case QpState::fresh:
        case QpState::starting:
        case QpState::requested:
        case QpState::closing:
            return;
        case QpState::established:
            if (counters_ != nullptr) counters_->started.fetch_add(1, std::memory_order_relaxed);
            opened_.store(true, std::memory_order_relaxed);
            phase_.store(Phase::open, std::memory_order_release);
            wake(kWritable);
            return;
        case QpState::peer_closed:
            eof_.store(true, std::memory_order_release);
            over_.store(true, std::memory_order_release);
            wake(kReadable | EPOLLRDHUP);
            return;
        case QpState::error:
        case QpState::closed:
            break;
    }
    const int error = connection.error();
    const bool starting = phase() == Phase::starting;
    // An end in good order before the start has ended is none that the program asked for.
    error_.store(error != 0                        ? error
                 : starting && !write_shut_.load() ? ECONNRESET
                                                   : 0,
                 std::memory_order_release);
    eof_.store(true, std::memory_order_release);
    phase_.store(Phase::ended, std::memory_order_release);
    over_.store(true, std::memory_order_release);
    wake(error_.load() != 0 ? kEverything : kEverything & ~std::uint32_t{EPOLLERR});
}

// The poller: something that was posted is done.
void Socket::on_completion(void* self, const Wc& wc) {
    auto* const socket = static_cast<Socket*>(self);
    const bool receive = wc.opcode == WcOpcode::recv;
    if ((wc.flags & kWcInternal) != 0) {
        receive ? socket->received(wc) : socket->sent(wc);
        return;
    }
    CqCore* const queue = (receive ? socket->user_recv_cq_ : socket->user_send_cq_).get();
    if (queue != nullptr) queue->queue.push(wc);
    if (!receive && socket->tx_no_room_.load(std::memory_order_seq_cst) && socket->can_send() &&
        socket->tx_no_room_.exchange(false)) {
        socket->wake(kWritable);
    }
}

}  // namespace xsock::sockets
