// SPDX-License-Identifier: GPL-2.0-only
/* Requests of a domain that name a socket. Process context; the socket is locked while they run. */
#include <linux/net.h>
#include <linux/slab.h>

#include "ddp.h"

/* The TCP socket of a descriptor, locked; sock_put_locked() ends it. */
static struct socket *sock_get_locked(int fd)
{
	struct socket *sock;
	struct sock *sk;
	int error;

	sock = sockfd_lookup(fd, &error);
	if (!sock)
		return ERR_PTR(error);
	sk = sock->sk;
	if (!sk || sk->sk_type != SOCK_STREAM || sk->sk_protocol != IPPROTO_TCP ||
	    (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)) {
		sockfd_put(sock);
		return ERR_PTR(-EOPNOTSUPP);
	}
	lock_sock(sk);
	return sock;
}

static void sock_put_locked(struct socket *sock)
{
	release_sock(sock->sk);
	sockfd_put(sock);
}

/* Of a socket that is bound to the domain. */
static struct socket *bound_get_locked(struct ddp_domain *domain, int fd, struct ddp_sock **ds)
{
	struct socket *sock = sock_get_locked(fd);

	if (IS_ERR(sock))
		return sock;
	*ds = ddp_sock_with_ulp(sock->sk);
	if (*ds && (*ds)->domain == domain)
		return sock;
	sock_put_locked(sock);
	return ERR_PTR(-ENOTCONN);
}

static int check_rights(u32 rights)
{
	const u32 known = DDP_RIGHT_WRITE | DDP_RIGHT_READ_SINK | DDP_RIGHT_ATOMIC;

	return rights & ~known ? -EINVAL : 0;
}

static int check_bind(const struct ddp_bind *bind)
{
	const u32 known = DDP_BIND_CRC | DDP_BIND_MARKERS | DDP_BIND_IN_ORDER;

	if (bind->flags & ~known || bind->reserved || !bind->qp)
		return -EINVAL;
	return check_rights(bind->rights);
}

/* Clears all but what says what the object is. */
static int reset_rx(struct ddp_sock *ds, const struct ddp_bind *bind)
{
	struct ddp_ahead *ahead = NULL;

	/* With a CRC, not in order, and without markers */
	if (bind->flags == DDP_BIND_CRC) {
		ahead = kzalloc(sizeof(*ahead), GFP_KERNEL_ACCOUNT);
		if (!ahead)
			return -ENOMEM;
	}
	memset(&ds->rx, 0, sizeof(ds->rx));
	memset_after(&ds->delay, 0, base);
	ds->rx.ahead = ahead;
	ds->rx.crc = bind->flags & DDP_BIND_CRC;
	ds->rx.markers = bind->flags & DDP_BIND_MARKERS;
	ds->rx.in_order = bind->flags & DDP_BIND_IN_ORDER;
	ds->bind = *bind;
	ds->dead = false;
	ds->unreadable = false;
	ds->scans = 0;
	ds->waiting_since = 0;
	return 0;
}

static int bind_locked(struct ddp_domain *domain, struct sock *sk, const struct ddp_bind *bind)
{
	struct ddp_sock *ds = ddp_sock_with_ulp(sk);
	const struct ddp_family *family;
	int error;

	if (!ds)
		return -ENOPROTOOPT;
	if (ds->domain)
		return -EALREADY;
	family = ddp_family_of(sk);
	if (!family)
		return -EBUSY;
	if (sk->sk_state != TCP_ESTABLISHED && sk->sk_state != TCP_CLOSE_WAIT)
		return -ENOTCONN;
	if (!atomic_add_unless(&domain->sockets, 1, DDP_MAX_SOCKETS))
		return -ENOSPC;
	error = reset_rx(ds, bind);
	if (error) {
		atomic_dec(&domain->sockets);
		return error;
	}
	ddp_sock_attach(ds, domain, family);
	return 0;
}

int ddp_sock_bind(struct ddp_domain *domain, const struct ddp_bind *bind)
{
	struct socket *sock;
	int error;

	error = check_bind(bind);
	if (error)
		return error;
	sock = sock_get_locked(bind->socket);
	if (IS_ERR(sock))
		return PTR_ERR(sock);
	error = bind_locked(domain, sock->sk, bind);
	sock_put_locked(sock);
	return error;
}

int ddp_sock_rights(struct ddp_domain *domain, const struct ddp_rights *rights)
{
	struct ddp_sock *ds;
	struct socket *sock;
	int error;

	error = check_rights(rights->rights);
	if (error)
		return error;
	sock = bound_get_locked(domain, rights->socket, &ds);
	if (IS_ERR(sock))
		return PTR_ERR(sock);
	ds->bind.rights = rights->rights;
	sock_put_locked(sock);
	return 0;
}

int ddp_sock_unbind(struct ddp_domain *domain, struct ddp_unbind *unbind)
{
	struct ddp_sock *ds;
	struct socket *sock;
	int error = 0;

	if (unbind->flags)
		return -EINVAL;
	sock = bound_get_locked(domain, unbind->socket, &ds);
	if (IS_ERR(sock))
		return PTR_ERR(sock);
	if (ddp_rx_may_unbind(&ds->rx)) {
		unbind->octets = ds->rx.pos;
		ddp_consume_rest(ds);
		ddp_sock_detach(ds);
		/* A thread that waits in poll() for the rest of a Write may read its start now. */
		sock->sk->sk_data_ready(sock->sk);
	} else {
		error = -EAGAIN;
	}
	sock_put_locked(sock);
	return error;
}

static void count(const struct ddp_sock *ds, struct ddp_stats *stats)
{
	const struct ddp_rx *rx = &ds->rx;

	stats->octets = rx->pos;
	stats->placed_octets = rx->count.placed_octets;
	stats->placed_fpdus = rx->count.placed_fpdus;
	stats->placed_messages = rx->count.placed_messages;
	stats->ulpdus = rx->count.ulpdus;
	stats->raw_octets = rx->count.raw_octets;
	stats->scans = ds->scans;
	stats->limited = rx->count.limited;
	stats->dead = ds->dead ? DDP_DEAD_TAKEN : ds->unreadable ? DDP_DEAD_UNREADABLE : 0;
	if (rx->ahead) {
		stats->ahead_octets = rx->ahead->count.octets;
		stats->ahead_fpdus = rx->ahead->count.fpdus;
		stats->wrong_guesses = rx->ahead->count.wrong_guesses;
		stats->misses = rx->ahead->count.misses;
		stats->masked_octets = rx->ahead->count.masked;
		stats->limited += rx->ahead->count.limited;
	}
}

int ddp_sock_stats(struct ddp_domain *domain, struct ddp_stats *stats)
{
	int fd = stats->socket;
	struct ddp_sock *ds;
	struct socket *sock;

	if (stats->flags)
		return -EINVAL;
	memset(stats, 0, sizeof(*stats));
	stats->socket = fd;
	if (fd == -1) {
		ddp_regions_count(domain, stats);
		stats->sockets = atomic_read(&domain->sockets);
		return 0;
	}
	sock = bound_get_locked(domain, fd, &ds);
	if (IS_ERR(sock))
		return PTR_ERR(sock);
	count(ds, stats);
	sock_put_locked(sock);
	return 0;
}
