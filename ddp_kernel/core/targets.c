// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "targets.h"

/*
 * The index of the target that an FPDU makes longer: Writes of one message follow each other, in
 * the stream and in memory. Or else their count.
 */
static u32 find_before(const struct ddp_targets *targets, u64 at, u64 address)
{
	u32 i;

	for (i = targets->count; i-- > 0;)
		if (targets->target[i].next == at && targets->target[i].to == address)
			return i;
	return targets->count;
}

bool ddp_targets_room(const struct ddp_targets *targets, u64 at, u64 address)
{
	return find_before(targets, at, address) < DDP_TARGETS_MAX;
}

void ddp_targets_add(struct ddp_targets *targets, u64 at, u64 next, u64 address, u32 n)
{
	u32 index = find_before(targets, at, address);
	struct ddp_target *target = &targets->target[index];

	if (index == targets->count) {
		targets->count++;
		target->from = address;
		target->first = at;
	}
	target->to = address + n;
	target->next = next;
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
