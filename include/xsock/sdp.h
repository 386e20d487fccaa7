/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The Sockets Direct Protocol on iWARP, as it lies in RDMAP Sends (draft-pinkerton-iwarp-sdp-01,
 * docs/wire.md). Layouts and constants only, as in iwarp.h; every field is big-endian.
 *
 * The draft counts bits from the least significant end and draws them left to right: read as words
 * whose bit 31 goes first, as on InfiniBand.
 */
#ifndef XSOCK_SDP_H
#define XSOCK_SDP_H

#include "iwarp.h"

/* In front of every message. */
struct sdp_bsdh {
    iwarp_octet mid;
    iwarp_octet flags;
    iwarp_octet bufs[2]; /* free private buffers behind the last message that mseq_ack counts */
    iwarp_octet length[4];
    iwarp_octet mseq[4];
    iwarp_octet mseq_ack[4];
};
IWARP_SIZE(sdp_bsdh, 16);

#define SDP_FLAG_OOB_PRES 0x01 /* the last octet of the payload is urgent */
#define SDP_FLAG_OOB_PEND 0x02 /* urgent data exists further on */
#define SDP_FLAG_REQ_PIPE 0x04 /* RdmaRdCompl and RdmaWrCompl only */

#define SDP_HELLO 0x00
#define SDP_HELLO_ACK 0x01
#define SDP_DISCONN 0x02
#define SDP_ABORT_CONN 0x03
#define SDP_SEND_SM 0x04
#define SDP_RDMA_WR_COMPL 0x05
#define SDP_RDMA_RD_COMPL 0x06
#define SDP_MODE_CHANGE 0x07
#define SDP_SRC_AVAIL_CANCEL 0x08
#define SDP_SINK_AVAIL_CANCEL 0x09
#define SDP_SINK_CANCEL_ACK 0x0a
#define SDP_CH_RCV_BUF 0x0b
#define SDP_CH_RCV_BUF_ACK 0x0c
#define SDP_SUSP_COMM 0x0d
#define SDP_SUSP_COMM_ACK 0x0e
#define SDP_SINK_AVAIL 0xfd
#define SDP_SRC_AVAIL 0xfe
#define SDP_DATA 0xff

/* Behind the BSDH of a Hello, and of a HelloAck. */
struct sdp_hello {
    iwarp_octet version; /* MajV:4 MinV:4 */
    iwarp_octet reserved;
    iwarp_octet max_adverts[2];
    iwarp_octet desired_remote_size[4]; /* of the peer's private buffers */
    iwarp_octet local_size[4];          /* of ours */
    iwarp_octet ord[2];
    iwarp_octet ird[2];
};
IWARP_SIZE(sdp_hello, 16);

struct sdp_hello_ack {
    iwarp_octet version;
    iwarp_octet reserved;
    iwarp_octet max_adverts[2];
    iwarp_octet actual_size[4]; /* of the private buffers of the accepting peer */
    iwarp_octet ord[2];
    iwarp_octet ird[2];
};
IWARP_SIZE(sdp_hello_ack, 12);

#define SDP_VERSION 0x11
#define SDP_VERSION_MAJOR_MASK 0xf0
#define SDP_SIZE_MIN 37          /* of a private buffer: 16 + 20 + 1 */
#define SDP_SIZE_MAX 0x80000000u /* of a private buffer, and of an advertisement */

/* Behind the BSDH of RdmaWrCompl, RdmaRdCompl, ChRcvBuf and ChRcvBufAck. */
struct sdp_count {
    iwarp_octet octets[4];
};
IWARP_SIZE(sdp_count, 4);

struct sdp_mode_change {
    iwarp_octet mode; /* S:1 Mode:3 reserved:4 */
    iwarp_octet reserved[3];
};
IWARP_SIZE(sdp_mode_change, 4);

#define SDP_MODE_SEND_HALF 0x80 /* S: of the receiver's send half; else of its receive half */
#define SDP_MODE_SHIFT 4
#define SDP_MODE_MASK 0x07
#define SDP_MODE_BUFFERED 0
#define SDP_MODE_COMBINED 1
#define SDP_MODE_PIPELINED 2

struct sdp_susp_comm {
    iwarp_octet zero[4];
    iwarp_octet one[2];
    iwarp_octet port[2];
};
IWARP_SIZE(sdp_susp_comm, 8);

struct sdp_src_avail {
    iwarp_octet length[4];
    iwarp_octet stag[4];
    iwarp_octet address[8];
};
IWARP_SIZE(sdp_src_avail, 16);

struct sdp_sink_avail {
    iwarp_octet length[4];
    iwarp_octet stag[4];
    iwarp_octet address[8];
    iwarp_octet non_discards[4];
};
IWARP_SIZE(sdp_sink_avail, 20);

#endif /* XSOCK_SDP_H */
