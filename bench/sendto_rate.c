// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagrams of UDP in a second, each by a call of its own: what ib_send_bw -c UD stands beside
// (roce.sh).
//
//   sendto_rate serve PORT BYTES          takes them, by recv(), until the last has come
//   sendto_rate PORT BYTES COUNT          sends so many; prints millions in a second that came
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 65507 };

static char buffer[MOST];

static void fail(const char* what) {
    fprintf(stderr, "sendto_rate: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// A TCP connection beside it says when all were sent, and how many came.
static void serve(int udp, int listener, size_t bytes) {
    const int control = accept(listener, NULL, NULL);
    if (control < 0) fail("accept");
    const struct timeval limit = {0, 100000};
    setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    uint64_t came = 0;
    for (;;) {
        const ssize_t n = recv(udp, buffer, sizeof buffer, 0);
        if (n == (ssize_t)bytes) {
            ++came;
            continue;
        }
        char done;
        if (n < 0 && recv(control, &done, 1, MSG_DONTWAIT) == 1) break;
    }
    if (send(control, &came, sizeof came, MSG_NOSIGNAL) != sizeof came) fail("send");
    close(control);
}

static void drive(int udp, int control, const struct sockaddr_in* to, size_t bytes,
                  uint64_t count) {
    const double before = now();
    for (uint64_t i = 0; i < count; ++i) {
        if (sendto(udp, buffer, bytes, 0, (const struct sockaddr*)to, sizeof *to) !=
            (ssize_t)bytes) {
            fail("sendto");
        }
    }
    const double took = now() - before;
    uint64_t came = 0;
    if (send(control, "d", 1, MSG_NOSIGNAL) != 1) fail("send");
    if (recv(control, &came, sizeof came, MSG_WAITALL) != sizeof came) fail("recv");
    printf("%.4f\n", (double)came / took / 1e6);
}

int main(int argc, char** argv) {
    const int serves = argc == 4 && strcmp(argv[1], "serve") == 0;
    const unsigned long bytes = argc == 4 ? strtoul(argv[serves ? 3 : 2], NULL, 10) : 0;
    if (bytes < 1 || bytes > MOST) {
        fprintf(stderr, "usage: sendto_rate serve PORT BYTES | sendto_rate PORT BYTES COUNT\n");
        return 2;
    }
    struct sockaddr_in at;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((unsigned short)strtoul(argv[serves ? 2 : 1], NULL, 10));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (udp < 0 || tcp < 0) fail("socket");
    if (!serves) {
        if (connect(tcp, (const struct sockaddr*)&at, sizeof at) != 0) fail("connect");
        drive(udp, tcp, &at, bytes, strtoull(argv[3], NULL, 10));
        return 0;
    }
    if (bind(udp, (const struct sockaddr*)&at, sizeof at) != 0 ||
        bind(tcp, (const struct sockaddr*)&at, sizeof at) != 0 || listen(tcp, 1) != 0) {
        fail("bind");
    }
    serve(udp, tcp, bytes);
    return 0;
}
