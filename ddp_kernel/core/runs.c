// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "runs.h"

/* Index of the first run that ends behind `at`; count if there is none. */
static u32 first_behind(const struct ddp_runs *runs, u64 at)
{
	u32 low = 0, high = runs->count;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (runs->run[middle].to <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void remove_runs(struct ddp_runs *runs, u32 index, u32 n)
{
	runs->count -= n;
	memmove(&runs->run[index], &runs->run[index + n],
		(runs->count - index) * sizeof(runs->run[0]));
}

const struct ddp_run *ddp_runs_find(const struct ddp_runs *runs, u64 at)
{
	u32 index = first_behind(runs, at);

	return index < runs->count ? &runs->run[index] : NULL;
}

bool ddp_runs_room(const struct ddp_runs *runs, u64 from, u64 to)
{
	u32 index;

	if (runs->count < DDP_RUNS_MAX)
		return true;
	index = first_behind(runs, from);
	return (index > 0 && runs->run[index - 1].to == from) ||
	       (index < runs->count && runs->run[index].from == to);
}

void ddp_runs_add(struct ddp_runs *runs, const struct ddp_fpdu *fpdu)
{
	u64 from = fpdu->at, to = from + fpdu->octets;
	u32 index = first_behind(runs, from);
	struct ddp_run *next = &runs->run[index];
	struct ddp_run *before = index > 0 ? next - 1 : NULL;

	if (before && before->to == from) {
		ddp_tally_fpdu(&before->tally, fpdu);
		before->to = to;
		if (index < runs->count && next->from == to) {
			ddp_tally_join(&before->tally, &next->tally);
			before->to = next->to;
			remove_runs(runs, index, 1);
		}
		return;
	}
	if (index < runs->count && next->from == to) {
		struct ddp_tally first = { 0 };

		ddp_tally_fpdu(&first, fpdu);
		ddp_tally_join(&first, &next->tally);
		next->tally = first;
		next->from = from;
		return;
	}
	memmove(next + 1, next, (runs->count - index) * sizeof(*next));
	runs->count++;
	memset(next, 0, sizeof(*next));
	next->from = from;
	next->to = to;
	ddp_tally_fpdu(&next->tally, fpdu);
}

bool ddp_runs_take(struct ddp_runs *runs, u64 at, struct ddp_run *taken)
{
	u32 passed = 0;

	while (passed < runs->count && runs->run[passed].from < at)
		passed++;
	if (passed)
		remove_runs(runs, 0, passed);
	if (!runs->count || runs->run[0].from != at)
		return false;
	*taken = runs->run[0];
	remove_runs(runs, 0, 1);
	return true;
}
