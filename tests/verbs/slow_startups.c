/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A crowd of connections from one address that never end their start-up, toward each kind of
 * listener, and honest clients of another address beside it: none may be shut out. Those of xsock.h
 * and of verbs in one program, linked with libxsock.so; the drop-in libraries are found at run
 * time.
 *
 *   XSOCK_SLOW_STARTUPS_SECONDS (3), XSOCK_SLOW_STARTUPS_RATE (1000 connections a second)
 *   XSOCK_SLOW_STARTUPS_LIMIT_MS   an honest client must be ready in so long; unset: ever
 *
 * XSOCK_MAX_STARTING says how many of the crowd fit.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "include/xsock/xsock.h"
#include "tests/verbs/pair.h"

enum { REQUEST_BYTES = 20, CROWD_MAX = 8192, HONEST_MAX = 100000 };

static int setting(const char* name, int otherwise) {
    const char* const value = getenv(name);
    return value != NULL ? atoi(value) : otherwise;
}

/* ---- the crowd: a process of its own --------------------------------------- */

struct crowd {
    pid_t process;
    int port, count; /* pipes: its port, then its end; how many connections it has made */
};

static int step_out(const struct sockaddr_in* to) {
    struct sockaddr_in from;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    MUST(fd >= 0);
    memset(&from, 0, sizeof from);
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    MUST(bind(fd, (struct sockaddr*)&from, sizeof from) == 0);
    MUST(connect(fd, (const struct sockaddr*)to, sizeof *to) == 0 || errno == EINPROGRESS);
    return fd;
}

/* A third says nothing, a third half a Request, a third a byte of it each second. */
static void be_a_crowd(int port, int end, int count) {
    static const char request[REQUEST_BYTES + 1] = "MPA ID Req Frame\x40\x01\0\0";
    static int fds[CROWD_MAX];
    const int rate = setting("XSOCK_SLOW_STARTUPS_RATE", 1000);
    const double begun = now();
    struct sockaddr_in to;
    char byte;
    int made = 0, missed = 0, said = 0;
    MUST(fcntl(end, F_SETFL, O_NONBLOCK) == 0);
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((unsigned short)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (read(end, &byte, 1) != 0) {
        /* On a busy machine it does not make up for what it has missed: the kernel's listen queue
         * would overflow. */
        const int most = made + rate / 50 + 1, due = (int)((now() - begun) * rate) - missed;
        if (due > most) missed += due - most;
        for (; made < (due < most ? due : most); ++made) {
            int* const place = &fds[made % CROWD_MAX];
            if (made >= CROWD_MAX) close(*place);
            *place = step_out(&to);
        }
        usleep(1000);
        if (now() - begun > said + 1) {
            const int first = made > CROWD_MAX ? made - CROWD_MAX : 0;
            ++said;
            for (int i = first; i < made; ++i) {
                const int age_s = said - 1 - i / rate;
                if (i % 3 == 1 && age_s == 0) {
                    send(fds[i % CROWD_MAX], request, REQUEST_BYTES / 2, MSG_NOSIGNAL);
                } else if (i % 3 == 2 && age_s >= 0 && age_s < REQUEST_BYTES - 1) {
                    send(fds[i % CROWD_MAX], request + age_s, 1, MSG_NOSIGNAL);
                }
            }
        }
    }
    MUST(write(count, &made, sizeof made) == sizeof made);
}

/* Before anything listens: the crowd has no part in the library. */
static struct crowd summon(void) {
    struct rlimit limit;
    struct crowd crowd;
    int port[2], count[2];
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    MUST(pipe(port) == 0 && pipe(count) == 0);
    MUST((crowd.process = fork()) >= 0);
    if (crowd.process == 0) {
        int number;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(port[1]);
        if (read(port[0], &number, sizeof number) == sizeof number)
            be_a_crowd(number, port[0], count[1]);
        _exit(0);
    }
    close(port[0]);
    close(count[1]);
    crowd.port = port[1];
    crowd.count = count[0];
    return crowd;
}

/* ---- honest clients -------------------------------------------------------- */

static int by_time(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

/* Connects again and again beside the crowd, then sends it away. `connect_once`: how long until it
 * was ready, in seconds; negative if it was not. */
static void visit(struct crowd crowd, int port, double (*connect_once)(int port)) {
    static double took[HONEST_MAX];
    const int limit_ms = setting("XSOCK_SLOW_STARTUPS_LIMIT_MS", 0);
    const double end = now() + setting("XSOCK_SLOW_STARTUPS_SECONDS", 3);
    int n = 0, shut_out = 0, made = 0, error = 0;
    MUST(write(crowd.port, &port, sizeof port) == sizeof port);
    while (now() < end && n < HONEST_MAX) {
        took[n] = connect_once(port);
        if (took[n] < 0) {
            ++shut_out;
            error = errno;
        } else {
            ++n;
        }
        usleep(20000);
    }
    close(crowd.port);
    MUST(read(crowd.count, &made, sizeof made) == sizeof made);
    close(crowd.count);
    MUST(waitpid(crowd.process, NULL, 0) == crowd.process);
    CHECK(shut_out == 0, "%d of %d honest clients, one of them: %s", shut_out, n + shut_out,
          strerror(error));
    CHECK(n > 0);
    CHECK(made > setting("XSOCK_MAX_STARTING", 4096) || limit_ms != 0, "the crowd: %d", made);
    if (n == 0) return;
    qsort(took, (size_t)n, sizeof *took, by_time);
    printf(
        "%s: a crowd of %d; %d honest clients, ready in %.2f ms (median), %.2f ms (p99), "
        "%.2f ms (longest)\n",
        case_name, made, n, took[n / 2] * 1e3, took[n * 99 / 100] * 1e3, took[n - 1] * 1e3);
    CHECK(limit_ms == 0 || took[n - 1] * 1e3 <= limit_ms);
}

static struct xsock_cq* client_cq;

static double connect_endpoint(int port) {
    XSOCK_INIT(xsock_ep_attr, attr);
    struct xsock_ep* ep;
    const double begun = now();
    double took;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (client_cq == NULL) MUST((client_cq = xsock_cq_create(NULL)) != NULL);
    attr.send_cq = client_cq;
    ep = xsock_connect("127.0.0.1", service, &attr, 8000);
    took = now() - begun;
    if (ep == NULL) return -1;
    xsock_ep_abort(ep);
    return took;
}

static double connect_verbs(int port) {
    struct rdma_addrinfo hints, *to;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_conn_param param;
    struct rdma_cm_id* id;
    const double begun = now();
    double took = -1;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    memset(&hints, 0, sizeof hints);
    hints.ai_port_space = RDMA_PS_TCP;
    MUST(rdma_getaddrinfo("127.0.0.1", service, &hints, &to) == 0);
    MUST(rdma_create_ep(&id, to, NULL, &attr) == 0);
    memset(&param, 0, sizeof param);
    if (rdma_connect(id, &param) == 0) took = now() - begun;
    rdma_disconnect(id);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(to);
    return took;
}

/* ---- the listeners ----------------------------------------------------------- */

static void* accept_endpoints(void* listener) {
    struct xsock_ep* ep;
    while ((ep = xsock_accept(listener, -1)) != NULL) xsock_ep_close(ep);
    return NULL;
}

/* Threads that serve end with the process. */
static void begin_serving(void* (*serve)(void*), void* listener) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, serve, listener) == 0);
    MUST(pthread_detach(thread) == 0);
}

CASE(endpoints) {
    const struct crowd crowd = summon();
    XSOCK_INIT(xsock_ep_attr, attr);
    struct xsock_listener* listener;
    MUST((attr.send_cq = xsock_cq_create(NULL)) != NULL);
    MUST((listener = xsock_listen("127.0.0.1", "0", 0, &attr)) != NULL);
    begin_serving(accept_endpoints, listener);
    visit(crowd, xsock_listener_port(listener), connect_endpoint);
}

static void* accept_required(void* listener) {
    for (int fd; (fd = accept(*(int*)listener, NULL, NULL)) >= 0; close(fd)) {
    }
    return NULL;
}

/* A server with an event loop that keeps what it has accepted, within limits of its own, as one of
 * TCP has to. */
static void* accept_any(void* argument) {
    static int kept[1024];
    const int listener = *(int*)argument, loop = epoll_create1(0);
    struct epoll_event event;
    int next = 0;
    MUST(loop >= 0);
    event.events = EPOLLIN;
    event.data.fd = listener;
    MUST(epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event) == 0);
    while (epoll_wait(loop, &event, 1, -1) == 1) {
        char bytes[64];
        if (event.data.fd != listener) {
            if (recv(event.data.fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
            epoll_ctl(loop, EPOLL_CTL_DEL, event.data.fd, NULL);
            continue;
        }
        int* const place = &kept[next++ % 1024];
        if (*place != 0) close(*place);
        MUST((*place = accept(listener, NULL, NULL)) >= 0);
        event.events = EPOLLIN;
        event.data.fd = *place;
        MUST(epoll_ctl(loop, EPOLL_CTL_ADD, *place, &event) == 0);
    }
    return NULL;
}

static void serve_sockets(int require, void* (*serve)(void*)) {
    static int listener;
    const struct crowd crowd = summon();
    const int mode = DDPMODE_MESSAGE;
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    MUST((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    MUST(setsockopt(listener, SOL_XSOCK, DDPMODE, &mode, sizeof mode) == 0);
    MUST(setsockopt(listener, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) == 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(bind(listener, (struct sockaddr*)&at, sizeof at) == 0);
    MUST(listen(listener, SOMAXCONN) == 0);
    MUST(getsockname(listener, (struct sockaddr*)&at, &size) == 0);
    begin_serving(serve, &listener);
    visit(crowd, ntohs(at.sin_port), connect_endpoint);
}

CASE(sockets_that_require_ddp) { serve_sockets(1, accept_required); }
CASE(sockets_of_either_kind) { serve_sockets(0, accept_any); }

static void* accept_verbs(void* listener) {
    struct rdma_cm_id* id;
    while (rdma_get_request(listener, &id) == 0) {
        struct rdma_conn_param param;
        memset(&param, 0, sizeof param);
        rdma_accept(id, &param);
        rdma_destroy_ep(id);
    }
    return NULL;
}

static struct rdma_cm_id* serve_verbs(void) {
    struct rdma_cm_id* const listener = make_listener_ep(0);
    begin_serving(accept_verbs, listener);
    return listener;
}

CASE(verbs) {
    const struct crowd crowd = summon();
    visit(crowd, ntohs(rdma_get_src_port(serve_verbs())), connect_verbs);
}

/* More connections at once than may be starting, of one address, and all of them healthy: they
 * speak 30 ms later, and none is closed for another. On a machine that is too slow for it, which
 * the clock says, another round counts. */
CASE(verbs_serve_a_burst) {
    enum { BURST_MAX = 1024, ROUNDS = 20 };
    static const char request[REQUEST_BYTES + 1] = "MPA ID Req Frame\x40\x01\0\0";
    static int fds[BURST_MAX];
    const int places = setting("XSOCK_MAX_STARTING", 4096), burst = places + places / 2;
    int in_time = 0, replies = 0;
    if (burst > BURST_MAX) {
        printf("SKIPPED %s: too many may be starting\n", case_name);
        return;
    }
    for (int round = 0; round < ROUNDS; ++round) {
        const struct sockaddr_in to = {.sin_family = AF_INET,
                                       .sin_port = rdma_get_src_port(serve_verbs()),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const double begun = now();
        for (int i = 0; i < burst; ++i) {
            MUST((fds[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
            MUST(connect(fds[i], (const struct sockaddr*)&to, sizeof to) == 0);
        }
        usleep(30000);
        for (int i = 0; i < burst; ++i) send(fds[i], request, REQUEST_BYTES, MSG_NOSIGNAL);
        in_time = now() - begun < 0.15;
        replies = 0;
        for (int i = 0; i < burst; ++i) {
            char reply[REQUEST_BYTES];
            struct pollfd p = {.fd = fds[i], .events = POLLIN};
            if (poll(&p, 1, LIMIT_S * 1000) == 1) {
                replies += recv(fds[i], reply, sizeof reply, 0) == sizeof reply;
            }
            close(fds[i]);
        }
        if (in_time || replies == burst) break;
    }
    CHECK(replies == burst || !in_time, "%d of %d", replies, burst);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
