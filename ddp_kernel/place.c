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

/* The region of an STag, held by the call of core/ until another one is asked for. */
static struct ddp_mr *look_up(struct ddp_env *env, u32 stag)
{
	struct ddp_mr *mr = env->mr;

	if (mr && mr->attr.stag == stag && ddp_mr_is_found(mr))
		return mr;
	ddp_env_end(env);
	env->mr = ddp_mr_get(env->ds->domain, stag);
	return env->mr;
}

void ddp_env_end(struct ddp_env *env)
{
	if (env->mr)
		ddp_mr_put(env->mr);
	env->mr = NULL;
}

struct ddp_mr *ddp_env_get(struct ddp_env *env, enum ddp_want want, const struct ddp_fpdu *fpdu,
			   u64 *address)
{
	struct ddp_sock *ds = env->ds;
	enum ddp_why_not why;
	struct ddp_mr *mr;

	if (!ds->bind.rights)
		return refuse(ds, fpdu, DDP_NO_RIGHTS);
	mr = look_up(env, fpdu->stag);
	if (!mr)
		return refuse(ds, fpdu, DDP_NO_REGION);
	why = why_not(ds, mr, want, fpdu);
	if (why != DDP_WHY_NOTS)
		return refuse(ds, fpdu, why);
	*address = mr->attr.address + (fpdu->to - mr->attr.first_to);
	return mr;
}

/*
 * The region stays held until ddp_env_end(): most FPDUs are for the region of the one before. Not
 * in recv(): a fault of its buffer may sleep without limit.
 */
void ddp_env_put(struct ddp_env *env, struct ddp_mr *mr)
{
	if (env->to)
		ddp_env_end(env);
}

void ddp_env_responded(struct ddp_env *env, struct ddp_mr *mr, u32 n)
{
	WRITE_ONCE(mr->responded, mr->responded + n);
}

/* The part of [address, address + n) that lies in one page, and where. */
static u8 *page_part(const struct ddp_mr *root, u64 address, u32 n, u32 *part)
{
	u64 offset = address - (root->attr.address & PAGE_MASK);

	*part = min_t(u32, n, PAGE_SIZE - offset_in_page(offset));
	return (u8 *)kmap_local_page(root->pages[offset >> PAGE_SHIFT]) + offset_in_page(offset);
}

/* Stores octets that lie in one place. */
static void store(const struct ddp_mr *root, u64 address, const u8 *from, u32 n)
{
	u32 part;

	for (; n; n -= part, address += part, from += part) {
		u8 *to = page_part(root, address, n, &part);

		if (part == sizeof(u64)) /* what programs poll */
			put_unaligned(get_unaligned((const u64 *)from), (u64 *)to);
		else
			memcpy(to, from, part);
		kunmap_local(to);
	}
}

/* The same of the queue. False: they cannot be read. */
static bool store_of_queue(struct ddp_env *env, const struct ddp_mr *root, u64 address, u64 at,
			   u32 n)
{
	bool stored = true;
	u32 part;

	for (; n && stored; n -= part, address += part, at += part) {
		u8 *to = page_part(root, address, n, &part);

		stored = ddp_queue_copy(env, at, to, part);
		kunmap_local(to);
	}
	return stored;
}

bool ddp_env_place(struct ddp_env *env, struct ddp_mr *mr, u64 address, u64 at, u32 n)
{
	const u8 *octets = ddp_queue_in_place(env, at, n);
	u8 tail[sizeof(u64)];
	u32 last = min_t(u32, n, sizeof(tail));
	u32 body = n - last;

	if (octets)
		store(mr->root, address, octets, body);
	else if (!ddp_queue_copy(env, at + body, tail, last) ||
		 !store_of_queue(env, mr->root, address, at, body))
		return false;
	smp_wmb(); /* programs poll the last octets */
	store(mr->root, address + body, octets ? octets + body : tail, last);
	ddp_count(placed, 1);
	ddp_count(placed_octets, n);
	if (env->ahead) {
		ddp_count(ahead, 1);
		ddp_count(ahead_octets, n);
	}
	trace_ddp_placed(env->ds->sk, mr->attr.stag, at, n, env->ahead);
	return true;
}
