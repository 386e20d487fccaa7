/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* poll(), select() and epoll. */
#include <sys/epoll.h>
#include <sys/select.h>

#include "tests/system/stream_semantics/semantics.h"

enum { NOW = 0, SOON_MS = 50, PATIENCE_MS = 20000 };

static void control(int set, int operation, int fd, uint32_t events, uint64_t data) {
    static const char* const names[] = {"?", "ADD", "DEL", "MOD"};
    struct epoll_event event = {.events = events, .data.u64 = data};
    char label[64];
    const int result = epoll_ctl(set, operation, fd, &event);
    const int error = result < 0 ? errno : 0;
    snprintf(label, sizeof label, "epoll_ctl(%s, %#x, %d)", names[operation & 3], events,
             (int)data);
    note(label, result, error, NULL);
}

/* What the set tells within that time, in the order of `data`. */
static void tells(const char* label, int set, int ms) {
    struct epoll_event events[8];
    char line[64];
    int n, i, j;
    memset(events, 0, sizeof events);
    n = epoll_wait(set, events, 8, ms);
    note(label, n, n < 0 ? errno : 0, NULL);
    for (i = 0; i < n; i++) {
        for (j = i + 1; j < n; j++) {
            if (events[j].data.u64 < events[i].data.u64) {
                const struct epoll_event other = events[i];
                events[i] = events[j];
                events[j] = other;
            }
        }
        snprintf(line, sizeof line, "%s: %llu", label, (unsigned long long)events[i].data.u64);
        note(line, (long)events[i].events, 0, NULL);
    }
}
#define TELLS(set, ms) tells("epoll_wait(" #set ", " #ms ")", set, ms)

static int make_set(void) {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    return set;
}

/* A pair, and a set with the second of it. */
static int watch_pair(int fds[2], uint32_t events) {
    const int set = make_set();
    make_pair(fds);
    control(set, EPOLL_CTL_ADD, fds[1], events, 1);
    return set;
}

CASE(poll_of_several) {
    int fds[2];
    struct pollfd set[3];
    make_pair(fds);
    set[0] = (struct pollfd){fds[0], POLLIN, 0};
    set[1] = (struct pollfd){fds[1], POLLIN | POLLOUT, 0};
    set[2] = (struct pollfd){-1, POLLIN, ~0};
    NOTE(poll(set, 3, NOW));
    NOTE(set[0].revents);
    NOTE(set[1].revents);
    NOTE(set[2].revents);
    put(fds[1], "a");
    set[1].events = 0;
    NOTE(poll(set, 3, PATIENCE_MS));
    NOTE(set[0].revents);
    NOTE(set[1].revents);
    set[2].fd = 9999;
    NOTE(poll(set, 3, NOW));
    NOTE(set[2].revents);
    set[0].events = POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND;
    NOTE(poll(set, 1, NOW));
    NOTE(set[0].revents);
    close_pair(fds);
}

CASE(poll_of_sockets_that_are_not_connected) {
    struct sockaddr_in address;
    const int fresh = make_socket(), from = make_listener(&address);
    const int fd = make_socket();
    int to;
    EVENTS(fresh);
    EVENTS(from);
    CHECK(connect(fd, (struct sockaddr*)&address, sizeof address) == 0);
    until(from, POLLIN);
    EVENTS(from);
    EVENTS(fd);
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    EVENTS(from);
    EVENTS(to);
    EVENTS(fd);
    CHECK(close(to) == 0 && close(fd) == 0 && close(from) == 0 && close(fresh) == 0);
}

CASE(select_of_several) {
    int fds[2];
    fd_set reads, writes;
    struct timeval limit = {0, 20000}, none = {0, 0}, long_limit = {20, 0};
    make_pair(fds);
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(fds[0], &reads), FD_SET(fds[1], &reads);
    NOTE(select(20, &reads, NULL, NULL, &limit));
    NOTE(FD_ISSET(fds[0], &reads) != 0);
    NOTE(limit.tv_sec * 1000000 + limit.tv_usec);
    put(fds[0], "a");
    FD_SET(fds[0], &reads), FD_SET(fds[1], &reads);
    NOTE(select(20, &reads, NULL, NULL, &long_limit));
    NOTE(FD_ISSET(fds[0], &reads) != 0);
    NOTE(FD_ISSET(fds[1], &reads) != 0);
    NOTE(long_limit.tv_sec >= 15);
    FD_SET(fds[0], &writes), FD_SET(fds[1], &writes);
    NOTE(select(20, &reads, &writes, NULL, &none));
    NOTE(select(-1, &reads, &writes, NULL, &none));
    close_pair(fds);
}

CASE(level) {
    int fds[2];
    const int set = watch_pair(fds, EPOLLIN | EPOLLRDHUP);
    control(set, EPOLL_CTL_ADD, fds[1], EPOLLIN, 1);
    TELLS(set, NOW);
    put(fds[0], "ab");
    TELLS(set, PATIENCE_MS);
    TELLS(set, NOW);
    RECV(fds[1], 1, 0);
    TELLS(set, NOW);
    RECV(fds[1], 1, 0);
    TELLS(set, NOW);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLOUT, 2);
    TELLS(set, NOW);
    NOTE(shutdown(fds[0], SHUT_WR));
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLRDHUP, 3);
    until(fds[1], POLLRDHUP);
    TELLS(set, NOW);
    control(set, EPOLL_CTL_DEL, fds[1], 0, 0);
    control(set, EPOLL_CTL_DEL, fds[1], 0, 0);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN, 0);
    TELLS(set, NOW);
    close_pair(fds);
    CHECK(close(set) == 0);
}

CASE(edge) {
    int fds[2];
    const int set = watch_pair(fds, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    TELLS(set, NOW);
    TELLS(set, NOW);
    put(fds[0], "ab");
    TELLS(set, PATIENCE_MS);
    TELLS(set, NOW);
    RECV(fds[1], 1, 0);
    TELLS(set, NOW);
    put(fds[0], "c"); /* news, although there was something */
    TELLS(set, PATIENCE_MS);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLRDHUP | EPOLLET, 2); /* arms it again */
    TELLS(set, NOW);
    TELLS(set, NOW);
    NOTE(shutdown(fds[0], SHUT_WR));
    TELLS(set, PATIENCE_MS);
    TELLS(set, NOW);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    TELLS(set, NOW);
    NOTE(shutdown(fds[1], SHUT_WR));
    until(fds[1], POLLHUP);
    TELLS(set, PATIENCE_MS);
    close_pair(fds);
    CHECK(close(set) == 0);
}

CASE(edge_of_a_reset) {
    int fds[2];
    const int set = watch_pair(fds, EPOLLIN | EPOLLRDHUP | EPOLLET);
    const struct linger how = {1, 0};
    TELLS(set, NOW);
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, sizeof how));
    NOTE(close(fds[0]));
    until(fds[1], POLLHUP);
    TELLS(set, PATIENCE_MS);
    TELLS(set, NOW);
    RECV(fds[1], 10, 0);
    CHECK(close(fds[1]) == 0 && close(set) == 0);
}

CASE(one_shot) {
    int fds[2];
    const int set = watch_pair(fds, EPOLLIN | EPOLLONESHOT);
    put(fds[0], "ab");
    TELLS(set, PATIENCE_MS);
    TELLS(set, NOW);
    put(fds[0], "c");
    TELLS(set, SOON_MS);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLONESHOT, 2);
    TELLS(set, NOW);
    /* Not even the end is told to one that is not armed. */
    NOTE(close(fds[0]));
    until(fds[1], POLLRDHUP);
    TELLS(set, NOW);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLONESHOT | EPOLLRDHUP | EPOLLET, 3);
    TELLS(set, NOW);
    TELLS(set, NOW);
    CHECK(close(fds[1]) == 0 && close(set) == 0);
}

CASE(exclusive) {
    int fds[2];
    const int set = make_set(), other = make_set();
    make_pair(fds);
    control(set, EPOLL_CTL_ADD, fds[1], EPOLLIN | EPOLLEXCLUSIVE, 1);
    control(other, EPOLL_CTL_ADD, fds[1], EPOLLIN | EPOLLEXCLUSIVE, 1);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLEXCLUSIVE, 2);
    control(set, EPOLL_CTL_MOD, fds[1], EPOLLIN, 2);
    control(set, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 2);
    control(set, EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 2);
    put(fds[0], "a");
    arrived(fds[1], 1);
    TELLS(set, PATIENCE_MS);
    TELLS(other, NOW); /* no thread slept: both are told */
    close_pair(fds);
    CHECK(close(set) == 0 && close(other) == 0);
}

CASE(nested_sets) {
    int fds[2];
    const int inner = make_set(), outer = make_set();
    make_pair(fds);
    control(inner, EPOLL_CTL_ADD, fds[1], EPOLLIN, 1);
    control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
    control(inner, EPOLL_CTL_ADD, inner, EPOLLIN, 3);
    control(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 3);
    TELLS(inner, NOW);
    put(fds[0], "a");
    TELLS(outer, PATIENCE_MS);
    EVENTS(inner);
    TELLS(inner, PATIENCE_MS);
    RECV(fds[1], 1, 0);
    TELLS(inner, NOW);
    close_pair(fds);
    CHECK(close(inner) == 0 && close(outer) == 0);
}

CASE(a_set_with_a_pipe) {
    int fds[2], pipes[2];
    const int set = make_set();
    make_pair(fds);
    CHECK(pipe(pipes) == 0);
    control(set, EPOLL_CTL_ADD, fds[1], EPOLLIN, 1);
    control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2);
    TELLS(set, NOW);
    put(pipes[1], "a");
    TELLS(set, PATIENCE_MS);
    put(fds[0], "a");
    arrived(fds[1], 1);
    TELLS(set, PATIENCE_MS);
    CHECK(close(fds[1]) == 0); /* takes it out */
    TELLS(set, NOW);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0 && close(fds[0]) == 0 && close(set) == 0);
}

CASE(a_duplicate_is_a_member_of_its_own) {
    int fds[2], copy;
    const int set = make_set();
    make_pair(fds);
    copy = dup(fds[1]);
    CHECK(copy >= 0);
    control(set, EPOLL_CTL_ADD, fds[1], EPOLLIN, 1);
    control(set, EPOLL_CTL_ADD, copy, EPOLLIN, 2);
    put(fds[0], "a");
    arrived(fds[1], 1);
    TELLS(set, NOW);
    control(set, EPOLL_CTL_DEL, copy, 0, 0);
    TELLS(set, NOW);
    CHECK(close(copy) == 0);
    close_pair(fds);
    CHECK(close(set) == 0);
}

CASE(calls_that_are_wrong) {
    int fds[2];
    const int set = make_set();
    struct epoll_event event = {.events = EPOLLIN};
    make_pair(fds);
    NOTE(epoll_ctl(set, EPOLL_CTL_ADD, fds[1], NULL));
    NOTE(epoll_ctl(set, 77, fds[1], &event));
    NOTE(epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[1], &event));
    NOTE(epoll_ctl(set, EPOLL_CTL_ADD, 9999, &event));
    NOTE(epoll_wait(fds[0], &event, 1, 0));
    NOTE(epoll_wait(set, &event, 0, 0));
    close_pair(fds);
    CHECK(close(set) == 0);
}

CASE(room_is_told_when_all_is_free) {
    int fds[2];
    long sent;
    const int set = make_set();
    make_pair_with(fds, SOL_SOCKET, SO_SNDBUF, 32 * 1024);
    control(set, EPOLL_CTL_ADD, fds[0], EPOLLOUT | EPOLLET, 1);
    TELLS(set, NOW);
    sent = fill(fds[0]);
    /* What went during that. */
    while (epoll_wait(set, &(struct epoll_event){0}, 1, 0) > 0) sent += fill(fds[0]);
    EVENTS(fds[0]);
    take(fds[1], sent);
    TELLS(set, PATIENCE_MS);
    close_pair(fds);
    CHECK(close(set) == 0);
}
