/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults under UD queue pairs, on the device that looks like RoCE; see faults.h. Datagrams may be
 * lost by a fault, and are sent again; but each send completes, and the next round loses none for
 * ever.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/faults/faults.h"

enum { GRH = 40, BYTES = 1024, SLOTS = 16, QKEY = 0x11111111, EXCHANGES = 3, SMALL = 64 };

struct end {
    const struct side* side;
    struct ibv_context* device;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    struct ibv_ah* ah;
    char* memory; /* a slot to send from, then those to receive into */
    int broken, receives, sending;
    uint32_t peer;
};

static void* failed(struct end* e, const char* call) {
    note(e->side, call, errno);
    e->broken = 1;
    return NULL;
}

static int is_open(struct end* e) {
    struct ibv_device** const list = ibv_get_device_list(NULL);
    if (list == NULL || list[0] == NULL) {
        failed(e, "ibv_get_device_list");
    } else if ((e->device = ibv_open_device(list[0])) == NULL) {
        failed(e, "ibv_open_device");
    }
    if (list != NULL) ibv_free_device_list(list);
    if (e->broken) return 0;
    if ((e->pd = ibv_alloc_pd(e->device)) == NULL) failed(e, "ibv_alloc_pd");
    if (e->pd == NULL) return 0;
    e->cq = ibv_create_cq(e->device, 4 * SLOTS, NULL, NULL, 0);
    if (e->cq == NULL) failed(e, "ibv_create_cq");
    e->mr =
        ibv_reg_mr(e->pd, e->memory, (size_t)(1 + SLOTS) * (GRH + BYTES), IBV_ACCESS_LOCAL_WRITE);
    if (e->mr == NULL) failed(e, "ibv_reg_mr");
    return !e->broken;
}

static int move_to(struct end* e, enum ibv_qp_state state, int mask) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = QKEY;
    errno = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | mask);
    if (errno != 0) failed(e, "ibv_modify_qp");
    return errno == 0;
}

static void receive(struct end* e, uint64_t slot) {
    struct ibv_sge sge = {(uintptr_t)e->memory + (1 + slot) * (GRH + BYTES), GRH + BYTES,
                          e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    errno = ibv_post_recv(e->qp, &wr, &bad);
    if (errno != 0) failed(e, "ibv_post_recv");
    e->receives += errno == 0;
}

static int makes_qp(struct end* e) {
    struct ibv_qp_init_attr attr;
    struct ibv_ah_attr way;
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_UD;
    attr.send_cq = attr.recv_cq = e->cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = SLOTS;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.sq_sig_all = 1;
    if ((e->qp = ibv_create_qp(e->pd, &attr)) == NULL) return failed(e, "ibv_create_qp") != NULL;
    if (!move_to(e, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) return 0;
    for (uint64_t slot = 0; slot < SLOTS; ++slot) receive(e, slot);
    if (!move_to(e, IBV_QPS_RTR, 0) || !move_to(e, IBV_QPS_RTS, IBV_QP_SQ_PSN)) return 0;
    memset(&way, 0, sizeof way);
    way.is_global = way.port_num = 1;
    if (ibv_query_gid(e->device, 1, 0, &way.grh.dgid) != 0) {
        /* Without a descriptor to ask for addresses by, the table is empty, and read again later.
         */
        if (e->side->round == 0 && errno == EINVAL) errno = ENOMEM;
        return failed(e, "ibv_query_gid") != NULL;
    }
    if ((e->ah = ibv_create_ah(e->pd, &way)) == NULL) return failed(e, "ibv_create_ah") != NULL;
    return !e->broken;
}

/* Length and Immediate Data say what it is: the number of the exchange, and whether it is the last
 * of all. */
static void send_number(struct end* e, uint32_t to, uint32_t number) {
    struct ibv_sge sge = {(uintptr_t)e->memory, number % 2 == 0 ? BYTES : SMALL, e->mr->lkey};
    struct ibv_send_wr wr, *bad;
    if (e->sending >= SLOTS) return;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = number;
    wr.wr.ud.ah = e->ah;
    wr.wr.ud.remote_qpn = to;
    wr.wr.ud.remote_qkey = QKEY;
    errno = ibv_post_send(e->qp, &wr, &bad);
    if (errno != 0) {
        note(e->side, "ibv_post_send", errno);
    } else {
        ++e->sending;
    }
}

/* Takes a completion. 1: of a datagram, of which the number and the sender are told. */
static int take(struct end* e, uint32_t* number, uint32_t* from) {
    struct ibv_wc wc;
    const int n = ibv_poll_cq(e->cq, 1, &wc);
    if (n < 0) fail("ibv_poll_cq");
    if (n == 0) return 0;
    if (wc.status != IBV_WC_SUCCESS) fail("%s", ibv_wc_status_str(wc.status));
    if (wc.opcode != IBV_WC_RECV) {
        if (--e->sending < 0) fail("a completion was not asked for");
        return 0;
    }
    *number = wc.imm_data;
    *from = wc.src_qp;
    --e->receives;
    receive(e, wc.wr_id);
    return 1;
}

static void all_complete(struct end* e) {
    const long long limit = now_ms() + LIMIT_MS;
    uint32_t number, from;
    while (e->sending > 0) {
        if (now_ms() > limit) fail("%d sends are not complete in %d ms", e->sending, LIMIT_MS);
        take(e, &number, &from);
        usleep(100);
    }
}

/* Each is sent until its answer has come. */
static void ask(struct end* e) {
    const long long limit = now_ms() + LIMIT_MS;
    uint32_t number, from;
    for (uint32_t asked = 0; asked < EXCHANGES; ++asked) {
        long long again = 0;
        for (;;) {
            const long long t = now_ms();
            if (!e->side->victim && victim_is_done(e->side)) return;
            if (t > limit && e->side->round != 0) fail("no answer in %d ms", LIMIT_MS);
            if (t > limit) return;
            if (t >= again) send_number(e, e->peer, asked);
            if (t >= again) again = t + 50;
            if (take(e, &number, &from) && number == asked) break;
            usleep(100);
        }
    }
}

/* Until the client has all answers, and then as long as it may not know it. */
static void answer(struct end* e) {
    const long long limit = now_ms() + LIMIT_MS;
    long long over = 0;
    uint32_t number, from;
    while (now_ms() < limit && (over == 0 || now_ms() < over)) {
        if (!e->side->victim && victim_is_done(e->side)) return;
        if (!take(e, &number, &from)) {
            usleep(100);
            continue;
        }
        send_number(e, from, number);
        if (number == EXCHANGES - 1) over = now_ms() + 120;
    }
    if (over == 0 && e->side->round != 0 && e->side->victim) fail("no datagram in %d ms", LIMIT_MS);
}

static void run_datagrams(const struct side* side) {
    struct end e = {.side = side, .memory = calloc(1 + SLOTS, GRH + BYTES)};
    if (e.memory == NULL) fail("no memory");
    enter(side, PHASE_START);
    if (is_open(&e) && makes_qp(&e)) {
        if (side->server) publish_port(side, (int)e.qp->qp_num);
        if (!side->server) e.peer = (uint32_t)await_port(side);
        enter(side, PHASE_TRAFFIC);
        if (side->server) answer(&e);
        if (!side->server && e.peer != 0) ask(&e);
        all_complete(&e);
    }
    enter(side, PHASE_CLOSE);
    if (e.ah != NULL && (errno = ibv_destroy_ah(e.ah)) != 0) failed(&e, "ibv_destroy_ah");
    if (e.qp != NULL && (errno = ibv_destroy_qp(e.qp)) != 0) failed(&e, "ibv_destroy_qp");
    if (e.mr != NULL && (errno = ibv_dereg_mr(e.mr)) != 0) failed(&e, "ibv_dereg_mr");
    if (e.cq != NULL && (errno = ibv_destroy_cq(e.cq)) != 0) failed(&e, "ibv_destroy_cq");
    if (e.pd != NULL && (errno = ibv_dealloc_pd(e.pd)) != 0) failed(&e, "ibv_dealloc_pd");
    if (e.device != NULL) ibv_close_device(e.device);
    free(e.memory);
}

int main(int argc, char** argv) {
    static const struct ends all[] = {{"datagrams", run_datagrams, 0}, {NULL, NULL, 0}};
    return run_faults(argc, argv, all);
}
