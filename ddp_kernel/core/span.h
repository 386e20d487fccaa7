/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Positions in the stream, compared modulo 2^64: octets from before the binding, which may lie in
 * the same buffer as those behind it, have positions below 0.
 */
#ifndef DDP_CORE_SPAN_H
#define DDP_CORE_SPAN_H

#include "types.h"

/* Does position a lie before position b? They are less than 2^63 octets apart. */
static inline bool ddp_is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* Is position `at` one of the `len` octets from `from` on? *offset: which. */
static inline bool ddp_span_has(u64 from, u32 len, u64 at, u32 *offset)
{
	if (at - from >= len)
		return false;
	*offset = (u32)(at - from);
	return true;
}

#endif
