/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * RDMA_PS_UDP: a client asks a server for the number of a queue pair, and the two exchange
 * datagrams; and ends that do not keep to the frames of docs/wire.md, made of UDP sockets.
 */
#include "tests/verbs/cm_events.h"

enum {
    REQUEST_OCTETS = 208,
    HEADER = 28,
    ANSWER_MOST = 164,
    REQUEST_DATA = 180,
    ANSWER_DATA = 136
};
enum { UNSUPPORTED = 1, REJECTED = 2 };

/* ---- ends that are programs ---- */

struct end_of_cm {
    struct rdma_event_channel* channel;
    struct rdma_cm_id* id;
    struct ibv_mr* mr;
    char data[GRH + MTU];
};

static struct end_of_cm* make_end(void) {
    struct end_of_cm* const e = calloc(1, sizeof *e);
    MUST(e != NULL && (e->channel = rdma_create_event_channel()) != NULL);
    MUST(rdma_create_id(e->channel, &e->id, e, RDMA_PS_UDP) == 0);
    CHECK(e->id->qp_type == IBV_QPT_UD && e->id->ps == RDMA_PS_UDP);
    return e;
}
static void free_end(struct end_of_cm* e) {
    if (e->mr != NULL) CHECK(ibv_dereg_mr(e->mr) == 0);
    if (e->id != NULL) end(e->id);
    rdma_destroy_event_channel(e->channel);
    free(e);
}
static struct end_of_cm* make_listener(const char* where, int port, int backlog) {
    struct end_of_cm* const e = make_end();
    MUST(rdma_bind_addr(e->id, at(where, port)) == 0);
    MUST(rdma_listen(e->id, backlog) == 0);
    CHECK(rdma_get_src_port(e->id) != 0);
    return e;
}
/* The id of the next request. */
static struct rdma_cm_id* take_request(struct end_of_cm* listener) {
    struct rdma_cm_event* const event =
        expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id* const asked = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return asked;
}
static int port_of(struct end_of_cm* e) { return ntohs(rdma_get_src_port(e->id)); }

static void make_qp_of(struct rdma_cm_id* id) {
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp_attr attr;
    init.qp_type = IBV_QPT_UD;
    MUST(rdma_create_qp(id, NULL, &init) == 0);
    CHECK(id->qp->qp_type == IBV_QPT_UD && id->qp->state == IBV_QPS_RTS);
    MUST(ibv_query_qp(id->qp, &attr, IBV_QP_QKEY, &init) == 0);
    CHECK(attr.qkey == RDMA_UDP_QKEY && attr.qp_state == IBV_QPS_RTS);
}
/* Its route is known. */
static struct end_of_cm* make_client(const char* from, const char* to, int port) {
    struct end_of_cm* const e = make_end();
    struct sockaddr_storage source;
    if (from != NULL) memcpy(&source, at(from, 0), sizeof source);
    MUST(rdma_resolve_addr(e->id, from != NULL ? (struct sockaddr*)&source : NULL, at(to, port),
                           2000) == 0);
    expect_and_ack(e->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(e->id, 2000) == 0);
    expect_and_ack(e->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(e->id->route.num_paths == 1 && e->id->route.path_rec != NULL);
    CHECK(e->id->route.path_rec->hop_limit > 1 && e->id->route.path_rec->pkey == 0xffff);
    return e;
}
static int ask(struct end_of_cm* e, const void* data, size_t length) {
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.private_data = data;
    param.private_data_len = (uint8_t)length;
    return rdma_connect(e->id, &param);
}
static int say_yes(struct rdma_cm_id* id, uint32_t num, const void* data, size_t length) {
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.qp_num = num;
    param.private_data = data;
    param.private_data_len = (uint8_t)length;
    return rdma_accept(id, &param);
}
static void expect_data(const struct rdma_ud_param* told, char first, size_t length) {
    CHECK(told->private_data_len == length, "%u octets", told->private_data_len);
    if (length == 0 || told->private_data_len != length) return;
    CHECK(((const char*)told->private_data)[0] == first &&
          ((const char*)told->private_data)[length - 1] == first);
}

static void receive_on(struct rdma_cm_id* id, struct end_of_cm* e) {
    if (e->mr == NULL)
        MUST((e->mr = ibv_reg_mr(id->pd, e->data, sizeof e->data, ALL_ACCESS)) != NULL);
    MUST(rdma_post_recv(id, e, e->data, sizeof e->data, e->mr) == 0);
}
static void send_on(struct rdma_cm_id* id, struct ibv_ah* ah, uint32_t to, uint32_t key) {
    char text[] = "datagram";
    struct ibv_sge sge = {(uintptr_t)text, sizeof text, 0};
    const struct ud_to where = {ah, to, key};
    struct ibv_send_wr wr = ud_wr(&sge, &where), *bad;
    struct ibv_wc wc;
    wr.send_flags |= IBV_SEND_INLINE;
    MUST(ibv_post_send(id->qp, &wr, &bad) == 0);
    wc = next(id->send_cq);
    CHECK(wc.status == IBV_WC_SUCCESS);
}
static struct ibv_wc expect_text(struct rdma_cm_id* id, struct end_of_cm* e) {
    const struct ibv_wc wc = next(id->recv_cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + sizeof "datagram");
    CHECK(strcmp(e->data + GRH, "datagram") == 0);
    return wc;
}

/* A request, its answer, a datagram there and one back. */
static void exchange(const char* listens, const char* from, const char* to) {
    struct end_of_cm* const listener = make_listener(listens, 0, 4);
    struct end_of_cm* const client = make_client(from, to, port_of(listener));
    struct end_of_cm* const server = calloc(1, sizeof *server);
    char asked[REQUEST_DATA], answered[ANSWER_DATA];
    struct rdma_cm_event* event;
    struct ibv_ah *there, *back;
    struct ibv_wc wc;
    uint32_t num, key;
    MUST(server != NULL);
    memset(asked, 'q', sizeof asked);
    memset(answered, 'a', sizeof answered);
    make_qp_of(client->id);
    MUST(ask(client, asked, sizeof asked) == 0);
    event = expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    expect_data(&event->param.ud, 'q', sizeof asked);
    CHECK(event->listen_id == listener->id && event->id != listener->id && event->status == 0);
    server->id = event->id;
    CHECK(server->id->qp_type == IBV_QPT_UD && server->id->verbs != NULL);
    CHECK(rdma_get_src_port(server->id) == rdma_get_src_port(listener->id));
    CHECK(rdma_get_dst_port(server->id) != 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    make_qp_of(server->id);
    receive_on(server->id, server);
    MUST(say_yes(server->id, 0, answered, sizeof answered) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->status == 0 && event->id == client->id);
    expect_data(&event->param.ud, 'a', sizeof answered);
    num = event->param.ud.qp_num;
    key = event->param.ud.qkey;
    CHECK(num == server->id->qp->qp_num && key == RDMA_UDP_QKEY);
    MUST((there = ibv_create_ah(client->id->pd, &event->param.ud.ah_attr)) != NULL);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(rdma_get_dst_port(client->id) == rdma_get_src_port(listener->id));
    CHECK(rdma_get_src_port(client->id) == rdma_get_dst_port(server->id));

    receive_on(client->id, client);
    send_on(client->id, there, num, key);
    wc = expect_text(server->id, server);
    MUST((back = ibv_create_ah_from_wc(server->id->pd, &wc, (struct ibv_grh*)server->data, 1)) !=
         NULL);
    CHECK(wc.src_qp == client->id->qp->qp_num);
    send_on(server->id, back, wc.src_qp, RDMA_UDP_QKEY);
    expect_text(client->id, client);
    CHECK(event_within(listener->channel, 0) == NULL && event_within(client->channel, 0) == NULL);
    /* Nothing ends with it. */
    CHECK(rdma_disconnect(client->id) == 0 && rdma_disconnect(server->id) == 0);
    CHECK(event_within(client->channel, 20) == NULL);
    CHECK(ibv_destroy_ah(there) == 0 && ibv_destroy_ah(back) == 0);
    CHECK(ibv_dereg_mr(server->mr) == 0);
    end(server->id);
    free(server);
    free_end(client);
    free_end(listener);
}
CASE(a_request_finds_a_queue_pair) { exchange("127.0.0.1", NULL, "127.0.0.1"); }
CASE(by_ipv6) { exchange("::1", NULL, "::1"); }
CASE(any_address_listens) { exchange("0.0.0.0", NULL, "127.0.0.1"); }
CASE(ipv4_finds_a_listener_of_ipv6) { exchange("::", NULL, "127.0.0.1"); }
CASE(from_the_address_that_was_asked) { exchange("0.0.0.0", "127.0.0.3", "127.0.0.2"); }

CASE(a_rejection_tells_status_and_data) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct rdma_cm_event* event;
    struct rdma_cm_id* asked;
    char no[ANSWER_DATA + 1];
    memset(no, 'n', sizeof no);
    MUST(ask(client, NULL, 0) == 0);
    event = expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    expect_data(&event->param.ud, 0, REQUEST_DATA); /* always as many, here zeroes */
    asked = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(rdma_reject(asked, no, sizeof no) == -1 && errno == EINVAL);
    CHECK(rdma_reject(asked, no, ANSWER_DATA) == 0);
    CHECK(rdma_reject(asked, NULL, 0) == -1 && errno == EINVAL);
    CHECK(say_yes(asked, 5, NULL, 0) == -1 && errno == EINVAL);
    CHECK(rdma_destroy_id(asked) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == REJECTED, "%d", event->status);
    expect_data(&event->param.ud, 'n', ANSWER_DATA);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_end(client);
    free_end(listener);
}

CASE(a_request_that_is_destroyed_is_rejected) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct rdma_cm_event* event;
    MUST(ask(client, NULL, 0) == 0);
    CHECK(rdma_destroy_id(take_request(listener)) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == REJECTED, "%d", event->status);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_end(client);
    free_end(listener);
}

CASE(a_listener_that_goes_rejects_what_it_has_not_told) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct pollfd told = {listener->channel->fd, POLLIN, 0};
    struct rdma_cm_event* event;
    MUST(ask(client, NULL, 0) == 0);
    MUST(poll(&told, 1, LIMIT_S * 1000) == 1);
    free_end(listener);
    event = expect_event(client->channel, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == REJECTED, "%d", event->status);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_end(client);
}

CASE(an_answer_needs_no_listener_any_more) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct rdma_cm_event* event;
    struct rdma_cm_id* asked;
    MUST(ask(client, NULL, 0) == 0);
    asked = take_request(listener);
    free_end(listener);
    CHECK(say_yes(asked, 0x4321, NULL, 0) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.ud.qp_num == 0x4321 && event->param.ud.qkey == RDMA_UDP_QKEY);
    CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(asked) == 0);
    free_end(client);
}

static int free_port(void) {
    struct end_of_cm* const e = make_listener("127.0.0.1", 0, 1);
    const int port = port_of(e);
    free_end(e);
    return port;
}

CASE(nobody_listens) {
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", free_port());
    struct rdma_cm_event* event;
    const double begun = now();
    MUST(ask(client, NULL, 0) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == UNSUPPORTED, "%d", event->status);
    CHECK(now() - begun > 1.5, "%.3f s", now() - begun);
    CHECK(rdma_ack_cm_event(event) == 0);
    free_end(client);
}

CASE(a_listener_may_come_late) {
    const int port = free_port();
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port);
    struct end_of_cm* listener;
    struct rdma_cm_event* event;
    MUST(ask(client, NULL, 0) == 0);
    usleep(200 * 1000);
    listener = make_listener("127.0.0.1", port, 4);
    event = expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(say_yes(event->id, 9, NULL, 0) == 0);
    end(event->id);
    CHECK(rdma_ack_cm_event(event) == 0);
    expect_and_ack(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    free_end(client);
    free_end(listener);
}

CASE(synchronous_ids) {
    struct rdma_addrinfo hints, *passive, *to;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_cm_id *listener, *a, *b;
    char port[16];
    pid_t child;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_UDP;
    MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &passive) == 0);
    CHECK(passive->ai_qp_type == IBV_QPT_UD && passive->ai_port_space == RDMA_PS_UDP);
    attr.qp_type = IBV_QPT_UD;
    MUST(rdma_create_ep(&listener, passive, NULL, &attr) == 0);
    MUST(rdma_listen(listener, 4) == 0);
    snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
    MUST((child = fork()) >= 0);
    if (child == 0) {
        failures = 0;
        hints.ai_flags = 0;
        MUST(rdma_getaddrinfo("127.0.0.1", port, &hints, &to) == 0);
        attr = qp_attr();
        MUST(rdma_create_ep(&a, to, NULL, &attr) == 0);
        CHECK(a->qp != NULL && a->qp->qp_type == IBV_QPT_UD && a->qp->state == IBV_QPS_RTS);
        MUST(rdma_connect(a, NULL) == 0);
        CHECK(a->event != NULL && a->event->event == RDMA_CM_EVENT_ESTABLISHED &&
              a->event->param.ud.qkey == RDMA_UDP_QKEY);
        CHECK(rdma_disconnect(a) == 0);
        rdma_destroy_ep(a);
        attr = qp_attr();
        MUST(rdma_create_ep(&a, to, NULL, &attr) == 0);
        CHECK(rdma_connect(a, NULL) == -1 && errno == ECONNREFUSED);
        rdma_destroy_ep(a);
        _exit(failures != 0);
    }
    MUST(rdma_get_request(listener, &b) == 0);
    CHECK(b->qp != NULL && b->qp->state == IBV_QPS_RTS);
    CHECK(rdma_accept(b, NULL) == 0);
    rdma_destroy_ep(b);
    MUST(rdma_get_request(listener, &b) == 0);
    CHECK(rdma_reject(b, NULL, 0) == 0);
    rdma_destroy_ep(b);
    CHECK(wait_for(child, LIMIT_S) == 0);
    rdma_destroy_ep(listener);
    rdma_freeaddrinfo(passive);
}

CASE(what_a_program_may_not_do) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct end_of_cm* const late = make_end();
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp_attr attr;
    struct rdma_cm_event* event;
    struct rdma_cm_id* id;
    char data[255];
    int mask;
    memset(data, 0, sizeof data);
    CHECK(rdma_create_id(client->channel, &id, NULL, RDMA_PS_IPOIB) == -1);
    CHECK(rdma_create_qp(client->id, NULL, &init) == -1 && errno == EOPNOTSUPP);
    CHECK(client->id->qp == NULL);
    CHECK(ask(client, data, REQUEST_DATA + 1) == -1 && errno == EINVAL);
    CHECK(rdma_accept(client->id, NULL) == -1 && errno == EINVAL);
    CHECK(rdma_disconnect(client->id) == -1 && errno == EINVAL);
    CHECK(ask(listener, NULL, 0) == -1 && errno == EINVAL);
    MUST(rdma_bind_addr(late->id, at("127.0.0.1", port_of(listener))) == 0);
    CHECK(rdma_listen(late->id, 1) == -1 && errno == EADDRINUSE);
    MUST(ask(client, data, REQUEST_DATA) == 0);
    CHECK(ask(client, NULL, 0) == -1 && errno == EINVAL);
    event = expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_accept(event->id, NULL) == -1 && errno == EINVAL);
    CHECK(say_yes(event->id, 0x1000000, NULL, 0) == -1 && errno == EINVAL);
    CHECK(say_yes(event->id, 1, data, ANSWER_DATA + 1) == -1 && errno == EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    CHECK(rdma_init_qp_attr(event->id, &attr, &mask) == 0 && attr.qkey == RDMA_UDP_QKEY &&
          mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(rdma_init_qp_attr(event->id, &attr, &mask) == 0 && mask == IBV_QP_STATE);
    CHECK(say_yes(event->id, 1, NULL, 0) == 0);
    id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    end(id);
    expect_and_ack(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(ask(client, NULL, 0) == -1 && errno == EINVAL);
    free_end(late);
    free_end(client);
    free_end(listener);
}

/* A client that goes while it waits, its server with the request in hand: nothing is left. */
CASE(either_end_may_go_at_any_time) {
    int before = 0;
    for (int i = 0; i < 200; ++i) {
        if (i == 8) before = descriptors();
        struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
        struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
        struct rdma_cm_id* asked;
        MUST(ask(client, NULL, 0) == 0);
        if (i % 4 != 0) {
            asked = take_request(listener);
            if (i % 4 == 1) free_end(client);
            if (i % 4 == 2) CHECK(say_yes(asked, 3, NULL, 0) == 0);
            CHECK(rdma_destroy_id(asked) == 0);
        }
        if (i % 4 != 1) free_end(client);
        free_end(listener);
    }
    for (int i = 0; i < LIMIT_S * 100 && descriptors() > before; ++i) usleep(10 * 1000);
    CHECK(descriptors() <= before, "%d, not %d", descriptors(), before);
}

/* ---- ends that are UDP sockets ---- */

static int udp(const char* from, int port) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {LIMIT_S, 0};
    MUST(fd >= 0 && bind(fd, at(from, port), length_at()) == 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    return fd;
}
static void put32(unsigned char* to, uint32_t value) {
    for (int i = 0; i < 4; ++i) to[i] = (unsigned char)(value >> (24 - 8 * i));
}
static uint32_t get32(const unsigned char* from) {
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}
static void frame_of(unsigned char* frame, int type, uint32_t number, uint32_t num) {
    memset(frame, 0, REQUEST_OCTETS);
    memcpy(frame, "xsock-UD", 8);
    frame[8] = 1;
    frame[9] = (unsigned char)type;
    put32(frame + 12, number);
    put32(frame + 16, num);
}
static void send_to(int fd, const char* to, int port, const void* octets, size_t length) {
    MUST(sendto(fd, octets, length, 0, at(to, port), length_at()) == (ssize_t)length);
}
static int waits(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms) == 1;
}

CASE(a_repeated_request_is_told_once_and_answered_each_time) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    const int fd = udp("127.0.0.1", 0), other = udp("127.0.0.1", 0);
    unsigned char request[REQUEST_OCTETS], answer[2 * REQUEST_OCTETS];
    struct rdma_cm_id* asked;
    frame_of(request, 1, 77, 0);
    for (int i = 0; i < 5; ++i) {
        send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    }
    asked = take_request(listener);
    send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    CHECK(event_within(listener->channel, 100) == NULL && !waits(fd, 0));
    CHECK(say_yes(asked, 0xabc, "yes", 3) == 0);
    CHECK(rdma_destroy_id(asked) == 0);
    for (int i = 0; i < 3; ++i) {
        const ssize_t n = recv(fd, answer, sizeof answer, 0);
        CHECK(n == HEADER + 3, "%zd octets", n);
        CHECK(answer[9] == 2 && get32(answer + 12) == 77 && get32(answer + 16) == 0xabc &&
              get32(answer + 20) == RDMA_UDP_QKEY && get32(answer + 24) == 0 &&
              memcmp(answer + HEADER, "yes", 3) == 0);
        send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    }
    CHECK(event_within(listener->channel, 50) == NULL);
    /* The same number from another port is another request. */
    send_to(other, "127.0.0.1", port_of(listener), request, sizeof request);
    CHECK(rdma_destroy_id(take_request(listener)) == 0);
    close(fd);
    close(other);
    free_end(listener);
}

CASE(what_is_no_request_is_neither_told_nor_answered) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    const int fd = udp("127.0.0.1", 0);
    unsigned char good[REQUEST_OCTETS], bad[REQUEST_OCTETS + 1];
    frame_of(good, 1, 1, 0);
    for (size_t cut = 0; cut < sizeof good; ++cut) {
        send_to(fd, "127.0.0.1", port_of(listener), good, cut);
    }
    memset(bad, 0, sizeof bad);
    memcpy(bad, good, sizeof good);
    send_to(fd, "127.0.0.1", port_of(listener), bad, sizeof bad);
    for (size_t i = 0; i < sizeof good; ++i) {
        if (i >= 11 && i < 16) continue; /* another length or number: another request */
        memcpy(bad, good, sizeof good);
        bad[i] ^= 0x80;
        send_to(fd, "127.0.0.1", port_of(listener), bad, sizeof good);
    }
    CHECK(event_within(listener->channel, 100) == NULL && !waits(fd, 0));
    send_to(fd, "127.0.0.1", port_of(listener), good, sizeof good);
    CHECK(rdma_destroy_id(take_request(listener)) == 0);
    close(fd);
    free_end(listener);
}

/* One host asks and asks, and the program does not listen to it: the other is heard. */
CASE(a_burst_keeps_no_other_host_out) {
    enum { BURST = 20000, ROOM = 64 };
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, ROOM);
    const int crowd = udp("127.0.0.2", 0), other = udp("127.0.0.3", 0);
    unsigned char request[REQUEST_OCTETS], answer[2 * REQUEST_OCTETS];
    struct rdma_cm_event* event;
    int told = 0, heard = 0;
    for (uint32_t i = 0; i < BURST; ++i) {
        frame_of(request, 1, i, 0);
        send_to(crowd, "127.0.0.1", port_of(listener), request, sizeof request);
        if (i % 256 == 0) usleep(1000); /* or the socket's buffer drops them, and the others too */
        if (i != BURST / 2) continue;
        /* Repeated, as a client would. */
        for (int n = 0; n < 10; ++n) {
            send_to(other, "127.0.0.1", port_of(listener), request, sizeof request);
            usleep(2000);
        }
    }
    usleep(100 * 1000);
    while ((event = event_within(listener->channel, 0)) != NULL) {
        struct rdma_cm_id* const id = event->id;
        const struct sockaddr_in* const peer = (struct sockaddr_in*)rdma_get_peer_addr(id);
        CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
        ++told;
        if (peer->sin_addr.s_addr == inet_addr("127.0.0.3")) {
            ++heard;
            CHECK(say_yes(id, 5, NULL, 0) == 0);
        }
        CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0);
    }
    CHECK(heard == 1, "%d", heard);
    CHECK(told <= ROOM, "%d", told);
    CHECK(recv(other, answer, sizeof answer, 0) == HEADER && get32(answer + 16) == 5);
    close(crowd);
    close(other);
    free_end(listener);
}

CASE(no_answer_is_longer_than_what_was_asked) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    const int fd = udp("127.0.0.1", 0);
    unsigned char request[REQUEST_OCTETS], answer[2 * REQUEST_OCTETS];
    char data[ANSWER_DATA];
    struct rdma_cm_event* event;
    memset(data, 'd', sizeof data);
    frame_of(request, 1, 1, 0);
    send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    event = expect_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(say_yes(event->id, 5, data, sizeof data) == 0);
    CHECK(recv(fd, answer, sizeof answer, 0) == ANSWER_MOST);
    CHECK((int)ANSWER_MOST < (int)REQUEST_OCTETS);
    end(event->id);
    CHECK(rdma_ack_cm_event(event) == 0);
    close(fd);
    free_end(listener);
}

CASE(answers_that_nobody_asked_for_are_not_taken) {
    const int server = udp("127.0.0.1", 0), elsewhere = udp("127.0.0.1", 0);
    struct sockaddr_in bound, peer;
    socklen_t size = sizeof bound;
    unsigned char request[2 * REQUEST_OCTETS], answer[REQUEST_OCTETS];
    struct end_of_cm* client;
    struct rdma_cm_event* event;
    uint32_t number;
    ssize_t n;
    MUST(getsockname(server, (struct sockaddr*)&bound, &size) == 0);
    client = make_client(NULL, "127.0.0.1", ntohs(bound.sin_port));
    MUST(ask(client, "ask", 3) == 0);
    size = sizeof peer;
    n = recvfrom(server, request, sizeof request, 0, (struct sockaddr*)&peer, &size);
    CHECK(n == REQUEST_OCTETS && request[9] == 1 && memcmp(request + HEADER, "ask", 3) == 0);
    number = get32(request + 12);
#define REPLY(fd, length) \
    MUST(sendto(fd, answer, length, 0, (struct sockaddr*)&peer, size) == (ssize_t)(length))
    frame_of(answer, 2, number, 0x666);
    REPLY(elsewhere, HEADER); /* another port */
    for (uint32_t i = 1; i < 200; ++i) {
        frame_of(answer, 2, number + i, 0x666);
        REPLY(server, HEADER);
    }
    frame_of(answer, 2, number, 0x666);
    for (size_t cut = 0; cut < HEADER; ++cut) REPLY(server, cut);
    REPLY(server, HEADER + 1);
    frame_of(answer, 1, number, 0); /* a request */
    REPLY(server, REQUEST_OCTETS);
    frame_of(answer, 1, number, 0x666); /* as long as an answer */
    REPLY(server, HEADER);
    frame_of(answer, 2, number, 0); /* of no queue pair */
    REPLY(server, HEADER);
    CHECK(event_within(client->channel, 20) == NULL);
    /* It goes on asking. */
    CHECK(recv(server, request, sizeof request, 0) == REQUEST_OCTETS &&
          get32(request + 12) == number);
    frame_of(answer, 2, number, 0x777);
    put32(answer + 20, 0x55);
    REPLY(server, HEADER);
    event = expect_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.ud.qp_num == 0x777 && event->param.ud.qkey == 0x55);
    CHECK(rdma_ack_cm_event(event) == 0);
    REPLY(server, HEADER); /* and again: there is nobody */
    CHECK(event_within(client->channel, 20) == NULL);
    free_end(client);
    close(server);
    close(elsewhere);
}

/* rsockets bind an id to the port of a UDP socket that they hold. */
CASE(a_port_may_be_that_of_the_programs_own_socket) {
    const int fd = udp("127.0.0.1", 0);
    struct end_of_cm* const e = make_end();
    struct sockaddr_in bound;
    socklen_t size = sizeof bound;
    struct ibv_ah_attr attr;
    struct ibv_ah* ah;
    MUST(getsockname(fd, (struct sockaddr*)&bound, &size) == 0);
    MUST(rdma_bind_addr(e->id, (struct sockaddr*)&bound) == 0);
    CHECK(rdma_get_src_port(e->id) == bound.sin_port);
    make_qp_of(e->id);
    /* They make a handle without a GRH to their own queue pair, in the domain of ids. */
    memset(&attr, 0, sizeof attr);
    attr.port_num = 1;
    MUST((ah = ibv_create_ah(e->id->pd, &attr)) != NULL);
    receive_on(e->id, e);
    send_on(e->id, ah, e->id->qp->qp_num, RDMA_UDP_QKEY);
    expect_text(e->id, e);
    CHECK(ibv_destroy_ah(ah) == 0);
    if (pd == NULL) MUST((pd = ibv_alloc_pd(device())) != NULL);
    CHECK(ibv_create_ah(pd, &attr) == NULL && errno == EINVAL);
    free_end(e);
    close(fd);
}

/* A channel for two listeners: one goes with what it has not told, the other's requests stay. */
CASE(requests_of_others_stay_when_a_listener_goes) {
    struct end_of_cm* const first = make_listener("127.0.0.1", 0, 64);
    struct end_of_cm* const second = make_listener("127.0.0.1", 0, 64);
    const int fd = udp("127.0.0.1", 0);
    unsigned char request[REQUEST_OCTETS];
    int told = 0;
    struct rdma_cm_event* event;
    MUST(rdma_migrate_id(second->id, first->channel) == 0);
    for (uint32_t i = 0; i < 40; ++i) {
        frame_of(request, 1, i, 0);
        send_to(fd, "127.0.0.1", port_of(i % 4 == 0 ? second : first), request, sizeof request);
    }
    usleep(100 * 1000);
    CHECK(rdma_destroy_id(first->id) == 0);
    first->id = NULL;
    while ((event = event_within(first->channel, 50)) != NULL) {
        struct rdma_cm_id* const asked = event->id;
        CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->listen_id == second->id);
        CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(asked) == 0);
        ++told;
    }
    CHECK(told == 10, "%d", told);
    close(fd);
    free_end(second);
    free_end(first);
}

/* Of a repeated request that was rejected by destroying it nothing is told again. */
CASE(a_rejection_by_destroying_is_repeated) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    const int fd = udp("127.0.0.1", 0);
    unsigned char request[REQUEST_OCTETS], answer[2 * REQUEST_OCTETS];
    frame_of(request, 1, 77, 0);
    send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    CHECK(rdma_destroy_id(take_request(listener)) == 0);
    for (int i = 0; i < 3; ++i) {
        CHECK(recv(fd, answer, sizeof answer, 0) == HEADER);
        CHECK(get32(answer + 12) == 77 && get32(answer + 24) == REJECTED);
        send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    }
    CHECK(event_within(listener->channel, 50) == NULL);
    close(fd);
    free_end(listener);
}

static void sent_to_many(const char* listens) {
    struct end_of_cm* const listener = make_listener(listens, 0, 4);
    const int fd = udp("0.0.0.0", 0), on = 1;
    unsigned char request[REQUEST_OCTETS];
    MUST(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
    frame_of(request, 1, 1, 0);
    send_to(fd, "127.255.255.255", port_of(listener), request, sizeof request);
    CHECK(event_within(listener->channel, 100) == NULL && !waits(fd, 0));
    send_to(fd, "127.0.0.1", port_of(listener), request, sizeof request);
    CHECK(rdma_destroy_id(take_request(listener)) == 0);
    CHECK(waits(fd, LIMIT_S * 1000));
    close(fd);
    free_end(listener);
}
CASE(what_is_sent_to_many_is_not_told) { sent_to_many("0.0.0.0"); }
CASE(what_is_sent_to_many_is_not_told_by_ipv6) { sent_to_many("::"); }

/* The program has destroyed the queue pair behind rdma_cm's back. */
CASE(a_queue_pair_that_is_gone_is_not_told) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
    struct rdma_cm_id* asked;
    struct ud u;
    struct ibv_qp* qp;
    struct rdma_cm_event* event;
    MUST(ask(client, NULL, 0) == 0);
    asked = take_request(listener);
    u = make_ud();
    asked->qp = qp = u.qp;
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(rdma_accept(asked, NULL) == -1 && errno == EINVAL);
    asked->qp = NULL;
    CHECK(ibv_destroy_cq(u.sends) == 0 && ibv_destroy_cq(u.receives) == 0);
    CHECK(ibv_dereg_mr(u.mr) == 0);
    free(u.memory);
    CHECK(say_yes(asked, 7, NULL, 0) == 0);
    event = expect_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.ud.qp_num == 7);
    CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(asked) == 0);
    free_end(client);
    free_end(listener);
}

CASE(a_queue_pair_in_reset_has_the_q_key_of_rdma_cm) {
    struct end_of_cm* const listener = make_listener("127.0.0.1", 0, 4);
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp* qp;
    MUST((pd = pd != NULL ? pd : ibv_alloc_pd(device())) != NULL);
    MUST((init.send_cq = init.recv_cq = ibv_create_cq(device(), 4, NULL, NULL, 0)) != NULL);
    init.qp_type = IBV_QPT_UD;
    MUST((qp = ibv_create_qp(pd, &init)) != NULL);
    for (int i = 0; i < 2; ++i) {
        struct end_of_cm* const client = make_client(NULL, "127.0.0.1", port_of(listener));
        struct rdma_cm_event* event;
        struct rdma_cm_id* asked;
        MUST(ask(client, NULL, 0) == 0);
        asked = take_request(listener);
        CHECK(say_yes(asked, qp->qp_num, NULL, 0) == 0 && rdma_destroy_id(asked) == 0);
        event = expect_event(client->channel, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(event->param.ud.qp_num == qp->qp_num);
        CHECK(event->param.ud.qkey == (i == 0 ? RDMA_UDP_QKEY : QKEY), "%x", event->param.ud.qkey);
        CHECK(rdma_ack_cm_event(event) == 0);
        free_end(client);
        if (i == 0) ud_to_init(qp);
    }
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(init.send_cq) == 0);
    free_end(listener);
}

/* rdma_get_request() makes the queue pair; where it cannot, the client is told no. */
CASE(a_request_without_a_queue_pair_is_rejected) {
    struct rdma_addrinfo hints, *passive;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_cm_id *listener, *asked = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_UDP;
    MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &passive) == 0);
    attr.qp_type = IBV_QPT_UD;
    attr.cap.max_inline_data = 1 << 20;
    MUST(rdma_create_ep(&listener, passive, NULL, &attr) == 0);
    MUST(rdma_listen(listener, 4) == 0);
    int before = 0;
    for (int i = 0; i < 3; ++i) {
        struct end_of_cm* const client =
            make_client(NULL, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
        struct rdma_cm_event* event;
        MUST(ask(client, NULL, 0) == 0);
        CHECK(rdma_get_request(listener, &asked) == -1 && errno == EINVAL && asked == NULL);
        event = expect_event(client->channel, RDMA_CM_EVENT_UNREACHABLE);
        CHECK(event->status == REJECTED, "%d", event->status);
        CHECK(rdma_ack_cm_event(event) == 0);
        free_end(client);
        if (i == 0) before = descriptors();
    }
    CHECK(descriptors() == before, "%d, not %d", descriptors(), before);
    rdma_destroy_ep(listener);
    rdma_freeaddrinfo(passive);
}

/* A server that has forked and is gone: its child does not hold the port. */
static void dead_parent(enum rdma_port_space ps, enum rdma_cm_event_type told, int status) {
    int ways[2], port = 0;
    pid_t server, child = 0;
    struct end_of_cm* client;
    struct rdma_cm_event* event;
    MUST(pipe(ways) == 0 && (server = fork()) >= 0);
    if (server == 0) {
        struct end_of_cm* const e = calloc(1, sizeof *e);
        MUST(e != NULL && (e->channel = rdma_create_event_channel()) != NULL);
        MUST(rdma_create_id(e->channel, &e->id, e, ps) == 0);
        MUST(rdma_bind_addr(e->id, at("127.0.0.1", 0)) == 0 && rdma_listen(e->id, 4) == 0);
        port = port_of(e);
        usleep(50 * 1000); /* what begins in other threads is done */
        MUST(write(ways[1], &port, sizeof port) == sizeof port);
        MUST((child = fork()) >= 0);
        if (child == 0) { /* which has done by now what belongs to the fork */
            child = getpid();
            MUST(write(ways[1], &child, sizeof child) == sizeof child);
            for (;;) pause();
        }
        _exit(0);
    }
    MUST(read(ways[0], &port, sizeof port) == sizeof port);
    MUST(read(ways[0], &child, sizeof child) == sizeof child);
    CHECK(wait_for(server, LIMIT_S) == 0);
    client = calloc(1, sizeof *client);
    MUST(client != NULL && (client->channel = rdma_create_event_channel()) != NULL);
    MUST(rdma_create_id(client->channel, &client->id, client, ps) == 0);
    MUST(rdma_resolve_addr(client->id, NULL, at("127.0.0.1", port), 2000) == 0);
    expect_and_ack(client->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(client->id, 2000) == 0);
    expect_and_ack(client->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (ps == RDMA_PS_TCP) {
        struct ibv_qp_init_attr attr = qp_attr();
        MUST(rdma_create_qp(client->id, NULL, &attr) == 0);
    }
    MUST(ask(client, NULL, 0) == 0);
    event = event_within(client->channel, 10 * 1000);
    CHECK(event != NULL && event->event == told && event->status == status, "%s",
          event != NULL ? rdma_event_str(event->event) : "nothing");
    if (event != NULL) CHECK(rdma_ack_cm_event(event) == 0);
    kill(child, SIGKILL);
    free_end(client);
    close(ways[0]);
    close(ways[1]);
}
CASE(a_childs_parent_leaves_its_port) {
    dead_parent(RDMA_PS_UDP, RDMA_CM_EVENT_UNREACHABLE, UNSUPPORTED);
}
CASE(a_childs_parent_leaves_its_port_of_tcp) {
    dead_parent(RDMA_PS_TCP, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
