// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Each call of the module while an allocation in it fails: the first, the second, and so on until
 * none is left to fail (fail-nth, of kernels with fault injection). It answers ENOMEM or goes well,
 * and what it was to do can be done afterwards.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ddp_test.h"

#define STAG 0x99
#define BYTES (64 * 4096)
#define MOST 200 /* allocations of a call */

static int fail_nth = -1;

static void set(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	REQUIRE(fd >= 0 && write(fd, value, strlen(value)) > 0, file);
	close(fd);
}

static void fail_at(int nth)
{
	char words[16];
	int n = snprintf(words, sizeof(words), "%d", nth);

	REQUIRE(pwrite(fail_nth, words, (size_t)n, 0) == n, "fail-nth");
}

/* Has one failed since fail_at()? */
static bool has_failed(void)
{
	char words[16] = "";

	REQUIRE(pread(fail_nth, words, sizeof(words) - 1, 0) > 0, "fail-nth");
	fail_at(0);
	return atoi(words) == 0;
}

static struct {
	int domain, ends[2];
	uint8_t *memory;
} g;

static int call_open(void)
{
	int fd = open(DDP_DEVICE, O_RDWR | O_CLOEXEC);

	return fd >= 0 ? close(fd) : -1;
}

static int call_region(void)
{
	if (region_add(g.domain, STAG, g.memory, BYTES, DDP_RIGHT_WRITE))
		return -1;
	return stag_request(g.domain, DDP_IOC_RELEASE, STAG);
}

static int call_view(void)
{
	if (view_add(g.domain, STAG + 2, STAG + 1, g.memory, 4096, DDP_RIGHT_READ_SINK))
		return -1;
	return stag_request(g.domain, DDP_IOC_RELEASE, STAG + 2);
}

static int call_bind(void)
{
	struct ddp_unbind unbind;

	if (bind_socket(g.domain, g.ends[1], DDP_BIND_CRC))
		return -1;
	unbind = (struct ddp_unbind){ .socket = g.ends[1] };
	return ioctl(g.domain, DDP_IOC_UNBIND, &unbind);
}

/* The sender's allocations fail, and those of softirqs that run in it. */
static int call_write(void)
{
	static uint8_t octets[2048];
	size_t n = fpdu_write(octets, STAG + 1, 0, "abcd", 4, true);

	return send(g.ends[0], octets, n, MSG_DONTWAIT) == (ssize_t)n ? 0 : -1;
}

static int call_recv(void)
{
	static uint8_t buffer[DDP_RECV_MIN];

	return recv(g.ends[1], buffer, sizeof(buffer), MSG_DONTWAIT) >= 0 || errno == EAGAIN ? 0 :
											       -1;
}

static int call_stats(void)
{
	struct ddp_stats stats = { .socket = g.ends[1] };

	return ioctl(g.domain, DDP_IOC_STATS, &stats);
}

/* `allocates`: the call always does, so at least one failure must have been seen. */
static void try_all(const char *name, int (*call)(void), bool allocates)
{
	char words[100];
	int nth, failed = 0, wrong = 0;

	for (nth = 1; nth < MOST; nth++) {
		int result, error;

		errno = 0;
		fail_at(nth);
		result = call();
		error = errno;
		if (has_failed())
			failed++;
		else if (result == 0)
			break;
		if (result && error != ENOMEM && error != ENOBUFS && error != EAGAIN) {
			printf("# %s, allocation %d: errno %d\n", name, nth, error);
			wrong++;
		}
	}
	snprintf(words, sizeof(words), "%s: %d failures", name, failed);
	CHECK(!wrong && nth < MOST && (failed || !allocates) && call() == 0, words);
}

int main(void)
{
	fail_nth = open("/proc/self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_nth < 0) {
		printf("1..0 # SKIP this kernel has no fault injection\n");
		return 0;
	}
	/* Those that may sleep too. */
	set("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	set("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	set("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	g.domain = domain_open();
	g.memory = region_make(g.domain, STAG + 1, BYTES, DDP_RIGHT_WRITE);
	try_all("open", call_open, true);
	try_all("DDP_IOC_REGION", call_region, true);
	try_all("DDP_IOC_REGION, a view", call_view, true);
	tcp_pair(g.ends);
	try_all("TCP_ULP and DDP_IOC_BIND", call_bind, true);
	REQUIRE(bind_socket(g.domain, g.ends[1], DDP_BIND_CRC) == 0, "BIND");
	for (int i = 0; i < 20; i++) {
		try_all("send", call_write, false);
		try_all("recv", call_recv, false);
	}
	try_all("DDP_IOC_STATS", call_stats, false);
	return end_checks();
}
