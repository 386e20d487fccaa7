/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The objects of the module and who keeps them alive.
 *
 * A domain is an open file of /dev/ddp: it holds regions. A socket that is bound holds its domain's
 * structure, not its regions: those end with the file, or with the address space that opened it,
 * whichever is first. A call of core/ holds the region that it found last until it returns; in
 * recv() only while it copies. All of a socket is guarded by the socket's lock.
 */
#ifndef DDP_H
#define DDP_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/refcount.h>
#include <linux/rhashtable.h>
#include <linux/uio.h>
#include <net/tcp.h>

#include "../include/xsock/ddp_uapi.h"
#include "compat.h"
#include "core/rx.h"
#include "counters.h"

#define DDP_MAX_REGIONS 65536u
#define DDP_MAX_SOCKETS 1024u
#define DDP_MAX_REGION_BYTES (1ull << 30)

/**
 * struct ddp_domain - an open file of the device
 * @refs: the file, and each bound socket
 * @mm: the address space that opened it; not used once the file is closed
 * @mm_end: tells of the end of @mm, and keeps its structure
 * @lock: serializes adding and taking out regions; never held while pinning or waiting
 * @by_stag: regions that are not released; read under RCU
 * @regions: the same, as a list
 * @region_count: their number
 * @sockets: bound ones
 * @pinned: pages
 * @waited: RELEASEs that found a copy under way
 * @closed: the file is closed, or @mm has ended; nothing is found any more
 * @rcu: for the end
 */
struct ddp_domain {
	struct kref refs;
	struct mm_struct *mm;
	struct mmu_notifier mm_end;
	struct mutex lock;
	struct rhashtable by_stag;
	struct list_head regions;
	u32 region_count;
	atomic_t sockets;
	atomic64_t pinned;
	atomic64_t waited;
	bool closed;
	struct rcu_head rcu;
};

/* May look-ups find a region? It goes on only, never back. */
enum ddp_mr_state {
	DDP_MR_HIDDEN, /* not yet */
	DDP_MR_SHOWN,
	DDP_MR_REVOKED, /* not any more */
};

/**
 * struct ddp_mr - a region, or a view of one
 * @node: in ddp_domain.by_stag
 * @entry: in ddp_domain.regions
 * @domain: it belongs to
 * @root: the region whose pages it uses: itself, unless it is a view
 * @refs: of this structure: the domain, and each view
 * @users: calls of core/ that hold it or a view of it, and one for the domain until RELEASE
 * @idle: completed by the last of @users
 * @attr: as given
 * @responded: octets of Read Responses that were placed
 * @state: enum ddp_mr_state
 * @stale: its memory was unmapped, moved or emptied
 * @pages: pinned
 * @page_count: of them
 * @notifier: tells of changes of the address range
 * @rcu: for the end
 */
struct ddp_mr {
	struct rhash_head node;
	struct list_head entry;
	struct ddp_domain *domain;
	struct ddp_mr *root;
	refcount_t refs;
	refcount_t users;
	struct completion idle;
	struct ddp_region attr;
	u64 responded;
	int state;
	bool stale;
	struct page **pages;
	unsigned long page_count;
	struct mmu_interval_notifier notifier;
	struct rcu_head rcu;
};

/**
 * struct ddp_delay - of what was consumed and stays in TCP's queue for a while (consume.c)
 * @timer: ends that while
 * @runs: the timer does, and holds the socket and its struct ddp_sock
 * @wup: of tcp_sock.rcv_wup, when the while began: another one says that an ACK was sent
 * @base: of the socket, then
 * @quota: octets that may come without an ACK, if they are more than two segments
 * @paused: octets that the timer has answered for when the sender had paused; 0: it had not
 * @answered: when, in microseconds of TCP's clock
 * @hits: times that the quota was reached since it was set
 * @hits_wanted: so many let it grow; more where the sender has waited, or a segment was missing
 * @ooopack: of tcp_sock.rcv_ooopack, when it was last asked whether one was
 */
struct ddp_delay {
	struct hrtimer timer;
	bool runs;
	u32 wup;
	u64 base;
	u32 quota;
	u32 paused;
	u64 answered;
	u16 hits;
	u16 hits_wanted;
	u32 ooopack;
};

/**
 * struct ddp_family - functions of bound sockets of an address family
 * @plain_prot: TCP's own
 * @plain_ops: TCP's own; NULL: there are no such sockets
 * @prot: with our recvmsg and disconnect
 * @ops: with our poll, set_rcvlowat and release
 */
struct ddp_family {
	struct proto *plain_prot;
	const struct proto_ops *plain_ops;
	struct proto prot;
	struct proto_ops ops;
};

/**
 * struct ddp_sock - of a socket with the ULP; its functions are replaced while it is bound
 * @refs: the socket, until TCP destroys it, and a timer that runs
 * @sk: the socket
 * @domain: NULL: not bound
 * @bind: as given
 * @rx: the state of receiving
 * @base: position in the stream of @copied_seq
 * @copied_seq: what TCP's must be; another one was moved behind our back
 * @read_at: the reader has something once TCP's rcv_nxt is not before it
 * @delay: of what lies between @base and rx.pos
 * @busy: one of our passes is on the stack
 * @closing: the last close() has begun
 * @dead: octets were taken behind our back
 * @unreadable: octets that are in order could not be read
 * @seen_ooopack: of tcp_sock.rcv_ooopack: the out-of-order queue was examined then
 * @scans: of that queue
 * @waiting_octets: so many octets were found of an incomplete Write,
 * @waiting_since: at this time in nanoseconds
 * @rcvlowat: what SO_RCVLOWAT is without us; while the socket is bound, TCP's is 1
 * @urginline: the same of SO_OOBINLINE; without it TCP itself steps over urgent octets
 * @af_ops: the socket's, with our queue_xmit
 * @old_af_ops: as they were
 * @family: its functions while it is bound
 * @old_data_ready: as it was
 * @rcu: for the end
 */
struct ddp_sock {
	refcount_t refs;
	struct sock *sk;
	struct ddp_domain *domain;
	struct ddp_bind bind;
	struct ddp_rx rx;
	u64 base;
	u32 copied_seq;
	u32 read_at;
	struct ddp_delay delay;
	bool busy;
	bool closing;
	bool dead;
	bool unreadable;
	u32 seen_ooopack;
	u64 scans;
	u64 waiting_octets;
	u64 waiting_since;
	int rcvlowat;
	bool urginline;
	struct inet_connection_sock_af_ops af_ops;
	const struct inet_connection_sock_af_ops *old_af_ops;
	const struct ddp_family *family;
	void (*old_data_ready)(struct sock *sk);
	struct rcu_head rcu;
};

/**
 * struct ddp_env - the octets that one call of core/ works on
 * @ds: the socket
 * @first: where they begin
 * @skb: where the last look-up ended
 * @own: positions of it before this one belong to skbs before it
 * @end: where it ends
 * @piece: octets that it found, in one place
 * @piece_of: of this skb
 * @piece_index: 0: its linear part, or one more than the index of its frag
 * @piece_from: their position
 * @piece_n: their number; 0: none are known
 * @mr: the region that was found last, held
 * @ahead: in the out-of-order queue
 * @uneven: of which some skb ends before one that lies before it
 * @unreadable: octets that should be there were not, or could not be read
 * @to: the buffer of recv(), or NULL
 */
struct ddp_env {
	struct ddp_sock *ds;
	struct sk_buff *first;
	struct sk_buff *skb;
	u64 own;
	u64 end;
	const u8 *piece;
	const struct sk_buff *piece_of;
	int piece_index;
	u64 piece_from;
	u32 piece_n;
	struct ddp_mr *mr;
	bool ahead;
	bool uneven;
	bool unreadable;
	struct iov_iter *to;
};

/* Of a locked socket with the ULP. */
static inline struct ddp_sock *ddp_sock_of(const struct sock *sk)
{
	return rcu_dereference_protected(inet_csk(sk)->icsk_ulp_data, lockdep_sock_is_held(sk));
}

/* No octets will come any more. */
static inline bool ddp_has_ended(const struct sock *sk)
{
	return READ_ONCE(sk->sk_err) || READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN ||
	       sock_flag(sk, SOCK_DONE);
}

static inline bool ddp_is_before_read_at(const struct ddp_sock *ds)
{
	return before(READ_ONCE(tcp_sk(ds->sk)->rcv_nxt), READ_ONCE(ds->read_at));
}

/* Live objects of the module, shown in debugfs: 0 once all is closed. */
extern atomic_t ddp_live_domains;
extern atomic_t ddp_live_regions;
extern atomic_t ddp_live_sockets;
extern atomic_t ddp_live_pages;

/* main.c */
void ddp_domain_put(struct ddp_domain *domain);

/* region.c: process context */
int ddp_regions_init(struct ddp_domain *domain);
/* The file is closed, or its address space ends: no region is left afterwards. May be repeated. */
void ddp_regions_end(struct ddp_domain *domain);
int ddp_region_add(struct ddp_domain *domain, const struct ddp_region *attr);
int ddp_region_revoke(struct ddp_domain *domain, u32 stag);
int ddp_region_release(struct ddp_domain *domain, u32 stag);
/* As DDP_IOC_SHOW and DDP_IOC_CHECK. */
int ddp_region_show(struct ddp_domain *domain, u32 stag);
int ddp_region_check(struct ddp_domain *domain, u32 stag);
void ddp_regions_count(struct ddp_domain *domain, struct ddp_stats *stats);
/* Any context. The region is held, so that its pages stay; NULL: not found, revoked or stale. */
struct ddp_mr *ddp_mr_get(struct ddp_domain *domain, u32 stag);
void ddp_mr_put(struct ddp_mr *mr);
/* Of a region that is held: would it still be found? */
bool ddp_mr_is_found(const struct ddp_mr *mr);

/* place.c: a call of core/ is over, what it held is given back */
void ddp_env_end(struct ddp_env *env);

/* family.c */
int ddp_families_init(void);
/* Of a locked socket with a descriptor; NULL: its functions are not TCP's own. */
const struct ddp_family *ddp_family_of(const struct sock *sk);

/* ulp.c */
int ddp_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, int flags DDP_ADDR_LEN_PARAMETER);
int ddp_ulp_register(void);
void ddp_ulp_unregister(void);
/* Of a locked socket: NULL without the ULP. */
struct ddp_sock *ddp_sock_with_ulp(struct sock *sk);
/* Replaces the socket's functions, which is locked; ddp_domain.sockets counts it already. */
void ddp_sock_attach(struct ddp_sock *ds, struct ddp_domain *domain,
		     const struct ddp_family *family);
/* Gives them back, if it is bound. */
void ddp_sock_detach(struct ddp_sock *ds);

/* Was all that was read from the socket read by us, and could we read it? */
bool ddp_is_ours(struct ddp_sock *ds);
void ddp_sock_put(struct ddp_sock *ds);

/* consume.c: under the socket's lock */
void ddp_consume_init(struct ddp_sock *ds);
/* Lets TCP forget what core/ has consumed. In a pass: an ACK may be sent, hence ddp_sock.busy. */
void ddp_consume(struct ddp_sock *ds);
/* The same, now or after a while: more octets have come. In a pass. */
void ddp_consume_later(struct ddp_sock *ds);
/* Outside of a pass; nothing of a socket whose octets another has taken. */
void ddp_consume_rest(struct ddp_sock *ds);
/* Nothing is left for later. Any context. */
void ddp_consume_end(struct ddp_sock *ds);

/* bind.c: requests that name a socket */
int ddp_sock_bind(struct ddp_domain *domain, const struct ddp_bind *bind);
int ddp_sock_rights(struct ddp_domain *domain, const struct ddp_rights *rights);
int ddp_sock_unbind(struct ddp_domain *domain, struct ddp_unbind *unbind);
int ddp_sock_stats(struct ddp_domain *domain, struct ddp_stats *stats);

/* queue.c: under the socket's lock */

/* Position in the stream of a TCP sequence number. */
static inline u64 ddp_position(const struct ddp_sock *ds, u32 seq)
{
	return ds->base + (s32)(seq - ds->copied_seq);
}

u64 ddp_skb_from(const struct ddp_sock *ds, const struct sk_buff *skb);
/* The octets in order that are not consumed. Answers how many there are. */
u64 ddp_queue_in_order(struct ddp_env *env, struct ddp_sock *ds, struct iov_iter *to);
/* Octets of the stream, if they are among those that were found last, in one place. */
const u8 *ddp_queue_in_place(const struct ddp_env *env, u64 at, u32 n);
/* Copies octets of the stream. False: they are not all there. */
bool ddp_queue_copy(struct ddp_env *env, u64 at, void *to, u32 n);
/* Examines the out-of-order queue. */
void ddp_queue_look_ahead(struct ddp_sock *ds);

#endif
