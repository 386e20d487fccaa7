/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pthread_cancel() of threads in functions of xsock.h: those that sleep are cancellation points,
 * the others are none, and the objects work on from other threads.
 *
 *   cancel_test [CASE ...]
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/support/cases.h"
#include "tests/system/overlay_pair.h"

enum { LIMIT_MS = 20000, SLEEPERS = 3 };

struct ends {
    struct xsock_cq* cq[2];
    struct xsock_listener* listener;
    struct xsock_ep* ep[2];
    char service[16];
    atomic_int served; /* the accepted end has got its message */
};

static void* connect_ep(void* argument) {
    struct ends* const e = argument;
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = e->cq[1];
    attr.sq_depth = 1024;
    e->ep[1] = xsock_connect("127.0.0.1", e->service, &attr, LIMIT_MS);
    CHECK(e->ep[1] != NULL);
    return NULL;
}

static void listen_for(struct ends* e) {
    XSOCK_INIT(xsock_ep_attr, attr);
    e->cq[0] = xsock_cq_create(NULL);
    e->cq[1] = xsock_cq_create(NULL);
    CHECK(e->cq[0] != NULL && e->cq[1] != NULL);
    attr.send_cq = e->cq[0];
    attr.rq_depth = 1024;
    e->listener = xsock_listen("127.0.0.1", "0", 16, &attr);
    CHECK(e->listener != NULL);
    snprintf(e->service, sizeof e->service, "%d", xsock_listener_port(e->listener));
}

static void connect_ends(struct ends* e) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, connect_ep, e) == 0);
    e->ep[0] = xsock_accept(e->listener, LIMIT_MS);
    CHECK(e->ep[0] != NULL && pthread_join(thread, NULL) == 0);
}

static void close_ends(struct ends* e) {
    int i;
    for (i = 0; i < 2; i++) CHECK(e->ep[i] == NULL || xsock_ep_close(e->ep[i]) == 0);
    CHECK(xsock_listener_close(e->listener) == 0);
    for (i = 0; i < 2; i++) CHECK(xsock_cq_destroy(e->cq[i]) == 0);
}

static void one_message(const struct ends* e) {
    char byte;
    struct xsock_wc wc;
    CHECK(xsock_recv(e->ep[0], 7, &byte, 1) == 0);
    CHECK(xsock_send(e->ep[1], 0, "x", 1, XSOCK_UNSIGNALED | XSOCK_INLINE) == 0);
    CHECK(xsock_cq_wait(e->cq[0], &wc, 1, 1, LIMIT_MS) == 1 && wc.wr_id == 7);
}

/* ---- those that sleep --------------------------------------------------------------------------
 * Several threads at once: one of them leads, the others follow. */
static void* sleep_for_a_completion(void* argument) {
    struct xsock_wc wc;
    xsock_cq_wait(((struct ends*)argument)->cq[0], &wc, 1, 1, XSOCK_FOREVER);
    return NULL; /* not reached */
}

static void* sleep_for_many_completions(void* argument) {
    static struct xsock_wc wcs[200];
    xsock_cq_wait(((struct ends*)argument)->cq[0], wcs, 200, 200, XSOCK_FOREVER);
    return NULL;
}

static void* sleep_for_a_connection(void* argument) {
    xsock_accept(((struct ends*)argument)->listener, XSOCK_FOREVER);
    return NULL;
}

static void* sleep_for_start_up(void* argument) {
    xsock_ep_wait(argument, XSOCK_FOREVER);
    return NULL;
}

static void cancel_waiters(void* (*sleep_in)(void*), void* object) {
    pthread_t threads[SLEEPERS];
    int round, i;
    for (round = 0; round < 5; round++) {
        for (i = 0; i < SLEEPERS; i++) {
            CHECK(pthread_create(&threads[i], NULL, sleep_in, object) == 0);
        }
        usleep((unsigned)round * 10000); /* at 0: when they are not asleep yet */
        for (i = 0; i < SLEEPERS; i++) {
            const int one = (i + round) % SLEEPERS;
            void* ended;
            CHECK(pthread_cancel(threads[one]) == 0);
            CHECK(pthread_join(threads[one], &ended) == 0 && ended == PTHREAD_CANCELED);
        }
    }
}

CASE(asleep_in_cq_wait) {
    struct ends e = {.listener = NULL};
    listen_for(&e);
    connect_ends(&e);
    cancel_waiters(sleep_for_a_completion, &e);
    one_message(&e);
    cancel_waiters(sleep_for_many_completions, &e);
    one_message(&e);
    close_ends(&e);
}

CASE(asleep_in_accept) {
    struct ends e = {.listener = NULL};
    listen_for(&e);
    cancel_waiters(sleep_for_a_connection, &e);
    connect_ends(&e);
    one_message(&e);
    close_ends(&e);
}

CASE(asleep_in_ep_wait) {
    XSOCK_INIT(xsock_ep_attr, attr);
    struct ends e = {.listener = NULL};
    struct sockaddr_in address;
    const int from = listener(&address, 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr*)&address, sizeof address) == 0); /* to one that is silent */
    listen_for(&e);
    attr.send_cq = e.cq[1];
    e.ep[1] = xsock_ep_create(fd, &attr);
    CHECK(e.ep[1] != NULL);
    cancel_waiters(sleep_for_start_up, e.ep[1]);
    CHECK(close(from) == 0);
    CHECK_ERROR(xsock_ep_wait(e.ep[1], LIMIT_MS), ECONNRESET);
    close_ends(&e);
}

/* ---- no completion is lost ----------------------------------------------------------------------
 */
enum { MESSAGES = 20000 };
static _Atomic int taken[MESSAGES];
static _Atomic int taken_in_all;

struct taker {
    struct ends* ends;
    int min;
};

static void* take_completions(void* argument) {
    const struct taker* const t = argument;
    struct xsock_wc wcs[80];
    for (;;) {
        const int n = xsock_cq_wait(t->ends->cq[0], wcs, t->min, 80, XSOCK_FOREVER);
        int i;
        CHECK(n >= t->min); /* from here to the next call there is no cancellation point */
        for (i = 0; i < n; i++) {
            CHECK(wcs[i].status == XSOCK_WC_SUCCESS);
            atomic_fetch_add(&taken[wcs[i].wr_id], 1);
        }
        atomic_fetch_add(&taken_in_all, n);
    }
}

static void* send_messages(void* argument) {
    static char room;
    struct ends* const e = argument;
    int sent = 0;
    while (sent < MESSAGES) {
        struct xsock_wc wc;
        if (sent - atomic_load(&taken_in_all) > 300) {
            CHECK(xsock_cq_poll(e->cq[1], &wc, 1) == 0);
            continue;
        }
        CHECK(xsock_recv(e->ep[0], (uint64_t)sent, &room, 1) == 0);
        while (xsock_send(e->ep[1], 0, "x", 1, XSOCK_UNSIGNALED | XSOCK_INLINE) != 0) {
            CHECK(errno == ENOMEM || errno == EAGAIN || errno == ENOBUFS);
            xsock_cq_poll(e->cq[1], &wc, 1);
        }
        if (++sent % 64 == 0) usleep(100);
    }
    return NULL;
}

CASE(no_completion_is_lost) {
    struct ends e = {.listener = NULL};
    struct taker takers[SLEEPERS] = {{&e, 1}, {&e, 2}, {&e, 70}};
    pthread_t sender, threads[SLEEPERS];
    int round, i;
    listen_for(&e);
    connect_ends(&e);
    for (i = 0; i < SLEEPERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, take_completions, &takers[i]) == 0);
    }
    CHECK(pthread_create(&sender, NULL, send_messages, &e) == 0);
    for (round = 0; atomic_load(&taken_in_all) < MESSAGES - 80; round++) {
        const int one = round % SLEEPERS;
        void* ended;
        usleep((unsigned)round % 17 * 10);
        CHECK(pthread_cancel(threads[one]) == 0);
        CHECK(pthread_join(threads[one], &ended) == 0 && ended == PTHREAD_CANCELED);
        CHECK(pthread_create(&threads[one], NULL, take_completions, &takers[one]) == 0);
    }
    CHECK(pthread_join(sender, NULL) == 0);
    while (atomic_load(&taken_in_all) < MESSAGES) usleep(1000);
    for (i = 0; i < SLEEPERS; i++) {
        CHECK(pthread_cancel(threads[i]) == 0 && pthread_join(threads[i], NULL) == 0);
    }
    for (i = 0; i < MESSAGES; i++) CHECK(taken[i] == 1);
    close_ends(&e);
}

/* ---- the others ---------------------------------------------------------------------------------
 * Each call is made with a cancellation pending. */
static void* call_the_others(void* argument) {
    struct ends* const e = argument;
    static char memory[4096];
    static int aborts;
    char byte;
    int found = 0;
    uint64_t word = 0;
    const struct xsock_sge sge = {memory, 8, 0};
    struct xsock_cq* cq;
    struct xsock_srq* srq;
    XSOCK_INIT(xsock_wr, wr);
    struct xsock_remote remote;
    struct xsock_key key;
    struct xsock_wc wc;
    struct xsock_pd* pd;
    struct xsock_mr* mr;
    struct xsock_listener* another;
    XSOCK_INIT(xsock_ep_info, info);
    XSOCK_INIT(xsock_ep_attr, attr);
    pthread_cancel(pthread_self());
    connect_ep(e);
    CHECK(xsock_cq_fd(e->cq[0]) >= 0 && xsock_listener_fd(e->listener) >= 0);
    pd = xsock_pd_create();
    mr = xsock_mr_register(pd, memory, sizeof memory, XSOCK_REMOTE_WRITE, NULL);
    CHECK(mr != NULL && xsock_mr_key(mr, 0, sizeof memory, &key) == 0);
    xsock_key_read(&key, &remote);
    attr.send_cq = e->cq[0];
    another = xsock_listen(NULL, "0", 16, &attr);
    CHECK(another != NULL && xsock_listener_close(another) == 0);
    CHECK(xsock_recv(e->ep[1], 1, &byte, 1) == 0);
    CHECK(xsock_send(e->ep[1], 2, memory, sizeof memory, 0) == 0);
    while (found == 0) found = xsock_cq_poll(e->cq[1], &wc, 1);
    CHECK(found == 1 && wc.wr_id == 2);
    while (!atomic_load(&e->served)) sched_yield(); /* it may be aborted */
    CHECK(xsock_ep_query(e->ep[1], &info) == 0);
    CHECK(xsock_ep_set_context(e->ep[1], NULL) == 0);
    CHECK(xsock_ep_shutdown(e->ep[1]) == 0);
    /* It sends no more: refused, or flushed. */
    xsock_post(e->ep[1], &wr);
    xsock_post_recv(e->ep[1], 3, &sge, 1);
    xsock_write(e->ep[1], 4, memory, 8, &remote, 0, 0);
    xsock_write_imm(e->ep[1], 5, memory, 8, &remote, 0, 5, 0);
    xsock_read(e->ep[1], 6, memory, 8, &remote, 0, 0);
    xsock_fetch_add(e->ep[1], 7, &word, &remote, 0, 1, 0);
    xsock_compare_swap(e->ep[1], 8, &word, &remote, 0, 1, 2, 0);
    xsock_ep_accept(e->ep[1], NULL, 0); /* it has started */
    xsock_ep_reject(e->ep[1], NULL, 0);
    CHECK(xsock_fd_endpoint(-1, e->cq[1], e->cq[1]) == NULL);
    CHECK(xsock_ep_create(-1, &attr) == NULL && xsock_listener_create(-1, &attr) == NULL);
    srq = xsock_srq_create(4);
    CHECK(srq != NULL && xsock_srq_post_recv(srq, 9, &sge, 1) == 0 && xsock_srq_destroy(srq) == 0);
    cq = xsock_cq_create(NULL);
    CHECK(cq != NULL && xsock_cq_destroy(cq) == 0);
    CHECK(xsock_mr_deregister(mr) == 0 && xsock_pd_destroy(pd) == 0);
    CHECK((aborts ? xsock_ep_abort : xsock_ep_close)(e->ep[1]) == 0);
    aborts = !aborts;
    e->ep[1] = NULL;
    pthread_testcancel();
    return NULL; /* not reached */
}

static void* accept_one(void* argument) {
    struct ends* const e = argument;
    static char room[4096];
    struct xsock_wc wc;
    e->ep[0] = xsock_accept(e->listener, LIMIT_MS);
    CHECK(e->ep[0] != NULL && xsock_recv(e->ep[0], 1, room, sizeof room) == 0);
    CHECK(xsock_cq_wait(e->cq[0], &wc, 1, 1, LIMIT_MS) == 1);
    atomic_store(&e->served, 1);
    return NULL;
}

CASE(no_other_call_is_a_cancellation_point) {
    int round;
    for (round = 0; round < 20; round++) {
        struct ends e = {.listener = NULL};
        pthread_t caller, server;
        void* ended;
        listen_for(&e);
        CHECK(pthread_create(&server, NULL, accept_one, &e) == 0);
        CHECK(pthread_create(&caller, NULL, call_the_others, &e) == 0);
        CHECK(pthread_join(caller, &ended) == 0 && ended == PTHREAD_CANCELED);
        CHECK(pthread_join(server, NULL) == 0);
        CHECK(e.ep[1] == NULL); /* it came to its end */
        close_ends(&e);
    }
}

static void run_case(const struct test_case* one) {
    printf("%s\n", one->name);
    fflush(stdout);
    alarm(120);
    one->run();
}

int main(int argc, char** argv) { return for_cases(argc, argv, run_case); }
