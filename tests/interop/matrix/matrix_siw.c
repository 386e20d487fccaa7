/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The guest's side of the siw matrix: does on verbs and rdma_cm what matrix_xsock asks for, over
 * one control connection for each row. One process for each, so that a row can be killed and leaves
 * nothing behind.
 *
 *   matrix_siw ADDRESS PORT     serves control connections; ADDRESS is also where rows listen
 *
 * A request is a line, and so is its answer: "ok ..." or "fail WHY". The commands: do_line().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

enum { CONNS_MAX = 64, MEMS_MAX = 64, CQ_DEPTH = 32000, WAIT_MS = 300000, RESOLVE_MS = 5000 };

enum kind { KIND_SEND, KIND_RECV };

struct conn {
    struct rdma_cm_id* id;
    bool established, over;
    enum rdma_cm_event_type last;
    int last_status;
    struct rdma_conn_param peer; /* what the other side's frame said */
    uint8_t peer_data[256];
    uint8_t* recv_bytes; /* of the posted receives, one behind the other */
    struct ibv_mr* recv_mr;
    uint32_t recv_size, recv_posted, recv_done, recv_failed;
    uint32_t send_done, send_failed;
    uint32_t invalidated;
    char trouble[160]; /* the first completion that was no success */
};

struct mem {
    uint8_t* bytes;
    size_t length;
    struct ibv_mr* mr;
};

static struct {
    struct sockaddr_in address;
    struct lines control;
    struct rdma_event_channel* channel;
    struct ibv_context* verbs;
    struct ibv_pd *pd, *foreign_pd;
    struct ibv_comp_channel* completions;
    struct ibv_cq* cq;
    struct rdma_cm_id* listener;
    struct rdma_cm_id* requests[CONNS_MAX];
    struct rdma_conn_param request_params[CONNS_MAX];
    uint8_t request_data[CONNS_MAX][256];
    int request_count;
    struct conn conns[CONNS_MAX];
    struct conn* current;
    struct mem mems[MEMS_MAX];
    int mem_count;
    int kernel_log;
    bool idle; /* waits for the next request */
    /* Of connections to come. */
    uint32_t ird, ord, rq, sq, private_data, first_recv;
    unsigned async_events;
    char async_text[160];
} g = {.ird = 16, .ord = 16, .rq = 64, .sq = 64};

static void answer(const char* format, ...) __attribute__((format(printf, 1, 2)));
static void answer(const char* format, ...) {
    char text[LINE_MAX_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (line_write(g.control.fd, "%s", text) != 0) exit(1); /* the other end is gone */
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool open_verbs(struct ibv_context* verbs) {
    if (g.verbs != NULL) return g.verbs == verbs;
    g.verbs = verbs;
    g.pd = ibv_alloc_pd(verbs);
    g.completions = ibv_create_comp_channel(verbs);
    if (g.pd == NULL || g.completions == NULL) return false;
    g.cq = ibv_create_cq(verbs, CQ_DEPTH, NULL, g.completions, 0);
    fcntl(verbs->async_fd, F_SETFL, O_NONBLOCK);
    fcntl(g.completions->fd, F_SETFL, O_NONBLOCK);
    return g.cq != NULL && ibv_req_notify_cq(g.cq, 0) == 0;
}

static bool create_qp(struct rdma_cm_id* id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};

    if (!open_verbs(id->verbs)) return false;
    attr.send_cq = attr.recv_cq = g.cq;
    attr.cap.max_send_wr = g.sq;
    attr.cap.max_recv_wr = g.rq;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    return rdma_create_qp(id, g.pd, &attr) == 0;
}

/* The initiator's peer speaks with the Reply, the responder's spoke with the request. */
static void take_peer_data(struct conn* conn, const struct rdma_conn_param* peer) {
    if (conn->peer.private_data != NULL) return;
    conn->peer = *peer;
    if (peer->private_data != NULL)
        memcpy(conn->peer_data, peer->private_data, peer->private_data_len);
}

static void on_cm_event(const struct rdma_cm_event* event) {
    struct conn* conn = event->id->context;

    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        if (g.request_count == CONNS_MAX) return;
        const int i = g.request_count++;

        g.requests[i] = event->id;
        g.request_params[i] = event->param.conn;
        if (event->param.conn.private_data != NULL)
            memcpy(g.request_data[i], event->param.conn.private_data,
                   event->param.conn.private_data_len);
        return;
    }
    if (conn == NULL) return;
    conn->last = event->event;
    conn->last_status = event->status;
    switch (event->event) {
        case RDMA_CM_EVENT_ESTABLISHED:
            conn->established = true;
            take_peer_data(conn, &event->param.conn);
            break;
        case RDMA_CM_EVENT_REJECTED:
            take_peer_data(conn, &event->param.conn);
            conn->over = true;
            break;
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
            conn->over = true;
            break;
        default:
            break;
    }
}

static uint64_t wr_id_of(const struct conn* conn, enum kind kind, uint32_t i) {
    return (uint64_t)(conn - g.conns) << 32 | (uint64_t)kind << 31 | i;
}

static struct conn* conn_of(uint64_t wr_id) { return &g.conns[wr_id >> 32]; }

static void on_completion(const struct ibv_wc* wc) {
    struct conn* conn = conn_of(wc->wr_id);
    const bool receive = (wc->wr_id >> 31 & 1) == KIND_RECV;

    if (wc->status != IBV_WC_SUCCESS) {
        if (conn->trouble[0] == '\0' && wc->status != IBV_WC_WR_FLUSH_ERR)
            snprintf(conn->trouble, sizeof(conn->trouble), "%s: %s", receive ? "receive" : "send",
                     ibv_wc_status_str(wc->status));
        if (receive)
            conn->recv_failed++;
        else
            conn->send_failed++;
        return;
    }
    if (!receive) {
        conn->send_done++;
        return;
    }
    if (wc->byte_len != conn->recv_size && conn->trouble[0] == '\0')
        snprintf(conn->trouble, sizeof(conn->trouble), "receive %u has %u bytes, not %u",
                 conn->recv_done, wc->byte_len, conn->recv_size);
    if (wc->wc_flags & IBV_WC_WITH_INV) conn->invalidated = wc->invalidated_rkey;
    conn->recv_done++;
}

static bool take_completions(void) {
    struct ibv_wc wcs[64];
    const int n = g.cq != NULL ? ibv_poll_cq(g.cq, 64, wcs) : 0;

    for (int i = 0; i < n; i++) on_completion(&wcs[i]);
    return n > 0;
}

/* Handles what there is; waits up to `ms` for something when there is nothing. */
static void pump(int ms) {
    struct pollfd fds[4] = {
        {.fd = g.channel->fd, .events = POLLIN},
        {.fd = g.control.fd, .events = (short)(g.idle ? POLLIN | POLLRDHUP : POLLRDHUP)},
        {.fd = g.cq != NULL ? g.completions->fd : -1, .events = POLLIN},
        {.fd = g.verbs != NULL ? g.verbs->async_fd : -1, .events = POLLIN}};

    if (take_completions()) return;
    if (g.cq != NULL) {
        struct ibv_cq* cq;
        void* context;

        while (ibv_get_cq_event(g.completions, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
        ibv_req_notify_cq(g.cq, 0);
        if (take_completions()) return;
    }
    if (poll(fds, 4, ms) <= 0) return;
    if (fds[1].revents & (POLLRDHUP | POLLHUP)) exit(0); /* the row is over */
    if (fds[0].revents & POLLIN) {
        struct rdma_cm_event* event;

        if (rdma_get_cm_event(g.channel, &event) == 0) {
            on_cm_event(event);
            rdma_ack_cm_event(event);
        }
    }
    if (fds[3].revents & POLLIN) {
        struct ibv_async_event event;

        while (ibv_get_async_event(g.verbs, &event) == 0) {
            snprintf(g.async_text, sizeof(g.async_text), "%s",
                     ibv_event_type_str(event.event_type));
            g.async_events++;
            ibv_ack_async_event(&event);
        }
    }
}

#define WAIT_UNTIL(condition)                              \
    ({                                                     \
        const int64_t end_ = now_ms() + WAIT_MS;           \
        while (!(condition) && now_ms() < end_) pump(100); \
        (condition);                                       \
    })

/* ---- connections ------------------------------------------------------------------------------
 */

static struct rdma_conn_param own_params(const uint8_t* private_data) {
    return (struct rdma_conn_param){.responder_resources = (uint8_t)g.ird,
                                    .initiator_depth = (uint8_t)g.ord,
                                    .private_data = g.private_data ? private_data : NULL,
                                    .private_data_len = (uint8_t)g.private_data};
}

static const char* peer_data_right(const struct conn* conn) {
    return pattern_check(conn->peer_data, conn->peer.private_data_len, 77) == PATTERN_OK ? "right"
                                                                                         : "wrong";
}

static void report_connection(const struct conn* conn) {
    answer("ok ird=%u ord=%u private_data=%u %s", conn->peer.responder_resources,
           conn->peer.initiator_depth, conn->peer.private_data_len, peer_data_right(conn));
}

/* Posts receives of a connection in place of the earlier ones, which must be used up. NULL, or why
 * not. */
static const char* post_receives(struct conn* conn, uint32_t size, uint32_t count) {
    if (conn->recv_mr != NULL) ibv_dereg_mr(conn->recv_mr);
    free(conn->recv_bytes);
    const size_t total = (size_t)size * count;

    conn->recv_bytes = calloc(1, total + 1);
    conn->recv_mr = conn->recv_bytes == NULL
                        ? NULL
                        : ibv_reg_mr(g.pd, conn->recv_bytes, total + 1, IBV_ACCESS_LOCAL_WRITE);
    if (conn->recv_mr == NULL) return "no memory";
    conn->recv_size = size;
    conn->recv_posted = count;
    conn->recv_done = conn->recv_failed = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)conn->recv_bytes + (size_t)i * size,
                              .length = size,
                              .lkey = conn->recv_mr->lkey};
        struct ibv_recv_wr wr = {
            .wr_id = wr_id_of(conn, KIND_RECV, i), .sg_list = &sge, .num_sge = 1};
        struct ibv_recv_wr* bad;

        if (ibv_post_recv(conn->id->qp, &wr, &bad) != 0) return "the queue is full";
    }
    return NULL;
}

/* The queue pair, and a receive for a peer that speaks the moment it can. */
static bool prepare_qp(struct conn* conn) {
    return create_qp(conn->id) && (g.first_recv == 0 || !post_receives(conn, g.first_recv, 1));
}

static void do_listen(const char* arguments) {
    (void)arguments;
    struct sockaddr_in address = g.address;

    address.sin_port = 0;
    if (rdma_create_id(g.channel, &g.listener, NULL, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(g.listener, (struct sockaddr*)&address) != 0 ||
        rdma_listen(g.listener, CONNS_MAX) != 0) {
        answer("fail listen: %s", strerror(errno));
        return;
    }
    answer("ok %u", ntohs(rdma_get_src_port(g.listener)));
}

static int accept_one(int i, const uint8_t* private_data) {
    struct conn* conn = &g.conns[i];
    struct rdma_conn_param params = own_params(private_data);

    conn->id = g.requests[i];
    conn->id->context = conn;
    conn->peer = g.request_params[i];
    memcpy(conn->peer_data, g.request_data[i], sizeof(conn->peer_data));
    if (!prepare_qp(conn)) return -1;
    return rdma_accept(conn->id, &params);
}

static void do_accept(const char* arguments) {
    const int count = atoi(arguments);
    uint8_t private_data[256];

    if (count < 1 || count > CONNS_MAX) {
        answer("fail accept: %d", count);
        return;
    }
    pattern_fill(private_data, sizeof(private_data), 78);
    for (int i = 0; i < count; i++) {
        if (!WAIT_UNTIL(g.request_count > i)) {
            answer("fail accept: no request %d", i);
            return;
        }
        if (accept_one(i, private_data) != 0) {
            answer("fail accept %d: %s", i, strerror(errno));
            return;
        }
    }
    for (int i = 0; i < count; i++) {
        struct conn* conn = &g.conns[i];

        if (!WAIT_UNTIL(conn->established || conn->over) || !conn->established) {
            answer("fail accept %d: %s, status %d", i, rdma_event_str(conn->last),
                   conn->last_status);
            return;
        }
    }
    report_connection(&g.conns[0]);
}

/* reject BYTES: of private data */
static void do_reject(const char* arguments) {
    uint8_t private_data[256];
    const int length = atoi(arguments);

    pattern_fill(private_data, sizeof(private_data), 78);
    if (length < 0 || length > 255 || !WAIT_UNTIL(g.request_count > 0) ||
        rdma_reject(g.requests[0], private_data, (uint8_t)length) != 0)
        answer("fail reject: %s", g.request_count > 0 ? strerror(errno) : "no request");
    else
        answer("ok");
}

static bool connect_one(struct conn* conn, const char* host, int port,
                        const uint8_t* private_data) {
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct rdma_conn_param params = own_params(private_data);

    params.retry_count = 7;
    conn->last = RDMA_CM_EVENT_ADDR_RESOLVED + 100; /* none yet */
    return inet_pton(AF_INET, host, &peer.sin_addr) == 1 &&
           rdma_create_id(g.channel, &conn->id, conn, RDMA_PS_TCP) == 0 &&
           rdma_resolve_addr(conn->id, NULL, (struct sockaddr*)&peer, RESOLVE_MS) == 0 &&
           WAIT_UNTIL(conn->last == RDMA_CM_EVENT_ADDR_RESOLVED || conn->over) && !conn->over &&
           rdma_resolve_route(conn->id, RESOLVE_MS) == 0 &&
           WAIT_UNTIL(conn->last == RDMA_CM_EVENT_ROUTE_RESOLVED || conn->over) && !conn->over &&
           prepare_qp(conn) && rdma_connect(conn->id, &params) == 0;
}

static void do_connect(const char* arguments) {
    char host[64];
    int port, count;
    uint8_t private_data[256];

    if (sscanf(arguments, "%63s %d %d", host, &port, &count) != 3 || count > CONNS_MAX) {
        answer("fail connect: HOST PORT COUNT");
        return;
    }
    pattern_fill(private_data, sizeof(private_data), 78);
    for (int i = 0; i < count; i++) {
        if (!connect_one(&g.conns[i], host, port, private_data)) {
            answer("fail connect %d: %s (%s)", i, strerror(errno), rdma_event_str(g.conns[i].last));
            return;
        }
        /* One after the other, so that both sides count them alike. */
        struct conn* conn = &g.conns[i];

        if (!WAIT_UNTIL(conn->established || conn->over) || !conn->established) {
            answer("fail connect %d: %s, status %d, private_data=%u %s", i,
                   rdma_event_str(conn->last), conn->last_status, conn->peer.private_data_len,
                   peer_data_right(conn));
            return;
        }
    }
    report_connection(&g.conns[0]);
}

static void do_close(const char* arguments) {
    (void)arguments;
    if (rdma_disconnect(g.current->id) != 0)
        answer("fail close: %s", strerror(errno));
    else
        answer("ok");
}

static void do_wait_end(const char* arguments) {
    (void)arguments;
    if (!WAIT_UNTIL(g.current->over))
        answer("fail not disconnected");
    else
        answer("ok %s", rdma_event_str(g.current->last));
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static struct mem* new_mem(struct ibv_pd* pd, size_t length, unsigned access, uint32_t seed) {
    struct mem* mem = &g.mems[g.mem_count % MEMS_MAX];

    if (mem->mr != NULL) ibv_dereg_mr(mem->mr);
    free(mem->bytes);
    mem->length = length;
    mem->bytes = malloc(length != 0 ? length : 1);
    if (mem->bytes == NULL) return NULL;
    pattern_fill(mem->bytes, length, seed);
    mem->mr = ibv_reg_mr(pd, mem->bytes, length != 0 ? length : 1, access);
    if (mem->mr == NULL) return NULL;
    g.mem_count++;
    return mem;
}

/* mem LENGTH RIGHTS SEED: RIGHTS of r and w for the peer, - for none; p: of a protection domain
 * that no connection has. */
static void do_mem(const char* arguments) {
    size_t length;
    char rights[8];
    uint32_t seed;
    unsigned access = IBV_ACCESS_LOCAL_WRITE;

    if (sscanf(arguments, "%zu %7s %" SCNu32, &length, rights, &seed) != 3) {
        answer("fail mem: LENGTH RIGHTS SEED");
        return;
    }
    if (strchr(rights, 'r') != NULL) access |= IBV_ACCESS_REMOTE_READ;
    if (strchr(rights, 'w') != NULL) access |= IBV_ACCESS_REMOTE_WRITE;
    const bool foreign = strchr(rights, 'p') != NULL;

    if (foreign && g.foreign_pd == NULL) g.foreign_pd = ibv_alloc_pd(g.verbs);
    const struct mem* mem = new_mem(foreign ? g.foreign_pd : g.pd, length, access, seed);

    if (mem == NULL)
        answer("fail mem: %s", strerror(errno));
    else
        answer("ok %d %" PRIu64 " %" PRIu32, (g.mem_count - 1) % MEMS_MAX,
               (uint64_t)(uintptr_t)mem->bytes, mem->mr->rkey);
}

/* memcheck INDEX OFFSET LENGTH SEED */
static void do_memcheck(const char* arguments) {
    int index;
    size_t offset, length;
    uint32_t seed;

    if (sscanf(arguments, "%d %zu %zu %" SCNu32, &index, &offset, &length, &seed) != 4 ||
        index < 0 || index >= MEMS_MAX || offset > g.mems[index].length ||
        length > g.mems[index].length - offset) {
        answer("fail memcheck: INDEX OFFSET LENGTH SEED");
        return;
    }
    const long wrong = pattern_check(g.mems[index].bytes + offset, length, seed);

    if (wrong != PATTERN_OK)
        answer("fail memory differs at byte %ld of %zu", wrong, length);
    else
        answer("ok");
}

/* ---- work ---------------------------------------------------------------------------------------
 */

/* recv SIZE COUNT */
static void do_recv(const char* arguments) {
    uint32_t size, count;

    if (sscanf(arguments, "%" SCNu32 " %" SCNu32, &size, &count) != 2) {
        answer("fail recv: SIZE COUNT");
        return;
    }
    const char* why_not = post_receives(g.current, size, count);

    if (why_not != NULL)
        answer("fail recv: %s", why_not);
    else
        answer("ok");
}

/* got SEED: all posted receives have come, the i-th with the pattern of SEED + i. */
static void do_got(const char* arguments) {
    struct conn* conn = g.current;
    const uint32_t seed = (uint32_t)strtoul(arguments, NULL, 10);

    if (!WAIT_UNTIL(conn->recv_done + conn->recv_failed >= conn->recv_posted ||
                    conn->trouble[0] != '\0' || conn->over) ||
        conn->recv_done != conn->recv_posted || conn->trouble[0] != '\0') {
        answer("fail got %u of %u receives%s%s", conn->recv_done, conn->recv_posted,
               conn->trouble[0] ? ": "
               : conn->over     ? ": disconnected"
                                : "",
               conn->trouble);
        return;
    }
    for (uint32_t i = 0; i < conn->recv_posted; i++) {
        const long wrong = pattern_check(conn->recv_bytes + (size_t)i * conn->recv_size,
                                         conn->recv_size, seed != 0 ? seed + i : 0);

        if (wrong != PATTERN_OK) {
            answer("fail message %u differs at byte %ld of %u", i, wrong, conn->recv_size);
            return;
        }
    }
    answer("ok %" PRIu32, conn->invalidated);
}

/* Posts `count` requests, as many at once as the send queue takes, and waits for all of them. */
static bool post_all(enum ibv_wr_opcode opcode, const struct mem* mem, uint32_t size,
                     uint32_t count, uint64_t remote, uint32_t rkey) {
    struct conn* conn = g.current;
    uint32_t posted = 0;

    conn->send_done = conn->send_failed = 0;
    while (conn->send_done < count) {
        while (posted < count && posted - conn->send_done < g.sq) {
            struct ibv_sge sge = {.addr = (uintptr_t)mem->bytes + (size_t)posted * size,
                                  .length = size,
                                  .lkey = mem->mr->lkey};
            struct ibv_send_wr wr = {.wr_id = wr_id_of(conn, KIND_SEND, posted),
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = opcode,
                                     .send_flags = IBV_SEND_SIGNALED};
            struct ibv_send_wr* bad;

            if (opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = rkey;
            wr.wr.rdma.remote_addr = remote + (size_t)posted * size;
            wr.wr.rdma.rkey = rkey;
            const int error = ibv_post_send(conn->id->qp, &wr, &bad);

            if (error == ENOMEM && posted > conn->send_done)
                break; /* full: siw counts what is done only when it is polled */
            if (error != 0) {
                snprintf(conn->trouble, sizeof(conn->trouble), "post %u: %s", posted,
                         strerror(error));
                return false;
            }
            posted++;
        }
        const uint32_t before = conn->send_done;

        if (!WAIT_UNTIL(conn->send_done > before || conn->send_failed > 0 || conn->over) ||
            conn->send_done == before)
            return false;
    }
    return true;
}

static void report_work(bool done) {
    const struct conn* conn = g.current;

    if (done)
        answer("ok");
    else
        answer("fail after %u: %s", conn->send_done,
               conn->trouble[0]    ? conn->trouble
               : conn->over        ? "disconnected"
               : conn->send_failed ? "flushed"
                                   : "no completion in time");
}

/* send SIZE COUNT SEED [RKEY]: the i-th has the pattern of SEED + i; with RKEY each invalidates. */
static void do_send(const char* arguments) {
    uint32_t size, count, seed, rkey = 0;
    const int n = sscanf(arguments, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &size, &count,
                         &seed, &rkey);
    const struct mem* mem =
        n >= 3 ? new_mem(g.pd, (size_t)size * count, IBV_ACCESS_LOCAL_WRITE, 0) : NULL;

    if (mem == NULL) {
        answer("fail send: SIZE COUNT SEED [RKEY], or no memory");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        pattern_fill(mem->bytes + (size_t)i * size, size, seed + i);
    report_work(post_all(n == 4 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND, mem, size, count, 0, rkey));
}

/* write SIZE COUNT SEED ADDRESS RKEY: the i-th goes to ADDRESS + i * SIZE. */
static void do_write(const char* arguments) {
    uint32_t size, count, seed, rkey;
    uint64_t address;
    const int n = sscanf(arguments, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32,
                         &size, &count, &seed, &address, &rkey);
    const struct mem* mem =
        n == 5 ? new_mem(g.pd, (size_t)size * count, IBV_ACCESS_LOCAL_WRITE, 0) : NULL;

    if (mem == NULL) {
        answer("fail write: SIZE COUNT SEED ADDRESS RKEY, or no memory");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        pattern_fill(mem->bytes + (size_t)i * size, size, seed + i);
    report_work(post_all(IBV_WR_RDMA_WRITE, mem, size, count, address, rkey));
}

/* read SIZE COUNT SEED ADDRESS RKEY: what the peer has there follows SEED from ADDRESS on. */
static void do_read(const char* arguments) {
    uint32_t size, count, seed, rkey;
    uint64_t address;
    const int n = sscanf(arguments, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32,
                         &size, &count, &seed, &address, &rkey);
    /* iWARP writes the answer through the sink's STag. */
    const struct mem* mem = n == 5 ? new_mem(g.pd, (size_t)size * count,
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0)
                                   : NULL;

    if (mem == NULL) {
        answer("fail read: SIZE COUNT SEED ADDRESS RKEY, or no memory");
        return;
    }
    if (!post_all(IBV_WR_RDMA_READ, mem, size, count, address, rkey)) {
        report_work(false);
        return;
    }
    const long wrong = pattern_check(mem->bytes, mem->length, seed);

    if (wrong != PATTERN_OK)
        answer("fail what was read differs at byte %ld", wrong);
    else
        answer("ok");
}

/* stream SIZE ADDRESS RKEY: Writes until the connection ends. */
static void do_stream(const char* arguments) {
    uint32_t size, rkey;
    uint64_t address, rounds = 0;
    const int n = sscanf(arguments, "%" SCNu32 " %" SCNu64 " %" SCNu32, &size, &address, &rkey);
    const struct mem* mem = n == 3 ? new_mem(g.pd, size, IBV_ACCESS_LOCAL_WRITE, 5) : NULL;

    if (mem == NULL) {
        answer("fail stream: SIZE ADDRESS RKEY, or no memory");
        return;
    }
    answer("ok");
    while (post_all(IBV_WR_RDMA_WRITE, mem, size, 1, address, rkey)) rounds++;
    answer("ok %" PRIu64, rounds);
}

/* ---- the rest
 * ------------------------------------------------------------------------------------ */

static void do_status(const char* arguments) {
    (void)arguments;
    pump(0);
    answer("ok trouble='%s' over=%d async=%u '%s'", g.current->trouble, g.current->over,
           g.async_events, g.async_text);
}

/* klog: what the kernel has logged since this process or the last klog, then "ok". */
static void do_klog(const char* arguments) {
    (void)arguments;
    char record[4096];

    for (;;) {
        const ssize_t n = read(g.kernel_log, record, sizeof(record) - 1);

        if (n < 0 && errno == EPIPE) continue; /* some were overwritten */
        if (n <= 0) break;
        record[n] = '\0';
        char* text = strchr(record, ';');

        if (text == NULL) continue;
        text[strcspn(text, "\n")] = '\0';
        answer("log %.900s", text + 1);
    }
    answer("ok");
}

static void do_param(const char* arguments) {
    char name[64], value[32], path[160];

    if (sscanf(arguments, "%63s %31s", name, value) != 2) {
        answer("fail param: NAME VALUE");
        return;
    }
    snprintf(path, sizeof(path), "/sys/module/siw/parameters/%s", name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        answer("fail param %s: %s", name, strerror(errno));
    else
        answer("ok");
    if (fd >= 0) close(fd);
}

static void do_set(const char* arguments) {
    static const struct {
        const char* name;
        uint32_t* value;
    } kSettings[] = {{"ird", &g.ird},
                     {"ord", &g.ord},
                     {"rq", &g.rq},
                     {"sq", &g.sq},
                     {"private_data", &g.private_data},
                     {"first_recv", &g.first_recv}};
    char name[32];
    uint32_t value;

    if (sscanf(arguments, "%31s %" SCNu32, name, &value) == 2) {
        for (size_t i = 0; i < sizeof(kSettings) / sizeof(kSettings[0]); i++) {
            if (strcmp(kSettings[i].name, name) != 0) continue;
            *kSettings[i].value = value;
            answer("ok");
            return;
        }
    }
    answer("fail set: NAME VALUE");
}

static void do_use(const char* arguments) {
    const int i = atoi(arguments);

    if (i < 0 || i >= CONNS_MAX) {
        answer("fail use: INDEX");
        return;
    }
    g.current = &g.conns[i];
    answer("ok");
}

static void do_pid(const char* arguments) {
    (void)arguments;
    answer("ok %d", (int)getpid());
}

static void do_kill(const char* arguments) {
    answer(kill(atoi(arguments), SIGKILL) == 0 ? "ok" : "fail kill");
}

static const struct {
    const char* word;
    void (*run)(const char* arguments);
} commands[] = {
    {"listen", do_listen},   {"accept", do_accept},     {"reject", do_reject},
    {"connect", do_connect}, {"close", do_close},       {"waitend", do_wait_end},
    {"mem", do_mem},         {"memcheck", do_memcheck}, {"recv", do_recv},
    {"got", do_got},         {"send", do_send},         {"write", do_write},
    {"read", do_read},       {"stream", do_stream},     {"status", do_status},
    {"klog", do_klog},       {"param", do_param},       {"set", do_set},
    {"use", do_use},         {"pid", do_pid},           {"kill", do_kill},
};

static void do_line(const char* line) {
    char word[32];
    int length = 0;

    if (sscanf(line, "%31s %n", word, &length) != 1) {
        answer("fail an empty line");
        return;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(word, commands[i].word) == 0) {
            commands[i].run(line + length);
            return;
        }
    }
    answer("fail no command %s", word);
}

static _Noreturn void serve_row(int fd) {
    char line[LINE_MAX_BYTES];

    g.control.fd = fd;
    g.current = &g.conns[0];
    g.channel = rdma_create_event_channel();
    g.kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (g.channel == NULL || g.kernel_log < 0) {
        answer("fail set-up: %s", strerror(errno));
        exit(1);
    }
    lseek(g.kernel_log, 0, SEEK_END);
    fcntl(g.channel->fd, F_SETFL, O_NONBLOCK);
    for (;;) {
        /* Between two requests events are taken too: a disconnect must be answered in time. */
        struct pollfd control = {.fd = fd, .events = POLLIN};

        if (memchr(g.control.bytes, '\n', g.control.have) == NULL && poll(&control, 1, 0) == 0) {
            g.idle = true;
            pump(1000);
            g.idle = false;
            continue;
        }
        if (line_read(&g.control, line, WAIT_MS) != 1) exit(0);
        do_line(line);
    }
}

int main(int argc, char** argv) {
    if (argc != 3 || inet_pton(AF_INET, argv[1], &g.address.sin_addr) != 1) {
        fprintf(stderr, "usage: matrix_siw ADDRESS PORT\n");
        return 2;
    }
    g.address.sin_family = AF_INET;
    g.address.sin_port = htons((uint16_t)atoi(argv[2]));
    signal(SIGCHLD, SIG_IGN);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr*)&g.address, sizeof(g.address)) != 0 ||
        listen(listener, 64) != 0) {
        perror("matrix_siw: listen");
        return 1;
    }
    for (;;) {
        const int fd = accept(listener, NULL, NULL);

        if (fd < 0) continue;
        if (fork() == 0) {
            close(listener);
            signal(SIGCHLD, SIG_DFL);
            serve_row(fd);
        }
        close(fd);
    }
}
