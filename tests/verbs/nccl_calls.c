/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What NCCL's InfiniBand transport asks of a device, without NCCL: libibverbs by dlopen() and
 * dlvsym(), a GID by the files of the device, reliable queue pairs with one SGE, and its way of
 * sending. The receiver writes into the sender's memory where a message shall go; the sender writes
 * it there, in chains of Writes of which the last has an immediate, for which a receive without
 * memory waits; the receiver reads a byte over a queue pair that is connected to itself.
 *
 * Linked with neither library of RDMA. By `xsock run --roce`, which has the files.
 *
 *     nccl_calls [CASE...]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/verbs/pair.h"

enum { SLOTS = 8, MESSAGES = 200, LARGEST = 1 << 20 };

static struct {
    struct ibv_device** (*get_device_list)(int*);
    void (*free_device_list)(struct ibv_device**);
    const char* (*get_device_name)(struct ibv_device*);
    struct ibv_context* (*open_device)(struct ibv_device*);
    int (*close_device)(struct ibv_context*);
    int (*get_async_event)(struct ibv_context*, struct ibv_async_event*);
    void (*ack_async_event)(struct ibv_async_event*);
    int (*query_device)(struct ibv_context*, struct ibv_device_attr*);
    int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*);
    int (*query_gid)(struct ibv_context*, uint8_t, int, union ibv_gid*);
    struct ibv_pd* (*alloc_pd)(struct ibv_context*);
    int (*dealloc_pd)(struct ibv_pd*);
    struct ibv_mr* (*reg_mr)(struct ibv_pd*, void*, size_t, int);
    struct ibv_mr* (*reg_mr_iova2)(struct ibv_pd*, void*, size_t, uint64_t, unsigned);
    struct ibv_mr* (*reg_dmabuf_mr)(struct ibv_pd*, uint64_t, size_t, uint64_t, int, int);
    int (*dereg_mr)(struct ibv_mr*);
    struct ibv_cq* (*create_cq)(struct ibv_context*, int, void*, struct ibv_comp_channel*, int);
    int (*destroy_cq)(struct ibv_cq*);
    struct ibv_qp* (*create_qp)(struct ibv_pd*, struct ibv_qp_init_attr*);
    int (*modify_qp)(struct ibv_qp*, struct ibv_qp_attr*, int);
    int (*query_qp)(struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*);
    int (*destroy_qp)(struct ibv_qp*);
    int (*fork_init)(void);
    const char* (*event_type_str)(enum ibv_event_type);
    int (*query_ece)(struct ibv_qp*, struct ibv_ece*);
    int (*set_ece)(struct ibv_qp*, struct ibv_ece*);
} verbs;

static const struct {
    const char *name, *version;
    void* to;
} symbols[] = {
    {"ibv_get_device_list", "IBVERBS_1.1", &verbs.get_device_list},
    {"ibv_free_device_list", "IBVERBS_1.1", &verbs.free_device_list},
    {"ibv_get_device_name", "IBVERBS_1.1", &verbs.get_device_name},
    {"ibv_open_device", "IBVERBS_1.1", &verbs.open_device},
    {"ibv_close_device", "IBVERBS_1.1", &verbs.close_device},
    {"ibv_get_async_event", "IBVERBS_1.1", &verbs.get_async_event},
    {"ibv_ack_async_event", "IBVERBS_1.1", &verbs.ack_async_event},
    {"ibv_query_device", "IBVERBS_1.1", &verbs.query_device},
    {"ibv_query_port", "IBVERBS_1.1", &verbs.query_port},
    {"ibv_query_gid", "IBVERBS_1.1", &verbs.query_gid},
    {"ibv_alloc_pd", "IBVERBS_1.1", &verbs.alloc_pd},
    {"ibv_dealloc_pd", "IBVERBS_1.1", &verbs.dealloc_pd},
    {"ibv_reg_mr", "IBVERBS_1.1", &verbs.reg_mr},
    {"ibv_reg_mr_iova2", "IBVERBS_1.8", &verbs.reg_mr_iova2},
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12", &verbs.reg_dmabuf_mr},
    {"ibv_dereg_mr", "IBVERBS_1.1", &verbs.dereg_mr},
    {"ibv_create_cq", "IBVERBS_1.1", &verbs.create_cq},
    {"ibv_destroy_cq", "IBVERBS_1.1", &verbs.destroy_cq},
    {"ibv_create_qp", "IBVERBS_1.1", &verbs.create_qp},
    {"ibv_modify_qp", "IBVERBS_1.1", &verbs.modify_qp},
    {"ibv_query_qp", "IBVERBS_1.1", &verbs.query_qp},
    {"ibv_destroy_qp", "IBVERBS_1.1", &verbs.destroy_qp},
    {"ibv_fork_init", "IBVERBS_1.1", &verbs.fork_init},
    {"ibv_event_type_str", "IBVERBS_1.1", &verbs.event_type_str},
    {"ibv_query_ece", "IBVERBS_1.10", &verbs.query_ece},
    {"ibv_set_ece", "IBVERBS_1.10", &verbs.set_ece},
};

static void load(void) {
    void* library = dlopen("libibverbs.so", RTLD_NOW);
    if (library == NULL) library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
        void* const found = dlvsym(library, symbols[i].name, symbols[i].version);
        CHECK(found != NULL, "%s %s", symbols[i].name, symbols[i].version);
        MUST(found != NULL);
        memcpy(symbols[i].to, &found, sizeof found);
    }
    MUST(verbs.fork_init() == 0);
}

struct rank {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp *qp, *flush;
    union ibv_gid gid;
    int gid_index;
    pthread_t async;
};

/* As NCCL's: of events it knows none but COMM_EST is expected. */
static _Atomic int unexpected_events;
static void* async_thread(void* argument) {
    struct ibv_context* const context = argument;
    struct ibv_async_event event;
    while (verbs.get_async_event(context, &event) == 0) {
        const enum ibv_event_type type = event.event_type;
        if (type != IBV_EVENT_COMM_EST && type != IBV_EVENT_DEVICE_FATAL) {
            printf("event: %s\n", verbs.event_type_str(type));
            ++unexpected_events;
        }
        verbs.ack_async_event(&event);
        if (type == IBV_EVENT_DEVICE_FATAL) break;
    }
    return NULL;
}

/* 2: RoCE v2; 1: v1; -1: the file is not there or says something else, an error to NCCL. */
static int roce_version(const char* device, int index) {
    char path[PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", device,
             index);
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    if (strncmp(text, "RoCE v2", 7) == 0) return 2;
    return strncmp(text, "IB/RoCE v1", 10) == 0 ? 1 : -1;
}

/* The first of IPv4 and RoCE v2; as it looks for one, each index is queried and its file read. */
static int choose_gid(struct rank* rank, const char* device, int count) {
    int chosen = -1;
    for (int i = 0; i < count; ++i) {
        static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
        union ibv_gid gid;
        MUST(verbs.query_gid(rank->context, 1, i, &gid) == 0);
        const int version = roce_version(device, i);
        CHECK(version == 2, "GID %d: %d", i, version);
        if (chosen < 0 && version == 2 && memcmp(gid.raw, mapped, sizeof mapped) == 0) {
            chosen = i;
            rank->gid = gid;
        }
    }
    return chosen;
}

static struct ibv_qp* make_qp(struct rank* rank, int access) {
    struct ibv_qp_init_attr init = {
        .send_cq = rank->cq,
        .recv_cq = rank->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 512, .max_recv_wr = 256, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp* const qp = verbs.create_qp(rank->pd, &init);
    MUST(qp != NULL);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
    MUST(verbs.modify_qp(
             qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    struct ibv_ece ece;
    errno = 0;
    const int error = verbs.query_ece(qp, &ece);
    CHECK(error == EOPNOTSUPP || error == ENOSYS || errno == EOPNOTSUPP, "%d", error);
    return qp;
}
static void connect_qp(struct rank* rank, struct ibv_qp* qp, uint32_t dest,
                       const union ibv_gid* gid) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_4096,
                               .dest_qp_num = dest,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 12};
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = *gid;
    attr.ah_attr.grh.sgid_index = (uint8_t)rank->gid_index;
    attr.ah_attr.grh.hop_limit = 255;
    attr.ah_attr.port_num = 1;
    MUST(verbs.modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
         0);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 20;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    MUST(verbs.modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct rank begin(void) {
    struct rank rank;
    struct ibv_device_attr device_attr;
    struct ibv_port_attr port;
    char path[PATH_MAX], real[PATH_MAX];
    int n = 0;
    memset(&rank, 0, sizeof rank);
    load();
    struct ibv_device** const list = verbs.get_device_list(&n);
    MUST(list != NULL && n == 1);
    const char* const name = verbs.get_device_name(list[0]);
    MUST((rank.context = verbs.open_device(list[0])) != NULL);
    MUST(verbs.query_device(rank.context, &device_attr) == 0);
    CHECK(device_attr.phys_port_cnt == 1);
    memset(&port, 0, sizeof port);
    MUST(verbs.query_port(rank.context, 1, &port) == 0);
    CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK((port.flags & IBV_QPF_GRH_REQUIRED) != 0);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name);
    CHECK(realpath(path, real) != NULL, "%s", path);
    /* What says that GPU memory can be registered. */
    CHECK(access("/sys/module/nvidia_peermem/version", F_OK) != 0);
    CHECK(access("/sys/kernel/mm/memory_peers/nv_mem/version", F_OK) != 0);
    rank.gid_index = choose_gid(&rank, name, port.gid_tbl_len);
    MUST(rank.gid_index >= 0);
    MUST((rank.pd = verbs.alloc_pd(rank.context)) != NULL);
    errno = 0;
    CHECK(verbs.reg_dmabuf_mr(rank.pd, 0, 0, 0, -1, 0) == NULL && errno == EOPNOTSUPP, "%d", errno);
    MUST((rank.cq = verbs.create_cq(rank.context, 2 * 512, NULL, NULL, 0)) != NULL);
    rank.qp = make_qp(&rank, IBV_ACCESS_REMOTE_WRITE);
    MUST(pthread_create(&rank.async, NULL, async_thread, rank.context) == 0);
    verbs.free_device_list(list);
    return rank;
}
static void finish(struct rank* rank) {
    CHECK(unexpected_events == 0);
    CHECK(verbs.destroy_qp(rank->qp) == 0);
    if (rank->flush != NULL) CHECK(verbs.destroy_qp(rank->flush) == 0);
    CHECK(verbs.destroy_cq(rank->cq) == 0);
    CHECK(verbs.dealloc_pd(rank->pd) == 0);
    pthread_cancel(rank->async);
    pthread_join(rank->async, NULL);
    CHECK(verbs.close_device(rank->context) == 0);
}

/* What the ranks tell each other over a socket of their own. */
struct hello {
    uint32_t qp_num, rkey;
    uint64_t address;
    union ibv_gid gid;
};
static struct hello exchange(int fd, const struct rank* rank, const struct ibv_mr* mr) {
    struct hello own = {rank->qp->qp_num, mr->rkey, (uintptr_t)mr->addr, rank->gid}, peer;
    MUST(write(fd, &own, sizeof own) == sizeof own);
    MUST(read(fd, &peer, sizeof peer) == sizeof peer);
    return peer;
}

/* Where the receiver wants message `number`; written into the sender's memory. */
struct slot {
    uint64_t address;
    uint32_t rkey, length;
    uint64_t number; /* the last: 8 octets, written in order */
};
static struct slot slots[SLOTS] __attribute__((aligned(64)));
static char data[LARGEST];

static uint32_t length_of(uint64_t number) {
    static const uint32_t lengths[] = {1, 8, 4096, 100001, 0, LARGEST, 65536};
    return lengths[number % (sizeof lengths / sizeof *lengths)];
}
static char octet_of(uint64_t number, uint32_t at) { return (char)(number * 31 + at + (at >> 8)); }

static void post_all(struct ibv_qp* qp, struct ibv_send_wr* first) {
    struct ibv_send_wr* bad = NULL;
    MUST(ibv_post_send(qp, first, &bad) == 0);
}

static void send_all(int fd) {
    struct rank rank = begin();
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr* const to = verbs.reg_mr_iova2(rank.pd, slots, sizeof slots, (uintptr_t)slots,
                                                 (unsigned)all | IBV_ACCESS_RELAXED_ORDERING);
    struct ibv_mr* const from = verbs.reg_mr_iova2(rank.pd, data, sizeof data, (uintptr_t)data,
                                                   (unsigned)all | IBV_ACCESS_RELAXED_ORDERING);
    MUST(to != NULL && from != NULL);
    const struct hello peer = exchange(fd, &rank, to);
    connect_qp(&rank, rank.qp, peer.qp_num, &peer.gid);
    for (uint64_t number = 1; number <= MESSAGES; ++number) {
        const struct slot* const slot = &slots[number % SLOTS];
        const double limit = now() + LIMIT_S;
        while (__atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) != number) {
            struct ibv_wc none;
            CHECK(ibv_poll_cq(rank.cq, 1, &none) == 0);
            MUST(now() < limit);
        }
        CHECK(slot->length == length_of(number));
        for (uint32_t i = 0; i < slot->length; ++i) data[i] = octet_of(number, i);
        /* Two Writes, and the size as immediate of a third without memory; or one with both. */
        const uint32_t half = slot->length / 2;
        struct ibv_sge sges[2] = {{(uintptr_t)data, half, from->lkey},
                                  {(uintptr_t)data + half, slot->length - half, from->lkey}};
        struct ibv_send_wr wrs[3];
        memset(wrs, 0, sizeof wrs);
        for (int i = 0; i < 2; ++i) {
            wrs[i].opcode = IBV_WR_RDMA_WRITE;
            wrs[i].sg_list = &sges[i];
            wrs[i].num_sge = 1;
            wrs[i].wr.rdma.remote_addr = slot->address + (i == 0 ? 0 : half);
            wrs[i].wr.rdma.rkey = slot->rkey;
            wrs[i].next = &wrs[i + 1];
        }
        struct ibv_send_wr* const last = number % 2 == 0 ? &wrs[2] : &wrs[1];
        last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        last->imm_data = htonl(slot->length);
        last->wr_id = number;
        last->send_flags = IBV_SEND_SIGNALED;
        last->next = NULL;
        post_all(rank.qp, wrs);
        const struct ibv_wc wc = next(rank.cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == number && wc.opcode == IBV_WC_RDMA_WRITE,
              "%d: status %d", (int)number, (int)wc.status);
    }
    char done;
    CHECK(read(fd, &done, 1) == 1);
    CHECK(verbs.dereg_mr(to) == 0 && verbs.dereg_mr(from) == 0);
    finish(&rank);
}

static void receive_all(int fd) {
    static struct slot said[SLOTS];
    static char flushed[64];
    struct rank rank = begin();
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr* const to = verbs.reg_mr(rank.pd, data, sizeof data, all);
    struct ibv_mr* const from = verbs.reg_mr(rank.pd, said, sizeof said, all);
    struct ibv_mr* const sink =
        verbs.reg_mr(rank.pd, flushed, sizeof flushed, IBV_ACCESS_LOCAL_WRITE);
    MUST(to != NULL && from != NULL && sink != NULL);
    const struct hello peer = exchange(fd, &rank, to);
    connect_qp(&rank, rank.qp, peer.qp_num, &peer.gid);
    rank.flush = make_qp(&rank, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    connect_qp(&rank, rank.flush, rank.flush->qp_num, &rank.gid);
    for (uint64_t number = 1; number <= MESSAGES; ++number) {
        struct ibv_recv_wr receive = {.wr_id = number}, *bad_receive = NULL;
        MUST(ibv_post_recv(rank.qp, &receive, &bad_receive) == 0);
        struct slot* const slot = &said[number % SLOTS];
        *slot = (struct slot){(uintptr_t)data, to->rkey, length_of(number), number};
        struct ibv_sge sge = {(uintptr_t)slot, sizeof *slot, from->lkey};
        struct ibv_send_wr wr = {.wr_id = 0,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = number % SLOTS == 0 ? IBV_SEND_SIGNALED : 0};
        wr.wr.rdma.remote_addr = peer.address + number % SLOTS * sizeof *slot;
        wr.wr.rdma.rkey = peer.rkey;
        post_all(rank.qp, &wr);
        struct ibv_wc wc;
        do {
            wc = next(rank.cq);
            MUST(wc.status == IBV_WC_SUCCESS);
        } while (wc.opcode == IBV_WC_RDMA_WRITE);
        CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == number);
        CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && ntohl(wc.imm_data) == length_of(number));
        /* What the GPU must see is flushed by a Read. */
        struct ibv_sge there = {(uintptr_t)flushed, 1, sink->lkey};
        struct ibv_send_wr read_wr = {.wr_id = 77,
                                      .sg_list = &there,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_RDMA_READ,
                                      .send_flags = IBV_SEND_SIGNALED};
        read_wr.wr.rdma.remote_addr = (uintptr_t)data;
        read_wr.wr.rdma.rkey = to->rkey;
        post_all(rank.flush, &read_wr);
        do {
            wc = next(rank.cq);
            MUST(wc.status == IBV_WC_SUCCESS);
        } while (wc.opcode == IBV_WC_RDMA_WRITE);
        CHECK(wc.opcode == IBV_WC_RDMA_READ && wc.wr_id == 77 && wc.qp_num == rank.flush->qp_num);
        if (length_of(number) != 0) CHECK(flushed[0] == data[0]);
        for (uint32_t i = 0; i < length_of(number); ++i) {
            if (data[i] == octet_of(number, i)) continue;
            CHECK(0, "message %d, octet %u", (int)number, i);
            break;
        }
    }
    CHECK(write(fd, "d", 1) == 1);
    CHECK(verbs.dereg_mr(to) == 0 && verbs.dereg_mr(from) == 0 && verbs.dereg_mr(sink) == 0);
    finish(&rank);
}

CASE(two_ranks) {
    int fds[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    const pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        send_all(fds[0]);
        exit(failures != 0);
    }
    close(fds[0]); /* the peer's end, so that its death is seen */
    receive_all(fds[1]);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%d", status);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
