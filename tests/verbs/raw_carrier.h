/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Carriers of datagrams by a peer of our own, octet by octet (docs/wire.md). Included once, instead
 * of datagrams.h. */
#ifndef XSOCK_TESTS_VERBS_RAW_CARRIER_H
#define XSOCK_TESTS_VERBS_RAW_CARRIER_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/verbs/datagrams.h"

enum {
    HEADER = 24,
    RC = 1,
    DATAGRAMS = 3,
    OTHER_KIND = 3,
    NO_SUCH_QP = 1,
    ALREADY_CONNECTED = 7,
    BOTH_WAYS = 1,
    GREETING = 48, /* a Request or Reply of MPA that has one */
    ATTEMPT = 0x12345678,
    DDP = 18
};

static inline void put32(unsigned char* to, uint32_t value) {
    value = htonl(value);
    memcpy(to, &value, 4);
}

static inline uint32_t get32(const unsigned char* from) {
    uint32_t value;
    memcpy(&value, from, 4);
    return ntohl(value);
}

static inline uint32_t crc32c(const unsigned char* at, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; ++i) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* One carrier: its own address (0: that of its peer), how many messages it has sent, whether it
 * takes datagrams, too (after the greeting: whether both ends say so), and the attempt, or name,
 * that the other end's greeting has. */
struct carrier {
    int fd;
    uint32_t address, sent;
    int both_ways;
    uint32_t attempt;
};

/* As the QP number `from`. The reason of the rejection; 0: it is accepted. */
static inline int greet_as(struct carrier* c, const struct ud* to, uint32_t dest, uint32_t from,
                           unsigned char kind) {
    static const unsigned char head[] = {
        'M', 'P', 'A', ' ', 'I',  'D', ' ', 'R',    'e',  'q',  ' ',  'F',
        'r', 'a', 'm', 'e', 0x50, 2,   0,   4 + 24, 0x00, 0x80, 0x00, 0x80, /* depths */
        'x', 's', 'o', 'c', 'k',  '-', 'Q', 'P',    1,    0,    0,    0};
    const union ibv_gid gid = own_gid(0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(c->address)};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(to->qp->qp_num >> 8 & 0xffff)};
    const struct timeval limit = {LIMIT_S, 0};
    unsigned char request[GREETING] = {0}, reply[GREETING];
    memcpy(&at.sin_addr, gid.raw + 12, 4);
    MUST((c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    MUST(bind(c->fd, (struct sockaddr*)&own, sizeof own) == 0);
    MUST(connect(c->fd, (struct sockaddr*)&at, sizeof at) == 0);
    c->sent = 0;
    memcpy(request, head, sizeof head);
    request[33] = kind;
    request[35] = (unsigned char)(c->both_ways ? BOTH_WAYS : 0);
    put32(request + 36, from);
    put32(request + 40, dest);
    put32(request + 44, ATTEMPT);
    MUST(send(c->fd, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    MUST(recv(c->fd, reply, sizeof reply, MSG_WAITALL) == sizeof reply);
    CHECK(memcmp(reply, "MPA ID Rep Frame", 16) == 0);
    c->both_ways = c->both_ways && reply[35] == BOTH_WAYS;
    c->attempt = get32(reply + 44);
    return (reply[16] & 0x20) != 0 ? reply[34] : 0;
}
/* As another process each time. */
static inline int greet(struct carrier* c, const struct ud* to, uint32_t dest) {
    static uint32_t port = 0x4567;
    c->address = 0;
    c->both_ways = 0;
    return greet_as(c, to, dest, ++port << 8, DATAGRAMS);
}
static inline int greet_from(struct carrier* c, const struct ud* to, uint32_t address) {
    c->address = address;
    c->both_ways = 0;
    return greet_as(c, to, to->qp->qp_num, 0x456700, DATAGRAMS);
}

/* The program has dialed `listener`: what its Request says. */
static inline struct carrier take_request(int listener, unsigned char request[GREETING]) {
    const struct timeval limit = {LIMIT_S, 0};
    struct carrier c = {.fd = accept(listener, NULL, NULL)};
    MUST(c.fd >= 0);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    MUST(recv(c.fd, request, GREETING, MSG_WAITALL) == GREETING);
    CHECK(memcmp(request, "MPA ID Req Frame", 16) == 0 && request[33] == DATAGRAMS);
    c.both_ways = request[35] == BOTH_WAYS;
    c.attempt = get32(request + 44);
    return c;
}
/* The Reply: it rejects for a reason, or accepts (0). It has that attempt, and the flags. */
static inline void reply(const struct carrier* c, const unsigned char request[GREETING],
                         unsigned char reason, uint32_t attempt) {
    unsigned char answer[GREETING];
    memcpy(answer, request, GREETING);
    memcpy(answer, "MPA ID Rep Frame", 16);
    answer[16] = reason != 0 ? 0x70 : 0x50;
    put32(answer + 20, 0x00800080); /* depths */
    answer[33] = reason != 0 ? 0 : DATAGRAMS;
    answer[34] = reason;
    answer[35] = (unsigned char)(reason == 0 && c->both_ways ? BOTH_WAYS : 0);
    memcpy(answer + 36, request + 40, 4);
    memcpy(answer + 40, request + 36, 4);
    put32(answer + 44, attempt);
    MUST(send(c->fd, answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer);
}

/* A Send of these octets, as FPDUs of MPA. */
static inline void send_message(struct carrier* c, const unsigned char* octets, size_t n) {
    static unsigned char fpdu[3000];
    const size_t most = 1400;
    size_t at = 0;
    ++c->sent;
    do {
        const size_t piece = n - at < most ? n - at : most;
        const int last = at + piece == n;
        const size_t ulpdu = DDP + piece, whole = (2 + ulpdu + 3) / 4 * 4;
        memset(fpdu, 0, sizeof fpdu);
        fpdu[0] = (unsigned char)(ulpdu >> 8);
        fpdu[1] = (unsigned char)ulpdu;
        fpdu[2] = (unsigned char)((last ? 0x40 : 0) | 1); /* untagged, DDP 1 */
        fpdu[3] = 0x40 | 3;                               /* RDMAP 1, Send */
        put32(fpdu + 12, c->sent);
        put32(fpdu + 16, (uint32_t)at);
        memcpy(fpdu + 2 + DDP, octets + at, piece);
        const uint32_t crc = crc32c(fpdu, whole);
        for (int i = 0; i < 4; ++i) fpdu[whole + (size_t)i] = (unsigned char)(crc >> 8 * i);
        if (send(c->fd, fpdu, whole + 4, MSG_NOSIGNAL) < 0) return; /* it has ended */
        at += piece;
    } while (at < n);
}

static inline void frame_to(unsigned char frame[HEADER], uint32_t num) {
    memset(frame, 0, HEADER);
    frame[0] = 1;
    frame[2] = frame[3] = 0xff;
    put32(frame + 4, num);
    put32(frame + 8, 0x00abcd);
    put32(frame + 12, QKEY);
}

/* It ends, by a Terminate Message or without. */
static inline int has_ended(struct carrier* c) {
    unsigned char octets[256];
    ssize_t n;
    while ((n = recv(c->fd, octets, sizeof octets, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
}

/* One that is right, and is told with the addresses that TCP shows. */
static inline void right_one(struct carrier* c, struct ud* u, int i) {
    unsigned char frame[HEADER + 64];
    union ibv_gid gid = own_gid(0);
    if (c->address != 0) put32(gid.raw + 12, c->address);
    frame_to(frame, u->qp->qp_num);
    memset(frame + HEADER, i, 64);
    memcpy(frame + HEADER, &i, 4);
    ud_receives(u, i, 1);
    send_message(c, frame, sizeof frame);
    const struct ibv_wc wc = expect_datagram(u, i, (uint32_t)i, 64);
    CHECK(wc.src_qp == 0x00abcd);
    CHECK(memcmp(slot(u, i) + 8, gid.raw, 16) == 0);
}

static inline int listen_at(int port) {
    const union ibv_gid gid = own_gid(0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0);
    memcpy(&at.sin_addr, gid.raw + 12, 4);
    MUST(bind(fd, (struct sockaddr*)&at, sizeof at) == 0 && listen(fd, 64) == 0);
    return fd;
}

#endif /* XSOCK_TESTS_VERBS_RAW_CARRIER_H */
