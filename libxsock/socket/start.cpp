// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How iWARP begins on a socket: connect(), a switch of a connected one, or the discovery that an
// accepted peer speaks MPA; and what the connection then tells us.
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>

#include "libxsock/socket/message_channel.hpp"
#include "libxsock/socket/socket.hpp"
#include "libxsock/socket/stream_channel.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {
namespace {

// Around the first use of a socket in a process, and of its channel. One for all, so that a forked
// child, whose parent's threads may have held it, can reset it.
std::mutex beginning;

void set_int(int fd, int level, int name, int value) noexcept {
    setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

void reset_start_lock() noexcept { new (&beginning) std::mutex; }

// The poller of this socket in this process; null with errno when there can be none.
PollGroup* Socket::ensure_progress() {
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
    if (generation_.load(std::memory_order_relaxed) != now) listener_.renew_lock();
    own_fd_.forget();
    early_.clear();
    kernel_ready_.store(true, std::memory_order_relaxed);
    progress_.store(&device->polled().group_of_thread(), std::memory_order_release);
    generation_.store(now, std::memory_order_release);
    return progress();
}

// The one place that makes a channel. Locked, because two threads may call connect() at once.
void Socket::ensure_channel() {
    const std::lock_guard hold(beginning);
    if (channel_ != nullptr) return;
    if (options_.mode == DDPMODE_STREAM) {
        channel_ = std::make_unique<StreamChannel>(*this, options_);
    } else {
        channel_ = std::make_unique<MessageChannel>(*this, options_);
    }
}

// Calls that sleep on this socket check again. In a child that has not used it there are none: its
// progress() is the parent's, whose descriptors' numbers may be other files' here.
void Socket::wake_callers() noexcept {
    if (generation_.load(std::memory_order_acquire) != process_generation()) return;
    if (PollGroup* const poller = progress()) poller->wake_waiters();
}

// Program calls on a descriptor tell us its number; from the start on exec() must not hand it on.
void Socket::keep_from_exec(int fd) noexcept {
    if (exec_kept_.load(std::memory_order_relaxed)) return;
    ::ioctl(fd, FIOCLEX);
    exec_kept_.store(true, std::memory_order_relaxed);
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
    const bool is_stream = options_.mode == DDPMODE_STREAM;
    if (is_stream) take_over_stream_settings(fd);
    if (!is_stream || options_.stream.receive_low != 1) set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
    if (!is_stream || options_.stream.cork != 0) set_int(fd, IPPROTO_TCP, TCP_CORK, 0);
}

// Buffers that the program has set are the stream's; where it has not, the kernel's grow as needed,
// and the stream's are as large as that.
void Socket::take_over_stream_settings(int fd) noexcept {
    Options::Stream& stream = options_.stream;
    const auto get = [fd](int level, int name, int& value) {
        socklen_t size = sizeof value;
        return getsockopt(fd, level, name, &value, &size) == 0;
    };
    get(IPPROTO_TCP, TCP_NODELAY, stream.nodelay);
    get(IPPROTO_TCP, TCP_CORK, stream.cork);
    get(SOL_SOCKET, SO_OOBINLINE, stream.oob_inline);
    get(SOL_SOCKET, SO_RCVLOWAT, stream.receive_low);
    constexpr int kBufLock = 72, kSendLock = 1, kReceiveLock = 2;  // SO_BUF_LOCK, Linux 5.14
    int locks = 0, bytes = 0;
    if (!get(SOL_SOCKET, kBufLock, locks)) return;
    if ((locks & kSendLock) != 0 && get(SOL_SOCKET, SO_SNDBUF, bytes) && bytes > 0) {
        stream.send_bytes = static_cast<std::uint64_t>(bytes);
    }
    if ((locks & kReceiveLock) != 0 && get(SOL_SOCKET, SO_RCVBUF, bytes) && bytes > 0) {
        stream.receive_bytes = static_cast<std::uint64_t>(bytes);
    }
}

std::shared_ptr<PolledQp> Socket::make_connection(PolledQp::StateListener listener) {
    ensure_channel();
    PolledQpAttr attr;
    attr.qp = options_.qp_attr();
    attr.qp.context = reinterpret_cast<std::uintptr_t>(this);
    attr.group = progress();
    attr.listener = std::move(listener);
    channel_->join(attr, shared_from_this());
    auto connection = api::device()->polled().create_polled_qp(std::move(attr));
    channel_->attach(*connection);
    return connection;
}

// The poller: MPA start-up on own_fd_, which then is the connection's.
void Socket::start(ConnectAttr::Role role, PollCycle& cycle) {
    own_fd_.end_watch();
    take_over_settings(own_fd_.fd());
    connection_ = make_connection([this](PolledQp& qp, QpState s) { on_state(qp, s); });
    early_.send_by(*channel_);  // ahead of what other threads send from now on
    kernel_ready_.store(false, std::memory_order_release);
    phase_.store(Phase::starting, std::memory_order_release);
    ConnectAttr attr = options_.connect_attr();
    attr.role = role;
    attr.defer_reply = role == ConnectAttr::Role::responder;
    Result<void> started;
    try {
        const std::vector<std::byte> request = channel_->request();
        attr.private_data = request;
        started = connection_->start(own_fd_.fd(), attr, cycle);
    } catch (const std::bad_alloc&) {
        started = Error{ENOMEM, "no memory for a connection"};
    }
    if (!started) {
        own_fd_.close();
        fail_start(started.error().code);
    } else {
        own_fd_.release();
    }
    if (early_.is_closed()) close_behind_start(cycle);
}

// The poller. The error first: a call that finds the end tells it. The phase before the channel: a
// call that takes the error of one that has ended may put it back.
void Socket::end(int error) noexcept {
    if (!opened_.load(std::memory_order_relaxed)) {
        const bool connected = phase() != Phase::connecting;
        code_.store(connected ? "start-failed" : "connect-failed", std::memory_order_relaxed);
    }
    channel_->set_error(error);
    phase_.store(Phase::ended, std::memory_order_release);
    channel_->on_ended();
}

void Socket::fail_start(int error) {
    end(error);
    wake(kEverything);
    progress()->wake_waiters();
}

// A call of the program: start-up on a connected socket. 0, or -1 with errno and nothing changed.
int Socket::begin(int fd, ConnectAttr::Role role) {
    if (ensure_progress() == nullptr) return -1;
    auto copy = duplicate_descriptor(fd);
    if (!copy) return no(copy.error().code);
    begin(fd, *copy, role);
    return 0;
}

// The same; `copy` is own_fd_'s from now on.
void Socket::begin(int fd, int copy, ConnectAttr::Role role) {
    PollGroup* const poller = progress();
    kernel_ready_.store(false, std::memory_order_release);
    mode_changed();
    try {
        poller->locked([&](PollCycle& cycle) {
            own_fd_.assign(copy);
            start(role, cycle);
        });
    } catch (...) {
        own_fd_.close();
        kernel_ready_.store(true, std::memory_order_release);
        mode_changed();
        throw;
    }
    // For threads that began to wait between the two phases.
    if (starts_behind(phase())) wake(kWritable);
    keep_from_exec(fd);
    poller->ensure_thread();
}

// Waits until start-up has ended, or goes on behind. 0, or -1 with what it ended with.
int Socket::wait_started() {
    const auto usable = [this] { return is_usable(); };
    const auto waited = wait(*progress(), usable, send_timeout_.load());
    if (waited != PollGroup::Waited::done) return fail_wait(waited, EINPROGRESS);
    if (phase() != Phase::ended) return 0;
    const int error = channel_->take_error();
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
            return XSOCK_PLAIN;
        case Phase::connecting:
        case Phase::starting:
            if (foreign()) return inherited(fd);
            if (starts_behind(phase())) return connected_again();
            if (!blocks) {
                check_connecting();
                progress()->poll();
                if (phase() == Phase::ended) break;
                return is_usable() ? connected_again() : no(EALREADY);
            }
            if (wait_started() != 0) return -1;
            successes_to_tell_.store(0);
            return 0;
        case Phase::open:
            return foreign() ? inherited(fd) : connected_again();
        case Phase::ended:
            break;
    }
    if (phase() == Phase::ended) {
        if (foreign()) return inherited(fd);
        const int error = channel_->take_error();
        return no(error != 0 ? error : opened_.load() ? EISCONN : ECONNABORTED);
    }
    if (address != nullptr && length >= sizeof address->sa_family &&
        address->sa_family == AF_UNSPEC) {
        return XSOCK_PASS;
    }
    // Ahead of TCP, which cannot be taken back.
    if (ensure_progress() == nullptr) return connect_without_descriptors(errno);
    ensure_channel();  // ahead of the copy, which would stay open if it threw
    Result<int> copy = duplicate_descriptor(fd);
    if (!copy) return connect_without_descriptors(copy.error().code);
    // Else connect() is done before TCP is: MPA begins when TCP is connected.
    const int off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &off, sizeof off);
    if (options_.mode == DDPMODE_STREAM) {
        syn_mark_.set(fd, address, length);
        asked_.set(fd, address, length);
    }
    if (::connect(fd, address, length) == 0) {
        syn_mark_.restore(fd);
        begin(fd, *copy, ConnectAttr::Role::initiator);
        if (options_.mode == DDPMODE_STREAM) return 0;
        return blocks ? wait_started() : no(EINPROGRESS);
    }
    const int reason = errno;
    if (reason == EINPROGRESS || reason == EINTR) {
        watch_connect(fd, *copy);
    } else {
        syn_mark_.restore(fd);
        close_internal_fd(*copy);
    }
    return no(reason);
}

// As a server: a stream that need not be carried is plain.
int Socket::connect_without_descriptors(int reason) noexcept {
    if (options_.mode != DDPMODE_STREAM || options_.require != 0) return no(reason);
    log(LogLevel::info, "fallback-no-watch", "%s: connects as plain TCP", std::strerror(reason));
    become_plain("fallback-no-watch");
    return XSOCK_PLAIN;
}

// As TCP: one that has come about in the background is told of by the next call, once.
int Socket::connected_again() noexcept {
    return successes_to_tell_.exchange(0) != 0 ? 0 : no(EISCONN);
}

// TCP connects in the background; MPA begins when it has.
void Socket::watch_connect(int fd, int copy) {
    if (options_.mode == DDPMODE_STREAM) successes_to_tell_.store(1);
    kernel_ready_.store(false, std::memory_order_release);
    mode_changed();
    progress()->locked([&](PollCycle&) {
        phase_.store(Phase::connecting, std::memory_order_release);
        own_fd_.assign(copy);
        if (auto r = own_fd_.watch(*progress(), shared_from_this(), EPOLLOUT); !r) {
            syn_mark_.restore(fd);
            own_fd_.close();
            fail_start(r.error().code);
        }
    });
    keep_from_exec(fd);
    progress()->ensure_thread();
}

// ---- a connected socket that both programs switch ---------------------------

int Socket::switch_connected(int fd) {
    ConnectAttr::Role role = ConnectAttr::Role::initiator;
    switch (options_.role) {
        case XSOCK_ROLE_INITIATOR:
            break;
        case XSOCK_ROLE_RESPONDER:
            role = ConnectAttr::Role::responder;
            break;
        default:
            if (hint_ == XSOCK_HINT_NONE) return no(EINVAL);
            if (hint_ == XSOCK_HINT_ACCEPTED) role = ConnectAttr::Role::responder;
            break;
    }
    // A Request toward an initiator is no reason to hold back: it must get ours to know that both
    // began (EPROTO at either end).
    if (peek_peer(fd).kind == PeerPeek::Kind::other) return no(EBUSY);
    if (begin(fd, role) != 0) return -1;
    if (options_.mode == DDPMODE_STREAM) return 0;
    return blocking(0) ? wait_started() : no(EINPROGRESS);
}

// ---- what the connection says ------------------------------------------------

void Socket::on_state(const PolledQp& connection, QpState state) {
    switch (state) {
        case QpState::fresh:
        case QpState::starting:
        case QpState::requested:
        case QpState::closing:
            return;
        case QpState::established:
            if (!channel_->begin(connection.peer_private_data())) {
                asked_.failed();
                connection_->request_end(PolledQp::End::abort);
                return;
            }
            if (counters_ != nullptr) counters_->started.fetch_add(1, std::memory_order_relaxed);
            opened_.store(true, std::memory_order_relaxed);
            kernel_reason_.store(connection.kernel_reason(), std::memory_order_relaxed);
            asked_.answered();
            phase_.store(Phase::open, std::memory_order_release);
            if (options_.mode != DDPMODE_STREAM) wake(kWritable);
            return;
        case QpState::peer_closed:
            channel_->on_peer_closed();
            wake(kReadable | EPOLLRDHUP);
            return;
        case QpState::error:
        case QpState::closed:
            break;
    }
    int error = connection.error();
    // Also one that just closed: it may not speak our language. Not where this end aborts it.
    if (phase() == Phase::starting && error != ENOMEM && error != ECONNABORTED) asked_.failed();
    error = channel_->end_error(error);
    // An end in good order before the start has ended is none that the program asked for.
    if (error == 0 && phase() == Phase::starting && !channel_->is_write_shut()) error = ECONNRESET;
    end(error);
    wake(error != 0 ? kEverything : kEverything & ~std::uint32_t{EPOLLERR});
}

}  // namespace xsock::sockets
