/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* UD queue pairs and address handles, on the device that looks like RoCE. */
#include "tests/verbs/datagrams.h"

static void arrives_whole(int index) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(index), b.qp->qp_num, QKEY};
    const union ibv_gid gid = own_gid(index);
    static const uint32_t lengths[] = {0, 1, 4, 63, 64, 100, 1024, MTU};
    ud_receives(&b, 0, 8);
    for (int i = 0; i < 8; ++i) {
        CHECK(ud_send(&a, &to, (uint32_t)i, lengths[i]) == 0);
        expect_sent(&a, (uint32_t)i);
        const struct ibv_wc wc = expect_datagram(&b, i, (uint32_t)i, lengths[i]);
        const unsigned char* const grh = slot(&b, i);
        CHECK(wc.src_qp == a.qp->qp_num && wc.wc_flags == IBV_WC_GRH);
        CHECK(grh[0] == 0x66 && grh[1] == 0x71 && grh[2] == 0x23 && grh[3] == 0x45);
        CHECK(((uint32_t)grh[4] << 8 | grh[5]) == lengths[i]);
        CHECK(grh[6] == 17 && grh[7] == 64);
        CHECK(memcmp(grh + 8, gid.raw, 16) == 0 && memcmp(grh + 24, gid.raw, 16) == 0);
        CHECK(slot(&b, i)[GRH + lengths[i]] == 0xff); /* nothing behind it */
    }
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}
CASE(arrives_whole_over_ipv4) { arrives_whole(0); }
CASE(arrives_whole_over_ipv6) { arrives_whole(1); }

CASE(to_itself) {
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), a.qp->qp_num, QKEY};
    ud_receives(&a, 0, 1);
    CHECK(ud_send(&a, &to, 7, 100) == 0);
    expect_sent(&a, 7);
    expect_datagram(&a, 0, 7, 100);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

CASE(immediate_and_answer) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    struct ibv_sge sge = {(uintptr_t)a.memory, 8, a.mr->lkey};
    struct ibv_send_wr wr = ud_wr(&sge, &to), *bad;
    struct ibv_ah_attr attr;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(0xcafe0123);
    memset(a.memory, 0, 8);
    ud_receives(&a, 0, 1);
    ud_receives(&b, 0, 1);
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    struct ibv_wc wc = expect_datagram(&b, 0, 0, 8);
    CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
    CHECK(wc.imm_data == htonl(0xcafe0123));

    struct ibv_grh* const grh = (struct ibv_grh*)slot(&b, 0);
    CHECK(ibv_init_ah_from_wc(device(), 1, &wc, grh, &attr) == 0);
    CHECK(attr.is_global == 1 && attr.grh.sgid_index == 0 && attr.grh.flow_label == 0x12345 &&
          attr.grh.traffic_class == 0x67);
    struct ud_to back = {ibv_create_ah_from_wc(pd, &wc, grh, 1), wc.src_qp, QKEY};
    MUST(back.ah != NULL);
    CHECK(ud_send(&b, &back, 9, 64) == 0);
    expect_datagram(&a, 0, 9, 64);

    wc.wc_flags = 0;
    CHECK(ibv_create_ah_from_wc(pd, &wc, grh, 1) == NULL);
    wc.wc_flags = IBV_WC_GRH;
    grh->dgid.raw[15] ^= 0x40; /* not ours */
    CHECK(ibv_create_ah_from_wc(pd, &wc, grh, 1) == NULL);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    CHECK(ibv_destroy_ah(back.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

CASE(address_handles_that_lead_nowhere) {
    struct ud a = make_ud();
    struct ibv_ah_attr attr = ah_attr_to(0);
    attr.is_global = 0;
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    attr = ah_attr_to(0);
    attr.port_num = 2;
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    attr = ah_attr_to(0);
    attr.grh.sgid_index = 200;
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    attr = ah_attr_to(0);
    memset(attr.grh.dgid.raw, 0, 16);
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    attr = ah_attr_to(0);
    attr.grh.dgid.raw[0] = 0xff; /* multicast */
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    struct ibv_ah* const ah = make_ah(0);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_ah(ah) == 0);
    CHECK(ibv_destroy_ah(ah) == EINVAL);
    destroy_ud(&a);
    CHECK(ibv_dealloc_pd(pd) == 0);
    pd = NULL;
}

/* Each is lost, and successful; what follows arrives. */
CASE(to_nobody) {
    struct ud a = make_ud(), b = make_ud(), c = make_ud_at_init();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    const struct ud_to none[] = {
        {to.ah, b.qp->qp_num, QKEY + 1}, /* another Q_Key */
        {to.ah, c.qp->qp_num, QKEY},     /* at INIT */
        /* No QP: the three have indices that follow each other, from any on. */
        {to.ah, (b.qp->qp_num & 0xffff00) | ((b.qp->qp_num + 0x77) & 0xff), QKEY},
        {to.ah, 0x000101, QKEY}, /* a port where nobody listens */
        {to.ah, b.qp->qp_num, QKEY ^ 0x40000000},
    };
    struct ibv_port_attr port;
    unsigned violations;
    CHECK(ibv_query_port(device(), 1, &port) == 0);
    violations = port.qkey_viol_cntr;
    ud_receives(&b, 0, 2);
    ud_receives(&c, 0, 1);
    for (uint32_t i = 0; i < 5; ++i) {
        CHECK(ud_send(&a, &none[i], i, 64) == 0);
        expect_sent(&a, i);
    }
    CHECK(ud_send(&a, &to, 5, 64) == 0);
    expect_datagram(&b, 0, 5, 64);
    /* The Q_Key of the QP itself. */
    to.key = 0x80000000;
    CHECK(ud_send(&a, &to, 6, 64) == 0);
    expect_datagram(&b, 1, 6, 64);
    expect_nothing(c.receives, 20);
    CHECK(ibv_query_port(device(), 1, &port) == 0);
    CHECK(port.qkey_viol_cntr - violations == 2, "%u, %u before", port.qkey_viol_cntr, violations);
    CHECK(port.bad_pkey_cntr == 0);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
    destroy_ud(&c);
}

/* The send queue has ended then, alone, until the program moves it on. */
static void ends_send_queue(uint32_t length, uint32_t lkey_change, enum ibv_wc_status status) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    struct ibv_sge sge = {(uintptr_t)a.memory, length, a.mr->lkey ^ lkey_change};
    struct ibv_send_wr wr = ud_wr(&sge, &to), *bad;
    wr.send_flags = 0; /* failures complete in any case */
    wr.wr_id = 3;
    ud_receives(&a, 0, 1);
    ud_receives(&b, 0, 1);
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    struct ibv_wc wc = next(a.sends);
    CHECK(wc.status == status && wc.wr_id == 3, "%s", ibv_wc_status_str(wc.status));
    CHECK(state_of(a.qp) == IBV_QPS_SQE);
    CHECK(ud_send(&a, &to, 4, 64) == 0);
    EXPECT(a.sends, IBV_WC_WR_FLUSH_ERR);
    struct ud_to back = {to.ah, a.qp->qp_num, QKEY};
    CHECK(ud_send(&b, &back, 5, 64) == 0); /* it receives */
    expect_datagram(&a, 0, 5, 64);
    CHECK(ud_modify(a.qp, IBV_QPS_RTS, IBV_QP_STATE) == 0);
    CHECK(ud_send(&a, &to, 6, 64) == 0);
    expect_sent(&a, 6);
    expect_datagram(&b, 0, 6, 64);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}
CASE(too_long_to_send) { ends_send_queue(MTU + 1, 0, IBV_WC_LOC_LEN_ERR); }
CASE(without_the_key_of_its_memory) { ends_send_queue(64, 0x100, IBV_WC_LOC_PROT_ERR); }

CASE(posts_that_are_refused) {
    struct ud a = make_ud(), b = make_ud_at_init();
    struct ud_to to = {make_ah(0), a.qp->qp_num, QKEY};
    struct ibv_sge sge = {(uintptr_t)a.memory, 8, a.mr->lkey};
    struct ibv_send_wr wr = ud_wr(&sge, &to), *bad = NULL;
    wr.opcode = IBV_WR_RDMA_WRITE;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
    wr = ud_wr(&sge, &to);
    wr.wr.ud.ah = NULL;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
    wr = ud_wr(&sge, &to);
    wr.wr.ud.remote_qpn = 0x1000000;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
    wr = ud_wr(&sge, &to);
    CHECK(ibv_post_send(b.qp, &wr, &bad) == EINVAL); /* at INIT */
    sge.length = 4096;
    wr.send_flags |= IBV_SEND_INLINE;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL);
    expect_nothing(a.sends, 5);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

/* Several SGEs, and memory that may change behind the post. */
CASE(several_sges_and_inline) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    struct ibv_sge in[2] = {{(uintptr_t)a.memory, 3, a.mr->lkey},
                            {(uintptr_t)a.memory + 100, 5, a.mr->lkey}};
    struct ibv_sge out[2] = {{(uintptr_t)slot(&b, 0), GRH, b.mr->lkey},
                             {(uintptr_t)slot(&b, 1), 64, b.mr->lkey}};
    struct ibv_recv_wr receive = {.wr_id = 5, .sg_list = out, .num_sge = 2}, *bad_receive;
    for (int inlined = 0; inlined < 2; ++inlined) {
        struct ibv_send_wr wr = ud_wr(in, &to), *bad;
        wr.num_sge = 2;
        if (inlined) wr.send_flags |= IBV_SEND_INLINE;
        memcpy(a.memory, "abc", 3);
        memcpy(a.memory + 100, "defgh", 5);
        memset(slot(&b, 1), 0, 64);
        CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        if (inlined) memset(a.memory, 'x', 200);
        struct ibv_wc wc = next(b.receives);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.byte_len == GRH + 8);
        CHECK(memcmp(slot(&b, 1), "abcdefgh\0", 9) == 0);
        CHECK(slot(&b, 0)[0] == 0x66);
        EXPECT(a.sends, IBV_WC_SUCCESS);
    }
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

CASE(receive_that_is_too_short_stays) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    CHECK(post_recv_numbered(b.qp, 0, slot(&b, 0), GRH + 100, b.mr->lkey) == 0);
    CHECK(ud_send(&a, &to, 1, 101) == 0);
    CHECK(ud_send(&a, &to, 2, 100) == 0);
    expect_datagram(&b, 0, 2, 100);
    /* Too short for the header even. */
    CHECK(post_recv_numbered(b.qp, 1, slot(&b, 1), GRH - 1, b.mr->lkey) == 0);
    CHECK(ud_send(&a, &to, 3, 0) == 0);
    expect_nothing(b.receives, 20);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

CASE(receive_into_memory_that_is_not_its_own) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    CHECK(post_recv_numbered(b.qp, 1, slot(&b, 0), SLOT, b.mr->lkey ^ 0x100) == 0);
    ud_receives(&b, 0, 1);
    CHECK(ud_send(&a, &to, 1, 64) == 0);
    CHECK(ud_send(&a, &to, 2, 64) == 0);
    EXPECT(b.receives, IBV_WC_LOC_PROT_ERR);
    expect_datagram(&b, 0, 2, 64);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

/* More than a QP may have held: its carrier stops, and nothing is lost. */
CASE(what_finds_no_receive_waits) {
    struct ud a = make_ud(), b = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    enum { SENT = 200 };
    for (uint32_t i = 0; i < SENT; ++i) CHECK(ud_send(&a, &to, i, MTU) == 0);
    for (uint32_t i = 0; i < SENT; ++i) expect_sent(&a, i);
    usleep(50000);
    ud_receives(&b, 0, SENT);
    for (int i = 0; i < SENT; ++i) expect_datagram(&b, i, (uint32_t)i, MTU);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
}

/* Not for ever; and no other QP of the process has to do without meanwhile. */
CASE(a_qp_without_receives_keeps_up_nobody) {
    struct ud a = make_ud(), b = make_ud(), c = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY}, other = {to.ah, c.qp->qp_num, QKEY};
    ud_receives(&c, 0, 2);
    CHECK(ud_send(&a, &other, 1, 64) == 0);
    expect_sent(&a, 1);
    expect_datagram(&c, 0, 1, 64);
    for (uint32_t i = 0; i < 100; ++i) {
        CHECK(ud_send(&a, &to, i, MTU) == 0);
        expect_sent(&a, i);
    }
    CHECK(ud_send(&a, &other, 2, 64) == 0);
    const double begin = now();
    expect_datagram(&c, 1, 2, 64);
    CHECK(now() - begin < 3, "%.1f s", now() - begin);
    usleep(1100000);
    ud_receives(&b, 0, 1);
    CHECK(ud_send(&a, &to, 500, 64) == 0);
    expect_datagram(&b, 0, 500, 64);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
    destroy_ud(&c);
}

CASE(error_and_reset) {
    struct ud a = make_ud(), b = make_ud(), c = make_ud();
    struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY}, other = {to.ah, c.qp->qp_num, QKEY};
    ud_receives(&b, 0, 3);
    CHECK(to_state(b.qp, IBV_QPS_ERR) == 0);
    for (int i = 0; i < 3; ++i) EXPECT(b.receives, IBV_WC_WR_FLUSH_ERR);
    ud_receives(&b, 0, 1);
    EXPECT(b.receives, IBV_WC_WR_FLUSH_ERR);
    CHECK(ud_send(&b, &to, 0, 8) == 0);
    EXPECT(b.sends, IBV_WC_WR_FLUSH_ERR);
    ud_receives(&c, 0, 1);
    CHECK(ud_send(&a, &to, 1, 64) == 0); /* lost, when that behind it has come */
    CHECK(ud_send(&a, &other, 2, 64) == 0);
    expect_sent(&a, 1);
    expect_sent(&a, 2);
    expect_datagram(&c, 0, 2, 64);

    CHECK(to_state(b.qp, IBV_QPS_RESET) == 0);
    ud_to_init(b.qp);
    ud_receives(&b, 0, 1);
    ud_to_rts(b.qp);
    for (int i = 0; i < 50; ++i) { /* the receive is the one posted since */
        CHECK(ud_send(&a, &to, 2, 64) == 0);
        expect_sent(&a, 2);
    }
    expect_datagram(&b, 0, 2, 64);
    ud_receives(&b, 1, 4);
    CHECK(to_state(b.qp, IBV_QPS_RESET) == 0);
    expect_nothing(b.receives, 20);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&b);
    destroy_ud(&c);
}

/* Slots of a send queue are free once their completions are polled, or the QP is reset. */
CASE(as_many_sends_as_there_is_room_for) {
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), 0x000101, QKEY};
    for (int round = 0; round < 3; ++round) {
        int posted = 0;
        while (ud_send(&a, &to, (uint32_t)posted, 64) == 0) MUST(++posted <= 2 * DEPTH);
        CHECK(posted == DEPTH, "%d", posted);
        if (round == 1) {
            CHECK(to_state(a.qp, IBV_QPS_RESET) == 0);
            ud_to_init(a.qp);
            ud_to_rts(a.qp);
            continue;
        }
        for (int i = 0; i < posted; ++i) expect_sent(&a, (uint32_t)i);
    }
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

/* They are not told, and so need no room in a completion queue that others use. */
CASE(what_waits_at_a_reset_is_told_to_nobody) {
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), 0x000101, QKEY};
    struct ibv_cq* const cq = ibv_create_cq(device(), 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp* qps[2];
    MUST(cq != NULL);
    init.qp_type = IBV_QPT_UD;
    init.send_cq = init.recv_cq = cq;
    init.cap.max_send_wr = DEPTH;
    init.sq_sig_all = 0;
    for (int i = 0; i < 2; ++i) {
        MUST((qps[i] = ibv_create_qp(pd, &init)) != NULL);
        ud_to_init(qps[i]);
        ud_to_rts(qps[i]);
    }
    for (int last = 0; last < 2; ++last) {
        struct ibv_sge sge = {(uintptr_t)a.memory, MTU, a.mr->lkey};
        struct ibv_send_wr wr = ud_wr(&sge, &to), *bad;
        wr.send_flags = 0;
        to.num += 1 << 8; /* another port where nobody listens: it is dialed for a second */
        wr.wr.ud.remote_qpn = to.num;
        for (int i = 0; i < DEPTH; ++i) CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
        if (last) {
            CHECK(ibv_destroy_qp(qps[0]) == 0);
        } else {
            CHECK(to_state(qps[0], IBV_QPS_RESET) == 0);
            ud_to_init(qps[0]);
            ud_to_rts(qps[0]);
        }
        const struct ud_to itself = {to.ah, qps[1]->qp_num, QKEY};
        wr = ud_wr(&sge, &itself);
        CHECK(post_recv_numbered(qps[1], 1, slot(&a, 0), SLOT, a.mr->lkey) == 0);
        CHECK(ibv_post_send(qps[1], &wr, &bad) == 0);
        for (int i = 0; i < 2; ++i) EXPECT(cq, IBV_WC_SUCCESS);
        CHECK(state_of(qps[1]) == IBV_QPS_RTS);
    }
    CHECK(ibv_destroy_qp(qps[1]) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

/* They get nothing any more, and others need the memory. */
CASE(qps_that_do_not_receive_keep_no_memory) {
    enum { QPS = 4, SENT = 63 };
    struct ud a = make_ud(), b[QPS], c = make_ud(), d = make_ud();
    struct ud_to to = {make_ah(0), 0, QKEY}, other = {to.ah, c.qp->qp_num, QKEY};
    struct ud_to good = {to.ah, d.qp->qp_num, QKEY};
    double took = LIMIT_S;
    for (int i = 0; i < QPS; ++i) b[i] = make_ud();
    for (int tries = 0; tries < 5 && took > 0.9; ++tries) { /* the machine may be slow */
        ud_receives(&d, 0, 2);
        for (int i = 0; i < QPS; ++i) {
            CHECK(to_state(b[i].qp, IBV_QPS_RESET) == 0);
            ud_to_init(b[i].qp);
            ud_to_rts(b[i].qp);
            to.num = b[i].qp->qp_num;
            for (uint32_t n = 0; n < SENT; ++n) {
                CHECK(ud_send(&a, &to, n, MTU) == 0);
                expect_sent(&a, n);
            }
        }
        CHECK(ud_send(&a, &good, 0, 64) == 0);
        expect_sent(&a, 0);
        expect_datagram(&d, 0, 0, 64);
        usleep(1100000);
        const double begin = now();
        for (uint32_t n = 1; n < 8; ++n) { /* more than the rest of the memory */
            CHECK(ud_send(&a, &other, n, MTU) == 0);
            expect_sent(&a, n);
        }
        CHECK(ud_send(&a, &good, 9, 64) == 0);
        expect_sent(&a, 9);
        expect_datagram(&d, 1, 9, 64);
        took = now() - begin;
        ud_receives(&c, 0, 7);
        for (int i = 0; i < 7; ++i) expect_datagram(&c, i, (uint32_t)i + 1, MTU);
    }
    CHECK(took <= 0.9, "%.1f s", took);
    for (int i = 0; i < QPS; ++i) destroy_ud(&b[i]);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
    destroy_ud(&c);
    destroy_ud(&d);
}

/* What UD has not. */
CASE(kinds_that_are_refused) {
    struct ud a = make_ud();
    struct ibv_qp_init_attr init = qp_attr();
    init.send_cq = init.recv_cq = a.sends;
    init.qp_type = IBV_QPT_RAW_PACKET;
    CHECK(ibv_create_qp(pd, &init) == NULL && errno == EOPNOTSUPP);
    init.qp_type = IBV_QPT_XRC_SEND;
    CHECK(ibv_create_qp(pd, &init) == NULL && errno == EOPNOTSUPP);
    destroy_ud(&a);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
