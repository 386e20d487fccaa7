/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Urgent data: the mark, the byte, and who is told. */
#include <sys/select.h>

#include "tests/system/stream_semantics/semantics.h"

static volatile sig_atomic_t signals;

static void count(int number) {
    (void)number;
    signals++;
}

static void expect_signals(int wanted) {
    int i;
    for (i = 0; signals < wanted; i++) {
        CHECK(i < 20000);
        sleep_ms(1);
    }
}

/* So that the byte, too, is there. */
static void urgent_arrived(int fd) { until(fd, POLLPRI); }

CASE(an_urgent_byte) {
    int fds[2];
    make_pair(fds);
    RECV(fds[1], 1, MSG_OOB);
    NOTE(sockatmark(fds[1]));
    put(fds[0], "ab");
    NOTE(send(fds[0], "c!", 2, MSG_OOB));
    put(fds[0], "de");
    urgent_arrived(fds[1]);
    EVENTS(fds[1]);
    NOTE(sockatmark(fds[1]));
    NOTE(waiting_in(fds[1]));
    RECV(fds[1], 1, MSG_OOB | MSG_PEEK);
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 1, MSG_OOB | MSG_PEEK);
    EVENTS(fds[1]);
    /* A read stops at the mark. */
    RECV(fds[1], 100, MSG_WAITALL);
    NOTE(sockatmark(fds[1]));
    until(fds[1], POLLIN);
    NOTE(waiting_in(fds[1]));
    EVENTS(fds[1]);
    RECV(fds[1], 100, 0);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 1, MSG_DONTWAIT);
    close_pair(fds);
}

CASE(an_urgent_byte_that_is_not_taken) {
    int fds[2];
    make_pair(fds);
    NOTE(send(fds[0], "abc!", 4, MSG_OOB));
    put(fds[0], "de");
    urgent_arrived(fds[1]);
    RECV(fds[1], 2, MSG_PEEK);
    RECV(fds[1], 100, MSG_PEEK);
    RECV(fds[1], 100, 0);
    NOTE(sockatmark(fds[1]));
    until(fds[1], POLLIN);
    NOTE(waiting_in(fds[1]));
    RECV(fds[1], 1, MSG_PEEK);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 1, 0);
    NOTE(sockatmark(fds[1]));
    EVENTS(fds[1]);
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(an_urgent_byte_alone) {
    int fds[2];
    char byte;
    make_pair(fds);
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    urgent_arrived(fds[1]);
    EVENTS(fds[1]);
    NOTE(waiting_in(fds[1]));
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 10, MSG_DONTWAIT);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 10, MSG_DONTWAIT);
    EVENTS(fds[1]);
    NOTE(recv(fds[1], &byte, 0, MSG_OOB));
    put(fds[0], "a");
    arrived(fds[1], 1);
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    close_pair(fds);
}

CASE(urgent_bytes_of_many_lengths) {
    int fds[2];
    struct iovec none = {NULL, 0};
    struct msghdr message = {.msg_iov = &none, .msg_iovlen = 1};
    make_pair(fds);
    NOTE(send(fds[0], NULL, 0, MSG_OOB));
    NOTE(sendmsg(fds[0], &message, MSG_OOB));
    EVENTS(fds[1]);
    NOTE(send(fds[0], "ab!", 3, MSG_OOB));
    urgent_arrived(fds[1]);
    {
        char room[4] = "---";
        struct iovec in = {room, 4};
        struct msghdr out = {.msg_iov = &in, .msg_iovlen = 1, .msg_flags = ~0};
        NOTE(recvmsg(fds[1], &out, MSG_OOB | MSG_PEEK));
        NOTE(out.msg_flags);
        note_text("room", room);
        out.msg_iovlen = 0;
        NOTE(recvmsg(fds[1], &out, MSG_OOB | MSG_PEEK));
        NOTE(out.msg_flags);
        NOTE(recv(fds[1], NULL, 1, MSG_OOB | MSG_TRUNC));
    }
    RECV(fds[1], 10, MSG_OOB);
    close_pair(fds);
}

CASE(a_second_urgent_byte) {
    int fds[2];
    make_pair(fds);
    NOTE(send(fds[0], "a1", 2, MSG_OOB));
    urgent_arrived(fds[1]);
    NOTE(send(fds[0], "b2", 2, MSG_OOB));
    put(fds[0], "c");
    for (; waiting_in(fds[1]) < 3;) sleep_ms(1);
    NOTE(waiting_in(fds[1]));
    RECV(fds[1], 1, MSG_OOB);
    RECV(fds[1], 10, 0);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(an_urgent_byte_inline) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[1], SOL_SOCKET, SO_OOBINLINE, 1);
    OPTION(fds[1], SOL_SOCKET, SO_OOBINLINE);
    NOTE(send(fds[0], "ab!", 3, MSG_OOB));
    put(fds[0], "de");
    urgent_arrived(fds[1]);
    EVENTS(fds[1]);
    RECV(fds[1], 1, MSG_OOB);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 10, 0);
    NOTE(sockatmark(fds[1]));
    EVENTS(fds[1]);
    arrived(fds[1], 3);
    RECV(fds[1], 10, 0);
    NOTE(sockatmark(fds[1]));
    EVENTS(fds[1]);
    close_pair(fds);
}

CASE(inline_from_the_listener) {
    int fds[2];
    make_pair_with(fds, SOL_SOCKET, SO_OOBINLINE, 1);
    OPTION(fds[0], SOL_SOCKET, SO_OOBINLINE);
    OPTION(fds[1], SOL_SOCKET, SO_OOBINLINE);
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    until(fds[1], POLLIN);
    NOTE(sockatmark(fds[1]));
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(select_tells_of_urgent_bytes) {
    int fds[2];
    fd_set reads, exceptions;
    struct timeval limit = {20, 0}, none = {0, 0};
    make_pair(fds);
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    FD_ZERO(&reads);
    FD_ZERO(&exceptions);
    FD_SET(fds[1], &exceptions);
    NOTE(select(fds[1] + 1, NULL, NULL, &exceptions, &limit));
    NOTE(FD_ISSET(fds[1], &exceptions) != 0);
    FD_SET(fds[1], &reads);
    NOTE(select(fds[1] + 1, &reads, NULL, NULL, &none));
    RECV(fds[1], 1, MSG_OOB);
    FD_SET(fds[1], &exceptions);
    NOTE(select(fds[1] + 1, NULL, NULL, &exceptions, &none));
    close_pair(fds);
}

CASE(sigurg) {
    int fds[2];
    make_pair(fds);
    handle(SIGURG, count, SA_RESTART);
    NOTE(send(fds[0], "!", 1, MSG_OOB)); /* has no owner */
    urgent_arrived(fds[1]);
    NOTE(signals);
    RECV(fds[1], 1, MSG_OOB);
    NOTE(fcntl(fds[1], F_SETOWN, getpid()));
    NOTE(fcntl(fds[1], F_GETOWN) == getpid());
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    expect_signals(1);
    urgent_arrived(fds[1]);
    RECV(fds[1], 1, MSG_OOB);
    NOTE(signals);
    NOTE(fcntl(fds[1], F_SETOWN, 0));
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    urgent_arrived(fds[1]);
    NOTE(signals);
    close_pair(fds);
}
