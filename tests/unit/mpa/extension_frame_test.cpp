// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/extension_frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "base/crc32c.hpp"
#include "mpa/fpdu.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::mpa {
namespace {

using test::bytes_of;
using test::ByteVector;
using Error = ExtensionError;

ByteVector operator+(ByteVector a, const ByteVector& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Implementation someone() {
    return {.features = MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_DELAYED_ACK | std::uint64_t{1} << 63,
            .delayed_ack_ms = 40,
            .name = Implementation::text("xsock"),
            .version = Implementation::text("0.2.0")};
}

ByteVector tlv(int type, const ByteVector& value) {
    const auto n = static_cast<int>(value.size());
    return bytes_of({type >> 8, type & 255, n >> 8, n & 255}) + value;
}

ByteVector frame_of(const ByteVector& tlvs) {
    ByteVector out;
    append_extension_frame(out, tlvs);
    return out;
}

/// The value of MPA_TLV_IMPLEMENTATION: no features, a name, a version.
ByteVector value_of(std::string_view name, std::string_view version) {
    ByteVector out(sizeof(mpa_tlv_implementation));
    for (const std::string_view text : {name, version}) {
        out.push_back(static_cast<std::byte>(text.size()));
        const auto bytes = std::as_bytes(std::span(text));
        out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
}

ByteVector good_frame() {
    ByteVector tlvs;
    append_tlv(tlvs, someone());
    append_tlv(tlvs, 7, test::pattern(9));
    return frame_of(tlvs);
}

/// The CRC made right again, behind a change.
ByteVector sealed(ByteVector frame) {
    const std::size_t covered = frame.size() - MPA_CRC_OCTETS;
    store_le32(frame.data() + covered,
               crc32c_finish(crc32c(kCrc32cInit, ConstBytes(frame).first(covered))));
    return frame;
}

ByteVector changed(ByteVector frame, std::size_t at, int to) {
    frame.at(at) = static_cast<std::byte>(to);
    return sealed(std::move(frame));
}

Error decoded(const ByteVector& frame) {
    ExtensionFrame out;
    return decode(frame, out);
}

// -- encoding --

TEST(ExtensionFrame, without_tlvs_has_28_bytes) {
    const ByteVector frame = frame_of({});
    const ByteVector expected =
        bytes_of({0, 22, 0x41, 0x4f, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0});
    ASSERT_EQ(frame.size(), 28u);
    EXPECT_EQ(ByteVector(frame.begin(), frame.end() - 4), expected);
    EXPECT_EQ(frame, sealed(frame));
    EXPECT_EQ(decoded(frame), Error::none);
}

TEST(ExtensionFrame, carries_the_implementation_as_tlv_1) {
    ByteVector tlvs;
    append_tlv(tlvs, {.features = 0x0102030405060708,
                      .delayed_ack_ms = 0x1234,
                      .name = Implementation::text("ab"),
                      .version = Implementation::text("1.0")});
    // Bit 4 of the features is not set, so there is no limit to tell.
    EXPECT_EQ(tlvs,
              bytes_of({0, 1, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 'a', 'b', 3, '1', '.', '0'}));
}

TEST(ExtensionFrame, is_a_whole_fpdu_whatever_its_length) {
    for (std::size_t n = 0; n < 9; ++n) {
        const ByteVector frame = frame_of(tlv(9, test::pattern(n)));
        EXPECT_EQ(frame.size(), fpdu_octets(load_be16(frame.data()))) << n;
        EXPECT_EQ(frame.size() % 4, 0u) << n;
        EXPECT_EQ(extension_frame_bytes(frame.data()), frame.size()) << n;
        EXPECT_EQ(decoded(frame), Error::none) << n;
    }
}

TEST(ExtensionFrame, appends_behind_what_is_there) {
    ByteVector out = bytes_of({1, 2, 3});
    append_extension_frame(out, tlv(3, {}));
    EXPECT_EQ(out, bytes_of({1, 2, 3}) + frame_of(tlv(3, {})));
}

TEST(ExtensionFrame, a_tlv_is_inserted_at_its_place) {
    const ByteVector one = tlv(1, value_of("x", "y")), three = tlv(3, test::pattern(5)),
                     nine = tlv(9, {});
    for (const auto& [below, above] :
         {std::pair(ByteVector(), ByteVector()), {one, {}}, {{}, nine}, {one, nine}}) {
        ByteVector tlvs = below + above;
        insert_tlv(tlvs, 3, test::pattern(5));
        EXPECT_EQ(tlvs, below + three + above);
    }
}

// -- decoding --

TEST(ExtensionFrame, comes_back_as_it_was) {
    ExtensionFrame out;
    ASSERT_EQ(decode(good_frame(), out), Error::none);
    ASSERT_TRUE(out.implementation.has_value());
    EXPECT_EQ(*out.implementation, someone());
}

TEST(ExtensionFrame, need_not_name_an_implementation) {
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlv(2, {})), out), Error::none);
    EXPECT_FALSE(out.implementation.has_value());
}

TEST(ExtensionFrame, asks_for_alignment_by_a_tlv_without_a_value) {
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlv(MPA_TLV_ALIGN, {})), out), Error::none);
    EXPECT_TRUE(out.align);
    ASSERT_EQ(decode(frame_of(tlv(MPA_TLV_ALIGN, test::pattern(3))), out), Error::none);
    EXPECT_TRUE(out.align) << "a later version may say more";
    ASSERT_EQ(decode(frame_of(tlv(5, {})), out), Error::none);
    EXPECT_FALSE(out.align);
}

TEST(ExtensionFrame, skips_unknown_types) {
    ByteVector tlvs = tlv(0, test::pattern(3));
    append_tlv(tlvs, someone());
    tlvs = tlvs + tlv(2, {}) + tlv(0x0fff, test::pattern(200)) + tlv(0xffff, test::pattern(1));
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlvs), out), Error::none);
    EXPECT_EQ(*out.implementation, someone());
}

TEST(ExtensionFrame, hands_out_offer_and_answer_of_shared_memory_as_they_came) {
    const ByteVector tlvs =
        tlv(1, value_of("x", "y")) + tlv(3, test::pattern(62)) + tlv(4, test::pattern(17));
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlvs), out), Error::none);
    EXPECT_EQ(out.shm_offer, test::pattern(62));
    EXPECT_EQ(out.shm_answer, test::pattern(17));
    const ConstBytes found = find_tlv(tlvs, MPA_TLV_SHM_OFFER);
    EXPECT_EQ(ByteVector(found.begin(), found.end()), test::pattern(62));
    EXPECT_TRUE(find_tlv(tlvs, 2).empty());

    ASSERT_EQ(decode(frame_of(tlv(3, {})), out), Error::none);
    EXPECT_TRUE(out.shm_offer.empty());
    EXPECT_TRUE(out.shm_answer.empty());
}

TEST(ExtensionFrame, ignores_what_is_behind_the_version_of_tlv_1) {
    ExtensionFrame out;
    const ByteVector value = value_of("xsock", "9") + test::pattern(50);
    ASSERT_EQ(decode(frame_of(tlv(1, value)), out), Error::none);
    EXPECT_EQ(out.implementation->name, Implementation::text("xsock"));
    EXPECT_EQ(out.implementation->version, Implementation::text("9"));
}

TEST(ExtensionFrame, has_room_for_1024_bytes_of_tlvs) {
    const ByteVector most = frame_of(tlv(1, value_of("x", "y")) + tlv(2, test::pattern(1002)));
    EXPECT_EQ(load_be16(most.data() + offsetof(mpa_extension_frame, tlvs_length)), 1024);
    EXPECT_EQ(decoded(most), Error::none);
    EXPECT_EQ(extension_frame_bytes(most.data()), most.size());
    const ByteVector beyond = bytes_of({(22 + 1025) >> 8, (22 + 1025) & 255});
    EXPECT_EQ(extension_frame_bytes(beyond.data()), 0u);
    EXPECT_EQ(extension_frame_bytes(bytes_of({0, 21}).data()), 0u);
    EXPECT_EQ(extension_frame_bytes(bytes_of({0xff, 0xff}).data()), 0u);
}

TEST(ExtensionFrame, texts_have_64_bytes_at_most_and_are_printable) {
    const std::string longest(64, 'n');
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlv(1, value_of(longest, longest))), out), Error::none);
    EXPECT_EQ(std::string_view(out.implementation->name.data()), longest);
    EXPECT_EQ(decoded(frame_of(tlv(1, value_of(longest + "n", "1")))), Error::implementation);
    EXPECT_EQ(decoded(frame_of(tlv(1, value_of("n", longest + "n")))), Error::implementation);
    ASSERT_EQ(decode(frame_of(tlv(1, value_of("a\x1b[2Jb\xff", {"\0\n", 2}))), out), Error::none);
    EXPECT_STREQ(out.implementation->name.data(), "a?[2Jb?");
    EXPECT_STREQ(out.implementation->version.data(), "??");
    EXPECT_EQ(std::string_view(Implementation::text(longest + "cut").data()), longest);
}

TEST(ExtensionFrame, delayed_ack_counts_with_its_bit_only) {
    ByteVector value = value_of("", "");
    store_be16(value.data() + 8, 25);
    ExtensionFrame out;
    ASSERT_EQ(decode(frame_of(tlv(1, value)), out), Error::none);
    EXPECT_EQ(out.implementation->delayed_ack_ms, 0);
    value[7] = std::byte{MPA_FEATURE_DELAYED_ACK};
    ASSERT_EQ(decode(frame_of(tlv(1, value)), out), Error::none);
    EXPECT_EQ(out.implementation->delayed_ack_ms, 25);
}

TEST(ExtensionFrame, refuses_a_value_of_tlv_1_that_ends_early) {
    const ByteVector value = value_of("name", "version");
    for (std::size_t n = 0; n < value.size(); ++n) {
        const ByteVector some(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(n));
        EXPECT_EQ(decoded(frame_of(tlv(1, some))), Error::implementation) << n;
    }
}

struct Bad {
    const char* name;
    ByteVector frame;
    Error error;
};

TEST(ExtensionFrame, refuses_what_is_wrong) {
    const ByteVector good = good_frame(), none = frame_of({});
    const ByteVector two = tlv(2, {}), three = tlv(3, test::pattern(4));
    const Bad cases[] = {
        {"CRC",
         [&] {
             auto f = good;
             f.back() ^= std::byte{1};
             return f;
         }(),
         Error::crc},
        {"an octet under the CRC",
         [&] {
             auto f = good;
             f[30] ^= std::byte{1};
             return f;
         }(),
         Error::crc},
        {"pad under the CRC",
         [&] {
             auto f = frame_of(tlv(2, test::pattern(1)));
             f[f.size() - 5] = std::byte{1};
             return f;
         }(),
         Error::crc},
        {"a type twice", frame_of(two + two), Error::tlv_order},
        {"descending types", frame_of(three + two), Error::tlv_order},
        {"0 behind others", frame_of(two + tlv(0, {})), Error::tlv_order},
        {"the implementation twice",
         frame_of(tlv(1, value_of("a", "b")) + tlv(1, value_of("a", "b"))), Error::tlv_order},
        {"a value one octet too long", frame_of(two + bytes_of({0, 3, 0, 5, 1, 2, 3, 4})),
         Error::tlv_overrun},
        {"a value of 65535 octets", frame_of(bytes_of({0, 3, 0xff, 0xff})), Error::tlv_overrun},
        {"half a TLV header", frame_of(two + bytes_of({0, 9})), Error::tlv_overrun},
        {"TLVs longer than the ULPDU", changed(good, 23, std::to_integer<int>(good[23]) + 1),
         Error::length},
        {"TLVs shorter than the ULPDU", changed(good, 23, std::to_integer<int>(good[23]) - 1),
         Error::length},
        {"a tagged FPDU", changed(none, 2, 0xc1), Error::header},
        {"not the last segment", changed(none, 2, 0x01), Error::header},
        {"another DDP version", changed(none, 2, 0x42), Error::header},
        {"a Send", changed(none, 3, 0x43), Error::header},
        {"an STag", changed(none, 7, 1), Error::header},
        {"another QN", changed(none, 11, 4), Error::header},
        {"another MSN", changed(none, 15, 2), Error::header},
        {"an MO", changed(none, 19, 4), Error::header},
        {"another version", changed(none, 20, 2), Error::version},
        {"a cut header", ByteVector(none.begin(), none.begin() + 23), Error::length},
        {"nothing", {}, Error::length},
        {"octets behind it", good + bytes_of({0}), Error::length},
    };
    for (const Bad& c : cases) {
        ExtensionFrame out{someone()};
        EXPECT_EQ(decode(c.frame, out), c.error) << c.name;
        EXPECT_EQ(*out.implementation, someone()) << c.name << ": nothing was taken";
    }
}

TEST(ExtensionFrame, ignores_the_reserved_byte) {
    EXPECT_EQ(decoded(changed(good_frame(), 21, 0xaa)), Error::none);
}

TEST(ExtensionFrame, every_error_has_a_sentence) {
    std::set<std::string> seen;
    for (int e = 0; e <= static_cast<int>(Error::implementation); ++e) {
        const std::string text = extension_error_text(static_cast<Error>(e));
        EXPECT_GT(text.size(), 10u);
        EXPECT_TRUE(seen.insert(text).second) << text;
    }
}

// -- in pieces --

TEST(ExtensionReceiver, takes_a_frame_cut_at_every_byte) {
    const ByteVector frame = good_frame(), behind = bytes_of({9, 9, 9, 9, 9});
    const ByteVector stream = frame + behind;
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        ExtensionReceiver receiver;
        const std::size_t first = std::min(cut, frame.size());
        EXPECT_EQ(receiver.consume(ConstBytes(stream).first(cut)), first) << cut;
        EXPECT_EQ(receiver.complete(), cut >= frame.size()) << cut;
        EXPECT_EQ(receiver.consume(ConstBytes(stream).subspan(first)), frame.size() - first) << cut;
        ASSERT_TRUE(receiver.complete()) << cut;
        EXPECT_EQ(*receiver.frame().implementation, someone());
    }
}

TEST(ExtensionReceiver, takes_a_frame_byte_by_byte) {
    const ByteVector frame = good_frame();
    ExtensionReceiver receiver;
    for (const std::byte& byte : frame) {
        EXPECT_FALSE(receiver.complete());
        EXPECT_EQ(receiver.consume({&byte, 1}), 1u);
    }
    EXPECT_TRUE(receiver.complete());
}

TEST(ExtensionReceiver, refuses_as_early_as_it_shows) {
    const auto refused_after = [](const ByteVector& stream, Error error) {
        ExtensionReceiver receiver;
        std::size_t n = 0;
        for (; n < stream.size() && receiver.error() == Error::none; ++n) {
            receiver.consume({&stream[n], 1});
        }
        EXPECT_EQ(receiver.error(), error);
        EXPECT_FALSE(receiver.complete());
        EXPECT_EQ(receiver.consume(stream), 0u);
        return n;
    };
    EXPECT_EQ(refused_after(bytes_of({0, 14, 0xc1, 0x40}), Error::length), 2u);  // a probe
    EXPECT_EQ(refused_after(changed(good_frame(), 3, 0x43), Error::header), 24u);
    EXPECT_EQ(refused_after(changed(good_frame(), 20, 9), Error::version), 24u);
    ByteVector bad = good_frame();
    bad.back() ^= std::byte{0x80};
    EXPECT_EQ(refused_after(bad, Error::crc), bad.size());
}

}  // namespace
}  // namespace xsock::mpa
