// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/borrowed_endpoint.hpp"

#include <mutex>
#include <utility>

#include "libxsock/socket/message_channel.hpp"

namespace xsock::sockets {

xsock_ep* BorrowedEndpoint::get(const MessageChannel& channel, PolledQp& qp, PollGroup& progress,
                                xsock_cq* send_cq, xsock_cq* recv_cq) {
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
    auto borrowed =
        api::device()->polled().borrow(qp, [&channel] { return channel.may_post_recv(); });
    std::unique_ptr<xsock_ep> ep(new xsock_ep{std::move(borrowed), api::ObjectRefs(attr)});
    ep->borrowed = true;
    auto sends = send_cq->cq->target(progress), receives = recv_cq->cq->target(progress);
    progress.locked([&](PollCycle&) {
        sends_ = std::move(sends);
        receives_ = std::move(receives);
        qp.set_context(0);
    });
    cqs_[0] = send_cq;
    cqs_[1] = recv_cq;
    endpoint_ = std::move(ep);
    return endpoint_.get();
}

void BorrowedEndpoint::push(const Wc& wc) {
    CompletionTarget* const to = (wc.opcode == WcOpcode::recv ? receives_ : sends_).get();
    if (to != nullptr) to->push(wc);
}

}  // namespace xsock::sockets
