// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A socket in DDPMODE: one open file description of the program's, and what stands behind it once
// iWARP has begun: a connection, and the channel that carries the program's data over it.
// docs/ddpmode.md says what every call does.
//
// Threads. Calls of the program come from any thread. Changes of phase are made under the progress
// lock of progress() (in a poll cycle), once there is one; the program's data path reads the phase
// and goes on in the channel. connection_ and channel_ are set before the phase that needs them,
// and not changed while a call may be under way.
//
// Life. The thin layer counts its references (ref(), unref()); the object itself lives on until its
// connection has drained, which holds it through the completion queue.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>

#include "base/ip_address.hpp"
#include "libxsock/engine/socket_table.h"
#include "libxsock/objects.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/socket/background_listener.hpp"
#include "libxsock/socket/channel.hpp"
#include "libxsock/socket/early_sends.hpp"
#include "libxsock/socket/key.hpp"
#include "libxsock/socket/known_peers.hpp"
#include "libxsock/socket/listener_entry.hpp"
#include "libxsock/socket/options.hpp"
#include "libxsock/socket/start_descriptor.hpp"
#include "libxsock/socket/syn_mark.hpp"

struct xsock_socket {};

namespace xsock::sockets {

/// What became of the connections that a listening socket handed out; shared with them.
struct ListenCounters {
    std::atomic<std::uint64_t> accepted{0}, started{0}, fallbacks{0}, refused{0};
};

class Socket final : public ::xsock_socket,
                     public std::enable_shared_from_this<Socket>,
                     public DescriptorWatcher,
                     public readiness::Source {
  public:
    enum class Phase : std::uint8_t {
        fresh,       ///< options may be set
        listening,   ///< listen() was called, or DDPMODE set behind it
        connecting,  ///< TCP
        undecided,   ///< accepted: the peer has not shown whether it speaks MPA
        starting,    ///< MPA
        open,        ///< carries data, perhaps one way only
        ended,
        plain,  ///< TCP for good
    };

    /// ENOTSOCK, EBADF, EOPNOTSUPP, ENOMEM.
    static Result<Socket*> open(int fd, int hint);
    static Socket* of(xsock_socket* handle) noexcept { return static_cast<Socket*>(handle); }

    explicit Socket(int hint) : hint_(hint) {}
    void ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
    /// The last one closes.
    void unref();

    // -- calls of the program; results are those of the ABI --

    /// Ahead of the close() of its last descriptor in this process, `fd`.
    void closing(int fd, bool may_be_shared);
    int set_option(int fd, int level, int name, const void* value, socklen_t length);
    int get_option(int fd, int level, int name, void* value, socklen_t* length);
    int connect(int fd, const sockaddr* address, socklen_t length);
    int listen(int fd, int backlog);
    int accept(int fd, sockaddr* address, socklen_t* length, int flags, xsock_socket** accepted);
    /// Whether accept() would wait in the kernel: its caller may do that, and keep what it gets.
    bool accept_waits(int fd) noexcept;
    int keep_accepted(int taken, int flags, xsock_socket** accepted);
    int shutdown(int fd, int how);
    ssize_t send(int fd, const IovSpan& iovs, int flags);
    /// As Channel::append().
    [[nodiscard]] bool append(const IovSpan& iovs) noexcept;
    /// `out_flags`: MSG_TRUNC, MSG_EOR.
    ssize_t receive(int fd, const IovSpan& iovs, int flags, int& out_flags);
    int fcntl(int fd, int command, long argument);
    int ioctl(int fd, unsigned long request, void* argument);
    /// `in_parts`: as XSOCK_WRITING_PARTS.
    int no_stream(int fd, bool writing, bool in_parts);
    /// The errno of a call that was not reported: if it was the reason why the connection ended,
    /// the next call reports it.
    void keep_error(int error) noexcept;
    xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq);
    [[nodiscard]] const char* mode_text() const noexcept;
    /// socket_stack_text().
    [[nodiscard]] const char* stack_text() const noexcept;
    [[nodiscard]] bool carries_bytes() const noexcept { return options_.mode == DDPMODE_STREAM; }
    /// socket_note_plain().
    void note_plain(int fd) const noexcept;
    /// socket_started().
    [[nodiscard]] int started() const noexcept;
    /// socket_refuse().
    void refuse(int fd) const noexcept;

    // -- readiness::Source --

    [[nodiscard]] std::uint32_t events() const noexcept override;
    [[nodiscard]] bool kernel_ready() const noexcept override;
    [[nodiscard]] PollGroup* progress() const noexcept override {
        return progress_.load(std::memory_order_acquire);
    }
    void begin_watch(int fd) noexcept override;

    // -- DescriptorWatcher: while connecting or undecided --

    void on_ready(PollCycle& cycle) override;
    void on_time(PollCycle& cycle) override;
    void on_failure(PollCycle& cycle) noexcept override;
    void on_exit(PollCycle& cycle) override;
    [[nodiscard]] bool is_owing(Time& limit_out) const override;

  private:
    // Life (socket.cpp)
    [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
    /// There is, or was, more than a phase: the channel.
    static bool is_begun(Phase phase) noexcept {
        return phase == Phase::connecting || phase == Phase::starting || phase == Phase::open ||
               phase == Phase::ended;
    }
    /// No part of the start is to come.
    static bool is_known(Phase phase) noexcept {
        return phase != Phase::connecting && phase != Phase::undecided && phase != Phase::starting;
    }
    /// MPA start-up runs behind a byte stream that takes bytes already: connect() ends when TCP's
    /// does.
    [[nodiscard]] bool starts_behind(Phase phase) const noexcept {
        return phase == Phase::starting && options_.mode == DDPMODE_STREAM;
    }
    /// No call has to wait for the start.
    [[nodiscard]] bool is_usable() const noexcept {
        const Phase now = phase();
        return is_known(now) || starts_behind(now);
    }
    [[nodiscard]] bool in_own_process() const noexcept;
    /// Bytes of the program are not, or not all, in TCP's stream as they were sent.
    [[nodiscard]] bool has_begun() const noexcept { return is_begun(phase()) || has_early(); }
    [[nodiscard]] bool has_early() const noexcept {
        return phase() == Phase::undecided && !early_.is_empty();
    }
    /// Started before a fork(): the parent's.
    [[nodiscard]] bool foreign() const noexcept { return has_begun() && !in_own_process(); }
    /// -1 with EPERM: what a call on a foreign one answers.
    int inherited(int fd) const noexcept;
    /// Accepted: the client is going to send a Request.
    [[nodiscard]] bool will_ask() const noexcept { return syn_ == Syn::marked; }
    [[nodiscard]] bool on() const noexcept { return mode_on_.load(std::memory_order_relaxed); }
    void close();
    void close_connection();
    /// send() takes bytes before the peer has shown what it speaks.
    [[nodiscard]] bool sends_early() const noexcept {
        return phase() == Phase::undecided && will_ask() && options_.mode == DDPMODE_STREAM;
    }
    [[nodiscard]] bool has_early_room(std::size_t bytes) const noexcept {
        return sends_early() && bytes <= EarlySends::kMost - early_.size();
    }
    static Time timeout_of(int fd, int name) noexcept;
    [[nodiscard]] bool is_entered() const noexcept;
    int enter(int fd, int flags, bool writing);
    int ensure_open(int fd, int flags, bool writing);
    bool shut_early(int how);
    ssize_t send_early(int fd, const IovSpan& iovs, int flags);
    int wait_started();
    [[nodiscard]] bool blocking(int flags) const noexcept {
        return (flags & MSG_DONTWAIT) == 0 && !nonblocking_.load(std::memory_order_relaxed);
    }

    // Beginning (start.cpp)
    PollGroup* ensure_progress();
    void ensure_channel();
    void wake_callers() noexcept;
    std::shared_ptr<PolledQp> make_connection(PolledQp::StateListener listener);
    int begin(int fd, ConnectAttr::Role role);
    void begin(int fd, int copy, ConnectAttr::Role role);
    void start(ConnectAttr::Role role, PollCycle& cycle);
    void end(int error) noexcept;
    void fail_start(int error);
    bool decide_by(PeerPeek::Kind seen, PollCycle& cycle);
    void check_undecided(PollCycle& cycle);
    bool watch_undecided();
    void check_connecting();
    void wait_closed(PollCycle& cycle);
    bool close_undecided(PollCycle& cycle);
    void close_behind_start(PollCycle& cycle);
    void limit_undecided(const PeerPeek& peek);
    void fall_back_to_tcp(const char* code);
    void become_plain(const char* code) noexcept;
    int decide(int fd, bool writing);
    int decide_without_progress(int fd) noexcept;
    int decide_for_good(int fd);
    int begin_async(int fd);
    void watch_connect(int fd, int copy);
    int connect_without_descriptors(int reason) noexcept;
    int connected_again() noexcept;
    void keep_from_exec(int fd) noexcept;
    void take_over_settings(int fd) noexcept;
    void take_over_stream_settings(int fd) noexcept;
    int switch_connected(int fd);
    void on_state(const PolledQp& connection, QpState state);

    // Listening (accept.cpp)
    int ensure_listener(int fd);
    int accept_required(int fd, sockaddr* address, socklen_t* length, int flags,
                        xsock_socket** accepted);
    void inherit(const Socket& listening, int flags);
    int wait_switched_off();
    int hand_out(const std::shared_ptr<PolledQp>& connection, int flags);
    bool close_listener();
    void begin_listening(int fd);
    void publish_listener(int fd) noexcept;
    int shut_listening(int fd, int how);

    // Options (option_calls.cpp)
    int set_mode(int fd, int value);
    void leave_blocking(int fd) const noexcept;
    int set_marked_option(int level, int name, const void* value, socklen_t length);
    int get_marked_option(int level, int name, void* value, socklen_t* length);
    int fill_status(void* value, socklen_t* length);
    [[nodiscard]] bool in_memory() const;

    std::atomic<std::uint32_t> refs_{1};
    std::shared_ptr<Socket> held_;  // this, while the program has it open
    std::atomic<Phase> phase_{Phase::fresh};
    std::atomic<bool> mode_on_{false};
    std::atomic<bool> nonblocking_{false};
    std::atomic<bool> exec_kept_{false};
    const int hint_;
    std::atomic<std::uint32_t> generation_{0};  // of the process that progress_ belongs to
    std::atomic<PollGroup*> progress_{nullptr};
    std::atomic<Time> receive_timeout_{0}, send_timeout_{0};  // ns; 0: none
    std::atomic<int> linger_s_{-1};                           // SO_LINGER; -1: off
    Options options_;                                         // fixed before start-up begins
    std::shared_ptr<ListenCounters> counters_;
    std::atomic<const char*> code_{"undecided"};  // of what it turned out to be
    std::atomic<bool> kernel_ready_{true};
    std::atomic<bool> opened_{false};  // start-up ended well
    std::atomic<kernel::Reason> kernel_reason_{kernel::Reason::off};  // of then
    BackgroundListener listener_;
    ListenerEntry listener_entry_;
    AskedPeer asked_;                        // by connect()
    EarlySends early_;                       // while undecided
    std::atomic<int> successes_to_tell_{0};  // of a connect() that went on in the background
    StartDescriptor own_fd_;
    SynMark syn_mark_;  // until TCP is connected; from then on under the progress lock
    enum class Syn : std::uint8_t { unknown, saved, marked };
    Syn syn_ = Syn::unknown;            // listening: those to come are saved; accepted: this one's
    std::unique_ptr<Channel> channel_;  // from connecting and starting on
    std::shared_ptr<PolledQp> connection_;  // from starting on; goes with the last reference
};

/// In a forked child: the lock around the first use of sockets is free.
void reset_start_lock() noexcept;

}  // namespace xsock::sockets
