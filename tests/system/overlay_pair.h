/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the tests of the libc overlay share: checks, and connected pairs of sockets. */
#ifndef XSOCK_TESTS_SYSTEM_OVERLAY_PAIR_H
#define XSOCK_TESTS_SYSTEM_OVERLAY_PAIR_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/xsock/xsock.h"
#include "tests/support/check.h"

#define CHECK_ERROR(call, error) CHECK((call) == -1 && errno == (error))

static inline void set_ddpmode(int fd, int mode) {
    CHECK(setsockopt(fd, SOL_XSOCK, DDPMODE, &mode, sizeof mode) == 0);
}
static inline void ddpmode(int fd) { set_ddpmode(fd, DDPMODE_MESSAGE); }

/* DDPMODE of a descriptor; -1 when the overlay does not know it. */
static inline int mode_of(int fd) {
    int mode = -1;
    socklen_t length = sizeof mode;
    return getsockopt(fd, SOL_XSOCK, DDPMODE, &mode, &length) == 0 ? mode : -1;
}

static inline int listener(struct sockaddr_in* address, int mode) {
    socklen_t length = sizeof *address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (mode != DDPMODE_OFF) set_ddpmode(fd, mode);
    CHECK(bind(fd, (struct sockaddr*)address, length) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr*)address, &length) == 0);
    return fd;
}

struct connecting {
    struct sockaddr_in address;
    int mode, fd;
};

static inline void* connect_it(void* argument) {
    struct connecting* const c = argument;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(c->fd >= 0);
    if (c->mode != DDPMODE_OFF) set_ddpmode(c->fd, c->mode);
    CHECK(connect(c->fd, (struct sockaddr*)&c->address, sizeof c->address) == 0);
    return NULL;
}

/* Two connected sockets in that mode (1: DDPMODE_MESSAGE); both have started and have exchanged a
 * message. */
static inline void pair_of(int mode, int fds[2]) {
    struct connecting c = {.mode = mode};
    pthread_t thread;
    const int from = listener(&c.address, mode);
    char bytes[8];
    if (mode != DDPMODE_OFF) {
        const int require = 1;
        CHECK(setsockopt(from, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) == 0);
    }
    CHECK(pthread_create(&thread, NULL, connect_it, &c) == 0);
    fds[1] = accept(from, NULL, NULL);
    CHECK(fds[1] >= 0);
    CHECK(pthread_join(thread, NULL) == 0);
    fds[0] = c.fd;
    CHECK(close(from) == 0);
    CHECK(send(fds[0], "hello", 5, 0) == 5);
    CHECK(recv(fds[1], bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "hello", 5) == 0);
}

/* A DDPMODE server's end, fds[0], that has not heard from its client yet, which is plain. */
static inline void undecided_pair(int fds[2]) {
    struct sockaddr_in address;
    const int from = listener(&address, 1);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fds[1], (struct sockaddr*)&address, sizeof address) == 0);
    fds[0] = accept(from, NULL, NULL);
    CHECK(fds[0] >= 0 && close(from) == 0);
}

/* What a message needs to carry a descriptor. */
union carried_fd {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};
static inline void carry_fd(struct msghdr* message, union carried_fd* control, int fd) {
    struct cmsghdr* const c = &control->header;
    memset(control, 0, sizeof *control);
    message->msg_control = control;
    message->msg_controllen = sizeof *control;
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
}

static inline void exchange(int from, int to) {
    char bytes[64];
    CHECK(write(from, "a message", 9) == 9);
    CHECK(write(from, "another", 7) == 7);
    /* Two messages: in one piece each, whatever the room. */
    CHECK(read(to, bytes, sizeof bytes) == 9 && memcmp(bytes, "a message", 9) == 0);
    CHECK(read(to, bytes, sizeof bytes) == 7 && memcmp(bytes, "another", 7) == 0);
}

static inline void close_pair(int fds[2]) { CHECK(close(fds[0]) == 0 && close(fds[1]) == 0); }

static inline void wait_ok(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif /* XSOCK_TESTS_SYSTEM_OVERLAY_PAIR_H */
