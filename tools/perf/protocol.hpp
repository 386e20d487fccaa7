// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `xsock perf` client and server say to each other. All connections of a session go to one
// port of the server and are told apart by their first bytes:
//
//   control  "xsockprf": ControlMessages, a question and an answer at a time
//   TCP      "xsock-perf-data\n", then a DataHello: one of the plain connections
//   DDP      an MPA Request, with a DataHello as private data
//
// Numbers are big-endian. A server checks everything: everything has a limit (Limits), and
// connections that do not belong to the session under way are closed.
#pragma once

#include <xsock/xsock.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "base/bytes.hpp"

namespace xsock::tools::perf {

inline constexpr const char* kPort = "7473";
inline constexpr char kControlMagic[8] = {'x', 's', 'o', 'c', 'k', 'p', 'r', 'f'};
inline constexpr char kDataMagic[17] = "xsock-perf-data\n";
inline constexpr std::size_t kMagicBytes = 16;  ///< enough to tell the three apart
inline constexpr std::uint32_t kVersion = 1;

struct Limits {
    static constexpr std::uint64_t size = 16u << 20;
    static constexpr std::uint64_t depth = 1024;
    static constexpr std::uint64_t connections = 64;
    static constexpr std::uint64_t count = 1ull << 32;
};

enum class Kind : std::uint32_t { hello = 1, welcome, open, opened, sample, ready, done, refused };
enum class Op : std::uint32_t { send, write, read };
enum class Test : std::uint32_t { latency, stream };

// Control::flags.
inline constexpr std::uint32_t kPolling = 1;   ///< spin instead of sleeping
inline constexpr std::uint32_t kBothWays = 2;  ///< stream: both ends send
inline constexpr std::uint32_t kPlainTcp = 4;  ///< sample: over the plain connections
inline constexpr std::uint32_t kNoCrc = 8;     ///< open: do not ask for CRCs

/// A ControlMessage as numbers.
struct Control {
    Kind kind = Kind::hello;
    std::uint32_t version = kVersion;
    std::uint64_t token = 0;
    Op op = Op::send;
    Test test = Test::latency;
    std::uint32_t flags = 0;
    std::uint64_t size = 0;         ///< bytes of a message; open: of the largest
    std::uint64_t depth = 0;        ///< open: the largest
    std::uint64_t connections = 0;  ///< of each kind
    std::uint64_t count = 0;        ///< messages on each connection and way
    std::string text;               ///< refused: why
};

struct ControlMessage {
    char magic[8];
    std::uint8_t version[4], kind[4];
    std::uint8_t token[8];
    std::uint8_t op[4], test[4], flags[4], reserved[4];
    std::uint8_t size[8], depth[8], connections[8], count[8];
    char text[80];
};
static_assert(sizeof(ControlMessage) == 152);

/// How a data connection introduces itself.
struct DataHello {
    char magic[8];  // kControlMagic
    std::uint8_t token[8];
    std::uint8_t index[4];
    std::uint8_t reserved[4];
    xsock_key key;  // DDP: the memory of this end; the server's Reply has one too
};
static_assert(sizeof(DataHello) == 48);

[[nodiscard]] ControlMessage encode(const Control& control);
/// False when it is no control message, or a field is beyond its limit.
[[nodiscard]] bool decode(const ControlMessage& message, Control& control);

/// Sends a message on a blocking socket. Throws Failure.
void send_control(int fd, const Control& control);
/// Receives one within `limit_ms`. Throws Failure: time ran out, closed, malformed, refused.
[[nodiscard]] Control receive_control(int fd, int limit_ms);

[[nodiscard]] inline const char* op_name(Op op) {
    static constexpr const char* kNames[] = {"Send", "Write", "Read"};
    return kNames[static_cast<std::size_t>(op)];
}

}  // namespace xsock::tools::perf
