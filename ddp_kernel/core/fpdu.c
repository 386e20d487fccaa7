// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "fpdu.h"

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
	if (!(fpdu->control & DDP_FPDU_TAGGED) || ulpdu < DDP_TAGGED_HEADER)
		return;
	memcpy(fpdu->header, head + DDP_FPDU_LENGTH, DDP_TAGGED_HEADER);
	fpdu->payload = ulpdu - DDP_TAGGED_HEADER;
	fpdu->stag = load_be32(head + 4);
	fpdu->to = (u64)load_be32(head + 8) << 32 | load_be32(head + 12);
}
