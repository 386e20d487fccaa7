/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * QPs that find each other by GID and QP number, and peers that do not keep to what two xsocks say
 * to each other there (docs/wire.md). Runs on either device.
 */
#include "tests/verbs/gid_ends.h"

static void pair_works(void) {
    struct end a = make_end(), b = make_end();
    connect_to(&a, &b);
    connect_to(&b, &a);
    exchange(&a, &b);
    destroy_end(&a);
    destroy_end(&b);
}

static int answer_of(uint32_t from, const struct end* to, int at, int value) {
    unsigned char request[REQUEST];
    request_of(request, from, to->qp->qp_num);
    if (at >= 0) request[at] = (unsigned char)value;
    const int fd = dial(to->qp->qp_num, &to->gid);
    const int why = answer_to(fd, request, sizeof request);
    close(fd);
    return why;
}

/* A QP at RTR, and the number of the peer that it waits for. */
static struct end waiting_end(uint32_t* peer) {
    struct end e = make_end();
    *peer = (e.qp->qp_num & 0xffff00) - 0x100; /* lower: that one is to dial */
    CHECK(to_rtr(e.qp, *peer, &e.gid, 0) == 0);
    return e;
}

CASE(greetings_cut_at_every_octet) {
    uint32_t peer;
    struct end e = waiting_end(&peer);
    unsigned char request[REQUEST];
    request_of(request, peer, e.qp->qp_num);
    for (size_t n = 0; n < REQUEST; ++n) {
        const int fd = dial(e.qp->qp_num, &e.gid);
        char octet;
        MUST(n == 0 || send(fd, request, n, MSG_NOSIGNAL) == (ssize_t)n);
        shutdown(fd, SHUT_WR);
        CHECK(recv(fd, &octet, 1, 0) <= 0, "%zu octets", n);
        close(fd);
    }
    CHECK(answer_of(peer, &e, -1, 0) == 0);
    destroy_end(&e);
    pair_works();
}

CASE(greetings_that_are_wrong) {
    uint32_t peer;
    struct end e = waiting_end(&peer);
    CHECK(answer_of(peer, &e, 24, 'X') == -1); /* magic */
    CHECK(answer_of(peer, &e, 0, 'X') == -1);  /* not MPA */
    CHECK(answer_of(peer, &e, 32, 2) == OTHER_VERSION);
    CHECK(answer_of(peer, &e, 33, 9) == OTHER_KIND);
    CHECK(answer_of(peer, &e, 33, 2) == OTHER_KIND); /* UC to an RC QP */
    CHECK(answer_of(peer, &e, 33, 0) == -1);         /* a rejection without a reason */
    CHECK(answer_of(peer, &e, 36, 1) == -1);         /* a QP number of 25 bits */
    CHECK(answer_of(peer + 1, &e, -1, 0) == OTHER_PEER);
    struct end gone = make_end();
    const uint32_t num = gone.qp->qp_num;
    destroy_end(&gone);
    unsigned char request[REQUEST];
    request_of(request, peer, num);
    const int fd = dial(num, &e.gid);
    CHECK(answer_to(fd, request, sizeof request) == NO_SUCH_QP);
    close(fd);
    /* After all that the right one is taken; and another like it is not. */
    request_of(request, peer, e.qp->qp_num);
    const int first = dial(e.qp->qp_num, &e.gid), second = dial(e.qp->qp_num, &e.gid);
    CHECK(answer_to(first, request, sizeof request) == 0);
    CHECK(answer_to(second, request, sizeof request) == ALREADY);
    close(first);
    close(second);
    destroy_end(&e);
}

/* The right numbers from an address that the QP was not told. */
CASE(right_numbers_from_a_wrong_address) {
    struct end e = make_end();
    union ibv_gid other = e.gid;
    const uint32_t peer = (e.qp->qp_num & 0xffff00) - 0x100;
    other.raw[15] ^= 3; /* of the same network, and not ours */
    CHECK(to_rtr(e.qp, peer, &other, 0) == 0);
    CHECK(answer_of(peer, &e, -1, 0) == OTHER_PEER);
    destroy_end(&e);
}

/* A dialer that is there before the QP goes to RTR waits for it. */
CASE(early_dialers_wait) {
    struct end e = make_end(), starts = make_end();
    uint32_t unused;
    struct end listens = waiting_end(&unused);
    const uint32_t peer = (e.qp->qp_num & 0xffff00) - 0x100;
    unsigned char request[REQUEST], octet;
    request_of(request, peer, e.qp->qp_num);
    const int right = dial(e.qp->qp_num, &e.gid), wrong = dial(e.qp->qp_num, &e.gid);
    MUST(send(right, request, sizeof request, 0) == REQUEST);
    request[39] ^= 1;
    MUST(send(wrong, request, sizeof request, 0) == REQUEST);
    usleep(50000);
    CHECK(recv(right, &octet, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(to_rtr(e.qp, peer, &e.gid, 0) == 0);
    CHECK(answer_to(right, request, 0) == 0);
    CHECK(answer_to(wrong, request, 0) == OTHER_PEER);
    close(right);
    close(wrong);
    destroy_end(&e);
    destroy_end(&starts);
    destroy_end(&listens);
}

/* Many that connect and say nothing keep nobody out. */
CASE(silent_connections) {
    enum { SILENT = 1000 };
    static int fds[SILENT];
    uint32_t peer;
    MUST(setenv("XSOCK_MAX_STARTING", "200", 1) == 0);
    struct end e = waiting_end(&peer);
    for (int i = 0; i < SILENT; ++i) fds[i] = dial(e.qp->qp_num, &e.gid);
    const double begun = now();
    CHECK(answer_of(peer, &e, -1, 0) == 0);
    CHECK(now() - begun < 8, "%f s: silent ones are closed after 10", now() - begun);
    pair_works();
    for (int i = 0; i < SILENT; ++i) close(fds[i]);
    destroy_end(&e);
}

/* A port that nobody listens on, and one of a server that is no xsock: dialed again and again, and
 * nothing is told; the QP can be reset and connected to another. */
CASE(ports_that_are_no_xsock) {
    struct end e = make_end(), b = make_end();
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = -1;
    uint32_t theirs = 0; /* above ours, so that we dial */
    for (int tries = 0; theirs < e.qp->qp_num; ++tries) {
        if (tries == 1000) {
            printf("SKIPPED %s: no port above %u is free\n", case_name, e.qp->qp_num >> 8);
            close(fd);
            destroy_end(&e);
            destroy_end(&b);
            return;
        }
        if (fd >= 0) close(fd);
        at.sin_port = 0;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        MUST(fd >= 0 && bind(fd, (struct sockaddr*)&at, sizeof at) == 0);
        MUST(getsockname(fd, (struct sockaddr*)&at, &size) == 0);
        theirs = (uint32_t)ntohs(at.sin_port) << 8 | 0xff;
    }
    for (int listens = 0; listens < 2; ++listens) {
        struct ibv_wc wc;
        if (listens) MUST(listen(fd, 16) == 0);
        CHECK(to_rtr(e.qp, theirs, &e.gid, 0) == 0);
        to_rts(e.qp);
        for (int i = 0; i < 20 && listens; ++i) {
            struct pollfd waits = {fd, POLLIN, 0};
            MUST(poll(&waits, 1, LIMIT_S * 1000) == 1);
            const int peer = accept(fd, NULL, NULL);
            if (i % 2)
                CHECK(send(peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL) == 28);
            close(peer);
        }
        usleep(20000);
        CHECK(ibv_poll_cq(e.cq, 1, &wc) == 0);
        to_reset(e.qp);
        to_init(e.qp);
    }
    close(fd);
    connect_to(&e, &b);
    connect_to(&b, &e);
    exchange(&e, &b);
    destroy_end(&e);
    destroy_end(&b);
}

/* CRCs are asked for, by Requests and Replies, unless XSOCK_VERBS_CRC=0. */
CASE(crcs_are_asked_for_as_usual) {
    const char* const set = getenv("XSOCK_VERBS_CRC");
    const int wanted = set != NULL && strcmp(set, "0") == 0 ? 0 : 0x40;
    struct end waits = make_end(), dials = make_end();
    unsigned char request[REQUEST];
    /* A Request that asks for none. */
    CHECK(to_rtr(waits.qp, 0x000107, &waits.gid, 0) == 0);
    request_of(request, 0x000107, waits.qp->qp_num);
    request[16] &= (unsigned char)~0x40;
    int fd = dial(waits.qp->qp_num, &waits.gid);
    CHECK(answer_to(fd, request, sizeof request) == 0);
    CHECK((reply_flags & 0x40) == wanted, "%02x", reply_flags);
    close(fd);
    /* One of our own, to a number above it. */
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    uint32_t theirs = 0;
    memcpy(&at.sin_addr, dials.gid.raw + 12, 4);
    do {
        MUST((fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
        at.sin_port = 0;
        MUST(bind(fd, (struct sockaddr*)&at, sizeof at) == 0 && listen(fd, 4) == 0);
        MUST(getsockname(fd, (struct sockaddr*)&at, &size) == 0);
        theirs = (uint32_t)ntohs(at.sin_port) << 8 | 0xff;
    } while (theirs < dials.qp->qp_num);
    CHECK(to_rtr(dials.qp, theirs, &dials.gid, 0) == 0);
    struct pollfd comes = {fd, POLLIN, 0};
    MUST(poll(&comes, 1, LIMIT_S * 1000) == 1);
    const int peer = accept(fd, NULL, NULL);
    MUST(recv(peer, request, sizeof request, MSG_WAITALL) == sizeof request);
    CHECK((request[16] & 0x40) == wanted, "%02x", request[16]);
    close(peer);
    close(fd);
    destroy_end(&waits);
    destroy_end(&dials);
}

/* What leads nowhere is refused at once. */
CASE(addresses_that_are_none) {
    struct end e = make_end();
    union ibv_gid gid = e.gid;
    CHECK(to_rtr(e.qp, 0x800000, &gid, 200) == EINVAL); /* no such GID of ours */
    memset(gid.raw, 0, sizeof gid.raw);
    CHECK(to_rtr(e.qp, 0x800000, &gid, 0) == EINVAL);
    gid.raw[0] = 0xff; /* multicast */
    gid.raw[15] = 1;
    CHECK(to_rtr(e.qp, 0x800000, &gid, 0) == EINVAL);
    gid.raw[0] = 0xfe; /* link-local */
    gid.raw[1] = 0x80;
    CHECK(to_rtr(e.qp, 0x800000, &gid, 0) == EINVAL);
    CHECK(state_of(e.qp) == IBV_QPS_INIT);
    destroy_end(&e);
}

CASE(reset_and_connected_to_others) {
    struct end a = make_end(), b = make_end(), c = make_end();
    for (int i = 0; i < 100; ++i) {
        struct end* const peer = i % 2 ? &b : &c;
        if (i != 0) {
            to_reset(a.qp);
            to_init(a.qp);
        }
        struct end* const first = i % 4 < 2 ? &a : peer;
        struct end* const second = i % 4 < 2 ? peer : &a;
        connect_to(first, second);
        connect_to(second, first);
        exchange(&a, peer);
        to_reset(peer->qp);
        to_init(peer->qp);
    }
    destroy_end(&a);
    destroy_end(&b);
    destroy_end(&c);
}

/* NCCL flushes so. */
CASE(a_qp_connected_to_itself) {
    for (int round = 0; round < 3; ++round) {
        struct end e = make_end();
        connect_to(&e, &e);
        struct ibv_sge here = {(uintptr_t)memory, 64, mr->lkey};
        struct ibv_sge there = {(uintptr_t)memory + 1024, 64, mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &there, .num_sge = 1}, *bad_receive;
        struct ibv_send_wr send = {
            .wr_id = 2, .sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND};
        struct ibv_send_wr* bad;
        memset(memory, 'x' + round, 64);
        memset(memory + 1024, 0, 1024);
        CHECK(ibv_post_recv(e.qp, &receive, &bad_receive) == 0);
        CHECK(ibv_post_send(e.qp, &send, &bad) == 0);
        for (int i = 0; i < 2; ++i) {
            const struct ibv_wc wc = next(e.cq);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == e.qp->qp_num);
        }
        CHECK(memcmp(memory, memory + 1024, 64) == 0);
        send.opcode = IBV_WR_RDMA_READ;
        send.sg_list = &there;
        there.addr += 64;
        send.wr.rdma.remote_addr = here.addr;
        send.wr.rdma.rkey = mr->rkey;
        CHECK(ibv_post_send(e.qp, &send, &bad) == 0);
        const struct ibv_wc wc = next(e.cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ);
        CHECK(memcmp(memory, memory + 1024 + 64, 64) == 0);
        if (round == 1) {
            to_reset(e.qp);
            to_init(e.qp);
            connect_to(&e, &e);
            CHECK(ibv_post_send(e.qp, &send, &bad) == 0);
            CHECK(next(e.cq).status == IBV_WC_SUCCESS);
        }
        if (round == 2) {
            CHECK(to_state(e.qp, IBV_QPS_ERR) == 0);
            CHECK(ibv_post_send(e.qp, &send, &bad) == 0);
            CHECK(next(e.cq).status == IBV_WC_WR_FLUSH_ERR);
        }
        destroy_end(&e);
    }
}

/* A timeout of 0 has no end. */
CASE(the_loss_of_a_peer_is_not_told_without_a_timeout) {
    struct end a = make_end(), b = make_end();
    struct ibv_wc wc;
    CHECK(to_rtr(a.qp, b.qp->qp_num, &b.gid, 0) == 0);
    to_rts_with(a.qp, 0);
    connect_to(&b, &a);
    exchange(&a, &b);
    CHECK(ibv_destroy_qp(b.qp) == 0);
    usleep(50000);
    CHECK(post(a.qp, IBV_WR_SEND, memory, 8, mr->lkey, 0, 0) == 0);
    usleep(1500000); /* the usual timeout has passed thrice */
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
    CHECK(state_of(a.qp) == IBV_QPS_RTS);
    destroy_end(&a);
    CHECK(ibv_destroy_cq(b.cq) == 0);
}

/* A Send to a peer that is gone fails when it has been repeated for as long as the program has said
 * (4.096 us x 2^14 x 8 = 0.54 s); what waits to be received stays until then. */
CASE(the_loss_of_a_peer_is_told_after_the_retries) {
    struct end a = make_end(), b = make_end();
    connect_to(&a, &b);
    connect_to(&b, &a);
    exchange(&a, &b);
    struct ibv_sge here = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &here, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr* bad;
    struct ibv_wc wc;
    CHECK(ibv_post_recv(a.qp, &receive, &bad_receive) == 0);
    CHECK(ibv_destroy_qp(b.qp) == 0);
    usleep(700000);
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0); /* nothing was sent */
    CHECK(state_of(a.qp) == IBV_QPS_RTS);
    const double posted = now();
    for (send.wr_id = 2; send.wr_id < 4; ++send.wr_id) {
        CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
    }
    wc = next(a.cq);
    CHECK(now() - posted > 0.5, "told after %f s", now() - posted);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 2, "%s", ibv_wc_status_str(wc.status));
    for (int i = 0; i < 2; ++i) {
        wc = next(a.cq);
        CHECK(wc.status != IBV_WC_SUCCESS, "request %u", (unsigned)wc.wr_id);
    }
    CHECK(state_of(a.qp) == IBV_QPS_ERR);
    /* Those that are reset or destroyed meanwhile do not wait. */
    for (int i = 0; i < 2; ++i) {
        if (i == 0) to_reset(a.qp);
        struct end c = make_end();
        if (i == 0) to_init(a.qp);
        connect_to(&a, &c);
        connect_to(&c, &a);
        exchange(&a, &c);
        CHECK(ibv_destroy_qp(c.qp) == 0);
        const double begin = now();
        CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
        usleep(50000);
        CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0 || now() - begin > 0.5);
        to_reset(a.qp);
        CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
        to_init(a.qp);
        CHECK(ibv_destroy_cq(c.cq) == 0);
    }
    destroy_end(&a);
    CHECK(ibv_destroy_cq(b.cq) == 0);
}

/* One that is accepted, and resets the connection before start-up has ended: what was posted is
 * flushed, and what is posted then. */
CASE(a_dialer_that_leaves_during_start_up) {
    uint32_t peer;
    struct end e = waiting_end(&peer);
    to_rts(e.qp);
    struct ibv_sge here = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &here, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr* bad;
    const struct linger reset = {1, 0};
    unsigned char request[REQUEST];
    CHECK(ibv_post_recv(e.qp, &receive, &bad_receive) == 0);
    request_of(request, peer, e.qp->qp_num);
    request[16] |= 0x05; /* an xsock, which will send an extension frame */
    const int fd = dial(e.qp->qp_num, &e.gid);
    CHECK(answer_to(fd, request, sizeof request) == 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    close(fd);
    CHECK(next(e.cq).status == IBV_WC_WR_FLUSH_ERR);
    for (int ms = 0; ms < LIMIT_S * 1000 && state_of(e.qp) != IBV_QPS_ERR; ++ms) usleep(1000);
    CHECK(state_of(e.qp) == IBV_QPS_ERR);
    CHECK(ibv_post_send(e.qp, &send, &bad) == 0);
    const struct ibv_wc wc = next(e.cq);
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 2);
    destroy_end(&e);
}

/* Hundreds of QPs, each connected once. */
CASE(many_queue_pairs) {
    enum { PAIRS = 300 };
    static struct end a[PAIRS], b[PAIRS];
    for (int i = 0; i < PAIRS; ++i) {
        a[i] = make_end();
        b[i] = make_end();
        connect_to(&a[i], &b[i]);
    }
    for (int i = PAIRS - 1; i >= 0; --i) connect_to(&b[i], &a[i]);
    for (int i = 0; i < PAIRS; ++i) exchange(&a[i], &b[i]);
    for (int i = 0; i < PAIRS; ++i) {
        destroy_end(&a[i]);
        destroy_end(&b[i]);
    }
    pair_works();
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
