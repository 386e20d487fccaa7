/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ABI between the thin libraries (libxsock.so, libxsock-preload.so, the verbs libraries) and
 * the engine (libxsock-engine.so): one table of C functions, versioned. Memory never crosses it
 * other than as opaque handles; no exception does.
 *
 * Three lists have the public functions: result type, name, value on failure to load, parameters,
 * arguments. The thin library, the table and the engine are all made from them.
 */
#ifndef XSOCK_ENGINE_TABLE_H
#define XSOCK_ENGINE_TABLE_H

#include "include/xsock/xsock.h"
#include "libxsock/engine/poll_table.h"
#include "libxsock/engine/socket_table.h"

/* Grows with every change of the table; both sides must agree exactly. */
#define XSOCK_ENGINE_VERSION 17u

/* Their system calls are no cancellation points (engine/uncancelled.c): cheaper than to disable
 * cancellation around each call. */
#define XSOCK_QUICK_FUNCTIONS(F)                                                                   \
    F(const char*, version, "0 (no engine)", (void), ())                                           \
    F(const char*, wc_str, "?", (int status), (status))                                            \
    F(int, cq_poll, -1, (struct xsock_cq * cq, struct xsock_wc * wc, int max), (cq, wc, max))      \
    F(uint32_t, mr_stag, 0, (const struct xsock_mr* mr), (mr))                                     \
    F(int, mr_key, -1,                                                                             \
      (const struct xsock_mr* mr, size_t offset, size_t length, struct xsock_key* key),            \
      (mr, offset, length, key))                                                                   \
    F(int, listener_port, -1, (const struct xsock_listener* listener), (listener))                 \
    F(int, post, -1, (struct xsock_ep * ep, const struct xsock_wr* wr), (ep, wr))                  \
    F(int, post_recv, -1,                                                                          \
      (struct xsock_ep * ep, uint64_t wr_id, const struct xsock_sge* sge, uint32_t sge_count),     \
      (ep, wr_id, sge, sge_count))                                                                 \
    F(int, send, -1,                                                                               \
      (struct xsock_ep * ep, uint64_t wr_id, const void* buffer, uint32_t length, uint32_t flags), \
      (ep, wr_id, buffer, length, flags))                                                          \
    F(int, recv, -1, (struct xsock_ep * ep, uint64_t wr_id, void* buffer, uint32_t length),        \
      (ep, wr_id, buffer, length))                                                                 \
    F(int, write, -1,                                                                              \
      (struct xsock_ep * ep, uint64_t wr_id, const void* buffer, uint32_t length,                  \
       const struct xsock_remote* remote, uint64_t remote_offset, uint32_t flags),                 \
      (ep, wr_id, buffer, length, remote, remote_offset, flags))                                   \
    F(int, read, -1,                                                                               \
      (struct xsock_ep * ep, uint64_t wr_id, void* buffer, uint32_t length,                        \
       const struct xsock_remote* remote, uint64_t remote_offset, uint32_t flags),                 \
      (ep, wr_id, buffer, length, remote, remote_offset, flags))                                   \
    F(int, fetch_add, -1,                                                                          \
      (struct xsock_ep * ep, uint64_t wr_id, uint64_t * result, const struct xsock_remote* remote, \
       uint64_t remote_offset, uint64_t add, uint32_t flags),                                      \
      (ep, wr_id, result, remote, remote_offset, add, flags))                                      \
    F(int, compare_swap, -1,                                                                       \
      (struct xsock_ep * ep, uint64_t wr_id, uint64_t * result, const struct xsock_remote* remote, \
       uint64_t remote_offset, uint64_t compare, uint64_t swap, uint32_t flags),                   \
      (ep, wr_id, result, remote, remote_offset, compare, swap, flags))                            \
    F(int, write_imm, -1,                                                                          \
      (struct xsock_ep * ep, uint64_t wr_id, const void* buffer, uint32_t length,                  \
       const struct xsock_remote* remote, uint64_t remote_offset, uint64_t immediate,              \
       uint32_t flags),                                                                            \
      (ep, wr_id, buffer, length, remote, remote_offset, immediate, flags))                        \
    F(int, srq_post_recv, -1,                                                                      \
      (struct xsock_srq * srq, uint64_t wr_id, const struct xsock_sge* sge, uint32_t sge_count),   \
      (srq, wr_id, sge, sge_count))

/* Cancellation is disabled around them. */
#define XSOCK_FUNCTIONS(F)                                                                       \
    F(struct xsock_cq*, cq_create, NULL, (const struct xsock_cq_attr* attr), (attr))             \
    F(int, cq_destroy, -1, (struct xsock_cq * cq), (cq))                                         \
    F(int, cq_fd, -1, (struct xsock_cq * cq), (cq))                                              \
    F(struct xsock_pd*, pd_create, NULL, (void), ())                                             \
    F(int, pd_destroy, -1, (struct xsock_pd * pd), (pd))                                         \
    F(struct xsock_mr*, mr_register, NULL,                                                       \
      (struct xsock_pd * pd, void* address, size_t length, unsigned access,                      \
       struct xsock_ep* only),                                                                   \
      (pd, address, length, access, only))                                                       \
    F(int, mr_deregister, -1, (struct xsock_mr * mr), (mr))                                      \
    F(struct xsock_ep*, ep_create, NULL, (int fd, const struct xsock_ep_attr* attr), (fd, attr)) \
    F(struct xsock_ep*, connect, NULL,                                                           \
      (const char* host, const char* service, const struct xsock_ep_attr* attr, int timeout_ms), \
      (host, service, attr, timeout_ms))                                                         \
    F(int, ep_accept, -1, (struct xsock_ep * ep, const void* private_data, size_t length),       \
      (ep, private_data, length))                                                                \
    F(int, ep_reject, -1, (struct xsock_ep * ep, const void* private_data, size_t length),       \
      (ep, private_data, length))                                                                \
    F(int, ep_query, -1, (const struct xsock_ep* ep, struct xsock_ep_info* info), (ep, info))    \
    F(int, ep_shutdown, -1, (struct xsock_ep * ep), (ep))                                        \
    F(int, ep_close, -1, (struct xsock_ep * ep), (ep))                                           \
    F(int, ep_abort, -1, (struct xsock_ep * ep), (ep))                                           \
    F(int, ep_set_context, -1, (struct xsock_ep * ep, void* context), (ep, context))             \
    F(struct xsock_listener*, listener_create, NULL, (int fd, const struct xsock_ep_attr* attr), \
      (fd, attr))                                                                                \
    F(struct xsock_listener*, listen, NULL,                                                      \
      (const char* host, const char* service, int backlog, const struct xsock_ep_attr* attr),    \
      (host, service, backlog, attr))                                                            \
    F(int, listener_fd, -1, (struct xsock_listener * listener), (listener))                      \
    F(int, listener_close, -1, (struct xsock_listener * listener), (listener))                   \
    F(struct xsock_srq*, srq_create, NULL, (uint32_t depth), (depth))                            \
    F(int, srq_destroy, -1, (struct xsock_srq * srq), (srq))

/* Those that sleep, which the thin library does for them: type, name, value on failure, parameters,
 * parameters and arguments of the engine's function. While that leaves sleep->asleep set, the
 * caller polls sleep->fds and calls again with the same arguments; or sleep_end(), instead. */
#define XSOCK_SLEEPING_FUNCTIONS(F)                                                                \
    F(int, cq_wait, -1,                                                                            \
      (struct xsock_cq * cq, struct xsock_wc * wc, int min, int max, int timeout_ms),              \
      (struct xsock_cq * cq, struct xsock_wc * wc, int min, int max, int timeout_ms,               \
       struct xsock_sleep* sleep),                                                                 \
      (cq, wc, min, max, timeout_ms, &sleep))                                                      \
    F(int, ep_wait, -1, (struct xsock_ep * ep, int timeout_ms),                                    \
      (struct xsock_ep * ep, int timeout_ms, struct xsock_sleep* sleep), (ep, timeout_ms, &sleep)) \
    F(struct xsock_ep*, accept, NULL, (struct xsock_listener * listener, int timeout_ms),          \
      (struct xsock_listener * listener, int timeout_ms, struct xsock_sleep* sleep),               \
      (listener, timeout_ms, &sleep))

#define XSOCK_MAX_THREADS 64 /* most progresses of a process: XSOCK_THREADS */

/* A call that sleeps, on the stack of the thin library. */
struct xsock_sleep {
    /* Clear these three before the first call. The first: poll(), and call again. */
    int asleep;
    int begun;
    int taken; /* completions; with some of them a cancellation would lose them */

    nfds_t count;
    int timeout_ms;
    struct pollfd fds[2 * XSOCK_MAX_THREADS]; /* `revents`: what poll() found, 0 where it failed */

    /* The engine's. */
    uint32_t generation;
    uint64_t deadline;
    unsigned char state[64 + 16 * XSOCK_MAX_THREADS] __attribute__((aligned(16)));
};

#define XSOCK_TABLE_ENTRY(type, name, failed, parameters, arguments) type(*name) parameters;
#define XSOCK_SLEEPING_TABLE_ENTRY(type, name, failed, parameters, with_sleep, arguments) \
    type(*name) with_sleep;
#define XSOCK_HANDLE_TABLE_ENTRY(type, name, parameters) type(*name) parameters;

struct xsock_verbs; /* verbs/table.h */

struct xsock_engine {
    uint32_t table_version;          /* XSOCK_ENGINE_VERSION */
    uint32_t table_size;             /* sizeof(struct xsock_engine) */
    const struct xsock_verbs* verbs; /* NULL: built without the verbs API */
    XSOCK_QUICK_FUNCTIONS(XSOCK_TABLE_ENTRY)
    XSOCK_FUNCTIONS(XSOCK_TABLE_ENTRY)
    XSOCK_SLEEPING_FUNCTIONS(XSOCK_SLEEPING_TABLE_ENTRY)
    void (*sleep_end)(struct xsock_sleep* sleep);
    XSOCK_SOCKET_FUNCTIONS(XSOCK_HANDLE_TABLE_ENTRY)
    XSOCK_POLL_FUNCTIONS(XSOCK_HANDLE_TABLE_ENTRY)
};

#ifdef __cplusplus
extern "C"
#endif
    /* The one symbol that libxsock-engine.so exports. */
    __attribute__((visibility("default"))) const struct xsock_engine*
    xsock_engine_table(void);

#endif /* XSOCK_ENGINE_TABLE_H */
