// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "fpdu.h"

#define DDP_TAGGED 0x80
#define DDP_LAST 0x40
#define DDP_RESERVED 0x3c
#define DDP_DV_MASK 0x03
#define DDP_DV 1
#define RDMAP_RV_MASK 0xc0
#define RDMAP_RV 0x40
#define RDMAP_RESERVED 0x30
#define RDMAP_OPCODE 0x0f
#define RDMAP_WRITE 0x0
#define RDMAP_READ_RESPONSE 0x2
#define RDMAP_ATOMIC_REQUEST 0xa

static u32 load_be16(const u8 *at)
{
	return (u32)at[0] << 8 | at[1];
}

static u32 load_be32(const u8 *at)
{
	return load_be16(at) << 16 | load_be16(at + 2);
}

u32 ddp_fpdu_head_octets(const u8 *head, u32 n)
{
	u32 octets;

	if (n < DDP_FPDU_LENGTH)
		return DDP_FPDU_LENGTH;
	octets = ddp_fpdu_octets(load_be16(head));
	return octets < DDP_FPDU_HEAD ? octets : DDP_FPDU_HEAD;
}

void ddp_fpdu_parse(struct ddp_fpdu *fpdu, u64 at, const u8 *head)
{
	u32 ulpdu = load_be16(head);

	memset(fpdu, 0, sizeof(*fpdu));
	fpdu->at = at;
	fpdu->ulpdu = ulpdu;
	fpdu->octets = ddp_fpdu_octets(ulpdu);
	if (ulpdu < 2)
		return;
	fpdu->control = head[2];
	fpdu->rdmap = head[3];
	if (!(fpdu->control & DDP_TAGGED) || ulpdu < DDP_TAGGED_HEADER)
		return;
	memcpy(fpdu->header, head + DDP_FPDU_LENGTH, DDP_TAGGED_HEADER);
	fpdu->payload = ulpdu - DDP_TAGGED_HEADER;
	fpdu->stag = load_be32(head + 4);
	fpdu->to = (u64)load_be32(head + 8) << 32 | load_be32(head + 12);
}

static bool is_tagged(const struct ddp_fpdu *fpdu, u8 opcode)
{
	return (fpdu->control & (DDP_TAGGED | DDP_RESERVED | DDP_DV_MASK)) ==
	       (DDP_TAGGED | DDP_DV) &&
	       (fpdu->rdmap & (RDMAP_RV_MASK | RDMAP_OPCODE)) == (RDMAP_RV | opcode) &&
	       fpdu->payload != 0;
}

bool ddp_fpdu_is_write(const struct ddp_fpdu *fpdu)
{
	return is_tagged(fpdu, RDMAP_WRITE);
}

bool ddp_fpdu_is_read_response(const struct ddp_fpdu *fpdu)
{
	return is_tagged(fpdu, RDMAP_READ_RESPONSE) && !(fpdu->rdmap & RDMAP_RESERVED);
}

bool ddp_fpdu_touches_memory(const struct ddp_fpdu *fpdu)
{
	if (fpdu->control & DDP_TAGGED)
		return fpdu->payload != 0;
	return (fpdu->rdmap & RDMAP_OPCODE) == RDMAP_ATOMIC_REQUEST;
}

bool ddp_fpdu_is_last(const struct ddp_fpdu *fpdu)
{
	return fpdu->control & DDP_LAST;
}

bool ddp_fpdu_wakes(const struct ddp_fpdu *fpdu)
{
	return fpdu->rdmap & RDMAP_RESERVED;
}
