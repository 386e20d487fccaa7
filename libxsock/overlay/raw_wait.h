/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* poll, select and epoll as system calls by number: see syscall.c for what they return. */
#ifndef XSOCK_OVERLAY_RAW_WAIT_H
#define XSOCK_OVERLAY_RAW_WAIT_H

int raw_poll(long* a, long* result);
int raw_ppoll(long* a, long* result);
int raw_select(long* a, long* result);
int raw_pselect6(long* a, long* result);
int raw_epoll_ctl(long* a, long* result);
int raw_epoll_wait(long* a, long* result);
int raw_epoll_pwait(long* a, long* result);
int raw_epoll_pwait2(long* a, long* result);

/* The kernel has waited on a set that may have become the engine's meanwhile. The result is the
 * program's. */
long raw_epoll_after(long number, const long* a, long result);

#endif /* XSOCK_OVERLAY_RAW_WAIT_H */
