/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A process that uses the functions of xsock.h and verbs side by side: both have the same device,
 * and so the same threads. Linked with libxsock.so; the drop-in libraries are found at run time.
 */
#include <dirent.h>
#include <sys/wait.h>

#include "include/xsock/xsock.h"
#include "tests/verbs/pair.h"

/* Threads of this process with that name. */
static int threads_named(const char* name) {
    DIR* const tasks = opendir("/proc/self/task");
    struct dirent* entry;
    int count = 0;
    MUST(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], is[64] = "";
        FILE* file;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        if (entry->d_name[0] == '.' || (file = fopen(path, "r")) == NULL) continue;
        if (fgets(is, sizeof is, file) != NULL) is[strcspn(is, "\n")] = '\0';
        fclose(file);
        count += strcmp(is, name) == 0;
    }
    closedir(tasks);
    return count;
}
/* A new thread names itself. */
static int come_to_be(const char* name, int count) {
    const double limit = now() + LIMIT_S;
    while (threads_named(name) != count) {
        if (now() > limit) return 0;
        usleep(1000);
    }
    return 1;
}

/* Two endpoints of xsock.h, joined. */
struct ends {
    struct xsock_cq* cq;
    struct xsock_listener* listener;
    struct xsock_ep *a, *b;
};

static void join_ends(struct ends* e) {
    XSOCK_INIT(xsock_ep_attr, attr);
    char port[16];
    MUST((e->cq = xsock_cq_create(NULL)) != NULL);
    attr.send_cq = attr.recv_cq = e->cq;
    MUST((e->listener = xsock_listen("127.0.0.1", "0", 4, &attr)) != NULL);
    snprintf(port, sizeof port, "%d", xsock_listener_port(e->listener));
    MUST((e->a = xsock_connect("127.0.0.1", port, &attr, LIMIT_S * 1000)) != NULL);
    MUST((e->b = xsock_accept(e->listener, LIMIT_S * 1000)) != NULL);
}
static void part_ends(struct ends* e) {
    xsock_ep_close(e->a);
    xsock_ep_close(e->b);
    xsock_listener_close(e->listener);
    xsock_cq_destroy(e->cq);
}
static void send_between(struct ends* e) {
    char in[8] = "";
    struct xsock_wc wc[2];
    CHECK(xsock_recv(e->b, 1, in, sizeof in) == 0);
    CHECK(xsock_send(e->a, 2, "xsock.h", 8, 0) == 0);
    CHECK(xsock_cq_wait(e->cq, wc, 2, 2, LIMIT_S * 1000) == 2);
    CHECK(wc[0].status == 0 && wc[1].status == 0 && strcmp(in, "xsock.h") == 0);
}
static void send_in_pair(struct pair* p) {
    memcpy(p->data_a, "verbs", 6);
    CHECK(post_recv(p->b->qp, p->data_b, 8, p->mr_b->lkey) == 0);
    CHECK(post(p->a->qp, IBV_WR_SEND, p->data_a, 6, p->mr_a->lkey, 0, 0) == 0);
    EXPECT(p->b->recv_cq, IBV_WC_SUCCESS);
    EXPECT(p->a->send_cq, IBV_WC_SUCCESS);
    CHECK(strcmp(p->data_b, "verbs") == 0);
}

CASE(both_have_the_same_threads) {
    static struct pair p;
    struct ends e;
    join_ends(&e);
    connect_pair(&p);
    for (int i = 0; i < 3; ++i) {
        send_between(&e);
        send_in_pair(&p);
    }
    CHECK(come_to_be("xsock-progress", 1), "%d threads", threads_named("xsock-progress"));
    CHECK(come_to_be("xsock-verbs", 1));
    disconnect_pair(&p);
    send_between(&e);
    part_ends(&e);
}

/* The state of an endpoint is told to its owner: a QP may have the same number as its context. */
CASE(the_end_of_an_endpoint_is_none_of_a_qp) {
    static struct pair p;
    struct ends e;
    join_ends(&e);
    connect_pair(&p);
    xsock_ep_set_context(e.a, (void*)(uintptr_t)p.a->qp->qp_num);
    xsock_ep_set_context(e.b, (void*)(uintptr_t)p.b->qp->qp_num);
    CHECK(xsock_ep_abort(e.a) == 0);
    CHECK(xsock_ep_abort(e.b) == 0);
    usleep(100000);
    CHECK(state_of(p.a->qp) == IBV_QPS_RTS && state_of(p.b->qp) == IBV_QPS_RTS);
    send_in_pair(&p);
    disconnect_pair(&p);
    xsock_listener_close(e.listener);
    xsock_cq_destroy(e.cq);
}

static void in_child(void (*run)(void)) {
    int status = 0;
#ifdef __SANITIZE_THREAD__
    printf("SKIPPED %s: ThreadSanitizer allows no threads in a forked child\n", case_name);
    return;
#endif
    fflush(stdout);
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        failures = 0;
        run();
        _exit(failures);
    }
    MUST(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

CASE(a_child_has_one_set_of_its_own) {
    static struct pair p;
    struct ends e;
    join_ends(&e);
    connect_pair(&p);
    in_child(both_have_the_same_threads);
    send_between(&e);
    send_in_pair(&p);
    disconnect_pair(&p);
    part_ends(&e);
}

/* XSOCK_PROGRESS=app is the C functions' until verbs are used, whose programs would hang. */
static void begin_without_threads(void) {
    static struct pair p;
    struct ends e;
    join_ends(&e);
    send_between(&e);
    CHECK(threads_named("xsock-progress") == 0);
    connect_pair(&p);
    CHECK(come_to_be("xsock-progress", 1), "%d threads", threads_named("xsock-progress"));
    send_between(&e);
    send_in_pair(&p);
    disconnect_pair(&p);
    part_ends(&e);
}
CASE(verbs_bring_threads_to_all) {
    MUST(setenv("XSOCK_PROGRESS", "app", 1) == 0);
    in_child(begin_without_threads);
    unsetenv("XSOCK_PROGRESS");
}

/* A connection has no CRCs where both ends ask for none: here an endpoint and an id of rdma_cm. */
struct dialer {
    char port[16];
    struct xsock_ep_attr attr;
    struct xsock_ep* ep;
};
static void* dial(void* argument) {
    struct dialer* const d = argument;
    d->ep = xsock_connect("127.0.0.1", d->port, &d->attr, LIMIT_S * 1000);
    return NULL;
}
CASE(crcs_are_where_one_end_asks_for_them) {
    const char* const setting = getenv("XSOCK_VERBS_CRC");
    const int wanted = setting == NULL || strcmp(setting, "0") != 0;
    for (int i = 0; i < 2; ++i) {
        XSOCK_INIT(xsock_ep_attr, attr);
        XSOCK_INIT(xsock_ep_info, info);
        struct rdma_cm_id* const listener = make_listener_ep(4);
        struct rdma_cm_id* id;
        struct dialer d;
        pthread_t thread;
        d.attr = attr;
        MUST((d.attr.send_cq = d.attr.recv_cq = xsock_cq_create(NULL)) != NULL);
        if (i == 1) d.attr.flags |= XSOCK_EP_NO_CRC;
        snprintf(d.port, sizeof d.port, "%u", ntohs(rdma_get_src_port(listener)));
        MUST(pthread_create(&thread, NULL, dial, &d) == 0);
        MUST(rdma_get_request(listener, &id) == 0);
        MUST(rdma_accept(id, NULL) == 0);
        pthread_join(thread, NULL);
        MUST(d.ep != NULL && xsock_ep_query(d.ep, &info) == 0);
        CHECK(info.crc == (i == 0 || wanted), "%u", info.crc);
        xsock_ep_close(d.ep);
        xsock_cq_destroy(d.attr.send_cq);
        rdma_destroy_ep(id);
        rdma_destroy_ep(listener);
    }
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
