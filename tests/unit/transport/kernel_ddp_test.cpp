// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engine above a kernel module: one in user space stands in its place, so that every call of
// the module, and every record, is the test's.
#include "transport/kernel_ddp.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "include/xsock/iwarp.h"
#include "mpa/extension_frame.hpp"
#include "tests/support/fpdus.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/transport/fake_kernel.hpp"
#include "transport/clock.hpp"

namespace xsock {
namespace {

using test::FakeModule;
using test::KernelDdpTest;
using test::soon;

TEST_F(KernelDdpTest, writes_are_placed_by_the_module_once_the_first_has_come_up) {
    make();
    ASSERT_TRUE(start());
    EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::none);
    std::vector<std::byte> memory(300'000), data(200'000, std::byte{0x5a});
    const std::uint32_t stag = region(memory);
    EXPECT_EQ(module.held(), 0u) << "registering pins nothing";
    write(stag, 10, data);
    sync();
    ASSERT_TRUE(wait([&] { return module.held() == 1; }));
    std::fill(data.begin(), data.end(), std::byte{0x6b});
    for (int i = 0; i < 20; ++i) {
        data[5] = static_cast<std::byte>(i);
        write(stag, 20, data);
        sync();
        ASSERT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 20)) << i;
    }
    EXPECT_GT(module.placed(), 0u);
    EXPECT_EQ(qp[1]->info().rx_writes, 21u);
    EXPECT_EQ(qp[1]->info().rx_bytes, qp[0]->info().tx_bytes);

    ASSERT_TRUE(device[1]->deregister_memory(stag));
    EXPECT_EQ(module.held(), 0u);
    EXPECT_EQ(module.released.size(), 1u);
}

// The peer's first FPDU comes with the frame that ends start-up: it is the module's to read.
TEST_F(KernelDdpTest, the_first_fpdu_may_come_with_the_end_of_start_up) {
    make(KernelMode::require);
    test::LoopbackListener listener;
    const int peer = listener.dial();
    ConnectAttr attr;
    attr.role = ConnectAttr::Role::responder;
    ASSERT_TRUE(qp[1]->connect(listener.accept(), attr));
    std::byte into[3]{};
    const Sge sge{into, sizeof into, kLkeyNone};
    ASSERT_TRUE(qp[1]->post_recv({.sges = {&sge, 1}}));

    mpa_frame frame{};
    std::memcpy(frame.key, MPA_KEY_REQUEST, sizeof frame.key);
    frame.flags = MPA_FLAG_CRC | MPA_FLAG_XSOCK_REQUEST | MPA_FLAG_EXTENSIONS;
    frame.revision = MPA_REVISION_1;
    ASSERT_EQ(::send(peer, &frame, sizeof frame, 0), ssize_t{sizeof frame});
    ASSERT_EQ(::recv(peer, &frame, sizeof frame, MSG_WAITALL), ssize_t{sizeof frame});
    EXPECT_NE(frame.flags & MPA_FLAG_EXTENSIONS, 0);
    std::vector<std::byte> octets;
    mpa::append_extension_frame(octets, {});
    std::vector<std::byte> ulpdu = test::send_ulpdu(1, sizeof into);
    ulpdu.back() = std::byte{'c'};
    test::append_fpdu(octets, ulpdu);
    ASSERT_EQ(::send(peer, octets.data(), octets.size(), 0), static_cast<ssize_t>(octets.size()));

    qp[1]->wait_started(soon());
    EXPECT_EQ(qp[1]->state(), QpState::established) << qp[1]->info().error_text;
    Wc wc;
    EXPECT_TRUE(wait([&] { return into[2] != std::byte{} || cq[1]->poll({&wc, 1}) != 0; }));
    EXPECT_EQ(into[2], std::byte{'c'});
    ::close(peer);
}

class KernelDdpQuietTest : public KernelDdpTest {
  protected:
    ~KernelDdpQuietTest() override { end_all(); }  // the second Write may still be sent

    /// Two Writes, of which the second wakes nobody.
    void place_quietly() {
        make();
        ASSERT_TRUE(start());
        const std::uint32_t stag = pinned_region(memory_, data_);
        module.set_quiet(true);
        write(stag, 50, data_);
        ASSERT_TRUE(wait([&] { return module.placed() == 1; }));
    }

  private:
    std::vector<std::byte> memory_ = std::vector<std::byte>(300);
    std::vector<std::byte> data_ = std::vector<std::byte>(200, std::byte{0x5a});
};

// The module wakes nobody for Writes: ibv_get_cq_event(), which waits for a peer's credit, asks.
TEST_F(KernelDdpQuietTest, writes_that_woke_nobody_are_counted_when_somebody_asks) {
    ASSERT_NO_FATAL_FAILURE(place_quietly());
    EXPECT_EQ(qp[1]->info().rx_writes, 1u);
    module.set_quiet(false);
    EXPECT_EQ(qp[1]->info().rx_writes, 2u);
    EXPECT_EQ(qp[1]->info().rx_bytes, qp[0]->info().tx_bytes);
}

TEST_F(KernelDdpTest, what_was_placed_early_is_told_also_behind_the_end) {
    make();
    ASSERT_TRUE(start());
    EXPECT_TRUE(qp[1]->info().kernel_places);
    EXPECT_EQ(qp[1]->info().placed_early, 0u);
    const auto place = [&](std::uint64_t bytes) {
        const std::lock_guard lock(module.mutex);
        module.ahead_octets = bytes;
    };
    place(4711);
    EXPECT_EQ(qp[1]->info().placed_early, 4711u);
    qp[0]->abort();
    qp[1]->wait_ended(soon());
    place(5000);  // of another socket, which has the number now
    EXPECT_TRUE(qp[1]->info().kernel_places);
    EXPECT_EQ(qp[1]->info().placed_early, 4711u);
    EXPECT_FALSE(qp[0]->info().kernel_places);
}

// Writes wake no thread: the connection asks once a second.
TEST_F(KernelDdpQuietTest, writes_that_woke_nobody_are_asked_for_soon) {
    ASSERT_NO_FATAL_FAILURE(place_quietly());
    const auto told = [&] {
        const std::lock_guard lock(module.mutex);
        module.quiet = false;
        return module.untold.empty();
    };
    const Time begin = monotonic_now();
    EXPECT_TRUE(wait(told)) << "none asked again";
    EXPECT_LT(monotonic_now() - begin, 10 * kSecond);
}

TEST_F(KernelDdpTest, order_is_kept_for_verbs_and_not_for_endpoints) {
    for (const Api api : {Api::endpoint, Api::verbs}) {
        make(KernelMode::automatic, api);
        ASSERT_TRUE(start());
        const bool in_order = (module.last_bind.flags & DDP_BIND_IN_ORDER) != 0;
        EXPECT_EQ(in_order, api == Api::verbs);
        EXPECT_NE(module.last_bind.flags & DDP_BIND_CRC, 0u);
    }
}

TEST_F(KernelDdpTest, rights_reach_the_module_before_the_call_returns) {
    make();
    ASSERT_TRUE(start());
    const int socket = module.last_bind.socket;
    EXPECT_EQ(module.rights[socket], unsigned{DDP_RIGHT_WRITE | DDP_RIGHT_ATOMIC});
    qp[1]->set_rights(kRemoteRead);
    EXPECT_EQ(module.rights[socket], 0u);
}

// ibv_modify_qp() may take a right away and give it back.
TEST_F(KernelDdpTest, rights_that_were_taken_away_come_back) {
    make();
    ASSERT_TRUE(start());
    std::vector<std::byte> memory(300), data(200, std::byte{0x5a});
    const std::uint32_t stag = pinned_region(memory, data);
    qp[1]->set_rights(0);
    EXPECT_EQ(module.rights[module.last_bind.socket], 0u);
    qp[1]->set_rights(kRemoteWrite);
    EXPECT_EQ(module.rights[module.last_bind.socket], unsigned{DDP_RIGHT_WRITE});
    write(stag, 20, data);
    sync();
    EXPECT_EQ(module.placed(), 1u);
    {
        const std::lock_guard lock(module.mutex);
        module.ahead_octets = 4711;
    }
    EXPECT_EQ(qp[1]->info().placed_early, 4711u) << "what it places is still asked for";
    // Behind the end nothing comes back.
    qp[1]->detach();
    qp[1]->set_rights(kRemoteWrite);
    EXPECT_EQ(module.rights[module.last_bind.socket], 0u);
}

TEST_F(KernelDdpTest, a_detached_connection_has_nothing_placed) {
    make();
    ASSERT_TRUE(start());
    const int socket = module.last_bind.socket;
    qp[1]->detach();
    const std::lock_guard lock(module.mutex);
    EXPECT_EQ(module.rights[socket], 0u);
}

TEST_F(KernelDdpTest, a_terminate_ends_placement) {
    make();
    ASSERT_TRUE(start());
    const int socket = module.last_bind.socket;
    std::vector<std::byte> data(100);
    write(0x1234, 0, data);  // no such region
    qp[1]->wait_ended(soon());
    EXPECT_EQ(qp[1]->info().stream_error, StreamError::tagged_stag_invalid);
    const std::lock_guard lock(module.mutex);
    EXPECT_EQ(module.rights[socket], 0u);
}

// Each row: what is in the way, and what is said of it.
TEST_F(KernelDdpTest, any_obstacle_is_user_level_with_a_reason) {
    struct {
        int FakeModule::*where;
        int error;
        kernel::Reason reason;
    } const rows[] = {{&FakeModule::open_error, ENOENT, kernel::Reason::absent},
                      {&FakeModule::open_error, EACCES, kernel::Reason::denied},
                      {&FakeModule::attach_error, ENOENT, kernel::Reason::absent},
                      {&FakeModule::attach_error, EBUSY, kernel::Reason::socket},
                      {&FakeModule::bind_error, ENOSPC, kernel::Reason::socket}};
    for (const auto& row : rows) {
        module.open_error = module.attach_error = module.bind_error = 0;
        module.*row.where = row.error;
        make();
        ASSERT_TRUE(start());
        EXPECT_EQ(qp[1]->info().kernel_reason, row.reason) << row.error;
        std::vector<std::byte> memory(300), data(200, std::byte{0x5a});
        write(region(memory), 10, data);
        sync();
        EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 10));
    }
}

TEST_F(KernelDdpTest, a_module_of_another_abi_is_not_used) {
    for (const std::uint32_t abi : {1u, DDP_ABI - 1u, DDP_ABI + 1u}) {
        module.abi = abi;
        make();
        ASSERT_TRUE(start());
        EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::abi) << abi;
        EXPECT_FALSE(qp[1]->info().kernel_places);
    }
    make(KernelMode::require);
    const auto started = start();
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, EPROTO);
}

TEST_F(KernelDdpTest, without_crc_a_module_that_needs_one_is_not_used) {
    make();
    ASSERT_TRUE(start(/*crc=*/false));
    EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::abi);
}

TEST_F(KernelDdpTest, what_is_required_fails_with_the_errno) {
    module.open_error = EACCES;
    make(KernelMode::require);
    const auto started = start();
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, EACCES);
}

TEST_F(KernelDdpTest, what_is_required_and_refused_by_the_socket_ends_the_connection) {
    module.bind_error = EBUSY;
    make(KernelMode::require);
    ASSERT_TRUE(start());
    EXPECT_EQ(qp[1]->state(), QpState::error);
    EXPECT_EQ(qp[1]->info().error, EOPNOTSUPP);
    EXPECT_NE(qp[1]->info().error_text.find("kernel module is required"), std::string::npos);
}

TEST_F(KernelDdpTest, what_is_required_pins_when_it_is_registered_or_fails) {
    make(KernelMode::require);
    std::vector<std::byte> memory(3000);
    region(memory);
    EXPECT_EQ(module.held(), 1u);
    module.region_error = ENOMEM;
    const auto refused = device[1]->register_memory(
        {.address = memory.data(), .length = 100, .access = kLocalWrite | kRemoteWrite, .pd = 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOMEM);
    // What peers do not write is no business of the module.
    EXPECT_TRUE(device[1]->register_memory({.address = memory.data(), .length = 100, .pd = 1}));
}

TEST_F(KernelDdpTest, a_region_that_cannot_be_pinned_is_served_at_user_level) {
    module.region_error = ENOMEM;
    make();
    ASSERT_TRUE(start());
    std::vector<std::byte> memory(300), data(200, std::byte{0x5a});
    const std::uint32_t stag = region(memory);
    for (int i = 0; i < 5; ++i) {
        data[0] = static_cast<std::byte>(i);
        write(stag, 10, data);
        sync();
        EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 10));
    }
    EXPECT_EQ(module.placed(), 0u);
    EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::none) << "of the connection";
}

TEST_F(KernelDdpTest, off_asks_nothing) {
    make(KernelMode::off);
    ASSERT_TRUE(start());
    EXPECT_EQ(module.opens, 0);
    EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::off);
}

}  // namespace
}  // namespace xsock
