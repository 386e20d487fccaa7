// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/opcode.hpp"

#include <gtest/gtest.h>

#include "include/xsock/iwarp.h"

namespace xsock::ddp {
namespace {

TEST(Opcode, table_is_indexed_by_opcode) {
    for (std::uint8_t opcode = 0; opcode <= RDMAP_ACKNOWLEDGE; ++opcode) {
        EXPECT_EQ(opcode_info(opcode)->opcode, opcode);
    }
    EXPECT_EQ(opcode_info(RDMAP_ACKNOWLEDGE + 1), nullptr);
    EXPECT_EQ(opcode_info(MPA_EXTENSION_OPCODE), nullptr);
}

TEST(Opcode, those_of_no_rfc_need_their_feature) {
    for (std::uint8_t opcode = 0; opcode < 16; ++opcode) {
        EXPECT_EQ(opcode_info(opcode, 0) != nullptr, opcode <= RDMAP_ATOMIC_RESPONSE) << +opcode;
    }
    for (const unsigned each : {RDMAP_SEND_IMMEDIATE, RDMAP_SEND_SE_IMMEDIATE}) {
        const auto opcode = static_cast<std::uint8_t>(each);
        EXPECT_NE(opcode_info(opcode, MPA_FEATURE_SEND_IMMEDIATE), nullptr);
        EXPECT_EQ(opcode_info(opcode, ~std::uint64_t{MPA_FEATURE_SEND_IMMEDIATE}), nullptr);
    }
    EXPECT_NE(opcode_info(RDMAP_ACKNOWLEDGE, MPA_FEATURE_ACKNOWLEDGE), nullptr);
    EXPECT_EQ(opcode_info(RDMAP_ACKNOWLEDGE, ~std::uint64_t{MPA_FEATURE_ACKNOWLEDGE}), nullptr);
    EXPECT_TRUE(queue_known(DDP_QN_ACKNOWLEDGE, MPA_FEATURE_ACKNOWLEDGE));
    EXPECT_FALSE(queue_known(DDP_QN_ACKNOWLEDGE, MPA_FEATURE_SEND_IMMEDIATE));
}

TEST(Opcode, queues_are_those_of_rfc5040_and_rfc7306) {
    EXPECT_TRUE(queue_known(DDP_QN_SEND));
    EXPECT_TRUE(queue_known(DDP_QN_READ_REQUEST));
    EXPECT_TRUE(queue_known(DDP_QN_TERMINATE));
    EXPECT_TRUE(queue_known(DDP_QN_ATOMIC_RESPONSE));
    EXPECT_FALSE(queue_known(4, 0));
    EXPECT_FALSE(queue_known(5));
    EXPECT_FALSE(queue_known(31));
    EXPECT_FALSE(queue_known(32));
    EXPECT_FALSE(queue_known(0xffffffff));
}

TEST(Opcode, sends_differ_in_event_and_invalidation) {
    EXPECT_FALSE(opcode_info(RDMAP_SEND)->solicited || opcode_info(RDMAP_SEND)->invalidates);
    EXPECT_TRUE(opcode_info(RDMAP_SEND_SE)->solicited);
    EXPECT_FALSE(opcode_info(RDMAP_SEND_SE)->invalidates);
    EXPECT_TRUE(opcode_info(RDMAP_SEND_INVALIDATE)->invalidates);
    EXPECT_FALSE(opcode_info(RDMAP_SEND_INVALIDATE)->solicited);
    EXPECT_TRUE(opcode_info(RDMAP_SEND_SE_INVALIDATE)->invalidates);
    EXPECT_TRUE(opcode_info(RDMAP_SEND_SE_INVALIDATE)->solicited);
}

TEST(Opcode, a_send_with_immediate_invalidates_nothing) {
    for (std::uint8_t opcode = 0; opcode <= RDMAP_ACKNOWLEDGE; ++opcode) {
        const OpcodeInfo& row = *opcode_info(opcode);
        EXPECT_EQ(row.immediate,
                  opcode == RDMAP_SEND_IMMEDIATE || opcode == RDMAP_SEND_SE_IMMEDIATE);
        EXPECT_FALSE(row.immediate && row.invalidates);
    }
    EXPECT_FALSE(opcode_info(RDMAP_SEND_IMMEDIATE)->solicited);
    EXPECT_TRUE(opcode_info(RDMAP_SEND_SE_IMMEDIATE)->solicited);
}

TEST(Opcode, what_a_peer_takes_is_what_start_up_has_told) {
    const auto refuses = [](const Negotiated& peer, SendOpcode opcode) {
        EXPECT_EQ(is_refused(refused_requests(peer), opcode), !may_send(opcode, peer));
        return !may_send(opcode, peer);
    };
    const Negotiated standard, older{.peer_is_xsock = true},
        newer{.peer_is_xsock = true, .features = MPA_FEATURE_SEND_IMMEDIATE};
    for (std::size_t i = 0; i < kSendTable.size(); ++i) {
        const auto opcode = static_cast<SendOpcode>(i);
        const bool with_immediate = opcode == SendOpcode::send_immediate;
        EXPECT_EQ(refuses(standard, opcode), is_extension(opcode) || with_immediate) << i;
        EXPECT_EQ(refuses(older, opcode), with_immediate) << i;
        EXPECT_FALSE(refuses(newer, opcode)) << i;
    }
}

}  // namespace
}  // namespace xsock::ddp
