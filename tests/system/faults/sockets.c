/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Faults under xsock.h, and under sockets in DDPMODE; see faults.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "include/xsock/xsock.h"
#include "tests/system/faults/faults.h"

enum { MEMORY = 64 * 1024, MIDDLE = MEMORY / 2, LONG = 8192, SHORT = 100 };

/* ---- xsock.h -------------------------------------------------------------------- */

/* Numbers of what is posted. The last receive waits for the end. */
enum work { RECV_1, RECV_2, RECV_3, RECV_END, SEND_1, SEND_2, WRITE, READ, SEND_3, WORK_COUNT };

struct end {
    const struct side* side;
    struct xsock_cq* cq;
    struct xsock_mr* mr;
    struct xsock_listener* listener;
    struct xsock_ep* ep;
    char* memory;
    unsigned posted, done;
    int broken; /* something has failed */
};

static void failed(struct end* e, const char* call) {
    XSOCK_INIT(xsock_ep_info, info);
    /* Of a connection that has ended it is what ended it that counts. */
    if (errno == EPIPE && e->ep != NULL && xsock_ep_query(e->ep, &info) == 0) errno = info.error;
    note(e->side, call, errno);
    e->broken = 1;
}

static void take(struct end* e) {
    struct xsock_wc wc[WORK_COUNT];
    const int n = xsock_cq_wait(e->cq, wc, 1, WORK_COUNT, 20);
    int i;
    if (n < 0) failed(e, "xsock_cq_wait");
    for (i = 0; i < n; i++) {
        const unsigned bit = 1u << wc[i].wr_id;
        if (wc[i].wr_id >= WORK_COUNT || (e->posted & bit) == 0 || (e->done & bit) != 0) {
            fail("completion %llu was not asked for", (unsigned long long)wc[i].wr_id);
        }
        e->done |= bit;
        if (wc[i].status != XSOCK_WC_SUCCESS && wc[i].wr_id != RECV_END && e->side->round != 0) {
            fail("completion %llu: %s", (unsigned long long)wc[i].wr_id,
                 xsock_wc_str(wc[i].status));
        }
        if (wc[i].status != XSOCK_WC_SUCCESS && !e->broken && e->ep != NULL) {
            XSOCK_INIT(xsock_ep_info, info);
            if (xsock_ep_query(e->ep, &info) == 0 && info.error != 0) {
                errno = info.error;
                failed(e, "completion");
            }
            e->broken = 1;
        }
    }
}

/* Until all but those of `beside` have completed, or something has failed. */
static void take_until(struct end* e, unsigned beside, int even_if_broken, const char* what) {
    const long long limit = now_ms() + LIMIT_MS;
    while ((e->posted & ~e->done & ~beside) != 0 && (even_if_broken || !e->broken)) {
        if (now_ms() > limit) {
            fail("%s: posted %x, completed %x, in %d ms", what, e->posted, e->done, LIMIT_MS);
        }
        take(e);
    }
}

static void posted(struct end* e, enum work number, int result, const char* call) {
    if (result != 0) return failed(e, call);
    e->posted |= 1u << number;
}

/* How long a server waits for its client at once. What the fault took from the victim does not
 * come; the client of the other round does, however slow the machine is. */
static int accept_ms(const struct side* side) {
    if (!side->victim) return 50;
    return side->round == 0 ? 1000 : LIMIT_MS;
}

static void begin(struct end* e, struct xsock_key* key) {
    const long long limit = now_ms() + LIMIT_MS;
    char port[16];
    XSOCK_INIT(xsock_ep_attr, attr);
    e->cq = xsock_cq_create(NULL);
    if (e->cq == NULL) return failed(e, "xsock_cq_create");
    e->mr =
        xsock_mr_register(NULL, e->memory, MEMORY, XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, NULL);
    if (e->mr == NULL) return failed(e, "xsock_mr_register");
    xsock_mr_key(e->mr, 0, MEMORY, key);
    attr.send_cq = e->cq;
    attr.private_data = key;
    attr.private_data_length = sizeof *key;
    attr.startup_timeout_ms = 2000;
    attr.linger_ms = 500;
    if (!e->side->server) {
        const int number = await_port(e->side);
        if (number == 0) return;
        snprintf(port, sizeof port, "%d", number);
        e->ep = xsock_connect("127.0.0.1", port, &attr, 3000);
        if (e->ep == NULL) failed(e, "xsock_connect");
        return;
    }
    e->listener = xsock_listen("127.0.0.1", "0", 8, &attr);
    if (e->listener == NULL) return failed(e, "xsock_listen");
    publish_port(e->side, xsock_listener_port(e->listener));
    while (e->ep == NULL && now_ms() < limit) {
        const int over = victim_is_done(e->side);
        e->ep = xsock_accept(e->listener, accept_ms(e->side));
        if (e->ep == NULL && (e->side->victim || over)) return failed(e, "xsock_accept");
    }
}

static void exchange(struct end* e) {
    struct xsock_remote to;
    struct xsock_key key;
    XSOCK_INIT(xsock_ep_info, info);
    char* const mine = e->memory + MIDDLE;
    int i;
    if (xsock_ep_query(e->ep, &info) != 0) return failed(e, "xsock_ep_query");
    if (info.private_data_length != sizeof key) fail("the peer's key is missing");
    memcpy(&key, info.private_data, sizeof key);
    xsock_key_read(&key, &to);
    for (i = RECV_1; i <= RECV_END; i++) {
        posted(e, (enum work)i, xsock_recv(e->ep, (unsigned)i, mine + i * LONG / 2, LONG / 2),
               "xsock_recv");
    }
    posted(e, SEND_1, xsock_send(e->ep, SEND_1, mine, SHORT, 0), "xsock_send");
    posted(e, SEND_2, xsock_send(e->ep, SEND_2, mine, LONG / 2, 0), "xsock_send");
    posted(e, WRITE, xsock_write(e->ep, WRITE, mine, LONG, &to, 0, 0), "xsock_write");
    posted(e, READ, xsock_read(e->ep, READ, mine + 2 * LONG, LONG, &to, LONG, 0), "xsock_read");
    posted(e, SEND_3, xsock_send(e->ep, SEND_3, "last", 4, XSOCK_INLINE), "xsock_send");
    take_until(e, 1u << RECV_END, 0, "traffic");
}

static void run_xsock(const struct side* side) {
    struct end e = {.side = side, .memory = calloc(1, MEMORY)};
    struct xsock_key key;
    if (e.memory == NULL) fail("no memory");
    enter(side, PHASE_START);
    begin(&e, &key);
    enter(side, PHASE_TRAFFIC);
    if (e.ep != NULL) exchange(&e);
    enter(side, PHASE_CLOSE);
    if (e.ep != NULL) {
        if (!e.broken && xsock_ep_shutdown(e.ep) != 0) failed(&e, "xsock_ep_shutdown");
        /* The peer's end completes the last receive; after a failure ours must do. */
        take_until(&e, 0, 0, "the peer's end");
        if (xsock_ep_close(e.ep) != 0) failed(&e, "xsock_ep_close");
        e.ep = NULL;
        take_until(&e, 0, 1, "close");
    }
    if (e.listener != NULL && xsock_listener_close(e.listener) != 0) {
        failed(&e, "xsock_listener_close");
    }
    if (e.mr != NULL && xsock_mr_deregister(e.mr) != 0) failed(&e, "xsock_mr_deregister");
    if (e.cq != NULL && xsock_cq_destroy(e.cq) != 0) failed(&e, "xsock_cq_destroy");
    free(e.memory);
}

/* ---- DDPMODE ---------------------------------------------------------------------- */

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((unsigned short)port);
    return address;
}

static int in_ddpmode(const struct side* side) {
    const int mode = DDPMODE_MESSAGE, startup_ms = 2000, linger_ms = 500, require = 1;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) {
        note(side, "socket", errno);
    } else if (setsockopt(fd, SOL_XSOCK, DDPMODE, &mode, sizeof mode) != 0 ||
               setsockopt(fd, SOL_XSOCK, DDPSTARTUP, &startup_ms, sizeof startup_ms) != 0 ||
               setsockopt(fd, SOL_XSOCK, DDPLINGER, &linger_ms, sizeof linger_ms) != 0 ||
               setsockopt(fd, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) != 0) {
        note(side, "setsockopt", errno);
        close(fd);
        return -1;
    }
    return fd;
}

static int wait_for(const struct side* side, int fd, short events, int timeout_ms) {
    struct pollfd p = {fd, events, 0};
    const int n = poll(&p, 1, timeout_ms);
    if (n < 0) note(side, "poll", errno);
    return n;
}

static int accepted(const struct side* side, int* listener) {
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int fd = -1;
    *listener = in_ddpmode(side);
    if (*listener < 0) return -1;
    if (bind(*listener, (struct sockaddr*)&address, size) != 0 || listen(*listener, 8) != 0 ||
        getsockname(*listener, (struct sockaddr*)&address, &size) != 0) {
        note(side, "listen", errno);
        return -1;
    }
    publish_port(side, ntohs(address.sin_port));
    for (;;) {
        const int over = victim_is_done(side);
        const int n = wait_for(side, *listener, POLLIN, accept_ms(side));
        if (n > 0) break;
        if (n < 0 || side->victim || over) {
            if (n == 0) note(side, "poll", ETIMEDOUT);
            return -1;
        }
    }
    fd = accept(*listener, NULL, NULL);
    if (fd < 0) note(side, "accept", errno);
    return fd;
}

static int connected(const struct side* side) {
    const int port = await_port(side);
    const struct sockaddr_in address = loopback(port);
    const int fd = port != 0 ? in_ddpmode(side) : -1;
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr*)&address, sizeof address) == 0) return fd;
    note(side, "connect", errno);
    close(fd);
    return -1;
}

static int talk(const struct side* side, int fd) {
    static char bytes[LONG], right[LONG];
    const size_t sizes[] = {SHORT, LONG, 4};
    int i;
    for (i = 0; i < LONG; i++) bytes[i] = right[i] = (char)(i * 7 / 5);
    for (i = 0; i < 3; i++) {
        if (send(fd, bytes, sizes[i], MSG_NOSIGNAL) != (ssize_t)sizes[i]) {
            note(side, "send", errno);
            return -1;
        }
    }
    for (i = 0; i < 3; i++) {
        ssize_t n;
        const int ready = wait_for(side, fd, POLLIN, LIMIT_MS);
        if (ready == 0) fail("nothing to receive, and no end, in %d ms", LIMIT_MS);
        if (ready < 0) return -1;
        memset(bytes, 0, sizeof bytes);
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0) note(side, "recv", errno);
        if (n == 0) note(side, "recv", ECONNRESET);
        if (n <= 0) return -1;
        if (n != (ssize_t)sizes[i] || memcmp(bytes, right, sizes[i]) != 0) {
            fail("message %d came as %zd other bytes", i, n);
        }
    }
    return 0;
}

static void run_ddpmode(const struct side* side) {
    char byte;
    int listener = -1, fd;
    enter(side, PHASE_START);
    fd = side->server ? accepted(side, &listener) : connected(side);
    enter(side, PHASE_TRAFFIC);
    if (fd >= 0) {
        const int broken = talk(side, fd) != 0;
        enter(side, PHASE_CLOSE);
        if (!broken) {
            if (shutdown(fd, SHUT_WR) != 0) note(side, "shutdown", errno);
            if (wait_for(side, fd, POLLIN, LIMIT_MS) == 0) {
                fail("no end of file in %d ms", LIMIT_MS);
            }
            switch (recv(fd, &byte, 1, 0)) {
                case 0:
                    break;
                case -1:
                    note(side, "recv", errno);
                    break;
                default:
                    fail("a message that was not sent");
            }
        }
        if (close(fd) != 0) note(side, "close", errno);
    }
    enter(side, PHASE_CLOSE);
    if (listener >= 0 && close(listener) != 0) note(side, "close", errno);
}

int main(int argc, char** argv) {
    static const struct ends all[] = {
        {"xsock", run_xsock, 1}, {"ddpmode", run_ddpmode, 1}, {NULL, NULL, 0}};
    return run_faults(argc, argv, all);
}
