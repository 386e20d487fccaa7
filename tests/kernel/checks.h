/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * TAP as kselftest's programs print it: one line for each check, a plan at the end. A program ends
 * with 0 only if every check held.
 */
#ifndef DDP_TESTS_CHECKS_H
#define DDP_TESTS_CHECKS_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;

static inline bool check(bool holds, const char *what, int line)
{
	printf("%sok %d %s\n", holds ? "" : "not ", ++checks, what);
	if (!holds) {
		printf("# line %d, errno %d (%s)\n", line, errno, strerror(errno));
		failures++;
	}
	fflush(stdout);
	return holds;
}

#define CHECK(condition, what) check(condition, what, __LINE__)
/* What has to hold for the test to go on. */
#define REQUIRE(condition, what)                        \
	do {                                            \
		if (!(condition)) {                     \
			CHECK(false, what);             \
			exit(1);                        \
		}                                       \
	} while (0)
/* A call that fails with this errno. */
#define FAILS(call, error, what) CHECK((errno = 0, (call) < 0) && errno == (error), what)

static inline int end_checks(void)
{
	printf("1..%d\n", checks);
	return failures ? 1 : 0;
}

#endif
