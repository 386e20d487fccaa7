/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The part of the ABI table that serves poll, select and epoll where a socket in DDPMODE takes
 * part (docs/readiness.md). Calls whose descriptors have no handle, and epoll descriptors that have
 * none, never come here.
 *
 * An epoll descriptor with a DDPMODE member has a handle as well, an *epoll set*, in the thin
 * layer's table and with the same rules: one for each open file description, shared by dup(), one
 * reference for each descriptor, dropped at close. Bit 0 of its pointer is set, so that it is never
 * taken for a socket: all other calls on such a descriptor go to libc.
 */
#ifndef XSOCK_POLL_TABLE_H
#define XSOCK_POLL_TABLE_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

struct xsock_socket;

#define XSOCK_IS_SET(handle) (((uintptr_t)(handle)&1u) != 0)

/*
 * type, name, parameters. Results are those of the libc call of the same name, -1 with errno.
 * `socks` is an array beside the descriptors: the handle of each, NULL for one that has none; the
 * caller holds a reference to each for the time of the call. A timeout is relative, NULL for none;
 * a negative one is EINVAL. `mask`, if not NULL, is in force while the call sleeps, as ppoll()
 * does.
 *
 * socket_poll        poll, ppoll and their fortified forms.
 * socket_select      select, pselect. `socks` has `nfds` entries. `timeout` is changed to the time
 *                    that was left.
 * socket_epoll_open  The handle for an epoll descriptor that has none, when a descriptor with a
 *                    handle is about to be added to it; not by two threads at once for one
 *                    descriptor. NULL: EBADF, EINVAL (not an epoll descriptor), EMFILE, ENOMEM.
 * socket_epoll_close The last descriptor of the set is closed, and no call is under way on it.
 * socket_epoll_ctl   When `set` is not NULL (then `sock` may be), or when `sock` is. An epoll set
 *                    as `sock` (nested epoll) needs no `set`.
 * socket_epoll_wait  epoll_wait, epoll_pwait, epoll_pwait2 on a descriptor with a set.
 * socket_epoll_wake_kernel
 *                    `set` has just got its handle in the table: threads that sleep in the kernel's
 *                    epoll_wait() on it are woken, and call socket_epoll_filter.
 * socket_epoll_filter
 *                    Removes those of `count` events of the kernel's that are not the program's;
 *                    returns how many are left.
 * socket_epoll_next  The next epoll descriptor above `after` whose set has the socket behind `fd`
 *                    by a registration of the kernel's; -1: none.
 * socket_epoll_adopt The socket behind `fd` has a handle now: these registrations become members of
 *                    `set`. One that is a member already stays as it is.
 */
#define XSOCK_POLL_FUNCTIONS(F)                                                                \
    F(int, socket_poll,                                                                        \
      (struct pollfd * fds, nfds_t count, struct xsock_socket* const* socks,                   \
       const struct timespec* timeout, const sigset_t* mask))                                  \
    F(int, socket_select,                                                                      \
      (int nfds, fd_set* readable, fd_set* writable, fd_set* exceptional,                      \
       struct xsock_socket* const* socks, struct timespec* timeout, const sigset_t* mask))     \
    F(struct xsock_socket*, socket_epoll_open, (int epfd))                                     \
    F(void, socket_epoll_close, (struct xsock_socket * set))                                   \
    F(int, socket_epoll_ctl,                                                                   \
      (struct xsock_socket * set, int epfd, int op, int fd, struct xsock_socket* sock,         \
       struct epoll_event* event))                                                             \
    F(void, socket_epoll_wake_kernel, (struct xsock_socket * set))                             \
    F(int, socket_epoll_filter, (struct epoll_event * events, int count))                      \
    F(int, socket_epoll_next, (int fd, int after))                                             \
    F(int, socket_epoll_adopt, (struct xsock_socket * set, int fd, struct xsock_socket* sock)) \
    F(int, socket_epoll_wait,                                                                  \
      (struct xsock_socket * set, int epfd, struct epoll_event* events, int max,               \
       const struct timespec* timeout, const sigset_t* mask))

#endif /* XSOCK_POLL_TABLE_H */
