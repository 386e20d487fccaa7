// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/listener.hpp"

#include <sys/epoll.h>
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
constexpr int kAcceptsPerCycle = 64;
constexpr Time kPauseWhenOutOfDescriptors = 100 * kMillisecond;
constexpr Time kPauseWhenFull = 20 * kMillisecond;
}  // namespace

ListenSocket::ListenSocket(int fd, Progress& progress, const ConnectAttr& attr, Make make,
                           std::size_t max_starting)
    : fd_(fd),
      progress_(progress),
      attr_(attr),
      private_data_(attr.private_data.begin(), attr.private_data.end()),
      make_(std::move(make)),
      max_starting_(max_starting),
      starting_(max_starting) {
    attr_.private_data = private_data_;
    attr_.role = ConnectAttr::Role::responder;
}

ListenSocket::~ListenSocket() {
    if (fd_ >= 0) close_internal_fd(fd_);
}

Result<void> ListenSocket::open(PollCycle& cycle) {
    Result<void> added;
    // Rather than refuse each connection.
    if (auto choice = shm_choice(attr_, progress_.config()); !choice) added = choice.error();
    if (added) added = progress_.add(shared_from_this(), fd_, EPOLLIN);
    if (!added) {
        fd_ = -1;  // still the caller's
        return added;
    }
    progress_.watch_rarely(*this);
    accept_some(cycle);
    return {};
}

void ListenSocket::close(PollCycle& cycle) {
    if (fd_ < 0) return;
    {
        const DescriptorChange change;
        progress_.remove(*this);
        close_internal_fd(fd_);
        fd_ = -1;
    }
    starting_.for_each([&](StartupTable::Id id) {
        auto* const connection = static_cast<Connection*>(id);
        connection->set_listener(nullptr);
        connection->abort(cycle);
    });
    starting_.clear();
    const std::lock_guard lock(ready_mutex_);
    // In place: an empty deque is made with an allocation.
    for (auto& connection : ready_) connection->release(cycle);
    ready_.clear();
    ready_count_.store(0, std::memory_order_seq_cst);
}

void ListenSocket::on_ready(std::uint32_t, PollCycle& cycle) {
    if (!paused_) accept_some(cycle);
}

void ListenSocket::pause(PollCycle& cycle, Time time) {
    paused_ = true;
    progress_.modify(*this, EPOLLET);
    progress_.set_deadline(*this, time_after(cycle.now(), time));
}

// Not closed: other processes may share it.
void ListenSocket::on_exit_limit(PollCycle& cycle) {
    if (fd_ >= 0) pause(cycle, kNever);
}

void ListenSocket::retry(PollCycle& cycle) {
    if (paused_) on_time(cycle);
}

void ListenSocket::on_time(PollCycle& cycle) {
    if (fd_ < 0) return;
    paused_ = false;
    progress_.modify(*this, EPOLLIN);
    accept_some(cycle);
}

int ListenSocket::accept_internal() const noexcept {
    const DescriptorChange change;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) register_internal_fd(fd);
    return fd;
}

void ListenSocket::accept_some(PollCycle& cycle) {
    for (int i = 0; i < kAcceptsPerCycle; ++i) {
        if (ready_count_.load(std::memory_order_relaxed) >= max_starting_) {
            log(LogLevel::warn, "too-many-waiting",
                "%zu connections wait for the program to accept them; new ones wait in the listen "
                "queue",
                max_starting_);
            pause(cycle, kPauseWhenFull);
            return;
        }
        if (starting_.should_wait(cycle.now())) {
            pause(cycle, kPauseWhenFull);
            return;
        }
        const int fd = accept_internal();
        if (fd < 0) {
            if (accept_failed(errno, cycle)) continue;
            return;
        }
        shortage_.store(0, std::memory_order_release);
        if (starting_.full()) make_room(cycle);
        try {
            start(fd, cycle);
        } catch (...) {
            log(LogLevel::error, "accept-failed", "out of memory; the connection is dropped");
            close_internal_fd(fd);
        }
    }
}

bool ListenSocket::accept_failed(int error, PollCycle& cycle) {
    if (error == EINTR || error == ECONNABORTED) return true;
    // EINVAL: another process, or a call that did not come through the overlay, has shut the socket
    // down. As long as it does not listen again epoll reports it all the time.
    const bool lacking = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
    if (!lacking && error != EINVAL) {
        shortage_.store(0, std::memory_order_release);
        return false;
    }
    if (lacking && make_room(cycle, StartupTable::kMinAge)) return true;
    pause(cycle, kPauseWhenOutOfDescriptors);
    if (shortage_.exchange(error, std::memory_order_acq_rel) != error) {
        log(error == EINVAL ? LogLevel::info : LogLevel::error, "accept-failed",
            "%s; trying again every %llu ms", std::strerror(error),
            static_cast<unsigned long long>(kPauseWhenOutOfDescriptors / kMillisecond));
        cycle.active = true;
        if (observer_.on_connection_ready) observer_.on_connection_ready();
    }
    return false;
}

bool ListenSocket::make_room(PollCycle& cycle, Time min_age) {
    auto* const crowding = static_cast<Connection*>(starting_.make_room(cycle.now(), min_age));
    if (crowding == nullptr) return false;
    crowding->abort(cycle);  // leaves the table by started()
    return true;
}

// Makes a connection of an accepted socket, which it takes unless it throws.
void ListenSocket::start(int fd, PollCycle& cycle) {
    const auto self = std::static_pointer_cast<ListenSocket>(shared_from_this());
    auto connection = std::static_pointer_cast<Connection>(
        make_([weak = std::weak_ptr<ListenSocket>(self)](PolledQp& qp, QpState state) {
            if (const auto listener = weak.lock()) {
                listener->started(static_cast<Connection&>(qp), state);
            }
        }));
    starting_.add(connection.get(), fd, cycle.now());
    const auto started_now = [&] {
        try {
            return connection->start(fd, attr_, cycle);
        } catch (...) {
            starting_.remove(connection.get());
            throw;
        }
    };
    if (auto r = started_now(); !r) {
        log(LogLevel::error, "accept-failed", "%s: %s", r.error().what,
            std::strerror(r.error().code));
        starting_.remove(connection.get());
        close_internal_fd(fd);
    }
}

void ListenSocket::on_failure(PollCycle& cycle) noexcept {
    if (fd_ >= 0) pause(cycle, kPauseWhenOutOfDescriptors);
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
            if (starting_.remove_failed(&connection, monotonic_now()) &&
                observer_.on_connection_failed) {
                observer_.on_connection_failed(connection);
            }
            return;
    }
    if (!starting_.remove(&connection)) return;
    {
        const std::lock_guard lock(ready_mutex_);
        ready_.push_back(std::static_pointer_cast<Connection>(connection.shared_from_this()));
        ready_count_.store(ready_.size(), std::memory_order_seq_cst);
        ready_event_.notify();
    }
    if (observer_.on_connection_ready) observer_.on_connection_ready();
}

std::shared_ptr<PolledQp> ListenSocket::take() {
    const std::lock_guard lock(ready_mutex_);
    if (ready_.empty()) return nullptr;
    auto connection = std::move(ready_.front());
    ready_.pop_front();
    ready_count_.store(ready_.size(), std::memory_order_seq_cst);
    ready_event_.take();
    return connection;
}

void ListenSocket::give_back(std::shared_ptr<PolledQp> connection) {
    const std::lock_guard lock(ready_mutex_);
    ready_.push_front(std::static_pointer_cast<Connection>(std::move(connection)));
    ready_count_.store(ready_.size(), std::memory_order_seq_cst);
    ready_event_.notify();
}

// A semaphore: one count for each ready connection.
Result<int> ListenSocket::ready_fd() {
    const std::lock_guard lock(ready_mutex_);
    if (!ready_event_.is_open()) {
        const auto count = static_cast<unsigned>(ready_.size());
        if (auto opened = ready_event_.open(EventFd::Kind::semaphore, count); !opened) {
            return opened.error();
        }
    }
    return ready_event_.fd();
}

}  // namespace xsock
