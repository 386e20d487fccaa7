/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The byte-stream mode for programs that know nothing of it (`xsock run --stream`, docs/policy.md):
 * where XSOCK_STREAM or XSOCK_POLICY is set, a plain TCP socket is put into DDPMODE_STREAM at
 * listen() or connect() if the policy says so. What the policy decides is the engine's; here is
 * where it is asked. Any thread.
 */
#ifndef XSOCK_OVERLAY_POLICY_H
#define XSOCK_OVERLAY_POLICY_H

#include <sys/socket.h>

/* Not 0: one of the two is set. */
extern int policy_wanted;

/* When the library is loaded: before the program can write over its own name. */
void policy_init(void);
/* -1 with errno: the policy wants the socket carried (`sdp`), and it cannot be. */
int policy_listen_slow(int fd);
int policy_connect_slow(int fd, const struct sockaddr* address, socklen_t length);
/* The same for MSG_FASTOPEN: what it connects is plain, and is counted. */
int policy_fast_open_slow(int fd, const struct sockaddr* address, socklen_t length);

/* For a listening socket: one that this program has inherited is put into the mode. 1: it is plain
 * by the policy, and so is what it accepts. */
int policy_accept_slow(int fd);
/* For a connection that another process has accepted: its peer's Request may still lie in it. */
void policy_handed_on_slow(int fd);
/* When the library is loaded, behind policy_init(): such connections among the open descriptors. */
void policy_adopt_slow(void);

/* Before the program's call, on a descriptor without a handle. */
static inline int policy_listen(int fd) {
    return __builtin_expect(policy_wanted, 0) ? policy_listen_slow(fd) : 0;
}
static inline int policy_connect(int fd, const struct sockaddr* address, socklen_t length) {
    return __builtin_expect(policy_wanted, 0) ? policy_connect_slow(fd, address, length) : 0;
}
static inline int policy_fast_open(int fd, const struct sockaddr* address, socklen_t length) {
    return __builtin_expect(policy_wanted, 0) ? policy_fast_open_slow(fd, address, length) : 0;
}

static inline int policy_accept(int fd) {
    return __builtin_expect(policy_wanted, 0) ? policy_accept_slow(fd) : 0;
}

static inline void policy_handed_on(int fd) {
    if (__builtin_expect(policy_wanted, 0)) policy_handed_on_slow(fd);
}
static inline void policy_adopt(void) {
    if (__builtin_expect(policy_wanted, 0)) policy_adopt_slow();
}

#endif /* XSOCK_OVERLAY_POLICY_H */
