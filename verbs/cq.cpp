// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues.
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "base/poll_batch.hpp"
#include "libxsock/engine/runtime.hpp"
#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/events.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr std::size_t kBatch = 32;
constexpr std::uint32_t kPollsPerYield = 64;

ibv_wc_status status_of(const Wc& wc) noexcept {
    static constexpr ibv_wc_status kStatus[] = {
        // by WcStatus
        IBV_WC_SUCCESS,      IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_PROT_ERR,      IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_OP_ERR,
        IBV_WC_BAD_RESP_ERR, IBV_WC_RETRY_EXC_ERR,  IBV_WC_RNR_RETRY_EXC_ERR,
    };
    static_assert(std::size(kStatus) ==
                  static_cast<std::size_t>(WcStatus::rnr_retries_exceeded) + 1);
    // A receive has tried nothing: hardware flushes it, and programs check for that.
    if (wc.status == WcStatus::connection_lost && wc.opcode == WcOpcode::recv) {
        return IBV_WC_WR_FLUSH_ERR;
    }
    return kStatus[static_cast<std::size_t>(wc.status)];
}

ibv_wc_opcode opcode_of(const Wc& wc) noexcept {
    static constexpr ibv_wc_opcode kOpcodes[] = {
        // by WcOpcode; those of connections, which verbs do not ask for, count as receives
        IBV_WC_SEND,       IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_LOCAL_INV, IBV_WC_RECV,
        IBV_WC_RECV,       IBV_WC_RECV,       IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP, IBV_WC_RDMA_WRITE,
        IBV_WC_RDMA_WRITE, IBV_WC_BIND_MW,    IBV_WC_SEND,
    };
    static_assert(std::size(kOpcodes) == static_cast<std::size_t>(WcOpcode::send_immediate) + 1);
    if (wc.opcode == WcOpcode::recv && (wc.flags & kWcImmediate) != 0) {
        return IBV_WC_RECV_RDMA_WITH_IMM;
    }
    return kOpcodes[static_cast<std::size_t>(wc.opcode)];
}

}  // namespace

void convert(const Wc& from, ibv_wc& to) noexcept {
    to.wr_id = from.wr_id;
    to.status = status_of(from);
    if (from.opcode == WcOpcode::bind_window && to.status == IBV_WC_LOC_PROT_ERR) {
        to.status = IBV_WC_MW_BIND_ERR;
    }
    to.opcode = opcode_of(from);
    to.vendor_err = from.status == WcStatus::success ? 0 : static_cast<std::uint32_t>(from.status);
    to.byte_len = from.byte_len;
    to.qp_num = static_cast<std::uint32_t>(from.qp_context);
    to.src_qp = 0;
    to.wc_flags = 0;
    to.imm_data = 0;
    if ((from.flags & kWcInvalidated) != 0) {
        to.wc_flags |= IBV_WC_WITH_INV;
        to.invalidated_rkey = from.invalidated_stag;
    }
    if ((from.flags & kWcImmediate) != 0) {
        to.wc_flags |= IBV_WC_WITH_IMM;
        to.imm_data = immediate_data(from.immediate);
    }
    if ((from.flags & kWcSendImmediate) != 0) {
        to.wc_flags |= IBV_WC_WITH_IMM;
        to.imm_data = immediate_data(from.immediate << 32);
    }
    if ((from.flags & kWcDatagram) != 0) {
        to.wc_flags |= IBV_WC_GRH;
        to.src_qp = static_cast<std::uint32_t>(from.qp_context >> 32);
    }
    to.pkey_index = 0;
    to.slid = 0;
    to.sl = 0;
    to.dlid_path_bits = 0;
}

void ack_cq_events(ibv_cq* cq, unsigned int events) noexcept {
    if (events == 0) return;
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += events;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

// ---- queues ----

ibv_cq* create_cq_locked(VerbsState& engine, Context& context, std::uint32_t cqe, void* cq_context,
                         ibv_comp_channel* channel) {
    if (cqe == 0 || cqe > kMaxCqe ||
        (channel != nullptr && !engine.alive(channel, Kind::channel))) {
        return fail<ibv_cq>(EINVAL);
    }
    cqe = rounded_depth(cqe);
    auto cq = std::make_unique<Cq>();
    Registration registration(engine, cq.get(), Kind::cq);
    cq->engine = &engine;
    cq->event_room.emplace(context, 1);
    cq->id = engine.next_number();
    auto made = engine.device().create_cq(
        cqe, true, channel != nullptr ? reinterpret_cast<Channel*>(channel)->connections : nullptr);
    if (!made) return fail<ibv_cq>(made.error().code);
    cq->cq = std::move(*made);
    cq->base.context = context.base();
    cq->base.channel = channel;
    cq->base.cq_context = cq_context;
    cq->base.handle = static_cast<std::uint32_t>(cq->id);
    cq->base.cqe = static_cast<int>(cqe);
    pthread_mutex_init(&cq->base.mutex, nullptr);
    pthread_cond_init(&cq->base.cond, nullptr);
    if (channel != nullptr) {
        cq->channel = reinterpret_cast<Channel*>(channel);
        const std::lock_guard lock(cq->channel->mutex);
        cq->channel->cqs.push_back(cq.get());
    }
    try {
        const std::lock_guard lock(engine.notify_mutex);
        engine.notified.emplace(cq->id, cq.get());
    } catch (...) {
        leave_channel(*cq);
        throw;
    }
    if (channel != nullptr) {
        ++cq->channel->users;
        ++channel->refcnt;
    }
    cq->cq->set_notifier(on_cq_notified,
                         reinterpret_cast<void*>(static_cast<std::uintptr_t>(cq->id)));
    registration.keep();
    ++context.objects;
    return cq.release()->plain();
}

ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int vector) noexcept {
    return locked_object<ibv_cq>([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context) || cqe < 1 || vector != 0) {
            return fail<ibv_cq>(EINVAL);
        }
        return create_cq_locked(engine, *Context::of(context), static_cast<std::uint32_t>(cqe),
                                cq_context, channel);
    });
}

int resize_cq(ibv_cq* cq, int cqe) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(cq, Kind::cq) || cqe < 1 || static_cast<std::uint32_t>(cqe) > kMaxCqe) {
            return EINVAL;
        }
        // Too small is what the program asks for, although it gets more.
        const auto wanted = static_cast<std::uint32_t>(cqe);
        const std::uint32_t depth = rounded_depth(wanted);
        // Nor may it be for sends that are still to complete: a datagram's may have to wait until
        // the other process has been reached, where hardware's is through at once.
        const bool shrinks = cqe < cq->cqe;
        if (shrinks && Cq::of(cq)->sends.load(std::memory_order_relaxed) > wanted) return EINVAL;
        if (auto r = Cq::of(cq)->cq->resize(depth, wanted); !r) return r.error().code;
        cq->cqe = static_cast<int>(depth);
        Cq::of(cq)->set_send_room();
        return 0;
    });
}

int destroy_cq(ibv_cq* given) noexcept {
    Cq* cq = nullptr;
    const int error = locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::cq)) return EINVAL;
        cq = Cq::of(given);
        if (cq->users != 0) return EBUSY;
        engine.remove(cq);
        const std::lock_guard lock(engine.notify_mutex);
        engine.notified.erase(cq->id);
        return 0;
    });
    if (error != 0) return error;
    leave_channel(*cq);
    Context& context = *Context::of(cq->base.context);
    forget_async(context, [&](const ibv_async_event& event) {
        return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == given;
    });
    wait_acknowledged(cq->base.mutex, cq->base.cond, cq->base.comp_events_completed,
                      cq->events_delivered);
    wait_acknowledged(cq->base.mutex, cq->base.cond, cq->base.async_events_completed,
                      cq->async_delivered);
    return locked_errno([&](VerbsState& engine) {
        if (cq->channel != nullptr) {
            --cq->channel->users;
            --cq->channel->base.refcnt;
        }
        if (cq->parent_domain != nullptr) --cq->parent_domain->users;
        pthread_mutex_destroy(&cq->base.mutex);
        pthread_cond_destroy(&cq->base.cond);
        delete cq;
        --context.objects;
        release_locked(engine, context);
        return 0;
    });
}

// ---- the data path ----

bool is_of_exit(const Wc& wc) noexcept {
    return wc.status != WcStatus::success && runtime::ends_elsewhere();
}

int poll_cq(ibv_cq* given, int count, ibv_wc* wc) noexcept {
    const HoldCancellation hold;
    Cq& cq = *Cq::of(given);
    if (cq.engine != VerbsState::current()) return -1;
    try {
        int total = 0;
        std::size_t sends = 0;
        const auto most = static_cast<std::size_t>(std::max(count, 0));
        poll_batches<kBatch>(*cq.cq, most, [&](const Wc& taken) {
            if (is_signaled_send(taken)) ++sends;
            if (is_of_exit(taken)) return;
            convert(taken, wc[total++]);
        });
        cq.give_slots(sends);
        if (total != 0) {
            cq.empty_polls.store(0, std::memory_order_relaxed);
        } else if (cq.empty_polls.fetch_add(1, std::memory_order_relaxed) % kPollsPerYield ==
                   kPollsPerYield - 1) {
            // Both ends of a test often poll on one machine: where there are more of them than
            // processors, each would wait for the end of the other's time slice.
            sched_yield();
        }
        return total;
    } catch (...) {
        return -1;
    }
}

}  // namespace xsock::verbs
