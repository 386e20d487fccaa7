/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which octets of the stream, behind the in-order point, are FPDUs that have been placed: ranges,
 * sorted, that neither overlap nor touch. They say what was placed, not what TCP still holds: it
 * may throw its copy away and receive it anew.
 */
#ifndef DDP_CORE_RUNS_H
#define DDP_CORE_RUNS_H

#include "tally.h"

#define DDP_RUNS_MAX 64

/**
 * struct ddp_run - FPDUs that were placed, without a gap
 * @from: position of the first octet
 * @to: position behind the last
 * @tally: what they are
 */
struct ddp_run {
	u64 from;
	u64 to;
	struct ddp_tally tally;
};

struct ddp_runs {
	u32 count;
	struct ddp_run run[DDP_RUNS_MAX];
};

/* The run that holds position `at`, or else the next one behind it; NULL: there is none. */
const struct ddp_run *ddp_runs_find(const struct ddp_runs *runs, u64 at);

/* Would ddp_runs_add() have room for an FPDU at [from, to)? */
bool ddp_runs_room(const struct ddp_runs *runs, u64 from, u64 to);

/* Adds an FPDU that overlaps no run; ddp_runs_room() has said yes. */
void ddp_runs_add(struct ddp_runs *runs, const struct ddp_fpdu *fpdu);

/*
 * Takes out the run that begins at `at`, and those that begin before it: an in-order pass came by,
 * and its boundaries are the true ones. False: none begins there.
 */
bool ddp_runs_take(struct ddp_runs *runs, u64 at, struct ddp_run *taken);

#endif
