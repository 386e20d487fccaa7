/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* setsockopt(), getsockopt() and ioctl(), and what they change. */
#include <linux/sockios.h>

#include "tests/system/stream_semantics/semantics.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif

CASE(low_water_mark) {
    int fds[2];
    pthread_t later;
    make_pair(fds);
    OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT);
    SET_OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT, 4);
    OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT);
    put(fds[0], "abc");
    arrived(fds[1], 3);
    EVENTS(fds[1]);
    RECV(fds[1], 10, MSG_DONTWAIT);
    put(fds[0], "abc");
    later = put_later(fds[0], "def", 30);
    until(fds[1], POLLIN);
    NOTE(waiting_in(fds[1]));
    RECV(fds[1], 10, 0);
    join(later);
    /* (Where the bytes come in parts the kernel takes the first ones and sleeps on.) */
    later = put_later(fds[0], "abcd", 30);
    RECV(fds[1], 10, 0);
    join(later);
    put(fds[0], "abcdef");
    arrived(fds[1], 6);
    RECV(fds[1], 2, 0); /* fewer were asked for */
    EVENTS(fds[1]);
    put(fds[0], "g");
    arrived(fds[1], 5);
    RECV(fds[1], 2, 0);
    EVENTS(fds[1]);
    SET_OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT, 0);
    OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT);
    EVENTS(fds[1]);
    SET_OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT, 100);
    EVENTS(fds[1]);
    NOTE(shutdown(fds[0], SHUT_WR));
    until(fds[1], POLLIN);
    EVENTS(fds[1]);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(low_water_mark_of_the_listener) {
    int fds[2];
    make_pair_with(fds, SOL_SOCKET, SO_RCVLOWAT, 3);
    OPTION(fds[0], SOL_SOCKET, SO_RCVLOWAT);
    OPTION(fds[1], SOL_SOCKET, SO_RCVLOWAT);
    put(fds[0], "ab");
    arrived(fds[1], 2);
    EVENTS(fds[1]);
    put(fds[0], "c");
    arrived(fds[1], 3);
    EVENTS(fds[1]);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(buffers) {
    int fds[2];
    make_pair_with(fds, SOL_SOCKET, SO_RCVBUF, 8192);
    OPTION(fds[0], SOL_SOCKET, SO_RCVBUF);
    OPTION(fds[1], SOL_SOCKET, SO_RCVBUF);
    SET_OPTION(fds[0], SOL_SOCKET, SO_RCVBUF, 16384);
    OPTION(fds[0], SOL_SOCKET, SO_RCVBUF);
    SET_OPTION(fds[0], SOL_SOCKET, SO_RCVBUF, 1);
    OPTION(fds[0], SOL_SOCKET, SO_RCVBUF);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDBUF, 16384);
    OPTION(fds[0], SOL_SOCKET, SO_SNDBUF);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDBUF, 1);
    OPTION(fds[0], SOL_SOCKET, SO_SNDBUF);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDBUF, -1);
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, "a", 1));
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, "a", 1));
    close_pair(fds);
}

CASE(a_receive_buffer_limits_the_peer) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDBUF, 16384);
    SET_OPTION(fds[1], SOL_SOCKET, SO_RCVBUF, 32768);
    NOTE(fill(fds[0]) < 512 * 1024);
    close_pair(fds);
    make_pair_with(fds, SOL_SOCKET, SO_RCVBUF, 32768);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDBUF, 16384);
    NOTE(fill(fds[0]) < 512 * 1024);
    close_pair(fds);
}

static int limit_of(int fd, int name) {
    struct timeval time = {-1, -1};
    socklen_t length = sizeof time;
    CHECK(getsockopt(fd, SOL_SOCKET, name, &time, &length) == 0);
    return (int)(time.tv_sec * 1000 + time.tv_usec / 1000);
}

CASE(time_limits) {
    int fds[2];
    long begin;
    struct timeval wrong = {0, 1000000}, past = {-1, 0};
    make_pair(fds);
    set_time_limit(fds[1], SO_RCVTIMEO, 60);
    NOTE(limit_of(fds[1], SO_RCVTIMEO));
    begin = now_ms();
    RECV(fds[1], 10, 0);
    NOTE(now_ms() - begin >= 59 && now_ms() - begin < 5000);
    begin = now_ms();
    RECV(fds[1], 10, MSG_WAITALL);
    NOTE(now_ms() - begin >= 59);
    NOTE(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong));
    NOTE(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &wrong, 3));
    NOTE(setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &past, sizeof past));
    NOTE(limit_of(fds[1], SO_RCVTIMEO));
    RECV(fds[1], 10, 0); /* at once */
    set_time_limit(fds[1], SO_RCVTIMEO, 0);
    NOTE(limit_of(fds[1], SO_RCVTIMEO));
    set_time_limit(fds[1], SO_SNDTIMEO, 70);
    NOTE(limit_of(fds[1], SO_SNDTIMEO));
    close_pair(fds);
}

CASE(linger) {
    int fds[2];
    struct linger how = {1, 3};
    socklen_t length = sizeof how;
    make_pair(fds);
    NOTE(getsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, &length));
    NOTE(how.l_onoff);
    how = (struct linger){1, 3};
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, sizeof how));
    memset(&how, 0, sizeof how);
    NOTE(getsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, &length));
    NOTE(how.l_onoff);
    NOTE(how.l_linger);
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, 4));
    put(fds[0], "bye");
    NOTE(close(fds[0]));
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    NOTE(close(fds[1]));
}

CASE(linger_of_zero_is_a_reset) {
    int fds[2];
    const struct linger how = {1, 0};
    make_pair(fds);
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &how, sizeof how));
    NOTE(close(fds[0]));
    until(fds[1], POLLHUP);
    EVENTS(fds[1]);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    RECV(fds[1], 10, 0);
    EVENTS(fds[1]);
    NOTE(close(fds[1]));
}

CASE(nodelay) {
    int fds[2];
    make_pair(fds);
    OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY, 7);
    OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY);
    put(fds[0], "a");
    put(fds[0], "b");
    arrived(fds[1], 2);
    RECV(fds[1], 10, 0);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY, 0);
    OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY);
    close_pair(fds);
    make_pair_with(fds, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY);
    OPTION(fds[1], IPPROTO_TCP, TCP_NODELAY);
    close_pair(fds);
}

CASE(cork_holds_until_it_is_taken_away) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    OPTION(fds[0], IPPROTO_TCP, TCP_CORK);
    put(fds[0], "abc");
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    put(fds[0], "def");
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 0);
    arrived(fds[1], 6);
    RECV(fds[1], 10, 0);
    put(fds[0], "g");
    arrived(fds[1], 1);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(cork_holds_while_the_program_waits) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    put(fds[0], "abc");
    RECV(fds[0], 1, MSG_DONTWAIT);
    EVENTS(fds[0]);
    set_time_limit(fds[0], SO_RCVTIMEO, 20);
    RECV(fds[0], 1, 0);
    NOTE(waiting_in(fds[1]));
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 0);
    arrived(fds[1], 3);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(cork_holds_for_200_ms) {
    int fds[2];
    long begin;
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    begin = now_ms();
    put(fds[0], "abc");
    RECV(fds[1], 10, 0);
    NOTE(now_ms() - begin >= 150);
    NOTE(now_ms() - begin < 5000);
    close_pair(fds);
}

CASE(cork_lets_go_what_is_full) {
    static char block[1 << 20];
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    NOTE(send(fds[0], block, sizeof block, 0) > 0);
    until(fds[1], POLLIN);
    NOTE(waiting_in(fds[1]) > 0);
    close_pair(fds);
}

CASE(cork_and_the_end) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    put(fds[0], "abc");
    NOTE(shutdown(fds[0], SHUT_WR));
    until(fds[1], POLLRDHUP);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(cork_and_nodelay) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    put(fds[0], "abc");
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY, 1); /* pushes what is there, tcp(7) */
    arrived(fds[1], 3);
    RECV(fds[1], 10, 0);
    put(fds[0], "def");
    sleep_ms(20);
    NOTE(waiting_in(fds[1])); /* and the cork holds on */
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 0);
    arrived(fds[1], 3);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(cork_and_an_urgent_byte) {
    int fds[2];
    make_pair(fds);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 1);
    put(fds[0], "abc");
    NOTE(send(fds[0], "!", 1, MSG_OOB));
    until(fds[1], POLLPRI);
    RECV(fds[1], 10, 0);
    RECV(fds[1], 1, MSG_OOB);
    close_pair(fds);
}

CASE(cork_before_connect) {
    int fds[2];
    make_pair_with(fds, IPPROTO_TCP, TCP_CORK, 1);
    OPTION(fds[0], IPPROTO_TCP, TCP_CORK);
    OPTION(fds[1], IPPROTO_TCP, TCP_CORK);
    put(fds[0], "abc");
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_CORK, 0);
    arrived(fds[1], 3);
    RECV(fds[1], 10, 0);
    close_pair(fds);
}

CASE(more_holds_as_cork_does) {
    int fds[2];
    make_pair(fds);
    NOTE(send(fds[0], "abc", 3, MSG_MORE));
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    RECV(fds[0], 1, MSG_DONTWAIT);
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    NOTE(send(fds[0], "def", 3, 0));
    arrived(fds[1], 6);
    RECV(fds[1], 10, 0);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_NODELAY, 1);
    NOTE(send(fds[0], "abc", 3, MSG_MORE));
    sleep_ms(20);
    NOTE(waiting_in(fds[1]));
    NOTE(send(fds[0], "def", 3, 0));
    arrived(fds[1], 6);
    RECV(fds[1], 10, 0);
    NOTE(send(fds[0], "abc", 3, MSG_MORE));
    NOTE(shutdown(fds[0], SHUT_WR));
    RECV(fds[1], 3, MSG_WAITALL);
    close_pair(fds);
}

CASE(figures) {
    int fds[2], value = -1;
    struct tcp_info info;
    socklen_t length = sizeof info;
    make_pair(fds);
    NOTE(getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, &info, &length));
    NOTE(info.tcpi_state == TCP_ESTABLISHED);
    NOTE(info.tcpi_rtt > 0 && info.tcpi_snd_mss > 0);
    NOTE(ioctl(fds[0], FIONREAD, &value));
    NOTE(value);
    NOTE(ioctl(fds[0], FIONREAD, NULL));
    NOTE(ioctl(fds[0], SIOCATMARK, &value));
    NOTE(value);
    put(fds[1], "abc");
    arrived(fds[0], 3);
    NOTE(ioctl(fds[0], SIOCINQ, &value));
    NOTE(value);
    NOTE(ioctl(fds[0], SIOCOUTQ, &value));
    NOTE(value);
    NOTE(ioctl(fds[0], SIOCOUTQ, NULL));
    NOTE(ioctl(fds[0], SIOCOUTQNSD, &value));
    NOTE(value);
    NOTE(shutdown(fds[1], SHUT_WR));
    RECV(fds[0], 10, MSG_WAITALL);
    RECV(fds[0], 10, 0);
    NOTE(getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, &info, &length));
    NOTE(info.tcpi_state == TCP_CLOSE_WAIT);
    close_pair(fds);
}

/* What a peer that does not read leaves here. */
CASE(bytes_that_are_queued) {
    int fds[2], value = -1, i;
    long sent, queued;
    make_pair_with(fds, SOL_SOCKET, SO_RCVBUF, 16 * 1024);
    sent = fill(fds[0]);
    CHECK(ioctl(fds[0], SIOCOUTQ, &value) == 0);
    queued = value;
    NOTE(queued > 0 && queued <= sent);
    CHECK(ioctl(fds[0], SIOCOUTQNSD, &value) == 0);
    NOTE(value >= 0 && value <= queued);
    take(fds[1], sent);
    for (i = 0; value > 0; i++) {
        CHECK(i < 20000 && ioctl(fds[0], SIOCOUTQ, &value) == 0);
        sleep_ms(1);
    }
    NOTE(value);
    close_pair(fds);
}

CASE(what_is_refused) {
    int fds[2], value = 1;
    make_pair(fds);
    NOTE(setsockopt(fds[0], IPPROTO_TCP, TCP_ULP, "none", 4));
    SET_OPTION(fds[0], SOL_SOCKET, SO_ZEROCOPY, 1);
    SET_OPTION(fds[0], IPPROTO_TCP, 9999, 1);
    SET_OPTION(fds[0], SOL_SOCKET, 9999, 1);
    SET_OPTION(fds[0], 9999, 1, 1);
    OPTION(fds[0], IPPROTO_TCP, 9999);
    NOTE(setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &value, 1));
    NOTE(setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, NULL, sizeof value));
    NOTE(setsockopt(fds[0], IPPROTO_TCP, TCP_CORK, &value, 1));
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_RCVLOWAT, NULL, sizeof value));
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_OOBINLINE, &value, 2));
    NOTE(getsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, NULL, NULL));
    NOTE(getsockopt(fds[0], SOL_SOCKET, SO_ERROR, NULL, NULL));
    NOTE(setsockopt(fds[0], SOL_SOCKET, SO_ERROR, &value, sizeof value));
    NOTE(ioctl(fds[0], 0x9999, &value));
    close_pair(fds);
}

CASE(the_kernels_own) {
    int fds[2];
    make_pair(fds);
    OPTION(fds[0], SOL_SOCKET, SO_TYPE);
    OPTION(fds[0], SOL_SOCKET, SO_DOMAIN);
    OPTION(fds[0], SOL_SOCKET, SO_PROTOCOL);
    OPTION(fds[0], SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(fds[0], SOL_SOCKET, SO_ERROR);
    OPTION(fds[0], SOL_SOCKET, SO_KEEPALIVE);
    SET_OPTION(fds[0], SOL_SOCKET, SO_KEEPALIVE, 1);
    OPTION(fds[0], SOL_SOCKET, SO_KEEPALIVE);
    OPTION(fds[0], IPPROTO_TCP, TCP_KEEPIDLE);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_KEEPIDLE, 77);
    OPTION(fds[0], IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    OPTION(fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT);
    OPTION(fds[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    OPTION(fds[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT);
    put(fds[0], "abc");
    RECV(fds[1], 3, MSG_WAITALL);
    SET_OPTION(fds[0], IPPROTO_TCP, TCP_QUICKACK, 0);
    OPTION(fds[0], IPPROTO_TCP, TCP_SYNCNT);
    OPTION(fds[0], IPPROTO_TCP, TCP_LINGER2);
    OPTION(fds[0], IPPROTO_TCP, TCP_DEFER_ACCEPT);
    OPTION(fds[0], SOL_SOCKET, SO_REUSEADDR);
    OPTION(fds[0], SOL_SOCKET, SO_BROADCAST);
    OPTION(fds[0], SOL_SOCKET, SO_DONTROUTE);
    OPTION(fds[0], SOL_SOCKET, SO_PRIORITY);
    SET_OPTION(fds[0], SOL_SOCKET, SO_PRIORITY, 3);
    OPTION(fds[0], SOL_SOCKET, SO_PRIORITY);
    OPTION(fds[0], SOL_SOCKET, SO_SNDLOWAT);
    SET_OPTION(fds[0], SOL_SOCKET, SO_SNDLOWAT, 5);
    OPTION(fds[0], SOL_SOCKET, SO_TIMESTAMP);
    OPTION(fds[0], IPPROTO_IP, IP_TOS);
    OPTION(fds[0], IPPROTO_IP, IP_TTL);
    SET_OPTION(fds[0], IPPROTO_IP, IP_TOS, 8);
    OPTION(fds[0], IPPROTO_IP, IP_TOS);
    close_pair(fds);
}

CASE(so_error_tells_once) {
    int fds[2];
    make_pair(fds);
    put(fds[1], "unread");
    arrived(fds[0], 6);
    NOTE(close(fds[0]));
    until(fds[1], POLLERR);
    EVENTS(fds[1]);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    OPTION(fds[1], SOL_SOCKET, SO_ERROR);
    EVENTS(fds[1]);
    RECV(fds[1], 10, 0);
    NOTE(send(fds[1], "a", 1, MSG_NOSIGNAL));
    NOTE(close(fds[1]));
}
