// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "rx.h"

#include "marker.h"
#include "record.h"

static void consume(struct ddp_rx *rx, u64 n)
{
	rx->pos += n;
	ddp_ahead_pass(rx->ahead, rx->pos);
}

static void count_placed(struct ddp_rx *rx, const struct ddp_tally *tally)
{
	rx->count.placed_octets += tally->octets;
	rx->count.placed_fpdus += tally->fpdus;
	rx->count.placed_messages += tally->messages;
	ddp_tally_join(&rx->pending, tally);
}

static bool step_on(struct ddp_rx *rx, u64 end)
{
	struct ddp_run run;
	u64 n;

	if (!rx->stepping) {
		if (!ddp_runs_take(&rx->ahead->runs, rx->pos, &run))
			return false;
		rx->stepping = run.to - run.from;
		rx->step = run.tally;
	}
	n = end - rx->pos;
	if (n > rx->stepping)
		n = rx->stepping;
	consume(rx, n);
	rx->stepping -= n;
	if (!rx->stepping)
		count_placed(rx, &rx->step);
	return true;
}

/* Steps over octets of a run that was placed before. True: there was something to step over. */
static inline bool step(struct ddp_rx *rx, u64 end)
{
	return (rx->stepping || (rx->ahead && rx->ahead->runs.count)) && step_on(rx, end);
}

enum leading {
	LEADING_COMPLETE,   /* an FPDU, all there */
	LEADING_INCOMPLETE, /* and what it is says `fpdu` */
	LEADING_UNKNOWN,    /* its header is not there */
};

/* The same where there are markers: one may lie before the FPDU or within its header. */
static enum leading parse_marked(struct ddp_rx *rx, struct ddp_env *env, u64 avail,
				 struct ddp_fpdu *fpdu, u32 *need)
{
	u8 head[DDP_FPDU_HEAD + DDP_MARKER] = { 0 };
	u32 want = ddp_marker_span(rx->pos, DDP_FPDU_HEAD);
	u32 have = avail < want ? (u32)avail : want, of_fpdu;

	*need = ddp_marker_span(rx->pos, DDP_FPDU_LENGTH);
	if (!ddp_env_peek(env, rx->pos, head, have))
		return LEADING_UNKNOWN;
	have = ddp_marker_strip(rx->pos, head, have);
	of_fpdu = ddp_fpdu_head_octets(head, have);
	*need = ddp_marker_span(rx->pos, of_fpdu);
	if (have < of_fpdu)
		return LEADING_UNKNOWN;
	ddp_fpdu_parse(fpdu, rx->pos, head);
	fpdu->octets = ddp_marker_span(rx->pos, fpdu->octets);
	*need = fpdu->octets;
	return avail < fpdu->octets ? LEADING_INCOMPLETE : LEADING_COMPLETE;
}

/* What lies at pos. *need: octets from pos on that say more. */
static enum leading parse(struct ddp_rx *rx, struct ddp_env *env, u64 avail, struct ddp_fpdu *fpdu,
			  u32 *need)
{
	u8 head[DDP_FPDU_HEAD] = { 0 };
	u32 have = avail < DDP_FPDU_HEAD ? (u32)avail : DDP_FPDU_HEAD;

	if (rx->markers)
		return parse_marked(rx, env, avail, fpdu, need);
	*need = DDP_FPDU_LENGTH;
	if (!ddp_env_peek(env, rx->pos, head, have))
		return LEADING_UNKNOWN;
	*need = ddp_fpdu_head_octets(head, have);
	if (have < *need)
		return LEADING_UNKNOWN;
	ddp_fpdu_parse(fpdu, rx->pos, head);
	*need = fpdu->octets;
	return avail < fpdu->octets ? LEADING_INCOMPLETE : LEADING_COMPLETE;
}

static bool is_mirrored_write(struct ddp_env *env, const struct ddp_fpdu *fpdu)
{
	struct ddp_mr *mr;
	u64 address;

	if (!ddp_fpdu_is_write(fpdu))
		return false;
	mr = ddp_env_get(env, DDP_WANT_WRITE, fpdu, &address);
	if (!mr)
		return false;
	ddp_env_put(env, mr);
	return true;
}

/* The CRC covers markers too. */
static bool is_sound(struct ddp_rx *rx, struct ddp_env *env, const struct ddp_fpdu *fpdu)
{
	return (!rx->markers || ddp_markers_hold(env, fpdu)) &&
	       (!rx->crc || ddp_env_crc_holds(env, fpdu->at, fpdu->octets));
}

static bool place(struct ddp_rx *rx, struct ddp_env *env, struct ddp_mr *mr,
		  const struct ddp_fpdu *fpdu, u64 address)
{
	return rx->markers ? ddp_marker_place(env, mr, fpdu, address) :
			     ddp_ahead_place(rx->ahead, env, mr, fpdu, address);
}

/*
 * Places a complete Write, and consumes it. False: its region is not found, or it is not sound, if
 * that is to be checked, or it cannot be read.
 */
static bool place_write(struct ddp_rx *rx, struct ddp_env *env, const struct ddp_fpdu *fpdu,
			bool check)
{
	struct ddp_mr *mr;
	u64 address;
	bool placed;

	mr = ddp_env_get(env, DDP_WANT_WRITE, fpdu, &address);
	if (!mr)
		return false;
	placed = (!check || is_sound(rx, env, fpdu)) && place(rx, env, mr, fpdu, address);
	ddp_env_put(env, mr);
	if (!placed)
		return false;
	rx->count.placed_octets += fpdu->payload;
	rx->count.placed_fpdus++;
	rx->count.placed_messages += ddp_fpdu_is_last(fpdu);
	ddp_tally_fpdu(&rx->pending, fpdu);
	consume(rx, fpdu->octets);
	return true;
}

enum ddp_rx_state ddp_rx_leading(struct ddp_rx *rx, struct ddp_env *env, u64 avail, u32 *need)
{
	u64 end = rx->pos + avail;
	u32 budget = DDP_HOOK_OCTETS;
	struct ddp_fpdu fpdu;

	if (!rx->handed_up || rx->up || rx->raw_left || rx->held_back)
		return avail ? DDP_RX_READ : DDP_RX_EMPTY;
	while (rx->pos < end) {
		if (step(rx, end))
			continue;
		switch (parse(rx, env, end - rx->pos, &fpdu, need)) {
		case LEADING_UNKNOWN:
			return DDP_RX_WAIT;
		case LEADING_INCOMPLETE:
			return is_mirrored_write(env, &fpdu) ? DDP_RX_WAIT : DDP_RX_READ;
		case LEADING_COMPLETE:
			break;
		}
		if (!ddp_fpdu_is_write(&fpdu) || ddp_fpdu_wakes(&fpdu))
			return DDP_RX_READ;
		if (budget < fpdu.octets) {
			rx->count.limited++;
			return DDP_RX_READ;
		}
		budget -= fpdu.octets;
		if (!place_write(rx, env, &fpdu, true))
			return DDP_RX_READ;
	}
	return DDP_RX_EMPTY;
}

/* Something went up that is not executed before recv() returns. */
static void note_handed_up(struct ddp_rx *rx, struct ddp_rx_reader *reader, bool stores)
{
	reader->unstored |= stores || rx->in_order;
	if (stores) {
		rx->held_back = true;
		ddp_ahead_forget(rx->ahead);
	}
}

/* Hands octets up as they came: up to n of them. */
static bool give_raw(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader, u64 n)
{
	u64 room;

	if (!ddp_record_pending(rx, env, reader))
		return false;
	room = ddp_record_room(reader);
	if (n > room)
		n = room;
	if (n > DDP_READ_OCTETS)
		n = DDP_READ_OCTETS;
	if (!n || !ddp_record_octets(env, reader, DDP_RECORD_RAW, rx->pos, (u32)n))
		return false;
	rx->count.raw_octets += n;
	note_handed_up(rx, reader, true);
	if (rx->raw_left)
		rx->raw_left -= (u32)n;
	consume(rx, n);
	return true;
}

/* Octets of the FPDU that begins at `at`, which is not within a marker. */
static u32 octets_of(const struct ddp_rx *rx, u64 at, const u8 *length)
{
	u32 octets = ddp_fpdu_octets((u32)length[0] << 8 | length[1]);

	return rx->markers ? ddp_marker_span(at, octets) : octets;
}

/*
 * An incomplete FPDU leads, and goes up as octets, as will its rest. A marker before it goes up by
 * itself.
 */
static bool give_incomplete(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader,
			    u64 avail)
{
	u32 marker = rx->markers ? ddp_marker_rest(rx->pos) : 0;
	u8 head[DDP_FPDU_LENGTH];

	if (marker) {
		if (!give_raw(rx, env, reader, avail < marker ? avail : marker))
			return false;
		rx->up = DDP_UP_MARKER;
		return true;
	}
	if (avail == 1) {
		if (!ddp_env_peek(env, rx->pos, head, 1) || !give_raw(rx, env, reader, 1))
			return false;
		rx->up = DDP_UP_HALF | head[0];
		return true;
	}
	if (!ddp_env_peek(env, rx->pos, head, DDP_FPDU_LENGTH))
		return false;
	/* Not left in place if nothing was given: the FPDU may be complete the next time. */
	rx->raw_left = octets_of(rx, rx->pos, head);
	if (give_raw(rx, env, reader, avail < rx->raw_left ? avail : rx->raw_left)) {
		rx->up = 0;
		return true;
	}
	rx->raw_left = 0;
	return false;
}

/* Octets of an FPDU whose start went up before. */
static bool give_rest(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader,
		      u64 avail)
{
	u8 head[DDP_FPDU_LENGTH];

	if (rx->up == DDP_UP_MARKER)
		return give_incomplete(rx, env, reader, avail);
	if (rx->up & DDP_UP_HALF) {
		head[0] = (u8)rx->up;
		if (!ddp_env_peek(env, rx->pos, &head[1], 1))
			return false;
		rx->raw_left = octets_of(rx, rx->pos - 1, head) - 1;
		rx->up = 0;
	}
	if (!rx->raw_left)
		return give_raw(rx, env, reader, avail);
	return give_raw(rx, env, reader, avail < rx->raw_left ? avail : rx->raw_left);
}

static bool give_ulpdu(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader,
		       const struct ddp_fpdu *fpdu)
{
	bool given;

	if (!ddp_record_pending(rx, env, reader))
		return false;
	given = rx->markers ? ddp_record_marked_ulpdu(env, reader, fpdu) :
			      ddp_record_octets(env, reader, DDP_RECORD_ULPDU,
						rx->pos + DDP_FPDU_LENGTH, fpdu->ulpdu);
	if (!given)
		return false;
	rx->count.ulpdus++;
	note_handed_up(rx, reader, ddp_fpdu_touches_memory(fpdu));
	consume(rx, fpdu->octets);
	return true;
}

enum outcome {
	DONE,	 /* consumed */
	FULL,	 /* no room, or order asks for another call */
	NOT_OURS /* hand it up */
};

static enum outcome take_response(struct ddp_rx *rx, struct ddp_env *env,
				  struct ddp_rx_reader *reader, const struct ddp_fpdu *fpdu)
{
	struct ddp_mr *mr;
	u64 address;

	mr = ddp_env_get(env, DDP_WANT_RESPONSE, fpdu, &address);
	if (!mr)
		return NOT_OURS;
	/* Placed before it is told of; again, if there was no room to tell of it. */
	if (reader->unstored || !ddp_record_pending(rx, env, reader) ||
	    !place(rx, env, mr, fpdu, address) ||
	    !ddp_record_response(env, reader, fpdu)) {
		ddp_env_put(env, mr);
		return FULL;
	}
	ddp_env_responded(env, mr, fpdu->payload);
	ddp_env_put(env, mr);
	rx->count.placed_octets += fpdu->payload;
	rx->count.placed_fpdus++;
	consume(rx, fpdu->octets);
	return DONE;
}

static enum outcome take_write(struct ddp_rx *rx, struct ddp_env *env,
			       struct ddp_rx_reader *reader, const struct ddp_fpdu *fpdu)
{
	bool wakes = ddp_fpdu_wakes(fpdu);

	if (reader->unstored && is_mirrored_write(env, fpdu))
		return FULL;
	/* The record that ends with it is written at once. */
	if (wakes && ddp_record_room(reader) < sizeof(struct ddp_placed))
		return FULL;
	if (!place_write(rx, env, fpdu, false))
		return NOT_OURS;
	return !wakes || ddp_record_pending(rx, env, reader) ? DONE : FULL;
}

/* A complete FPDU that is sound. False: no room, or order asks for another call. */
static bool take_fpdu(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader,
		      const struct ddp_fpdu *fpdu)
{
	enum outcome outcome = NOT_OURS;

	if (ddp_fpdu_is_write(fpdu))
		outcome = take_write(rx, env, reader, fpdu);
	else if (ddp_fpdu_is_read_response(fpdu))
		outcome = take_response(rx, env, reader, fpdu);
	if (outcome == NOT_OURS)
		return give_ulpdu(rx, env, reader, fpdu);
	return outcome == DONE;
}

/* Goes on until nothing is left to do, or no room. */
static enum ddp_rx_state read_on(struct ddp_rx *rx, struct ddp_env *env, u64 end,
				 struct ddp_rx_reader *reader)
{
	u64 budget_end = rx->pos + DDP_READ_OCTETS;
	struct ddp_fpdu fpdu;
	enum leading leading;

	while (rx->pos < end && rx->pos < budget_end) {
		u64 avail = end - rx->pos;

		if (rx->up || rx->raw_left) {
			if (!give_rest(rx, env, reader, avail))
				return DDP_RX_READ;
			continue;
		}
		if (step(rx, end))
			continue;
		leading = parse(rx, env, avail, &fpdu, &reader->need);
		if (leading == LEADING_COMPLETE) {
			if (!is_sound(rx, env, &fpdu))
				rx->up = DDP_UP_ALL;
			else if (!take_fpdu(rx, env, reader, &fpdu))
				return DDP_RX_READ;
			continue;
		}
		if (!reader->give_up &&
		    (leading == LEADING_UNKNOWN || is_mirrored_write(env, &fpdu)))
			return DDP_RX_WAIT;
		if (!give_incomplete(rx, env, reader, avail))
			return DDP_RX_READ;
	}
	return rx->pos < end ? DDP_RX_READ : DDP_RX_EMPTY;
}

enum ddp_rx_state ddp_rx_read(struct ddp_rx *rx, struct ddp_env *env, u64 avail,
			      struct ddp_rx_reader *reader)
{
	enum ddp_rx_state state = read_on(rx, env, rx->pos + avail, reader);

	if (!reader->fault)
		ddp_record_pending(rx, env, reader);
	if (reader->done)
		rx->handed_up = true;
	return state;
}
