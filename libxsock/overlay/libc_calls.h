/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The one list of the libc entry points that a socket may pass through. Types, the table of the
 * real functions, the exported names and the table in docs/overlay.md are made from it or checked
 * against it; a new entry point is a line here and a function beside it.
 *
 *   CALL(name, result, (parameters), words)   wrapped; the words say what becomes of a DDPMODE
 *                                             descriptor
 *   ALIAS(alias, name)                        another name of a wrapped function
 *   KEEP(name, words)                         not wrapped; the words say why
 *
 * fcntl, ioctl and syscall are variadic in C. Their arguments are a word each, however many there
 * are, so that here they have all of them: the wrapper is then a comparison and a jump.
 *
 * Every wrapper asks one question ("is there a handle for this descriptor?") and, when there is
 * none, calls the real function with the same arguments.
 */
#ifndef XSOCK_OVERLAY_LIBC_CALLS_H
#define XSOCK_OVERLAY_LIBC_CALLS_H

#include <aio.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* clang-format off */
#define XSOCK_LIBC_CALLS(CALL, ALIAS, KEEP)                                                        \
    /* ---- a socket's life ---- */                                                                \
    CALL(socket, int, (int domain, int type, int protocol), "a fresh descriptor is plain")         \
    CALL(socketpair, int, (int domain, int type, int protocol, int* fds),                          \
         "fresh descriptors are plain")                                                            \
    CALL(bind, int, (int fd, const struct sockaddr* address, socklen_t length),                    \
         "the kernel's")                                                                           \
    CALL(listen, int, (int fd, int backlog), "listens; accepted sockets inherit DDPMODE")          \
    CALL(accept, int, (int fd, struct sockaddr* address, socklen_t* length),                       \
         "the next connection, as DDPREQUIRE asks")                                                \
    CALL(accept4, int, (int fd, struct sockaddr* address, socklen_t* length, int flags),           \
         "as accept")                                                                              \
    CALL(connect, int, (int fd, const struct sockaddr* address, socklen_t length),                 \
         "connects, then MPA start-up as initiator, which a byte stream does not wait for")        \
    ALIAS(__connect, connect)                                                                      \
    CALL(shutdown, int, (int fd, int how), "drains, then FIN")                                     \
    CALL(getsockopt, int, (int fd, int level, int name, void* value, socklen_t* length),           \
         "SOL_XSOCK: DDPMODE's options; time-outs and SO_ERROR are the stream's")                  \
    CALL(setsockopt, int, (int fd, int level, int name, const void* value, socklen_t length),      \
         "SOL_XSOCK: DDPMODE's options; opens the engine on first need")                           \
    CALL(getsockname, int, (int fd, struct sockaddr* address, socklen_t* length),                  \
         "the kernel's")                                                                           \
    CALL(getpeername, int, (int fd, struct sockaddr* address, socklen_t* length),                  \
         "the kernel's")                                                                           \
    CALL(sockatmark, int, (int fd), "whether a byte stream is at its urgent byte")                 \
    KEEP(isfdtype, "the descriptor is the kernel's TCP socket")                                    \
    KEEP(fstat, "the descriptor is the kernel's TCP socket")                                       \
    KEEP(fstat64, "as fstat")                                                                      \
    KEEP(__fxstat, "as fstat")                                                                     \
    KEEP(__fxstat64, "as fstat")                                                                   \
    /* ---- receiving ---- */                                                                      \
    CALL(read, ssize_t, (int fd, void* buffer, size_t count),                                      \
         "takes one message; a read of zero bytes takes none")                                     \
    ALIAS(__read, read)                                                                            \
    CALL(__read_chk, ssize_t, (int fd, void* buffer, size_t count, size_t size), "as read")        \
    CALL(readv, ssize_t, (int fd, const struct iovec* iov, int count),                             \
         "takes one message into several buffers")                                                 \
    CALL(preadv2, ssize_t, (int fd, const struct iovec* iov, int count, off_t at, int flags),      \
         "offset -1: as readv; RWF_NOWAIT: does not wait; else ESPIPE")                            \
    CALL(preadv64v2, ssize_t, (int fd, const struct iovec* iov, int count, off64_t at, int flags), \
         "as preadv2")                                                                             \
    CALL(recv, ssize_t, (int fd, void* buffer, size_t count, int flags), "takes one message")      \
    CALL(__recv_chk, ssize_t, (int fd, void* buffer, size_t count, size_t size, int flags),        \
         "as recv")                                                                                \
    CALL(recvfrom, ssize_t,                                                                        \
         (int fd, void* buffer, size_t count, int flags, struct sockaddr* address,                 \
          socklen_t* length),                                                                      \
         "as recv; like TCP it fills in no address")                                               \
    CALL(__recvfrom_chk, ssize_t,                                                                  \
         (int fd, void* buffer, size_t count, size_t size, int flags, struct sockaddr* address,    \
          socklen_t* length),                                                                      \
         "as recvfrom")                                                                            \
    CALL(recvmsg, ssize_t, (int fd, struct msghdr* message, int flags), "takes one message")       \
    CALL(recvmmsg, int,                                                                            \
         (int fd, struct mmsghdr* messages, unsigned count, int flags, struct timespec* timeout),  \
         "takes several messages")                                                                 \
    KEEP(pread, "ESPIPE on any socket")                                                            \
    KEEP(preadv, "ESPIPE on any socket")                                                           \
    KEEP(__recv, "private to glibc")                                                               \
    /* ---- sending ---- */                                                                        \
    CALL(write, ssize_t, (int fd, const void* buffer, size_t count), "sends one message")          \
    ALIAS(__write, write)                                                                          \
    CALL(writev, ssize_t, (int fd, const struct iovec* iov, int count),                            \
         "sends one message from several buffers")                                                 \
    CALL(pwritev2, ssize_t, (int fd, const struct iovec* iov, int count, off_t at, int flags),     \
         "offset -1: as writev; RWF_NOWAIT: does not wait; else ESPIPE")                           \
    CALL(pwritev64v2, ssize_t,                                                                     \
         (int fd, const struct iovec* iov, int count, off64_t at, int flags), "as pwritev2")       \
    CALL(send, ssize_t, (int fd, const void* buffer, size_t count, int flags),                     \
         "sends one message")                                                                      \
    ALIAS(__send, send)                                                                            \
    CALL(sendto, ssize_t,                                                                          \
         (int fd, const void* buffer, size_t count, int flags, const struct sockaddr* address,     \
          socklen_t length),                                                                       \
         "as send; an address is ignored, as TCP does")                                            \
    CALL(sendmsg, ssize_t, (int fd, const struct msghdr* message, int flags),                      \
         "sends one message; a started descriptor in SCM_RIGHTS is EOPNOTSUPP")                    \
    CALL(sendmmsg, int, (int fd, struct mmsghdr* messages, unsigned count, int flags),             \
         "sends several messages")                                                                 \
    CALL(sendfile, ssize_t, (int out, int in, off_t* offset, size_t count),                        \
         "EOPNOTSUPP; on a byte stream the bytes go through a buffer here")                        \
    CALL(sendfile64, ssize_t, (int out, int in, off64_t* offset, size_t count), "as sendfile")     \
    CALL(splice, ssize_t,                                                                          \
         (int in, off64_t* in_at, int out, off64_t* out_at, size_t count, unsigned flags),         \
         "as sendfile")                                                                            \
    KEEP(pwrite, "ESPIPE on any socket")                                                           \
    KEEP(pwritev, "ESPIPE on any socket")                                                          \
    KEEP(tee, "takes pipes only")                                                                  \
    KEEP(vmsplice, "takes pipes only")                                                             \
    KEEP(copy_file_range, "EINVAL on any socket")                                                  \
    /* ---- descriptors ---- */                                                                    \
    CALL(close, int, (int fd), "drops one reference; the last one closes, which drains")           \
    ALIAS(__close, close)                                                                          \
    CALL(close_range, int, (unsigned first, unsigned last, int flags), "as close, each")           \
    CALL(closefrom, void, (int first), "as close, each")                                           \
    CALL(dup, int, (int fd), "shares the socket")                                                  \
    CALL(dup2, int, (int fd, int to), "shares the socket; closes what was there")                  \
    ALIAS(__dup2, dup2)                                                                            \
    CALL(dup3, int, (int fd, int to, int flags), "as dup2")                                        \
    CALL(fcntl, int, (int fd, int command,                                                         \
         void* argument),                                                                          \
         "F_DUPFD shares; O_NONBLOCK is noted; FD_CLOEXEC stays once started; F_SETOWN: SIGURG")   \
    ALIAS(__fcntl, fcntl)                                                                          \
    CALL(fcntl64, int, (int fd, int command, void* argument),                                      \
         "as fcntl")                                                                               \
    CALL(ioctl, int, (int fd, unsigned long request,                                               \
         void* argument),                                                                          \
         "FIONREAD: bytes of the next message; FIONBIO, FIOCLEX, FIONCLEX as fcntl")               \
    KEEP(mmap, "of TCP's memory maps nothing: TCP_ZEROCOPY_RECEIVE is ENOPROTOOPT")                \
    /* ---- readiness ---- */                                                                      \
    CALL(poll, int, (struct pollfd * fds, nfds_t count, int timeout_ms),                           \
         "readiness of the message queue, not of TCP")                                             \
    ALIAS(__poll, poll)                                                                            \
    CALL(__poll_chk, int, (struct pollfd * fds, nfds_t count, int timeout_ms, size_t size),        \
         "as poll")                                                                                \
    CALL(ppoll, int,                                                                               \
         (struct pollfd * fds, nfds_t count, const struct timespec* timeout,                       \
          const sigset_t* mask),                                                                   \
         "as poll")                                                                                \
    CALL(__ppoll_chk, int,                                                                         \
         (struct pollfd * fds, nfds_t count, const struct timespec* timeout,                       \
          const sigset_t* mask, size_t size),                                                      \
         "as poll")                                                                                \
    CALL(select, int,                                                                              \
         (int count, fd_set* reads, fd_set* writes, fd_set* excepts, struct timeval* timeout),     \
         "as poll; numbers beyond what the program has open are not checked")                      \
    ALIAS(__select, select)                                                                        \
    CALL(pselect, int,                                                                             \
         (int count, fd_set* reads, fd_set* writes, fd_set* excepts,                               \
          const struct timespec* timeout, const sigset_t* mask),                                   \
         "as poll")                                                                                \
    CALL(epoll_create, int, (int size), "a fresh set is plain")                                    \
    CALL(epoll_create1, int, (int flags), "a fresh set is plain")                                  \
    CALL(epoll_ctl, int, (int set, int operation, int fd, struct epoll_event* event),              \
         "a set with a DDPMODE member is the engine's")                                            \
    CALL(epoll_wait, int, (int set, struct epoll_event* events, int count, int timeout_ms),        \
         "a set with a DDPMODE member is the engine's")                                            \
    CALL(epoll_pwait, int,                                                                         \
         (int set, struct epoll_event* events, int count, int timeout_ms, const sigset_t* mask),   \
         "as epoll_wait")                                                                          \
    CALL(epoll_pwait2, int,                                                                        \
         (int set, struct epoll_event* events, int count, const struct timespec* timeout,          \
          const sigset_t* mask),                                                                   \
         "as epoll_wait")                                                                          \
    /* ---- streams of stdio ---- */                                                               \
    CALL(fdopen, FILE*, (int fd, const char* mode),                                                \
         "a stream whose buffer goes out, and comes in, as messages")                              \
    CALL(fclose, int, (FILE * stream), "as close; what an older stream has buffered is a message") \
    CALL(freopen, FILE*, (const char* path, const char* mode, FILE* stream),                       \
         "as fclose, then libc's")                                                                 \
    CALL(freopen64, FILE*, (const char* path, const char* mode, FILE* stream), "as freopen")       \
    KEEP(fcloseall, "flushes; glibc's closes no descriptor")                                       \
    CALL(fileno, int, (FILE * stream), "the descriptor given to fdopen")                           \
    CALL(fileno_unlocked, int, (FILE * stream), "as fileno")                                       \
    CALL(dprintf, int, (int fd, const char* format, ...), "sends one message")                     \
    CALL(vdprintf, int, (int fd, const char* format, va_list arguments), "as dprintf")             \
    CALL(__dprintf_chk, int, (int fd, int flag, const char* format, ...), "as dprintf")            \
    CALL(__vdprintf_chk, int, (int fd, int flag, const char* format, va_list arguments),           \
         "as dprintf")                                                                             \
    /* ---- asynchronous requests ---- */                                                          \
    CALL(aio_read, int, (struct aiocb * control), "takes one message, in a thread of the overlay") \
    CALL(aio_read64, int, (struct aiocb64 * control), "as aio_read")                               \
    CALL(aio_write, int, (struct aiocb * control), "sends one message, as aio_read")               \
    CALL(aio_write64, int, (struct aiocb64 * control), "as aio_write")                             \
    CALL(lio_listio, int,                                                                          \
         (int mode, struct aiocb* const* list, int count, struct sigevent* event),                 \
         "aio_read or aio_write for each, if one is on a DDPMODE descriptor")                      \
    CALL(lio_listio64, int,                                                                        \
         (int mode, struct aiocb64* const* list, int count, struct sigevent* event),               \
         "as lio_listio")                                                                          \
    CALL(aio_cancel, int, (int fd, struct aiocb* control), "what has not begun")                   \
    CALL(aio_cancel64, int, (int fd, struct aiocb64* control), "as aio_cancel")                    \
    CALL(aio_suspend, int,                                                                         \
         (const struct aiocb* const* list, int count, const struct timespec* time),                \
         "libc's if none of the list is under way on a DDPMODE descriptor")                        \
    CALL(aio_suspend64, int,                                                                       \
         (const struct aiocb64* const* list, int count, const struct timespec* time),              \
         "as aio_suspend")                                                                         \
    KEEP(aio_error, "reads what is in the request")                                                \
    KEEP(aio_error64, "as aio_error")                                                              \
    KEEP(aio_return, "as aio_error")                                                               \
    KEEP(aio_return64, "as aio_error")                                                             \
    KEEP(aio_fsync, "ends in EINVAL, as on any socket")                                            \
    KEEP(aio_fsync64, "as aio_fsync")                                                              \
    /* ---- processes ---- */                                                                      \
    CALL(daemon, int, (int stay, int keep), "0, 1 and 2 become plain unless kept")                 \
    CALL(execve, int, (const char* path, char* const* argv, char* const* envp),                    \
         "what is queued drains first; started sockets are closed on exec")                        \
    CALL(execv, int, (const char* path, char* const* argv), "as execve")                           \
    CALL(execvp, int, (const char* file, char* const* argv), "as execve")                          \
    CALL(execvpe, int, (const char* file, char* const* argv, char* const* envp), "as execve")      \
    CALL(execl, int, (const char* path, const char* argument, ...), "as execve")                   \
    CALL(execle, int, (const char* path, const char* argument, ...), "as execve")                  \
    CALL(execlp, int, (const char* file, const char* argument, ...), "as execve")                  \
    CALL(fexecve, int, (int fd, char* const* argv, char* const* envp), "as execve")                \
    CALL(execveat, int,                                                                            \
         (int dirfd, const char* path, char* const* argv, char* const* envp, int flags),           \
         "as execve")                                                                              \
    CALL(_exit, void, (int status), "connections end as at exit")                                  \
    CALL(_Exit, void, (int status), "as _exit")                                                    \
    KEEP(quick_exit, "the engine drains at it, as at exit")                                        \
    CALL(syscall, long, (long number, long a, long b, long c, long d, long e,                      \
         long f),                                                                                  \
         "the calls of this list by number, as the kernel has them")                               \
    KEEP(fork, "the next call in the child notices")                                               \
    KEEP(__fork, "as fork")                                                                        \
    KEEP(_Fork, "as fork")                                                                         \
    KEEP(clone, "as fork")                                                                         \
    KEEP(vfork, "the child's close and dup2 are seen not to be the parent's")                      \
    KEEP(__vfork, "as vfork")                                                                      \
    CALL(posix_spawn, int,                                                                         \
         (pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,                 \
          const posix_spawnattr_t* attributes, char* const* argv, char* const* envp),              \
         "started sockets are closed on exec")                                                     \
    CALL(posix_spawnp, int,                                                                        \
         (pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,                 \
          const posix_spawnattr_t* attributes, char* const* argv, char* const* envp),              \
         "as posix_spawn")                                                                         \
    CALL(popen, FILE*, (const char* command, const char* type), "as posix_spawn")                  \
    CALL(system, int, (const char* command), "as posix_spawn")
/* clang-format on */

#endif /* XSOCK_OVERLAY_LIBC_CALLS_H */
