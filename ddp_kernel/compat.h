/* SPDX-License-Identifier: GPL-2.0-only */
/* All that depends on the version of the kernel: 6.1, 6.12, and what is known of later ones. */
#ifndef DDP_COMPAT_H
#define DDP_COMPAT_H

#include <linux/skbuff.h>
#include <linux/version.h>

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

#endif
