// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The shared page: one file for each process that uses the engine, in which `xsock stat` sees its
// connections. The engine (transport/stats.cpp) writes, readers only read; they check everything in
// it, for any process of the user may have written the file.
//
//   <folder>/<pid>-<pid namespace>-<random>     mode 0600, unlinked at exit
//     StatsHeader, then slots of StatsHeader::slot_size bytes from StatsHeader::slots_at on, and
//     from StatsHeader::plain_at on a PlainRecord for each descriptor (base/plain_socket.hpp)
//
// A slot has two parts. Counters are 64-bit words that the poller of the connection stores into as
// it works. The description changes a few times in a connection's life and is guarded by
// StatsSlot::sequence: odd while it is written, and different afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/counters.hpp"
#include "base/kernel_reason.hpp"
#include "base/plain_socket.hpp"

namespace xsock {

inline constexpr char kStatsMagic[8] = {'x', 's', 'o', 'c', 'k', 's', 't', '\n'};
/// Grows when a field changes its place or meaning. Readers refuse other versions. A field behind
/// the last changes neither: readers go by the sizes in the header, those that do not know it leave
/// it out, and where the writer does not they read zeros (StatsHeader is followed by zeros up to
/// slots_at, a description by zeros up to the slot's end).
inline constexpr std::uint32_t kStatsVersion = 2;

/// Which API the connection belongs to.
enum class Api : std::uint8_t {
    endpoint,  ///< xsock_ep
    message,   ///< socket in DDPMODE, message mode
    stream,    ///< socket in DDPMODE, stream mode
    verbs,     ///< queue pair of libibverbs
};

struct StatsHeader {
    char magic[8];  ///< stored last: the file is complete
    std::uint32_t version;
    std::uint32_t slots_at;     ///< bytes from the start of the file
    std::uint32_t slot_size;    ///< bytes
    std::uint32_t slots;        ///< that are there now; grows
    std::uint64_t connections;  ///< ever made
    std::uint64_t unlisted;     ///< of these, found no slot
    std::uint64_t start_time;   ///< of the process, field 22 of /proc/PID/stat
    std::uint64_t opened_ns;    ///< CLOCK_REALTIME
    std::uint32_t pid;
    std::uint32_t reserved;
    char program[64];                ///< NUL-terminated, as all text here
    char library[64];                ///< xsock version
    std::uint64_t startups_dropped;  ///< connections of crowds, closed to make room for others
    std::uint32_t plain_at;          ///< bytes from the start of the file
    std::uint32_t plain_records;     ///< that are there now; grows
    std::uint64_t plain_unlisted;    ///< sockets that found no record
    std::uint64_t unpinned[kernel::kUnpinnedReasons];  ///< memory regions, by kernel::Unpinned
};
static_assert(sizeof(StatsHeader) == 248);

struct StatsDescription {
    std::uint64_t opened_ns;  ///< CLOCK_REALTIME
    std::uint32_t qp_num;
    std::uint32_t mulpdu;  ///< bytes
    std::int32_t error;    ///< errno; 0 while nothing went wrong
    std::uint16_t ird, ord;
    std::uint8_t api;                                     ///< Api
    std::uint8_t state;                                   ///< QpState
    std::uint8_t stream_error;                            ///< StreamError
    std::uint8_t revision;                                ///< of MPA; 0 until start-up has ended
    std::uint8_t initiator, crc, markers_tx, markers_rx;  // 0 or 1, as is the next
    std::uint8_t peer_is_xsock;
    std::uint8_t path;        ///< DataPath
    std::uint8_t shm_reason;  ///< shm::Reason: why not shared memory; 0 also where none is known
    /// 1: the kernel module places what the peer writes; 2: it was to, and kernel_reason says why
    /// not; 0: it was not asked.
    std::uint8_t kernel;
    std::uint8_t kernel_reason;  ///< kernel::Reason
    std::uint8_t reserved[3];
    char local[64];  ///< "127.0.0.1:4711"
    char peer[64];
    char error_text[168];  ///< in words; empty if well
    // Of the peer's extension frame; 0 and empty without one.
    std::uint64_t peer_features;  ///< MPA_FEATURE_*
    std::uint16_t peer_delayed_ack_ms;
    std::uint8_t reserved2[6];
    char peer_name[72];
    char peer_version[72];
    char congestion[16];  ///< TCP's control: "cubic"
};
static_assert(sizeof(StatsDescription) == 512);

struct alignas(64) StatsSlot {
    std::uint32_t sequence;            ///< of the description; accessed atomically
    std::uint32_t taken;               ///< 0: free; accessed atomically
    std::uint64_t tx_bytes, rx_bytes;  ///< of TCP stream
    Counters counters;
    StatsDescription description;
    StreamCounters stream;       ///< zeros where the slot ends before it, as is the next
    std::uint64_t placed_early;  ///< QpInfo's, a second old at most
};
static_assert(sizeof(StatsSlot) == 896);
/// Readers take slots from this size on.
inline constexpr std::uint32_t kStatsSlotLeast = offsetof(StatsSlot, stream);

inline constexpr std::uint32_t kStatsPlainAt = 4096;
/// Descriptors below it have a record, where the file could grow.
inline constexpr std::uint32_t kStatsMaxPlain = 16384;
inline constexpr std::uint32_t kStatsSlotsAt =
    kStatsPlainAt + kStatsMaxPlain * std::uint32_t{sizeof(PlainRecord)};
inline constexpr std::uint32_t kStatsMaxSlots = 16384;

/// The folder where this process publishes: XSOCK_STAT if it names one; otherwise
/// $XDG_RUNTIME_DIR/xsock, or /dev/shm/xsock-UID where that is not set. Empty: XSOCK_STAT=off.
[[nodiscard]] std::string stats_folder();
/// Where readers look: XSOCK_STAT alone if it names a folder; otherwise all the places where
/// processes of this user may publish.
[[nodiscard]] std::vector<std::string> stats_folders();

/// Opens a folder that belongs to this user alone (no link, mode 0700), making it if `make`.
/// @return a descriptor, or -1 with errno: EPERM when another user could write there
[[nodiscard]] int open_stats_folder(const std::string& path, bool make);

/// A file's name tells its process, so that files of killed processes are found without trusting
/// any content.
struct StatsName {
    std::uint32_t pid = 0;
    std::uint64_t pid_namespace = 0;  ///< inode
};
[[nodiscard]] bool parse_stats_name(const char* name, StatsName& out);
/// Inode of this process's pid namespace; 0 when /proc does not tell.
[[nodiscard]] std::uint64_t own_pid_namespace();
/// Start time of a process in clock ticks after boot; 0 when there is none.
[[nodiscard]] std::uint64_t process_start_time(std::uint32_t pid);
/// Unlinks files of processes of this pid namespace that are gone. `folder`: open descriptor, kept.
void sweep_stats_folder(int folder);

}  // namespace xsock
