// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef TCP_ULP
#define TCP_ULP 31
#endif

uint32_t crc32c(const uint8_t *octets, size_t n)
{
	static uint32_t table[256];
	uint32_t crc = ~0u;
	size_t i;

	if (!table[1]) {
		for (i = 0; i < 256; i++) {
			uint32_t entry = (uint32_t)i;

			for (int bit = 0; bit < 8; bit++)
				entry = entry >> 1 ^ (entry & 1 ? 0x82f63b78u : 0);
			table[i] = entry;
		}
	}
	for (i = 0; i < n; i++)
		crc = crc >> 8 ^ table[(crc ^ octets[i]) & 0xff];
	return ~crc;
}

void put_be(uint8_t *to, uint64_t value, int octets)
{
	while (octets-- > 0) {
		to[octets] = (uint8_t)value;
		value >>= 8;
	}
}

uint64_t get_be(const uint8_t *from, int octets)
{
	uint64_t value = 0;

	while (octets-- > 0)
		value = value << 8 | *from++;
	return value;
}

uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Length in front, pad and CRC behind a ULPDU at to + 2. */
static size_t fpdu_end(uint8_t *to, size_t ulpdu)
{
	size_t covered = (2 + ulpdu + 3) & ~(size_t)3;
	uint32_t crc;

	put_be(to, ulpdu, 2);
	memset(to + 2 + ulpdu, 0, covered - 2 - ulpdu);
	crc = crc32c(to, covered);
	for (int i = 0; i < 4; i++)
		to[covered + (size_t)i] = (uint8_t)(crc >> 8 * i);
	return covered + 4;
}

size_t fpdu_tagged(uint8_t *to, int opcode, uint32_t stag, uint64_t offset, const void *payload,
		   size_t n, bool last)
{
	to[2] = last ? 0xc1 : 0x81;
	to[3] = (uint8_t)(0x40 | opcode);
	put_be(to + 4, stag, 4);
	put_be(to + 8, offset, 8);
	memcpy(to + 16, payload, n);
	return fpdu_end(to, 14 + n);
}

size_t fpdu_send(uint8_t *to, uint32_t msn, const void *payload, size_t n)
{
	memset(to, 0, 20);
	to[2] = 0x41;
	to[3] = 0x40 | OPCODE_SEND;
	put_be(to + 12, msn, 4);
	memcpy(to + 20, payload, n);
	return fpdu_end(to, 18 + n);
}

_Thread_local uint64_t random_state;

uint32_t random_u32(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

uint32_t below(uint32_t n)
{
	return random_u32() % n;
}

bool one_in(uint32_t n)
{
	return below(n) == 0;
}

void yield_to_kernel(void)
{
	setpriority(PRIO_PROCESS, 0, 15);
}

int domain_open(void)
{
	int domain = open(DDP_DEVICE, O_RDWR | O_CLOEXEC);

	REQUIRE(domain >= 0, "open " DDP_DEVICE);
	return domain;
}

int region_add(int domain, uint32_t stag, void *address, size_t length, uint32_t rights)
{
	return view_add(domain, stag, 0, address, length, rights);
}

int view_add(int domain, uint32_t stag, uint32_t parent, void *address, size_t length,
	     uint32_t rights)
{
	struct ddp_region region = {
		.address = (uintptr_t)address,
		.length = length,
		.stag = stag,
		.pd = TEST_PD,
		.rights = rights,
		.parent = parent,
	};

	return ioctl(domain, DDP_IOC_REGION, &region);
}

uint8_t *region_make(int domain, uint32_t stag, size_t length, uint32_t rights)
{
	uint8_t *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(memory != MAP_FAILED, "mmap");
	REQUIRE(region_add(domain, stag, memory, length, rights) == 0, "DDP_IOC_REGION");
	return memory;
}

int stag_request(int domain, unsigned long request, uint32_t stag)
{
	struct ddp_stag arg = { .stag = stag };

	return ioctl(domain, request, &arg);
}

int ulp_set(int s)
{
	return setsockopt(s, IPPROTO_TCP, TCP_ULP, DDP_ULP, sizeof(DDP_ULP) - 1);
}

int bind_socket(int domain, int s, uint32_t flags)
{
	struct ddp_bind bind = {
		.socket = s,
		.flags = flags,
		.pd = TEST_PD,
		.qp = TEST_QP,
		.rights = DDP_RIGHT_WRITE | DDP_RIGHT_READ_SINK,
	};

	if (ulp_set(s) && errno != EEXIST)
		return -1;
	return ioctl(domain, DDP_IOC_BIND, &bind);
}

struct ddp_stats socket_stats(int domain, int s)
{
	struct ddp_stats stats = { .socket = s };

	REQUIRE(ioctl(domain, DDP_IOC_STATS, &stats) == 0, "DDP_IOC_STATS");
	return stats;
}

struct ddp_stats domain_stats(int domain)
{
	return socket_stats(domain, -1);
}

void tcp_pair(int ends[2])
{
	tcp_pair_window(ends, 0);
}

void tcp_pair_window(int ends[2], int rcvbuf)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	REQUIRE(!rcvbuf || setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &rcvbuf,
				      sizeof(rcvbuf)) == 0, "SO_RCVBUF");
	REQUIRE(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)&address, &size) == 0, "listen");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	REQUIRE(connect(ends[0], (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	ends[1] = accept(listener, NULL, NULL);
	REQUIRE(ends[1] >= 0, "accept");
	close(listener);
	setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void send_all(int s, const void *octets, size_t n)
{
	const char *at = octets;

	while (n) {
		ssize_t sent = send(s, at, n, MSG_NOSIGNAL);

		REQUIRE(sent > 0, "send");
		at += sent;
		n -= (size_t)sent;
	}
}

bool is_readable(int s, int ms)
{
	struct pollfd poll_fd = { .fd = s, .events = POLLIN };

	return poll(&poll_fd, 1, ms) > 0;
}

struct record record_next(int s)
{
	static _Alignas(8) uint8_t buffer[256 * 1024];
	static size_t at, end;
	static int from = -1;
	struct record record = { 0 };
	struct ddp_record header;

	if (from != s || at == end) {
		ssize_t got = recv(s, buffer, sizeof(buffer), MSG_DONTWAIT);

		from = s;
		at = end = 0;
		if (got <= 0) {
			record.error = got < 0 ? errno : 0;
			return record;
		}
		end = (size_t)got;
	}
	REQUIRE(end - at >= sizeof(header), "a whole header");
	memcpy(&header, buffer + at, sizeof(header));
	REQUIRE(end - at >= DDP_RECORD_BYTES(header.length), "a whole record");
	record.type = header.type;
	record.length = header.length;
	record.body = buffer + at + sizeof(header);
	if (header.type == DDP_RECORD_PLACED)
		memcpy(&record.placed, record.body, sizeof(record.placed));
	at += DDP_RECORD_BYTES(header.length);
	return record;
}

struct record record_wait(int s, int ms)
{
	const uint64_t end = now_us() + (uint64_t)ms * 1000;
	struct record record;

	for (;;) {
		record = record_next(s);
		if (record.type || record.error != EAGAIN)
			return record;
		if (now_us() >= end)
			return record;
		is_readable(s, 1);
	}
}

int peer_process(int domain, int ends[2], void (*run)(int s))
{
	int pid;

	tcp_pair(ends);
	REQUIRE(bind_socket(domain, ends[1], DDP_BIND_CRC) == 0, "BIND");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(ends[0]);
		_exit(0);
	}
	return pid;
}

void bound_pair_window(int domain, int ends[2], uint32_t flags, int rcvbuf)
{
	uint8_t octets[64];
	struct record record;

	tcp_pair_window(ends, rcvbuf);
	REQUIRE(bind_socket(domain, ends[1], flags) == 0, "BIND");
	send_all(ends[0], octets, fpdu_send(octets, 1, "first", 5));
	record = record_wait(ends[1], 1000);
	REQUIRE(record.type == DDP_RECORD_ULPDU && record.length == 23, "the first FPDU");
}

void close_pair(const int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}
