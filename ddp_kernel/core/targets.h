/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Where Writes that were placed behind a hole went. A Write that lies before them in the stream and
 * comes later leaves those bytes out: what a later Write has stored, an earlier one may not undo.
 */
#ifndef DDP_CORE_TARGETS_H
#define DDP_CORE_TARGETS_H

#include "types.h"

#define DDP_TARGETS_MAX 128

/**
 * struct ddp_target - memory that Writes placed early have filled without a gap
 * @from: address of the first byte
 * @to: address behind the last
 * @first: stream position of the first of these Writes
 * @next: stream position behind the last
 */
struct ddp_target {
	u64 from;
	u64 to;
	u64 first;
	u64 next;
};

struct ddp_targets {
	u32 count;
	struct ddp_target target[DDP_TARGETS_MAX];
};

/* Would ddp_targets_add() have room for an FPDU at `at` that goes to `address`? */
bool ddp_targets_room(const struct ddp_targets *targets, u64 at, u64 address);

/*
 * Notes that the FPDU at [at, next) was placed at [address, address + n); ddp_targets_room() has
 * said yes.
 */
void ddp_targets_add(struct ddp_targets *targets, u64 at, u64 next, u64 address, u32 n);

/*
 * The first part of [from, end) that an FPDU at position `at` may store: its start and end. False:
 * none.
 */
bool ddp_targets_gap(const struct ddp_targets *targets, u64 at, u64 from, u64 end, u64 *gap_from,
		     u64 *gap_to);

/* Forgets Writes that the in-order point `at` has passed. */
void ddp_targets_pass(struct ddp_targets *targets, u64 at);

#endif
