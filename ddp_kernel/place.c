// SPDX-License-Identifier: GPL-2.0-only
/* From the queue into pinned pages: the regions' side of core/env.h. Any context. */
#include <linux/highmem.h>

#include "ddp.h"

static bool may_place(const struct ddp_sock *ds, const struct ddp_mr *mr, enum ddp_want want)
{
	const struct ddp_region *attr = &mr->attr;
	u32 right = want == DDP_WANT_RESPONSE ? DDP_RIGHT_READ_SINK : DDP_RIGHT_WRITE;

	if (!(ds->bind.rights & attr->rights & right))
		return false;
	if (want == DDP_WANT_WRITE_AHEAD && attr->rights & DDP_RIGHT_ATOMIC)
		return false;
	return attr->pd == ds->bind.pd && (!attr->qp || attr->qp == ds->bind.qp);
}

struct ddp_mr *ddp_env_get(struct ddp_env *env, enum ddp_want want, const struct ddp_fpdu *fpdu,
			   u64 *address)
{
	struct ddp_sock *ds = env->ds;
	struct ddp_mr *mr;
	u64 offset;

	if (!ds->bind.rights)
		return NULL;
	mr = ddp_mr_get(ds->domain, fpdu->stag);
	if (!mr)
		return NULL;
	offset = fpdu->to - mr->attr.first_to;
	if (may_place(ds, mr, want) && fpdu->to >= mr->attr.first_to &&
	    offset <= mr->attr.length && fpdu->payload <= mr->attr.length - offset &&
	    (want != DDP_WANT_RESPONSE || offset == READ_ONCE(mr->responded))) {
		*address = mr->attr.address + offset;
		return mr;
	}
	ddp_mr_put(mr);
	return NULL;
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
	return fill(env, mr->root, address + body, at + body, tail, last);
}
