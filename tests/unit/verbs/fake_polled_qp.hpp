// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connection that does what the test says.
#pragma once

#include <cerrno>
#include <functional>
#include <utility>
#include <vector>

#include "tests/unit/idle_polled_qp.hpp"

namespace xsock::verbs {

class FakePolledQp final : public test::IdlePolledQp {
  public:
    explicit FakePolledQp(PolledQpAttr with) : attr(std::move(with)) {}

    Result<void> post_send(const SendWr& wr, bool) override {
        if (const auto once = std::exchange(on_post, {})) once();
        return queue_send(wr);
    }
    Result<void> queue_send(const SendWr& wr) override {
        if (!takes) return Error{EPIPE, "it has ended"};
        given.push_back(wr.wr_id);
        if (const auto once = std::exchange(on_queue, {})) once(wr.wr_id);
        return {};
    }
    void request_end(End how) override { ends.push_back(how); }
    void receive_posted() override { ++told; }
    std::uint32_t send_room() const noexcept override { return 1000; }
    std::uint64_t context() const noexcept override { return attr.qp.context; }

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
    std::function<void()> on_post;                ///< called once, ahead of a post
    std::function<void(std::uint64_t)> on_queue;  ///< called once, with what was just given
    std::vector<std::uint64_t> given;             ///< wr_ids that have not completed
    std::vector<End> ends;
    int told = 0;
};

}  // namespace xsock::verbs
