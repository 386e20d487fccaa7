// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Memory that is taken back while a peer writes there as fast as it can: what the program stores
 * once RELEASE has returned stands. Every second region is released through a view of it.
 *
 *   release SECONDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp_test.h"

#define STAG 0x77 /* that the peer writes to */
#define ROOT_STAG 0x78 /* of the region whose view it is */
#define FPDU 60000 /* long, for the copy of one may go on when its region is taken back */
#define FPDUS 4
#define LENGTH (FPDUS * FPDU)
#define MARK_STEP 480
#define OURS 0xa5
#define THEIRS 0x5a

static void run_peer(int s)
{
	static uint8_t octets[FPDUS * (FPDU + 64)], payload[FPDU];
	size_t n = 0;

	memset(payload, THEIRS, FPDU);
	for (uint64_t i = 0; i < FPDUS; i++)
		n += fpdu_write(octets + n, STAG, i * FPDU, payload, FPDU, true);
	for (;;)
		send_all(s, octets, n);
}

static atomic_bool over;

/* Reads what was not placed. */
static void *run_reads(void *arg)
{
	static char records[1 << 18];
	const int *s = arg;

	while (!over) {
		if (is_readable(*s, 100) &&
		    recv(*s, records, sizeof(records), MSG_DONTWAIT) <= 0 && errno != EAGAIN)
			break;
	}
	CHECK(over, "recv() goes on until the end");
	return NULL;
}

/* From the end: pieces are copied from their beginning. */
static void set_marks(volatile uint8_t *memory)
{
	for (int i = LENGTH - MARK_STEP; i >= 0; i -= MARK_STEP)
		memory[i] = OURS;
}

static bool marks_stand(const volatile uint8_t *memory)
{
	bool stand = true;

	for (int i = LENGTH - MARK_STEP; i >= 0; i -= MARK_STEP)
		stand = stand && memory[i] == OURS;
	return stand;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	uint64_t end, releases = 0, failed = 0, late = 0, reached = 0;
	int domain = domain_open(), ends[2], child;
	pthread_t thread;
	uint8_t *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

	REQUIRE(memory != MAP_FAILED && seconds > 0, "memory, and SECONDS");
	yield_to_kernel();
	child = peer_process(domain, ends, run_peer);
	REQUIRE(!pthread_create(&thread, NULL, run_reads, &ends[1]), "a thread");
	end = now_us() + (uint64_t)(seconds * 1e6);
	while (now_us() < end) {
		const bool by_view = releases % 2;

		memset(memory, 0, LENGTH);
		failed += region_add(domain, by_view ? ROOT_STAG : STAG, memory, LENGTH,
				     DDP_RIGHT_WRITE) != 0;
		failed += by_view && view_add(domain, STAG, ROOT_STAG, memory, LENGTH,
					      DDP_RIGHT_WRITE) != 0;
		usleep(below(4000));
		if (one_in(2))
			failed += stag_request(domain, DDP_IOC_REVOKE, STAG) != 0;
		failed += stag_request(domain, DDP_IOC_RELEASE, STAG) != 0;
		set_marks(memory);
		reached += memchr(memory, THEIRS, LENGTH) != NULL;
		usleep(200);
		late += !marks_stand(memory);
		failed += by_view && stag_request(domain, DDP_IOC_RELEASE, ROOT_STAG) != 0;
		releases++;
	}
	printf("# %llu RELEASEs, %llu while a copy was under way, %llu of memory that was "
	       "written\n", (unsigned long long)releases,
	       (unsigned long long)domain_stats(domain).released, (unsigned long long)reached);
	over = true;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	pthread_join(thread, NULL);
	CHECK(!failed, "no request failed");
	CHECK(reached != 0, "the peer wrote to memory that it was given");
	CHECK(!late, "after RELEASE nothing was stored");
	return end_checks();
}
