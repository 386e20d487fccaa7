// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/qp_state_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <sstream>
#include <string>

namespace xsock::verbs {
namespace {

const std::map<std::string, unsigned> kBits = {
    {"CUR", IBV_QP_CUR_STATE},
    {"NOTIFY", IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {"ACCESS", IBV_QP_ACCESS_FLAGS},
    {"PKEY", IBV_QP_PKEY_INDEX},
    {"PORT", IBV_QP_PORT},
    {"QKEY", IBV_QP_QKEY},
    {"AV", IBV_QP_AV},
    {"MTU", IBV_QP_PATH_MTU},
    {"TIMEOUT", IBV_QP_TIMEOUT},
    {"RETRY", IBV_QP_RETRY_CNT},
    {"RNR", IBV_QP_RNR_RETRY},
    {"RQ_PSN", IBV_QP_RQ_PSN},
    {"RD", IBV_QP_MAX_QP_RD_ATOMIC},
    {"ALT", IBV_QP_ALT_PATH},
    {"TIMER", IBV_QP_MIN_RNR_TIMER},
    {"SQ_PSN", IBV_QP_SQ_PSN},
    {"DEST_RD", IBV_QP_MAX_DEST_RD_ATOMIC},
    {"MIG", IBV_QP_PATH_MIG_STATE},
    {"QPN", IBV_QP_DEST_QPN},
};
constexpr unsigned kEveryBit = (1u << 21) - 1;

// Type, from, to; what is required; behind the bar what is allowed besides. The rules of the
// states that any QP may go to stand in expected() below.
constexpr const char* kTable = R"(
RC RESET INIT PKEY PORT ACCESS |
UC RESET INIT PKEY PORT ACCESS |
UD RESET INIT PKEY PORT QKEY |
RC INIT INIT | PKEY PORT ACCESS
UC INIT INIT | PKEY PORT ACCESS
UD INIT INIT | PKEY PORT QKEY
RC INIT RTR AV MTU QPN RQ_PSN DEST_RD TIMER | ALT ACCESS PKEY
UC INIT RTR AV MTU QPN RQ_PSN | ALT ACCESS PKEY
UD INIT RTR | PKEY QKEY
RC RTR RTS TIMEOUT RETRY RNR SQ_PSN RD | CUR ALT ACCESS TIMER MIG
UC RTR RTS SQ_PSN | CUR ALT ACCESS MIG
UD RTR RTS SQ_PSN | CUR QKEY
RC RTS RTS | CUR ACCESS ALT MIG TIMER
UC RTS RTS | CUR ACCESS ALT MIG
UD RTS RTS | CUR QKEY
RC RTS SQD | NOTIFY
UC RTS SQD | NOTIFY
UD RTS SQD | NOTIFY
RC SQD RTS | CUR ACCESS ALT MIG TIMER
UC SQD RTS | CUR ACCESS ALT MIG
UD SQD RTS | CUR QKEY
RC SQD SQD | PORT AV TIMEOUT RETRY RNR RD DEST_RD ALT ACCESS PKEY TIMER MIG
UC SQD SQD | AV ALT ACCESS PKEY MIG
UD SQD SQD | PKEY QKEY
UC SQE RTS | CUR ACCESS
UD SQE RTS | CUR QKEY
)";

constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
const std::map<std::string, ibv_qp_type> kTypeNames = {
    {"RC", IBV_QPT_RC}, {"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}};
const std::map<std::string, ibv_qp_state> kStateNames = {
    {"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS},
    {"SQD", IBV_QPS_SQD},     {"SQE", IBV_QPS_SQE},   {"ERR", IBV_QPS_ERR}};

struct Expected {
    bool possible = false;
    unsigned required = 0, allowed = 0;
};

Expected expected(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    if (to == IBV_QPS_RESET) return {true};
    if (to == IBV_QPS_ERR) return {from != IBV_QPS_RESET};
    std::istringstream table(kTable);
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string type_name, from_name, to_name;
        if (!(words >> type_name >> from_name >> to_name)) continue;
        if (kTypeNames.at(type_name) != type || kStateNames.at(from_name) != from ||
            kStateNames.at(to_name) != to) {
            continue;
        }
        Expected found{true};
        unsigned* side = &found.required;
        for (std::string word; words >> word;) {
            if (word == "|") {
                side = &found.allowed;
            } else {
                *side |= kBits.at(word);
            }
        }
        return found;
    }
    return {};
}

template <typename F>
void for_each_transition(F&& f) {
    for (const ibv_qp_type type : kTypes) {
        for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from) {
            for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; ++to) {
                f(type, static_cast<ibv_qp_state>(from), static_cast<ibv_qp_state>(to));
            }
        }
    }
}

TEST(QpStateTable, every_transition_needs_and_allows_what_the_kernel_says) {
    for_each_transition([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
        SCOPED_TRACE(std::to_string(type) + ": " + std::to_string(from) + " to " +
                     std::to_string(to));
        const Expected want = expected(type, from, to);
        const QpTransition found = qp_transition(type, from, to);
        EXPECT_EQ(found.possible, want.possible);
        EXPECT_EQ(found.required, want.required);
        EXPECT_EQ(found.allowed, want.allowed);
        EXPECT_EQ(permits_attributes(type, from, to, want.required | IBV_QP_STATE), want.possible);
        for (unsigned bit = 1; want.possible && bit <= kEveryBit; bit <<= 1) {
            if (bit == IBV_QP_STATE) continue;
            const bool needed = (want.required & bit) != 0, may = (want.allowed & bit) != 0;
            EXPECT_EQ(permits_attributes(type, from, to, want.required & ~bit), !needed) << bit;
            EXPECT_EQ(permits_attributes(type, from, to, want.required | bit), needed || may)
                << bit;
        }
    });
}

TEST(QpStateTable, masks_at_random_are_permitted_where_nothing_lacks_and_nothing_is_too_much) {
    std::mt19937 random(17);
    std::size_t permitted = 0;
    for_each_transition([&](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
        const Expected want = expected(type, from, to);
        for (int i = 0; i < 400; ++i) {
            unsigned mask = random() & kEveryBit;
            // Of masks at random none would be permitted: most are near one that is.
            if (i % 4 != 0) mask = (mask & want.allowed) | want.required;
            if (i % 4 == 2) mask ^= 1u << random() % 21;
            const bool may = want.possible && (mask & want.required) == want.required &&
                             (mask & ~(want.required | want.allowed | IBV_QP_STATE)) == 0;
            ASSERT_EQ(permits_attributes(type, from, to, mask), may)
                << type << ": " << from << " to " << to << ", " << mask;
            permitted += may ? 1 : 0;
        }
    });
    EXPECT_GT(permitted, 5000u);
}

TEST(QpStateTable, knows_three_kinds_of_queue_pairs_and_seven_states) {
    EXPECT_FALSE(qp_transition(IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_RESET).possible);
    EXPECT_FALSE(qp_transition(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET).possible);
    EXPECT_FALSE(qp_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_UNKNOWN).possible);
}

TEST(QpStateTable, only_states_behind_init_may_be_told) {
    EXPECT_TRUE(permits_attributes(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_CUR_STATE));
    EXPECT_FALSE(permits_attributes(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QP_CUR_STATE));
}

}  // namespace
}  // namespace xsock::verbs
