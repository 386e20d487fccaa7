// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion channels: events of armed completion queues, and the descriptor that a program sleeps
// on, in ibv_get_cq_event() or in a poll of its own.
//
// Without help each message would wake two threads, one after the other: the background thread,
// which reads it and makes the completion, and then the program. So once a program has been seen to
// come for its events, the channel's descriptor becomes readable with the TCP sockets of the
// connections that feed its queues ("watched"), and the program's next call reads them. This can
// turn out to be for nothing: the bytes were part of a message, or a Read of the peer. Then
//
//   a call that sleeps in here    sleeps again, unless the peer has written into memory;
//   a program that has gone on    is told EAGAIN again;
//     after EAGAIN before
//   any other program             polled the descriptor and may count on an event: it is given one
//                                 without a completion, which ibv_get_cq_event(3) allows for, and
//                                 the background thread serves the channel up to its next real one.
//
// Queues armed for solicited events only are always the background thread's.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// The channel that this thread takes an event of at the moment: it need not be made readable for
/// an event that the thread itself makes meanwhile. Initial-exec: found without a call.
[[gnu::tls_model("initial-exec")]] thread_local constinit const Channel* collecting = nullptr;

// Added and removed rather than modified: to a program with EPOLLET the descriptor that becomes
// ready again by EPOLL_CTL_MOD is no edge, because the one before still is in the kernel's list.
bool watch(int channel_fd, int fd) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    return epoll_ctl(channel_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}
void unwatch(int channel_fd, int fd) noexcept {
    epoll_ctl(channel_fd, EPOLL_CTL_DEL, fd, nullptr);
}

/// Makes the descriptor readable while events wait; each new one is an edge to EPOLLET.
/// @pre channel.mutex is held
void update_readable(Channel& channel, bool is_new) noexcept {
    const bool wanted = !channel.ready.empty() && (collecting != &channel || !is_new);
    const int fd = Engine::current()->always_ready_fd;
    if (channel.readable && (!wanted || is_new)) {
        unwatch(channel.base.fd, fd);
        channel.readable = false;
    }
    if (wanted && !channel.readable) channel.readable = watch(channel.base.fd, fd);
}

/// The connections' descriptor counts for the program's, from now on or no more.
void set_watched(Channel& channel, bool watched) {
    if (channel.watched.load(kRelaxed) == watched) return;
    const std::lock_guard lock(channel.mutex);
    if (watched && channel.solicited.load(kRelaxed)) return;
    if (channel.watched.load(kRelaxed) == watched) return;
    if (!watched) {
        unwatch(channel.base.fd, channel.connections->fd());
    } else if (!watch(channel.base.fd, channel.connections->fd())) {
        return;  // no memory: the background thread goes on
    }
    channel.watched.store(watched, kRelaxed);
    channel.connections->set_watched(watched);
}

/// @pre channel.mutex is held
void count_pending(Channel& channel) noexcept {
    channel.pending.store(static_cast<std::uint32_t>(channel.ready.size()),
                          std::memory_order_seq_cst);
}

void deliver(Cq& found, ibv_cq** cq, void** cq_context) {
    pthread_mutex_lock(&found.base.mutex);
    ++found.events_delivered;
    pthread_mutex_unlock(&found.base.mutex);
    *cq = found.plain();
    *cq_context = found.base.cq_context;
}

/// The oldest event, or null.
Cq* take(Channel& channel) {
    if (channel.pending.load(std::memory_order_seq_cst) == 0) return nullptr;
    const std::lock_guard lock(channel.mutex);
    if (channel.ready.empty()) return nullptr;
    Cq* const cq = channel.ready.front();
    channel.ready.pop_front();
    count_pending(channel);
    update_readable(channel, false);
    return cq;
}

/// The queue to give an event without a completion to: one that is armed, and is so no more, or of
/// those that are not. They take turns. Null: `armed` asks for one and there is none, or none at all.
Cq* choose_for_empty_event(Channel& channel, bool armed) {
    const std::lock_guard lock(channel.mutex);
    for (std::size_t i = 0; i < channel.cqs.size(); ++i) {
        const std::size_t at = (channel.next_empty + i) % channel.cqs.size();
        if (!channel.cqs[at]->cq->disarm()) continue;
        channel.next_empty = at + 1;
        return channel.cqs[at];
    }
    if (armed || channel.cqs.empty()) return nullptr;
    return channel.cqs[channel.next_empty++ % channel.cqs.size()];
}

/// Something was received since the last event was taken.
bool arrived(const Channel& channel) {
    return channel.connections->arrivals() != channel.seen_arrivals.load(kRelaxed);
}

bool nonblocking(const Channel& channel) {
    const int flags = fcntl(channel.base.fd, F_GETFL);
    return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

/// Polls for a moment, if that has paid of late: what the caller waits for is often on its way.
Cq* poll_a_moment(Channel& channel) {
    const Time spin = Engine::current()->spin;
    if (spin == 0 || !channel.spin_score.worth_while()) return nullptr;
    std::shared_ptr<xsock::Cq> cq;  // another thread may destroy the program's meanwhile
    {
        const std::lock_guard lock(channel.mutex);
        if (!channel.cqs.empty()) cq = channel.cqs.front()->cq;
    }
    if (cq == nullptr) return nullptr;
    const auto there = [&] { return channel.pending.load(std::memory_order_seq_cst) != 0; };
    const Time end = monotonic_now() + spin;
    bool found = false;
    collecting = &channel;
    do found = cq->wait_until(there, 0);
    while (!found && monotonic_now() < end);
    collecting = nullptr;
    channel.spin_score.count(found);
    return found ? take(channel) : nullptr;
}

/// The caller sleeps until the descriptor is readable, whatever makes it so.
void prepare_sleep(Channel& channel) {
    set_watched(channel, true);
    if (channel.watched.load(kRelaxed)) return;
    std::shared_ptr<xsock::Cq> cq;
    {
        const std::lock_guard lock(channel.mutex);
        if (!channel.cqs.empty()) cq = channel.cqs.front()->cq;
    }
    if (cq != nullptr) cq->hand_over();
}

/// An event to return, or null with the answer in `error`. `first`: the caller has not slept in this
/// call yet.
Cq* next_event(Channel& channel, bool first, int& error) {
    error = EINPROGRESS;
    Cq* found = take(channel);
    if (found == nullptr) {
        collecting = &channel;
        channel.connections->poll();
        collecting = nullptr;
        found = take(channel);
    }
    if (found != nullptr) {
        if (first) channel.sleeps_inside.store(false, kRelaxed);
        set_watched(channel, true);
        return found;
    }
    // tgtd polls the descriptor also while no queue is armed.
    const bool polled_for_it = first && channel.watched.load(kRelaxed) && arrived(channel) &&
                               !channel.takes_eagain.load(kRelaxed);
    if (polled_for_it) {
        if (Cq* const given = choose_for_empty_event(channel, false)) {
            set_watched(channel, false);
            return given;
        }
    }
    if (nonblocking(channel)) {
        channel.takes_eagain.store(true, kRelaxed);
        prepare_sleep(channel);
        error = EAGAIN;
        return nullptr;
    }
    // A peer's Writes may be what the caller waits for: perftest's credits are.
    if (!first && channel.connections->writes() != channel.seen_writes.load(kRelaxed)) {
        if (Cq* const armed = choose_for_empty_event(channel, true)) return armed;
    }
    if ((found = poll_a_moment(channel)) != nullptr) return found;
    channel.sleeps_inside.store(true, kRelaxed);
    prepare_sleep(channel);
    return take(channel);
}

}  // namespace

// In a driver: an armed queue has a completion, or the queue overran.
void on_cq_notified(void* argument) noexcept {
    Engine* const engine = Engine::current();
    if (engine == nullptr) return;
    const std::lock_guard lock(engine->notify_mutex);
    const auto found = engine->notified.find(reinterpret_cast<std::uintptr_t>(argument));
    if (found == engine->notified.end()) return;
    Cq& cq = *found->second;
    if (cq.cq->overrun() && !cq.overrun_told.exchange(true)) {
        ibv_async_event event{};
        event.element.cq = cq.plain();
        event.event_type = IBV_EVENT_CQ_ERR;
        engine->raise(*Context::of(cq.base.context), event);
        engine->on_overrun();
    }
    if (cq.channel == nullptr) return;
    Channel& channel = *cq.channel;
    const std::lock_guard channel_lock(channel.mutex);
    channel.ready.push_back(&cq);
    count_pending(channel);
    update_readable(channel, true);
}

void leave_channel(Cq& cq) {
    if (cq.channel == nullptr) return;
    Channel& channel = *cq.channel;
    const std::lock_guard lock(channel.mutex);
    std::erase(channel.ready, &cq);
    count_pending(channel);
    update_readable(channel, false);
    std::erase(channel.cqs, &cq);
}

ibv_comp_channel* create_channel_locked(Engine& engine, Context& context) {
    auto channel = std::make_unique<Channel>();
    auto connections = engine.device().create_channel();
    if (!connections) return fail<ibv_comp_channel>(connections.error().code);
    channel->connections = std::move(*connections);
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) return nullptr;
    channel->base.context = context.base();
    channel->base.fd = fd;
    engine.add(channel.get(), Kind::channel);
    ++context.objects;
    return &channel.release()->base;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) noexcept {
    return locked_object<ibv_comp_channel>([&](Engine& engine) {
        if (!engine.alive(context, Kind::context)) return fail<ibv_comp_channel>(EINVAL);
        return create_channel_locked(engine, *Context::of(context));
    });
}

int destroy_channel_locked(Engine& engine, ibv_comp_channel* given) {
    if (!engine.alive(given, Kind::channel)) return EINVAL;
    auto* const channel = reinterpret_cast<Channel*>(given);
    if (channel->users != 0) return EBUSY;
    engine.remove(channel);
    Context& context = *Context::of(given->context);
    close(given->fd);
    delete channel;
    --context.objects;
    release_locked(engine, context);
    return 0;
}

int destroy_comp_channel(ibv_comp_channel* channel) noexcept {
    return locked_errno([&](Engine& engine) { return destroy_channel_locked(engine, channel); });
}

int try_cq_event(ibv_comp_channel* given, int first, ibv_cq** cq, void** cq_context) noexcept {
    Engine* const engine = Engine::current();
    if (engine == nullptr) return EPERM;
    auto& channel = *reinterpret_cast<Channel*>(given);
    {
        const std::lock_guard lock(engine->mutex);
        if (!engine->alive(given, Kind::channel)) return EINVAL;
    }
    try {
        int error = 0;
        Cq* const found = next_event(channel, first != 0, error);
        if (found == nullptr) return error;
        channel.seen_arrivals.store(channel.connections->arrivals(), kRelaxed);
        channel.seen_writes.store(channel.connections->writes(), kRelaxed);
        deliver(*found, cq, cq_context);
        return 0;
    } catch (...) {
        return ENOMEM;
    }
}

// perftest's senders wait here, over iWARP, for credit that the receiver writes into their memory:
// no completion tells of that, so that on any device they sleep for ever when the Write comes late.
// An event without a completion is allowed (ibv_get_cq_event(3)).
int late_cq_event(ibv_comp_channel* given, ibv_cq** cq, void** cq_context) noexcept {
    return locked_errno([&](Engine& engine) {
        if (!engine.alive(given, Kind::channel)) return EINVAL;
        const auto queue_of = [&](const Qp& qp) {
            Cq* const sends = Cq::of(qp.base.qp_base.send_cq);
            return sends->base.channel == given ? sends : Cq::of(qp.base.qp_base.recv_cq);
        };
        // An event is about one queue: of those with news, the one whose turn was longest ago.
        Cq* found = nullptr;
        for (const auto& [number, qp] : engine.qps) {
            Cq* const queue = queue_of(*qp);
            if (queue->base.channel == given && qp->qp->info().rx_writes != qp->writes_told &&
                (found == nullptr || queue->late_event < found->late_event)) {
                found = queue;
            }
        }
        if (found == nullptr) return EINPROGRESS;
        found->late_event = engine.next_number();
        for (const auto& [number, qp] : engine.qps) {
            if (queue_of(*qp) == found) qp->writes_told = qp->qp->info().rx_writes;
        }
        deliver(*found, cq, cq_context);
        return 0;
    });
}

int req_notify_cq(ibv_cq* given, int solicited_only) noexcept {
    const HoldCancellation hold;
    Cq& cq = *Cq::of(given);
    if (cq.engine != Engine::current()) return EPERM;
    Channel* const channel = cq.channel;
    if (channel != nullptr && solicited_only != 0 && !channel->solicited.load(kRelaxed)) {
        // Whether a message is solicited is known when it has been read.
        channel->solicited.store(true, kRelaxed);
        set_watched(*channel, false);
    }
    cq.cq->arm(solicited_only != 0);
    if (channel != nullptr && !channel->watched.load(kRelaxed) &&
        !channel->sleeps_inside.load(kRelaxed)) {
        cq.cq->hand_over();
    }
    return 0;
}

}  // namespace xsock::verbs
