/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device that looks like RoCE itself: its table of GIDs, what it has not, and memory that it
 * does not register.
 */
#include <sys/mman.h>

#include "tests/verbs/bare_ids.h"

/* An address that comes later is not in the table: programs keep indices. */
CASE(the_gid_table_is_made_once) {
    union ibv_gid before, after;
    struct ibv_port_attr port;
    int lengths[2];
    if (getenv("XSOCK_OWN_NETWORK") == NULL) return; /* of other programs */
    MUST(ibv_query_gid(device(), 1, 0, &before) == 0);
    MUST(ibv_query_port(device(), 1, &port) == 0);
    lengths[0] = port.gid_tbl_len;
    MUST(system("PATH=$PATH:/usr/sbin:/sbin; ip link add v0 type veth peer name v1 &&"
                " ip address add 198.18.9.1/24 dev v0 && ip link set v0 up &&"
                " ip link set v1 up") == 0);
    CHECK(ibv_query_gid(device(), 1, 0, &after) == 0);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    MUST(ibv_query_port(device(), 1, &port) == 0);
    lengths[1] = port.gid_tbl_len;
    CHECK(lengths[0] == lengths[1], "%d, %d before", lengths[1], lengths[0]);
}

/* A port without subnet manager, switches and memory of its own. */
CASE(what_there_is_not_is_refused) {
    struct bare client = make_client("127.0.0.1", 1);
    struct ibv_alloc_dm_attr memory_of_device = {.length = 4096};
    struct ibv_flow_attr flow = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .port = 1};
    struct ibv_xrcd_init_attr domain = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
    const union ibv_gid group = {.raw = {0xff, 0x0e}};
    CHECK(ibv_attach_mcast(client.qp, &group, 0) == EOPNOTSUPP);
    CHECK(ibv_detach_mcast(client.qp, &group, 0) == EOPNOTSUPP);
    CHECK(rdma_join_multicast(client.id, at("239.1.1.1", 0), NULL) == -1 && errno == EOPNOTSUPP,
          "%d", errno);
    errno = 0;
    CHECK(ibv_alloc_dm(device(), &memory_of_device) == NULL && errno == EOPNOTSUPP, "%d", errno);
    errno = 0;
    CHECK(ibv_create_flow(client.qp, &flow) == NULL && errno == EOPNOTSUPP, "%d", errno);
    errno = 0;
    CHECK(ibv_open_xrcd(device(), &domain) == NULL && errno == EOPNOTSUPP, "%d", errno);
    free_bare(&client);
}

/* Pages: nothing, three that are there, nothing. */
CASE(memory_that_is_not_there_is_not_registered) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ibv_pd* const domain = ibv_alloc_pd(device());
    char* const at = mmap(NULL, 5 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char* const there = at + page;
    struct ibv_mr* mr;
    MUST(at != MAP_FAILED && domain != NULL);
    MUST(mprotect(there, 3 * page, PROT_READ | PROT_WRITE) == 0);
    errno = 0;
    CHECK(ibv_reg_mr(domain, NULL, 8, ALL_ACCESS) == NULL && errno == EFAULT);
    for (int unmapped = 0; unmapped < 2; ++unmapped) {
        errno = 0;
        CHECK(ibv_reg_mr(domain, there - 1, page, ALL_ACCESS) == NULL && errno == EFAULT);
        errno = 0;
        CHECK(ibv_reg_mr(domain, there, 3 * page + 1, ALL_ACCESS) == NULL && errno == EFAULT);
        errno = 0;
        CHECK(ibv_reg_mr(domain, at, 1, IBV_ACCESS_REMOTE_READ) == NULL && errno == EFAULT);
        MUST((mr = ibv_reg_mr(domain, there, 3 * page, ALL_ACCESS)) != NULL);
        errno = 0;
        CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, there + 1, 3 * page, 0) ==
                  IBV_REREG_MR_ERR_INPUT &&
              errno == EFAULT);
        CHECK(mr->addr == there && mr->length == 3 * page);
        CHECK(ibv_dereg_mr(mr) == 0);
        MUST((mr = ibv_reg_mr(domain, there + 3 * page - 1, 1, ALL_ACCESS)) != NULL);
        CHECK(ibv_dereg_mr(mr) == 0);
        MUST(munmap(at, page) == 0 && munmap(there + 3 * page, page) == 0);
    }
    /* To be read only. */
    MUST(mprotect(there, 3 * page, PROT_READ) == 0);
    MUST((mr = ibv_reg_mr(domain, there, 3 * page, IBV_ACCESS_REMOTE_READ)) != NULL);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(domain) == 0);
    munmap(there, 3 * page);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
