/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the host tests run inside their hosts: two endpoints over loopback in one process, Sends and
 * Writes between them. Answers NULL, or a static text that says what went wrong. */
#ifndef XSOCK_TESTS_SYSTEM_HOST_LOOPBACK_H
#define XSOCK_TESTS_SYSTEM_HOST_LOOPBACK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xsock/xsock.h>

enum { LOOPBACK_BYTES = 65536 };

static inline const char* loopback_messages(struct xsock_cq* cq, struct xsock_ep* client,
                                            struct xsock_ep* server, char* memory, int messages) {
    char *out = memory, *in = out + LOOPBACK_BYTES, *window = in + LOOPBACK_BYTES;
    struct xsock_mr* mr = xsock_mr_register(NULL, window, LOOPBACK_BYTES, XSOCK_REMOTE_WRITE, NULL);
    struct xsock_remote remote;
    struct xsock_key key;
    struct xsock_wc wc[3];
    int i;

    if (mr == NULL || xsock_mr_key(mr, 0, LOOPBACK_BYTES, &key) != 0) return "region";
    xsock_key_read(&key, &remote);
    for (i = 0; i < messages; i++) {
        uint32_t bytes = (uint32_t)(i * 7919) % LOOPBACK_BYTES;

        memset(out, i, LOOPBACK_BYTES);
        if (xsock_recv(server, 1, in, LOOPBACK_BYTES) != 0 ||
            xsock_write(client, 2, out, bytes, &remote, 0, 0) != 0 ||
            xsock_send(client, 3, out, bytes, 0) != 0)
            return "post";
        if (xsock_cq_wait(cq, wc, 3, 3, 20000) != 3) return "no completions";
        if (wc[0].status != 0 || wc[1].status != 0 || wc[2].status != 0)
            return "a completion failed";
        if (memcmp(in, out, bytes) != 0 || memcmp(window, out, bytes) != 0) return "wrong bytes";
    }
    return xsock_mr_deregister(mr) == 0 ? NULL : "deregister";
}

static inline const char* loopback_exchange(int messages) {
    struct xsock_cq* cq = xsock_cq_create(NULL);
    struct xsock_listener* listener;
    struct xsock_ep *client, *server = NULL;
    const char* wrong = "memory";
    char* memory;
    char port[16];
    XSOCK_INIT(xsock_ep_attr, attr);

    if (cq == NULL) return "completion queue";
    attr.send_cq = cq;
    listener = xsock_listen("localhost", "0", 4, &attr);
    if (listener == NULL) return "listen";
    snprintf(port, sizeof port, "%d", xsock_listener_port(listener));
    client = xsock_connect("localhost", port, &attr, 20000);
    if (client != NULL) server = xsock_accept(listener, 20000);
    if (server == NULL) return client ? "accept" : "connect";
    memory = (char*)malloc(3 * LOOPBACK_BYTES);
    if (memory != NULL) wrong = loopback_messages(cq, client, server, memory, messages);
    if (xsock_ep_abort(client) != 0 || xsock_ep_abort(server) != 0 ||
        xsock_listener_close(listener) != 0 || xsock_cq_destroy(cq) != 0)
        wrong = wrong ? wrong : "close";
    free(memory);
    return wrong;
}

#endif
