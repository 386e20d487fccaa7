// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Octets that lie in TCP's queue and cannot be read (memory of a device): nothing counts as placed
// that was not, and the reader is told.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/fpdus.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"

namespace xsock {
namespace {

using test::ModuleModel;

/// A Send that has been read, then one FPDU of which a part is hidden.
class Unreadable : public ::testing::Test {
  protected:
    void begin(const std::vector<std::byte>& ulpdu, bool crc) {
        test::append_fpdu(stream, test::send_ulpdu(1, 4));
        from = stream.size();
        test::append_fpdu(stream, ulpdu);
        to = stream.size();
        test::append_fpdu(stream, test::send_ulpdu(2, 4));
        module =
            std::make_unique<ModuleModel>(stream, region, sink, ModuleModel::Options{.crc = crc});
        module->arrive(0, from);
        ASSERT_FALSE(module->recv(false).empty());
        told = module->rx().count;
    }
    void expect_the_end() {
        EXPECT_TRUE(module->unreadable());
        EXPECT_EQ(module->rx().pos, from) << "it is not consumed";
        EXPECT_EQ(module->rx().count.placed_fpdus, told.placed_fpdus);
        EXPECT_EQ(module->rx().count.raw_octets, told.raw_octets);
        EXPECT_TRUE(module->recv(true).empty());
        EXPECT_EQ(module->faults(), 0);
    }

    std::vector<std::byte> stream, region = std::vector<std::byte>(4096),
                                   sink = std::vector<std::byte>(4096);
    std::uint64_t from = 0, to = 0;
    ddp_rx_count told{};
    std::unique_ptr<ModuleModel> module;
};

TEST_F(Unreadable, a_header_is_not_waited_for) {
    begin(test::write_ulpdu(ModuleModel::kStag, 0, 100), true);
    module->hide(from, from + 16);
    module->arrive(from, stream.size());
    expect_the_end();
}

TEST_F(Unreadable, payload_of_a_write_with_crc) {
    begin(test::write_ulpdu(ModuleModel::kStag, 0, 100), true);
    module->hide(from + 50, to);
    module->arrive(from, stream.size());
    expect_the_end();
}

TEST_F(Unreadable, payload_of_a_write_without_crc_does_not_count_as_placed) {
    begin(test::write_ulpdu(ModuleModel::kStag, 0, 100), false);
    module->hide(from + 50, to);
    module->arrive(from, stream.size());
    expect_the_end();
}

TEST_F(Unreadable, the_last_octets_of_a_write_when_it_is_read) {
    begin(test::write_ulpdu(0x9999, 0, 100), false);
    module->hide(to - 8, to);
    module->arrive(from, stream.size());
    EXPECT_TRUE(module->recv(false).empty());
    expect_the_end();
}

TEST_F(Unreadable, payload_of_a_read_response_does_not_count_as_placed) {
    std::vector<std::byte> ulpdu = test::write_ulpdu(ModuleModel::kSinkStag, 0, 100);
    ulpdu[1] |= std::byte{RDMAP_READ_RESPONSE};
    begin(ulpdu, false);
    module->hide(from + 50, to);
    module->arrive(from, stream.size());
    EXPECT_TRUE(module->recv(false).empty()) << "nothing tells of it";
    expect_the_end();
}

TEST_F(Unreadable, behind_a_hole_it_is_no_placement_either) {
    begin(test::write_ulpdu(ModuleModel::kStag, 0, 100), true);
    const std::uint64_t behind = stream.size();
    test::append_fpdu(stream, test::write_ulpdu(ModuleModel::kStag, 1000, 100));
    module->hide(behind + 50, stream.size());
    module->arrive(behind, stream.size());
    EXPECT_EQ(module->ahead_count().fpdus, 0u);
    EXPECT_FALSE(module->unreadable()) << "what leads may be read";
    module->arrive(from, behind);
    while (!module->recv(true).empty()) {
    }
    EXPECT_TRUE(module->unreadable());
    EXPECT_EQ(module->rx().pos, behind);
    EXPECT_EQ(module->faults(), 0);
}

}  // namespace
}  // namespace xsock
