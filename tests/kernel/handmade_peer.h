/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A TCP peer made by hand: its segments overlap, differ, leave holes and have any flag, as no
 * kernel's would. It is on the end d1 of a veth pair, which has no address, and is found as
 * 198.18.80.2 by what has 198.18.80.1 on the other end, d0 (the caller makes both).
 */
#ifndef DDP_TESTS_HANDMADE_PEER_H
#define DDP_TESTS_HANDMADE_PEER_H

#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAX 1400 /* octets of payload */

/* Flags of a segment, beside ACK */
#define SEGMENT_FIN 0x01
#define SEGMENT_RST 0x04
#define SEGMENT_URG 0x20

struct peer {
	int packets;	/* what d0 sends */
	uint16_t port, kernel_port;
	uint32_t first;	/* sequence number of the stream's first octet */
	uint32_t ack;	/* of what the kernel sends, the next */
	uint32_t acked;	/* octets of the stream that the kernel has acknowledged */
};

/*
 * Connects a socket of the kernel, which is returned, with `peer`. No options are agreed on: no
 * window scale, timestamps or SACK.
 */
int peer_connect(struct peer *peer);
void peer_close(struct peer *peer);

/* Sends n <= SEGMENT_MAX octets as those from position `at` of the stream on. */
void peer_send(struct peer *peer, uint32_t at, const void *octets, size_t n, int flags);

/* Takes what the kernel has sent, up to now. */
void peer_hear(struct peer *peer);

#endif
