// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which attributes a queue pair needs, and may be given, with each change of its state: what Linux
// checks for every RDMA device but iWARP's (drivers/infiniband/core/verbs.c, qp_state_table;
// InfiniBand volume 1, §11.2.5.2). Pure; any thread.
#pragma once

#include <infiniband/verbs.h>

namespace xsock::verbs {

struct QpTransition {
    bool possible = false;
    unsigned required = 0;  ///< of ibv_qp_attr_mask, IBV_QP_STATE apart
    unsigned allowed = 0;   ///< besides those
};

/// Of RC, UC and UD; other kinds of queue pairs make no transition.
[[nodiscard]] QpTransition qp_transition(ibv_qp_type type, ibv_qp_state from,
                                         ibv_qp_state to) noexcept;

/// May a queue pair of this kind go from one state to the other (the same one: without
/// IBV_QP_STATE, or with it) with the attributes that `mask` names?
[[nodiscard]] bool permits_attributes(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                      unsigned mask) noexcept;

}  // namespace xsock::verbs
