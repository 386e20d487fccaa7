/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Placing behind a hole. A header is found where a segment starts, and proves itself by its CRC;
 * from there one FPDU leads to the next. All that is left out here is done by the in-order pass.
 */
#ifndef DDP_CORE_AHEAD_H
#define DDP_CORE_AHEAD_H

#include "env.h"
#include "runs.h"
#include "targets.h"

#define DDP_GUESSES_MAX 32 /* wrong ones in a hole */
#define DDP_MISSES_MAX 64  /* FPDUs of a hole whose region is not found */

/**
 * struct ddp_ahead_count - what placing ahead did
 * @octets: of payload placed
 * @fpdus: their number
 * @wrong_guesses: starts that proved no FPDU
 * @misses: FPDUs without a region
 * @masked: octets of payload left out, of in-order placements too
 * @limited: times that a limit ended the examination
 */
struct ddp_ahead_count {
	u64 octets;
	u64 fpdus;
	u64 wrong_guesses;
	u64 misses;
	u64 masked;
	u64 limited;
};

/**
 * struct ddp_missed - FPDUs without a gap that are left to the in-order pass
 * @from: position of the first octet
 * @to: position behind the last
 */
struct ddp_missed {
	u64 from;
	u64 to;
};

/**
 * struct ddp_ahead - of one socket that may place behind holes
 * @runs: what has been placed
 * @targets: where that went
 * @hole_end: position at which the present hole ends; the limits count anew when it has filled
 * @refused: starts that proved no FPDU; they are not examined again
 * @refused_count: of these
 * @missed: ranges of FPDUs whose region was not found; they are not examined again
 * @missed_count: of these
 * @misses: FPDUs in them
 * @known: FPDUs that were placed, missed or refused when the present examination began
 * @count: for statistics
 */
struct ddp_ahead {
	struct ddp_runs runs;
	struct ddp_targets targets;
	u64 hole_end;
	u64 refused[DDP_GUESSES_MAX];
	u32 refused_count;
	struct ddp_missed missed[DDP_MISSES_MAX];
	u32 missed_count;
	u32 misses;
	u64 known;
	struct ddp_ahead_count count;
};

/* The octets behind the hole begin at `from`, and those in order end at `edge`. */
void ddp_ahead_begin(struct ddp_ahead *ahead, u64 edge, u64 from);

/*
 * An examination has ended with so much of the budget left: is it to be taken up again, though no
 * more octets have come? Only what got further does.
 */
bool ddp_ahead_goes_on(const struct ddp_ahead *ahead, u32 budget);

/*
 * Examines the octets [at, end), which are all there; `at` is where a segment starts. Answers up to
 * where it knows the FPDUs. *budget: octets that may be read; what is read is taken off, and
 * nothing more is examined once it is 0.
 */
u64 ddp_ahead_chain(struct ddp_ahead *ahead, struct ddp_env *env, u64 at, u64 end, u32 *budget);

/*
 * Stores the payload of an FPDU except for what later Writes have stored already. Of in-order
 * placements too; `ahead` may be NULL. False: it cannot be read, and is not placed.
 */
bool ddp_ahead_place(struct ddp_ahead *ahead, struct ddp_env *env, struct ddp_mr *mr,
		     const struct ddp_fpdu *fpdu, u64 address);

/* The in-order point is `at` now. */
static inline void ddp_ahead_pass(struct ddp_ahead *ahead, u64 at)
{
	if (ahead && ahead->targets.count)
		ddp_targets_pass(&ahead->targets, at);
}

/*
 * User space is about to store what lies before the runs: what they placed is placed again, in
 * order, when the in-order pass comes to it.
 */
static inline void ddp_ahead_forget(struct ddp_ahead *ahead)
{
	if (ahead) {
		ahead->runs.count = 0;
		ahead->targets.count = 0;
	}
}

#endif
