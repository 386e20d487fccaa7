/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* UD queue pairs for the programs that test them. Included once, instead of pair.h. */
#ifndef XSOCK_TESTS_VERBS_DATAGRAMS_H
#define XSOCK_TESTS_VERBS_DATAGRAMS_H

#include <signal.h>
#include <sys/wait.h>

#include "tests/verbs/pair.h"

enum { GRH = 40, MTU = 4096, QKEY = 0x11111111, DEPTH = 256, SLOT = GRH + MTU };

/* A UD QP with memory: its sends come from the first half, its receives go to slots of the other.
 */
struct ud {
    struct ibv_cq *sends, *receives;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    unsigned char* memory;
};
static struct ibv_pd* pd;

static inline int ud_modify(struct ibv_qp* qp, enum ibv_qp_state state, int mask) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = QKEY;
    return ibv_modify_qp(qp, &attr, mask);
}
static inline void ud_to_init(struct ibv_qp* qp) {
    MUST(ud_modify(qp, IBV_QPS_INIT,
                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
}
static inline void ud_to_rts(struct ibv_qp* qp) {
    MUST(ud_modify(qp, IBV_QPS_RTR, IBV_QP_STATE) == 0);
    MUST(ud_modify(qp, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

static inline struct ud make_ud_at_init(void) {
    struct ud u;
    struct ibv_qp_init_attr init = qp_attr();
    if (pd == NULL) MUST((pd = ibv_alloc_pd(device())) != NULL);
    MUST((u.memory = malloc((size_t)2 * DEPTH * SLOT)) != NULL);
    memset(u.memory, 0xff, (size_t)2 * DEPTH * SLOT);
    MUST((u.mr = ibv_reg_mr(pd, u.memory, (size_t)2 * DEPTH * SLOT, IBV_ACCESS_LOCAL_WRITE)) !=
         NULL);
    MUST((u.sends = ibv_create_cq(device(), DEPTH, NULL, NULL, 0)) != NULL);
    MUST((u.receives = ibv_create_cq(device(), DEPTH, NULL, NULL, 0)) != NULL);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = u.sends;
    init.recv_cq = u.receives;
    init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
    init.sq_sig_all = 0;
    MUST((u.qp = ibv_create_qp(pd, &init)) != NULL);
    CHECK(u.qp->qp_type == IBV_QPT_UD);
    ud_to_init(u.qp);
    return u;
}
static inline struct ud make_ud(void) {
    struct ud u = make_ud_at_init();
    ud_to_rts(u.qp);
    return u;
}
static inline void destroy_ud(struct ud* u) {
    CHECK(ibv_destroy_qp(u->qp) == 0);
    CHECK(ibv_destroy_cq(u->sends) == 0);
    CHECK(ibv_destroy_cq(u->receives) == 0);
    CHECK(ibv_dereg_mr(u->mr) == 0);
    free(u->memory);
}

static inline union ibv_gid own_gid(int index) {
    union ibv_gid gid;
    MUST(ibv_query_gid(device(), 1, index, &gid) == 0);
    return gid;
}
static inline struct ibv_ah_attr ah_attr_to(int index) {
    struct ibv_ah_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.is_global = 1;
    attr.port_num = 1;
    attr.dlid = 0xc000; /* as UCX has it: nothing that is looked at */
    attr.grh.dgid = own_gid(index);
    attr.grh.sgid_index = (uint8_t)index;
    attr.grh.hop_limit = 255;
    attr.grh.flow_label = 0x12345;
    attr.grh.traffic_class = 0x67;
    return attr;
}
/* To this machine by its GID `index`. */
static inline struct ibv_ah* make_ah(int index) {
    struct ibv_ah_attr attr = ah_attr_to(index);
    struct ibv_ah* const ah = ibv_create_ah(pd, &attr);
    MUST(ah != NULL);
    return ah;
}

static inline unsigned char* slot(struct ud* u, int i) {
    return u->memory + (size_t)(DEPTH + i) * SLOT;
}
static inline int ud_receive(struct ud* u, int i) {
    return post_recv_numbered(u->qp, (uint64_t)i, slot(u, i), SLOT, u->mr->lkey);
}
static inline void ud_receives(struct ud* u, int first, int n) {
    for (int i = first; i < first + n; ++i) CHECK(ud_receive(u, i) == 0);
}

struct ud_to {
    struct ibv_ah* ah;
    uint32_t num, key;
};
static inline struct ibv_send_wr ud_wr(struct ibv_sge* sge, const struct ud_to* to) {
    struct ibv_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = to->ah;
    wr.wr.ud.remote_qpn = to->num;
    wr.wr.ud.remote_qkey = to->key;
    return wr;
}
/* Signaled: `length` octets of the memory of `u`, of which the first four are `number`. */
static inline int ud_send(struct ud* u, const struct ud_to* to, uint32_t number, uint32_t length) {
    unsigned char* const at = u->memory + (size_t)(number % DEPTH) * SLOT;
    struct ibv_sge sge = {(uintptr_t)at, length, u->mr->lkey};
    struct ibv_send_wr wr = ud_wr(&sge, to), *bad;
    memset(at, (int)(number & 0xff), length);
    if (length >= 4) memcpy(at, &number, 4);
    wr.wr_id = number;
    return ibv_post_send(u->qp, &wr, &bad);
}
static inline void expect_sent(struct ud* u, uint32_t number) {
    const struct ibv_wc wc = next(u->sends);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == number &&
              wc.qp_num == u->qp->qp_num,
          "%s, wr_id %u", ibv_wc_status_str(wc.status), (unsigned)wc.wr_id);
}
/* The next that comes is that one, in receive `i`. */
static inline struct ibv_wc expect_datagram(struct ud* u, int i, uint32_t number, uint32_t length) {
    const struct ibv_wc wc = next(u->receives);
    uint32_t got = 0;
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "%s",
          ibv_wc_status_str(wc.status));
    CHECK(wc.wr_id == (uint64_t)i && wc.qp_num == u->qp->qp_num);
    CHECK(wc.byte_len == GRH + length, "%u octets", wc.byte_len);
    CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
    CHECK(wc.pkey_index == 0 && wc.slid == 0 && wc.sl == 0);
    if (length >= 4) {
        memcpy(&got, slot(u, i) + GRH, 4);
        CHECK(got == number, "%u, not %u", got, number);
        for (uint32_t at = 4; at < length; ++at) {
            if (slot(u, i)[GRH + at] == (number & 0xff)) continue;
            CHECK(0, "octet %u of datagram %u", at, number);
            break;
        }
    }
    return wc;
}
static inline void expect_nothing(struct ibv_cq* cq, int ms) {
    struct ibv_wc wc;
    int i = 0;
    do {
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        if (ms > 0) usleep(1000);
    } while (++i < ms);
}

/* ---- other processes ---- */

/* The child's exit status; -1: it has not ended in time. */
static inline int wait_for(pid_t child, double seconds) {
    const double limit = now() + seconds;
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now() < limit) usleep(500);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

enum { TOO_SLOW = 3 };
/* Runs it in a process of its own, for which the device is new; again where the machine is too slow
 * for what the body wants. */
static inline void in_child(void (*body)(void)) {
    int status = TOO_SLOW;
    for (int tries = 0; status == TOO_SLOW && tries < 5; ++tries) {
        const pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            failures = 0;
            body();
            _exit(failures != 0);
        }
        status = wait_for(child, 2 * LIMIT_S);
    }
    CHECK(status == 0, "%d", status);
}

#endif /* XSOCK_TESTS_VERBS_DATAGRAMS_H */
