/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What rdma_cm says on the device that looks like RoCE, where it differs from iWARP: reasons of a
 * rejection, private data in a room of one size, TIMEWAIT_EXIT, attributes of queue pairs.
 */
#include "tests/verbs/bare_ids.h"

enum { REQUEST_ROOM = 56, ANSWER_ROOM = 196, REJECTION_ROOM = 148 };

/* `length` bytes of `first`, then zeroes up to the room. */
static void expect_room(const struct rdma_cm_event* event, char first, size_t length, size_t room) {
    const char* const data = event->param.conn.private_data;
    const size_t told = event->param.conn.private_data_len;
    CHECK(told == (length > room ? length : room), "%zu bytes", told);
    for (size_t i = 0; i < told; ++i) {
        MUST(data != NULL);
        CHECK(data[i] == (i < length ? first : 0), "byte %zu of %s", i,
              rdma_event_str(event->event));
    }
}

static void disconnect_both(struct bare* client, struct bare* server) {
    CHECK(rdma_disconnect(client->id) == 0);
    expect_and_ack(server->channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(server->id) == 0);
    expect_and_ack(client->channel, RDMA_CM_EVENT_DISCONNECTED);
}

/* Ends with queue pairs of their own, or without. */
static void connect_and_end(int queue_pairs, size_t asked_length, size_t answered_length) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare client = make_client("127.0.0.1", port_of(&listener)), server;
    struct ibv_qp_init_attr init = qp_attr();
    const enum rdma_cm_event_type answer =
        queue_pairs ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE;
    char asked[255], answered[255];
    struct rdma_cm_event* event;
    double begun;
    memset(asked, 'q', sizeof asked);
    memset(answered, 'a', sizeof answered);
    if (queue_pairs) MUST(rdma_create_qp(client.id, NULL, &init) == 0);
    begin_connect(&client, asked, asked_length);
    event = expect_event(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    expect_room(event, 'q', asked_length, REQUEST_ROOM);
    server = make_server(event);
    init = qp_attr();
    if (queue_pairs) MUST(rdma_create_qp(server.id, NULL, &init) == 0);
    say_yes(&server, answered, answered_length);
    event = expect_event(client.channel, answer);
    expect_room(event, 'a', answered_length, ANSWER_ROOM);
    CHECK(rdma_ack_cm_event(event) == 0);
    if (!queue_pairs) CHECK(rdma_establish(client.id) == 0);
    event = expect_event(server.channel, RDMA_CM_EVENT_ESTABLISHED);
    expect_room(event, 0, 0, 0);
    CHECK(rdma_ack_cm_event(event) == 0);

    begun = now();
    disconnect_both(&client, &server);
    expect_and_ack(client.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CHECK(now() - begun >= 0.128, "after %.3f s", now() - begun);
    expect_and_ack(server.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CHECK(event_within(client.channel, 300) == NULL && event_within(server.channel, 0) == NULL);
    free_bare(&server);
    free_bare(&client);
    free_bare(&listener);
}
CASE(ids_with_queue_pairs) { connect_and_end(1, 3, 5); }
CASE(ids_without_queue_pairs) { connect_and_end(0, 3, 5); }
CASE(nothing_said) { connect_and_end(1, 0, 0); }
CASE(more_said_than_infiniband_has_room_for) { connect_and_end(1, 200, 230); }

/* An id that is gone is told nothing more. */
CASE(destroyed_before_its_time_has_passed) {
    struct connected c = make_connected("127.0.0.1");
    disconnect_both(&c.client, &c.server);
    end(c.client.id);
    c.client.id = NULL;
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CHECK(event_within(c.client.channel, 300) == NULL);
    free_connected(&c);
}

/* The end that was left may take its time, and is told nothing before it has disconnected. */
CASE(the_time_begins_when_the_program_has_disconnected) {
    struct connected c = make_connected("127.0.0.1");
    CHECK(rdma_disconnect(c.client.id) == 0);
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(event_within(c.server.channel, 300) == NULL);
    const double begun = now();
    CHECK(rdma_disconnect(c.server.id) == 0);
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CHECK(now() - begun >= 0.128, "%f s", now() - begun);
    free_connected(&c);
}

CASE(rejected_by_the_program) {
    struct bare listener = make_listener("127.0.0.1");
    struct rdma_cm_event* event;
    for (int data = 0; data < 2; ++data) {
        struct bare client = make_client("127.0.0.1", port_of(&listener)), server;
        begin_connect(&client, NULL, 0);
        server = take_request(&listener);
        CHECK(rdma_reject(server.id, data ? "no" : NULL, data ? 1 : 0) == 0);
        event = expect_event(client.channel, RDMA_CM_EVENT_REJECTED);
        CHECK(event->status == PROGRAM_REJECTED, "%d", event->status);
        expect_room(event, 'n', (size_t)data, REJECTION_ROOM);
        CHECK(rdma_ack_cm_event(event) == 0);
        free_bare(&server);
        free_bare(&client);
    }
    free_bare(&listener);
}

CASE(rejected_for_nobody_listens) {
    struct bare listener = make_listener("127.0.0.1");
    const int port = port_of(&listener);
    struct bare client;
    struct rdma_cm_event* event;
    free_bare(&listener);
    client = make_client("127.0.0.1", port);
    begin_connect(&client, NULL, 0);
    event = expect_event(client.channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == NOBODY_LISTENS, "%d", event->status);
    expect_room(event, 0, 0, REJECTION_ROOM);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_bare(&client);
}

/* Before the server has answered: nothing is left that could be connected. */
CASE(a_queue_pair_is_reset_while_it_connects) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare client = make_client("127.0.0.1", port_of(&listener)), server;
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct rdma_cm_event* event;
    MUST(rdma_create_qp(client.id, NULL, &init) == 0);
    begin_connect(&client, NULL, 0);
    server = take_request(&listener);
    CHECK(ibv_modify_qp(client.id->qp, &reset, IBV_QP_STATE) == 0);
    event = expect_event(client.channel, RDMA_CM_EVENT_CONNECT_ERROR);
    CHECK(event->status == -ECONNABORTED, "%d", event->status);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(event_within(client.channel, 50) == NULL);
    free_bare(&server);
    free_bare(&client);
    free_bare(&listener);
}

/* What rdma_init_qp_attr() names is what Linux names, at either end. */
static void expect_masks(struct bare* e, uint32_t num) {
    static const struct {
        enum ibv_qp_state state;
        int mask;
    } steps[] = {
        {IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
        struct ibv_qp_attr attr;
        int mask = 0;
        memset(&attr, 0, sizeof attr);
        attr.qp_state = steps[i].state;
        MUST(rdma_init_qp_attr(e->id, &attr, &mask) == 0);
        CHECK(mask == steps[i].mask, "state %d: %x, not %x", (int)steps[i].state, (unsigned)mask,
              (unsigned)steps[i].mask);
        CHECK(steps[i].state != IBV_QPS_RTR || attr.dest_qp_num == num, "%x", attr.dest_qp_num);
    }
}
CASE(attributes_that_move_a_queue_pair) {
    struct connected c = make_connected("127.0.0.1");
    expect_masks(&c.client, c.server.qp->qp_num);
    expect_masks(&c.server, c.client.qp->qp_num);
    free_connected(&c);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
