// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Faults put into the stack on purpose, to prove that the oracle sees them. Each stands for a bug
// that a change might bring; `sim --mutant NAME` must fail within a few hundred seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace xsock::sim {

enum class Mutant : std::uint8_t {
    none,
    flip_after_crc,        // a byte of a message changes between its CRC check and its delivery
    ignore_crc,            // an FPDU is delivered although its CRC is wrong
    deliver_twice,         // an intact ULPDU is handed up a second time
    lose_write,            // the payload of a Write goes nowhere
    drop_completion,       // one completion never comes
    duplicate_completion,  // one comes twice
    swap_completions,      // two change places
    wrong_status,          // a flushed request is said to have succeeded
    skip_bounds,           // bounds checks are a few bytes too generous
    late_touch,            // memory is written after its completion
    early_completion,      // the LLP's promise is given before the bytes are written
    lost_wakeup,           // after a while no end sends any more
    leak_region,           // a region outlives everything
    garble_atomic,         // an operand of an atomic operation changes
    garble_immediate,      // Immediate Data change
    garble_beside,         // what a Send with Immediate has beside it changes
    beside_unannounced,    // one is sent to an end that has not announced them
    garble_single,         // payload of a message changes that is written by itself
    garble_batch,          // of one that is written among others
    garble_complete,       // of a ULPDU that is taken whole
    garble_header,         // the place of a Write in such a one
    foreign_domain,        // a region of another protection domain is as good as one of ours
    ignore_fault,          // memory is gone, and the connection goes on
    skip_ack_wait,         // completions that are to wait for the peer do not
    ack_ahead,             // an Acknowledge tells of one message too many
    ack_late,              // what is owed to the peer is never told by itself
    ack_mute,              // the question for an Acknowledge is lost on the way
    wide_window,           // a memory window reaches a few bytes too far
    grant_rights,          // a queue pair permits what it is to withhold
    // with records only
    forget_placed,    // DDP is not told of Writes that were placed
    place_elsewhere,  // the module places them a byte off
    place_behind,     // and behind a Write that is to be stored by the engine
    // over links only
    tail_ahead,        // the reader of a ring gives back what it has not read
    ignore_credit,     // more is sent than the receiver permits
    reuse_generation,  // a slot is opened with the generation of the connection before
    record_first,      // a record's word is visible before the record
    fin_first,         // FIN is published before what was posted
    skip_wake,         // a peer that sleeps is not woken
};

struct MutantName {
    Mutant what;
    const char* name;
};
[[nodiscard]] std::span<const MutantName> mutants() noexcept;
[[nodiscard]] std::optional<Mutant> mutant_named(std::string_view name) noexcept;

}  // namespace xsock::sim
