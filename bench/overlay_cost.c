/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a call costs more when the libc overlay stands before libc, for descriptors that are plain.
 * Loads the overlay beside libc in one process (call_cost.h). Prints nanoseconds per call: libc's,
 * and the median of the differences, before any socket of the process is in DDPMODE and
 * after one is.
 *
 *   overlay_cost [--json] [--rounds N] LIBXSOCK-PRELOAD.SO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/call_cost.h"
#include "bench/overlay_options.h"
#include "include/xsock/xsock.h"

static int zero, null, idle, set; /* descriptors */

static void call_read(void* f) {
    char byte;
    ((ssize_t(*)(int, void*, size_t))f)(zero, &byte, 1);
}
static void call_write(void* f) { ((ssize_t(*)(int, const void*, size_t))f)(null, "", 1); }
static void call_recv(void* f) {
    char byte;
    ((ssize_t(*)(int, void*, size_t, int))f)(idle, &byte, 1, MSG_DONTWAIT);
}
static void call_fcntl(void* f) { ((int (*)(int, int, ...))f)(idle, F_GETFL, 0); }
static void call_ioctl(void* f) {
    int waiting;
    ((int (*)(int, unsigned long, ...))f)(idle, FIONREAD, &waiting);
}
static void call_epoll_wait(void* f) {
    struct epoll_event event;
    ((int (*)(int, struct epoll_event*, int, int))f)(set, &event, 1, 0);
}
static void call_poll(void* f) {
    struct pollfd p = {.fd = idle, .events = POLLIN};
    ((int (*)(struct pollfd*, nfds_t, int))f)(&p, 1, 0);
}
static void call_close(void* f) { ((int (*)(int))f)(-1); }

static const struct {
    const char* name;
    void (*call)(void* function);
} rows[] = {{"read", call_read},   {"write", call_write}, {"recv", call_recv},
            {"fcntl", call_fcntl}, {"ioctl", call_ioctl}, {"epoll_wait", call_epoll_wait},
            {"poll", call_poll},   {"close", call_close}};
enum { ROWS = sizeof rows / sizeof *rows };

int main(int argc, char** argv) {
    struct result before[ROWS], after[ROWS];
    void *libc, *overlay;
    struct epoll_event event = {.events = EPOLLIN};
    int pair[2];
    int on = DDPMODE_MESSAGE;
    struct overlay_options options;
    int with_ddpmode;
    int fd;
    int i;

    options = overlay_options(argc, argv, 2001, "overlay_cost",
                              "Nanoseconds that a call on a plain descriptor costs more under "
                              "the libc overlay.");
    libc = dlopen("libc.so.6", RTLD_NOW);
    overlay = libc != NULL ? dlopen(options.path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (overlay == NULL) {
        fprintf(stderr, "overlay_cost: %s\n", dlerror());
        return 1;
    }
    zero = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_WRONLY);
    set = epoll_create1(0);
    if (zero < 0 || null < 0 || set < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        perror("overlay_cost");
        return 1;
    }
    idle = pair[0];
    epoll_ctl(set, EPOLL_CTL_ADD, idle, &event);

    for (i = 0; i < ROWS; i++) {
        before[i] = measure(rows[i].call, find(libc, rows[i].name), find(overlay, rows[i].name),
                            options.rounds);
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    with_ddpmode = ((int (*)(int, int, int, const void*, socklen_t))find(overlay, "setsockopt"))(
                       fd, SOL_XSOCK, DDPMODE, &on, sizeof on) == 0;
    for (i = 0; i < ROWS && with_ddpmode; i++) {
        after[i] = measure(rows[i].call, find(libc, rows[i].name), find(overlay, rows[i].name),
                           options.rounds);
    }

    if (!options.json)
        printf("%-12s %8s %10s %22s\n", "ns per call", "libc", "overlay", "with DDPMODE sockets");
    for (i = 0; i < ROWS; i++) {
        if (options.json) {
            printf("%s{\"call\": \"%s\", \"libc_ns\": %.1f, \"more_ns\": %.2f", i ? ", " : "[",
                   rows[i].name, before[i].libc, before[i].more);
            if (with_ddpmode) printf(", \"more_with_ddpmode_ns\": %.2f", after[i].more);
            printf("}");
        } else {
            printf("%-12s %8.1f %+10.2f", rows[i].name, before[i].libc, before[i].more);
            if (with_ddpmode) printf(" %+22.2f", after[i].more);
            printf("\n");
        }
    }
    if (options.json) printf("]\n");
    return 0;
}
