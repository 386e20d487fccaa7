/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints, /sys/kernel/tracing/events/ddp_kernel. A socket is shown by its ports, a region by
 * its STag.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ddp_kernel

#if !defined(DDP_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DDP_TRACE_H

#include <linux/tracepoint.h>
#include <net/inet_sock.h>

#include "counters.h"

#define DDP_SHOW_REASON(reason)                                                                    \
	__print_symbolic(reason, { DDP_NO_RIGHTS, "rights of the socket" },                        \
			 { DDP_NO_REGION, "region" }, { DDP_NO_REGION_RIGHT, "right" },            \
			 { DDP_NO_ATOMICS, "atomics" }, { DDP_NO_PD, "PD" }, { DDP_NO_QP, "QP" },  \
			 { DDP_NO_BOUNDS, "bounds" }, { DDP_NO_ORDER, "order" })

#define DDP_PORTS_FIELDS __field(u16, sport) __field(u16, dport)
#define DDP_PORTS_ASSIGN(sk)                                                                       \
	do {                                                                                       \
		__entry->sport = ntohs(inet_sk(sk)->inet_sport);                                   \
		__entry->dport = ntohs(inet_sk(sk)->inet_dport);                                   \
	} while (0)

TRACE_EVENT(ddp_bind,
	TP_PROTO(const struct sock *sk, const struct ddp_bind *bind),
	TP_ARGS(sk, bind),
	TP_STRUCT__entry(
		DDP_PORTS_FIELDS
		__field(u32, pd)
		__field(u32, qp)
		__field(u32, rights)
		__field(u32, flags)
	),
	TP_fast_assign(
		DDP_PORTS_ASSIGN(sk);
		__entry->pd = bind->pd;
		__entry->qp = bind->qp;
		__entry->rights = bind->rights;
		__entry->flags = bind->flags;
	),
	TP_printk("sport=%u dport=%u pd=%u qp=%u rights=%#x flags=%#x", __entry->sport,
		  __entry->dport, __entry->pd, __entry->qp, __entry->rights, __entry->flags)
);

TRACE_EVENT(ddp_unbind,
	TP_PROTO(const struct sock *sk, u64 octets),
	TP_ARGS(sk, octets),
	TP_STRUCT__entry(
		DDP_PORTS_FIELDS
		__field(u64, octets)
	),
	TP_fast_assign(
		DDP_PORTS_ASSIGN(sk);
		__entry->octets = octets;
	),
	TP_printk("sport=%u dport=%u octets=%llu", __entry->sport, __entry->dport,
		  __entry->octets)
);

TRACE_EVENT(ddp_placed,
	TP_PROTO(const struct sock *sk, u32 stag, u64 at, u32 octets, bool ahead),
	TP_ARGS(sk, stag, at, octets, ahead),
	TP_STRUCT__entry(
		DDP_PORTS_FIELDS
		__field(u32, stag)
		__field(u64, at)
		__field(u32, octets)
		__field(bool, ahead)
	),
	TP_fast_assign(
		DDP_PORTS_ASSIGN(sk);
		__entry->stag = stag;
		__entry->at = at;
		__entry->octets = octets;
		__entry->ahead = ahead;
	),
	TP_printk("sport=%u dport=%u stag=%#x at=%llu octets=%u%s", __entry->sport,
		  __entry->dport, __entry->stag, __entry->at, __entry->octets,
		  __entry->ahead ? " behind a hole" : "")
);

TRACE_EVENT(ddp_not_placed,
	TP_PROTO(const struct sock *sk, const struct ddp_fpdu *fpdu, enum ddp_why_not why),
	TP_ARGS(sk, fpdu, why),
	TP_STRUCT__entry(
		DDP_PORTS_FIELDS
		__field(u32, stag)
		__field(u64, to)
		__field(u32, octets)
		__field(int, why)
	),
	TP_fast_assign(
		DDP_PORTS_ASSIGN(sk);
		__entry->stag = fpdu->stag;
		__entry->to = fpdu->to;
		__entry->octets = fpdu->payload;
		__entry->why = why;
	),
	TP_printk("sport=%u dport=%u stag=%#x to=%llu octets=%u: %s", __entry->sport,
		  __entry->dport, __entry->stag, __entry->to, __entry->octets,
		  DDP_SHOW_REASON(__entry->why))
);

DECLARE_EVENT_CLASS(ddp_region,
	TP_PROTO(u32 stag, u64 address, u64 length),
	TP_ARGS(stag, address, length),
	TP_STRUCT__entry(
		__field(u32, stag)
		__field(u64, address)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->stag = stag;
		__entry->address = address;
		__entry->length = length;
	),
	TP_printk("stag=%#x address=%#llx length=%llu", __entry->stag, __entry->address,
		  __entry->length)
);

DEFINE_EVENT(ddp_region, ddp_revoke,
	TP_PROTO(u32 stag, u64 address, u64 length),
	TP_ARGS(stag, address, length)
);

DEFINE_EVENT(ddp_region, ddp_release,
	TP_PROTO(u32 stag, u64 address, u64 length),
	TP_ARGS(stag, address, length)
);

DEFINE_EVENT(ddp_region, ddp_stale,
	TP_PROTO(u32 stag, u64 address, u64 length),
	TP_ARGS(stag, address, length)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
