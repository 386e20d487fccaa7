/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connections that rdma_cm makes on the device that looks like RoCE: what is sent completes when
 * the peer has it, as on InfiniBand.
 */
#include "tests/verbs/pair.h"

static struct pair p;

/* Where it completes by itself, it has succeeded. */
CASE(a_write_that_is_refused_completes_with_the_error) {
    connect_pair(&p);
    MUST(post_numbered(p.a->qp, 7, IBV_WR_RDMA_WRITE, p.data_a, 64, p.mr_a->lkey, IBV_SEND_SIGNALED,
                       (uint64_t)(uintptr_t)p.data_b, p.mr_b->rkey + 0x1000) == 0);
    const struct ibv_wc wc = next(p.a->send_cq);
    CHECK(wc.wr_id == 7 && wc.status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(wc.status));
    disconnect_pair(&p);
}
CASE(a_write_that_has_completed_is_there) {
    connect_pair(&p);
    for (int i = 1; i < 200; ++i) {
        memset(p.data_a, i, sizeof p.data_a);
        MUST(post_numbered(p.a->qp, (uint64_t)i, IBV_WR_RDMA_WRITE, p.data_a, sizeof p.data_a,
                           p.mr_a->lkey, IBV_SEND_SIGNALED, (uint64_t)(uintptr_t)p.data_b,
                           p.mr_b->rkey) == 0);
        const struct ibv_wc wc = next(p.a->send_cq);
        CHECK(wc.wr_id == (uint64_t)i && wc.status == IBV_WC_SUCCESS);
        CHECK(p.data_b[0] == (char)i && p.data_b[sizeof p.data_b - 1] == (char)i, "%d", i);
    }
    disconnect_pair(&p);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
