/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What user space does with that which the module hands up: Writes of one region are stored. */
#ifndef DDP_TESTS_USER_LEVEL_H
#define DDP_TESTS_USER_LEVEL_H

#include "ddp_test.h"

struct user_level {
	uint32_t stag;	/* other Writes are left out */
	uint8_t *memory;
	size_t length;
	uint64_t stored; /* Writes to it */
	size_t held_n;
	uint8_t held[128 * 1024]; /* octets of the stream: an FPDU that is not complete, and more */
};

/* Octets of the stream as they came. True: a Send was among them. */
bool user_level_octets(struct user_level *user, const uint8_t *octets, size_t n);
/* A record. True: a Send was in it. */
bool user_level_record(struct user_level *user, const struct record *record);

#endif
