// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_choice.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

namespace xsock {
namespace {

using shm::Reason;

TransportConfig process(ShmMode mode, bool extensions = true) {
    TransportConfig config;
    config.shm = mode;
    config.extensions = extensions;
    return config;
}

ConnectAttr connection(ShmMode mode, bool extensions = true) {
    ConnectAttr attr;
    attr.shm = mode;
    attr.extensions = extensions;
    return attr;
}

Reason why_not(const ConnectAttr& attr, ShmMode of_process = ShmMode::automatic) {
    auto choice = shm_choice(attr, process(of_process));
    return choice ? choice->why_not : Reason::kCount;
}

bool required(ShmMode of_connection, ShmMode of_process) {
    return shm_choice(connection(of_connection), process(of_process))->required;
}

TEST(ShmChoice, a_connection_chooses_ahead_of_the_process) {
    EXPECT_EQ(why_not({}, ShmMode::off), Reason::off);
    EXPECT_EQ(why_not({}, ShmMode::automatic), Reason::none);
    EXPECT_EQ(why_not(connection(ShmMode::off), ShmMode::require), Reason::off);
    EXPECT_EQ(why_not(connection(ShmMode::automatic), ShmMode::off), Reason::none);
    EXPECT_FALSE(required(ShmMode::automatic, ShmMode::require));
    EXPECT_FALSE(required(ShmMode::usual, ShmMode::automatic));
    EXPECT_TRUE(required(ShmMode::require, ShmMode::off));
    EXPECT_TRUE(required(ShmMode::usual, ShmMode::require));
    EXPECT_EQ(shm_choice({}, {})->why_not, Reason::off) << "the default";
}

TEST(ShmChoice, says_what_is_known_before_the_peer_is) {
    ConnectAttr attr;
    attr.markers = true;
    EXPECT_EQ(why_not(attr), Reason::markers);
    attr = {};
    attr.xsock_mark = false;
    EXPECT_EQ(why_not(attr), Reason::extensions_off);
    EXPECT_EQ(why_not(connection(ShmMode::usual, false)), Reason::extensions_off);
    setenv("XSOCK_PCAP", "/nowhere", 1);
    EXPECT_EQ(why_not({}), Reason::capture);
    EXPECT_EQ(why_not({}, ShmMode::off), Reason::off);
    unsetenv("XSOCK_PCAP");
}

TEST(ShmChoice, to_require_it_without_extension_frames_is_an_error) {
    const auto error = [](const ConnectAttr& attr, const TransportConfig& settings) {
        auto choice = shm_choice(attr, settings);
        return choice ? 0 : choice.error().code;
    };
    EXPECT_EQ(error({}, process(ShmMode::require, false)), EINVAL);
    EXPECT_EQ(error(connection(ShmMode::require, false), {}), EINVAL);
    EXPECT_EQ(error({}, process(ShmMode::automatic, false)), 0);
    EXPECT_EQ(error(connection(ShmMode::off), process(ShmMode::require, false)), 0);
}

TEST(ShmChoice, leaves_the_data_to_the_kernel_module_where_that_is_required) {
    TransportConfig settings = process(ShmMode::automatic);
    settings.kernel = KernelMode::automatic;
    EXPECT_EQ(shm_choice({}, settings)->why_not, Reason::none) << "memory goes before the module";
    settings.kernel = KernelMode::require;
    EXPECT_EQ(shm_choice({}, settings)->why_not, Reason::kernel);
    ConnectAttr attr;
    attr.kernel = KernelMode::off;
    EXPECT_EQ(shm_choice(attr, settings)->why_not, Reason::none);
    const auto both = shm_choice(connection(ShmMode::require), settings);
    ASSERT_FALSE(both);
    EXPECT_EQ(both.error().code, EINVAL);
}

}  // namespace
}  // namespace xsock
