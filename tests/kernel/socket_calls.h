/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What else a program may do to a socket that is bound, or that is not. */
#ifndef DDP_TESTS_SOCKET_CALLS_H
#define DDP_TESTS_SOCKET_CALLS_H

/*
 * Makes a random call of the system on `s`, whatever comes of it. None waits, and none makes a
 * later close() wait; `s` is non-blocking from then on.
 */
void call_something(int s);

#endif
