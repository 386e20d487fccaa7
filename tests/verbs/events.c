/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Programs that sleep until a completion channel or an event channel tells them something: how they
 * are woken, and in which order they learn of connections, completions and ends.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "tests/verbs/pair.h"

enum { SLOTS = 16, SIZE = 64 };

/* One end of a connection: events of its id on a channel, all completions on one queue. */
struct side {
    struct rdma_event_channel* events;
    struct rdma_cm_id* id;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_mr* mr;
    unsigned sends; /* posted */
    char in[SLOTS][SIZE], out[SIZE];
};

static enum rdma_cm_event_type take_event(struct rdma_event_channel* events,
                                          struct rdma_cm_id** id) {
    struct rdma_cm_event* event;
    MUST(rdma_get_cm_event(events, &event) == 0);
    const enum rdma_cm_event_type type = event->event;
    if (id != NULL) *id = event->id;
    MUST(rdma_ack_cm_event(event) == 0);
    return type;
}

static void make_queues(struct side* s) {
    struct ibv_qp_init_attr attr = qp_attr();
    MUST((s->channel = ibv_create_comp_channel(s->id->verbs)) != NULL);
    MUST((s->cq = ibv_create_cq(s->id->verbs, 256, NULL, s->channel, 0)) != NULL);
    MUST(ibv_req_notify_cq(s->cq, 0) == 0);
    attr.send_cq = attr.recv_cq = s->cq;
    attr.sq_sig_all = 0;
    attr.cap.max_send_wr = 64;
    MUST(rdma_create_qp(s->id, NULL, &attr) == 0);
    MUST((s->mr = ibv_reg_mr(s->id->pd, s, sizeof *s, ALL_ACCESS)) != NULL);
    for (uint64_t i = 0; i < SLOTS; ++i) {
        MUST(post_recv_numbered(s->id->qp, i, s->in[i], SIZE, s->mr->lkey) == 0);
    }
}

static void send_one(struct side* s, char first, unsigned flags) {
    s->out[0] = first;
    /* A queue of unsignaled requests would never have room again. */
    if (++s->sends % 32 == 0) flags |= IBV_SEND_SIGNALED;
    MUST(post_numbered(s->id->qp, 0, IBV_WR_SEND, s->out, SIZE, s->mr->lkey,
                       flags | IBV_SEND_INLINE, 0, 0) == 0);
}

static struct rdma_cm_id* listening(struct rdma_event_channel* events) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rdma_cm_id* id;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_bind_addr(id, (struct sockaddr*)&address) == 0);
    MUST(rdma_listen(id, 16) == 0);
    return id;
}

/* The active end, up to rdma_connect(). */
static void dial(struct side* s, struct rdma_cm_id* listener) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rdma_conn_param param;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = rdma_get_src_port(listener);
    MUST((s->events = rdma_create_event_channel()) != NULL);
    MUST(rdma_create_id(s->events, &s->id, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(s->id, NULL, (struct sockaddr*)&address, 1000) == 0);
    MUST(take_event(s->events, NULL) == RDMA_CM_EVENT_ADDR_RESOLVED);
    MUST(rdma_resolve_route(s->id, 1000) == 0);
    MUST(take_event(s->events, NULL) == RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queues(s);
    memset(&param, 0, sizeof param);
    param.responder_resources = param.initiator_depth = 4;
    MUST(rdma_connect(s->id, &param) == 0);
}

/* Up to rdma_accept(). */
static void answer(struct side* s, struct rdma_event_channel* events) {
    struct rdma_conn_param param;
    s->events = events;
    MUST(take_event(events, &s->id) == RDMA_CM_EVENT_CONNECT_REQUEST);
    make_queues(s);
    memset(&param, 0, sizeof param);
    param.responder_resources = param.initiator_depth = 4;
    MUST(rdma_accept(s->id, &param) == 0);
}

static struct rdma_event_channel* passive_events;
static struct rdma_cm_id* listener;
static struct side a, b;

static void begin_pair(void) {
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    MUST((passive_events = rdma_create_event_channel()) != NULL);
    listener = listening(passive_events);
    dial(&a, listener);
    answer(&b, passive_events);
}
static void connected_pair(void) {
    begin_pair();
    MUST(take_event(a.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
}

static void end_side(struct side* s) {
    rdma_disconnect(s->id);
    rdma_destroy_qp(s->id);
    CHECK(ibv_dereg_mr(s->mr) == 0);
    CHECK(ibv_destroy_cq(s->cq) == 0);
    CHECK(ibv_destroy_comp_channel(s->channel) == 0);
    CHECK(rdma_destroy_id(s->id) == 0);
}
static void end_pair(void) {
    end_side(&a);
    end_side(&b);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(a.events);
    rdma_destroy_event_channel(passive_events);
}

static int readable(int fd, int limit_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    const int n = poll(&p, 1, limit_ms);
    MUST(n >= 0);
    return n == 1;
}

/* ---- how a program sleeps ---- */

enum way { BLOCKING, POLLING, POLLING_NONBLOCKING, LEVEL, EDGE };

/* Until an event of the channel was taken: 0; or EAGAIN: the descriptor was readable for nothing,
 * which only a program is told that has set O_NONBLOCK. */
static int sleep_for_event(struct side* s, enum way way, int epoll_fd) {
    struct ibv_cq* cq;
    void* context;
    struct epoll_event event;
    if (way == POLLING || way == POLLING_NONBLOCKING) {
        MUST(readable(s->channel->fd, LIMIT_S * 1000));
    } else if (way != BLOCKING) {
        MUST(epoll_wait(epoll_fd, &event, 1, LIMIT_S * 1000) == 1);
    }
    if (ibv_get_cq_event(s->channel, &cq, &context) != 0) {
        MUST(errno == EAGAIN && (way == POLLING_NONBLOCKING || way == EDGE));
        return EAGAIN;
    }
    MUST(cq == s->cq);
    ibv_ack_cq_events(cq, 1);
    return 0;
}

/* Messages taken from the queue, each with the number that is due. */
static unsigned take_messages(struct side* s, unsigned due) {
    struct ibv_wc wc;
    unsigned n = 0;
    while (ibv_poll_cq(s->cq, 1, &wc) == 1) {
        MUST(wc.status == IBV_WC_SUCCESS);
        if (wc.opcode != IBV_WC_RECV) continue;
        CHECK(s->in[wc.wr_id][0] == (char)(due + n), "%d", s->in[wc.wr_id][0]);
        ++n;
        MUST(post_recv_numbered(s->id->qp, wc.wr_id, s->in[wc.wr_id], SIZE, s->mr->lkey) == 0);
    }
    return n;
}

struct player {
    struct side* side;
    enum way way;
    unsigned rounds, at_once;
    int serves_first;
    unsigned seed;
};

/* One end of a ping-pong of `at_once` messages each way. Sometimes it is busy elsewhere for a
 * moment, so that messages come in all states between taking an event and sleeping again. */
static void* play(void* argument) {
    struct player* const player = argument;
    struct side* const s = player->side;
    int epoll_fd = -1;
    unsigned sent = 0, received = 0;
    if (player->way == LEVEL || player->way == EDGE) {
        struct epoll_event event = {.events = EPOLLIN | (player->way == EDGE ? EPOLLET : 0u)};
        MUST((epoll_fd = epoll_create1(EPOLL_CLOEXEC)) >= 0);
        MUST(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->channel->fd, &event) == 0);
    }
    if (player->way == POLLING_NONBLOCKING || player->way == EDGE) {
        MUST(fcntl(s->channel->fd, F_SETFL, O_NONBLOCK) == 0);
    }
    for (unsigned round = 0; round < player->rounds; ++round) {
        if (player->serves_first) {
            for (unsigned i = 0; i < player->at_once; ++i) send_one(s, (char)sent++, 0);
        }
        for (const unsigned due = received + player->at_once; received != due;) {
            int again = sleep_for_event(s, player->way, epoll_fd);
            while (again == 0) { /* EPOLLET: up to EAGAIN */
                MUST(ibv_req_notify_cq(s->cq, 0) == 0);
                received += take_messages(s, received);
                if (player->way != EDGE) break;
                struct ibv_cq* cq;
                void* context;
                again = ibv_get_cq_event(s->channel, &cq, &context) == 0 ? 0 : errno;
                if (again == 0) ibv_ack_cq_events(cq, 1);
            }
        }
        if (rand_r(&player->seed) % 64 == 0) {
            const struct timespec pause = {0, rand_r(&player->seed) % 300000};
            nanosleep(&pause, NULL);
        }
        if (!player->serves_first) {
            for (unsigned i = 0; i < player->at_once; ++i) send_one(s, (char)sent++, 0);
        }
    }
    if (epoll_fd >= 0) close(epoll_fd);
    return NULL;
}

CASE(every_way_of_sleeping) {
    for (enum way way = BLOCKING; way <= EDGE; ++way) {
        for (unsigned at_once = 1; at_once <= 8; at_once *= 8) {
            pthread_t thread;
            connected_pair();
            struct player one = {&a, way, 1500, at_once, 1, way + 1};
            struct player other = {&b, way, 1500, at_once, 0, way + 100};
            MUST(pthread_create(&thread, NULL, play, &other) == 0);
            play(&one);
            pthread_join(thread, NULL);
            end_pair();
        }
    }
}

/* A descriptor that is readable promises a program without O_NONBLOCK that ibv_get_cq_event() will
 * not sleep, whatever made it so: here, Writes, Reads and parts of a large message. */
static void* traffic_without_completions(void* argument) {
    static char large[1 << 20];
    struct ibv_mr* const mr = ibv_reg_mr(a.id->pd, large, sizeof large, ALL_ACCESS);
    struct ibv_wc wc;
    (void)argument;
    MUST(mr != NULL);
    for (int i = 0; i < 300; ++i) {
        const enum ibv_wr_opcode opcode = i % 3 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        const uint32_t length = i % 5 == 0 ? 1 << 20 : SIZE;
        struct ibv_mr* const remote = argument;
        MUST(post(a.id->qp, opcode, large, length, mr->lkey, (uintptr_t)remote->addr,
                  remote->rkey) == 0);
        do {
            const int n = ibv_poll_cq(a.cq, 1, &wc);
            MUST(n >= 0);
            if (n == 1) break;
        } while (1);
        MUST(wc.status == IBV_WC_SUCCESS);
        if (i % 50 == 49) usleep(20000); /* the background thread's turn, and back */
    }
    send_one(&a, 1, 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    return NULL;
}

CASE(a_readable_channel_does_not_block) {
    static char target[1 << 20];
    pthread_t thread;
    unsigned received = 0, empty = 0;
    connected_pair();
    struct ibv_mr* const mr = ibv_reg_mr(b.id->pd, target, sizeof target, ALL_ACCESS);
    MUST(mr != NULL);
    /* It learns that this program sleeps in a poll() of its own. */
    send_one(&a, 0, 0);
    while (received == 0) {
        MUST(sleep_for_event(&b, POLLING, -1) == 0);
        MUST(ibv_req_notify_cq(b.cq, 0) == 0);
        received += take_messages(&b, received);
    }
    MUST(pthread_create(&thread, NULL, traffic_without_completions, mr) == 0);
    alarm(LIMIT_S); /* asleep in ibv_get_cq_event(), it would be for good */
    while (received == 1) {
        MUST(sleep_for_event(&b, POLLING, -1) == 0);
        MUST(ibv_req_notify_cq(b.cq, 0) == 0);
        received += take_messages(&b, received);
        if (received == 1) ++empty;
    }
    alarm(0);
    pthread_join(thread, NULL);
    /* One at most for each time that the program had a completion. */
    CHECK(empty <= 2, "%u events without a completion", empty);
    CHECK(ibv_dereg_mr(mr) == 0);
    end_pair();
}

/* gloo polls, takes one event with O_NONBLOCK and ends where there is none. Meanwhile another
 * thread posts, and fills the socket again and again. */
enum { LARGE = 1 << 20, LARGE_WRITES = 1500, LARGE_AT_ONCE = 8 };
static unsigned large_under_way;
static void* write_large(void* argument) {
    static char large[LARGE];
    struct ibv_mr* const to = argument;
    struct ibv_mr* const mr = ibv_reg_mr(a.id->pd, large, sizeof large, ALL_ACCESS);
    MUST(mr != NULL);
    for (int i = 0; i < LARGE_WRITES; ++i) {
        while (__atomic_load_n(&large_under_way, __ATOMIC_ACQUIRE) == LARGE_AT_ONCE) sched_yield();
        __atomic_fetch_add(&large_under_way, 1, __ATOMIC_ACQ_REL);
        MUST(post_numbered(a.id->qp, 0, IBV_WR_RDMA_WRITE, large, LARGE, mr->lkey,
                           IBV_SEND_SIGNALED, (uintptr_t)to->addr, to->rkey) == 0);
    }
    while (__atomic_load_n(&large_under_way, __ATOMIC_ACQUIRE) != 0) sched_yield();
    CHECK(ibv_dereg_mr(mr) == 0);
    return NULL;
}
CASE(a_readable_channel_has_an_event_beside_a_thread_that_posts) {
    static char target[LARGE];
    pthread_t thread;
    struct ibv_mr* mr;
    struct ibv_wc wc;
    connected_pair();
    MUST((mr = ibv_reg_mr(b.id->pd, target, sizeof target, ALL_ACCESS)) != NULL);
    MUST(fcntl(a.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    MUST(pthread_create(&thread, NULL, write_large, mr) == 0);
    for (int done = 0; done < LARGE_WRITES;) {
        MUST(sleep_for_event(&a, POLLING, -1) == 0);
        MUST(ibv_req_notify_cq(a.cq, 0) == 0);
        while (ibv_poll_cq(a.cq, 1, &wc) == 1) {
            MUST(wc.status == IBV_WC_SUCCESS);
            ++done;
            __atomic_fetch_sub(&large_under_way, 1, __ATOMIC_ACQ_REL);
        }
    }
    pthread_join(thread, NULL);
    CHECK(ibv_dereg_mr(mr) == 0);
    end_pair();
}

CASE(two_queues_on_one_channel) {
    struct side more;
    connected_pair();
    /* A second connection whose passive end has its queue on the channel of the first. */
    static struct side dialer;
    struct ibv_qp_init_attr attr = qp_attr();
    struct rdma_conn_param param;
    memset(&dialer, 0, sizeof dialer);
    memset(&more, 0, sizeof more);
    dial(&dialer, listener);
    more.events = passive_events;
    MUST(take_event(passive_events, &more.id) == RDMA_CM_EVENT_CONNECT_REQUEST);
    MUST((more.cq = ibv_create_cq(more.id->verbs, 16, &more, b.channel, 0)) != NULL);
    attr.send_cq = attr.recv_cq = more.cq;
    MUST(rdma_create_qp(more.id, NULL, &attr) == 0);
    MUST((more.mr = ibv_reg_mr(more.id->pd, &more, sizeof more, ALL_ACCESS)) != NULL);
    for (uint64_t i = 0; i < SLOTS; ++i) {
        MUST(post_recv_numbered(more.id->qp, i, more.in[i], SIZE, more.mr->lkey) == 0);
    }
    MUST(ibv_req_notify_cq(more.cq, 0) == 0);
    memset(&param, 0, sizeof param);
    MUST(rdma_accept(more.id, &param) == 0);
    MUST(take_event(dialer.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
    MUST(take_event(passive_events, NULL) == RDMA_CM_EVENT_ESTABLISHED);

    unsigned got_b = 0, got_more = 0;
    for (unsigned i = 0; i < 200; ++i) {
        /* By turns for one queue, for the other, for both. */
        if (i % 3 != 1) send_one(&a, (char)got_b, 0);
        if (i % 3 != 0) send_one(&dialer, (char)got_more, 0);
        const unsigned due_b = got_b + (i % 3 != 1), due_more = got_more + (i % 3 != 0);
        while (got_b != due_b || got_more != due_more) {
            struct ibv_cq* cq;
            void* context;
            MUST(readable(b.channel->fd, LIMIT_S * 1000));
            MUST(ibv_get_cq_event(b.channel, &cq, &context) == 0);
            ibv_ack_cq_events(cq, 1);
            MUST(ibv_req_notify_cq(cq, 0) == 0);
            MUST(cq == b.cq || (cq == more.cq && context == &more));
            if (cq == b.cq) {
                got_b += take_messages(&b, got_b);
            } else {
                got_more += take_messages(&more, got_more);
            }
        }
    }
    rdma_disconnect(more.id);
    rdma_destroy_qp(more.id);
    CHECK(ibv_dereg_mr(more.mr) == 0);
    CHECK(ibv_destroy_cq(more.cq) == 0);
    CHECK(rdma_destroy_id(more.id) == 0);
    end_side(&dialer);
    rdma_destroy_event_channel(dialer.events);
    end_pair();
}

/* A queue pair that was never connected, in the error state: what is posted completes at once. */
struct failed_pair {
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
};

static struct failed_pair make_failed_pair(struct ibv_pd* pd) {
    struct failed_pair p;
    struct ibv_qp_init_attr attr = qp_attr();
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    MUST((p.channel = ibv_create_comp_channel(pd->context)) != NULL);
    MUST((p.cq = ibv_create_cq(pd->context, 16, NULL, p.channel, 0)) != NULL);
    attr.send_cq = attr.recv_cq = p.cq;
    MUST((p.qp = ibv_create_qp(pd, &attr)) != NULL);
    MUST(ibv_modify_qp(p.qp, &error, IBV_QP_STATE) == 0);
    MUST(ibv_req_notify_cq(p.cq, 0) == 0);
    return p;
}

/* The kernel limits by how many ways one file may wake epoll sets (1,000, 500, 100 by length). */
CASE(many_channels_with_events_in_one_set) {
    enum { CHANNELS = 600 };
    static struct failed_pair pairs[CHANNELS];
    int count = 0;
    struct ibv_device** const devices = ibv_get_device_list(&count);
    MUST(devices != NULL && count > 0);
    struct ibv_context* const context = ibv_open_device(devices[0]);
    MUST(context != NULL);
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    unsigned found = 0;
    for (int i = 0; i < CHANNELS; ++i) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        pairs[i] = make_failed_pair(pd);
        MUST(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pairs[i].channel->fd, &event) == 0);
    }
    for (int i = 0; i < CHANNELS; ++i) MUST(post_recv(pairs[i].qp, NULL, 0, 0) == 0);
    while (found < CHANNELS) {
        struct epoll_event events[64];
        const int n = epoll_wait(epoll_fd, events, 64, 2000);
        CHECK(n > 0, "only %u of %u channels are readable", found, CHANNELS);
        if (n <= 0) break;
        for (int i = 0; i < n; ++i) {
            struct ibv_cq* cq;
            void* context_of_cq;
            const struct failed_pair* const p = &pairs[events[i].data.u32];
            MUST(ibv_get_cq_event(p->channel, &cq, &context_of_cq) == 0);
            CHECK(cq == p->cq);
            ibv_ack_cq_events(cq, 1);
            ++found;
        }
    }
    for (int i = 0; i < CHANNELS; ++i) {
        CHECK(ibv_destroy_qp(pairs[i].qp) == 0);
        CHECK(ibv_destroy_cq(pairs[i].cq) == 0);
        CHECK(ibv_destroy_comp_channel(pairs[i].channel) == 0);
    }
    close(epoll_fd);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    ibv_free_device_list(devices);
}

/* A program that closes all descriptors it does not know may get their numbers for files. */
CASE(events_spare_a_file_with_the_number_of_their_descriptor) {
    char name[] = "/tmp/xsock-events.XXXXXX";
    const int file = mkstemp(name);
    struct rdma_event_channel* const events = rdma_create_event_channel();
    struct rdma_cm_id* const id = listening(events);
    struct rdma_cm_id* dialing;
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct stat status;
    MUST(file >= 0 && unlink(name) == 0 && events != NULL);
    struct failed_pair p = make_failed_pair(ibv_alloc_pd(id->verbs));
    MUST(dup2(file, events->fd) == events->fd);
    MUST(dup2(file, id->verbs->async_fd) == id->verbs->async_fd);
    MUST(dup2(file, p.channel->fd) == p.channel->fd);
    /* An event of rdma_cm, one of the queue's channel, and one of the device: an overrun. */
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = rdma_get_src_port(id);
    MUST(rdma_create_id(events, &dialing, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(dialing, NULL, (struct sockaddr*)&address, 1000) == 0);
    for (int i = 0; i < 64; ++i) MUST(post_recv(p.qp, NULL, 0, 0) == 0);
    usleep(100000); /* the overrun is told by a thread */
    MUST(fstat(file, &status) == 0);
    CHECK(status.st_size == 0, "%lld bytes were written", (long long)status.st_size);
    close(file); /* the numbers are left to the libraries, which close them */
    CHECK(rdma_destroy_id(dialing) == 0 && rdma_destroy_id(id) == 0);
}

static void* take_and_acknowledge(void* argument) {
    struct ibv_cq* cq;
    void* context;
    MUST(ibv_get_cq_event(argument, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* ibv_destroy_cq() waits for the thread that has just been given its last event. */
CASE(destroyed_while_its_event_is_taken) {
    int count = 0;
    struct ibv_device** const devices = ibv_get_device_list(&count);
    MUST(devices != NULL && count > 0);
    struct ibv_context* const context = ibv_open_device(devices[0]);
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    MUST(context != NULL && pd != NULL);
    for (int i = 0; i < 500; ++i) {
        pthread_t thread;
        struct failed_pair p = make_failed_pair(pd);
        MUST(pthread_create(&thread, NULL, take_and_acknowledge, p.channel) == 0);
        if (i % 2 == 0) sched_yield();
        MUST(post_recv(p.qp, NULL, 0, 0) == 0);
        MUST(ibv_destroy_qp(p.qp) == 0);
        /* The thread takes its event before the queue goes, or while it does. */
        while (readable(p.channel->fd, 0)) sched_yield();
        MUST(ibv_destroy_cq(p.cq) == 0);
        pthread_join(thread, NULL);
        MUST(ibv_destroy_comp_channel(p.channel) == 0);
    }
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    ibv_free_device_list(devices);
}

CASE(solicited_events_only) {
    struct ibv_cq* cq;
    void* context;
    struct ibv_wc wc;
    connected_pair();
    /* Once as usual, so that the program is known to sleep on the channel. */
    send_one(&a, 0, 0);
    MUST(readable(b.channel->fd, LIMIT_S * 1000));
    MUST(ibv_get_cq_event(b.channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    MUST(take_messages(&b, 0) == 1);
    MUST(ibv_req_notify_cq(b.cq, 1) == 0);
    send_one(&a, 1, 0);
    CHECK(!readable(b.channel->fd, 200));
    send_one(&a, 2, IBV_SEND_SOLICITED);
    CHECK(readable(b.channel->fd, LIMIT_S * 1000));
    MUST(ibv_get_cq_event(b.channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    CHECK(take_messages(&b, 1) == 2);
    CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
    end_pair();
}

/* How often the threads of the library that serve connections have woken. */
static unsigned long wake_ups_of_background_threads(void) {
    unsigned long sum = 0;
    DIR* const tasks = opendir("/proc/self/task");
    struct dirent* task;
    MUST(tasks != NULL);
    while ((task = readdir(tasks)) != NULL) {
        char path[300], line[128];
        unsigned long count = 0;
        int ours = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE* const status = fopen(path, "r");
        if (status == NULL) continue;
        while (fgets(line, sizeof line, status) != NULL) {
            ours |= strcmp(line, "Name:\txsock-progress\n") == 0;
            sscanf(line, "voluntary_ctxt_switches: %lu", &count);
        }
        fclose(status);
        if (ours) sum += count;
    }
    closedir(tasks);
    return sum;
}

/* The arriving segment wakes the program: the thread of the library ticks beside it, once in 8 ms
 * or so, and is woken for no message. */
CASE(no_thread_stands_between) {
    enum { ROUNDS = 1000 };
    const char* const mode = getenv("XSOCK_PROGRESS");
    if (mode != NULL && strcmp(mode, "thread") == 0) return; /* there it does */
    for (enum way way = POLLING; way <= LEVEL; ++way) {
        pthread_t thread;
        connected_pair();
        struct player one = {&a, way, ROUNDS, 1, 1, 1}, other = {&b, way, ROUNDS, 1, 0, 2};
        const double begin = now();
        const unsigned long before = wake_ups_of_background_threads();
        MUST(pthread_create(&thread, NULL, play, &other) == 0);
        play(&one);
        pthread_join(thread, NULL);
        const unsigned long woken = wake_ups_of_background_threads() - before;
        const double took_ms = (now() - begin) * 1e3;
        /* Two ends: with a thread in between at least 2 a round. */
        CHECK(woken <= ROUNDS / 2 + (unsigned long)(took_ms / 4), "%lu in %d rounds, %.0f ms",
              woken, ROUNDS, took_ms);
        end_pair();
    }
}

static double cpu_time(void) {
    struct timespec t;
    MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Both ends armed, after traffic: nothing runs when nothing comes. */
CASE(an_armed_idle_connection_uses_no_processor) {
    connected_pair();
    pthread_t thread;
    struct player one = {&a, POLLING, 200, 1, 1, 1}, other = {&b, POLLING, 200, 1, 0, 2};
    MUST(pthread_create(&thread, NULL, play, &other) == 0);
    play(&one);
    pthread_join(thread, NULL);
    MUST(ibv_req_notify_cq(a.cq, 0) == 0);
    MUST(ibv_req_notify_cq(b.cq, 0) == 0);
    double least = 1e9;
    for (int i = 0; i < 20 && least > 0.0005; ++i) {
        usleep(50000); /* the thread may tick a few times more */
        const double before = cpu_time();
        CHECK(!readable(b.channel->fd, 200));
        const double used = cpu_time() - before;
        if (used < least) least = used;
    }
    CHECK(least <= 0.0005, "%.1f ms of processor time in 200 ms", least * 1e3);
    end_pair();
}

/* ---- the order of events ---- */

/* What came with the connection is not seen before the connection is. */
CASE(established_comes_before_completions) {
    for (int i = 0; i < 150; ++i) {
        struct ibv_wc wc;
        begin_pair();
        MUST(take_event(a.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
        send_one(&a, 0, 0);
        const double limit = now() + LIMIT_S;
        while (ibv_poll_cq(b.cq, 1, &wc) == 0) MUST(now() < limit);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
        CHECK(readable(b.events->fd, 0), "round %d", i);
        MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
        end_pair();
    }
}

CASE(sends_complete_after_established) {
    for (int i = 0; i < 150; ++i) {
        struct ibv_wc wc;
        begin_pair();
        send_one(&b, 0, IBV_SEND_SIGNALED); /* allowed from rdma_accept() on */
        const double limit = now() + LIMIT_S;
        while (ibv_poll_cq(b.cq, 1, &wc) == 0) MUST(now() < limit);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
        CHECK(readable(b.events->fd, 0), "round %d", i);
        MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
        MUST(take_event(a.events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
        end_pair();
    }
}

/* The peer's last message and its end: the receives are flushed when the program has been told. */
static void receives_are_flushed_after_disconnected(int resets) {
    struct ibv_wc wc;
    unsigned flushed = 0;
    connected_pair();
    send_one(&a, 0, 0);
    EXPECT(b.cq, IBV_WC_SUCCESS);
    if (resets) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        MUST(ibv_modify_qp(a.id->qp, &attr, IBV_QP_STATE) == 0);
    } else {
        MUST(rdma_disconnect(a.id) == 0);
    }
    MUST(readable(b.events->fd, LIMIT_S * 1000));
    for (int i = 0; i < 100; ++i) {
        CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0, "status %d", wc.status);
        usleep(1000);
    }
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    while (flushed < SLOTS - 1) {
        EXPECT(b.cq, IBV_WC_WR_FLUSH_ERR);
        ++flushed;
    }
    /* Behind them, and only then, what is posted now. */
    MUST(post_recv_numbered(b.id->qp, 99, b.in[0], SIZE, b.mr->lkey) == 0);
    wc = next(b.cq);
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 99);
    end_pair();
}
/* The peer's last message and its end in one: a program that is told of the end destroys the QP,
 * and what it has not polled with it. So the event waits for the poll. */
CASE(disconnected_comes_after_what_waits_to_be_polled) {
    for (int conclusive = 0; !conclusive;) {
        connected_pair();
        send_one(&a, 0, 0);
        MUST(rdma_disconnect(a.id) == 0);
        const double before = now();
        const int told = readable(b.events->fd, 40);
        conclusive = now() - before < 0.08; /* a busy machine: the limit may have passed */
        CHECK(!conclusive || !told, "the event came first");
        EXPECT(b.cq, IBV_WC_SUCCESS);
        MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
        end_pair();
    }
}

/* ... but not for ever: some programs poll when they have been told, others not at all. */
CASE(disconnected_comes_to_a_program_that_does_not_poll) {
    connected_pair();
    send_one(&a, 0, 0);
    MUST(rdma_disconnect(a.id) == 0);
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    EXPECT(b.cq, IBV_WC_SUCCESS);
    end_pair();
}

/* ... nor beyond the program's own rdma_disconnect(). */
CASE(disconnected_comes_with_the_programs_own_disconnect) {
    for (int conclusive = 0; !conclusive;) {
        connected_pair();
        send_one(&a, 0, 0);
        const double before = now();
        MUST(rdma_disconnect(a.id) == 0);
        conclusive = !readable(b.events->fd, 20); /* it waits for the poll */
        MUST(rdma_disconnect(b.id) == 0);
        MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
        conclusive = conclusive && now() - before < 0.1; /* or the limit has passed */
        CHECK(!readable(b.events->fd, 200), "told twice");
        end_pair();
    }
}

/* ... and whose queue pair is reset meanwhile. */
CASE(disconnected_comes_though_its_queue_pair_was_reset) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    connected_pair();
    send_one(&a, 0, 0);
    MUST(rdma_disconnect(a.id) == 0);
    usleep(10000);
    MUST(ibv_modify_qp(b.id->qp, &attr, IBV_QP_STATE) == 0);
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    end_pair();
}

/* With the reset its connection is over, for both ends. */
static void reset_ends(int disconnects) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    connected_pair();
    if (disconnects) MUST(rdma_disconnect(b.id) == 0);
    MUST(ibv_modify_qp(b.id->qp, &attr, IBV_QP_STATE) == 0);
    MUST(readable(b.events->fd, LIMIT_S * 1000));
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    MUST(readable(a.events->fd, LIMIT_S * 1000));
    MUST(take_event(a.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!readable(b.events->fd, 50));
    end_pair();
}
CASE(disconnected_comes_when_its_queue_pair_is_reset) { reset_ends(0); }
CASE(disconnected_comes_when_its_queue_pair_is_reset_while_it_disconnects) { reset_ends(1); }

CASE(flushed_after_disconnected) { receives_are_flushed_after_disconnected(0); }
CASE(flushed_after_a_reset) { receives_are_flushed_after_disconnected(1); }

/* The peer ends in order while messages are on their way to it, and is then killed: its reset comes
 * behind its FIN. */
CASE(flushed_after_a_fin_and_a_reset) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;
    connected_pair();
    for (int i = 0; i < 2 * SLOTS; ++i) send_one(&b, 0, 0); /* more than it has receives for */
    MUST(rdma_disconnect(a.id) == 0);
    MUST(readable(b.events->fd, LIMIT_S * 1000));
    MUST(ibv_modify_qp(a.id->qp, &attr, IBV_QP_STATE) == 0);
    for (int i = 0; i < 100; ++i) {
        while (ibv_poll_cq(b.cq, 1, &wc) == 1) {
            CHECK(wc.opcode != IBV_WC_RECV || wc.status == IBV_WC_SUCCESS, "flushed too early");
        }
        usleep(1000);
    }
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    const double limit = now() + LIMIT_S;
    for (unsigned flushed = 0; flushed < SLOTS;) {
        MUST(now() < limit);
        if (ibv_poll_cq(b.cq, 1, &wc) != 1 || wc.wr_id >= SLOTS) continue;
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "%s", ibv_wc_status_str(wc.status));
        ++flushed;
    }
    end_pair();
}

/* A program that watches its completion queue alone learns of the end as well. */
CASE(flushed_for_a_program_that_takes_no_events) {
    connected_pair();
    MUST(rdma_disconnect(a.id) == 0);
    for (int i = 0; i < SLOTS; ++i) EXPECT(b.cq, IBV_WC_WR_FLUSH_ERR);
    MUST(take_event(b.events, NULL) == RDMA_CM_EVENT_DISCONNECTED);
    end_pair();
}

/* Its own rdma_disconnect() waits for no event. */
CASE(flushed_by_the_programs_own_disconnect) {
    connected_pair();
    MUST(rdma_disconnect(a.id) == 0);
    MUST(readable(b.events->fd, LIMIT_S * 1000));
    const double before = now();
    MUST(rdma_disconnect(b.id) == 0);
    for (int i = 0; i < SLOTS; ++i) EXPECT(b.cq, IBV_WC_WR_FLUSH_ERR);
    CHECK(now() - before < 0.9, "only after %.1f s", now() - before);
    end_pair();
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
