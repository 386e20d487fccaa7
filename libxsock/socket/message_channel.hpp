// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDPMODE_MESSAGE: send() and recv() carry messages, as on a SOCK_SEQPACKET socket
// (docs/ddpmode.md).
//
// Locks, outermost first: the poller's, the receive queue's, rx_lock_, those of readiness.
#pragma once

#include <atomic>
#include <memory>

#include "base/spin_lock.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/socket/borrowed_endpoint.hpp"
#include "libxsock/socket/buffer_pool.hpp"
#include "libxsock/socket/channel.hpp"
#include "libxsock/socket/options.hpp"

namespace xsock::sockets {

class MessageChannel final : public Channel {
  public:
    /// Wakes the watchers of `source`. Both outlive this; `options` do not change any more.
    MessageChannel(readiness::Source& source, const Options& options)
        : source_(source), options_(options) {}
    ~MessageChannel() override;

    ssize_t send(const IovSpan& iovs, const CallMode& mode) override;
    [[nodiscard]] bool append(const IovSpan&) noexcept override { return false; }
    ssize_t receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) override;
    int ioctl(int fd, unsigned long request, void* argument) override;
    void shutdown(bool reading, bool writing) override;
    xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) override {
        return endpoint_.get(*this, *qp_, *progress_, send_cq, recv_cq);
    }
    void describe(xsock_status& status) const noexcept override;
    [[nodiscard]] std::uint32_t events() const noexcept override;
    void join(PolledQpAttr& attr, std::shared_ptr<void> owner) override;
    void attach(PolledQp& qp) noexcept override { qp_ = &qp; }
    [[nodiscard]] std::vector<std::byte> request() override { return options_.private_data; }
    [[nodiscard]] bool answer(std::span<const std::byte> request,
                              std::vector<std::byte>& reply) override;
    [[nodiscard]] bool begin(std::span<const std::byte>) override { return true; }
    [[nodiscard]] bool close(std::function<void()> released) override;
    // Settings of a byte stream that would delay or tear FPDUs; messages need none of them.
    void set_option(int, int, int) override {}
    [[nodiscard]] bool get_option(int, int, int&) const override { return false; }

    /// Whether the endpoint may post a receive: EBUSY while messages wait for recv().
    [[nodiscard]] Result<void> may_post_recv() const;

  private:
    [[nodiscard]] std::size_t message_limit() const noexcept {
        return static_cast<std::size_t>(options_.buffer_size);
    }
    static void on_completion(void* self, const Wc& wc);

    // Sending (message_send.cpp)
    ssize_t wait_for_zero_copy(Buffer& buffer, const CallMode& mode);
    ssize_t send_error(int flags) noexcept;
    std::uint32_t room_to_send() const noexcept;
    bool can_send() const noexcept { return room_to_send() != 0; }
    void sent(const Wc& wc);
    void wake_senders();

    // Receiving (message_receive.cpp)
    ssize_t take_message(const IovSpan& iovs, int flags, int& out_flags, bool& found);
    ssize_t receive_direct(const IovSpan& iovs, const CallMode& mode, int& out_flags, bool& over);
    void withdraw_direct(const IovSpan& iovs);
    bool lay_out_direct(const IovSpan& where, std::uint32_t need, RecvWqe& out);
    bool redirect_rest(const IovSpan& iovs);
    static bool provide_receive(void* self, std::uint32_t bytes, RecvWqe& out);
    bool give_receive(std::uint32_t bytes, RecvWqe& out);
    void received(const Wc& wc);
    bool something_to_read() const noexcept;
    bool direct_done() const noexcept;
    void drop_messages() noexcept;
    Buffer* pop_message() noexcept;
    bool account_message(BufferPtr& buffer) noexcept;
    [[nodiscard]] std::uint64_t budget() const noexcept;

    readiness::Source& source_;
    const Options& options_;
    PollGroup* progress_ = nullptr;
    PolledQp* qp_ = nullptr;
    BorrowedEndpoint endpoint_;

    std::atomic<std::uint64_t> tx_bytes_{0};  // in buffers
    std::atomic<std::uint64_t> tx_messages_{0}, rx_messages_{0};
    mutable std::atomic<bool> tx_no_room_{false};  // a send found no room

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
        const IovSpan* where = nullptr;  // of the call whose memory it is
        Buffer* rest = nullptr;          // what does not fit
        std::uint32_t length = 0;        // of the message, when done
        std::uint32_t limit = 0;         // bytes at most
        std::uint32_t reserved = 0;      // of rx_held_
    } direct_;
};

}  // namespace xsock::sockets
