/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The iWARP wire: MPA (RFC 5044, 6581), DDP (RFC 5041), RDMAP (RFC 5040, 7306).
 *
 * Layouts and constants only, as they lie on the wire. Every multi-octet field is big-endian unless
 * it says otherwise, and is declared as octets, so that it cannot be read without converting.
 * Compiles as C11, C++20 and in the kernel.
 */
#ifndef XSOCK_IWARP_H
#define XSOCK_IWARP_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef __u8 iwarp_octet;
#else
#include <stdint.h>
typedef uint8_t iwarp_octet;
#endif

#ifdef __cplusplus
#define IWARP_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define IWARP_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

/* ---- MPA start-up, RFC 5044 section 7.1.1 and RFC 6581 section 6 --------- */

#define MPA_KEY_REQUEST "MPA ID Req Frame" /* 16 octets, no NUL on the wire */
#define MPA_KEY_REPLY "MPA ID Rep Frame"
#define MPA_KEY_OCTETS 16

/* Request and Reply start with this; private data follows. */
struct mpa_frame {
    iwarp_octet key[MPA_KEY_OCTETS];
    iwarp_octet flags;
    iwarp_octet revision;
    iwarp_octet pd_length[2]; /* octets of private data, enhanced data included */
};
IWARP_SIZE(mpa_frame, 20);

#define MPA_FLAG_MARKERS 0x80  /* M: sender of the frame wants markers in what it receives */
#define MPA_FLAG_CRC 0x40      /* C: sender of the frame prefers CRCs */
#define MPA_FLAG_REJECT 0x20   /* R: Reply only */
#define MPA_FLAG_ENHANCED 0x10 /* S: RFC 6581, revision 2 */
#define MPA_FLAG_SIW_GSO 0x08  /* private to Linux siw: FPDUs may exceed the MSS */
/* The xsock mark (docs/wire.md): set in our Request; our Reply clears it and sets
 * the other. An implementation that only echoes reserved bits is not taken for us. */
#define MPA_FLAG_XSOCK_REQUEST 0x04
#define MPA_FLAG_XSOCK_REPLY 0x02
/* Beside the mark in Request and Reply: an extension frame follows, each way. */
#define MPA_FLAG_EXTENSIONS 0x01

#define MPA_REVISION_1 1 /* RFC 5044 */
#define MPA_REVISION_2 2 /* RFC 6581 */
#define MPA_PD_MAX 512
/* What Linux and its drivers take; siw crashes on more in a Reply. */
#define MPA_PD_MAX_OTHERS 256

/* RFC 6581 section 9: first four octets of the private data when S is set. */
struct mpa_enhanced {
    iwarp_octet ird[2]; /* A:1 B:1 IRD:14 */
    iwarp_octet ord[2]; /* C:1 D:1 ORD:14 */
};
IWARP_SIZE(mpa_enhanced, 4);

#define MPA_ENH_P2P 0x8000       /* A, in ird: peer-to-peer model */
#define MPA_ENH_RTR_SEND 0x4000  /* B, in ird: zero-length Send (FULPDU) */
#define MPA_ENH_RTR_WRITE 0x8000 /* C, in ord: zero-length RDMA Write */
#define MPA_ENH_RTR_READ 0x4000  /* D, in ord: zero-length RDMA Read */
#define MPA_ENH_DEPTH_MASK 0x3fff
#define MPA_ENH_DEPTH_NONE 0x3fff /* do not negotiate */

/* ---- FPDU, RFC 5044 section 4 -------------------------------------------- */

#define MPA_LENGTH_OCTETS 2
#define MPA_CRC_OCTETS 4 /* stored least significant octet first */
#define MPA_ULPDU_MAX 65535
#define MPA_MARKER_SPACING 512 /* octets of stream from marker start to marker start */
#define MPA_MARKER_OCTETS 4
#define MPA_MULPDU_MIN 128

struct mpa_marker {
    iwarp_octet reserved[2];
    iwarp_octet fpduptr[2]; /* octets back to the ULPDU_Length; 0: between FPDUs */
};
IWARP_SIZE(mpa_marker, 4);

/* ---- Extension frames between xsocks, docs/wire.md ------------------------ */

/*
 * An FPDU in shape, with an RDMAP opcode and a queue that no RFC uses, so that a
 * dissector keeps its footing. TLVs, pad and CRC32c (always there) follow.
 */
struct mpa_extension_frame {
    iwarp_octet ulpdu_length[2]; /* from control up to the last TLV */
    iwarp_octet control;         /* DDP_FLAG_LAST | DDP_VERSION */
    iwarp_octet rdmap;           /* RDMAP_VERSION | MPA_EXTENSION_OPCODE */
    iwarp_octet stag[4];         /* 0 */
    iwarp_octet qn[4];
    iwarp_octet msn[4];
    iwarp_octet mo[4];
    iwarp_octet version;
    iwarp_octet reserved; /* sent as 0, ignored */
    iwarp_octet tlvs_length[2];
};
IWARP_SIZE(mpa_extension_frame, 24);

#define MPA_EXTENSION_OPCODE 0xf
#define MPA_EXTENSION_QN 5
#define MPA_EXTENSION_MSN 1
#define MPA_EXTENSION_VERSION 1
#define MPA_EXTENSION_TLVS_MAX 1024

/* Types ascend, each comes at most once; the value follows. Unknown types are skipped. */
struct mpa_tlv {
    iwarp_octet type[2];
    iwarp_octet length[2]; /* octets of the value */
};
IWARP_SIZE(mpa_tlv, 4);

#define MPA_TLV_IMPLEMENTATION 1

/*
 * Value of MPA_TLV_IMPLEMENTATION. Then: length of the name in one octet, name,
 * length of the version in one octet, version; both ASCII. What follows is ignored.
 */
struct mpa_tlv_implementation {
    iwarp_octet features[8];       /* MPA_FEATURE_* */
    iwarp_octet delayed_ack_ms[2]; /* 0 without MPA_FEATURE_DELAYED_ACK */
};
IWARP_SIZE(mpa_tlv_implementation, 10);

#define MPA_TLV_TEXT_MAX 64 /* octets of name, and of version */

#define MPA_FEATURE_SEND_IMMEDIATE 0x01 /* Send with Immediate */
#define MPA_FEATURE_ACKNOWLEDGE 0x02
#define MPA_FEATURE_DATAGRAMS 0x04   /* datagram carriers */
#define MPA_FEATURE_HAND_OVER 0x08   /* of streams */
#define MPA_FEATURE_DELAYED_ACK 0x10 /* its delayed ACK takes at most delayed_ack_ms */
#define MPA_FEATURE_RNR 0x20         /* Acknowledges that tell of a message without a receive */

/* No value: the end that sends it asks that each FPDU of the peer lie in one TCP segment. */
#define MPA_TLV_ALIGN 2

/*
 * Values of the TLVs by which two ends agree on shared memory. Addresses are IPv6, those of IPv4
 * as ::ffff:a.b.c.d. What follows the fields is ignored.
 */
#define MPA_TLV_SHM_OFFER 3 /* of the responder */
struct mpa_tlv_shm_offer {
    iwarp_octet version; /* MPA_SHM_VERSION; another is no offer */
    iwarp_octet reserved;
    iwarp_octet key[16];
    iwarp_octet token[8];
    iwarp_octet local_address[16]; /* as the responder sees them */
    iwarp_octet local_port[2];
    iwarp_octet peer_address[16];
    iwarp_octet peer_port[2];
};
IWARP_SIZE(mpa_tlv_shm_offer, 62);

#define MPA_SHM_VERSION 1

#define MPA_TLV_SHM_ANSWER 4 /* of the initiator */
struct mpa_tlv_shm_answer {
    iwarp_octet result; /* 1: shared memory; 0: TCP, for this reason */
    iwarp_octet reason;
    iwarp_octet link[8];
    iwarp_octet slot[2];
    iwarp_octet generation[4];
};
IWARP_SIZE(mpa_tlv_shm_answer, 16);

/* ---- DDP, RFC 5041 section 4 --------------------------------------------- */

#define DDP_FLAG_TAGGED 0x80
#define DDP_FLAG_LAST 0x40
#define DDP_VERSION_MASK 0x03
#define DDP_VERSION 1

struct ddp_tagged {
    iwarp_octet control; /* T:1 L:1 reserved:4 DV:2 */
    iwarp_octet rdmap;   /* RV:2 reserved:2 opcode:4 */
    iwarp_octet stag[4];
    iwarp_octet to[8];
};
IWARP_SIZE(ddp_tagged, 14);

struct ddp_untagged {
    iwarp_octet control;
    iwarp_octet rdmap;
    iwarp_octet invalidate_stag[4]; /* opcodes with Invalidate, and RDMAP_SEND_IMMEDIATE up to
                                       RDMAP_ACKNOWLEDGE; else reserved */
    iwarp_octet qn[4];
    iwarp_octet msn[4];
    iwarp_octet mo[4];
};
IWARP_SIZE(ddp_untagged, 18);

/* What RDMAP_ACKNOWLEDGE has there: a number of messages, modulo 2^31. */
#define RDMAP_ACKNOWLEDGE_MASK 0x7fffffff
#define RDMAP_ACKNOWLEDGE_RNR 0x80000000 /* the next one finds no receive */

#define DDP_QN_SEND 0
#define DDP_QN_READ_REQUEST 1
#define DDP_QN_TERMINATE 2
#define DDP_QN_ATOMIC_RESPONSE 3 /* RFC 7306 */
#define DDP_QN_ACKNOWLEDGE 4     /* between xsocks, docs/wire.md */

/* ---- RDMAP, RFC 5040 section 4 ------------------------------------------- */

#define RDMAP_VERSION_MASK 0xc0
#define RDMAP_VERSION 0x40     /* RV = 1 */
#define RDMAP_ACK_REQUEST 0x10 /* between xsocks, docs/wire.md; reserved otherwise */
#define RDMAP_OPCODE_MASK 0x0f

#define RDMAP_WRITE 0x0
#define RDMAP_READ_REQUEST 0x1
#define RDMAP_READ_RESPONSE 0x2
#define RDMAP_SEND 0x3
#define RDMAP_SEND_INVALIDATE 0x4
#define RDMAP_SEND_SE 0x5
#define RDMAP_SEND_SE_INVALIDATE 0x6
#define RDMAP_TERMINATE 0x7
#define RDMAP_IMMEDIATE 0x8 /* RFC 7306 from here */
#define RDMAP_IMMEDIATE_SE 0x9
#define RDMAP_ATOMIC_REQUEST 0xa
#define RDMAP_ATOMIC_RESPONSE 0xb
#define RDMAP_SEND_IMMEDIATE 0xc /* between xsocks from here, docs/wire.md */
#define RDMAP_SEND_SE_IMMEDIATE 0xd
#define RDMAP_ACKNOWLEDGE 0xe

struct rdmap_read_request {
    iwarp_octet sink_stag[4];
    iwarp_octet sink_to[8];
    iwarp_octet size[4];
    iwarp_octet source_stag[4];
    iwarp_octet source_to[8];
};
IWARP_SIZE(rdmap_read_request, 28);

/* RFC 7306 section 5.2. Operands are numbers, whatever the byte order of the target's memory. */
struct rdmap_atomic_request {
    iwarp_octet opcode[4]; /* reserved:28 AOpCode:4 */
    iwarp_octet request_id[4];
    iwarp_octet remote_stag[4];
    iwarp_octet remote_to[8];
    iwarp_octet operand[8];      /* Add or Swap Data */
    iwarp_octet operand_mask[8]; /* Add or Swap Mask */
    iwarp_octet compare[8];
    iwarp_octet compare_mask[8];
};
IWARP_SIZE(rdmap_atomic_request, 52);

#define RDMAP_ATOMIC_OPCODE_MASK 0x0f
#define RDMAP_ATOMIC_FETCH_ADD 0x0
#define RDMAP_ATOMIC_COMPARE_SWAP 0x2 /* 1 is reserved */

struct rdmap_atomic_response {
    iwarp_octet request_id[4];
    iwarp_octet original[8];
};
IWARP_SIZE(rdmap_atomic_response, 12);

/* RFC 7306 section 6.3: all of an Immediate Data Message. */
struct rdmap_immediate {
    iwarp_octet data[8];
};
IWARP_SIZE(rdmap_immediate, 8);

/* RFC 5040 section 4.8. The DDP Segment Length and the copied headers follow. */
struct rdmap_terminate {
    iwarp_octet layer_etype; /* Layer:4 EType:4 */
    iwarp_octet code;
    iwarp_octet hdrct; /* M:1 D:1 R:1 reserved:5 */
    iwarp_octet reserved;
};
IWARP_SIZE(rdmap_terminate, 4);

#define RDMAP_TERM_M 0x80 /* DDP Segment Length is valid */
#define RDMAP_TERM_D 0x40 /* terminated DDP header included */
#define RDMAP_TERM_R 0x20 /* terminated RDMAP (Read Request) header included */

#endif /* XSOCK_IWARP_H */
