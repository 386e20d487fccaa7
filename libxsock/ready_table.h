/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The part of the border table that serves poll, select and epoll where a socket in DDPMODE takes
 * part (docs/ddpmode.md). Calls whose descriptors have no handle, and epoll descriptors that have
 * none, never come here.
 *
 * An epoll descriptor with a DDPMODE member has a handle as well, an *epoll set*, in the thin
 * layer's table and with the same rules: one for each open file description, shared by dup(), one
 * reference for each descriptor, dropped at close. Bit 0 of its pointer is set, so that it is never
 * taken for a socket: all other calls on such a descriptor go to libc.
 */
#ifndef XSOCK_READY_TABLE_H
#define XSOCK_READY_TABLE_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

struct xsock_sock;

#define XSOCK_IS_SET(handle) (((uintptr_t)(handle)&1u) != 0)

/*
 * type, name, parameters. Results are those of the libc call of the same name, -1 with errno.
 * `socks` is an array beside the descriptors: the handle of each, NULL for one that has none; the
 * caller holds a reference to each for the time of the call. A timeout is relative, NULL for none;
 * a negative one is EINVAL. `mask`, if not NULL, is in force while the call sleeps, as ppoll()
 * does.
 *
 * sock_poll         poll, ppoll and their fortified forms.
 * sock_select       select, pselect. `socks` has `nfds` entries. `timeout` is changed to the time
 *                   that was left.
 * sock_epoll_open   The handle for an epoll descriptor that has none, when a descriptor with a
 * handle is about to be added to it; not by two threads at once for one descriptor.
 * NULL: EBADF, EINVAL (not an epoll descriptor), EMFILE, ENOMEM.
 * sock_epoll_close  The last descriptor of the set is closed, and no call is under way on it.
 * sock_epoll_ctl    When `set` is not NULL (then `sock` may be), or when `sock` is. An epoll set as
 *                   `sock` (nested epoll) needs no `set`.
 * sock_epoll_wait   epoll_wait, epoll_pwait, epoll_pwait2 on a descriptor with a set.
 * sock_epoll_rouse  `set` has just got its handle in the table: threads that sleep in the kernel's
 *                   epoll_wait() on it are woken, and call sock_epoll_sift.
 *
 * sock_epoll_sift   Removes those of `count` events of the kernel's that are not the program's; how
 *                   many are left.
 *
 * sock_epoll_next   The next epoll descriptor above `after` whose set has the socket behind `fd` by
 *                   a registration of the kernel's; -1: none.
 *
 * sock_epoll_adopt  The socket behind `fd` has a handle now: these registrations become members of
 *                   `set`. One that is a member already stays as it is.
 */
#define XSOCK_READY_FUNCTIONS(F)                                                         \
    F(int, sock_poll,                                                                    \
      (struct pollfd * fds, nfds_t count, struct xsock_sock* const* socks,               \
       const struct timespec* timeout, const sigset_t* mask))                            \
    F(int, sock_select,                                                                  \
      (int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,                \
       struct xsock_sock* const* socks, struct timespec* timeout, const sigset_t* mask)) \
    F(struct xsock_sock*, sock_epoll_open, (int epfd))                                   \
    F(void, sock_epoll_close, (struct xsock_sock * set))                                 \
    F(int, sock_epoll_ctl,                                                               \
      (struct xsock_sock * set, int epfd, int op, int fd, struct xsock_sock* sock,       \
       struct epoll_event* event))                                                       \
    F(void, sock_epoll_rouse, (struct xsock_sock * set))                                 \
    F(int, sock_epoll_sift, (struct epoll_event * events, int count))                    \
    F(int, sock_epoll_next, (int fd, int after))                                         \
    F(int, sock_epoll_adopt, (struct xsock_sock * set, int fd, struct xsock_sock* sock)) \
    F(int, sock_epoll_wait,                                                              \
      (struct xsock_sock * set, int epfd, struct epoll_event* events, int max,           \
       const struct timespec* timeout, const sigset_t* mask))

#endif /* XSOCK_READY_TABLE_H */
