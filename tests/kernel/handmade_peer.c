// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "handmade_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ddp_test.h"

#define KERNEL_ADDRESS 0xc6125001u /* 198.18.80.1 */
#define PEER_ADDRESS 0xc6125002u
#define IP_HEADER 20
#define TCP_HEADER 20
#define FLAG_SYN 0x02
#define FLAG_PSH 0x08
#define FLAG_ACK 0x10

static uint32_t sum_of(const uint8_t *octets, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += i % 2 ? octets[i] : (uint32_t)octets[i] << 8;
	return sum;
}

static uint16_t checksum(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Sends a packet out of d1. */
static void send_packet(struct peer *peer, uint32_t seq, int flags, const void *octets, size_t n)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = (int)if_nametoindex("d1"),
		.sll_halen = ETH_ALEN,
	};
	uint8_t packet[IP_HEADER + TCP_HEADER + SEGMENT_MAX] = { 0x45 };
	uint8_t *tcp = packet + IP_HEADER;
	const size_t length = IP_HEADER + TCP_HEADER + n;
	struct ifreq kernel_end = { .ifr_name = "d0" };
	uint32_t sum;

	REQUIRE(ioctl(peer->packets, SIOCGIFHWADDR, &kernel_end) == 0, "d0");
	memcpy(to.sll_addr, kernel_end.ifr_hwaddr.sa_data, ETH_ALEN);
	put_be(packet + 2, length, 2);
	packet[8] = 64; /* TTL */
	packet[9] = IPPROTO_TCP;
	put_be(packet + 12, PEER_ADDRESS, 4);
	put_be(packet + 16, KERNEL_ADDRESS, 4);
	put_be(packet + 10, checksum(sum_of(packet, IP_HEADER, 0)), 2);
	put_be(tcp, peer->port, 2);
	put_be(tcp + 2, peer->kernel_port, 2);
	put_be(tcp + 4, seq, 4);
	put_be(tcp + 8, peer->ack, 4);
	tcp[12] = TCP_HEADER / 4 << 4;
	tcp[13] = (uint8_t)(flags | FLAG_ACK);
	put_be(tcp + 14, 65535, 2);
	if (flags & SEGMENT_URG)
		put_be(tcp + 18, 1, 2);
	memcpy(tcp + TCP_HEADER, octets, n);
	sum = sum_of(packet + 12, 8, IPPROTO_TCP + TCP_HEADER + (uint32_t)n);
	put_be(tcp + 16, checksum(sum_of(tcp, TCP_HEADER + n, sum)), 2);
	REQUIRE(sendto(peer->packets, packet, length, 0, (struct sockaddr *)&to, sizeof(to)) ==
		(ssize_t)length, "send a segment");
}

/* The next packet of the kernel's to this peer: its flags; 0: there is none. */
static int take_packet(struct peer *peer)
{
	uint8_t packet[2048];
	ssize_t n;

	while ((n = recv(peer->packets, packet, sizeof(packet), MSG_DONTWAIT)) > 0) {
		const size_t header = (packet[0] & 15u) * 4;
		const uint8_t *tcp = packet + header;
		size_t octets;

		if (n < IP_HEADER || packet[9] != IPPROTO_TCP ||
		    get_be(packet + 12, 4) != KERNEL_ADDRESS || (size_t)n < header + TCP_HEADER ||
		    get_be(tcp + 2, 2) != peer->port)
			continue;
		octets = get_be(packet + 2, 2) - header - (tcp[12] >> 4) * 4;
		peer->kernel_port = (uint16_t)get_be(tcp, 2);
		peer->ack = get_be(tcp + 4, 4) + (uint32_t)octets;
		peer->ack += !!(tcp[13] & (FLAG_SYN | SEGMENT_FIN));
		if (tcp[13] & FLAG_ACK)
			peer->acked = get_be(tcp + 8, 4) - peer->first;
		return tcp[13];
	}
	return 0;
}

static bool wait_packet(struct peer *peer, int flags)
{
	struct pollfd poll_fd = { .fd = peer->packets, .events = POLLIN };

	for (int i = 0; i < 1000; i++) {
		int found = take_packet(peer);

		if ((found & flags) == flags)
			return true;
		if (!found)
			poll(&poll_fd, 1, 5);
	}
	return false;
}

int peer_connect(struct peer *peer)
{
	static uint16_t last_port = 4000;
	struct sockaddr_ll from = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = (int)if_nametoindex("d1"),
	};
	struct sockaddr_in to = { .sin_family = AF_INET };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd poll_fd = { .fd = s, .events = POLLOUT };

	*peer = (struct peer){ .port = ++last_port, .first = 0x7ffffff0u };
	peer->packets = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
	REQUIRE(from.sll_ifindex != 0 && peer->packets >= 0 &&
		bind(peer->packets, (struct sockaddr *)&from, sizeof(from)) == 0, "packets of d1");
	to.sin_addr.s_addr = htonl(PEER_ADDRESS);
	to.sin_port = htons(peer->port);
	REQUIRE(connect(s, (struct sockaddr *)&to, sizeof(to)) < 0 && errno == EINPROGRESS,
		"connect");
	REQUIRE(wait_packet(peer, FLAG_SYN), "SYN");
	send_packet(peer, peer->first - 1, FLAG_SYN, "", 0);
	REQUIRE(wait_packet(peer, FLAG_ACK), "ACK of the SYN");
	REQUIRE(poll(&poll_fd, 1, 5000) == 1, "connected");
	return s;
}

void peer_close(struct peer *peer)
{
	close(peer->packets);
}

void peer_send(struct peer *peer, uint32_t at, const void *octets, size_t n, int flags)
{
	REQUIRE(n <= SEGMENT_MAX, "a segment that is short enough");
	send_packet(peer, peer->first + at, flags | FLAG_PSH, octets, n);
}

void peer_hear(struct peer *peer)
{
	while (take_packet(peer))
		;
}
