// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes records as the kernel module does (include/xsock/ddp_uapi.h): for tests and the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.hpp"
#include "base/ulp.hpp"
#include "include/xsock/ddp_uapi.h"
#include "include/xsock/iwarp.h"

namespace xsock::test {

struct Records {
    std::vector<std::byte> bytes;

    Records& header(std::uint16_t type, std::uint32_t length) {
        const ddp_record header{type, 0, length};
        return put(&header, sizeof header);
    }
    Records& record(std::uint16_t type, ConstBytes body) {
        header(type, static_cast<std::uint32_t>(body.size()));
        put(body.data(), body.size());
        // Padding may hold anything.
        while (bytes.size() % DDP_RECORD_ALIGN != 0) bytes.push_back(std::byte{0xa5});
        return *this;
    }
    template <typename T>
    Records& structure(std::uint16_t type, const T& body, std::size_t grown_by = 0) {
        std::vector<std::byte> grown(sizeof body + grown_by, std::byte{0x11});
        std::memcpy(grown.data(), &body, sizeof body);
        return record(type, grown);
    }
    Records& raw(ConstBytes octets) { return record(DDP_RECORD_RAW, octets); }
    Records& ulpdu(ConstBytes ulpdu) { return record(DDP_RECORD_ULPDU, ulpdu); }
    Records& unknown(std::uint16_t type, std::size_t length) {
        return record(type, std::vector<std::byte>(length));
    }
    /// `wire` 0: of FPDUs without markers.
    Records& placed(const PlacedWrites& writes, std::size_t grown_by = 0, std::uint64_t wire = 0) {
        ddp_placed run = body(writes);
        if (wire != 0) run.wire = wire;
        return structure(DDP_RECORD_PLACED, run, grown_by);
    }
    Records& response(ConstBytes tagged_header, std::uint32_t length, std::uint64_t wire = 0) {
        ddp_response one{};
        one.wire = wire != 0 ? wire : (2 + std::uint64_t{14} + length + 3) / 4 * 4 + 4;
        one.length = length;
        std::memcpy(one.header, tagged_header.data(), sizeof one.header);
        return structure(DDP_RECORD_RESPONSE, one);
    }
    Records& append(const Records& other) { return put(other.bytes.data(), other.bytes.size()); }

    /// Octets of the stream that a run is said to be.
    static std::uint64_t wire(const PlacedWrites& writes) {
        return writes.bytes + 24 * writes.segments;
    }
    static ddp_placed body(const PlacedWrites& writes) {
        ddp_placed run{};
        run.wire = wire(writes);
        run.octets = writes.bytes;
        run.fpdus = writes.segments;
        run.messages = writes.messages;
        run.last_length = static_cast<std::uint32_t>(writes.last_bytes);
        run.message_octets = writes.last_bytes;
        run.last_control = static_cast<std::uint8_t>(DDP_FLAG_TAGGED | DDP_VERSION |
                                                     (writes.last_ended ? DDP_FLAG_LAST : 0));
        run.last_rdmap = RDMAP_VERSION | RDMAP_WRITE;
        return run;
    }

  private:
    Records& put(const void* from, std::size_t n) {
        const auto* first = static_cast<const std::byte*>(from);
        bytes.insert(bytes.end(), first, first + n);
        return *this;
    }
};

}  // namespace xsock::test
