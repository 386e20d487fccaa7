/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What programs rely on without asking: order of completions, states that do not wait for the peer,
 * events, signals. Each case stands for a program that would otherwise hang or fail.
 *
 *     verbs_semantics [CASE...]     all cases, or the named ones; exit status 1 when one fails
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "tests/support/changing_memory.h"
#include "tests/verbs/pair.h"

/* ---- completions ---------------------------------------------------------- */

/* Reads take a round trip and Writes none, but what was posted first completes first. */
CASE(completions_in_order) {
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_READ,  IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,  IBV_WR_RDMA_READ,
        IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,  IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_READ,  IBV_WR_RDMA_READ,  IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    const unsigned count = sizeof opcodes / sizeof *opcodes;
    static struct pair p;
    connect_pair(&p);
    for (int round = 0; round < 20; ++round) {
        for (unsigned i = 0; i < count; ++i) {
            const int read = opcodes[i] == IBV_WR_RDMA_READ;
            CHECK(post_numbered(p.a->qp, i, opcodes[i], p.data_a, read ? 4096 : 8, p.mr_a->lkey,
                                IBV_SEND_SIGNALED, (uintptr_t)p.data_b, p.mr_b->rkey) == 0);
        }
        for (unsigned i = 0; i < count; ++i) {
            const struct ibv_wc wc = next(p.a->send_cq);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i, "%u: %d", (unsigned)wc.wr_id,
                  (int)i);
        }
    }
    disconnect_pair(&p);
}

/* One receive, whose memory has the message, and 32 bits beside it. Toward an end that has not
 * announced them (XSOCK_EXTENSIONS=0 here, an older xsock or a standard peer elsewhere) they are
 * refused, and nothing else is harmed. */
CASE(sends_with_immediate) {
    const char* const extensions = getenv("XSOCK_EXTENSIONS");
    const int permitted = extensions == NULL || strcmp(extensions, "0") != 0;
    static struct pair p;
    connect_pair(&p);
    for (uint32_t i = 0; i < 40; ++i) {
        const uint32_t length = i % 4 == 0 ? 0 : i % 4 == 1 ? 8 : 4096;
        const __be32 data = htonl(0xfedcba00u + i);
        struct ibv_sge sge = {(uintptr_t)p.data_a, length, p.mr_a->lkey};
        struct ibv_send_wr wr, *bad = NULL;
        memset(&wr, 0, sizeof wr);
        memset(p.data_a, (int)i, length);
        wr.wr_id = i;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.send_flags = IBV_SEND_SIGNALED | (i % 8 == 1 ? 0u + IBV_SEND_INLINE : 0u) |
                        (i % 2 == 0 ? 0u + IBV_SEND_SOLICITED : 0u);
        wr.imm_data = data;
        if (!permitted) {
            CHECK(ibv_post_send(p.a->qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);
            continue;
        }
        CHECK(post_recv_numbered(p.b->qp, i, p.data_b, sizeof p.data_b, p.mr_b->lkey) == 0);
        MUST(ibv_post_send(p.a->qp, &wr, &bad) == 0);
        const struct ibv_wc sent = next(p.a->send_cq), got = next(p.b->recv_cq);
        CHECK(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_SEND && sent.wr_id == i);
        CHECK(got.status == IBV_WC_SUCCESS && got.opcode == IBV_WC_RECV && got.wr_id == i);
        CHECK(got.wc_flags == IBV_WC_WITH_IMM && got.imm_data == data, "%x %x", got.wc_flags,
              got.imm_data);
        CHECK(got.byte_len == length && memcmp(p.data_a, p.data_b, length) == 0, "%u",
              got.byte_len);
    }
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    const struct ibv_wc plain = next(p.b->recv_cq);
    CHECK(plain.status == IBV_WC_SUCCESS && plain.wc_flags == 0);
    disconnect_pair(&p);
}

/* What hardware does: it reads memory once, and its CRC is that of what it read. */
CASE(memory_that_changes) {
    enum { WRITES = 1000 };
    static char from[1 << 20], to[1 << 20];
    static const uint32_t sizes[] = {4096, 64 << 10, 1 << 20};
    static const int depths[] = {1, 16}; /* TCP's buffer is mostly empty, always full */
    struct changing_memory memory;
    size_t i, k;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (k = 0; k < sizeof depths / sizeof *depths; k++) {
            struct pair p;
            struct ibv_mr *source, *sink;
            int posted = 0, done, before = failures;
            connect_pair(&p);
            MUST((source = ibv_reg_mr(p.a->pd, from, sizes[i], ALL_ACCESS)) != NULL);
            MUST((sink = ibv_reg_mr(p.b->pd, to, sizes[i], ALL_ACCESS)) != NULL);
            MUST(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
            MUST(begin_changing(&memory, from, sizes[i]) == 0);
            for (done = 0; done < WRITES && failures == before; done++) {
                for (; posted < WRITES && posted < done + depths[k]; posted++) {
                    CHECK(post(p.a->qp, IBV_WR_RDMA_WRITE, from, sizes[i], source->lkey,
                               (uintptr_t)to, sink->rkey) == 0);
                }
                EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
            }
            end_changing(&memory);
            if (failures == before) {
                CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
                EXPECT(p.b->recv_cq, IBV_WC_SUCCESS); /* behind Writes with right CRCs */
            }
            CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(sink) == 0);
            disconnect_pair(&p);
        }
    }
}

/* ---- events --------------------------------------------------------------- */

static void too_late(int signal) {
    static const char text[] = "FAILED: no event came\n";
    (void)signal;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(2);
    _exit(1);
}

/* ib_send_bw -e over iWARP sleeps on its completion channel until the peer writes credit into its
 * memory, for which there is no completion. */
CASE(event_for_a_late_write) {
    struct pair p;
    struct ibv_cq* cq = NULL;
    struct ibv_wc wc;
    void* context = NULL;
    connect_pair(&p);
    MUST(ibv_req_notify_cq(p.a->send_cq, 0) == 0);
    for (int round = 0; round < 2; ++round) {
        memset(p.data_b, 'b' + round, 8);
        CHECK(post(p.b->qp, IBV_WR_RDMA_WRITE, p.data_b, 8, p.mr_b->lkey, (uintptr_t)p.data_a,
                   p.mr_a->rkey) == 0);
        EXPECT(p.b->send_cq, IBV_WC_SUCCESS);
        signal(SIGALRM, too_late);
        alarm(LIMIT_S);
        CHECK(ibv_get_cq_event(p.a->send_cq_channel, &cq, &context) == 0);
        alarm(0);
        CHECK(cq == p.a->send_cq);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        CHECK(p.data_a[0] == 'b' + round);
    }
    /* The notification that was asked for is still to come. */
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    alarm(LIMIT_S);
    CHECK(ibv_get_cq_event(p.a->send_cq_channel, &cq, &context) == 0);
    alarm(0);
    ibv_ack_cq_events(cq, 1);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    disconnect_pair(&p);
}

/* The handlers that TSan installs in a program's place do not restart calls. */
#ifdef __SANITIZE_THREAD__
enum { under_tsan = 1 };
#else
enum { under_tsan = 0 };
#endif

static atomic_int handled;
static void handle(int signal) {
    (void)signal;
    handled = 1;
}

struct waiter {
    struct ibv_comp_channel* channel;
    int result, error;
};
static void* wait_for_event(void* argument) {
    struct waiter* w = argument;
    struct ibv_cq* cq = NULL;
    void* context = NULL;
    w->result = ibv_get_cq_event(w->channel, &cq, &context);
    w->error = errno;
    if (w->result == 0) ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* A handler with SA_RESTART (signal() makes such) does not end the wait, any other does. */
CASE(waiting_through_signals) {
    for (int restarts = 1; restarts >= 0; --restarts) {
        struct pair p;
        struct sigaction action, before;
        pthread_t thread;
        connect_pair(&p);
        memset(&action, 0, sizeof action);
        action.sa_handler = handle;
        action.sa_flags = restarts ? SA_RESTART : 0;
        MUST(sigaction(SIGUSR1, &action, &before) == 0);
        struct waiter w = {p.b->recv_cq_channel, -2, 0};
        MUST(ibv_req_notify_cq(p.b->recv_cq, 0) == 0);
        MUST(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
        handled = 0;
        MUST(pthread_create(&thread, NULL, wait_for_event, &w) == 0);
        usleep(300000); /* long enough to fall asleep; if not, the case tests less */
        MUST(pthread_kill(thread, SIGUSR1) == 0);
        for (double limit = now() + LIMIT_S; !handled && now() < limit;) usleep(1000);
        usleep(100000);
        CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
        pthread_join(thread, NULL);
        if (restarts && (w.result == 0 || !under_tsan)) {
            CHECK(w.result == 0, "errno %d", w.error);
        } else {
            CHECK(w.result == -1 && w.error == EINTR, "%d, errno %d", w.result, w.error);
        }
        EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
        MUST(sigaction(SIGUSR1, &before, NULL) == 0);
        disconnect_pair(&p);
    }
}

/* ---- connections without rdma_cm (XSOCK_VERBS_GID=1) --------------------- */

struct end {
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    union ibv_gid gid;
};

static struct end make_end_at(struct ibv_pd* pd, struct ibv_comp_channel* channel) {
    struct end e;
    struct ibv_qp_init_attr init = qp_attr();
    MUST((e.cq = ibv_create_cq(pd->context, 64, NULL, channel, 0)) != NULL);
    init.send_cq = init.recv_cq = e.cq;
    MUST((e.qp = ibv_create_qp(pd, &init)) != NULL);
    to_init(e.qp);
    MUST(ibv_query_gid(pd->context, 1, 0, &e.gid) == 0);
    return e;
}
static struct end make_end(struct ibv_pd* pd) { return make_end_at(pd, NULL); }
static void destroy_end(struct end* e) {
    CHECK(ibv_destroy_qp(e->qp) == 0);
    CHECK(ibv_destroy_cq(e->cq) == 0);
}
static void ready_to_receive(struct end* e, const struct end* peer) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer->gid;
    attr.ah_attr.port_num = 1;
    CHECK(ibv_modify_qp(e->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
}
static void ready_to_send(struct end* e, const struct end* peer) {
    struct ibv_qp_attr attr;
    ready_to_receive(e, peer);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    CHECK(ibv_modify_qp(e->qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static char memory_a[4096], memory_b[4096];

/* ibv_rc_pingpong's server is ready to send before it answers the client: RTS does not wait, and
 * what is posted then goes when the peer has come. Either end may be the first. */
CASE(ready_before_the_peer) {
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    struct ibv_mr* mr_a = ibv_reg_mr(pd, memory_a, sizeof memory_a, ALL_ACCESS);
    struct ibv_mr* mr_b = ibv_reg_mr(pd, memory_b, sizeof memory_b, ALL_ACCESS);
    MUST(pd && mr_a && mr_b);
    for (int round = 0; round < 4; ++round) {
        struct end a = make_end(pd), b = make_end(pd);
        struct end *first = round % 2 ? &a : &b, *second = round % 2 ? &b : &a;
        memset(memory_a, 'a' + round, 64);
        memset(memory_b, 0, 64);
        ready_to_send(first, second);
        CHECK(post(first->qp, IBV_WR_SEND, memory_a, 64, mr_a->lkey, 0, 0) == 0);
        CHECK(state_of(first->qp) == IBV_QPS_RTS);
        usleep(20000);
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(first->cq, 1, &wc) == 0);
        CHECK(post_recv(second->qp, memory_b, 64, mr_b->lkey) == 0);
        ready_to_send(second, first);
        EXPECT(second->cq, IBV_WC_SUCCESS);
        EXPECT(first->cq, IBV_WC_SUCCESS);
        CHECK(memcmp(memory_a, memory_b, 64) == 0);
        destroy_end(&a);
        destroy_end(&b);
    }
    CHECK(ibv_dereg_mr(mr_a) == 0 && ibv_dereg_mr(mr_b) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* ib_send_bw's server, which receives only, stays in RTR, and writes credit to its client: iWARP
 * has no such state, and perftest knows the device for iWARP. */
CASE(credit_of_an_end_that_receives) {
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    struct ibv_mr* mr = ibv_reg_mr(pd, memory_a, sizeof memory_a, ALL_ACCESS);
    MUST(pd && mr);
    for (int early = 0; early < 2; ++early) {
        struct end server = make_end(pd), client = make_end(pd);
        memset(memory_a, 0, 128);
        memset(memory_a, 'a' + early, 64);
        CHECK(post(server.qp, IBV_WR_RDMA_WRITE, memory_a, 64, mr->lkey, (uintptr_t)memory_a + 64,
                   mr->rkey) == EINVAL); /* in INIT there is no peer */
        if (!early) ready_to_send(&client, &server);
        ready_to_receive(&server, &client);
        CHECK(post(server.qp, IBV_WR_RDMA_WRITE, memory_a, 64, mr->lkey, (uintptr_t)memory_a + 64,
                   mr->rkey) == 0);
        if (early) ready_to_send(&client, &server);
        EXPECT(server.cq, IBV_WC_SUCCESS);
        CHECK(memcmp(memory_a, memory_a + 64, 64) == 0);
        CHECK(state_of(server.qp) == IBV_QPS_RTR);
        struct ibv_qp_attr to = {.qp_state = IBV_QPS_RESET};
        CHECK(ibv_modify_qp(server.qp, &to, IBV_QP_STATE) == 0);
        CHECK(post(server.qp, IBV_WR_RDMA_WRITE, memory_a, 64, mr->lkey, (uintptr_t)memory_a + 64,
                   mr->rkey) == EINVAL);
        destroy_end(&server);
        destroy_end(&client);
    }
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

struct ends {
    struct ibv_pd* pd;
    struct ibv_mr *mr_a, *mr_b;
    struct end a, b;
};
static void connect_ends(struct ends* e, int rights_b) {
    MUST((e->pd = ibv_alloc_pd(device())) != NULL);
    MUST((e->mr_a = ibv_reg_mr(e->pd, memory_a, sizeof memory_a, ALL_ACCESS)) != NULL);
    MUST((e->mr_b = ibv_reg_mr(e->pd, memory_b, sizeof memory_b, rights_b)) != NULL);
    e->a = make_end(e->pd);
    e->b = make_end(e->pd);
    ready_to_send(&e->a, &e->b);
    ready_to_send(&e->b, &e->a);
}
static void disconnect_ends(struct ends* e) {
    destroy_end(&e->a);
    if (e->b.qp != NULL) destroy_end(&e->b);
    CHECK(ibv_dereg_mr(e->mr_a) == 0 && ibv_dereg_mr(e->mr_b) == 0);
    CHECK(ibv_dealloc_pd(e->pd) == 0);
}

/* Without rdma_cm a program is one for InfiniBand: what has completed is where it should be, and
 * what the peer refuses is told by the completion. */
CASE(completions_wait_for_the_peer) {
    struct ends e;
    connect_ends(&e, ALL_ACCESS);
    for (int round = 1; round < 200; ++round) {
        memset(memory_a, round, 1000);
        CHECK(post(e.a.qp, IBV_WR_RDMA_WRITE, memory_a, 1000, e.mr_a->lkey, (uintptr_t)memory_b,
                   e.mr_b->rkey) == 0);
        EXPECT(e.a.cq, IBV_WC_SUCCESS);
        CHECK(memcmp(memory_a, memory_b, 1000) == 0, "round %d", round);
    }
    disconnect_ends(&e);
    connect_ends(&e, IBV_ACCESS_LOCAL_WRITE);
    CHECK(post(e.a.qp, IBV_WR_RDMA_WRITE, memory_a, 8, e.mr_a->lkey, (uintptr_t)memory_b,
               e.mr_b->rkey) == 0);
    EXPECT(e.a.cq, IBV_WC_REM_ACCESS_ERR);
    disconnect_ends(&e);
}

/* Two queue pairs whose queues share a channel: the peers of both have written, and the program is
 * told of both. */
CASE(events_for_late_writes_to_two) {
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    struct ibv_mr* mr = ibv_reg_mr(pd, memory_a, sizeof memory_a, ALL_ACCESS);
    struct ibv_comp_channel* channel = ibv_create_comp_channel(pd->context);
    struct end from[2], to[2];
    int told[2] = {0, 0};
    MUST(pd && mr && channel);
    for (int i = 0; i < 2; ++i) {
        from[i] = make_end(pd);
        to[i] = make_end_at(pd, channel);
        ready_to_send(&from[i], &to[i]);
        ready_to_send(&to[i], &from[i]);
    }
    for (int i = 0; i < 2; ++i) {
        CHECK(post(from[i].qp, IBV_WR_RDMA_WRITE, memory_a, 8, mr->lkey, (uintptr_t)memory_a + 64,
                   mr->rkey) == 0);
        EXPECT(from[i].cq, IBV_WC_SUCCESS);
    }
    signal(SIGALRM, too_late);
    for (int i = 0; i < 2; ++i) {
        struct ibv_cq* cq = NULL;
        void* context = NULL;
        alarm(LIMIT_S);
        CHECK(ibv_get_cq_event(channel, &cq, &context) == 0);
        alarm(0);
        ibv_ack_cq_events(cq, 1);
        for (int k = 0; k < 2; ++k) told[k] += cq == to[k].cq;
    }
    CHECK(told[0] == 1 && told[1] == 1, "%d, %d", told[0], told[1]);
    for (int i = 0; i < 2; ++i) {
        destroy_end(&from[i]);
        destroy_end(&to[i]);
    }
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* ibv_rc_pingpong exits without a word when it has all its answers; the other end still has some
 * completions to fetch, among which it does not want to find flushed receives. */
CASE(a_peer_that_has_gone) {
    struct ends e;
    struct ibv_wc wc;
    connect_ends(&e, ALL_ACCESS);
    CHECK(post_recv(e.a.qp, memory_a, 64, e.mr_a->lkey) == 0);
    CHECK(post_recv(e.b.qp, memory_b, 64, e.mr_b->lkey) == 0);
    CHECK(post(e.a.qp, IBV_WR_SEND, memory_a, 64, e.mr_a->lkey, 0, 0) == 0);
    EXPECT(e.b.cq, IBV_WC_SUCCESS);
    EXPECT(e.a.cq, IBV_WC_SUCCESS);
    destroy_end(&e.b);
    e.b.qp = NULL;
    for (const double limit = now() + 0.5; now() < limit; usleep(1000)) {
        MUST(ibv_poll_cq(e.a.cq, 1, &wc) == 0);
    }
    CHECK(state_of(e.a.qp) == IBV_QPS_RTS);
    CHECK(post(e.a.qp, IBV_WR_SEND, memory_a, 64, e.mr_a->lkey, 0, 0) == 0);
    EXPECT(e.a.cq, IBV_WC_RETRY_EXC_ERR);
    disconnect_ends(&e);
}

/* ---- rdma_cm -------------------------------------------------------------- */

/* libfabric gives addresses in the hints, and neither node nor service. */
CASE(addresses_in_the_hints) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(4711)}, to = from;
    struct rdma_addrinfo hints, *found = NULL;
    from.sin_addr.s_addr = htonl(0x7f000001);
    to.sin_addr.s_addr = htonl(0x7f000002);
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_src_addr = (struct sockaddr*)&from;
    hints.ai_src_len = sizeof from;
    hints.ai_dst_addr = (struct sockaddr*)&to;
    hints.ai_dst_len = sizeof to;
    MUST(rdma_getaddrinfo(NULL, NULL, &hints, &found) == 0);
    CHECK(found->ai_src_len == sizeof from && memcmp(found->ai_src_addr, &from, sizeof from) == 0);
    CHECK(found->ai_dst_len == sizeof to && memcmp(found->ai_dst_addr, &to, sizeof to) == 0);
    CHECK(found->ai_src_addr != hints.ai_src_addr && found->ai_dst_addr != hints.ai_dst_addr);
    rdma_freeaddrinfo(found);
    errno = 0;
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo("no such host", "1", &hints, &found) == -1 && errno != 0);
}

static void* listen_late(void* argument) {
    const int server = *(const int*)argument;
    struct pollfd ready = {.fd = server, .events = POLLIN};
    usleep(150000);
    MUST(listen(server, 1) == 0);
    /* A connection comes all the same, and gets no answer that is MPA's. */
    CHECK(poll(&ready, 1, 5000) == 1);
    if (ready.revents != 0) close(accept(server, NULL, NULL));
    return NULL;
}

/* qperf tells its port before it listens. */
CASE(a_server_that_listens_late) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t size = sizeof to;
    struct ibv_qp_init_attr attr;
    struct rdma_cm_id* id = NULL;
    pthread_t thread;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(server >= 0 && bind(server, (struct sockaddr*)&to, sizeof to) == 0);
    MUST(getsockname(server, (struct sockaddr*)&to, &size) == 0);
    MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(id, NULL, (struct sockaddr*)&to, 2000) == 0);
    MUST(rdma_resolve_route(id, 2000) == 0);
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    MUST(rdma_create_qp(id, NULL, &attr) == 0);
    MUST(pthread_create(&thread, NULL, listen_late, &server) == 0);
    CHECK(rdma_connect(id, NULL) == -1);
    MUST(pthread_join(thread, NULL) == 0);
    close(server);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
}

struct outer_connect {
    struct rdma_cm_id* id;
    uint32_t qp_num;
};
static void* connect_outer(void* argument) {
    struct outer_connect* connect = argument;
    struct rdma_conn_param param = {.qp_num = connect->qp_num, .responder_resources = 1};
    CHECK(rdma_connect(connect->id, &param) == 0);
    return NULL;
}

static void move(struct rdma_cm_id* id, struct ibv_qp* qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0;
    CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0);
    CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
    CHECK(state_of(qp) == state);
}

/* Programs whose QP is not the id's (UCX, SPDK): at the active end they wait for CONNECT_RESPONSE,
 * move the QP, and call rdma_establish(). One that leaves the QP to rdma_cm has it in RTS then. */
CASE(a_queue_pair_that_is_not_the_ids) {
    static char memory[64];
    for (int moves = 0; moves < 2; ++moves) {
        struct sockaddr_in at = {.sin_family = AF_INET};
        struct ibv_qp_init_attr attr = qp_attr();
        struct rdma_cm_id *listener = NULL, *passive_end = NULL;
        struct outer_connect outer = {NULL, 0};
        pthread_t thread;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        MUST(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
        MUST(rdma_bind_addr(listener, (struct sockaddr*)&at) == 0);
        MUST(rdma_listen(listener, 1) == 0);
        at.sin_port = rdma_get_src_port(listener);
        MUST(rdma_create_id(NULL, &outer.id, NULL, RDMA_PS_TCP) == 0);
        MUST(rdma_resolve_addr(outer.id, NULL, (struct sockaddr*)&at, 2000) == 0);
        MUST(rdma_resolve_route(outer.id, 2000) == 0);
        struct ibv_cq* cq = ibv_create_cq(outer.id->verbs, 16, NULL, NULL, 0);
        MUST(cq != NULL);
        attr.send_cq = attr.recv_cq = cq;
        struct ibv_qp* qp = ibv_create_qp(outer.id->pd, &attr);
        struct ibv_mr* mr = ibv_reg_mr(outer.id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
        MUST(qp != NULL && mr != NULL);
        outer.qp_num = qp->qp_num;
        MUST(pthread_create(&thread, NULL, connect_outer, &outer) == 0);
        MUST(rdma_get_request(listener, &passive_end) == 0);
        attr = qp_attr();
        MUST(rdma_create_qp(passive_end, NULL, &attr) == 0);
        struct ibv_mr* mr_passive =
            ibv_reg_mr(passive_end->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
        MUST(mr_passive != NULL);
        CHECK(post_recv(passive_end->qp, memory + 32, 32, mr_passive->lkey) == 0);
        CHECK(rdma_accept(passive_end, NULL) == 0);
        CHECK(passive_end->event->event == RDMA_CM_EVENT_ESTABLISHED);
        MUST(pthread_join(thread, NULL) == 0);
        CHECK(outer.id->event->event == RDMA_CM_EVENT_CONNECT_RESPONSE);
        CHECK(post(qp, IBV_WR_SEND, memory, 32, mr->lkey, 0, 0) == EINVAL);
        if (moves) {
            move(outer.id, qp, IBV_QPS_INIT);
            move(outer.id, qp, IBV_QPS_RTR);
            move(outer.id, qp, IBV_QPS_RTS);
        }
        CHECK(rdma_establish(outer.id) == 0);
        CHECK(state_of(qp) == IBV_QPS_RTS);
        memset(memory, 'a' + moves, 32);
        CHECK(post(qp, IBV_WR_SEND, memory, 32, mr->lkey, 0, 0) == 0);
        EXPECT(cq, IBV_WC_SUCCESS);
        EXPECT(passive_end->recv_cq, IBV_WC_SUCCESS);
        CHECK(memcmp(memory, memory + 32, 32) == 0);
        CHECK(rdma_disconnect(passive_end) == 0);
        CHECK(rdma_disconnect(outer.id) == 0);
        CHECK(reaches_error(qp));
        CHECK(rdma_establish(outer.id) == -1 && errno == EINVAL);
        CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(mr_passive) == 0);
        CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
        CHECK(rdma_destroy_id(outer.id) == 0);
        rdma_destroy_ep(passive_end);
        rdma_destroy_ep(listener);
    }
}

static double processor_time(void) {
    struct timespec t;
    MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A peer comes by the GID, and there is no descriptor for it: the library waits, and does not try
 * again and again. */
CASE(no_descriptor_for_a_peer) {
    struct ibv_pd* const pd = ibv_alloc_pd(device());
    struct end e = make_end(pd), lower = make_end(pd);
    struct rlimit before, none;
    struct sockaddr_in at = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), lowest_free = dup(fd);
    MUST(fd >= 0 && lowest_free >= 0 && close(lowest_free) == 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)(e.qp->qp_num >> 8));
    /* Waits for the other, so that its process listens. */
    if (lower.qp->qp_num > e.qp->qp_num) {
        const struct end other = lower;
        lower = e;
        e = other;
    }
    ready_to_receive(&e, &lower);
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest_free;
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(connect(fd, (struct sockaddr*)&at, sizeof at) == 0);
    usleep(100000); /* it has found that out */
    const double begun = now(), used = processor_time();
    usleep(500000);
    CHECK(processor_time() - used < (now() - begun) / 4, "%.0f ms of processor time",
          (processor_time() - used) * 1e3);
    /* It goes on where there is one: what says something else than an MPA Request is closed. */
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    char bytes[64] = "GET / HTTP/1.1";
    CHECK(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes);
    CHECK(recv(fd, bytes, sizeof bytes, 0) <= 0);
    close(fd);
    destroy_end(&e);
    destroy_end(&lower);
    CHECK(ibv_dealloc_pd(pd) == 0);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
