// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/qp_state_table.hpp"

#include <array>
#include <cstddef>

namespace xsock::verbs {
namespace {

constexpr unsigned kAccess = IBV_QP_ACCESS_FLAGS, kPkey = IBV_QP_PKEY_INDEX;
constexpr unsigned kPath = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

struct Attributes {
    unsigned required = 0, allowed = 0;
};
struct Row {
    ibv_qp_state from, to;
    Attributes rc, uc, ud;
};

constexpr unsigned kInit = kPkey | IBV_QP_PORT | kAccess;
constexpr unsigned kInitUd = kPkey | IBV_QP_PORT | IBV_QP_QKEY;
constexpr unsigned kWayRc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr unsigned kReadyRc = kWayRc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr unsigned kReadyToo = IBV_QP_ALT_PATH | kAccess | kPkey;
constexpr unsigned kSendRc =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
// While a queue pair sends.
constexpr unsigned kSendingRc = IBV_QP_CUR_STATE | kAccess | kPath | IBV_QP_MIN_RNR_TIMER;
constexpr unsigned kSendingUc = IBV_QP_CUR_STATE | kAccess | kPath;
constexpr unsigned kSendingUd = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr unsigned kDrainedRc = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                                IBV_QP_MAX_DEST_RD_ATOMIC | kPath | kAccess | kPkey |
                                IBV_QP_MIN_RNR_TIMER;
constexpr unsigned kDrainedUc = IBV_QP_AV | kPath | kAccess | kPkey;

constexpr Row kRows[] = {
    // from, to, {what RC requires, what it allows besides}, the same of UC, of UD
    {IBV_QPS_RESET, IBV_QPS_INIT, {kInit, 0}, {kInit, 0}, {kInitUd, 0}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {0, kInit}, {0, kInit}, {0, kInitUd}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {kReadyRc, kReadyToo},
     {kWayRc, kReadyToo},
     {0, kPkey | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {kSendRc, kSendingRc},
     {IBV_QP_SQ_PSN, kSendingUc},
     {IBV_QP_SQ_PSN, kSendingUd}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {0, kSendingRc}, {0, kSendingUc}, {0, kSendingUd}},
    {IBV_QPS_RTS,
     IBV_QPS_SQD,
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {0, kSendingRc}, {0, kSendingUc}, {0, kSendingUd}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {0, kDrainedRc}, {0, kDrainedUc}, {0, kPkey | IBV_QP_QKEY}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {}, {0, IBV_QP_CUR_STATE | kAccess}, {0, kSendingUd}},
};

constexpr bool is_state(ibv_qp_state state) noexcept {
    return state >= IBV_QPS_RESET && state <= IBV_QPS_ERR;
}

// Those in which a program may say that it knows which state it is.
constexpr bool may_be_told(ibv_qp_state state) noexcept {
    return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
}

}  // namespace

QpTransition qp_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept {
    const bool known = type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
    if (!known || !is_state(from) || !is_state(to)) return {};
    if (to == IBV_QPS_RESET) return {.possible = true};
    if (to == IBV_QPS_ERR) return {.possible = from != IBV_QPS_RESET};
    for (const Row& row : kRows) {
        if (row.from != from || row.to != to) continue;
        // What fails in the send queue of RC ends it.
        if (from == IBV_QPS_SQE && type == IBV_QPT_RC) return {};
        const Attributes& found = type == IBV_QPT_RC   ? row.rc
                                  : type == IBV_QPT_UC ? row.uc
                                                       : row.ud;
        return {.possible = true, .required = found.required, .allowed = found.allowed};
    }
    return {};
}

bool permits_attributes(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                        unsigned mask) noexcept {
    const QpTransition transition = qp_transition(type, from, to);
    if (!transition.possible) return false;
    if ((mask & IBV_QP_CUR_STATE) != 0 && !may_be_told(from)) return false;
    const unsigned given = mask & ~unsigned{IBV_QP_STATE};
    return (given & transition.required) == transition.required &&
           (given & ~(transition.required | transition.allowed)) == 0;
}

}  // namespace xsock::verbs
