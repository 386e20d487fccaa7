/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Markers (RFC 5044 section 4.3): four octets at each position of the stream that is a multiple of
 * 512, between the octets of FPDUs. FPDUs begin and end at multiples of four, so a marker splits
 * neither ULPDU_Length nor the CRC; one that lies directly before an FPDU belongs to it.
 */
#ifndef DDP_CORE_MARKER_H
#define DDP_CORE_MARKER_H

#include "env.h"

#define DDP_MARKER 4
#define DDP_MARKER_SPACING 512

/* Octets from position `at`, not within a marker, to the start of the next; 0: one starts there. */
static inline u32 ddp_marker_until(u64 at)
{
	return (u32)(0 - at) % DDP_MARKER_SPACING;
}

/* Octets that are left of a marker at position `at`; 0: there is none. */
static inline u32 ddp_marker_rest(u64 at)
{
	u32 offset = (u32)(at % DDP_MARKER_SPACING);

	return offset < DDP_MARKER ? DDP_MARKER - offset : 0;
}

/*
 * Octets of the stream from position `at` on that n octets of FPDU take, a marker that starts there
 * included. `at` does not lie within a marker.
 */
u32 ddp_marker_span(u64 at, u32 n);

/*
 * Of n octets of FPDU at position *at: steps over a marker there, and answers how many follow in
 * one piece.
 */
u32 ddp_marker_piece(u64 *at, u32 n);

/*
 * Takes the one marker, if any, out of n < 512 octets of the stream from position `at` on, which is
 * not within one. Answers how many octets are left.
 */
u32 ddp_marker_strip(u64 at, u8 *octets, u32 n);

/*
 * Does each marker in the octets of an FPDU, which are all there, say where the FPDU began? False
 * also where it cannot be read.
 */
bool ddp_markers_hold(struct ddp_env *env, const struct ddp_fpdu *fpdu);

/*
 * Stores the payload of an FPDU with markers, all there, at `address` of a region, piece by piece.
 * False: the octets cannot be read, and some may have been stored.
 */
bool ddp_marker_place(struct ddp_env *env, struct ddp_mr *mr, const struct ddp_fpdu *fpdu,
		      u64 address);

/* Appends the ULPDU of such an FPDU to the reader's buffer. False: as ddp_env_give_stream(). */
bool ddp_marker_give_ulpdu(struct ddp_env *env, const struct ddp_fpdu *fpdu);

#endif
