// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Life of a socket in DDPMODE, what is ready, and the small calls.
#include "libxsock/socket/socket.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <mutex>

#include "base/fault.hpp"
#include "libxsock/socket/buffer_pool.hpp"
#include "libxsock/socket/handed_on.hpp"
#include "transport/fork.hpp"
#include "transport/plain_sockets.hpp"

namespace xsock::sockets {
// ---- life -----------------------------------------------------------------

Result<Socket*> Socket::open(int fd, int hint) {
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return Error{errno, "not a socket"};
    int protocol = 0;
    size = sizeof protocol;
    // (There is no other domain of that type and protocol.)
    if (type != SOCK_STREAM || getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
        protocol != IPPROTO_TCP) {
        return Error{EOPNOTSUPP, "DDPMODE is for TCP sockets over IPv4 and IPv6"};
    }
    static std::once_flag once;
    std::call_once(once, [] {
        (void)fault::install();
        call_in_child(renew_buffer_pool);
        call_in_child(reset_start_lock);
    });
    auto socket = std::make_shared<Socket>(hint);
    const int flags = ::fcntl(fd, F_GETFL);
    socket->nonblocking_.store(flags >= 0 && (flags & O_NONBLOCK) != 0);
    socket->receive_timeout_.store(timeout_of(fd, SO_RCVTIMEO));
    socket->send_timeout_.store(timeout_of(fd, SO_SNDTIMEO));
    socket->held_ = socket;
    return socket.get();
}

Time Socket::timeout_of(int fd, int name) noexcept {
    timeval value{};
    socklen_t size = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, name, &value, &size) != 0) return 0;
    return static_cast<Time>(value.tv_sec) * kSecond + static_cast<Time>(value.tv_usec) * 1000;
}

void Socket::unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    retire();
    close();
}

void Socket::close() {
    // The parent's connection is not touched, and what stands behind it here is left where it is:
    // its memory may be in the middle of something that only the parent goes on with.
    if (foreign()) {
        if (held_ != nullptr) leak_after_fork(std::move(held_));
        return;
    }
    listener_entry_.withdraw();
    if (in_own_process() && !early_.is_closed()) {
        close_listener();
        bool connected = false, goes_on = false;
        if (PollGroup* const poller = progress()) {
            // A poll cycle may be about to find out that the peer speaks MPA.
            poller->locked([&](PollCycle& cycle) {
                goes_on = connection_ == nullptr && close_undecided(cycle);
                connected = connection_ != nullptr;
                if (connected || early_.is_closed()) return;
                own_fd_.end_watch();
                own_fd_.close();
            });
        }
        if (goes_on) progress()->ensure_thread();
        if (connected) close_connection();
        if (!in_own_process()) {  // a signal handler forked
            leak_after_fork(std::move(held_));
            return;
        }
    } else if (!in_own_process()) {
        own_fd_.forget();
    }
    const std::shared_ptr<Socket> last = std::move(held_);
}

void Socket::close_connection() {
    const int linger = linger_s_.load(std::memory_order_relaxed);
    const auto keep = connection_;  // its end may come while the channel closes
    // A stream ends by messages of its own: below.
    if (linger > 0 && options_.mode != DDPMODE_STREAM) {
        progress()->locked([this](PollCycle& cycle) { connection_->shutdown(cycle); });
        const auto drained = [this] {
            return connection_->sends_outstanding() == 0 || phase() == Phase::ended;
        };
        wait(*progress(), drained, Time{static_cast<unsigned>(linger)} * kSecond);
        if (!in_own_process()) return;
    }
    std::shared_ptr<PolledQp> connection;
    if (linger == 0) progress()->locked([this](PollCycle& cycle) { connection_->abort(cycle); });
    // What it has still to send keeps the connection, which keeps this.
    if (!channel_->close([this] { connection_.reset(); })) {
        if (linger <= 0) return;
        const auto all_sent = [this] { return channel_->has_closed(); };
        wait(*progress(), all_sent, Time{static_cast<unsigned>(linger)} * kSecond);
        return;
    }
    progress()->locked([&](PollCycle& cycle) {
        connection_->release(cycle);
        connection = std::move(connection_);
    });
}

bool Socket::in_own_process() const noexcept {
    return generation_.load(std::memory_order_relaxed) == process_generation();
}

int Socket::inherited(int fd) const noexcept {
    if (options_.mode == DDPMODE_STREAM) {
        note_refused(fd, asked_.endpoint());
    } else {
        report_inherited("a DDPMODE socket");
    }
    return no(EPERM);
}

int Socket::started() const noexcept {
    if (!has_begun()) return 0;
    return foreign() ? 2 : 1;
}

void Socket::refuse(int fd) const noexcept {
    if (options_.mode == DDPMODE_STREAM) note_refused(fd, asked_.endpoint());
}

const char* Socket::mode_text() const noexcept {
    const Phase now = phase();
    const char* const mode = options_.mode == DDPMODE_STREAM ? "stream" : "message";
    if (now == Phase::fresh || now == Phase::listening) return on() ? mode : "off";
    if (now == Phase::ended && !opened_.load()) return code_.load(std::memory_order_relaxed);
    // What the client is about to ask for, most probably.
    const bool will_begin = now == Phase::undecided && early_.is_closed();
    return is_begun(now) || will_begin ? mode : code_.load(std::memory_order_relaxed);
}

const char* Socket::stack_text() const noexcept {
    const kernel::Reason reason = kernel_reason_.load(std::memory_order_relaxed);
    if (reason == kernel::Reason::off) return nullptr;
    return reason == kernel::Reason::none ? "kernel" : kernel::name_of(reason);
}

void Socket::note_plain(int fd) const noexcept {
    const bool accepted = hint_ == XSOCK_HINT_ACCEPTED || hint_ == XSOCK_HINT_HANDED_ON;
    const PlainReason reason = plain_reason_of(mode_text());
    if (phase() != Phase::plain || reason == PlainReason::none) return;
    note_plain_socket(fd, reason, accepted ? PlainRole::server : PlainRole::client);
}

// ---- calls that carry data ------------------------------------------------

// Open, of this process, and nothing is to be done first.
inline bool Socket::is_entered() const noexcept {
    return phase() == Phase::open && in_own_process() && exec_kept_.load(std::memory_order_relaxed);
}

// The first of it all: 0, or what the call answers instead.
inline int Socket::enter(int fd, int flags, bool writing) {
    return is_entered() ? 0 : ensure_open(fd, flags, writing);
}

bool Socket::append(const IovSpan& iovs) noexcept { return is_entered() && channel_->append(iovs); }

ssize_t Socket::send(int fd, const IovSpan& iovs, int flags) {
    // The first words of a server wait for a peer that will ask; the server does not, with TCP
    // neither.
    const bool tries = phase() == Phase::undecided && has_early_room(iovs.bytes);
    int answer = enter(fd, tries ? flags | MSG_DONTWAIT : flags, true);
    if (answer == -1 && errno == EAGAIN && sends_early()) {
        const ssize_t sent = send_early(fd, iovs, flags);
        if (sent >= 0 || errno != EAGAIN || !blocking(flags)) return sent;
    }
    if (answer == -1 && errno == EAGAIN && tries && blocking(flags)) {
        answer = enter(fd, flags, true);
    }
    if (answer != 0) return answer;
    return channel_->send(iovs, {flags, blocking(flags), send_timeout_.load()});
}

ssize_t Socket::receive(int fd, const IovSpan& iovs, int flags, int& out_flags) {
    out_flags = 0;
    if (const int answer = enter(fd, flags, false); answer != 0) return answer;
    return channel_->receive(iovs, {flags, blocking(flags), receive_timeout_.load()}, out_flags);
}

// Whether a call may go on to carry messages: 0; or what it answers instead.
int Socket::ensure_open(int fd, int flags, bool writing) {
    for (;;) {
        switch (phase()) {
            case Phase::fresh:
            case Phase::listening:
                return XSOCK_PASS;
            case Phase::plain:
                return XSOCK_PLAIN;
            case Phase::open:
            case Phase::ended:
                if (foreign()) return inherited(fd);
                keep_from_exec(fd);
                return 0;
            case Phase::undecided:
                if (foreign()) return inherited(fd);
                if (decide(fd, writing) != 0) return -1;
                if (phase() != Phase::undecided) continue;
                if (!blocking(flags)) {
                    progress()->poll();  // this call must, where no thread polls
                    if (phase() != Phase::undecided) continue;
                    return no(EAGAIN);
                }
                begin_watch(fd);
                break;
            case Phase::connecting:
            case Phase::starting:
                if (foreign()) return inherited(fd);
                if (starts_behind(phase())) {
                    keep_from_exec(fd);
                    return 0;
                }
                if (!blocking(flags)) {
                    check_connecting();
                    progress()->poll();
                    if (is_usable()) continue;
                    return no(EAGAIN);
                }
                break;
        }
        const Time timeout = writing ? send_timeout_.load() : receive_timeout_.load();
        const auto waited = wait(
            *progress(), [this] { return is_usable(); }, timeout);
        if (waited != PollGroup::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// ---- readiness ------------------------------------------------------------

bool Socket::kernel_ready() const noexcept {
    if (foreign()) return false;
    if (!in_own_process() && phase() != Phase::listening) return true;
    switch (phase()) {
        case Phase::plain:
            return true;
        case Phase::listening:
            return !options_.requires_ddp() || !on() || listener_.is_shut();
        case Phase::fresh:  // not from mode_changed() on, which comes before the start
        case Phase::undecided:
            return kernel_ready_.load(std::memory_order_acquire);
        case Phase::connecting:
        case Phase::starting:
        case Phase::open:
        case Phase::ended:
            break;
    }
    return false;
}

std::uint32_t Socket::events() const noexcept {
    // Its bytes go to its own process, so the next call would wait for ever: it fails.
    if (foreign()) return kEverything;
    switch (phase()) {
        case Phase::fresh:
        case Phase::plain:
            break;  // kernel-ready
        case Phase::listening:
            return listener_.has_news() ? kReadable : 0;
        case Phase::connecting:
            break;
        case Phase::starting:
            return options_.mode == DDPMODE_STREAM ? channel_->events() : 0;
        case Phase::undecided:
            // A program that writes now has decided for plain TCP, unless the peer will ask.
            if (!will_ask()) return kWritable;
            return sends_early() && (early_.has_room() || early_.is_shut()) ? kWritable : 0;
        case Phase::ended:
            return channel_->has_error() ? kEverything : kEverything & ~std::uint32_t{EPOLLERR};
        case Phase::open:
            return channel_->events();
    }
    return 0;
}

// ---- small calls ----------------------------------------------------------

int Socket::fcntl(int fd, int command, long argument) {
    if (command == F_GETFL) {
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags < 0) return -1;
        return (flags & ~O_NONBLOCK) | (nonblocking_.load() ? O_NONBLOCK : 0);
    }
    if (command != F_SETFL) return XSOCK_PASS;
    if ((argument & O_ASYNC) != 0 && on() && (::fcntl(fd, F_GETFL) & O_ASYNC) == 0) {
        if (const int answer = begin_async(fd); answer != 0) return answer;
    }
    const bool wanted = (argument & O_NONBLOCK) != 0;
    // The engine accepts in poll cycles, which must not block.
    if (::fcntl(fd, F_SETFL, listener_.is_open() ? argument | O_NONBLOCK : argument) < 0) return -1;
    nonblocking_.store(wanted);
    return 0;
}

bool Socket::in_memory() const {
    if (connection_ == nullptr) return false;
    DataPath path{};
    progress()->locked([&](PollCycle&) { path = connection_->info().path; });
    return path == DataPath::shm;
}

int Socket::ioctl(int fd, unsigned long request, void* argument) {
    const Phase now = phase();
    if (request == FIONBIO && argument != nullptr) {
        const int wanted = *static_cast<const int*>(argument);
        int applied = listener_.is_open() ? 1 : wanted;
        if (::ioctl(fd, FIONBIO, &applied) < 0) return -1;
        nonblocking_.store(wanted != 0);
        return 0;
    }
    if (request == FIOASYNC && argument != nullptr && on() &&
        *static_cast<const int*>(argument) != 0) {
        if (const int answer = begin_async(fd); answer != 0) return answer;
    }
    const bool carries = now == Phase::open || now == Phase::ended || starts_behind(now);
    if (!carries || argument == nullptr) return XSOCK_PASS;
    if (foreign()) return inherited(fd);
    return channel_->ioctl(request == SIOCOUTQ && in_memory() ? -1 : fd, request, argument);
}

int Socket::no_stream(int fd, bool writing, bool in_parts) {
    const int answer = ensure_open(fd, 0, writing);
    if (answer == -1 && errno == EAGAIN && in_parts && sends_early()) return XSOCK_MOVE;
    if (answer != 0) return answer;
    return options_.mode == DDPMODE_STREAM ? XSOCK_MOVE : no(EOPNOTSUPP);
}

void Socket::keep_error(int error) noexcept {
    if (phase() != Phase::ended || error == EAGAIN || error == EPIPE) return;
    channel_->keep_error(error);
}

int Socket::shutdown(int fd, int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return no(EINVAL);
    switch (phase()) {
        case Phase::fresh:
            return XSOCK_PASS;
        case Phase::listening:
            return shut_listening(fd, how);
        case Phase::undecided:
            if (foreign()) return inherited(fd);
            if (decide(fd, true) != 0) return -1;
            if (shut_early(how)) return 0;
            // A program that will not read can only be about to write.
            if (const int answer = decide_for_good(fd); answer != 0) return answer;
            break;
        case Phase::plain:
            return XSOCK_PLAIN;
        case Phase::connecting:
            return foreign() ? inherited(fd) : no(ENOTCONN);
        case Phase::starting:
        case Phase::open:
            break;
        case Phase::ended:
            return foreign() ? inherited(fd) : no(ENOTCONN);
    }
    if (foreign()) return inherited(fd);
    keep_from_exec(fd);
    const bool reading = how != SHUT_WR, writing = how != SHUT_RD;
    channel_->shutdown(reading, writing);
    progress()->wake_waiters();
    wake((reading ? kReadable | EPOLLRDHUP : 0) | (writing ? kWritable : 0));
    return 0;
}

// Waits for the Request of a peer that will send one, if calls on this socket may wait, no longer
// than start-up may take. 0: it has begun; or what the call answers.
int Socket::decide_for_good(int fd) {
    if (decide(fd, true) != 0) return -1;
    if (phase() == Phase::plain) return XSOCK_PLAIN;
    if (phase() == Phase::undecided && blocking(0)) {
        begin_watch(fd);
        const auto waited = wait(
            *progress(), [this] { return phase() != Phase::undecided; }, options_.startup_limit());
        if (waited == PollGroup::Waited::interrupted) return fail_wait(waited, EAGAIN);
    }
    progress()->locked([this](PollCycle&) {
        if (phase() == Phase::undecided) fall_back_to_tcp("fallback-server-first");
    });
    return phase() == Phase::plain ? XSOCK_PLAIN : 0;
}

xsock_ep* Socket::endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) {
    const Phase now = phase();
    const bool begun = now == Phase::starting || now == Phase::open || now == Phase::ended;
    if (begun && foreign()) {
        (void)inherited(-1);
        return nullptr;
    }
    if (!begun || connection_ == nullptr) {  // it may have ended before MPA began
        errno = ENOTCONN;
        return nullptr;
    }
    return channel_->endpoint(send_cq, recv_cq);
}

}  // namespace xsock::sockets
