// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Unloads the module as soon as nothing uses it any more, and loads it again, until SIGTERM.
 *
 *   reload FILE		ddp_kernel.ko
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checks.h"

#define MODULE "ddp_kernel"

static atomic_bool over;

static void end(int signal)
{
	over = signal != 0;
}

static bool is_used(void)
{
	char count[16] = "";
	int file = open("/sys/module/" MODULE "/refcnt", O_RDONLY | O_CLOEXEC);

	REQUIRE(file >= 0 && read(file, count, sizeof(count) - 1) > 0, "a count of users");
	close(file);
	return atoi(count) > 0;
}

int main(int argc, char **argv)
{
	uint64_t unloaded = 0, failed = 0;
	bool used = false;
	int file = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

	REQUIRE(file >= 0, "FILE");
	signal(SIGTERM, end);
	while (!over) {
		/* Before that there is nothing to unload it under. */
		used = used || is_used();
		if (!used || syscall(SYS_delete_module, MODULE, O_NONBLOCK)) {
			failed += used && errno != EWOULDBLOCK && errno != EINTR;
			usleep(500);
			continue;
		}
		unloaded++;
		used = false;
		while (syscall(SYS_finit_module, file, "", 0))
			REQUIRE(errno == EINTR, "it is loaded again");
	}
	printf("# %llu times unloaded once its users had gone\n", (unsigned long long)unloaded);
	CHECK(unloaded != 0, "it was unloaded");
	CHECK(!failed, "nothing else went wrong");
	return end_checks();
}
