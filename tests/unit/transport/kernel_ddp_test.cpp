// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engine above a kernel module: one in user space stands in its place, so that every call of
// the module, and every record, is the test's.
#include "transport/kernel_ddp.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/record_maker.hpp"
#include "tests/unit/loopback.hpp"
#include "transport/clock.hpp"
#include "transport/soft_device.hpp"

namespace xsock {
namespace {

constexpr int kDomain = 1 << 20;  // no descriptor has that number

Time soon() { return monotonic_now() + 20 * kSecond; }

/// A module. Any thread.
class FakeModule final : public KernelCalls {
  public:
    int open_error = 0, attach_error = 0, bind_error = 0, region_error = 0;
    std::uint32_t abi = DDP_ABI;

    int open() override {
        ++opens;
        return open_error != 0 ? -open_error : kDomain;
    }
    void close(int) noexcept override {}
    int attach(int) noexcept override { return -attach_error; }
    int control(int, unsigned long request, void* argument) noexcept override {
        const std::lock_guard lock(mutex);
        switch (request) {
            case DDP_IOC_HELLO: {
                auto& hello = *static_cast<ddp_hello*>(argument);
                hello.abi = abi;
                hello.recv_min = DDP_RECV_MIN;
                hello.features = DDP_FEATURE_CRC | DDP_FEATURE_AHEAD;
                return 0;
            }
            case DDP_IOC_REGION: {
                const auto& region = *static_cast<ddp_region*>(argument);
                if (region_error != 0) return -region_error;
                return regions.emplace(region.stag, region).second ? 0 : -EEXIST;
            }
            case DDP_IOC_REVOKE:
                revoked += regions.erase(static_cast<ddp_stag*>(argument)->stag);
                return 0;
            case DDP_IOC_RELEASE:
                ++released;
                regions.erase(static_cast<ddp_stag*>(argument)->stag);
                return 0;
            case DDP_IOC_BIND: {
                const auto& bind = *static_cast<ddp_bind*>(argument);
                if (bind_error != 0) return -bind_error;
                last_bind = bind;
                rights[bind.socket] = bind.rights;
                makers[bind.socket] = std::make_unique<test::RecordMaker>(
                    (bind.flags & DDP_BIND_CRC) != 0,
                    [this, bind](const std::byte* header, ConstBytes payload) {
                        return place(bind, header, payload);
                    });
                return 0;
            }
            case DDP_IOC_RIGHTS: {
                const auto& to = *static_cast<ddp_rights*>(argument);
                rights[to.socket] = to.rights;
                return 0;
            }
            case DDP_IOC_STATS:
                static_cast<ddp_stats*>(argument)->stale = stale;
                static_cast<ddp_stats*>(argument)->ahead_octets = ahead_octets;
                return 0;
            default:
                return -ENOTTY;
        }
    }
    long receive(int socket, Bytes into) noexcept override {
        const std::lock_guard lock(mutex);
        EXPECT_GE(into.size(), DDP_RECV_MIN);
        if (!quiet && !untold.empty()) {
            std::copy(untold.begin(), untold.end(), into.begin());
            return static_cast<long>(std::exchange(untold, {}).size());
        }
        std::vector<std::byte> octets(into.size() / 4);
        const long n = ::recv(socket, octets.data(), octets.size(), MSG_DONTWAIT);
        if (n <= 0) return n < 0 ? -errno : 0;
        test::Records records;
        makers.at(socket)->feed(ConstBytes(octets).first(static_cast<std::size_t>(n)), records);
        if (quiet && records.bytes.size() == sizeof(ddp_record) + sizeof(ddp_placed)) {
            untold = std::move(records.bytes);
            return -EAGAIN;
        }
        EXPECT_LE(records.bytes.size(), into.size());
        std::copy(records.bytes.begin(), records.bytes.end(), into.begin());
        return static_cast<long>(records.bytes.size());
    }

    std::size_t held() {
        const std::lock_guard lock(mutex);
        return regions.size();
    }
    std::uint64_t placed() {
        const std::lock_guard lock(mutex);
        std::uint64_t all = 0;
        for (const auto& [socket, maker] : makers) all += maker->placed;
        return all;
    }

    std::mutex mutex;
    std::map<std::uint32_t, ddp_region> regions;
    std::map<int, std::unique_ptr<test::RecordMaker>> makers;
    std::map<int, std::uint32_t> rights;
    ddp_bind last_bind{};
    std::uint64_t stale = 0;
    std::uint64_t ahead_octets = 0;
    std::size_t revoked = 0, released = 0;
    std::atomic<int> opens{0};
    // As if Writes were placed before the engine has read: it is told of them with `quiet` false.
    bool quiet = false;
    std::vector<std::byte> untold;

  private:
    bool place(const ddp_bind& bind, const std::byte* header, ConstBytes payload) {
        const auto found = regions.find(load_be32(header + 2));
        if (found == regions.end() || (rights[bind.socket] & DDP_RIGHT_WRITE) == 0) return false;
        const ddp_region& region = found->second;
        const std::uint64_t to = load_be64(header + 6) - region.first_to;
        if (region.pd != bind.pd || to > region.length || payload.size() > region.length - to) {
            return false;
        }
        std::memcpy(reinterpret_cast<std::byte*>(region.address) + to, payload.data(),
                    payload.size());
        return true;
    }
};

/// Two devices: what a sends, b's module places.
class KernelDdpTest : public ::testing::Test {
  protected:
    void make(KernelMode mode = KernelMode::automatic, Api api = Api::endpoint) {
        end_all();
        for (int i = 0; i < 2; ++i) {
            TransportConfig config;
            config.kernel = i == 1 ? mode : KernelMode::off;
            config.kernel_calls = &module;
            auto made = make_soft_device(config);
            ASSERT_TRUE(made);
            device[i] = std::move(*made);
            cq[i] = std::move(*device[i]->create_cq(1024, false));
            qp[i] = std::move(*device[i]->create_qp(
                {.pd = 1, .send_cq = cq[i].get(), .recv_cq = cq[i].get(), .api = api}));
        }
    }
    /// What b's connect() answers.
    Result<void> start(bool crc = true) {
        test::LoopbackListener listener;
        const int a = listener.dial(), b = listener.accept();
        ConnectAttr attr;
        attr.crc = crc;
        attr.role = ConnectAttr::Role::responder;
        if (auto r = qp[1]->connect(b, attr); !r) {
            ::close(a);
            ::close(b);
            return r;
        }
        attr.role = ConnectAttr::Role::initiator;
        if (auto r = qp[0]->connect(a, attr); !r) return r;
        qp[0]->wait_started(soon());
        qp[1]->wait_started(soon());
        return {};
    }
    std::uint32_t region(std::vector<std::byte>& memory) {
        return device[1]
            ->register_memory({.address = memory.data(),
                               .length = memory.size(),
                               .access = kLocalWrite | kRemoteWrite | kZeroBased,
                               .pd = 1})
            .value();
    }
    void write(std::uint32_t stag, std::uint64_t to, std::vector<std::byte>& from) {
        const Sge sge{from.data(), static_cast<std::uint32_t>(from.size()), kLkeyNone};
        ASSERT_TRUE(qp[0]->post_send({.opcode = SendOpcode::write,
                                      .remote_stag = stag,
                                      .remote_to = to,
                                      .sges = {&sge, 1}}));
    }
    /// A Send behind what was written, taken at b.
    void sync() {
        std::byte octet{7}, into{};
        const Sge from{&octet, 1, kLkeyNone}, to{&into, 1, kLkeyNone};
        ASSERT_TRUE(qp[1]->post_recv({.sges = {&to, 1}}));
        ASSERT_TRUE(qp[0]->post_send({.sges = {&from, 1}}));
        bool received = false;
        while (!received && monotonic_now() < end) {
            Wc wc[16];
            const std::size_t n = cq[1]->poll(wc);
            for (std::size_t i = 0; i < n; ++i) received |= wc[i].opcode == WcOpcode::recv;
            cq[0]->poll(wc);
        }
        ASSERT_TRUE(received);
        ASSERT_EQ(into, octet);
    }
    template <typename F>
    bool wait(F&& done) {
        while (!done() && monotonic_now() < end) std::this_thread::yield();
        return done();
    }

    const Time end = soon();
    FakeModule module;
    std::unique_ptr<Device> device[2];
    std::unique_ptr<Cq> cq[2];
    std::unique_ptr<Qp> qp[2];
    ~KernelDdpTest() override { end_all(); }
    void end_all() {
        for (auto& q : qp) q.reset();
        for (auto& c : cq) c.reset();
        for (auto& d : device) d.reset();
    }
};

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
    EXPECT_EQ(module.released, 1u);
}

// The module wakes nobody for Writes: ibv_get_cq_event(), which waits for a peer's credit, asks.
TEST_F(KernelDdpTest, writes_that_woke_nobody_are_counted_when_somebody_asks) {
    make();
    ASSERT_TRUE(start());
    std::vector<std::byte> memory(300), data(200, std::byte{0x5a});
    const std::uint32_t stag = region(memory);
    write(stag, 0, data);
    sync();
    ASSERT_TRUE(wait([&] { return module.held() == 1; }));
    const auto set_quiet = [&](bool quiet) {
        const std::lock_guard lock(module.mutex);
        module.quiet = quiet;
    };
    set_quiet(true);
    write(stag, 50, data);
    ASSERT_TRUE(wait([&] { return module.placed() == 1; }));
    EXPECT_EQ(qp[1]->info().rx_writes, 1u);
    set_quiet(false);
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
TEST_F(KernelDdpTest, writes_that_woke_nobody_are_counted_within_a_second) {
    make();
    ASSERT_TRUE(start());
    std::vector<std::byte> memory(300), data(200, std::byte{0x5a});
    const std::uint32_t stag = region(memory);
    write(stag, 0, data);
    sync();
    ASSERT_TRUE(wait([&] { return module.held() == 1; }));
    {
        const std::lock_guard lock(module.mutex);
        module.quiet = true;
    }
    write(stag, 50, data);
    ASSERT_TRUE(wait([&] { return module.placed() == 1; }));
    const auto told = [&] {
        const std::lock_guard lock(module.mutex);
        module.quiet = false;
        return module.untold.empty();
    };
    EXPECT_TRUE(wait(told)) << "none asked again";
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
    module.abi = DDP_ABI + 1;
    make();
    ASSERT_TRUE(start());
    EXPECT_EQ(qp[1]->info().kernel_reason, kernel::Reason::abi);
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
