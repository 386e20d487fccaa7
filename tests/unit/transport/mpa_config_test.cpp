// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/mpa_config.hpp"

#include <gtest/gtest.h>

#include <string>

#include "include/xsock/iwarp.h"
#include "include/xsock/xsock.h"
#include "transport/loss_recovery.hpp"

namespace xsock {
namespace {

TEST(OwnImplementation, names_xsock_and_its_version) {
    const Implementation own = own_implementation({});
    EXPECT_STREQ(own.name.data(), "xsock");
    EXPECT_EQ(std::string(own.version.data()), std::to_string(XSOCK_VERSION_MAJOR) + "." +
                                                   std::to_string(XSOCK_VERSION_MINOR) + "." +
                                                   std::to_string(XSOCK_VERSION_PATCH));
}

TEST(OwnImplementation, announces_what_each_layer_serves) {
    const std::uint64_t features = own_implementation({}).features;
    EXPECT_EQ(features & ~std::uint64_t{MPA_FEATURE_DELAYED_ACK},
              MPA_FEATURE_SEND_IMMEDIATE | MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR);
}

TEST(OwnImplementation, tells_the_longest_delay_of_acks_where_the_kernel_can_limit_it) {
    const unsigned limit = shortest_delayed_ack_ms();
    TransportConfig settings;
    const Implementation own = own_implementation(settings);
    EXPECT_EQ(own.delayed_ack_ms, limit);
    EXPECT_EQ((own.features & MPA_FEATURE_DELAYED_ACK) != 0, limit != 0);
    settings.short_rto = false;
    EXPECT_EQ(own_implementation(settings).features & MPA_FEATURE_DELAYED_ACK, 0u);
    EXPECT_EQ(own_implementation(settings).delayed_ack_ms, 0u);
}

TEST(MpaConfig, sends_extension_frames_unless_told_otherwise) {
    for (const bool wanted : {true, false}) {
        for (const bool allowed : {true, false}) {
            ConnectAttr attr;
            TransportConfig settings;
            attr.extensions = wanted;
            settings.extensions = allowed;
            const mpa::Config config = mpa_config(attr, mpa::Role::initiator, settings);
            EXPECT_EQ(config.startup.extensions, wanted && allowed);
            EXPECT_EQ(config.startup.extension_tlvs.empty(), !(wanted && allowed));
        }
    }
}

TEST(MpaConfig, a_responder_takes_each_rtr_message_unless_it_names_some) {
    const auto rtr = [](std::uint8_t mask, mpa::Role role) {
        ConnectAttr attr;
        attr.rtr = mask;
        return mpa_config(attr, role, {}).startup.rtr;
    };
    EXPECT_EQ(rtr(0, mpa::Role::initiator), 0);
    EXPECT_EQ(rtr(0, mpa::Role::responder), 7);
    EXPECT_EQ(rtr(mpa::kRtrRead, mpa::Role::responder), mpa::kRtrRead);
}

TEST(MpaConfig, a_connection_limits_its_fpdus_ahead_of_the_process) {
    const auto mulpdu = [](std::uint32_t of_connection, std::uint32_t of_process) {
        ConnectAttr attr;
        TransportConfig settings;
        attr.fpdu_limit = of_connection;
        settings.fpdu_limit = of_process;
        return mpa_config(attr, mpa::Role::initiator, settings).mulpdu_limit;
    };
    EXPECT_EQ(mulpdu(0, 0), mpa::Config{}.mulpdu_limit);
    EXPECT_EQ(mulpdu(0, 500), 500u);
    EXPECT_EQ(mulpdu(700, 500), 700u);
    EXPECT_EQ(mulpdu(1, 500), 128u);
}

}  // namespace
}  // namespace xsock
