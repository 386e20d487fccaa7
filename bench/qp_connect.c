/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How fast many RC queue pairs are connected, from their making until a message has gone by each:
 * by GID and number, which the processes tell each other over TCP as perftest's do, or by rdma_cm.
 * An unmodified verbs program (roce.sh).
 *
 *   qp_connect gid|cm serve PORT COUNT
 *   qp_connect gid|cm PORT COUNT           prints how many in a second
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/loopback_address.h"

enum { MOST = 10000, BYTES = 8 };

static struct ibv_context* device;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_mr* mr;
static char memory[BYTES];
static struct ibv_qp** qps;
static int count;

static void fail(const char* what) {
    fprintf(stderr, "qp_connect: %s: %s\n", what, strerror(errno));
    exit(1);
}
static void must(int holds, const char* what) {
    if (!holds) fail(what);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void use_device(struct ibv_context* of) {
    if (pd != NULL) return;
    device = of;
    must((pd = ibv_alloc_pd(device)) != NULL, "ibv_alloc_pd");
    must((cq = ibv_create_cq(device, 2 * count, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL, "ibv_reg_mr");
}

static struct ibv_qp_init_attr qp_attr(void) {
    struct ibv_qp_init_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    return attr;
}

static void post_receive(struct ibv_qp* qp) {
    struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}
static void post_send(struct ibv_qp* qp) {
    struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    must(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
}
static void take_completions(int n) {
    while (n > 0) {
        struct ibv_wc wc[64];
        const int got = ibv_poll_cq(cq, 64, wc);
        must(got >= 0, "ibv_poll_cq");
        for (int i = 0; i < got; ++i) {
            if (wc[i].status == IBV_WC_SUCCESS) continue;
            fprintf(stderr, "qp_connect: %s\n", ibv_wc_status_str(wc[i].status));
            exit(1);
        }
        n -= got;
    }
}

/* ---- by GID ---- */

static int tcp_to(const struct sockaddr_in* at, int serves) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    must(fd >= 0, "socket");
    if (!serves) {
        must(connect(fd, (const struct sockaddr*)at, sizeof *at) == 0, "connect");
        return fd;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(fd, (const struct sockaddr*)at, sizeof *at) == 0 && listen(fd, 1) == 0, "bind");
    const int peer = accept(fd, NULL, NULL);
    must(peer >= 0, "accept");
    close(fd);
    return peer;
}
static void exchange(int fd, const void* own, void* theirs, size_t n) {
    must(send(fd, own, n, MSG_NOSIGNAL) == (ssize_t)n, "send");
    must(recv(fd, theirs, n, MSG_WAITALL) == (ssize_t)n, "recv");
}

static void make_qps(void) {
    for (int i = 0; i < count; ++i) {
        struct ibv_qp_init_attr init = qp_attr();
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
        must((qps[i] = ibv_create_qp(pd, &init)) != NULL, "ibv_create_qp");
        must(ibv_modify_qp(qps[i], &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
                 0,
             "INIT");
        post_receive(qps[i]);
    }
}
static void connect_qps(const union ibv_gid* gid, const uint32_t* numbers) {
    for (int i = 0; i < count; ++i) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                                   .path_mtu = IBV_MTU_1024,
                                   .dest_qp_num = numbers[i],
                                   .max_dest_rd_atomic = 1,
                                   .min_rnr_timer = 12,
                                   .timeout = 14,
                                   .retry_cnt = 7,
                                   .rnr_retry = 7,
                                   .max_rd_atomic = 1};
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = *gid;
        must(ibv_modify_qp(qps[i], &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
                 0,
             "RTR");
        attr.qp_state = IBV_QPS_RTS;
        must(ibv_modify_qp(qps[i], &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
             "RTS");
    }
}
static double by_gid(const char* port, int serves) {
    const struct sockaddr_in at = loopback_address(port);
    struct ibv_device** const list = ibv_get_device_list(NULL);
    must(list != NULL && list[0] != NULL, "no device");
    struct ibv_context* const opened = ibv_open_device(list[0]);
    must(opened != NULL, "ibv_open_device");
    use_device(opened);
    ibv_free_device_list(list);
    union ibv_gid gid, theirs;
    must(ibv_query_gid(device, 1, 0, &gid) == 0, "ibv_query_gid");
    uint32_t* const own = calloc((size_t)count, sizeof *own);
    uint32_t* const other = calloc((size_t)count, sizeof *other);
    must(own != NULL && other != NULL, "calloc");
    const int fd = tcp_to(&at, serves);
    const double begin = now();
    make_qps();
    for (int i = 0; i < count; ++i) own[i] = qps[i]->qp_num;
    exchange(fd, &gid, &theirs, sizeof gid);
    exchange(fd, own, other, (size_t)count * sizeof *own);
    connect_qps(&theirs, other);
    if (!serves) {
        for (int i = 0; i < count; ++i) post_send(qps[i]);
    }
    take_completions(count);
    const double took = now() - begin;
    char end = 0;
    exchange(fd, &end, &end, 1);
    close(fd);
    return took;
}

/* ---- by rdma_cm ---- */

static struct rdma_cm_id* next_event(struct rdma_event_channel* channel,
                                     enum rdma_cm_event_type* type) {
    struct rdma_cm_event* event;
    must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    struct rdma_cm_id* const id = event->id;
    *type = event->event;
    must(event->status == 0, rdma_event_str(event->event));
    rdma_ack_cm_event(event);
    return id;
}
static void make_qp_of(struct rdma_cm_id* id, int i) {
    use_device(id->verbs);
    struct ibv_qp_init_attr init = qp_attr();
    must(rdma_create_qp(id, pd, &init) == 0, "rdma_create_qp");
    qps[i] = id->qp;
    post_receive(id->qp);
}
static struct rdma_conn_param parameters(void) {
    return (struct rdma_conn_param){
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
}
static void serve_by_cm(struct rdma_event_channel* channel, struct sockaddr_in* at) {
    struct rdma_cm_id* listener;
    must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    must(rdma_bind_addr(listener, (struct sockaddr*)at) == 0, "rdma_bind_addr");
    must(rdma_listen(listener, count) == 0, "rdma_listen");
    int asked = 0, left = count;
    while (left > 0) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id* const id = next_event(channel, &type);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            struct rdma_conn_param param = parameters();
            make_qp_of(id, asked++);
            must(rdma_accept(id, &param) == 0, "rdma_accept");
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            --left;
        }
    }
    take_completions(count);
    while (left < count) {
        enum rdma_cm_event_type type;
        next_event(channel, &type);
        left += type == RDMA_CM_EVENT_DISCONNECTED;
    }
}
static double connect_by_cm(struct rdma_event_channel* channel, struct sockaddr_in* at) {
    struct rdma_cm_id** const ids = calloc((size_t)count, sizeof *ids);
    must(ids != NULL, "calloc");
    const double begin = now();
    for (int i = 0; i < count; ++i) {
        must(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
        must(rdma_resolve_addr(ids[i], NULL, (struct sockaddr*)at, 2000) == 0, "rdma_resolve_addr");
    }
    int made = 0, left = count;
    while (left > 0) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id* const id = next_event(channel, &type);
        if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
            must(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
        } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
            struct rdma_conn_param param = parameters();
            make_qp_of(id, made++);
            must(rdma_connect(id, &param) == 0, "rdma_connect");
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            post_send(id->qp);
            --left;
        }
    }
    take_completions(count);
    const double took = now() - begin;
    for (int i = 0; i < count; ++i) must(rdma_disconnect(ids[i]) == 0, "rdma_disconnect");
    free(ids);
    return took;
}
static double by_cm(const char* port, int serves) {
    struct sockaddr_in at = loopback_address(port);
    struct rdma_event_channel* const channel = rdma_create_event_channel();
    must(channel != NULL, "rdma_create_event_channel");
    if (!serves) return connect_by_cm(channel, &at);
    serve_by_cm(channel, &at);
    return 0;
}

int main(int argc, char** argv) {
    const int serves = argc == 5 && strcmp(argv[2], "serve") == 0;
    const int cm = argc >= 4 && strcmp(argv[1], "cm") == 0;
    if ((argc != 4 && !serves) || (!cm && strcmp(argv[1], "gid") != 0)) {
        fprintf(stderr,
                "usage: qp_connect gid|cm serve PORT COUNT | qp_connect gid|cm PORT COUNT\n");
        return 2;
    }
    count = atoi(argv[serves ? 4 : 3]);
    if (count < 1 || count > MOST) {
        fprintf(stderr, "qp_connect: from 1 to %d queue pairs\n", MOST);
        return 2;
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    must((qps = calloc((size_t)count, sizeof *qps)) != NULL, "calloc");
    const char* const port = argv[serves ? 3 : 2];
    const double took = cm ? by_cm(port, serves) : by_gid(port, serves);
    if (!serves) printf("%.1f\n", count / took);
    return 0;
}
