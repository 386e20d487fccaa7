/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The threads of POSIX asynchronous I/O on DDPMODE descriptors (aio.c), and how a program is told
 * that a request, or a list of them, is done.
 */
#ifndef XSOCK_OVERLAY_AIO_NOTIFY_H
#define XSOCK_OVERLAY_AIO_NOTIFY_H

#include <signal.h>

/* Runs `run` in a detached thread that the program's signals do not reach. Those that an
 * instruction raises stay: the engine's handler must see what a bad address of the program does,
 * and the kernel kills a process that blocks what it has to deliver.
 * @return 0 or an errno */
int aio_start_thread(void* (*run)(void*), void* argument);

/* The signal is sent, or the function called in a thread of its own, with no signal blocked. */
void aio_notify(const struct sigevent* event);

#endif /* XSOCK_OVERLAY_AIO_NOTIFY_H */
