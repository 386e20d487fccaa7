/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ids that connect without a queue pair, beside queue pairs that GIDs connect: what their end comes
 * behind, and when the other end is told of it.
 */
#include "tests/verbs/bare_ids.h"

/* A queue pair by GID, one end of two. */
struct by_gid {
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    char text[16];
};
static void make_by_gid(struct by_gid* g, struct bare* e) {
    struct ibv_qp_init_attr init = qp_attr();
    memset(g, 0, sizeof *g);
    MUST((g->cq = ibv_create_cq(e->id->verbs, 32, NULL, NULL, 0)) != NULL);
    init.send_cq = init.recv_cq = g->cq;
    MUST((g->qp = ibv_create_qp(e->id->pd, &init)) != NULL);
    MUST((g->mr = ibv_reg_mr(e->id->pd, g->text, sizeof g->text, ALL_ACCESS)) != NULL);
}
/* By the way that the id knows. */
static void to_peer(struct by_gid* g, struct bare* e, uint32_t peer) {
    static const enum ibv_qp_state kStates[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    for (int i = 0; i < 3; ++i) {
        struct ibv_qp_attr attr;
        int mask = 0;
        memset(&attr, 0, sizeof attr);
        attr.qp_state = kStates[i];
        MUST(rdma_init_qp_attr(e->id, &attr, &mask) == 0);
        attr.dest_qp_num = peer;
        MUST(ibv_modify_qp(g->qp, &attr, mask) == 0);
    }
}
static void free_by_gid(struct by_gid* g) {
    CHECK(ibv_destroy_qp(g->qp) == 0);
    CHECK(ibv_destroy_cq(g->cq) == 0);
    CHECK(ibv_dereg_mr(g->mr) == 0);
}

/* What was sent before the client disconnected, the server polls before it is told; and the client
 * is told, and may destroy its queue pair, once the server has disconnected as well. */
static void end_behind_data(const char* where) {
    struct connected c = make_connected(where);
    struct by_gid a, b;
    double polled;
    make_by_gid(&a, &c.client);
    make_by_gid(&b, &c.server);
    to_peer(&a, &c.client, b.qp->qp_num);
    to_peer(&b, &c.server, a.qp->qp_num);
    MUST(post_recv(b.qp, b.text, sizeof b.text, b.mr->lkey) == 0);
    strcpy(a.text, "the last");
    MUST(post(a.qp, IBV_WR_SEND, a.text, sizeof a.text, a.mr->lkey, 0, 0) == 0);
    EXPECT(a.cq, IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(c.client.id) == 0);
    CHECK(event_within(c.server.channel, 50) == NULL);
    EXPECT(b.cq, IBV_WC_SUCCESS);
    CHECK(strcmp(b.text, "the last") == 0);
    polled = now();
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(now() - polled < 1);
    CHECK(event_within(c.client.channel, 50) == NULL);
    CHECK(rdma_disconnect(c.server.id) == 0);
    expect_and_ack(c.client.channel, RDMA_CM_EVENT_DISCONNECTED);
    free_by_gid(&a);
    free_by_gid(&b);
    free_connected(&c);
}
CASE(ends_behind_data_by_ipv4) { end_behind_data("127.0.0.1"); }
CASE(ends_behind_data_by_ipv6) { end_behind_data("::1"); }

/* The server takes no notice of the end: the client is told of it all the same. */
CASE(an_end_needs_no_answer) {
    struct connected c = make_connected("127.0.0.1");
    disconnect_connected(&c, &c.client);
    free_connected(&c);
}

/* A UD queue pair in rdma_cm_id.qp cannot be connected; and the id has none for good. */
CASE(a_queue_pair_comes_too_early_or_too_late) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare client = make_client("127.0.0.1", port_of(&listener));
    struct ibv_qp_init_attr init = qp_attr();
    struct bare server;
    client.id->qp = client.qp;
    CHECK(rdma_connect(client.id, NULL) == -1 && errno == EINVAL);
    client.id->qp = NULL;
    begin_connect(&client, NULL, 0);
    server = take_request(&listener);
    say_yes(&server, NULL, 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(rdma_create_qp(client.id, NULL, &init) == -1 && errno == EINVAL);
    expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_disconnect(server.id) == 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
    free_bare(&client);
    free_bare(&server);
    free_bare(&listener);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
