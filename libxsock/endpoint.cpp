// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints of xsock.h: beginning, state, end, and work posted to them.
#include "libxsock/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include "libxsock/api.hpp"
#include "libxsock/sleep.hpp"
#include "libxsock/work.hpp"
#include "mpa/startup.hpp"
#include "transport/tcp.hpp"

namespace xsock::api {
namespace {

constexpr std::uint32_t kDefaultDepth = 128;
constexpr std::uint32_t kMaxDepth = 1u << 20;
constexpr std::uint16_t kMaxReads = 0x3ffe;  // RFC 6581: 14 bits, all ones has a meaning of its own
constexpr std::uint32_t kKnownRtr = XSOCK_RTR_SEND | XSOCK_RTR_WRITE | XSOCK_RTR_READ;
static_assert(XSOCK_RTR_SEND == mpa::kRtrSend && XSOCK_RTR_WRITE == mpa::kRtrWrite &&
              XSOCK_RTR_READ == mpa::kRtrRead);
static_assert(XSOCK_SHM_DEFAULT == static_cast<int>(ShmMode::usual) &&
              XSOCK_SHM_OFF == static_cast<int>(ShmMode::off) &&
              XSOCK_SHM_AUTO == static_cast<int>(ShmMode::automatic) &&
              XSOCK_SHM_REQUIRE == static_cast<int>(ShmMode::require));
static_assert(XSOCK_KERNEL_DEFAULT == static_cast<int>(KernelMode::usual) &&
              XSOCK_KERNEL_OFF == static_cast<int>(KernelMode::off) &&
              XSOCK_KERNEL_AUTO == static_cast<int>(KernelMode::automatic) &&
              XSOCK_KERNEL_REQUIRE == static_cast<int>(KernelMode::require));
constexpr std::uint32_t kKnownFlags = XSOCK_EP_EVENTS | XSOCK_EP_DEFER | XSOCK_EP_NO_CRC |
                                      XSOCK_EP_MARKERS | XSOCK_EP_REQUIRE_LKEYS |
                                      XSOCK_EP_NO_EXTENSIONS | XSOCK_EP_SNAPSHOT;

std::span<const std::byte> bytes(const void* p, std::size_t n) {
    return {static_cast<const std::byte*>(p), n};
}

/// One that may be a congestion control's.
bool is_name(const char* text) noexcept {
    const std::size_t length = strnlen(text, tcp::kCongestionMost + 1);
    return length != 0 && length <= tcp::kCongestionMost;
}

}  // namespace

ObjectRefs::ObjectRefs(const xsock_ep_attr& attr)
    : cqs_{attr.send_cq, attr.recv_cq}, srq_(attr.srq), pd_(attr.pd) {
    count(1);
}
ObjectRefs::ObjectRefs(ObjectRefs&& other) noexcept
    : cqs_{std::exchange(other.cqs_[0], nullptr), std::exchange(other.cqs_[1], nullptr)},
      srq_(std::exchange(other.srq_, nullptr)),
      pd_(std::exchange(other.pd_, nullptr)) {}
ObjectRefs::~ObjectRefs() { count(-1); }

ObjectRefs ObjectRefs::again() const {
    ObjectRefs other;
    other.cqs_[0] = cqs_[0];
    other.cqs_[1] = cqs_[1];
    other.srq_ = srq_;
    other.pd_ = pd_;
    other.count(1);
    return other;
}

void ObjectRefs::count(int by) noexcept {
    for (xsock_cq* cq : cqs_) {
        if (cq != nullptr) cq->users.fetch_add(by);
    }
    if (srq_ != nullptr) srq_->users.fetch_add(by);
    if (pd_ != nullptr) pd_->users.fetch_add(by);
}

bool CheckedAttr::from(const xsock_ep_attr* given, ConnectAttr::Role automatic) noexcept {
    if (given == nullptr) {
        errno = EINVAL;
        return false;
    }
    if (!copy_versioned(given, attr)) return false;
    const bool sane = attr.send_cq != nullptr && (attr.flags & ~kKnownFlags) == 0 &&
                      attr.role <= XSOCK_ROLE_RESPONDER && attr.mpa_revision <= 2 &&
                      attr.shm <= XSOCK_SHM_REQUIRE && attr.kernel <= XSOCK_KERNEL_REQUIRE &&
                      attr.sq_depth <= kMaxDepth && attr.rq_depth <= kMaxDepth &&
                      attr.ird <= kMaxReads && attr.ord <= kMaxReads && attr.fpdu_limit <= 65535 &&
                      (attr.rtr & ~kKnownRtr) == 0 && (attr.rtr == 0 || attr.mpa_revision != 1) &&
                      attr.startup_timeout_ms >= 0 && attr.linger_ms >= 0 &&
                      (attr.private_data != nullptr || attr.private_data_length == 0) &&
                      attr.private_data_length <= (attr.mpa_revision == 1 ? 512u : 508u) &&
                      (attr.congestion == nullptr || is_name(attr.congestion));
    if (!sane) {
        errno = EINVAL;
        return false;
    }
    if (attr.recv_cq == nullptr) attr.recv_cq = attr.send_cq;
    if (!same_process(attr.send_cq) || !same_process(attr.recv_cq) ||
        (attr.srq != nullptr && !same_process(attr.srq)) ||
        (attr.pd != nullptr && !same_process(attr.pd))) {
        return false;
    }

    qp.pd = attr.pd != nullptr ? attr.pd->id : 0;
    qp.send_cq = attr.send_cq->cq.get();
    qp.recv_cq = attr.recv_cq->cq.get();
    qp.srq = attr.srq != nullptr ? attr.srq->srq.get() : nullptr;
    qp.sq_depth = attr.sq_depth != 0 ? attr.sq_depth : kDefaultDepth;
    qp.rq_depth = attr.rq_depth != 0 ? attr.rq_depth : kDefaultDepth;
    qp.require_lkeys = (attr.flags & XSOCK_EP_REQUIRE_LKEYS) != 0;
    qp.snapshot = (attr.flags & XSOCK_EP_SNAPSHOT) != 0;
    qp.event_completions = (attr.flags & XSOCK_EP_EVENTS) != 0;
    qp.context = reinterpret_cast<std::uintptr_t>(attr.context);
    if (attr.rnr_timeout_ms < 0) {
        qp.rnr_timeout = kNever;
    } else if (attr.rnr_timeout_ms > 0) {
        qp.rnr_timeout = Time{static_cast<unsigned>(attr.rnr_timeout_ms)} * kMillisecond;
    } else {
        qp.rnr_timeout = runtime::config().rnr_timeout;
    }
    if (attr.linger_ms > 0) qp.linger_ms = static_cast<std::uint32_t>(attr.linger_ms);

    switch (static_cast<xsock_role>(attr.role)) {
        case XSOCK_ROLE_AUTO:
            connect.role = automatic;
            break;
        case XSOCK_ROLE_INITIATOR:
            connect.role = ConnectAttr::Role::initiator;
            break;
        case XSOCK_ROLE_RESPONDER:
            connect.role = ConnectAttr::Role::responder;
            break;
    }
    connect.revision = attr.mpa_revision == 1 ? 1 : 2;
    connect.crc = (attr.flags & XSOCK_EP_NO_CRC) == 0;
    connect.markers = (attr.flags & XSOCK_EP_MARKERS) != 0;
    connect.extensions = (attr.flags & XSOCK_EP_NO_EXTENSIONS) == 0;
    connect.defer_reply = (attr.flags & XSOCK_EP_DEFER) != 0;
    connect.ird = attr.ird != 0 ? attr.ird : kDefaultReads;
    connect.ord = attr.ord != 0 ? attr.ord : kDefaultReads;
    // A responder accepts every kind unless told otherwise.
    if (connect.role == ConnectAttr::Role::initiator) {
        connect.rtr = static_cast<std::uint8_t>(attr.rtr);
    }
    connect.fpdu_limit = attr.fpdu_limit;
    connect.max_starting = attr.max_starting;
    connect.shm = static_cast<ShmMode>(attr.shm);
    connect.kernel = static_cast<KernelMode>(attr.kernel);
    if (attr.congestion != nullptr) connect.congestion = attr.congestion;
    connect.private_data = bytes(attr.private_data, attr.private_data_length);
    if (attr.startup_timeout_ms != 0) {
        connect.startup_timeout_ms = static_cast<std::uint32_t>(attr.startup_timeout_ms);
    }
    return true;
}

xsock_ep* make_endpoint(int fd, const CheckedAttr& checked) {
    auto qp = device()->create_qp(checked.qp);
    if (!qp) {
        errno = qp.error().code;
        return nullptr;
    }
    auto ep = std::unique_ptr<xsock_ep>(new xsock_ep{std::move(*qp), ObjectRefs(checked.attr),
                                                     checked.connect.ird, checked.connect.ord});
    if (auto r = ep->qp->connect(fd, checked.connect); !r) {
        ep.reset();  // polls others, which changes errno
        errno = r.error().code;
        return nullptr;
    }
    return ep.release();
}

xsock_ep* ep_create(int fd, const xsock_ep_attr* given) noexcept {
    if (device() == nullptr) return nullptr;
    CheckedAttr checked;
    if (!checked.from(given, ConnectAttr::Role::initiator)) return nullptr;
    return guarded<xsock_ep*>(nullptr, [&] { return make_endpoint(fd, checked); });
}

int started(Qp& qp) {
    switch (qp.state()) {
        case QpState::fresh:
        case QpState::starting:
            return fail(ETIMEDOUT);
        case QpState::requested:
        case QpState::established:
        case QpState::peer_closed:
        case QpState::closing:
            return 0;
        case QpState::error:
        case QpState::closed:
            break;
    }
    const int error = qp.info().error;
    return fail(error != 0 ? error : ECONNRESET);
}

int ep_wait(xsock_ep* ep, int timeout_ms, xsock_sleep* sleep) noexcept {
    if (sleep->asleep == 0 && !usable(ep)) return -1;
    return guarded(-1, [&] {
        Qp& qp = *ep->qp;
        PollGroup* const group = &qp.group();
        const auto done = [&qp] {
            const QpState state = qp.state();
            return state != QpState::fresh && state != QpState::starting;
        };
        return wait_outside(*sleep, {&group, 1}, done, timeout_ms) ? started(qp) : 0;
    });
}

int ep_accept(xsock_ep* ep, const void* private_data, std::size_t length) noexcept {
    if (ep == nullptr || (private_data == nullptr && length > 0)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    return guarded(
        -1, [&] { return finish(ep->qp->accept(bytes(private_data, length), ep->ird, ep->ord)); });
}

int ep_reject(xsock_ep* ep, const void* private_data, std::size_t length) noexcept {
    if (ep == nullptr || (private_data == nullptr && length > 0)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    return guarded(-1, [&] { return finish(ep->qp->reject(bytes(private_data, length))); });
}

xsock_peer peer_of(const Implementation& peer) noexcept {
    xsock_peer out{};
    out.features = peer.features;
    out.delayed_ack_ms = peer.delayed_ack_ms;
    static_assert(sizeof out.name == sizeof peer.name && sizeof out.version == sizeof peer.version);
    std::copy(peer.name.begin(), peer.name.end(), out.name);
    std::copy(peer.version.begin(), peer.version.end(), out.version);
    return out;
}

int ep_query(const xsock_ep* ep, xsock_ep_info* out) noexcept {
    if (ep == nullptr || out == nullptr || out->size < sizeof(std::size_t)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    return guarded(-1, [&] {
        const QpInfo from = ep->qp->info();
        xsock_ep_info info{};
        info.size = out->size;
        info.state = static_cast<std::uint32_t>(from.state);
        fill_info(info, from);
        info.private_data_length = static_cast<std::uint32_t>(
            std::min(from.private_data.size(), sizeof info.private_data));
        std::copy_n(reinterpret_cast<const std::uint8_t*>(from.private_data.data()),
                    info.private_data_length, info.private_data);
        info.peer = peer_of(from.peer);
        from.congestion.copy(info.congestion, sizeof info.congestion - 1);
        std::memcpy(out, &info, std::min(out->size, sizeof info));
        return 0;
    });
}

int ep_shutdown(xsock_ep* ep) noexcept {
    if (!usable(ep)) return -1;
    return guarded(-1, [&] { return finish(ep->qp->shutdown()); });
}

int ep_close(xsock_ep* ep) noexcept {
    if (ep == nullptr) return fail(EINVAL);
    if (ep->borrowed) return fail(EBUSY);
    if (!same_process(ep)) return -1;
    return guarded(-1, [&] {
        delete ep;
        return 0;
    });
}

int ep_abort(xsock_ep* ep) noexcept {
    if (ep == nullptr) return fail(EINVAL);
    if (ep->borrowed) return fail(EBUSY);
    if (!same_process(ep)) return -1;
    return guarded(-1, [&] {
        ep->qp->abort();
        delete ep;
        return 0;
    });
}

int ep_set_context(xsock_ep* ep, void* context) noexcept {
    if (!usable(ep)) return -1;
    return guarded(-1, [&] {
        ep->qp->set_context(reinterpret_cast<std::uintptr_t>(context));
        return 0;
    });
}

// ---- work -----------------------------------------------------------------

namespace {

constexpr std::uint32_t kKnownWrFlags = XSOCK_UNSIGNALED | XSOCK_SOLICITED | XSOCK_FENCE |
                                        XSOCK_INLINE | XSOCK_INVALIDATE | XSOCK_MORE |
                                        XSOCK_MASKED | XSOCK_SNAPSHOT;

/// Those of a Send that needs no key.
constexpr std::uint32_t kSimpleSendFlags =
    XSOCK_UNSIGNALED | XSOCK_SOLICITED | XSOCK_FENCE | XSOCK_INLINE | XSOCK_MORE | XSOCK_SNAPSHOT;

std::uint8_t send_flags(std::uint32_t flags) noexcept {
    return static_cast<std::uint8_t>(((flags & XSOCK_UNSIGNALED) != 0 ? 0 : kSendSignaled) |
                                     ((flags & XSOCK_SOLICITED) != 0 ? kSendSolicited : 0) |
                                     ((flags & XSOCK_FENCE) != 0 ? kSendFence : 0) |
                                     ((flags & XSOCK_INLINE) != 0 ? kSendInline : 0) |
                                     ((flags & XSOCK_MORE) != 0 ? kSendMore : 0) |
                                     ((flags & XSOCK_SNAPSHOT) != 0 ? kSendSnapshot : 0));
}

/// What only some operations have.
struct Extra {
    Atomic atomic = {};
    std::uint64_t immediate = 0;
};

int post_one(xsock_ep* ep, std::uint64_t wr_id, std::uint32_t op, std::uint32_t flags,
             std::span<const Sge> sges, std::uint64_t to, std::uint32_t stag,
             const Extra& extra = {}) {
    if ((flags & ~kKnownWrFlags) != 0) return fail(EINVAL);
    if ((flags & XSOCK_INLINE) != 0 && total_length(sges) > XSOCK_MAX_INLINE) return fail(EINVAL);
    Atomic atomic = extra.atomic;
    SendWr wr;
    wr.wr_id = wr_id;
    wr.flags = send_flags(flags);
    wr.sges = sges;
    switch (op) {
        case XSOCK_OP_SEND:
            wr.opcode =
                (flags & XSOCK_INVALIDATE) != 0 ? SendOpcode::send_invalidate : SendOpcode::send;
            wr.invalidate_stag = stag;
            break;
        case XSOCK_OP_WRITE:
            wr.opcode = SendOpcode::write;
            break;
        case XSOCK_OP_READ:
            wr.opcode = SendOpcode::read;
            break;
        case XSOCK_OP_INVALIDATE:
            wr.opcode = SendOpcode::local_invalidate;
            wr.invalidate_stag = stag;
            break;
        case XSOCK_OP_FETCH_ADD:
            wr.opcode = SendOpcode::fetch_add;
            wr.atomic = &atomic;
            if ((flags & XSOCK_MASKED) == 0) atomic.operand_mask = 0;
            break;
        case XSOCK_OP_COMPARE_SWAP:
            wr.opcode = SendOpcode::compare_swap;
            wr.atomic = &atomic;
            if ((flags & XSOCK_MASKED) == 0) {
                atomic.operand_mask = atomic.compare_mask = ~std::uint64_t{0};
            }
            break;
        case XSOCK_OP_WRITE_IMM:
            wr.opcode = SendOpcode::write_immediate;
            wr.immediate = extra.immediate;
            break;
        case XSOCK_OP_IMM:
            wr.opcode = SendOpcode::immediate;
            wr.immediate = extra.immediate;
            break;
        case XSOCK_OP_SEND_IMM:
            wr.opcode = SendOpcode::send_immediate;
            wr.immediate = extra.immediate;
            break;
        default:
            return fail(EINVAL);
    }
    const bool message = op == XSOCK_OP_SEND || op == XSOCK_OP_WRITE_IMM || op == XSOCK_OP_IMM ||
                         op == XSOCK_OP_SEND_IMM;
    if ((!message && (flags & XSOCK_SOLICITED) != 0) ||
        (op != XSOCK_OP_SEND && (flags & XSOCK_INVALIDATE) != 0) ||
        (wr.atomic == nullptr && (flags & XSOCK_MASKED) != 0)) {
        return fail(EINVAL);
    }
    wr.remote_to = to;
    wr.remote_stag = stag;
    return finish(ep->qp->post_send(wr));
}

// One piece of memory, at an offset into what the peer offered. Not for Sends.
int post_simple(xsock_ep* ep, std::uint64_t wr_id, std::uint32_t op, void* buffer,
                std::uint32_t length, const xsock_remote* remote, std::uint64_t offset,
                std::uint32_t flags, const Extra& extra = {}) {
    if (ep == nullptr || (buffer == nullptr && length > 0)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    if (remote == nullptr) return fail(EINVAL);
    if (offset > remote->length || length > remote->length - offset) return fail(ERANGE);
    const Sge sge{static_cast<std::byte*>(buffer), length, kLkeyNone};
    return guarded(-1, [&] {
        return post_one(ep, wr_id, op, flags, {&sge, 1}, remote->to + offset, remote->stag, extra);
    });
}

}  // namespace

int post(xsock_ep* ep, const xsock_wr* given) noexcept {
    if (ep == nullptr || given == nullptr) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    xsock_wr wr;
    if (!copy_versioned(given, wr)) return -1;
    return guarded(-1, [&] {
        SgeList list;
        if (!list.assign(wr.sge, wr.sge_count)) return fail(EINVAL);
        const Extra extra{.atomic = {.operand = wr.operand,
                                     .operand_mask = wr.operand_mask,
                                     .compare = wr.compare,
                                     .compare_mask = wr.compare_mask},
                          .immediate = wr.immediate};
        return post_one(ep, wr.wr_id, wr.op, wr.flags, list.span(), wr.remote.to, wr.remote.stag,
                        extra);
    });
}

int post_recv(xsock_ep* ep, std::uint64_t wr_id, const xsock_sge* sge,
              std::uint32_t count) noexcept {
    if (!usable(ep)) return -1;
    return post_receive(*ep->qp, wr_id, sge, count);
}

int send(xsock_ep* ep, std::uint64_t wr_id, const void* buffer, std::uint32_t length,
         std::uint32_t flags) noexcept {
    // The most frequent call of all: it does not check what other operations have.
    if (ep == nullptr || (buffer == nullptr && length > 0)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    if ((flags & ~kSimpleSendFlags) != 0) return fail(EINVAL);  // a key: xsock_post()
    const Sge sge{static_cast<std::byte*>(const_cast<void*>(buffer)), length, kLkeyNone};
    const std::uint8_t ours = send_flags(flags);
    if ((ours & kSendInline) == 0) {
        return guarded(-1, [&] { return finish(ep->qp->post_plain_send(wr_id, sge, ours)); });
    }
    if (length > XSOCK_MAX_INLINE) return fail(EINVAL);
    SendWr wr;
    wr.wr_id = wr_id;
    wr.flags = ours;
    wr.sges = {&sge, 1};
    return guarded(-1, [&] { return finish(ep->qp->post_send(wr)); });
}

int recv(xsock_ep* ep, std::uint64_t wr_id, void* buffer, std::uint32_t length) noexcept {
    if (ep == nullptr || (buffer == nullptr && length > 0)) return fail(EINVAL);
    if (!same_process(ep)) return -1;
    const Sge sge{static_cast<std::byte*>(buffer), length, kLkeyNone};
    return guarded(-1, [&] {
        return finish(ep->qp->post_recv({.wr_id = wr_id, .sges = {&sge, 1}}));
    });
}

int write(xsock_ep* ep, std::uint64_t wr_id, const void* buffer, std::uint32_t length,
          const xsock_remote* remote, std::uint64_t offset, std::uint32_t flags) noexcept {
    return post_simple(ep, wr_id, XSOCK_OP_WRITE, const_cast<void*>(buffer), length, remote, offset,
                       flags);
}

int read(xsock_ep* ep, std::uint64_t wr_id, void* buffer, std::uint32_t length,
         const xsock_remote* remote, std::uint64_t offset, std::uint32_t flags) noexcept {
    return post_simple(ep, wr_id, XSOCK_OP_READ, buffer, length, remote, offset, flags);
}

int fetch_add(xsock_ep* ep, std::uint64_t wr_id, std::uint64_t* result, const xsock_remote* remote,
              std::uint64_t offset, std::uint64_t add, std::uint32_t flags) noexcept {
    if ((flags & XSOCK_MASKED) != 0) return fail(EINVAL);  // needs masks: xsock_post()
    return post_simple(ep, wr_id, XSOCK_OP_FETCH_ADD, result, sizeof *result, remote, offset, flags,
                       {.atomic = {.operand = add}});
}

int compare_swap(xsock_ep* ep, std::uint64_t wr_id, std::uint64_t* result,
                 const xsock_remote* remote, std::uint64_t offset, std::uint64_t compare,
                 std::uint64_t swap, std::uint32_t flags) noexcept {
    if ((flags & XSOCK_MASKED) != 0) return fail(EINVAL);
    return post_simple(ep, wr_id, XSOCK_OP_COMPARE_SWAP, result, sizeof *result, remote, offset,
                       flags, {.atomic = {.operand = swap, .compare = compare}});
}

int write_imm(xsock_ep* ep, std::uint64_t wr_id, const void* buffer, std::uint32_t length,
              const xsock_remote* remote, std::uint64_t offset, std::uint64_t immediate,
              std::uint32_t flags) noexcept {
    return post_simple(ep, wr_id, XSOCK_OP_WRITE_IMM, const_cast<void*>(buffer), length, remote,
                       offset, flags, {.immediate = immediate});
}

}  // namespace xsock::api
