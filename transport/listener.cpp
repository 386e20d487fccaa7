// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/listener.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {
constexpr int kAcceptsPerPass = 64;
constexpr Time kPauseWhenOutOfDescriptors = 100 * kMillisecond;
constexpr Time kPauseWhenFull = 20 * kMillisecond;
}  // namespace

ListenSocket::ListenSocket(int fd, Progress& progress, const ConnectAttr& attr, MakeConnection make,
                           std::size_t max_starting)
    : fd_(fd),
      progress_(progress),
      attr_(attr),
      private_data_(attr.private_data.begin(), attr.private_data.end()),
      make_(std::move(make)),
      max_starting_(max_starting) {
    attr_.private_data = private_data_;
}

ListenSocket::~ListenSocket() {
    if (fd_ >= 0) close_owned(fd_);
    if (ready_fd_ >= 0) close_owned(ready_fd_);
}

Result<void> ListenSocket::open(Pass& pass) {
    auto added = progress_.add(shared_from_this(), fd_, EPOLLIN);
    if (!added) {
        fd_ = -1;  // still the caller's
        return added;
    }
    accept_some(pass);
    return {};
}

void ListenSocket::close(Pass& pass) {
    if (fd_ < 0) return;
    {
        const DescriptorChange change;
        progress_.remove(*this);
        close_owned(fd_);
        fd_ = -1;
    }
    for (Connection* connection : std::exchange(starting_, {})) {
        connection->set_listener(nullptr);
        connection->abort(pass);
    }
    const std::lock_guard lock(ready_mutex_);
    for (auto& connection : std::exchange(ready_, {})) connection->release(pass);
    ready_count_.store(0, std::memory_order_seq_cst);
}

void ListenSocket::on_ready(std::uint32_t, Pass& pass) {
    if (!paused_) accept_some(pass);
}

void ListenSocket::pause(Pass& pass, Time time) {
    paused_ = true;
    progress_.modify(*this, EPOLLET);
    progress_.set_deadline(*this, time_after(pass.now(), time));
}

void ListenSocket::retry(Pass& pass) {
    if (paused_) on_time(pass);
}

void ListenSocket::on_time(Pass& pass) {
    if (fd_ < 0) return;
    paused_ = false;
    progress_.modify(*this, EPOLLIN);
    accept_some(pass);
}

int ListenSocket::accept_owned() const noexcept {
    const DescriptorChange change;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) own_descriptor(fd);
    return fd;
}

void ListenSocket::accept_some(Pass& pass) {
    for (int i = 0; i < kAcceptsPerPass; ++i) {
        if (starting_.size() + ready_count_.load(std::memory_order_relaxed) >= max_starting_) {
            log(LogLevel::warn, "too-many-starting",
                "%zu start-ups are under way or wait to be accepted; new connections wait in the "
                "listen queue",
                starting_.size() + ready_count_.load(std::memory_order_relaxed));
            pause(pass, kPauseWhenFull);
            return;
        }
        const int fd = accept_owned();
        if (fd < 0) {
            const int error = errno;
            // EINVAL: another process, or a call that passed us by, has shut the socket down. As
            // long as it does not listen again epoll reports it all the time.
            if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
                error == EINVAL) {
                pause(pass, kPauseWhenOutOfDescriptors);
                if (shortage_.exchange(error, std::memory_order_acq_rel) != error) {
                    log(error == EINVAL ? LogLevel::info : LogLevel::error, "accept-failed",
                        "%s; trying again every %llu ms", std::strerror(error),
                        static_cast<unsigned long long>(kPauseWhenOutOfDescriptors / kMillisecond));
                    pass.active = true;
                    if (observer_.on_connection_ready) observer_.on_connection_ready();
                }
                return;
            }
            if (errno == EINTR || errno == ECONNABORTED) continue;
            shortage_.store(0, std::memory_order_release);
            return;
        }
        shortage_.store(0, std::memory_order_release);
        try {
            start(fd, pass);
        } catch (...) {
            log(LogLevel::error, "accept-failed", "out of memory; the connection is dropped");
            close_owned(fd);
        }
    }
}

// Makes a connection of an accepted socket, which it takes unless it throws.
void ListenSocket::start(int fd, Pass& pass) {
    const auto self = std::static_pointer_cast<ListenSocket>(shared_from_this());
    std::shared_ptr<Connection> connection =
        make_([weak = std::weak_ptr<ListenSocket>(self)](Connection& c, QpState state) {
            if (const auto listener = weak.lock()) listener->started(c, state);
        });
    starting_.insert(connection.get());
    const auto started_now = [&] {
        try {
            return connection->start(fd, attr_, mpa::Role::responder, pass);
        } catch (...) {
            starting_.erase(connection.get());
            throw;
        }
    };
    if (auto r = started_now(); !r) {
        log(LogLevel::error, "accept-failed", "%s: %s", r.error().what,
            std::strerror(r.error().code));
        starting_.erase(connection.get());
        close_owned(fd);
    }
}

void ListenSocket::on_failure(Pass& pass) noexcept {
    if (fd_ >= 0) pause(pass, kPauseWhenOutOfDescriptors);
}

// A connection of ours changed state; ours to report until it is ready or dead.
void ListenSocket::started(Connection& connection, QpState state) {
    switch (state) {
        case QpState::fresh:
        case QpState::starting:
            return;
        case QpState::requested:
        case QpState::established:
            break;
        case QpState::peer_closed:
        case QpState::closing:
        case QpState::error:
        case QpState::closed:
            if (starting_.erase(&connection) != 0 && observer_.on_connection_failed) {
                observer_.on_connection_failed(connection);
            }
            return;
    }
    if (starting_.erase(&connection) == 0) return;
    {
        const std::lock_guard lock(ready_mutex_);
        ready_.push_back(std::static_pointer_cast<Connection>(connection.shared_from_this()));
        ready_count_.store(ready_.size(), std::memory_order_seq_cst);
        if (ready_fd_ >= 0) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const ssize_t n = write(ready_fd_, &one, sizeof one);
        }
    }
    if (observer_.on_connection_ready) observer_.on_connection_ready();
}

std::shared_ptr<Connection> ListenSocket::take() {
    const std::lock_guard lock(ready_mutex_);
    if (ready_.empty()) return nullptr;
    auto connection = std::move(ready_.front());
    ready_.pop_front();
    ready_count_.store(ready_.size(), std::memory_order_seq_cst);
    if (ready_fd_ >= 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t n = read(ready_fd_, &count, sizeof count);
    }
    return connection;
}

void ListenSocket::give_back(std::shared_ptr<Connection> connection) {
    const std::lock_guard lock(ready_mutex_);
    ready_.push_front(std::move(connection));
    ready_count_.store(ready_.size(), std::memory_order_seq_cst);
    if (ready_fd_ >= 0) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t n = write(ready_fd_, &one, sizeof one);
    }
}

// A semaphore: one count for each ready connection.
Result<int> ListenSocket::ready_fd() {
    const std::lock_guard lock(ready_mutex_);
    if (ready_fd_ >= 0) return ready_fd_;
    const DescriptorChange change;
    const int fd = move_and_own(
        eventfd(static_cast<unsigned>(ready_.size()), EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC));
    if (fd < 0) return Error{errno, "eventfd failed"};
    ready_fd_ = fd;
    return fd;
}

}  // namespace xsock
