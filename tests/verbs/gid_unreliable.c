/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs of type UC, which only the device that looks like RoCE has.
 */
#include "tests/verbs/gid_ends.h"

/* No Reads, and silence about what the peer does not take. */
CASE(an_unreliable_connection) {
    struct end other = make_end(); /* RC */
    type = IBV_QPT_UC;
    struct end a = make_end(), b = make_end();
    struct ibv_sge there = {(uintptr_t)memory + 1024, 64, mr->lkey};
    struct ibv_sge here = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &there, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr write = {.wr_id = 2,
                                .sg_list = &here,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                .imm_data = htonl(77)};
    struct ibv_send_wr* bad;
    struct ibv_wc wc;
    uint32_t higher = a.qp->qp_num > b.qp->qp_num ? a.qp->qp_num : b.qp->qp_num;
    struct end* const waits = a.qp->qp_num == higher ? &a : &b;
    struct end* const dials = waits == &a ? &b : &a;
    connect_to(waits, dials);
    unsigned char request[REQUEST];
    request_of(request, dials->qp->qp_num, higher); /* that of an RC QP */
    const int fd = dial(higher, &waits->gid);
    CHECK(answer_to(fd, request, sizeof request) == OTHER_KIND);
    close(fd);
    connect_to(dials, waits);
    exchange(&a, &b);
    write.wr.rdma.remote_addr = there.addr;
    write.wr.rdma.rkey = mr->rkey;
    memset(memory, 'u', 64);
    CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
    CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
    EXPECT(a.cq, IBV_WC_SUCCESS);
    wc = next(b.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(77));
    CHECK(memcmp(memory, memory + 1024, 64) == 0);
    static const enum ibv_wr_opcode none[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                              IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND_WITH_INV};
    for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
        struct ibv_send_wr wr = write;
        wr.opcode = none[i];
        CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
    }
    /* A Write that b refuses: neither hears of it, and what follows is dropped as well. */
    CHECK(ibv_post_recv(a.qp, &receive, &bad_receive) == 0);
    CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.rkey = mr->rkey ^ 0x55500;
    for (int i = 0; i < 100; ++i) {
        CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
        EXPECT(a.cq, IBV_WC_SUCCESS);
        if (i % 10 == 0) usleep(5000);
    }
    write.wr.rdma.rkey = mr->rkey;
    memset(memory, 'v', 64);
    CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
    EXPECT(a.cq, IBV_WC_SUCCESS);
    usleep(20000);
    CHECK(memory[1024] == 'u');
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_poll_cq(b.cq, 1, &wc) == 0);
    CHECK(state_of(a.qp) == IBV_QPS_RTS && state_of(b.qp) == IBV_QPS_RTS);
    /* Until the program says so. */
    CHECK(to_state(a.qp, IBV_QPS_ERR) == 0);
    EXPECT(a.cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
    EXPECT(a.cq, IBV_WC_WR_FLUSH_ERR);
    /* An error of its own is told. */
    to_reset(a.qp);
    to_reset(b.qp);
    CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
    to_init(a.qp);
    to_init(b.qp);
    connect_to(&a, &b);
    connect_to(&b, &a);
    exchange(&a, &b);
    here.lkey ^= 0x55500;
    CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
    EXPECT(a.cq, IBV_WC_LOC_PROT_ERR);
    destroy_end(&a);
    destroy_end(&b);
    type = IBV_QPT_RC;
    destroy_end(&other);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
