/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sums over Writes that lie one behind the other in the stream: what a PLACED record tells. */
#ifndef DDP_CORE_TALLY_H
#define DDP_CORE_TALLY_H

#include "fpdu.h"

/**
 * struct ddp_tally - so many Writes, and the last of them
 * @wire: octets of the stream
 * @octets: of payload
 * @fpdus: their number; 0: nothing yet, and last_* mean nothing
 * @messages: of them, those with the L flag
 * @message_octets: of payload, of the last message
 * @last_to: TO of the last one
 * @last_stag: its STag
 * @last_length: octets of its payload
 * @last_control: its control octets
 * @last_rdmap: its control octets
 * @unfinished: it has not ended a message
 */
struct ddp_tally {
	u64 wire;
	u64 octets;
	u64 fpdus;
	u64 messages;
	u64 message_octets;
	u64 last_to;
	u32 last_stag;
	u32 last_length;
	u8 last_control;
	u8 last_rdmap;
	bool unfinished;
};

static inline void ddp_tally_fpdu(struct ddp_tally *tally, const struct ddp_fpdu *fpdu)
{
	if (!tally->unfinished)
		tally->message_octets = 0;
	tally->message_octets += fpdu->payload;
	tally->unfinished = !ddp_fpdu_is_last(fpdu);
	tally->wire += fpdu->octets;
	tally->octets += fpdu->payload;
	tally->fpdus++;
	tally->messages += ddp_fpdu_is_last(fpdu);
	tally->last_to = fpdu->to;
	tally->last_stag = fpdu->stag;
	tally->last_length = fpdu->payload;
	tally->last_control = fpdu->control;
	tally->last_rdmap = fpdu->rdmap;
}

/* Adds what lies behind `tally` in the stream. */
static inline void ddp_tally_join(struct ddp_tally *tally, const struct ddp_tally *next)
{
	struct ddp_tally sum = *next;
	/* Is the last message of `next` one that has begun in it? */
	bool begun = next->messages > (next->unfinished ? 0 : 1);

	if (!begun && tally->unfinished)
		sum.message_octets += tally->message_octets;
	sum.wire += tally->wire;
	sum.octets += tally->octets;
	sum.fpdus += tally->fpdus;
	sum.messages += tally->messages;
	*tally = sum;
}

#endif
