// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Random requests while traffic runs: each ioctl with structures of any size, at pointers of any
 * kind, naming descriptors of any kind, from two threads; sockets that are bound, unbound, reset
 * and closed meanwhile, memory that is unmapped under its regions. Answers have to be ones that
 * xsock/ddp_uapi.h knows, and a connection of another domain is not disturbed: every octet of its
 * Writes is checked.
 *
 *   abi_fuzz [SECONDS [SEED]]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ddp_test.h"
#include "socket_calls.h"

#define PAGE 4096ul
#define SLOTS 16
#define STEADY_SLOTS 6		/* the first ones: no request binds or unbinds them */
#define STAGS 48		/* of regions, and of Writes: so few that they meet */
#define STEADY_STAGS 8		/* behind those: no request ends them */
#define ARENA (1ul << 20)	/* memory of regions */
#define CONTROL_STAG 0x5050
#define CONTROL_BYTES 1200u
#define CONTROL_AHEAD 32u	/* Writes that read_control() has not checked yet */

static int domain, other_domain;
static uint8_t *arena;	/* and a page behind it, which no region has */
static atomic_bool over;

/* ---- Sockets ------------------------------------------------------------------ */

/* Requests name them while they are closed and made anew. */
static struct slot {
	int ends[2];
	uint32_t msn;
} slots[SLOTS];

static uint64_t placed, ahead;	/* FPDUs, of sockets whose use is over */

static int strange[11];		/* descriptors that no request takes */

static void count_placed(const struct slot *slot)
{
	struct ddp_stats stats = { .socket = slot->ends[1] };

	if (ioctl(domain, DDP_IOC_STATS, &stats) == 0) {
		placed += stats.placed_fpdus;
		ahead += stats.ahead_fpdus;
	}
}

/* The traffic thread's: no other opens or closes descriptors. */
static void renew(struct slot *slot)
{
	if (slot->ends[0] > 0) {
		struct sockaddr none = { .sa_family = AF_UNSPEC };

		count_placed(slot);
		if (one_in(3))
			connect(slot->ends[1], &none, sizeof(none));
		if (one_in(3))
			shutdown(slot->ends[1], (int)below(3));
		close(slot->ends[0]);
		close(slot->ends[1]);
	}
	tcp_pair(slot->ends);
	slot->msn = 0;
	if (slot < slots + STEADY_SLOTS) {
		bind_socket(domain, slot->ends[1], DDP_BIND_CRC);
		return;
	}
	if (!one_in(8))
		ulp_set(slot->ends[1]);
	if (one_in(2))
		bind_socket(one_in(8) ? other_domain : domain, slot->ends[1],
			    below(2) * DDP_BIND_CRC + below(2) * DDP_BIND_IN_ORDER);
}

static void make_strange(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr = { htonl(0x0a000002) } };
	int ends[2], n = 0;

	strange[n++] = socket(AF_INET, SOCK_DGRAM, 0);
	strange[n++] = socket(AF_INET, SOCK_STREAM, 0);
	strange[n++] = socket(AF_INET6, SOCK_STREAM, 0);
	strange[n++] = socket(AF_INET, SOCK_STREAM, 0);
	listen(strange[n - 1], 1);
	strange[n++] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(strange[n - 1], (struct sockaddr *)&to, sizeof(to));
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	strange[n++] = ends[0];
	strange[n++] = open("/dev/null", O_RDWR);
	tcp_pair(ends);
	setsockopt(ends[1], IPPROTO_TCP, 31, "tls", 3);
	strange[n++] = ends[1];
	strange[n++] = domain;
	strange[n++] = other_domain;
	strange[n++] = 1 << 20;
}

static int any_socket(void)
{
	struct slot *slot = &slots[STEADY_SLOTS + below(SLOTS - STEADY_SLOTS)];

	switch (below(16)) {
	case 0:
		return strange[below(11)];
	case 1:
		return -(int)below(9);
	case 2:
		return slot->ends[0];
	default:
		return slot->ends[1];
	}
}

/* ---- Requests ----------------------------------------------------------------- */

union argument {
	struct ddp_hello hello;
	struct ddp_region region;
	struct ddp_stag stag;
	struct ddp_bind bind;
	struct ddp_rights rights;
	struct ddp_unbind unbind;
	struct ddp_stats stats;
	uint8_t bytes[8192];
};

#define ANY EFAULT, EINVAL, E2BIG
#define OF_SOCKET ANY, EBADF, ENOTSOCK, EOPNOTSUPP, ENOTCONN

static const struct request {
	const char *name;
	unsigned long number;
	int errors[16];	/* that may be answered */
} requests[] = {
	{ "HELLO", DDP_IOC_HELLO, { ANY } },
	{ "REGION", DDP_IOC_REGION, { ANY, EEXIST, ENOENT, ERANGE, EOVERFLOW, EOPNOTSUPP, ENOMEM,
				      ENOSPC, EAGAIN } },
	{ "REVOKE", DDP_IOC_REVOKE, { ANY, ENOENT } },
	{ "RELEASE", DDP_IOC_RELEASE, { ANY, ENOENT } },
	{ "SHOW", DDP_IOC_SHOW, { ANY, ENOENT } },
	{ "CHECK", DDP_IOC_CHECK, { ANY, ENOENT, ESTALE } },
	{ "BIND", DDP_IOC_BIND, { OF_SOCKET, ENOPROTOOPT, EALREADY, EBUSY, ENOSPC, ENOMEM } },
	{ "RIGHTS", DDP_IOC_RIGHTS, { OF_SOCKET } },
	{ "UNBIND", DDP_IOC_UNBIND, { OF_SOCKET, EAGAIN } },
	{ "STATS", DDP_IOC_STATS, { OF_SOCKET } },
};

#define REQUESTS (sizeof(requests) / sizeof(requests[0]))

static atomic_ulong accepted[REQUESTS], refused[REQUESTS], undocumented;

static void fill(const struct request *request, union argument *arg)
{
	uint32_t stag = 1 + below(STAGS);

	memset(arg, 0, sizeof(*arg));
	switch (request->number) {
	case DDP_IOC_REGION:
		arg->region.length = 1 + below(one_in(8) ? ARENA : 8 * PAGE);
		arg->region.address = (uintptr_t)arena + below(ARENA - arg->region.length % ARENA);
		arg->region.stag = stag;
		arg->region.pd = TEST_PD;
		arg->region.rights = one_in(6) ? DDP_RIGHT_READ_SINK : DDP_RIGHT_WRITE;
		arg->region.flags = one_in(4) ? DDP_REGION_HIDDEN : 0;
		if (one_in(4))
			arg->region.parent = 1 + below(STAGS);
		break;
	case DDP_IOC_BIND:
		arg->bind.socket = any_socket();
		arg->bind.flags = below(2) * DDP_BIND_CRC + below(2) * DDP_BIND_IN_ORDER;
		if (one_in(8)) /* the stream has none */
			arg->bind.flags |= DDP_BIND_MARKERS;
		arg->bind.pd = TEST_PD;
		arg->bind.qp = TEST_QP;
		arg->bind.rights = below(8);
		break;
	case DDP_IOC_RIGHTS:
		arg->rights.rights = below(8);
		/* fall through */
	case DDP_IOC_UNBIND:
		arg->unbind.socket = any_socket();
		break;
	case DDP_IOC_STATS:
		arg->stats.socket = one_in(8) ? -1 : any_socket();
		break;
	default:
		arg->stag.stag = stag;
		break;
	}
}

/*
 * Where a structure of `size` bytes may be read from, or not. `pages`: two, of which the second is
 * not mapped.
 */
static void *any_place(union argument *arg, size_t size, uint8_t *pages)
{
	uint8_t *at;

	switch (below(24)) {
	case 0:
		return NULL;
	case 1:
		return (void *)(0xffff888000000000ul + random_u32());
	case 2:
		return pages + PAGE - below((uint32_t)size + 1) / 2;	/* runs over the end */
	case 3:		/* ends with the page */
		at = pages + PAGE - (size < PAGE ? size : PAGE);
		memcpy(at, arg, size < PAGE ? size : PAGE);
		return at;
	default:
		return arg;
	}
}

static void one_request(union argument *arg, uint8_t *pages)
{
	const size_t which = below(REQUESTS);
	const struct request *request = &requests[which];
	unsigned long number = request->number;
	size_t size = _IOC_SIZE(number);
	void *at;

	fill(request, arg);
	if (one_in(4))	/* any one word of it */
		((uint32_t *)arg)[below((uint32_t)size / 4)] =
			one_in(3) ? random_u32() : one_in(2) ? ~0u : below(16);
	if (one_in(6)) {
		size = below(one_in(4) ? 8192 : 200);
		if (one_in(4))
			arg->bytes[size / 2 + below(64)] = 1;
		number = (number & ~(unsigned long)(_IOC_SIZEMASK << _IOC_SIZESHIFT)) |
			 size << _IOC_SIZESHIFT;
	}
	at = any_place(arg, size, pages);
	if (one_in(100)) {	/* another request, or none */
		ioctl(domain, number ^ 1ul << below(32), at);
		return;
	}
	errno = 0;
	if (ioctl(one_in(100) ? other_domain : domain, number, at) == 0) {
		accepted[which]++;
		return;
	}
	refused[which]++;
	for (size_t i = 0; i < sizeof(request->errors) / sizeof(int); i++)
		if (request->errors[i] == errno)
			return;
	if (undocumented++ < 10)
		printf("# %s (%#lx) answered errno %d\n", request->name, number, errno);
}

static void *run_requests(void *seed)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static _Thread_local union argument arg;

	random_state = (uintptr_t)seed;
	/* What comes from the network is to go on beside this. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
	munmap(pages + PAGE, PAGE);
	while (!over)
		one_request(&arg, pages);
	return NULL;
}

/* ---- Traffic -------------------------------------------------------------------- */

static void send_something(struct slot *slot)
{
	static uint8_t octets[4096], payload[1400];
	size_t n = 1 + below(sizeof(payload));
	uint32_t stag = one_in(2) ? 1 + below(STAGS) : STAGS + 1 + below(STEADY_STAGS);

	memset(payload, (int)random_u32(), n);
	switch (below(12)) {
	case 0:
		n = fpdu_send(octets, ++slot->msn, payload, n);
		break;
	case 1:
		n = fpdu_tagged(octets, OPCODE_READ_RESPONSE, stag, 0, payload, n, one_in(2));
		break;
	case 2:	/* some that are none of RDMAP's */
		n = fpdu_tagged(octets, (int)below(64), stag, random_u32(), payload, n, one_in(2));
		break;
	default:
		n = fpdu_write(octets, stag, below(8 * PAGE), payload, n, one_in(2));
		break;
	}
	if (one_in(2000))
		octets[below((uint32_t)n)] ^= 4;
	if (send(slot->ends[0], octets, n, MSG_DONTWAIT | (one_in(8) ? 0 : MSG_EOR)) < (ssize_t)n &&
	    one_in(20))
		renew(slot);	/* full, ended, or cut */
}

static void receive_something(struct slot *slot)
{
	static uint8_t buffer[256 * 1024];
	const int flags = MSG_DONTWAIT | (one_in(50) ? 1 << below(12) : 0);
	const size_t n = one_in(20) ? below(sizeof(buffer)) : sizeof(buffer);

	recv(slot->ends[1], one_in(50) ? (void *)8 : buffer, n, flags & ~MSG_WAITALL);
}

/* Memory that regions have: gone, and there again; or read-only for a while. */
static void change_memory(void)
{
	uint8_t *at = arena + below(ARENA / PAGE - 8) * PAGE;
	size_t n = (1 + below(8)) * PAGE;

	if (one_in(2)) {
		mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	} else {
		mprotect(at, n, PROT_READ);
		mprotect(at, n, PROT_READ | PROT_WRITE);
	}
}

static void *run_traffic(void *seed)
{
	random_state = (uintptr_t)seed;
	while (!over) {
		struct slot *slot = &slots[below(SLOTS)];

		for (int i = 0; i < 20; i++)
			send_something(slot);
		for (int i = 0; i < SLOTS; i++)
			receive_something(&slots[i]);
		if (one_in(50))
			renew(&slots[below(SLOTS)]);
		if (one_in(10))
			change_memory();
		for (int i = 0; i < 3; i++)
			call_something(any_socket());
	}
	return NULL;
}

/* ---- The connection that is not to be disturbed ---------------------------------- */

static struct {
	int domain, ends[2];
	uint8_t *memory;
	atomic_ulong writes, wrong;
} control;

static void *write_control(void *unused)
{
	static uint8_t octets[4096], payload[CONTROL_BYTES];
	size_t n;

	for (uint32_t i = 1; !over; i++) {
		memset(payload, (int)i, sizeof(payload));
		n = fpdu_write(octets, CONTROL_STAG, i % CONTROL_AHEAD * CONTROL_BYTES, payload,
			       sizeof(payload), true);
		n += fpdu_send(octets + n, i, &i, sizeof(i));
		/* The one before it at that place has been checked. */
		if (i >= CONTROL_AHEAD && recv(control.ends[0], payload, 1, 0) != 1)
			break;
		/* In a segment of its own, so that none of it comes up in pieces. */
		if (send(control.ends[0], octets, n, MSG_EOR) != (ssize_t)n)
			break;
	}
	shutdown(control.ends[0], SHUT_WR);
	return unused;
}

/* A Send behind each Write: then its octets are there. */
static void read_control(void)
{
	uint32_t expected = 1;
	const uint8_t *at;

	for (;;) {
		struct record record = record_wait(control.ends[1], 20000);

		if (!record.type) {
			control.wrong += record.error != 0 || !over;
			return;
		}
		if (record.type == DDP_RECORD_PLACED) {
			control.writes += record.placed.fpdus;
			continue;
		}
		if (record.type != DDP_RECORD_ULPDU || record.length != 22 ||
		    memcmp(record.body + 18, &expected, sizeof(expected)))
			control.wrong++;
		at = control.memory + expected % CONTROL_AHEAD * CONTROL_BYTES;
		for (size_t i = 0; i < CONTROL_BYTES; i++)
			control.wrong += at[i] != (uint8_t)expected;
		send(control.ends[1], "", 1, MSG_NOSIGNAL);
		expected++;
	}
}

static void end(int signal)
{
	over = signal != 0;
}

static uint8_t *map(size_t n)
{
	uint8_t *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(at != MAP_FAILED, "mmap");
	return at;
}

int main(int argc, char **argv)
{
	uintptr_t seconds = argc > 1 ? strtoul(argv[1], NULL, 0) : 5;
	uintptr_t seed = argc > 2 ? strtoul(argv[2], NULL, 0) : (uintptr_t)time(NULL);
	pthread_t threads[4];
	size_t i, changed = 0;

	printf("# %lu s, seed %lu\n", (unsigned long)seconds, (unsigned long)seed);
	yield_to_kernel();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, end);
	random_state = seed;
	control.domain = domain_open();
	control.memory = region_make(control.domain, CONTROL_STAG, CONTROL_AHEAD * CONTROL_BYTES,
				     DDP_RIGHT_WRITE);
	tcp_pair(control.ends);
	REQUIRE(bind_socket(control.domain, control.ends[1],
			    DDP_BIND_CRC | DDP_BIND_IN_ORDER) == 0, "BIND");
	domain = domain_open();
	other_domain = domain_open();
	arena = map(ARENA + PAGE);
	memset(arena + ARENA, 0x3c, PAGE);
	make_strange();
	for (i = 0; i < STEADY_STAGS; i++)
		region_make(domain, STAGS + 1 + (uint32_t)i, 10 * PAGE, DDP_RIGHT_WRITE);
	for (i = 0; i < SLOTS; i++)
		renew(&slots[i]);
	pthread_create(&threads[0], NULL, run_requests, (void *)(seed + 1));
	pthread_create(&threads[1], NULL, run_requests, (void *)(seed + 2));
	pthread_create(&threads[2], NULL, run_traffic, (void *)(seed + 3));
	pthread_create(&threads[3], NULL, write_control, NULL);
	alarm((unsigned int)seconds);
	read_control();
	over = true;
	shutdown(control.ends[0], SHUT_RDWR);	/* write_control() may wait for an answer */
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	for (i = 0; i < REQUESTS; i++) {
		char words[100];

		snprintf(words, sizeof(words), "%s: %lu accepted, %lu refused", requests[i].name,
			 accepted[i], refused[i]);
		CHECK(accepted[i] && refused[i], words);
	}
	CHECK(!undocumented, "each error is one that the ABI knows");
	for (i = 0; i < PAGE; i++)
		changed += arena[ARENA + i] != 0x3c;
	CHECK(!changed, "memory that was never a region is what it was");
	for (i = 0; i < SLOTS; i++)
		count_placed(&slots[i]);
	printf("# placed: %lu FPDUs, %lu of them behind holes; %lu RELEASEs waited for a copy\n",
	       (unsigned long)placed, (unsigned long)ahead,
	       (unsigned long)domain_stats(domain).released);
	printf("# of a connection of another domain: %lu checked Writes, %lu faults, %lu stale\n",
	       control.writes, control.wrong, (unsigned long)domain_stats(control.domain).stale);
	CHECK(placed, "there was traffic");
	CHECK(control.writes && !control.wrong,
	      "a connection of another domain was not disturbed");
	return end_checks();
}
