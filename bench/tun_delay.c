/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tun_delay NETNS-A NETNS-B DELAY_US: a wire between two network namespaces that takes DELAY_US
 * each way. Makes an interface t0 in each (addresses are for the caller to set), says
 * "ready", and carries packets until it is ended. Packets are kept in order; those that come when
 * 8192 are under way are lost. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKETS = 8192, LARGEST = 2048 };

struct wire {
    int from, to;
    unsigned first, count;
    int64_t due[PACKETS];
    uint16_t length[PACKETS];
    unsigned char bytes[PACKETS][LARGEST];
};
static struct wire wires[2];

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char* what) {
    fprintf(stderr, "tun_delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_tun(const char* netns) {
    char path[256];
    struct ifreq request;
    int fd;
    snprintf(path, sizeof path, "/run/netns/%s", netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) die(path);
    close(fd);
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) die("/dev/net/tun");
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    strcpy(request.ifr_name, "t0");
    if (ioctl(fd, TUNSETIFF, &request) != 0) die("TUNSETIFF");
    return fd;
}

static void take(struct wire* w, int64_t delay_ns) {
    for (;;) {
        const unsigned at = (w->first + w->count) % PACKETS;
        unsigned char dropped[LARGEST];
        const int is_full = w->count == PACKETS;
        const ssize_t n = read(w->from, is_full ? dropped : w->bytes[at], LARGEST);
        if (n <= 0) return;
        if (is_full) continue;
        w->length[at] = (uint16_t)n;
        w->due[at] = now_ns() + delay_ns;
        w->count++;
    }
}

static void give(struct wire* w) {
    while (w->count > 0 && w->due[w->first] <= now_ns()) {
        if (write(w->to, w->bytes[w->first], w->length[w->first]) < 0 && errno == EAGAIN) return;
        w->first = (w->first + 1) % PACKETS;
        w->count--;
    }
}

int main(int argc, char** argv) {
    int64_t delay_ns;
    int a, b;
    if (argc != 4) {
        fputs("usage: tun_delay NETNS-A NETNS-B DELAY_US\n", stderr);
        return 2;
    }
    delay_ns = atoll(argv[3]) * 1000;
    a = open_tun(argv[1]);
    b = open_tun(argv[2]);
    wires[0].from = wires[1].to = a;
    wires[1].from = wires[0].to = b;
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd fds[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
        int64_t wait = -1;
        struct timespec limit;
        int i;
        for (i = 0; i < 2; i++) {
            int64_t left;
            if (wires[i].count == 0) continue;
            left = wires[i].due[wires[i].first] - now_ns();
            if (left < 0) left = 0;
            if (wait < 0 || left < wait) wait = left;
        }
        limit.tv_sec = wait / 1000000000;
        limit.tv_nsec = wait % 1000000000;
        ppoll(fds, 2, wait < 0 ? NULL : &limit, NULL);
        for (i = 0; i < 2; i++) {
            take(&wires[i], delay_ns);
            give(&wires[i]);
        }
    }
}
