// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/mutant.hpp"

namespace xsock::sim {
namespace {
constexpr MutantName kNames[] = {
    {Mutant::none, "none"},
    {Mutant::flip_after_crc, "flip-after-crc"},
    {Mutant::ignore_crc, "ignore-crc"},
    {Mutant::deliver_twice, "deliver-twice"},
    {Mutant::lose_write, "lose-write"},
    {Mutant::drop_completion, "drop-completion"},
    {Mutant::duplicate_completion, "duplicate-completion"},
    {Mutant::swap_completions, "swap-completions"},
    {Mutant::wrong_status, "wrong-status"},
    {Mutant::skip_bounds, "skip-bounds"},
    {Mutant::late_touch, "late-touch"},
    {Mutant::early_completion, "early-completion"},
    {Mutant::lost_wakeup, "lost-wakeup"},
    {Mutant::leak_region, "leak-region"},
    {Mutant::garble_atomic, "garble-atomic"},
    {Mutant::garble_immediate, "garble-immediate"},
    {Mutant::garble_beside, "garble-beside"},
    {Mutant::beside_unannounced, "beside-unannounced"},
    {Mutant::garble_single, "garble-single"},
    {Mutant::garble_batch, "garble-batch"},
    {Mutant::garble_complete, "garble-complete"},
    {Mutant::garble_header, "garble-header"},
    {Mutant::foreign_domain, "foreign-domain"},
    {Mutant::ignore_fault, "ignore-fault"},
    {Mutant::skip_ack_wait, "skip-ack-wait"},
    {Mutant::ack_ahead, "ack-ahead"},
    {Mutant::ack_late, "ack-late"},
    {Mutant::ack_mute, "ack-mute"},
    {Mutant::wide_window, "wide-window"},
    {Mutant::grant_rights, "grant-rights"},
    {Mutant::forget_placed, "forget-placed"},
    {Mutant::place_elsewhere, "place-elsewhere"},
    {Mutant::place_behind, "place-behind"},
    {Mutant::tail_ahead, "tail-ahead"},
    {Mutant::ignore_credit, "ignore-credit"},
    {Mutant::reuse_generation, "reuse-generation"},
    {Mutant::record_first, "record-first"},
    {Mutant::fin_first, "fin-first"},
    {Mutant::skip_wake, "skip-wake"},
};
}  // namespace

std::span<const MutantName> mutants() noexcept { return kNames; }

std::optional<Mutant> mutant_named(std::string_view name) noexcept {
    for (const MutantName& row : kNames) {
        if (name == row.name) return row.what;
    }
    return std::nullopt;
}

}  // namespace xsock::sim
