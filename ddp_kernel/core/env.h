/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What core/ asks of whoever embeds it: the octets of one socket's queue, and the regions of its
 * domain. Resolved by the linker: the module defines these functions over sk_buffs and pinned
 * pages, tests over arrays.
 *
 * Positions count octets of the stream. Within one call of core/, positions of FPDUs rise; inside
 * of an FPDU they may be asked for again.
 */
#ifndef DDP_CORE_ENV_H
#define DDP_CORE_ENV_H

#include "fpdu.h"

struct ddp_env; /* a socket, and its queue while a call lasts */
struct ddp_mr;	/* a region, held so that it stays pinned */

/*
 * Copies n octets from position `at` on, which are all there. False: they cannot be read (memory of
 * a device). Then the embedder calls core/ no more, and the reader learns of it.
 */
bool ddp_env_peek(struct ddp_env *env, u64 at, void *to, u32 n);

/*
 * Whether the CRC of an FPDU of so many octets at `at` holds; all of them are there. False where
 * the octets cannot be read.
 */
bool ddp_env_crc_holds(struct ddp_env *env, u64 at, u32 octets);

enum ddp_want {
	DDP_WANT_WRITE,
	DDP_WANT_WRITE_AHEAD, /* behind a hole: no region that is open to atomics */
	DDP_WANT_RESPONSE,
};

/*
 * The region that the payload of `fpdu` may be stored in, held until ddp_env_put() at least, and
 * the address of its first byte. NULL: unknown, revoked, stale, no right, not of this QP or PD, out
 * of bounds.
 */
struct ddp_mr *ddp_env_get(struct ddp_env *env, enum ddp_want want, const struct ddp_fpdu *fpdu,
			   u64 *address);
void ddp_env_put(struct ddp_env *env, struct ddp_mr *mr);

/*
 * Stores n octets of the stream from position `at` on at `address`, of a part of the region that
 * ddp_env_get() has found; the last eight behind the others. False: the octets cannot be read, and
 * some may have been stored.
 */
bool ddp_env_place(struct ddp_env *env, struct ddp_mr *mr, u64 address, u64 at, u32 n);

/* A Read Response of n octets was placed in the region. */
void ddp_env_responded(struct ddp_env *env, struct ddp_mr *mr, u32 n);

/*
 * Appends to the reader's buffer: bytes, or octets of the stream. False: a fault, or they cannot be
 * read.
 */
bool ddp_env_give(struct ddp_env *env, const void *from, u32 n);
bool ddp_env_give_stream(struct ddp_env *env, u64 at, u32 n);
/* Steps over bytes of it, which there is room for: they stay as they are. */
void ddp_env_skip(struct ddp_env *env, u32 n);

#endif
