/* SPDX-License-Identifier: GPL-2.0-only */
/* All that depends on the version of the kernel: 6.1, 6.12, and what is known of later ones. */
#ifndef DDP_COMPAT_H
#define DDP_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/skbuff.h>
#include <linux/version.h>
#include <net/tcp.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "ddp_kernel needs Linux 6.1 or later"
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>

/* Memory of a device as payload came with 6.12. */
static inline bool skb_frags_readable(const struct sk_buff *skb)
{
	return true;
}
#endif

/* proto.recvmsg() has lost its addr_len: 6.12 has it, 7.2 does not. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define DDP_ADDR_LEN_PARAMETER
#define DDP_ADDR_LEN
#else
#define DDP_ADDR_LEN_PARAMETER , int *addr_len
#define DDP_ADDR_LEN , addr_len
#endif

/* hrtimer_setup() takes the place of hrtimer_init() and an assignment in 6.15. */
static inline void ddp_timer_init(struct hrtimer *timer,
				  enum hrtimer_restart (*on_time)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	hrtimer_setup(timer, on_time, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	timer->function = on_time;
#endif
}

/* Flags of the header came with 6.15, and with a later 6.12: the declaration tells. */
static inline void ddp_send_ack(struct sock *sk)
{
	const bool flags = __builtin_types_compatible_p(typeof(__tcp_send_ack),
							void(struct sock *, u32, u16));
	const u32 next = tcp_sk(sk)->rcv_nxt;
	void *send_ack = __tcp_send_ack;

	if (flags)
		((void (*)(struct sock *, u32, u16))send_ack)(sk, next, 0);
	else
		((void (*)(struct sock *, u32))send_ack)(sk, next);
}

#endif
