// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoint that xsock_fd_endpoint() returns of a socket in DDPMODE: the same connection, seen
// as a Qp. It ends with the socket; ending it by itself is refused before it comes here.
#pragma once

#include <memory>

#include "base/polled_qp.hpp"
#include "base/spin_lock.hpp"
#include "libxsock/objects.hpp"

namespace xsock::sockets {

class MessageChannel;

class BorrowedEndpoint {
  public:
    /// Made by the first call, which names the queues; the same one afterwards, for the same queues
    /// or none. Null with EINVAL (other queues, or none yet) or EPERM. Any thread.
    xsock_ep* get(const MessageChannel& channel, PolledQp& qp, PollGroup& progress,
                  xsock_cq* send_cq, xsock_cq* recv_cq);
    /// The poller: what was posted by the endpoint is done.
    void push(const Wc& wc);
    /// No call is under way.
    void reset() noexcept { endpoint_.reset(); }

  private:
    SpinLock lock_;
    std::unique_ptr<xsock_ep> endpoint_;
    xsock_cq* cqs_[2] = {};
    std::shared_ptr<CompletionTarget> sends_, receives_;  // the poller's
};

}  // namespace xsock::sockets
