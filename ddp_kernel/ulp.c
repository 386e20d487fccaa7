// SPDX-License-Identifier: GPL-2.0-only
/*
 * The TCP ULP `ddp`. A socket that has it behaves as before until it is bound. Then functions of it
 * are ours: sk_data_ready (leading Writes are placed and consumed), queue_xmit of the connection's
 * address family (TCP answers each segment behind a hole with an ACK, sent with the socket locked
 * and after the segment was queued), recvmsg (records), and those of family.c.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "ddp.h"
#include "trace.h"

#define WAIT_NS NSEC_PER_MSEC /* for the rest of an incomplete Write, in recv() */

static struct tcp_ulp_ops ddp_ulp_ops;

/* ---- Passes over the queues --------------------------------------------- */

bool ddp_is_ours(struct ddp_sock *ds)
{
	if (tcp_sk(ds->sk)->copied_seq != ds->copied_seq)
		ds->dead = true;
	return !ds->dead && !ds->unreadable;
}

/*
 * May the rest of an incomplete FPDU be waited for? Not where the window is closing: a small
 * receive buffer would wait for ever.
 */
static bool may_wait(const struct sock *sk)
{
	return !ddp_has_ended(sk) && !tcp_epollin_ready(sk, INT_MAX);
}

/* TCP's sequence number of rx.pos. */
static u32 next_seq(const struct ddp_sock *ds)
{
	return ds->copied_seq + (u32)(ds->rx.pos - ds->base);
}

/* There is nothing to read until `need` octets have come from rx.pos on; 0: there is already. */
static void set_read_at(struct ddp_sock *ds, u32 need)
{
	WRITE_ONCE(ds->read_at, next_seq(ds) + need);
}

/* There is something to read, though each segment is still to be looked at. */
static void set_readable(struct ddp_sock *ds)
{
	WRITE_ONCE(ds->read_at, tcp_sk(ds->sk)->rcv_nxt);
}

/* Places what has come. True: the reader is to be woken. */
static bool place_leading(struct ddp_sock *ds)
{
	u64 limited = ds->rx.count.limited;
	enum ddp_rx_state state;
	struct ddp_env env;
	u32 need = 1;
	u64 avail;

	avail = ddp_queue_in_order(&env, ds, NULL);
	state = ddp_rx_leading(&ds->rx, &env, avail, &need);
	ddp_env_end(&env);
	ds->unreadable = env.unreadable;
	if (env.unreadable || ds->rx.count.limited != limited) {
		set_readable(ds);
		return true;
	}
	set_read_at(ds, state == DDP_RX_READ ? 0 : state == DDP_RX_WAIT ? need : 1);
	return state == DDP_RX_READ;
}

/* Octets have come. True: the reader is to be woken. */
static bool on_data(struct ddp_sock *ds)
{
	struct sock *sk = ds->sk;
	bool wake;

	if (!ddp_is_ours(ds)) {
		set_readable(ds);
		return true;
	}
	/* What the reader was woken for, and has not read, still leads. */
	if (ds->read_at == next_seq(ds))
		return true;
	wake = !ddp_is_before_read_at(ds) && place_leading(ds);
	/* To what the reader will read TCP answers, unless something is kept ahead of it. */
	if (!wake || ds->rx.pos != ds->base)
		ddp_consume_later(ds);
	if (wake || may_wait(sk))
		return wake;
	if (tcp_sk(sk)->rcv_nxt == next_seq(ds))
		return ddp_has_ended(sk);
	set_readable(ds);
	return true;
}

static void ddp_data_ready(struct sock *sk)
{
	struct ddp_sock *ds = ddp_sock_of(sk);
	bool wake = true;

	/* Not bound: KCM, which had the socket meanwhile, has given back what it found. */
	if (ds->domain && !ds->busy) {
		ds->busy = true;
		wake = on_data(ds);
		ds->busy = false;
	}
	if (wake)
		ds->old_data_ready(sk);
}

static int ddp_queue_xmit(struct sock *sk, struct sk_buff *skb, struct flowi *fl)
{
	struct ddp_sock *ds = container_of(inet_csk(sk)->icsk_af_ops, struct ddp_sock, af_ops);
	int result = ds->old_af_ops->queue_xmit(sk, skb, fl);

	if (!ds->busy && tcp_sk(sk)->rcv_ooopack != ds->seen_ooopack && ddp_is_ours(ds)) {
		ds->busy = true;
		ddp_queue_look_ahead(ds);
		ds->busy = false;
	}
	return result;
}

/* ---- recv() --------------------------------------------------------------- */

/* The leading Write is incomplete. True: hand its octets up now. */
static bool waited_enough(struct ddp_sock *ds, u64 avail)
{
	u64 now = ktime_get_ns();

	if (!may_wait(ds->sk))
		return true;
	if (ds->waiting_octets != avail || !ds->waiting_since) {
		ds->waiting_octets = avail;
		ds->waiting_since = now;
		return false;
	}
	return now - ds->waiting_since >= WAIT_NS;
}

static int no_record(struct ddp_sock *ds, const struct ddp_rx_reader *reader, bool empty)
{
	struct sock *sk = ds->sk;

	if (ds->dead)
		return -ESTALE;
	if (ds->unreadable)
		return -EIO;
	if (reader->fault)
		return -EFAULT;
	if (!empty)
		return -EAGAIN;
	if (sk->sk_err)
		return sock_error(sk);
	if (ddp_has_ended(sk))
		return 0;
	return sk->sk_state == TCP_CLOSE ? -ENOTCONN : -EAGAIN;
}

static void note_what_is_left(struct ddp_sock *ds, enum ddp_rx_state state, u32 need)
{
	if (state != DDP_RX_WAIT) {
		set_read_at(ds, state == DDP_RX_EMPTY ? 1 : 0);
		return;
	}
	ddp_consume_later(ds);
	if (may_wait(ds->sk))
		set_read_at(ds, need);
	else
		set_readable(ds);
}

static int read_records(struct ddp_sock *ds, struct iov_iter *to, size_t len)
{
	struct ddp_rx_reader reader = { .room = min_t(size_t, len, INT_MAX) };
	enum ddp_rx_state state = DDP_RX_EMPTY;
	struct ddp_env env;
	u64 end;

	if (ddp_is_ours(ds)) {
		ds->busy = true;
		ddp_rx_read_begin(&ds->rx);
		end = ds->rx.pos;
		end += ddp_queue_in_order(&env, ds, to);
		state = ddp_rx_read(&ds->rx, &env, end - ds->rx.pos, &reader);
		if (state == DDP_RX_WAIT && !reader.done &&
		    waited_enough(ds, end - ds->rx.pos)) {
			reader.give_up = true;
			state = ddp_rx_read(&ds->rx, &env, end - ds->rx.pos, &reader);
		}
		ddp_env_end(&env);
		ds->unreadable = env.unreadable;
		ddp_consume(ds);
		if (state != DDP_RX_WAIT)
			ds->waiting_since = 0;
		note_what_is_left(ds, state, reader.need);
		ddp_queue_look_ahead(ds);
		ds->busy = false;
	}
	return reader.done ? (int)reader.done : no_record(ds, &reader, state == DDP_RX_EMPTY);
}

int ddp_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
		int flags DDP_ADDR_LEN_PARAMETER)
{
	const int refused = MSG_PEEK | MSG_OOB | MSG_TRUNC | MSG_WAITALL;
	int (*plain)(struct sock *sk, struct msghdr *msg, size_t len,
		     int flags DDP_ADDR_LEN_PARAMETER);
	struct ddp_sock *ds;
	int result;

	lock_sock(sk);
	ds = ddp_sock_of(sk);
	if (!ds->domain || flags & MSG_ERRQUEUE) {
		/* It may have been unbound since recv() began. */
		plain = ds->family->plain_prot->recvmsg;
		release_sock(sk);
		return plain(sk, msg, len, flags DDP_ADDR_LEN);
	}
	if (!(flags & MSG_DONTWAIT) || flags & refused || len < DDP_RECV_MIN)
		result = -EINVAL;
	else
		result = read_records(ds, &msg->msg_iter, len);
	release_sock(sk);
	return result;
}

/* ---- Binding ---------------------------------------------------------------- */

void ddp_sock_attach(struct ddp_sock *ds, struct ddp_domain *domain,
		     const struct ddp_family *family)
{
	struct inet_connection_sock *icsk = inet_csk(ds->sk);
	struct sock *sk = ds->sk;

	kref_get(&domain->refs);
	ds->base = 0;
	ds->copied_seq = tcp_sk(sk)->copied_seq;
	ds->seen_ooopack = tcp_sk(sk)->rcv_ooopack - 1;
	ds->delay.ooopack = tcp_sk(sk)->rcv_ooopack;
	ds->rcvlowat = sk->sk_rcvlowat;
	ds->urginline = sock_flag(sk, SOCK_URGINLINE);
	sock_set_flag(sk, SOCK_URGINLINE);
	WRITE_ONCE(sk->sk_rcvlowat, 1);
	set_read_at(ds, 0);
	WRITE_ONCE(ds->domain, domain);
	ds->family = family;
	ds->old_af_ops = icsk->icsk_af_ops;
	ds->af_ops = *icsk->icsk_af_ops;
	ds->af_ops.queue_xmit = ddp_queue_xmit;
	smp_store_release(&icsk->icsk_af_ops, &ds->af_ops);
	write_lock_bh(&sk->sk_callback_lock);
	/* Given back by detach, or, behind our release, by the one who called it. */
	__module_get(THIS_MODULE);
	WRITE_ONCE(sk->sk_socket->ops, &family->ops);
	if (sk->sk_data_ready != ddp_data_ready) {
		ds->old_data_ready = sk->sk_data_ready;
		sk->sk_data_ready = ddp_data_ready;
	}
	write_unlock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_prot, (struct proto *)&family->prot);
	ddp_count(bound, 1);
	trace_ddp_bind(sk, &ds->bind);
}

/* Also in softirq, when TCP destroys the socket. Functions that are not ours any more stay. */
void ddp_sock_detach(struct ddp_sock *ds)
{
	struct inet_connection_sock *icsk = inet_csk(ds->sk);
	struct ddp_domain *domain = ds->domain;
	struct sock *sk = ds->sk;

	if (!domain)
		return;
	if (sk->sk_prot->recvmsg == ddp_recvmsg)
		WRITE_ONCE(sk->sk_prot, ds->family->plain_prot);
	if (icsk->icsk_af_ops == &ds->af_ops)
		WRITE_ONCE(icsk->icsk_af_ops, ds->old_af_ops);
	write_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_data_ready == ddp_data_ready)
		sk->sk_data_ready = ds->old_data_ready;
	if (!ds->closing && sk->sk_socket && sk->sk_socket->ops == &ds->family->ops) {
		WRITE_ONCE(sk->sk_socket->ops, ds->family->plain_ops);
		module_put(THIS_MODULE);
	}
	write_unlock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_rcvlowat, ds->rcvlowat);
	sock_valbool_flag(sk, SOCK_URGINLINE, ds->urginline);
	ddp_count(unbound, 1);
	trace_ddp_unbind(sk, ds->rx.pos);
	WRITE_ONCE(ds->domain, NULL);
	ddp_consume_end(ds);
	kfree(ds->rx.ahead);
	ds->rx.ahead = NULL;
	atomic_dec(&domain->sockets);
	ddp_domain_put(domain);
}

static int ddp_ulp_init(struct sock *sk)
{
	struct ddp_sock *ds;

	if (sk->sk_state != TCP_ESTABLISHED && sk->sk_state != TCP_CLOSE_WAIT)
		return -ENOTCONN;
	ds = kzalloc(sizeof(*ds), GFP_KERNEL_ACCOUNT);
	if (!ds)
		return -ENOMEM;
	refcount_set(&ds->refs, 1);
	ds->sk = sk;
	ddp_consume_init(ds);
	rcu_assign_pointer(inet_csk(sk)->icsk_ulp_data, ds);
	atomic_inc(&ddp_live_sockets);
	return 0;
}

void ddp_sock_put(struct ddp_sock *ds)
{
	if (!refcount_dec_and_test(&ds->refs))
		return;
	kfree_rcu(ds, rcu);
	atomic_dec(&ddp_live_sockets);
}

static void ddp_ulp_release(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	/* The last user; in softirq the lock need not be held. */
	struct ddp_sock *ds = rcu_dereference_protected(icsk->icsk_ulp_data, true);

	if (!ds)
		return;
	ddp_sock_detach(ds);
	RCU_INIT_POINTER(icsk->icsk_ulp_data, NULL);
	ddp_sock_put(ds);
}

static struct tcp_ulp_ops ddp_ulp_ops = {
	.name = DDP_ULP,
	.owner = THIS_MODULE,
	.init = ddp_ulp_init,
	.release = ddp_ulp_release,
};

struct ddp_sock *ddp_sock_with_ulp(struct sock *sk)
{
	return inet_csk(sk)->icsk_ulp_ops == &ddp_ulp_ops ? ddp_sock_of(sk) : NULL;
}

int ddp_ulp_register(void)
{
	int error = ddp_families_init();

	return error ? error : tcp_register_ulp(&ddp_ulp_ops);
}

void ddp_ulp_unregister(void)
{
	tcp_unregister_ulp(&ddp_ulp_ops);
	/* A timer that was on its way when TCP destroyed its socket. */
	while (atomic_read(&ddp_live_sockets))
		schedule_timeout_uninterruptible(1);
	synchronize_rcu();
}
