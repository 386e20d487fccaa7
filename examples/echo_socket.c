/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* An echo server and its client with the calls of any socket program. The two lines of use_ddp()
 * turn each end into a DDP one; nothing else changes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xsock/xsock.h>

enum { SIZE = 64 };

static int failed(const char* what) {
    fprintf(stderr, "echo_socket: %s: %s\n", what, strerror(errno));
    return 1;
}

static int use_ddp(int fd) {
    int on = DDPMODE_MESSAGE;
    return setsockopt(fd, SOL_XSOCK, DDPMODE, &on, sizeof on);
}

static const char* carrier(int fd) {
    struct xsock_status status = {.size = sizeof status};
    socklen_t length = sizeof status;
    static char text[64];
    const int known = getsockopt(fd, SOL_XSOCK, DDPSTATUS, &status, &length) == 0;
    if (!known || status.mode != DDPMODE_MESSAGE) return "plain TCP";
    if (status.path == XSOCK_PATH_SHM) return "iWARP (through shared memory)";
    snprintf(text, sizeof text, "iWARP (MPA revision %u, CRC %s)", status.mpa_revision,
             status.crc ? "on" : "off");
    return text;
}

static int serve(int port, int ddp) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET6, SOCK_STREAM, 0), one = 1; /* IPv4 too */
    if (listener < 0) return failed("socket");
    if (ddp && use_ddp(listener) != 0) return failed("DDPMODE");
    if (bind(listener, (struct sockaddr*)&at, length) != 0) return failed("bind");
    if (listen(listener, 16) != 0) return failed("listen");
    getsockname(listener, (struct sockaddr*)&at, &length);
    printf("listening on port %d\n", ntohs(at.sin6_port));
    for (;;) { /* one client after the other */
        char data[65536];
        ssize_t n;
        long messages = 0;
        fflush(stdout);
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) return failed("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while ((n = recv(fd, data, sizeof data, 0)) > 0 && send(fd, data, (size_t)n, 0) == n) {
            messages++;
        }
        printf("%ld messages echoed over %s\n", messages, carrier(fd));
        close(fd);
    }
}

static int ask(const char* host, int port, int ddp, long count) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    char out[SIZE], in[SIZE];
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1) return failed(host);
    if (ddp && use_ddp(fd) != 0) return failed("DDPMODE");
    if (connect(fd, (struct sockaddr*)&at, sizeof at) != 0) return failed("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < count; i++) {
        memset(out, (int)i, SIZE);
        if (send(fd, out, SIZE, 0) != SIZE) return failed("send");
        for (ssize_t n, have = 0; have < SIZE; have += n) {
            if ((n = recv(fd, in + have, (size_t)(SIZE - have), 0)) <= 0) return failed("recv");
        }
        if (memcmp(in, out, SIZE) != 0) return failed("the answer differs");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const long ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    printf("%ld round trips of %d bytes over %s: %.1f us each\n", count, SIZE, carrier(fd),
           (double)ns / 1e3 / (double)count);
    return close(fd);
}

int main(int argc, char** argv) {
    const int ddp = argc > 1 && strcmp(argv[argc - 1], "--ddp") == 0;
    const char* what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "server") && argc == 3 + ddp) return serve(atoi(argv[2]), ddp);
    if (!strcmp(what, "client") && argc == 5 + ddp)
        return ask(argv[2], atoi(argv[3]), ddp, atol(argv[4]));
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fputs(
        "usage: echo_socket server PORT [--ddp]               (0: any free port)\n"
        "       echo_socket client ADDRESS PORT COUNT [--ddp]\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
}
