// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Life of a socket in DDPMODE, what is ready, and the small calls.
#include "libxsock/socket/socket.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <climits>
#include <mutex>

#include "base/fault.hpp"
#include "libxsock/socket/endpoint_qp.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/soft_device.hpp"

namespace xsock::sockets {
namespace {

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;

bool option_is(int fd, int name, int wanted) {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 && value == wanted;
}

}  // namespace

int IovSpan::assign(const msghdr& message) noexcept {
    int error = 0;
    const bool there = fault::guard([&] {
        {
            const fault::Touch reading(0, &message, sizeof message);
            iov = message.msg_iov;
            count = message.msg_iovlen;
        }
        bytes = 0;
        if (count > IOV_MAX) {
            error = EMSGSIZE;
            return;
        }
        const fault::Touch reading(0, iov, count * sizeof *iov);
        for (std::size_t i = 0; i < count && error == 0; ++i) {
            if (iov[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - bytes) error = EINVAL;
            bytes += iov[i].iov_len;
        }
    });
    return there ? error : EFAULT;
}

// ---- life -----------------------------------------------------------------

Result<Socket*> Socket::open(int fd, int hint) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) {
        return Error{errno, "not a socket"};
    }
    if ((domain != AF_INET && domain != AF_INET6) || !option_is(fd, SO_TYPE, SOCK_STREAM) ||
        !option_is(fd, SO_PROTOCOL, IPPROTO_TCP)) {
        return Error{EOPNOTSUPP, "DDPMODE is for TCP sockets over IPv4 and IPv6"};
    }
    static std::once_flag once;
    std::call_once(once, [] {
        fault::install();
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

Socket::~Socket() {
    drop_messages();
    give_buffer(rx_spare_);
    close_own_fd();
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
    const bool ours = generation_.load(std::memory_order_relaxed) == process_generation();
    if (ours) {
        close_listener();
        bool connected = false;
        if (Progress* const poller = progress()) {
            // A poll cycle may be about to find out that the peer speaks MPA.
            poller->locked([&](PollCycle& cycle) {
                connected = connection_ != nullptr;
                if (connected) return;
                leave_progress(cycle);
                close_own_fd();
            });
        }
        if (connected) close_connection();
        drop_messages();
    } else {
        own_fd_ = -1;  // closed when this process was forked; the number may be another's now
    }
    const std::shared_ptr<Socket> last = std::move(held_);
}

void Socket::close_connection() {
    const int linger = linger_s_.load(std::memory_order_relaxed);
    if (linger > 0) {
        progress()->locked([this](PollCycle& cycle) { connection_->shutdown(cycle); });
        wait(&Socket::drained, Time{static_cast<unsigned>(linger)} * kSecond);
    }
    std::shared_ptr<Connection> connection;
    {
        const std::lock_guard hold(rx_lock_);
        rx_closed_ = true;
    }
    progress()->locked([&](PollCycle& cycle) {
        if (linger == 0) connection_->abort(cycle);
        connection_->release(cycle);
        connection = std::move(connection_);
    });
    endpoint_.reset();
}

bool Socket::drained() const noexcept {
    return connection().sends_outstanding() == 0 || phase() == Phase::ended;
}

bool Socket::foreign() const noexcept {
    return phase() >= Phase::connecting && phase() != Phase::undecided && phase() != Phase::plain &&
           generation_.load(std::memory_order_relaxed) != process_generation();
}

int Socket::inherited() const noexcept {
    report_inherited("a DDPMODE socket");
    return no(EPERM);
}

int Socket::started() const noexcept {
    switch (phase()) {
        case Phase::fresh:
        case Phase::listening:
        case Phase::undecided:
        case Phase::plain:
            return 0;
        case Phase::connecting:
        case Phase::starting:
        case Phase::open:
        case Phase::ended:
            break;
    }
    return foreign() ? 2 : 1;
}

const char* Socket::mode_text() const noexcept {
    switch (phase()) {
        case Phase::fresh:
        case Phase::listening:
            return on() ? "message" : "off";
        case Phase::undecided:
        case Phase::plain:
            return code_.load(std::memory_order_relaxed);
        case Phase::connecting:
        case Phase::starting:
        case Phase::open:
        case Phase::ended:
            break;
    }
    return "message";
}

// ---- waiting --------------------------------------------------------------

Progress::Waited Socket::wait(bool (Socket::*done)() const noexcept, Time timeout) {
    const Time deadline = timeout != 0 ? time_after(monotonic_now(), timeout) : kNever;
    const auto look = [this, done] { return (this->*done)(); };
    return progress()->wait_interruptibly(std::ref(look), deadline, timeout == 0);
}

// -1 with the errno for a wait that did not end well.
int Socket::fail_wait(Progress::Waited why, int on_timeout) noexcept {
    return no(why == Progress::Waited::interrupted ? EINTR : on_timeout);
}

bool Socket::is_mode_known() const noexcept {
    const Phase now = phase();
    return now != Phase::connecting && now != Phase::undecided && now != Phase::starting;
}

// Whether a call may go on to carry messages: 0; or what it answers instead.
int Socket::ensure_open(int fd, int flags, bool writing) {
    for (;;) {
        switch (phase()) {
            case Phase::fresh:
            case Phase::listening:
                return XSOCK_PASS;
            case Phase::plain:
                return tcp_answer(fd);
            case Phase::open:
            case Phase::ended:
                if (foreign()) return inherited();
                keep_from_exec(fd);
                return 0;
            case Phase::undecided:
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
                if (foreign()) return inherited();
                if (!blocking(flags)) {
                    progress()->poll();
                    if (is_mode_known()) continue;
                    return no(EAGAIN);
                }
                break;
        }
        const Time timeout = writing ? send_timeout_.load() : receive_timeout_.load();
        const auto waited = wait(&Socket::is_mode_known, timeout);
        if (waited != Progress::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// ---- readiness ------------------------------------------------------------

bool Socket::kernel_ready() const noexcept {
    if (generation_.load(std::memory_order_relaxed) != process_generation() &&
        phase() != Phase::listening) {
        return true;
    }
    switch (phase()) {
        case Phase::plain:
            return true;
        case Phase::listening:
            return options_.require == 0 || !on() || listener_shut_.load(std::memory_order_acquire);
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
    std::uint32_t events = 0;
    switch (phase()) {
        case Phase::fresh:
        case Phase::plain:
            break;  // kernel-ready
        case Phase::listening:
            return connection_waits() ? kReadable : 0;
        case Phase::connecting:
        case Phase::starting:
            return 0;
        case Phase::undecided:
            return kWritable;  // a program that writes now has decided for plain TCP
        case Phase::ended:
            events = kReadable | kWritable | EPOLLRDHUP | EPOLLHUP;
            if (error_.load(std::memory_order_acquire) != 0) events |= EPOLLERR;
            break;
        case Phase::open: {
            const bool end = eof_.load(std::memory_order_acquire) || read_shut_.load();
            const bool shut = write_shut_.load(std::memory_order_relaxed);
            if (end) events |= kReadable | EPOLLRDHUP;
            if (rx_count_.load(std::memory_order_seq_cst) != 0) events |= kReadable;
            if (shut || can_send()) {
                events |= kWritable;
            } else {
                // Room made from now on is reported; it may have been made in between.
                tx_no_room_.store(true, std::memory_order_seq_cst);
                if (can_send()) events |= kWritable;
            }
            if (shut && end) events |= EPOLLHUP;
            break;
        }
    }
    return events;
}

// ---- small calls ----------------------------------------------------------

int Socket::fcntl(int fd, int command, long argument) {
    if (command == F_GETFL) {
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags < 0) return -1;
        return (flags & ~O_NONBLOCK) | (nonblocking_.load() ? O_NONBLOCK : 0);
    }
    if (command != F_SETFL) return XSOCK_PASS;
    const bool wanted = (argument & O_NONBLOCK) != 0;
    // The engine accepts in poll cycles, which must not block.
    const bool keep = listener_now_.load(std::memory_order_acquire) != nullptr;
    if (::fcntl(fd, F_SETFL, keep ? argument | O_NONBLOCK : argument) < 0) return -1;
    nonblocking_.store(wanted);
    return 0;
}

int Socket::ioctl(int fd, unsigned long request, void* argument) {
    const Phase now = phase();
    if (request == FIONBIO && argument != nullptr) {
        const int wanted = *static_cast<const int*>(argument);
        const bool keep = listener_now_.load(std::memory_order_acquire) != nullptr;
        int applied = keep ? 1 : wanted;
        if (::ioctl(fd, FIONBIO, &applied) < 0) return -1;
        nonblocking_.store(wanted != 0);
        return 0;
    }
    if ((now != Phase::open && now != Phase::ended) || argument == nullptr) return XSOCK_PASS;
    if (foreign()) return inherited();
    switch (request) {
        case FIONREAD: {
            if (rx_count_.load(std::memory_order_acquire) == 0) progress()->poll();
            const std::lock_guard hold(rx_lock_);
            *static_cast<int*>(argument) =
                rx_first_ != nullptr ? static_cast<int>(rx_first_->length) : 0;
            return 0;
        }
        case SIOCOUTQ: {
            int queued = 0;
            if (::ioctl(fd, SIOCOUTQ, &queued) < 0) queued = 0;
            const std::uint64_t here = tx_bytes_.load(std::memory_order_relaxed);
            *static_cast<int*>(argument) = static_cast<int>(
                std::min<std::uint64_t>(here + static_cast<unsigned>(queued), INT_MAX));
            return 0;
        }
        case SIOCATMARK:
            *static_cast<int*>(argument) = 0;
            return 0;
        default:
            return XSOCK_PASS;
    }
}

int Socket::no_stream(int fd, bool writing) {
    const int answer = ensure_open(fd, 0, writing);
    return answer != 0 ? answer : no(EOPNOTSUPP);
}

void Socket::keep_error(int error) noexcept {
    if (phase() != Phase::ended || error == EAGAIN || error == EPIPE) return;
    int told = 0;
    error_.compare_exchange_strong(told, error);
}

int Socket::shutdown(int fd, int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return no(EINVAL);
    switch (phase()) {
        case Phase::fresh:
            return XSOCK_PASS;
        case Phase::listening:
            return shut_listening(fd, how);
        case Phase::undecided:
            // A program that will not read can only be about to write.
            if (decide(fd, true) != 0) return -1;
            if (phase() == Phase::plain) return tcp_answer(fd);
            break;
        case Phase::plain:
            return tcp_answer(fd);
        case Phase::connecting:
            return foreign() ? inherited() : no(ENOTCONN);
        case Phase::starting:
        case Phase::open:
            break;
        case Phase::ended:
            return foreign() ? inherited() : no(ENOTCONN);
    }
    if (foreign()) return inherited();
    keep_from_exec(fd);
    std::uint32_t told = 0;
    if (how != SHUT_WR) {
        read_shut_.store(true);
        over_.store(true, std::memory_order_release);
        told |= kReadable | EPOLLRDHUP;
        drop_messages();
        connection().receive_posted();  // what comes is taken and dropped from now on
    }
    if (how != SHUT_RD) {
        write_shut_.store(true);
        told |= kWritable;
        progress()->locked([this](PollCycle& cycle) { connection().shutdown(cycle); });
    }
    progress()->wake_waiters();
    wake(told);
    return 0;
}

xsock_ep* Socket::endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) {
    const Phase now = phase();
    if (now != Phase::starting && now != Phase::open && now != Phase::ended) {
        errno = ENOTCONN;
        return nullptr;
    }
    if (foreign()) {
        (void)inherited();
        return nullptr;
    }
    const std::lock_guard hold(endpoint_lock_);
    if (recv_cq == nullptr) recv_cq = send_cq;
    if (endpoint_ != nullptr) {
        if (send_cq != nullptr && (send_cq != endpoint_cqs_[0] || recv_cq != endpoint_cqs_[1])) {
            errno = EINVAL;
            return nullptr;
        }
        return endpoint_.get();
    }
    if (send_cq == nullptr) {
        errno = EINVAL;
        return nullptr;
    }
    if (!api::same_process(send_cq) || !api::same_process(recv_cq)) return nullptr;
    xsock_ep_attr attr{};
    attr.size = sizeof attr;
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    std::unique_ptr<xsock_ep> ep(
        new xsock_ep{std::make_unique<EndpointQp>(*this, connection_), api::ObjectRefs(attr)});
    ep->borrowed = true;
    const auto core = [](xsock_cq* cq) { return static_cast<SoftCq&>(*cq->cq).core(); };
    // Polls of the queues poll this connection too.
    core(send_cq)->add_source(*progress());
    core(recv_cq)->add_source(*progress());
    progress()->locked([&](PollCycle&) {
        user_send_cq_ = core(send_cq);
        user_recv_cq_ = core(recv_cq);
        connection_->set_context(0);
    });
    endpoint_cqs_[0] = send_cq;
    endpoint_cqs_[1] = recv_cq;
    endpoint_ = std::move(ep);
    return endpoint_.get();
}

}  // namespace xsock::sockets
