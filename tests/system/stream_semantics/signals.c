/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Signals that meet a call that waits, and cancellation. */
#include <sys/epoll.h>
#include <sys/select.h>

#include "tests/system/stream_semantics/semantics.h"

static volatile sig_atomic_t signals;
static void count(int number) {
    (void)number;
    signals++;
}

CASE(recv_is_interrupted) {
    int fds[2];
    pthread_t later;
    make_pair(fds);
    handle(SIGUSR1, count, 0);
    later = begin_signals(SIGUSR1, 30);
    RECV(fds[1], 10, 0);
    end_signals(later);
    NOTE(signals > 0);
    /* What has come is the answer. */
    put(fds[0], "abc");
    arrived(fds[1], 3);
    later = begin_signals(SIGUSR1, 30);
    RECV(fds[1], 10, MSG_WAITALL);
    end_signals(later);
    put(fds[0], "abc");
    arrived(fds[1], 3);
    later = begin_signals(SIGUSR1, 30);
    RECV(fds[1], 10, MSG_WAITALL | MSG_PEEK);
    end_signals(later);
    NOTE(signals > 0);
    close_pair(fds);
}

CASE(recv_goes_on) {
    int fds[2];
    pthread_t later, data;
    make_pair(fds);
    handle(SIGUSR1, count, SA_RESTART);
    later = begin_signals(SIGUSR1, 20);
    data = put_later(fds[0], "abc", 60);
    RECV(fds[1], 10, 0);
    end_signals(later);
    join(data);
    NOTE(signals > 0);
    /* Not where there is a time limit. */
    set_time_limit(fds[1], SO_RCVTIMEO, 10000);
    later = begin_signals(SIGUSR1, 20);
    RECV(fds[1], 10, 0);
    end_signals(later);
    NOTE(signals > 0);
    close_pair(fds);
}

CASE(send_is_interrupted) {
    static char block[16 << 20];
    int fds[2];
    pthread_t later;
    ssize_t n;
    make_pair(fds);
    handle(SIGUSR1, count, 0);
    later = begin_signals(SIGUSR1, 50);
    n = send(fds[0], block, sizeof block, 0);
    NOTE(n > 0 && n < (ssize_t)sizeof block);
    end_signals(later);
    fill(fds[0]);
    later = begin_signals(SIGUSR1, 50);
    NOTE(send(fds[0], "a", 1, 0));
    end_signals(later);
    NOTE(signals > 0);
    close_pair(fds);
}

CASE(accept_is_interrupted) {
    struct sockaddr_in address;
    const int from = make_listener(&address);
    pthread_t later;
    handle(SIGUSR1, count, 0);
    later = begin_signals(SIGUSR1, 30);
    NOTE(accept(from, NULL, NULL));
    end_signals(later);
    set_time_limit(from, SO_RCVTIMEO, 30);
    NOTE(accept(from, NULL, NULL));
    CHECK(close(from) == 0);
}

/* Whatever SA_RESTART says. */
CASE(waits_are_interrupted) {
    int fds[2];
    pthread_t later;
    struct pollfd one;
    struct epoll_event event = {.events = EPOLLIN};
    fd_set reads;
    const int set = epoll_create1(0);
    make_pair(fds);
    handle(SIGUSR1, count, SA_RESTART);
    one = (struct pollfd){fds[1], POLLIN, 0};
    later = begin_signals(SIGUSR1, 30);
    NOTE(poll(&one, 1, 20000));
    end_signals(later);
    FD_ZERO(&reads);
    FD_SET(fds[1], &reads);
    later = begin_signals(SIGUSR1, 30);
    NOTE(select(fds[1] + 1, &reads, NULL, NULL, NULL));
    end_signals(later);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[1], &event) == 0);
    later = begin_signals(SIGUSR1, 30);
    NOTE(epoll_wait(set, &event, 1, -1));
    end_signals(later);
    NOTE(signals > 0);
    close_pair(fds);
    CHECK(close(set) == 0);
}

/* ---- cancellation: of a thread in a call that waits ---- */

static void* wait_in_recv(void* argument) {
    char byte;
    recv(*(int*)argument, &byte, 1, 0);
    return NULL;
}

CASE(a_thread_is_cancelled_in_recv) {
    int fds[2];
    pthread_t thread;
    void* result;
    make_pair(fds);
    CHECK(pthread_create(&thread, NULL, wait_in_recv, &fds[1]) == 0);
    sleep_ms(30);
    NOTE(pthread_cancel(thread));
    sleep_ms(30);
    put(fds[0], "a"); /* where the cancellation waits for the call, this ends it */
    CHECK(pthread_join(thread, &result) == 0);
    NOTE(result == PTHREAD_CANCELED);
    NOTE(waiting_in(fds[1]));
    close_pair(fds);
}
