/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * QPs of this process that GIDs and QP numbers bring together, and a peer of our own that greets
 * them octet by octet (docs/wire.md).
 */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/verbs/pair.h"

enum {
    REQUEST = 48,
    GREETING = 24,
    NO_SUCH_QP = 1,
    OTHER_PEER,
    OTHER_KIND,
    OTHER_VERSION,
    ALREADY = 7
};

static char memory[4096];

struct end {
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    union ibv_gid gid;
};
static struct ibv_pd* pd;
static struct ibv_mr* mr;
static enum ibv_qp_type type = IBV_QPT_RC; /* of those that are made */

static inline struct end make_end(void) {
    struct end e;
    struct ibv_qp_init_attr init = qp_attr();
    if (pd == NULL) {
        MUST((pd = ibv_alloc_pd(device())) != NULL);
        MUST((mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS)) != NULL);
    }
    MUST((e.cq = ibv_create_cq(device(), 64, NULL, NULL, 0)) != NULL);
    init.send_cq = init.recv_cq = e.cq;
    init.qp_type = type;
    MUST((e.qp = ibv_create_qp(pd, &init)) != NULL);
    to_init(e.qp);
    MUST(ibv_query_gid(device(), 1, 0, &e.gid) == 0);
    return e;
}
static inline void destroy_end(struct end* e) {
    CHECK(ibv_destroy_qp(e->qp) == 0);
    CHECK(ibv_destroy_cq(e->cq) == 0);
}

static inline int to_rtr(struct ibv_qp* qp, uint32_t dest, const union ibv_gid* gid, int index) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = dest,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 12};
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = *gid;
    attr.ah_attr.grh.sgid_index = (uint8_t)index;
    attr.ah_attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(qp, &attr, mask);
}
static inline void to_rts_with(struct ibv_qp* qp, uint8_t timeout) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = timeout,
                               .retry_cnt = 7,
                               .rnr_retry = 7,
                               .max_rd_atomic = 1};
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_RC) {
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}
static inline void to_rts(struct ibv_qp* qp) { to_rts_with(qp, 14); }
static inline void to_reset(struct ibv_qp* qp) { CHECK(to_state(qp, IBV_QPS_RESET) == 0); }
static inline void connect_to(struct end* a, const struct end* b) {
    CHECK(to_rtr(a->qp, b->qp->qp_num, &b->gid, 0) == 0);
    to_rts(a->qp);
}

/* A message of each end to the other. */
static inline void exchange(struct end* a, struct end* b) {
    struct end* const ends[] = {a, b};
    for (int i = 0; i < 2; ++i) {
        struct ibv_sge to = {(uintptr_t)memory + 2048, 64, mr->lkey};
        struct ibv_sge from = {(uintptr_t)memory, 64, mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1};
        struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
        struct ibv_recv_wr* bad_receive;
        struct ibv_send_wr* bad_send;
        memset(memory, 'a' + i, 64);
        memset(memory + 2048, 0, 64);
        CHECK(ibv_post_recv(ends[!i]->qp, &receive, &bad_receive) == 0);
        CHECK(ibv_post_send(ends[i]->qp, &send, &bad_send) == 0);
        struct ibv_wc wc = next(ends[i]->cq);
        CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
        wc = next(ends[!i]->cq);
        CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
        CHECK(memcmp(memory, memory + 2048, 64) == 0);
    }
}
/* ---- a peer of our own, octet by octet ---- */

static inline void put32(unsigned char* to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
}
static inline void request_of(unsigned char to[REQUEST], uint32_t from, uint32_t dest) {
    static const unsigned char head[] = {
        'M', 'P', 'A', ' ', 'I',  'D', ' ', 'R',          'e',  'q',  ' ',  'F',
        'r', 'a', 'm', 'e', 0x50, 2,   0,   4 + GREETING, 0x00, 0x80, 0x00, 0x80, /* depths */
        'x', 's', 'o', 'c', 'k',  '-', 'Q', 'P',          1,    1,    0,    0};
    memcpy(to, head, sizeof head);
    put32(to + 36, from);
    put32(to + 40, dest);
    put32(to + 44, 0x12345678);
}
/* A connection to the process of a QP, from an address of the machine's own (0: 127.0.0.1, as any
 * that the kernel chooses). */
static inline int dial(uint32_t qp_num, const union ibv_gid* gid) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(qp_num >> 8))};
    memcpy(&to.sin_addr, gid->raw + 12, 4);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0);
    const struct timeval limit = {LIMIT_S, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    MUST(connect(fd, (struct sockaddr*)&to, sizeof to) == 0);
    return fd;
}
static unsigned char reply_flags; /* MPA's, of the last Reply */
/* The reason of the rejection that comes; 0: accepted; -1: the connection ends without a Reply. */
static inline int answer_to(int fd, const unsigned char* request, size_t n) {
    unsigned char reply[256];
    size_t have = 0;
    if (send(fd, request, n, MSG_NOSIGNAL) != (ssize_t)n) return -1;
    while (have < 20 || have < 20 + (size_t)(reply[18] << 8 | reply[19])) {
        const ssize_t got = recv(fd, reply + have, sizeof reply - have, 0);
        if (got <= 0) return -1;
        have += (size_t)got;
    }
    CHECK(memcmp(reply, "MPA ID Rep Frame", 16) == 0);
    reply_flags = reply[16];
    const int rejected = (reply[16] & 0x20) != 0;
    const unsigned char* const data = reply + 20 + (reply[17] >= 2 && (reply[16] & 0x10) ? 4 : 0);
    CHECK(memcmp(data, "xsock-QP", 8) == 0);
    CHECK(rejected == (data[9] == 0));
    return rejected ? data[10] : 0;
}
