/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/**
 * @file xsock.h
 * Extended sockets: zero-copy, asynchronous and one-sided operations over iWARP on TCP sockets.
 * Longer than 500 lines: the documented C API in one header, which is all that a program includes.
 *
 * Model. An endpoint (xsock_ep) is one iWARP connection over one TCP socket. Work is posted to it
 * and never blocks; when it is done, a completion (xsock_wc) appears in the endpoint's completion
 * queue (xsock_cq), which may serve many endpoints. A memory region (xsock_mr) makes memory
 * reachable for the peer's one-sided operations; nothing is pinned.
 *
 * Progress. Calls that poll or wait move the bytes; background threads move them when no call does
 * (XSOCK_PROGRESS=both, the default; see xsock(7)). So one-sided operations of a peer are served
 * while the owner of the memory sleeps.
 *
 * Errors. Functions that return int answer 0 or -1 with errno; those that return a pointer, NULL
 * with errno. A connection that ends, for whatever reason, completes everything posted to it, each
 * exactly once, with XSOCK_WC_FLUSHED or the status that says why; xsock_ep_query() has it in
 * words.
 *
 * Threads. Every function may be called from any thread, also several at once on one object, except
 * that an object must not be used during or after the call that destroys it. xsock_cq_wait(),
 * xsock_ep_wait() and xsock_accept() are cancellation points (pthreads(7)): a thread that is
 * cancelled there has taken no completion and no connection. No other function is one. After
 * fork() the child must not use objects of its parent: calls fail with EPERM. It may make objects
 * of its own; and what the parent's connections had open is closed in the child, which no peer
 * notices.
 *
 * ABI. Structures start with their size; fill in `size` (XSOCK_INIT does) and zero the rest. A
 * newer library accepts an older, smaller structure.
 *
 * Wire: RFC 5040 (RDMAP), 5041 (DDP), 5044 and 6581 (MPA), 7306 (atomics, immediate data).
 */
#ifndef XSOCK_XSOCK_H
#define XSOCK_XSOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XSOCK_VERSION_MAJOR 0
#define XSOCK_VERSION_MINOR 1
#define XSOCK_VERSION_PATCH 0

#if defined(__GNUC__) && !defined(XSOCK_NO_EXPORT)
#define XSOCK_API __attribute__((visibility("default")))
#else
#define XSOCK_API
#endif

/** Declares and initialises a structure with a size: XSOCK_INIT(xsock_ep_attr, attr); */
#ifdef __cplusplus
#define XSOCK_INIT(type, name) \
    struct type name = {};     \
    name.size = sizeof(struct type)
#else
#define XSOCK_INIT(type, name) struct type name = {.size = sizeof(struct type)}
#endif

struct xsock_cq;       /**< completion queue */
struct xsock_srq;      /**< shared receive queue */
struct xsock_pd;       /**< protection domain */
struct xsock_mr;       /**< memory region */
struct xsock_ep;       /**< endpoint: one iWARP connection */
struct xsock_listener; /**< connections coming in */

/** No time limit, for every timeout_ms. 0 means: do not wait. */
#define XSOCK_FOREVER (-1)

/** Most pieces of memory in one gather or scatter list. */
#define XSOCK_MAX_SGE 6
/** Most bytes that XSOCK_INLINE may copy. */
#define XSOCK_MAX_INLINE 96

/** Version of the running library, e.g. "0.1.0 (crc32c: avx512)". Static storage. */
XSOCK_API const char* xsock_version(void);

/* ---- completion queues -------------------------------------------------- */

enum xsock_op {
    XSOCK_OP_SEND = 0,
    XSOCK_OP_WRITE = 1,
    XSOCK_OP_READ = 2,
    XSOCK_OP_INVALIDATE = 3,
    XSOCK_OP_RECV = 4,
    XSOCK_OP_CONNECTED = 5, /**< endpoint with XSOCK_EP_EVENTS: start-up ended well */
    XSOCK_OP_CLOSED = 6,    /**< endpoint with XSOCK_EP_EVENTS: the peer will send nothing more;
                                 we may still send until xsock_ep_shutdown() */
    /* RFC 7306; only toward another xsock (xsock_ep_info.peer_is_xsock) */
    XSOCK_OP_FETCH_ADD = 7,    /**< adds to 8 bytes of the peer's, brings what was there */
    XSOCK_OP_COMPARE_SWAP = 8, /**< replaces them if they are as expected, brings what was there */
    XSOCK_OP_WRITE_IMM = 9,    /**< a Write, then IMM */
    XSOCK_OP_IMM = 10,         /**< completes a receive of the peer with 8 bytes and no memory */
    /* of no RFC; only toward an xsock whose features (xsock_ep_info.peer) have
       MPA_FEATURE_SEND_IMMEDIATE */
    XSOCK_OP_SEND_IMM = 12 /**< a Send with `immediate` beside it, which has 32 bits here */
};

enum xsock_wc_status {
    XSOCK_WC_SUCCESS = 0,
    XSOCK_WC_LENGTH,         /**< message longer than the receive */
    XSOCK_WC_PROTECTION,     /**< a local buffer: outside its region, no right, not mapped */
    XSOCK_WC_LOCAL,          /**< operation not possible on this connection */
    XSOCK_WC_FLUSHED,        /**< the connection ended before this was done */
    XSOCK_WC_REMOTE_ACCESS,  /**< the peer refused key, bounds or right */
    XSOCK_WC_REMOTE_INVALID, /**< the peer found the message malformed or unexpected */
    XSOCK_WC_REMOTE_FAILED,  /**< the peer failed otherwise */
    XSOCK_WC_BAD_RESPONSE,   /**< the peer's answer did not fit the question */
    XSOCK_WC_CONNECTION_LOST /**< reset or time-out */
};

#define XSOCK_WC_SOLICITED 1u   /**< receive: the peer asked for an event (Send with SE) */
#define XSOCK_WC_INVALIDATED 2u /**< receive: the peer invalidated `invalidated_stag` */
#define XSOCK_WC_IMM                                                                             \
    4u /**< receive: taken by WRITE_IMM or IMM; `immediate` is valid, its buffers are untouched, \
            and `length` is that of the Write directly before it, 0 if there was none */

#define XSOCK_WC_SEND_IMM 8u /**< receive: of a SEND_IMM; `immediate` is valid, 32 bits of it */

/** One completion. Fixed layout; not sized, it travels in arrays. */
struct xsock_wc {
    uint64_t wr_id;            /**< as given at post time; 0 for events */
    void* context;             /**< the endpoint's xsock_ep_attr.context */
    uint32_t length;           /**< RECV, READ, atomics: bytes placed */
    uint32_t invalidated_stag; /**< valid with XSOCK_WC_INVALIDATED */
    uint16_t op;               /**< enum xsock_op */
    uint16_t status;           /**< enum xsock_wc_status; other fields but wr_id, context and op
                                    are meaningful on success only */
    uint32_t flags;
    uint64_t immediate; /**< valid with XSOCK_WC_IMM, XSOCK_WC_SEND_IMM */
};

struct xsock_cq_attr {
    size_t size;
    uint32_t depth; /**< completions expected at once, a hint; 0: 256. Grows: none is ever lost */
};

/** Creates a completion queue. `attr` may be NULL. */
XSOCK_API struct xsock_cq* xsock_cq_create(const struct xsock_cq_attr* attr);
/** Destroys it. EBUSY while open endpoints, listeners or shared queues use it. Endpoints closed but
 * still draining go on without it. */
XSOCK_API int xsock_cq_destroy(struct xsock_cq* cq);
/** Takes up to `max` completions, oldest first, moving bytes when there are none. Never blocks.
 * @return how many, or -1: EINVAL, EPERM, ENOMEM */
XSOCK_API int xsock_cq_poll(struct xsock_cq* cq, struct xsock_wc* wc, int max);
/** Waits until at least `min` completions are there, polling meanwhile; takes up to `max`. Of
 * threads that wait for more than one each, one takes all that it waits for or none. A cancellation
 * point; only where `min` is above 64 and another thread takes completions meanwhile a thread may
 * be cancelled late, that is, when it has returned.
 * @param min  0 to `max`; with `max` the wait is for a full batch
 * @param timeout_ms  XSOCK_FOREVER, or milliseconds
 * @return how many were taken: fewer than `min` only when time ran out (errno is then not set); -1:
 *         EINVAL, EPERM, ENOMEM */
XSOCK_API int xsock_cq_wait(struct xsock_cq* cq, struct xsock_wc* wc, int min, int max,
                            int timeout_ms);
/** A descriptor for poll/epoll: readable when xsock_cq_poll() may find something. Level-triggered,
 * may be spurious: poll until nothing is found. Belongs to the queue; do not read or close it.
 * @return the same at each call; -1: EINVAL, EPERM, EMFILE, ENFILE, ENOMEM */
XSOCK_API int xsock_cq_fd(struct xsock_cq* cq);
/** Words for a status. Static storage. */
XSOCK_API const char* xsock_wc_str(int status);

/* ---- memory ------------------------------------------------------------- */

/** A protection domain: keys of one are refused on connections of another (RFC 5042). NULL stands
 * for the process's default domain everywhere. */
XSOCK_API struct xsock_pd* xsock_pd_create(void);
/** EBUSY while regions or endpoints use it. */
XSOCK_API int xsock_pd_destroy(struct xsock_pd* pd);

#define XSOCK_REMOTE_READ 4u  /**< the peer may RDMA Read */
#define XSOCK_REMOTE_WRITE 2u /**< the peer may RDMA Write */
#define XSOCK_LOCAL_WRITE                                                                      \
    1u                          /**< receives and Reads may go there; implied by REMOTE_WRITE, \
                                   REMOTE_ATOMIC */
#define XSOCK_ZERO_BASED 8u     /**< tagged offsets count from 0 instead of from the address */
#define XSOCK_REMOTE_ATOMIC 16u /**< the peer may fetch and add, and compare and swap */

/** Makes [address, address + length) reachable for peers of endpoints in `pd`, with the rights in
 * `access`. Does not touch, pin or copy the memory; constant time. The memory stays yours and must
 * stay mapped until xsock_mr_deregister(); unmapping it earlier costs the connections that touch
 * it, not the process.
 * @param only  not NULL: the key is valid on this endpoint only, and its peer may invalidate it
 * @return NULL: EINVAL (wraps the address space, unknown right, NULL with a length), ENOMEM */
XSOCK_API struct xsock_mr* xsock_mr_register(struct xsock_pd* pd, void* address, size_t length,
                                             unsigned access, struct xsock_ep* only);
/** Revokes the key and frees the region. On return no peer's operation touches the memory any more.
 * @return -1: EINVAL (NULL), EPERM */
XSOCK_API int xsock_mr_deregister(struct xsock_mr* mr);
/** For xsock_sge.lkey, and what a peer calls the region. */
XSOCK_API uint32_t xsock_mr_stag(const struct xsock_mr* mr);

/** What a peer needs to reach memory, in host order. */
struct xsock_remote {
    uint64_t to;     /**< tagged offset of the first byte */
    uint64_t length; /**< bytes */
    uint32_t stag;
    uint32_t access;
};

/** The same for the wire: send it as it is (private data, a Send, any other way). */
struct xsock_key {
    uint8_t bytes[24];
};

/** Describes a region (or, with length < the region's, its part at `offset`). ERANGE: not inside.
 */
XSOCK_API int xsock_mr_key(const struct xsock_mr* mr, size_t offset, size_t length,
                           struct xsock_key* key);
/** Reads a key that came from a peer. */
XSOCK_API void xsock_key_read(const struct xsock_key* key, struct xsock_remote* remote);

/* ---- endpoints ---------------------------------------------------------- */

enum xsock_role {
    XSOCK_ROLE_AUTO = 0, /**< initiator in xsock_ep_create(), responder behind a listener */
    XSOCK_ROLE_INITIATOR = 1,
    XSOCK_ROLE_RESPONDER = 2
};

/* Flags of an endpoint; unknown bits are EINVAL. */
#define XSOCK_EP_EVENTS 1u  /**< CONNECTED and CLOSED completions on recv_cq */
#define XSOCK_EP_DEFER 2u   /**< responder: hold the Reply until xsock_ep_accept() or _reject() */
#define XSOCK_EP_NO_CRC 4u  /**< do not ask for CRCs; they are off only if the peer agrees */
#define XSOCK_EP_MARKERS 8u /**< ask the peer for markers */
#define XSOCK_EP_REQUIRE_LKEYS 16u /**< refuse local memory without a region */
#define XSOCK_EP_NO_EXTENSIONS 32u /**< no extension frames toward other xsocks, nor their flag */
#define XSOCK_EP_SNAPSHOT 64u      /**< every request of the endpoint is one with XSOCK_SNAPSHOT */

/** Peer-to-peer model (RFC 6581 §9): the initiator sends one empty message before anything else, so
 * that a responder that speaks first may. The responder picks one of those offered. */
#define XSOCK_RTR_SEND 1u
#define XSOCK_RTR_WRITE 2u
#define XSOCK_RTR_READ 4u

/** May data go through shared memory instead of TCP? See XSOCK_SHM in xsock(7). */
enum xsock_shm {
    XSOCK_SHM_DEFAULT = 0, /**< as XSOCK_SHM says */
    XSOCK_SHM_OFF = 1,
    XSOCK_SHM_AUTO = 2,   /**< where it can; else over TCP */
    XSOCK_SHM_REQUIRE = 3 /**< or there is no connection: EPROTONOSUPPORT. A listener closes those
                               that end up on TCP and does not return them. EINVAL without
                               extension frames */
};

/** May the kernel module place what the peer writes? See XSOCK_KERNEL in xsock(7). */
enum xsock_kernel {
    XSOCK_KERNEL_DEFAULT = 0, /**< as XSOCK_KERNEL says */
    XSOCK_KERNEL_OFF = 1,
    XSOCK_KERNEL_AUTO = 2,   /**< where it can; else at user level */
    XSOCK_KERNEL_REQUIRE = 3 /**< or there is no connection: ENOENT (not loaded), EACCES, EPROTO
                                  (another ABI) at once; EOPNOTSUPP when start-up has ended. Not
                                  through shared memory */
};

enum xsock_stack { XSOCK_STACK_USER = 0, XSOCK_STACK_KERNEL = 1 };

/** What places what the peer writes. */
struct xsock_placing {
    uint32_t stack;       /**< enum xsock_stack */
    char reason[20];      /**< why not the kernel module, e.g. "kernel-absent"; "none": it places,
                               or that is not decided yet; "off": it was not asked */
    uint64_t early_bytes; /**< what the module placed behind a lost segment */
};

/** What carries the data of a connection. */
enum xsock_path { XSOCK_PATH_TCP = 0, XSOCK_PATH_SHM = 1 };

/** Limits: sq_depth and rq_depth 2^20, ird and ord 16382; what is larger is EINVAL. */
struct xsock_ep_attr {
    size_t size;
    struct xsock_pd* pd;        /**< NULL: default */
    struct xsock_cq* send_cq;   /**< required */
    struct xsock_cq* recv_cq;   /**< NULL: send_cq */
    struct xsock_srq* srq;      /**< NULL: a receive queue of its own */
    void* context;              /**< comes back in every completion */
    uint32_t flags;             /**< XSOCK_EP_* */
    uint32_t role;              /**< enum xsock_role */
    uint32_t sq_depth;          /**< outstanding requests other than receives; 0: 128 */
    uint32_t rq_depth;          /**< outstanding receives; 0: 128 */
    uint16_t ird;               /**< Reads and atomics of the peer served at once; 0: 255 */
    uint16_t ord;               /**< our Reads and atomics at once; 0: 255 */
    uint32_t mpa_revision;      /**< 1 or 2; 0: 2 */
    uint32_t fpdu_limit;        /**< largest ULPDU sent, bytes (128 at least); 0: from the path
                                     and the peer. Toward others never more than fits a segment */
    const void* private_data;   /**< copied; goes with Request or Reply */
    size_t private_data_length; /**< at most 508 bytes (512 with revision 1); in a Reply to others
                                     252 (256), or the connection is refused */
    int32_t startup_timeout_ms; /**< 0: 10,000 */
    int32_t rnr_timeout_ms;     /**< how long a message may wait for a receive; 0: 1,000 (or
                                      XSOCK_RNR_MS); negative: without limit */
    int32_t linger_ms;          /**< draining after close; 0: 5,000 */
    uint32_t rtr;               /**< initiator, revision 2: XSOCK_RTR_* to offer for the
                                     peer-to-peer model; 0: none. A responder takes each */
    uint32_t max_starting;      /**< listener: start-ups under way, and as many connections that
                                     wait for xsock_accept(); 0: 4,096 (or XSOCK_MAX_STARTING).
                                     See xsock_listener_create() */
    const char* congestion;     /**< TCP's congestion control for the connection, e.g. "cubic";
                                     NULL: the system's (or XSOCK_CONGESTION) */
    uint32_t shm;               /**< enum xsock_shm: shared memory, where the peer is a process of
                                     the same host; 0: as XSOCK_SHM says */
    uint32_t kernel;            /**< enum xsock_kernel: the kernel module places what the peer
                                     writes; 0: as XSOCK_KERNEL says */
};

/** Begins iWARP on a connected TCP socket (IPv4 or IPv6). Returns at once; start-up goes on in the
 * background, and work may be posted meanwhile. On success the descriptor belongs to the endpoint.
 * @return NULL: EBADF, ENOTSOCK, EPROTOTYPE (not a TCP socket), ENOTCONN, EINVAL, EMFILE, ENOMEM;
 *         ENOENT, EACCES (the kernel has no such congestion control, or does not permit it); the
 *         descriptor is then still yours */
XSOCK_API struct xsock_ep* xsock_ep_create(int fd, const struct xsock_ep_attr* attr);
/** Resolves `host` and `service` (as getaddrinfo), connects, begins start-up as initiator and waits
 * until it ended. @return NULL: ECONNREFUSED (also: refused by the peer's application), EPROTO (the
 * peer does not speak MPA), EPROTONOSUPPORT (XSOCK_SHM_REQUIRE), ETIMEDOUT, EHOSTUNREACH,
 * EADDRNOTAVAIL (name not found), ... */
XSOCK_API struct xsock_ep* xsock_connect(const char* host, const char* service,
                                         const struct xsock_ep_attr* attr, int timeout_ms);
/** Waits until start-up ended. A cancellation point.
 * @return 0: established (or, with XSOCK_EP_DEFER, a Request is there); -1: ETIMEDOUT, or the errno
 *         of xsock_connect() */
XSOCK_API int xsock_ep_wait(struct xsock_ep* ep, int timeout_ms);
/** XSOCK_EP_DEFER: answers the Request. Private data is copied. EINVAL: no Request waits, or too
 * much private data. */
XSOCK_API int xsock_ep_accept(struct xsock_ep* ep, const void* private_data, size_t length);
XSOCK_API int xsock_ep_reject(struct xsock_ep* ep, const void* private_data, size_t length);

/** In the order of an endpoint's life: from PEER_CLOSED on nothing more is received. */
enum xsock_ep_state {
    XSOCK_EP_FRESH = 0,
    XSOCK_EP_STARTING,
    XSOCK_EP_REQUESTED,
    XSOCK_EP_ESTABLISHED,
    XSOCK_EP_PEER_CLOSED,
    XSOCK_EP_CLOSING,
    XSOCK_EP_ERROR,
    XSOCK_EP_CLOSED
};

/** What the peer's extension frame says of it (docs/wire.md); 0 and "" without one. */
struct xsock_peer {
    uint64_t features;       /**< MPA_FEATURE_* of iwarp.h */
    uint32_t delayed_ack_ms; /**< its ACKs are delayed by no more; 0: it does not say */
    char name[65], version[65];
};

struct xsock_ep_info {
    size_t size;
    uint32_t state; /**< enum xsock_ep_state */
    int32_t error;  /**< errno of how it ended, 0 if well */
    uint32_t mpa_revision;
    uint32_t crc, markers_tx, markers_rx, peer_is_xsock, initiator; /**< 0 or 1 */
    uint32_t ird, ord;
    uint32_t mulpdu;             /**< largest ULPDU now */
    uint64_t tx_bytes, rx_bytes; /**< of TCP stream */
    char error_text[160];        /**< in words; "" if well */
    uint32_t private_data_length;
    uint8_t private_data[512]; /**< the peer's */
    struct xsock_peer peer;
    char congestion[16]; /**< TCP's control, e.g. "cubic"; "" once the connection has ended */
    uint32_t path;       /**< enum xsock_path */
    char shm_reason[20]; /**< why not shared memory, e.g. "remote" (docs/troubleshooting.md);
                              "none": it is used, or that is not decided yet */
    struct xsock_placing placing;
};

/** Fills in `info` as far as the size goes that the caller has set (XSOCK_INIT). -1: EINVAL (no
 * size), EPERM. */
XSOCK_API int xsock_ep_query(const struct xsock_ep* ep, struct xsock_ep_info* info);
/** Sends what is queued, then FIN; receives go on until the peer finishes too. Returns at once. */
XSOCK_API int xsock_ep_shutdown(struct xsock_ep* ep);
/** Ends the endpoint and frees it; returns at once. Receives are flushed now; what was posted to
 * send drains in the background for up to linger_ms and completes on its queue. EBUSY: the endpoint
 * is that of a socket (xsock_fd_endpoint()). */
XSOCK_API int xsock_ep_close(struct xsock_ep* ep);
/** The same with RST: nothing more is sent; all is flushed before this returns. EBUSY as above. */
XSOCK_API int xsock_ep_abort(struct xsock_ep* ep);

/* ---- listening ---------------------------------------------------------- */

/** Serves a listening TCP socket; each connection becomes an endpoint made with `attr`. On success
 * the descriptor belongs to the listener. Start-ups run side by side; peers that do not speak MPA,
 * or stay silent for the start-up time, are closed with one log line. When max_starting of them are
 * under way (at most half of RLIMIT_NOFILE), or descriptors run out, each new one takes the place
 * of the oldest from the address, of IPv6 the /64, that has most; established ones stay.
 * @return NULL: EBADF, ENOTSOCK, EPROTOTYPE (not a TCP socket), EINVAL (not listening, or a bad
 *         attribute), ENOENT and EACCES as xsock_ep_create(), EPERM, EMFILE, ENOMEM; the descriptor
 *         is then still yours */
XSOCK_API struct xsock_listener* xsock_listener_create(int fd, const struct xsock_ep_attr* attr);
/** Binds and listens on `host` (NULL: any address, IPv6 and IPv4) and `service`, then as above.
 * @param backlog  of listen(2); 0 or less: SOMAXCONN
 * @return NULL: EADDRNOTAVAIL (name not found), EINVAL, the errno of socket(), bind(), listen() */
XSOCK_API struct xsock_listener* xsock_listen(const char* host, const char* service, int backlog,
                                              const struct xsock_ep_attr* attr);
/** The next established endpoint (with XSOCK_EP_DEFER: with a Request). NULL: EAGAIN when time ran
 * out. Its context is attr->context until xsock_ep_set_context(). A cancellation point. */
XSOCK_API struct xsock_ep* xsock_accept(struct xsock_listener* listener, int timeout_ms);
/** Local TCP port; 0: it is not known; -1: EINVAL. */
XSOCK_API int xsock_listener_port(const struct xsock_listener* listener);
/** Readable when xsock_accept() may find something; rules and errors of xsock_cq_fd(). */
XSOCK_API int xsock_listener_fd(struct xsock_listener* listener);
/** Stops listening, closes the descriptor and frees the listener. Connections that xsock_accept()
 * has not returned are dropped, also those in start-up; endpoints that it has returned live on. */
XSOCK_API int xsock_listener_close(struct xsock_listener* listener);
/** Completions that come after this call carry `context`. */
XSOCK_API int xsock_ep_set_context(struct xsock_ep* ep, void* context);

/* ---- work --------------------------------------------------------------- */

/** A piece of local memory. Stays yours; must stay mapped and (sends, Writes) unchanged, or
 * (receives, Reads) untouched, until the completion of the request. Payloads of more than 4 KiB go
 * to TCP from where they lie, which is faster than a copy: if they change meanwhile, their CRC is
 * wrong and the peer ends the connection. XSOCK_SNAPSHOT is for memory that does change. */
struct xsock_sge {
    void* address;
    uint32_t length;
    uint32_t lkey; /**< xsock_mr_stag() of a region that covers it; 0: memory without a region */
};

#define XSOCK_UNSIGNALED 1u /**< no completion on success; failures always complete */
#define XSOCK_SOLICITED \
    2u /**< SEND, WRITE_IMM, IMM: wakes a peer that waits for solicited events only */
#define XSOCK_FENCE 4u /**< starts only when all earlier Reads and atomics have completed */
#define XSOCK_INLINE \
    8u /**< copies the payload (at most XSOCK_MAX_INLINE); buffers are free at once */
#define XSOCK_MORE 32u       /**< another post follows at once: gather, do not send yet */
#define XSOCK_INVALIDATE 16u /**< SEND: invalidates `remote.stag` at the peer */
#define XSOCK_MASKED 64u     /**< atomics: operand_mask and compare_mask count */
#define XSOCK_SNAPSHOT                                                                           \
    128u /**< SEND, WRITE(_IMM): the payload may change until the completion. Each piece is read \
              once, when its turn comes, so the peer gets old bytes, new ones, or some of both */

struct xsock_wr {
    size_t size;
    uint64_t wr_id; /**< comes back in the completion */
    uint32_t op;    /**< SEND, WRITE, READ, INVALIDATE (local; remote.stag is ours), FETCH_ADD,
                         COMPARE_SWAP, WRITE_IMM, IMM */
    uint32_t flags;
    const struct xsock_sge* sge; /**< copied, so it may go after the call */
    uint32_t sge_count;          /**< at most XSOCK_MAX_SGE */
    struct xsock_remote remote;  /**< WRITE(_IMM), READ, atomics: `to` and `stag`; length is
                                      ignored. Atomics: `to` is that of 8 aligned bytes */
    uint64_t immediate;          /**< WRITE_IMM, IMM */
    /** Atomics, RFC 7306 section 5.1: numbers in host order, as the target is in its own. The
     * former value is stored into the SGEs, 8 bytes in one or two pieces. */
    uint64_t operand;      /**< what FETCH_ADD adds, COMPARE_SWAP stores */
    uint64_t operand_mask; /**< with XSOCK_MASKED. FETCH_ADD: the highest bit of each field, beyond
                                which no carry goes (0: one field of 64 bits). COMPARE_SWAP: the
                                bits to replace */
    uint64_t compare;      /**< COMPARE_SWAP: what is expected */
    uint64_t compare_mask; /**< with XSOCK_MASKED: the bits to compare; 0: replaces in any case */
};

/** Posts a request. Never blocks; keeps order.
 * @return -1: ENOBUFS (queue full: take completions first), EINVAL (bad request), EMSGSIZE,
 *         EPIPE (connection ended or shut down), EPERM (other process), EOPNOTSUPP (an operation of
 *         RFC 7306, and the peer is no xsock; posted before that is known, it completes with
 *         XSOCK_WC_LOCAL and ends the connection) */
XSOCK_API int xsock_post(struct xsock_ep* ep, const struct xsock_wr* wr);
/** Posts a receive: takes one message. Errors as xsock_post(). EOPNOTSUPP: endpoint with a shared
 * queue. */
XSOCK_API int xsock_post_recv(struct xsock_ep* ep, uint64_t wr_id, const struct xsock_sge* sge,
                              uint32_t sge_count);

/** Shorthands for one piece of memory. `remote_offset` counts from remote->to; ERANGE when the
 * access would leave [to, to + length). EINVAL: XSOCK_INVALIDATE or XSOCK_MASKED (use
 * xsock_post()), or more than XSOCK_MAX_INLINE bytes with XSOCK_INLINE. */
XSOCK_API int xsock_send(struct xsock_ep* ep, uint64_t wr_id, const void* buffer, uint32_t length,
                         uint32_t flags);
XSOCK_API int xsock_recv(struct xsock_ep* ep, uint64_t wr_id, void* buffer, uint32_t length);
XSOCK_API int xsock_write(struct xsock_ep* ep, uint64_t wr_id, const void* buffer, uint32_t length,
                          const struct xsock_remote* remote, uint64_t remote_offset,
                          uint32_t flags);
XSOCK_API int xsock_read(struct xsock_ep* ep, uint64_t wr_id, void* buffer, uint32_t length,
                         const struct xsock_remote* remote, uint64_t remote_offset, uint32_t flags);
/** On 8 bytes of the peer's at remote->to + remote_offset, which are aligned and whose region has
 * XSOCK_REMOTE_ATOMIC; `*result` is what was there, and stays yours until the completion. Atomic
 * toward all such operations of any connection of that process, and toward its own lock-free
 * atomics (C11 or C++ atomic_uint64_t) there. */
XSOCK_API int xsock_fetch_add(struct xsock_ep* ep, uint64_t wr_id, uint64_t* result,
                              const struct xsock_remote* remote, uint64_t remote_offset,
                              uint64_t add, uint32_t flags);
/** The same: stores `swap` if `compare` is there. It did if `*result` is equal to `compare`. */
XSOCK_API int xsock_compare_swap(struct xsock_ep* ep, uint64_t wr_id, uint64_t* result,
                                 const struct xsock_remote* remote, uint64_t remote_offset,
                                 uint64_t compare, uint64_t swap, uint32_t flags);
/** A Write, and when it is there, a receive of the peer completes with `immediate`. */
XSOCK_API int xsock_write_imm(struct xsock_ep* ep, uint64_t wr_id, const void* buffer,
                              uint32_t length, const struct xsock_remote* remote,
                              uint64_t remote_offset, uint64_t immediate, uint32_t flags);

/* ---- shared receive queues ---------------------------------------------- */

/** Receives that many endpoints share. `depth` 0: 1024. */
XSOCK_API struct xsock_srq* xsock_srq_create(uint32_t depth);
/** EBUSY while endpoints use it. Receives still in it are dropped without completions. */
XSOCK_API int xsock_srq_destroy(struct xsock_srq* srq);
/** Posts a receive to the shared queue; errors as xsock_post_recv(). The SGEs are copied. Memory is
 * yours again at the completion, which comes to the recv_cq of the endpoint that takes it. */
XSOCK_API int xsock_srq_post_recv(struct xsock_srq* srq, uint64_t wr_id,
                                  const struct xsock_sge* sge, uint32_t sge_count);

/* ---- sockets in DDPMODE -------------------------------------------------- */

/*
 * With the xsock overlay (`xsock run`, or a program linked to libxsock) any TCP socket can carry
 * iWARP and stay what it is to the program, a descriptor for send(), recv() and poll():
 *
 *     int on = DDPMODE_MESSAGE;
 *     setsockopt(fd, SOL_XSOCK, DDPMODE, &on, sizeof on);
 *
 * on a fresh socket, on a listening one (what it accepts inherits all options), or on a connected
 * one when both programs agreed to switch. Each send() is one message (one RDMAP Send), each recv()
 * takes one. What every call does is in docs/ddpmode.md and xsock-ddpmode(7). Without the overlay
 * the kernel answers ENOPROTOOPT.
 */
#define SOL_XSOCK 0x5853 /* above all levels of the kernel */

/* Options. Values are ints unless said otherwise; all can be read. All but DDPMODE are to be set
 * before start-up begins (EISCONN after that); out of range: EINVAL. */
/** DDPMODE_OFF, _MESSAGE or _STREAM (EOPNOTSUPP). Set on a connected socket it begins start-up:
 * blocks, or is EINPROGRESS, then writable. EBUSY: bytes that are no MPA Request wait unread.
 * EINVAL: the role is not known (DDPROLE). EISCONN: cannot be switched off any more. */
#define DDPMODE 1
/** enum xsock_role; automatic, the default: initiator where this process called connect(),
 * responder where accept(). */
#define DDPROLE 2
/** 1: a listening socket hands out only connections that speak MPA, and closes the others. 0, the
 * default: plain peers are served as plain TCP. */
#define DDPREQUIRE 3
/** 0: do not ask for CRCs. Default 1. */
#define DDPCRC 4
/** 1: ask the peer for markers. Default 0. */
#define DDPMARKERS 5
/** MPA revision, 1 or 2. Default 2. */
#define DDPREVISION 6
/** Initiator: XSOCK_RTR_*, 0 to 7, peer-to-peer start-up (RFC 6581 §9). Default 0. */
#define DDPRTR 7
/** Reads of the peer served at once, and of ours; 0 to 16382. Default 255. */
#define DDPIRD 8
#define DDPORD 9
/** Bytes, at most 508 (512 with revision 1). Set: what we send; get: what the peer sent, once
 * start-up has ended. */
#define DDPPRIVATE 10
/** Largest ULPDU, 128 to 65535 bytes; 0, the default: from path and peer. */
#define DDPFPDU 11
/** Messages and operations on their way out, 4 to 65536. Default 128. */
#define DDPSQDEPTH 12
/** Receives that can be posted (xsock_recv()), 1 to 65536. Default 128. */
#define DDPRQDEPTH 13
/** Messages that may wait unread, 1 to 65536. Default 1024. */
#define DDPBUFCOUNT 14
/** Largest message, both ways, bytes, 1 to 2^28. Default 2^20. A peer that sends a longer one is
 * ended by a Terminate. */
#define DDPBUFSIZE 15
/** Messages of up to this many bytes, 0 to XSOCK_MAX_INLINE, are copied into the send queue,
 * longer ones into a buffer. Default: XSOCK_MAX_INLINE. */
#define DDPINLINE 16
/** Time for start-up, ms, 1 and more. Default 10000. */
#define DDPSTARTUP 17
/** How long the peer's TCP may acknowledge nothing while something is outstanding, ms; 0: without
 * limit. Default 30000. When set, XSOCK_PEER_SILENT_MS takes its place on every socket. */
#define DDPUSERTIMEOUT 18
/** Seconds without traffic after which TCP asks the peer for a sign of life; it gives up after
 * DDPUSERTIMEOUT more. 0 to 32767; 0: never asks. Default 60. */
#define DDPKEEPALIVE 19
/** Draining after close, ms; 0: none. Default 5000. */
#define DDPLINGER 20
/** Read-only: struct xsock_status. */
#define DDPSTATUS 21
/** enum xsock_shm: shared memory, where the peer is a process of the same host. Default 0: as
 * XSOCK_SHM says. XSOCK_SHM_REQUIRE on a listening socket has what DDPREQUIRE has, and closes
 * connections over TCP as well. */
#define DDPSHM 22
/** enum xsock_kernel: the kernel module places what the peer writes. Default 0: as XSOCK_KERNEL
 * says. XSOCK_KERNEL_REQUIRE on a listening socket has what DDPREQUIRE has, and closes connections
 * at user level as well. */
#define DDPKERNEL 23

#define DDPMODE_OFF 0
#define DDPMODE_MESSAGE 1
#define DDPMODE_STREAM 2 /**< a byte stream, as TCP's, over SDP */

enum xsock_status_state {
    XSOCK_STATUS_FRESH = 0, /**< DDPMODE may be set; nothing has begun */
    XSOCK_STATUS_LISTENING,
    XSOCK_STATUS_CONNECTING, /**< TCP */
    XSOCK_STATUS_UNDECIDED,  /**< accepted; the peer has not shown yet whether it speaks MPA */
    XSOCK_STATUS_STARTING,   /**< MPA start-up */
    XSOCK_STATUS_OPEN,
    XSOCK_STATUS_PEER_CLOSED, /**< end of file was received; sending is possible */
    XSOCK_STATUS_CLOSING,     /**< shutdown() was called */
    XSOCK_STATUS_ENDED,
    XSOCK_STATUS_PLAIN,  /**< plain TCP */
    XSOCK_STATUS_FOREIGN /**< started before fork(), in another process */
};

/** Messages queued to be sent, and messages unread. */
struct xsock_waiting {
    uint32_t tx, rx;
};

/** DDPSTATUS. Fill in `size` before getsockopt(); an older, smaller structure is filled as far as
 * it goes. */
struct xsock_status {
    size_t size;
    uint32_t mode;      /**< DDPMODE_* */
    uint32_t state;     /**< enum xsock_status_state */
    int32_t error;      /**< errno of how it ended; 0 if well */
    uint32_t initiator; /**< this and the next: 0 or 1, as negotiated */
    uint32_t crc, markers_tx, markers_rx, peer_is_xsock, enhanced;
    uint32_t mpa_revision;
    uint32_t ird, ord;
    uint32_t mulpdu;                   /**< largest ULPDU now, bytes */
    uint32_t message_limit;            /**< bytes */
    uint64_t tx_bytes, rx_bytes;       /**< of TCP stream */
    uint64_t tx_messages, rx_messages; /**< by send() and recv() */
    struct xsock_waiting waiting;
    uint64_t accepted;                 /**< listening: connections taken, */
    uint64_t started;                  /**< of these: speak MPA, */
    uint64_t fallbacks;                /**< turned out plain, */
    uint64_t refused;                  /**< or were closed (DDPREQUIRE) */
    char code[32]; /**< "message", "undecided", "off", or why not (docs/troubleshooting.md) */
    char error_text[160]; /**< in words; "" if well */
    struct xsock_peer peer;
    uint32_t path;       /**< enum xsock_path */
    char shm_reason[20]; /**< as in struct xsock_ep_info */
    struct xsock_placing placing;
};

/** The endpoint of a socket in DDPMODE, for the operations of this header: Writes, Reads, zero-copy
 * Sends and receives, on the connection that send() and recv() use. Messages of send() and
 * operations posted here go out in the order of the calls. Completions of what is posted through
 * the endpoint go to `send_cq` and `recv_cq` (NULL: send_cq); what send() and recv() do yields
 * none. Posted receives are filled before recv() gets anything; posting one while messages wait for
 * recv() is EBUSY.
 *
 * The endpoint is borrowed: it lives as long as the socket and must not be closed or aborted
 * (EBUSY), nor used after close(). The queues must outlive the socket. Later calls must name the
 * same queues, or NULL.
 * @return NULL: EBADF, ENOTCONN (not a socket in DDPMODE, or start-up has not begun), EINVAL (no
 *         queue, or other ones than before), EPERM (started before fork()) */
XSOCK_API struct xsock_ep* xsock_fd_endpoint(int fd, struct xsock_cq* send_cq,
                                             struct xsock_cq* recv_cq);

#ifdef __cplusplus
}
#endif

#endif /* XSOCK_XSOCK_H */
