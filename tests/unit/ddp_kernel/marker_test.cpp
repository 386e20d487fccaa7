// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Markers (RFC 5044 §4.3) in the kernel module's core: a Write that begins at each place around a
// marker, and ends at some around one, cut at each octet.
#include <gtest/gtest.h>

#include "include/xsock/iwarp.h"
#include "mpa/record_receiver.hpp"
#include "tests/support/fpdus.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"
#include "tests/unit/ddp_kernel/placing_ulp.hpp"

extern "C" {
#include "ddp_kernel/core/marker.h"
}

namespace xsock {
namespace {

using ByteVector = std::vector<std::byte>;
constexpr std::size_t kMarkedBytes = 2048;

/// A Send that wakes the reader, a Write, the Write that is looked at, a Write, and a Send.
struct AroundMarker {
    AroundMarker(std::size_t before, std::size_t payload) {
        add(test::send_ulpdu(1, 0));
        add(test::write_ulpdu(test::ModuleModel::kStag, 0, before));
        from = octets.size();
        add(test::write_ulpdu(test::ModuleModel::kStag, 700, payload));
        to = octets.size();
        add(test::write_ulpdu(test::ModuleModel::kStag, 1900, 24));
        add(test::send_ulpdu(2, 7));
    }
    void add(const ByteVector& ulpdu) { test::append_marked_fpdu(octets, ulpdu); }

    ByteVector octets;
    std::size_t from, to;
};

/// The module, with what its records are made into.
struct MarkedReader {
    explicit MarkedReader(const AroundMarker& traffic)
        : module(traffic.octets, region, sink, {.markers = true}), end(traffic.octets.size()) {
        ulp.on_send = [](unsigned) {};
    }
    void read(bool give_up) { receiver.consume(module.recv(give_up), ulp); }
    /// The rest comes, and all is read.
    void finish() {
        module.arrive(module.edge(), end);
        for (int i = 0; i < 3; ++i) read(true);
    }

    ByteVector region = ByteVector(kMarkedBytes), sink;
    test::PlacingUlp ulp{region, sink, /*to_atomics=*/false};
    mpa::RecordReceiver receiver{/*crc=*/true, /*markers=*/true};
    test::ModuleModel module;
    std::size_t end;
};

ByteVector without_the_module(const AroundMarker& traffic) {
    ByteVector region(kMarkedBytes), sink;
    test::PlacingUlp ulp(region, sink, /*to_atomics=*/false);
    ulp.on_send = [](unsigned) {};
    mpa::FpduReceiver receiver(/*crc=*/true, /*markers=*/true);
    EXPECT_EQ(receiver.consume(traffic.octets, ulp), traffic.octets.size());
    EXPECT_EQ(ulp.sends, 2u);
    return region;
}

/// Calls `look` for Writes that begin, and end, up to some octets before a marker or behind it.
template <typename Look>
void around_a_marker(const Look& look) {
    for (std::size_t before = 432; before <= 488; before += 4) {
        for (const std::size_t payload : {1, 2, 5, 8, 9, 20, 40, 460, 470, 480, 490, 500, 510}) {
            for (std::size_t more = 0; more < 12; more += 4) {
                const AroundMarker traffic(before, payload + more);
                look(traffic);
                ASSERT_FALSE(::testing::Test::HasFailure())
                    << before << " octets of a Write before one of " << payload + more;
            }
        }
    }
}

TEST(DdpCoreMarkers, a_write_that_has_all_come_is_placed) {
    std::size_t begins_at_one = 0;
    around_a_marker([&](const AroundMarker& traffic) {
        begins_at_one += traffic.from % DDP_MARKER_SPACING == 0;
        MarkedReader reader(traffic);
        reader.module.arrive(0, 100);
        reader.read(false);
        reader.finish();
        EXPECT_EQ(reader.module.rx().count.placed_fpdus, 3u);
        EXPECT_EQ(reader.module.rx().count.ulpdus, 2u);
        EXPECT_EQ(reader.receiver.stream_octets(), traffic.octets.size());
        EXPECT_EQ(reader.region, without_the_module(traffic));
        EXPECT_EQ(reader.module.faults(), 0);
    });
    EXPECT_GT(begins_at_one, 0u);
}

/// Has such a Write read as far as it has come, at each octet where it can be cut; `rest` has the
/// octets behind that read too.
template <typename Rest>
void cut_around_a_marker(const Rest& rest) {
    around_a_marker([&](const AroundMarker& traffic) {
        const ByteVector expected = without_the_module(traffic);
        for (std::size_t cut = traffic.from + 1; cut < traffic.to; ++cut) {
            SCOPED_TRACE(cut);
            MarkedReader reader(traffic);
            reader.module.arrive(0, cut);
            reader.read(false);
            reader.read(true);
            rest(reader, traffic, cut);
            EXPECT_EQ(reader.ulp.sends, 2u);
            EXPECT_EQ(reader.region, expected);
            EXPECT_EQ(reader.module.faults(), 0);
        }
    });
}

TEST(DdpCoreMarkers, what_has_come_in_part_goes_up_and_the_next_is_placed) {
    cut_around_a_marker([](MarkedReader& reader, const AroundMarker& traffic, std::size_t cut) {
        if (cut % 3 == 0) {  // one octet more
            reader.module.arrive(cut, cut + 1);
            reader.read(true);
        }
        reader.finish();
        EXPECT_EQ(reader.module.rx().up, 0);
        EXPECT_EQ(reader.module.rx().count.placed_fpdus, 2u);
        EXPECT_EQ(reader.receiver.stream_error(), StreamError::none);
        EXPECT_EQ(reader.receiver.stream_octets(), traffic.octets.size());
    });
}

TEST(DdpCoreMarkers, octets_behind_unbind_go_on_where_records_ended) {
    cut_around_a_marker([](MarkedReader& reader, const AroundMarker& traffic, std::size_t) {
        EXPECT_TRUE(ddp_rx_may_unbind(&reader.module.rx()));
        mpa::FpduReceiver octets = reader.receiver.octets();
        octets.consume(ConstBytes(traffic.octets).subspan(reader.module.rx().pos), reader.ulp);
        EXPECT_EQ(octets.stream_error(), StreamError::none);
        EXPECT_TRUE(octets.between_fpdus());
    });
}

}  // namespace
}  // namespace xsock
