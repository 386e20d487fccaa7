// SPDX-License-Identifier: GPL-2.0-only
/*
 * When TCP forgets what core/ has consumed, and sends an ACK for it. To a reader that takes each
 * segment as it comes, TCP sends an ACK for every second one, and an ACK costs both ends several
 * times what placing costs. So consumed octets stay in TCP's queue until a quota of octets has
 * come, or for DELAY_NS. There they take from the window that TCP would offer, which mostly keeps
 * TCP from sending an ACK by itself.
 *
 * The quota follows what the sender sends without an ACK. It grows by a segment each time that it
 * was reached `hits_wanted` times. The sender has waited if the quota was not reached, no segment
 * came any more, and the next one came soon behind the timer's ACK. Then the quota becomes half of
 * what had come, and grows half as fast: a sender with a small window would wait again and again.
 * Behind a hole it begins anew, and grows less often: TCP makes the window of the sender smaller.
 *
 * Under the socket's lock.
 */
#include "ddp.h"

#define DELAY_NS (NSEC_PER_MSEC / 2)
#define SLACK_NS (DELAY_NS / 5)
#define PAUSE_US 100  /* without a segment: the sender has paused */
#define WAITED_US 200 /* it has waited if it goes on so soon behind an answer */
#define QUOTA_MIN (8u * 1024) /* or two segments, if they are shorter */
#define QUOTA_MAX (64u * 1024)
#define HITS_MAX 8

/* Of received octets, those that an ACK is still to be sent for. */
static u32 unanswered(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return inet_csk_ack_scheduled(sk) ? tp->rcv_nxt - tp->rcv_wup : 0;
}

static u64 kept(const struct ddp_sock *ds)
{
	return ds->rx.pos - ds->base;
}

void ddp_consume(struct ddp_sock *ds)
{
	u64 n = kept(ds);

	if (!n)
		return;
	tcp_read_done(ds->sk, n);
	ds->copied_seq = tcp_sk(ds->sk)->copied_seq;
	ds->base = ds->rx.pos;
}

void ddp_consume_rest(struct ddp_sock *ds)
{
	ddp_is_ours(ds);
	if (ds->dead)
		return;
	ds->busy = true;
	ddp_consume(ds);
	ds->busy = false;
}

/* The timestamp of an ACK for which nothing was consumed is that of the last segment. */
static void consume_and_answer(struct ddp_sock *ds)
{
	ddp_consume(ds);
	/* Also for octets that wait for the rest of their FPDU. */
	if (unanswered(ds->sk))
		ddp_send_ack(ds->sk);
}

static void note_delay(struct ddp_sock *ds)
{
	ds->delay.wup = tcp_sk(ds->sk)->rcv_wup;
	ds->delay.base = ds->base;
}

static void start_timer(struct ddp_sock *ds)
{
	note_delay(ds);
	ds->delay.runs = true;
	refcount_inc(&ds->refs);
	sock_hold(ds->sk);
	hrtimer_start_range_ns(&ds->delay.timer, ns_to_ktime(DELAY_NS), SLACK_NS,
			       HRTIMER_MODE_REL_SOFT);
}

/* A segment is missing, or was until now: octets have come behind it since the last call. */
static bool had_hole(struct ddp_sock *ds)
{
	const struct tcp_sock *tp = tcp_sk(ds->sk);
	const bool had = tp->rcv_ooopack != ds->delay.ooopack;

	ds->delay.ooopack = tp->rcv_ooopack;
	return had || !RB_EMPTY_ROOT(&tp->out_of_order_queue);
}

static void on_hole(struct ddp_delay *delay)
{
	delay->quota = 0;
	delay->hits = 0;
	delay->hits_wanted = HITS_MAX;
}

static void on_quota(struct ddp_delay *delay, u32 quota, u32 segment)
{
	if (++delay->hits < delay->hits_wanted)
		return;
	delay->hits = 0;
	delay->quota = min(quota + segment, QUOTA_MAX);
	if (delay->quota == QUOTA_MAX)
		delay->hits_wanted = 0;
}

/* Of TCP's time: that of the last segment, ours or the peer's. */
static bool has_paused(const struct sock *sk)
{
	return tcp_clock_us() - tcp_sk(sk)->tcp_mstamp >= PAUSE_US;
}

static void on_wait(struct ddp_delay *delay)
{
	delay->quota = delay->paused / 2;
	delay->hits = 0;
	delay->hits_wanted = clamp(2 * delay->hits_wanted, 1, HITS_MAX);
}

void ddp_consume_later(struct ddp_sock *ds)
{
	struct sock *sk = ds->sk;
	u32 segment = inet_csk(sk)->icsk_ack.rcv_mss;
	u32 owed = unanswered(sk);
	u32 quota;

	if (ds->delay.paused) {
		if (tcp_sk(sk)->tcp_mstamp - ds->delay.answered < WAITED_US)
			on_wait(&ds->delay);
		ds->delay.paused = 0;
	}
	quota = clamp(ds->delay.quota, min(2 * segment, QUOTA_MIN), QUOTA_MAX);
	if (ds->closing) {
		ddp_consume(ds);
	} else if (had_hole(ds)) {
		/* TCP answers what comes behind it and what fills it; the sender sends less. */
		on_hole(&ds->delay);
		ddp_consume(ds);
	} else if (owed >= quota) {
		on_quota(&ds->delay, quota, segment);
		consume_and_answer(ds);
	} else if (kept(ds) >= QUOTA_MAX || owed >= tcp_sk(sk)->rcv_wnd / 4 ||
		   tcp_epollin_ready(sk, INT_MAX)) {
		/* The window is small or closing, or answers went with data of ours. */
		consume_and_answer(ds);
	}
	if (!ds->delay.runs && (kept(ds) || unanswered(sk)))
		start_timer(ds);
}

/* DELAY_NS have passed, and the socket is ours. True: once more. */
static bool on_delay(struct ddp_sock *ds)
{
	struct sock *sk = ds->sk;
	u32 owed = unanswered(sk);

	if (!ds->domain || !ddp_is_ours(ds))
		return false;
	ds->busy = true;
	if (owed && tcp_sk(sk)->rcv_wup == ds->delay.wup) {
		if (has_paused(sk)) {
			ds->delay.paused = owed;
			ds->delay.answered = tcp_clock_us();
		}
		consume_and_answer(ds);
	} else if (ds->base == ds->delay.base) {
		ddp_consume(ds);
	}
	ds->busy = false;
	note_delay(ds);
	return kept(ds) || unanswered(sk);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	struct ddp_sock *ds = container_of(timer, struct ddp_sock, delay.timer);
	struct sock *sk = ds->sk;
	bool again = true;

	bh_lock_sock(sk);
	/* What a call owns is not looked at. */
	if (!sock_owned_by_user(sk)) {
		again = on_delay(ds);
		ds->delay.runs = again;
	}
	bh_unlock_sock(sk);
	if (again) {
		hrtimer_forward_now(timer, ns_to_ktime(DELAY_NS));
		return HRTIMER_RESTART;
	}
	ddp_sock_put(ds);
	sock_put(sk);
	return HRTIMER_NORESTART;
}

void ddp_consume_init(struct ddp_sock *ds)
{
	ddp_timer_init(&ds->delay.timer, on_timer);
}

void ddp_consume_end(struct ddp_sock *ds)
{
	/* One that runs waits for the lock, and ends by itself. */
	if (!ds->delay.runs || hrtimer_try_to_cancel(&ds->delay.timer) != 1)
		return;
	ds->delay.runs = false;
	ddp_sock_put(ds);
	sock_put(ds->sk);
}
