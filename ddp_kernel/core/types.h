/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What core/ needs of its surroundings' language: integers and memcpy(). The only file here that
 * tells the kernel from user space.
 */
#ifndef DDP_CORE_TYPES_H
#define DDP_CORE_TYPES_H

#ifdef __KERNEL__
#include <linux/string.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

#endif
