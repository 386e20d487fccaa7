// SPDX-License-Identifier: GPL-2.0-only
/*
 * TCP's two queues as a range of positions: the queue's side of core/env.h. Under the socket's
 * lock. skbs may overlap, grow, be merged, and be thrown away between two calls: none is kept.
 */
#include <linux/crc32c.h>

#include "core/span.h"
#include "ddp.h"

u64 ddp_skb_from(const struct ddp_sock *ds, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = TCP_SKB_CB(skb);

	return ddp_position(ds, cb->seq + !!(cb->tcp_flags & TCPHDR_SYN));
}

static struct sk_buff *next_skb(const struct ddp_env *env, struct sk_buff *skb)
{
	if (env->ahead)
		return skb_rb_next(skb);
	return skb_queue_is_last(&env->ds->sk->sk_receive_queue, skb) ? NULL : skb->next;
}

static u64 later_of(u64 a, u64 b)
{
	return ddp_is_before(a, b) ? b : a;
}

static struct sk_buff *skb_before(const struct ddp_env *env, struct sk_buff *skb)
{
	if (skb == env->first)
		return NULL;
	return env->ahead ? skb_rb_prev(skb) : skb->prev;
}

/* Look-ups go on from this skb. */
static void start_at(struct ddp_env *env, struct sk_buff *skb)
{
	const struct sk_buff *before = skb_before(env, skb);
	u64 from = ddp_skb_from(env->ds, skb);

	env->skb = skb;
	env->own = from;
	env->end = from + skb->len;
	if (before)
		env->own = later_of(from, ddp_skb_from(env->ds, before) + before->len);
}

/* Goes back while position `at` belongs to an skb before that of the last look-up. */
static void step_back(struct ddp_env *env, u64 at)
{
	if (env->uneven && ddp_is_before(at, env->own))
		start_at(env, env->first);
	while (env->skb != env->first && ddp_is_before(at, env->own))
		start_at(env, skb_before(env, env->skb));
}

/*
 * The skb that holds position `at`, and the octet's place in it. NULL: none that can be read. Where
 * skbs overlap, which may have different octets, it is the first, as in TCP's own recv(). In the
 * receive queue each ends behind those before it. In the out-of-order queue mostly: TCP may join a
 * segment to the skb before it, and leave those that the segment covers.
 */
static struct sk_buff *seek(struct ddp_env *env, u64 at, u32 *offset)
{
	struct sk_buff *skb;
	u64 own, end;

	step_back(env, at);
	skb = env->skb;
	own = env->own;
	end = env->end;
	while (skb && !ddp_is_before(at, own)) {
		u64 from;

		if (ddp_is_before(at, end)) {
			if (!skb_frags_readable(skb))
				break;
			*offset = (u32)(at - (end - skb->len));
			env->skb = skb;
			env->own = own;
			env->end = end;
			return skb;
		}
		skb = next_skb(env, skb);
		if (!skb)
			break;
		from = ddp_skb_from(env->ds, skb);
		own = later_of(later_of(own, end), from);
		end = from + skb->len;
	}
	env->unreadable = true;
	return NULL;
}

/* Of the last piece found, the octets that belong to skbs before its own are not looked at. */
static void clip_piece(struct ddp_env *env)
{
	u32 n;

	if (!ddp_is_before(env->piece_from, env->own))
		return;
	n = (u32)(env->own - env->piece_from);
	env->piece += n;
	env->piece_from += n;
	env->piece_n -= n;
}

/* Octets of an skb's piece i: 0 is its linear part, the others are its frags. */
static u32 piece_size(const struct sk_buff *skb, int i)
{
	return i ? skb_frag_size(&skb_shinfo(skb)->frags[i - 1]) : skb_headlen(skb);
}

/*
 * The piece of an skb, which begins at position `from`, that holds octet `offset`. It is looked for
 * from the last one on, or, as what has come last is at the end, from there.
 */
static bool find_piece(struct ddp_env *env, const struct sk_buff *skb, u64 from, u32 offset)
{
	const skb_frag_t *frags = skb_shinfo(skb)->frags;
	int i = 0, last = skb_shinfo(skb)->nr_frags;
	u32 n, end;

	if (env->piece_n && env->piece_of == skb) {
		i = env->piece_index;
		n = piece_size(skb, i);
		end = (u32)(env->piece_from + env->piece_n - from);
	} else if (offset >= skb->len / 2 && !skb_has_frag_list(skb)) {
		i = last;
		n = piece_size(skb, i);
		end = skb->len;
	} else {
		n = skb_headlen(skb);
		end = n;
	}
	while (offset >= end) {
		if (i == last)
			return false;
		n = piece_size(skb, ++i);
		end += n;
	}
	while (offset < end - n) {
		end -= n;
		n = piece_size(skb, --i);
	}
	if (i && PageHighMem(skb_frag_page(&frags[i - 1])))
		return false;
	env->piece = i ? skb_frag_address(&frags[i - 1]) : skb->data;
	env->piece_of = skb;
	env->piece_index = i;
	env->piece_from = from + (end - n);
	env->piece_n = n;
	clip_piece(env);
	return true;
}

/* The octets [at, at + n), if they are those that were found last. */
static __always_inline const u8 *in_piece(const struct ddp_env *env, u64 at, u32 n)
{
	u32 offset;

	if (!ddp_span_has(env->piece_from, env->piece_n, at, &offset) || n > env->piece_n - offset)
		return NULL;
	return env->piece + offset;
}

const u8 *ddp_queue_in_place(const struct ddp_env *env, u64 at, u32 n)
{
	return in_piece(env, at, n);
}

/*
 * What is done with `n` octets: `octets`, or, where they do not lie in one place that can be
 * addressed, those of the skb. False: it cannot be, and the walk ends.
 */
typedef bool part_fn(const u8 *octets, struct sk_buff *skb, u32 offset, u32 n, void *arg);

/* Calls `visit`, which is inlined, for the octets [at, at + n) in order, piece by piece. */
static __always_inline bool walk(struct ddp_env *env, u64 at, u32 n, part_fn *visit, void *arg)
{
	while (n) {
		const u8 *octets = NULL;
		struct sk_buff *skb = NULL;
		u32 offset, part;

		if (!ddp_span_has(env->piece_from, env->piece_n, at, &offset)) {
			skb = seek(env, at, &offset);
			if (!skb)
				return false;
			part = min(n, skb->len - offset);
			if (find_piece(env, skb, at - offset, offset))
				offset = (u32)(at - env->piece_from);
			else
				env->piece_n = 0;
		}
		if (env->piece_n) {
			octets = env->piece + offset;
			part = min(n, env->piece_n - offset);
		}
		if (!visit(octets, skb, offset, part, arg))
			return false;
		at += part;
		n -= part;
	}
	return true;
}

static __always_inline bool copy_part(const u8 *octets, struct sk_buff *skb, u32 offset, u32 n,
				      void *arg)
{
	void **to = arg;

	if (octets)
		memcpy(*to, octets, n);
	else if (skb_copy_bits(skb, offset, *to, n))
		return false;
	*to += n;
	return true;
}

bool ddp_queue_copy(struct ddp_env *env, u64 at, void *to, u32 n)
{
	const u8 *octets = in_piece(env, at, n);

	if (octets) {
		memcpy(to, octets, n);
		return true;
	}
	if (walk(env, at, n, copy_part, &to))
		return true;
	env->unreadable = true;
	return false;
}

bool ddp_env_peek(struct ddp_env *env, u64 at, void *to, u32 n)
{
	struct sk_buff *skb;
	const u8 *octets;
	u32 offset;

	if (n != DDP_FPDU_HEAD)
		return ddp_queue_copy(env, at, to, n);
	/* A whole header in one place: most of the look-ups. */
	octets = in_piece(env, at, DDP_FPDU_HEAD);
	if (!octets) {
		skb = seek(env, at, &offset);
		if (skb && find_piece(env, skb, at - offset, offset))
			octets = in_piece(env, at, DDP_FPDU_HEAD);
	}
	if (!octets)
		return ddp_queue_copy(env, at, to, n);
	memcpy(to, octets, DDP_FPDU_HEAD);
	return true;
}

static u32 crc_of_skb(u32 crc, struct sk_buff *skb, u32 offset, u32 n)
{
	struct skb_seq_state state;
	const u8 *data;
	u32 done = 0, part;

	skb_prepare_seq_read(skb, offset, offset + n, &state);
	while ((part = skb_seq_read(done, &data, &state)) != 0) {
		part = min(part, n - done);
		crc = crc32c(crc, data, part);
		done += part;
		if (done == n) {
			skb_abort_seq_read(&state);
			break;
		}
	}
	return crc;
}

static __always_inline bool crc_part(const u8 *octets, struct sk_buff *skb, u32 offset, u32 n,
				     void *arg)
{
	u32 *crc = arg;

	*crc = octets ? crc32c(*crc, octets, n) : crc_of_skb(*crc, skb, offset, n);
	return true;
}

static bool crc_holds(struct ddp_env *env, u64 at, u32 octets)
{
	u32 n = octets - DDP_FPDU_CRC, crc = ~0u;
	const u8 *whole = in_piece(env, at, octets);
	__le32 sent;

	if (whole)
		return ~crc32c(crc, whole, n) == get_unaligned_le32(whole + n);
	return walk(env, at, n, crc_part, &crc) &&
	       ddp_queue_copy(env, at + n, &sent, sizeof(sent)) && ~crc == le32_to_cpu(sent);
}

bool ddp_env_crc_holds(struct ddp_env *env, u64 at, u32 octets)
{
	bool holds = crc_holds(env, at, octets);

	if (!holds)
		ddp_count(wrong_crcs, 1);
	return holds;
}

bool ddp_env_give(struct ddp_env *env, const void *from, u32 n)
{
	return copy_to_iter(from, n, env->to) == n;
}

void ddp_env_skip(struct ddp_env *env, u32 n)
{
	iov_iter_advance(env->to, n);
}

static __always_inline bool give_part(const u8 *octets, struct sk_buff *skb, u32 offset, u32 n,
				      void *arg)
{
	if (octets)
		return copy_to_iter(octets, n, arg) == n;
	return !skb_copy_datagram_iter(skb, offset, arg, n);
}

bool ddp_env_give_stream(struct ddp_env *env, u64 at, u32 n)
{
	return walk(env, at, n, give_part, env->to);
}

u64 ddp_queue_in_order(struct ddp_env *env, struct ddp_sock *ds, struct iov_iter *to)
{
	struct sk_buff *last = skb_peek_tail(&ds->sk->sk_receive_queue);
	u64 end;
	u32 offset;

	*env = (struct ddp_env){ .ds = ds, .to = to };
	/* Frees what lies below the sequence number. */
	env->first = tcp_recv_skb(ds->sk, tcp_sk(ds->sk)->copied_seq, &offset);
	if (!env->first)
		return 0;
	end = ddp_skb_from(ds, last) + last->len;
	if (!ddp_is_before(ds->rx.pos, end))
		return 0;
	/* Behind what was consumed and stays, which is mostly more than what has come. */
	start_at(env, ds->rx.pos == ds->base ? env->first : last);
	step_back(env, ds->rx.pos);
	return end - ds->rx.pos;
}

#define OCTETS_PER_SKB 16 /* of the budget, for walking over one */

/*
 * Octets of the out-of-order queue without a gap, from the first of `env` to *end. Answers where
 * the next begin.
 */
static struct sk_buff *range_from(struct ddp_env *env, u64 *end)
{
	struct sk_buff *skb = env->first;

	*end = ddp_skb_from(env->ds, skb) + skb->len;
	while ((skb = skb_rb_next(skb)) != NULL && ddp_skb_from(env->ds, skb) <= *end) {
		u64 own_end = ddp_skb_from(env->ds, skb) + skb->len;

		env->uneven |= own_end < *end;
		*end = max(*end, own_end);
	}
	return skb;
}

/* Looks at such octets. Answers where the next begin. */
static struct sk_buff *look_at_range(struct ddp_sock *ds, struct sk_buff *first, u32 *budget)
{
	struct ddp_env env = { .ds = ds, .first = first, .ahead = true };
	u64 at = ddp_skb_from(ds, first), end;
	struct sk_buff *behind = range_from(&env, &end);
	struct sk_buff *skb;

	start_at(&env, first);
	/* Positions only grow, whatever overlaps. */
	for (skb = first; skb != behind && *budget; skb = skb_rb_next(skb)) {
		u64 from = ddp_skb_from(ds, skb);

		*budget -= min_t(u32, *budget, OCTETS_PER_SKB);
		if (from >= at)
			at = ddp_ahead_chain(ds->rx.ahead, &env, from, end, budget);
	}
	ddp_env_end(&env);
	return behind;
}

void ddp_queue_look_ahead(struct ddp_sock *ds)
{
	struct tcp_sock *tp = tcp_sk(ds->sk);
	struct sk_buff *skb = skb_rb_first(&tp->out_of_order_queue);
	u32 budget = DDP_HOOK_OCTETS;
	u32 seen = tp->rcv_ooopack;

	if (!skb || seen == ds->seen_ooopack || !ddp_rx_may_look_ahead(&ds->rx))
		return;
	ds->scans++;
	ddp_ahead_begin(ds->rx.ahead, ddp_position(ds, tp->rcv_nxt), ddp_skb_from(ds, skb));
	while (skb && budget)
		skb = look_at_range(ds, skb, &budget);
	/* What a limit has left is looked at again when the next segment is sent. */
	ds->seen_ooopack = ddp_ahead_goes_on(ds->rx.ahead, budget) ? seen - 1 : seen;
}
