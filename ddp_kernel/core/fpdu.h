/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One FPDU (RFC 5044 section 4) as its first octets describe it. Pure functions of those octets,
 * which the caller has copied: the originals may change under us.
 */
#ifndef DDP_CORE_FPDU_H
#define DDP_CORE_FPDU_H

#include "types.h"

#define DDP_FPDU_LENGTH 2	/* octets of ULPDU_Length */
#define DDP_FPDU_CRC 4
#define DDP_FPDU_HEAD 16	/* ULPDU_Length and a tagged DDP header */
#define DDP_TAGGED_HEADER 14

/* Of ddp_fpdu.control */
#define DDP_FPDU_TAGGED 0x80
#define DDP_FPDU_LAST 0x40
#define DDP_FPDU_RESERVED 0x3c
#define DDP_FPDU_VERSION_MASK 0x03
#define DDP_FPDU_VERSION 1
/* and of ddp_fpdu.rdmap */
#define DDP_RDMAP_VERSION_MASK 0xc0
#define DDP_RDMAP_VERSION 0x40
#define DDP_RDMAP_RESERVED 0x30
#define DDP_RDMAP_OPCODE 0x0f
#define DDP_RDMAP_WRITE 0x0
#define DDP_RDMAP_READ_RESPONSE 0x2
#define DDP_RDMAP_ATOMIC_REQUEST 0xa

/**
 * struct ddp_fpdu - what a header says, in host order
 * @at: position in the stream of its ULPDU_Length, or of a marker directly before that
 * @octets: of the stream: length, ULPDU, pad and CRC, and the markers among them
 * @ulpdu: octets of the ULPDU
 * @payload: octets behind the tagged header; 0 if it is not tagged
 * @stag: of a tagged one
 * @to: tagged offset
 * @control: DDP's control octet; 0 if the ULPDU has none
 * @rdmap: RDMAP's control octet
 * @header: the tagged header as it came
 */
struct ddp_fpdu {
	u64 at;
	u64 to;
	u32 octets;
	u32 ulpdu;
	u32 payload;
	u32 stag;
	u8 control;
	u8 rdmap;
	u8 header[DDP_TAGGED_HEADER];
};

/* Octets of an FPDU with a ULPDU of so many. */
static inline u32 ddp_fpdu_octets(u32 ulpdu)
{
	return ((DDP_FPDU_LENGTH + ulpdu + 3) & ~3u) + DDP_FPDU_CRC;
}

/*
 * Octets from the start of an FPDU that have to be there to know what it is; head[] holds n of
 * them, n >= 2 where the answer is to be final.
 */
u32 ddp_fpdu_head_octets(const u8 *head, u32 n);

/* Reads the header. head[] holds ddp_fpdu_head_octets(). */
void ddp_fpdu_parse(struct ddp_fpdu *fpdu, u64 at, const u8 *head);

static inline bool ddp_fpdu_is_tagged(const struct ddp_fpdu *fpdu, u8 opcode)
{
	return (fpdu->control & (DDP_FPDU_TAGGED | DDP_FPDU_RESERVED | DDP_FPDU_VERSION_MASK)) ==
	       (DDP_FPDU_TAGGED | DDP_FPDU_VERSION) &&
	       (fpdu->rdmap & (DDP_RDMAP_VERSION_MASK | DDP_RDMAP_OPCODE)) ==
	       (DDP_RDMAP_VERSION | opcode) &&
	       fpdu->payload != 0;
}

/* A tagged segment with payload, in a form that no rule of DDP or RDMAP objects to. */
static inline bool ddp_fpdu_is_write(const struct ddp_fpdu *fpdu)
{
	return ddp_fpdu_is_tagged(fpdu, DDP_RDMAP_WRITE);
}

static inline bool ddp_fpdu_is_read_response(const struct ddp_fpdu *fpdu)
{
	return ddp_fpdu_is_tagged(fpdu, DDP_RDMAP_READ_RESPONSE) &&
	       !(fpdu->rdmap & DDP_RDMAP_RESERVED);
}

/* User space will touch memory that peers can name, when it executes this. */
static inline bool ddp_fpdu_touches_memory(const struct ddp_fpdu *fpdu)
{
	if (fpdu->control & DDP_FPDU_TAGGED)
		return fpdu->payload != 0;
	return (fpdu->rdmap & DDP_RDMAP_OPCODE) == DDP_RDMAP_ATOMIC_REQUEST;
}

static inline bool ddp_fpdu_is_last(const struct ddp_fpdu *fpdu)
{
	return fpdu->control & DDP_FPDU_LAST;
}

/* Reserved bits of RDMAP are set: the peer wants an answer. */
static inline bool ddp_fpdu_wakes(const struct ddp_fpdu *fpdu)
{
	return fpdu->rdmap & DDP_RDMAP_RESERVED;
}

/* Position of the payload of a tagged FPDU without markers. */
static inline u64 ddp_fpdu_payload_at(const struct ddp_fpdu *fpdu)
{
	return fpdu->at + DDP_FPDU_HEAD;
}

#endif
