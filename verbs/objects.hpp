// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stands behind the structures of verbs.h: each of ours begins with the public one, so that a
// pointer to it is a pointer to ours. Made and destroyed under the engine's mutex; the calls of the
// data path take no lock of this API but those that are named with a member.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/device.hpp"
#include "base/reserved_queue.hpp"
#include "transport/event_fd.hpp"
#include "transport/spin_score.hpp"
#include "verbs/table.h"

namespace xsock::verbs {

class DatagramQp;
class SharedReceives;
class VerbsState;
struct CmId;

inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint32_t kMaxQpWr = 32768;
inline constexpr std::uint32_t kMaxCqe = 1u << 22;
inline constexpr std::uint32_t kMaxSrqWr = 32768;
inline constexpr int kMaxReads = 128;  ///< inbound and outbound Reads and Atomics of a QP

/// How deep a queue is that a program wants `depth` deep: as on hardware, a power of two and not
/// too small. Programs count on some room beyond what they ask for, and read back what they have
/// got.
inline constexpr std::uint32_t kMinDepth = 16;
constexpr std::uint32_t rounded_depth(std::uint32_t depth) noexcept {
    return std::bit_ceil(std::max(depth, kMinDepth));
}
static_assert(rounded_depth(kMaxQpWr) == kMaxQpWr && rounded_depth(kMaxCqe) == kMaxCqe);

/// ibv_device, with room behind it that stays zero: the vendors' libraries that perftest and
/// libfabric link read the fields of their own device structures there, to find that it is not
/// theirs.
struct DeviceEntry {
    ibv_device base{};
    std::array<std::byte, 1024> not_a_vendors{};
};

/// An open device. verbs_context has to be reached from its last member, so ours hangs on the
/// pointer that it keeps for the library's own use.
struct Context {
    VerbsState* engine = nullptr;
    verbs_context verbs{};
    int objects = 0;      ///< PDs, CQs, channels, ids that refer to it
    bool closed = false;  ///< freed when the last of them goes

    std::mutex events_mutex;
    ReservedQueue<ibv_async_event> events;  ///< room: EventRoom of what they are about
    EventFd events_waiting;

    [[nodiscard]] ibv_context* base() noexcept { return &verbs.context; }
    static Context* of(ibv_context* context) noexcept {
        return reinterpret_cast<Context*>(
            reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) -
                                             offsetof(verbs_context, context))
                ->priv);
    }
};

/// Room among a context's asynchronous events for those of one object, which so are never lost for
/// want of memory. Throws std::bad_alloc where it is made.
class EventRoom {
  public:
    EventRoom(Context& context, std::size_t events) : context_(context), events_(events) {
        const std::lock_guard lock(context_.events_mutex);
        context_.events.reserve(events_);
    }
    ~EventRoom() {
        const std::lock_guard lock(context_.events_mutex);
        context_.events.release(events_);
    }
    EventRoom(const EventRoom&) = delete;
    EventRoom& operator=(const EventRoom&) = delete;
    /// The same events may come again, while those of before have perhaps not been fetched.
    void renew() {
        const std::lock_guard lock(context_.events_mutex);
        context_.events.reserve(events_);
        context_.events.release(events_);
    }

  private:
    Context& context_;
    const std::size_t events_;
};

struct Td {
    ibv_td base{};
    int users = 0;  ///< parent domains
};

struct Pd {
    ibv_pd base{};
    PdId id = 0;
    int users = 0;            ///< MRs, QPs, SRQs, parent domains, CQs made with one
    Pd* parent_of = nullptr;  ///< of a parent domain: the one that it stands for
    Td* td = nullptr;         ///< of a parent domain, if any
};

struct Mr {
    ibv_mr base{};
    RegionAttr attr;
    std::uint64_t iova = 0;
    int access = 0;
};

struct Mw {
    ibv_mw base{};
    /// STags of its bindings, each of which has one of its own: bound, still in a send queue, or
    /// revoked and not yet forgotten.
    std::vector<std::uint32_t> bindings;
};

struct Cq;

/// A completion channel. The program's descriptor is an epoll set of two: an eventfd that is
/// readable while events wait, and the connections' own (xsock::CompletionChannel), watched while
/// the program is known to call ibv_get_cq_event() then. See comp_channel.cpp.
struct Channel {
    ibv_comp_channel base{};
    EventFd event;
    int users = 0;  ///< CQs
    std::shared_ptr<xsock::CompletionChannel> connections;

    std::mutex mutex;  ///< taken inside pollers (notifiers): nothing is called with it held
    Cq *first_ready = nullptr, *last_ready = nullptr;  ///< those with events not yet got, by links
    std::vector<Cq*> cqs;
    bool readable = false;                  ///< event is
    std::size_t next_empty = 0;             ///< of cqs: the next for an event without a completion
    std::atomic<std::uint32_t> pending{0};  ///< events not yet got; written under mutex
    std::atomic<bool> watched{false};       ///< the connections' descriptor is; written under mutex
    /// Never watched: a queue was armed for solicited events only, or is that of a UD QP, which no
    /// connection feeds that the channel knows.
    std::atomic<bool> left_to_thread{false};

    // How the program waits. Threads that race misjudge it for one event.
    std::atomic<bool> sleeps_inside{false};  ///< in ibv_get_cq_event(), not in a poll of its own
    std::atomic<bool> takes_eagain{false};   ///< it was told EAGAIN before, and went on
    std::atomic<std::uint32_t> seen_arrivals{0}, seen_writes{0};  ///< at the last event
    SpinScore spin_score;
};

struct Cq {
    ibv_cq_ex base{};  ///< begins like ibv_cq
    VerbsState* engine = nullptr;
    std::shared_ptr<xsock::Cq> cq;  ///< held also by a thread that polls it meanwhile
    std::uint64_t id = 0;           ///< what the notifier is given instead of a pointer
    Channel* channel = nullptr;
    Cq* next_ready = nullptr;        ///< of the channel's list; under its mutex, as is the next
    std::uint32_t events_ready = 0;  ///< not yet got
    std::optional<EventRoom> event_room;  ///< for IBV_EVENT_CQ_ERR
    Pd* parent_domain = nullptr;          ///< that it was made with, if any
    int users = 0;                        ///< QPs
    std::uint32_t events_delivered = 0;   ///< under base.mutex, as is comp_events_completed
    std::uint32_t async_delivered = 0;    ///< the same for base.async_events_completed
    std::uint64_t late_event = 0;         ///< number of the last one of late_cq_event()
    std::atomic<bool> overrun_reported{false};
    std::atomic<bool> armed{false};  ///< since its last event; a hint for posters
    /// Signaled sends that have not been polled, and how many the QPs' send queues have room for.
    /// Hardware frees a slot when the program has polled its completion, and programs that post
    /// until there is no room rely on it: they never overrun a queue as large as theirs.
    std::atomic<std::uint32_t> sends{0}, send_room{0};
    /// The depths of those send queues, as the programs wanted them and as they are.
    std::uint32_t sq_wanted = 0, sq_depths = 0;
    std::atomic<std::uint32_t> empty_polls{0};  ///< in a row

    // The extended polling interface. A mutex of its own, held from start_poll() to end_poll():
    // meanwhile events come and are acknowledged under base.mutex.
    std::mutex poll_mutex;
    Wc current;

    static Cq* of(ibv_cq* cq) noexcept { return reinterpret_cast<Cq*>(cq); }
    static Cq* of(ibv_cq_ex* cq) noexcept { return reinterpret_cast<Cq*>(cq); }
    [[nodiscard]] ibv_cq* plain() noexcept { return reinterpret_cast<ibv_cq*>(&base); }

    /// After a change of base.cqe, sq_wanted or sq_depths. What the programs wanted they may post,
    /// as they have counted; what rounding has added only as far as this queue holds it.
    void set_send_room() noexcept {
        send_room.store(
            std::max(sq_wanted, std::min(sq_depths, static_cast<std::uint32_t>(base.cqe))),
            std::memory_order_relaxed);
    }
    /// Before `n` signaled sends are posted. False: there is no room.
    [[nodiscard]] bool take_slots(std::uint32_t n) noexcept {
        std::uint32_t taken = sends.load(std::memory_order_relaxed);
        do {
            const std::uint32_t room = send_room.load(std::memory_order_relaxed);
            // What an overrun queue has lost is never polled.
            if ((taken > room || n > room - taken) && !cq->overrun()) return false;
        } while (!sends.compare_exchange_weak(taken, taken + n, std::memory_order_relaxed));
        return true;
    }
    void give_slots(std::size_t n) noexcept {
        if (n != 0) sends.fetch_sub(static_cast<std::uint32_t>(n), std::memory_order_relaxed);
    }
    /// Nothing of a QP that is detached stays.
    void purge(std::uint32_t qp_num) { give_slots(cq->purge(qp_num)); }
};

struct Srq {
    ibv_srq base{};
    VerbsState* engine = nullptr;
    std::unique_ptr<xsock::Srq> srq;
    std::shared_ptr<SharedReceives> receives;  ///< the same for UD QPs
    std::optional<EventRoom> event_room;       ///< for the limit
    std::uint64_t id = 0;
    std::uint32_t max_wr = 0, max_sge = 0;
    std::uint32_t limit = 0;
    int users = 0;                      ///< QPs
    std::uint32_t async_delivered = 0;  ///< under base.mutex

    static Srq* of(ibv_srq* srq) noexcept { return reinterpret_cast<Srq*>(srq); }
};

/// ibv_wr_*: the requests between wr_start and wr_complete, which posts all of them or none
/// (qp_ex.cpp).
struct SendBuilder {
    struct Request {
        SendWr wr;
        Atomic atomic;
        std::array<Sge, kMaxSge> sges;
        std::size_t inline_at = 0;  ///< in inline_data
        std::size_t sge_count = 0;
        ibv_mw* window = nullptr;  ///< of a binding
        // Of a UD QP.
        ibv_ah* ah = nullptr;
        std::uint32_t remote_num = 0, remote_qkey = 0;
    };

    void start() noexcept;
    /// The newest; null once something went wrong.
    Request* last() noexcept;
    /// Requests from `first` on are not posted, and the next wr_start may come.
    void end(std::size_t first) noexcept;

    std::mutex mutex;  ///< held from start() to end(); keeps the rest
    std::vector<Request> requests;
    std::vector<std::byte> inline_data;  ///< of them all
    int error = 0;
};

/// The device's QP of a verbs QP: the one since its last reset. Those before it are destroyed as
/// soon as no thread uses one: a post that another thread is making may go to a former one, which
/// was detached and so completes nothing. The first one stays, so that posts to a QP that was never
/// reset need not be counted.
class DeviceQp {
    static constexpr std::uintptr_t kCounted = 1;
    static_assert(alignof(xsock::Qp) > kCounted);

  public:
    /// The present one, for as long as this object lives. Any thread, without a lock.
    class [[nodiscard]] Use {
      public:
        explicit Use(DeviceQp& of) noexcept {
            std::uintptr_t now = of.now_.load(std::memory_order_acquire);
            if ((now & kCounted) != 0) {
                users_ = &of.users_;
                // Ahead of the load, as replace() stores ahead of its check: either it sees this
                // count, or the load sees what it stored.
                users_->fetch_add(1, std::memory_order_seq_cst);
                now = of.now_.load(std::memory_order_seq_cst);
            }
            qp_ = pointer(now);
        }
        ~Use() {
            if (users_ != nullptr) users_->fetch_sub(1, std::memory_order_release);
        }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;
        xsock::Qp* operator->() const noexcept { return qp_; }

      private:
        xsock::Qp* qp_;
        std::atomic<std::uint32_t>* users_ = nullptr;
    };
    Use use() noexcept { return Use(*this); }

    /// The present one. With the engine's mutex held, as for replace().
    xsock::Qp* operator->() const noexcept { return pointer(now_.load(std::memory_order_relaxed)); }
    void replace(std::unique_ptr<xsock::Qp> next) {
        const std::uintptr_t counted = all_.empty() ? 0 : kCounted;
        all_.push_back(std::move(next));
        now_.store(reinterpret_cast<std::uintptr_t>(all_.back().get()) | counted,
                   std::memory_order_seq_cst);
        if (all_.size() > 2 && users_.load(std::memory_order_seq_cst) == 0) {
            all_.erase(all_.begin() + 1, all_.end() - 1);
        }
    }

  private:
    static xsock::Qp* pointer(std::uintptr_t now) noexcept {
        return reinterpret_cast<xsock::Qp*>(now & ~kCounted);
    }

    std::vector<std::unique_ptr<xsock::Qp>> all_;  // the first, former ones in use, the present one
    std::atomic<std::uintptr_t> now_{0};           // it, and kCounted
    std::atomic<std::uint32_t> users_{0};
};

struct Qp {
    ibv_qp_ex base{};  ///< begins with ibv_qp
    VerbsState* engine = nullptr;
    DeviceQp qp;
    ibv_qp_cap cap{};
    /// Of a QP that is connected to itself: what sends in its place, to `qp`. Null: `qp` does. The
    /// former ones, detached, stay for posts that other threads are making.
    std::atomic<xsock::Qp*> sender{nullptr};
    std::vector<std::unique_ptr<xsock::Qp>> twins;
    /// Of a UD QP: what it posts to. `qp` is none's then, and stays without a connection.
    std::shared_ptr<DatagramQp> datagrams;
    std::uint32_t sq_wanted = 0;  ///< cap.max_send_wr before it was rounded
    bool signal_all = false;
    std::uint64_t send_ops = 0;
    QpAttr attr;  ///< for another xsock::Qp after a reset
    ibv_qp_attr asked{};
    std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
    bool by_gid = false;                    ///< moved to RTR with the peer's GID, without rdma_cm
    std::atomic<bool> sends_at_rtr{false};  ///< takes_sends() there
    ibv_gid own_gid{};                      ///< then: by which the peer knows us
    CmId* id = nullptr;                     ///< the id that connects it
    enum class Connection : std::uint8_t {
        none,
        given,        ///< to `qp`
        established,  ///< only then may its end wait
        counted,      ///< what it moved is in the exit summary
    };
    Connection connection = Connection::none;
    bool last_wqe_reported = false;
    std::optional<EventRoom> event_room;  ///< for what one connection may have to tell
    /// The connection has ended, and what is posted stays so: RDMA_CM_EVENT_DISCONNECTED is queued,
    /// and the program has not taken it; a Send of InfiniBand's would still be repeated; or the
    /// service is unreliable. Written under the engine's mutex.
    std::atomic<bool> end_unconfirmed{false};
    std::uint64_t end_timer = 0;
    std::uint64_t writes_reported = 0;  ///< QpInfo::rx_writes when late_cq_event() last read it
    std::uint32_t async_delivered = 0;  ///< under base.qp_base.mutex

    /// Posts after the end of the connection has begun: completed as flushed once everything posted
    /// before has completed.
    std::mutex late_mutex;
    std::vector<Wc> late;

    SendBuilder builder;

    static Qp* of(ibv_qp* qp) noexcept { return reinterpret_cast<Qp*>(qp); }
    static Qp* of(ibv_qp_ex* qp) noexcept { return reinterpret_cast<Qp*>(qp); }
    [[nodiscard]] ibv_qp* plain() noexcept { return &base.qp_base; }
    [[nodiscard]] std::uint32_t num() const noexcept { return base.qp_base.qp_num; }
    [[nodiscard]] bool unreliable() const noexcept { return base.qp_base.qp_type == IBV_QPT_UC; }
    [[nodiscard]] bool connected() const noexcept { return connection != Connection::none; }

    /// iWARP has no RTR (DeviceProfile::infiniband_states). perftest's receiving end stays there
    /// and, where it finds iWARP, writes credit. What is posted before the connection is there
    /// waits for it.
    [[nodiscard]] bool takes_sends() const noexcept {
        const ibv_qp_state now = state.load(std::memory_order_acquire);
        return now >= IBV_QPS_RTS ||
               (now == IBV_QPS_RTR && sends_at_rtr.load(std::memory_order_relaxed));
    }
};

/// What the program stored in a field of an enum's type: perhaps none of the enum's values, which
/// C++ must not read as one.
template <typename E>
std::uint32_t value_in(const E& field) noexcept {
    static_assert(sizeof(E) == sizeof(std::uint32_t));
    std::uint32_t value = 0;
    std::memcpy(&value, &field, sizeof value);
    return value;
}

/// errno and null, for functions that return objects.
template <typename T>
T* fail(int error) noexcept {
    errno = error;
    return nullptr;
}
/// -1 and errno, for rdma_* functions.
inline int fail(int error) noexcept {
    errno = error;
    return -1;
}

}  // namespace xsock::verbs
