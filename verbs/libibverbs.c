/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libibverbs.so.1: the exported functions of the real library, with its soname and symbol versions
 * (libibverbs.map), each a call through the engine's table. What a software device has no use for
 * refuses; what is pure arithmetic is done here. What the headers may be too old for is in
 * libibverbs_newer.c; symbols of the version nodes that the vendors' libraries want are generated
 * (private_symbols.py).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "verbs/load_engine.h"

#define EXPORT __attribute__((visibility("default")))

XSOCK_IBV_FUNCTIONS(XSOCK_VERBS_FUNCTION)

/* ---- calls that block ---- */

EXPORT int ibv_get_cq_event(struct ibv_comp_channel* channel, struct ibv_cq** cq,
                            void** cq_context) {
    enum { POLL_MS = 200, POLL_MAX_MS = 3200 };
    const struct xsock_verbs* const engine = xsock_verbs_load();
    int poll_ms = POLL_MS, late = 0, first = 1;

    if (engine == NULL) return -1;
    for (;;) {
        const int state = xsock_verbs_hold_cancellation();
        const int error = late ? engine->verbs_late_cq_event(channel, cq, cq_context)
                               : engine->verbs_try_cq_event(channel, first, cq, cq_context);
        xsock_verbs_release_cancellation(&state);
        if (error == 0) return 0;
        if (error != EINPROGRESS) {
            errno = error;
            return -1;
        }
        if (late && poll_ms < POLL_MAX_MS) poll_ms *= 2;
        first = 0;
        late = xsock_verbs_sleep(channel->fd, poll_ms);
        if (late < 0) return -1;
    }
}

EXPORT int ibv_get_async_event(struct ibv_context* context, struct ibv_async_event* event) {
    const struct xsock_verbs* const engine = xsock_verbs_load();

    if (engine == NULL) return -1;
    for (;;) {
        const int state = xsock_verbs_hold_cancellation();
        const int error = engine->verbs_try_async_event(context, event);
        xsock_verbs_release_cancellation(&state);
        if (error == 0) return 0;
        if (error != EAGAIN) {
            errno = error;
            return -1;
        }
        if (xsock_verbs_wait_readable(context->async_fd, -1) != 0) return -1;
    }
}

/* ---- words ---- */

static const char* text_of(const char* const* texts, size_t count, long index) {
    return index >= 0 && (size_t)index < count && texts[index] != NULL ? texts[index] : "unknown";
}
#define TEXT(table, index) text_of(table, sizeof(table) / sizeof *(table), (long)(index))

EXPORT const char* ibv_wc_status_str(enum ibv_wc_status status) {
    static const char* const texts[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_MW_BIND_ERR] = "memory bind operation error",
        [IBV_WC_BAD_RESP_ERR] = "bad response error",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
        [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
        [IBV_WC_REM_ABORT_ERR] = "aborted error",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
        [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error",
        [IBV_WC_TM_ERR] = "TM error",
        [IBV_WC_TM_RNDV_INCOMPLETE] = "TM software rendezvous",
    };
    return TEXT(texts, status);
}

EXPORT const char* ibv_node_type_str(enum ibv_node_type type) {
    static const char* const texts[] = {
        [IBV_NODE_CA] = "InfiniBand channel adapter",
        [IBV_NODE_SWITCH] = "InfiniBand switch",
        [IBV_NODE_ROUTER] = "InfiniBand router",
        [IBV_NODE_RNIC] = "iWARP NIC",
        [IBV_NODE_USNIC] = "usNIC",
        [IBV_NODE_USNIC_UDP] = "usNIC UDP",
        [IBV_NODE_UNSPECIFIED] = "unspecified",
    };
    return TEXT(texts, type);
}

EXPORT const char* ibv_port_state_str(enum ibv_port_state state) {
    static const char* const texts[] = {
        [IBV_PORT_NOP] = "no state change (NOP)",
        [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active",
        [IBV_PORT_ACTIVE_DEFER] = "active defer",
    };
    return TEXT(texts, state);
}

EXPORT const char* ibv_event_type_str(enum ibv_event_type type) {
    static const char* const texts[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
        [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated",
        [IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
        [IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_LID_CHANGE] = "LID change",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key change",
        [IBV_EVENT_SM_CHANGE] = "SM change",
        [IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
        [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
        [IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
        [IBV_EVENT_GID_CHANGE] = "GID table change",
        [IBV_EVENT_WQ_FATAL] = "WQ fatal",
    };
    return TEXT(texts, type);
}

/* ---- rates (InfiniBand's numbers; a software device has none) ---- */

static const struct {
    enum ibv_rate rate;
    int mult; /* of 2.5 Gbit/s; 0: not a multiple */
    int mbps;
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},     {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},    {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},  {IBV_RATE_14_GBPS, 0, 14062},
    {IBV_RATE_56_GBPS, 0, 56250},     {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},   {IBV_RATE_25_GBPS, 10, 25781},
    {IBV_RATE_100_GBPS, 40, 103125},  {IBV_RATE_200_GBPS, 80, 206250},
    {IBV_RATE_300_GBPS, 120, 309375}, {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},
};
#define RATES (sizeof rates / sizeof *rates)

EXPORT int ibv_rate_to_mult(enum ibv_rate rate) {
    size_t i;
    for (i = 0; i < RATES; i++) {
        if (rates[i].rate == rate && rates[i].mult != 0) return rates[i].mult;
    }
    return -1;
}

EXPORT enum ibv_rate mult_to_ibv_rate(int mult) {
    size_t i;
    for (i = 0; i < RATES; i++) {
        if (mult != 0 && rates[i].mult == mult) return rates[i].rate;
    }
    return IBV_RATE_MAX;
}

EXPORT int ibv_rate_to_mbps(enum ibv_rate rate) {
    size_t i;
    for (i = 0; i < RATES; i++) {
        if (rates[i].rate == rate) return rates[i].mbps;
    }
    return -1;
}

EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps) {
    size_t i;
    for (i = 0; i < RATES; i++) {
        if (rates[i].mbps == mbps) return rates[i].rate;
    }
    return IBV_RATE_MAX;
}

/* Since IBVERBS_1.16; `speed` in 100 Mbit/s: what active_speed and active_width say, 4x EDR. */
int ibv_query_port_speed(struct ibv_context* context, uint32_t port, uint64_t* speed);
EXPORT int ibv_query_port_speed(struct ibv_context* context, uint32_t port, uint64_t* speed) {
    struct ibv_port_attr attr;
    const int error = port > UINT8_MAX ? EINVAL
                                       : ibv_query_port(context, (uint8_t)port,
                                                        (struct _compat_ibv_port_attr*)&attr);

    if (error == 0) *speed = 1000;
    return error;
}

/* ---- what neither device has ---- */

static void* no_object(void) {
    errno = EOPNOTSUPP;
    return NULL;
}

EXPORT int ibv_attach_mcast(struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid) {
    (void)qp, (void)gid, (void)lid;
    return EOPNOTSUPP;
}
EXPORT int ibv_detach_mcast(struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid) {
    (void)qp, (void)gid, (void)lid;
    return EOPNOTSUPP;
}
EXPORT struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length,
                                        uint64_t iova, int fd, int access) {
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    return no_object();
}
EXPORT struct ibv_context* ibv_import_device(int cmd_fd) {
    (void)cmd_fd;
    return no_object();
}
EXPORT struct ibv_pd* ibv_import_pd(struct ibv_context* context, uint32_t handle) {
    (void)context, (void)handle;
    return no_object();
}
EXPORT void ibv_unimport_pd(struct ibv_pd* pd) { (void)pd; }
EXPORT struct ibv_mr* ibv_import_mr(struct ibv_pd* pd, uint32_t handle) {
    (void)pd, (void)handle;
    return no_object();
}
EXPORT void ibv_unimport_mr(struct ibv_mr* mr) { (void)mr; }
EXPORT struct ibv_dm* ibv_import_dm(struct ibv_context* context, uint32_t handle) {
    (void)context, (void)handle;
    return no_object();
}
EXPORT void ibv_unimport_dm(struct ibv_dm* dm) { (void)dm; }
EXPORT int ibv_set_ece(struct ibv_qp* qp, struct ibv_ece* ece) {
    (void)qp;
    return ece != NULL && ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}
EXPORT int ibv_query_ece(struct ibv_qp* qp, struct ibv_ece* ece) {
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context* context, struct ibv_ah_attr* attr,
                                       uint8_t mac[ETHERNET_LL_SIZE], uint16_t* vid) {
    (void)context, (void)attr, (void)mac, (void)vid;
    errno = EOPNOTSUPP;
    return -1;
}

/* ---- the kernel's side, which is not there ---- */

EXPORT const char* ibv_get_sysfs_path(void) { return "/sys"; }
/* Of the device that looks like RoCE there are files, by a preload. */
EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buffer, size_t size) {
    char path[512];
    ssize_t n;
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    n = read(fd, buffer, size);
    close(fd);
    if (n < 0) return -1;
    /* As rdma-core has it: a text, without the end of its line. */
    if (n > 0 && buffer[n - 1] == '\n') buffer[--n] = '\0';
    if ((size_t)n < size) {
        buffer[n] = '\0';
    } else if (n > 0) {
        buffer[n - 1] = '\0';
    }
    return (int)n;
}

/* The host's librdmacm, which rsockets are taken from, is linked to these and calls them only with
 * a kernel's answers in hand. */
EXPORT void ibv_copy_ah_attr_from_kern(void* to, void* from) { (void)to, (void)from; }
EXPORT void ibv_copy_qp_attr_from_kern(void* to, void* from) { (void)to, (void)from; }
EXPORT void ibv_copy_path_rec_from_kern(void* to, void* from) { (void)to, (void)from; }
EXPORT void ibv_copy_path_rec_to_kern(void* to, void* from) { (void)to, (void)from; }

/* Memory is not pinned, so a child's copies of it are its own: nothing to protect. */
EXPORT int ibv_dontfork_range(void* base, size_t size) {
    (void)base, (void)size;
    return 0;
}
EXPORT int ibv_dofork_range(void* base, size_t size) {
    (void)base, (void)size;
    return 0;
}
EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
