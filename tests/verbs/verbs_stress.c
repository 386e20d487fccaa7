/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A verbs program that does what it may, though few do: many threads on one queue, objects that go
 * in another order than they came, servers that are none. An ordinary program of libibverbs and
 * librdmacm; run it with the drop-in libraries in LD_LIBRARY_PATH.
 *
 *     verbs_stress [CASE...]     all cases, or the named ones; exit status 1 when one fails
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/verbs/pair.h"

/* ---- connections -------------------------------------------------------- */

static struct rdma_conn_param depths(void) {
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.responder_resources = param.initiator_depth = 4;
    return param;
}

static int readable(int fd) {
    struct pollfd ready = {fd, POLLIN, 0};
    return poll(&ready, 1, LIMIT_S * 1000) == 1;
}

/* The next event: its type (-1: none came), status and id. Acknowledged. */
struct told {
    int type, status;
    struct rdma_cm_id* id;
    uint8_t private_data[256];
    uint8_t private_data_length;
};
static struct told next_event(struct rdma_event_channel* channel) {
    struct told told = {.type = -1};
    struct rdma_cm_event* event;
    if (!readable(channel->fd)) return told;
    MUST(rdma_get_cm_event(channel, &event) == 0);
    told.type = (int)event->event;
    told.status = event->status;
    told.id = event->id;
    told.private_data_length = event->param.conn.private_data_len;
    if (event->param.conn.private_data != NULL) {
        memcpy(told.private_data, event->param.conn.private_data, told.private_data_length);
    }
    MUST(rdma_ack_cm_event(event) == 0);
    return told;
}
static struct rdma_cm_id* expect_event(struct rdma_event_channel* channel, int type, int line) {
    const struct told told = next_event(channel);
    if (told.type != type) {
        failed_once();
        printf("FAILED %s, line %d: %s (%d), expected %s\n", case_name, line,
               told.type < 0 ? "no event" : rdma_event_str((enum rdma_cm_event_type)told.type),
               told.status, rdma_event_str((enum rdma_cm_event_type)type));
    }
    return told.id;
}
#define EXPECT_EVENT(channel, type) expect_event(channel, type, __LINE__)

static struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* A TCP socket of its own, bound but not listening. */
static int bound_socket(struct sockaddr_in* address) {
    socklen_t size = sizeof *address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    *address = loopback(0);
    MUST(bind(fd, (struct sockaddr*)address, size) == 0);
    MUST(getsockname(fd, (struct sockaddr*)address, &size) == 0);
    return fd;
}

static struct rdma_cm_id* listen_on(struct rdma_event_channel* channel, int backlog) {
    struct rdma_cm_id* id = NULL;
    struct sockaddr_in any = loopback(0);
    MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_bind_addr(id, (struct sockaddr*)&any) == 0);
    MUST(rdma_listen(id, backlog) == 0);
    return id;
}

/* An id that has resolved its way; no QP yet. */
static struct rdma_cm_id* resolve(struct rdma_event_channel* channel, uint16_t port) {
    struct rdma_cm_id* id = NULL;
    struct sockaddr_in to = loopback(port);
    MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(id, NULL, (struct sockaddr*)&to, 2000) == 0);
    EXPECT_EVENT(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(id, 2000) == 0);
    EXPECT_EVENT(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

static uint32_t wanted_depth = 64;
static void make_qp(struct rdma_cm_id* id, struct ibv_cq* cq, struct ibv_srq* srq) {
    struct ibv_qp_init_attr attr = qp_attr();
    attr.cap.max_send_wr = attr.cap.max_recv_wr = wanted_depth;
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    MUST(rdma_create_qp(id, srq != NULL ? srq->pd : NULL, &attr) == 0);
}

/* Two channels and a listener; the ids come later. */
static void open_channels(struct pair* p, int backlog) {
    memset(p, 0, sizeof *p);
    MUST((p->channel_a = rdma_create_event_channel()) != NULL);
    MUST((p->channel_b = rdma_create_event_channel()) != NULL);
    p->listener = listen_on(p->channel_b, backlog);
}
static void close_channels(struct pair* p) {
    rdma_destroy_event_channel(p->channel_a);
    rdma_destroy_event_channel(p->channel_b);
}
static struct rdma_cm_id* resolve_to(const struct pair* p) {
    return resolve(p->channel_a, ntohs(rdma_get_src_port(p->listener)));
}
/* `a`, which has its QP, asks; the id of that request. */
static struct rdma_cm_id* request(const struct pair* p, struct rdma_cm_id* a,
                                  struct rdma_conn_param* param) {
    MUST(rdma_connect(a, param) == 0);
    struct rdma_cm_id* const b = EXPECT_EVENT(p->channel_b, RDMA_CM_EVENT_CONNECT_REQUEST);
    MUST(b != NULL);
    return b;
}
static void accept_request(const struct pair* p, struct rdma_cm_id* b,
                           struct rdma_conn_param* param) {
    MUST(rdma_accept(b, param) == 0);
    EXPECT_EVENT(p->channel_a, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EVENT(p->channel_b, RDMA_CM_EVENT_ESTABLISHED);
}

/* A pair whose ids tell of their events on channels. With queues of their own where none is given.
 */
static void connect_with(struct pair* p, struct ibv_cq* cq_a, struct ibv_cq* cq_b,
                         struct ibv_srq* srq_b) {
    struct rdma_conn_param param = depths();
    open_channels(p, 4);
    p->a = resolve_to(p);
    make_qp(p->a, cq_a, NULL);
    p->b = request(p, p->a, &param);
    make_qp(p->b, cq_b, srq_b);
    accept_request(p, p->b, &param);
    MUST((p->mr_a = ibv_reg_mr(p->a->pd, p->data_a, sizeof p->data_a, ALL_ACCESS)) != NULL);
    MUST((p->mr_b = ibv_reg_mr(p->b->pd, p->data_b, sizeof p->data_b, ALL_ACCESS)) != NULL);
}
static void connect_with_channels(struct pair* p) { connect_with(p, NULL, NULL, NULL); }

/* ---- posting ------------------------------------------------------------ */

static int send_from(struct ibv_qp* qp, uint64_t wr_id, const void* at, uint32_t length,
                     uint32_t lkey) {
    return post_numbered(qp, wr_id, IBV_WR_SEND, at, length, lkey, IBV_SEND_SIGNALED, 0, 0);
}
static int post_srq_recv(struct ibv_srq* srq, uint64_t wr_id, void* at, uint32_t length,
                         uint32_t lkey) {
    struct ibv_sge sge = {(uintptr_t)at, length, lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    return ibv_post_srq_recv(srq, &wr, &bad);
}

/* ---- connection management ---------------------------------------------- */

/* A server that serves one client closes its door first. */
CASE(listener_goes_first) {
    for (int refuse = 0; refuse < 2; ++refuse) {
        struct pair p;
        struct rdma_conn_param param = depths();
        open_channels(&p, 4);
        struct rdma_cm_id* const a = resolve_to(&p);
        make_qp(a, NULL, NULL);
        struct rdma_cm_id* const b = request(&p, a, &param);
        CHECK(rdma_destroy_id(p.listener) == 0);
        if (refuse) {
            CHECK(rdma_reject(b, "no", 2) == 0);
            const struct told told = next_event(p.channel_a);
            CHECK(told.type == RDMA_CM_EVENT_REJECTED && told.private_data_length >= 2 &&
                  memcmp(told.private_data, "no", 2) == 0);
        } else {
            make_qp(b, NULL, NULL);
            accept_request(&p, b, &param);
        }
        end(a);
        end(b);
        close_channels(&p);
    }
}

/* An MPA Request of revision 1 with CRC, as it lies on the wire, from a TCP socket. */
static int request_by_hand(uint16_t port) {
    static const char request[] = "MPA ID Req Frame\x40\x01\0";
    struct sockaddr_in to = loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(fd, (struct sockaddr*)&to, sizeof to) == 0);
    MUST(send(fd, request, sizeof request, 0) == sizeof request);
    return fd;
}

/* This process's end of a connection whose other end is `fd`. */
static int other_end(int fd) {
    struct sockaddr_in mine, peer;
    socklen_t size = sizeof mine;
    MUST(getsockname(fd, (struct sockaddr*)&mine, &size) == 0);
    for (int other = 3; other < 65536; ++other) {
        size = sizeof peer;
        if (getpeername(other, (struct sockaddr*)&peer, &size) == 0 &&
            peer.sin_port == mine.sin_port) {
            return other;
        }
    }
    return -1;
}

static atomic_int rejected;
static double longest_call;
static void* make_ids(void* channel) {
    while (!rejected) {
        struct rdma_cm_id* id = NULL;
        const double begun = now();
        CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0);
        if (now() - begun > longest_call) longest_call = now() - begun;
    }
    return NULL;
}

/* The rejection goes to peers that do not read, have reset the connection, or whose Request cannot
 * be read a second time (somebody took it): that one is waited for, and other calls go on. */
CASE(rejections) {
    enum { READS_LATE, HAS_RESET, TAKEN, PEERS };
    struct pair p;
    struct rdma_cm_id* ids[PEERS];
    int peers[PEERS];
    pthread_t thread;
    char bytes[64];
    open_channels(&p, PEERS);
    const uint16_t port = ntohs(rdma_get_src_port(p.listener));
    for (int i = 0; i < PEERS; ++i) {
        peers[i] = request_by_hand(port);
        ids[i] = EXPECT_EVENT(p.channel_b, RDMA_CM_EVENT_CONNECT_REQUEST);
        MUST(ids[i] != NULL);
    }
    const struct linger reset = {1, 0};
    MUST(setsockopt(peers[HAS_RESET], SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    MUST(close(peers[HAS_RESET]) == 0);
    MUST(recv(other_end(peers[TAKEN]), bytes, sizeof bytes, MSG_DONTWAIT) > 0);

    rejected = 0;
    longest_call = 0;
    MUST(pthread_create(&thread, NULL, make_ids, p.channel_a) == 0);
    for (int i = 0; i < PEERS; ++i) {
        const double begun = now();
        CHECK(rdma_reject(ids[i], "no", 2) == 0 || i == HAS_RESET);
        CHECK(i == TAKEN || now() - begun < 1, "%d: %.3f s", i, now() - begun);
        CHECK(rdma_reject(ids[i], "no", 2) != 0, "rejected already");
    }
    rejected = 1;
    pthread_join(thread, NULL);
    CHECK(longest_call < 1, "%.3f s", longest_call);

    ssize_t n = recv(peers[READS_LATE], bytes, 22, MSG_WAITALL);
    CHECK(n == 22 && memcmp(bytes, "MPA ID Rep Frame", 16) == 0 && (bytes[16] & 0x20) != 0 &&
              memcmp(bytes + 18, "\0\2no", 4) == 0,
          "%zd octets", n);
    CHECK(recv(peers[READS_LATE], bytes, sizeof bytes, 0) == 0);
    n = recv(peers[TAKEN], bytes, sizeof bytes, 0);
    CHECK(n == 0 || (n < 0 && errno == ECONNRESET), "%zd octets", n);
    close(peers[READS_LATE]);
    close(peers[TAKEN]);
    for (int i = 0; i < PEERS; ++i) end(ids[i]);
    end(p.listener);
    close_channels(&p);
}

/* rdma_migrate_id() of a listener that has clients waiting: they go along. */
CASE(listener_migrates) {
    struct rdma_event_channel* const active = rdma_create_event_channel();
    struct rdma_event_channel* const to = rdma_create_event_channel();
    struct rdma_conn_param param = depths();
    struct rdma_cm_id *listener = NULL, *a[2], *b[2];
    struct sockaddr_in any = loopback(0);
    MUST(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_bind_addr(listener, (struct sockaddr*)&any) == 0 && rdma_listen(listener, 4) == 0);
    const uint16_t port = ntohs(rdma_get_src_port(listener));
    for (int i = 0; i < 2; ++i) {
        a[i] = resolve(active, port);
        make_qp(a[i], NULL, NULL);
        MUST(rdma_connect(a[i], &param) == 0);
        CHECK(readable(listener->channel->fd));
    }
    /* A third has not said what it wants. */
    const int silent = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    MUST(connect(silent, (struct sockaddr*)&address, sizeof address) == 0);
    usleep(50000);

    CHECK(rdma_migrate_id(listener, to) == 0);
    for (int i = 0; i < 2; ++i) {
        b[i] = EXPECT_EVENT(to, RDMA_CM_EVENT_CONNECT_REQUEST);
        MUST(b[i] != NULL);
        CHECK(b[i]->channel == to);
    }
    for (int i = 0; i < 2; ++i) {
        make_qp(b[i], NULL, NULL);
        CHECK(rdma_accept(b[i], &param) == 0);
        EXPECT_EVENT(to, RDMA_CM_EVENT_ESTABLISHED);
        EXPECT_EVENT(active, RDMA_CM_EVENT_ESTABLISHED);
    }
    close(silent);
    for (int i = 0; i < 2; ++i) {
        end(a[i]);
        end(b[i]);
    }
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(to);
    rdma_destroy_event_channel(active);
}

/* Without parameters a connection has what the device can (rdma_connect(3)). */
CASE(no_parameters) {
    struct pair p;
    open_channels(&p, 0);
    struct rdma_cm_id* const a = resolve_to(&p);
    struct ibv_device_attr limits;
    MUST(ibv_query_device(a->verbs, &limits) == 0);
    make_qp(a, NULL, NULL);
    struct rdma_cm_id* const b = request(&p, a, NULL);
    make_qp(b, NULL, NULL);
    accept_request(&p, b, NULL);
    for (int i = 0; i < 2; ++i) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        MUST(ibv_query_qp(i ? b->qp : a->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0);
        CHECK(attr.max_rd_atomic == limits.max_qp_init_rd_atom, "%d", attr.max_rd_atomic);
        CHECK(attr.max_dest_rd_atomic == limits.max_qp_rd_atom, "%d", attr.max_dest_rd_atomic);
    }
    end(a);
    end(b);
    end(p.listener);
    close_channels(&p);
}

/* A listener that goes away without an answer refuses. */
CASE(destroyed_in_the_callback) {
    struct pair p;
    struct rdma_conn_param param = depths();
    open_channels(&p, 4);
    struct rdma_cm_event* event;
    struct rdma_cm_id* a = resolve_to(&p);
    make_qp(a, NULL, NULL);
    MUST(rdma_connect(a, &param) == 0);
    MUST(readable(p.channel_b->fd) && rdma_get_cm_event(p.channel_b, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_destroy_id(event->id) == 0); /* before the event is acknowledged */
    CHECK(rdma_ack_cm_event(event) == 0);
    const struct told told = next_event(p.channel_a);
    CHECK(told.type == RDMA_CM_EVENT_REJECTED, "%d", told.type);
    end(a);

    /* A request that was not reported goes with its p.listener. */
    a = resolve_to(&p);
    make_qp(a, NULL, NULL);
    MUST(rdma_connect(a, &param) == 0);
    CHECK(readable(p.channel_b->fd));
    end(p.listener);
    CHECK(next_event(p.channel_a).type == RDMA_CM_EVENT_REJECTED);
    end(a);
    close_channels(&p);
}

/* rdma_destroy_id() by a thread of its own. */
struct destroyer {
    struct rdma_cm_id* id;
    pthread_t thread;
    int result, error;
    _Atomic int done;
};
static void* destroy_the_id(void* argument) {
    struct destroyer* d = argument;
    d->result = rdma_destroy_id(d->id);
    d->error = errno;
    d->done = 1;
    return NULL;
}
static void start_destroy(struct destroyer* d, struct rdma_cm_id* id) {
    memset(d, 0, sizeof *d);
    d->id = id;
    MUST(pthread_create(&d->thread, NULL, destroy_the_id, d) == 0);
}
static int ends_in_time(struct destroyer* d) {
    const double limit = now() + LIMIT_S;
    while (!d->done && now() < limit) usleep(1000);
    return d->done && pthread_join(d->thread, NULL) == 0;
}

/* rdma_destroy_id() of a listener waits for the event that its child shows. The child gives it back
 * when it is destroyed, or when it goes on. */
CASE(destroy_waits_for_the_childs_event) {
    for (int goes_on = 0; goes_on < 2; ++goes_on) {
        struct rdma_event_channel* const active = rdma_create_event_channel();
        struct rdma_conn_param param = depths();
        struct rdma_cm_id *listener = NULL, *b = NULL;
        struct sockaddr_in any = loopback(0);
        struct destroyer d;
        MUST(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
        MUST(rdma_bind_addr(listener, (struct sockaddr*)&any) == 0);
        MUST(rdma_listen(listener, 4) == 0);
        struct rdma_cm_id* const a = resolve(active, ntohs(rdma_get_src_port(listener)));
        make_qp(a, NULL, NULL);
        MUST(rdma_connect(a, &param) == 0);
        MUST(rdma_get_request(listener, &b) == 0 && b->event != NULL);
        start_destroy(&d, listener);
        usleep(50000); /* asleep by now, or not yet: it must end either way */
        CHECK(!d.done);
        if (goes_on) {
            make_qp(b, NULL, NULL);
            CHECK(rdma_accept(b, &param) == 0);
        } else {
            CHECK(rdma_destroy_id(b) == 0);
        }
        if (!ends_in_time(&d)) {
            CHECK(0, "rdma_destroy_id() sleeps on");
            return;
        }
        CHECK(d.result == 0);
        if (goes_on) end(b);
        end(a);
        rdma_destroy_event_channel(active);
    }
}

/* The second of two that destroy one id is told so, although the first still waits. */
CASE(two_destroy_one_id) {
    struct pair p;
    struct rdma_conn_param param = depths();
    open_channels(&p, 4);
    struct rdma_cm_id* const a = resolve_to(&p);
    struct rdma_cm_event* event;
    struct destroyer d[2];
    make_qp(a, NULL, NULL);
    MUST(rdma_connect(a, &param) == 0);
    MUST(readable(p.channel_b->fd) && rdma_get_cm_event(p.channel_b, &event) == 0);
    struct rdma_cm_id* const b = event->id;
    for (int i = 0; i < 2; ++i) start_destroy(&d[i], p.listener);
    const double limit = now() + LIMIT_S;
    while (!d[0].done && !d[1].done && now() < limit) usleep(1000);
    struct destroyer* const second = d[0].done ? &d[0] : &d[1];
    struct destroyer* const first = d[0].done ? &d[1] : &d[0];
    if (!ends_in_time(second)) {
        CHECK(0, "neither ends"); /* acknowledged, both would free it */
        return;
    }
    CHECK(second->result == -1 && second->error == EINVAL, "%d, errno %d", second->result,
          second->error);
    CHECK(!first->done);
    errno = 0;
    CHECK(rdma_listen(p.listener, 4) == -1 && errno == EINVAL); /* it is no id any more */
    CHECK(rdma_ack_cm_event(event) == 0);
    if (!ends_in_time(first)) {
        CHECK(0, "the first sleeps on");
        return;
    }
    CHECK(first->result == 0);
    end(b);
    end(a);
    close_channels(&p);
}

/* A queue pair made with one id and connected by another, as servers do that make them ahead of
 * their clients: the program moves the pointer. */
static void move_qp(struct rdma_cm_id* to, struct rdma_cm_id* from) {
    to->qp = from->qp;
    from->qp = NULL;
}
CASE(queue_pairs_that_move) {
    for (int destroyed_late = 0; destroyed_late < 2; ++destroyed_late) {
        struct pair p;
        struct rdma_conn_param param = depths();
        struct rdma_cm_id* old[2] = {NULL, NULL};
        struct ibv_cq* cq[2];
        struct sockaddr_in any = loopback(0);
        open_channels(&p, 4);
        for (int i = 0; i < 2; ++i) {
            MUST((cq[i] = ibv_create_cq(device(), 128, NULL, NULL, 0)) != NULL);
            MUST(rdma_create_id(p.channel_b, &old[i], NULL, RDMA_PS_TCP) == 0);
            MUST(rdma_bind_addr(old[i], (struct sockaddr*)&any) == 0);
            make_qp(old[i], cq[i], NULL);
        }
        p.a = resolve_to(&p);
        move_qp(p.a, old[0]);
        if (!destroyed_late) CHECK(rdma_destroy_id(old[0]) == 0);
        p.b = request(&p, p.a, &param);
        move_qp(p.b, old[1]);
        if (!destroyed_late) CHECK(rdma_destroy_id(old[1]) == 0);
        accept_request(&p, p.b, &param);
        if (destroyed_late) {
            for (int i = 0; i < 2; ++i) {
                make_qp(old[i], cq[i], NULL); /* a place for another */
                end(old[i]);
            }
        }
        MUST((p.mr_a = ibv_reg_mr(p.a->pd, p.data_a, sizeof p.data_a, ALL_ACCESS)) != NULL);
        MUST((p.mr_b = ibv_reg_mr(p.b->pd, p.data_b, sizeof p.data_b, ALL_ACCESS)) != NULL);
        for (int i = 0; i < 2; ++i) { /* there and back */
            struct ibv_qp* const from = i == 0 ? p.a->qp : p.b->qp;
            struct ibv_qp* const to = i == 0 ? p.b->qp : p.a->qp;
            CHECK(state_of(from) == IBV_QPS_RTS);
            CHECK(post_recv(to, i == 0 ? p.data_b : p.data_a, 8,
                            i == 0 ? p.mr_b->lkey : p.mr_a->lkey) == 0);
            CHECK(send_from(from, 1, i == 0 ? p.data_a : p.data_b, 8,
                            i == 0 ? p.mr_a->lkey : p.mr_b->lkey) == 0);
            EXPECT(from->send_cq, IBV_WC_SUCCESS);
            EXPECT(to->recv_cq, IBV_WC_SUCCESS);
        }
        CHECK(rdma_disconnect(p.a) == 0);
        EXPECT_EVENT(p.channel_b, RDMA_CM_EVENT_DISCONNECTED);
        EXPECT_EVENT(p.channel_a, RDMA_CM_EVENT_DISCONNECTED);
        disconnect_pair(&p);
        for (int i = 0; i < 2; ++i) CHECK(ibv_destroy_cq(cq[i]) == 0);
    }
}

/* What is connected already, or is gone, no id takes over. */
CASE(queue_pairs_that_cannot_move) {
    struct pair p;
    struct rdma_conn_param param = depths();
    connect_with_channels(&p);
    struct rdma_cm_id* const other = resolve_to(&p);
    other->qp = p.a->qp;
    errno = 0;
    CHECK(rdma_connect(other, &param) == -1 && errno == EINVAL);
    other->qp = NULL;
    make_qp(other, NULL, NULL);
    struct ibv_qp* const gone = other->qp;
    rdma_destroy_qp(other);
    other->qp = gone;
    errno = 0;
    CHECK(rdma_connect(other, &param) == -1 && errno == EINVAL);
    other->qp = NULL;
    CHECK(rdma_destroy_id(other) == 0);
    /* The connection has not noticed. */
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
    EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(p.a) == 0);
    EXPECT_EVENT(p.channel_a, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EVENT(p.channel_b, RDMA_CM_EVENT_DISCONNECTED);
    disconnect_pair(&p);
}

/* A connect may find no listener, or one without iWARP. */
static void* other_server(void* argument) {
    const int fd = *(int*)argument;
    const int peer = accept(fd, NULL, NULL);
    static const char banner[] = "220 mail.example ESMTP\r\n";
    char bytes[512];
    MUST(peer >= 0 && write(peer, banner, sizeof banner - 1) > 0);
    while (read(peer, bytes, sizeof bytes) > 0) continue;
    close(peer);
    return NULL;
}
CASE(connects_to_other_servers) {
    struct rdma_event_channel* const channel = rdma_create_event_channel();
    struct rdma_conn_param param = depths();
    struct sockaddr_in address;
    const int fd = bound_socket(&address);
    pthread_t thread;

    struct rdma_cm_id* id = resolve(channel, ntohs(address.sin_port)); /* no listener */
    make_qp(id, NULL, NULL);
    MUST(rdma_connect(id, &param) == 0);
    struct told told = next_event(channel);
    CHECK(told.type == RDMA_CM_EVENT_REJECTED && told.status == -ECONNREFUSED, "%d", told.status);
    end(id);

    MUST(listen(fd, 4) == 0 && pthread_create(&thread, NULL, other_server, (void*)&fd) == 0);
    id = resolve(channel, ntohs(address.sin_port));
    make_qp(id, NULL, NULL);
    static char buffer[64];
    struct ibv_mr* const mr = ibv_reg_mr(id->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    CHECK(post_recv_numbered(id->qp, 1, buffer, sizeof buffer, mr->lkey) == 0);
    MUST(rdma_connect(id, &param) == 0);
    told = next_event(channel);
    CHECK(told.type == RDMA_CM_EVENT_CONNECT_ERROR && told.status == -EPROTO, "%d %d", told.type,
          told.status);
    EXPECT(id->recv_cq, IBV_WC_WR_FLUSH_ERR);
    pthread_join(thread, NULL);
    CHECK(ibv_dereg_mr(mr) == 0);
    end(id);
    close(fd);
    rdma_destroy_event_channel(channel);
}

/* Many at once, which a server with the least backlog gets one after another. */
CASE(thousand_connections) {
    struct rlimit files;
    MUST(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const int count = files.rlim_cur >= 4096 ? 1000 : 200;
    struct rdma_event_channel* const active = rdma_create_event_channel();
    struct rdma_event_channel* const passive = rdma_create_event_channel();
    struct rdma_conn_param param = depths();
    struct rdma_cm_id* const listener = listen_on(passive, 0);
    const uint16_t port = ntohs(rdma_get_src_port(listener));
    struct ibv_cq* const cq = ibv_create_cq(device(), 8192, NULL, NULL, 0);
    struct rdma_cm_id** const ids = calloc((size_t)count * 2, sizeof *ids);
    MUST(cq != NULL && ids != NULL);
    for (int i = 0; i < count; ++i) {
        ids[i] = resolve(active, port);
        make_qp(ids[i], cq, NULL);
    }
    const double start = now();
    for (int i = 0; i < count; ++i) MUST(rdma_connect(ids[i], &param) == 0);
    int asked = 0, established = 0;
    while (established < 2 * count) {
        struct pollfd ready[2] = {{active->fd, POLLIN, 0}, {passive->fd, POLLIN, 0}};
        if (poll(ready, 2, LIMIT_S * 1000) <= 0) break;
        if (ready[0].revents != 0) {
            EXPECT_EVENT(active, RDMA_CM_EVENT_ESTABLISHED);
            ++established;
        }
        if (ready[1].revents == 0) continue;
        const struct told told = next_event(passive);
        if (told.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            MUST(asked < count);
            ids[count + asked++] = told.id;
            make_qp(told.id, cq, NULL);
            CHECK(rdma_accept(told.id, &param) == 0);
        } else {
            CHECK(told.type == RDMA_CM_EVENT_ESTABLISHED, "%d", told.type);
            ++established;
        }
    }
    CHECK(asked == count && established == 2 * count, "%d of %d", established, 2 * count);
    const double took = now() - start;
    CHECK(took < LIMIT_S, "%.1f s", took);
    if (getenv("XSOCK_VERBS_STRESS_VERBOSE") != NULL)
        printf("%d connections in %.2f s\n", count, took);
    for (int i = 0; i < 2 * count; ++i) {
        if (ids[i] != NULL) end(ids[i]);
    }
    end(listener);
    CHECK(ibv_destroy_cq(cq) == 0);
    rdma_destroy_event_channel(active);
    rdma_destroy_event_channel(passive);
    free(ids);
}

/* All that was posted completes, once, when the connection is given up. */
CASE(disconnect_with_work_outstanding) {
    struct pair p;
    connect_with_channels(&p);
    int seen[3][32] = {{0}};
    for (unsigned i = 0; i < 32; ++i) {
        CHECK(post_recv_numbered(p.a->qp, 32 + i, p.data_a, 64, p.mr_a->lkey) == 0);
        CHECK(send_from(p.a->qp, i, p.data_a, 64, p.mr_a->lkey) == 0); /* b has no receives */
        CHECK(post_recv_numbered(p.b->qp, 64 + i, p.data_b, 8, p.mr_b->lkey) == 0);
    }
    CHECK(rdma_disconnect(p.a) == 0);
    EXPECT_EVENT(p.channel_b, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EVENT(p.channel_a, RDMA_CM_EVENT_DISCONNECTED);
    for (int i = 0; i < 32; ++i) {
        ++seen[0][next(p.a->send_cq).wr_id % 32];
        ++seen[1][next(p.a->recv_cq).wr_id % 32];
        ++seen[2][next(p.b->recv_cq).wr_id % 32];
    }
    for (int i = 0; i < 32; ++i) CHECK(seen[0][i] == 1 && seen[1][i] == 1 && seen[2][i] == 1);
    struct ibv_wc wc;
    usleep(20000);
    CHECK(ibv_poll_cq(p.a->send_cq, 1, &wc) == 0 && ibv_poll_cq(p.a->recv_cq, 1, &wc) == 0 &&
          ibv_poll_cq(p.b->recv_cq, 1, &wc) == 0);
    disconnect_pair(&p);
}

/* ---- queues and threads ------------------------------------------------- */

#define POSTERS 2u
#define POLLERS 3
#define EACH 20000u
struct many_threads {
    struct pair pair;
    struct ibv_cq* cq_b;
    unsigned received, sent;
    uint64_t sum;
    int failed;
};
static void* post_many(void* argument) {
    struct many_threads* c = argument;
    for (uint64_t i = 1; i <= EACH; ++i) {
        int error;
        const double limit = now() + LIMIT_S;
        while ((error = post_numbered(c->pair.a->qp, i, IBV_WR_SEND, &i, sizeof i, 0,
                                      IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 0)) == ENOMEM) {
            struct ibv_wc wc[16];
            const int n = ibv_poll_cq(c->pair.a->send_cq, 16, wc);
            for (int k = 0; k < n; ++k) {
                if (wc[k].status != IBV_WC_SUCCESS) c->failed = 1;
            }
            __atomic_fetch_add(&c->sent, (unsigned)n, __ATOMIC_RELAXED);
            if (now() > limit) return NULL;
        }
        if (error != 0) c->failed = 1;
    }
    return NULL;
}
static void* poll_many(void* argument) {
    struct many_threads* c = argument;
    const double limit = now() + 2 * LIMIT_S;
    while (__atomic_load_n(&c->received, __ATOMIC_RELAXED) < POSTERS * EACH && now() < limit) {
        struct ibv_wc wc[8];
        const int n = ibv_poll_cq(c->cq_b, 8, wc);
        for (int k = 0; k < n; ++k) {
            uint64_t number = 0;
            char* const at = c->pair.data_b + wc[k].wr_id * 8;
            memcpy(&number, at, sizeof number);
            if (wc[k].status != IBV_WC_SUCCESS || wc[k].byte_len != 8) c->failed = 1;
            __atomic_fetch_add(&c->sum, number, __ATOMIC_RELAXED);
            __atomic_fetch_add(&c->received, 1, __ATOMIC_RELAXED);
            if (post_recv_numbered(c->pair.b->qp, wc[k].wr_id, at, 8, c->pair.mr_b->lkey) != 0) {
                c->failed = 1;
            }
        }
    }
    return NULL;
}
CASE(many_threads) {
    static struct many_threads c;
    pthread_t threads[POSTERS + POLLERS];
    memset(&c, 0, sizeof c);
    MUST((c.cq_b = ibv_create_cq(device(), 256, NULL, NULL, 0)) != NULL);
    connect_with(&c.pair, NULL, c.cq_b, NULL);
    for (unsigned i = 0; i < 64; ++i) {
        MUST(post_recv_numbered(c.pair.b->qp, i, c.pair.data_b + i * 8, 8, c.pair.mr_b->lkey) == 0);
    }
    for (unsigned i = 0; i < POSTERS; ++i) {
        MUST(pthread_create(&threads[i], NULL, post_many, &c) == 0);
    }
    for (int i = 0; i < POLLERS; ++i) {
        MUST(pthread_create(&threads[POSTERS + (unsigned)i], NULL, poll_many, &c) == 0);
    }
    for (unsigned i = 0; i < POSTERS + POLLERS; ++i) pthread_join(threads[i], NULL);
    const double limit = now() + LIMIT_S;
    struct ibv_wc wc[16];
    while (c.sent < POSTERS * EACH && now() < limit) {
        c.sent += (unsigned)ibv_poll_cq(c.pair.a->send_cq, 16, wc);
    }
    CHECK(!c.failed);
    CHECK(c.received == POSTERS * EACH && c.sent == POSTERS * EACH, "%u %u", c.received, c.sent);
    CHECK(c.sum == (uint64_t)POSTERS * EACH * (EACH + 1) / 2);
    disconnect_pair(&c.pair);
    CHECK(ibv_destroy_cq(c.cq_b) == 0);
}

/* Queues are as deep as the device says, which rounds up: a power of two, at least 16. */
static uint32_t rounded(uint32_t depth) {
    uint32_t power = 16;
    while (power < depth) power *= 2;
    return power;
}
CASE(rounded_depths) {
    static const uint32_t wanted[] = {0, 1, 15, 16, 17, 100, 128, 20000, 32768};
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    MUST(pd != NULL);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
        const uint32_t expected = rounded(wanted[i]);
        struct ibv_cq* const cq =
            ibv_create_cq(device(), wanted[i] != 0 ? (int)wanted[i] : 1, NULL, NULL, 0);
        struct ibv_qp_init_attr init = qp_attr();
        struct ibv_qp_attr attr;
        MUST(cq != NULL);
        CHECK((uint32_t)cq->cqe == expected, "%d", cq->cqe);
        init.send_cq = init.recv_cq = cq;
        init.cap.max_send_wr = init.cap.max_recv_wr = wanted[i];
        struct ibv_qp* const qp = ibv_create_qp(pd, &init);
        MUST(qp != NULL);
        CHECK(init.cap.max_send_wr == expected, "%u", init.cap.max_send_wr);
        CHECK(init.cap.max_recv_wr == expected, "%u", init.cap.max_recv_wr);
        MUST(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0);
        CHECK(attr.cap.max_send_wr == expected && attr.cap.max_recv_wr == expected);
        CHECK(init.cap.max_send_wr == expected && init.cap.max_recv_wr == expected);
        CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    }
    CHECK(ibv_dealloc_pd(pd) == 0);
}

/* Posts signaled Writes and polls nothing: how many there is room for. */
static int writes_that_fit(struct pair* p, struct ibv_qp* qp) {
    int n = 0, error;
    while ((error = post_numbered(qp, 1, IBV_WR_RDMA_WRITE, p->data_a, 8, p->mr_a->lkey,
                                  IBV_SEND_SIGNALED, (uintptr_t)p->data_b, p->mr_b->rkey)) == 0) {
        if (++n > 1000) return n;
    }
    CHECK(error == ENOMEM, "%d", error);
    return n;
}
static void all_succeed(struct ibv_cq* cq, int n) {
    for (int i = 0; i < n; ++i) EXPECT(cq, IBV_WC_SUCCESS);
}

/* A program that posts until there is no room can post as much as the device has said, and loses
 * none of the completions. */
CASE(as_many_as_the_device_says) {
    struct pair p;
    int n = 0;
    wanted_depth = 10;
    connect_with(&p, NULL, NULL, NULL); /* whose queues rdma_create_qp() makes */
    CHECK(writes_that_fit(&p, p.a->qp) == 16);
    usleep(20000);
    all_succeed(p.a->send_cq, 16);
    CHECK(writes_that_fit(&p, p.a->qp) == 16);
    all_succeed(p.a->send_cq, 16);
    while (n < 1000 && post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0) ++n;
    CHECK(n == 16, "%d", n);
    for (int i = 0; i < 16; ++i) {
        CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    }
    usleep(20000);
    all_succeed(p.b->recv_cq, 16);
    disconnect_pair(&p);
    wanted_depth = 64;
}

/* Three queue pairs of 10 on one queue of 30, which is 32 deep: together they may have been
 * promised 48, but what does not fit is refused before it can overrun the queue. */
CASE(queue_pairs_that_share_a_small_queue) {
    static struct pair p[3];
    struct ibv_cq* const cq = ibv_create_cq(device(), 30, NULL, NULL, 0);
    struct ibv_async_event event;
    int n = 0;
    MUST(cq != NULL);
    wanted_depth = 10;
    for (int i = 0; i < 3; ++i) connect_with(&p[i], cq, NULL, NULL);
    for (int i = 0; i < 3; ++i) n += writes_that_fit(&p[i], p[i].a->qp);
    CHECK(n == 32, "%d", n);
    usleep(20000);
    all_succeed(cq, n);
    CHECK(ibv_resize_cq(cq, 48) == 0);
    n = 0;
    for (int i = 0; i < 3; ++i) n += writes_that_fit(&p[i], p[i].a->qp);
    CHECK(n == 48, "%d", n);
    usleep(20000);
    all_succeed(cq, n);
    struct pollfd ready = {device()->async_fd, POLLIN, 0};
    while (poll(&ready, 1, 0) == 1) {
        MUST(ibv_get_async_event(device(), &event) == 0);
        CHECK(event.event_type != IBV_EVENT_CQ_ERR);
        ibv_ack_async_event(&event);
    }
    for (int i = 0; i < 3; ++i) disconnect_pair(&p[i]);
    CHECK(ibv_destroy_cq(cq) == 0);
    wanted_depth = 64;
}

/* Inline data: up to 256 bytes, whose memory is the program's again at once. */
CASE(inline_data) {
    static const uint32_t sizes[] = {0, 1, 96, 97, 144, 145, 255, 256};
    struct pair p;
    struct ibv_qp_init_attr_ex attr;
    struct rdma_conn_param param = depths();
    connect_with_channels(&p);
    struct ibv_cq* const cq = ibv_create_cq(device(), 64, NULL, NULL, 0);
    struct rdma_cm_id* const a = resolve_to(&p);
    MUST(cq != NULL);
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    attr.send_cq = attr.recv_cq = cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = 2;
    attr.cap.max_inline_data = 257;
    attr.pd = p.a->pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    errno = 0;
    CHECK(rdma_create_qp_ex(a, &attr) == -1 && errno == EINVAL);
    attr.cap.max_inline_data = 256;
    MUST(rdma_create_qp_ex(a, &attr) == 0);
    CHECK(attr.cap.max_inline_data == 256, "%u", attr.cap.max_inline_data);
    struct ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a->qp);
    MUST(ex != NULL);
    struct rdma_cm_id* const b = request(&p, a, &param);
    make_qp(b, NULL, NULL);
    accept_request(&p, b, &param);

    char text[257];
    for (int extended = 0; extended < 2; ++extended) {
        for (unsigned round = 0; round < 5; ++round) { /* slots are used again */
            const unsigned count = sizeof sizes / sizeof *sizes;
            for (unsigned i = 0; i < count; ++i) {
                CHECK(post_recv_numbered(b->qp, i, p.data_b + 256 * i, 256, p.mr_b->lkey) == 0);
            }
            if (extended) ibv_wr_start(ex);
            for (unsigned i = 0; i < count; ++i) {
                memset(text, (int)('a' + i + round), sizeof text);
                if (extended) {
                    ex->wr_id = i;
                    ex->wr_flags = 0;
                    if (i % 2 == 0) {
                        ibv_wr_send(ex);
                    } else {
                        ibv_wr_send_imm(ex, htonl(i));
                    }
                    ibv_wr_set_inline_data(ex, text, sizes[i]);
                } else {
                    CHECK(post_numbered(a->qp, i, IBV_WR_SEND, text, sizes[i], 0, IBV_SEND_INLINE,
                                        0, 0) == 0);
                }
                memset(text, 'z', sizeof text);
            }
            if (extended) CHECK(ibv_wr_complete(ex) == 0);
            for (unsigned i = 0; i < count; ++i) {
                EXPECT(cq, IBV_WC_SUCCESS);
                const struct ibv_wc wc = next(b->recv_cq);
                CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == sizes[i]);
                const int immediate = extended && i % 2 != 0;
                CHECK(wc.wc_flags == (immediate ? 0u + IBV_WC_WITH_IMM : 0u));
                CHECK(!immediate || wc.imm_data == htonl(i));
                memset(text, (int)('a' + i + round), sizeof text);
                CHECK(memcmp(p.data_b + 256 * i, text, sizes[i]) == 0, "%u bytes", sizes[i]);
            }
        }
    }
    CHECK(post_numbered(a->qp, 1, IBV_WR_SEND, text, 257, 0, IBV_SEND_INLINE, 0, 0) == EINVAL);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, text, 257);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    end(a);
    end(b);
    disconnect_pair(&p);
    CHECK(ibv_destroy_cq(cq) == 0);
}

/* A thread waits at a channel while queues come to it and go. */
static _Atomic int stop;
static void* wait_at_channel(void* argument) {
    struct ibv_comp_channel* const channel = argument;
    while (!stop) {
        struct ibv_cq* cq;
        void* context;
        if (ibv_get_cq_event(channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    }
    return NULL;
}
CASE(channel_outlives_queues) {
    struct ibv_comp_channel* const channel = ibv_create_comp_channel(device());
    pthread_t thread;
    MUST(channel != NULL && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    struct ibv_cq* cq = ibv_create_cq(device(), 8, NULL, channel, 0);
    stop = 0;
    MUST(pthread_create(&thread, NULL, wait_at_channel, channel) == 0);
    for (int i = 0; i < 3000; ++i) {
        struct ibv_cq* const younger = ibv_create_cq(device(), 8, NULL, channel, 0);
        MUST(younger != NULL);
        MUST(ibv_destroy_cq(cq) == 0);
        cq = younger;
    }
    stop = 1;
    pthread_join(thread, NULL);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static struct ibv_cq_ex* extended_cq(struct ibv_comp_channel* channel) {
    struct ibv_cq_init_attr_ex attr;
    memset(&attr, 0, sizeof attr);
    attr.cqe = 64;
    attr.channel = channel;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM;
    return ibv_create_cq_ex(device(), &attr);
}
static int start_poll(struct ibv_cq_ex* cq) {
    struct ibv_poll_cq_attr attr;
    memset(&attr, 0, sizeof attr);
    return ibv_start_poll(cq, &attr);
}
static int start_poll_in_time(struct ibv_cq_ex* cq) {
    const double limit = now() + LIMIT_S;
    int error;
    while ((error = start_poll(cq)) == ENOENT && now() < limit) usleep(100);
    return error;
}

/* Between ibv_start_poll() and ibv_end_poll() events may come and be acknowledged. */
CASE(events_amid_an_extended_poll) {
    struct pair p;
    struct ibv_comp_channel* const channel = ibv_create_comp_channel(device());
    MUST(channel != NULL);
    struct ibv_cq_ex* const cq = extended_cq(channel);
    struct ibv_cq* found;
    void* context;
    MUST(cq != NULL);
    connect_with(&p, NULL, ibv_cq_ex_to_cq(cq), NULL);
    for (unsigned i = 0; i < 4; ++i)
        MUST(post_recv_numbered(p.b->qp, i, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0) == 0);
    CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(ibv_get_cq_event(channel, &found, &context) == 0);
    CHECK(start_poll_in_time(cq) == 0);
    ibv_ack_cq_events(found, 1);
    CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0) == 0);
    CHECK(send_from(p.a->qp, 2, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(ibv_get_cq_event(channel, &found, &context) == 0);
    ibv_ack_cq_events(found, 1);
    CHECK(cq->wr_id == 0 && ibv_wc_read_byte_len(cq) == 8);
    CHECK(ibv_next_poll(cq) == 0 && cq->wr_id == 1);
    CHECK(ibv_next_poll(cq) == ENOENT);
    ibv_end_poll(cq);
    disconnect_pair(&p);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
}

/* Completions of a QP go with it, wherever they wait. */
CASE(extended_poll_behind_a_dead_qp) {
    struct pair p;
    struct ibv_cq_ex* const cq = extended_cq(NULL);
    struct ibv_wc wc;
    MUST(cq != NULL);
    connect_with(&p, NULL, ibv_cq_ex_to_cq(cq), NULL);
    for (unsigned i = 0; i < 4; ++i)
        MUST(post_recv_numbered(p.b->qp, i, p.data_b, 8, p.mr_b->lkey) == 0);
    for (unsigned i = 0; i < 4; ++i) CHECK(send_from(p.a->qp, i, p.data_a, 8, p.mr_a->lkey) == 0);
    for (unsigned i = 0; i < 4; ++i) EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    usleep(100000);
    CHECK(start_poll_in_time(cq) == 0);
    CHECK(cq->wr_id == 0);
    ibv_end_poll(cq);
    CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.wr_id == 1);
    rdma_destroy_qp(p.b);
    CHECK(start_poll(cq) == ENOENT);
    CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 0);
    disconnect_pair(&p);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

/* A region may have other addresses than its memory (ibv_reg_mr_iova): requests speak in these,
 * inline data does not. */
CASE(other_addresses) {
    struct pair p;
    connect_with_channels(&p);
    struct ibv_cq* const cq = ibv_create_cq(device(), 64, NULL, NULL, 0);
    struct rdma_conn_param param = depths();
    struct rdma_cm_id* const a = resolve_to(&p);
    struct ibv_qp_init_attr_ex attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    attr.send_cq = attr.recv_cq = cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
    attr.pd = p.a->pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_TSO; /* there is none */
    CHECK(rdma_create_qp_ex(a, &attr) != 0 && a->qp == NULL);
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
    MUST(rdma_create_qp_ex(a, &attr) == 0);
    struct ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a->qp);
    MUST(ex != NULL);
    struct rdma_cm_id* const b = request(&p, a, &param);
    make_qp(b, NULL, NULL);
    accept_request(&p, b, &param);

    const uint64_t iova = 0x100000;
    struct ibv_mr* const mr = ibv_reg_mr_iova(a->pd, p.data_a, 4096, iova, ALL_ACCESS);
    MUST(mr != NULL);
    memcpy(p.data_a + 16, "by iova", 8);
    for (unsigned i = 0; i < 3; ++i)
        MUST(post_recv_numbered(b->qp, i, p.data_b, 64, p.mr_b->lkey) == 0);
    CHECK(send_from(a->qp, 1, (void*)(uintptr_t)(iova + 16), 8, mr->lkey) == 0);
    EXPECT(cq, IBV_WC_SUCCESS);
    EXPECT(b->recv_cq, IBV_WC_SUCCESS);
    CHECK(memcmp(p.data_b, "by iova", 8) == 0);

    memcpy(p.data_a + 16, "by wr_*", 8);
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, mr->lkey, iova + 16, 8);
    CHECK(ibv_wr_complete(ex) == 0);
    EXPECT(cq, IBV_WC_SUCCESS);
    EXPECT(b->recv_cq, IBV_WC_SUCCESS);
    CHECK(memcmp(p.data_b, "by wr_*", 8) == 0);

    CHECK(post_numbered(a->qp, 3, IBV_WR_SEND, "inline!", 8, mr->lkey, IBV_SEND_INLINE, 0, 0) == 0);
    EXPECT(cq, IBV_WC_SUCCESS);
    EXPECT(b->recv_cq, IBV_WC_SUCCESS);
    CHECK(memcmp(p.data_b, "inline!", 8) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    end(a);
    end(b);
    CHECK(ibv_destroy_cq(cq) == 0);
    disconnect_pair(&p);
}

/* A peer by hand that starts up and says nothing more, until it is closed. */
static void* mute(void* argument) {
    static const unsigned char reply[20] = "MPA ID Rep Frame\x40\x01\0";
    int* const fd = argument;
    char bytes[256];
    const int peer = accept(*fd, NULL, NULL);
    MUST(peer >= 0 && read(peer, bytes, sizeof bytes) >= 20);
    MUST(write(peer, reply, sizeof reply) == sizeof reply);
    *fd = peer;
    return NULL;
}

/* A reset QP has no past: nothing that was posted before it comes out later. */
CASE(reset_forgets) {
    struct rdma_event_channel* const channel = rdma_create_event_channel();
    struct rdma_conn_param param = depths();
    struct sockaddr_in address;
    int fd = bound_socket(&address);
    const int listening = fd;
    struct ibv_qp_attr attr;
    struct ibv_wc wc;
    pthread_t thread;
    MUST(listen(fd, 1) == 0);
    MUST(pthread_create(&thread, NULL, mute, &fd) == 0);
    struct rdma_cm_id* const id = resolve(channel, ntohs(address.sin_port));
    make_qp(id, NULL, NULL);
    MUST(rdma_connect(id, &param) == 0);
    EXPECT_EVENT(channel, RDMA_CM_EVENT_ESTABLISHED);
    pthread_join(thread, NULL);
    CHECK(rdma_disconnect(id) == 0);
    /* The connection is ending; these wait for its end. */
    static char buffer[64];
    struct ibv_mr* const mr = ibv_reg_mr(id->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    CHECK(send_from(id->qp, 1, buffer, 8, mr->lkey) == 0);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RESET;
    CHECK(ibv_modify_qp(id->qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(id->qp, &attr, IBV_QP_STATE) == 0);
    usleep(50000);
    CHECK(ibv_poll_cq(id->send_cq, 1, &wc) == 0, "request %d", (int)wc.wr_id);
    CHECK(ibv_dereg_mr(mr) == 0);
    end(id);
    close(fd);
    close(listening);
    rdma_destroy_event_channel(channel);
}

/* Posts of one thread while another resets the queue pair: whatever becomes of them, they go to no
 * memory that is gone. */
static void* post_on(void* argument) {
    struct ibv_qp* const qp = argument;
    struct ibv_wc wc[16];
    while (!stop) {
        struct ibv_recv_wr receive, *bad_receive;
        struct ibv_send_wr send, *bad_send;
        memset(&receive, 0, sizeof receive);
        memset(&send, 0, sizeof send);
        send.opcode = IBV_WR_SEND;
        send.send_flags = IBV_SEND_SIGNALED;
        ibv_post_recv(qp, &receive, &bad_receive);
        ibv_post_send(qp, &send, &bad_send);
        MUST(ibv_poll_cq(qp->send_cq, 16, wc) >= 0);
    }
    return NULL;
}
CASE(reset_under_posts) {
    struct ibv_context* const context = device();
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    struct ibv_cq* const cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = qp_attr();
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    pthread_t thread;
    MUST(pd != NULL && cq != NULL);
    attr.send_cq = attr.recv_cq = cq;
    struct ibv_qp* const qp = ibv_create_qp(pd, &attr);
    MUST(qp != NULL);
    stop = 0;
    MUST(pthread_create(&thread, NULL, post_on, qp) == 0);
    for (int round = 0; round < 1000; ++round) {
        CHECK(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX) == 0);
        if (round % 2 == 0) CHECK(to_state(qp, IBV_QPS_ERR) == 0);
        CHECK(to_state(qp, IBV_QPS_RESET) == 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* What a sanitizer keeps of freed memory is none of ours. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RSS_KNOWN = 0 };
#elif defined(__has_feature)
enum { RSS_KNOWN = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) };
#else
enum { RSS_KNOWN = 1 };
#endif

static long rss_kib(void) {
    long size = 0, resident = 0;
    FILE* const file = fopen("/proc/self/statm", "r");
    MUST(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void reset_full_queue(struct ibv_qp* qp, int depth) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_recv_wr receive, *bad;
    memset(&receive, 0, sizeof receive);
    MUST(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX) == 0);
    for (int i = 0; i < depth && ibv_post_recv(qp, &receive, &bad) == 0; ++i) {
    }
    MUST(to_state(qp, IBV_QPS_RESET) == 0);
}

/* Nothing of the queues before a reset stays, also if another thread posted. A thread that loses
 * the processor in the midst of a post keeps queues until it goes on, dozens of them on a loaded
 * machine; so memory is looked at when that thread is gone. */
static void reset_full_queues(int posting_thread) {
    enum { DEPTH = 1024, WARM = 200, ROUNDS = 2000, MOST_KIB = 4096 };
    struct ibv_context* const context = device();
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    struct ibv_cq* const cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = qp_attr();
    long kib[2];
    MUST(pd != NULL && cq != NULL);
    attr.send_cq = attr.recv_cq = cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = DEPTH;
    struct ibv_qp* const qp = ibv_create_qp(pd, &attr);
    MUST(qp != NULL);
    for (int part = 0; part < 2; ++part) {
        pthread_t thread;
        stop = 0;
        if (posting_thread) MUST(pthread_create(&thread, NULL, post_on, qp) == 0);
        for (int i = 0; i < (part == 0 ? WARM : ROUNDS); ++i) reset_full_queue(qp, DEPTH);
        stop = 1;
        if (posting_thread) pthread_join(thread, NULL);
        reset_full_queue(qp, DEPTH);
        malloc_trim(0);
        kib[part] = rss_kib();
    }
    printf("%d resets: %ld KiB more\n", ROUNDS, kib[1] - kib[0]);
    CHECK(!RSS_KNOWN || kib[1] - kib[0] < MOST_KIB);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}
CASE(resets_keep_no_memory) { reset_full_queues(0); }
CASE(resets_under_posts_keep_no_memory) { reset_full_queues(1); }

/* A QP that was destroyed has no peer any more: what that still writes goes nowhere, although the
 * region is there. */
static void* write_on(void* argument) {
    struct pair* p = argument;
    while (!stop) {
        struct ibv_sge sge = {(uintptr_t)p->data_a, sizeof p->data_a, p->mr_a->lkey};
        struct ibv_send_wr wr, *bad = NULL;
        struct ibv_wc wc[16];
        memset(&wr, 0, sizeof wr);
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma.remote_addr = (uintptr_t)p->data_b;
        wr.wr.rdma.rkey = p->mr_b->rkey;
        ibv_post_send(p->a->qp, &wr, &bad);
        ibv_poll_cq(p->a->send_cq, 16, wc);
    }
    return NULL;
}
CASE(writes_to_a_destroyed_qp) {
    for (int round = 0; round < 3; ++round) {
        static struct pair p;
        pthread_t thread;
        int written = 0;
        connect_with_channels(&p);
        stop = 0;
        MUST(pthread_create(&thread, NULL, write_on, &p) == 0);
        usleep(20000);
        rdma_destroy_qp(p.b);
        memset(p.data_b, 7, sizeof p.data_b);
        usleep(100000);
        for (size_t i = 0; i < sizeof p.data_b; ++i) written += p.data_b[i] != 7;
        CHECK(written == 0, "%d bytes", written);
        stop = 1;
        pthread_join(thread, NULL);
        disconnect_pair(&p);
    }
}

/* ibv_destroy_cq() waits for events that were got, and for nothing else. */
static void* acknowledge_late(void* argument) {
    usleep(200000);
    ibv_ack_cq_events(argument, 1);
    return NULL;
}
CASE(destroy_waits_for_acknowledgement) {
    struct pair p;
    struct ibv_comp_channel* const channel = ibv_create_comp_channel(device());
    struct ibv_cq* const cq = ibv_create_cq(device(), 64, NULL, channel, 0);
    struct ibv_cq* found;
    void* context;
    pthread_t thread;
    MUST(channel != NULL && cq != NULL);
    connect_with(&p, NULL, cq, NULL);
    for (unsigned i = 0; i < 4; ++i)
        MUST(post_recv_numbered(p.b->qp, i, p.data_b, 8, p.mr_b->lkey) == 0);
    for (unsigned i = 0; i < 2; ++i) {
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
        CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
        CHECK(readable(channel->fd));
        if (i == 0) CHECK(ibv_get_cq_event(channel, &found, &context) == 0 && found == cq);
    }
    rdma_destroy_qp(p.b);
    const double start = now();
    MUST(pthread_create(&thread, NULL, acknowledge_late, cq) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(now() - start > 0.15);
    pthread_join(thread, NULL);
    struct pollfd ready = {channel->fd, POLLIN, 0};
    CHECK(poll(&ready, 1, 0) == 0); /* the event that was not got is gone */
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    disconnect_pair(&p);
}

/* ---- shared receive queues ---------------------------------------------- */

static int async_event(struct ibv_context* context, enum ibv_event_type type, void* element) {
    struct pollfd ready = {context->async_fd, POLLIN, 0};
    while (poll(&ready, 1, LIMIT_S * 1000) == 1) {
        struct ibv_async_event event;
        MUST(ibv_get_async_event(context, &event) == 0);
        const int found = event.event_type == type && (void*)event.element.qp == element;
        ibv_ack_async_event(&event);
        if (found) return 1;
    }
    return 0;
}

CASE(shared_receives) {
    enum { QPS = 4 };
    static struct pair p[QPS];
    struct ibv_context* const context = device();
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 64, .max_sge = 1}};
    struct ibv_srq* const srq = ibv_create_srq(pd, &init);
    struct ibv_cq* const cq = ibv_create_cq(context, 256, NULL, NULL, 0);
    static char buffer[64 * 64];
    MUST(pd != NULL && srq != NULL && cq != NULL);
    struct ibv_mr* const mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    for (unsigned i = 0; i < 16; ++i) {
        CHECK(post_srq_recv(srq, i, buffer + i * 64, 64, mr->lkey) == 0);
    }
    for (int i = 0; i < QPS; ++i) connect_with(&p[i], NULL, cq, srq);
    struct ibv_srq_attr limit = {.srq_limit = 10};
    CHECK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
    struct ibv_srq_attr asked;
    CHECK(ibv_query_srq(srq, &asked) == 0 && asked.srq_limit == 10);

    /* Each message takes one, whichever QP it comes from. */
    for (int i = 0; i < 8; ++i) {
        CHECK(send_from(p[i % QPS].a->qp, 1, p[i % QPS].data_a, 8, p[i % QPS].mr_a->lkey) == 0);
        const struct ibv_wc wc = next(cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == p[i % QPS].b->qp->qp_num);
    }
    CHECK(async_event(context, IBV_EVENT_SRQ_LIMIT_REACHED, srq)); /* 8 are left */
    CHECK(ibv_query_srq(srq, &asked) == 0 && asked.srq_limit == 0);

    /* One dies: it takes none along, and says when it will take no more. */
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(p[0].b->qp, &error, IBV_QP_STATE) == 0);
    CHECK(async_event(context, IBV_EVENT_QP_LAST_WQE_REACHED, p[0].b->qp));
    for (int i = 0; i < 8; ++i) {
        struct pair* const q = &p[1 + i % (QPS - 1)];
        CHECK(send_from(q->a->qp, 1, q->data_a, 8, q->mr_a->lkey) == 0);
        EXPECT(cq, IBV_WC_SUCCESS);
    }
    /* All wait for the ones that come now. */
    for (int i = 1; i < QPS; ++i) {
        CHECK(send_from(p[i].a->qp, 1, p[i].data_a, 8, p[i].mr_a->lkey) == 0);
    }
    usleep(100000);
    for (unsigned i = 0; i < 3; ++i) {
        CHECK(post_srq_recv(srq, i, buffer + i * 64, 64, mr->lkey) == 0);
    }
    for (int i = 1; i < QPS; ++i) EXPECT(cq, IBV_WC_SUCCESS);
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    for (int i = 0; i < QPS; ++i) disconnect_pair(&p[i]);
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
}

/* ---- fork --------------------------------------------------------------- */

CASE(child_comes_and_goes) {
    struct pair p;
    struct ibv_wc wc;
    int status = 0;
#ifdef __SANITIZE_THREAD__
    printf("SKIPPED %s: ThreadSanitizer allows no threads in a forked child\n", case_name);
    return;
#endif
    connect_with_channels(&p);
    for (unsigned i = 0; i < 8; ++i)
        MUST(post_recv_numbered(p.b->qp, i, p.data_b, 8, p.mr_b->lkey) == 0);
    for (int round = 0; round < 3; ++round) {
        fflush(stdout);
        const pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            /* Nothing of the parent's is the child's; a device of its own it may have. */
            int wrong = 0;
            wrong |= send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0 ? 1 : 0;
            wrong |= ibv_poll_cq(p.a->send_cq, 1, &wc) > 0 ? 2 : 0;
            wrong |= rdma_disconnect(p.a) == 0 ? 4 : 0;
            wrong |= ibv_destroy_qp(p.a->qp) == 0 ? 8 : 0;
            struct pair* const own = malloc(sizeof *own);
            connect_with_channels(own);
            wrong |=
                post_recv_numbered(own->b->qp, 1, own->data_b, 8, own->mr_b->lkey) != 0 ? 16 : 0;
            wrong |= send_from(own->a->qp, 1, own->data_a, 8, own->mr_a->lkey) != 0 ? 16 : 0;
            wrong |= next(own->b->recv_cq).status != IBV_WC_SUCCESS ? 32 : 0;
            if (round == 0) _exit(wrong);
            disconnect_pair(own);
            if (round == 1) exit(wrong);
            for (;;) pause();
        }
        CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
        EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
        if (round == 2) {
            usleep(100000);
            kill(child, SIGKILL);
        }
        MUST(waitpid(child, &status, 0) == child);
        CHECK(round == 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "status %x", (unsigned)status);
        CHECK(send_from(p.a->qp, 1, p.data_a, 8, p.mr_a->lkey) == 0);
        EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    }
    disconnect_pair(&p);
}

/* ---- everything at once ------------------------------------------------- */

/* Threads make connections, post whatever there is to post, and take them apart in any order. What
 * counts is that no thread waits for ever, and what a sanitizer says. */
#define CHURNERS 4
static struct ibv_cq* common_cq;
static struct ibv_srq* common_srq;
static struct ibv_mr* common_mr;
static char common_memory[4096];
static double churn_until;

struct churner {
    struct pair pair;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    unsigned seed;
    unsigned rounds;
};
static unsigned any(struct churner* c, unsigned below) {
    c->seed = c->seed * 1103515245u + 12345u;
    return (c->seed >> 16) % below;
}

static void post_something(struct churner* c) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct pair* const p = &c->pair;
    const int from_a = any(c, 2) != 0;
    struct ibv_qp* const qp = from_a ? p->a->qp : p->b->qp;
    char* const data = from_a ? p->data_a : p->data_b;
    struct ibv_mr* const mine = from_a ? p->mr_a : p->mr_b;
    struct ibv_mr* const theirs = from_a ? p->mr_b : p->mr_a;
    const unsigned what = any(c, 7);
    if (what >= 5 && qp->srq != NULL) {
        post_srq_recv(qp->srq, 1, common_memory, sizeof common_memory, common_mr->lkey);
        return;
    }
    if (what >= 5) {
        post_recv_numbered(qp, 1, data, sizeof p->data_a, mine->lkey);
        return;
    }
    struct ibv_sge sge = {(uintptr_t)data + 8 * any(c, 100), 8 * (1 + any(c, 500)), mine->lkey};
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcodes[what];
    wr.send_flags = (any(c, 2) ? IBV_SEND_SIGNALED : 0u) | (any(c, 4) ? 0u : IBV_SEND_FENCE);
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        sge.length = 8;
        wr.wr.atomic.remote_addr = (uintptr_t)theirs->addr + 8 * any(c, 100);
        wr.wr.atomic.rkey = theirs->rkey;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)theirs->addr;
        wr.wr.rdma.rkey = theirs->rkey ^ (any(c, 300) == 0);
    }
    ibv_post_send(qp, &wr, &bad);
}

static void look_around(struct churner* c) {
    struct ibv_wc wc[16];
    struct ibv_cq* cq;
    void* context;
    ibv_poll_cq(c->pair.a->qp->send_cq, 16, wc);
    ibv_poll_cq(c->pair.b->qp->recv_cq, 16, wc);
    if (c->channel != NULL && ibv_get_cq_event(c->channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        ibv_req_notify_cq(cq, 0);
    }
}

static void break_something(struct churner* c) {
    struct pair* const p = &c->pair;
    struct ibv_qp_attr to;
    memset(&to, 0, sizeof to);
    switch (any(c, 7)) {
        case 0:
            rdma_disconnect(p->a);
            break;
        case 1:
            rdma_disconnect(p->b);
            rdma_disconnect(p->a);
            break;
        case 2:
            to.qp_state = IBV_QPS_ERR;
            CHECK(ibv_modify_qp(p->a->qp, &to, IBV_QP_STATE) == 0);
            break;
        case 3:
            to.qp_state = IBV_QPS_RESET;
            CHECK(ibv_modify_qp(p->b->qp, &to, IBV_QP_STATE) == 0);
            break;
        case 4:
            rdma_destroy_qp(p->a);
            break;
        case 5:
            CHECK(ibv_dereg_mr(p->mr_a) == 0);
            p->mr_a = NULL;
            usleep(any(c, 2000));
            break;
        default:
            break;
    }
}

static void* churn(void* argument) {
    struct churner* c = argument;
    struct pair* const p = &c->pair;
    while (now() < churn_until) {
        struct ibv_srq* const srq = any(c, 3) == 0 ? common_srq : NULL;
        c->channel = NULL;
        c->cq = NULL;
        if (any(c, 2)) {
            c->channel = ibv_create_comp_channel(device());
            c->cq = ibv_create_cq(device(), 1024, NULL, c->channel, 0);
            MUST(c->channel != NULL && c->cq != NULL);
            MUST(fcntl(c->channel->fd, F_SETFL, O_NONBLOCK) == 0);
            ibv_req_notify_cq(c->cq, 0);
        }
        connect_with(p, c->cq, srq != NULL ? common_cq : NULL, srq);
        for (unsigned i = any(c, 200); i > 0; --i) {
            post_something(c);
            if (any(c, 4) == 0) look_around(c);
        }
        break_something(c);
        CHECK(rdma_destroy_id(p->listener) == 0);
        if (p->mr_a != NULL) CHECK(ibv_dereg_mr(p->mr_a) == 0);
        end(p->a);
        CHECK(ibv_dereg_mr(p->mr_b) == 0);
        end(p->b);
        rdma_destroy_event_channel(p->channel_a);
        rdma_destroy_event_channel(p->channel_b);
        if (c->cq != NULL) CHECK(ibv_destroy_cq(c->cq) == 0);
        if (c->channel != NULL) CHECK(ibv_destroy_comp_channel(c->channel) == 0);
        ++c->rounds;
    }
    return NULL;
}

CASE(everything_at_once) {
    static struct churner churners[CHURNERS];
    pthread_t threads[CHURNERS];
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 1000, .max_sge = 1}};
    struct ibv_wc wc[64];
    MUST(pd != NULL);
    MUST((common_srq = ibv_create_srq(pd, &init)) != NULL);
    MUST((common_mr =
              ibv_reg_mr(pd, common_memory, sizeof common_memory, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    MUST((common_cq = ibv_create_cq(device(), 1 << 20, NULL, NULL, 0)) != NULL);
    const char* const seed = getenv("XSOCK_VERBS_STRESS_SEED");
    churn_until = now() + 3;
    for (unsigned i = 0; i < CHURNERS; ++i) {
        churners[i].seed = (seed != NULL ? (unsigned)atoi(seed) : 0) + i * 7919;
        MUST(pthread_create(&threads[i], NULL, churn, &churners[i]) == 0);
    }
    while (now() < churn_until) {
        while (ibv_poll_cq(common_cq, 64, wc) > 0) continue;
        usleep(1000);
    }
    for (int i = 0; i < CHURNERS; ++i) {
        pthread_join(threads[i], NULL);
        CHECK(churners[i].rounds > 0);
    }
    CHECK(ibv_destroy_cq(common_cq) == 0);
    CHECK(ibv_destroy_srq(common_srq) == 0);
    CHECK(ibv_dereg_mr(common_mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
