/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages that find no receive, as InfiniBand's retries have it: rnr_retry of the end that sends,
 * min_rnr_timer of the one that has none.
 */
#include "tests/verbs/gid_ends.h"

enum { CODE_64 = 12, CODE_41 = 24, CODE_491 = 31 }; /* 0.64, 40.96 and 491.52 ms */

/* An end that has been connected: min_rnr_timer and rnr_retry. */
static void connect_with(struct end* e, const struct end* to, uint8_t timer, uint8_t retries) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = 14,
                               .retry_cnt = 7,
                               .rnr_retry = retries,
                               .min_rnr_timer = timer,
                               .max_rd_atomic = 1};
    MUST(to_rtr(e->qp, to->qp->qp_num, &to->gid, 0) == 0);
    MUST(ibv_modify_qp(e->qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
}
/* `a` sends, `b` has no receives. */
struct two {
    struct end a, b;
};
static struct two make_two(uint8_t timer, uint8_t retries) {
    struct two t = {make_end(), make_end()};
    connect_with(&t.a, &t.b, CODE_64, retries);
    connect_with(&t.b, &t.a, timer, 7);
    exchange(&t.a, &t.b);
    return t;
}
static void free_two(struct two* t) {
    destroy_end(&t->a);
    destroy_end(&t->b);
}
static int send_8(struct end* e, uint64_t wr_id) {
    return post_numbered(e->qp, wr_id, IBV_WR_SEND, memory, 8, mr->lkey, IBV_SEND_SIGNALED, 0, 0);
}
static int receive_8(struct end* e) { return post_recv(e->qp, memory + 8, 8, mr->lkey); }
static void expect_none(struct ibv_cq* cq, double seconds) {
    const double until = now() + seconds;
    struct ibv_wc none;
    do {
        const int n = ibv_poll_cq(cq, 1, &none);
        CHECK(n == 0, "%s", n > 0 ? ibv_wc_status_str(none.status) : "");
        if (n != 0) return;
        usleep(1000);
    } while (now() < until);
}
/* The message `wr_id` has failed, and its queue pair with it. */
static void expect_exceeded(struct end* e, uint64_t wr_id) {
    const struct ibv_wc wc = next(e->cq);
    CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
    CHECK(wc.wr_id == wr_id, "%llu", (unsigned long long)wc.wr_id);
    CHECK(reaches_error(e->qp));
}

CASE(a_send_fails_when_its_retries_are_used_up) {
    struct two t = make_two(CODE_64, 3);
    const double begin = now();
    CHECK(send_8(&t.a, 1) == 0 && send_8(&t.a, 2) == 0);
    expect_exceeded(&t.a, 1);
    CHECK(now() - begin >= 4 * 0.00064, "%f", now() - begin);
    EXPECT(t.a.cq, IBV_WC_WR_FLUSH_ERR);
    /* The other end hears nothing, and is not given what has failed. */
    usleep(50000); /* until the reset has come */
    CHECK(receive_8(&t.b) == 0);
    expect_none(t.b.cq, 0.1);
    CHECK(state_of(t.b.qp) == IBV_QPS_RTS);
    free_two(&t);
}
CASE(the_first_time_is_one_too_many_without_retries) {
    struct two t = make_two(0, 0); /* the longest time: 0.655 s */
    const double begin = now();
    CHECK(send_8(&t.a, 1) == 0);
    expect_exceeded(&t.a, 1);
    CHECK(now() - begin < 1.25, "%f s: that was twice", now() - begin);
    free_two(&t);
}
CASE(seven_retries_are_without_end) {
    struct two t = make_two(1, 7);
    CHECK(send_8(&t.a, 1) == 0);
    expect_none(t.a.cq, 0.2);
    CHECK(receive_8(&t.b) == 0);
    EXPECT(t.a.cq, IBV_WC_SUCCESS);
    EXPECT(t.b.cq, IBV_WC_SUCCESS);
    free_two(&t);
}
static void take_late(uint8_t timer, uint8_t retries, uint64_t messages, useconds_t late) {
    struct two t = make_two(timer, retries);
    for (uint64_t i = 1; i <= messages; ++i) {
        CHECK(send_8(&t.a, i) == 0);
        usleep(late);
        CHECK(receive_8(&t.b) == 0);
        EXPECT(t.a.cq, IBV_WC_SUCCESS);
        EXPECT(t.b.cq, IBV_WC_SUCCESS);
    }
    free_two(&t);
}
CASE(a_receive_in_time) { take_late(CODE_491, 1, 3, 100000); }
CASE(a_receive_that_comes_too_late) {
    struct two t = make_two(CODE_64, 0);
    CHECK(send_8(&t.a, 1) == 0);
    usleep(400000); /* less than code 31 stands for */
    CHECK(receive_8(&t.b) == 0);
    expect_exceeded(&t.a, 1);
    expect_none(t.b.cq, 0.05);
    free_two(&t);
}
/* Each message has retries of its own. */
CASE(messages_that_wait_one_after_another) { take_late(CODE_41, 6, 10, 50000); }
CASE(what_was_taken_before_has_succeeded) {
    struct two t = make_two(CODE_64, 1);
    CHECK(receive_8(&t.b) == 0);
    memset(memory + 512, 0, 64);
    memset(memory, 'w', 64);
    CHECK(send_8(&t.a, 1) == 0);
    CHECK(post_numbered(t.a.qp, 2, IBV_WR_RDMA_WRITE, memory, 64, mr->lkey, IBV_SEND_SIGNALED,
                        (uintptr_t)memory + 512, mr->rkey) == 0);
    CHECK(send_8(&t.a, 3) == 0);
    EXPECT(t.a.cq, IBV_WC_SUCCESS);
    EXPECT(t.a.cq, IBV_WC_SUCCESS);
    expect_exceeded(&t.a, 3);
    CHECK(memcmp(memory, memory + 512, 64) == 0);
    free_two(&t);
}
CASE(a_write_with_immediate_needs_a_receive_too) {
    struct two t = make_two(CODE_64, 2);
    CHECK(post_numbered(t.a.qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM, memory, 64, mr->lkey,
                        IBV_SEND_SIGNALED, (uintptr_t)memory + 512, mr->rkey) == 0);
    expect_exceeded(&t.a, 1);
    free_two(&t);
}
/* The limit holds too where TCP has no room for what follows. */
CASE(a_queue_full_of_large_messages) {
    enum { LENGTH = 4 << 20, COUNT = 16 };
    struct two t = make_two(CODE_64, 2);
    char* const large = calloc(1, LENGTH);
    MUST(large != NULL);
    struct ibv_mr* const of_large = ibv_reg_mr(pd, large, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    MUST(of_large != NULL);
    for (uint64_t i = 0; i < COUNT; ++i) {
        CHECK(post_numbered(t.a.qp, i, IBV_WR_SEND, large, LENGTH, of_large->lkey,
                            IBV_SEND_SIGNALED, 0, 0) == 0);
    }
    expect_exceeded(&t.a, 0);
    for (int i = 1; i < COUNT; ++i) EXPECT(t.a.cq, IBV_WC_WR_FLUSH_ERR);
    free_two(&t);
    CHECK(ibv_dereg_mr(of_large) == 0);
    free(large);
}
/* min_rnr_timer may change later; from the next message that waits on. */
CASE(the_receiver_may_lengthen_its_time) {
    struct two t = make_two(CODE_64, 1);
    struct ibv_qp_attr attr = {.min_rnr_timer = CODE_491};
    CHECK(ibv_modify_qp(t.b.qp, &attr, IBV_QP_MIN_RNR_TIMER) == 0);
    CHECK(send_8(&t.a, 1) == 0);
    expect_none(t.a.cq, 0.3);
    CHECK(receive_8(&t.b) == 0);
    EXPECT(t.a.cq, IBV_WC_SUCCESS);
    EXPECT(t.b.cq, IBV_WC_SUCCESS);
    free_two(&t);
}
CASE(a_queue_pair_that_is_connected_to_itself) {
    struct end e = make_end();
    connect_with(&e, &e, CODE_64, 1);
    CHECK(send_8(&e, 1) == 0);
    expect_exceeded(&e, 1);
    CHECK(receive_8(&e) == 0);
    EXPECT(e.cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(send_8(&e, 2) == 0);
    EXPECT(e.cq, IBV_WC_WR_FLUSH_ERR);
    destroy_end(&e);
}
/* The same queue pairs may be used again. */
CASE(a_new_start_after_a_reset) {
    struct two t = make_two(CODE_64, 1);
    for (int i = 0; i < 5; ++i) {
        CHECK(send_8(&t.a, 1) == 0);
        expect_exceeded(&t.a, 1);
        to_reset(t.a.qp);
        to_reset(t.b.qp);
        to_init(t.a.qp);
        to_init(t.b.qp);
        connect_with(&t.a, &t.b, CODE_64, 1);
        connect_with(&t.b, &t.a, CODE_64, 7);
        exchange(&t.a, &t.b);
    }
    free_two(&t);
}
CASE(a_receive_queue_that_is_shared) {
    struct two t = {make_end(), make_end()};
    struct ibv_srq_init_attr of_srq = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq* const srq = ibv_create_srq(pd, &of_srq);
    struct ibv_sge to = {(uintptr_t)memory + 2048, 64, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad;
    struct ibv_qp_init_attr init = qp_attr();
    MUST(srq != NULL);
    CHECK(ibv_destroy_qp(t.b.qp) == 0);
    init.send_cq = init.recv_cq = t.b.cq;
    init.srq = srq;
    MUST((t.b.qp = ibv_create_qp(pd, &init)) != NULL);
    to_init(t.b.qp);
    connect_with(&t.a, &t.b, CODE_64, 2);
    connect_with(&t.b, &t.a, CODE_64, 7);
    CHECK(ibv_post_srq_recv(srq, &receive, &bad) == 0);
    CHECK(send_8(&t.a, 1) == 0);
    EXPECT(t.a.cq, IBV_WC_SUCCESS);
    EXPECT(t.b.cq, IBV_WC_SUCCESS);
    CHECK(send_8(&t.a, 2) == 0);
    expect_exceeded(&t.a, 2);
    /* Its receives are for the others. */
    usleep(50000);
    CHECK(ibv_post_srq_recv(srq, &receive, &bad) == 0);
    expect_none(t.b.cq, 0.05);
    free_two(&t);
    CHECK(ibv_destroy_srq(srq) == 0);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
