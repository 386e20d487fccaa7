// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Pairs of processes with Writes between them over a loopback that loses segments (netem is set by
 * the caller), killed at any moment, while a thread of the reader takes the memory of some back and
 * gives it anew. Every octet of the others is checked at each Send. Where the device is not there,
 * the module is just being loaded again: it is tried until it is.
 *
 *   stress SECONDS [PAIRS [LIFE_MS]]    2 pairs at once, of 2,000 ms at most
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user_level.h"

#define STAG 0x77
#define OTHER_STAG 0x78 /* given and taken back */
#define SEGMENTS 40 /* of a message, and as many with a Write each to the other region */
#define SPAN 1000 /* octets of a segment's Writes */
#define SMALL_WRITES 20 /* in three of four segments; in the others there is one */
#define WRITES (SEGMENTS / 4 * (1 + 3 * SMALL_WRITES)) /* of a message */
#define MESSAGE (SEGMENTS * SPAN)
#define PLACES 2 /* for messages: one is checked while the next comes */
#define PAIRS_MAX 16

static struct counts {
	_Atomic uint64_t pairs, absent, kills, messages, writes, placed, ahead, releases, waited;
	_Atomic uint64_t checked_ahead; /* of `writes`, placed behind holes, some more than once */
	_Atomic uint64_t wrong;
} *counts;

static double now_s(void)
{
	return (double)now_us() / 1e6;
}

static uint8_t octet_of(uint32_t message, uint32_t at)
{
	return (uint8_t)(at * 31 + message * 7 + (at >> 8));
}

/* Writes of a segment, which together have SPAN octets of the message at `from`. */
static size_t make_writes(uint8_t *octets, uint32_t stag, uint32_t m, uint32_t from,
			  uint32_t writes)
{
	static uint8_t payload[SPAN];
	uint32_t at = 0, more = 0;
	size_t n = 0;

	for (uint32_t i = 0; i < SPAN; i++)
		payload[i] = octet_of(m, from + i);
	for (uint32_t i = 0; i < writes; i++) {
		uint32_t size = SPAN / writes;

		/* One is shorter, the next longer, by whole words: both have the same padding. */
		if (writes > 1 && i % 2 == 0)
			more = below(SPAN / writes / 4) * 4;
		size = i % 2 ? size + more : size - more;
		n += fpdu_write(octets + n, stag, m % PLACES * MESSAGE + from + at, payload + at,
				size, true);
		at += size;
	}
	return n;
}

static void run_sender(int s)
{
	static uint8_t octets[2 * SPAN];

	for (uint32_t m = 0;; m++) {
		if (m >= PLACES && recv(s, octets, 1, MSG_WAITALL) != 1)
			_exit(0);
		for (uint32_t i = 0; i < SEGMENTS; i++) {
			for (uint32_t stag = STAG; stag <= OTHER_STAG; stag++) {
				uint32_t writes = stag == STAG && i % 4 ? SMALL_WRITES : 1;
				size_t n = make_writes(octets, stag, m, i * SPAN, writes);

				if (send(s, octets, n, MSG_EOR | MSG_NOSIGNAL) != (ssize_t)n)
					_exit(0);
			}
		}
		if (send(s, octets, fpdu_send(octets, m + 1, &m, sizeof(m)), MSG_NOSIGNAL) < 0)
			_exit(0);
	}
}

struct other {
	int domain;
	uint8_t *memory;
};

/* Takes the memory back and gives it anew, for ever. */
static void *run_releases(void *arg)
{
	const struct other *other = arg;

	random_state = (uint64_t)getpid() << 20;
	for (;;) {
		if (region_add(other->domain, OTHER_STAG, other->memory, PLACES * MESSAGE,
			       DDP_RIGHT_WRITE) == 0) {
			usleep(2000 + below(20000));
			if (one_in(2))
				stag_request(other->domain, DDP_IOC_REVOKE, OTHER_STAG);
			if (one_in(16))
				madvise(other->memory, 4096, MADV_DONTNEED);
			stag_request(other->domain, DDP_IOC_RELEASE, OTHER_STAG);
			counts->releases++;
		}
	}
	return NULL;
}

static void check_message(const uint8_t *memory, uint32_t message)
{
	uint64_t wrong = 0;

	memory += message % PLACES * MESSAGE;
	for (uint32_t at = 0; at < MESSAGE; at++)
		wrong += memory[at] != octet_of(message, at);
	counts->wrong += wrong;
	counts->writes += WRITES;
	counts->messages++;
}

/*
 * `ahead`: placed behind holes until the message before, so each belongs to one of the `messages`
 * that were checked. A Write for each segment was to the other region. What was placed again, as
 * something had gone up before it, counts again.
 */
static void count_checked_ahead(uint64_t ahead, uint32_t messages)
{
	static uint64_t counted;
	const uint64_t others = (uint64_t)messages * SEGMENTS;

	if (ahead > others + counted) {
		counts->checked_ahead += ahead - others - counted;
		counted = ahead - others;
	}
}

static void run_reader(int domain, int s)
{
	static struct user_level user;
	static struct other other;
	uint32_t message = 0;
	pthread_t thread;

	user = (struct user_level){ .stag = STAG, .length = PLACES * MESSAGE };
	user.memory = region_make(domain, STAG, user.length, DDP_RIGHT_WRITE);
	other.domain = domain;
	other.memory = mmap(NULL, PLACES * MESSAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(other.memory != MAP_FAILED && !pthread_create(&thread, NULL, run_releases, &other),
		"a thread");
	for (;;) {
		struct record record = record_next(s);

		if (user_level_record(&user, &record)) {
			struct ddp_stats stats = socket_stats(domain, s);
			static uint64_t placed, ahead, waited;

			check_message(user.memory, message++);
			count_checked_ahead(ahead, message);
			counts->placed += stats.placed_fpdus - placed;
			counts->ahead += stats.ahead_fpdus - ahead;
			placed = stats.placed_fpdus;
			ahead = stats.ahead_fpdus;
			stats = domain_stats(domain);
			counts->waited += stats.released - waited;
			waited = stats.released;
			send(s, "", 1, MSG_NOSIGNAL);
		} else if (!record.type) {
			/* A sender that is killed ends, or resets: behind its end that is EPIPE. */
			if (!record.error || record.error == ECONNRESET ||
			    record.error == EPIPE)
				_exit(0);
			if (record.error != EAGAIN) {
				dprintf(1, "# a reader has got %s\n", strerror(record.error));
				_exit(1);
			}
			is_readable(s, 100);
		}
	}
}

/* A pair, until it is killed. Does not return. */
static void run_pair(void)
{
	int domain = open(DDP_DEVICE, O_RDWR | O_CLOEXEC), ends[2], child;

	if (domain < 0) {
		counts->absent++;
		_exit(0);
	}
	tcp_pair(ends);
	if (bind_socket(domain, ends[1],
			below(3) ? DDP_BIND_CRC : DDP_BIND_CRC | DDP_BIND_IN_ORDER)) {
		counts->absent++;
		_exit(0);
	}
	counts->pairs++;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(domain);
		close(ends[1]);
		run_sender(ends[0]);
	}
	close(ends[0]);
	/* Sometimes the sender goes first. */
	if (one_in(2)) {
		int killer = fork();

		if (!killer) {
			usleep(below(300000));
			kill(child, SIGKILL);
			_exit(0);
		}
	}
	run_reader(domain, ends[1]);
	_exit(0);
}

static int start_pair(void)
{
	int pid;

	random_u32();
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		random_state ^= (uint64_t)getpid() << 20;
		run_pair();
	}
	return pid;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 10, end;
	int pairs = argc > 2 ? atoi(argv[2]) : 2, status;
	uint32_t life_us = argc > 3 ? (uint32_t)atoi(argv[3]) * 1000 : 2000000;
	double until[PAIRS_MAX];
	int pids[PAIRS_MAX];

	REQUIRE(pairs > 0 && pairs <= PAIRS_MAX && life_us, "1 to 16 pairs, of 1 ms or more");
	yield_to_kernel();
	signal(SIGCHLD, SIG_DFL);
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	REQUIRE(counts != MAP_FAILED, "mmap");
	random_state = (uint64_t)getpid() * 2654435761u;
	end = now_s() + seconds;
	for (int i = 0; i < pairs; i++)
		pids[i] = 0;
	while (now_s() < end) {
		for (int i = 0; i < pairs; i++) {
			if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				counts->wrong += status != 0;
				kill(-pids[i], SIGKILL);
				pids[i] = 0;
			} else if (pids[i] && now_s() > until[i]) {
				kill(pids[i], SIGKILL);
				waitpid(pids[i], &status, 0);
				kill(-pids[i], SIGKILL);
				counts->kills++;
				pids[i] = 0;
			}
			if (!pids[i]) {
				pids[i] = start_pair();
				until[i] = now_s() + below(life_us) / 1e6;
			}
		}
		usleep(1000);
	}
	for (int i = 0; i < pairs; i++) {
		if (pids[i]) {
			kill(-pids[i], SIGKILL);
			kill(pids[i], SIGKILL);
			waitpid(pids[i], &status, 0);
		}
	}
	printf("# %llu pairs, %llu without the module, %llu killed, %llu messages\n",
	       (unsigned long long)counts->pairs, (unsigned long long)counts->absent,
	       (unsigned long long)counts->kills, (unsigned long long)counts->messages);
	printf("# %llu placed, %llu of these behind holes; %llu Writes checked, which were placed "
	       "%llu times behind holes\n", (unsigned long long)counts->placed,
	       (unsigned long long)counts->ahead, (unsigned long long)counts->writes,
	       (unsigned long long)counts->checked_ahead);
	printf("# %llu RELEASEs, %llu while a copy was under way\n",
	       (unsigned long long)counts->releases, (unsigned long long)counts->waited);
	CHECK(!counts->wrong, "every octet was in place, and no reader failed");
	CHECK(counts->messages != 0, "messages came");
	CHECK(counts->releases != 0, "regions were released meanwhile");
	return end_checks();
}
