// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection that does what the test says.
#pragma once

#include <cerrno>
#include <functional>
#include <utility>
#include <vector>

#include "base/polled_qp.hpp"

namespace xsock::verbs {

class FakePolledQp final : public PolledQp {
  public:
    explicit FakePolledQp(PolledQpAttr with) : attr(std::move(with)) {}

    Result<void> post_send(const SendWr& wr, bool) override {
        if (const auto once = std::exchange(on_post, {})) once();
        if (!takes) return Error{EPIPE, "it has ended"};
        given.push_back(wr.wr_id);
        return {};
    }
    Result<void> queue_send(const SendWr& wr) override {
        if (!takes) return Error{EPIPE, "it has ended"};
        given.push_back(wr.wr_id);
        return {};
    }
    void send_queued() override {}
    void poll_soon() override {}
    void request_end(End how) override { ends.push_back(how); }
    Result<void> post_recv(const RecvWr&) override { return {}; }
    void receive_posted() override { ++told; }
    std::uint32_t send_room() const noexcept override { return 1000; }
    std::uint32_t sends_outstanding() const noexcept override { return 0; }
    std::uint64_t context() const noexcept override { return attr.qp.context; }
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

    // As the poller does it.
    void become(QpState state) { attr.listener(*this, state); }
    Time poll() { return attr.on_poll(attr.argument); }
    /// TCP has taken the first `n` of what was given.
    void complete(std::size_t n = 1, WcStatus status = WcStatus::success) {
        for (; n > 0; --n) {
            Wc wc;
            wc.opcode = WcOpcode::send;
            wc.status = status;
            wc.wr_id = given.front();
            wc.qp_context = attr.qp.context;
            given.erase(given.begin());
            attr.on_completion(attr.argument, wc);
        }
    }

    PolledQpAttr attr;
    bool takes = true;
    std::function<void()> on_post;     ///< called once, ahead of a post
    std::vector<std::uint64_t> given;  ///< wr_ids that have not completed
    std::vector<End> ends;
    int told = 0;
    StreamCounters counters;
};

}  // namespace xsock::verbs
