// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The newer way to post: ibv_wr_start(), one or more ibv_wr_*() with their setters, and
// ibv_wr_complete(), which posts all of them or none.
#include <cstring>

#include "base/send_queue.hpp"
#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

void wr_start(ibv_qp_ex* qp) noexcept { Qp::of(qp)->builder.start(); }

// The request being built; null once something went wrong (ibv_wr_complete() says so).
SendBuilder::Request* begin(ibv_qp_ex* given, SendOpcode opcode, std::uint32_t rkey = 0,
                            std::uint64_t remote = 0) noexcept {
    Qp& qp = *Qp::of(given);
    if (qp.builder.error != 0) return nullptr;
    try {
        SendBuilder::Request& built = qp.builder.requests.emplace_back();
        built.wr.wr_id = given->wr_id;
        built.wr.opcode = opcode;
        unsigned flags = 0;
        if ((given->wr_flags & IBV_SEND_SIGNALED) != 0 || qp.signal_all) flags |= kSendSignaled;
        if ((given->wr_flags & IBV_SEND_SOLICITED) != 0) flags |= kSendSolicited;
        if ((given->wr_flags & IBV_SEND_FENCE) != 0) flags |= kSendFence;
        built.wr.flags = static_cast<std::uint8_t>(flags);
        built.wr.remote_stag = rkey;
        built.wr.remote_to = remote;
        return &built;
    } catch (...) {
        qp.builder.error = ENOMEM;
        return nullptr;
    }
}

void wr_send(ibv_qp_ex* qp) noexcept { begin(qp, SendOpcode::send); }
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) noexcept {
    if (auto* built = begin(qp, SendOpcode::send_invalidate)) built->wr.invalidate_stag = rkey;
}
void wr_send_imm(ibv_qp_ex* qp, __be32 data) noexcept {
    if (auto* built = begin(qp, SendOpcode::send_immediate)) {
        built->wr.immediate = immediate_of(data) >> 32;
    }
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote) noexcept {
    begin(qp, SendOpcode::write, rkey, remote);
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote) noexcept {
    begin(qp, SendOpcode::read, rkey, remote);
}
void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) noexcept {
    if (auto* built = begin(qp, SendOpcode::local_invalidate)) built->wr.invalidate_stag = rkey;
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey,
                const ibv_mw_bind_info* info) noexcept {
    auto* const built = begin(qp, SendOpcode::bind_window);
    if (built == nullptr) return;
    built->window = mw;
    Qp::of(qp)->builder.error = mw->type == IBV_MW_TYPE_2
                                    ? prepare_binding(*Qp::of(qp), mw, rkey, *info, built->wr)
                                    : EINVAL;
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote,
                       __be32 data) noexcept {
    if (auto* built = begin(qp, SendOpcode::write_immediate, rkey, remote)) {
        built->wr.immediate = immediate_of(data);
    }
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote,
                       std::uint64_t compare, std::uint64_t swap) noexcept {
    if (auto* built = begin(qp, SendOpcode::compare_swap, rkey, remote)) {
        built->atomic = compare_swap_of(compare, swap);
    }
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote,
                         std::uint64_t add) noexcept {
    if (auto* built = begin(qp, SendOpcode::fetch_add, rkey, remote)) {
        built->atomic = fetch_add_of(add);
    }
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_num,
                    std::uint32_t remote_qkey) noexcept {
    auto* const built = Qp::of(qp)->builder.last();
    if (built == nullptr) return;
    built->ah = ah;
    built->remote_num = remote_num;
    built->remote_qkey = remote_qkey;
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) noexcept {
    auto* const built = Qp::of(qp)->builder.last();
    if (built == nullptr) return;
    if (count > Qp::of(qp)->cap.max_send_sge) {
        Qp::of(qp)->builder.error = EINVAL;
        return;
    }
    built->sge_count = count;
    for (std::size_t i = 0; i < count; ++i) {
        built->sges[i] = {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(list[i].addr)),
                          list[i].length, list[i].lkey};
    }
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address,
                std::uint32_t length) noexcept {
    const ibv_sge sge{address, length, lkey};
    wr_set_sge_list(qp, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* given, size_t count, const ibv_data_buf* list) noexcept {
    Qp& qp = *Qp::of(given);
    auto* const built = qp.builder.last();
    if (built == nullptr) return;
    std::vector<std::byte>& data = qp.builder.inline_data;
    built->inline_at = data.size();
    std::size_t total = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (list[i].length > qp.cap.max_inline_data - total) {
            qp.builder.error = EINVAL;
            return;
        }
        // Copied here: the program may reuse the memory before ibv_wr_complete().
        const auto* const from = static_cast<const std::byte*>(list[i].addr);
        try {
            data.insert(data.end(), from, from + list[i].length);
        } catch (...) {
            qp.builder.error = ENOMEM;
            return;
        }
        total += list[i].length;
    }
    built->wr.flags |= kSendInline;
    built->sge_count = 1;
    built->sges[0] = {nullptr, static_cast<std::uint32_t>(total), kLkeyNone};
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, size_t length) noexcept {
    const ibv_data_buf buffer{address, length};
    wr_set_inline_data_list(qp, 1, &buffer);
}

void wr_abort(ibv_qp_ex* qp) noexcept { Qp::of(qp)->builder.end(0); }

int complete_datagrams(Qp& qp) noexcept {
    int error = qp.builder.error;
    if (error == 0 && qp.engine != VerbsState::current()) error = EPERM;
    try {
        if (error == 0) error = post_built_datagrams(qp);
    } catch (...) {
        error = ENOMEM;
    }
    qp.builder.end(qp.builder.requests.size());
    return error;
}

int wr_complete(ibv_qp_ex* given) noexcept {
    const HoldCancellation hold;
    Qp& qp = *Qp::of(given);
    if (qp.datagrams != nullptr) return complete_datagrams(qp);
    std::vector<SendBuilder::Request>& requests = qp.builder.requests;
    int error = qp.builder.error;
    if (error == 0 && qp.engine != VerbsState::current()) error = EPERM;
    if (error == 0 && !qp.takes_sends()) error = EINVAL;
    std::uint32_t asked = 0;
    for (std::size_t i = 0; error == 0 && i < requests.size(); ++i) {
        SendBuilder::Request& built = requests[i];
        if ((built.wr.flags & kSendInline) != 0) {
            built.sges[0].address = qp.builder.inline_data.data() + built.inline_at;
        } else {
            relocate(*qp.engine, std::span(built.sges).first(built.sge_count));
        }
        built.wr.sges = {built.sges.data(), built.sge_count};
        if (is_atomic(built.wr.opcode)) built.wr.atomic = &built.atomic;
        if (i + 1 < requests.size()) built.wr.flags |= kSendMore;
        if ((built.wr.flags & kSendSignaled) != 0) ++asked;
        error = SendQueue::check(built.wr).code;
    }
    // Room for all first: no other thread posts between ibv_wr_start() and here.
    Cq& cq = *Cq::of(given->qp_base.send_cq);
    if (error == 0 && qp.qp.use()->send_room() < requests.size()) error = ENOMEM;
    const bool taken = error == 0 && cq.take_slots(asked);
    if (error == 0 && !taken) error = ENOMEM;
    std::size_t posted = 0;
    for (; error == 0 && posted < requests.size(); ++posted) {
        const SendWr& wr = requests[posted].wr;
        if ((error = post_taken(qp, wr)) != 0) break;  // no memory
        if ((wr.flags & kSendSignaled) != 0) --asked;
    }
    if (taken) cq.give_slots(asked);  // of those not posted
    qp.builder.end(posted);
    return error;
}

}  // namespace

void SendBuilder::start() noexcept {
    mutex.lock();
    requests.clear();
    inline_data.clear();
    error = 0;
}

SendBuilder::Request* SendBuilder::last() noexcept {
    if (error == 0 && requests.empty()) error = EINVAL;
    return error == 0 ? &requests.back() : nullptr;
}

// The last first: each gives its window the key back that it had before.
void SendBuilder::end(std::size_t first) noexcept {
    for (std::size_t i = requests.size(); i-- > first;) {
        if (requests[i].window != nullptr) cancel_binding(requests[i].window, requests[i].wr);
    }
    requests.clear();
    mutex.unlock();
}

void set_send_ops(Qp& qp, std::uint64_t flags) noexcept {
    qp.send_ops = flags | (std::uint64_t{1} << 63);  // also when no operation was asked for
    ibv_qp_ex& ex = qp.base;
    ex.wr_start = wr_start;
    ex.wr_complete = wr_complete;
    ex.wr_abort = wr_abort;
    if (qp.datagrams != nullptr) ex.wr_set_ud_addr = wr_set_ud_addr;
    ex.wr_set_sge = wr_set_sge;
    ex.wr_set_sge_list = wr_set_sge_list;
    ex.wr_set_inline_data = wr_set_inline_data;
    ex.wr_set_inline_data_list = wr_set_inline_data_list;
    if ((flags & IBV_QP_EX_WITH_SEND) != 0) ex.wr_send = wr_send;
    if ((flags & IBV_QP_EX_WITH_SEND_WITH_INV) != 0) ex.wr_send_inv = wr_send_inv;
    if ((flags & IBV_QP_EX_WITH_SEND_WITH_IMM) != 0) ex.wr_send_imm = wr_send_imm;
    if ((flags & IBV_QP_EX_WITH_RDMA_WRITE) != 0) ex.wr_rdma_write = wr_rdma_write;
    if ((flags & IBV_QP_EX_WITH_RDMA_READ) != 0) ex.wr_rdma_read = wr_rdma_read;
    if ((flags & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0) ex.wr_rdma_write_imm = wr_rdma_write_imm;
    if ((flags & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) != 0) ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    if ((flags & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) != 0) {
        ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
    }
    if ((flags & IBV_QP_EX_WITH_BIND_MW) != 0) ex.wr_bind_mw = wr_bind_mw;
    if ((flags & IBV_QP_EX_WITH_LOCAL_INV) != 0) ex.wr_local_inv = wr_local_inv;
}

}  // namespace xsock::verbs
