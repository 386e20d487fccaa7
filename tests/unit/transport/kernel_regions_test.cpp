// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions of the kernel module: who waits for pages, and for whose.
#include "transport/kernel_regions.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "tests/unit/transport/fake_kernel.hpp"
#include "transport/clock.hpp"
#include "transport/kernel_ddp.hpp"
#include "transport/kernel_unpinned.hpp"

namespace xsock {
namespace {

using test::soon;

class KernelRegionsTest : public ::testing::Test {
  protected:
    explicit KernelRegionsTest(KernelRegions::Limits limits = {})
        : module(std::make_unique<KernelDdp>(kernel, table, limits)) {
        table.set_mirror(module->regions());
        EXPECT_EQ(module->open(monotonic_now()), kernel::Reason::none);
    }
    std::uint32_t add(std::vector<std::byte>& bytes) {
        return table
            .add({.address = bytes.data(),
                  .length = bytes.size(),
                  .access = kLocalWrite | kRemoteWrite,
                  .pd = 1})
            .value();
    }
    template <typename F>
    bool wait(F&& done) {
        while (!done() && monotonic_now() < end) std::this_thread::yield();
        return done();
    }
    bool wait_held(std::size_t n) {
        return wait([&] { return kernel.held() == n; });
    }
    /// So much later that a region that is pinned is looked at again.
    Time later() { return now = time_after(now, kSecond); }

    const Time end = soon();
    Time now = monotonic_now();
    test::FakeModule kernel;
    Epochs epochs;
    MemoryTable table{epochs};
    std::unique_ptr<KernelDdp> module;
    std::vector<std::byte> memory[2] = {std::vector<std::byte>(8192), std::vector<std::byte>(8192)};
};

// What a Send with Invalidate does, in the poller, under the table's lock.
TEST_F(KernelRegionsTest, to_revoke_waits_for_no_pages) {
    const std::uint32_t stag = add(memory[0]);
    kernel.set_gate(false);
    module->regions().want(stag, now);
    ASSERT_TRUE(wait([&] { return kernel.is_waiting(); })) << "it is being pinned";
    std::atomic<bool> revoked{false};
    std::thread poller([&] {
        EXPECT_TRUE(table.invalidate(stag));
        revoked = true;
    });
    EXPECT_TRUE(wait([&] { return revoked.load(); }));
    kernel.set_gate(true);
    poller.join();
    // When its pages are there nobody wants them any more, and no look-up ever finds it.
    EXPECT_TRUE(wait([&] {
        const std::lock_guard lock(kernel.mutex);
        return kernel.released.size() == 1 && kernel.hidden.empty();
    }));
    {
        const std::lock_guard lock(kernel.mutex);
        EXPECT_EQ(kernel.shown, 0u);
    }
    module->regions().want(stag, later());
    EXPECT_TRUE(table.remove(stag));
    EXPECT_EQ(kernel.held(), 0u);
}

TEST_F(KernelRegionsTest, to_end_a_region_waits_until_it_is_no_longer_pinned) {
    const std::uint32_t stag = add(memory[0]);
    kernel.set_gate(false);
    module->regions().want(stag, now);
    ASSERT_TRUE(wait([&] { return kernel.is_waiting(); }));
    std::atomic<bool> removed{false};
    std::thread program([&] {
        EXPECT_TRUE(table.remove(stag));
        removed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(removed);
    kernel.set_gate(true);
    program.join();
    const std::lock_guard lock(kernel.mutex);
    EXPECT_TRUE(kernel.hidden.empty() && kernel.regions.empty());
}

TEST_F(KernelRegionsTest, a_stale_region_is_pinned_anew_and_no_other) {
    const std::uint32_t healthy = add(memory[0]), stale = add(memory[1]);
    module->regions().want(healthy, now);
    module->regions().want(stale, now);
    ASSERT_TRUE(wait_held(2));
    {
        const std::lock_guard lock(kernel.mutex);
        kernel.stale.insert(stale);
    }
    // A Write may come up for many reasons.
    module->regions().want(healthy, later());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    {
        const std::lock_guard lock(kernel.mutex);
        EXPECT_TRUE(kernel.released.empty());
        EXPECT_EQ(kernel.checks, 1u);
    }
    // The poller waits for no copy, and for no pages.
    kernel.set_gate(false);
    std::atomic<bool> wanted{false};
    std::thread poller([&] {
        module->regions().want(stale, now);
        wanted = true;
    });
    EXPECT_TRUE(wait([&] { return wanted.load(); }));
    kernel.set_gate(true);
    poller.join();
    EXPECT_TRUE(wait([&] {
        const std::lock_guard lock(kernel.mutex);
        return kernel.released == std::vector{stale} && kernel.regions.size() == 2;
    }));
}

TEST_F(KernelRegionsTest, the_end_of_a_region_that_is_to_be_pinned_anew) {
    const std::uint32_t stag = add(memory[0]), other = add(memory[1]);
    module->regions().want(stag, now);
    ASSERT_TRUE(wait_held(1));
    {
        const std::lock_guard lock(kernel.mutex);
        kernel.stale.insert(stag);
    }
    kernel.set_gate(false);
    module->regions().want(other, now);  // the thread is busy
    ASSERT_TRUE(wait([&] { return kernel.is_waiting(); }));
    module->regions().want(stag, later());
    EXPECT_TRUE(table.invalidate(stag));
    {
        const std::lock_guard lock(kernel.mutex);
        EXPECT_EQ(kernel.revoked, 1u);
    }
    kernel.set_gate(true);
    EXPECT_TRUE(table.remove(stag));
    ASSERT_TRUE(wait_held(1));
    const std::lock_guard lock(kernel.mutex);
    EXPECT_EQ(kernel.released, std::vector{stag});
}

TEST_F(KernelRegionsTest, a_region_that_cannot_be_pinned_is_counted_once) {
    const std::uint64_t before = unpinned_regions(kernel::Unpinned::file);
    kernel.region_error = EOPNOTSUPP;
    const std::uint32_t stag = add(memory[0]);
    module->regions().want(stag, now);
    ASSERT_TRUE(wait([&] { return module->regions().refusals() == 1; }));
    module->regions().want(stag, later());
    ASSERT_TRUE(wait([&] { return module->regions().refusals() == 2; })) << "it is tried again";
    EXPECT_EQ(unpinned_regions(kernel::Unpinned::file), before + 1);
}

class KernelRegionsLimitTest : public KernelRegionsTest {
  protected:
    KernelRegionsLimitTest() : KernelRegionsTest({.region_bytes = 8191}) {}
};

TEST_F(KernelRegionsLimitTest, a_longer_region_is_not_pinned) {
    const std::uint64_t before = unpinned_regions(kernel::Unpinned::too_long);
    memory[1].resize(8191);
    const std::uint32_t stag = add(memory[0]), shorter = add(memory[1]);
    module->regions().want(stag, now);
    EXPECT_EQ(module->regions().refusals(), 1u);
    EXPECT_EQ(module->regions().pin(stag).error().code, E2BIG);
    EXPECT_EQ(unpinned_regions(kernel::Unpinned::too_long), before + 1);
    module->regions().want(shorter, now);
    ASSERT_TRUE(wait_held(1));
    const std::lock_guard lock(kernel.mutex);
    EXPECT_EQ(kernel.regions.count(shorter), 1u);
}

// The number of a descriptor that is closed may be another's at once.
TEST_F(KernelRegionsTest, the_domain_is_closed_when_nothing_is_under_way) {
    kernel.set_gate(false);
    for (auto& one : memory) module->regions().want(add(one), now);
    ASSERT_TRUE(wait([&] { return kernel.is_waiting(); }));
    std::thread last([&] { module.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kernel.set_gate(true);
    last.join();
    EXPECT_TRUE(kernel.closed);
    EXPECT_EQ(kernel.after_close, 0u);
}

}  // namespace
}  // namespace xsock
