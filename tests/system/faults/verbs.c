/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Faults under libibverbs and librdmacm; see faults.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/faults/faults.h"

enum { MEMORY = 64 * 1024, MIDDLE = MEMORY / 2, LONG = 8192, SHORT = 100, RECEIVES = 3 };

/* What a peer needs to reach the memory; goes as private data. */
struct key {
    uint64_t address;
    uint32_t rkey;
};

struct end {
    const struct side* side;
    struct rdma_event_channel* channel;
    struct rdma_cm_id *listener, *id;
    struct ibv_mr* mr;
    char* memory;
    struct key peer;
    int posted, done, broken;
};

static void failed(struct end* e, const char* call) {
    note(e->side, call, errno);
    e->broken = 1;
}

/* The next event, acknowledged; it may bring an id and a key. -1: none in time, or no channel. */
static int next_event(struct end* e, int timeout_ms, struct rdma_cm_id** id) {
    struct rdma_cm_event* event;
    struct pollfd p = {e->channel->fd, POLLIN, 0};
    int kind;
    if (poll(&p, 1, timeout_ms) != 1) return -1;
    if (rdma_get_cm_event(e->channel, &event) != 0) {
        failed(e, "rdma_get_cm_event");
        return -1;
    }
    kind = event->event;
    if (id != NULL) *id = event->id;
    if (event->param.conn.private_data_len >= sizeof e->peer) {
        memcpy(&e->peer, event->param.conn.private_data, sizeof e->peer);
    }
    if (event->status != 0) {
        errno = abs(event->status);
        failed(e, "event");
    }
    rdma_ack_cm_event(event);
    return kind;
}

static int expect_event(struct end* e, int kind) {
    const int came = next_event(e, LIMIT_MS, NULL);
    if (came == kind) return 1;
    if (came < 0 && !e->broken) fail("no %s in %d ms", rdma_event_str(kind), LIMIT_MS);
    if (!e->broken) {
        errno = ECONNRESET;
        failed(e, rdma_event_str((enum rdma_cm_event_type)came));
    }
    return 0;
}

static int make_qp(struct end* e) {
    struct ibv_qp_init_attr attr;
    int i;
    memset(&attr, 0, sizeof attr);
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    if (rdma_create_qp(e->id, NULL, &attr) != 0) return failed(e, "rdma_create_qp"), 0;
    e->mr = ibv_reg_mr(e->id->pd, e->memory, MEMORY,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (e->mr == NULL) return failed(e, "ibv_reg_mr"), 0;
    for (i = 0; i < RECEIVES; i++) {
        if (rdma_post_recv(e->id, NULL, e->memory + MIDDLE + i * LONG / 2, LONG / 2, e->mr) != 0) {
            return failed(e, "rdma_post_recv"), 0;
        }
        e->posted++;
    }
    return 1;
}

static struct rdma_conn_param param_with(const struct key* key) {
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.private_data = key;
    param.private_data_len = sizeof *key;
    param.responder_resources = param.initiator_depth = 4;
    return param;
}

static int begin_client(struct end* e) {
    struct sockaddr_in to;
    struct rdma_conn_param param;
    struct key key;
    const int port = await_port(e->side);
    if (port == 0) return 0;
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((unsigned short)port);
    if (rdma_create_id(e->channel, &e->id, NULL, RDMA_PS_TCP) != 0) {
        return failed(e, "rdma_create_id"), 0;
    }
    if (rdma_resolve_addr(e->id, NULL, (struct sockaddr*)&to, 1000) != 0) {
        return failed(e, "rdma_resolve_addr"), 0;
    }
    if (!expect_event(e, RDMA_CM_EVENT_ADDR_RESOLVED)) return 0;
    if (rdma_resolve_route(e->id, 1000) != 0) return failed(e, "rdma_resolve_route"), 0;
    if (!expect_event(e, RDMA_CM_EVENT_ROUTE_RESOLVED) || !make_qp(e)) return 0;
    key = (struct key){(uintptr_t)e->memory, e->mr->rkey};
    param = param_with(&key);
    if (rdma_connect(e->id, &param) != 0) return failed(e, "rdma_connect"), 0;
    return expect_event(e, RDMA_CM_EVENT_ESTABLISHED);
}

static int begin_server(struct end* e) {
    struct sockaddr_in at;
    struct rdma_conn_param param;
    struct key key;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (rdma_create_id(e->channel, &e->listener, NULL, RDMA_PS_TCP) != 0) {
        return failed(e, "rdma_create_id"), 0;
    }
    if (rdma_bind_addr(e->listener, (struct sockaddr*)&at) != 0) {
        return failed(e, "rdma_bind_addr"), 0;
    }
    if (rdma_listen(e->listener, 8) != 0) return failed(e, "rdma_listen"), 0;
    publish_port(e->side, ntohs(rdma_get_src_port(e->listener)));
    for (;;) {
        const int over = victim_is_done(e->side);
        /* The client may still be in the round before: a connection that we have reset keeps it for
         * a second, as long as it polls its queue and takes no event (docs/verbs.md). */
        const int limit_ms = e->side->round == 0 ? 1000 : LIMIT_MS;
        const int kind = next_event(e, e->side->victim ? limit_ms : 50, &e->id);
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) break;
        e->id = NULL;
        if (kind >= 0 || e->side->victim || over) {
            errno = ETIMEDOUT;
            return failed(e, "no request"), 0;
        }
    }
    if (!make_qp(e)) return 0;
    key = (struct key){(uintptr_t)e->memory, e->mr->rkey};
    param = param_with(&key);
    if (rdma_accept(e->id, &param) != 0) return failed(e, "rdma_accept"), 0;
    return expect_event(e, RDMA_CM_EVENT_ESTABLISHED);
}

static void take(struct end* e, struct ibv_cq* cq) {
    struct ibv_wc wc;
    const int n = ibv_poll_cq(cq, 1, &wc);
    if (n < 0) fail("ibv_poll_cq");
    if (n == 0) return;
    if (++e->done > e->posted) fail("a completion was not asked for");
    if (wc.status == IBV_WC_SUCCESS || e->broken) return;
    errno = ECONNRESET;
    failed(e, ibv_wc_status_str(wc.status));
}

/* All that was posted completes, within the time, whatever happens. */
static void take_all(struct end* e) {
    const long long limit = now_ms() + LIMIT_MS;
    while (e->done < e->posted) {
        if (now_ms() > limit)
            fail("%d posted, %d completed in %d ms", e->posted, e->done, LIMIT_MS);
        take(e, e->id->send_cq);
        take(e, e->id->recv_cq);
        usleep(200);
    }
}

static void exchange(struct end* e) {
    char* const mine = e->memory + MIDDLE;
    struct {
        const char* call;
        int result;
    } posts[] = {
        {"rdma_post_send", rdma_post_send(e->id, NULL, mine, SHORT, e->mr, 0)},
        {"rdma_post_send", rdma_post_send(e->id, NULL, mine, LONG / 2, e->mr, 0)},
        {"rdma_post_write",
         rdma_post_write(e->id, NULL, mine, LONG, e->mr, 0, e->peer.address, e->peer.rkey)},
        {"rdma_post_read", rdma_post_read(e->id, NULL, mine + 2 * LONG, LONG, e->mr, 0,
                                          e->peer.address, e->peer.rkey)},
        {"rdma_post_send", rdma_post_send(e->id, NULL, mine, 4, e->mr, 0)},
    };
    const int error = errno;
    size_t i;
    for (i = 0; i < sizeof posts / sizeof *posts; i++) {
        errno = error;
        if (posts[i].result != 0) {
            failed(e, posts[i].call);
        } else {
            e->posted++;
        }
    }
    if (!e->broken) take_all(e);
}

static void run_verbs(const struct side* side) {
    struct end e = {.side = side, .memory = calloc(1, MEMORY)};
    int begun = 0;
    if (e.memory == NULL) fail("no memory");
    enter(side, PHASE_START);
    e.channel = rdma_create_event_channel();
    if (e.channel == NULL) failed(&e, "rdma_create_event_channel");
    if (e.channel != NULL) begun = side->server ? begin_server(&e) : begin_client(&e);
    enter(side, PHASE_TRAFFIC);
    if (begun) exchange(&e);
    enter(side, PHASE_CLOSE);
    if (begun) {
        if (rdma_disconnect(e.id) != 0 && errno != ENOTCONN) failed(&e, "rdma_disconnect");
        expect_event(&e, RDMA_CM_EVENT_DISCONNECTED);
        take_all(&e);
    }
    if (e.id != NULL) {
        if (e.id->qp != NULL) rdma_destroy_qp(e.id);
        if (e.mr != NULL && ibv_dereg_mr(e.mr) != 0) failed(&e, "ibv_dereg_mr");
        if (rdma_destroy_id(e.id) != 0) failed(&e, "rdma_destroy_id");
    }
    if (e.listener != NULL && rdma_destroy_id(e.listener) != 0) failed(&e, "rdma_destroy_id");
    if (e.channel != NULL) rdma_destroy_event_channel(e.channel);
    free(e.memory);
}

int main(int argc, char** argv) {
    static const struct ends all[] = {{"verbs", run_verbs, 1}, {NULL, NULL, 0}};
    return run_faults(argc, argv, all);
}
