// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every row of the table of stream errors that DDP or RDMAP can raise is provoked here by a crafted
// ULPDU, and the Terminate that answers it is compared octet by octet.
#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

/// A stream of QP 7 in PD 1 with IRD 2, regions of every kind, one receive of 100 octets, one Read
/// of 100 octets under way.
struct Victim {
    World world;
    End end{world, {.qp_num = 7, .pd = 1, .ird = 2}};
    ByteVector memory = pattern(1000);
    ByteVector sink = ByteVector(100), buffer = ByteVector(100);
    std::uint32_t readable = world.add(memory, kRemoteRead);
    std::uint32_t writable = world.add(memory, kRemoteWrite | kLocalWrite);
    std::uint32_t other_pd = world.add(memory, kRemoteRead | kRemoteWrite, 2);
    std::uint32_t other_qp = world.add(memory, kRemoteRead | kRemoteWrite, 1, 8);
    alignas(8) std::array<std::uint64_t, 4> words{1, 2, 3, 4};
    std::uint32_t atomic = world.table
                               .add({.address = reinterpret_cast<std::byte*>(words.data()),
                                     .length = sizeof words,
                                     .access = kRemoteAtomic | kZeroBased,
                                     .pd = 1})
                               .value();
    std::uint32_t sink_stag = 0;

    Victim() {
        end.establish({.features = MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_SEND_IMMEDIATE});
        end.post({.wr_id = 50, .opcode = SendOpcode::read}, {sge(sink)});
        sink_stag = load_be32(drain(*end.stream).at(0).data() + kUntaggedOctets);
        end.post_recv(60, {sge(buffer)});
    }
    ByteVector write(std::uint32_t stag, std::uint64_t to, std::size_t n) const {
        return header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag, .to = to}) + pattern(n);
    }
    ByteVector read(std::uint32_t stag, std::uint64_t to, std::uint32_t n,
                    std::uint32_t msn = 1) const {
        return header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = msn}) +
               body(
                   {.sink_stag = 1, .sink_to = 2, .size = n, .source_stag = stag, .source_to = to});
    }
    ByteVector response(std::uint32_t stag, std::uint64_t to, std::size_t n, bool last) const {
        return header({.opcode = RDMAP_READ_RESPONSE,
                       .tagged = true,
                       .last = last,
                       .stag = stag,
                       .to = to}) +
               pattern(n);
    }
    ByteVector atomically(std::uint32_t stag, std::uint64_t to, std::uint8_t opcode = 0,
                          std::uint32_t msn = 1) const {
        ByteVector request(kAtomicRequestOctets);
        encode(AtomicRequest{.opcode = opcode,
                             .request_id = 9,
                             .remote_stag = stag,
                             .remote_to = to,
                             .operands = {.operand = 1}},
               request.data());
        return header({.opcode = RDMAP_ATOMIC_REQUEST, .qn = 1, .msn = msn}) + request;
    }
    ByteVector send(std::size_t n, Segment segment = {.msn = 1}) const {
        return header(segment) + pattern(n);
    }
};

struct Case {
    const char* name;
    StreamError stream_error;
    std::uint64_t completed;  // wr_id that gets a status of its own; 0: none
    WcStatus status;
    std::function<std::vector<ByteVector>(Victim&)> ulpdus;  // the last one causes the error
    const char* control;                                     // of the Terminate
    std::size_t quoted;                                      // octets of the faulty segment in it
};

constexpr WcStatus kFlushed = WcStatus::flushed;

std::vector<Case> cases() {
    using V = StreamError;
    using L = std::vector<ByteVector>;
    return {
        // RDMAP
        {"read stag", V::read_stag_invalid, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable ^ 1, 0, 10)}; }, "0100e000", 46},
        {"read bounds", V::read_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, 991, 10)}; }, "0101e000", 46},
        {"read bounds, start", V::read_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, 1001, 1)}; }, "0101e000", 46},
        {"read bounds, 4 GiB", V::read_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, 0, 0xffffffff)}; }, "0101e000", 46},
        {"read access", V::read_access, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.writable, 0, 10)}; }, "0102e000", 46},
        {"read pd", V::read_stag_not_associated, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.other_pd, 0, 10)}; }, "0103e000", 46},
        {"read qp", V::read_stag_not_associated, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.other_qp, 0, 10)}; }, "0103e000", 46},
        {"read wrap", V::read_to_wrap, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, ~0ull - 4, 10)}; }, "0104e000", 46},
        {"write access", V::write_access, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.readable, 0, 10)}; }, "0102c000", 14},
        {"invalidate nothing", V::invalidate_stag_invalid, 0, kFlushed,
         [](Victim& v) {
             return L{
                 v.send(5, {.opcode = RDMAP_SEND_INVALIDATE, .stag = v.readable ^ 1, .msn = 1})};
         },
         "0100c000", 18},
        {"invalidate changes", V::invalidate_stag_invalid, 0, kFlushed,
         [](Victim& v) {
             return L{
                 v.send(5, {.opcode = RDMAP_SEND_INVALIDATE, .last = false, .stag = 4, .msn = 1}),
                 v.send(5, {.opcode = RDMAP_SEND_INVALIDATE, .stag = 5, .msn = 1, .mo = 5})};
         },
         "0100c000", 18},
        {"invalidate shared", V::invalidate_not_permitted, 0, kFlushed,
         [](Victim& v) {
             return L{
                 v.send(5, {.opcode = RDMAP_SEND_SE_INVALIDATE, .stag = v.readable, .msn = 1})};
         },
         "0109c000", 18},
        {"rdmap version, tagged", V::rdmap_version, 0, kFlushed,
         [](Victim&) { return L{from_hex("c180 00000001 0000000000000000")}; }, "0205c000", 14},
        {"rdmap version, untagged", V::rdmap_version, 0, kFlushed,
         [](Victim&) { return L{from_hex("4103 00000000 00000000 00000001 00000000 99")}; },
         "0205c000", 18},
        {"opcode unknown", V::rdmap_opcode, 0, kFlushed,
         [](Victim&) { return L{from_hex("414f 00000000 00000000 00000001 00000000")}; },
         "0206c000", 18},
        {"opcode tagged", V::rdmap_opcode, 0, kFlushed,
         [](Victim&) { return L{from_hex("c143 00000001 0000000000000000")}; }, "0206c000", 14},
        {"opcode on another's queue", V::rdmap_opcode, 0, kFlushed,
         [](Victim&) { return L{from_hex("4143 00000000 00000001 00000001 00000000")}; },
         "0206c000", 18},
        {"opcode changes", V::rdmap_opcode, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(5, {.last = false, .msn = 1}),
                      v.send(5, {.opcode = RDMAP_SEND_SE, .msn = 1, .mo = 5})};
         },
         "0206c000", 18},
        {"too many reads", V::read_queue_overflow, 0, kFlushed,
         [](Victim& v) {
             return L{v.read(v.readable, 0, 1, 1), v.read(v.readable, 0, 1, 2),
                      v.read(v.readable, 0, 1, 3)};
         },
         "1202c000", 18},
        {"response to nothing", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) { return L{v.response(v.sink_stag ^ 1, 0, 100, true)}; }, "0206c000", 14},
        {"response at another offset", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) { return L{v.response(v.sink_stag, 1, 99, true)}; }, "0206c000", 14},
        {"response repeats itself", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) {
             return L{v.response(v.sink_stag, 0, 50, false), v.response(v.sink_stag, 0, 50, false)};
         },
         "0206c000", 14},
        {"response too long", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) { return L{v.response(v.sink_stag, 0, 101, true)}; }, "0206c000", 14},
        {"response too long at the end", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) {
             return L{v.response(v.sink_stag, 0, 99, false), v.response(v.sink_stag, 99, 2, true)};
         },
         "0206c000", 14},
        {"response too short", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) { return L{v.response(v.sink_stag, 0, 99, true)}; }, "0206c000", 14},
        {"response without an end", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim& v) { return L{v.response(v.sink_stag, 0, 100, false)}; }, "0206c000", 14},
        {"response after the last", V::response_unexpected, 0, kFlushed,
         [](Victim& v) {
             return L{v.response(v.sink_stag, 0, 100, true), v.response(v.sink_stag, 100, 0, true)};
         },
         "0206c000", 14},
        {"read request short", V::read_request_malformed, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.read(v.readable, 0, 1);
             u.pop_back();
             return L{u};
         },
         "02ffc000", 18},
        {"read request long", V::read_request_malformed, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, 0, 1) + pattern(100)}; }, "02ffc000", 18},
        {"read request not last", V::read_request_malformed, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.read(v.readable, 0, 1);
             u[0] = std::byte{0x01};
             return L{u};
         },
         "02ffc000", 18},
        // RFC 7306
        {"atomic stag", V::read_stag_invalid, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic ^ 1, 0)}; }, "0100c000", 18},
        {"atomic bounds", V::read_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 25)}; }, "0101c000", 18},
        {"atomic access", V::read_access, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.writable, 0)}; }, "0102c000", 18},
        {"atomic access by reading", V::read_access, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.readable, 0)}; }, "0102c000", 18},
        {"atomic pd", V::read_stag_not_associated, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.other_pd, 0)}; }, "0103c000", 18},
        {"atomic wrap", V::read_to_wrap, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, ~0ull - 3)}; }, "0104c000", 18},
        {"read without the right, atomics with", V::read_access, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.atomic, 0, 8)}; }, "0102e000", 18 + 28},
        {"atomic unaligned", V::atomic_unaligned, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 4)}; }, "0207c000", 18},
        {"atomic opcode reserved", V::atomic_opcode, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 0, 1)}; }, "0206c000", 18},
        {"atomic opcode unknown", V::atomic_opcode, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 0, 15)}; }, "0206c000", 18},
        {"atomic short", V::atomic_malformed, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.atomically(v.atomic, 0);
             u.pop_back();
             return L{u};
         },
         "02ffc000", 18},
        {"atomic long", V::atomic_malformed, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 0) + pattern(100)}; }, "02ffc000", 18},
        {"atomic not last", V::atomic_malformed, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.atomically(v.atomic, 0);
             u[0] = std::byte{0x01};
             return L{u};
         },
         "02ffc000", 18},
        {"atomic mo", V::untagged_mo, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.atomically(v.atomic, 0);
             u[17] = std::byte{1};
             return L{u};
         },
         "1204c000", 18},
        {"atomics beyond the IRD", V::read_queue_overflow, 0, kFlushed,
         [](Victim& v) {
             return L{v.atomically(v.atomic, 0, 0, 1), v.read(v.readable, 0, 1, 2),
                      v.atomically(v.atomic, 0, 2, 3)};
         },
         "1202c000", 18},
        {"atomic msn", V::untagged_msn_range, 0, kFlushed,
         [](Victim& v) { return L{v.atomically(v.atomic, 0, 0, 2)}; }, "1203c000", 18},
        {"answer to a Read by an atomic's", V::response_unexpected, 50, WcStatus::bad_response,
         [](Victim&) {
             return L{
                 from_hex("414b 00000000 00000003 00000001 00000000 00000001"
                          "0000000000000000")};
         },
         "0206c000", 18},
        {"immediate short", V::immediate_malformed, 0, kFlushed,
         [](Victim& v) { return L{v.send(7, {.opcode = RDMAP_IMMEDIATE, .msn = 1})}; }, "02ffc000",
         18},
        {"immediate long", V::immediate_malformed, 0, kFlushed,
         [](Victim& v) { return L{v.send(9, {.opcode = RDMAP_IMMEDIATE_SE, .msn = 1})}; },
         "02ffc000", 18},
        {"immediate empty", V::immediate_malformed, 0, kFlushed,
         [](Victim& v) { return L{v.send(0, {.opcode = RDMAP_IMMEDIATE, .msn = 1})}; }, "02ffc000",
         18},
        {"immediate not last", V::immediate_malformed, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(8, {.opcode = RDMAP_IMMEDIATE, .last = false, .msn = 1})};
         },
         "02ffc000", 18},
        {"immediate mo", V::untagged_mo, 0, kFlushed,
         [](Victim& v) { return L{v.send(8, {.opcode = RDMAP_IMMEDIATE, .msn = 1, .mo = 8})}; },
         "1204c000", 18},
        // between xsocks
        {"acknowledge of more than was sent", V::acknowledge_range, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 00000001 00000004 00000001 00000000")}; },
         "02ffc000", 18},
        {"acknowledge of less than nothing", V::acknowledge_range, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 7fffffff 00000004 00000001 00000000")}; },
         "02ffc000", 18},
        {"acknowledge, high bit", V::acknowledge_malformed, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 80000000 00000004 00000001 00000000")}; },
         "02ffc000", 18},
        {"acknowledge with payload", V::acknowledge_malformed, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 00000000 00000004 00000001 00000000 aa")}; },
         "02ffc000", 18},
        {"acknowledge not last", V::acknowledge_malformed, 0, kFlushed,
         [](Victim&) { return L{from_hex("014e 00000000 00000004 00000001 00000000")}; },
         "02ffc000", 18},
        {"acknowledge mo", V::untagged_mo, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 00000000 00000004 00000001 00000001")}; },
         "1204c000", 18},
        {"acknowledge msn", V::untagged_msn_range, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 00000000 00000004 00000002 00000000")}; },
         "1203c000", 18},
        {"acknowledge on the queue of Sends", V::rdmap_opcode, 0, kFlushed,
         [](Victim&) { return L{from_hex("414e 00000000 00000000 00000001 00000000")}; },
         "0206c000", 18},
        {"immediate amid a Send", V::rdmap_opcode, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(5, {.last = false, .msn = 1}),
                      v.send(8, {.opcode = RDMAP_IMMEDIATE, .msn = 1, .mo = 5})};
         },
         "0206c000", 18},
        // DDP
        {"stag", V::tagged_stag_invalid, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.writable ^ 1, 0, 10)}; }, "1100c000", 14},
        {"bounds", V::tagged_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.writable, 991, 10)}; }, "1101c000", 14},
        {"bounds, far", V::tagged_bounds, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.writable, 1ull << 63, 1)}; }, "1101c000", 14},
        {"pd", V::tagged_stag_not_associated, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.other_pd, 0, 10)}; }, "1102c000", 14},
        {"qp", V::tagged_stag_not_associated, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.other_qp, 0, 10)}; }, "1102c000", 14},
        {"wrap", V::tagged_to_wrap, 0, kFlushed,
         [](Victim& v) { return L{v.write(v.writable, ~0ull, 10)}; }, "1103c000", 14},
        {"ddp version, tagged", V::tagged_version, 0, kFlushed,
         [](Victim&) { return L{from_hex("c240 00000001 0000000000000000 77")}; }, "1104c000", 14},
        {"qn", V::untagged_qn, 0, kFlushed,
         [](Victim&) { return L{from_hex("4143 00000000 00000005 00000001 00000000")}; },
         "1201c000", 18},
        {"msn repeated", V::untagged_msn_range, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(1), v.send(1)};
         },
         "1203c000", 18},
        {"msn ahead", V::untagged_msn_range, 0, kFlushed,
         [](Victim& v) { return L{v.send(1, {.msn = 2})}; }, "1203c000", 18},
        {"msn of a message that has not ended", V::untagged_msn_range, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(1, {.last = false, .msn = 1}), v.send(1, {.msn = 2})};
         },
         "1203c000", 18},
        {"msn of a read request", V::untagged_msn_range, 0, kFlushed,
         [](Victim& v) { return L{v.read(v.readable, 0, 1, 0)}; }, "1203c000", 18},
        {"mo of the first", V::untagged_mo, 0, kFlushed,
         [](Victim& v) { return L{v.send(1, {.msn = 1, .mo = 1})}; }, "1204c000", 18},
        {"mo goes back", V::untagged_mo, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(10, {.last = false, .msn = 1}), v.send(10, {.msn = 1, .mo = 9})};
         },
         "1204c000", 18},
        {"mo leaves a gap", V::untagged_mo, 0, kFlushed,
         [](Victim& v) {
             return L{v.send(10, {.last = false, .msn = 1}), v.send(10, {.msn = 1, .mo = 11})};
         },
         "1204c000", 18},
        {"mo near 2^32", V::untagged_mo, 0, kFlushed,
         [](Victim& v) { return L{v.send(10, {.msn = 1, .mo = 0xfffffffa})}; }, "1204c000", 18},
        {"mo of a read request", V::untagged_mo, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.read(v.readable, 0, 1);
             u[17] = std::byte{1};
             return L{u};
         },
         "1204c000", 18},
        {"too long", V::untagged_too_long, 60, WcStatus::local_length_error,
         [](Victim& v) { return L{v.send(101)}; }, "1205c000", 18},
        {"too long by the second segment", V::untagged_too_long, 60, WcStatus::local_length_error,
         [](Victim& v) {
             return L{v.send(100, {.last = false, .msn = 1}), v.send(1, {.msn = 1, .mo = 100})};
         },
         "1205c000", 18},
        {"ddp version, untagged", V::untagged_version, 0, kFlushed,
         [](Victim&) { return L{from_hex("4043 00000000 00000000 00000001 00000000")}; },
         "1206c000", 18},
        {"empty", V::segment_truncated, 0, kFlushed, [](Victim&) { return L{ByteVector{}}; },
         "20030000", 0},
        {"one octet", V::segment_truncated, 0, kFlushed, [](Victim&) { return L{from_hex("c1")}; },
         "20030000", 0},
        {"13 octets", V::segment_truncated, 0, kFlushed,
         [](Victim&) { return L{from_hex("c140 00000001 00000000000000")}; }, "20030000", 0},
        {"untagged of 14 octets", V::segment_truncated, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.send(0);
             u.resize(14);
             return L{u};
         },
         "20030000", 0},
        {"untagged of 17 octets", V::segment_truncated, 0, kFlushed,
         [](Victim& v) {
             ByteVector u = v.send(0);
             u.resize(17);
             return L{u};
         },
         "20030000", 0},
    };
}

/// Rows that no inbound ULPDU can provoke in this layer, and why.
const std::map<StreamError, const char*> kElsewhere = {
    {StreamError::local_catastrophic, "ours: a local key (tx_test), memory exhausted"},
    {StreamError::response_access, "a Read's sink STag names no region, so there are no rights"},
    {StreamError::terminate_malformed, "noted, never sent: rx_test malformed_terminates"},
    {StreamError::remote_operation_unspecified, "for RFC 7306 and the kernel stack"},
    {StreamError::ddp_catastrophic, "fail() only: below"},
    {StreamError::untagged_no_buffer, "receive_overdue(): below"},
};

ByteVector terminate_of(const Case& c, const ByteVector& error_context) {
    ByteVector out = from_hex("4147 00000000 00000002 00000001 00000000") + from_hex(c.control);
    if (c.quoted > 0) {
        ByteVector length(2);
        store_be16(length.data(), static_cast<std::uint16_t>(error_context.size()));
        out = out + length + ConstBytes(error_context).first(c.quoted);
    }
    return out;
}

void provoke(const Case& c, std::size_t step) {
    SCOPED_TRACE(c.name);
    Victim v;
    const auto ulpdus = c.ulpdus(v);
    std::vector<Wc> wcs;
    for (std::size_t i = 0; i < ulpdus.size(); ++i) {
        ASSERT_EQ(v.end->stream_error(), StreamError::none);
        ASSERT_TRUE(feed(*v.end.stream, ulpdus[i], true, step) || v.end->rx_blocked());
        if (i + 1 < ulpdus.size() && v.end.rq.size() == 0) v.end.post_recv(61);
    }
    EXPECT_EQ(v.end->stream_error(), c.stream_error);
    EXPECT_EQ(v.end->state(), Stream::State::terminating);
    EXPECT_TRUE(v.end->tx_wanted());

    // Whatever follows is dropped in silence, and only the first error is reported.
    const ByteVector before = v.memory;
    EXPECT_TRUE(feed(*v.end.stream, v.write(v.writable, 0, 500)));
    EXPECT_TRUE(feed(*v.end.stream, v.send(5000, {.msn = 99})));
    EXPECT_TRUE(feed(*v.end.stream, ByteVector{}));
    EXPECT_EQ(v.memory, before);
    v.end->fail(StreamError::mpa_crc);
    EXPECT_EQ(v.end->stream_error(), c.stream_error);

    v.end.post({.wr_id = 70});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*v.end.stream, 1024, out));
    EXPECT_EQ(flatten(out), terminate_of(c, ulpdus.back()));
    EXPECT_FALSE(next_ulpdu(*v.end.stream, 1024, out));
    v.end->tx_done(1);
    EXPECT_EQ(v.end->state(), Stream::State::ended);
    EXPECT_FALSE(next_ulpdu(*v.end.stream, 1024, out));
    ASSERT_NE(v.end->terminate_sent(), nullptr);

    v.end->flush(WcStatus::flushed);
    for (const Wc& wc : v.end.sent()) wcs.push_back(wc);
    for (const Wc& wc : v.end.received()) wcs.push_back(wc);
    for (const Wc& wc : wcs) {
        if (wc.status == WcStatus::success) continue;  // what earlier ULPDUs completed
        EXPECT_EQ(wc.status, wc.wr_id == c.completed ? c.status : kFlushed) << wc.wr_id;
    }
    auto has = [&](std::uint64_t id) { return std::ranges::count(wcs, id, &Wc::wr_id) == 1; };
    EXPECT_TRUE(has(50) && has(60) && has(70));
}

TEST(StreamError, is_answered_by_its_terminate) {
    for (const Case& c : cases()) provoke(c, ~std::size_t{0});
}

TEST(StreamError, is_found_in_single_bytes_too) {
    for (const Case& c : cases()) provoke(c, 1);
}

TEST(StreamError, every_row_is_provoked_or_accounted_for) {
    std::map<StreamError, int> provoked;
    for (const Case& c : cases()) ++provoked[c.stream_error];
    for (const StreamErrorInfo& row : stream_error_table()) {
        const bool ours = row.layer == TermLayer::rdmap || row.layer == TermLayer::ddp ||
                          row.stream_error == StreamError::segment_truncated;
        if (!ours) continue;
        EXPECT_NE(provoked.contains(row.stream_error), kElsewhere.contains(row.stream_error))
            << row.name;
    }
}

TEST(StreamError, overdue_receive_is_reported_with_a_whole_header) {
    World world;
    End end(world);
    end.establish();
    const ByteVector ulpdu = header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(10);
    Inbound inbound(ulpdu);
    ASSERT_FALSE(inbound.feed(*end.stream));
    end->receive_overdue();
    EXPECT_FALSE(end->rx_blocked());
    EXPECT_TRUE(inbound.feed(*end.stream));
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 1202c000 001c") +
                            header({.opcode = RDMAP_SEND, .msn = 1})));
    EXPECT_EQ(end->state(), Stream::State::ended);
}

TEST(StreamError, of_the_layer_itself_quotes_nothing) {
    for (const auto& [stream_error, control] :
         {std::pair{StreamError::ddp_catastrophic, "10000000"},
          std::pair{StreamError::local_catastrophic, "00000000"},
          std::pair{StreamError::mpa_marker, "20030000"}}) {
        World world;
        End end(world);
        end.establish();
        end->fail(stream_error);
        EXPECT_THAT(
            drain(*end.stream),
            ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000") + from_hex(control)));
    }
}

TEST(StreamError, without_a_terminate_ends_at_once) {
    World world;
    End end(world);
    end.establish();
    end->fail(StreamError::local_fault);
    EXPECT_EQ(end->state(), Stream::State::ended);
    EXPECT_THAT(drain(*end.stream), IsEmpty());
    EXPECT_EQ(end->terminate_sent(), nullptr);
}

TEST(StreamError, before_establishment_still_sends_its_terminate) {
    World world;
    End end(world);
    end->llp_failed(StreamError::mpa_insufficient_ird);
    EXPECT_THAT(drain(*end.stream), SizeIs(1));
}

TEST(StreamError, of_a_receives_key_fails_that_receive) {
    Victim v;
    ByteVector small = pattern(20);
    const std::uint32_t read_only = v.world.add(small, 0);
    End end(v.world, {.qp_num = 7, .pd = 1});
    end.establish();
    end.post_recv(1, {sge(small, read_only)});
    end.post_recv(2);
    feed(*end.stream, v.send(20));
    EXPECT_EQ(small, pattern(20));
    EXPECT_EQ(end->stream_error(), StreamError::local_catastrophic);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.received(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error),
                                            Field(&Wc::status, WcStatus::flushed)));
}

TEST(StreamError, of_a_reads_sink_key_fails_that_read) {
    Victim v;
    const std::uint32_t key = v.world.add(v.buffer, kLocalWrite);
    End end(v.world, {.qp_num = 7, .pd = 1});
    end.establish();
    end.post({.wr_id = 1, .opcode = SendOpcode::read}, {sge(v.buffer, key)});
    const std::uint32_t stag = load_be32(drain(*end.stream).at(0).data() + kUntaggedOctets);
    v.world.table.invalidate(key);
    feed(*end.stream, v.response(stag, 0, 100, true));
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error)));
}

}  // namespace
}  // namespace xsock::ddp
