// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/message_channel.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <utility>

#include "libxsock/engine/socket_table.h"
#include "stream/sdp_wire.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {

MessageChannel::~MessageChannel() {
    drop_messages();
    give_buffer(rx_spare_);
}

void MessageChannel::join(PolledQpAttr& attr, std::shared_ptr<void> owner) {
    progress_ = attr.group;
    attr.keeper = std::move(owner);
    attr.argument = this;
    attr.provide_receive = provide_receive;
    attr.on_completion = on_completion;
    attr.on_request = [](void* self, std::span<const std::byte> request,
                         std::vector<std::byte>& reply) {
        return static_cast<MessageChannel*>(self)->answer(request, reply);
    };
}

bool MessageChannel::answer(std::span<const std::byte> request, std::vector<std::byte>& reply) {
    if (stream::looks_like_hello(request)) {
        log(LogLevel::warn, "mode-refused", "a peer asks for a byte stream; this is message mode");
        return false;
    }
    reply = options_.private_data;
    return true;
}

bool MessageChannel::close(std::function<void()>) {
    {
        const std::lock_guard hold(rx_lock_);
        rx_closed_ = true;
    }
    drop_messages();
    endpoint_.reset();
    return true;
}

// The poller: something that was posted is done.
void MessageChannel::on_completion(void* self, const Wc& wc) {
    auto* const channel = static_cast<MessageChannel*>(self);
    const bool receive = wc.opcode == WcOpcode::recv;
    if ((wc.flags & kWcInternal) != 0) {
        receive ? channel->received(wc) : channel->sent(wc);
        return;
    }
    channel->endpoint_.push(wc);
    if (!receive) channel->wake_senders();
}

std::uint32_t MessageChannel::events() const noexcept {
    std::uint32_t events = 0;
    const bool end = read_.load(std::memory_order_acquire) != Half::open;
    const bool shut = write_.load(std::memory_order_relaxed) != Half::open;
    if (end) events |= kReadable | EPOLLRDHUP;
    if (rx_count_.load(std::memory_order_seq_cst) != 0) events |= kReadable;
    if (shut || can_send()) {
        events |= kWritable;
    } else {
        // Room made from now on is reported; it may have been made in between.
        tx_no_room_.store(true, std::memory_order_seq_cst);
        if (can_send()) events |= kWritable;
    }
    if (shut && end) events |= EPOLLHUP;
    return events;
}

void MessageChannel::shutdown(bool reading, bool writing) {
    if (reading) {
        read_.store(Half::shut, std::memory_order_release);
        drop_messages();
        qp_->receive_posted();  // what comes is taken and dropped from now on
    }
    if (writing) {
        leave_open(write_, Half::shut);
        progress_->locked([this](PollCycle& cycle) { qp_->shutdown(cycle); });
    }
}

int MessageChannel::ioctl(int fd, unsigned long request, void* argument) {
    int& answer = *static_cast<int*>(argument);
    switch (request) {
        case FIONREAD: {
            if (rx_count_.load(std::memory_order_acquire) == 0 && qp_ != nullptr) {
                progress_->poll();
            }
            const std::lock_guard hold(rx_lock_);
            answer = rx_first_ != nullptr ? static_cast<int>(rx_first_->length) : 0;
            return 0;
        }
        case SIOCOUTQ: {
            int queued = 0;
            if (fd < 0 || ::ioctl(fd, SIOCOUTQ, &queued) < 0) queued = 0;
            const std::uint64_t here = tx_bytes_.load(std::memory_order_relaxed);
            answer = static_cast<int>(
                std::min<std::uint64_t>(here + static_cast<unsigned>(queued), INT_MAX));
            return 0;
        }
        case SIOCATMARK:
            answer = 0;
            return 0;
        default:
            return XSOCK_PASS;
    }
}

void MessageChannel::describe(xsock_status& status) const noexcept {
    status.tx_messages = tx_messages_.load();
    status.rx_messages = rx_messages_.load();
    status.waiting.rx = rx_count_.load();
}

}  // namespace xsock::sockets
