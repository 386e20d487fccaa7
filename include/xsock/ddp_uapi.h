/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ABI of the kernel module `ddp_kernel`: tagged payload (RFC 5041) of a TCP connection is
 * copied into registered memory as it arrives; everything else comes up through recv() as records.
 * Compiles as C11, C++20 and in the kernel; the same for 32-bit programs.
 *
 * The module only places. What it does not place - another opcode, an STag that it does not know, a
 * CRC or a marker that does not hold - goes up unjudged, as the octets that came, and the engine
 * decides. So a program without a module and one with it see the same errors.
 *
 *   domain = open(DDP_DEVICE, O_RDWR | O_CLOEXEC)       regions of this process
 *   ioctl(domain, DDP_IOC_HELLO, &hello)
 *   setsockopt(s, SOL_TCP, TCP_ULP, DDP_ULP, 3)         after MPA start-up; inert until:
 *   ioctl(domain, DDP_IOC_BIND, &bind)                  from the next octet of the stream on
 *   recv(s, buffer, DDP_RECV_MIN or more, MSG_DONTWAIT) records, until EAGAIN
 *
 * Structures grow at their end only, as those of clone3(2) do: the size that the caller knows is in
 * the number of the request (_IOC_SIZE). A shorter one reads as if zeros followed. A longer one is
 * taken if what the module does not know is zero, and refused with E2BIG if not; of what is
 * answered, the part that the module does not know is zero. Unknown flags and reserved fields that
 * are not zero: EINVAL.
 *
 * Requests are taken from the process that opened the domain only (its address space): EPERM after
 * fork(), and for a descriptor that was passed on. A domain may be used by any number of threads.
 */
#ifndef XSOCK_DDP_UAPI_H
#define XSOCK_DDP_UAPI_H

#ifdef __KERNEL__
#include <linux/ioctl.h>
#include <linux/types.h>
typedef __u8 ddp_u8;
typedef __u16 ddp_u16;
typedef __u32 ddp_u32;
typedef __u64 ddp_u64 __attribute__((aligned(8)));
typedef __s32 ddp_s32;
#else
#include <stdint.h>
#include <sys/ioctl.h>
typedef uint8_t ddp_u8;
typedef uint16_t ddp_u16;
typedef uint32_t ddp_u32;
typedef uint64_t ddp_u64 __attribute__((aligned(8)));
typedef int32_t ddp_s32;
#endif

#ifdef __cplusplus
#define DDP_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define DDP_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif

/*
 * Raised only by what an older program could not use. 2: ddp_placed has message_octets, without
 * which the length of a Write in several FPDUs is not known; DDP_REGION_HIDDEN, DDP_IOC_SHOW and
 * DDP_IOC_CHECK are there.
 */
#define DDP_ABI 2
#define DDP_DEVICE "/dev/ddp"
#define DDP_ULP "ddp" /* of setsockopt(TCP_ULP) */

/* ---- Features: bits of ddp_hello.features --------------------------------- */

#define DDP_FEATURE_CRC 0x01     /* CRC32c is checked before anything is placed */
#define DDP_FEATURE_NO_CRC 0x02  /* DDP_BIND_CRC may be left out */
#define DDP_FEATURE_MARKERS 0x04 /* DDP_BIND_MARKERS is taken */
#define DDP_FEATURE_AHEAD 0x08   /* places behind a hole, unless DDP_BIND_IN_ORDER */
#define DDP_FEATURE_VIEWS 0x10   /* ddp_region.parent */
#define DDP_FEATURE_READS 0x20   /* DDP_RIGHT_READ_SINK, DDP_RECORD_RESPONSE */

/* ---- Requests -------------------------------------------------------------- */

/**
 * struct ddp_hello - what the module is, and its limits; DDP_IOC_HELLO
 * @abi: DDP_ABI of the module. A program that was built with another does not go on
 * @recv_min: bytes that a buffer of recv() has at least
 * @features: DDP_FEATURE_*
 * @max_region_bytes: of one region
 * @max_regions: of one domain, views included
 * @max_sockets: bound to one domain at a time
 * @hook_bytes: octets examined in one call from TCP; the rest waits for the reader
 * @reserved: 0
 *
 * All fields are answers. Needs nothing before it.
 */
struct ddp_hello {
    ddp_u32 abi;
    ddp_u32 recv_min;
    ddp_u64 features;
    ddp_u64 max_region_bytes;
    ddp_u32 max_regions;
    ddp_u32 max_sockets;
    ddp_u32 hook_bytes;
    ddp_u32 reserved;
};
DDP_SIZE(ddp_hello, 40);

/* What a peer may do to a region. */
#define DDP_RIGHT_WRITE 0x01 /* RDMA Write, at any offset */
/* RDMA Read Response, payload in rising order from the first octet on; not with the others */
#define DDP_RIGHT_READ_SINK 0x02
/*
 * With DDP_RIGHT_WRITE: peers may run atomic operations on it too. User space does those, so that
 * Writes behind an Atomic Request are not placed until the next recv(), and none behind a hole.
 */
#define DDP_RIGHT_ATOMIC 0x04

/* No look-up finds it, and it has no views, until DDP_IOC_SHOW. */
#define DDP_REGION_HIDDEN 0x01

/**
 * struct ddp_region - memory that peers may write; DDP_IOC_REGION
 * @address: of its first byte, in this process
 * @length: bytes, at least 1
 * @first_to: tagged offset (TO) of the first byte
 * @stag: chosen by the caller, not 0; the engine's own
 * @parent: 0, or the STag of a region whose pinned pages this one shares: a view of a part of it.
 *          Costs no pin. It finds nothing any more once its parent is revoked
 * @pd: protection domain; sockets of another do not find it
 * @qp: 0, or the only QP whose sockets find it
 * @rights: DDP_RIGHT_*, at least one
 * @flags: DDP_REGION_*
 *
 * Pins the pages and counts them against RLIMIT_MEMLOCK; takes the time that takes, and may be
 * interrupted by a signal that kills. Anonymous, shared (shmem) and hugetlb memory only. The pages
 * stay pinned until DDP_IOC_RELEASE, or the end of the domain or of the process that opened it
 * (also by exec), and also when the program unmaps them: then the region is stale, places nothing
 * any more, and is to be released (DDP_IOC_CHECK tells of one, ddp_stats.stale of how many).
 *
 * Errors: EEXIST the STag is in use; ENOENT no such parent, or none that is found; ERANGE a view
 * that reaches out of its parent; EINVAL; EOVERFLOW address or TO + length wraps; EOPNOTSUPP memory
 * of a file, device or another kind that is not pinned; EFAULT not mapped, or not writable; ENOMEM
 * RLIMIT_MEMLOCK, or memory; E2BIG longer than max_region_bytes; ENOSPC max_regions; EAGAIN it
 * was moved or unmapped meanwhile.
 */
struct ddp_region {
    ddp_u64 address;
    ddp_u64 length;
    ddp_u64 first_to;
    ddp_u32 stag;
    ddp_u32 parent;
    ddp_u32 pd;
    ddp_u32 qp;
    ddp_u32 rights;
    ddp_u32 flags;
};
DDP_SIZE(ddp_region, 48);

/**
 * struct ddp_stag - names a region; DDP_IOC_REVOKE, _RELEASE, _SHOW, _CHECK
 * @stag: as given to DDP_IOC_REGION
 * @flags: 0
 *
 * DDP_IOC_REVOKE: no look-up that begins after it finds the region, nor a view of it. A copy that
 * is under way may go on. Does not wait, and may be repeated.
 *
 * DDP_IOC_RELEASE: revokes it, waits until no pass over a socket's queue holds it (microseconds),
 * and unpins. From then on the module does not touch the pages, and the STag is free. Views of it
 * stay, find nothing, and are released each for itself.
 *
 * DDP_IOC_SHOW: look-ups find a region that was DDP_REGION_HIDDEN from now on. So a program can pin
 * without a lock, and decide under one whether the region is still wanted. Does not wait, and may
 * be repeated.
 *
 * DDP_IOC_CHECK: do look-ups find it? Does not wait. ESTALE: no, its memory, or that of its parent,
 * was unmapped, moved or emptied.
 *
 * Errors: ENOENT no such region; of SHOW also: it is revoked; of CHECK also: it, or its parent, is
 * revoked or hidden.
 */
struct ddp_stag {
    ddp_u32 stag;
    ddp_u32 flags;
};
DDP_SIZE(ddp_stag, 8);

#define DDP_BIND_CRC 0x01     /* FPDUs carry CRC32c; without it nothing is placed behind a hole */
/* The peer sends markers, the first at the next octet; nothing is placed behind a hole. */
#define DDP_BIND_MARKERS 0x02
/*
 * Nothing is placed behind a hole, nor behind what recv() has not handed up: for programs that poll
 * memory and expect Writes in their order.
 */
#define DDP_BIND_IN_ORDER 0x04

/**
 * struct ddp_bind - FPDUs of a socket are for this domain; DDP_IOC_BIND
 * @socket: descriptor of a TCP socket, ESTABLISHED or CLOSE_WAIT, with the ULP `ddp`
 * @flags: DDP_BIND_*
 * @pd: protection domain
 * @qp: number of the QP, not 0
 * @rights: DDP_RIGHT_* that peers have on this socket; 0: nothing is placed
 * @reserved: 0
 *
 * The next octet that a recv() would have answered is the first of an FPDU. From now on recv()
 * answers records, and needs MSG_DONTWAIT (or O_NONBLOCK): EINVAL without it, and for a buffer
 * below DDP_RECV_MIN, MSG_PEEK, MSG_OOB, MSG_TRUNC, MSG_WAITALL. Octets may have come already: call
 * recv() once without waiting for readiness.
 *
 * Errors: EBADF; ENOTSOCK; EOPNOTSUPP not a plain TCP socket; ENOPROTOOPT without the ULP; EALREADY
 * bound; EBUSY the socket has other functions already (kTLS, sockmap, MPTCP); ENOTCONN;
 * EINVAL; ENOSPC max_sockets; ENOMEM.
 */
struct ddp_bind {
    ddp_s32 socket;
    ddp_u32 flags;
    ddp_u32 pd;
    ddp_u32 qp;
    ddp_u32 rights;
    ddp_u32 reserved;
};
DDP_SIZE(ddp_bind, 24);

/**
 * struct ddp_rights - what peers may do from now on; DDP_IOC_RIGHTS
 * @socket: bound to this domain
 * @rights: DDP_RIGHT_*; 0: nothing is placed any more once this returns
 *
 * Errors: EBADF; ENOTSOCK; EOPNOTSUPP no TCP socket; ENOTCONN not bound to this domain; EINVAL.
 */
struct ddp_rights {
    ddp_s32 socket;
    ddp_u32 rights;
};
DDP_SIZE(ddp_rights, 8);

/**
 * struct ddp_unbind - plain TCP from the next octet on; DDP_IOC_UNBIND
 * @socket: bound to this domain
 * @flags: 0
 * @octets: answered: octets of the stream that were consumed since DDP_IOC_BIND
 *
 * What recv() has not answered as records, and the module has not consumed, is what recv() answers
 * from now on. Writes that were consumed and not yet told of are lost to records; @octets counts
 * them. What was placed behind a hole comes again as plain octets. The ULP stays: bind again, or
 * close. Errors: as DDP_IOC_RIGHTS; EAGAIN the next octet lies inside of an FPDU that was placed
 * behind a hole and has been consumed in part: its rest is still to come.
 */
struct ddp_unbind {
    ddp_s32 socket;
    ddp_u32 flags;
    ddp_u64 octets;
};
DDP_SIZE(ddp_unbind, 16);

/* Of ddp_stats.dead: why recv() fails. */
#define DDP_DEAD_TAKEN 1      /* octets were taken by another way: ESTALE */
#define DDP_DEAD_UNREADABLE 2 /* octets in TCP's queue cannot be read: EIO */

/**
 * struct ddp_stats - counters since DDP_IOC_BIND; DDP_IOC_STATS
 * @socket: bound to this domain; -1: the domain, whose fields are the last five
 * @flags: 0
 * @octets: of the stream, consumed
 * @placed_octets: payload of Writes and Read Responses that were placed and consumed
 * @placed_fpdus: their number
 * @placed_messages: Writes that are complete (the L flag), consumed
 * @ahead_octets: payload placed behind a hole
 * @ahead_fpdus: their number
 * @ulpdus: records DDP_RECORD_ULPDU
 * @raw_octets: octets in records DDP_RECORD_RAW
 * @scans: times that octets behind a hole were examined
 * @wrong_guesses: starts of segments behind a hole that proved no FPDU
 * @misses: FPDUs behind a hole whose region was not found
 * @masked_octets: payload left out because a later Write has been placed there
 * @limited: times that a limit ended the examination (octets, guesses, misses, runs, targets)
 * @dead: 0, or DDP_DEAD_*: no record comes any more
 * @regions: of the domain, not released
 * @stale: of them, those whose memory was unmapped, moved or emptied
 * @sockets: bound to the domain
 * @pinned_bytes: of all regions
 * @released: RELEASEs that waited for a copy
 *
 * Errors: as DDP_IOC_RIGHTS.
 */
struct ddp_stats {
    ddp_s32 socket;
    ddp_u32 flags;
    ddp_u64 octets;
    ddp_u64 placed_octets;
    ddp_u64 placed_fpdus;
    ddp_u64 placed_messages;
    ddp_u64 ahead_octets;
    ddp_u64 ahead_fpdus;
    ddp_u64 ulpdus;
    ddp_u64 raw_octets;
    ddp_u64 scans;
    ddp_u64 wrong_guesses;
    ddp_u64 misses;
    ddp_u64 masked_octets;
    ddp_u64 limited;
    ddp_u64 dead;
    ddp_u64 regions;
    ddp_u64 stale;
    ddp_u64 sockets;
    ddp_u64 pinned_bytes;
    ddp_u64 released;
};
DDP_SIZE(ddp_stats, 160);

#define DDP_IOC_MAGIC 0xDD
#define DDP_IOC_HELLO _IOWR(DDP_IOC_MAGIC, 0x01, struct ddp_hello)
#define DDP_IOC_REGION _IOW(DDP_IOC_MAGIC, 0x02, struct ddp_region)
#define DDP_IOC_REVOKE _IOW(DDP_IOC_MAGIC, 0x03, struct ddp_stag)
#define DDP_IOC_RELEASE _IOW(DDP_IOC_MAGIC, 0x04, struct ddp_stag)
#define DDP_IOC_BIND _IOW(DDP_IOC_MAGIC, 0x05, struct ddp_bind)
#define DDP_IOC_RIGHTS _IOW(DDP_IOC_MAGIC, 0x06, struct ddp_rights)
#define DDP_IOC_UNBIND _IOWR(DDP_IOC_MAGIC, 0x07, struct ddp_unbind)
#define DDP_IOC_STATS _IOWR(DDP_IOC_MAGIC, 0x08, struct ddp_stats)
#define DDP_IOC_SHOW _IOW(DDP_IOC_MAGIC, 0x09, struct ddp_stag)
#define DDP_IOC_CHECK _IOW(DDP_IOC_MAGIC, 0x0a, struct ddp_stag)

/* ---- Records ---------------------------------------------------------------- */

/*
 * recv() of a bound socket answers records in stream order, whole ones, each at a multiple of eight
 * from the start of the buffer: header, body, and bytes up to the next, which are not stored. Call
 * it until EAGAIN: the socket is readable only while something waits for the reader. Writes that
 * were placed do not, though FIONREAD counts them for a millisecond or so, as it does the start of
 * an incomplete one. 0: the peer has finished (FIN), and everything before it has been handed up.
 * ESTALE: octets were taken by another way (splice, TCP_ZEROCOPY_RECEIVE, TCP_REPAIR). EIO: octets
 * in TCP's queue are there and cannot be read (memory of a device). After both no record comes any
 * more. Other errors are TCP's. Messages of the error queue come by MSG_ERRQUEUE, as ever. Urgent
 * octets are part of the stream (SO_OOBINLINE is set while the socket is bound), and SO_RCVLOWAT
 * counts again once it is unbound.
 *
 * A socket whose leading FPDU is an incomplete Write to a region that is found here, or has not
 * shown its header, is not readable, and recv() answers EAGAIN, until it is complete, the
 * receive window is closing, or 1 ms has passed since recv() first found these octets; then it goes
 * up as DDP_RECORD_RAW.
 *
 * Order. A call of recv() says that what earlier calls answered has been executed. After a record
 * by which user space may store something in memory that peers name (RAW, a tagged ULPDU, an Atomic
 * Request) nothing is placed until the next call, so that a later Write is not undone.
 *
 * Memory. When a record is read, the placement of all Writes before it in the stream has been done.
 * Without DDP_BIND_IN_ORDER Writes behind it may have been placed too. The last eight octets of an
 * FPDU's payload are stored behind its others; where a marker lies among them, those behind it.
 */
#define DDP_RECV_MIN (128u * 1024)
#define DDP_RECORD_ALIGN 8

/*
 * Octets of the stream as they came, ULPDU_Length, markers, pad and CRC included: an FPDU that is
 * not there completely, what follows of it, one whose CRC or a marker of which is wrong, and all
 * that follows that one.
 * For one receiver (mpa::FpduReceiver) they are the octets between those that other records stand
 * for, which begin and end at boundaries of FPDUs.
 */
#define DDP_RECORD_RAW 1
/*
 * A complete ULPDU (DDP header and payload; no length, pad, CRC) that was not placed. Its CRC has
 * held, where CRCs are on. It was 2 + n octets of the stream, up to the next multiple of 4, + 4;
 * markers apart.
 */
#define DDP_RECORD_ULPDU 2
#define DDP_RECORD_PLACED 3   /* struct ddp_placed: RDMA Writes, one behind the other */
#define DDP_RECORD_RESPONSE 4 /* struct ddp_response: a Read Response */

/**
 * struct ddp_record - header of a record
 * @type: DDP_RECORD_*; a reader skips those it does not know
 * @flags: DDP_RECORD_* flags of the type; none are defined
 * @length: bytes of the body, without padding
 */
struct ddp_record {
    ddp_u16 type;
    ddp_u16 flags;
    ddp_u32 length;
};
DDP_SIZE(ddp_record, 8);

/* Bytes from the start of a record to that of the next. */
#define DDP_RECORD_BYTES(length)                                              \
    ((sizeof(struct ddp_record) + (ddp_u64)(length) + DDP_RECORD_ALIGN - 1) & \
     ~(ddp_u64)(DDP_RECORD_ALIGN - 1))

/**
 * struct ddp_placed - body of DDP_RECORD_PLACED
 * @wire: octets of the stream that they were
 * @octets: of payload
 * @fpdus: their number, at least 1
 * @messages: of these, those with the L flag
 * @last_to: TO of the last FPDU
 * @last_stag: its STag
 * @last_length: octets of its payload
 * @last_control: its DDP control octet: with the L flag no Write is unfinished
 * @last_rdmap: its RDMAP control octet. Where its reserved bits (0x30) are not zero, the run ends
 *              with it, and the socket was readable
 * @reserved: 0
 * @message_octets: octets of payload of the last message that lie in this run: since the FPDU
 *                  behind the L flag before it, or since the start of the run
 */
struct ddp_placed {
    ddp_u64 wire;
    ddp_u64 octets;
    ddp_u64 fpdus;
    ddp_u64 messages;
    ddp_u64 last_to;
    ddp_u32 last_stag;
    ddp_u32 last_length;
    ddp_u8 last_control;
    ddp_u8 last_rdmap;
    ddp_u8 reserved[6];
    ddp_u64 message_octets;
};
DDP_SIZE(ddp_placed, 64);

/**
 * struct ddp_response - body of DDP_RECORD_RESPONSE
 * @wire: octets of the stream that it was
 * @header: its tagged DDP header, as it lay on the wire (struct ddp_tagged of iwarp.h)
 * @reserved: 0
 * @length: octets of payload
 * @reserved2: 0
 */
struct ddp_response {
    ddp_u64 wire;
    ddp_u8 header[14];
    ddp_u8 reserved[2];
    ddp_u32 length;
    ddp_u32 reserved2;
};
DDP_SIZE(ddp_response, 32);

#endif
