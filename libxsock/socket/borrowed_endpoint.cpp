// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/borrowed_endpoint.hpp"

#include <mutex>

#include "libxsock/socket/message_channel.hpp"

namespace xsock::sockets {
namespace {

class EndpointQp final : public Qp {
  public:
    EndpointQp(MessageChannel& channel, Connection& connection)
        : channel_(channel), connection_(connection) {}

    std::uint32_t num() const override { return connection_.num(); }
    Result<void> connect(int, const ConnectAttr&) override {
        return Error{EISCONN, "the endpoint has a connection already"};
    }
    Result<void> accept(std::span<const std::byte>, std::uint16_t, std::uint16_t) override {
        return Error{EINVAL, "no Request waits for an answer"};
    }
    Result<void> reject(std::span<const std::byte>) override {
        return Error{EINVAL, "no Request waits for an answer"};
    }
    Result<void> post_send(const SendWr& wr) override { return connection_.post_send(wr); }
    Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) override {
        return connection_.post_plain_send(wr_id, sge, flags);
    }
    std::uint32_t send_room() const override { return connection_.send_room(); }
    Result<void> post_recv(const RecvWr& wr) override { return channel_.post_recv(wr); }
    void set_context(std::uint64_t context) override {
        progress().locked([&](PollCycle&) { connection_.set_context(context); });
    }
    void set_rights(std::uint32_t rights) override {
        progress().locked([&](PollCycle&) { connection_.set_rights(rights); });
    }
    Result<void> shutdown() override {
        progress().locked([&](PollCycle& cycle) { connection_.shutdown(cycle); });
        return {};
    }
    void abort() override {}
    void detach() override {}
    void confirm_start() override {}  // sockets tell of start-up and end themselves
    void confirm_end() override {}
    QpState state() const override { return connection_.state(); }
    QpInfo info() const override {
        QpInfo info;
        progress().locked([&](PollCycle&) { info = connection_.info(); });
        return info;
    }
    QpState wait_started(Time deadline) override {
        progress().wait(
            [this] {
                const QpState s = state();
                return s != QpState::fresh && s != QpState::starting;
            },
            deadline);
        return state();
    }
    QpState wait_ended(Time deadline) override {
        progress().wait(
            [this] {
                const QpState s = state();
                return s == QpState::closed || s == QpState::error;
            },
            deadline);
        return state();
    }

  private:
    Progress& progress() const { return connection_.progress(); }
    MessageChannel& channel_;
    Connection& connection_;
};

}  // namespace

xsock_ep* BorrowedEndpoint::get(MessageChannel& channel, Connection& connection, xsock_cq* send_cq,
                                xsock_cq* recv_cq) {
    const std::lock_guard hold(lock_);
    if (recv_cq == nullptr) recv_cq = send_cq;
    if (endpoint_ != nullptr) {
        if (send_cq != nullptr && (send_cq != cqs_[0] || recv_cq != cqs_[1])) {
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
        new xsock_ep{std::make_unique<EndpointQp>(channel, connection), api::ObjectRefs(attr)});
    ep->borrowed = true;
    const auto core = [](xsock_cq* cq) { return static_cast<SoftCq&>(*cq->cq).core(); };
    // Polls of the queues poll this connection too.
    core(send_cq)->add_source(connection.progress());
    core(recv_cq)->add_source(connection.progress());
    connection.progress().locked([&](PollCycle&) {
        send_cq_ = core(send_cq);
        recv_cq_ = core(recv_cq);
        connection.set_context(0);
    });
    cqs_[0] = send_cq;
    cqs_[1] = recv_cq;
    endpoint_ = std::move(ep);
    return endpoint_.get();
}

void BorrowedEndpoint::push(const Wc& wc) {
    CqCore* const queue = (wc.opcode == WcOpcode::recv ? recv_cq_ : send_cq_).get();
    if (queue != nullptr) queue->queue.push(wc);
}

}  // namespace xsock::sockets
