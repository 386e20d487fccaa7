// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "targets.h"

bool ddp_targets_add(struct ddp_targets *targets, u64 at, u64 next, u64 address, u32 n)
{
	struct ddp_target *target;
	u32 i;

	/* Writes of one message follow each other, in the stream and in memory. */
	for (i = targets->count; i-- > 0;) {
		target = &targets->target[i];
		if (target->next == at && target->to == address) {
			target->next = next;
			target->to += n;
			return true;
		}
	}
	if (targets->count == DDP_TARGETS_MAX)
		return false;
	target = &targets->target[targets->count++];
	target->from = address;
	target->to = address + n;
	target->first = at;
	target->next = next;
	return true;
}

/*
 * A target holds Writes without a gap between them in the stream, and `at` is none of them: either
 * all of them are behind it or none is.
 */
static bool masks(const struct ddp_target *target, u64 at)
{
	return target->first > at;
}

bool ddp_targets_gap(const struct ddp_targets *targets, u64 at, u64 from, u64 end, u64 *gap_from,
		     u64 *gap_to)
{
	bool moved = true;
	u32 i;

	/* To the first byte that no target holds. */
	while (moved && from < end) {
		moved = false;
		for (i = 0; i < targets->count; i++) {
			const struct ddp_target *target = &targets->target[i];

			if (masks(target, at) && target->from <= from && from < target->to) {
				from = target->to;
				moved = true;
			}
		}
	}
	if (from >= end)
		return false;
	*gap_from = from;
	for (i = 0; i < targets->count; i++) {
		const struct ddp_target *target = &targets->target[i];

		if (masks(target, at) && target->from > from && target->from < end)
			end = target->from;
	}
	*gap_to = end;
	return true;
}

void ddp_targets_pass(struct ddp_targets *targets, u64 at)
{
	u32 i = 0;

	while (i < targets->count) {
		if (targets->target[i].next <= at)
			targets->target[i] = targets->target[--targets->count];
		else
			i++;
	}
}
