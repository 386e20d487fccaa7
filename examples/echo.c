/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Echo: every message that comes in by Send goes back by Send. Server and client in one program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xsock/xsock.h>

enum { MESSAGE_MAX = 65536, TIMEOUT_MS = 10000 };
static char received[MESSAGE_MAX], sent[MESSAGE_MAX];

static int failed(const char* what) {
    fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
    return -1;
}

/* Waits for one completion. 1: it is good. 0: the peer closed in good order. -1: failed. */
static int wait_one(struct xsock_ep* ep, struct xsock_cq* cq, struct xsock_wc* wc, int timeout_ms) {
    XSOCK_INIT(xsock_ep_info, info);
    int n = xsock_cq_wait(cq, wc, 1, 1, timeout_ms);
    if (n == 0) errno = ETIMEDOUT;
    if (n < 1) return failed("wait");
    if (wc->status == XSOCK_WC_SUCCESS) return 1;
    xsock_ep_query(ep, &info);
    if (wc->status == XSOCK_WC_FLUSHED && info.error == 0) return 0;
    fprintf(stderr, "echo: %s: %s\n", xsock_wc_str(wc->status), info.error_text);
    return -1;
}

/* One buffer goes round: receive into it, send from it, and only then receive into it again. */
static int serve(struct xsock_ep* ep, struct xsock_cq* cq) {
    struct xsock_wc wc;
    for (int good;;) {
        if (xsock_recv(ep, 0, received, MESSAGE_MAX) != 0) return failed("receive");
        if ((good = wait_one(ep, cq, &wc, XSOCK_FOREVER)) <= 0) return good;
        if (xsock_send(ep, 0, received, wc.length, 0) != 0) return failed("send");
        if ((good = wait_one(ep, cq, &wc, XSOCK_FOREVER)) <= 0) return good;
    }
}

static int run_server(const char* port, struct xsock_ep_attr* attr) {
    struct xsock_listener* listener = xsock_listen(NULL, port, 16, attr);
    if (!listener) return failed("listen");
    printf("listening on port %d\n", xsock_listener_port(listener));
    for (;;) { /* one client after the other; a lost one does not end the server */
        fflush(stdout);
        struct xsock_ep* ep = xsock_accept(listener, XSOCK_FOREVER);
        if (!ep) return failed("accept");
        printf("client %s\n", serve(ep, attr->send_cq) == 0 ? "left" : "lost");
        xsock_ep_abort(ep); /* nothing is under way; leaves the queue clean for the next client */
        for (struct xsock_wc rest; xsock_cq_poll(attr->send_cq, &rest, 1) > 0;) continue;
    }
}

/* The receive is posted before the send: then the answer can never be early. */
static int exchange(struct xsock_ep* ep, struct xsock_cq* cq, const char* text) {
    struct xsock_wc wc;
    uint32_t length = (uint32_t)strnlen(text, MESSAGE_MAX);
    memcpy(sent, text, length);
    if (xsock_recv(ep, 0, received, MESSAGE_MAX) != 0) return failed("receive");
    if (xsock_send(ep, 0, sent, length, XSOCK_UNSIGNALED) != 0) return failed("send");
    int good = wait_one(ep, cq, &wc, TIMEOUT_MS);
    if (good == 0) fprintf(stderr, "echo: the server closed the connection\n");
    if (good != 1) return -1;
    printf("%.*s\n", (int)wc.length, received);
    if (wc.length == length && memcmp(sent, received, length) == 0) return 0;
    fprintf(stderr, "echo: the answer differs from what was sent\n");
    return -1;
}

static int run_client(char** argument, struct xsock_ep_attr* attr) {
    static char line[MESSAGE_MAX];
    struct xsock_ep* ep = xsock_connect(argument[0], argument[1], attr, TIMEOUT_MS);
    if (!ep) return failed("connect");
    int result = argument[2] ? exchange(ep, attr->send_cq, argument[2]) : 0;
    while (!argument[2] && result == 0 && fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        result = exchange(ep, attr->send_cq, line);
    }
    xsock_ep_close(ep);
    return result;
}

int main(int argc, char** argv) {
    int server = argc == 3 && strcmp(argv[1], "server") == 0;
    int client = (argc == 4 || argc == 5) && strcmp(argv[1], "client") == 0;
    if (!server && !client) {
        int help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs(
            "usage: echo server PORT             (0: any free port)\n"
            "       echo client HOST PORT [TEXT] (without TEXT: lines of standard input)\n",
            help ? stdout : stderr);
        return help ? 0 : 2;
    }
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = xsock_cq_create(NULL);
    if (!attr.send_cq) return failed("completion queue") != 0;
    return (server ? run_server(argv[2], &attr) : run_client(argv + 2, &attr)) != 0;
}
