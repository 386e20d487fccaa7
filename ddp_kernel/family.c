// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions that bound sockets of an address family have in the place of TCP's: of proto recvmsg
 * (ulp.c) and disconnect, of proto_ops poll (octets that are consumed, or wait for the rest of a
 * Write, are nothing to read), release (nothing was left unread) and set_rcvlowat (the socket's own
 * value waits until it is unbound). They are not one socket's: accept() gives a new socket the
 * operations of the old one, whose end it may outlive.
 */
#include <linux/module.h>
#include <linux/net.h>
#if IS_ENABLED(CONFIG_IPV6)
#include <net/transp_v6.h>
#endif

#include "ddp.h"

enum { FAMILY_V4, FAMILY_V6, FAMILIES };
static struct ddp_family families[FAMILIES];

static bool has_nothing_to_read(const struct sock *sk)
{
	const struct ddp_sock *ds;
	bool nothing;

	rcu_read_lock();
	ds = rcu_dereference(inet_csk(sk)->icsk_ulp_data);
	nothing = ds && READ_ONCE(ds->domain) && ddp_is_before_read_at(ds) && !ddp_has_ended(sk);
	rcu_read_unlock();
	return nothing;
}

static __poll_t ddp_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	__poll_t events = tcp_poll(file, sock, wait);

	if (events & EPOLLIN && has_nothing_to_read(sock->sk))
		events &= ~(EPOLLIN | EPOLLRDNORM);
	return events;
}

/*
 * TCP would not tell us of fewer octets. As TCP, no more than half of the buffer: a reader of plain
 * octets would wait for what has no room.
 */
static int ddp_set_rcvlowat(struct sock *sk, int octets)
{
	ddp_sock_of(sk)->rcvlowat = clamp(octets, 1, max(sk->sk_rcvbuf / 2, 1));
	return 0;
}

/* The last close(). TCP resets a connection of which something was not read. */
static int ddp_socket_release(struct socket *sock)
{
	const struct proto_ops *plain;
	struct sock *sk = sock->sk;
	struct ddp_sock *ds;
	int result;

	/* It was made by accept(), which has failed. */
	if (!sk)
		return 0;
	lock_sock(sk);
	ds = ddp_sock_of(sk);
	plain = ds->family->plain_ops;
	ds->closing = true;
	ddp_consume_rest(ds);
	release_sock(sk);
	result = plain->release(sock);
	module_put(plain->owner);
	return result;
}

/* connect() to AF_UNSPEC, and close() with SO_LINGER 0. What follows is a plain socket. */
static int ddp_disconnect(struct sock *sk, int flags)
{
	struct ddp_sock *ds = ddp_sock_of(sk);

	ddp_sock_detach(ds);
	return ds->family->plain_prot->disconnect(sk, flags);
}

const struct ddp_family *ddp_family_of(const struct sock *sk)
{
	int i;

	for (i = 0; i < FAMILIES; i++)
		if (families[i].plain_ops && sk->sk_prot == families[i].plain_prot &&
		    sk->sk_socket->ops == families[i].plain_ops)
			return &families[i];
	return NULL;
}

/* inet6_stream_ops is not exported: a socket tells. */
static int family_init(struct ddp_family *family, int number, struct proto *prot)
{
	struct socket *sock;
	int error;

	error = sock_create_kern(&init_net, number, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (error == -EAFNOSUPPORT)
		return 0;
	if (error)
		return error;
	if (sock->sk->sk_prot == prot) {
		family->plain_prot = prot;
		family->plain_ops = sock->ops;
		family->prot = *prot;
		family->prot.recvmsg = ddp_recvmsg;
		family->prot.disconnect = ddp_disconnect;
		family->ops = *sock->ops;
		family->ops.poll = ddp_poll;
		family->ops.set_rcvlowat = ddp_set_rcvlowat;
		family->ops.release = ddp_socket_release;
		family->ops.owner = THIS_MODULE;
	}
	sock_release(sock);
	return 0;
}

int ddp_families_init(void)
{
	int error = family_init(&families[FAMILY_V4], AF_INET, &tcp_prot);

#if IS_ENABLED(CONFIG_IPV6)
	if (!error)
		error = family_init(&families[FAMILY_V6], AF_INET6, &tcpv6_prot);
#endif
	return error;
}
