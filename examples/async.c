/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Asynchronous Sends and receives: both ends keep DEPTH of each under way over a single completion
 * queue, and neither waits for an answer before sending on. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xsock/xsock.h>

enum { BATCH = 64, TIMEOUT_MS = 10000, BYTES_MAX = 65536, DEPTH_MAX = 128 };
static char out[DEPTH_MAX][BYTES_MAX], in[DEPTH_MAX][BYTES_MAX]; /* wr_id is the index */
static uint32_t messages, bytes, depth;
static uint32_t sending, receiving, sent, received; /* posted and completed; up to `messages` */

static int failed(const char* what, const char* why) {
    fprintf(stderr, "async: %s: %s\n", what, why ? why : strerror(errno));
    return -1;
}

/* Sends the next message, its number in front, from buffer `slot`, if one is left to do. */
static int post_send(struct xsock_ep* ep, uint64_t slot) {
    if (sending == messages) return 0;
    uint32_t number = htonl(sending++);
    memcpy(out[slot], &number, sizeof(number));
    return xsock_send(ep, slot, out[slot], bytes, 0) ? failed("send", NULL) : 0;
}

static int post_receive(struct xsock_ep* ep, uint64_t slot) {
    if (receiving == messages) return 0;
    receiving++;
    return xsock_recv(ep, slot, in[slot], bytes) ? failed("receive", NULL) : 0;
}

/* A completion gives its buffer back, and the next message goes into it. */
static int on_completion(struct xsock_ep* ep, const struct xsock_wc* wc) {
    if (wc->status != XSOCK_WC_SUCCESS) return failed("completion", xsock_wc_str(wc->status));
    if (wc->op == XSOCK_OP_SEND) return sent++, post_send(ep, wc->wr_id);
    uint32_t number = htonl(received++); /* messages arrive whole and in order */
    if (wc->length == bytes && memcmp(in[wc->wr_id], &number, sizeof(number)) == 0)
        return post_receive(ep, wc->wr_id);
    return failed("receive", "a message is not the one expected");
}

static int exchange(struct xsock_ep* ep, struct xsock_cq* cq) {
    struct xsock_wc wc[BATCH];
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (uint32_t slot = 0; slot < depth; slot++)
        if (post_receive(ep, slot) != 0 || post_send(ep, slot) != 0) return -1;
    while (sent < messages || received < messages) {
        int n = xsock_cq_wait(cq, wc, 1, BATCH, TIMEOUT_MS);
        if (n < 1) return failed("wait", n == 0 ? "nothing came for 10 s" : NULL);
        for (int i = 0; i < n; i++)
            if (on_completion(ep, &wc[i]) != 0) return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    printf("%u messages of %u bytes each way, %u under way: %.3f s, %.0f messages/s each way\n",
           received, bytes, depth, s, received / s);
    return 0;
}

int main(int argc, char** argv) {
    XSOCK_INIT(xsock_ep_attr, attr);
    XSOCK_INIT(xsock_ep_info, info);
    int server = argc == 3 && strcmp(argv[1], "server") == 0;
    int client = argc >= 4 && argc <= 7 && strcmp(argv[1], "client") == 0;
    uint32_t plan[3] = {htonl(argc > 4 ? (uint32_t)atol(argv[4]) : 100000), /* messages */
                        htonl(argc > 5 ? (uint32_t)atol(argv[5]) : 64),     /* bytes */
                        htonl(argc > 6 ? (uint32_t)atol(argv[6]) : 64)};    /* under way */
    if (!server && !client) {
        int help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs(
            "usage: async server PORT (0: any free port)\n"
            "       async client HOST PORT [MESSAGES [BYTES [DEPTH]]]\n",
            help ? stdout : stderr);
        return help ? 0 : 2;
    }
    if (!(attr.send_cq = xsock_cq_create(NULL))) return -failed("completion queue", NULL);
    if (client) attr.private_data = plan, attr.private_data_length = sizeof(plan);
    struct xsock_listener* listener = server ? xsock_listen(NULL, argv[2], 1, &attr) : NULL;
    if (server && !listener) return -failed("listen", NULL);
    if (server) printf("listening on port %d\n", xsock_listener_port(listener));
    fflush(stdout);
    struct xsock_ep* ep = server ? xsock_accept(listener, XSOCK_FOREVER)
                                 : xsock_connect(argv[2], argv[3], &attr, TIMEOUT_MS);
    if (!ep) return -failed(server ? "accept" : "connect", NULL);
    if (server && xsock_ep_query(ep, &info) == 0 && info.private_data_length == sizeof(plan))
        memcpy(plan, info.private_data, sizeof(plan));
    messages = ntohl(plan[0]), bytes = ntohl(plan[1]), depth = ntohl(plan[2]);
    if (depth < 1 || depth > DEPTH_MAX || bytes < sizeof(uint32_t) || bytes > BYTES_MAX)
        return -failed("plan", "BYTES is 4 to 65536, DEPTH is 1 to 128");
    int result = exchange(ep, attr.send_cq);
    xsock_ep_close(ep); /* what was sent last drains in the background */
    return -result;
}
