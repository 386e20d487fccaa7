// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A mirror of the memory table hears of each region that was offered to it, and of its end before
// the call that ends it returns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_table.hpp"

namespace xsock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::array<std::byte, 4096> memory;

std::string said(const char* what, std::uint32_t stag) {
    return std::string(what) + " " + std::to_string(stag);
}

struct Recorder final : MemoryMirror {
    std::vector<std::string> heard;
    std::vector<RegionAttr> begun;
    bool readers_left = false;                  // as `inside` was when a release came
    const std::atomic<bool>* inside = nullptr;  // a reader is in a section

    void begin(std::uint32_t stag, const RegionAttr& attr) noexcept override {
        heard.push_back(said("begin", stag));
        begun.push_back(attr);
    }
    void revoke(std::uint32_t stag) noexcept override { heard.push_back(said("revoke", stag)); }
    void release(std::uint32_t stag) noexcept override {
        heard.push_back(said("release", stag));
        if (inside != nullptr) readers_left = !inside->load();
    }
};

struct MemoryMirrorTest : testing::Test {
    Epochs epochs;
    Recorder mirror;
    MemoryTable table{epochs};
    static constexpr RegionAttr kAttr{.address = nullptr,
                                      .length = 100,
                                      .access = kLocalWrite | kRemoteWrite | kZeroBased,
                                      .pd = 3,
                                      .only_qp = 9,
                                      .first_to = 77};

    void SetUp() override { table.set_mirror(mirror); }
    std::uint32_t add(std::uint32_t access = kAttr.access) {
        RegionAttr attr = kAttr;
        attr.address = memory.data();
        attr.access = access;
        return table.add(attr).value();
    }
};

TEST_F(MemoryMirrorTest, hears_nothing_of_regions_that_were_not_offered) {
    const std::uint32_t stag = add();
    table.invalidate(stag);
    ASSERT_TRUE(table.remove(stag).ok());
    EXPECT_THAT(mirror.heard, IsEmpty());
}

TEST_F(MemoryMirrorTest, is_given_the_attributes_once) {
    const std::uint32_t stag = add();
    EXPECT_TRUE(table.offer(stag));
    EXPECT_FALSE(table.offer(stag));
    ASSERT_THAT(mirror.heard, ElementsAre(said("begin", stag)));
    EXPECT_EQ(mirror.begun[0].address, memory.data());
    EXPECT_EQ(mirror.begun[0].length, 100u);
    EXPECT_EQ(mirror.begun[0].access, kAttr.access);
    EXPECT_EQ(mirror.begun[0].pd, 3u);
    EXPECT_EQ(mirror.begun[0].only_qp, 9u);
    EXPECT_EQ(mirror.begun[0].first_to, 77u);
    ASSERT_TRUE(table.remove(stag).ok());
}

TEST_F(MemoryMirrorTest, is_offered_nothing_that_peers_may_not_write) {
    EXPECT_FALSE(table.offer(1));
    EXPECT_FALSE(table.offer(add(kLocalWrite | kRemoteRead)));
    const std::uint32_t revoked = add();
    table.invalidate(revoked);
    EXPECT_FALSE(table.offer(revoked));
    const std::uint32_t region = add(kAttr.access | kWindows);
    const std::uint32_t window = table.reserve_window().value();
    RegionAttr part = kAttr;
    part.address = memory.data();
    ASSERT_TRUE(table.prepare_window(window, part, region).ok());
    ASSERT_TRUE(table.bind(window));
    EXPECT_FALSE(table.offer(window));
    EXPECT_THAT(mirror.heard, IsEmpty());
}

TEST_F(MemoryMirrorTest, hears_of_the_end_before_it_is_told) {
    const std::uint32_t invalidated = add(), removed = add(), replaced = add();
    for (const std::uint32_t stag : {invalidated, removed, replaced}) table.offer(stag);
    mirror.heard.clear();

    table.invalidate(invalidated);
    EXPECT_THAT(mirror.heard, ElementsAre(said("revoke", invalidated)));
    ASSERT_TRUE(table.remove(invalidated).ok());
    EXPECT_THAT(mirror.heard,
                ElementsAre(said("revoke", invalidated), said("release", invalidated)));

    mirror.heard.clear();
    ASSERT_TRUE(table.remove(removed).ok());
    EXPECT_THAT(mirror.heard, ElementsAre(said("revoke", removed), said("release", removed)));

    mirror.heard.clear();
    RegionAttr other = kAttr;
    other.address = memory.data() + 200;
    ASSERT_TRUE(table.replace(replaced, other).ok());
    EXPECT_THAT(mirror.heard, ElementsAre(said("release", replaced)));
    // Its new meaning is another region.
    EXPECT_TRUE(table.offer(replaced));
    EXPECT_EQ(mirror.begun.back().address, memory.data() + 200);
}

TEST_F(MemoryMirrorTest, a_slot_that_is_used_again_is_not_offered) {
    const std::uint32_t first = add();
    table.offer(first);
    ASSERT_TRUE(table.remove(first).ok());
    mirror.heard.clear();
    const std::uint32_t second = add();
    ASSERT_TRUE(table.remove(second).ok());
    EXPECT_THAT(mirror.heard, IsEmpty());
}

// What a poller has looked up serves it to the end of its section; only then is it released.
TEST_F(MemoryMirrorTest, a_removal_releases_behind_the_readers) {
    const std::uint32_t stag = add();
    table.offer(stag);
    std::atomic<bool> inside{true};
    mirror.inside = &inside;
    Epochs::Reader reader(epochs);
    reader.enter();
    std::thread remover([&] { EXPECT_TRUE(table.remove(stag).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    inside = false;
    reader.leave();
    remover.join();
    EXPECT_TRUE(mirror.readers_left);
}

}  // namespace
}  // namespace xsock
