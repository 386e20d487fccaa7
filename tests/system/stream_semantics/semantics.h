/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What calls answer on a TCP socket, as a table of cases. Each case runs twice, in a process of its
 * own: over the kernel's TCP without xsock, and under the byte-stream mode with both ends carried.
 * It writes down results, errno, readiness and bytes, a line for each; the lines of both runs must
 * be the same, but for those in differences.c.
 */
#ifndef XSOCK_TESTS_SYSTEM_STREAM_SEMANTICS_H
#define XSOCK_TESTS_SYSTEM_STREAM_SEMANTICS_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "include/xsock/xsock.h"
#include "tests/support/cases.h"
#include "tests/support/check.h" /* for what is no part of the comparison */


/* ---- the transcript: "LABEL = ANSWER", a line each ---- */

/* `error`: an errno, or 0. `more`: further text, or NULL. */
void note(const char* label, long value, int error, const char* more);
/* A call that answers -1 with errno. */
#define NOTE(call)                                                     \
    do {                                                               \
        long note_result_;                                             \
        errno = 0;                                                     \
        note_result_ = (long)(call);                                   \
        note(#call, note_result_, note_result_ < 0 ? errno : 0, NULL); \
    } while (0)
/* recv(), with the bytes that it took. */
void note_recv(const char* label, int fd, size_t bytes, int flags);
#define RECV(fd, bytes, flags) note_recv("recv(" #fd ", " #bytes ", " #flags ")", fd, bytes, flags)
/* A text. */
void note_text(const char* label, const char* text);
/* What poll() says of `fd` now, of all that it can say. */
void note_events(const char* label, int fd);
#define EVENTS(fd) note_events("events of " #fd, fd)
/* An int option. */
void note_option(const char* label, int fd, int level, int name);
void note_set_option(const char* label, int fd, int level, int name, int value);
#define OPTION(fd, level, name) note_option("option " #name " of " #fd, fd, level, name)
#define SET_OPTION(fd, level, name, value) \
    note_set_option("set " #name " of " #fd " to " #value, fd, level, name, value)

/* One of differences.c: what is known to differ, the reason, and where the documents say so. */
struct difference {
    const char *name, *label; /* of the case and of the line */
    const char *kernel, *carried;
    const char *why, *place;
};
extern const struct difference differences[];
extern const size_t difference_count;

/* ---- sockets ---- */

extern int is_carried; /* this run */

/* fds[0] has connected, fds[1] was accepted. Carried where that is the run, and plain otherwise,
 * which is checked; start-up has ended. */
void make_pair(int fds[2]);
/* The same with options that both have before they connect: those of the accepted one are the
 * listener's. */
void make_pair_with(int fds[2], int level, int name, int value);
void close_pair(int fds[2]);
/* At 127.0.0.1 and a port that is free. */
int make_listener(struct sockaddr_in* address);
int make_socket(void);
/* Whether bytes of this socket go by iWARP, and it has started. */
int goes_by_iwarp(int fd);

int set_option(int fd, int level, int name, int value);
void set_nonblocking(int fd);
void set_time_limit(int fd, int name, int ms);

/* ---- waiting: for what must come, 20 s at most ---- */

/* So many bytes can be read at once. */
void arrived(int fd, int bytes);
/* poll() says one of `events`. */
void until(int fd, short events);
void sleep_ms(int ms);
long now_ms(void);
/* Bytes that wait to be read. */
int waiting_in(int fd);
void put(int fd, const char* text);
/* As much as `fd` takes while no one reads at the other end: nothing more for 300 ms. The bytes. */
long fill(int fd);
/* So many bytes are taken from `fd`. */
void take(int fd, long bytes);
/* Another thread writes `text` to `fd` after `ms`. join() it. */
pthread_t put_later(int fd, const char* text, int ms);
void join(pthread_t thread);
/* `handler` of `signal`, with these SA_* flags. */
void handle(int signal, void (*handler)(int), int flags);
/* `signal` goes to this thread again and again, every `ms`, until end_signals(): one that comes
 * before the thread waits interrupts nothing. */
pthread_t begin_signals(int signal, int ms);
void end_signals(pthread_t thread);

#endif /* XSOCK_TESTS_SYSTEM_STREAM_SEMANTICS_H */
