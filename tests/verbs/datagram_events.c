/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Programs that sleep until a datagram comes: as soon as it does, no clock in between. */
#include <sys/prctl.h>

#include "tests/verbs/datagrams.h"

/* A program that waits until something comes. */
static void wait_for_events(void) {
    struct ud a = make_ud();
    struct ibv_comp_channel* const channel = ibv_create_comp_channel(device());
    struct ibv_cq* const cq = ibv_create_cq(device(), 16, NULL, channel, 0);
    struct ibv_qp_init_attr init = qp_attr();
    MUST(channel != NULL && cq != NULL);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = init.recv_cq = cq;
    struct ibv_qp* const qp = ibv_create_qp(pd, &init);
    MUST(qp != NULL);
    ud_to_init(qp);
    ud_to_rts(qp);
    struct ud_to to = {make_ah(0), qp->qp_num, QKEY};
    for (int solicited = 0; solicited < 2; ++solicited) {
        struct ibv_sge sge = {(uintptr_t)a.memory, 8, a.mr->lkey};
        struct ibv_send_wr wr = ud_wr(&sge, &to), *bad;
        struct ibv_cq* told;
        void* context;
        struct ibv_wc wc;
        struct pollfd waits = {channel->fd, POLLIN, 0};
        CHECK(ibv_req_notify_cq(cq, solicited) == 0);
        for (int i = 0; i < 2; ++i) {
            CHECK(post_recv_numbered(qp, 1, slot(&a, 0), SLOT, a.mr->lkey) == 0);
        }
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        if (solicited) CHECK(poll(&waits, 1, 50) == 0);
        wr.send_flags |= IBV_SEND_SOLICITED;
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        CHECK(poll(&waits, 1, LIMIT_S * 1000) == 1);
        CHECK(ibv_get_cq_event(channel, &told, &context) == 0 && told == cq);
        ibv_ack_cq_events(cq, 1);
        for (int i = 0; i < 2; ++i) {
            wc = next(cq);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + 8);
        }
    }
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

/* A QP whose queue has a channel. */
struct waiter {
    struct ud u;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
};
static struct waiter make_waiter(void) {
    struct waiter s = {.u = make_ud(), .channel = ibv_create_comp_channel(device())};
    struct ibv_qp_init_attr init = qp_attr();
    MUST(s.channel != NULL);
    MUST((s.cq = ibv_create_cq(device(), DEPTH, NULL, s.channel, 0)) != NULL);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = s.u.sends;
    init.recv_cq = s.cq;
    init.sq_sig_all = 0;
    MUST((s.qp = ibv_create_qp(pd, &init)) != NULL);
    ud_to_init(s.qp);
    ud_to_rts(s.qp);
    return s;
}
static void waiter_receive(struct waiter* s, int i) {
    CHECK(post_recv_numbered(s->qp, (uint64_t)i, slot(&s->u, i), SLOT, s->u.mr->lkey) == 0);
}
static void waiter_send(struct waiter* s, const struct ud_to* to) {
    struct ibv_sge sge = {(uintptr_t)s->u.memory, 64, s->u.mr->lkey};
    struct ibv_send_wr wr = ud_wr(&sge, to), *bad;
    wr.send_flags = IBV_SEND_INLINE;
    CHECK(ibv_post_send(s->qp, &wr, &bad) == 0);
}
/* Sleeps until one has come. */
static struct ibv_wc sleep_for_one(struct waiter* s) {
    struct ibv_wc wc;
    struct ibv_cq* told;
    void* context;
    for (;;) {
        if (ibv_poll_cq(s->cq, 1, &wc) == 1) break;
        CHECK(ibv_req_notify_cq(s->cq, 0) == 0);
        if (ibv_poll_cq(s->cq, 1, &wc) == 1) break;
        MUST(ibv_get_cq_event(s->channel, &told, &context) == 0);
        ibv_ack_cq_events(told, 1);
    }
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
    return wc;
}

/* Another process answers each, and says its number first; it ends with this one. */
static uint32_t start_answering(int from[2]) {
    uint32_t num;
    MUST(pipe(from) == 0);
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct waiter s = make_waiter();
        struct ud_to to = {make_ah(0), 0, QKEY};
        for (int i = 0; i < 16; ++i) waiter_receive(&s, i);
        MUST(write(from[1], &s.qp->qp_num, sizeof num) == sizeof num);
        for (;;) {
            const struct ibv_wc wc = sleep_for_one(&s);
            waiter_receive(&s, (int)wc.wr_id);
            to.num = wc.src_qp;
            waiter_send(&s, &to);
        }
    }
    MUST(read(from[0], &num, sizeof num) == sizeof num);
    return num;
}

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

/* Each end is woken by what arrives. Where a clock does it, a round takes 2 ms and more. */
static void exchange(void) {
    enum { ROUNDS = 200, TRIES = 5 };
    double took[ROUNDS];
    int from[2], tries = 0;
    const uint32_t num = start_answering(from);
    struct waiter s = make_waiter();
    const struct ud_to to = {make_ah(0), num, QKEY};
    waiter_receive(&s, 0);
    do { /* the machine may be slow */
        for (int i = 0; i < ROUNDS; ++i) {
            const double begin = now();
            waiter_send(&s, &to);
            sleep_for_one(&s);
            waiter_receive(&s, 0);
            took[i] = now() - begin;
        }
        qsort(took, ROUNDS, sizeof took[0], by_value);
    } while (took[ROUNDS / 2] > 0.001 && ++tries < TRIES);
    CHECK(tries < TRIES, "%.0f us", took[ROUNDS / 2] * 1e6);
}

/* Posted beside an armed queue, and no call follows: none waits for another. */
static void burst(void) {
    enum { BURST = 4, ROUNDS = 50, TRIES = 5 };
    double took[ROUNDS];
    int to_sender[2], tries = 0;
    struct ibv_wc wc;
    uint32_t num;
    char octet = 0;
    MUST(pipe(to_sender) == 0);
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        MUST(read(to_sender[0], &num, sizeof num) == sizeof num);
        struct waiter s = make_waiter();
        const struct ud_to to = {make_ah(0), num, QKEY};
        while (read(to_sender[0], &octet, 1) == 1) {
            CHECK(ibv_req_notify_cq(s.cq, 0) == 0);
            for (int i = 0; i < 20; ++i) CHECK(ibv_poll_cq(s.u.receives, 1, &wc) == 0);
            for (int i = 0; i < BURST; ++i) waiter_send(&s, &to);
        }
        _exit(0);
    }
    struct ud b = make_ud();
    MUST(write(to_sender[1], &b.qp->qp_num, sizeof num) == sizeof num);
    do {
        for (int i = 0; i < ROUNDS; ++i) {
            ud_receives(&b, 0, BURST);
            const double begin = now();
            MUST(write(to_sender[1], &octet, 1) == 1);
            for (int n = 0; n < BURST; ++n) (void)next(b.receives);
            took[i] = now() - begin;
        }
        qsort(took, ROUNDS, sizeof took[0], by_value);
    } while (took[ROUNDS / 2] > 0.001 && ++tries < TRIES);
    CHECK(tries < TRIES, "%.0f us", took[ROUNDS / 2] * 1e6);
    close(to_sender[0]);
    close(to_sender[1]);
}

CASE(wakes_a_waiter) { in_child(wait_for_events); }
CASE(an_arriving_datagram_wakes_its_program) { in_child(exchange); }
CASE(posts_beside_an_armed_queue_do_not_gather) { in_child(burst); }

int main(int argc, char** argv) { return run_cases(argc, argv); }
