// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ahead.h"

static u64 known(const struct ddp_ahead *ahead)
{
	return ahead->count.fpdus + ahead->count.wrong_guesses + ahead->count.misses;
}

void ddp_ahead_begin(struct ddp_ahead *ahead, u64 edge, u64 from)
{
	if (edge >= ahead->hole_end) {
		ahead->refused_count = 0;
		ahead->missed_count = 0;
		ahead->misses = 0;
		ahead->hole_end = from;
	}
	ahead->known = known(ahead);
}

bool ddp_ahead_goes_on(const struct ddp_ahead *ahead, u32 budget)
{
	return !budget && known(ahead) != ahead->known;
}

static bool is_refused(const struct ddp_ahead *ahead, u64 at)
{
	u32 i;

	for (i = 0; i < ahead->refused_count; i++)
		if (ahead->refused[i] == at)
			return true;
	return false;
}

static void refuse(struct ddp_ahead *ahead, u64 at)
{
	ahead->count.wrong_guesses++;
	if (ahead->refused_count < DDP_GUESSES_MAX)
		ahead->refused[ahead->refused_count++] = at;
}

/* Where the missed FPDUs end, one of which holds position `at`; `at`: none does. */
static u64 missed_end(const struct ddp_ahead *ahead, u64 at)
{
	u32 i;

	for (i = 0; i < ahead->missed_count; i++)
		if (ahead->missed[i].from <= at && at < ahead->missed[i].to)
			return ahead->missed[i].to;
	return at;
}

/* There is room: an examination ends at DDP_MISSES_MAX. */
static void miss(struct ddp_ahead *ahead, const struct ddp_fpdu *fpdu)
{
	struct ddp_missed *last = &ahead->missed[ahead->missed_count];

	ahead->misses++;
	ahead->count.misses++;
	if (ahead->missed_count && last[-1].to == fpdu->at) {
		last[-1].to += fpdu->octets;
		return;
	}
	last->from = fpdu->at;
	last->to = fpdu->at + fpdu->octets;
	ahead->missed_count++;
}

static bool spend(struct ddp_ahead *ahead, u32 *budget, u32 octets)
{
	if (*budget > octets) {
		*budget -= octets;
		return true;
	}
	*budget = 0;
	ahead->count.limited++;
	return false;
}

bool ddp_ahead_place(struct ddp_ahead *ahead, struct ddp_env *env, struct ddp_mr *mr,
		     const struct ddp_fpdu *fpdu, u64 address)
{
	u64 payload = ddp_fpdu_payload_at(fpdu);
	u64 from = address, end = address + fpdu->payload;
	u64 gap_from, gap_to;
	u32 stored = 0;

	if (!ahead || !ahead->targets.count)
		return ddp_env_place(env, mr, address, payload, fpdu->payload);
	while (ddp_targets_gap(&ahead->targets, fpdu->at, from, end, &gap_from, &gap_to)) {
		if (!ddp_env_place(env, mr, gap_from, payload + (gap_from - address),
				   (u32)(gap_to - gap_from)))
			return false;
		stored += (u32)(gap_to - gap_from);
		from = gap_to;
	}
	ahead->count.masked += fpdu->payload - stored;
	return true;
}

enum verdict {
	PLACED,	 /* and so is the next start known */
	SKIPPED, /* known, and left to the in-order pass */
	STOP,	 /* no further from here */
};

static bool has_room(const struct ddp_ahead *ahead, const struct ddp_fpdu *fpdu, u64 address)
{
	return ddp_runs_room(&ahead->runs, fpdu->at, fpdu->at + fpdu->octets) &&
	       ddp_targets_room(&ahead->targets, fpdu->at, address);
}

/* A Write whose CRC has held, and for which there is room. */
static bool place(struct ddp_ahead *ahead, struct ddp_env *env, struct ddp_mr *mr,
		  const struct ddp_fpdu *fpdu, u64 address)
{
	if (!ddp_ahead_place(ahead, env, mr, fpdu, address))
		return false;
	ddp_targets_add(&ahead->targets, fpdu->at, fpdu->at + fpdu->octets, address,
			fpdu->payload);
	ddp_runs_add(&ahead->runs, fpdu);
	ahead->count.octets += fpdu->payload;
	ahead->count.fpdus++;
	return true;
}

/*
 * A Write that is all there. Its CRC is computed once: if it is to be placed, or to prove that it
 * starts here.
 */
static enum verdict take_write(struct ddp_ahead *ahead, struct ddp_env *env,
			       const struct ddp_fpdu *fpdu, bool certain, u32 *budget)
{
	enum verdict verdict = STOP;
	struct ddp_mr *mr;
	u64 address = 0;

	mr = ddp_env_get(env, DDP_WANT_WRITE_AHEAD, fpdu, &address);
	if (mr && !has_room(ahead, fpdu, address)) {
		ahead->count.limited++;
	} else if (!mr && certain) {
		miss(ahead, fpdu);
		verdict = SKIPPED;
	} else if (spend(ahead, budget, fpdu->octets)) {
		if (!ddp_env_crc_holds(env, fpdu->at, fpdu->octets)) {
			refuse(ahead, fpdu->at);
		} else if (mr) {
			if (place(ahead, env, mr, fpdu, address))
				verdict = PLACED;
		} else {
			miss(ahead, fpdu);
			verdict = SKIPPED;
		}
	}
	if (mr)
		ddp_env_put(env, mr);
	return verdict;
}

/* The FPDU at `at`, of which octets up to `end` are there. `certain`: an FPDU starts here. */
static enum verdict examine(struct ddp_ahead *ahead, struct ddp_env *env, u64 at, u64 end,
			    bool certain, u32 *budget, struct ddp_fpdu *fpdu)
{
	u8 head[DDP_FPDU_HEAD];
	const struct ddp_run *run;
	bool is_write;

	if (!spend(ahead, budget, DDP_FPDU_HEAD))
		return STOP;
	/* An FPDU shorter than a tagged header cannot be a Write, and is not passed either. */
	if (end - at < DDP_FPDU_HEAD || !ddp_env_peek(env, at, head, DDP_FPDU_HEAD))
		return STOP;
	ddp_fpdu_parse(fpdu, at, head);
	is_write = ddp_fpdu_is_write(fpdu) && !ddp_fpdu_wakes(fpdu);
	if (!certain && !is_write) {
		refuse(ahead, at);
		return STOP;
	}
	run = ddp_runs_find(&ahead->runs, at);
	if (fpdu->octets > end - at || (run && run->from < at + fpdu->octets))
		return STOP;
	/* Behind a certain boundary the length alone leads on. */
	if (!is_write)
		return SKIPPED;
	return take_write(ahead, env, fpdu, certain, budget);
}

u64 ddp_ahead_chain(struct ddp_ahead *ahead, struct ddp_env *env, u64 at, u64 end, u32 *budget)
{
	bool certain = false;

	while (at < end && *budget) {
		const struct ddp_run *run = ddp_runs_find(&ahead->runs, at);
		u64 missed = missed_end(ahead, at);
		struct ddp_fpdu fpdu;

		if ((run && run->from <= at) || missed != at) {
			at = missed != at ? missed : run->to;
			certain = true;
			continue;
		}
		if (is_refused(ahead, at))
			break;
		if (ahead->refused_count == DDP_GUESSES_MAX || ahead->misses >= DDP_MISSES_MAX)
			break;
		if (examine(ahead, env, at, end, certain, budget, &fpdu) == STOP)
			break;
		at += fpdu.octets;
		certain = true;
	}
	return at < end ? at : end;
}
