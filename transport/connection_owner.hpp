// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program's side of a connection that takes part in polling (PolledQpCalls): what a connection
// asks it for, when that is due, and for how long what it still sends is waited for. Without an
// owner, as a Qp has none, it answers for the connection alone. Used by the poller.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/polled_qp.hpp"
#include "ddp_user/connection.hpp"
#include "transport/tcp_socket.hpp"

namespace xsock {

class ConnectionOwner {
  public:
    /// @param calls outlives this
    /// @param linger how long what was sent is waited for
    ConnectionOwner(const PolledQpCalls& calls, Time linger) noexcept
        : calls_(calls), linger_(linger) {}

    // -- on_poll --

    /// When it is due; kNever where nothing is.
    [[nodiscard]] Time poll_at() const noexcept { return poll_at_; }
    void poll() {
        if (calls_.on_poll != nullptr) poll_at_ = calls_.on_poll(calls_.argument);
    }

    // -- start-up --

    /// It queues something as soon as start-up has ended.
    [[nodiscard]] bool waits_to_send() const {
        return calls_.waits_to_send != nullptr && calls_.waits_to_send(calls_.argument);
    }
    [[nodiscard]] bool decides_requests() const noexcept { return calls_.on_request != nullptr; }
    /// It decides the Request that has come. @pre decides_requests()
    void answer(ddp::Connection& connection) const;

    // -- the end of the process, or of the connection --

    /// What it has sent is waited for, also behind the end of the connection.
    [[nodiscard]] bool waits_at_exit() const noexcept { return calls_.on_exit != nullptr; }
    /// The process exits: something is still to be sent, for exit_limit() at most.
    ///
    /// @param ends an end was asked for, and will come
    [[nodiscard]] bool draining(const ddp::Connection& connection, const TcpSocket& socket,
                                bool ends);
    /// exit() waits no longer: must the connection leave the program's memory alone?
    [[nodiscard]] bool leaves_at_exit() const {
        bool brief = false;
        return !waits_at_exit() || calls_.on_exit(calls_.argument, ExitStep::over, brief);
    }
    /// What draining() says, before exec().
    [[nodiscard]] bool unsent(const ddp::Connection& connection, const TcpSocket& socket);
    [[nodiscard]] Time exit_limit() const noexcept { return exit_limit_; }
    /// The connection is closing, and TCP has gone on with what is before its FIN since the last
    /// call.
    [[nodiscard]] bool still_delivers(const ddp::Connection& connection, const TcpSocket& socket);

  private:
    template <typename Asked>
    [[nodiscard]] bool still_sends(Asked asked);

    const PolledQpCalls& calls_;
    Time linger_;
    Time poll_at_ = kNever;
    Time exit_limit_ = 0;
    std::uint64_t delivered_ = 0;  // bytes that TCP had when still_delivers() was last asked
};

}  // namespace xsock
