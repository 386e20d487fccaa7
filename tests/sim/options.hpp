// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What kind of world a seed stands for: the options themselves are drawn from it (swarm testing).
#pragma once

#include <array>
#include <cstdint>

#include "base/device.hpp"
#include "base/memory_table.hpp"
#include "mpa/stream.hpp"
#include "shm/layout.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/rng.hpp"
#include "tests/sim/shared_memory.hpp"

namespace xsock::sim {

/// One end of a connection.
struct EndOptions {
    mpa::Config mpa;
    Implementation implementation;  ///< that its extension frame names; else as it is made
    std::size_t emss = 1460;
    bool emss_changes = false;
    std::uint32_t sq_depth = 16, rq_depth = 16;
    std::uint32_t receives_wanted = 4;  ///< how many the program tries to keep posted
    bool require_lkeys = false;
    bool reject = false;  ///< responder that defers: says no
    std::size_t scratch = mpa::kMinTxScratch;
    std::size_t read_max = 65536;     ///< bytes taken from TCP at once
    std::size_t write_max = 1 << 20;  ///< bytes that TCP takes at once
    std::size_t batch_bytes = 1 << 19;
    unsigned operations = 20;
    unsigned late_operations = 0;                           ///< posted after the peer has finished
    unsigned weights[10] = {4, 1, 3, 3, 1, 0, 0, 0, 0, 0};  ///< by SendOpcode; not send_immediate
    unsigned immediate_percent = 0;        ///< of the Sends are Sends with Immediate
    bool acknowledged = false;             ///< completions wait for the peer
    std::uint32_t rights = kRemoteAccess;  ///< what the peer may do, if the region permits it
    RnrAttr rnr;
    unsigned unsignaled_percent = 0, solicited_percent = 10, fence_percent = 10;
    unsigned inline_percent = 20, lkey_percent = 50, poll_percent = 90;
    unsigned error_percent = 0;
    // How the connection is owned: what the product's transport asks for.
    Time fin_delay = 0;          ///< toward a peer that is no xsock
    Time rtr_timeout = kNever;   ///< how long the RTR message may take, start-up included
    bool outlives_peer = false;  ///< receives stay posted behind the peer's FIN
    bool confirmed = false;      ///< the program is told of start and end before its completions
    Time pause = 10'000;         ///< between two steps of the program
    bool closes_first = false;
};

struct Options {
    std::uint64_t seed = 0;
    /// Nothing may go wrong: everything must succeed and end.
    bool clean = true;
    bool startup_succeeds = true;  ///< judged by the options alone
    bool errors = false, flips = false, flips_in_startup = false, resets = false, aborts = false;
    bool removals = false;    ///< regions are revoked under traffic
    bool foreign = false;     ///< there are regions of other domains and connections to ask for
    bool faults = false;      ///< some memory is unmapped at times
    bool extensions = false;  ///< RFC 7306 is used, where the peer speaks it
    bool windows = false;     ///< memory windows are bound
    bool edges = false;       ///< what is asked for is a few bytes too much at times
    unsigned pairs = 1;
    bool share_queues = false;  ///< one CQ for each program, and an SRQ
    bool shared_receives = false;
    std::size_t message_max = 4096;
    std::size_t region_max = 4096;
    std::size_t arena_bytes = 1 << 17;
    Time rnr_timeout = kNever;
    struct Pair {
        std::array<EndOptions, 2> end;    ///< [0] is the initiator
        std::array<PipeOptions, 2> pipe;  ///< [i]: bytes that end i sends
        Time reset_at = kNever;
        bool crc = true;  ///< both ends will have CRCs on
        std::uint32_t first_msn = 1;
        Time start_at = 0;
        unsigned opener = 0;  ///< the end that takes the slot
        /// The slot is agreed on in start-up: end 1 offers, end 0 answers so late.
        bool offers = false, declines = false;
        Time answer_after = 0;
    };
    std::array<Pair, 4> pair;
    /// Data go through shared memory: all connections by one link, as far as it has slots.
    bool links = false;
    shm::Layout layout;
    SimMemory::Options memory;
    std::size_t credit = 0;  ///< of each process
    bool deaths = false;     ///< a process is killed
    /// Each end has a kernel module, as far as there are no markers: it places Writes, and what is
    /// read is records.
    bool records = false;
};

[[nodiscard]] Options draw_options(std::uint64_t seed);
/// The same world over a link.
void use_links(Options& world);
void describe(const Options& options);

}  // namespace xsock::sim
