/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ways of libc and the kernel to a descriptor that are not calls on it by name: requests of aio,
 * streams of stdio that are older than DDPMODE or lie over it after dup2(), options of a byte
 * stream. None may carry raw bytes into a started stream. Calls libc alone, as overlay_test.c does.
 *
 *   libc_paths_test [CASE ...]
 */
#include <aio.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/support/cases.h"
#include "tests/system/overlay_pair.h"

static void expect(int fd, const char* text) {
    char bytes[256];
    const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n != (ssize_t)strlen(text)) fprintf(stderr, "%zd bytes instead of \"%s\"\n", n, text);
    CHECK(n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0);
}

/* ---- what only a byte stream can do
 * ---------------------------------------------------------------
 */
static void* connect_made(void* argument) {
    struct connecting* const c = argument;
    ddpmode(c->fd);
    CHECK(connect(c->fd, (struct sockaddr*)&c->address, sizeof c->address) == 0);
    return NULL;
}

/* fds[0] is a socket that was made before; fds[1] is accepted. */
static void connect_pair(int fds[2]) {
    struct connecting c = {.fd = fds[0]};
    const int require = 1;
    const int from = listener(&c.address, 1);
    pthread_t thread;
    CHECK(setsockopt(from, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) == 0);
    CHECK(pthread_create(&thread, NULL, connect_made, &c) == 0);
    fds[1] = accept(from, NULL, NULL);
    CHECK(fds[1] >= 0 && pthread_join(thread, NULL) == 0 && close(from) == 0);
    exchange(fds[0], fds[1]);
}

CASE(zero_copy_is_refused) {
    const int on = 1, mode = DDPMODE_MESSAGE;
    struct tcp_zerocopy_receive zero_copy;
    socklen_t length = sizeof zero_copy;
    int fds[2];
    pair_of(1, fds);
    CHECK_ERROR(setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), ENOPROTOOPT);
    memset(&zero_copy, 0, sizeof zero_copy);
    CHECK(send(fds[0], "message", 7, 0) == 7);
    CHECK_ERROR(getsockopt(fds[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &zero_copy, &length),
                ENOPROTOOPT);
    expect(fds[1], "message");
    close_pair(fds);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
    CHECK_ERROR(setsockopt(fds[0], SOL_XSOCK, DDPMODE, &mode, sizeof mode), EOPNOTSUPP);
    CHECK(close(fds[0]) == 0);
}

CASE(signals_of_tcp_are_refused) {
    int fds[2], flags, on = 1;
    pair_of(1, fds);
    flags = fcntl(fds[0], F_GETFL);
    CHECK_ERROR(fcntl(fds[0], F_SETFL, flags | O_ASYNC), EOPNOTSUPP);
    CHECK_ERROR(ioctl(fds[0], FIOASYNC, &on), EOPNOTSUPP);
    on = 0;
    CHECK(ioctl(fds[0], FIOASYNC, &on) == 0);
    CHECK(fcntl(fds[0], F_SETFL, flags) == 0 && fcntl(fds[0], F_GETFL) == flags);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

CASE(connects_without_fast_open) {
    const int on = 1;
    int fds[2];
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) == 0);
    CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof on) == 0);
    connect_pair(fds);
    close_pair(fds);
}

static void run_case(const struct test_case* one) {
    fprintf(stderr, "%s\n", one->name);
    alarm(60);
    one->run();
}

int main(int argc, char** argv) { return for_cases(argc, argv, run_case); }
