/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* shutdown(), close() and exit(), and what the other end sees. */
#include <sys/wait.h>

#include "tests/system/stream_semantics/semantics.h"

static volatile sig_atomic_t signals;
static void count(int number) {
    (void)number;
    signals++;
}

CASE(the_writing_half) {
    int fds[2];
    make_pair(fds);
    put(fds[0], "abc");
    NOTE(shutdown(fds[0], SHUT_WR));
    EVENTS(fds[0]);
    NOTE(send(fds[0], "d", 1, MSG_NOSIGNAL));
    handle(SIGPIPE, count, 0);
    NOTE(send(fds[0], "d", 1, 0));
    NOTE(write(fds[0], "d", 1));
    NOTE(signals);
    until(fds[1], POLLRDHUP);
    EVENTS(fds[1]);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    /* The other way still goes. */
    put(fds[1], "back");
    RECV(fds[0], 4, MSG_WAITALL);
    NOTE(shutdown(fds[0], SHUT_WR));
    NOTE(shutdown(fds[1], SHUT_WR));
    until(fds[0], POLLHUP);
    EVENTS(fds[0]);
    until(fds[1], POLLHUP);
    EVENTS(fds[1]);
    RECV(fds[0], 10, 0);
    NOTE(send(fds[1], "d", 1, MSG_NOSIGNAL));
    OPTION(fds[0], SOL_SOCKET, SO_ERROR);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    close_pair(fds);
}

CASE(the_reading_half) {
    int fds[2];
    make_pair(fds);
    put(fds[0], "abc");
    arrived(fds[1], 3);
    NOTE(shutdown(fds[1], SHUT_RD));
    EVENTS(fds[1]);
    RECV(fds[1], 2, 0);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, MSG_DONTWAIT);
    /* The peer knows nothing of it. */
    EVENTS(fds[0]);
    put(fds[0], "more");
    arrived(fds[1], 4);
    RECV(fds[1], 10, 0);
    put(fds[1], "back");
    RECV(fds[0], 4, MSG_WAITALL);
    close_pair(fds);
}

CASE(both_halves) {
    int fds[2];
    make_pair(fds);
    put(fds[1], "abc");
    arrived(fds[0], 3);
    NOTE(shutdown(fds[0], SHUT_RDWR));
    EVENTS(fds[0]);
    RECV(fds[0], 10, 0);
    RECV(fds[0], 10, 0);
    NOTE(send(fds[0], "a", 1, MSG_NOSIGNAL));
    until(fds[1], POLLRDHUP);
    RECV(fds[1], 10, 0);
    NOTE(shutdown(fds[0], SHUT_RDWR));
    close_pair(fds);
}

CASE(halves_that_are_none) {
    int fds[2];
    const int fresh = make_socket();
    make_pair(fds);
    NOTE(shutdown(fds[0], 3));
    NOTE(shutdown(fds[0], -1));
    NOTE(shutdown(fresh, SHUT_WR));
    NOTE(shutdown(-1, SHUT_WR));
    RECV(fds[0], 1, MSG_DONTWAIT);
    NOTE(send(fds[0], "a", 1, 0));
    close_pair(fds);
    CHECK(close(fresh) == 0);
}

static void* shut_later(void* argument) {
    sleep_ms(30);
    CHECK(shutdown(*(int*)argument, SHUT_RD) == 0);
    return NULL;
}

CASE(shutdown_wakes_a_reader) {
    int fds[2];
    pthread_t thread;
    make_pair(fds);
    CHECK(pthread_create(&thread, NULL, shut_later, &fds[0]) == 0);
    RECV(fds[0], 10, 0);
    join(thread);
    close_pair(fds);
}

CASE(an_end_behind_data) {
    int fds[2];
    make_pair(fds);
    put(fds[0], "abc");
    NOTE(close(fds[0]));
    until(fds[1], POLLRDHUP);
    EVENTS(fds[1]);
    NOTE(waiting_in(fds[1]));
    RECV(fds[1], 2, MSG_PEEK);
    RECV(fds[1], 10, MSG_WAITALL);
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    NOTE(close(fds[1]));
}

/* The first goes and meets a reset, which the next ones tell. */
CASE(data_for_a_closed_reader) {
    int fds[2];
    make_pair(fds);
    NOTE(close(fds[0]));
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    NOTE(send(fds[1], "a", 1, MSG_NOSIGNAL));
    until(fds[1], POLLERR | POLLHUP);
    EVENTS(fds[1]);
    NOTE(send(fds[1], "a", 1, MSG_NOSIGNAL));
    NOTE(send(fds[1], "a", 1, MSG_NOSIGNAL));
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    NOTE(close(fds[1]));
}

CASE(a_reset_told_by_recv) {
    int fds[2];
    make_pair(fds);
    put(fds[0], "data");
    put(fds[1], "unread");
    arrived(fds[0], 6);
    arrived(fds[1], 4);
    NOTE(close(fds[0]));
    until(fds[1], POLLERR | POLLHUP);
    RECV(fds[1], 2, 0);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    NOTE(send(fds[1], "a", 1, MSG_NOSIGNAL));
    RECV(fds[1], 10, 0);
    NOTE(close(fds[1]));
}

CASE(a_reset_told_by_send) {
    int fds[2];
    make_pair(fds);
    put(fds[1], "unread");
    arrived(fds[0], 6);
    NOTE(close(fds[0]));
    until(fds[1], POLLERR | POLLHUP);
    handle(SIGPIPE, count, 0);
    NOTE(send(fds[1], "a", 1, 0));
    NOTE(signals);
    NOTE(send(fds[1], "a", 1, 0));
    NOTE(signals);
    RECV(fds[1], 10, 0);
    NOTE(shutdown(fds[1], SHUT_WR));
    NOTE(close(fds[1]));
}

static void* recv_it(void* argument) {
    char byte;
    const ssize_t n = recv(*(int*)argument, &byte, 1, 0);
    return (void*)(n < 0 ? (long)errno : 0);
}

CASE(a_reset_wakes_a_reader) {
    int fds[2];
    pthread_t thread;
    void* error;
    const struct linger how = {1, 0};
    make_pair(fds);
    CHECK(pthread_create(&thread, NULL, recv_it, &fds[1]) == 0);
    sleep_ms(30);
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, sizeof how));
    NOTE(close(fds[0]));
    CHECK(pthread_join(thread, &error) == 0);
    NOTE(error == (void*)ECONNRESET);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    NOTE(close(fds[1]));
}

/* close() returns at once; all of it arrives. */
CASE(close_delivers_what_was_sent) {
    enum { PERIOD = 251 };
    static char block[256 * 1024 + PERIOD];
    int fds[2];
    long sent = 0, got = 0, wrong = 0, begin, i;
    ssize_t n;
    for (i = 0; i < (long)sizeof block; i++) block[i] = (char)(i % PERIOD);
    make_pair(fds);
    while ((n = send(fds[0], block + sent % PERIOD, 256 * 1024, MSG_DONTWAIT)) > 0) sent += n;
    begin = now_ms();
    NOTE(close(fds[0]));
    NOTE(now_ms() - begin < 2000);
    while ((n = recv(fds[1], block, sizeof block, 0)) > 0) {
        for (i = 0; i < n; i++) wrong += block[i] != (char)((got + i) % PERIOD);
        got += n;
    }
    NOTE(n);
    NOTE(got == sent);
    NOTE(wrong);
    NOTE(close(fds[1]));
}

/* A child that has sent, and ends. */
static void end_of_a_child(void (*end)(int fd)) {
    struct sockaddr_in address;
    const int from = make_listener(&address);
    int fd, status = -1;
    const pid_t child = fork();
    char byte;
    CHECK(child >= 0);
    if (child == 0) {
        fd = make_socket();
        if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) _exit(1);
        if (send(fd, "hello", 5, 0) != 5 || recv(fd, &byte, 1, 0) != 1) _exit(1);
        if (send(fd, "last words", 10, 0) != 10) _exit(1);
        end(fd);
        _exit(1);
    }
    fd = accept(from, NULL, NULL);
    CHECK(fd >= 0);
    RECV(fd, 5, MSG_WAITALL);
    CHECK(goes_by_iwarp(fd) == is_carried);
    put(fd, "g");
    CHECK(waitpid(child, &status, 0) == child);
    NOTE(status);
    RECV(fd, 20, MSG_WAITALL);
    RECV(fd, 20, 0);
    CHECK(close(fd) == 0 && close(from) == 0);
}

static void by_exit(int fd) {
    (void)fd;
    exit(0);
}
static void by__exit(int fd) {
    (void)fd;
    _exit(0);
}
static void by_quick_exit(int fd) {
    (void)fd;
    quick_exit(0);
}
static void by_exec(int fd) {
    /* A descriptor that the new program would keep is another case (docs/overlay.md, Processes). */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    execl("/bin/true", "true", (char*)NULL);
}
static void by_signal(int fd) {
    (void)fd;
    sleep_ms(20); /* what is gathered goes in half a millisecond */
    raise(SIGKILL);
}
static void by_abort(int fd) {
    (void)fd;
    signal(SIGABRT, SIG_DFL);
    sleep_ms(20);
    abort();
}

CASE(exit_delivers_what_was_sent) { end_of_a_child(by_exit); }
CASE(underscore_exit_delivers_what_was_sent) { end_of_a_child(by__exit); }
CASE(quick_exit_delivers_what_was_sent) { end_of_a_child(by_quick_exit); }
CASE(exec_delivers_what_was_sent) { end_of_a_child(by_exec); }
CASE(a_peer_that_is_killed) { end_of_a_child(by_signal); }
CASE(a_peer_that_aborts) { end_of_a_child(by_abort); }
