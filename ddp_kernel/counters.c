// SPDX-License-Identifier: GPL-2.0-only
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "ddp.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

DEFINE_PER_CPU(struct ddp_counters, ddp_counters);

#define ROW(field) { #field, offsetof(struct ddp_counters, field) }
#define REASON(name, reason)                                                                       \
	{ "not_placed_" name, offsetof(struct ddp_counters, not_placed[reason]) }

static const struct {
	const char *name;
	size_t at;
} rows[] = {
	ROW(bound),
	ROW(unbound),
	ROW(placed),
	ROW(placed_octets),
	ROW(ahead),
	ROW(ahead_octets),
	REASON("rights", DDP_NO_RIGHTS),
	REASON("region", DDP_NO_REGION),
	REASON("region_right", DDP_NO_REGION_RIGHT),
	REASON("atomics", DDP_NO_ATOMICS),
	REASON("pd", DDP_NO_PD),
	REASON("qp", DDP_NO_QP),
	REASON("bounds", DDP_NO_BOUNDS),
	REASON("order", DDP_NO_ORDER),
	ROW(wrong_crcs),
	ROW(regions),
	ROW(revoked),
	ROW(released),
	ROW(release_waits),
	ROW(stale),
};

static int counters_show(struct seq_file *file, void *unused)
{
	size_t i;
	int cpu;

	BUILD_BUG_ON(sizeof(struct ddp_counters) != ARRAY_SIZE(rows) * sizeof(u64));
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		u64 sum = 0;

		for_each_possible_cpu(cpu)
			sum += *(u64 *)((char *)per_cpu_ptr(&ddp_counters, cpu) + rows[i].at);
		seq_printf(file, "%s %llu\n", rows[i].name, sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

void ddp_counters_show_in(struct dentry *folder)
{
	debugfs_create_file("counters", 0400, folder, NULL, &counters_fops);
}
