// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Extended completion queues: ibv_start_poll() and what reads the completion it stands on.
#include <unistd.h>

#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr std::uint64_t kKnownFields =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
    IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS;

ibv_wc converted(ibv_cq_ex* cq) noexcept {
    ibv_wc wc;
    convert(Cq::of(cq)->current, wc);
    return wc;
}

// One at a time: what stays in the queue goes with its QP, and is there for ibv_poll_cq().
int take_one(Cq& cq) noexcept {
    try {
        if (cq.cq->poll({&cq.current, 1}) == 0 || is_of_exit(cq.current)) return ENOENT;
    } catch (...) {
        return ENOMEM;
    }
    if (is_signaled_send(cq.current)) cq.give_slots(1);
    ibv_wc wc;
    convert(cq.current, wc);
    cq.base.wr_id = wc.wr_id;
    cq.base.status = wc.status;
    return 0;
}

int start_poll(ibv_cq_ex* given, ibv_poll_cq_attr* attr) noexcept {
    if (attr->comp_mask != 0) return EINVAL;
    const HoldCancellation hold;
    Cq& cq = *Cq::of(given);
    if (cq.engine != VerbsState::current()) return EPERM;
    cq.poll_mutex.lock();  // until end_poll(), as a provider's CQ lock
    const int error = take_one(cq);
    if (error != 0) cq.poll_mutex.unlock();
    return error;
}

int next_poll(ibv_cq_ex* given) noexcept {
    const HoldCancellation hold;
    return take_one(*Cq::of(given));
}

void end_poll(ibv_cq_ex* given) noexcept { Cq::of(given)->poll_mutex.unlock(); }

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept {
    return locked_object<ibv_cq_ex>([&](VerbsState& engine) {
        constexpr std::uint32_t kKnownFlags =
            IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        constexpr std::uint32_t kKnownAttributes =
            IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        if (!engine.alive(context, Kind::context) || attr->comp_vector != 0) {
            return fail<ibv_cq_ex>(EINVAL);
        }
        const bool pd_given = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
        if (pd_given && !engine.alive(attr->parent_domain, Kind::pd)) {
            return fail<ibv_cq_ex>(EINVAL);
        }
        const bool flags_given = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
        if ((attr->wc_flags & ~kKnownFields) != 0 || (attr->comp_mask & ~kKnownAttributes) != 0 ||
            (flags_given && (attr->flags & ~kKnownFlags) != 0)) {
            return fail<ibv_cq_ex>(EOPNOTSUPP);
        }
        ibv_cq* const plain = create_cq_locked(engine, *Context::of(context), attr->cqe,
                                               attr->cq_context, attr->channel);
        if (plain == nullptr) return fail<ibv_cq_ex>(errno);
        if (pd_given) {
            Cq::of(plain)->parent_domain = reinterpret_cast<Pd*>(attr->parent_domain);
            ++Cq::of(plain)->parent_domain->users;
        }
        ibv_cq_ex& cq = Cq::of(plain)->base;
        cq.start_poll = start_poll;
        cq.next_poll = next_poll;
        cq.end_poll = end_poll;
        cq.read_opcode = [](ibv_cq_ex* c) { return converted(c).opcode; };
        cq.read_vendor_err = [](ibv_cq_ex* c) { return converted(c).vendor_err; };
        cq.read_byte_len = [](ibv_cq_ex* c) { return converted(c).byte_len; };
        cq.read_imm_data = [](ibv_cq_ex* c) { return converted(c).imm_data; };
        cq.read_qp_num = [](ibv_cq_ex* c) { return converted(c).qp_num; };
        cq.read_src_qp = [](ibv_cq_ex* c) { return converted(c).src_qp; };
        cq.read_wc_flags = [](ibv_cq_ex* c) { return converted(c).wc_flags; };
        cq.read_slid = [](ibv_cq_ex*) { return std::uint32_t{0}; };
        cq.read_sl = [](ibv_cq_ex*) { return std::uint8_t{0}; };
        cq.read_dlid_path_bits = [](ibv_cq_ex*) { return std::uint8_t{0}; };
        return &cq;
    });
}

}  // namespace xsock::verbs
