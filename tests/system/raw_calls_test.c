/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * System calls by number, through libc's syscall(), where DDPMODE sockets exist in the process.
 * Each case runs three times and notes results, errno and what was written back: on plain sockets
 * by libc's own syscall(), which is the kernel's answer, then through the overlay on plain sockets,
 * and on DDPMODE sockets. The notes must be the same. Where an answer is not the kernel's by
 * design, the case says what it is instead.
 *
 *   raw_calls_test [CASE ...]
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "tests/support/cases.h"
#include "tests/system/kernel_notes.h"

typedef long call_fn(long number, ...);

/* How a case runs. */
static struct {
    call_fn* call;
    int on; /* its sockets are in DDPMODE */
} now;

#define CALL(...) (errno = 0, now.call(__VA_ARGS__))

/* ---- notes --------------------------------------------------------------------------------------
 */
/* A result with its errno. */
static void note_result(int line, long result) { note_at(line, result, result < 0 ? errno : 0); }
#define RESULT(...) note_result(__LINE__, CALL(__VA_ARGS__))
/* The result is a new descriptor, whatever its number. */
#define DESCRIPTOR(...) note_descriptor(__LINE__, CALL(__VA_ARGS__))
static int note_descriptor(int line, long result) {
    note_at(line, result < 0 ? result : 0, result < 0 ? errno : 0);
    return (int)result;
}

/* Memory that is not there, and memory that can only be read. */
static void* nowhere;
static struct timespec* read_only;

static void arrived(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, 20000) == 1);
}

static void begin_pair(int fds[2]) { pair_of(now.on, fds); }

/* ---- data ---------------------------------------------------------------------------------------
 */
CASE(data) {
    int fds[2];
    char text[32] = "sixteen letters.", in[32];
    struct iovec out[2] = {{text, 4}, {text + 4, 4}};
    struct iovec back[2] = {{in, 3}, {in + 3, sizeof in - 3}};
    const struct iovec empty = {text, 0};
    begin_pair(fds);
    RESULT(SYS_write, fds[0], text, 5L);
    arrived(fds[1]);
    RESULT(SYS_read, fds[1], in, sizeof in);
    VALUE(memcmp(in, text, 5));
    RESULT(SYS_writev, fds[0], out, 2L);
    arrived(fds[1]);
    RESULT(SYS_readv, fds[1], back, 2L);
    VALUE(memcmp(in, text, 8));
    RESULT(SYS_sendto, fds[0], text, 6L, MSG_NOSIGNAL, NULL, 0);
    arrived(fds[1]);
    {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        RESULT(SYS_recvfrom, fds[1], in, sizeof in, MSG_PEEK, &from, &length);
        VALUE(length);
        RESULT(SYS_recvfrom, fds[1], in, sizeof in, 0, NULL, NULL);
    }
    RESULT(SYS_recvfrom, fds[1], in, sizeof in, MSG_DONTWAIT, NULL, NULL);
    /* Nothing is taken by a read of nothing. */
    RESULT(SYS_write, fds[0], text, 7L);
    arrived(fds[1]);
    RESULT(SYS_read, fds[1], in, 0L);
    RESULT(SYS_readv, fds[1], &empty, 1L);
    RESULT(SYS_preadv2, fds[1], &empty, 1L, -1L, -1L, 0);
    RESULT(SYS_read, fds[1], in, sizeof in);
    /* Arguments that the kernel refuses. */
    RESULT(SYS_readv, fds[1], back, -1L);
    RESULT(SYS_writev, fds[0], out, 2000L);
    RESULT(SYS_readv, fds[1], nowhere, 1L);
    RESULT(SYS_write, fds[0], nowhere, 5L);
    CHECK(fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0);
    RESULT(SYS_read, fds[1], in, 1L);
    close_pair(fds);
}

/* The offset takes two words, of which a 64-bit kernel reads the first; then come the flags. */
CASE(data_at_an_offset) {
    int fds[2];
    char text[32] = "sixteen letters.", in[32];
    struct iovec out[2] = {{text, 4}, {text + 4, 5}};
    struct iovec back[2] = {{in, 3}, {in + 3, sizeof in - 3}};
    begin_pair(fds);
    RESULT(SYS_pwritev2, fds[0], out, 2L, -1L, 0L, 0);
    RESULT(SYS_pwritev2, fds[0], out, 1L, -1L, -1L, RWF_HIPRI);
    arrived(fds[1]);
    if (now.on) { /* two messages */
        CHECK(CALL(SYS_preadv2, fds[1], back, 2L, -1L, 0L, 0) == 9 && memcmp(in, text, 9) == 0);
        CHECK(CALL(SYS_preadv2, fds[1], back, 2L, -1L, -1L, 0) == 4 && memcmp(in, text, 4) == 0);
        CHECK_ERROR(CALL(SYS_preadv2, fds[1], back, 2L, -1L, 0L, RWF_NOWAIT), EAGAIN);
    } else {
        back[1].iov_len = 10;
        CHECK(recv(fds[1], in, 13, MSG_PEEK | MSG_WAITALL) == 13);
        CHECK(CALL(SYS_preadv2, fds[1], back, 2L, -1L, 0L, 0) == 13);
    }
    RESULT(SYS_preadv2, fds[1], back, 2L, 0L, 0L, 0);
    RESULT(SYS_preadv2, fds[1], back, 2L, 0L, -1L, 0); /* the high word is not read */
    RESULT(SYS_preadv2, fds[1], back, 2L, -2L, 0L, 0);
    RESULT(SYS_pwritev2, fds[0], out, 2L, 0L, 0L, 0);
    RESULT(SYS_pwritev2, fds[0], out, 2L, -2L, 0L, 0);
    RESULT(SYS_pwritev2, fds[0], out, 2L, -1L, 0L, 1 << 30);
    RESULT(SYS_preadv2, fds[1], back, 2L, -1L, 0L, 1 << 30);
    RESULT(SYS_preadv2, fds[1], back, -1L, -1L, 0L, 0);
    RESULT(SYS_pwritev2, fds[0], out, 2000L, -1L, 0L, 0);
    RESULT(SYS_preadv2, fds[1], nowhere, 1L, -1L, 0L, 0);
    /* Nothing of it came into the stream. */
    RESULT(SYS_write, fds[0], text, 7L);
    arrived(fds[1]);
    RESULT(SYS_read, fds[1], in, sizeof in);
    close_pair(fds);
}

CASE(messages) {
    int fds[2];
    char text[32] = "sixteen letters.", in[2][16];
    struct iovec out = {text, 4};
    struct iovec back[2] = {{in[0], 4}, {in[1], 16}};
    struct msghdr header = {.msg_iov = &out, .msg_iovlen = 1};
    struct mmsghdr two[2] = {{.msg_hdr = header}, {.msg_hdr = header}};
    struct sockaddr_in from;
    begin_pair(fds);
    RESULT(SYS_sendmsg, fds[0], &header, 0);
    arrived(fds[1]);
    header.msg_iov = &back[0];
    header.msg_name = &from;
    header.msg_namelen = sizeof from;
    RESULT(SYS_recvmsg, fds[1], &header, 0);
    VALUE(header.msg_namelen);
    VALUE(header.msg_controllen);
    RESULT(SYS_sendmmsg, fds[0], two, 2, 0);
    VALUE(two[0].msg_len);
    VALUE(two[1].msg_len);
    CHECK(now.on || recv(fds[1], in, 8, MSG_PEEK | MSG_WAITALL) == 8);
    two[0].msg_hdr.msg_iov = &back[0];
    two[1].msg_hdr.msg_iov = &back[1];
    {
        struct timespec limit = {100, 0};
        RESULT(SYS_recvmmsg, fds[1], two, 2, 0, &limit);
        VALUE(limit.tv_sec > 50 && limit.tv_sec < 100); /* what is left */
        VALUE(two[0].msg_len);
        VALUE(two[1].msg_len);
        limit = (struct timespec){0, -1};
        RESULT(SYS_recvmmsg, fds[1], two, 2, MSG_DONTWAIT, &limit);
        VALUE(limit.tv_nsec);
        limit = (struct timespec){100, 0};
        RESULT(SYS_recvmmsg, fds[1], two, 2, MSG_DONTWAIT, &limit);
        VALUE(limit.tv_sec == 100 && limit.tv_nsec == 0); /* nothing came: as it was */
        RESULT(SYS_recvmmsg, fds[1], two, 2, MSG_DONTWAIT, nowhere);
    }
    RESULT(SYS_sendmsg, fds[0], nowhere, 0);
    RESULT(SYS_recvmsg, fds[1], nowhere, MSG_DONTWAIT);
    RESULT(SYS_sendmmsg, fds[0], nowhere, 1, 0);
    close_pair(fds);
}

/* A message that carries descriptors: of plain ones, and of a started DDPMODE socket among them. */
CASE(rights) {
    int over[2], fds[2], got = -1;
    char byte = 0;
    struct iovec iov = {&byte, 1};
    union carried_fd control;
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    struct mmsghdr two[2];
    struct cmsghdr* const c = &control.header;
    begin_pair(fds);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, over) == 0);
    carry_fd(&message, &control, over[0]);
    RESULT(SYS_sendmsg, over[0], &message, 0);
    RESULT(SYS_recvmsg, over[1], &message, 0);
    VALUE(message.msg_controllen);
    memcpy(&got, CMSG_DATA(c), sizeof got);
    VALUE(close(got));
    if (now.on) {
        memcpy(CMSG_DATA(c), &fds[0], sizeof(int));
        CHECK_ERROR(CALL(SYS_sendmsg, over[0], &message, 0), EOPNOTSUPP);
        two[0] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
        two[1] = (struct mmsghdr){.msg_hdr = message};
        CHECK(CALL(SYS_sendmmsg, over[0], two, 2, 0) == 1); /* the one before it */
        CHECK_ERROR(CALL(SYS_sendmmsg, over[0], two + 1, 1, 0), EOPNOTSUPP);
    }
    close_pair(over);
    close_pair(fds);
}

/* Inside the kernel, from descriptor to descriptor. */
CASE(between_descriptors) {
    int fds[2], pipes[2];
    const int file = open("/dev/zero", O_RDONLY);
    char in[16];
    begin_pair(fds);
    CHECK(file >= 0 && pipe(pipes) == 0);
    if (now.on) {
        CHECK_ERROR(CALL(SYS_sendfile, fds[0], file, NULL, 10L), EOPNOTSUPP);
        CHECK_ERROR(CALL(SYS_splice, fds[0], NULL, pipes[1], NULL, 10L, 0), EOPNOTSUPP);
        CHECK_ERROR(CALL(SYS_splice, pipes[0], NULL, fds[0], NULL, 10L, 0), EOPNOTSUPP);
        exchange(fds[0], fds[1]);
    } else {
        CHECK(CALL(SYS_sendfile, fds[0], file, NULL, 10L) == 10);
        CHECK(recv(fds[1], in, 10, MSG_WAITALL) == 10);
        CHECK(write(pipes[1], "pipe", 4) == 4);
        CHECK(CALL(SYS_splice, pipes[0], NULL, fds[0], NULL, 10L, 0) == 4);
        CHECK(recv(fds[1], in, 4, MSG_WAITALL) == 4);
    }
    CHECK(close(file) == 0);
    close_pair(pipes);
    close_pair(fds);
}

/* ---- a socket's life ----------------------------------------------------------------------------
 */
struct call_of_thread {
    struct sockaddr_in address;
    int fd;
    long result;
    int error;
};

static void* connect_by_number(void* argument) {
    struct call_of_thread* const c = argument;
    c->result = CALL(SYS_connect, c->fd, &c->address, sizeof c->address);
    c->error = errno;
    return NULL;
}

CASE(a_life) {
    struct call_of_thread c = {.result = 0};
    struct sockaddr_in from;
    socklen_t length = sizeof c.address;
    const int one = 1;
    int value = 0;
    int listening, accepted[2], both[2], i;
    char byte;
    pthread_t thread;
    VALUE((both[0] = both[1] = 0));
    RESULT(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, both);
    close_pair(both);
    RESULT(SYS_socket, AF_INET, 99, 0);
    listening = DESCRIPTOR(SYS_socket, AF_INET, SOCK_STREAM, 0);
    if (now.on) {
        ddpmode(listening);
        CHECK(setsockopt(listening, SOL_XSOCK, DDPREQUIRE, &one, sizeof one) == 0);
    }
    memset(&c.address, 0, sizeof c.address);
    c.address.sin_family = AF_INET;
    c.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    RESULT(SYS_bind, listening, &c.address, sizeof c.address);
    RESULT(SYS_listen, listening, 8);
    RESULT(SYS_getsockname, listening, &c.address, &length);
    CHECK(fcntl(listening, F_SETFL, O_NONBLOCK) == 0);
    RESULT(SYS_accept, listening, NULL, NULL);
    CHECK(fcntl(listening, F_SETFL, 0) == 0);
    for (i = 0; i < 2; i++) {
        length = sizeof from;
        c.fd = socket(AF_INET, SOCK_STREAM, 0);
        if (now.on) ddpmode(c.fd);
        CHECK(pthread_create(&thread, NULL, connect_by_number, &c) == 0);
        if (i == 0) {
            accepted[i] = DESCRIPTOR(SYS_accept, listening, &from, &length);
        } else {
            accepted[i] =
                DESCRIPTOR(SYS_accept4, listening, &from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
            VALUE(fcntl(accepted[i], F_GETFL) & O_NONBLOCK);
            VALUE(fcntl(accepted[i], F_GETFD));
            CHECK(fcntl(accepted[i], F_SETFL, 0) == 0);
        }
        VALUE(length);
        VALUE(from.sin_family);
        CHECK(pthread_join(thread, NULL) == 0);
        note_at(__LINE__, c.result, c.result < 0 ? c.error : 0);
        length = sizeof value;
        RESULT(SYS_setsockopt, c.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        RESULT(SYS_getsockopt, c.fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length);
        VALUE(value);
        VALUE(length);
        length = sizeof value;
        RESULT(SYS_getsockopt, c.fd, SOL_SOCKET, SO_ERROR, &value, &length);
        VALUE(value);
        RESULT(SYS_connect, c.fd, &c.address, sizeof c.address); /* again */
        RESULT(SYS_write, c.fd, "x", 1L);
        arrived(accepted[i]);
        RESULT(SYS_read, accepted[i], &byte, 1L);
        RESULT(SYS_shutdown, c.fd, 77);
        RESULT(SYS_shutdown, c.fd, SHUT_WR);
        RESULT(SYS_read, accepted[i], &byte, 1L);
        RESULT(SYS_close, c.fd);
        RESULT(SYS_close, accepted[i]);
        RESULT(SYS_close, accepted[i]);
    }
    RESULT(SYS_close, listening);
    RESULT(SYS_connect, -1, &c.address, sizeof c.address);
    RESULT(SYS_accept, -1, NULL, NULL);
}

CASE(descriptors) {
    int fds[2], copy, value = 0;
    char byte, two[2];
    begin_pair(fds);
    copy = DESCRIPTOR(SYS_dup, fds[0]);
    RESULT(SYS_write, copy, "x", 1L);
    arrived(fds[1]);
    RESULT(SYS_read, fds[1], &byte, 1L);
    RESULT(SYS_dup3, copy, 610, O_CLOEXEC);
    RESULT(SYS_dup3, copy, copy, 0);
#ifdef SYS_dup2
    RESULT(SYS_dup2, 610, 611);
    RESULT(SYS_dup2, 611, 611);
    RESULT(SYS_dup2, 9999, 611);
#else
    RESULT(SYS_dup3, 610, 611, 0);
#endif
    RESULT(SYS_fcntl, 611, F_DUPFD, 620L);
    RESULT(SYS_fcntl, 611, F_DUPFD_CLOEXEC, 621L);
    RESULT(SYS_write, 621, "yz", 2L);
    arrived(fds[1]);
    RESULT(SYS_ioctl, fds[1], FIONREAD, &value);
    VALUE(value);
    RESULT(SYS_read, fds[1], two, 2L);
    RESULT(SYS_fcntl, fds[1], F_SETFL, (long)O_NONBLOCK);
    VALUE(CALL(SYS_fcntl, fds[1], F_GETFL) & O_NONBLOCK);
    RESULT(SYS_read, fds[1], &byte, 1L);
    value = 0;
    RESULT(SYS_ioctl, fds[1], FIONBIO, &value);
    RESULT(SYS_fcntl, fds[1], F_SETOWN, -(long)getpgrp());
    RESULT(SYS_fcntl, fds[1], 9999, 0L);
    RESULT(SYS_close_range, 610, 700, 0);
    RESULT(SYS_close_range, 700, 610, 0);
    RESULT(SYS_close, copy);
    RESULT(SYS_write, fds[0], "x", 1L);
    RESULT(SYS_close, fds[0]);
    RESULT(SYS_read, fds[1], &byte, 1L);
    RESULT(SYS_read, fds[1], &byte, 1L); /* the last one was the end */
    RESULT(SYS_close, fds[1]);
    RESULT(SYS_write, fds[1], "x", 1L);
}

/* ---- readiness ----------------------------------------------------------------------------------
 */
static const long kMask = 8; /* the kernel's */

static struct timespec seconds(long s) { return (struct timespec){s, 0}; }

/* Some of it is gone, and no more than a slow machine takes. */
static int some_left(const struct timespec* t, long of) {
    return t->tv_sec < of && t->tv_sec >= of / 2 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

static int none_left(const struct timespec* t) { return t->tv_sec == 0 && t->tv_nsec == 0; }

CASE(polled) {
    int fds[2];
    struct pollfd p[2];
    struct timespec t;
    uint64_t mask = 0;
    begin_pair(fds);
    p[0] = (struct pollfd){.fd = fds[1], .events = POLLIN};
    p[1] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = 7};
    t = seconds(0);
    RESULT(SYS_ppoll, p, 2L, &t, NULL, kMask);
    VALUE(p[1].revents);
    t = (struct timespec){0, 30000000};
    RESULT(SYS_ppoll, p, 1L, &t, NULL, kMask);
    VALUE(none_left(&t));
    t = (struct timespec){0, 20000000};
    RESULT(SYS_ppoll, p, 1L, &t, &mask, kMask);
    VALUE(none_left(&t));
    /* Of a mask that is none the size does not matter. */
    t = seconds(0);
    RESULT(SYS_ppoll, p, 1L, &t, NULL, 77L);
    t = seconds(100);
    RESULT(SYS_ppoll, p, 1L, &t, &mask, (long)sizeof(sigset_t));
    VALUE(t.tv_sec == 100 && t.tv_nsec == 0);
    RESULT(SYS_ppoll, p, 1L, &t, &mask, 0L);
    RESULT(SYS_ppoll, p, 1L, &t, nowhere, kMask);
    RESULT(SYS_ppoll, p, 1L, nowhere, NULL, kMask);
    RESULT(SYS_ppoll, nowhere, 1L, &t, NULL, kMask);
    RESULT(SYS_ppoll, p, 1L << 31, &t, NULL, kMask);
    t = (struct timespec){0, 1000000000};
    RESULT(SYS_ppoll, p, 1L, &t, NULL, kMask);
    t = (struct timespec){-1, 0};
    RESULT(SYS_ppoll, p, 1L, &t, NULL, kMask);
    VALUE(t.tv_sec);
    RESULT(SYS_write, fds[0], "x", 1L);
    arrived(fds[1]);
    t = seconds(100);
    RESULT(SYS_ppoll, p, 1L, &t, &mask, kMask);
    VALUE(p[0].revents);
    VALUE(some_left(&t, 100));
    RESULT(SYS_ppoll, p, 1L, read_only, NULL, kMask); /* what is left cannot be written */
    p[0].revents = 0;
    RESULT(SYS_ppoll, p, 1L, NULL, NULL, 0L);
    VALUE(p[0].revents);
#ifdef SYS_poll
    p[0].revents = 0;
    RESULT(SYS_poll, p, 2L, -1);
    VALUE(p[0].revents);
    RESULT(SYS_poll, p, 1L, 0);
    RESULT(SYS_poll, p, 1L, 100000);
    RESULT(SYS_poll, nowhere, 1L, 0);
    RESULT(SYS_poll, NULL, 0L, 1);
    p[0].events = 0;
    RESULT(SYS_poll, p, 1L, 5);
#endif
    {
        static struct pollfd many[200];
        int i;
        for (i = 0; i < 200; i++) many[i].fd = -1;
        many[199] = (struct pollfd){.fd = fds[1], .events = POLLIN};
        t = seconds(100);
        RESULT(SYS_ppoll, many, 200L, &t, NULL, kMask);
        VALUE(many[199].revents);
    }
    close_pair(fds);
}

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

/* The mask is in force while the call sleeps; a handler ends it, and what is left is told. */
CASE(interrupted) {
    const uint64_t blocked = (uint64_t)1 << (SIGUSR1 - 1);
    const uint64_t none = 0;
    const struct {
        const void* mask;
        size_t size;
    } argument = {&none, 8};
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART}, before;
    sigset_t set, old;
    int fds[2];
    int epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd p;
    struct timespec t;
    unsigned long reads[16] = {0};
    begin_pair(fds);
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fds[1], &event) == 0);
    CHECK(sigaction(SIGUSR1, &action, &before) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &old) == 0);
    p = (struct pollfd){.fd = fds[1], .events = POLLIN, .revents = 5};
    signals = 0;
    pthread_kill(pthread_self(), SIGUSR1);
    t = (struct timespec){0, 20000000};
    RESULT(SYS_ppoll, &p, 1L, &t, &blocked, kMask);
    VALUE(signals);
    t = seconds(100);
    p.revents = 5;
    RESULT(SYS_ppoll, &p, 1L, &t, &none, kMask);
    VALUE(signals);
    VALUE(some_left(&t, 100));
    VALUE(p.revents);
    pthread_kill(pthread_self(), SIGUSR1);
    reads[fds[1] / 64] = 1ul << fds[1] % 64;
    t = seconds(100);
    RESULT(SYS_pselect6, fds[1] + 1, reads, NULL, NULL, &t, &argument);
    VALUE(signals);
    VALUE(some_left(&t, 100));
    VALUE(reads[fds[1] / 64] != 0); /* sets stay as they were */
    pthread_kill(pthread_self(), SIGUSR1);
    RESULT(SYS_epoll_pwait, epfd, &event, 1, -1, &none, kMask);
    VALUE(signals);
    pthread_kill(pthread_self(), SIGUSR1);
    t = seconds(100);
    RESULT(SYS_epoll_pwait2, epfd, &event, 1, &t, &none, kMask);
    VALUE(signals);
    VALUE(t.tv_sec == 100 && t.tv_nsec == 0); /* never written */
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
    close(epfd);
    close_pair(fds);
}

CASE(selected) {
    int fds[2];
    unsigned long reads[16] = {0}, writes[16] = {0}, beyond;
    struct {
        const void* mask;
        size_t size;
    } argument = {NULL, 0};
    uint64_t mask = 0;
    struct timespec t;
    int count, word;
    begin_pair(fds);
    /* At numbers that are the same each time. */
    CHECK(dup2(fds[0], 130) == 130 && dup2(fds[1], 131) == 131);
    close_pair(fds);
    count = 132;
    word = 2;
    reads[word] = 8; /* 131 */
    t = seconds(0);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, NULL);
    VALUE(reads[word]);
    reads[word] = 8;
    t = (struct timespec){0, 20000000};
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, &argument);
    VALUE(none_left(&t));
    argument.size = 77; /* of no mask */
    reads[word] = 8;
    t = seconds(0);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, &argument);
    argument.mask = &mask;
    reads[word] = 8;
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, &argument);
    VALUE(reads[word]);
    argument.size = sizeof(sigset_t);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, &argument);
    argument.mask = nowhere;
    argument.size = 8;
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, &argument);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, nowhere);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, nowhere, NULL);
    RESULT(SYS_pselect6, count, nowhere, NULL, NULL, &t, NULL);
    RESULT(SYS_pselect6, -1, reads, NULL, NULL, &t, NULL);
    t = (struct timespec){0, -1};
    RESULT(SYS_pselect6, count, reads, NULL, NULL, &t, NULL);
    VALUE(t.tv_nsec);
    t = seconds(0);
    RESULT(SYS_pselect6, count, NULL, NULL, NULL, &t, NULL);
    RESULT(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL);
    argument.mask = &mask;
    RESULT(SYS_write, 130, "x", 1L);
    arrived(131);
    t = seconds(100);
    reads[word] = 8 | 1ul << 60; /* the second is beyond the count: nothing is known of it */
    writes[word] = 4;
    beyond = reads[word + 1] = 5;
    RESULT(SYS_pselect6, count, reads, writes, NULL, &t, &argument);
    VALUE(reads[word]);
    VALUE(writes[word]);
    VALUE(reads[word + 1] == beyond);
    VALUE(some_left(&t, 100));
    reads[word] = 8;
    RESULT(SYS_pselect6, count, reads, NULL, NULL, NULL, NULL);
    VALUE(reads[word]);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, read_only, NULL);
    reads[word] = 8 | 1; /* 128 is not open */
    close(128);
    RESULT(SYS_pselect6, count, reads, NULL, NULL, NULL, NULL);
    VALUE(reads[word]);
#ifdef SYS_select
    {
        struct timeval v = {100, 2500000};
        reads[word] = 8;
        RESULT(SYS_select, count, reads, writes, NULL, &v);
        VALUE(reads[word]);
        VALUE(v.tv_sec >= 50 && v.tv_sec <= 102 && v.tv_usec >= 0 && v.tv_usec < 1000000);
        v = (struct timeval){0, 20000};
        RESULT(SYS_select, count, NULL, NULL, reads, &v);
        VALUE(v.tv_sec == 0 && v.tv_usec == 0);
        VALUE(reads[word]);
        v = (struct timeval){0, -1};
        reads[word] = 8;
        RESULT(SYS_select, count, reads, NULL, NULL, &v);
        v = (struct timeval){1, -1000000};
        RESULT(SYS_select, count, reads, NULL, NULL, &v);
        RESULT(SYS_select, count, reads, NULL, NULL, NULL);
        RESULT(SYS_select, count, reads, NULL, NULL, nowhere);
        RESULT(SYS_select, count, nowhere, NULL, NULL, NULL);
    }
#endif
    CHECK(close(130) == 0 && close(131) == 0);
}

CASE(epolled) {
    int fds[2], epfd;
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = 77}}, got[4];
    struct timespec t;
    uint64_t mask = 0;
    begin_pair(fds);
    epfd = DESCRIPTOR(SYS_epoll_create1, EPOLL_CLOEXEC);
    RESULT(SYS_epoll_create1, 77);
#ifdef SYS_epoll_create
    RESULT(SYS_epoll_create, 0);
    CHECK(close(DESCRIPTOR(SYS_epoll_create, 1)) == 0);
#endif
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, fds[1], &event);
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fds[1], nowhere);
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fds[1], &event);
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fds[1], &event);
    RESULT(SYS_epoll_ctl, epfd, 77, fds[1], &event);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, NULL, kMask);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, NULL, 77L);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 5, &mask, kMask);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, &mask, (long)sizeof(sigset_t));
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, &mask, 0L);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, nowhere, kMask);
    RESULT(SYS_epoll_pwait, epfd, got, 0, 0, NULL, kMask);
    t = (struct timespec){0, 5000000};
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, NULL, 77L);
    VALUE(t.tv_nsec);
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, &mask, kMask);
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, &mask, (long)sizeof(sigset_t));
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, nowhere, kMask);
    RESULT(SYS_epoll_pwait2, epfd, got, 4, nowhere, NULL, kMask);
    t = (struct timespec){0, -1};
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, NULL, kMask);
    RESULT(SYS_write, fds[0], "x", 1L);
    arrived(fds[1]);
    t = seconds(100);
    RESULT(SYS_epoll_pwait2, epfd, got, 4, &t, &mask, kMask);
    VALUE(t.tv_sec);
    VALUE(got[0].events);
    VALUE(got[0].data.u64);
    RESULT(SYS_epoll_pwait2, epfd, got, 4, NULL, NULL, kMask);
    RESULT(SYS_epoll_pwait, epfd, got, 4, -1, NULL, kMask);
#ifdef SYS_epoll_wait
    RESULT(SYS_epoll_wait, epfd, got, 4, -1);
    VALUE(got[0].events);
    RESULT(SYS_epoll_wait, epfd, got, -1, 0);
    RESULT(SYS_epoll_wait, fds[1], got, 1, 0);
#endif
    RESULT(SYS_epoll_pwait, fds[1], got, 1, 0, NULL, kMask);
    event.events = EPOLLOUT;
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, fds[1], &event);
    RESULT(SYS_epoll_pwait, epfd, got, 4, -1, NULL, kMask);
    VALUE(got[0].events);
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, fds[1], NULL);
    RESULT(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, fds[1], NULL);
    RESULT(SYS_epoll_pwait, epfd, got, 4, 0, NULL, kMask);
    CHECK(close(epfd) == 0);
    close_pair(fds);
}

/* ---- cancellation ------------------------------------------------------------------------------
 */
struct waiting {
    long number;
    int fd, epfd;
    _Atomic int asleep;
    _Atomic long result;
};

static void* wait_with_cancel_pending(void* argument) {
    struct waiting* const w = argument;
    char bytes[16];
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct mmsghdr message = {.msg_hdr = header};
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    struct epoll_event event;
    unsigned long reads[16] = {0};
    reads[w->fd / 64] = 1ul << w->fd % 64;
    pthread_cancel(pthread_self());
    w->asleep = 1;
    switch (w->number) {
        case SYS_read:
            w->result = CALL(SYS_read, w->fd, bytes, sizeof bytes);
            break;
        case SYS_readv:
            w->result = CALL(SYS_readv, w->fd, &iov, 1L);
            break;
        case SYS_preadv2:
            w->result = CALL(SYS_preadv2, w->fd, &iov, 1L, -1L, 0L, 0);
            break;
        case SYS_recvfrom:
            w->result = CALL(SYS_recvfrom, w->fd, bytes, sizeof bytes, 0, NULL, NULL);
            break;
        case SYS_recvmsg:
            w->result = CALL(SYS_recvmsg, w->fd, &header, 0);
            break;
        case SYS_recvmmsg:
            w->result = CALL(SYS_recvmmsg, w->fd, &message, 1, 0, NULL);
            break;
        case SYS_ppoll:
            w->result = CALL(SYS_ppoll, &p, 1L, NULL, NULL, kMask);
            break;
        case SYS_pselect6:
            w->result = CALL(SYS_pselect6, w->fd + 1, reads, NULL, NULL, NULL, NULL);
            break;
        case SYS_epoll_pwait:
            w->result = CALL(SYS_epoll_pwait, w->epfd, &event, 1, -1, NULL, kMask);
            break;
        default:
            w->result = CALL(SYS_epoll_pwait2, w->epfd, &event, 1, NULL, NULL, kMask);
            break;
    }
    w->asleep = 2;
    pthread_testcancel();
    return NULL; /* not reached */
}

/* syscall() is no cancellation point: a pending cancellation waits until the thread comes to one.
 * The result notes that the call came back, with the message that it waited for. */
CASE(not_cancelled) {
    static const long numbers[] = {SYS_read,        SYS_readv,       SYS_preadv2, SYS_recvfrom,
                                   SYS_recvmsg,     SYS_recvmmsg,    SYS_ppoll,   SYS_pselect6,
                                   SYS_epoll_pwait, SYS_epoll_pwait2};
    size_t i;
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct waiting w = {.number = numbers[i], .result = -77};
        struct epoll_event event = {.events = EPOLLIN};
        int fds[2];
        void* ended;
        pthread_t thread;
        begin_pair(fds);
        w.fd = fds[1];
        w.epfd = epoll_create1(0);
        CHECK(epoll_ctl(w.epfd, EPOLL_CTL_ADD, fds[1], &event) == 0);
        CHECK(pthread_create(&thread, NULL, wait_with_cancel_pending, &w) == 0);
        while (!w.asleep) usleep(1000);
        usleep(20000);
        CHECK(send(fds[0], "four", 4, MSG_NOSIGNAL) == 4);
        CHECK(pthread_join(thread, &ended) == 0);
        VALUE(ended == PTHREAD_CANCELED);
        VALUE(w.asleep);
        VALUE(w.result);
        CHECK(close(w.epfd) == 0);
        close_pair(fds);
    }
}

/* A call that the kernel is asked for in the end, of a descriptor that had a handle when it began:
 * a receiver waits on a socket that turns out to be plain. */
CASE(not_cancelled_where_it_turns_plain) {
    struct waiting w = {.number = SYS_recvfrom, .result = -77};
    void* ended;
    int fds[2];
    pthread_t thread;
    if (!now.on) return;
    undecided_pair(fds);
    w.fd = fds[0];
    CHECK(pthread_create(&thread, NULL, wait_with_cancel_pending, &w) == 0);
    while (!w.asleep) usleep(1000);
    usleep(20000);
    CHECK(send(fds[1], "plain", 5, MSG_NOSIGNAL) == 5);
    CHECK(pthread_join(thread, &ended) == 0);
    CHECK(ended == PTHREAD_CANCELED && w.asleep == 2 && w.result == 5);
    close_pair(fds);
}

static call_fn* kernel;

static void run_in(const struct test_case* one, const char* words, call_fn* call, int on) {
    notes_begin(words);
    now.call = call, now.on = on;
    one->run();
    notes_end();
}

static void run_case(const struct test_case* one) {
    printf("%s\n", one->name);
    fflush(stdout);
    alarm(120);
    run_in(one, NULL, kernel, 0);
    run_in(one, "plain sockets", (call_fn*)syscall, 0);
    run_in(one, "DDPMODE sockets", (call_fn*)syscall, 1);
}

int main(int argc, char** argv) {
    kernel = (call_fn*)dlsym(dlopen("libc.so.6", RTLD_NOW), "syscall");
    struct timespec hundred = {100, 0};
    int other[2], status;
    CHECK(kernel != NULL && kernel != (call_fn*)syscall);
    nowhere = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    read_only =
        mmap(NULL, sizeof hundred, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nowhere != MAP_FAILED && (void*)read_only != MAP_FAILED);
    *read_only = hundred;
    CHECK(mprotect(read_only, sizeof hundred, PROT_READ) == 0);
    pair_of(1, other); /* there is one in the process */
    status = for_cases(argc, argv, run_case);
    close_pair(other);
    return status;
}
