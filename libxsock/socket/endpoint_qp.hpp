// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoint that a socket in DDPMODE lends (xsock_fd_endpoint()): the same connection, seen as a
// Qp. It ends with the socket; ending it by itself is refused before it comes here.
#pragma once

#include "base/device.hpp"
#include "transport/connection.hpp"

namespace xsock::sockets {

class Socket;

class EndpointQp final : public Qp {
  public:
    EndpointQp(Socket& socket, std::shared_ptr<Connection> connection)
        : socket_(socket), connection_(std::move(connection)) {}

    std::uint32_t num() const override { return connection_->num(); }
    Result<void> connect(int, const ConnectAttr&) override {
        return Error{EISCONN, "the endpoint has a connection already"};
    }
    Result<void> accept(std::span<const std::byte>, std::uint16_t, std::uint16_t) override {
        return Error{EINVAL, "no Request waits for an answer"};
    }
    Result<void> reject(std::span<const std::byte>) override {
        return Error{EINVAL, "no Request waits for an answer"};
    }
    Result<void> post_send(const SendWr& wr) override { return connection_->post_send(wr); }
    Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) override {
        return connection_->post_plain_send(wr_id, sge, flags);
    }
    std::uint32_t send_room() const override { return connection_->send_room(); }
    Result<void> post_recv(const RecvWr& wr) override;
    void set_context(std::uint64_t context) override;
    void set_rights(std::uint32_t rights) override;
    Result<void> shutdown() override;
    void abort() override {}
    void detach() override {}
    void confirm_start() override {}  // sockets tell of start-up and end themselves
    void confirm_end() override {}
    QpState state() const override { return connection_->state(); }
    QpInfo info() const override;
    QpState wait_started(Time deadline) override;
    QpState wait_ended(Time deadline) override;

  private:
    Progress& progress() const { return connection_->progress(); }
    Socket& socket_;
    std::shared_ptr<Connection> connection_;
};

}  // namespace xsock::sockets
