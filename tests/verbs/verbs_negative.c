/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A verbs program that does what it must not: the answer has to be the error that hardware would
 * give, and the process has to live (under a sanitizer too). An ordinary program of libibverbs and
 * librdmacm; run it with the drop-in libraries in LD_LIBRARY_PATH.
 *
 *     verbs_negative [CASE...]     all cases, or the named ones; exit status 1 when one fails
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "tests/verbs/pair.h"

/* ---- objects ------------------------------------------------------------ */

/* What works, and not a second time. */
#define CHECK_ONCE(call) \
    CHECK((call) == 0);  \
    CHECK((call) != 0)

/* The handle is freed, and no other object is made in between. */
CASE(handles_twice) {
    struct ibv_context* const context = device();
    struct ibv_pd* pd = ibv_alloc_pd(context);
    struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
    struct ibv_cq* cq = ibv_create_cq(context, 8, NULL, channel, 0);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
    static char memory[64];
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr attr = qp_attr();
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    struct ibv_qp* qp = ibv_create_qp(pd, &attr);
    MUST(pd && channel && cq && srq && mr && qp);

    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
    CHECK_ONCE(ibv_destroy_qp(qp));
    CHECK_ONCE(ibv_destroy_srq(srq));
    CHECK_ONCE(ibv_destroy_cq(cq));
    CHECK_ONCE(ibv_destroy_comp_channel(channel));
    CHECK_ONCE(ibv_dereg_mr(mr));
    CHECK_ONCE(ibv_dealloc_pd(pd));
}

CASE(ids_twice) {
    struct rdma_event_channel* channel = rdma_create_event_channel();
    struct rdma_cm_id* id = NULL;
    MUST(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_listen(id, 1) != 0 || rdma_get_src_port(id) != 0);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(rdma_destroy_id(id) != 0);
    CHECK(rdma_disconnect(id) != 0);
    CHECK(rdma_accept(id, NULL) != 0);
    CHECK(rdma_connect(id, NULL) != 0);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(channel);
    CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0);
}

/* Calls in states in which they make no sense. */
CASE(out_of_order) {
    struct rdma_cm_id* id = NULL;
    struct rdma_event_channel* channel = rdma_create_event_channel();
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct ibv_qp_init_attr attr = qp_attr();
    MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_accept(id, NULL) != 0);
    CHECK(rdma_reject(id, NULL, 0) != 0);
    CHECK(rdma_disconnect(id) != 0);
    CHECK(rdma_resolve_route(id, 1000) != 0);
    CHECK(rdma_create_qp(id, NULL, &attr) != 0);
    any.sin_addr.s_addr = htonl(0x7f000001);
    CHECK(rdma_bind_addr(id, (struct sockaddr*)&any) == 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr*)&any) != 0);
    for (int i = 0; i < 2; ++i) { /* it is the ids', and stays */
        errno = 0;
        CHECK(ibv_close_device(id->verbs) == -1 && errno == EBUSY, "errno %d", errno);
    }
    struct ibv_pd* pd = ibv_alloc_pd(id->verbs);
    CHECK(pd != NULL && ibv_dealloc_pd(pd) == 0);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

/* ---- local keys and bounds ---------------------------------------------- */

CASE(wrong_lkey) {
    struct pair p;
    connect_pair(&p);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey ^ 0x5555, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_LOC_PROT_ERR);
    CHECK(reaches_error(p.a->qp));
    CHECK(reaches_error(p.b->qp));
    disconnect_pair(&p);
}

CASE(no_lkey) {
    struct pair p;
    connect_pair(&p);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, 0, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_LOC_PROT_ERR);
    disconnect_pair(&p);
}

CASE(past_the_mr) {
    static const struct {
        long offset;
        uint32_t length;
    } reach[] = {{8192 - 7, 8}, {8192, 1}, {-1, 2}, {0, 8193}, {0, 0xffffffff}};
    for (size_t i = 0; i < sizeof reach / sizeof *reach; ++i) {
        struct pair p;
        connect_pair(&p);
        CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a + reach[i].offset, reach[i].length, p.mr_a->lkey,
                   0, 0) == 0);
        EXPECT(p.a->send_cq, IBV_WC_LOC_PROT_ERR);
        disconnect_pair(&p);
    }
}

CASE(receive_past_the_mr) {
    struct pair p;
    connect_pair(&p);
    const size_t at = sizeof p.data_b - 16;
    CHECK(post_recv(p.b->qp, p.data_b + at, 64, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 64, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.b->recv_cq, IBV_WC_LOC_PROT_ERR);
    CHECK(reaches_error(p.a->qp));
    disconnect_pair(&p);
}

CASE(receive_too_small) {
    struct pair p;
    connect_pair(&p);
    memset(p.data_a, 'a', sizeof p.data_a);
    CHECK(post_recv(p.b->qp, p.data_b, 63, p.mr_b->lkey) == 0);
    CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 64, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.b->recv_cq, IBV_WC_LOC_LEN_ERR);
    CHECK(p.data_b[63] == 0);
    EXPECT(p.a->recv_cq, IBV_WC_WR_FLUSH_ERR);
    disconnect_pair(&p);
}

CASE(read_into_read_only) {
    struct pair p;
    connect_pair(&p);
    struct ibv_mr* mr = ibv_reg_mr(p.a->pd, p.data_a, 64, 0);
    MUST(mr != NULL);
    CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 8, mr->lkey, (uintptr_t)p.data_b,
               p.mr_b->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_LOC_PROT_ERR);
    disconnect_pair(&p);
    ibv_dereg_mr(mr);
}

/* ---- remote keys, bounds and rights ------------------------------------- */

CASE(refused_by_the_peer) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; ++i) {
        for (int how = 0; how < 5; ++how) {
            struct pair p;
            connect_pair(&p);
            memset(p.data_a, 5, 8); /* b's memory is zero, and stays so */
            struct ibv_mr* weak = ibv_reg_mr(p.b->pd, p.data_b, 64, IBV_ACCESS_LOCAL_WRITE);
            struct ibv_pd* other = ibv_alloc_pd(p.b->verbs);
            struct ibv_mr* foreign = ibv_reg_mr(other, p.data_b, 64, ALL_ACCESS);
            MUST(weak && other && foreign);
            uint64_t at = (uintptr_t)p.data_b;
            uint32_t rkey = p.mr_b->rkey;
            if (how == 0) rkey ^= 0x5555;
            if (how == 1) at += sizeof p.data_b - 7;
            if (how == 2) at -= 8;
            if (how == 3) rkey = weak->rkey;
            if (how == 4) rkey = foreign->rkey;
            /* The peer must be told of it: an RDMA Write ends with its placement. */
            CHECK(post_recv(p.a->qp, p.data_a + 64, 8, p.mr_a->lkey) == 0);
            CHECK(post(p.a->qp, opcodes[i], p.data_a, 8, p.mr_a->lkey, at, rkey) == 0);
            if (opcodes[i] == IBV_WR_RDMA_WRITE) {
                /* It has completed by then (RFC 5040: that says nothing of the peer). */
                EXPECT(p.a->recv_cq, IBV_WC_WR_FLUSH_ERR);
            } else {
                EXPECT(p.a->send_cq, IBV_WC_REM_ACCESS_ERR);
            }
            CHECK(reaches_error(p.a->qp));
            CHECK(reaches_error(p.b->qp));
            for (size_t k = 0; k < sizeof p.data_b; ++k) MUST(p.data_b[k] == 0);
            disconnect_pair(&p);
            CHECK(ibv_dereg_mr(foreign) == 0 && ibv_dereg_mr(weak) == 0);
            CHECK(ibv_dealloc_pd(other) == 0);
        }
    }
}

/* The region permits all, the QP only some. */
/* Memory that a peer writes meanwhile, which is no data race. */
__attribute__((no_sanitize("thread"))) static char look_at(const volatile char* byte) {
    return *byte;
}

CASE(refused_by_the_qp) {
    static const struct {
        enum ibv_wr_opcode opcode;
        int right;
    } kinds[] = {{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                 {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                 {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        struct pair p;
        struct ibv_qp_attr attr;
        connect_pair(&p);
        memset(p.data_a, 5, 8);
        memset(&attr, 0, sizeof attr);
        attr.qp_access_flags = (unsigned)kinds[i].right;
        CHECK(ibv_modify_qp(p.b->qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
        CHECK(post(p.a->qp, kinds[i].opcode, p.data_a, 8, p.mr_a->lkey, (uintptr_t)p.data_b,
                   p.mr_b->rkey) == 0);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
        for (double limit = now() + LIMIT_S; look_at(p.data_b) == 0 && now() < limit;) {
            if (kinds[i].opcode != IBV_WR_RDMA_WRITE) break;
            usleep(100); /* a Write completes before it has arrived */
        }
        attr.qp_access_flags = ALL_ACCESS & (unsigned)~kinds[i].right;
        CHECK(ibv_modify_qp(p.b->qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
        memset(p.data_b, 7, 8);
        CHECK(post_recv(p.a->qp, p.data_a + 64, 8, p.mr_a->lkey) == 0);
        CHECK(post(p.a->qp, kinds[i].opcode, p.data_a, 8, p.mr_a->lkey, (uintptr_t)p.data_b,
                   p.mr_b->rkey) == 0);
        if (kinds[i].opcode == IBV_WR_RDMA_WRITE) {
            EXPECT(p.a->recv_cq, IBV_WC_WR_FLUSH_ERR);
        } else {
            EXPECT(p.a->send_cq, IBV_WC_REM_ACCESS_ERR);
        }
        CHECK(reaches_error(p.b->qp));
        CHECK(p.data_b[0] == 7);
        disconnect_pair(&p);
    }
}

CASE(atomics) {
    struct pair p;
    connect_pair(&p);
    uint64_t* const target = (uint64_t*)(void*)p.data_b;
    uint64_t* const result = (uint64_t*)(void*)p.data_a;
    *target = 41;
    CHECK(post(p.a->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, result, 8, p.mr_a->lkey, (uintptr_t)target,
               p.mr_b->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    CHECK(*result == 41 && *target == 42);
    CHECK(post(p.a->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, result, 4, p.mr_a->lkey, (uintptr_t)target,
               p.mr_b->rkey) == EINVAL);
    CHECK(post(p.a->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, result, 8, p.mr_a->lkey, (uintptr_t)target + 4,
               p.mr_b->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_REM_INV_REQ_ERR);
    CHECK(*target == 42);
    disconnect_pair(&p);
}

/* ---- what goes away under traffic --------------------------------------- */

/* The keys are the writer's own: it goes on with that of a region that is no more. */
struct writing {
    struct pair* p;
    uint32_t lkey, rkey;
    atomic_int stop;
};
static void* writer(void* argument) {
    struct writing* w = argument;
    struct pair* p = w->p;
    while (!w->stop) {
        struct ibv_wc wc;
        if (post(p->a->qp, IBV_WR_RDMA_WRITE, p->data_a, 4096, w->lkey, (uintptr_t)p->data_b,
                 w->rkey) != 0) {
            usleep(10);
        }
        while (ibv_poll_cq(p->a->send_cq, 1, &wc) == 1) {
            if (wc.status != IBV_WC_SUCCESS) return (void*)(uintptr_t)wc.status;
        }
    }
    return NULL;
}

CASE(deregister_under_traffic) {
    for (int remote = 0; remote < 2; ++remote) {
        for (int round = 0; round < 5; ++round) {
            static struct pair p;
            pthread_t thread;
            void* status = NULL;
            connect_pair(&p);
            struct writing w = {&p, p.mr_a->lkey, p.mr_b->rkey, 0};
            struct ibv_mr** const gone = remote ? &p.mr_b : &p.mr_a;
            CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
            MUST(pthread_create(&thread, NULL, writer, &w) == 0);
            usleep(1000u * (unsigned)(1 + round * 3));
            CHECK(ibv_dereg_mr(*gone) == 0);
            *gone = NULL;
            if (remote) memset(p.data_b, 7, sizeof p.data_b);
            EXPECT(p.b->recv_cq, IBV_WC_WR_FLUSH_ERR);
            if (remote) {
                for (size_t k = 0; k < sizeof p.data_b; ++k) MUST(p.data_b[k] == 7);
            }
            CHECK(reaches_error(p.a->qp));
            w.stop = 1;
            pthread_join(thread, &status);
            if (!remote) {
                CHECK((uintptr_t)status == IBV_WC_LOC_PROT_ERR, "%s",
                      ibv_wc_status_str((enum ibv_wc_status)(uintptr_t)status));
            }
            disconnect_pair(&p);
        }
    }
}

CASE(unmapped_buffers) {
    const size_t size = 1 << 16;
#ifdef __SANITIZE_THREAD__
    /* TSan carries an atomic out under a lock of its own, which the fault would leave locked. */
    const int hows = 3;
#else
    const int hows = 4;
#endif
    for (int how = 0; how < hows; ++how) {
        struct pair p;
        connect_pair(&p);
        struct rdma_cm_id* const owner = how < 2 ? p.a : p.b;
        char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(memory != MAP_FAILED);
        struct ibv_mr* mr = ibv_reg_mr(owner->pd, memory, size, ALL_ACCESS);
        MUST(mr != NULL && munmap(memory, size) == 0);
        CHECK(post_recv(p.a->qp, p.data_a + 4096, 8, p.mr_a->lkey) == 0);
        switch (how) {
            case 0:
                CHECK(post(p.a->qp, IBV_WR_SEND, memory, 4096, mr->lkey, 0, 0) == 0);
                break;
            case 1:
                CHECK(post(p.a->qp, IBV_WR_RDMA_READ, memory, 4096, mr->lkey, (uintptr_t)p.data_b,
                           p.mr_b->rkey) == 0);
                break;
            case 2:
                CHECK(post(p.a->qp, IBV_WR_RDMA_WRITE, p.data_a, 4096, p.mr_a->lkey,
                           (uintptr_t)memory, mr->rkey) == 0);
                break;
            default:
                CHECK(post(p.a->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, p.data_a, 8, p.mr_a->lkey,
                           (uintptr_t)memory, mr->rkey) == 0);
                break;
        }
        const struct ibv_wc wc = next(p.a->recv_cq);
        CHECK(wc.status != IBV_WC_SUCCESS);
        CHECK(reaches_error(p.a->qp));
        CHECK(reaches_error(p.b->qp));
        CHECK(ibv_dereg_mr(mr) == 0);
        disconnect_pair(&p);
    }
}

/* ---- queues ------------------------------------------------------------- */

CASE(send_queue_overflow) {
    struct pair p;
    int error = 0, posted = 0;
    connect_pair(&p);
    while (posted < 100000 &&
           (error = post(p.a->qp, IBV_WR_SEND, p.data_a, 4096, p.mr_a->lkey, 0, 0)) == 0) {
        ++posted;
    }
    CHECK(error == ENOMEM, "%d", error);
    CHECK(posted >= 16);
    error = 0;
    for (posted = 0; posted < 100000 && error == 0; ++posted) {
        error = post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey);
    }
    CHECK(error == ENOMEM, "%d", error);
    disconnect_pair(&p);
}

CASE(malformed_requests) {
    struct pair p;
    connect_pair(&p);
    struct ibv_sge sges[8];
    struct ibv_send_wr wr, *bad;
    for (int i = 0; i < 8; ++i) sges[i] = (struct ibv_sge){(uintptr_t)p.data_a, 8, p.mr_a->lkey};
    memset(&wr, 0, sizeof wr);
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = sges;
    wr.num_sge = 8;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) != 0 && bad == &wr);
    wr.num_sge = -1;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) != 0 && bad == &wr);
    wr.num_sge = 1;
    wr.opcode = (enum ibv_wr_opcode)77;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) != 0 && bad == &wr);
    wr.opcode = IBV_WR_TSO;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    sges[0].length = 8192;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) != 0 && bad == &wr);
    wr.opcode = IBV_WR_RDMA_READ;
    sges[0].length = 8;
    CHECK(ibv_post_send(p.a->qp, &wr, &bad) != 0 && bad == &wr);
    /* Nothing of that has harmed the connection. */
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);

    /* Of a list, what comes before the bad one is posted. */
    struct ibv_send_wr list[3];
    memset(list, 0, sizeof list);
    sges[1].length = 8;
    for (int i = 0; i < 3; ++i) {
        list[i].wr_id = 10u + (unsigned)i;
        list[i].opcode = i == 1 ? (enum ibv_wr_opcode)77 : IBV_WR_RDMA_WRITE;
        list[i].send_flags = IBV_SEND_SIGNALED;
        list[i].wr.rdma.remote_addr = (uintptr_t)p.data_b;
        list[i].wr.rdma.rkey = p.mr_b->rkey;
        list[i].next = i < 2 ? &list[i + 1] : NULL;
    }
    CHECK(ibv_post_send(p.a->qp, list, &bad) != 0 && bad == &list[1]);
    CHECK(next(p.a->send_cq).wr_id == 10);
    disconnect_pair(&p);
}

CASE(post_in_other_states) {
    struct pair p;
    connect_pair(&p);
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(p.a->qp, &attr, IBV_QP_STATE) == 0);
    EXPECT(p.a->recv_cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(state_of(p.a->qp) == IBV_QPS_ERR);
    for (int i = 0; i < 40; ++i) {
        CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
        EXPECT(p.a->send_cq, IBV_WC_WR_FLUSH_ERR);
        CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == 0);
        EXPECT(p.a->recv_cq, IBV_WC_WR_FLUSH_ERR);
    }
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(p.a->qp, &attr, IBV_QP_STATE) != 0); /* not out of the error state */
    attr.qp_state = IBV_QPS_RESET;
    CHECK(ibv_modify_qp(p.a->qp, &attr, IBV_QP_STATE) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == EINVAL);
    CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == EINVAL);
    CHECK(reaches_error(p.b->qp));
    disconnect_pair(&p);
}

CASE(completion_queue_overrun) {
    struct pair p;
    struct ibv_qp_init_attr attr = qp_attr();
    connect_pair(&p);
    /* A QP of its own with a queue that is far too small, on another pair of ids. */
    struct ibv_cq* cq = ibv_create_cq(p.a->verbs, 2, NULL, NULL, 0);
    MUST(cq != NULL);
    attr.cap.max_recv_wr = 64;
    attr.send_cq = attr.recv_cq = cq;
    struct ibv_qp* qp = ibv_create_qp(p.a->pd, &attr);
    MUST(qp != NULL);
    to_init(qp);
    for (int i = 0; i < 64; ++i) CHECK(post_recv(qp, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(to_state(qp, IBV_QPS_ERR) == 0); /* as many flushed receives at once */

    struct ibv_async_event event;
    struct pollfd ready = {p.a->verbs->async_fd, POLLIN, 0};
    int found = 0;
    while (!found && poll(&ready, 1, LIMIT_S * 1000) == 1) {
        MUST(ibv_get_async_event(p.a->verbs, &event) == 0);
        found = event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq;
        ibv_ack_async_event(&event);
    }
    CHECK(found, "no IBV_EVENT_CQ_ERR");
    struct ibv_wc wc[64];
    const int n = ibv_poll_cq(cq, 64, wc);
    CHECK(n == cq->cqe, "%d completions of a queue of %d", n, cq->cqe);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    /* Others are not harmed. */
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
    disconnect_pair(&p);
}

/* A queue that has lost completions ends the QP that uses it, and that is told. */
CASE(overrun_ends_its_queue_pair) {
    struct pair p, other;
    struct ibv_async_event event;
    int told_cq = 0, told_a = 0;
    connect_pair(&p);
    connect_pair(&other);
    struct ibv_cq* const cq = p.b->recv_cq;
    CHECK(ibv_resize_cq(cq, 1) == 0);
    for (int i = 0; i < 16; ++i) CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    for (int i = 0; i < 17; ++i) { /* b's queue, which has room for 16, is not polled */
        if (i == 16) {
            usleep(20000); /* all have been taken: there is room for another receive */
            CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
        }
        CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    }
    CHECK(reaches_error(p.b->qp));
    CHECK(reaches_error(p.a->qp)); /* its connection is gone */
    struct pollfd ready = {p.b->verbs->async_fd, POLLIN, 0};
    while (!(told_cq && told_a) && poll(&ready, 1, LIMIT_S * 1000) == 1) {
        MUST(ibv_get_async_event(p.b->verbs, &event) == 0);
        told_cq += event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq;
        told_a += event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == p.b->qp;
        CHECK(event.event_type != IBV_EVENT_QP_FATAL || event.element.qp == p.b->qp);
        ibv_ack_async_event(&event);
    }
    CHECK(told_cq == 1 && told_a == 1, "%d, %d", told_cq, told_a);
    /* Others are not harmed. */
    CHECK(post_recv(other.b->qp, other.data_b, 8, other.mr_b->lkey) == 0);
    CHECK(post(other.a->qp, IBV_WR_SEND, other.data_a, 8, other.mr_a->lkey, 0, 0) == 0);
    EXPECT(other.b->recv_cq, IBV_WC_SUCCESS);
    disconnect_pair(&p);
    disconnect_pair(&other);
}

/* Nothing of a QP is left in its queue when it is gone. */
CASE(destroy_with_work_outstanding) {
    struct pair p;
    struct ibv_wc wc[64];
    connect_pair(&p);
    struct ibv_cq *send_cq = p.a->send_cq, *recv_cq = p.a->recv_cq;
    for (int i = 0; i < 8; ++i) {
        CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == 0);
        CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 4096, p.mr_a->lkey, (uintptr_t)p.data_b,
                   p.mr_b->rkey) == 0);
    }
    (void)send_cq;
    (void)recv_cq;
    struct ibv_pd* pd = p.a->pd;
    struct ibv_cq* cq = ibv_create_cq(p.a->verbs, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = qp_attr();
    attr.send_cq = attr.recv_cq = cq;
    struct ibv_qp* qp = ibv_create_qp(pd, &attr);
    MUST(cq && qp);
    to_init(qp);
    for (int i = 0; i < 8; ++i) CHECK(post_recv(qp, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_poll_cq(cq, 64, wc) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    disconnect_pair(&p); /* with Reads under way */
}

CASE(resized_queue) {
    struct pair p;
    connect_pair(&p);
    struct ibv_cq* cq = ibv_create_cq(p.a->verbs, 2, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = qp_attr();
    attr.cap.max_recv_wr = 64;
    attr.send_cq = attr.recv_cq = cq;
    struct ibv_qp* qp = ibv_create_qp(p.a->pd, &attr);
    MUST(cq && qp);
    CHECK(ibv_resize_cq(cq, 0) == EINVAL);
    CHECK(ibv_resize_cq(cq, 0x7fffffff) == EINVAL);
    CHECK(ibv_resize_cq(cq, 64) == 0 && cq->cqe == 64);
    to_init(qp);
    for (int i = 0; i < 64; ++i) CHECK(post_recv(qp, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(to_state(qp, IBV_QPS_ERR) == 0);
    CHECK(ibv_resize_cq(cq, 32) == EINVAL && cq->cqe == 64); /* 64 wait */
    struct ibv_wc wc[64];
    CHECK(ibv_poll_cq(cq, 62, wc) == 62);
    CHECK(ibv_resize_cq(cq, 1) == EINVAL && cq->cqe == 64); /* it would get 16 */
    CHECK(ibv_poll_cq(cq, 2, wc) == 2);
    CHECK(ibv_resize_cq(cq, 1) == 0 && cq->cqe == 16);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_resize_cq(cq, 4) == EINVAL);
    disconnect_pair(&p);
}

/* ---- memory windows ----------------------------------------------------- */

static int post_bind(struct ibv_qp* qp, struct ibv_mw* mw, uint32_t rkey, struct ibv_mr* mr,
                     void* at, uint64_t length, unsigned rights) {
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = 3;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info.mr = mr;
    wr.bind_mw.bind_info.addr = (uintptr_t)at;
    wr.bind_mw.bind_info.length = length;
    wr.bind_mw.bind_info.mw_access_flags = rights;
    return ibv_post_send(qp, &wr, &bad);
}

/* In a region of b's data. */
static struct ibv_mw* unbound_window(struct pair* p, struct ibv_mr** mr) {
    struct ibv_mw* const mw = ibv_alloc_mw(p->b->pd, IBV_MW_TYPE_2);
    *mr = ibv_reg_mr(p->b->pd, p->data_b, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    MUST(*mr && mw);
    return mw;
}

CASE(windows) {
    const unsigned rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct pair p;
    connect_pair(&p);
    struct ibv_mr* mr;
    struct ibv_mw* const mw = unbound_window(&p, &mr);
    CHECK(ibv_alloc_mw(p.b->pd, (enum ibv_mw_type)3) == NULL && errno == EINVAL);
    /* Of a request without data the list is not read. */
    struct ibv_send_wr idle, *bad = NULL;
    memset(&idle, 0, sizeof idle);
    idle.opcode = IBV_WR_BIND_MW;
    idle.num_sge = 77;
    idle.send_flags = IBV_SEND_SIGNALED;
    idle.bind_mw.mw = mw;
    CHECK(ibv_post_send(p.b->qp, &idle, &bad) == 0);
    EXPECT(p.b->send_cq, IBV_WC_SUCCESS);
    for (int round = 0; round < 600; ++round) { /* more than there are keys */
        const uint32_t rkey = ibv_inc_rkey(mw->rkey);
        CHECK(post_bind(p.b->qp, mw, rkey, mr, p.data_b + 64, 64, rights) == 0);
        const struct ibv_wc wc = next(p.b->send_cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 3);
        CHECK(mw->rkey == rkey);
    }
    CHECK(post_bind(p.b->qp, mw, mw->rkey, mr, p.data_b, 64, rights) ==
          EINVAL); /* the key is in use */
    CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 64, p.mr_a->lkey, (uintptr_t)p.data_b + 64,
               mw->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    const uint32_t key = mw->rkey; /* many at once, the last of which holds; more than have room */
    int posted = 0, error = 0;
    for (uint32_t at = key; posted < 100 && error == 0; posted += error == 0) {
        at = ibv_inc_rkey(at);
        error = post_bind(p.b->qp, mw, at, mr, p.data_b + 64, 64, rights);
    }
    CHECK(error == ENOMEM && posted >= 16, "%d after %d", error, posted);
    CHECK((mw->rkey & 0xff) == ((key + (uint32_t)posted) & 0xff), "the key of the last posted");
    for (int i = 0; i < posted; ++i) EXPECT(p.b->send_cq, IBV_WC_SUCCESS);
    CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 64, p.mr_a->lkey, (uintptr_t)p.data_b + 64,
               mw->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    CHECK(post_recv(p.a->qp, p.data_a, 8, p.mr_a->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 1, p.mr_a->lkey, (uintptr_t)p.data_b + 63,
               mw->rkey) == 0);
    EXPECT(p.a->send_cq, IBV_WC_REM_ACCESS_ERR); /* a byte before it */
    disconnect_pair(&p);
    CHECK(ibv_dealloc_mw(mw) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
}

/* The region stays as long as a window is bound to it, and valid too. */
CASE(region_below_a_window) {
    struct pair p;
    struct ibv_send_wr wr, *bad = NULL;
    connect_pair(&p);
    struct ibv_mr* mr;
    struct ibv_mw* const mw = unbound_window(&p, &mr);
    CHECK(post_bind(p.b->qp, mw, ibv_inc_rkey(mw->rkey), mr, p.data_b, 64,
                    IBV_ACCESS_REMOTE_READ) == 0);
    EXPECT(p.b->send_cq, IBV_WC_SUCCESS);
    memset(&wr, 0, sizeof wr);
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = mr->rkey;
    CHECK(ibv_post_send(p.b->qp, &wr, &bad) == 0);
    EXPECT(p.b->send_cq, IBV_WC_LOC_PROT_ERR);
    disconnect_pair(&p);
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
}

/* Bindings that were flushed, or that came too late, hold no key: there are only 256. */
CASE(keys_of_flushed_bindings) {
    struct pair p;
    connect_pair(&p);
    struct ibv_mr* mr =
        ibv_reg_mr(p.b->pd, p.data_b, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw* mw[] = {ibv_alloc_mw(p.b->pd, IBV_MW_TYPE_1),
                           ibv_alloc_mw(p.b->pd, IBV_MW_TYPE_2)};
    MUST(mr && mw[0] && mw[1]);
    rdma_disconnect(p.a);
    CHECK(reaches_error(p.b->qp));
    for (int round = 0; round < 600; ++round) {
        struct ibv_mw_bind bind;
        memset(&bind, 0, sizeof bind);
        bind.send_flags = IBV_SEND_SIGNALED;
        bind.bind_info.mr = mr;
        bind.bind_info.addr = (uintptr_t)p.data_b;
        bind.bind_info.length = 64;
        bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
        MUST(ibv_bind_mw(p.b->qp, mw[0], &bind) == 0);
        EXPECT(p.b->send_cq, IBV_WC_WR_FLUSH_ERR);
        MUST(post_bind(p.b->qp, mw[1], ibv_inc_rkey(mw[1]->rkey), mr, p.data_b, 64, 0) == 0);
        EXPECT(p.b->send_cq, IBV_WC_WR_FLUSH_ERR);
    }
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_mw(mw[0]) == 0 && ibv_dealloc_mw(mw[1]) == 0);
    disconnect_pair(&p);
}

/* A parent domain is another name for the domain below it: what is in one may be bound in the
 * other. */
CASE(windows_in_a_parent_domain) {
    struct ibv_parent_domain_init_attr attr;
    struct pair p;
    connect_pair(&p);
    memset(&attr, 0, sizeof attr);
    attr.pd = p.b->pd;
    struct ibv_pd* parent = ibv_alloc_parent_domain(p.b->verbs, &attr);
    MUST(parent);
    for (int how = 0; how < 2; ++how) {
        struct ibv_mr* mr = ibv_reg_mr(how ? parent : p.b->pd, p.data_b, 4096,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
        struct ibv_mw* mw = ibv_alloc_mw(how ? p.b->pd : parent, IBV_MW_TYPE_2);
        MUST(mr && mw);
        CHECK(post_bind(p.b->qp, mw, ibv_inc_rkey(mw->rkey), mr, p.data_b, 64,
                        IBV_ACCESS_REMOTE_READ) == 0);
        EXPECT(p.b->send_cq, IBV_WC_SUCCESS);
        CHECK(post(p.a->qp, IBV_WR_RDMA_READ, p.data_a, 64, p.mr_a->lkey, (uintptr_t)p.data_b,
                   mw->rkey) == 0);
        EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
        CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    }
    disconnect_pair(&p);
    CHECK(ibv_dealloc_pd(parent) == 0);
}

/* ibv_wr_complete() posts all or nothing: a second try posts nothing twice. */
CASE(batches_without_room) {
    struct ibv_qp_init_attr_ex init;
    struct ibv_qp_attr attr;
    struct pair p;
    connect_pair(&p);
    memset(&init, 0, sizeof init);
    init.send_cq = init.recv_cq = ibv_create_cq(p.a->verbs, 64, NULL, NULL, 0);
    MUST(init.send_cq);
    init.cap = qp_attr().cap;
    init.cap.max_send_wr = 4;
    init.qp_type = IBV_QPT_RC;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = p.a->pd;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV;
    for (int signaled = 0; signaled < 2; ++signaled) {
        struct ibv_qp* qp = ibv_create_qp_ex(p.a->verbs, &init);
        MUST(qp);
        struct ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
        memset(&attr, 0, sizeof attr);
        for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; ++state) {
            attr.qp_state = (enum ibv_qp_state)state; /* without a peer: requests wait */
            MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
        }
        ex->wr_flags = signaled ? IBV_SEND_SIGNALED : 0;
        const int depth = (int)init.cap.max_send_wr; /* as the device has rounded it */
        const int sizes[] = {depth - 1, depth - 1, 2, 1, 1};
        const int errors[] = {0, ENOMEM, ENOMEM, 0, ENOMEM};
        for (int i = 0; i < 5; ++i) {
            ibv_wr_start(ex);
            for (int k = 0; k < sizes[i]; ++k) {
                ibv_wr_rdma_write(ex, p.mr_b->rkey, (uintptr_t)p.data_b);
                ibv_wr_set_sge(ex, p.mr_a->lkey, (uintptr_t)p.data_a, 8);
            }
            const int error = ibv_wr_complete(ex);
            CHECK(error == errors[i], "%d: %d", i, error);
        }
        CHECK(ibv_destroy_qp(qp) == 0);
        MUST((qp = ibv_create_qp_ex(p.a->verbs, &init)) != NULL);
        ex = ibv_qp_to_qp_ex(qp);
        for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; ++state) {
            attr.qp_state = (enum ibv_qp_state)state;
            MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
        }
        ex->wr_flags = signaled ? IBV_SEND_SIGNALED : 0;
        const int bad[] = {EINVAL, 0};
        for (int i = 0; i < 2; ++i) {
            ibv_wr_start(ex);
            for (int k = 0; k < 3 + i; ++k) {
                ibv_wr_rdma_write(ex, p.mr_b->rkey, (uintptr_t)p.data_b);
            }
            if (i == 0) { /* it takes no SGE */
                ibv_wr_local_inv(ex, p.mr_a->rkey);
                ibv_wr_set_sge(ex, p.mr_a->lkey, (uintptr_t)p.data_a, 8);
            }
            const int error = ibv_wr_complete(ex);
            CHECK(error == bad[i], "%d", error);
        }
        CHECK(ibv_destroy_qp(qp) == 0);
    }
    CHECK(ibv_destroy_cq(init.send_cq) == 0);
    disconnect_pair(&p);
}

/* A window whose bindings were built and given up has the key that it had. */
CASE(abandoned_bindings) {
    struct ibv_qp_init_attr_ex attr;
    struct pair p;
    connect_pair(&p);
    struct ibv_mr* mr;
    struct ibv_mw* const mw = unbound_window(&p, &mr);
    memset(&attr, 0, sizeof attr);
    attr.send_cq = attr.recv_cq = p.b->send_cq;
    attr.cap = qp_attr().cap;
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = p.b->pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
    struct ibv_qp* qp = ibv_create_qp_ex(p.b->verbs, &attr);
    MUST(qp);
    struct ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    const struct ibv_mw_bind_info info = {mr, (uintptr_t)p.data_b, 64, IBV_ACCESS_REMOTE_READ};
    const uint32_t key = mw->rkey;
    for (int round = 0; round < 300; ++round) {
        ibv_wr_start(ex);
        for (int i = 0; i < 3; ++i) ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
        ibv_wr_abort(ex);
        CHECK(mw->rkey == key, "%08x, was %08x", mw->rkey, key);
    }
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    disconnect_pair(&p);
}

/* What is bound must lie in a region that permits windows. */
CASE(bad_bindings) {
    for (int how = 0; how < 3; ++how) {
        struct pair p;
        connect_pair(&p);
        struct ibv_mr* mr = ibv_reg_mr(p.b->pd, p.data_b, 4096,
                                       how == 0   ? IBV_ACCESS_LOCAL_WRITE
                                       : how == 1 ? IBV_ACCESS_MW_BIND
                                                  : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
        struct ibv_mw* mw = ibv_alloc_mw(p.b->pd, IBV_MW_TYPE_2);
        MUST(mr && mw);
        CHECK(post_bind(p.b->qp, mw, ibv_inc_rkey(mw->rkey), mr, p.data_b, how == 2 ? 4097 : 4096,
                        IBV_ACCESS_REMOTE_WRITE) == 0);
        EXPECT(p.b->send_cq, IBV_WC_MW_BIND_ERR);
        CHECK(reaches_error(p.b->qp));
        CHECK(post_bind(p.b->qp, mw, ibv_inc_rkey(mw->rkey), mr, p.data_b, 64, 0) == 0);
        EXPECT(p.b->send_cq, IBV_WC_WR_FLUSH_ERR);
        disconnect_pair(&p);
        CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    }
}

/* ---- silent standard peers ---------------------------------------------------- */

/* More of them than a listener reads Requests of at once do not keep others out, of their address
 * either. (slow_startups.c: more of them come all the time.) */
CASE(silent_clients) {
    enum { OTHER_CLIENTS = 1200 };
    static int standard_peers[OTHER_CLIENTS];
    struct rlimit limit;
    struct rdma_addrinfo hints, *passive, *to;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_conn_param param;
    struct sockaddr_in at;
    pthread_t thread;
    struct pair p;
    char port[16];
    MUST(setenv("XSOCK_MAX_STARTING", "1000", 1) == 0);
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur < 2 * OTHER_CLIENTS + 100) {
        printf("%s: skipped, only %llu descriptors\n", case_name,
               (unsigned long long)limit.rlim_cur);
        return;
    }
    memset(&p, 0, sizeof p);
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &passive) == 0);
    MUST(rdma_create_ep(&p.listener, passive, NULL, &attr) == 0);
    MUST(rdma_listen(p.listener, 0) == 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = rdma_get_src_port(p.listener);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < OTHER_CLIENTS; ++i) {
        MUST((standard_peers[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
        MUST(connect(standard_peers[i], (struct sockaddr*)&at, sizeof at) == 0);
    }
    const double begun = now();
    snprintf(port, sizeof port, "%u", ntohs(at.sin_port));
    hints.ai_flags = 0;
    MUST(rdma_getaddrinfo("127.0.0.1", port, &hints, &to) == 0);
    attr = qp_attr();
    MUST(rdma_create_ep(&p.a, to, NULL, &attr) == 0);
    MUST(pthread_create(&thread, NULL, active, &p) == 0);
    MUST(rdma_get_request(p.listener, &p.b) == 0);
    memset(&param, 0, sizeof param);
    MUST(rdma_accept(p.b, &param) == 0);
    pthread_join(thread, NULL);
    CHECK(now() - begun < 8, "%.1f s; silent ones are closed after 10", now() - begun);
    for (int i = 0; i < OTHER_CLIENTS; ++i) close(standard_peers[i]);
    rdma_freeaddrinfo(passive);
    rdma_freeaddrinfo(to);
    disconnect_pair(&p);
}

/* ---- bad registrations -------------------------------------------------- */

CASE(bad_registrations) {
    struct pair p;
    connect_pair(&p);
    CHECK(ibv_reg_mr(p.a->pd, p.data_a, 64, IBV_ACCESS_REMOTE_WRITE) == NULL); /* no LOCAL_WRITE */
    CHECK(ibv_reg_mr(p.a->pd, (void*)(uintptr_t)-4096, 8192, 0) == NULL);      /* wraps */
    CHECK(ibv_reg_mr((struct ibv_pd*)p.data_a, p.data_a, 64, 0) == NULL);      /* no PD */
    struct ibv_qp_init_attr attr = qp_attr();
    attr.send_cq = p.a->send_cq;
    attr.recv_cq = (struct ibv_cq*)p.data_a;
    CHECK(ibv_create_qp(p.a->pd, &attr) == NULL);
    attr.recv_cq = attr.send_cq;
    attr.cap.max_send_sge = 1000;
    CHECK(ibv_create_qp(p.a->pd, &attr) == NULL);
    attr = qp_attr();
    attr.send_cq = attr.recv_cq = p.a->send_cq;
    attr.qp_type = IBV_QPT_UD;
    CHECK(ibv_create_qp(p.a->pd, &attr) == NULL);
    attr.qp_type = (enum ibv_qp_type)777;
    CHECK(ibv_create_qp(p.a->pd, &attr) == NULL);
    struct ibv_qp_attr state;
    memset(&state, 0, sizeof state);
    state.qp_state = (enum ibv_qp_state)777;
    CHECK(ibv_modify_qp(p.a->qp, &state, IBV_QP_STATE) == EINVAL);
    state.qp_state = IBV_QPS_RTS;
    state.path_mtu = (enum ibv_mtu)777;
    CHECK(ibv_modify_qp(p.a->qp, &state, IBV_QP_STATE | IBV_QP_PATH_MTU) == EINVAL);
    CHECK(state_of(p.a->qp) == IBV_QPS_RTS);
    CHECK(ibv_create_cq(p.a->verbs, -1, NULL, NULL, 0) == NULL);
    CHECK(ibv_create_cq(p.a->verbs, 0x7fffffff, NULL, NULL, 0) == NULL);
    disconnect_pair(&p);
}

/* iWARP has no drained send queue: a program that waited for IBV_EVENT_SQ_DRAINED would wait for
 * ever. */
CASE(no_drained_state) {
    struct pair p;
    struct ibv_qp_attr attr;
    connect_pair(&p);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_SQD;
    CHECK(ibv_modify_qp(p.a->qp, &attr, IBV_QP_STATE) == EINVAL);
    CHECK(state_of(p.a->qp) == IBV_QPS_RTS);
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
    disconnect_pair(&p);
}

/* Some programs always give this hint. */
CASE(huge_pages_are_a_hint) {
    struct pair p;
    connect_pair(&p);
    struct ibv_mr* const mr =
        ibv_reg_mr(p.a->pd, p.data_a, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB);
    CHECK(mr != NULL, "%s", strerror(errno));
    if (mr != NULL) CHECK(ibv_dereg_mr(mr) == 0);
    disconnect_pair(&p);
}

static int descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A channel that goes before its ids is no leak, and they go on. */
CASE(channel_goes_first) {
    int before = 0;
    for (int round = 0; round < 2; ++round) {
        struct rdma_event_channel* const channel = rdma_create_event_channel();
        struct rdma_cm_id *id, *other;
        struct sockaddr_in at;
        if (round == 1) before = descriptors() - 1; /* the first round opens the device */
        MUST(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
        MUST(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
        rdma_destroy_event_channel(channel);
        memset(&at, 0, sizeof at);
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons(7471);
        CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr*)&at, 1000) == 0);
        CHECK(rdma_destroy_id(id) == 0);
        CHECK(rdma_destroy_id(other) == 0);
    }
    CHECK(descriptors() == before, "%d, before %d", descriptors(), before);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
