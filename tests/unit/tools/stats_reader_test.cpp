// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pages of processes with another build of the library, which keep to the same version.
#include "tools/stats_reader.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/folder.hpp"

namespace xsock::tools {
namespace {

/// The page of this process, as another build would lay it out.
class ForeignPage {
  public:
    ForeignPage(std::uint32_t slots_at, std::uint32_t slot_size, std::uint32_t slots)
        : slots_at_(slots_at), slot_size_(slot_size) {
        const std::string path = folder_.path() + "/" + std::to_string(getpid()) + "-" +
                                 std::to_string(own_pid_namespace()) + "-0123456789abcdef";
        EXPECT_EQ(chmod(folder_.path().c_str(), 0700), 0);
        const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        size_ = slots_at + std::size_t{slots} * slot_size;
        EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size_)), 0);
        void* const at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_NE(at, MAP_FAILED);
        memory_ = static_cast<std::byte*>(at);
        close(fd);
    }
    ~ForeignPage() { munmap(memory_, size_); }
    ForeignPage(const ForeignPage&) = delete;
    ForeignPage& operator=(const ForeignPage&) = delete;

    /// The first `bytes` of it, which is all that the other build knows.
    void set_header(StatsHeader header, std::size_t bytes) {
        std::memcpy(header.magic, kStatsMagic, sizeof kStatsMagic);
        header.version = kStatsVersion;
        header.slots_at = slots_at_;
        header.slot_size = slot_size_;
        header.slots = static_cast<std::uint32_t>((size_ - slots_at_) / slot_size_);
        std::memcpy(memory_, &header, bytes);
    }
    void set_slot(std::uint32_t index, const StatsSlot& slot, std::size_t bytes) {
        std::memcpy(at_slot(index), &slot, bytes);
    }
    /// What the other build has behind the fields that we know.
    void fill(std::size_t from, std::size_t to) { std::memset(memory_ + from, 0x7f, to - from); }
    [[nodiscard]] std::size_t slot_offset(std::uint32_t index) const {
        return slots_at_ + std::size_t{index} * slot_size_;
    }

    void set_record(std::uint32_t fd, const PlainRecord& record) {
        std::memcpy(memory_ + kStatsPlainAt + fd * sizeof record, &record, sizeof record);
    }

    [[nodiscard]] std::string read_error() const {
        std::vector<std::string> errors;
        EXPECT_TRUE(read_stats({folder_.path()}, errors).empty());
        return errors.empty() ? "" : errors.front();
    }
    [[nodiscard]] ProcessStats read() const {
        std::vector<std::string> errors;
        const auto processes = read_stats({folder_.path()}, errors);
        EXPECT_TRUE(errors.empty()) << errors.front();
        EXPECT_EQ(processes.size(), 1u);
        return processes.empty() ? ProcessStats{} : processes.front();
    }

  private:
    std::byte* at_slot(std::uint32_t index) { return memory_ + slot_offset(index); }

    test::Folder folder_;
    const std::uint32_t slots_at_, slot_size_;
    std::size_t size_ = 0;
    std::byte* memory_ = nullptr;
};

StatsHeader header_of(std::uint64_t connections, std::uint64_t startups_dropped) {
    StatsHeader header{};
    header.connections = connections;
    header.startups_dropped = startups_dropped;
    header.unpinned[2] = 4;
    return header;
}

StatsSlot slot_of(const char* peer, std::uint64_t tx_bytes) {
    StatsSlot slot{};
    slot.sequence = 2;
    slot.taken = 1;
    slot.tx_bytes = tx_bytes;
    slot.counters.rx_segments = 5;
    slot.placed_early = 9;
    std::strcpy(slot.description.peer, peer);
    std::strcpy(slot.description.peer_version, "9.9");
    std::strcpy(slot.description.congestion, "cubic");
    return slot;
}

TEST(StatsReader, goes_by_the_sizes_of_a_newer_build) {
    constexpr std::uint32_t kSlotsAt = 8192, kSlotSize = 1024;
    ForeignPage page(kSlotsAt, kSlotSize, 2);
    page.fill(sizeof(StatsHeader), kSlotsAt);
    for (std::uint32_t i = 0; i < 2; ++i) {
        page.fill(page.slot_offset(i) + sizeof(StatsSlot), page.slot_offset(i) + kSlotSize);
    }
    page.set_header(header_of(7, 3), sizeof(StatsHeader));
    page.set_slot(0, slot_of("first", 11), sizeof(StatsSlot));
    page.set_slot(1, slot_of("second", 22), sizeof(StatsSlot));

    const ProcessStats process = page.read();
    EXPECT_EQ(process.connections_ever, 7u);
    EXPECT_EQ(process.startups_dropped, 3u);
    EXPECT_EQ(process.unpinned[2], 4u);
    ASSERT_EQ(process.connections.size(), 2u);
    EXPECT_STREQ(process.connections[0].description.peer, "first");
    EXPECT_EQ(process.connections[0].tx_bytes, 11u);
    EXPECT_STREQ(process.connections[1].description.peer, "second");
    EXPECT_EQ(process.connections[1].tx_bytes, 22u);
    EXPECT_EQ(process.connections[1].counters.rx_segments, 5u);
    EXPECT_EQ(process.connections[1].placed_early, 9u);
    EXPECT_STREQ(process.connections[1].description.congestion, "cubic");
}

// Version 2 began with a header of 192 bytes, and a description without the congestion control.
TEST(StatsReader, reads_zeros_where_an_older_build_has_no_field) {
    constexpr std::size_t kHeader = 192;
    constexpr std::size_t kSlot = offsetof(StatsSlot, description) + 496;
    static_assert(offsetof(StatsHeader, startups_dropped) == kHeader);
    static_assert(offsetof(StatsSlot, description) + offsetof(StatsDescription, congestion) ==
                  kSlot);
    constexpr std::uint32_t kSlotSize = 832;  // without the counters of byte streams
    static_assert(kSlotSize >= kStatsSlotLeast && kSlotSize < sizeof(StatsSlot));
    ForeignPage page(kStatsSlotsAt, kSlotSize, 2);
    page.set_header(header_of(7, 3), kHeader);
    page.set_slot(0, slot_of("first", 11), kSlot);
    page.set_slot(1, slot_of("second", 22), kSlot);

    const ProcessStats process = page.read();
    EXPECT_EQ(process.connections_ever, 7u);
    EXPECT_EQ(process.startups_dropped, 0u);
    EXPECT_EQ(process.unpinned[2], 0u);
    ASSERT_EQ(process.connections.size(), 2u);
    for (const ConnectionStats& connection : process.connections) {
        EXPECT_STREQ(connection.description.peer_version, "9.9");
        EXPECT_EQ(connection.stream.tx_bytes, 0u);
        EXPECT_EQ(connection.stream.credit_waits, 0u);
        EXPECT_EQ(connection.placed_early, 0u);
        EXPECT_STREQ(connection.description.congestion, "");
    }
    EXPECT_STREQ(process.connections[1].description.peer, "second");
}

// ---- records of plain sockets ----

StatsHeader header_with_records(std::uint32_t at, std::uint32_t records) {
    StatsHeader header = header_of(0, 0);
    header.plain_at = at;
    header.plain_records = records;
    return header;
}

PlainRecord record_of(std::uint64_t inode, PlainReason reason, unsigned role) {
    return {.inode = inode,
            .since = 77,
            .reason = static_cast<std::uint8_t>(reason),
            .role = static_cast<std::uint8_t>(role),
            .reserved = {}};
}

TEST(StatsReader, reads_records_that_make_sense) {
    ForeignPage page(kStatsSlotsAt, sizeof(StatsSlot), 0);
    page.set_header(header_with_records(kStatsPlainAt, 8), sizeof(StatsHeader));
    page.set_record(1, record_of(11, PlainReason::eof, 1));
    page.set_record(2, record_of(0, PlainReason::eof, 1));         // none
    page.set_record(3, record_of(13, PlainReason::undecided, 1));  // a reader's word
    page.set_record(4, record_of(14, static_cast<PlainReason>(200), 1));
    page.set_record(5, record_of(15, PlainReason::eof, 3));  // no role
    page.set_record(8, record_of(18, PlainReason::eof, 1));  // behind the last

    const ProcessStats process = page.read();
    ASSERT_EQ(process.published.size(), 1u);
    EXPECT_EQ(process.published[0].inode, 11u);
    EXPECT_EQ(process.published[0].since, 77u);
    EXPECT_EQ(process.published[0].reason, PlainReason::eof);
    EXPECT_EQ(process.published[0].role, PlainRole::server);
}

TEST(StatsReader, refuses_records_that_are_not_in_the_file) {
    using Records = std::pair<std::uint32_t, std::uint32_t>;  // where, how many
    const Records wrong[] = {
        {8, 1},   {kStatsPlainAt + 4, 1}, {kStatsSlotsAt, 1}, {kStatsPlainAt, kStatsMaxPlain + 1},
        {~7u, 1}, {kStatsPlainAt, ~0u}};
    for (const auto& [at, records] : wrong) {
        ForeignPage page(kStatsSlotsAt, sizeof(StatsSlot), 0);
        page.set_header(header_with_records(at, records), sizeof(StatsHeader));
        EXPECT_THAT(page.read_error(), ::testing::HasSubstr("does not fit its own sizes"))
            << at << ' ' << records;
    }
}

}  // namespace
}  // namespace xsock::tools
