// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel module's core and the FPDU receiver of user space are each other's oracle: the same
// stream, in segments that come in any order, again, overlapping, or are thrown away and sent once
// more, leaves the same memory behind each Send (issue of the module, rule 2) and ends with the
// same error.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "include/xsock/iwarp.h"
#include "mpa/fpdu_receiver.hpp"
#include "mpa/record_receiver.hpp"
#include "tests/support/fpdus.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"
#include "tests/unit/ddp_kernel/placing_ulp.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock {
namespace {

using ByteVector = std::vector<std::byte>;
using Random = std::mt19937;
constexpr std::size_t kRegionBytes = 4096;
constexpr std::uint32_t kOtherStag = 0x9999;  // of memory that the module never knows

unsigned below(Random& random, unsigned n) { return static_cast<unsigned>(random() % n); }

// One FPDU of the stream, and what it does.
struct Part {
    std::uint64_t from = 0, to = 0;
    std::uint64_t length_at = 0;  ///< of its ULPDU_Length; a marker may lie before it
    bool is_write = false;        ///< to the region of the module
    std::size_t offset = 0, bytes = 0;
    unsigned sends_before = 0;
};

struct Traffic {
    bool markers = false;
    ByteVector stream;
    std::vector<Part> parts;
    unsigned sends = 0, writes = 0;
    std::size_t damaged = SIZE_MAX;  ///< the part whose CRC, or a marker, does not hold

    void add_fpdu(const ByteVector& ulpdu, Part part) {
        part.from = stream.size();
        part.sends_before = sends;
        part.length_at = part.from;
        if (markers) {
            if (part.from % MPA_MARKER_SPACING == 0) part.length_at += MPA_MARKER_OCTETS;
            test::append_marked_fpdu(stream, ulpdu);
        } else {
            test::append_fpdu(stream, ulpdu);
        }
        part.to = stream.size();
        parts.push_back(part);
    }
    void add_payload(ByteVector& ulpdu, std::size_t n, Random& random) const {
        for (std::size_t i = 0; i < n; ++i) ulpdu.push_back(static_cast<std::byte>(random()));
    }
    void add_write(Random& random, std::uint32_t stag) {
        const bool hot = below(random, 4) == 0;  // an index that is written again and again
        const std::size_t n = hot ? 8 : 1 + below(random, 900);
        const std::size_t offset = hot ? 64 : below(random, kRegionBytes - 900);
        const bool last = below(random, 3) != 0;
        ByteVector ulpdu(sizeof(ddp_tagged));
        ulpdu[0] =
            static_cast<std::byte>(DDP_FLAG_TAGGED | (last ? DDP_FLAG_LAST : 0) | DDP_VERSION);
        ulpdu[1] = static_cast<std::byte>(RDMAP_VERSION | RDMAP_WRITE |
                                          (below(random, 8) == 0 ? 0x10 : 0));
        store_be32(&ulpdu[2], stag);
        store_be64(&ulpdu[6], offset);
        add_payload(ulpdu, n, random);
        const bool ours = stag == test::ModuleModel::kStag;
        add_fpdu(ulpdu, {.is_write = ours, .offset = offset, .bytes = n});
        ++writes;
    }
    void add_send(Random& random) {
        ByteVector ulpdu(sizeof(ddp_untagged));
        ulpdu[0] = static_cast<std::byte>(DDP_FLAG_LAST | DDP_VERSION);
        ulpdu[1] = static_cast<std::byte>(RDMAP_VERSION | RDMAP_SEND);
        store_be32(&ulpdu[10], sends + 1);
        add_payload(ulpdu, below(random, 60), random);
        add_fpdu(ulpdu, {});
        ++sends;
    }
    void damage(std::size_t part, Random& random) {
        damaged = part;
        const Part& p = parts[part];
        const std::uint64_t marker = (p.from + MPA_MARKER_SPACING - 1) & ~(MPA_MARKER_SPACING - 1);
        if (markers && marker < p.to && below(random, 2) == 0) {
            stream[marker + 3] ^= std::byte{0x20};  // and the CRC holds
            const std::size_t covered = p.to - p.from - MPA_CRC_OCTETS;
            const ConstBytes octets = ConstBytes(stream).subspan(p.from, covered);
            store_le32(&stream[p.from + covered], crc32c_finish(crc32c(kCrc32cInit, octets)));
            return;
        }
        // Not the length: then what follows would be no FPDU for anybody.
        const auto octets = static_cast<unsigned>(p.to - p.from);
        std::uint64_t at = p.length_at;
        while (at - p.length_at < MPA_LENGTH_OCTETS) at = p.from + below(random, octets);
        stream[at] ^= std::byte{0x20};
    }
};

struct Sums {
    std::uint64_t ahead = 0, masked = 0, placed = 0, written = 0;
    unsigned wrong_markers = 0;  ///< that ended a stream
};

class World {
  public:
    World(unsigned seed, bool in_order, bool markers) : random_(seed) {
        traffic_.markers = markers;
        make_traffic();
        make_segments();
        run_reference();
        run_module(in_order);
    }
    Sums sums;

  private:
    void make_traffic() {
        const unsigned n = 20 + below(random_, 60);
        for (unsigned i = 0; i < n; ++i) {
            const unsigned kind = below(random_, 10);
            if (kind == 0) {
                traffic_.add_send(random_);
            } else {
                traffic_.add_write(random_, kind == 1 ? kOtherStag : test::ModuleModel::kStag);
            }
        }
        traffic_.add_send(random_);
        if (below(random_, 6) == 0) traffic_.damage(n / 2 + below(random_, n / 2), random_);
    }
    void make_segments() {
        if (below(random_, 4) != 0) {  // aligned, some with several FPDUs
            for (std::size_t i = 0; i < traffic_.parts.size();) {
                const std::size_t last = std::min(i + below(random_, 3), traffic_.parts.size() - 1);
                segments_.push_back({traffic_.parts[i].from, traffic_.parts[last].to});
                i = last + 1;
            }
        } else {
            for (std::uint64_t at = 0; at < traffic_.stream.size();) {
                const std::uint64_t n = 1 + below(random_, 1000);
                const std::uint64_t to = std::min<std::uint64_t>(at + n, traffic_.stream.size());
                segments_.push_back({at, to});
                at = to;
            }
        }
    }
    void run_reference() {
        test::PlacingUlp ulp(reference_, sink_, /*to_atomics=*/false);
        ulp.on_send = [&](unsigned) {
            region_at_.push_back(reference_);
            other_at_.push_back(ulp.other);
            message_bytes_at_.push_back(ulp.message_bytes);
        };
        mpa::FpduReceiver receiver(/*crc=*/true, traffic_.markers);
        receiver.consume(traffic_.stream, ulp);
        error_ = receiver.stream_error();
        reference_writes_ = ulp.written;
        ASSERT_EQ(error_ == StreamError::none, traffic_.damaged == SIZE_MAX);
    }
    /// Bytes that a Write behind the `send`th Send may have stored early.
    [[nodiscard]] std::vector<bool> written_later(unsigned send) const {
        std::vector<bool> later(kRegionBytes);
        for (const Part& part : traffic_.parts) {
            if (!part.is_write || part.sends_before <= send) continue;
            for (std::size_t i = 0; i < part.bytes; ++i) later[part.offset + i] = true;
        }
        return later;
    }
    void compare(unsigned send, const ByteVector& region, const ByteVector& other) const {
        ASSERT_LT(send, region_at_.size());
        EXPECT_EQ(other, other_at_[send]);
        const std::vector<bool> later = written_later(send);
        for (std::size_t i = 0; i < kRegionBytes; ++i) {
            if (later[i]) continue;
            ASSERT_EQ(region[i], region_at_[send][i]) << "byte " << i << " behind Send " << send;
        }
    }
    /// One of the first segments that are not there, sometimes longer or shorter than it was sent.
    void arrive(test::ModuleModel& module) {
        std::vector<ddp_env::Range> missing;
        for (const auto& segment : segments_) {
            if (!module.has(segment.from, segment.to)) missing.push_back(segment);
            if (missing.size() == 10) break;
        }
        if (missing.empty()) return;
        ddp_env::Range segment = missing[below(random_, static_cast<unsigned>(missing.size()))];
        if (below(random_, 10) == 0) segment.from -= std::min<std::uint64_t>(segment.from, 700);
        if (below(random_, 10) == 0) {
            segment.to = std::min<std::uint64_t>(segment.to + 700, traffic_.stream.size());
        }
        module.arrive(segment.from, segment.to);
    }
    void run_module(bool in_order) {
        ByteVector region(kRegionBytes);
        const std::uint64_t before = below(random_, 2) * below(random_, 300);
        test::ModuleModel module(
            traffic_.stream, region, sink_,
            {.in_order = in_order, .markers = traffic_.markers, .before = before});
        test::PlacingUlp ulp(region, sink_, /*to_atomics=*/false);
        ulp.on_send = [&](unsigned send) {
            compare(send, region, ulp.other);
            EXPECT_EQ(ulp.message_bytes, message_bytes_at_.at(send)) << "of the Write before it";
        };
        mpa::RecordReceiver receiver(/*crc=*/true, traffic_.markers);
        ByteVector records;  // answered by recv(), not executed yet
        const auto read = [&](bool give_up) {
            receiver.consume(records, ulp);
            records = module.recv(give_up);
        };
        const std::uint64_t end = traffic_.stream.size();
        for (int steps = 0; module.rx().pos != end || module.edge() != end; ++steps) {
            ASSERT_LT(steps, 100'000) << "nothing moves";
            if (receiver.stream_error() != StreamError::none) break;
            const unsigned what = below(random_, 20);
            if (what < 12) arrive(module);
            if (what >= 12 && what < 17) read(module.edge() == end || below(random_, 3) == 0);
            if (what == 17) module.pin(below(random_, 3) != 0);
            if (what == 18) module.prune(below(random_, 5));
            if (what == 19) module.collapse();
        }
        read(true);
        read(true);
        EXPECT_EQ(module.faults(), 0);
        EXPECT_EQ(receiver.stream_error(), error_);
        EXPECT_EQ(ulp.sends, region_at_.size());
        EXPECT_EQ(ulp.placed + ulp.written, reference_writes_);
        if (error_ == StreamError::none) {
            // (What goes up in pieces is not judged by the module: it may place behind an error.)
            EXPECT_EQ(ulp.placed, module.rx().count.placed_fpdus);
            EXPECT_EQ(region, reference_);
            EXPECT_EQ(module.rx().up, 0);
            EXPECT_EQ(receiver.stream_octets(), end);
        }
        const ddp_ahead_count count = module.ahead_count();
        sums = {count.fpdus, count.masked, ulp.placed, ulp.written,
                error_ == StreamError::mpa_marker};
    }

    Random random_;
    Traffic traffic_;
    std::vector<ddp_env::Range> segments_;
    ByteVector reference_ = ByteVector(kRegionBytes);
    ByteVector sink_;                               // nothing is read
    std::vector<ByteVector> region_at_, other_at_;  // behind each Send
    std::vector<std::uint64_t> message_bytes_at_;
    StreamError error_ = StreamError::none;
    std::uint64_t reference_writes_ = 0;
};

#if defined(XSOCK_TEST_ASAN) || defined(XSOCK_TEST_TSAN)
constexpr unsigned kWorlds = 300;
#else
constexpr unsigned kWorlds = 1500;
#endif

void run_worlds(bool in_order, bool markers, Sums& all) {
    const char* const first = std::getenv("DDP_CORE_SEED");
    const unsigned from = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 1;
    const unsigned to = first != nullptr ? from : kWorlds;
    for (unsigned seed = from; seed <= to; ++seed) {
        const Sums one = World(seed, in_order, markers).sums;
        all.ahead += one.ahead;
        all.masked += one.masked;
        all.placed += one.placed;
        all.written += one.written;
        all.wrong_markers += one.wrong_markers;
        ASSERT_FALSE(::testing::Test::HasFailure()) << "DDP_CORE_SEED=" << seed;
    }
}

TEST(DdpCoreWorld, memory_is_what_user_space_leaves_behind_each_send) {
    Sums all;
    run_worlds(/*in_order=*/false, /*markers=*/false, all);
    // Worlds in which nothing happens would prove nothing.
    if (std::getenv("DDP_CORE_SEED") != nullptr) return;
    EXPECT_GT(all.ahead, 1000u);
    EXPECT_GT(all.masked, 1000u);
    EXPECT_GT(all.placed, all.ahead);
    EXPECT_GT(all.written, 1000u);
}

TEST(DdpCoreWorld, the_same_where_nothing_is_placed_behind_holes) {
    Sums all;
    run_worlds(/*in_order=*/true, /*markers=*/false, all);
    if (std::getenv("DDP_CORE_SEED") == nullptr) {
        EXPECT_GT(all.placed, 1000u);
    }
}

TEST(DdpCoreWorld, the_same_with_markers) {
    Sums all;
    run_worlds(/*in_order=*/false, /*markers=*/true, all);
    if (std::getenv("DDP_CORE_SEED") == nullptr) {
        EXPECT_GT(all.placed, 1000u);
        EXPECT_GT(all.written, 1000u);
        EXPECT_GT(all.wrong_markers, 10u);
    }
}

}  // namespace
}  // namespace xsock
