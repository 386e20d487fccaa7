/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which connections datagrams go by: one for both directions between two processes that can, else
 * one each.
 */
#include <poll.h>
#include <sys/prctl.h>

#include "tests/verbs/raw_carrier.h"

/* ---- two programs ---- */

/* Ends of established TCP connections in this network namespace. */
static int established(void) {
    char line[512];
    int count = 0;
    for (int i = 0; i < 2; ++i) {
        FILE* const all = fopen(i == 0 ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
        MUST(all != NULL);
        while (fgets(line, sizeof line, all) != NULL) {
            unsigned state;
            if (sscanf(line, " %*d: %*s %*s %x", &state) == 1 && state == 1) ++count;
        }
        fclose(all);
    }
    return count;
}
static void expect_connections(int before, int more) {
    const double limit = now() + LIMIT_S;
    while (established() != before + more && now() < limit) usleep(1000);
    CHECK(established() == before + more, "%d before, %d now", before, established());
}

struct pipes {
    int here[2], there[2];
};
static struct pipes make_pipes(void) {
    struct pipes p;
    MUST(pipe(p.here) == 0 && pipe(p.there) == 0);
    return p;
}
static void tell(const int to[2], uint32_t value) {
    MUST(write(to[1], &value, sizeof value) == sizeof value);
}
static uint32_t hear(const int from[2]) {
    uint32_t value = 0;
    MUST(read(from[0], &value, sizeof value) == sizeof value);
    return value;
}

enum { ROUNDS = 100 };

/* `first`: sends, and is answered; else it answers. */
static void ping_pong(struct ud* u, const struct ud_to* to, int first) {
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        if (first) {
            CHECK(ud_send(u, to, i, 64) == 0);
            expect_sent(u, i);
        }
        expect_datagram(u, (int)i, i, 64);
        if (!first) {
            CHECK(ud_send(u, to, i, 64) == 0);
            expect_sent(u, i);
        }
    }
}
/* All that the other has sent comes, in any order. */
static void exchange_at_once(struct ud* u, const struct ud_to* to) {
    char came[ROUNDS] = {0};
    for (uint32_t i = 0; i < ROUNDS; ++i) CHECK(ud_send(u, to, i, 64) == 0);
    for (uint32_t i = 0; i < ROUNDS; ++i) expect_sent(u, i);
    for (int i = 0; i < ROUNDS; ++i) {
        const struct ibv_wc wc = next(u->receives);
        uint32_t number = ROUNDS;
        memcpy(&number, slot(u, (int)wc.wr_id) + GRH, sizeof number);
        CHECK(number < ROUNDS && !came[number], "%u", number);
        if (number < ROUNDS) came[number] = 1;
    }
}

/* Two processes exchange datagrams; `at_once`: both begin to. At the end they have one connection.
 */
static void two_processes(int at_once) {
    const struct pipes p = make_pipes();
    const int before = established();
    const pid_t other = fork();
    MUST(other >= 0);
    if (other == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int* const from = other == 0 ? p.there : p.here;
    const int* const into = other == 0 ? p.here : p.there;
    struct ud u = make_ud();
    ud_receives(&u, 0, ROUNDS);
    tell(into, u.qp->qp_num);
    const struct ud_to to = {make_ah(0), hear(from), QKEY};
    if (at_once) {
        exchange_at_once(&u, &to);
        tell(into, 0);
        (void)hear(from);
        /* One more each way, by what is left. */
        usleep(50000);
        ud_receives(&u, 0, 1);
        tell(into, 0);
        (void)hear(from);
        CHECK(ud_send(&u, &to, 7, 64) == 0);
        expect_sent(&u, 7);
        expect_datagram(&u, 0, 7, 64);
    } else {
        ping_pong(&u, &to, other != 0);
    }
    if (other != 0) expect_connections(before, 2);
    tell(into, 0);
    (void)hear(from);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    destroy_ud(&u);
    if (other == 0) exit(failures != 0);
    const int status = wait_for(other, LIMIT_S);
    CHECK(status == 0, "%d", status);
}
static void one_begins(void) { two_processes(0); }
static void both_begin(void) { two_processes(1); }
CASE(two_processes_have_one_connection) { in_child(one_begins); }
CASE(two_that_begin_at_once_have_one_connection) {
    for (int i = 0; i < 20; ++i) in_child(both_begin);
}

/* ---- a peer of our own ---- */

/* A datagram that the program sends comes by this connection, behind others or alone. */
static void expect_frame(struct carrier* c, uint32_t from, uint32_t number) {
    unsigned char fpdu[2 + DDP + HEADER + 64 + 4];
    uint32_t got[2];
    MUST(recv(c->fd, fpdu, sizeof fpdu, MSG_WAITALL) == sizeof fpdu);
    CHECK(fpdu[0] == 0 && fpdu[1] == DDP + HEADER + 64 && (fpdu[3] & 0xf) == 3);
    memcpy(&got[0], fpdu + 2 + DDP + 8, 4);
    memcpy(&got[1], fpdu + 2 + DDP + HEADER, 4);
    CHECK(ntohl(got[0]) == from && got[1] == number, "from 0x%06x: %u", ntohl(got[0]), got[1]);
}
static int comes_at(int listener, int ms) {
    struct pollfd ready = {listener, POLLIN, 0};
    return poll(&ready, 1, ms) == 1;
}

/* The peer's QP numbers have this port in them. */
struct peer {
    struct carrier c;
    int listener;
    uint32_t num;
};
static struct peer make_peer(struct ud* u, int port, int both_ways) {
    struct peer p = {.c = {.both_ways = both_ways}, .num = (uint32_t)port << 8};
    p.listener = listen_at(port);
    CHECK(greet_as(&p.c, u, u->qp->qp_num, p.num, DATAGRAMS) == 0);
    CHECK(p.c.both_ways == both_ways && (p.c.attempt != ATTEMPT) == both_ways);
    right_one(&p.c, u, 0);
    return p;
}
static void free_peer(struct peer* p) {
    close(p->c.fd);
    close(p->listener);
}
static void send_to(struct ud* u, uint32_t num, uint32_t number) {
    const struct ud_to to = {make_ah(0), num, QKEY};
    CHECK(ud_send(u, &to, number, 64) == 0);
    CHECK(ibv_destroy_ah(to.ah) == 0);
}
/* The next datagram for it has the program dial; the Request is still to be answered. */
static struct carrier expect_dialed(struct ud* u, const struct peer* p, uint32_t number,
                                    unsigned char request[GREETING]) {
    send_to(u, p->num, number);
    MUST(comes_at(p->listener, LIMIT_S * 1000));
    return take_request(p->listener, request);
}
/* What the program dials for goes by the connection that the peer has dialed: it says so. */
static void send_by_theirs(struct ud* u, struct peer* p, uint32_t number) {
    unsigned char request[GREETING];
    struct carrier dialed = expect_dialed(u, p, number, request);
    CHECK(dialed.both_ways);
    reply(&dialed, request, ALREADY_CONNECTED, p->c.attempt);
    CHECK(has_ended(&dialed));
    close(dialed.fd);
    expect_sent(u, number);
    expect_frame(&p->c, u->qp->qp_num, number);
}
/* The connection that the peer has dialed has ended: the program dials, and sends by that. */
static void send_by_another(struct ud* u, struct peer* p, uint32_t number) {
    unsigned char request[GREETING];
    struct carrier dialed = expect_dialed(u, p, number, request);
    reply(&dialed, request, 0, dialed.attempt);
    expect_sent(u, number);
    expect_frame(&dialed, u->qp->qp_num, number);
    close(dialed.fd);
}

CASE(a_carrier_goes_both_ways_once_its_dialer_has_answered_at_its_port) {
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3001, 1);
    send_by_theirs(&a, &p, 1);
    for (uint32_t i = 2; i < 5; ++i) {
        send_to(&a, p.num | 5, i);
        expect_sent(&a, i);
        expect_frame(&p.c, a.qp->qp_num, i);
        right_one(&p.c, &a, (int)i);
    }
    CHECK(!comes_at(p.listener, 0));
    free_peer(&p);
    destroy_ud(&a);
}
CASE(a_carrier_goes_one_way_unless_its_dialer_says_so) {
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3002, 0);
    unsigned char request[GREETING];
    struct carrier dialed = expect_dialed(&a, &p, 1, request);
    /* It has no name. */
    reply(&dialed, request, ALREADY_CONNECTED, p.c.attempt);
    close(dialed.fd);
    MUST(comes_at(p.listener, LIMIT_S * 1000));
    dialed = take_request(p.listener, request);
    reply(&dialed, request, 0, dialed.attempt);
    expect_sent(&a, 1);
    expect_frame(&dialed, a.qp->qp_num, 1);
    right_one(&p.c, &a, 2);
    close(dialed.fd);
    free_peer(&p);
    destroy_ud(&a);
}
/* A datagram goes to the one that holds the port, which says that it has called a connection so. */
static void expect_not_believed(struct ud* u, struct peer* holder, uint32_t name,
                                struct carrier* pretender) {
    struct carrier dialed;
    unsigned char request[GREETING];
    int refusals = 0;
    send_to(u, holder->num, 1);
    for (;; ++refusals) {
        MUST(comes_at(holder->listener, LIMIT_S * 1000));
        dialed = take_request(holder->listener, request);
        if (!dialed.both_ways) break;
        reply(&dialed, request, ALREADY_CONNECTED, name);
        close(dialed.fd);
    }
    CHECK(refusals > 0);
    reply(&dialed, request, 0, dialed.attempt);
    expect_sent(u, 1);
    expect_frame(&dialed, u->qp->qp_num, 1);
    CHECK(!comes_at(pretender->fd, 50));
    close(dialed.fd);
}
/* The connection that has come with its port in the greeting is not one that it knows of. */
CASE(a_port_is_not_believed) {
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3005, 1);
    expect_not_believed(&a, &p, p.c.attempt + 1, &p.c);
    free_peer(&p);
    destroy_ud(&a);
}
/* Another process may know the name, but gives none to its own. */
CASE(a_name_is_of_one_connection) {
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3007, 1);
    struct carrier other = {.both_ways = 1};
    CHECK(greet_as(&other, &a, a.qp->qp_num, p.num, DATAGRAMS) == 0);
    CHECK(other.both_ways && other.attempt != p.c.attempt);
    right_one(&other, &a, 0);
    CHECK(has_ended(&p.c)); /* the other has taken its place */
    expect_not_believed(&a, &p, p.c.attempt, &other);
    close(other.fd);
    free_peer(&p);
    destroy_ud(&a);
}
/* What was sent before the peer was there is dropped, and so is what follows for a while: until the
 * peer dials. */
CASE(a_peer_that_has_come_is_dialed_at_once) {
    struct ud a = make_ud();
    send_to(&a, 3008 << 8, 0);
    expect_sent(&a, 0);
    struct peer p = make_peer(&a, 3008, 1);
    send_by_theirs(&a, &p, 1);
    free_peer(&p);
    destroy_ud(&a);
}
/* Nor does it wait for the end of a pause between two attempts, which may be too late. */
CASE(a_peer_that_comes_while_it_is_dialed) {
    struct ud a = make_ud();
    const double begin = now();
    send_to(&a, 3009 << 8, 0);
    usleep(550000); /* the next attempt would be behind the limit of a second */
    struct peer p = make_peer(&a, 3009, 0);
    if (now() - begin < 0.9) CHECK(comes_at(p.listener, LIMIT_S * 1000));
    free_peer(&p);
    destroy_ud(&a);
}
/* It may have been idle for too long. */
CASE(a_peer_that_closes_is_dialed_at_once) {
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3003, 1);
    send_by_theirs(&a, &p, 1);
    MUST(shutdown(p.c.fd, SHUT_WR) == 0);
    CHECK(has_ended(&p.c));
    send_by_another(&a, &p, 2);
    free_peer(&p);
    destroy_ud(&a);
}
/* A frame that is none ends it, and what the program sends goes elsewhere. */
CASE(a_frame_that_is_none_ends_both_directions) {
    static const unsigned char none[HEADER] = {9};
    struct ud a = make_ud();
    struct peer p = make_peer(&a, 3004, 1);
    send_by_theirs(&a, &p, 1);
    send_message(&p.c, none, sizeof none);
    CHECK(has_ended(&p.c));
    send_by_another(&a, &p, 2);
    free_peer(&p);
    destroy_ud(&a);
}
/* A peer that asks for a connection both ways learns which one there is. */
CASE(the_program_names_what_it_has_dialed) {
    struct ud a = make_ud();
    struct peer p = {.num = 3006u << 8, .listener = listen_at(3006)};
    struct carrier second = {.both_ways = 1}, one_way = {0};
    unsigned char request[GREETING];
    struct carrier dialed = expect_dialed(&a, &p, 1, request);
    reply(&dialed, request, 0, 0xabcdef01);
    expect_sent(&a, 1);
    expect_frame(&dialed, a.qp->qp_num, 1);
    CHECK(greet_as(&second, &a, a.qp->qp_num, p.num, DATAGRAMS) == ALREADY_CONNECTED);
    CHECK(second.attempt == 0xabcdef01);
    right_one(&dialed, &a, 0);
    /* One that goes one way may come beside it. */
    CHECK(greet_as(&one_way, &a, a.qp->qp_num, p.num, DATAGRAMS) == 0);
    right_one(&one_way, &a, 1);
    close(second.fd);
    close(one_way.fd);
    close(dialed.fd);
    close(p.listener);
    destroy_ud(&a);
}
/* The datagrams that the program sends to itself go to no one else. */
CASE(a_peer_that_names_a_port_of_the_program) {
    struct ud a = make_ud(), b = make_ud();
    struct carrier c = {.both_ways = 1};
    const struct ud_to to = {make_ah(0), b.qp->qp_num, QKEY};
    CHECK(greet_as(&c, &a, a.qp->qp_num, b.qp->qp_num & 0xffff00, DATAGRAMS) == 0);
    CHECK(!c.both_ways);
    right_one(&c, &a, 0);
    ud_receives(&b, 0, 1);
    CHECK(ud_send(&a, &to, 0, 64) == 0);
    expect_datagram(&b, 0, 0, 64);
    CHECK(ibv_destroy_ah(to.ah) == 0);
    close(c.fd);
    destroy_ud(&a);
    destroy_ud(&b);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
