/* SPDX-License-Identifier: GPL-2.0-only */
/* What the module has done since it was loaded: /sys/kernel/debug/ddp/counters. Any context. */
#ifndef DDP_COUNTERS_H
#define DDP_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct dentry;

/* Why a region that a segment names does not take it. */
enum ddp_why_not {
	DDP_NO_RIGHTS,	     /* the socket has none */
	DDP_NO_REGION,	     /* unknown, hidden, revoked or stale */
	DDP_NO_REGION_RIGHT, /* the region, or the socket, has not this one */
	DDP_NO_ATOMICS,	     /* behind a hole, and open to atomics */
	DDP_NO_PD,
	DDP_NO_QP,
	DDP_NO_BOUNDS,
	DDP_NO_ORDER,	     /* a Read Response that is not the next */
	DDP_WHY_NOTS,
};

/**
 * struct ddp_counters - of one processor
 * @bound: sockets
 * @unbound: of these, not any more
 * @placed: pieces of payload: one for each segment, unless a later Write masks a part of it, or
 *          markers lie in it
 * @placed_octets: in them
 * @ahead: pieces that were placed behind a hole
 * @ahead_octets: in them
 * @not_placed: look-ups that failed, by enum ddp_why_not
 * @wrong_crcs: found, behind holes by wrong guesses too
 * @regions: pinned, views included
 * @revoked: of these
 * @released: of these, and at the end of their domain
 * @release_waits: of these, found a copy under way
 * @stale: regions whose memory was unmapped, moved or emptied; one may be counted more than once
 */
struct ddp_counters {
	u64 bound;
	u64 unbound;
	u64 placed;
	u64 placed_octets;
	u64 ahead;
	u64 ahead_octets;
	u64 not_placed[DDP_WHY_NOTS];
	u64 wrong_crcs;
	u64 regions;
	u64 revoked;
	u64 released;
	u64 release_waits;
	u64 stale;
};

DECLARE_PER_CPU(struct ddp_counters, ddp_counters);

#define ddp_count(field, n) this_cpu_add(ddp_counters.field, n)

void ddp_counters_show_in(struct dentry *folder);

#endif
