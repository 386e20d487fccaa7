/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fork() in programs with threads, under AddressSanitizer. Its allocator knows nothing of fork():
 * a child that is forked while another thread allocates inherits a locked allocator, and waits in
 * its first new or malloc() for a thread that it does not have. So fork() waits here until all
 * other threads sleep in the kernel, where none of them holds that lock; for at most two seconds,
 * and less the next time: a test may have one that never does.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Whether a thread of this process sleeps; one that has ended does. */
static int sleeps(const char* thread) {
    char path[64], text[256];
    const char* state;
    ssize_t n;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 1;
    text[n] = '\0';
    state = strrchr(text, ')'); /* the name before it may hold anything */
    return state != NULL && strlen(state) > 2 && strchr("SZX", state[2]) != NULL;
}

static int others_sleep(void) {
    DIR* const threads = opendir("/proc/self/task");
    const struct dirent* entry;
    int all = 1;
    if (threads == NULL) return 1;
    while (all && (entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid()) continue;
        all = sleeps(entry->d_name);
    }
    closedir(threads);
    return all;
}

static void wait_until_others_sleep(void) {
    enum { MOST_MS = 2000 };
    static int timeout_ms = MOST_MS;
    const struct timespec moment = {0, 1000000};
    int tries;
    for (tries = 0; !others_sleep(); tries++) {
        if (tries >= timeout_ms) {
            timeout_ms = timeout_ms / 4 + 1; /* it is one that never does */
            return;
        }
        nanosleep(&moment, NULL);
    }
    if (timeout_ms < MOST_MS / 2) timeout_ms *= 2;
}

/* Registered before the engine registers its own, so it runs after them: right before fork(). */
__attribute__((constructor)) static void look_before_forking(void) {
    pthread_atfork(wait_until_others_sleep, NULL, NULL);
}
