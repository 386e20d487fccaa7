// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What may be written to, and what may not: then a Write goes up, and nothing is stored. */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ddp_test.h"

#define STAG 0x1234

static uint8_t octets[512];
static int domain;

/* Writes a byte to the start of a region. Answers the type of the record that tells of it. */
static uint32_t write_byte(const int ends[2], char byte)
{
	send_all(ends[0], octets, fpdu_write(octets, STAG, 0, &byte, 1, true));
	return record_wait(ends[1], 1000).type;
}

static void wrong_crc(void)
{
	static const uint8_t payload[100] = { 0xee };
	uint8_t *memory = region_make(domain, STAG, 4096, DDP_RIGHT_WRITE);
	struct record record;
	int ends[2];
	size_t n;

	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	n = fpdu_write(octets, STAG, 0, payload, sizeof(payload), true);
	octets[n - 5] ^= 1;
	send_all(ends[0], octets, n);
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_RAW && record.length == n && !memory[0],
	      "a Write whose CRC is wrong is not placed");
	close_pair(ends);
	CHECK(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
}

static void other_owners(void)
{
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct ddp_region region = {
		.address = (uintptr_t)memory, .length = sizeof(memory), .stag = STAG,
		.rights = DDP_RIGHT_WRITE,
	};
	static const struct {
		uint32_t pd, qp;
		bool is_ours;
		const char *what;
	} owners[] = {
		{ TEST_PD + 1, 0, false, "a Write to a region of another PD goes up" },
		{ TEST_PD, TEST_QP + 1, false, "or of another QP" },
		{ TEST_PD, TEST_QP, true, "one to a region of this QP is placed" },
	};
	int ends[2];

	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
		const bool is_ours = owners[i].is_ours;

		region.pd = owners[i].pd;
		region.qp = owners[i].qp;
		REQUIRE(ioctl(domain, DDP_IOC_REGION, &region) == 0, "REGION");
		CHECK(write_byte(ends, 'a') == (is_ours ? DDP_RECORD_PLACED : DDP_RECORD_ULPDU) &&
		      memory[0] == (is_ours ? 'a' : 0), owners[i].what);
		REQUIRE(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
	}
	close_pair(ends);
}

static void runs_over_the_end(void)
{
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct record record;
	int ends[2];

	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	REQUIRE(region_add(domain, STAG, memory, 100, DDP_RIGHT_WRITE) == 0, "REGION");
	send_all(ends[0], octets, fpdu_write(octets, STAG, 98, "abc", 3, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU && !memory[98] && !memory[100],
	      "a Write that runs over the end goes up");
	send_all(ends[0], octets, fpdu_write(octets, STAG, 98, "de", 2, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_PLACED && memory[99] == 'e' && !memory[100],
	      "one that reaches it is placed");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
	close_pair(ends);
}

static void hidden(void)
{
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	struct ddp_region region = {
		.address = (uintptr_t)memory, .length = sizeof(memory), .stag = STAG,
		.pd = TEST_PD, .rights = DDP_RIGHT_WRITE, .flags = DDP_REGION_HIDDEN,
	};
	int ends[2];

	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	REQUIRE(ioctl(domain, DDP_IOC_REGION, &region) == 0, "REGION");
	CHECK(write_byte(ends, 'a') == DDP_RECORD_ULPDU && !memory[0],
	      "a Write to a hidden region goes up");
	CHECK(stag_request(domain, DDP_IOC_SHOW, STAG) == 0, "SHOW of it");
	CHECK(write_byte(ends, 'b') == DDP_RECORD_PLACED && memory[0] == 'b',
	      "SHOW lets it be found");
	CHECK(stag_request(domain, DDP_IOC_REVOKE, STAG) == 0, "REVOKE");
	CHECK(write_byte(ends, 'c') == DDP_RECORD_ULPDU && memory[0] == 'b',
	      "a Write to a revoked one goes up");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
	close_pair(ends);
}

static void memory_that_changes(void)
{
	uint8_t *memory = region_make(domain, STAG, 4096, DDP_RIGHT_WRITE);
	int ends[2];

	bound_pair_window(domain, ends, DDP_BIND_CRC, 0);
	CHECK(write_byte(ends, 'a') == DDP_RECORD_PLACED && memory[0] == 'a', "a Write is placed");
	REQUIRE(madvise(memory, 4096, MADV_DONTNEED) == 0, "madvise()");
	CHECK(write_byte(ends, 'b') == DDP_RECORD_ULPDU && memory[0] == 0,
	      "a Write to emptied memory goes up");
	REQUIRE(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0 &&
		region_add(domain, STAG, memory, 4096, DDP_RIGHT_WRITE) == 0, "the region anew");
	CHECK(write_byte(ends, 'c') == DDP_RECORD_PLACED && memory[0] == 'c',
	      "pinned anew, it is written to");
	REQUIRE(munmap(memory, 4096) == 0, "munmap()");
	CHECK(write_byte(ends, 'd') == DDP_RECORD_ULPDU, "a Write to unmapped memory goes up");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
	close_pair(ends);
}

int main(void)
{
	domain = domain_open();
	wrong_crc();
	other_owners();
	runs_over_the_end();
	hidden();
	memory_that_changes();
	return end_checks();
}
