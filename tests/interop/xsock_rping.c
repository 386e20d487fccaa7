/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The other end of rdma-core's rping, on xsock. One ping: the client says where its text lies, the
 * server fetches it by RDMA Read and says so, the client says where it wants it back, the server
 * puts it there by RDMA Write and says so. The messages are Sends of 16 bytes.
 *
 *   xsock_rping -c|-s [-a ADDRESS] -p PORT [-C COUNT] [-S SIZE] [-v]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <endian.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xsock/xsock.h>

enum { WAIT_MS = 20000, BYTES_MIN = 32, BYTES_MAX = 1 << 20, RECEIVES = 2 };

/* Where a buffer lies, on rping's wire: all big-endian. A server's go-ahead has the same length and
 * no meaning. */
struct advertisement {
    uint64_t address;
    uint32_t key;
    uint32_t size;
};
_Static_assert(sizeof(struct advertisement) == 16, "rping checks the length of each message");

struct rping {
    struct xsock_cq* cq;
    struct xsock_ep* ep;
    struct advertisement received[RECEIVES]; /* one for each posted receive, by wr_id */
    char* text;                              /* client: what the server reads */
    char* copy;                              /* client: written by the server; server: read into */
    unsigned size;
    unsigned count;
    int verbose;
};

static void die(const char* what) {
    fprintf(stderr, "xsock_rping: %s\n", what);
    exit(1);
}

static void die_errno(const char* what) {
    perror(what);
    exit(1);
}

static void print_endpoint_error(const struct rping* rp) {
    XSOCK_INIT(xsock_ep_info, info);

    if (xsock_ep_query(rp->ep, &info) == 0)
        fprintf(stderr, "xsock_rping: endpoint state %u, crc %u: %s\n", info.state, info.crc,
                info.error_text);
}

/* The next completion; sends and Writes are unsignaled, so that it is a receive or a Read. */
static struct xsock_wc next_completion(struct rping* rp) {
    struct xsock_wc wc;

    if (xsock_cq_wait(rp->cq, &wc, 1, 1, WAIT_MS) != 1) {
        print_endpoint_error(rp);
        die("nothing came in time");
    }
    return wc;
}

static void expect(struct rping* rp, const struct xsock_wc* wc, enum xsock_op op, uint32_t length) {
    if (wc->status != XSOCK_WC_SUCCESS) {
        fprintf(stderr, "xsock_rping: operation %u: %s\n", (unsigned)wc->op,
                xsock_wc_str(wc->status));
        print_endpoint_error(rp);
        exit(1);
    }
    if (wc->op != op || wc->length != length) die("an unexpected completion");
}

static void post_receive(struct rping* rp, uint64_t i) {
    if (xsock_recv(rp->ep, i, &rp->received[i], sizeof(rp->received[i])) != 0)
        die_errno("xsock_recv");
}

/* Takes one message and posts its receive again. */
static struct xsock_remote await_message(struct rping* rp) {
    struct xsock_wc wc = next_completion(rp);
    struct xsock_remote remote = {0};

    expect(rp, &wc, XSOCK_OP_RECV, sizeof(struct advertisement));
    remote.to = be64toh(rp->received[wc.wr_id].address);
    remote.stag = be32toh(rp->received[wc.wr_id].key);
    remote.length = be32toh(rp->received[wc.wr_id].size);
    post_receive(rp, wc.wr_id);
    return remote;
}

static void send_message(struct rping* rp, const struct advertisement* message) {
    /* Inline: it may lie on the stack. */
    if (xsock_send(rp->ep, 0, message, sizeof(*message), XSOCK_UNSIGNALED | XSOCK_INLINE) != 0)
        die_errno("xsock_send");
}

static struct advertisement advertise(const struct xsock_mr* mr, size_t size) {
    struct xsock_key key;
    struct xsock_remote remote;
    struct advertisement message;

    if (xsock_mr_key(mr, 0, size, &key) != 0) die_errno("xsock_mr_key");
    xsock_key_read(&key, &remote);
    message.address = htobe64(remote.to);
    message.key = htobe32(remote.stag);
    message.size = htobe32((uint32_t)size);
    return message;
}

/* "rdma-ping-7: HIJKLM...": rping's text, which moves on by a letter with each ping. */
static void write_text(char* text, unsigned size, unsigned ping) {
    const unsigned letters = 'z' - 'A' + 1;
    unsigned i = (unsigned)snprintf(text, size, "rdma-ping-%u: ", ping);
    unsigned letter = ping % letters;

    for (; i + 1 < size; i++, letter = (letter + 1) % letters) text[i] = (char)('A' + (int)letter);
    text[size - 1] = '\0';
}

/* CRC was asked for by default; a peer that does not hold to it would hide what is tested. */
static void check_negotiated(const struct rping* rp) {
    XSOCK_INIT(xsock_ep_info, info);

    if (xsock_ep_query(rp->ep, &info) != 0) die_errno("xsock_ep_query");
    if (!info.crc) die("CRC is off");
    if (rp->verbose)
        printf("MPA revision %u, IRD %u, ORD %u, ULPDUs of up to %u bytes\n", info.mpa_revision,
               info.ird, info.ord, info.mulpdu);
}

static void run_client(struct rping* rp) {
    struct xsock_mr* text = xsock_mr_register(NULL, rp->text, rp->size, XSOCK_REMOTE_READ, rp->ep);
    struct xsock_mr* copy = xsock_mr_register(NULL, rp->copy, rp->size, XSOCK_REMOTE_WRITE, rp->ep);

    if (text == NULL || copy == NULL) die_errno("xsock_mr_register");
    const struct advertisement source = advertise(text, rp->size);
    const struct advertisement sink = advertise(copy, rp->size);

    for (unsigned ping = 0; ping < rp->count; ping++) {
        write_text(rp->text, rp->size, ping);
        memset(rp->copy, 0, rp->size);
        send_message(rp, &source);
        await_message(rp); /* it has read */
        send_message(rp, &sink);
        await_message(rp); /* it has written */
        if (memcmp(rp->text, rp->copy, rp->size) != 0) die("the text came back changed");
        if (rp->verbose) printf("ping data: %.64s\n", rp->copy);
    }
    xsock_mr_deregister(text);
    xsock_mr_deregister(copy);
}

static void run_server(struct rping* rp) {
    const struct advertisement go_ahead = {0};
    struct xsock_mr* copy = xsock_mr_register(NULL, rp->copy, rp->size, XSOCK_LOCAL_WRITE, rp->ep);
    struct xsock_wc wc;

    if (copy == NULL) die_errno("xsock_mr_register");
    for (unsigned ping = 0; ping < rp->count; ping++) {
        struct xsock_remote remote = await_message(rp);

        if (remote.length != rp->size) die("the client's -S is another one");
        if (xsock_read(rp->ep, RECEIVES, rp->copy, rp->size, &remote, 0, 0) != 0)
            die_errno("xsock_read");
        wc = next_completion(rp);
        expect(rp, &wc, XSOCK_OP_READ, rp->size);
        if (rp->copy[rp->size - 1] != '\0') die("the text has no end");
        if (rp->verbose) printf("server ping data: %.64s\n", rp->copy);
        send_message(rp, &go_ahead);

        remote = await_message(rp);
        if (xsock_write(rp->ep, 0, rp->copy, rp->size, &remote, 0, XSOCK_UNSIGNALED) != 0)
            die_errno("xsock_write");
        send_message(rp, &go_ahead);
    }
    /* The client ends the connection; then the receives come back unused. */
    wc = next_completion(rp);
    if (wc.op != XSOCK_OP_RECV || wc.status == XSOCK_WC_SUCCESS)
        die("a message behind the last ping");
    xsock_mr_deregister(copy);
}

int main(int argc, char** argv) {
    static struct rping rp = {.size = 64, .count = 10}; /* its queue lives until the end */
    const char *address = NULL, *port = "7174";
    struct xsock_listener* listener = NULL;
    XSOCK_INIT(xsock_ep_attr, attr);
    int option, client = 0, server = 0;

    while ((option = getopt(argc, argv, "csa:p:C:S:v")) != -1) {
        switch (option) {
            case 'c':
                client = 1;
                break;
            case 's':
                server = 1;
                break;
            case 'a':
                address = optarg;
                break;
            case 'p':
                port = optarg;
                break;
            case 'C':
                rp.count = (unsigned)strtoul(optarg, NULL, 10);
                break;
            case 'S':
                rp.size = (unsigned)strtoul(optarg, NULL, 10);
                break;
            case 'v':
                rp.verbose = 1;
                break;
            default:
                return 2;
        }
    }
    if (client == server || rp.size < BYTES_MIN || rp.size > BYTES_MAX || (client && !address)) {
        fprintf(stderr,
                "usage: xsock_rping -c|-s [-a ADDRESS] -p PORT [-C COUNT] [-S SIZE] [-v]\n");
        return 2;
    }
    rp.text = calloc(1, rp.size);
    rp.copy = calloc(1, rp.size);
    rp.cq = xsock_cq_create(NULL);
    if (rp.text == NULL || rp.copy == NULL || rp.cq == NULL) die_errno("set-up");

    attr.send_cq = rp.cq;
    if (client) {
        rp.ep = xsock_connect(address, port, &attr, WAIT_MS);
        if (rp.ep == NULL) die_errno("xsock_connect");
    } else {
        listener = xsock_listen(address, port, 1, &attr);
        if (listener == NULL) die_errno("xsock_listen");
        rp.ep = xsock_accept(listener, WAIT_MS);
        if (rp.ep == NULL) die_errno("xsock_accept");
    }
    for (uint64_t i = 0; i < RECEIVES; i++) post_receive(&rp, i);
    check_negotiated(&rp);
    if (client)
        run_client(&rp);
    else
        run_server(&rp);

    xsock_ep_close(rp.ep);
    if (listener != NULL) xsock_listener_close(listener);
    fflush(stdout);
    /* The regions' keys are gone and the queue holds nothing we still wait for. */
    free(rp.text);
    free(rp.copy);
    return 0;
}
