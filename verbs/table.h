/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ABI between the drop-in libibverbs.so.1 and librdmacm.so.1 and the engine: one table of C
 * functions, reached through the `verbs` member of struct xsock_engine. The two lists below are the
 * one place where a function of either library is named: prefix, result type, name, value when the
 * engine cannot be loaded, parameters, arguments. The libraries, the table and the engine are all
 * made from them.
 *
 * Memory does cross this ABI, unlike that of libxsock.so: the structures of verbs.h and
 * rdma_cma.h are public, and calls such as ibv_poll_cq() are inline functions that follow pointers
 * in them straight into the engine.
 */
#ifndef XSOCK_VERBS_TABLE_H
#define XSOCK_VERBS_TABLE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* Inline conveniences of verbs.h that hide the functions of the same names. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Grows with every change of the table; both sides must agree exactly. */
#define XSOCK_VERBS_VERSION 3u

/* Called by the libraries only, not exported: what the blocking calls are made of. */
#define XSOCK_VERBS_PRIVATE_FUNCTIONS(F)                                                           \
    /* 0; EINPROGRESS: nothing there, wait for the descriptor; EAGAIN: nothing, and the descriptor \
     * does not block; or another errno. `first`: the call has not waited yet. */                  \
    F(verbs_, int, try_cq_event, ENOSYS,                                                           \
      (struct ibv_comp_channel * channel, int first, struct ibv_cq * *cq, void** cq_context),      \
      (channel, first, cq, cq_context))                                                            \
    /* After waiting in vain for a while: 0 and an event, if peers have written into memory since  \
     * this was last asked; EINPROGRESS: they have not; or another errno. */                       \
    F(verbs_, int, late_cq_event, ENOSYS,                                                          \
      (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void** cq_context),                 \
      (channel, cq, cq_context))                                                                   \
    F(verbs_, int, try_async_event, ENOSYS,                                                        \
      (struct ibv_context * context, struct ibv_async_event * event), (context, event))            \
    F(verbs_, int, try_cm_event, ENOSYS,                                                           \
      (struct rdma_event_channel * channel, struct rdma_cm_event * *event), (channel, event))      \
    /* Of a synchronous id: takes the event that an operation waited for into id->event. 0,        \
     * EAGAIN: not there yet; or the errno that the operation ended with. An asynchronous id: 0 at \
     * once. */                                                                                    \
    F(verbs_, int, try_complete, ENOSYS, (struct rdma_cm_id * id), (id))                           \
    /* What rdma_create_ep() does between its waits. */                                            \
    F(verbs_, int, begin_ep, ENOSYS, (struct rdma_cm_id * *id, struct rdma_addrinfo * res),        \
      (id, res))                                                                                   \
    F(verbs_, int, finish_ep, ENOSYS,                                                              \
      (struct rdma_cm_id * id, struct rdma_addrinfo * res, struct ibv_pd * pd,                     \
       struct ibv_qp_init_attr * attr),                                                            \
      (id, res, pd, attr))                                                                         \
    F(verbs_, int, try_request, ENOSYS, (struct rdma_cm_id * listen, struct rdma_cm_id * *id),     \
      (listen, id))

#define XSOCK_IBV_FUNCTIONS(F)                                                                     \
    F(ibv_, struct ibv_device**, get_device_list, NULL, (int* count), (count))                     \
    F(ibv_, void, free_device_list, , (struct ibv_device * *list), (list))                         \
    F(ibv_, const char*, get_device_name, NULL, (struct ibv_device * device), (device))            \
    F(ibv_, int, get_device_index, -1, (struct ibv_device * device), (device))                     \
    F(ibv_, __be64, get_device_guid, 0, (struct ibv_device * device), (device))                    \
    F(ibv_, struct ibv_context*, open_device, NULL, (struct ibv_device * device), (device))        \
    F(ibv_, int, close_device, -1, (struct ibv_context * context), (context))                      \
    F(ibv_, void, ack_async_event, , (struct ibv_async_event * event), (event))                    \
    F(ibv_, int, query_device, ENOSYS,                                                             \
      (struct ibv_context * context, struct ibv_device_attr * attr), (context, attr))              \
    F(ibv_, int, query_port, ENOSYS,                                                               \
      (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr * attr),           \
      (context, port, attr))                                                                       \
    F(ibv_, int, query_gid, -1,                                                                    \
      (struct ibv_context * context, uint8_t port, int index, union ibv_gid* gid),                 \
      (context, port, index, gid))                                                                 \
    F(_ibv_, int, query_gid_ex, ENOSYS,                                                            \
      (struct ibv_context * context, uint32_t port, uint32_t index, struct ibv_gid_entry * entry,  \
       uint32_t flags, size_t entry_size),                                                         \
      (context, port, index, entry, flags, entry_size))                                            \
    F(_ibv_, ssize_t, query_gid_table, -ENOSYS,                                                    \
      (struct ibv_context * context, struct ibv_gid_entry * entries, size_t max_entries,           \
       uint32_t flags, size_t entry_size),                                                         \
      (context, entries, max_entries, flags, entry_size))                                          \
    F(ibv_, int, query_gid_type, -1,                                                               \
      (struct ibv_context * context, uint8_t port, unsigned int index, int* type),                 \
      (context, port, index, type))                                                                \
    F(ibv_, int, query_pkey, -1,                                                                   \
      (struct ibv_context * context, uint8_t port, int index, __be16* pkey),                       \
      (context, port, index, pkey))                                                                \
    F(ibv_, int, get_pkey_index, -1, (struct ibv_context * context, uint8_t port, __be16 pkey),    \
      (context, port, pkey))                                                                       \
    F(ibv_, struct ibv_pd*, alloc_pd, NULL, (struct ibv_context * context), (context))             \
    F(ibv_, int, dealloc_pd, ENOSYS, (struct ibv_pd * pd), (pd))                                   \
    F(ibv_, struct ibv_mr*, reg_mr, NULL,                                                          \
      (struct ibv_pd * pd, void* address, size_t length, int access),                              \
      (pd, address, length, access))                                                               \
    F(ibv_, struct ibv_mr*, reg_mr_iova, NULL,                                                     \
      (struct ibv_pd * pd, void* address, size_t length, uint64_t iova, int access),               \
      (pd, address, length, iova, access))                                                         \
    F(ibv_, struct ibv_mr*, reg_mr_iova2, NULL,                                                    \
      (struct ibv_pd * pd, void* address, size_t length, uint64_t iova, unsigned int access),      \
      (pd, address, length, iova, access))                                                         \
    F(ibv_, int, rereg_mr, IBV_REREG_MR_ERR_CMD,                                                   \
      (struct ibv_mr * mr, int flags, struct ibv_pd* pd, void* address, size_t length,             \
       int access),                                                                                \
      (mr, flags, pd, address, length, access))                                                    \
    F(ibv_, int, dereg_mr, ENOSYS, (struct ibv_mr * mr), (mr))                                     \
    F(ibv_, struct ibv_ah*, create_ah, NULL, (struct ibv_pd * pd, struct ibv_ah_attr * attr),      \
      (pd, attr))                                                                                  \
    F(ibv_, int, init_ah_from_wc, -1,                                                              \
      (struct ibv_context * context, uint8_t port, struct ibv_wc * wc, struct ibv_grh * grh,       \
       struct ibv_ah_attr * attr),                                                                 \
      (context, port, wc, grh, attr))                                                              \
    F(ibv_, struct ibv_ah*, create_ah_from_wc, NULL,                                               \
      (struct ibv_pd * pd, struct ibv_wc * wc, struct ibv_grh * grh, uint8_t port),                \
      (pd, wc, grh, port))                                                                         \
    F(ibv_, int, destroy_ah, ENOSYS, (struct ibv_ah * ah), (ah))                                   \
    F(ibv_, struct ibv_comp_channel*, create_comp_channel, NULL, (struct ibv_context * context),   \
      (context))                                                                                   \
    F(ibv_, int, destroy_comp_channel, ENOSYS, (struct ibv_comp_channel * channel), (channel))     \
    F(ibv_, struct ibv_cq*, create_cq, NULL,                                                       \
      (struct ibv_context * context, int cqe, void* cq_context, struct ibv_comp_channel* channel,  \
       int vector),                                                                                \
      (context, cqe, cq_context, channel, vector))                                                 \
    F(ibv_, int, resize_cq, ENOSYS, (struct ibv_cq * cq, int cqe), (cq, cqe))                      \
    F(ibv_, int, destroy_cq, ENOSYS, (struct ibv_cq * cq), (cq))                                   \
    F(ibv_, void, ack_cq_events, , (struct ibv_cq * cq, unsigned int events), (cq, events))        \
    F(ibv_, struct ibv_srq*, create_srq, NULL,                                                     \
      (struct ibv_pd * pd, struct ibv_srq_init_attr * attr), (pd, attr))                           \
    F(ibv_, int, modify_srq, ENOSYS, (struct ibv_srq * srq, struct ibv_srq_attr * attr, int mask), \
      (srq, attr, mask))                                                                           \
    F(ibv_, int, query_srq, ENOSYS, (struct ibv_srq * srq, struct ibv_srq_attr * attr),            \
      (srq, attr))                                                                                 \
    F(ibv_, int, destroy_srq, ENOSYS, (struct ibv_srq * srq), (srq))                               \
    F(ibv_, struct ibv_qp*, create_qp, NULL, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr), \
      (pd, attr))                                                                                  \
    F(ibv_, struct ibv_qp_ex*, qp_to_qp_ex, NULL, (struct ibv_qp * qp), (qp))                      \
    F(ibv_, int, modify_qp, ENOSYS, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask),     \
      (qp, attr, mask))                                                                            \
    F(ibv_, int, query_qp, ENOSYS,                                                                 \
      (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask, struct ibv_qp_init_attr* init),    \
      (qp, attr, mask, init))                                                                      \
    F(ibv_, int, query_qp_data_in_order, 0,                                                        \
      (struct ibv_qp * qp, enum ibv_wr_opcode op, uint32_t flags), (qp, op, flags))                \
    F(ibv_, int, destroy_qp, ENOSYS, (struct ibv_qp * qp), (qp))                                   \
    F(ibv_, int, fork_init, ENOSYS, (void), ())

#define XSOCK_RDMA_FUNCTIONS(F)                                                                    \
    F(rdma_, struct rdma_event_channel*, create_event_channel, NULL, (void), ())                   \
    F(rdma_, void, destroy_event_channel, , (struct rdma_event_channel * channel), (channel))      \
    F(rdma_, int, create_id, -1,                                                                   \
      (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void* context,                \
       enum rdma_port_space ps),                                                                   \
      (channel, id, context, ps))                                                                  \
    F(rdma_, int, destroy_id, -1, (struct rdma_cm_id * id), (id))                                  \
    F(rdma_, int, bind_addr, -1, (struct rdma_cm_id * id, struct sockaddr * address),              \
      (id, address))                                                                               \
    F(rdma_, int, create_qp, -1,                                                                   \
      (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_qp_init_attr * attr),                \
      (id, pd, attr))                                                                              \
    F(rdma_, int, create_qp_ex, -1, (struct rdma_cm_id * id, struct ibv_qp_init_attr_ex * attr),   \
      (id, attr))                                                                                  \
    F(rdma_, void, destroy_qp, , (struct rdma_cm_id * id), (id))                                   \
    F(rdma_, int, create_srq, -1,                                                                  \
      (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_srq_init_attr * attr),               \
      (id, pd, attr))                                                                              \
    F(rdma_, int, create_srq_ex, -1, (struct rdma_cm_id * id, struct ibv_srq_init_attr_ex * attr), \
      (id, attr))                                                                                  \
    F(rdma_, void, destroy_srq, , (struct rdma_cm_id * id), (id))                                  \
    F(rdma_, int, establish, -1, (struct rdma_cm_id * id), (id))                                   \
    F(rdma_, int, listen, -1, (struct rdma_cm_id * id, int backlog), (id, backlog))                \
    F(rdma_, int, reject, -1, (struct rdma_cm_id * id, const void* private_data, uint8_t length),  \
      (id, private_data, length))                                                                  \
    F(rdma_, int, reject_ece, -1,                                                                  \
      (struct rdma_cm_id * id, const void* private_data, uint8_t length),                          \
      (id, private_data, length))                                                                  \
    F(rdma_, int, notify, -1, (struct rdma_cm_id * id, enum ibv_event_type event), (id, event))    \
    F(rdma_, int, ack_cm_event, -1, (struct rdma_cm_event * event), (event))                       \
    F(rdma_, __be16, get_src_port, 0, (struct rdma_cm_id * id), (id))                              \
    F(rdma_, __be16, get_dst_port, 0, (struct rdma_cm_id * id), (id))                              \
    F(rdma_, struct ibv_context**, get_devices, NULL, (int* count), (count))                       \
    F(rdma_, void, free_devices, , (struct ibv_context * *list), (list))                           \
    F(rdma_, int, set_option, -1,                                                                  \
      (struct rdma_cm_id * id, int level, int name, void* value, size_t length),                   \
      (id, level, name, value, length))                                                            \
    F(rdma_, int, migrate_id, -1, (struct rdma_cm_id * id, struct rdma_event_channel * channel),   \
      (id, channel))                                                                               \
    F(rdma_, int, getaddrinfo, -1,                                                                 \
      (const char* node, const char* service, const struct rdma_addrinfo* hints,                   \
       struct rdma_addrinfo** result),                                                             \
      (node, service, hints, result))                                                              \
    F(rdma_, void, freeaddrinfo, , (struct rdma_addrinfo * list), (list))                          \
    F(rdma_, int, init_qp_attr, -1,                                                                \
      (struct rdma_cm_id * id, struct ibv_qp_attr * attr, int* mask), (id, attr, mask))            \
    F(rdma_, int, set_local_ece, -1, (struct rdma_cm_id * id, struct ibv_ece * ece), (id, ece))    \
    F(rdma_, int, get_remote_ece, -1, (struct rdma_cm_id * id, struct ibv_ece * ece), (id, ece))

/* Exported by hand: with a synchronous id they wait for what they have begun. */
#define XSOCK_RDMA_WAITING_FUNCTIONS(F)                                                          \
    F(rdma_, int, resolve_addr, -1,                                                              \
      (struct rdma_cm_id * id, struct sockaddr * src, struct sockaddr * dst, int timeout_ms),    \
      (id, src, dst, timeout_ms))                                                                \
    F(rdma_, int, resolve_route, -1, (struct rdma_cm_id * id, int timeout_ms), (id, timeout_ms)) \
    F(rdma_, int, connect, -1, (struct rdma_cm_id * id, struct rdma_conn_param * param),         \
      (id, param))                                                                               \
    F(rdma_, int, accept, -1, (struct rdma_cm_id * id, struct rdma_conn_param * param),          \
      (id, param))                                                                               \
    F(rdma_, int, disconnect, -1, (struct rdma_cm_id * id), (id))

#define XSOCK_VERBS_ENTRY(prefix, type, name, failed, parameters, arguments) \
    type(*prefix##name) parameters;

struct xsock_verbs {
    uint32_t table_version; /* XSOCK_VERBS_VERSION */
    uint32_t table_size;    /* sizeof(struct xsock_verbs) */
    XSOCK_VERBS_PRIVATE_FUNCTIONS(XSOCK_VERBS_ENTRY)
    XSOCK_IBV_FUNCTIONS(XSOCK_VERBS_ENTRY)
    XSOCK_RDMA_FUNCTIONS(XSOCK_VERBS_ENTRY)
    XSOCK_RDMA_WAITING_FUNCTIONS(XSOCK_VERBS_ENTRY)
};

#endif /* XSOCK_VERBS_TABLE_H */
