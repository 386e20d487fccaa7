// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A program that polls the last byte of a Write: once it sees it, the others are there. Each 500th
 * is checked. On one processor it would find nothing, and is skipped.
 *
 *   polled [ROUNDS]
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp_test.h"

#define STAG 0x55
#define LENGTH 30000u
#define STEP 500u /* of the bytes that are checked */
#define TIMEOUT_US 30000000u
#define POLLS 1000 /* before the time is read again */

/* A Write each round, filled with the round's number; the program answers it by an octet. */
static void run_peer(int s)
{
	static uint8_t octets[LENGTH + 64], payload[LENGTH];

	for (uint32_t i = 1;; i++) {
		memset(payload, (int)i, LENGTH);
		send_all(s, octets, fpdu_write(octets, STAG, 0, payload, LENGTH, true));
		if (recv(s, payload, 1, 0) != 1)
			break;
	}
}

/* Bytes that were not there when the last one was. */
static uint32_t missing(const volatile uint8_t *memory, uint8_t value)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < LENGTH; i += STEP)
		n += memory[LENGTH - 1 - i] != value;
	return n;
}

static bool polled(const volatile uint8_t *memory, uint8_t value)
{
	for (int i = 0; i < POLLS; i++)
		if (memory[LENGTH - 1] == value)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 2000, late = 0, i;
	int domain = domain_open(), ends[2], child;
	volatile uint8_t *memory = region_make(domain, STAG, LENGTH, DDP_RIGHT_WRITE);

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		printf("1..0 # SKIP one processor\n");
		return 0;
	}
	yield_to_kernel();
	child = peer_process(domain, ends, run_peer);
	for (i = 1; i <= rounds; i++) {
		const uint64_t end = now_us() + TIMEOUT_US;

		/* The first FPDU is the reader's. */
		if (i == 1)
			REQUIRE(record_wait(ends[1], 20000).type == DDP_RECORD_PLACED, "a record");
		while (!polled(memory, (uint8_t)i) && now_us() < end)
			;
		if (memory[LENGTH - 1] != (uint8_t)i)
			break;
		late += missing(memory, (uint8_t)i) != 0;
		send(ends[1], "", 1, MSG_NOSIGNAL);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	CHECK(i > rounds, "each Write came");
	CHECK(!late, "with the last byte all others that are checked were there");
	if (late)
		printf("# not in %u of %u rounds\n", late, rounds);
	return end_checks();
}
