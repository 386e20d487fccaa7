// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions that programs reach through pointers in verbs.h's structures (ibv_context.ops,
// verbs_context, ibv_cq_ex, ibv_qp_ex): calls of ibv_poll_cq() and the like land here without any
// code of the drop-in libraries between.
#pragma once

#include "base/bytes.hpp"
#include "verbs/objects.hpp"

namespace xsock::verbs {

// cq.cpp
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) noexcept;
int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept;
// cq_ex.cpp
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept;
// post.cpp
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) noexcept;
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
// qp.cpp
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept;
// memory_window.cpp
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
/// Makes `to` the request that binds `mw` as `info` says, under the key `rkey` (of which the lower
/// eight bits count). 0 or an errno. Not with the engine's mutex held.
int prepare_binding(Qp& qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info,
                    SendWr& to) noexcept;
/// It was not posted.
void cancel_binding(ibv_mw* mw, const SendWr& wr) noexcept;
// parent_domain.cpp
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept;
int dealloc_td(ibv_td* td) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept;
// srq.cpp
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept;
// device.cpp
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t size) noexcept;
int query_port_ex(ibv_context* context, std::uint8_t port, ibv_port_attr* attr,
                  size_t size) noexcept;

// Shared by several files; the engine's mutex is held.

ibv_context* open_locked(VerbsState& engine);
/// The context of ids; opened when first asked for. Null with errno.
ibv_context* default_context_locked(VerbsState& engine);
void release_locked(VerbsState& engine, Context& context);
ibv_pd* alloc_pd_locked(VerbsState& engine, Context& context);
ibv_comp_channel* create_channel_locked(VerbsState& engine, Context& context);
int destroy_channel_locked(VerbsState& engine, ibv_comp_channel* channel);
ibv_cq* create_cq_locked(VerbsState& engine, Context& context, std::uint32_t cqe, void* cq_context,
                         ibv_comp_channel* channel);
/// In a poller: the queue with Cq::id `argument` has a completion it was armed for, or overran.
void on_cq_notified(void* argument) noexcept;
/// From now on the background thread serves the channel, whatever its descriptor could tell.
void leave_to_thread(Channel& channel);
/// No event of the queue is told any more.
void leave_channel(Cq& cq);
/// @param rnr_timeout as QpAttr has it; the program's queue pairs have engine.rnr_timeout
ibv_qp* create_qp_locked(VerbsState& engine, ibv_pd* pd, ibv_qp_init_attr& attr, Time rnr_timeout);
ibv_srq* create_srq_locked(VerbsState& engine, ibv_pd* pd, ibv_srq_init_attr& attr);
/// The QP was given a connection (by rdma_cm or by its GID). Requests wait until it has
/// started. Out of memory is an error like others; the descriptor is the caller's still then.
Result<void> connect_qp_locked(VerbsState& engine, Qp& qp, int fd, const ConnectAttr& attr);
/// What the device says of a QP: its number, and in the upper half which of those that have had it.
std::uint64_t device_context(VerbsState& engine, std::uint32_t qp_num) noexcept;
/// What ibv_destroy_qp() does before it waits for the program's acknowledgements, and afterwards.
void remove_qp_locked(VerbsState& engine, Qp& qp);
void free_qp_locked(Qp& qp) noexcept;
/// All that a QP has under way ends, and its completions are taken out of the queues.
void detach_locked(Qp& qp);
/// Ends a QP's connection now and completes everything; verbs' error state.
void fail_qp_locked(VerbsState& engine, Qp& qp);
/// The program knows that the peer has left, or has been given time to: what is outstanding is
/// flushed.
void confirm_end_locked(VerbsState& engine, Qp& qp);
/// Adds what the QP's connection has moved to the exit summary, once for each connection.
void count_bytes_locked(VerbsState& engine, Qp& qp) noexcept;
/// Another thread has called exit(), which ends the QPs: one that still polls is not told.
/// (Hardware's queue pairs end when no thread is left.)
bool is_of_exit(const Wc& wc) noexcept;
/// Completes posts that came after the end of the connection had begun.
void flush_late(Qp& qp);
/// The device says that a QP changed state. Throws std::bad_alloc with nothing changed.
void on_qp_state_locked(VerbsState& engine, Qp& qp, QpState state);

/// For the TCP connection and MPA start-up of a QP.
inline constexpr Time kConnectTimeout = 30 * kSecond;
/// Operations that ibv_qp_ex has functions for.
inline constexpr std::uint64_t kSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// Those of UC.
inline constexpr std::uint64_t kUnreliableSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV |
    IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// Those of UD.
inline constexpr std::uint64_t kDatagramSendOps =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
/// Of a QP of that type (ibv_qp_type).
constexpr std::uint64_t send_ops_of(std::uint32_t qp_type) noexcept {
    return qp_type == IBV_QPT_UD   ? kDatagramSendOps
           : qp_type == IBV_QPT_UC ? kUnreliableSendOps
                                   : kSendOps;
}

/// Fills in functions of ibv_qp_ex (qp_ex.cpp).
void set_send_ops(Qp& qp, std::uint64_t flags) noexcept;
/// The same as post_send(), of a UD QP of this process.
int post_datagrams(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) noexcept;
/// All that was built, or none unless memory runs out. Throws std::bad_alloc.
int post_built_datagrams(Qp& qp);
/// Posts to the QP's send queue, or queues a flushed completion on one that has ended.
int post_one(Qp& qp, const SendWr& wr) noexcept;
/// The same, of a request that has its Cq::take_slots(), if it is signaled; it keeps it.
int post_taken(Qp& qp, const SendWr& wr) noexcept;
/// Turns what the program calls addresses, in regions whose iova is another, into those of memory.
/// Not with the engine's mutex held.
void relocate(VerbsState& engine, std::span<Sge> sges);

// Operands of RFC 7306 as verbs give them. The 32 bits of immediate data are the first four of the
// eight bytes on the wire, and all that a Send with Immediate has.
inline Atomic fetch_add_of(std::uint64_t add) noexcept { return {.operand = add}; }
inline Atomic compare_swap_of(std::uint64_t compare, std::uint64_t swap) noexcept {
    constexpr std::uint64_t kAll = ~std::uint64_t{0};
    return {.operand = swap, .operand_mask = kAll, .compare = compare, .compare_mask = kAll};
}
inline std::uint64_t immediate_of(__be32 data) noexcept {
    return std::uint64_t{load_be32(reinterpret_cast<const std::byte*>(&data))} << 32;
}
inline __be32 immediate_data(std::uint64_t immediate) noexcept {
    __be32 data = 0;
    store_be32(reinterpret_cast<std::byte*>(&data), static_cast<std::uint32_t>(immediate >> 32));
    return data;
}

/// As ibv_wc has them.
void convert(const Wc& from, ibv_wc& to) noexcept;

}  // namespace xsock::verbs
