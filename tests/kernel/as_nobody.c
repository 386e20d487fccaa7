// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Runs a program as nobody, who may lock so much memory.
 *
 *   as_nobody BYTES PROGRAM [ARGUMENTS]
 */
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define NOBODY 65534

int main(int argc, char **argv)
{
	struct rlimit limit;

	if (argc < 3)
		return 2;
	limit.rlim_cur = limit.rlim_max = strtoul(argv[1], NULL, 10);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, NULL) || setgid(NOBODY) ||
	    setuid(NOBODY)) {
		perror("as_nobody");
		return 1;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}
