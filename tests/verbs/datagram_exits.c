/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Processes that end, most of them with datagrams under way, or stop: each case makes children that
 * use the device, and uses none itself.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>

#include "tests/verbs/datagrams.h"

static void leave(int signal_number) {
    (void)signal_number;
    exit(0);
}
static void leave_after(long us) {
    const struct itimerval once = {.it_value = {0, us}};
    MUST(signal(SIGALRM, leave) != SIG_ERR);
    MUST(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void poll_datagrams(long us) {
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), a.qp->qp_num, QKEY};
    struct ibv_wc wc;
    ud_receives(&a, 0, 1);
    CHECK(ud_send(&a, &to, 1, 64) == 0);
    expect_datagram(&a, 0, 1, 64);
    leave_after(us);
    for (;;) ibv_poll_cq(a.receives, 1, &wc);
}

static void poll_connection(long us) {
    static struct pair p;
    struct ibv_wc wc;
    connect_pair(&p);
    leave_after(us);
    for (;;) ibv_poll_cq(p.a->recv_cq, 1, &wc);
}

/* A program that polls all the time, and whose handler of SIGINT calls exit(). */
static void exits_in_a_handler(void (*polls)(long us)) {
    enum { CHILDREN = 60 };
    int hung = 0;
    for (int i = 0; i < CHILDREN && hung == 0; ++i) {
        const pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            polls(1000 + 37 * i);
            _exit(1);
        }
        const int status = wait_for(child, LIMIT_S);
        CHECK(status == 0, "child %d: %d", i, status);
        hung += status == -1;
    }
}
CASE(a_handler_exits_while_datagrams_are_polled) { exits_in_a_handler(poll_datagrams); }
CASE(a_handler_exits_while_a_connection_is_polled) { exits_in_a_handler(poll_connection); }

/* gloo's thread polls while exit() runs, and throws at the first error. */
static void* poll_until_an_error(void* cq) {
    struct ibv_wc wc;
    for (;;) {
        const int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS)) _exit(3);
    }
}
CASE(exit_flushes_nothing_that_another_thread_polls) {
    enum { CHILDREN = 40 };
    for (int i = 0; i < CHILDREN; ++i) {
        const pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            static struct pair p;
            static char octets[64];
            pthread_t thread;
            connect_pair(&p);
            struct ibv_mr* const mr = ibv_reg_mr(p.a->pd, octets, 64, IBV_ACCESS_LOCAL_WRITE);
            MUST(mr != NULL);
            struct ibv_sge to = {(uintptr_t)octets, 64, mr->lkey};
            struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad;
            MUST(ibv_post_recv(p.a->qp, &receive, &bad) == 0);
            MUST(pthread_create(&thread, NULL, poll_until_an_error, p.a->recv_cq) == 0);
            usleep(2000 + 100 * i);
            exit(0);
        }
        const int status = wait_for(child, LIMIT_S);
        CHECK(status == 0, "child %d: %d", i, status);
    }
}

/*
 * A handler of exit() runs behind the library's if it was there first. With a sanitizer the
 * library's is there before main(): so this one is added before any library's constructor runs.
 * (One of atexit() would run with the destructors of the program, ahead of the libraries'.)
 */
static struct pair left;
static void take_what_was_flushed(int status, void* unused) {
    (void)status, (void)unused;
    if (left.a == NULL) return;
    _exit(next(left.a->recv_cq).status == IBV_WC_WR_FLUSH_ERR ? 0 : 3);
}
static void add_handler(void) { MUST(on_exit(take_what_was_flushed, NULL) == 0); }
__attribute__((section(".preinit_array"), used)) static void (*const at_start)(void) = add_handler;

static void exit_with_a_receive(void) {
    static char octets[64];
    connect_pair(&left);
    struct ibv_mr* const mr = ibv_reg_mr(left.a->pd, octets, 64, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr != NULL);
    CHECK(post_recv_numbered(left.a->qp, 1, octets, 64, mr->lkey) == 0);
    exit(1);
}
CASE(the_thread_that_exits_is_told_what_exit_flushes) { in_child(exit_with_a_receive); }

/* Another process with a QP, which takes what comes; it ends with this one. */
struct other {
    pid_t pid;
    uint32_t num;
};
static struct other start_other(void) {
    struct other other;
    int from[2];
    MUST(pipe(from) == 0);
    MUST((other.pid = fork()) >= 0);
    if (other.pid == 0) {
        struct ibv_wc wc;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct ud u = make_ud();
        ud_receives(&u, 0, DEPTH);
        MUST(write(from[1], &u.qp->qp_num, sizeof other.num) == sizeof other.num);
        for (;;) {
            if (ibv_poll_cq(u.receives, 1, &wc) == 1) ud_receive(&u, (int)wc.wr_id);
        }
    }
    MUST(read(from[0], &other.num, sizeof other.num) == sizeof other.num);
    close(from[0]);
    close(from[1]);
    return other;
}

/* Sends to it until one is held back, and then dropped. */
static void fill(struct ud* a, const struct ud_to* to) {
    double longest = 0;
    for (uint32_t i = 0; longest < 0.5; ++i) {
        const double begin = now();
        MUST(i < 100000);
        MUST(ud_send(a, to, i, MTU) == 0);
        expect_sent(a, i);
        if (now() - begin > longest) longest = now() - begin;
    }
    CHECK(longest < 3, "%.1f s", longest);
}

/* Every second datagram goes to a process that takes none. */
static void send_to_both(struct ud* a, const struct ud_to* stopped, double limit) {
    struct ud c = make_ud();
    const struct ud_to to = {stopped->ah, c.qp->qp_num, QKEY};
    const double begin = now();
    for (uint32_t i = 0; i < 500; ++i) {
        ud_receives(&c, (int)(i % DEPTH), 1);
        CHECK(ud_send(a, stopped, 2 * i, MTU) == 0);
        CHECK(ud_send(a, &to, 2 * i + 1, 64) == 0);
        expect_sent(a, 2 * i);
        expect_sent(a, 2 * i + 1);
        expect_datagram(&c, (int)(i % DEPTH), 2 * i + 1, 64);
    }
    CHECK(now() - begin < limit, "%.1f s", now() - begin);
    destroy_ud(&c);
}

static void beside_one_that_stops(void) {
    const struct other other = start_other();
    struct ud a = make_ud();
    const struct ud_to to = {make_ah(0), other.num, QKEY};
    CHECK(ud_send(&a, &to, 0, 64) == 0);
    expect_sent(&a, 0);
    usleep(200000); /* it is connected */
    MUST(kill(other.pid, SIGSTOP) == 0);
    fill(&a, &to);
    send_to_both(&a, &to, 5);
}

static void beside_one_that_has_stopped(void) {
    const struct other other = start_other();
    struct ud a = make_ud();
    const struct ud_to to = {make_ah(0), other.num, QKEY};
    MUST(kill(other.pid, SIGSTOP) == 0);
    send_to_both(&a, &to, 5);
}

CASE(a_process_that_stops_delays_no_other) { in_child(beside_one_that_stops); }
CASE(a_process_that_does_not_answer_delays_no_other) { in_child(beside_one_that_has_stopped); }

/* What it takes no more is not waited for longer than anything else. */
CASE(exits_soon_beside_a_process_that_has_stopped) {
    int from[2];
    char octet;
    MUST(pipe(from) == 0);
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        const struct other other = start_other();
        struct ud a = make_ud();
        const struct ud_to to = {make_ah(0), other.num, QKEY};
        CHECK(ud_send(&a, &to, 0, 64) == 0);
        expect_sent(&a, 0);
        usleep(200000);
        MUST(kill(other.pid, SIGSTOP) == 0);
        fill(&a, &to);
        MUST(write(from[1], "", 1) == 1);
        exit(failures != 0);
    }
    MUST(read(from[0], &octet, 1) == 1);
    const double begin = now();
    const int status = wait_for(child, LIMIT_S);
    CHECK(status == 0, "%d", status);
    CHECK(now() - begin < 3, "%.1f s", now() - begin);
    close(from[0]);
    close(from[1]);
}

/* One more than the QP's share of the memory: the last stays with its carrier, whose end has come.
 */
static void from_one_that_has_ended(void) {
    enum { SENT = 64 };
    int to_sender[2];
    MUST(pipe(to_sender) == 0);
    const pid_t sender = fork();
    MUST(sender >= 0);
    if (sender == 0) {
        uint32_t num;
        failures = 0;
        MUST(read(to_sender[0], &num, sizeof num) == sizeof num);
        struct ud a = make_ud();
        const struct ud_to to = {make_ah(0), num, QKEY};
        for (uint32_t i = 0; i < SENT; ++i) CHECK(ud_send(&a, &to, i, MTU) == 0);
        for (uint32_t i = 0; i < SENT; ++i) expect_sent(&a, i);
        exit(failures != 0);
    }
    struct ud b = make_ud();
    const double begin = now();
    MUST(write(to_sender[1], &b.qp->qp_num, sizeof b.qp->qp_num) == sizeof b.qp->qp_num);
    const int status = wait_for(sender, LIMIT_S);
    CHECK(status == 0, "%d", status);
    usleep(200000);
    ud_receives(&b, 0, SENT);
    if (now() - begin > 0.9) _exit(TOO_SLOW); /* from a second on they are dropped */
    for (uint32_t i = 0; i < SENT; ++i) expect_datagram(&b, (int)i, i, MTU);
}
CASE(what_waits_outlives_its_sender) { in_child(from_one_that_has_ended); }

int main(int argc, char** argv) { return run_cases(argc, argv); }
