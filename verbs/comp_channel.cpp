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
// Queues armed for solicited events only are always the background thread's, and so are channels of
// UD QPs.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transport/clock.hpp"
#include "verbs/cancel.hpp"
#include "verbs/engine.hpp"
#include "verbs/ops.hpp"

namespace xsock::verbs {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// The channel that this thread takes an event of at the moment: it need not be made readable for
/// an event that the thread itself makes meanwhile. Initial-exec: found without a call.
[[gnu::tls_model("initial-exec")]] thread_local constinit const Channel* collecting = nullptr;

class Collecting {
  public:
    explicit Collecting(const Channel& channel) noexcept { collecting = &channel; }
    ~Collecting() { collecting = nullptr; }
    Collecting(const Collecting&) = delete;
    Collecting& operator=(const Collecting&) = delete;
};

/// @pre channel.mutex is held
void make_readable(Channel& channel) noexcept {
    channel.event.notify();
    channel.readable = true;
}

// Events are counted in their queue, and queues with events linked: so none is lost for want of
// memory. Those of one queue are alike; queues take turns.
// @pre channel.mutex is held, for the next functions

void count_pending(Channel& channel, std::uint32_t more) noexcept {
    channel.pending.store(channel.pending.load(kRelaxed) + more, std::memory_order_seq_cst);
}

void link(Channel& channel, Cq& cq) noexcept {
    (channel.last_ready != nullptr ? channel.last_ready->next_ready : channel.first_ready) = &cq;
    channel.last_ready = &cq;
}

void add_event(Channel& channel, Cq& cq) noexcept {
    if (cq.events_ready++ == 0) link(channel, cq);
    count_pending(channel, 1);
}

/// @pre there is one
Cq& take_event(Channel& channel) noexcept {
    Cq& cq = *channel.first_ready;
    channel.first_ready = std::exchange(cq.next_ready, nullptr);
    if (channel.first_ready == nullptr) channel.last_ready = nullptr;
    if (--cq.events_ready != 0) link(channel, cq);
    count_pending(channel, ~0u);
    return cq;
}

void drop_events(Channel& channel, Cq& cq) noexcept {
    Cq* others = std::exchange(channel.first_ready, nullptr);
    channel.last_ready = nullptr;
    while (others != nullptr) {
        Cq& each = *others;
        others = std::exchange(each.next_ready, nullptr);
        if (&each != &cq) link(channel, each);
    }
    count_pending(channel, 0 - std::exchange(cq.events_ready, 0u));
}

/// After events were taken.
void update_readable(Channel& channel) noexcept {
    if (channel.first_ready != nullptr) {
        if (!channel.readable) make_readable(channel);
    } else if (channel.readable) {
        channel.event.take();
        channel.readable = false;
    }
}

/// True: it was changed.
bool change_watched(Channel& channel, bool watched) {
    if (channel.watched.load(kRelaxed) == watched) return false;
    const std::lock_guard lock(channel.mutex);
    if (watched && channel.left_to_thread.load(kRelaxed)) return false;
    if (channel.watched.load(kRelaxed) == watched) return false;
    const int fd = channel.connections->fd();
    // Added and removed rather than modified: to a program with EPOLLET a descriptor that becomes
    // ready by EPOLL_CTL_MOD is no edge while an earlier one is still in the kernel's list. Without
    // memory for it the background thread goes on.
    epoll_event event{};
    event.events = EPOLLIN;
    if (watched && epoll_ctl(channel.base.fd, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    // What skips a call of the kernel because the descriptor tells must stop before it does.
    channel.watched.store(watched, kRelaxed);
    channel.connections->set_watched(watched);
    if (!watched) epoll_ctl(channel.base.fd, EPOLL_CTL_DEL, fd, nullptr);
    return true;
}

/// The connections' descriptor makes the program's readable, from now on or no more. Without locks.
void set_watched(Channel& channel, bool watched) {
    if (change_watched(channel, watched) && watched) channel.connections->prepare_sleep();
}

/// Under channel.mutex or the engine's: afterwards ibv_destroy_cq() waits for the acknowledgement.
void count_delivered(Cq& cq) noexcept {
    pthread_mutex_lock(&cq.base.mutex);
    ++cq.events_delivered;
    pthread_mutex_unlock(&cq.base.mutex);
}

/// The oldest event, or null.
Cq* take(Channel& channel) {
    if (channel.pending.load(std::memory_order_seq_cst) == 0) return nullptr;
    const std::lock_guard lock(channel.mutex);
    if (channel.first_ready == nullptr) return nullptr;
    Cq& cq = take_event(channel);
    update_readable(channel);
    count_delivered(cq);
    return &cq;
}

/// The queue that an event without a completion goes to: an armed one, which is disarmed, or,
/// unless `armed`, any. They take turns. Null: there is none.
Cq* choose_for_empty_event(Channel& channel, bool armed) {
    const std::lock_guard lock(channel.mutex);
    for (std::size_t i = 0; i < channel.cqs.size(); ++i) {
        const std::size_t at = (channel.next_empty + i) % channel.cqs.size();
        if (!channel.cqs[at]->cq->disarm()) continue;
        channel.next_empty = at + 1;
        count_delivered(*channel.cqs[at]);
        return channel.cqs[at];
    }
    if (armed || channel.cqs.empty()) return nullptr;
    Cq* const cq = channel.cqs[channel.next_empty++ % channel.cqs.size()];
    count_delivered(*cq);
    return cq;
}

/// Something was received since the last event was taken.
bool arrived(const Channel& channel) {
    return channel.connections->arrivals() != channel.seen_arrivals.load(kRelaxed);
}

/// An event is given: what has come so far needs no other.
void note_seen(Channel& channel) {
    channel.seen_arrivals.store(channel.connections->arrivals(), kRelaxed);
    channel.seen_writes.store(channel.connections->writes(), kRelaxed);
}

bool nonblocking(const Channel& channel) {
    const int flags = fcntl(channel.base.fd, F_GETFL);
    return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

/// A thread polls: for that time peers need not wake us for what they put into shared memory.
/// prepare_sleep() follows, for other threads may have come to sleep.
class Unwatched {
  public:
    explicit Unwatched(Channel& channel) noexcept : channel_(channel) {
        channel.connections->set_watched(false);
    }
    ~Unwatched() {
        const std::lock_guard lock(channel_.mutex);
        channel_.connections->set_watched(channel_.watched.load(kRelaxed));
    }
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;

  private:
    Channel& channel_;
};

/// Polls for a moment, if that has paid of late: what the caller waits for is often on its way.
Cq* poll_briefly(Channel& channel) {
    const Time spin = VerbsState::current()->spin;
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
    {
        const Collecting here(channel);
        const Unwatched awake(channel);
        do found = cq->wait_until(there, 0);
        while (!found && monotonic_now() < end);
    }
    channel.connections->prepare_sleep();
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

/// An event to return, or null with the answer in `error`. `first`: the call has not slept yet.
Cq* next_event(Channel& channel, bool first, int& error) {
    error = EINPROGRESS;
    Cq* found = take(channel);
    if (found == nullptr) {
        {
            const Collecting here(channel);
            channel.connections->poll();
        }
        found = take(channel);
    }
    if (found != nullptr) {
        if (first) channel.sleeps_inside.store(false, kRelaxed);
        set_watched(channel, true);
        return found;
    }
    const bool does_not_block = nonblocking(channel);
    // tgtd polls the descriptor also while no queue is armed.
    const bool polled_for_it = first && channel.watched.load(kRelaxed) && arrived(channel) &&
                               !(does_not_block && channel.takes_eagain.load(kRelaxed));
    if (polled_for_it) {
        if (Cq* const given = choose_for_empty_event(channel, false)) {
            channel.sleeps_inside.store(false, kRelaxed);
            set_watched(channel, false);
            return given;
        }
    }
    if (does_not_block) {
        channel.takes_eagain.store(true, kRelaxed);
        prepare_sleep(channel);
        error = EAGAIN;
        return nullptr;
    }
    // A peer's Writes may be what the caller waits for: perftest's credits are.
    if (!first && channel.connections->writes() != channel.seen_writes.load(kRelaxed)) {
        if (Cq* const armed = choose_for_empty_event(channel, true)) return armed;
    }
    if ((found = poll_briefly(channel)) != nullptr) return found;
    channel.sleeps_inside.store(true, kRelaxed);
    prepare_sleep(channel);
    return take(channel);
}

}  // namespace

void leave_to_thread(Channel& channel) {
    if (channel.left_to_thread.load(kRelaxed)) return;
    {
        const std::lock_guard lock(channel.mutex);
        channel.left_to_thread.store(true, kRelaxed);
    }
    set_watched(channel, false);
}

// In a poller: an armed queue has a completion, or the queue overran.
void on_cq_notified(void* argument) noexcept {
    VerbsState* const engine = VerbsState::current();
    if (engine == nullptr) return;
    const std::lock_guard lock(engine->notify_mutex);
    const auto found = engine->notified.find(reinterpret_cast<std::uintptr_t>(argument));
    if (found == engine->notified.end()) return;
    Cq& cq = *found->second;
    cq.armed.store(false, kRelaxed);
    if (cq.cq->overrun() && !cq.overrun_reported.exchange(true)) {
        ibv_async_event event{};
        event.element.cq = cq.plain();
        event.event_type = IBV_EVENT_CQ_ERR;
        engine->raise(*Context::of(cq.base.context), event);
        engine->on_overrun();
    }
    if (cq.channel == nullptr) return;
    Channel& channel = *cq.channel;
    const std::lock_guard channel_lock(channel.mutex);
    add_event(channel, cq);
    if (collecting != &channel) make_readable(channel);  // each event is an edge to EPOLLET
}

void leave_channel(Cq& cq) {
    if (cq.channel == nullptr) return;
    Channel& channel = *cq.channel;
    const std::lock_guard lock(channel.mutex);
    drop_events(channel, cq);
    update_readable(channel);
    std::erase(channel.cqs, &cq);
}

ibv_comp_channel* create_channel_locked(VerbsState& engine, Context& context) {
    auto channel = std::make_unique<Channel>();
    Registration registration(engine, channel.get(), Kind::channel);
    auto connections = engine.device().create_channel();
    if (!connections) return fail<ibv_comp_channel>(connections.error().code);
    channel->connections = std::move(*connections);
    if (auto opened = channel->event.open(); !opened) {
        return fail<ibv_comp_channel>(opened.error().code);
    }
    const int fd = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, channel->event.fd(), &event) != 0) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return fail<ibv_comp_channel>(error);
    }
    channel->base.context = context.base();
    channel->base.fd = fd;
    registration.keep();
    ++context.objects;
    return &channel.release()->base;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) noexcept {
    return locked_object<ibv_comp_channel>([&](VerbsState& engine) {
        if (!engine.alive(context, Kind::context)) return fail<ibv_comp_channel>(EINVAL);
        return create_channel_locked(engine, *Context::of(context));
    });
}

int destroy_channel_locked(VerbsState& engine, ibv_comp_channel* given) {
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
    return locked_errno(
        [&](VerbsState& engine) { return destroy_channel_locked(engine, channel); });
}

int try_cq_event(ibv_comp_channel* given, int first, ibv_cq** cq, void** cq_context) noexcept {
    VerbsState* const engine = VerbsState::current();
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
        note_seen(channel);
        *cq = found->plain();
        *cq_context = found->base.cq_context;
        return 0;
    } catch (...) {
        return ENOMEM;
    }
}

// perftest's senders wait here, over iWARP, for credit that the receiver writes into their memory:
// no completion tells of that, so that on any device they sleep for ever when the Write comes late.
// An event without a completion is allowed (ibv_get_cq_event(3)).
int late_cq_event(ibv_comp_channel* given, ibv_cq** cq, void** cq_context) noexcept {
    return locked_errno([&](VerbsState& engine) {
        if (!engine.alive(given, Kind::channel)) return EINVAL;
        auto& channel = *reinterpret_cast<Channel*>(given);
        if (Cq* const ready = take(channel)) {
            *cq = ready->plain();
            *cq_context = ready->base.cq_context;
            return 0;
        }
        const auto queue_of = [&](const Qp& qp) {
            Cq* const sends = Cq::of(qp.base.qp_base.send_cq);
            return sends->base.channel == given ? sends : Cq::of(qp.base.qp_base.recv_cq);
        };
        // An event is about one queue: of those with events, the one served longest ago.
        Cq* found = nullptr;
        for (const auto& [number, qp] : engine.qps) {
            Cq* const queue = queue_of(*qp);
            if (queue->base.channel == given && qp->qp->info().rx_writes != qp->writes_reported &&
                (found == nullptr || queue->late_event < found->late_event)) {
                found = queue;
            }
        }
        if (found == nullptr) return EINPROGRESS;
        found->late_event = engine.next_number();
        for (const auto& [number, qp] : engine.qps) {
            if (queue_of(*qp) == found) qp->writes_reported = qp->qp->info().rx_writes;
        }
        count_delivered(*found);
        note_seen(channel);
        *cq = found->plain();
        *cq_context = found->base.cq_context;
        return 0;
    });
}

int req_notify_cq(ibv_cq* given, int solicited_only) noexcept {
    const HoldCancellation hold;
    Cq& cq = *Cq::of(given);
    if (cq.engine != VerbsState::current()) return EPERM;
    Channel* const channel = cq.channel;
    // Whether a message is solicited is known when it has been read.
    if (channel != nullptr && solicited_only != 0) leave_to_thread(*channel);
    cq.armed.store(true, kRelaxed);
    cq.cq->arm(solicited_only != 0);
    if (channel != nullptr && !channel->watched.load(kRelaxed) &&
        !channel->sleeps_inside.load(kRelaxed)) {
        cq.cq->hand_over();
    }
    return 0;
}

}  // namespace xsock::verbs
