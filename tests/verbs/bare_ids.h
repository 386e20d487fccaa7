/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Ids that connect without a queue pair, for the programs that test them. Included once, instead of
 * cm_events.h. */
#ifndef XSOCK_TESTS_VERBS_BARE_IDS_H
#define XSOCK_TESTS_VERBS_BARE_IDS_H

#include "tests/verbs/cm_events.h"

/* An id, and the UD queue pair that it names. */
struct bare {
    struct rdma_event_channel* channel;
    struct rdma_cm_id* id;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
};

static inline void make_dummy(struct bare* e) {
    struct ibv_qp_init_attr init = qp_attr();
    MUST((e->cq = ibv_create_cq(e->id->verbs, 1, NULL, NULL, 0)) != NULL);
    init.send_cq = init.recv_cq = e->cq;
    init.qp_type = IBV_QPT_UD;
    init.cap.max_send_wr = init.cap.max_recv_wr = 2;
    MUST((e->qp = ibv_create_qp(e->id->pd, &init)) != NULL);
}
static inline void free_dummy(struct bare* e) {
    if (e->qp != NULL) CHECK(ibv_destroy_qp(e->qp) == 0);
    if (e->cq != NULL) CHECK(ibv_destroy_cq(e->cq) == 0);
    e->qp = NULL;
    e->cq = NULL;
}
static inline struct bare make_bare(void) {
    struct bare e;
    memset(&e, 0, sizeof e);
    MUST((e.channel = rdma_create_event_channel()) != NULL);
    MUST(rdma_create_id(e.channel, &e.id, NULL, RDMA_PS_TCP) == 0);
    return e;
}
static inline void free_bare(struct bare* e) {
    if (e->id != NULL) end(e->id);
    free_dummy(e);
    if (e->channel != NULL) rdma_destroy_event_channel(e->channel);
}
static inline struct bare make_listener(const char* where) {
    struct bare e = make_bare();
    MUST(rdma_bind_addr(e.id, at(where, 0)) == 0 && rdma_listen(e.id, 128) == 0);
    return e;
}
static inline int port_of(const struct bare* e) { return ntohs(rdma_get_src_port(e->id)); }

static inline struct bare make_client(const char* to, int port) {
    struct bare e = make_bare();
    MUST(rdma_resolve_addr(e.id, NULL, at(to, port), 2000) == 0);
    expect_and_ack(e.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(e.id, 2000) == 0);
    expect_and_ack(e.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_dummy(&e);
    return e;
}
static inline struct rdma_conn_param param_of(const struct bare* e, const void* data,
                                              size_t length) {
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.qp_num = e->qp->qp_num;
    param.responder_resources = param.initiator_depth = 1;
    param.retry_count = param.rnr_retry_count = 7;
    param.private_data = data;
    param.private_data_len = (uint8_t)length;
    return param;
}
static inline void begin_connect(struct bare* e, const void* data, size_t length) {
    struct rdma_conn_param param = param_of(e, data, length);
    MUST(rdma_connect(e->id, &param) == 0);
}
/* The server's end of a request, with a channel of its own, as UCX may want it. */
static inline struct bare make_server(struct rdma_cm_event* event) {
    struct bare e;
    memset(&e, 0, sizeof e);
    e.id = event->id;
    MUST((e.channel = rdma_create_event_channel()) != NULL);
    MUST(rdma_migrate_id(e.id, e.channel) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    make_dummy(&e);
    return e;
}
static inline struct bare take_request(const struct bare* listener) {
    return make_server(expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST));
}
static inline void say_yes(struct bare* e, const void* data, size_t length) {
    struct rdma_conn_param param = param_of(e, data, length);
    MUST(rdma_accept(e->id, &param) == 0);
}
static inline void expect_data(const struct rdma_conn_param* told, char first, size_t length) {
    CHECK(told->private_data_len == length, "%u octets", told->private_data_len);
    if (length == 0 || told->private_data_len != length) return;
    CHECK(((const char*)told->private_data)[0] == first &&
          ((const char*)told->private_data)[length - 1] == first);
}

struct connected {
    struct bare listener, client, server;
};
static inline struct connected make_connected(const char* where) {
    struct connected c;
    c.listener = make_listener(where);
    c.client = make_client(where, port_of(&c.listener));
    begin_connect(&c.client, NULL, 0);
    c.server = take_request(&c.listener);
    say_yes(&c.server, NULL, 0);
    expect_and_ack(c.client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(rdma_establish(c.client.id) == 0);
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_ESTABLISHED);
    return c;
}
static inline void free_connected(struct connected* c) {
    free_bare(&c->client);
    free_bare(&c->server);
    free_bare(&c->listener);
}
/* One end disconnects: both are told, the client first. */
static inline void disconnect_connected(struct connected* c, struct bare* end) {
    CHECK(rdma_disconnect(end->id) == 0);
    expect_and_ack(c->client.channel, RDMA_CM_EVENT_DISCONNECTED);
    expect_and_ack(c->server.channel, RDMA_CM_EVENT_DISCONNECTED);
}

#endif /* XSOCK_TESTS_VERBS_BARE_IDS_H */
