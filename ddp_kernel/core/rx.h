/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The in-order side of one socket: from the octets that TCP has in order to placements and records
 * (xsock/ddp_uapi.h). Two entrances, both under the socket's lock: ddp_rx_leading() when octets
 * have come, ddp_rx_read() when user space reads. Octets are consumed by raising `pos`; the caller
 * lets TCP forget them afterwards.
 */
#ifndef DDP_CORE_RX_H
#define DDP_CORE_RX_H

#include "ahead.h"

#define DDP_HOOK_OCTETS (256u * 1024)  /* examined in one call from TCP */
#define DDP_READ_OCTETS (1024u * 1024) /* examined in one call of recv() */

/* ddp_rx.up: octets go up, though not to the end of a known FPDU */
#define DDP_UP_HALF 0x100   /* an octet of ULPDU_Length did, and is this plus the octet */
#define DDP_UP_MARKER 0x200 /* a marker before an FPDU did, or a part of it */
#define DDP_UP_ALL 0x400    /* a CRC or a marker was wrong: all octets do from now on */

/**
 * struct ddp_rx_count - since DDP_IOC_BIND
 * @placed_octets: payload that was placed, consumed
 * @placed_fpdus: their number
 * @placed_messages: complete Writes
 * @ulpdus: records of ULPDUs
 * @raw_octets: octets in RAW records
 * @limited: times that a limit ended ddp_rx_leading()
 */
struct ddp_rx_count {
	u64 placed_octets;
	u64 placed_fpdus;
	u64 placed_messages;
	u64 ulpdus;
	u64 raw_octets;
	u64 limited;
};

/**
 * struct ddp_rx - of one socket; begins as zeros
 * @pos: position of the next octet that is not consumed
 * @crc: FPDUs carry CRCs
 * @markers: the peer sends markers
 * @in_order: nothing is placed ahead of what has not been handed up
 * @handed_up: recv() has answered a first record
 * @held_back: since the last recv() began, user space may still have to store something in memory
 *             that peers name; nothing is placed until the next recv()
 * @up: DDP_UP_*, or 0
 * @raw_left: octets of an FPDU whose start went up as octets
 * @stepping: octets of a run that are still to come in order
 * @step: what the run is
 * @pending: Writes that were consumed and not told of
 * @ahead: state of placing behind holes; NULL: never, as in order, with markers or without CRC
 * @count: for statistics
 */
struct ddp_rx {
	u64 pos;
	bool crc;
	bool markers;
	bool in_order;
	bool handed_up;
	bool held_back;
	u16 up;
	u32 raw_left;
	u64 stepping;
	struct ddp_tally step;
	struct ddp_tally pending;
	struct ddp_ahead *ahead;
	struct ddp_rx_count count;
};

enum ddp_rx_state {
	DDP_RX_EMPTY, /* nothing is left */
	DDP_RX_WAIT,  /* an incomplete Write leads: `need` octets from pos on say more */
	DDP_RX_READ,  /* something for the reader */
};

/*
 * Places and consumes leading Writes, of `avail` octets that are there in order from pos on.
 * *need: see DDP_RX_WAIT.
 */
enum ddp_rx_state ddp_rx_leading(struct ddp_rx *rx, struct ddp_env *env, u64 avail, u32 *need);

/**
 * struct ddp_rx_reader - one call of recv()
 * @room: bytes left in its buffer
 * @done: bytes of complete records written
 * @give_up: hand an incomplete Write up as octets
 * @fault: the buffer could not be written; `done` bytes are good
 * @need: see DDP_RX_WAIT
 * @unstored: of this call, something was handed up that an ordered placement may not overtake
 */
struct ddp_rx_reader {
	u64 room;
	u64 done;
	bool give_up;
	bool fault;
	bool unstored;
	u32 need;
};

/* A call of recv() begins: what earlier ones answered has been executed. */
static inline void ddp_rx_read_begin(struct ddp_rx *rx)
{
	rx->held_back = false;
}

/* Writes records for what leads the queue. May be called again in the same call of recv(). */
enum ddp_rx_state ddp_rx_read(struct ddp_rx *rx, struct ddp_env *env, u64 avail,
			      struct ddp_rx_reader *reader);

/* Does the next octet begin an FPDU, or belong to what user space was given as octets? */
static inline bool ddp_rx_may_unbind(const struct ddp_rx *rx)
{
	return !rx->stepping;
}

/* May octets behind the hole be examined? */
static inline bool ddp_rx_may_look_ahead(const struct ddp_rx *rx)
{
	return rx->ahead && rx->up != DDP_UP_ALL && rx->handed_up && !rx->held_back;
}

#endif
