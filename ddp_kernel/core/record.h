/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Writes records (xsock/ddp_uapi.h) into the buffer of a recv(), whole ones only. */
#ifndef DDP_CORE_RECORD_H
#define DDP_CORE_RECORD_H

#include "../../include/xsock/ddp_uapi.h"
#include "rx.h"

/* Octets for which a record would find room. */
u64 ddp_record_room(const struct ddp_rx_reader *reader);

/* All answer false where there is no room, or on a fault; nothing is written then that counts. */

/* A record of n octets of the stream from `at` on. */
bool ddp_record_octets(struct ddp_env *env, struct ddp_rx_reader *reader, u16 type, u64 at, u32 n);
/* One of the ULPDU of an FPDU with markers. */
bool ddp_record_marked_ulpdu(struct ddp_env *env, struct ddp_rx_reader *reader,
			     const struct ddp_fpdu *fpdu);
bool ddp_record_response(struct ddp_env *env, struct ddp_rx_reader *reader,
			 const struct ddp_fpdu *fpdu);
/* The Writes that were consumed and not told of, if any. */
bool ddp_record_pending(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader);

#endif
