// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A socket in DDPMODE: one open file description of the program's, and what stands behind it once
// iWARP has begun. docs/ddpmode.md says what every call does.
//
// Threads. Calls of the program come from any thread. Changes of phase are made under the progress
// lock of progress() (in a poll cycle), once there is one; the program's data path reads the phase
// and takes rx_lock_ for a few instructions. Locks, outermost first: the poller's, the receive
// queue's, rx_lock_, those of readiness.
//
// Life. The thin layer counts its references (ref(), unref()); the object itself lives on until its
// connection has drained, which holds it through the completion queue.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/spin_lock.hpp"
#include "libxsock/engine/socket_table.h"
#include "libxsock/objects.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/socket/buffer_pool.hpp"
#include "libxsock/socket/key.hpp"
#include "libxsock/socket/options.hpp"
#include "transport/connection.hpp"
#include "transport/listener.hpp"

struct xsock_socket {};

namespace xsock::sockets {

/// What became of the connections that a listening socket handed out; shared with them.
struct ListenCounters {
    std::atomic<std::uint64_t> accepted{0}, started{0}, fallbacks{0}, refused{0};
};

/// Bytes to send or room to receive, as a call names them.
struct IovSpan {
    const iovec* iov = nullptr;
    std::size_t count = 0;
    std::size_t bytes = 0;  ///< all together

    /// 0; EMSGSIZE: too many pieces; EINVAL: more than SSIZE_MAX bytes; EFAULT: no memory there.
    int assign(const msghdr& message) noexcept;
};

class Socket final : public ::xsock_socket, public Pollable, public readiness::Source {
  public:
    enum class Phase : std::uint8_t {
        fresh,       ///< options may be set
        listening,   ///< listen() was called, or DDPMODE set behind it
        connecting,  ///< TCP
        undecided,   ///< accepted: the peer has not shown whether it speaks MPA
        starting,    ///< MPA
        open,        ///< carries messages, perhaps one way only
        ended,
        plain,  ///< TCP for good
    };

    /// ENOTSOCK, EBADF, EOPNOTSUPP, ENOMEM.
    static Result<Socket*> open(int fd, int hint);
    static Socket* of(xsock_socket* handle) noexcept { return static_cast<Socket*>(handle); }

    explicit Socket(int hint) : hint_(hint) {}
    ~Socket() override;
    void ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
    /// The last one closes.
    void unref();

    // -- calls of the program; results are those of the ABI --

    int set_option(int fd, int level, int name, const void* value, socklen_t length);
    int get_option(int fd, int level, int name, void* value, socklen_t* length);
    int connect(int fd, const sockaddr* address, socklen_t length);
    int listen(int fd, int backlog);
    int accept(int fd, sockaddr* address, socklen_t* length, int flags, xsock_socket** accepted);
    int shutdown(int fd, int how);
    ssize_t send(int fd, const IovSpan& iovs, int flags);
    /// `out_flags`: MSG_TRUNC, MSG_EOR.
    ssize_t receive(int fd, const IovSpan& iovs, int flags, int& out_flags);
    int fcntl(int fd, int command, long argument);
    int ioctl(int fd, unsigned long request, void* argument);
    int no_stream(int fd, bool writing);
    /// The errno of a call that was not reported: if it was the reason why the connection ended,
    /// the next call reports it.
    void keep_error(int error) noexcept;
    xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq);
    [[nodiscard]] const char* mode_text() const noexcept;
    /// socket_started().
    [[nodiscard]] int started() const noexcept;

    // -- readiness::Source --

    [[nodiscard]] std::uint32_t events() const noexcept override;
    [[nodiscard]] bool kernel_ready() const noexcept override;
    [[nodiscard]] Progress* progress() const noexcept override {
        return progress_.load(std::memory_order_acquire);
    }
    void begin_watch(int fd) noexcept override;

    // -- Pollable: while connecting or undecided --

    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle& cycle) override;
    void on_failure(PollCycle& cycle) noexcept override;

    // -- the endpoint of xsock_fd_endpoint() --

    [[nodiscard]] Connection& connection() const noexcept {
        return *connection_now_.load(std::memory_order_acquire);
    }
    /// EBUSY while messages wait for recv().
    Result<void> post_recv(const RecvWr& wr);

  private:
    // Life (socket.cpp)
    [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
    /// Started before a fork(): the parent's.
    [[nodiscard]] bool foreign() const noexcept;
    /// -1 with EPERM: what a call on a foreign one answers.
    int inherited() const noexcept;
    [[nodiscard]] bool on() const noexcept { return mode_on_.load(std::memory_order_relaxed); }
    void close();
    void close_connection();
    bool drained() const noexcept;
    static Time timeout_of(int fd, int name) noexcept;
    std::shared_ptr<Socket> self() noexcept {
        return std::static_pointer_cast<Socket>(shared_from_this());
    }
    int tcp_answer(int fd) noexcept;
    int ensure_open(int fd, int flags, bool writing);
    int wait_started();
    ssize_t wait_for_zero_copy(Buffer& buffer, int flags);
    int fail_wait(Progress::Waited why, int on_timeout) noexcept;
    Progress::Waited wait(bool (Socket::*done)() const noexcept, Time timeout);
    [[nodiscard]] bool blocking(int flags) const noexcept {
        return (flags & MSG_DONTWAIT) == 0 && !nonblocking_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool is_mode_known() const noexcept;

    // Beginning (start.cpp)
    Progress* ensure_progress();
    void wake_callers() noexcept;
    Connection::Parts connection_parts(Connection::StateListener listener);
    int begin(int fd, mpa::Role role);
    void start(mpa::Role role, PollCycle& cycle);
    void fail_start(int error);
    void check_undecided(PollCycle& cycle);
    void fall_back_to_tcp(const char* code, PollCycle& cycle);
    int decide(int fd, bool writing);
    void watch_connect(int fd);
    void leave_progress(PollCycle& cycle);
    void close_own_fd() noexcept;
    void keep_from_exec(int fd) noexcept;
    void take_over_settings(int fd) noexcept;
    int switch_connected(int fd);
    static void on_completion(void* self, const Wc& wc);
    void on_state(Connection& connection, QpState state);

    // Sending (send.cpp)
    ssize_t send_error(int flags) noexcept;
    bool room_to_send() const noexcept;
    bool can_send() const noexcept;
    void sent(const Wc& wc);

    // Receiving (receive.cpp)
    ssize_t take_message(const IovSpan& iovs, int flags, int& out_flags, bool& found);
    ssize_t receive_direct(const IovSpan& iovs, int flags, int& out_flags, Time timeout,
                           bool& over);
    void withdraw_direct();
    bool lay_out_direct(const IovSpan& where, std::uint32_t need, RecvWqe& out);
    bool redirect_rest(const IovSpan& iovs);
    static bool spare_receive(void* self, std::uint32_t bytes, RecvWqe& out);
    bool give_receive(std::uint32_t bytes, RecvWqe& out);
    void received(const Wc& wc);
    bool something_to_read() const noexcept;
    bool direct_done() const noexcept;
    void drop_messages() noexcept;
    Buffer* pop_message() noexcept;
    bool account_message(BufferPtr& buffer) noexcept;
    [[nodiscard]] std::size_t message_limit() const noexcept {
        return static_cast<std::size_t>(options_.buffer_size);
    }
    [[nodiscard]] std::uint64_t budget() const noexcept;

    // Listening (accept.cpp)
    int ensure_listener(int fd);
    int accept_required(int fd, sockaddr* address, socklen_t* length, int flags,
                        xsock_socket** accepted);
    bool connection_waits() const noexcept;
    void inherit(const Socket& listening, int flags);
    int hand_out(const std::shared_ptr<Connection>& connection, int flags);
    bool close_listener();
    int shut_listening(int fd, int how);
    bool accept_may_end() const noexcept;

    // Options (options_calls.cpp)
    int set_mode(int fd, int value);
    void leave_blocking(int fd) const noexcept;
    int fill_status(void* value, socklen_t* length);

    std::atomic<std::uint32_t> refs_{1};
    std::shared_ptr<Socket> held_;  // this, while the program has it open
    std::atomic<Phase> phase_{Phase::fresh};
    std::atomic<bool> mode_on_{false};
    std::atomic<bool> nonblocking_{false};
    std::atomic<bool> exec_kept_{false};
    const int hint_;
    std::atomic<std::uint32_t> generation_{0};  // of the process that progress_ belongs to
    std::atomic<Progress*> progress_{nullptr};
    std::atomic<Time> receive_timeout_{0}, send_timeout_{0};  // ns; 0: none
    std::atomic<int> linger_s_{-1};                           // SO_LINGER; -1: off
    Options options_;                                         // fixed before start-up begins
    std::shared_ptr<ListenCounters> counters_;
    std::atomic<const char*> code_{"undecided"};  // of what it turned out to be

    // The poller's.
    int own_fd_ = -1;  // while connecting or undecided; later it is the connection's
    bool watched_ = false;
    bool beginning_ = false;                // a part of a key has come, and the time limit runs
    std::atomic<bool> watched_now_{false};  // a wait has begun
    int low_water_ = -1;                    // SO_RCVLOWAT of the program; -1: not changed
    std::optional<CqCore> cq_;
    std::shared_ptr<Connection> connection_;  // set once; goes with the last reference
    std::atomic<Connection*> connection_now_{nullptr};
    std::atomic<bool> kernel_ready_{true};

    // How it goes.
    std::atomic<int> error_{0};        // told once, as SO_ERROR
    std::atomic<bool> opened_{false};  // start-up ended well
    std::atomic<bool> eof_{false}, over_{false};
    std::atomic<bool> read_shut_{false}, write_shut_{false};

    // Sending.
    std::atomic<std::uint64_t> tx_bytes_{0};  // in buffers
    std::atomic<std::uint64_t> tx_messages_{0}, rx_messages_{0};
    mutable std::atomic<bool> tx_no_room_{false};  // a send found no room

    // Receiving.
    mutable SpinLock rx_lock_;
    Buffer* rx_first_ = nullptr;
    Buffer* rx_last_ = nullptr;
    Buffer* rx_spare_ = nullptr;
    std::uint64_t rx_held_ = 0;  // bytes of messages that wait and of the one that comes in
    bool rx_no_room_ = false;    // the poller found no room
    bool rx_closed_ = false;
    bool rx_incoming_ = false;      // a message is coming in
    Buffer* rx_filling_ = nullptr;  // into this, if it is a buffer of ours
    std::atomic<std::uint32_t> rx_count_{0};
    struct DirectReceive {  // a blocked receiver's own memory, for the next message
        enum class State : std::uint8_t { none, offered, under_way, done };
        std::atomic<State> state{State::none};
        const IovSpan* where = nullptr;
        Buffer* rest = nullptr;      // what does not fit
        std::uint32_t length = 0;    // of the message, when done
        std::uint32_t limit = 0;     // bytes at most
        std::uint32_t reserved = 0;  // of rx_held_
    } direct_;

    // Listening.
    std::mutex listener_mutex_;
    std::shared_ptr<ListenSocket> listener_;
    std::uint32_t listener_generation_ = 0;
    bool listener_inherited_ = false;  // there was one in a parent, too
    std::atomic<ListenSocket*> listener_now_{nullptr};
    std::atomic<bool> listener_shut_{false};  // by shutdown(), until listen() is called again

    // xsock_fd_endpoint()
    SpinLock endpoint_lock_;
    std::unique_ptr<xsock_ep> endpoint_;
    std::shared_ptr<CqCore> user_send_cq_, user_recv_cq_;
    xsock_cq* endpoint_cqs_[2] = {};
};

/// In a forked child: the lock around the first use of sockets is free.
void reset_start_lock() noexcept;

/// The answer of a call: -1 with errno.
inline int no(int error) noexcept {
    errno = error;
    return -1;
}

}  // namespace xsock::sockets
