// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments that no kernel sends: overlapping ones, with the same and with other octets, cut
 * anywhere, thrown away by TCP and sent again; FIN, RST and URG around a hole. Its caller makes the
 * veth pair of handmade_peer.h.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/tcp.h>

#include "handmade_peer.h"
#include "user_level.h"

#define STAG 0x5151
#define REGION 65536
#define WRITES 24
#define BYTES 500 /* of each Write */

static int domain;
static struct user_level user = { .stag = STAG, .length = REGION };

/* What the peer has to send: a Send, Writes one behind the other, and a Send. */
static struct {
	uint8_t octets[32768];
	uint32_t from[WRITES + 3]; /* of each FPDU; the last: where all ends */
} stream;

static uint8_t octet_of(uint32_t at, int kind)
{
	return (uint8_t)(at * 7 + at / 256 + (uint32_t)kind * 101);
}

static void make_stream(int kind)
{
	uint8_t payload[BYTES];
	size_t n = fpdu_send(stream.octets, 1, "first", 5);

	stream.from[0] = 0;
	for (uint32_t i = 0; i < WRITES; i++) {
		stream.from[1 + i] = (uint32_t)n;
		for (uint32_t at = 0; at < BYTES; at++)
			payload[at] = octet_of(i * BYTES + at, kind);
		n += fpdu_write(stream.octets + n, STAG, i * BYTES, payload, BYTES, true);
	}
	stream.from[1 + WRITES] = (uint32_t)n;
	n += fpdu_send(stream.octets + n, 2, "last", 4);
	stream.from[2 + WRITES] = (uint32_t)n;
}

/* Octets [from, to) of the stream, in segments. */
static void send_part(struct peer *peer, uint32_t from, uint32_t to, int flags)
{
	while (from < to) {
		uint32_t n = to - from < SEGMENT_MAX ? to - from : SEGMENT_MAX;

		peer_send(peer, from, stream.octets + from, n, n == to - from ? flags : 0);
		from += n;
	}
}

static int connect_bound(struct peer *peer, uint32_t flags)
{
	int s = peer_connect(peer);

	memset(user.memory, 0, REGION);
	user.held_n = 0;
	user.stored = 0;
	REQUIRE(bind_socket(domain, s, flags) == 0, "BIND");
	return s;
}

/* The first Send is read; then Writes may be placed behind holes. */
static int begin_as(struct peer *peer, uint32_t flags)
{
	int s = connect_bound(peer, flags);
	struct record record;

	send_part(peer, 0, stream.from[1], 0);
	record = record_wait(s, 1000);
	REQUIRE(user_level_record(&user, &record), "the first Send");
	return s;
}

static int begin(struct peer *peer)
{
	return begin_as(peer, DDP_BIND_CRC);
}

/* Reads until a Send. *placed: Writes that were told of as placed. */
static bool read_to_send(int s, uint64_t *placed)
{
	for (int i = 0; i < 1000; i++) {
		struct record record = record_wait(s, 1000);

		if (!record.type)
			return false;
		if (record.type == DDP_RECORD_PLACED)
			*placed += record.placed.messages;
		else if (user_level_record(&user, &record))
			return true;
	}
	return false;
}

static bool holds(int kind, uint32_t from, uint32_t to)
{
	for (; from < to; from++)
		if (user.memory[from] != octet_of(from, kind))
			return false;
	return true;
}

static void finish(struct peer *peer, int s)
{
	const struct linger reset = { .l_onoff = 1 };

	/* The peer does not answer a FIN. */
	setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	while (record_next(s).type) /* the next socket may have its number */
		;
	close(s);
	peer_close(peer);
}

/* A counter of TCP's, by its name in /proc/net/netstat: a line of names, then one of values. */
static unsigned long tcp_counter(const char *name)
{
	static char names[8192], values[8192];
	FILE *file = fopen("/proc/net/netstat", "re");
	char *left = names, *right = values, *word;

	REQUIRE(file && fgets(names, sizeof(names), file) && fgets(values, sizeof(values), file),
		"/proc/net/netstat");
	fclose(file);
	while ((word = strsep(&left, " ")) != NULL) {
		const char *value = strsep(&right, " ");

		if (value && !strcmp(word, name))
			return strtoul(value, NULL, 10);
	}
	REQUIRE(false, name);
	return 0;
}

static void same_octets_again_and_again(void)
{
	const uint32_t *from = stream.from;
	struct peer peer;
	uint64_t placed = 0;
	int s = begin(&peer);

	send_part(&peer, from[3], from[5], 0);
	send_part(&peer, from[3] + 10, from[6], 0);		/* overlaps the end */
	send_part(&peer, from[8], from[9], 0);
	send_part(&peer, from[7], from[10], 0);			/* covers it */
	send_part(&peer, from[4] - 1, from[4] + 1, 0);		/* lies within */
	send_part(&peer, from[12] + 3, from[14] - 3, 0);	/* aligned to nothing */
	send_part(&peer, from[2] + 5, from[3] + 50, 0);
	usleep(20000);
	CHECK(socket_stats(domain, s).ahead_fpdus >= 6, "Writes behind holes are placed");
	CHECK(holds(0, 2 * BYTES, 5 * BYTES) && holds(0, 6 * BYTES, 9 * BYTES),
	      "they are in place before the holes are filled");
	send_part(&peer, from[1], from[2] + 100, 0);
	send_part(&peer, from[2], from[2 + WRITES], 0);
	CHECK(read_to_send(s, &placed), "the last Send comes");
	CHECK(placed + user.stored == WRITES, "each Write counts once");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	finish(&peer, s);
}

/* Until TCP has segments behind a hole, and the answer to them is sent. */
static bool wait_ahead(int s)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	for (int i = 0; i < 1000; i++) {
		REQUIRE(getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &size) == 0, "TCP_INFO");
		usleep(20000);
		if (info.tcpi_rcv_ooopack)
			return true;
	}
	return false;
}

/* Writes that lie behind a hole wait there: of a binding, and of a region. */
static void waits_for_order(uint32_t flags, uint32_t rights, const char *what)
{
	static const uint8_t untouched[4 * BYTES];
	const uint32_t *from = stream.from;
	struct peer peer;
	uint64_t placed = 0;
	int s;

	REQUIRE(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0 &&
		region_add(domain, STAG, user.memory, REGION, rights) == 0, "the region");
	s = begin_as(&peer, flags);
	send_part(&peer, from[2], from[6], 0);
	REQUIRE(wait_ahead(s), "they have come");
	CHECK(!memcmp(user.memory + BYTES, untouched, sizeof(untouched)) &&
	      socket_stats(domain, s).ahead_fpdus == 0, what);
	send_part(&peer, from[1], from[2 + WRITES], 0);
	CHECK(read_to_send(s, &placed) && placed + user.stored == WRITES && placed,
	      "until it is filled");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	finish(&peer, s);
}

/* TCP joins a segment to the one before it, and leaves those that the segment covers. */
static void joined_over_others(void)
{
	const uint32_t *from = stream.from, at = from[3];
	const unsigned long joined = tcp_counter("TCPRcvCoalesce");
	struct peer peer;
	uint64_t placed = 0;
	int s = begin(&peer);

	/* There is room for it behind the first, which is too long for a head of the small kind. */
	send_part(&peer, at, at + 400, 0);
	send_part(&peer, at + 410, at + 420, 0);
	send_part(&peer, at + 430, at + 440, 0);
	send_part(&peer, at + 540, from[5], 0);
	send_part(&peer, at + 400, at + 540, 0);
	usleep(20000);
	CHECK(tcp_counter("TCPRcvCoalesce") > joined, "TCP has joined two");
	CHECK(socket_stats(domain, s).ahead_fpdus == 2, "both Writes are placed");
	CHECK(holds(0, 2 * BYTES, 4 * BYTES), "and in place");
	send_part(&peer, from[1], from[2 + WRITES], 0);
	CHECK(read_to_send(s, &placed) && placed + user.stored == WRITES, "each counts once");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	finish(&peer, s);
}

/* The second time a Write comes with other octets, and a sound CRC. */
static void other_octets_the_second_time(void)
{
	const uint32_t *from = stream.from;
	struct peer peer;
	uint64_t placed = 0;
	int s = begin(&peer);

	send_part(&peer, from[3], from[4], 0);
	usleep(20000);
	REQUIRE(holds(0, 2 * BYTES, 3 * BYTES), "a Write behind a hole is placed");
	make_stream(1);
	send_part(&peer, from[2], from[6], 0);
	make_stream(0);
	send_part(&peer, from[1], from[2 + WRITES], 0);
	CHECK(read_to_send(s, &placed), "the last Send comes");
	CHECK(placed + user.stored == WRITES, "each Write counts once");
	CHECK(holds(0, 0, BYTES) && holds(0, 5 * BYTES, WRITES * BYTES), "others are as they came");
	for (uint32_t at = BYTES; at < 5 * BYTES; at += BYTES)
		CHECK(holds(0, at, at + BYTES) || holds(1, at, at + BYTES),
		      "its memory is wholly of one or the other");
	finish(&peer, s);
}

/* Where segments overlap, all that is read of an octet is the same: TCP's own recv() says which. */
static void one_octet_is_one_octet(void)
{
	uint8_t octets[400] = { 0, 0, 0, 0, 0x01, 0x40 };
	struct record record = { 0 };
	struct peer peer;
	int s = connect_bound(&peer, DDP_BIND_CRC | DDP_BIND_MARKERS);

	peer_send(&peer, 0, octets, 4, 0); /* a marker */
	record = record_wait(s, 1000);
	REQUIRE(record.type == DDP_RECORD_RAW && record.length == 4, "a marker goes up by itself");
	peer_send(&peer, 4, "\0", 1, 0);
	peer_send(&peer, 0, octets, sizeof(octets), 0); /* TCP keeps its front too */
	usleep(20000);
	record = record_wait(s, 1000);
	CHECK(record.type == DDP_RECORD_RAW && record.length > 1, "octets go up");
	CHECK(record.length == 72 && record.body[0] == 0 && record.body[1] == 0x40,
	      "the length that was read is the one that goes up");
	finish(&peer, s);
}

static void fin_behind_a_hole(void)
{
	const uint32_t *from = stream.from;
	struct record record;
	struct peer peer;
	uint64_t placed = 0;
	int s = begin(&peer);

	send_part(&peer, from[2], from[2 + WRITES], SEGMENT_FIN);
	usleep(20000);
	CHECK(holds(0, BYTES, WRITES * BYTES), "all behind the hole is in place");
	send_part(&peer, from[1], from[2], 0);
	CHECK(read_to_send(s, &placed) && placed + user.stored == WRITES, "all is told of");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	record = record_wait(s, 1000);
	CHECK(!record.type && !record.error, "then the stream has ended");
	finish(&peer, s);
}

static void reset_behind_a_hole(void)
{
	const uint32_t *from = stream.from;
	struct record record;
	struct peer peer;
	int s = begin(&peer);

	send_part(&peer, from[2], from[4], 0);
	usleep(20000);
	/* RFC 5961 has one that is not the next answered only. */
	peer_send(&peer, from[1], "", 0, SEGMENT_RST);
	record = record_wait(s, 1000);
	CHECK(!record.type && record.error == ECONNRESET, "the reader learns of a reset");
	CHECK(holds(0, BYTES, 3 * BYTES), "what was placed stays");
	finish(&peer, s);
}

static void urgent_octets(void)
{
	const uint32_t *from = stream.from;
	struct peer peer;
	uint64_t placed = 0;
	int s = begin(&peer);

	/* TCP takes an urgent octet out of the stream when the next one comes. */
	send_part(&peer, from[1], from[2], SEGMENT_URG);
	send_part(&peer, from[2], from[3], SEGMENT_URG);
	send_part(&peer, from[4], from[5], SEGMENT_URG);
	send_part(&peer, from[3], from[4], SEGMENT_URG);
	send_part(&peer, from[5], from[2 + WRITES], SEGMENT_URG);
	CHECK(read_to_send(s, &placed) && placed + user.stored == WRITES,
	      "octets that TCP calls urgent are octets of the stream");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	finish(&peer, s);
}

/* Segments of a few octets behind a hole, more than the buffer takes: TCP throws some away. */
static void pruned_and_sent_again(void)
{
	const uint32_t *from = stream.from, end = from[2 + WRITES];
	const unsigned long pruned = tcp_counter("OfoPruned");
	const unsigned long collapsed = tcp_counter("TCPRcvCollapsed");
	struct peer peer;
	uint64_t placed = 0;
	bool last = false;
	const int small = 4096;
	int s = begin(&peer);

	/* Less than the window that the peer was offered. */
	REQUIRE(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0, "SO_RCVBUF");
	for (uint32_t at = end; at > from[2];) {
		uint32_t n = at - from[2] < 16 ? at - from[2] : 16;

		at -= n;
		peer_send(&peer, at, stream.octets + at, n, 0);
	}
	usleep(20000);
	CHECK(tcp_counter("TCPRcvCollapsed") > collapsed, "TCP has joined segments");
	CHECK(tcp_counter("OfoPruned") > pruned, "TCP has thrown segments away");
	for (int i = 0; i < 2000 && !last; i++) {
		uint32_t at;

		peer_hear(&peer);
		at = peer.acked < from[1] ? from[1] : peer.acked;
		if (at < end)
			send_part(&peer, at, end - at < 600 ? end : at + 600, 0);
		while (is_readable(s, 1) && !last)
			last = read_to_send(s, &placed);
	}
	CHECK(last, "the last Send comes");
	CHECK(placed + user.stored == WRITES, "each Write counts once");
	CHECK(holds(0, 0, WRITES * BYTES), "every octet is in place");
	finish(&peer, s);
}

int main(void)
{
	domain = domain_open();
	user.memory = region_make(domain, STAG, REGION, DDP_RIGHT_WRITE);
	make_stream(0);
	same_octets_again_and_again();
	joined_over_others();
	other_octets_the_second_time();
	one_octet_is_one_octet();
	fin_behind_a_hole();
	reset_behind_a_hole();
	urgent_octets();
	pruned_and_sent_again();
	waits_for_order(DDP_BIND_CRC | DDP_BIND_IN_ORDER, DDP_RIGHT_WRITE,
			"IN_ORDER: nothing is placed behind a hole");
	waits_for_order(0, DDP_RIGHT_WRITE, "nor without CRC");
	waits_for_order(DDP_BIND_CRC, DDP_RIGHT_WRITE | DDP_RIGHT_ATOMIC,
			"nor where atomic operations may be");
	return end_checks();
}
