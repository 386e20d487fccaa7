// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections in a second, one at a time: connect, a byte each way, close. Plain sockets, blocking;
// the server closes first, as HTTP/1.0's do. stream_programs.sh runs both ends with and without
// `xsock run --stream`.
//
//   connect_rate serve PORT
//   connect_rate PORT SECONDS     prints how many there were in a second
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/loopback_address.h"

static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended = 1;
}

static void fail(const char* what) {
    fprintf(stderr, "connect_rate: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int tcp_socket(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    return fd;
}

// Until SIGTERM.
static void serve(const char* port) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = end;
    sigaction(SIGTERM, &action, NULL);
    const int listener = tcp_socket();
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const struct sockaddr_in address = loopback_address(port);
    if (bind(listener, (const struct sockaddr*)&address, sizeof address) != 0) fail("bind");
    if (listen(listener, 128) != 0) fail("listen");
    while (!ended) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) fail("accept");
        char byte;
        if (recv(fd, &byte, 1, 0) == 1) (void)!send(fd, &byte, 1, MSG_NOSIGNAL);
        close(fd);
    }
    close(listener);
}

static void connect_once(const struct sockaddr_in* address) {
    const int fd = tcp_socket();
    if (connect(fd, (const struct sockaddr*)address, sizeof *address) != 0) fail("connect");
    char byte = 'x';
    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) fail("send");
    if (recv(fd, &byte, 1, 0) != 1 || byte != 'x') fail("recv");
    if (recv(fd, &byte, 1, 0) != 0) fail("no end of file");
    close(fd);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: connect_rate serve PORT | connect_rate PORT SECONDS\n");
        return 2;
    }
    if (strcmp(argv[1], "serve") == 0) {
        serve(argv[2]);
        return 0;
    }
    const struct sockaddr_in address = loopback_address(argv[1]);
    const double seconds = strtod(argv[2], NULL);
    for (int i = 0; i < 20; i++) connect_once(&address);
    const double before = now();
    unsigned long connections = 0;
    double took;
    do {
        connect_once(&address);
        connections++;
        took = now() - before;
    } while (took < seconds);
    printf("%.1f\n", (double)connections / took);
    return 0;
}
