// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/sabotage.hpp"

namespace xsock::sim {
namespace {
constexpr SabotageName kNames[] = {
    {Sabotage::none, "none"},
    {Sabotage::flip_after_crc, "flip-after-crc"},
    {Sabotage::ignore_crc, "ignore-crc"},
    {Sabotage::deliver_twice, "deliver-twice"},
    {Sabotage::lose_write, "lose-write"},
    {Sabotage::drop_completion, "drop-completion"},
    {Sabotage::duplicate_completion, "duplicate-completion"},
    {Sabotage::swap_completions, "swap-completions"},
    {Sabotage::wrong_status, "wrong-status"},
    {Sabotage::skip_bounds, "skip-bounds"},
    {Sabotage::late_touch, "late-touch"},
    {Sabotage::early_completion, "early-completion"},
    {Sabotage::lost_wakeup, "lost-wakeup"},
    {Sabotage::leak_region, "leak-region"},
    {Sabotage::garble_atomic, "garble-atomic"},
    {Sabotage::garble_immediate, "garble-immediate"},
    {Sabotage::foreign_domain, "foreign-domain"},
    {Sabotage::ignore_fault, "ignore-fault"},
    {Sabotage::skip_questions, "skip-questions"},
    {Sabotage::wide_window, "wide-window"},
    {Sabotage::grant_rights, "grant-rights"},
};
}  // namespace

std::span<const SabotageName> sabotages() noexcept { return kNames; }

std::optional<Sabotage> sabotage_named(std::string_view name) noexcept {
    for (const SabotageName& row : kNames) {
        if (name == row.name) return row.what;
    }
    return std::nullopt;
}

}  // namespace xsock::sim
