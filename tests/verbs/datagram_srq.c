/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * UD queue pairs whose receives are those of a shared receive queue, and such that are posted to by
 * ibv_wr_*().
 */
#include "tests/verbs/datagrams.h"

static struct ibv_srq* make_srq(uint32_t depth) {
    struct ibv_srq_init_attr init;
    memset(&init, 0, sizeof init);
    init.attr.max_wr = depth;
    init.attr.max_sge = 2;
    if (pd == NULL) MUST((pd = ibv_alloc_pd(device())) != NULL);
    struct ibv_srq* const srq = ibv_create_srq(pd, &init);
    MUST(srq != NULL);
    return srq;
}
/* As make_ud(), with the receives of `srq`. */
static struct ud make_shared(struct ibv_srq* srq) {
    struct ud u = make_ud();
    struct ibv_qp_init_attr init = qp_attr();
    CHECK(ibv_destroy_qp(u.qp) == 0);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = u.sends;
    init.recv_cq = u.receives;
    init.srq = srq;
    init.cap.max_send_wr = DEPTH;
    init.sq_sig_all = 0;
    MUST((u.qp = ibv_create_qp(pd, &init)) != NULL);
    ud_to_init(u.qp);
    ud_to_rts(u.qp);
    return u;
}
static int give(struct ibv_srq* srq, struct ud* memory, int i, uint32_t length) {
    struct ibv_sge sge = {(uintptr_t)slot(memory, i), length, memory->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    return ibv_post_srq_recv(srq, &wr, &bad);
}
/* The next completion of `u` is datagram `number`; whose memory it lies in is in `memory`. */
static void expect_shared(struct ud* u, struct ud* memory, uint32_t number) {
    const struct ibv_wc wc = next(u->receives);
    uint32_t got = 0;
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.qp_num == u->qp->qp_num);
    CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
    memcpy(&got, slot(memory, (int)wc.wr_id) + GRH, sizeof got);
    CHECK(got == number, "%u, not %u", got, number);
}

CASE(queue_pairs_share_receives) {
    struct ibv_srq* const srq = make_srq(64);
    struct ud sender = make_ud(), a = make_shared(srq), b = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    for (int i = 0; i < 32; ++i) CHECK(give(srq, &a, i, SLOT) == 0);
    for (uint32_t i = 0; i < 32; ++i) {
        struct ud* const to = i % 3 == 0 ? &a : &b;
        const struct ud_to where = {ah, to->qp->qp_num, QKEY};
        CHECK(ud_send(&sender, &where, i, 100 + i) == 0);
        expect_sent(&sender, i);
        expect_shared(to, &a, i);
    }
    CHECK(ud_receive(&a, 0) == EINVAL); /* not to the queue pair */
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&a);
    destroy_ud(&b);
    CHECK(ibv_destroy_srq(srq) == 0);
}

/* What finds none waits until some are posted, whichever queue pair it is for. */
CASE(datagrams_wait_for_shared_receives) {
    struct ibv_srq* const srq = make_srq(DEPTH);
    struct ud sender = make_ud(), a = make_shared(srq), b = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    const struct ud_to to_a = {ah, a.qp->qp_num, QKEY}, to_b = {ah, b.qp->qp_num, QKEY};
    for (int round = 0; round < 20; ++round) {
        for (uint32_t i = 0; i < 8; ++i) {
            CHECK(ud_send(&sender, i % 2 == 0 ? &to_a : &to_b, i, 200) == 0);
            expect_sent(&sender, i);
        }
        if (round % 2 == 0) usleep(5000);
        for (int i = 0; i < 8; ++i) {
            CHECK(give(srq, &a, i, SLOT) == 0);
            if (round % 4 < 2) usleep(200);
        }
        for (uint32_t i = 0; i < 8; ++i) expect_shared(i % 2 == 0 ? &a : &b, &a, i);
    }
    expect_nothing(a.receives, 5);
    expect_nothing(b.receives, 0);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&a);
    destroy_ud(&b);
    CHECK(ibv_destroy_srq(srq) == 0);
}

/* 20,000 of them, by two queue pairs, with far fewer receives than are on their way. */
CASE(nothing_is_lost_while_receives_come) {
    enum { MANY = 20000, ROOM = 16 };
    struct ibv_srq* const srq = make_srq(ROOM);
    struct ud sender = make_ud(), a = make_shared(srq), b = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    const struct ud_to to[2] = {{ah, a.qp->qp_num, QKEY}, {ah, b.qp->qp_num, QKEY}};
    uint32_t sent = 0, done = 0, got = 0, expected[2] = {0, 1};
    const double limit = now() + LIMIT_S;
    for (int i = 0; i < ROOM; ++i) CHECK(give(srq, &a, i, SLOT) == 0);
    while (got < MANY && now() < limit) {
        struct ibv_wc wc;
        if (sent < MANY && sent - done < 64) {
            MUST(ud_send(&sender, &to[sent % 2], sent, 64) == 0);
            ++sent;
        }
        while (ibv_poll_cq(sender.sends, 1, &wc) == 1) {
            CHECK(wc.status == IBV_WC_SUCCESS);
            ++done;
        }
        for (int end = 0; end < 2; ++end) {
            struct ud* const u = end == 0 ? &a : &b;
            while (ibv_poll_cq(u->receives, 1, &wc) == 1) {
                uint32_t number = 0;
                MUST(wc.status == IBV_WC_SUCCESS);
                memcpy(&number, slot(&a, (int)wc.wr_id) + GRH, sizeof number);
                if (number != expected[end]) {
                    CHECK(number == expected[end], "%u, not %u", number, expected[end]);
                    exit(1);
                }
                expected[end] += 2;
                ++got;
                MUST(give(srq, &a, (int)wc.wr_id, SLOT) == 0);
            }
        }
    }
    CHECK(got == MANY, "%u", got);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&a);
    destroy_ud(&b);
    CHECK(ibv_destroy_srq(srq) == 0);
}

/* A receive that is too short stays for the next, of whichever queue pair. */
CASE(a_short_receive_stays) {
    struct ibv_srq* const srq = make_srq(16);
    struct ud sender = make_ud(), a = make_shared(srq), b = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    const struct ud_to to_a = {ah, a.qp->qp_num, QKEY}, to_b = {ah, b.qp->qp_num, QKEY};
    CHECK(give(srq, &a, 3, GRH + 50) == 0);
    CHECK(ud_send(&sender, &to_a, 1, 51) == 0);
    expect_sent(&sender, 1);
    expect_nothing(a.receives, 20);
    CHECK(ud_send(&sender, &to_b, 2, 50) == 0);
    expect_sent(&sender, 2);
    expect_shared(&b, &a, 2);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&a);
    destroy_ud(&b);
    CHECK(ibv_destroy_srq(srq) == 0);
}

/* A queue pair that fails, is reset or goes takes no receive with it. */
CASE(receives_stay_when_a_queue_pair_goes) {
    struct ibv_srq* const srq = make_srq(16);
    struct ud sender = make_ud(), a = make_shared(srq), b = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    struct ibv_async_event event;
    struct pollfd told = {device()->async_fd, POLLIN, 0};
    for (int i = 0; i < 3; ++i) CHECK(give(srq, &b, i, SLOT) == 0);
    CHECK(to_state(a.qp, IBV_QPS_ERR) == 0);
    expect_nothing(a.receives, 5);
    MUST(poll(&told, 1, LIMIT_S * 1000) == 1 && ibv_get_async_event(device(), &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == a.qp);
    ibv_ack_async_event(&event);
    CHECK(to_state(a.qp, IBV_QPS_RESET) == 0);
    destroy_ud(&a);
    for (uint32_t i = 0; i < 3; ++i) {
        const struct ud_to to = {ah, b.qp->qp_num, QKEY};
        CHECK(ud_send(&sender, &to, i, 60) == 0);
        expect_sent(&sender, i);
        expect_shared(&b, &b, i);
    }
    CHECK(poll(&told, 1, 0) == 0);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&b);
    CHECK(ibv_destroy_srq(srq) == 0);
}

CASE(the_limit_is_told) {
    struct ibv_srq* const srq = make_srq(16);
    struct ud sender = make_ud(), a = make_shared(srq);
    struct ibv_ah* const ah = make_ah(0);
    const struct ud_to to = {ah, a.qp->qp_num, QKEY};
    struct ibv_srq_attr attr = {.srq_limit = 3};
    struct ibv_async_event event;
    struct pollfd told = {device()->async_fd, POLLIN, 0};
    for (int i = 0; i < 4; ++i) CHECK(give(srq, &a, i, SLOT) == 0);
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
    for (uint32_t i = 0; i < 2; ++i) {
        CHECK(ud_send(&sender, &to, i, 60) == 0);
        expect_sent(&sender, i);
        expect_shared(&a, &a, i);
    }
    MUST(poll(&told, 1, LIMIT_S * 1000) == 1 && ibv_get_async_event(device(), &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&sender);
    destroy_ud(&a);
    CHECK(ibv_destroy_srq(srq) == 0);
}

/* ---- ibv_wr_*() ---- */

static struct ibv_qp_ex* make_ex(struct ud* u, uint64_t ops) {
    struct ibv_qp_init_attr_ex init;
    struct ibv_qp* qp;
    memset(&init, 0, sizeof init);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = u->sends;
    init.recv_cq = u->receives;
    init.cap = qp_attr().cap;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd;
    init.send_ops_flags = ops;
    qp = ibv_create_qp_ex(device(), &init);
    if (qp == NULL) return NULL;
    CHECK(ibv_destroy_qp(u->qp) == 0);
    u->qp = qp;
    ud_to_init(qp);
    ud_to_rts(qp);
    return ibv_qp_to_qp_ex(qp);
}

CASE(extended_posts) {
    struct ud a = make_ud(), b = make_ud();
    struct ibv_ah* const ah = make_ah(0);
    struct ibv_qp_ex* const ex = make_ex(&a, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    const uint32_t number = 9;
    struct ibv_data_buf parts[2] = {{a.memory + 100, 20}, {a.memory + 200, 30}};
    struct ibv_sge list[2] = {{(uintptr_t)a.memory, 30, 0}, {(uintptr_t)a.memory + 500, 20, 0}};
    struct ibv_wc wc;
    MUST(ex != NULL);
    ud_receives(&b, 0, 8);
    memset(a.memory, 7, 1000);
    memcpy(a.memory, &number, sizeof number);
    list[0].lkey = list[1].lkey = a.mr->lkey;

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory, 64);
    ex->wr_id = 2;
    ibv_wr_send_imm(ex, htonl(0xabcd1234));
    ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
    ibv_wr_set_inline_data_list(ex, 2, parts);
    ex->wr_id = 3;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
    ibv_wr_set_sge_list(ex, 2, list);
    memset(parts[0].addr, 1, 20); /* inline data were copied */
    CHECK(ibv_wr_complete(ex) == 0);
    expect_sent(&a, 1);
    expect_sent(&a, 2);
    wc = next(b.receives);
    CHECK(wc.byte_len == GRH + 64 && wc.src_qp == a.qp->qp_num && slot(&b, 0)[GRH + 63] == 7);
    CHECK(memcmp(slot(&b, 0) + GRH, &number, sizeof number) == 0);
    wc = next(b.receives);
    CHECK(wc.byte_len == GRH + 50 && (wc.wc_flags & IBV_WC_WITH_IMM) != 0 &&
          wc.imm_data == htonl(0xabcd1234) && slot(&b, 1)[GRH] == 7 && slot(&b, 1)[GRH + 49] == 7);
    wc = next(b.receives);
    CHECK(wc.byte_len == GRH + 50 && (wc.wc_flags & IBV_WC_WITH_IMM) == 0);
    expect_nothing(a.sends, 5);

    /* All or none: one without an address spoils the others. */
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory, 64);
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory, 64);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    expect_nothing(b.receives, 10);
    expect_nothing(a.sends, 0);

    /* More than there is room for. */
    ibv_wr_start(ex);
    for (int i = 0; i < 1000; ++i) {
        ibv_wr_send(ex);
        ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
        ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory, 64);
    }
    CHECK(ibv_wr_complete(ex) == ENOMEM);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    expect_nothing(b.receives, 10);

    /* And it goes on, by either way. */
    ibv_wr_start(ex);
    ex->wr_id = 5;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, b.qp->qp_num, QKEY);
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.memory, 64);
    CHECK(ibv_wr_complete(ex) == 0);
    expect_sent(&a, 5);
    const struct ud_to to = {ah, b.qp->qp_num, QKEY};
    CHECK(ud_send(&a, &to, 6, 64) == 0);
    expect_sent(&a, 6);
    CHECK(next(b.receives).status == IBV_WC_SUCCESS && next(b.receives).status == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

CASE(operations_that_datagrams_have_not) {
    struct ud a = make_ud();
    CHECK(make_ex(&a, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE) == NULL &&
          errno == EOPNOTSUPP);
    CHECK(make_ex(&a, IBV_QP_EX_WITH_SEND_WITH_INV) == NULL && errno == EOPNOTSUPP);
    destroy_ud(&a);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
