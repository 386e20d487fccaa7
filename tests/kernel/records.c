// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Records in order, over the loopback: what is placed, what goes up and as what, who is woken. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ddp_test.h"

#define STAG 0x1234
#define REGION (1 << 20)

static uint8_t octets[4 << 20], payload[1 << 20];
static int domain;
static uint8_t *memory;

/* With room: 64 KiB at once that end within a Write close the usual window, and that goes up. */
static void bound_pair(int ends[2], uint32_t flags)
{
	bound_pair_window(domain, ends, flags, 1 << 20);
}

static bool wait_octets(int s, uint64_t n)
{
	for (int i = 0; i < 1000; i++) {
		if (socket_stats(domain, s).octets >= n)
			return true;
		usleep(1000);
	}
	return false;
}

/* Spins: a sleep would outlast what is looked for. */
static bool becomes(const uint8_t *where, uint8_t what)
{
	for (int i = 0; i < 100000000; i++)
		if (__atomic_load_n(where, __ATOMIC_ACQUIRE) == what)
			return true;
	return false;
}

/* `received_first`: recv() was called before there was anything. */
static void first_wakes(bool received_first)
{
	struct record record;
	int ends[2];

	tcp_pair(ends);
	REQUIRE(bind_socket(domain, ends[1], DDP_BIND_CRC) == 0, "BIND");
	if (received_first) {
		record = record_next(ends[1]);
		CHECK(!record.type && record.error == EAGAIN, "nothing has come");
	}
	memset(payload, 1, 100);
	memset(memory, 0, 200);
	send_all(ends[0], octets, fpdu_write(octets, STAG, 50, payload, 100, true));
	CHECK(is_readable(ends[1], 1000), "a first Write makes it readable");
	record = record_next(ends[1]);
	CHECK(record.type == DDP_RECORD_PLACED && record.placed.fpdus == 1 &&
	      record.placed.octets == 100 && record.placed.wire == 120 &&
	      record.placed.messages == 1 && record.placed.last_stag == STAG &&
	      record.placed.last_to == 50 && record.placed.last_length == 100, "PLACED");
	CHECK(!memcmp(memory + 50, payload, 100) && !memory[49] && !memory[150], "in its place");
	close_pair(ends);
}

static void writes_let_sleep(void)
{
	struct record record;
	size_t n, total;
	int ends[2], i;

	bound_pair(ends, DDP_BIND_CRC);
	total = socket_stats(domain, ends[1]).octets;
	for (i = 0; i < 100; i++) {
		memset(payload, i + 2, 1000);
		n = fpdu_write(octets, STAG, (uint64_t)i * 1000, payload, 1000, i % 4 == 3);
		send_all(ends[0], octets, n);
		total += n;
	}
	CHECK(wait_octets(ends[1], total), "Writes are consumed");
	CHECK(!is_readable(ends[1], 20), "and make no socket readable");
	for (i = 0; i < 100 && memory[i * 1000] == i + 2 && memory[i * 1000 + 999] == i + 2; i++)
		;
	CHECK(i == 100, "all are in place");
	record = record_next(ends[1]);
	CHECK(record.type == DDP_RECORD_PLACED && record.placed.fpdus == 100 &&
	      record.placed.messages == 25 && record.placed.octets == 100000, "one record tells");
	CHECK(record.placed.message_octets == 4000 && record.placed.last_length == 1000,
	      "also how long the last message was");
	record = record_next(ends[1]);
	CHECK(!record.type && record.error == EAGAIN, "then EAGAIN");
	n = fpdu_write(octets, STAG, 5, payload, 0, true);
	send_all(ends[0], octets, n);
	CHECK(is_readable(ends[1], 1000), "a Write without payload makes it readable");
	record = record_next(ends[1]);
	CHECK(record.type == DDP_RECORD_ULPDU && record.length == 14, "and goes up");
	n = fpdu_write(octets, STAG, 5, "x", 1, true);
	octets[3] |= 0x10;
	{
		uint32_t crc = crc32c(octets, n - 4);

		memcpy(octets + n - 4, &crc, 4);
	}
	send_all(ends[0], octets, n);
	CHECK(is_readable(ends[1], 1000), "reserved bits make it readable");
	record = record_next(ends[1]);
	CHECK(record.type == DDP_RECORD_PLACED && record.placed.last_rdmap == 0x50 &&
	      memory[5] == 'x', "and the Write is placed");
	close_pair(ends);
}

static void what_goes_up(void)
{
	struct record record;
	size_t n, at[5];
	int ends[2];

	bound_pair(ends, DDP_BIND_CRC);
	memset(payload, 0xee, 100);
	memset(memory, 0, 4096);
	at[0] = 0;
	n = fpdu_write(octets, 0x999, 0, payload, 100, true);
	at[1] = n;
	n += fpdu_write(octets + n, STAG, REGION - 99, payload, 100, true);
	at[2] = n;
	n += fpdu_write(octets + n, STAG, UINT64_MAX - 50, payload, 100, true);
	at[3] = n;
	n += fpdu_tagged(octets + n, OPCODE_READ_RESPONSE, STAG, 0, payload, 100, true);
	at[4] = n;
	n += fpdu_tagged(octets + n, 0x7, STAG, 0, payload, 100, true);
	send_all(ends[0], octets, n);
	for (int i = 0; i < 5; i++) {
		record = record_wait(ends[1], 1000);
		CHECK(record.type == DDP_RECORD_ULPDU && record.length == 114 &&
		      !memcmp(record.body, octets + at[i] + 2, 114),
		      "unknown STag, out of bounds, TO wraps, wrong kind, unknown opcode: up");
	}
	CHECK(!memory[0] && !memory[REGION - 1], "and nothing is stored");

	/* Rights end with the request. */
	{
		struct ddp_rights rights = { .socket = ends[1], .rights = 0 };

		CHECK(ioctl(domain, DDP_IOC_RIGHTS, &rights) == 0, "RIGHTS");
	}
	send_all(ends[0], octets, fpdu_write(octets, STAG, 0, payload, 100, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && !memory[0], "without rights nothing is placed");

	/* A wrong CRC: these octets, and all that follow, as they came. */
	n = fpdu_send(octets, 2, payload, 50);
	octets[30] ^= 1;
	n += fpdu_send(octets + n, 3, payload, 50);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_RAW && !memcmp(record.body, octets, record.length),
	      "a wrong CRC goes up as octets");
	shutdown(ends[0], SHUT_WR);
	for (n -= record.length; n; n -= record.length) {
		record = record_wait(ends[1], 1000);
		REQUIRE(record.type == DDP_RECORD_RAW && record.length <= n, "the rest");
	}
	record = record_wait(ends[1], 1000);
	CHECK(!record.type && !record.error, "0 after the last record");
	close_pair(ends);
}

static void pieces(void)
{
	size_t n, at;
	struct record record;
	int ends[2];

	bound_pair(ends, DDP_BIND_CRC);
	for (at = 0; at < 60000; at++)
		payload[at] = (uint8_t)(at * 7);
	/* A large Write that comes in pieces lets the owner sleep. */
	n = fpdu_write(octets, STAG, 0, payload, 60000, true);
	for (at = 0; at + 10000 < n; at += 10000) {
		send_all(ends[0], octets + at, 10000);
		usleep(2000);
	}
	CHECK(!is_readable(ends[1], 20), "an incomplete Write makes no socket readable");
	send_all(ends[0], octets + at, n - at);
	CHECK(!is_readable(ends[1], 20), "nor does its end");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && record.placed.octets == 60000 &&
	      !memcmp(memory, payload, 60000), "it is placed");
	/* A program that polls gets its octets after a millisecond. */
	send_all(ends[0], octets, 20000);
	usleep(20000);
	record = record_next(ends[1]);
	CHECK(!record.type && record.error == EAGAIN, "an incomplete Write: EAGAIN at first");
	usleep(3000);
	record = record_next(ends[1]);
	CHECK(record.type == DDP_RECORD_RAW && record.length == 20000, "then octets");
	send_all(ends[0], octets + 20000, n - 20000);
	for (at = 20000; at < n; at += record.length) {
		record = record_wait(ends[1], 1000);
		REQUIRE(record.type == DDP_RECORD_RAW && record.length <= n - at, "its rest");
	}
	CHECK(at == n, "and its rest as octets");
	/* One octet of a length, and nothing else. */
	n = fpdu_send(octets, 2, payload, 30);
	send_all(ends[0], octets, 1);
	usleep(20000);
	record = record_wait(ends[1], 100);
	CHECK(record.type == DDP_RECORD_RAW && record.length == 1, "half of a length");
	send_all(ends[0], octets + 1, n - 1);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_RAW && record.length == n - 1, "its rest");
	send_all(ends[0], octets, fpdu_write(octets, STAG, 7, "abc", 3, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && !memcmp(memory + 7, "abc", 3),
	      "the next FPDU is found");
	close_pair(ends);
}

/* Octets that were placed stay in TCP's queue for a while: reader and peer may not notice. */
static void kept_in_the_queue(void)
{
	struct ddp_unbind unbind = { 0 };
	int ends[2], unread = -1, i;
	uint64_t before;
	char byte;
	size_t n;

	for (i = 0; i < 20; i++) {
		bound_pair(ends, DDP_BIND_CRC);
		memory[0] = 0;
		send_all(ends[0], octets, fpdu_write(octets, STAG, 0, "k", 1, true));
		REQUIRE(becomes(memory, 'k'), "the Write is placed");
		close(ends[1]);
		CHECK(recv(ends[0], &byte, 1, 0) == 0, "close() resets no connection for them");
		close(ends[0]);
	}
	for (i = 0; i < 20; i++) {
		bound_pair(ends, DDP_BIND_CRC);
		before = socket_stats(domain, ends[1]).octets;
		memory[0] = 0;
		n = fpdu_write(octets, STAG, 0, "k", 1, true);
		send_all(ends[0], octets, n);
		REQUIRE(becomes(memory, 'k'), "the Write is placed");
		unbind.socket = ends[1];
		CHECK(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0 && unbind.octets == before + n,
		      "UNBIND counts them");
		send_all(ends[0], (uint8_t *)"p", 1);
		CHECK(recv(ends[1], &byte, 1, 0) == 1 && byte == 'p', "and leaves them behind");
		close_pair(ends);
	}
	bound_pair(ends, DDP_BIND_CRC);
	n = fpdu_write(octets, STAG, 0, payload, 100, true);
	for (i = 0; i < 100; i++)
		send_all(ends[0], octets, n);
	CHECK(!is_readable(ends[1], 20), "they are nothing to read");
	for (i = 0; i < 1000 && unread; i++) {
		REQUIRE(ioctl(ends[1], FIONREAD, &unread) == 0, "FIONREAD");
		usleep(1000);
	}
	CHECK(!unread, "and TCP forgets them without a call of recv()");
	close_pair(ends);
}

static uint32_t segments_sent(int s)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	REQUIRE(getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &size) == 0, "TCP_INFO");
	return info.tcpi_segs_out;
}

/* Segments that the reader sends while so many Writes come, one each; *us: how long that took. */
static uint32_t answers_to(int writes, uint64_t *us)
{
	uint32_t before;
	uint64_t total;
	int ends[2];
	size_t n;

	/* The usual buffer: the window follows what it has room for. */
	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	n = fpdu_write(octets, STAG, 0, payload, 1000, true);
	before = segments_sent(ends[1]);
	total = socket_stats(domain, ends[1]).octets + (uint64_t)writes * n;
	*us = now_us();
	for (int i = 0; i < writes; i++)
		REQUIRE(send(ends[0], octets, n, MSG_EOR) == (ssize_t)n, "send");
	REQUIRE(wait_octets(ends[1], total), "all is consumed");
	*us = now_us() - *us;
	before = segments_sent(ends[1]) - before;
	close_pair(ends);
	return before;
}

/*
 * TCP sends an ACK for each second segment that a reader takes as it comes. The module's timer may
 * send one each half a millisecond, which on a busy machine is most of them.
 */
static void few_answers(void)
{
	const int writes = 4000;
	uint64_t us = 0, most = 0;
	uint32_t answers = 0;

	for (int i = 0; i < 5; i++) {
		answers = answers_to(writes, &us);
		most = (uint64_t)writes / 4 + us / 500;
		if (answers <= most)
			break;
	}
	printf("# %u segments for %d Writes in %u us\n", answers, writes, (unsigned)us);
	CHECK(answers <= most, "few ACKs are sent for many Writes");
}

/* What SO_RCVLOWAT says is for a reader of plain octets. */
static void low_water(void)
{
	struct ddp_unbind unbind = { 0 };
	int ends[2], octets_wanted = 4096, room;
	socklen_t size = sizeof(octets_wanted);

	bound_pair(ends, DDP_BIND_CRC);
	REQUIRE(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &octets_wanted, size) == 0,
		"SO_RCVLOWAT");
	send_all(ends[0], octets, fpdu_send(octets, 2, "few", 3));
	CHECK(is_readable(ends[1], 1000), "a low-water mark hides no Send");
	CHECK(record_wait(ends[1], 1000).type == DDP_RECORD_ULPDU, "which goes up");
	unbind.socket = ends[1];
	REQUIRE(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0, "UNBIND");
	octets_wanted = 0;
	CHECK(getsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &octets_wanted, &size) == 0 &&
	      octets_wanted == 4096, "and holds again without the module");
	close_pair(ends);

	bound_pair(ends, DDP_BIND_CRC);
	octets_wanted = INT_MAX;
	REQUIRE(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &octets_wanted, size) == 0,
		"SO_RCVLOWAT");
	unbind.socket = ends[1];
	REQUIRE(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0, "UNBIND");
	CHECK(getsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &octets_wanted, &size) == 0 &&
	      getsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &room, &size) == 0 &&
	      octets_wanted > 0 && octets_wanted <= room / 2, "but for no more than there is room");
	close_pair(ends);
}

/* The start of a Write is nothing to read, until the socket is a plain one. */
static void unbind_wakes(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct ddp_unbind unbind = { 0 };
	int ends[2], set = epoll_create1(0);

	bound_pair(ends, DDP_BIND_CRC);
	REQUIRE(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0, "epoll");
	fpdu_write(octets, STAG, 0, payload, 1000, true);
	send_all(ends[0], octets, 100);
	CHECK(epoll_wait(set, &event, 1, 20) == 0, "an incomplete Write is no event");
	unbind.socket = ends[1];
	REQUIRE(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0, "UNBIND");
	CHECK(epoll_wait(set, &event, 1, 1000) == 1 && event.events & EPOLLIN,
	      "but plain octets are, once it is unbound");
	close(set);
	close_pair(ends);
}

static void order(void)
{
	struct record record;
	size_t n;
	int ends[2];

	bound_pair(ends, DDP_BIND_CRC | DDP_BIND_IN_ORDER);
	memory[0] = 0;
	n = fpdu_send(octets, 2, "abc", 3);
	n += fpdu_write(octets + n, STAG, 0, "z", 1, true);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && !memory[0],
	      "in order: a Write does not overtake a Send");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && memory[0] == 'z', "it follows");
	/* What user space may still have to store is not overtaken in any mode. */
	close_pair(ends);
	bound_pair(ends, DDP_BIND_CRC);
	memory[0] = 0;
	n = fpdu_write(octets, 0x999, 0, "a", 1, true);
	n += fpdu_write(octets + n, STAG, 0, "b", 1, true);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && !memory[0],
	      "a Write that went up is stored first");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && memory[0] == 'b', "before the next recv()");
	close_pair(ends);
}

/*
 * A Write goes up, its region is pinned meanwhile, and a later one comes before the first is
 * stored: between two calls of recv(), where TCP would place it.
 */
static void pinned_meanwhile(uint32_t flags)
{
	static uint8_t late[4096] __attribute__((aligned(4096)));
	struct record record;
	int ends[2];

	bound_pair(ends, flags);
	send_all(ends[0], octets, fpdu_write(octets, 0x888, 0, "a", 1, true));
	record = record_wait(ends[1], 1000);
	REQUIRE(record.type == DDP_RECORD_ULPDU, "a Write to memory that is not pinned goes up");
	late[0] = 0;
	REQUIRE(region_add(domain, 0x888, late, sizeof(late), DDP_RIGHT_WRITE) == 0, "REGION");
	send_all(ends[0], octets, fpdu_write(octets, 0x888, 0, "b", 1, true));
	CHECK(is_readable(ends[1], 1000) && !late[0],
	      "a later Write waits, though its memory is pinned now");
	late[0] = 'a';
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && late[0] == 'b', "until the first is stored");
	send_all(ends[0], octets, fpdu_write(octets, 0x888, 0, "c", 1, true));
	CHECK(!is_readable(ends[1], 20) && late[0] == 'c', "the next one waits for nothing");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 0x888) == 0, "RELEASE");
	close_pair(ends);
}

static void reads(void)
{
	uint8_t *sink = memory + 65536;
	struct ddp_region view = {
		.address = (uintptr_t)sink, .length = 8192, .stag = 0x77, .parent = STAG,
		.pd = TEST_PD, .qp = TEST_QP, .rights = DDP_RIGHT_READ_SINK,
	};
	struct ddp_response response;
	struct record record;
	size_t n;
	int ends[2];

	bound_pair(ends, DDP_BIND_CRC);
	CHECK(ioctl(domain, DDP_IOC_REGION, &view) == 0, "a view as a Read sink");
	memset(payload, 0x5a, 4096);
	n = fpdu_tagged(octets, OPCODE_READ_RESPONSE, 0x77, 0, payload, 4096, false);
	n += fpdu_tagged(octets + n, OPCODE_READ_RESPONSE, 0x77, 4096, payload, 4096, true);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	memcpy(&response, record.body, sizeof(response));
	CHECK(record.type == DDP_RECORD_RESPONSE && response.length == 4096 &&
	      response.wire == n / 2 && !memcmp(response.header, octets + 2, 14), "RESPONSE");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_RESPONSE && !memcmp(sink, payload, 4096) &&
	      !memcmp(sink + 4096, payload, 4096), "both are in place");
	n = fpdu_tagged(octets, OPCODE_READ_RESPONSE, 0x77, 0, payload, 16, true);
	n += fpdu_write(octets + n, 0x77, 0, payload, 16, true);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU, "out of its order: up");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU, "a Write to a sink: up");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 0x77) == 0, "RELEASE of the view");
	close_pair(ends);
}

static void atomics(void)
{
	uint8_t request[52] = { 0 };
	struct record record;
	size_t n;
	int ends[2];

	bound_pair(ends, DDP_BIND_CRC);
	memory[9] = 0;
	n = fpdu_send(octets, 1, request, sizeof(request));
	octets[3] = 0x40 | OPCODE_ATOMIC_REQUEST;
	{
		uint32_t crc = crc32c(octets, n - 4);

		memcpy(octets + n - 4, &crc, 4);
	}
	n += fpdu_write(octets + n, STAG, 9, "q", 1, true);
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	usleep(20000);
	CHECK(record.type == DDP_RECORD_ULPDU && !memory[9],
	      "behind an Atomic Request nothing is placed until the next recv()");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && memory[9] == 'q', "then it is");
	close_pair(ends);
}

static void calls(void)
{
	static uint8_t buffer[DDP_RECV_MIN];
	struct ddp_unbind unbind = { 0 };
	size_t first, n;
	int ends[2], other[2];

	bound_pair(ends, DDP_BIND_CRC);
	FAILS(recv(ends[1], buffer, sizeof(buffer) - 1, MSG_DONTWAIT), EINVAL, "a small buffer");
	FAILS(recv(ends[1], buffer, sizeof(buffer), 0), EINVAL, "a blocking recv()");
	FAILS(recv(ends[1], buffer, sizeof(buffer), MSG_DONTWAIT | MSG_PEEK), EINVAL, "MSG_PEEK");
	FAILS(recv(ends[1], NULL, sizeof(buffer), MSG_DONTWAIT), EAGAIN, "nothing to read");
	send_all(ends[0], octets, fpdu_send(octets, 2, "abc", 3));
	CHECK(is_readable(ends[1], 1000), "readable");
	FAILS(recv(ends[1], (void *)8, sizeof(buffer), MSG_DONTWAIT), EFAULT, "a bad buffer");
	CHECK(recv(ends[1], buffer, sizeof(buffer), MSG_DONTWAIT) == 8 + 24,
	      "and the record comes again");
	first = socket_stats(domain, ends[1]).octets;
	n = fpdu_write(octets, 0x999, 0, "plain", 5, true);
	send_all(ends[0], octets, n);
	usleep(20000);
	unbind.socket = ends[1];
	CHECK(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0 && unbind.octets == first, "UNBIND");
	CHECK(recv(ends[1], buffer, sizeof(buffer), 0) == (ssize_t)n &&
	      !memcmp(buffer, octets, n), "what is unread is plain TCP");
	FAILS(ioctl(domain, DDP_IOC_UNBIND, &unbind), ENOTCONN, "UNBIND again");
	CHECK(bind_socket(domain, ends[1], DDP_BIND_CRC) == 0, "BIND again");
	send_all(ends[0], octets, fpdu_write(octets, STAG, 0, "again", 5, true));
	CHECK(record_wait(ends[1], 1000).type == DDP_RECORD_PLACED && !memcmp(memory, "again", 5),
	      "it places again");

	/* The engine resets a socket that the program still holds by connect(AF_UNSPEC). */
	tcp_pair(other);
	{
		struct sockaddr none = { .sa_family = AF_UNSPEC };

		CHECK(connect(ends[1], &none, sizeof(none)) == 0, "connect(AF_UNSPEC)");
	}
	CHECK(domain_stats(domain).sockets == 0, "unbinds");
	errno = 0;
	CHECK(listen(ends[1], 1) < 0, "listen() is refused afterwards");
	close_pair(ends);
	close_pair(other);

	/* Octets that were taken by another way. */
	bound_pair(ends, DDP_BIND_CRC);
	send_all(ends[0], octets, fpdu_send(octets, 2, "abc", 3));
	{
		int pipe_ends[2];

		REQUIRE(pipe(pipe_ends) == 0, "pipe");
		REQUIRE(is_readable(ends[1], 1000), "readable");
		REQUIRE(splice(ends[1], NULL, pipe_ends[1], NULL, 5, SPLICE_F_NONBLOCK) == 5,
			"splice()");
		FAILS(recv(ends[1], buffer, sizeof(buffer), MSG_DONTWAIT), ESTALE,
		      "after splice() no record comes");
		CHECK(socket_stats(domain, ends[1]).dead == 1, "and the counters say so");
	}
	close_pair(ends);
}

/*
 * Two octets sent as urgent, the first of them unread when the second comes: TCP would step over
 * it, as if it had been read.
 */
static void urgent(void)
{
	struct record record;
	int ends[2], i;
	size_t n;

	bound_pair(ends, DDP_BIND_CRC);
	for (i = 2; i < 4; i++) {
		n = fpdu_send(octets, (uint32_t)i, "abc", 3);
		REQUIRE(send(ends[0], octets, 1, MSG_OOB) == 1, "an urgent octet");
		usleep(20000);
		send_all(ends[0], octets + 1, n - 1);
		usleep(20000);
	}
	for (i = 2; i < 4; i++) {
		record = record_wait(ends[1], 1000);
		CHECK(record.type == DDP_RECORD_ULPDU && record.length == 21 &&
		      record.body[13] == i, "urgent octets are part of the stream");
	}
	close_pair(ends);
}

/*
 * Octets before the bound ones lie in the same sk_buff, as where the peer's first FPDU comes with
 * the end of its start-up: TCP joins what comes to what waits.
 */
static void start_inside(uint32_t flags)
{
	uint8_t start[100], taken[sizeof(start)];
	struct record record;
	size_t n;
	int ends[2];

	tcp_pair(ends);
	memset(start, 0x77, sizeof(start));
	memset(memory, 0, 64);
	memcpy(octets, start, sizeof(start));
	n = sizeof(start);
	n += fpdu_write(octets + n, STAG, 0, payload, 0, true);
	n += fpdu_send(octets + n, 1, "abc", 3);
	n += fpdu_write(octets + n, STAG, 7, "xyz", 3, true);
	send_all(ends[0], octets, n);
	CHECK(recv(ends[1], taken, sizeof(taken), MSG_WAITALL) == sizeof(taken) &&
	      !memcmp(taken, start, sizeof(start)), "octets before BIND");
	REQUIRE(bind_socket(domain, ends[1], flags) == 0, "BIND inside of an sk_buff");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && record.length == 14, "a Write of nothing goes up");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && record.length == 21 &&
	      !memcmp(record.body + 18, "abc", 3), "so does a Send");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && !memcmp(memory + 7, "xyz", 3),
	      "and a Write is placed");

	/* The same after UNBIND in the middle of what came at once. */
	n = fpdu_send(octets, 2, "plain", 5);
	n += fpdu_write(octets + n, STAG, 17, "uvw", 3, true);
	send_all(ends[0], octets, n);
	{
		struct ddp_unbind unbind = { .socket = ends[1] };
		size_t first = fpdu_send(payload, 2, "plain", 5);

		REQUIRE(ioctl(domain, DDP_IOC_UNBIND, &unbind) == 0, "UNBIND");
		CHECK(recv(ends[1], payload, first, MSG_WAITALL) == (ssize_t)first &&
		      !memcmp(payload, octets, first), "octets as they came");
	}
	REQUIRE(bind_socket(domain, ends[1], flags) == 0, "BIND again");
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && !memcmp(memory + 17, "uvw", 3),
	      "BIND behind octets that were plain");
	close_pair(ends);
}

static void domain_goes_first(void)
{
	struct record record;
	int ends[2], second = domain_open();

	tcp_pair(ends);
	REQUIRE(region_add(second, 0x55, memory, 4096, DDP_RIGHT_WRITE) == 0, "REGION");
	REQUIRE(bind_socket(second, ends[1], DDP_BIND_CRC) == 0, "BIND");
	send_all(ends[0], octets, fpdu_write(octets, 0x55, 0, "1", 1, true));
	CHECK(record_wait(ends[1], 1000).type == DDP_RECORD_PLACED, "placed");
	close(second);
	send_all(ends[0], octets, fpdu_write(octets, 0x55, 0, "2", 1, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && memory[0] == '1',
	      "a socket outlives its domain, and all goes up");
	close_pair(ends);
}

int main(void)
{
	domain = domain_open();
	memory = region_make(domain, STAG, REGION, DDP_RIGHT_WRITE);
	first_wakes(false);
	first_wakes(true);
	writes_let_sleep();
	what_goes_up();
	pieces();
	kept_in_the_queue();
	few_answers();
	low_water();
	unbind_wakes();
	order();
	pinned_meanwhile(DDP_BIND_CRC);
	pinned_meanwhile(DDP_BIND_CRC | DDP_BIND_IN_ORDER);
	reads();
	atomics();
	calls();
	urgent();
	start_inside(DDP_BIND_CRC);
	start_inside(DDP_BIND_CRC | DDP_BIND_IN_ORDER);
	domain_goes_first();
	return end_checks();
}
