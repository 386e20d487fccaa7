// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection that takes everything and does nothing: what fakes of tests begin with.
#pragma once

#include <cerrno>

#include "base/polled_qp.hpp"

namespace xsock::test {

class IdlePolledQp : public PolledQp {
  public:
    Result<void> post_send(const SendWr&, bool) override { return {}; }
    Result<void> queue_send(const SendWr&) override { return {}; }
    void send_queued() override {}
    void poll_soon() override {}
    void request_end(End) override {}
    Result<void> post_recv(const RecvWr&) override { return {}; }
    void receive_posted() override {}
    std::uint32_t send_room() const noexcept override { return 1; }
    std::uint32_t sends_outstanding() const noexcept override { return 0; }
    std::uint64_t context() const noexcept override { return 0; }
    Result<void> start(int, const ConnectAttr&, PollCycle&) override { return {}; }
    void shutdown(PollCycle&) override {}
    void abort(PollCycle&) override {}
    void release(PollCycle&) override {}
    bool move_receive(std::uint64_t, const RecvWqe&, PollCycle&) override { return false; }
    bool move_send(std::uint64_t, std::uint64_t, std::byte*, PollCycle&) override { return false; }
    void set_listener(StateListener) override {}
    void enough_read() noexcept override {}
    StreamCounters& stream_counters() noexcept override { return counters; }
    void set_context(std::uint64_t) override {}
    QpInfo info() const override { return {}; }
    std::span<const std::byte> peer_private_data() const override { return {}; }
    int error() const noexcept override { return 0; }
    kernel::Reason kernel_reason() const noexcept override { return kernel::Reason::off; }
    Result<int> descriptor() const override { return Error{ENOTCONN, "a fake"}; }
    void signal_owner() const noexcept override {}

    StreamCounters counters;
};

}  // namespace xsock::test
