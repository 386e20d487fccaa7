/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Three Sends of 1000 bytes each way over a connection of the process with itself, and an end. For
 * summary.sh, which checks what XSOCK_VERBS_SUMMARY says.
 *
 *   summary open|quick|disconnected|destroyed|reset
 */
#include "tests/verbs/pair.h"

enum { SENDS = 3, BYTES = 1000 };

static void send_one(struct rdma_cm_id* from, void* out, struct ibv_mr* out_mr,
                     struct rdma_cm_id* to, void* in, struct ibv_mr* in_mr) {
    struct ibv_wc wc;
    MUST(rdma_post_recv(to, NULL, in, BYTES, in_mr) == 0);
    MUST(rdma_post_send(from, NULL, out, BYTES, out_mr, 0) == 0);
    MUST(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    MUST(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void wait_until_ended(struct rdma_cm_id* id) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    const double end = now() + LIMIT_S;
    do {
        MUST(now() < end);
        usleep(1000);
        MUST(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
    } while (attr.qp_state != IBV_QPS_ERR);
}

int main(int argc, char** argv) {
    static struct pair pair;
    const char* const how = argc > 1 ? argv[1] : "open";
    int i;
    case_name = how;
    connect_pair(&pair);
    for (i = 0; i < SENDS; i++) {
        send_one(pair.a, pair.data_a, pair.mr_a, pair.b, pair.data_b, pair.mr_b);
        send_one(pair.b, pair.data_b, pair.mr_b, pair.a, pair.data_a, pair.mr_a);
    }
    if (strcmp(how, "quick") == 0) quick_exit(0);
    if (strcmp(how, "open") == 0) return 0;
    if (strcmp(how, "reset") == 0) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        MUST(ibv_modify_qp(pair.a->qp, &attr, IBV_QP_STATE) == 0);
        return 0;
    }
    MUST(rdma_disconnect(pair.a) == 0);
    if (strcmp(how, "disconnected") == 0) {
        wait_until_ended(pair.a);
        wait_until_ended(pair.b);
        return 0;
    }
    rdma_destroy_qp(pair.a);
    rdma_destroy_qp(pair.b);
    return 0;
}
