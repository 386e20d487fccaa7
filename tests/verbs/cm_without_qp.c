/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ids that connect without a queue pair, as UCX's do: rdma_conn_param.qp_num names a UD queue pair,
 * and what is exchanged are private data, that number, and the end. And peers that know no such
 * connection, made of TCP sockets.
 */
#include "tests/verbs/bare_ids.h"

enum { MPA_HEADER = 20, GREETING = 16 };

static void expect_way(struct bare* e, const union ibv_gid* peer, uint32_t num) {
    struct ibv_qp_attr attr;
    int mask = 0;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    MUST(rdma_init_qp_attr(e->id, &attr, &mask) == 0);
    CHECK((mask & (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN)) ==
          (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN));
    CHECK(attr.ah_attr.is_global == 1 && attr.path_mtu >= IBV_MTU_256);
    CHECK(memcmp(&attr.ah_attr.grh.dgid, peer, sizeof *peer) == 0);
    CHECK(attr.dest_qp_num == num, "%x, not %x", attr.dest_qp_num, num);
}

static void exchange(const char* where, int gid) {
    struct bare listener = make_listener(where);
    struct bare client = make_client(where, port_of(&listener));
    char asked[196], answered[196];
    struct rdma_cm_event* event;
    struct bare server;
    const union ibv_gid own = own_gid(gid);
    memset(asked, 'q', sizeof asked);
    memset(answered, 'a', sizeof answered);
    begin_connect(&client, asked, sizeof asked);
    event = expect_event(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    expect_data(&event->param.conn, 'q', sizeof asked);
    CHECK(event->param.conn.qp_num == client.qp->qp_num, "%x", event->param.conn.qp_num);
    memset(&server, 0, sizeof server);
    server.id = event->id;
    server.channel = NULL;
    CHECK(rdma_ack_cm_event(event) == 0);
    make_dummy(&server);
    expect_way(&server, &own, client.qp->qp_num);
    say_yes(&server, answered, sizeof answered);
    event = expect_event(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    expect_data(&event->param.conn, 'a', sizeof answered);
    CHECK(event->status == 0 && event->param.conn.qp_num == server.qp->qp_num, "%x",
          event->param.conn.qp_num);
    CHECK(rdma_ack_cm_event(event) == 0);
    expect_way(&client, &own, server.qp->qp_num);
    CHECK(rdma_establish(client.id) == 0);
    event = expect_event(listener.channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == server.id && event->status == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    /* The UD queue pairs are as they were. */
    CHECK(state_of(client.qp) == IBV_QPS_RESET && state_of(server.qp) == IBV_QPS_RESET);
    CHECK(rdma_disconnect(client.id) == 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
    expect_and_ack(listener.channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(server.id) == 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    expect_and_ack(listener.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CHECK(event_within(client.channel, 20) == NULL && event_within(listener.channel, 0) == NULL);
    free_bare(&client);
    free_bare(&server);
    free_bare(&listener);
}
CASE(numbers_and_private_data_go_both_ways) { exchange("127.0.0.1", 0); }
CASE(by_ipv6) { exchange("::1", 1); }

CASE(the_server_disconnects) {
    struct connected c = make_connected("127.0.0.1");
    disconnect_connected(&c, &c.server);
    free_connected(&c);
}
CASE(both_disconnect_at_once) {
    for (int i = 0; i < 50; ++i) {
        struct connected c = make_connected("127.0.0.1");
        CHECK(rdma_disconnect(c.server.id) == 0);
        CHECK(rdma_disconnect(c.client.id) == 0);
        expect_and_ack(c.client.channel, RDMA_CM_EVENT_DISCONNECTED);
        expect_and_ack(c.server.channel, RDMA_CM_EVENT_DISCONNECTED);
        free_connected(&c);
    }
}
CASE(an_id_that_is_destroyed_disconnects_the_other) {
    for (int i = 0; i < 2; ++i) {
        struct connected c = make_connected("127.0.0.1");
        free_bare(i == 0 ? &c.client : &c.server);
        expect_and_ack(i == 0 ? c.server.channel : c.client.channel, RDMA_CM_EVENT_DISCONNECTED);
        memset(i == 0 ? &c.client : &c.server, 0, sizeof c.client);
        free_connected(&c);
    }
}
/* It is none of theirs: the connection stays. */
CASE(the_named_queue_pairs_may_go_first) {
    struct connected c = make_connected("127.0.0.1");
    free_dummy(&c.client);
    free_dummy(&c.server);
    CHECK(event_within(c.client.channel, 50) == NULL && event_within(c.server.channel, 0) == NULL);
    disconnect_connected(&c, &c.client);
    free_connected(&c);
}

/* The server has not answered yet. */
static void request_connection(struct bare* listener, struct bare* client, struct bare* server) {
    *listener = make_listener("127.0.0.1");
    *client = make_client("127.0.0.1", port_of(listener));
    begin_connect(client, NULL, 0);
    *server = take_request(listener);
}

CASE(a_rejection_has_private_data) {
    struct bare listener, client, server;
    struct rdma_cm_event* event;
    char no[148];
    memset(no, 'n', sizeof no);
    request_connection(&listener, &client, &server);
    CHECK(rdma_reject(server.id, no, sizeof no) == 0);
    event = expect_event(client.channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == PROGRAM_REJECTED, "%d", event->status);
    expect_data(&event->param.conn, 'n', sizeof no);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_bare(&server);
    free_bare(&client);
    free_bare(&listener);
}

CASE(a_request_that_is_destroyed_ends_the_attempt) {
    struct bare listener, client, server;
    struct rdma_cm_event* event;
    request_connection(&listener, &client, &server);
    free_bare(&server);
    MUST((event = event_within(client.channel, LIMIT_S * 1000)) != NULL);
    CHECK(event->status != 0 && event->event != RDMA_CM_EVENT_CONNECT_RESPONSE, "%s",
          rdma_event_str(event->event));
    CHECK(rdma_ack_cm_event(event) == 0);
    free_bare(&client);
    free_bare(&listener);
}

/* A client that has waited long enough goes; the server learns of it when it accepts. */
CASE(a_client_may_go_while_it_waits) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare client = make_client("127.0.0.1", port_of(&listener));
    struct rdma_conn_param param;
    struct bare server;
    begin_connect(&client, NULL, 0);
    server = take_request(&listener);
    CHECK(event_within(client.channel, 100) == NULL);
    free_bare(&client);
    param = param_of(&server, NULL, 0);
    if (rdma_accept(server.id, &param) == 0) {
        struct rdma_cm_event* event = event_within(server.channel, LIMIT_S * 1000);
        MUST(event != NULL);
        if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
            CHECK(rdma_ack_cm_event(event) == 0);
            event = event_within(server.channel, LIMIT_S * 1000);
            MUST(event != NULL);
            CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
        }
        CHECK(rdma_ack_cm_event(event) == 0);
    }
    free_bare(&server);
    free_bare(&listener);
}

/* A process that ends, in whatever way, ends its connections. */
static void process_that_ends(int by_exit) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare server;
    pid_t child;
    const int port = port_of(&listener);
    MUST((child = fork()) >= 0);
    if (child == 0) {
        struct bare client = make_client("127.0.0.1", port);
        begin_connect(&client, NULL, 0);
        expect_and_ack(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        CHECK(rdma_establish(client.id) == 0);
        if (by_exit) exit(failures != 0);
        kill(getpid(), SIGKILL);
    }
    server = take_request(&listener);
    say_yes(&server, NULL, 0);
    expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
    expect_and_ack(server.channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(wait_for(child, LIMIT_S) == (by_exit ? 0 : 256 + SIGKILL));
    free_bare(&server);
    free_bare(&listener);
}
CASE(a_process_that_exits_disconnects) { process_that_ends(1); }
CASE(a_process_that_is_killed_disconnects) { process_that_ends(0); }

/* A child keeps nothing of either end open. */
CASE(a_forked_child_keeps_no_connection) {
    struct connected c = make_connected("127.0.0.1");
    pid_t child;
    usleep(50 * 1000);
    MUST((child = fork()) >= 0);
    if (child == 0) {
        int kept = 0;
        for (int fd = 3; fd < 8192; ++fd) {
            struct sockaddr_storage peer;
            socklen_t size = sizeof peer;
            kept +=
                getpeername(fd, (struct sockaddr*)&peer, &size) == 0 && peer.ss_family == AF_INET;
        }
        _exit(kept);
    }
    CHECK(wait_for(child, LIMIT_S) == 0);
    free_bare(&c.client);
    memset(&c.client, 0, sizeof c.client);
    expect_and_ack(c.server.channel, RDMA_CM_EVENT_DISCONNECTED);
    free_connected(&c);
}

/* Connections come and go, and leave nothing behind. */
CASE(many_come_and_go) {
    int before = 0;
    for (int round = 0; round < 4; ++round) {
        enum { MANY = 40 };
        struct bare listener = make_listener("127.0.0.1");
        struct bare clients[MANY], servers[MANY];
        const int port = port_of(&listener);
        for (int i = 0; i < MANY; ++i) {
            clients[i] = make_client("127.0.0.1", port);
            begin_connect(&clients[i], &i, sizeof i);
        }
        for (int i = 0; i < MANY; ++i) {
            servers[i] = take_request(&listener);
            say_yes(&servers[i], NULL, 0);
        }
        for (int i = 0; i < MANY; ++i) {
            expect_and_ack(clients[i].channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
            expect_and_ack(servers[i].channel, RDMA_CM_EVENT_ESTABLISHED);
        }
        for (int i = 0; i < MANY; ++i) free_bare(i % 2 == 0 ? &clients[i] : &servers[i]);
        for (int i = 0; i < MANY; ++i) free_bare(i % 2 == 0 ? &servers[i] : &clients[i]);
        free_bare(&listener);
        if (round == 0) before = descriptors();
    }
    for (int i = 0; i < 100 && descriptors() > before; ++i) usleep(10 * 1000);
    CHECK(descriptors() <= before, "%d, not %d", descriptors(), before);
}

/* One end with a queue pair that can be connected, the other without: the server is told so. */
CASE(both_ends_are_of_one_kind) {
    struct bare listener = make_listener("127.0.0.1");
    struct bare client = make_client("127.0.0.1", port_of(&listener));
    struct ibv_qp_init_attr init = qp_attr();
    struct rdma_conn_param param;
    struct bare server;
    begin_connect(&client, NULL, 0);
    server = take_request(&listener);
    MUST(rdma_create_qp(server.id, NULL, &init) == 0);
    CHECK(rdma_accept(server.id, NULL) == -1 && errno == EINVAL);
    rdma_destroy_qp(server.id);
    say_yes(&server, NULL, 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    free_bare(&client);
    free_bare(&server);

    client = make_client("127.0.0.1", port_of(&listener));
    init = qp_attr();
    MUST(rdma_create_qp(client.id, NULL, &init) == 0);
    begin_connect(&client, NULL, 0); /* its own queue pair counts */
    server = take_request(&listener);
    param = param_of(&server, NULL, 0);
    CHECK(rdma_accept(server.id, &param) == -1 && errno == EINVAL);
    init = qp_attr();
    MUST(rdma_create_qp(server.id, NULL, &init) == 0);
    CHECK(rdma_accept(server.id, NULL) == 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_ESTABLISHED);
    free_bare(&client);
    free_bare(&server);
    free_bare(&listener);
}

CASE(what_is_no_number_is_refused) {
    struct bare client = make_client("127.0.0.1", 9);
    struct rdma_conn_param param = param_of(&client, NULL, 0);
    CHECK(rdma_connect(client.id, NULL) == -1 && errno == EINVAL);
    param.qp_num = 0;
    CHECK(rdma_connect(client.id, &param) == -1 && errno == EINVAL);
    param.qp_num = 0x1000000;
    CHECK(rdma_connect(client.id, &param) == -1 && errno == EINVAL);
    free_bare(&client);
}

CASE(nobody_listens) {
    struct bare listener = make_listener("127.0.0.1");
    const int port = port_of(&listener);
    struct bare client;
    free_bare(&listener);
    client = make_client("127.0.0.1", port);
    begin_connect(&client, NULL, 0);
    expect_and_ack(client.channel, RDMA_CM_EVENT_REJECTED);
    free_bare(&client);
}

/* ---- peers that are no xsock ---- */

static int tcp(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {LIMIT_S, 0};
    MUST(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    return fd;
}
/* An MPA frame of revision 1 with CRC, and private data. */
static size_t mpa_frame(unsigned char* to, const char* key, const void* data, size_t length) {
    memset(to, 0, MPA_HEADER);
    memcpy(to, key, 16);
    to[16] = 0x40;
    to[17] = 1;
    to[18] = (unsigned char)(length >> 8);
    to[19] = (unsigned char)length;
    if (length != 0) memcpy(to + MPA_HEADER, data, length);
    return MPA_HEADER + length;
}
static const char kRequest[] = "MPA ID Req Frame", kReply[] = "MPA ID Rep Frame";

/* It answers as any server of iWARP does: the client is told that this is no such connection. */
static void replies_with(const void* data, size_t length) {
    unsigned char frame[512];
    struct sockaddr_in bound;
    socklen_t size = sizeof bound;
    const int listening = tcp();
    struct rdma_cm_event* event;
    struct bare client;
    int fd;
    MUST(bind(listening, at("127.0.0.1", 0), length_at()) == 0 && listen(listening, 4) == 0);
    MUST(getsockname(listening, (struct sockaddr*)&bound, &size) == 0);
    client = make_client("127.0.0.1", ntohs(bound.sin_port));
    begin_connect(&client, "ask", 3);
    MUST((fd = accept(listening, NULL, NULL)) >= 0);
    CHECK(recv(fd, frame, MPA_HEADER, MSG_WAITALL) == MPA_HEADER);
    CHECK(memcmp(frame, kRequest, 16) == 0);
    size = (socklen_t)(frame[18] << 8 | frame[19]);
    MUST(size <= sizeof frame && recv(fd, frame, size, MSG_WAITALL) == (ssize_t)size);
    CHECK(size >= GREETING + 3 && memcmp(frame + size - GREETING - 3, "xsock-CM\1", 9) == 0);
    CHECK(memcmp(frame + size - 3, "ask", 3) == 0);
    size = (socklen_t)mpa_frame(frame, kReply, data, length);
    MUST(send(fd, frame, size, MSG_NOSIGNAL) == (ssize_t)size);
    event = expect_event(client.channel, RDMA_CM_EVENT_CONNECT_ERROR);
    CHECK(event->status == -EPROTO, "%d", event->status);
    CHECK(rdma_ack_cm_event(event) == 0);
    while (recv(fd, frame, sizeof frame, 0) > 0) continue; /* it is ended */
    CHECK(errno != EAGAIN);
    CHECK(rdma_disconnect(client.id) == 0 || errno == EINVAL);
    free_bare(&client);
    close(fd);
    close(listening);
}
CASE(a_server_that_is_no_xsock_is_refused) { replies_with(NULL, 0); }
CASE(a_server_whose_private_data_are_its_own_is_refused) { replies_with("hello", 5); }
CASE(a_greeting_of_another_version_is_refused) {
    replies_with("xsock-CM\2\0\0\0\0\0\0\1", GREETING);
}
CASE(a_greeting_that_is_cut_is_refused) {
    for (size_t cut = 8; cut < GREETING; ++cut) replies_with("xsock-CM\1\0\0\0\0\0\0\1", cut);
}

static int asks_with(const struct bare* listener, const void* data, size_t length) {
    unsigned char frame[512];
    const int fd = tcp();
    const size_t size = mpa_frame(frame, kRequest, data, length);
    MUST(connect(fd, at("127.0.0.1", port_of(listener)), length_at()) == 0);
    MUST(send(fd, frame, size, MSG_NOSIGNAL) == (ssize_t)size);
    return fd;
}
CASE(a_client_that_is_no_xsock_is_refused) {
    struct bare listener = make_listener("127.0.0.1");
    const int fd = asks_with(&listener, "hello", 5);
    struct bare server = take_request(&listener);
    struct rdma_conn_param param = param_of(&server, NULL, 0);
    unsigned char octet;
    CHECK(rdma_accept(server.id, &param) == -1 && errno == EINVAL);
    free_bare(&server);
    CHECK(recv(fd, &octet, 1, 0) <= 0 && errno != EAGAIN);
    close(fd);
    free_bare(&listener);
}
CASE(a_request_with_a_malformed_greeting_is_not_told) {
    struct bare listener = make_listener("127.0.0.1");
    const char good[GREETING + 1] = "xsock-CM\1\0\0\0\0\0\0\1";
    unsigned char octet;
    for (size_t cut = 8; cut < GREETING; ++cut) {
        const int fd = asks_with(&listener, good, cut);
        errno = 0;
        CHECK(recv(fd, &octet, 1, 0) <= 0 && errno != EAGAIN);
        close(fd);
    }
    for (size_t i = 8; i < GREETING - 3; ++i) {
        char bad[GREETING];
        int fd;
        memcpy(bad, good, sizeof bad);
        bad[i] ^= 0x40;
        fd = asks_with(&listener, bad, sizeof bad);
        errno = 0;
        CHECK(recv(fd, &octet, 1, 0) <= 0 && errno != EAGAIN);
        close(fd);
    }
    CHECK(event_within(listener.channel, 50) == NULL);
    free_bare(&listener);
}

/* Messages to a queue pair that takes none end the connection, and only that. */
/* What else the peer sends ends it, and tells the program of no queue pair that it does not know.
 */
static void ends_by(const unsigned char* fpdu, size_t n) {
    struct connected other = make_connected("127.0.0.1");
    struct bare listener = make_listener("127.0.0.1");
    const int fd = asks_with(&listener, "xsock-CM\1\0\0\0\0\0\0\1", GREETING);
    struct bare server = take_request(&listener);
    unsigned char octets[64];
    struct rdma_cm_event* event;
    say_yes(&server, NULL, 0);
    CHECK(recv(fd, octets, MPA_HEADER, MSG_WAITALL) == MPA_HEADER);
    MUST(send(fd, fpdu, n, MSG_NOSIGNAL) == (ssize_t)n);
    MUST((event = event_within(server.channel, LIMIT_S * 1000)) != NULL);
    if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
        CHECK(rdma_ack_cm_event(event) == 0);
        MUST((event = event_within(server.channel, LIMIT_S * 1000)) != NULL);
    }
    CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR,
          "%s", rdma_event_str(event->event));
    CHECK(rdma_ack_cm_event(event) == 0);
    {
        struct ibv_async_event
            async; /* the program is told of no queue pair that it does not know */
        struct pollfd told = {server.id->verbs->async_fd, POLLIN, 0};
        CHECK(poll(&told, 1, 50) == 0 || (ibv_get_async_event(server.id->verbs, &async), 0));
    }
    close(fd);
    CHECK(event_within(other.client.channel, 0) == NULL);
    free_bare(&server);
    free_bare(&listener);
    free_connected(&other);
}

CASE(octets_that_are_no_message_end_it) {
    unsigned char fpdu[64];
    memset(fpdu, 0xff, sizeof fpdu);
    fpdu[0] = 0;
    fpdu[1] = 20;
    ends_by(fpdu, sizeof fpdu);
}

/* It has no receives, and never will. */
CASE(a_message_on_it_ends_it) {
    static const unsigned char send_of_nothing[24] = {
        0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x58, 0x7b, 0xe8, 0xc4};
    ends_by(send_of_nothing, sizeof send_of_nothing);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
