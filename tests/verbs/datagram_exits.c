/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How processes end that send and receive datagrams: each case makes children that use the device,
 * and uses none itself ahead of that.
 */
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tests/verbs/datagrams.h"

/* The child's exit status; -1: it has not ended in time. */
static int wait_for(pid_t child, double seconds) {
    const double limit = now() + seconds;
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now() < limit) usleep(500);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

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

int main(int argc, char** argv) { return run_cases(argc, argv); }
