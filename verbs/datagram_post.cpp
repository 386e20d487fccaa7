// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posting to UD queue pairs. What is sent is copied here, and on its way when this returns, or
// waits with its carrier.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "verbs/address_handle.hpp"
#include "verbs/datagrams.hpp"
#include "verbs/engine.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"
#include "verbs/qp_numbers.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint32_t kOwnQkey = 0x80000000;  // InfiniBand volume 1, §10.2.5: use the QP's

/// What the program wants sent, checked.
struct Request {
    DatagramHeader header;
    CarrierKey key;
    std::array<Sge, kMaxSge> sges;
    std::size_t sge_count = 0;
    std::uint32_t length = 0;
    bool in_line = false;
    DatagramSends::Send send;
};

/// 0 or an errno.
int read_data(Qp& qp, const ibv_send_wr& wr, Request& request) {
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.cap.max_send_sge ||
        (wr.num_sge > 0 && wr.sg_list == nullptr)) {
        return EINVAL;
    }
    request.sge_count = static_cast<std::size_t>(wr.num_sge);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < request.sge_count; ++i) {
        const ibv_sge& sge = wr.sg_list[i];
        request.sges[i] = {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(sge.addr)),
                           sge.length, sge.lkey};
        length += sge.length;
    }
    request.in_line = (wr.send_flags & IBV_SEND_INLINE) != 0;
    if (request.in_line && length > qp.cap.max_inline_data) return EINVAL;
    if (!request.in_line) relocate(*qp.engine, std::span(request.sges).first(request.sge_count));
    request.length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(length, kDatagramPayload + 1));  // too long, however long
    return 0;
}

/// 0 or an errno.
int read_request(Qp& qp, const ibv_send_wr& wr, Request& request) {
    const auto opcode = value_in(wr.opcode);
    if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM) return EINVAL;
    const Ah* const ah = Ah::of(wr.wr.ud.ah);
    if (ah == nullptr || wr.wr.ud.remote_qpn > kQpNumMax ||
        reinterpret_cast<const Pd*>(ah->base.pd)->id != qp.attr.pd) {
        return EINVAL;
    }
    const std::uint32_t qkey = wr.wr.ud.remote_qkey;
    request.header.to = wr.wr.ud.remote_qpn;
    request.header.from = qp.num();
    request.header.qkey = (qkey & kOwnQkey) != 0 ? qp.datagrams->qkey() : qkey;
    request.header.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
    request.header.immediate = opcode == IBV_WR_SEND_WITH_IMM;
    if (request.header.immediate) {
        std::memcpy(request.header.data.data(), &wr.imm_data, request.header.data.size());
    }
    request.header.traffic_class = ah->route.traffic_class;
    request.header.flow_label = ah->route.flow_label;
    request.key = {ah->route.own, ah->route.peer, port_in(request.header.to)};
    request.send.wr_id = wr.wr_id;
    request.send.signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0 || qp.signal_all;
    return read_data(qp, wr, request);
}

/// success: `frame` is what goes.
WcStatus build(Qp& qp, const Request& request, Bytes frame) {
    const auto header = encode(request.header);
    std::copy(header.begin(), header.end(), frame.begin());
    Bytes payload = frame.subspan(kDatagramHeader);
    const auto sges = std::span(request.sges).first(request.sge_count);
    if (!request.in_line) return qp.engine->device().gather(sges, qp.attr.pd, payload);
    for (const Sge& sge : sges) {
        if (sge.length != 0) std::memcpy(payload.data(), sge.address, sge.length);
        payload = payload.subspan(sge.length);
    }
    return WcStatus::success;
}

/// InfiniBand volume 1, §10.3.1: a send that cannot be done ends the send queue of a UD QP.
void fail_send(Qp& qp, DatagramSends::Send send, WcStatus status) {
    send.status = status;
    qp.datagrams->sends().set_failed(true);
    ibv_qp_state from = IBV_QPS_RTS;
    if (qp.state.compare_exchange_strong(from, IBV_QPS_SQE)) qp.base.qp_base.state = IBV_QPS_SQE;
    qp.datagrams->sends().add_done(send);
}

/// A request that has its Cq::take_slots(), if it is signaled.
void send_datagram(Qp& qp, const Request& request, DatagramSender::Gather gather) {
    DatagramSends& sends = qp.datagrams->sends();
    if (sends.failed()) {
        auto flushed = request.send;
        flushed.status = WcStatus::flushed;
        return sends.add_done(flushed);
    }
    if (request.length > kDatagramPayload) {
        return fail_send(qp, request.send, WcStatus::local_length_error);
    }
    const auto sender = qp.engine->rendezvous->datagrams().sender(request.key);
    const std::size_t bytes = kDatagramHeader + request.length;
    std::array<std::byte, kMaxInline> small;
    std::unique_ptr<DatagramBuffer> buffer;
    if (bytes > small.size()) buffer = std::make_unique<DatagramBuffer>();
    const Bytes frame = Bytes(buffer ? Bytes(buffer->octets) : Bytes(small)).first(bytes);
    const WcStatus built = build(qp, request, frame);
    if (built != WcStatus::success) return fail_send(qp, request.send, built);
    if (sender == nullptr) {
        qp.engine->rendezvous->datagrams().counters().unsent.fetch_add(1,
                                                                       std::memory_order_relaxed);
        return sends.add_done(request.send);
    }
    if (buffer) buffer->bytes = static_cast<std::uint32_t>(bytes);
    const bool sent = buffer ? sender->try_send(buffer, gather) : sender->try_send(frame, gather);
    if (sent) return sends.add_done(request.send);
    if (!buffer) {
        buffer = std::make_unique<DatagramBuffer>();
        buffer->bytes = static_cast<std::uint32_t>(bytes);
        std::copy(frame.begin(), frame.end(), buffer->octets.begin());
    }
    buffer->qp = qp.datagrams;
    buffer->number = sends.begin(request.send);
    sender->queue(std::move(buffer));
}

// With an armed queue no poll may follow: the program is about to sleep.
DatagramSender::Gather gather_for(const Qp& qp) noexcept {
    const bool armed = Cq::of(qp.base.qp_base.send_cq)->armed.load(std::memory_order_relaxed) ||
                       Cq::of(qp.base.qp_base.recv_cq)->armed.load(std::memory_order_relaxed);
    return armed ? DatagramSender::Gather::no : DatagramSender::Gather::yes;
}

/// As ibv_post_send() would be given it. `sges` has room for its list.
ibv_send_wr plain_of(const Qp& qp, const SendBuilder::Request& built, std::span<ibv_sge> sges) {
    ibv_send_wr wr{};
    wr.wr_id = built.wr.wr_id;
    wr.opcode = built.wr.opcode == SendOpcode::send_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if ((built.wr.flags & kSendSignaled) != 0) wr.send_flags |= IBV_SEND_SIGNALED;
    if ((built.wr.flags & kSendSolicited) != 0) wr.send_flags |= IBV_SEND_SOLICITED;
    if (built.wr.opcode == SendOpcode::send_immediate) {
        wr.imm_data = immediate_data(built.wr.immediate << 32);
    }
    for (std::size_t i = 0; i < built.sge_count; ++i) {
        sges[i] = {reinterpret_cast<std::uintptr_t>(built.sges[i].address), built.sges[i].length,
                   built.sges[i].lkey};
    }
    if ((built.wr.flags & kSendInline) != 0) {
        wr.send_flags |= IBV_SEND_INLINE;
        sges[0].addr =
            reinterpret_cast<std::uintptr_t>(qp.builder.inline_data.data() + built.inline_at);
    }
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(built.sge_count);
    wr.wr.ud.ah = built.ah;
    wr.wr.ud.remote_qpn = built.remote_num;
    wr.wr.ud.remote_qkey = built.remote_qkey;
    return wr;
}

int post_one_datagram(Qp& qp, const ibv_send_wr& wr) {
    Request request;
    if (const int error = read_request(qp, wr, request); error != 0) return error;
    if (qp.datagrams->sends().waiting() >= qp.cap.max_send_wr) return ENOMEM;
    Cq& cq = *Cq::of(qp.base.qp_base.send_cq);
    if (request.send.signaled && !cq.take_slots(1)) return ENOMEM;
    try {
        send_datagram(qp, request,
                      wr.next != nullptr ? DatagramSender::Gather::more : gather_for(qp));
    } catch (...) {
        if (request.send.signaled) cq.give_slots(1);
        throw;
    }
    return 0;
}

}  // namespace

int post_built_datagrams(Qp& qp) {
    if (!qp.takes_sends()) return EINVAL;
    const auto& all = qp.builder.requests;
    std::vector<Request> requests(all.size());
    std::uint32_t signaled = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::array<ibv_sge, kMaxSge> sges{};
        const ibv_send_wr wr = plain_of(qp, all[i], sges);
        if (const int error = read_request(qp, wr, requests[i]); error != 0) return error;
        if (requests[i].send.signaled) ++signaled;
    }
    const std::size_t waiting = qp.datagrams->sends().waiting();
    if (waiting > qp.cap.max_send_wr || all.size() > qp.cap.max_send_wr - waiting) return ENOMEM;
    Cq& cq = *Cq::of(qp.base.qp_base.send_cq);
    if (!cq.take_slots(signaled)) return ENOMEM;
    try {
        for (const Request& request : requests) {
            const bool last = &request == &requests.back();
            send_datagram(qp, request, last ? gather_for(qp) : DatagramSender::Gather::more);
            if (request.send.signaled) --signaled;
        }
    } catch (...) {
        cq.give_slots(signaled);
        throw;
    }
    return 0;
}

int post_datagrams(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
    int error = qp.takes_sends() ? 0 : EINVAL;
    for (; error == 0 && wr != nullptr; wr = wr->next) {
        try {
            error = post_one_datagram(qp, *wr);
        } catch (...) {
            error = ENOMEM;
        }
        if (error != 0) break;
    }
    if (error != 0 && bad != nullptr) *bad = wr;
    return error;
}

}  // namespace xsock::verbs
