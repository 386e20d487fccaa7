/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Carriers of datagrams by a peer of our own, octet by octet, that does not keep to their frame
 * (docs/wire.md). Only its connection suffers, if any.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/verbs/raw_carrier.h"

CASE(frames_that_are_none_end_their_carrier) {
    struct ud a = make_ud();
    struct carrier good;
    static unsigned char frame[HEADER + MTU + 1];
    CHECK(greet(&good, &a, a.qp->qp_num) == 0);
    right_one(&good, &a, 0);
    for (int wrong = 0; wrong < 9; ++wrong) {
        struct carrier c;
        size_t n = HEADER + 8;
        memset(frame, 0, sizeof frame);
        frame_to(frame, a.qp->qp_num);
        switch (wrong) {
            case 0:
                n = 0;
                break;
            case 1:
                n = HEADER - 1;
                break;
            case 2:
                n = HEADER + MTU + 1;
                break;
            case 3:
                frame[0] = 2; /* version */
                break;
            case 4:
                frame[1] = 4; /* a flag */
                break;
            case 5:
                frame[4] = 1; /* a QP number of 25 bits */
                break;
            case 6:
                frame[8] = 1;
                break;
            case 7:
                frame[20] = 0x10; /* a traffic class of nine bits */
                break;
            default:
                frame[19] = 1; /* an immediate without its flag */
        }
        ud_receives(&a, 200, 1);
        CHECK(greet(&c, &a, a.qp->qp_num) == 0);
        send_message(&c, frame, n);
        CHECK(has_ended(&c), "%d", wrong);
        close(c.fd);
        expect_nothing(a.receives, 2);
        CHECK(to_state(a.qp, IBV_QPS_RESET) == 0); /* forgets the receive */
        ud_to_init(a.qp);
        ud_to_rts(a.qp);
        right_one(&good, &a, 1 + wrong);
    }
    close(good.fd);
    destroy_ud(&a);
}

/* They are dropped, and their carrier goes on. */
CASE(frames_for_nobody) {
    struct ud a = make_ud();
    struct carrier c;
    unsigned char frame[HEADER + 8];
    CHECK(greet(&c, &a, a.qp->qp_num) == 0);
    for (int wrong = 0; wrong < 4; ++wrong) {
        memset(frame, 0, sizeof frame);
        frame_to(frame, a.qp->qp_num);
        if (wrong == 0) put32(frame + 12, QKEY + 1);
        if (wrong == 1) frame[3] = 0xfe;                                   /* P_Key */
        if (wrong == 2) put32(frame + 4, (a.qp->qp_num & 0xffff00) - 256); /* another process's */
        if (wrong == 3) put32(frame + 4, a.qp->qp_num ^ 0x80);
        send_message(&c, frame, sizeof frame);
        right_one(&c, &a, wrong);
    }
    close(c.fd);
    destroy_ud(&a);
}

CASE(greetings_of_carriers) {
    struct ud a = make_ud();
    struct carrier c;
    CHECK(greet(&c, &a, (a.qp->qp_num & 0xffff00) - 256) == NO_SUCH_QP); /* a port of another */
    close(c.fd);
    CHECK(greet(&c, &a, a.qp->qp_num & 0xffff00) == 0);
    right_one(&c, &a, 0);
    close(c.fd);
    destroy_ud(&a);
}

CASE(a_write_ends_its_carrier) {
    struct ud a = make_ud();
    struct carrier good, c;
    CHECK(greet(&good, &a, a.qp->qp_num) == 0);
    CHECK(greet(&c, &a, a.qp->qp_num) == 0);
    /* An RDMA Write: tagged, to a key that there is not. */
    unsigned char fpdu[32] = {0, 14 + 8, 0xc1, 0x40, 1, 2, 3, 4};
    const uint32_t crc = crc32c(fpdu, 24);
    for (int i = 0; i < 4; ++i) fpdu[24 + i] = (unsigned char)(crc >> 8 * i);
    CHECK(send(c.fd, fpdu, 28, MSG_NOSIGNAL) == 28);
    CHECK(has_ended(&c));
    right_one(&good, &a, 0);
    close(c.fd);
    close(good.fd);
    destroy_ud(&a);
}

/* Messages to a QP without a receive hold up no other carrier, nor its own once it has one. */
CASE(a_carrier_that_is_not_read) {
    struct ud a = make_ud(), b = make_ud();
    struct carrier good, c;
    static unsigned char frame[HEADER + MTU];
    CHECK(greet(&good, &a, a.qp->qp_num) == 0);
    CHECK(greet(&c, &a, a.qp->qp_num) == 0);
    frame_to(frame, a.qp->qp_num);
    for (int i = 0; i < 100; ++i) send_message(&c, frame, sizeof frame);
    right_one(&good, &b, 0);
    usleep(1200000); /* from now on they are dropped */
    for (int i = 0; i < 10000; ++i) send_message(&c, frame, HEADER + 8);
    right_one(&good, &b, 1);
    right_one(&c, &b, 2); /* behind all of them */
    right_one(&good, &a, 3);
    close(c.fd);
    close(good.fd);
    destroy_ud(&a);
    destroy_ud(&b);
}

CASE(many_carriers) {
    enum { CARRIERS = 300 };
    static struct carrier c[CARRIERS];
    struct ud a = make_ud();
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < CARRIERS; ++i) CHECK(greet(&c[i], &a, a.qp->qp_num) == 0);
    for (int i = 0; i < CARRIERS; ++i) right_one(&c[i], &a, i % DEPTH);
    for (int i = 0; i < CARRIERS; ++i) close(c[i].fd);
    CHECK(greet(&c[0], &a, a.qp->qp_num) == 0);
    right_one(&c[0], &a, 0);
    close(c[0].fd);
    destroy_ud(&a);
}

/* One address greets again and again: it keeps out nobody, nor uses up the descriptors. */
CASE(a_crowd_of_carriers) {
    enum { CARRIERS = 400, DESCRIPTORS = 720, MOST = DESCRIPTORS / 4 };
    static struct carrier c[CARRIERS];
    struct carrier other, last;
    struct ud a = make_ud();
    struct rlimit before, limit;
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = DESCRIPTORS;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(greet_from(&other, &a, INADDR_LOOPBACK + 1) == 0);
    for (int i = 0; i < CARRIERS; ++i) {
        CHECK(greet(&c[i], &a, a.qp->qp_num) == 0);
        if (i == MOST / 2) right_one(&c[0], &a, 1);
    }
    CHECK(greet_from(&last, &a, INADDR_LOOPBACK + 2) == 0);
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    close(fd);
    right_one(&other, &a, 0);
    right_one(&last, &a, 1);
    for (int i = 0; i < CARRIERS - MOST; ++i) CHECK(has_ended(&c[i]), "%d", i);
    for (int i = CARRIERS - MOST / 2; i < CARRIERS; ++i) right_one(&c[i], &a, i % DEPTH);
    for (int i = 0; i < CARRIERS; ++i) close(c[i].fd);
    close(other.fd);
    close(last.fd);
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    destroy_ud(&a);
}

/* Its former carrier is of no use any more. */
CASE(a_process_that_comes_again) {
    struct ud a = make_ud();
    struct carrier first, second;
    CHECK(greet_from(&first, &a, INADDR_LOOPBACK) == 0);
    right_one(&first, &a, 0);
    CHECK(greet_from(&second, &a, INADDR_LOOPBACK) == 0);
    CHECK(has_ended(&first));
    right_one(&second, &a, 1);
    close(first.fd);
    close(second.fd);
    destroy_ud(&a);
}

CASE(connections_are_not_for_datagrams) {
    struct ud a = make_ud(), b = make_ud_at_init();
    struct carrier c = {0};
    CHECK(greet_as(&c, &a, b.qp->qp_num, 0x123400, RC) == OTHER_KIND);
    close(c.fd);
    CHECK(greet_as(&c, &a, a.qp->qp_num, 0x123400, RC) == OTHER_KIND);
    close(c.fd);
    destroy_ud(&a);
    destroy_ud(&b);
}

static int open_descriptors(void) {
    DIR* const folder = opendir("/proc/self/fd");
    int count = -3; /* of which one is this */
    MUST(folder != NULL);
    while (readdir(folder) != NULL) ++count;
    closedir(folder);
    return count;
}

/* By datagrams that are sent until one has come. */
static int reaches_itself(struct ud* a) {
    const struct ud_to to = {make_ah(0), a->qp->qp_num, QKEY};
    struct ibv_wc wc;
    int n = 0;
    ud_receives(a, 0, 1);
    for (int i = 0; i < LIMIT_S * 10 && n == 0; ++i) {
        CHECK(ud_send(a, &to, 7, 64) == 0);
        expect_sent(a, 7);
        for (int ms = 0; ms < 100 && n == 0; ++ms) {
            n = ibv_poll_cq(a->receives, 1, &wc);
            usleep(1000);
        }
    }
    CHECK(ibv_destroy_ah(to.ah) == 0);
    return n == 1;
}

/* A peer says that it is many processes, of which the program answers each, and of which none
 * answers. */
CASE(answers_to_a_crowd) {
    /* A first dial that is not answered holds up completions for a second, so many are under way.
     */
    enum { PORTS = 160, ANSWERS = 320, UNDER_WAY = 32, FIRST = 20000, DESCRIPTORS = 720 };
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), 0, QKEY};
    struct carrier c;
    struct rlimit before, limit;
    unsigned char frame[HEADER + 64] = {0};
    int listen_fds[PORTS], both[2];
    MUST(pipe(both) == 0);
    for (int i = 0; i < PORTS; ++i) listen_fds[i] = listen_at(FIRST + i);
    const pid_t holder = fork(); /* of the listening sockets */
    MUST(holder >= 0);
    if (holder == 0) {
        close(both[1]);
        _exit(read(both[0], frame, 1) != 0);
    }
    for (int i = 0; i < PORTS; ++i) close(listen_fds[i]);
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = DESCRIPTORS;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const int usual = open_descriptors();
    const double begin = now();
    int most = 0;
    CHECK(greet(&c, &a, a.qp->qp_num) == 0);
    for (int i = 0; i < ANSWERS; ++i) {
        frame_to(frame, a.qp->qp_num);
        put32(frame + 8, (uint32_t)(FIRST + i) << 8);
        ud_receives(&a, i % DEPTH, 1);
        send_message(&c, frame, sizeof frame);
        const struct ibv_wc wc = next(a.receives);
        CHECK(wc.src_qp == (uint32_t)(FIRST + i) << 8);
        to.num = wc.src_qp;
        CHECK(ud_send(&a, &to, (uint32_t)i, 64) == 0);
        if (i >= UNDER_WAY) expect_sent(&a, (uint32_t)(i - UNDER_WAY));
        if (i % 5 != 4) continue;
        const int open = open_descriptors() - usual;
        if (open > most) most = open;
    }
    for (int i = ANSWERS - UNDER_WAY; i < ANSWERS; ++i) expect_sent(&a, (uint32_t)i);
    CHECK(now() - begin < LIMIT_S, "%.1f s", now() - begin);
    CHECK(most > 10 && most < DESCRIPTORS / 4 + 20, "%d descriptors", most);
    CHECK(reaches_itself(&a));
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    close(both[0]);
    close(both[1]);
    MUST(waitpid(holder, NULL, 0) == holder);
    close(c.fd);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

/* To others than those there is still a way. */
CASE(more_destinations_than_are_remembered) {
    enum { QPS = 4, EACH = 1100, UNDER_WAY = 240, FIRST = 20000 };
    struct ud a[QPS];
    for (int q = 0; q < QPS; ++q) a[q] = make_ud();
    struct ud_to to = {make_ah(0), 0, QKEY};
    for (int i = 0; i < EACH + UNDER_WAY; ++i) {
        for (int q = 0; q < QPS; ++q) {
            to.num = (uint32_t)(FIRST + q * EACH + i) << 8; /* nobody listens there */
            if (i < EACH) CHECK(ud_send(&a[q], &to, (uint32_t)i, 64) == 0);
            if (i >= UNDER_WAY) expect_sent(&a[q], (uint32_t)(i - UNDER_WAY));
        }
    }
    CHECK(reaches_itself(&a[0]));
    CHECK(ibv_destroy_ah(to.ah) == 0);
    for (int q = 0; q < QPS; ++q) destroy_ud(&a[q]);
}

/* It accepts, announces an extension frame, and says no more: it is given up like any other. */
CASE(a_peer_that_accepts_and_says_no_more) {
    enum { PORT = 23456 };
    struct ud a = make_ud();
    struct ud_to to = {make_ah(0), PORT << 8, QKEY};
    const struct timeval limit = {LIMIT_S, 0};
    struct carrier c = {.fd = -1};
    unsigned char request[48], reply[48];
    const int listener = listen_at(PORT);
    CHECK(ud_send(&a, &to, 1, 64) == 0);
    MUST((c.fd = accept(listener, NULL, NULL)) >= 0);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    MUST(recv(c.fd, request, sizeof request, MSG_WAITALL) == sizeof request);
    CHECK(request[33] == DATAGRAMS && (request[16] & 0x05) == 0x05);
    memcpy(reply, request, sizeof reply);
    memcpy(reply, "MPA ID Rep Frame", 16);
    reply[16] = 0x40 | 0x10 | 0x02 | 0x01;
    memcpy(reply + 36, request + 40, 4);
    memcpy(reply + 40, request + 36, 4);
    MUST(send(c.fd, reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply);
    const double begin = now();
    CHECK(has_ended(&c));
    CHECK(now() - begin < 3, "%.1f s", now() - begin);
    expect_sent(&a, 1);
    close(c.fd);
    close(listener);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&a);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
