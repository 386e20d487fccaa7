/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * xsock, the kernel's siw and plain TCP side by side on one machine: the same exchange over each,
 * in turns, two fresh processes for each figure, both waiting in the kernel. Made for a guest that
 * has siw (siw_guest.sh). Ratios are taken within a round.
 *
 *   siw_guest ADDRESS ROUNDS CRC     ADDRESS: of the interface that siw is attached to; CRC: 1 or
 * 0, what xsock asks for (siw is told by its module's parameter)
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

enum {
    NOTE = 64, /* bytes of a small message */
    NOTES = 16,
    BULK = 65536,
    DEPTH = 16, /* Writes or Reads outstanding */
    PINGS = 1500,
    BULKS = 800,
    ROUNDS_MAX = 99,
    TIMEOUT_S = 120
};

static const char* g_address;
static bool g_crc;

/* One end of a connection over any of the three. */
static struct {
    uint8_t bulk[BULK], out[NOTE], in[NOTES][NOTE];
    unsigned outstanding; /* Writes and Reads */
    unsigned notes;       /* sent; one of NOTES is signaled */
    /* tcp */
    int listener, fd;
    /* siw */
    struct rdma_cm_id *listen_id, *id;
    struct ibv_mr *bulk_mr, *out_mr, *in_mr;
    uint64_t to;
    uint32_t stag;
    /* xsock */
    struct xsock_listener* xlistener;
    struct xsock_ep* ep;
    struct xsock_cq *send_cq, *recv_cq;
    struct xsock_mr* mr;
    struct xsock_remote remote;
} g;

/* What is said at the beginning: where the server's memory lies. */
union key_note {
    uint8_t bytes[NOTE];
    struct xsock_key key;
    struct {
        uint64_t to;
        uint32_t stag;
    } siw;
};

struct lane {
    const char* name;
    int (*listen)(void); /* the port */
    void (*accept)(void);
    void (*connect)(int port);
    void (*send)(void);        /* a note, g.out */
    uint8_t* (*receive)(void); /* a note */
    void (*lend)(union key_note* note);
    void (*borrow)(const union key_note* note);
    void (*put)(void);  /* a bulk to the other side's memory; waits while DEPTH are outstanding */
    void (*get)(void);  /* the same, from there */
    void (*wait)(void); /* until none is outstanding */
    /* What the server does for the client's bulks; NULL: nothing. */
    void (*take)(void);
    void (*give)(void);
};

/* ---- TCP ------------------------------------------------------------------------------------- */

static struct sockaddr_in tcp_address(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    if (inet_pton(AF_INET, g_address, &address.sin_addr) != 1) fail("%s", g_address);
    return address;
}

static int tcp_listen(void) {
    struct sockaddr_in address = tcp_address(0);
    socklen_t size = sizeof(address);

    g.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(g.listener, (struct sockaddr*)&address, sizeof(address)) != 0 ||
        listen(g.listener, 1) != 0 ||
        getsockname(g.listener, (struct sockaddr*)&address, &size) != 0)
        fail("listen");
    return ntohs(address.sin_port);
}

static void no_delay(void) {
    const int on = 1;

    if (g.fd < 0 || setsockopt(g.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) fail("tcp");
}

static void tcp_accept(void) {
    g.fd = accept(g.listener, NULL, NULL);
    no_delay();
}

static void tcp_connect(int port) {
    struct sockaddr_in address = tcp_address(port);

    g.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(g.fd, (struct sockaddr*)&address, sizeof(address)) != 0) fail("connect");
    no_delay();
}

static void tcp_write(const void* bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        const ssize_t n = send(g.fd, (const uint8_t*)bytes + done, length - done, MSG_NOSIGNAL);

        if (n <= 0) fail("send");
        done += (size_t)n;
    }
}

static void tcp_read(void* bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        const ssize_t n = recv(g.fd, (uint8_t*)bytes + done, length - done, 0);

        if (n <= 0) fail("recv");
        done += (size_t)n;
    }
}

static void tcp_send(void) { tcp_write(g.out, NOTE); }
static uint8_t* tcp_receive(void) {
    tcp_read(g.in[0], NOTE);
    return g.in[0];
}
static void tcp_key(union key_note* note) { (void)note; }
static void tcp_borrow(const union key_note* note) { (void)note; }
static void tcp_put(void) { tcp_write(g.bulk, BULK); }
static void tcp_get(void) { tcp_read(g.bulk, BULK); }
static void tcp_wait(void) {}

/* ---- siw ------------------------------------------------------------------------------------- */

static struct rdma_cm_id* siw_ep(int port) {
    struct rdma_addrinfo hints = {.ai_flags = port == 0 ? RAI_PASSIVE : 0,
                                  .ai_port_space = RDMA_PS_TCP};
    struct rdma_addrinfo* found;
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {
            .max_send_wr = 2 * DEPTH, .max_recv_wr = NOTES, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_cm_id* id;
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    if (rdma_getaddrinfo(g_address, service, &hints, &found) != 0 ||
        rdma_create_ep(&id, found, NULL, &attr) != 0)
        fail("siw: no end point on %s", g_address);
    rdma_freeaddrinfo(found);
    return id;
}

static int siw_listen(void) {
    g.listen_id = siw_ep(0);
    if (rdma_listen(g.listen_id, 1) != 0) fail("rdma_listen");
    return ntohs(rdma_get_src_port(g.listen_id));
}

static void siw_post_receive(unsigned i) {
    if (rdma_post_recv(g.id, (void*)(uintptr_t)i, g.in[i], NOTE, g.in_mr) != 0) /* NOLINT: index */
        fail("rdma_post_recv");
}

static void siw_prepare(void) {
    g.bulk_mr =
        ibv_reg_mr(g.id->pd, g.bulk, sizeof(g.bulk),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    g.out_mr = rdma_reg_msgs(g.id, g.out, sizeof(g.out));
    g.in_mr = rdma_reg_msgs(g.id, g.in, sizeof(g.in));
    if (g.bulk_mr == NULL || g.out_mr == NULL || g.in_mr == NULL) fail("ibv_reg_mr");
    for (unsigned i = 0; i < NOTES; i++) siw_post_receive(i);
}

static struct rdma_conn_param siw_params(void) {
    return (struct rdma_conn_param){.responder_resources = DEPTH, .initiator_depth = DEPTH};
}

static void siw_accept(void) {
    struct rdma_conn_param params = siw_params();

    if (rdma_get_request(g.listen_id, &g.id) != 0) fail("rdma_get_request");
    siw_prepare();
    if (rdma_accept(g.id, &params) != 0) fail("rdma_accept");
}

static void siw_connect(int port) {
    struct rdma_conn_param params = siw_params();

    g.id = siw_ep(port);
    siw_prepare();
    if (rdma_connect(g.id, &params) != 0) fail("rdma_connect");
}

enum { NOTE_SENT = 1, BULK_DONE = 2 };

static void siw_done(const struct ibv_wc* wc) {
    if (wc->status != IBV_WC_SUCCESS) fail("siw: %s", ibv_wc_status_str(wc->status));
    if (wc->wr_id == BULK_DONE) g.outstanding--;
}

static void siw_send(void) {
    struct ibv_wc wc;

    const bool signaled = ++g.notes % NOTES == 0;

    if (rdma_post_send(g.id, (void*)NOTE_SENT, g.out, NOTE, g.out_mr,
                       signaled ? IBV_SEND_SIGNALED : 0) != 0)
        fail("rdma_post_send");
    while (signaled && ibv_poll_cq(g.id->send_cq, 1, &wc) > 0) siw_done(&wc);
}

static uint8_t* siw_receive(void) {
    struct ibv_wc wc;

    if (rdma_get_recv_comp(g.id, &wc) != 1 || wc.status != IBV_WC_SUCCESS) fail("siw: receive");
    siw_post_receive((unsigned)wc.wr_id);
    return g.in[wc.wr_id];
}

static void siw_lend(union key_note* note) {
    note->siw.to = (uintptr_t)g.bulk;
    note->siw.stag = g.bulk_mr->rkey;
}

static void siw_borrow(const union key_note* note) {
    g.to = note->siw.to;
    g.stag = note->siw.stag;
}

static void siw_wait_below(unsigned most) {
    struct ibv_wc wc;

    while (g.outstanding > most) {
        if (rdma_get_send_comp(g.id, &wc) != 1) fail("siw: completion");
        siw_done(&wc);
    }
}

static void siw_put(void) {
    siw_wait_below(DEPTH - 1);
    if (rdma_post_write(g.id, (void*)BULK_DONE, g.bulk, BULK, g.bulk_mr, IBV_SEND_SIGNALED, g.to,
                        g.stag) != 0)
        fail("rdma_post_write");
    g.outstanding++;
}

static void siw_get(void) {
    siw_wait_below(DEPTH - 1);
    if (rdma_post_read(g.id, (void*)BULK_DONE, g.bulk, BULK, g.bulk_mr, IBV_SEND_SIGNALED, g.to,
                       g.stag) != 0)
        fail("rdma_post_read");
    g.outstanding++;
}

static void siw_wait(void) { siw_wait_below(0); }

/* ---- xsock ----------------------------------------------------------------------------------- */

static struct xsock_ep_attr xsock_attributes(void) {
    struct xsock_ep_attr attr = attributes_with(&g.send_cq, &g.recv_cq, DEPTH);

    if (!g_crc) attr.flags = XSOCK_EP_NO_CRC;
    return attr;
}

static int xs_listen(void) {
    const struct xsock_ep_attr attr = xsock_attributes();

    g.xlistener = xsock_listen(g_address, "0", 1, &attr);
    if (g.xlistener == NULL) fail("xsock_listen");
    return xsock_listener_port(g.xlistener);
}

static void xs_post_receive(unsigned i) {
    if (xsock_recv(g.ep, i, g.in[i], NOTE) != 0) fail("xsock_recv");
}

static void xs_prepare(void) {
    XSOCK_INIT(xsock_ep_info, info);

    if (g.ep == NULL || xsock_ep_query(g.ep, &info) != 0) fail("xsock: no connection");
    if (info.crc != g_crc) fail("xsock: CRC is %u", info.crc);
    g.mr = xsock_mr_register(NULL, g.bulk, BULK, XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, g.ep);
    if (g.mr == NULL) fail("xsock_mr_register");
    for (unsigned i = 0; i < NOTES; i++) xs_post_receive(i);
}

static void xs_accept(void) {
    g.ep = xsock_accept(g.xlistener, -1);
    xs_prepare();
}

static void xs_connect(int port) {
    const struct xsock_ep_attr attr = xsock_attributes();
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    g.ep = xsock_connect(g_address, service, &attr, 30000);
    xs_prepare();
}

static void xs_done(const struct xsock_wc* wc) {
    if (wc->status != XSOCK_WC_SUCCESS) fail("xsock: %s", xsock_wc_str(wc->status));
    if (wc->wr_id == BULK_DONE) g.outstanding--;
}

static void xs_send(void) {
    struct xsock_wc wc;

    const bool signaled = ++g.notes % NOTES == 0;

    if (xsock_send(g.ep, NOTE_SENT, g.out, NOTE, signaled ? 0 : XSOCK_UNSIGNALED) != 0)
        fail("xsock_send");
    while (signaled && xsock_cq_poll(g.send_cq, &wc, 1) > 0) xs_done(&wc);
}

static uint8_t* xs_receive(void) {
    struct xsock_wc wc;

    if (xsock_cq_wait(g.recv_cq, &wc, 1, 1, -1) != 1 || wc.status != XSOCK_WC_SUCCESS)
        fail("xsock: receive");
    xs_post_receive((unsigned)wc.wr_id);
    return g.in[wc.wr_id];
}

static void xs_lend(union key_note* note) {
    if (xsock_mr_key(g.mr, 0, BULK, &note->key) != 0) fail("xsock_mr_key");
}

static void xs_borrow(const union key_note* note) { xsock_key_read(&note->key, &g.remote); }

static void xs_wait_below(unsigned most) {
    struct xsock_wc wc;

    while (g.outstanding > most) {
        if (xsock_cq_wait(g.send_cq, &wc, 1, 1, -1) != 1) fail("xsock: completion");
        xs_done(&wc);
    }
}

static void xs_put(void) {
    xs_wait_below(DEPTH - 1);
    if (xsock_write(g.ep, BULK_DONE, g.bulk, BULK, &g.remote, 0, 0) != 0) fail("xsock_write");
    g.outstanding++;
}

static void xs_get(void) {
    xs_wait_below(DEPTH - 1);
    if (xsock_read(g.ep, BULK_DONE, g.bulk, BULK, &g.remote, 0, 0) != 0) fail("xsock_read");
    g.outstanding++;
}

static void xs_wait(void) { xs_wait_below(0); }

/* ---- rows ------------------------------------------------------------------------------------ */

enum { LANES = 3 };
static const struct lane kLanes[LANES] = {
    {"TCP", tcp_listen, tcp_accept, tcp_connect, tcp_send, tcp_receive, tcp_key, tcp_borrow,
     tcp_put, tcp_get, tcp_wait, tcp_get, tcp_put},
    {"siw", siw_listen, siw_accept, siw_connect, siw_send, siw_receive, siw_lend, siw_borrow,
     siw_put, siw_get, siw_wait, NULL, NULL},
    {"xsock", xs_listen, xs_accept, xs_connect, xs_send, xs_receive, xs_lend, xs_borrow, xs_put,
     xs_get, xs_wait, NULL, NULL},
};

enum row { ROW_PING, ROW_PUT, ROW_GET, ROWS };
static const struct {
    const char *name, *unit;
} kRows[ROWS] = {{"64 B Send, one way", "us"},
                 {"64 KiB Writes, 16 outstanding", "MB/s"},
                 {"64 KiB Reads, 16 outstanding", "MB/s"}};

static void exchange(const struct lane* lane) {
    lane->send();
    lane->receive();
}

static void serve(const struct lane* lane, enum row row, int port_fd) {
    union key_note note = {{0}};
    const int port = lane->listen();

    if (write(port_fd, &port, sizeof(port)) != sizeof(port)) fail("pipe");
    lane->accept();
    lane->receive(); /* the initiator speaks first */
    lane->lend(&note);
    memcpy(g.out, note.bytes, NOTE);
    lane->send();
    if (row == ROW_PING) {
        for (int i = 0; i < PINGS; i++) {
            lane->receive();
            lane->send();
        }
    } else {
        void (*const part)(void) = row == ROW_PUT ? lane->take : lane->give;

        for (int i = 0; i < BULKS && part != NULL; i++) part();
        lane->receive();
        lane->send();
    }
    lane->receive(); /* the end */
}

static double drive(const struct lane* lane, enum row row, int port) {
    union key_note note;

    lane->connect(port);
    lane->send();
    memcpy(note.bytes, lane->receive(), NOTE);
    lane->borrow(&note);
    const double begin = now_us();

    if (row == ROW_PING) {
        for (int i = 0; i < PINGS; i++) exchange(lane);
        const double each = (now_us() - begin) / PINGS / 2;

        lane->send();
        return each;
    }
    for (int i = 0; i < BULKS; i++) (row == ROW_PUT ? lane->put : lane->get)();
    lane->wait();
    exchange(lane); /* now the other side has all of it */
    const double took = now_us() - begin;

    lane->send();
    return (double)BULKS * BULK / took; /* MB/s */
}

static double measure(const struct lane* lane, enum row row) {
    int ports[2], results[2], port, status = 1;
    double result = 0;

    if (pipe(ports) != 0 || pipe(results) != 0) fail("pipe");
    const pid_t server = fork();

    if (server == 0) {
        close(ports[0]);
        alarm(TIMEOUT_S);
        serve(lane, row, ports[1]);
        _exit(0);
    }
    close(ports[1]);
    if (read(ports[0], &port, sizeof(port)) != sizeof(port)) fail("%s: no server", lane->name);
    const pid_t client = fork();

    if (client == 0) {
        alarm(TIMEOUT_S);
        result = drive(lane, row, port);
        if (write(results[1], &result, sizeof(result)) != sizeof(result)) _exit(1);
        sleep(1); /* the server reads the end before it finds one */
        _exit(0);
    }
    close(results[1]);
    if (read(results[0], &result, sizeof(result)) != sizeof(result))
        fail("%s: no figure for %s", lane->name, kRows[row].name);
    waitpid(server, &status, 0);
    if (status != 0) fail("%s: the server failed", lane->name);
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    close(ports[0]);
    close(results[0]);
    return result;
}

static int by_size(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;

    return x < y ? -1 : x > y;
}

/* min / median / max; sorts. */
static void print_spread(double* values, int count) {
    qsort(values, (size_t)count, sizeof(*values), by_size);
    printf(" %.2f / %.2f / %.2f |", values[0], values[count / 2], values[count - 1]);
}

int main(int argc, char** argv) {
    static double figures[ROWS][LANES][ROUNDS_MAX];
    const int rounds = argc == 4 ? atoi(argv[2]) : 0;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: siw_guest ADDRESS ROUNDS CRC\n");
        return 2;
    }
    g_subject = "siw_guest";
    g_address = argv[1];
    g_crc = atoi(argv[3]) != 0;
    for (int round = 0; round < rounds; round++) {
        for (int row = 0; row < ROWS; row++) {
            /* Each has each place as often, or nearly. */
            for (int i = 0; i < LANES; i++) {
                const int lane = (i + round) % LANES;

                figures[row][lane][round] = measure(&kLanes[lane], (enum row)row);
            }
        }
    }
    for (int row = 0; row < ROWS; row++) {
        double ratios[3][ROUNDS_MAX];

        for (int round = 0; round < rounds; round++) {
            const double tcp = figures[row][0][round], siw = figures[row][1][round],
                         own = figures[row][2][round];

            ratios[0][round] = siw / tcp;
            ratios[1][round] = own / tcp;
            ratios[2][round] = own / siw;
        }
        printf("| %s | %s |", kRows[row].name, g_crc ? "on" : "off");
        for (int i = 0; i < 3; i++) print_spread(ratios[i], rounds);
        printf("\n");
        for (int lane = 0; lane < LANES; lane++) {
            fprintf(stderr, "%s, %s:", kRows[row].name, kLanes[lane].name);
            for (int round = 0; round < rounds; round++)
                fprintf(stderr, " %.1f", figures[row][lane][round]);
            fprintf(stderr, " %s\n", kRows[row].unit);
        }
    }
    return 0;
}
