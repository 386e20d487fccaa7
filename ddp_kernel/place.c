// SPDX-License-Identifier: GPL-2.0-only
/* From the queue into pinned pages: the regions' side of core/env.h. Any context. */
#include <linux/highmem.h>

#include "ddp.h"
#include "trace.h"

static struct ddp_mr *refuse(const struct ddp_sock *ds, const struct ddp_fpdu *fpdu,
			     enum ddp_why_not why)
{
	ddp_count(not_placed[why], 1);
	trace_ddp_not_placed(ds->sk, fpdu, why);
	return NULL;
}

/* DDP_WHY_NOTS: it may be placed. */
static enum ddp_why_not why_not(const struct ddp_sock *ds, const struct ddp_mr *mr,
				enum ddp_want want, const struct ddp_fpdu *fpdu)
{
	const struct ddp_region *attr = &mr->attr;
	u32 right = want == DDP_WANT_RESPONSE ? DDP_RIGHT_READ_SINK : DDP_RIGHT_WRITE;
	u64 offset = fpdu->to - attr->first_to;

	if (!(ds->bind.rights & attr->rights & right))
		return DDP_NO_REGION_RIGHT;
	if (want == DDP_WANT_WRITE_AHEAD && attr->rights & DDP_RIGHT_ATOMIC)
		return DDP_NO_ATOMICS;
	if (attr->pd != ds->bind.pd)
		return DDP_NO_PD;
	if (attr->qp && attr->qp != ds->bind.qp)
		return DDP_NO_QP;
	if (fpdu->to < attr->first_to || offset > attr->length ||
	    fpdu->payload > attr->length - offset)
		return DDP_NO_BOUNDS;
	if (want == DDP_WANT_RESPONSE && offset != READ_ONCE(mr->responded))
		return DDP_NO_ORDER;
	return DDP_WHY_NOTS;
}

struct ddp_mr *ddp_env_get(struct ddp_env *env, enum ddp_want want, const struct ddp_fpdu *fpdu,
			   u64 *address)
{
	struct ddp_sock *ds = env->ds;
	enum ddp_why_not why;
	struct ddp_mr *mr;

	if (!ds->bind.rights)
		return refuse(ds, fpdu, DDP_NO_RIGHTS);
	mr = ddp_mr_get(ds->domain, fpdu->stag);
	if (!mr)
		return refuse(ds, fpdu, DDP_NO_REGION);
	why = why_not(ds, mr, want, fpdu);
	if (why == DDP_WHY_NOTS) {
		*address = mr->attr.address + (fpdu->to - mr->attr.first_to);
		return mr;
	}
	ddp_mr_put(mr);
	return refuse(ds, fpdu, why);
}

void ddp_env_put(struct ddp_env *env, struct ddp_mr *mr)
{
	ddp_mr_put(mr);
}

void ddp_env_responded(struct ddp_env *env, struct ddp_mr *mr, u32 n)
{
	WRITE_ONCE(mr->responded, mr->responded + n);
}

/* Calls for each page that [address, address + n) touches: the octets at `from`, or the queue's. */
static bool fill(struct ddp_env *env, struct ddp_mr *root, u64 address, u64 at, const u8 *from,
		 u32 n)
{
	u64 offset = address - (root->attr.address & PAGE_MASK);
	bool filled = true;

	while (n && filled) {
		u32 in_page = offset_in_page(offset);
		u32 part = min_t(u32, n, PAGE_SIZE - in_page);
		u8 *to = kmap_local_page(root->pages[offset >> PAGE_SHIFT]);

		if (!from) {
			filled = ddp_queue_copy(env, at, to + in_page, part);
		} else if (part == sizeof(u64)) {
			put_unaligned(get_unaligned((const u64 *)from), (u64 *)(to + in_page));
			from += part;
		} else {
			memcpy(to + in_page, from, part);
			from += part;
		}
		kunmap_local(to);
		offset += part;
		at += part;
		n -= part;
	}
	return filled;
}

bool ddp_env_place(struct ddp_env *env, struct ddp_mr *mr, u64 address, u64 at, u32 n)
{
	u8 tail[sizeof(u64)];
	u32 last = min_t(u32, n, sizeof(tail));
	u32 body = n - last;

	if (!ddp_queue_copy(env, at + body, tail, last))
		return false;
	if (!fill(env, mr->root, address, at, NULL, body))
		return false;
	smp_wmb(); /* programs poll the last octets */
	if (!fill(env, mr->root, address + body, at + body, tail, last))
		return false;
	ddp_count(placed, 1);
	ddp_count(placed_octets, n);
	if (env->ahead) {
		ddp_count(ahead, 1);
		ddp_count(ahead_octets, n);
	}
	trace_ddp_placed(env->ds->sk, mr->attr.stag, at, n, env->ahead);
	return true;
}
