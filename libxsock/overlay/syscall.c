/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * syscall(): programs that call the kernel by number through libc. Those numbers that the list of
 * libc_calls.h has names for go to the functions of these names, when any descriptor has a handle;
 * results and errno are the same. All others, and all before that, go straight on, by a
 * jump: a frame of ours would be returned through twice by a clone that shares memory.
 */
#include <fcntl.h>
#include <sys/syscall.h>

#include "libxsock/overlay/overlay.h"

/* The kernel's sixth argument of pselect6. */
struct mask_argument {
    const sigset_t* mask;
    size_t size;
};

/* Apart, so that its frame is not that of the way past it. */
static __attribute__((noinline)) long handled(long number, const long* a, int* known) {
    *known = 1;
    switch (number) {
        case SYS_read:
            return overlay_read((int)a[0], (void*)a[1], (size_t)a[2]);
        case SYS_write:
            return overlay_write((int)a[0], (const void*)a[1], (size_t)a[2]);
        case SYS_readv:
            return overlay_readv((int)a[0], (const struct iovec*)a[1], (int)a[2]);
        case SYS_writev:
            return overlay_writev((int)a[0], (const struct iovec*)a[1], (int)a[2]);
        case SYS_recvfrom:
            return overlay_recvfrom((int)a[0], (void*)a[1], (size_t)a[2], (int)a[3],
                                    (struct sockaddr*)a[4], (socklen_t*)a[5]);
        case SYS_sendto:
            return overlay_sendto((int)a[0], (const void*)a[1], (size_t)a[2], (int)a[3],
                                  (const struct sockaddr*)a[4], (socklen_t)a[5]);
        case SYS_recvmsg:
            return overlay_recvmsg((int)a[0], (struct msghdr*)a[1], (int)a[2]);
        case SYS_sendmsg:
            return overlay_sendmsg((int)a[0], (const struct msghdr*)a[1], (int)a[2]);
        case SYS_recvmmsg:
            return overlay_recvmmsg((int)a[0], (struct mmsghdr*)a[1], (unsigned)a[2], (int)a[3],
                                    (struct timespec*)a[4]);
        case SYS_sendmmsg:
            return overlay_sendmmsg((int)a[0], (struct mmsghdr*)a[1], (unsigned)a[2], (int)a[3]);
        case SYS_sendfile:
            return overlay_sendfile((int)a[0], (int)a[1], (off_t*)a[2], (size_t)a[3]);
        case SYS_splice:
            return overlay_splice((int)a[0], (off64_t*)a[1], (int)a[2], (off64_t*)a[3],
                                  (size_t)a[4], (unsigned)a[5]);
        case SYS_socket:
            return overlay_socket((int)a[0], (int)a[1], (int)a[2]);
        case SYS_socketpair:
            return overlay_socketpair((int)a[0], (int)a[1], (int)a[2], (int*)a[3]);
        case SYS_listen:
            return overlay_listen((int)a[0], (int)a[1]);
        case SYS_accept:
            return overlay_accept((int)a[0], (struct sockaddr*)a[1], (socklen_t*)a[2]);
        case SYS_accept4:
            return overlay_accept4((int)a[0], (struct sockaddr*)a[1], (socklen_t*)a[2], (int)a[3]);
        case SYS_connect:
            return overlay_connect((int)a[0], (const struct sockaddr*)a[1], (socklen_t)a[2]);
        case SYS_shutdown:
            return overlay_shutdown((int)a[0], (int)a[1]);
        case SYS_getsockopt:
            return overlay_getsockopt((int)a[0], (int)a[1], (int)a[2], (void*)a[3],
                                      (socklen_t*)a[4]);
        case SYS_setsockopt:
            return overlay_setsockopt((int)a[0], (int)a[1], (int)a[2], (const void*)a[3],
                                      (socklen_t)a[4]);
        case SYS_close:
            return overlay_close((int)a[0]);
        case SYS_close_range:
            return overlay_close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
        case SYS_dup:
            return overlay_dup((int)a[0]);
        case SYS_dup3:
            return overlay_dup3((int)a[0], (int)a[1], (int)a[2]);
        case SYS_fcntl:
            return overlay_fcntl((int)a[0], (int)a[1], (void*)a[2]);
        case SYS_ioctl:
            return overlay_ioctl((int)a[0], (unsigned long)a[1], (void*)a[2]);
        case SYS_ppoll:
            return overlay_ppoll((struct pollfd*)a[0], (nfds_t)a[1], (const struct timespec*)a[2],
                                 (const sigset_t*)a[3]);
        case SYS_pselect6: {
            const struct mask_argument* const mask = (const struct mask_argument*)a[5];
            return overlay_pselect((int)a[0], (fd_set*)a[1], (fd_set*)a[2], (fd_set*)a[3],
                                   (const struct timespec*)a[4], mask != NULL ? mask->mask : NULL);
        }
        case SYS_epoll_create1:
            return overlay_epoll_create1((int)a[0]);
        case SYS_epoll_ctl:
            return overlay_epoll_ctl((int)a[0], (int)a[1], (int)a[2], (struct epoll_event*)a[3]);
        case SYS_epoll_pwait:
            return overlay_epoll_pwait((int)a[0], (struct epoll_event*)a[1], (int)a[2], (int)a[3],
                                       (const sigset_t*)a[4]);
        case SYS_epoll_pwait2:
            return overlay_epoll_pwait2((int)a[0], (struct epoll_event*)a[1], (int)a[2],
                                        (const struct timespec*)a[3], (const sigset_t*)a[4]);
#ifdef SYS_poll
        case SYS_poll:
            return overlay_poll((struct pollfd*)a[0], (nfds_t)a[1], (int)a[2]);
#endif
#ifdef SYS_select
        case SYS_select:
            return overlay_select((int)a[0], (fd_set*)a[1], (fd_set*)a[2], (fd_set*)a[3],
                                  (struct timeval*)a[4]);
#endif
#ifdef SYS_epoll_create
        case SYS_epoll_create:
            return overlay_epoll_create((int)a[0]);
        case SYS_epoll_wait:
            return overlay_epoll_wait((int)a[0], (struct epoll_event*)a[1], (int)a[2], (int)a[3]);
#endif
#ifdef SYS_dup2
        case SYS_dup2:
            return overlay_dup2((int)a[0], (int)a[1]);
#endif
        default:
            *known = 0;
            return 0;
    }
}

static __attribute__((noinline)) long syscall_slowly(long number, long a, long b, long c, long d,
                                                     long e, long f) {
    if (fd_any()) {
        const long arguments[6] = {a, b, c, d, e, f};
        int known;
        const long result = handled(number, arguments, &known);
        if (known) return result;
    }
    return LIBC(syscall)(number, a, b, c, d, e, f);
}

long overlay_syscall(long number, long a, long b, long c, long d, long e, long f) {
    OVERLAY_UNLESS(fd_any(), syscall, (number, a, b, c, d, e, f), syscall_slowly);
}
