// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "marker.h"

#define BETWEEN (DDP_MARKER_SPACING - DDP_MARKER)
#define FPDUPTR_MASK 0xfffcu /* the lowest two bits are reserved */

u32 ddp_marker_span(u64 at, u32 n)
{
	u32 until = ddp_marker_until(at);

	return n <= until ? n : n + DDP_MARKER * (1 + (n - until - 1) / BETWEEN);
}

u32 ddp_marker_piece(u64 *at, u32 n)
{
	u32 until;

	*at += ddp_marker_rest(*at);
	until = ddp_marker_until(*at);
	return n < until ? n : until;
}

u32 ddp_marker_strip(u64 at, u8 *octets, u32 n)
{
	u32 until = ddp_marker_until(at);

	if (n <= until)
		return n;
	if (n <= until + DDP_MARKER)
		return until;
	memmove(octets + until, octets + until + DDP_MARKER, n - until - DDP_MARKER);
	return n - DDP_MARKER;
}

/* Position of the FPDU's ULPDU_Length. */
static u64 length_at(const struct ddp_fpdu *fpdu)
{
	return fpdu->at + ddp_marker_rest(fpdu->at);
}

bool ddp_markers_hold(struct ddp_env *env, const struct ddp_fpdu *fpdu)
{
	u64 begin = length_at(fpdu), end = fpdu->at + fpdu->octets;
	u64 at = fpdu->at + ddp_marker_until(fpdu->at);
	u8 marker[DDP_MARKER];

	for (; at < end; at += DDP_MARKER_SPACING) {
		u32 distance = at < begin ? 0 : (u32)(at - begin);

		if (!ddp_env_peek(env, at, marker, DDP_MARKER))
			return false;
		if ((((u32)marker[2] << 8 | marker[3]) ^ distance) & FPDUPTR_MASK)
			return false;
	}
	return true;
}

/* Position of the octet of an FPDU that has so many octets of the FPDU before it. */
static u64 octet_at(const struct ddp_fpdu *fpdu, u32 before)
{
	return fpdu->at + ddp_marker_span(fpdu->at, before + 1) - 1;
}

bool ddp_marker_place(struct ddp_env *env, struct ddp_mr *mr, const struct ddp_fpdu *fpdu,
		      u64 address)
{
	u64 at = octet_at(fpdu, DDP_FPDU_HEAD);
	u32 n = fpdu->payload, piece;

	for (; n; n -= piece, at += piece, address += piece) {
		piece = ddp_marker_piece(&at, n);
		if (!ddp_env_place(env, mr, address, at, piece))
			return false;
	}
	return true;
}

bool ddp_marker_give_ulpdu(struct ddp_env *env, const struct ddp_fpdu *fpdu)
{
	u64 at = octet_at(fpdu, DDP_FPDU_LENGTH);
	u32 n = fpdu->ulpdu, piece;

	for (; n; n -= piece, at += piece) {
		piece = ddp_marker_piece(&at, n);
		if (!ddp_env_give_stream(env, at, piece))
			return false;
	}
	return true;
}
