/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The states of queue pairs on the device that looks like RoCE: which attributes a change of state
 * needs and takes, what is refused, what ibv_query_qp() answers.
 *
 *     roce_states [CASE...]
 */
#include "tests/verbs/pair.h"

enum { EVERY_BIT = (1 << 21) - 1 };

/* InfiniBand's rules for RC, as far as this device goes: it has no drained send queue. */
static const struct {
    enum ibv_qp_state from, to;
    int required, allowed;
} rules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
};

static int expected(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
    if (to == IBV_QPS_RESET) return (mask & ~IBV_QP_STATE) == 0;
    if (to == IBV_QPS_ERR) return from != IBV_QPS_RESET && (mask & ~IBV_QP_STATE) == 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; ++i) {
        if (rules[i].from != from || rules[i].to != to) continue;
        const int given = mask & ~IBV_QP_STATE;
        return (given & rules[i].required) == rules[i].required &&
               (given & ~(rules[i].required | rules[i].allowed)) == 0;
    }
    return 0;
}

static struct ibv_pd* pd;
static struct ibv_cq* cq;
static union ibv_gid gid;

static struct ibv_qp* make_qp(void) {
    struct ibv_qp_init_attr init = qp_attr();
    if (pd == NULL) {
        MUST((pd = ibv_alloc_pd(device())) != NULL);
        MUST((cq = ibv_create_cq(device(), 64, NULL, NULL, 0)) != NULL);
        MUST(ibv_query_gid(device(), 1, 0, &gid) == 0);
    }
    init.send_cq = init.recv_cq = cq;
    struct ibv_qp* const qp = ibv_create_qp(pd, &init);
    MUST(qp != NULL);
    return qp;
}

/* Every attribute, with a value that holds; of a peer that never comes. */
static struct ibv_qp_attr every_attribute(enum ibv_qp_state from, enum ibv_qp_state to) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = to;
    attr.cur_qp_state = from;
    attr.path_mtu = IBV_MTU_2048;
    attr.path_mig_state = IBV_MIG_MIGRATED;
    attr.rq_psn = 0x123456;
    attr.sq_psn = 0x654321;
    attr.dest_qp_num = 0x000177;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    attr.ah_attr.is_global = attr.alt_ah_attr.is_global = 1;
    attr.ah_attr.port_num = attr.alt_ah_attr.port_num = attr.port_num = attr.alt_port_num = 1;
    attr.ah_attr.grh.dgid = attr.alt_ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.hop_limit = 7;
    attr.max_rd_atomic = 3;
    attr.max_dest_rd_atomic = 5;
    attr.min_rnr_timer = 12;
    attr.timeout = 14;
    attr.retry_cnt = 6;
    attr.rnr_retry = 5;
    return attr;
}

/* Moves a QP that is at `from` with just what is required. */
static int move(struct ibv_qp* qp, enum ibv_qp_state from, enum ibv_qp_state to) {
    struct ibv_qp_attr attr = every_attribute(from, to);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; ++i) {
        if (rules[i].from == from && rules[i].to == to)
            return ibv_modify_qp(qp, &attr, IBV_QP_STATE | rules[i].required);
    }
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}
static void move_up_to(struct ibv_qp* qp, enum ibv_qp_state to) {
    MUST(to_state(qp, IBV_QPS_RESET) == 0);
    if (to == IBV_QPS_ERR) {
        MUST(move(qp, IBV_QPS_RESET, IBV_QPS_INIT) == 0);
        MUST(move(qp, IBV_QPS_INIT, IBV_QPS_ERR) == 0);
        return;
    }
    for (int from = IBV_QPS_RESET; from < (int)to; ++from) {
        MUST(move(qp, (enum ibv_qp_state)from, (enum ibv_qp_state)(from + 1)) == 0);
    }
}

CASE(masks_at_random) {
    static const enum ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                               IBV_QPS_RTS, IBV_QPS_ERR};
    struct ibv_qp* const qp = make_qp();
    unsigned taken = 0;
    srand(17);
    for (int round = 0; round < 4000; ++round) {
        const enum ibv_qp_state from = states[rand() % 5];
        const int names_state = rand() % 8 != 0;
        const enum ibv_qp_state to = names_state ? (enum ibv_qp_state)(rand() % 8) : from;
        int mask = rand() & EVERY_BIT;
        for (size_t i = 0; i < sizeof rules / sizeof *rules; ++i) {
            if (rules[i].from != from || rules[i].to != to || rand() % 8 == 0) continue;
            mask = rules[i].required | (mask & rules[i].allowed);
            if (rand() % 3 == 0) mask ^= 1 << rand() % 21;
        }
        if ((to == IBV_QPS_RESET || to == IBV_QPS_ERR) && rand() % 2 == 0) mask = 0;
        mask = names_state ? mask | IBV_QP_STATE : mask & ~IBV_QP_STATE;
        move_up_to(qp, from);
        struct ibv_qp_attr attr = every_attribute(from, to);
        const int want = expected(from, to, mask);
        const int error = ibv_modify_qp(qp, &attr, mask);
        CHECK(error == (want ? 0 : EINVAL), "%d to %d, mask %x: %d", from, to, (unsigned)mask,
              error);
        CHECK(state_of(qp) == (error == 0 ? to : from));
        taken += error == 0;
    }
    CHECK(taken > 300, "%u", taken);
    CHECK(ibv_destroy_qp(qp) == 0);
}

CASE(what_was_set_is_told) {
    struct ibv_qp* const qp = make_qp();
    struct ibv_qp_attr told;
    struct ibv_qp_init_attr init;
    CHECK(state_of(qp) == IBV_QPS_RESET);
    move_up_to(qp, IBV_QPS_RTS);
    MUST(ibv_query_qp(qp, &told, EVERY_BIT, &init) == 0);
    const struct ibv_qp_attr set = every_attribute(IBV_QPS_RTR, IBV_QPS_RTS);
    CHECK(told.qp_state == IBV_QPS_RTS && told.cur_qp_state == IBV_QPS_RTS);
    CHECK(told.path_mtu == set.path_mtu && told.rq_psn == set.rq_psn && told.sq_psn == set.sq_psn);
    CHECK(told.dest_qp_num == set.dest_qp_num && told.qp_access_flags == set.qp_access_flags);
    CHECK(told.port_num == 1 && told.pkey_index == 0);
    CHECK(told.max_rd_atomic == 3 && told.max_dest_rd_atomic == 5, "%u %u", told.max_rd_atomic,
          told.max_dest_rd_atomic);
    CHECK(told.min_rnr_timer == 12 && told.timeout == 14 && told.retry_cnt == 6 &&
          told.rnr_retry == 5);
    CHECK(memcmp(&told.ah_attr, &set.ah_attr, sizeof set.ah_attr) == 0);
    /* Anew: nothing is left of it. */
    CHECK(to_state(qp, IBV_QPS_RESET) == 0);
    MUST(ibv_query_qp(qp, &told, EVERY_BIT, &init) == 0);
    CHECK(told.qp_state == IBV_QPS_RESET && told.dest_qp_num == 0 && told.timeout == 0);
    CHECK(init.qp_type == IBV_QPT_RC && init.sq_sig_all == 1 && init.send_cq == cq);
    CHECK(ibv_destroy_qp(qp) == 0);
}

/* What needs fewer bits, or an address of the peer's that is one: EINVAL, and nothing changes. */
CASE(values_that_do_not_hold) {
    struct ibv_qp* const qp = make_qp();
    struct ibv_qp_attr attr, told;
    struct ibv_qp_init_attr init;
    const int rtr = IBV_QP_STATE | rules[2].required, rts = IBV_QP_STATE | rules[3].required;
    move_up_to(qp, IBV_QPS_INIT);
#define REFUSED(mask, change)                                                 \
    do {                                                                      \
        attr = every_attribute(0, (mask) == rtr ? IBV_QPS_RTR : IBV_QPS_RTS); \
        change;                                                               \
        CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);                      \
    } while (0)
    REFUSED(rtr, attr.ah_attr.is_global = 0);
    REFUSED(rtr, attr.ah_attr.port_num = 2);
    REFUSED(rtr, attr.ah_attr.port_num = 0);
    REFUSED(rtr, attr.ah_attr.grh.sgid_index = 200);
    REFUSED(rtr, attr.path_mtu = 0);
    REFUSED(rtr, attr.path_mtu = (enum ibv_mtu)6);
    REFUSED(rtr, attr.min_rnr_timer = 32);
    REFUSED(rtr, attr.dest_qp_num = 0x1000000);
    REFUSED(rtr, attr.max_dest_rd_atomic = 129);
    REFUSED(rtr | IBV_QP_PKEY_INDEX, attr.pkey_index = 1; attr.qp_state = IBV_QPS_RTR);
    REFUSED(rtr, memset(&attr.ah_attr.grh.dgid, 0, sizeof gid));
    MUST(ibv_query_qp(qp, &told, EVERY_BIT, &init) == 0);
    CHECK(told.qp_state == IBV_QPS_INIT && told.dest_qp_num == 0 && told.path_mtu == 0);
    MUST(move(qp, IBV_QPS_INIT, IBV_QPS_RTR) == 0);
    REFUSED(rts, attr.timeout = 32);
    REFUSED(rts, attr.retry_cnt = 8);
    REFUSED(rts, attr.rnr_retry = 8);
    REFUSED(rts, attr.max_rd_atomic = 129);
    REFUSED(rts | IBV_QP_CUR_STATE, attr.cur_qp_state = IBV_QPS_RTS);
    CHECK(state_of(qp) == IBV_QPS_RTR);
    CHECK(ibv_destroy_qp(qp) == 0);
}

/* Receives may be posted from INIT on, sends from RTS on; in ERR all is flushed. */
CASE(what_may_be_posted) {
    static char memory[64];
    struct ibv_qp* const qp = make_qp();
    struct ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr != NULL);
    CHECK(post_recv(qp, memory, 8, mr->lkey) == EINVAL);
    move_up_to(qp, IBV_QPS_INIT);
    CHECK(post_recv(qp, memory, 8, mr->lkey) == 0);
    CHECK(post(qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == EINVAL);
    MUST(move(qp, IBV_QPS_INIT, IBV_QPS_RTR) == 0);
    CHECK(post_recv(qp, memory, 8, mr->lkey) == 0);
    CHECK(post(qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == EINVAL);
    MUST(move(qp, IBV_QPS_RTR, IBV_QPS_RTS) == 0);
    CHECK(post(qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == 0);
    CHECK(to_state(qp, IBV_QPS_ERR) == 0);
    for (int i = 0; i < 3; ++i) EXPECT(cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(post(qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == 0);
    EXPECT(cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
}

/* For ever, with an rnr_retry of 7; iWARP's connections end after a second (XSOCK_RNR_MS). */
CASE(a_send_waits_for_its_receive) {
    static char memory[64];
    struct ibv_qp* const qp = make_qp();
    struct ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr != NULL);
    move_up_to(qp, IBV_QPS_INIT);
    struct ibv_qp_attr attr = every_attribute(IBV_QPS_INIT, IBV_QPS_RTR);
    attr.dest_qp_num = qp->qp_num;
    MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | rules[2].required) == 0);
    attr = every_attribute(IBV_QPS_RTR, IBV_QPS_RTS);
    attr.rnr_retry = 7;
    MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | rules[3].required) == 0);
    memset(memory, 7, 8);
    CHECK(post(qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == 0);
    const double end = now() + 2.5;
    struct ibv_wc none;
    while (now() < end) {
        MUST(ibv_poll_cq(cq, 1, &none) == 0);
        usleep(10000);
    }
    CHECK(post_recv(qp, memory + 8, 8, mr->lkey) == 0);
    for (int i = 0; i < 2; ++i) EXPECT(cq, IBV_WC_SUCCESS);
    CHECK(memcmp(memory, memory + 8, 8) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
