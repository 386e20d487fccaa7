/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * System calls that are cancellation points in libc, as the engine makes them: a thread that the
 * program cancels must not unwind through the engine, whose functions throw nothing and hold locks.
 * They stand in place of libc's for the engine alone, and are quicker than those, which take two
 * atomic operations each in a process with threads.
 *
 * Not in builds with sanitizers, which must see libc's. What else may be a cancellation point below
 * XSOCK_QUICK_FUNCTIONS disables cancellation itself (UvLoop::notify()).
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

ssize_t read(int fd, void* to, size_t count) { return syscall(SYS_read, fd, to, count); }

ssize_t write(int fd, const void* from, size_t count) {
    return syscall(SYS_write, fd, from, count);
}

ssize_t recv(int fd, void* to, size_t count, int flags) {
    return syscall(SYS_recvfrom, fd, to, count, flags, NULL, NULL);
}

ssize_t recvfrom(int fd, void* to, size_t count, int flags, struct sockaddr* address,
                 socklen_t* length) {
    return syscall(SYS_recvfrom, fd, to, count, flags, address, length);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    return syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t send(int fd, const void* from, size_t count, int flags) {
    return syscall(SYS_sendto, fd, from, count, flags, NULL, 0);
}

ssize_t sendto(int fd, const void* from, size_t count, int flags, const struct sockaddr* address,
               socklen_t length) {
    return syscall(SYS_sendto, fd, from, count, flags, address, length);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t writev(int fd, const struct iovec* from, int count) {
    return syscall(SYS_writev, fd, from, count);
}

ssize_t getrandom(void* to, size_t count, unsigned flags) {
    return syscall(SYS_getrandom, to, count, flags);
}

int connect(int fd, const struct sockaddr* address, socklen_t length) {
    return (int)syscall(SYS_connect, fd, address, length);
}

int close(int fd) { return (int)syscall(SYS_close, fd); }

int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
    return (int)syscall(SYS_accept4, fd, address, length, flags);
}

int poll(struct pollfd* fds, nfds_t count, int timeout_ms) {
    struct timespec left = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &left, NULL, 0);
}

int ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
          const sigset_t* signals) {
    struct timespec left = {0, 0};
    if (timeout != NULL) left = *timeout; /* the kernel counts it down */
    return (int)syscall(SYS_ppoll, fds, count, timeout != NULL ? &left : NULL, signals,
                        _NSIG / 8);
}

int epoll_wait(int epoll_fd, struct epoll_event* events, int count, int timeout_ms) {
    return (int)syscall(SYS_epoll_pwait, epoll_fd, events, count, timeout_ms, NULL, 0);
}

int nanosleep(const struct timespec* time, struct timespec* left) {
    return (int)syscall(SYS_nanosleep, time, left);
}

int usleep(useconds_t us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000L};
    return (int)syscall(SYS_nanosleep, &time, NULL);
}

static mode_t mode_of(int flags, va_list list) {
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

#define OPEN(folder)                                                     \
    va_list list;                                                        \
    long fd;                                                             \
    va_start(list, flags);                                               \
    fd = syscall(SYS_openat, folder, path, flags, mode_of(flags, list)); \
    va_end(list);                                                        \
    return (int)fd;

int openat(int folder, const char* path, int flags, ...) { OPEN(folder) }

int open(const char* path, int flags, ...) { OPEN(AT_FDCWD) }
