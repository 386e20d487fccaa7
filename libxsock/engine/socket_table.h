/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The part of the ABI table that serves sockets in DDPMODE (docs/ddpmode.md). The thin layer
 * keeps a table from descriptor to `struct xsock_socket`, asks here for every call on a descriptor
 * that has one, and goes straight to libc for all others.
 *
 * One xsock_socket stands for one open file description: descriptors made by dup() share it, and
 * each of them holds a reference. `fd` is always the program's number at the time of the call. The
 * engine keeps no program number: once start-up begins it works on a duplicate of its own.
 *
 * Results are those of the libc call of the same name (-1 with errno), or one of these two, which
 * no libc call gives:
 */
#ifndef XSOCK_SOCKET_TABLE_H
#define XSOCK_SOCKET_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include "include/xsock/xsock.h"

/* Not for the engine: make the same call through libc. The socket stays in the table. */
#define XSOCK_PASS (-2)
/* The socket is, or has just become, plain TCP for good: take it out of the table (for all
 * descriptors that share it, if you can; each learns it at its next call otherwise), drop the
 * reference, and make the call through libc. No byte of the stream was taken. */
#define XSOCK_PLAIN (-3)
/* Of socket_no_stream: the caller moves the bytes, by socket_send or socket_recv. */
#define XSOCK_MOVE 1
/* `writing` of it: a part of the bytes is enough of an answer, and none of them is lost where the
 * socket takes no more. */
#define XSOCK_WRITING_PARTS 2

/* What the thin layer knows of a descriptor's past, for the MPA role (DDPROLE automatic). */
enum xsock_socket_hint {
    XSOCK_HINT_NONE = 0,
    XSOCK_HINT_CONNECTED = 1, /* this process called connect() on it */
    XSOCK_HINT_ACCEPTED = 2,  /* this process got it from accept() */
    XSOCK_HINT_HANDED_ON = 3  /* another process did, and handed it on before it had started */
};

/* What the policy of the byte-stream mode says of a socket (docs/policy.md). */
enum xsock_policy {
    XSOCK_POLICY_TCP = 0,  /* plain */
    XSOCK_POLICY_BOTH = 1, /* DDPMODE_STREAM, or plain, as the peer is */
    XSOCK_POLICY_SDP = 2,  /* DDPMODE_STREAM with DDPREQUIRE */
    XSOCK_POLICY_UNKNOWN_PEER =
        3,                   /* plain: a client of `both`, toward a server not known to take it */
    XSOCK_POLICY_LEARNED = 4 /* DDPMODE_STREAM, toward a server that lately took it */
};

/* Whom the policy is asked for. */
enum xsock_policy_role {
    XSOCK_POLICY_CLIENT = 0,   /* is going to connect */
    XSOCK_POLICY_LISTENER = 1, /* is going to listen, or listens */
    XSOCK_POLICY_ACCEPTED = 2, /* accepted in another process */
    XSOCK_POLICY_FAST_OPEN = 3 /* is going to connect by MSG_FASTOPEN: never carried */
};

struct xsock_socket;
struct mmsghdr;

/*
 * type, name, parameters. Every function may be called from any thread, several at once on one
 * handle, as long as the caller holds a reference.
 *
 * socket_open    At the first setsockopt(SOL_XSOCK) on a descriptor; the option itself follows by
 *                socket_setsockopt(). One reference. NULL: EBADF, ENOTSOCK, EOPNOTSUPP (not a TCP
 *                socket over IPv4 or IPv6), ENOMEM. Opens nothing and starts nothing.
 * socket_ref, socket_unref
 *                The last unref is the close: returns at once (unless SO_LINGER asks to wait) and
 *                lets what is queued drain. Call it next to close(fd), before or after; holding no
 *                lock. `fd` of unref: -1, or the number if it is still open.
 * socket_closing
 *                The program closes its last number of the socket, `fd`, now. `may_be_shared`:
 *                another process may have it, too. What is accepted and undecided begins to start,
 *                where the peer has asked for it or is going to.
 * socket_setsockopt, socket_getsockopt
 *                SOL_XSOCK, and those of other levels that mean something for messages; PASS for
 *                the rest. setsockopt(DDPMODE, 0) answers PLAIN when it may.
 * socket_connect TCP connect and MPA start-up; of a byte stream it ends before start-up does.
 * socket_accept  A new descriptor (accept4() flags); *accepted is its handle with one reference, or
 *                NULL when it is plain TCP already.
 * socket_accept_waits
 *                1: accept() would wait in the kernel. The caller does that instead, outside of the
 *                engine, where its thread may be cancelled and its handlers may use sockets, and
 *                gives what it gets to socket_keep_accepted(). 0: call socket_accept().
 * socket_keep_accepted
 *                Of `taken`, a connection that the kernel accepted with `flags`; as socket_accept.
 * socket_recv... read/recv/readv/... with flags 0 where there are none.
 * socket_fcntl   F_GETFL, F_SETFL; PASS for others. Every F_SETFL must be passed here.
 * socket_ioctl   FIONREAD, FIONBIO, SIOCATMARK, SIOCOUTQ; PASS for others.
 * socket_no_stream
 *                For sendfile, splice, tee, copy_file_range and the like, `writing` or reading:
 *                MOVE on a byte stream, and for XSOCK_WRITING_PARTS also where what is sent waits
 *                for its start; -1 with EOPNOTSUPP on a message socket, else PASS or PLAIN.
 * socket_keep_error
 *                A call of several steps answers what the first of them did: the errno of the one
 *                that failed is for the next call.
 * socket_endpoint
 *                Behind xsock_fd_endpoint().
 * socket_mode_text
 *                For summaries: "message", "undecided", "off", or the code of the fallback
 *                ("fallback-not-mpa", ...; docs/troubleshooting.md). Static storage.
 * socket_stack_text
 *                For summaries, of one that has started: "kernel" where the kernel module places
 *                what the peer writes, or the code of why it does not ("kernel-absent", ...). NULL:
 *                it was not asked. Static storage. Async-signal-safe.
 * socket_owns    1 when `fd` is a descriptor of the engine's own (close_range() and the like must
 *                leave it open), else 0. Async-signal-safe, lock-free.
 * socket_foreign 1 when `fd` is open and not a descriptor of the engine's own, else 0; waits for a
 *                moment when the engine is neither opening nor closing one. Async-signal-safe.
 * socket_inactive_fd
 *                A new descriptor of the engine's own on which every call that moves bytes, waits
 *                or sets something is EBADF. -1 with errno.
 * socket_started 0: its bytes are still the kernel's alone (fresh, listening, undecided); 1:
 *                start-up has begun in this process; 2: in its parent, before fork(). Wait-free.
 * socket_refuse  The caller refuses a call that would give a started one to another process: counts
 *                it, and says so in the log.
 * socket_refused How many such calls, and calls in a forked child on a socket of its parent, were
 *                refused in this process. Async-signal-safe.
 * socket_drain   Before exec*(): sends what all sockets have queued, for as long as exit() would
 *                wait when `timeout_ms` is negative, and takes listeners back from the registry.
 *                Closes nothing but the sending half of byte streams.
 * socket_exit    Before _exit(): ends all connections, as exit() does, and is no process of
 *                `xsock stat` any more.
 * socket_unpinned
 *                How many memory regions of this process could not be pinned for the kernel module,
 *                for the reason of that number; `name` is set to the reason's name, of static
 *                storage, or to NULL behind the last. Async-signal-safe.
 * socket_copy    Copies between the program's memory and the caller's. 0; -1 with EFAULT where the
 *                program's is not mapped, or not writable. Async-signal-safe.
 * socket_policy  An enum xsock_policy for the TCP socket `fd` of `program` (its name without
 *                folders); `address` is the peer's for a client, its own otherwise. Reads the files
 *                of the policy the first time, and notes for `xsock stat` what is plain.
 *
 * socket_note_plain
 *                Notes for `xsock stat` that `fd`, which has led to `sock`, has turned out plain.
 *
 * socket_on_rest `rest` is called, on a thread that is in a function of this table, with -1 when it
 *                holds no lock of the engine and lets signals in, then with the state that this
 *                returned, and with -2 to ask for the state alone: 0: in no such function.
 *
 * socket_forked  Tells a child without a fork handler (_Fork(), clone()) that it is one. A second
 *                call does nothing.
 */
#define XSOCK_SOCKET_FUNCTIONS(F)                                                                  \
    F(struct xsock_socket*, socket_open, (int fd, int hint))                                       \
    F(void, socket_ref, (struct xsock_socket * sock))                                              \
    F(void, socket_unref, (struct xsock_socket * sock, int fd))                                    \
    F(void, socket_closing, (struct xsock_socket * sock, int fd, int may_be_shared))               \
    F(int, socket_setsockopt,                                                                      \
      (struct xsock_socket * sock, int fd, int level, int name, const void* value,                 \
       socklen_t length))                                                                          \
    F(int, socket_getsockopt,                                                                      \
      (struct xsock_socket * sock, int fd, int level, int name, void* value, socklen_t* length))   \
    F(int, socket_connect,                                                                         \
      (struct xsock_socket * sock, int fd, const struct sockaddr* address, socklen_t length))      \
    F(int, socket_listen, (struct xsock_socket * sock, int fd, int backlog))                       \
    F(int, socket_accept,                                                                          \
      (struct xsock_socket * sock, int fd, struct sockaddr* address, socklen_t* length, int flags, \
       struct xsock_socket** accepted))                                                            \
    F(int, socket_accept_waits, (struct xsock_socket * sock, int fd))                              \
    F(int, socket_keep_accepted,                                                                   \
      (struct xsock_socket * sock, int taken, int flags, struct xsock_socket** accepted))          \
    F(int, socket_shutdown, (struct xsock_socket * sock, int fd, int how))                         \
    F(ssize_t, socket_send,                                                                        \
      (struct xsock_socket * sock, int fd, const void* buffer, size_t length, int flags))          \
    F(int, socket_append, (struct xsock_socket * sock, const void* buffer, size_t length))         \
    F(ssize_t, socket_recv,                                                                        \
      (struct xsock_socket * sock, int fd, void* buffer, size_t length, int flags))                \
    F(ssize_t, socket_sendmsg,                                                                     \
      (struct xsock_socket * sock, int fd, const struct msghdr* message, int flags))               \
    F(ssize_t, socket_recvmsg,                                                                     \
      (struct xsock_socket * sock, int fd, struct msghdr* message, int flags))                     \
    F(int, socket_sendmmsg,                                                                        \
      (struct xsock_socket * sock, int fd, struct mmsghdr* messages, unsigned count, int flags))   \
    F(int, socket_recvmmsg,                                                                        \
      (struct xsock_socket * sock, int fd, struct mmsghdr* messages, unsigned count, int flags,    \
       struct timespec* timeout))                                                                  \
    F(int, socket_fcntl, (struct xsock_socket * sock, int fd, int command, long argument))         \
    F(int, socket_ioctl,                                                                           \
      (struct xsock_socket * sock, int fd, unsigned long request, void* argument))                 \
    F(int, socket_no_stream, (struct xsock_socket * sock, int fd, int writing))                    \
    F(void, socket_keep_error, (struct xsock_socket * sock, int error))                            \
    F(struct xsock_ep*, socket_endpoint,                                                           \
      (struct xsock_socket * sock, int fd, struct xsock_cq* send_cq, struct xsock_cq* recv_cq))    \
    F(const char*, socket_mode_text, (struct xsock_socket * sock))                                 \
    F(const char*, socket_stack_text, (struct xsock_socket * sock))                                \
    F(int, socket_owns, (int fd))                                                                  \
    F(int, socket_foreign, (int fd))                                                               \
    F(int, socket_inactive_fd, (void))                                                             \
    F(int, socket_started, (struct xsock_socket * sock))                                           \
    F(void, socket_refuse, (struct xsock_socket * sock, int fd))                                   \
    F(unsigned long, socket_refused, (void))                                                       \
    F(unsigned long, socket_unpinned, (int reason, const char** name))                             \
    F(int, socket_copy, (void* to, const void* from, size_t length))                               \
    F(void, socket_drain, (int timeout_ms))                                                        \
    F(void, socket_exit, (void))                                                                   \
    F(int, socket_policy,                                                                          \
      (const char* program, enum xsock_policy_role role, int fd, const struct sockaddr* address,   \
       socklen_t length))                                                                          \
    F(void, socket_note_plain, (struct xsock_socket * sock, int fd))                               \
    F(void, socket_on_rest, (int (*rest)(int state)))                                              \
    F(void, socket_forked, (void))

#endif /* XSOCK_SOCKET_TABLE_H */
