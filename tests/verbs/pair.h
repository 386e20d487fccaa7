/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Common to the verbs programs of tests/verbs: cases with checks, and a connected pair of ids in
 * one process. Ordinary uses of libibverbs and librdmacm; the programs run with the drop-in
 * libraries in LD_LIBRARY_PATH. Each includes this once and calls run_cases().
 */
#ifndef XSOCK_TESTS_VERBS_PAIR_H
#define XSOCK_TESTS_VERBS_PAIR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/cases.h"

#define LIMIT_S 30 /* only reached by a failure */
#define ALL_ACCESS                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC)

static const char* case_name;
static int failures;
static inline void failed_once(void) { __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED); }

#define CHECK(condition, ...)                                                    \
    do {                                                                         \
        if (!(condition)) {                                                      \
            failed_once();                                                       \
            printf("FAILED %s, line %d: %s: ", case_name, __LINE__, #condition); \
            printf(" " __VA_ARGS__);                                             \
            printf("\n");                                                        \
        }                                                                        \
    } while (0)
#define MUST(condition)                                                             \
    do {                                                                            \
        if (!(condition)) {                                                         \
            printf("FAILED %s, line %d: %s: %s\n", case_name, __LINE__, #condition, \
                   strerror(errno));                                                \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One connected pair: a is the active end, b the passive one, both ours. */
struct pair {
    struct rdma_event_channel *channel_a, *channel_b; /* none: the ids are synchronous */
    struct rdma_cm_id *listener, *a, *b;
    struct ibv_mr *mr_a, *mr_b; /* of data_a and data_b, all rights */
    char data_a[8192] __attribute__((aligned(64)));
    char data_b[8192] __attribute__((aligned(64)));
};

static inline void* active(void* argument) {
    struct pair* p = argument;
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.responder_resources = param.initiator_depth = 4;
    MUST(rdma_connect(p->a, &param) == 0);
    return NULL;
}

static inline struct ibv_qp_init_attr qp_attr(void) {
    struct ibv_qp_init_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
    attr.cap.max_inline_data = 64;
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    return attr;
}

/* A synchronous listener on loopback, whose ids have such a queue pair. */
static inline struct rdma_cm_id* make_listener_ep(int backlog) {
    struct rdma_addrinfo hints, *passive;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_cm_id* listener;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &passive) == 0);
    MUST(rdma_create_ep(&listener, passive, NULL, &attr) == 0);
    MUST(rdma_listen(listener, backlog) == 0);
    rdma_freeaddrinfo(passive);
    return listener;
}

static inline void connect_pair(struct pair* p) {
    struct rdma_addrinfo hints, *to;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_conn_param param;
    pthread_t thread;
    char port[16];
    memset(p, 0, sizeof *p);
    memset(&hints, 0, sizeof hints);
    hints.ai_port_space = RDMA_PS_TCP;
    p->listener = make_listener_ep(4);
    snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(p->listener)));
    MUST(rdma_getaddrinfo("127.0.0.1", port, &hints, &to) == 0);
    MUST(rdma_create_ep(&p->a, to, NULL, &attr) == 0);
    MUST(pthread_create(&thread, NULL, active, p) == 0);
    MUST(rdma_get_request(p->listener, &p->b) == 0);
    memset(&param, 0, sizeof param);
    param.responder_resources = param.initiator_depth = 4;
    MUST(rdma_accept(p->b, &param) == 0);
    pthread_join(thread, NULL);
    rdma_freeaddrinfo(to);
    MUST((p->mr_a = ibv_reg_mr(p->a->pd, p->data_a, sizeof p->data_a, ALL_ACCESS)) != NULL);
    MUST((p->mr_b = ibv_reg_mr(p->b->pd, p->data_b, sizeof p->data_b, ALL_ACCESS)) != NULL);
}

static inline void end(struct rdma_cm_id* id) {
    if (id == NULL) return;
    if (id->qp != NULL) rdma_destroy_qp(id);
    if (id->srq != NULL) rdma_destroy_srq(id);
    CHECK(rdma_destroy_id(id) == 0);
}
/* What is NULL is gone already. */
static inline void disconnect_pair(struct pair* p) {
    rdma_disconnect(p->a);
    rdma_disconnect(p->b);
    if (p->mr_a != NULL) CHECK(ibv_dereg_mr(p->mr_a) == 0);
    if (p->mr_b != NULL) CHECK(ibv_dereg_mr(p->mr_b) == 0);
    end(p->a);
    end(p->b);
    end(p->listener);
    if (p->channel_a != NULL) rdma_destroy_event_channel(p->channel_a);
    if (p->channel_b != NULL) rdma_destroy_event_channel(p->channel_b);
}

/* The next completion of a queue; none in time: status -1. */
static inline struct ibv_wc next(struct ibv_cq* cq) {
    const double limit = now() + LIMIT_S;
    struct ibv_wc wc;
    memset(&wc, 0, sizeof wc);
    do {
        const int n = ibv_poll_cq(cq, 1, &wc);
        MUST(n >= 0);
        if (n == 1) return wc;
        usleep(100);
    } while (now() < limit);
    printf("%s: no completion came\n", case_name);
    wc.status = (enum ibv_wc_status) - 1;
    return wc;
}

static inline struct ibv_context* device(void) {
    int n = 0;
    struct ibv_context** const list = rdma_get_devices(&n);
    MUST(list != NULL && n > 0);
    struct ibv_context* const context = list[0];
    rdma_free_devices(list);
    return context;
}

/* Of a QP that no id has: from RESET to INIT. */
static inline void to_init(struct ibv_qp* qp) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = ALL_ACCESS;
    MUST(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
}
static inline int to_state(struct ibv_qp* qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static inline enum ibv_qp_state state_of(struct ibv_qp* qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}
static inline int reaches_error(struct ibv_qp* qp) {
    const double limit = now() + LIMIT_S;
    while (state_of(qp) != IBV_QPS_ERR) {
        if (now() > limit) return 0;
        usleep(1000);
    }
    return 1;
}

/* Without a piece of memory where `at` is NULL. */
static inline int post_numbered(struct ibv_qp* qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
                                const void* at, uint32_t length, uint32_t lkey, unsigned flags,
                                uint64_t remote, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)at, length, lkey};
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = at != NULL;
    wr.opcode = opcode;
    wr.send_flags = flags;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    }
    const int error = ibv_post_send(qp, &wr, &bad);
    CHECK((error == 0) == (bad == NULL));
    return error;
}
static inline int post(struct ibv_qp* qp, enum ibv_wr_opcode opcode, const void* at,
                       uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey) {
    return post_numbered(qp, 1, opcode, at, length, lkey, IBV_SEND_SIGNALED, remote, rkey);
}
static inline int post_recv_numbered(struct ibv_qp* qp, uint64_t wr_id, void* at, uint32_t length,
                                     uint32_t lkey) {
    struct ibv_sge sge = {(uintptr_t)at, length, lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    return ibv_post_recv(qp, &wr, &bad);
}
static inline int post_recv(struct ibv_qp* qp, void* at, uint32_t length, uint32_t lkey) {
    return post_recv_numbered(qp, 2, at, length, lkey);
}

static inline void expect(struct ibv_cq* cq, enum ibv_wc_status status, int line) {
    const struct ibv_wc wc = next(cq);
    if (wc.status == status) return;
    failed_once();
    printf("FAILED %s, line %d: %s, expected %s\n", case_name, line,
           (int)wc.status < 0 ? "no completion" : ibv_wc_status_str(wc.status),
           ibv_wc_status_str(status));
}
#define EXPECT(cq, status) expect(cq, status, __LINE__)

static inline void run_case(const struct test_case* one) {
    const int before = failures;
    case_name = one->name;
    one->run();
    printf("%-6s %s\n", failures == before ? "ok" : "FAILED", case_name);
}

/* All of them, or those named on the command line; the program's exit status. */
static inline int run_cases(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    return for_cases(argc, argv, run_case) | (failures != 0);
}

#endif /* XSOCK_TESTS_VERBS_PAIR_H */
