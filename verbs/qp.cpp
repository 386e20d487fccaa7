// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs: made, connected, ended, destroyed. The connection underneath has states of its own
// (base/device.hpp); the verbs state is what the program and rdma_cm have set (qp_states.cpp),
// until the connection ends: then it is the error state.
#include <algorithm>
#include <cstring>

#include "transport/clock.hpp"
#include "transport/config.hpp"
#include "verbs/cm.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/device_profile.hpp"
#include "verbs/engine.hpp"
#include "verbs/events.hpp"
#include "verbs/gid_rendezvous.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

void raise(VerbsState& engine, Qp& qp, ibv_event_type type) {
    if (is_stand_in(qp)) return;
    ibv_async_event event{};
    event.element.qp = qp.plain();
    event.event_type = type;
    engine.raise(*Context::of(qp.base.qp_base.context), event);
}

// Of a QP that has been detached: nothing comes to its queues any more.
void forget_completions(Qp& qp) {
    Cq& send_cq = *Cq::of(qp.base.qp_base.send_cq);
    {
        const std::lock_guard lock(qp.late_mutex);
        for (const Wc& wc : qp.late) send_cq.give_slots(is_signaled_send(wc) ? 1 : 0);
        qp.late.clear();
    }
    send_cq.purge(qp.qp->num());
    for (const auto& twin : qp.twins) send_cq.purge(twin->num());
    Cq::of(qp.base.qp_base.recv_cq)->purge(qp.qp->num());
}

// Asynchronous events: a fault that this end has found, an overrun, IBV_EVENT_QP_LAST_WQE_REACHED.
constexpr std::size_t kEventsOfConnection = 3;

// A program that watches its completion queue alone must learn of the end as well.
constexpr Time kUnreadLimit = kSecond;

/// A number while its QP is made; given back unless keep() was called.
class QpNumber {
  public:
    QpNumber(VerbsState& engine, std::uint32_t num) noexcept : engine_(&engine), num_(num) {}
    ~QpNumber() {
        if (engine_ != nullptr) engine_->qp_numbers.give(num_);
    }
    QpNumber(const QpNumber&) = delete;
    QpNumber& operator=(const QpNumber&) = delete;
    void keep() noexcept { engine_ = nullptr; }

  private:
    VerbsState* engine_;
    const std::uint32_t num_;
};

// Of a shared receive queue it takes no more.
void report_last_wqe(VerbsState& engine, Qp& qp) {
    if (qp.base.qp_base.srq == nullptr || qp.last_wqe_reported) return;
    qp.last_wqe_reported = true;
    raise(engine, qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

// The state of verbs in which nothing is outstanding any more.
void finish_qp_locked(VerbsState& engine, Qp& qp) {
    qp.state.store(IBV_QPS_ERR, std::memory_order_release);
    qp.base.qp_base.state = IBV_QPS_ERR;
    flush_late(qp);
    report_last_wqe(engine, qp);
}

bool is_over(const Qp& qp) noexcept {
    const QpState state = qp.qp->state();
    return state == QpState::closed || state == QpState::error;
}

// DISCONNECTED was not taken in time: the end is confirmed.
void hold_unread_locked(VerbsState& engine, Qp& qp) {
    qp.end_timer = engine.loop().at(monotonic_now() + kUnreadLimit, [&engine, &qp] {
        qp.end_timer = 0;
        confirm_end_locked(engine, qp);
    });
}

// Requests that are outstanding for `limit` end the QP. `some`: there are some now.
void hold_retries_locked(VerbsState& engine, Qp& qp, Time limit, bool some) {
    qp.end_timer = engine.loop().at(monotonic_now() + limit, [&engine, &qp, limit, some] {
        qp.end_timer = 0;
        const bool still = qp.qp->sends_outstanding() != 0;
        if (!some || !still) {
            try {
                hold_retries_locked(engine, qp, limit, still);
                return;
            } catch (const std::bad_alloc&) {  // better early than never
            }
        }
        confirm_end_locked(engine, qp);
        if (!is_over(qp)) fail_qp_locked(engine, qp);
    });
}

// The least time after which a Send that no peer acknowledges fails; kNever: it does not.
Time retries_last(const Qp& qp) noexcept {
    constexpr Time kUnit = 4096;  // ns
    if (qp.asked.timeout == 0) return kNever;
    return (kUnit << (qp.asked.timeout & 31)) * (qp.asked.retry_cnt + 1);
}

// The peer has left. Programs written for InfiniBand count on DISCONNECTED before their receives
// are flushed: there a QP stays as it is until the program reacts. Without rdma_cm it stays until a
// Send has been repeated in vain; programs whose peer has got all it wants and leaves first count
// on having ended by then.
void hold_end_locked(VerbsState& engine, Qp& qp) {
    if (qp.end_unconfirmed.load()) return;  // a reset behind the FIN
    const bool told = qp.id != nullptr && qp.id->state == IdState::connected && qp.id->sync == 0;
    // One that ends during start-up is flushed by then; the peer of one that is connected to itself
    // does not leave.
    const bool is_own_peer = qp.sender.load() != nullptr;
    if (is_own_peer || (!told && !(qp.by_gid && qp.connection == Qp::Connection::established))) {
        confirm_end_locked(engine, qp);
        return;
    }
    try {
        if (told) {
            hold_unread_locked(engine, qp);
        } else if (const Time limit = retries_last(qp); limit != kNever) {
            hold_retries_locked(engine, qp, limit, qp.qp->sends_outstanding() != 0);
        }
        qp.end_unconfirmed.store(true, std::memory_order_release);
    } catch (const std::bad_alloc&) {  // better early than never
        if (told) {
            confirm_end_locked(engine, qp);
        } else {
            fail_qp_locked(engine, qp);
        }
    }
}

// Of UC: its program hears nothing of the peer.
bool hears_nothing(const Qp& qp) noexcept {
    return qp.unreliable() && qp.connection == Qp::Connection::established;
}
bool is_silent(const Qp& qp, const QpInfo& info) noexcept {
    return hears_nothing(qp) && qp.state.load() != IBV_QPS_ERR && info.error != EFAULT &&
           info.stream_error != StreamError::local_catastrophic;
}

// What hardware would call the fault that ended a connection, if it was found at this end.
bool event_for(const QpInfo& info, ibv_event_type& type) noexcept {
    switch (info.stream_error) {
        case StreamError::none:
        case StreamError::mpa_connection_lost:
        case StreamError::rnr_retries_exceeded:
        case StreamError::startup_timeout:
        case StreamError::startup_rejected:
        case StreamError::startup_both_initiators:
        case StreamError::startup_not_mpa:
            return false;
        case StreamError::read_stag_invalid:
        case StreamError::read_bounds:
        case StreamError::read_access:
        case StreamError::read_stag_not_associated:
        case StreamError::read_to_wrap:
        case StreamError::write_access:
        case StreamError::invalidate_stag_invalid:
        case StreamError::invalidate_not_permitted:
        case StreamError::tagged_stag_invalid:
        case StreamError::tagged_bounds:
        case StreamError::tagged_stag_not_associated:
        case StreamError::tagged_to_wrap:
            type = IBV_EVENT_QP_ACCESS_ERR;
            return true;
        case StreamError::untagged_no_buffer:
        case StreamError::untagged_too_long:
        case StreamError::untagged_msn_range:
        case StreamError::untagged_mo:
        case StreamError::untagged_qn:
        case StreamError::rdmap_opcode:
        case StreamError::read_queue_overflow:
        case StreamError::read_request_malformed:
        case StreamError::atomic_malformed:
        case StreamError::atomic_opcode:
        case StreamError::atomic_unaligned:
        case StreamError::immediate_malformed:
            type = IBV_EVENT_QP_REQ_ERR;
            return true;
        default:
            type = IBV_EVENT_QP_FATAL;
            return true;
    }
}

}  // namespace

std::uint64_t device_context(VerbsState& engine, std::uint32_t qp_num) noexcept {
    return engine.next_number() << 32 | qp_num;
}

void detach_locked(Qp& qp) {
    qp.qp->detach();
    if (xsock::Qp* const twin = qp.sender.exchange(nullptr)) twin->detach();
    forget_completions(qp);
}

ibv_qp* create_qp_locked(VerbsState& engine, ibv_pd* pd, ibv_qp_init_attr& attr, Time rnr_timeout) {
    const bool srq_given = attr.srq != nullptr;
    const bool datagrams = value_in(attr.qp_type) == IBV_QPT_UD && device_profile().roce;
    const bool unreliable = value_in(attr.qp_type) == IBV_QPT_UC && device_profile().roce;
    if (value_in(attr.qp_type) != IBV_QPT_RC && !datagrams && !unreliable) {
        return fail<ibv_qp>(EOPNOTSUPP);
    }
    if (!engine.alive(attr.send_cq, Kind::cq) || !engine.alive(attr.recv_cq, Kind::cq) ||
        (srq_given && !engine.alive(attr.srq, Kind::srq)) || attr.cap.max_send_wr > kMaxQpWr ||
        (!srq_given && (attr.cap.max_recv_wr > kMaxQpWr || attr.cap.max_recv_sge > kMaxSge)) ||
        attr.cap.max_send_sge > kMaxSge || attr.cap.max_inline_data > kMaxInline) {
        return fail<ibv_qp>(EINVAL);
    }
    auto qp = std::make_unique<Qp>();
    Registration registration(engine, qp.get(), Kind::qp);
    qp->engine = &engine;
    qp->event_room.emplace(*Context::of(pd->context), kEventsOfConnection);
    qp->signal_all = attr.sq_sig_all != 0;
    qp->sq_wanted = std::max(1u, attr.cap.max_send_wr);
    qp->cap.max_send_wr = rounded_depth(attr.cap.max_send_wr);
    qp->cap.max_recv_wr = srq_given ? 0 : rounded_depth(attr.cap.max_recv_wr);
    qp->cap.max_send_sge = std::max(1u, attr.cap.max_send_sge);
    qp->cap.max_recv_sge = srq_given ? 0 : std::max(1u, attr.cap.max_recv_sge);
    qp->cap.max_inline_data = kMaxInline;

    ibv_qp& base = qp->base.qp_base;
    base.context = pd->context;
    base.qp_context = attr.qp_context;
    base.pd = pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    auto num = engine.qp_numbers.take([&](std::uint32_t n) { return engine.qps.count(n) != 0; });
    if (!num) return fail<ibv_qp>(num.error().code);
    QpNumber number(engine, *num);
    base.qp_num = *num;
    base.handle = base.qp_num;
    base.state = IBV_QPS_RESET;
    base.qp_type = attr.qp_type;

    qp->attr.pd = reinterpret_cast<Pd*>(pd)->id;
    qp->attr.send_cq = Cq::of(attr.send_cq)->cq.get();
    qp->attr.recv_cq = Cq::of(attr.recv_cq)->cq.get();
    qp->attr.srq = srq_given && !datagrams ? Srq::of(attr.srq)->srq.get() : nullptr;
    qp->attr.sq_depth = qp->cap.max_send_wr;
    qp->attr.rq_depth = std::max(1u, qp->cap.max_recv_wr);
    qp->attr.require_lkeys = true;
    qp->attr.snapshot = true;  // as hardware does, which reads memory once
    qp->attr.api = Api::verbs;
    qp->attr.context = device_context(engine, base.qp_num);
    qp->attr.async_events = !datagrams;
    qp->attr.rnr_timeout = rnr_timeout;
    auto made = engine.device().create_qp(qp->attr);
    if (!made) return fail<ibv_qp>(made.error().code);
    qp->qp.replace(std::move(*made));
    engine.qps.emplace(base.qp_num, qp.get());
    try {
        if (datagrams) engine.rendezvous->datagrams().add(*qp);
    } catch (...) {
        engine.qps.erase(base.qp_num);
        throw;
    }

    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    registration.keep();
    number.keep();
    ++reinterpret_cast<Pd*>(pd)->users;
    ++Cq::of(attr.send_cq)->users;
    ++Cq::of(attr.recv_cq)->users;
    Cq& send_cq = *Cq::of(attr.send_cq);
    send_cq.sq_wanted += qp->sq_wanted;
    send_cq.sq_depths += qp->cap.max_send_wr;
    send_cq.set_send_room();
    if (srq_given) ++Srq::of(attr.srq)->users;
    attr.cap = qp->cap;
    return qp.release()->plain();
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
    return locked_object<ibv_qp>([&](VerbsState& engine) {
        if (!engine.alive(pd, Kind::pd)) return fail<ibv_qp>(EINVAL);
        return create_qp_locked(engine, pd, *attr, engine.rnr_timeout);
    });
}

ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex* attr) noexcept {
    return locked_object<ibv_qp>([&](VerbsState& engine) {
        constexpr std::uint32_t kKnown =
            IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if ((attr->comp_mask & ~kKnown) != 0 ||
            ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0)) {
            return fail<ibv_qp>(EOPNOTSUPP);
        }
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || !engine.alive(attr->pd, Kind::pd)) {
            return fail<ibv_qp>(EINVAL);
        }
        std::uint64_t ops = 0;
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
            ops = attr->send_ops_flags;
            if ((ops & ~send_ops_of(value_in(attr->qp_type))) != 0) return fail<ibv_qp>(EOPNOTSUPP);
        }
        ibv_qp_init_attr plain;
        std::memcpy(&plain, attr, sizeof plain);  // the extended one begins with it
        ibv_qp* const qp = create_qp_locked(engine, attr->pd, plain, engine.rnr_timeout);
        if (qp == nullptr) return qp;
        std::memcpy(static_cast<void*>(attr), &plain, sizeof plain);
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
            set_send_ops(*Qp::of(qp), ops);
        }
        return qp;
    });
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept {
    return Qp::of(qp)->send_ops != 0 ? &Qp::of(qp)->base : nullptr;
}

Result<void> connect_qp_locked(VerbsState& engine, Qp& qp, int fd, const ConnectAttr& attr) {
    try {
        (void)engine.loop();  // collects the connection's events
        qp.event_room->renew();
        qp.connection = Qp::Connection::given;
        // (The program itself moves one that GIDs connect.)
        if (!qp.by_gid && (qp.id == nullptr || !qp.id->program_moves_qp())) {
            qp.state.store(IBV_QPS_RTS, std::memory_order_release);
            qp.base.qp_base.state = IBV_QPS_RTS;
        }
        return qp.qp->connect(fd, attr);
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for the connection"};
    }
}

void count_bytes_locked(VerbsState& engine, Qp& qp) noexcept {
    if (qp.connection == Qp::Connection::none || qp.connection == Qp::Connection::counted) return;
    try {
        const QpInfo info = qp.qp->info();
        engine.tx_bytes += info.tx_bytes;
        engine.rx_bytes += info.rx_bytes;
    } catch (const std::bad_alloc&) {
        return;  // the summary lacks them, unless there is memory the next time
    }
    qp.connection = Qp::Connection::counted;
}

void confirm_end_locked(VerbsState& engine, Qp& qp) {
    if (qp.end_timer != 0) engine.loop().forget(qp.end_timer);
    qp.end_timer = 0;
    qp.qp->confirm_end();
    if (qp.end_unconfirmed.exchange(false) && is_over(qp)) finish_qp_locked(engine, qp);
}

void fail_qp_locked(VerbsState& engine, Qp& qp) {
    if (engine.rendezvous != nullptr) engine.rendezvous->forget(qp);
    confirm_end_locked(engine, qp);
    qp.state.store(IBV_QPS_ERR, std::memory_order_release);
    qp.base.qp_base.state = IBV_QPS_ERR;
    qp.qp->abort();
    if (xsock::Qp* const twin = qp.sender.load()) twin->abort();
    if (qp.datagrams != nullptr) {
        qp.datagrams->fail();
        report_last_wqe(engine, qp);
    }
    flush_late(qp);
}

void on_qp_state_locked(VerbsState& engine, Qp& qp, QpState state) {
    const bool ends =
        state == QpState::peer_closed || state == QpState::error || state == QpState::closed;
    if (state != QpState::established && !ends) return;
    const QpInfo info = qp.qp->info();  // what may find no memory comes first
    if (state == QpState::error && is_silent(qp, info)) {
        count_bytes_locked(engine, qp);
        qp.end_unconfirmed.store(true, std::memory_order_release);
        flush_late(qp);
        return;
    }
    if (state == QpState::established) {
        ++engine.connections;
        qp.connection = Qp::Connection::established;
        if (qp.id != nullptr) on_established_locked(engine, *qp.id, info);
        qp.qp->confirm_start();
        return;
    }
    if (state == QpState::peer_closed) {
        if (hears_nothing(qp)) return;
        hold_end_locked(engine, qp);
        // iWARP has no half-closed QP: what is queued still goes, nothing new is taken.
        // (A stand-in's other half is the program's to end.)
        if (!qp.by_gid && !is_stand_in(qp)) (void)qp.qp->shutdown();
    } else {
        if (state == QpState::error && qp.state.load() != IBV_QPS_ERR) ++engine.errors;
        if (ibv_event_type type; state == QpState::error && event_for(info, type)) {
            raise(engine, qp, type);
        }
        if (state == QpState::error && info.stream_error == StreamError::mpa_connection_lost) {
            hold_end_locked(engine, qp);
        }
        count_bytes_locked(engine, qp);
        if (!qp.end_unconfirmed.load()) {
            qp.qp->confirm_end();
            finish_qp_locked(engine, qp);
        }
    }
    if (qp.id != nullptr) on_ended_locked(engine, *qp.id, info);
}

int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) noexcept {
    return 0;  // placement ahead of the CRC check: nothing is promised
}

void remove_qp_locked(VerbsState& engine, Qp& qp) {
    engine.remove(&qp);
    engine.qps.erase(qp.num());
    engine.qp_numbers.give(qp.num());
    if (engine.rendezvous != nullptr) engine.rendezvous->forget(qp);
    if (qp.datagrams != nullptr) engine.rendezvous->datagrams().remove(qp);
    if (qp.end_timer != 0) engine.loop().forget(qp.end_timer);
    count_bytes_locked(engine, qp);
    detach_locked(qp);
}

void free_qp_locked(Qp& qp) noexcept {
    ibv_qp& base = qp.base.qp_base;
    --reinterpret_cast<Pd*>(base.pd)->users;
    --Cq::of(base.send_cq)->users;
    --Cq::of(base.recv_cq)->users;
    Cq& send_cq = *Cq::of(base.send_cq);
    send_cq.sq_wanted -= qp.sq_wanted;
    send_cq.sq_depths -= qp.cap.max_send_wr;
    send_cq.set_send_room();
    if (base.srq != nullptr) --Srq::of(base.srq)->users;
    pthread_mutex_destroy(&base.mutex);
    pthread_cond_destroy(&base.cond);
    delete &qp;
}

int destroy_qp(ibv_qp* given) noexcept {
    Qp* qp = nullptr;
    const int error = locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::qp)) return EINVAL;
        qp = Qp::of(given);
        remove_qp_locked(engine, *qp);
        if (qp->id != nullptr) on_qp_destroyed_locked(engine, *qp->id);
        return 0;
    });
    if (error != 0) return error;
    forget_async(*Context::of(given->context), [&](const ibv_async_event& event) {
        switch (event.event_type) {
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
            case IBV_EVENT_QP_LAST_WQE_REACHED:
            case IBV_EVENT_COMM_EST:
                return event.element.qp == given;
            default:
                return false;
        }
    });
    wait_acknowledged(given->mutex, given->cond, given->events_completed, qp->async_delivered);
    return locked_errno([&](VerbsState&) {
        free_qp_locked(*qp);
        return 0;
    });
}

}  // namespace xsock::verbs
