// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The slots of a link, as one side knows them. Used by Link only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/layout.hpp"

namespace xsock::shm {

class Stream;

/// One connection's place in a link. It is free when both ends have published FIN and read the
/// other's: the next `open` is behind both in either ring. A FIN that aborts may follow one that
/// does not: when its sender, which takes nothing any more, has received something.
struct Slot {
    enum class Fin : std::uint8_t {
        none,
        owed,  ///< it found no room, or may not be published now
        sent,
    };
    Stream* stream = nullptr;      ///< null: what comes for it is dropped
    std::uint32_t generation = 0;  ///< of the connection that has it, or had it last
    Fin fin = Fin::none;
    bool aborts = false;  ///< our FIN does
    bool fin_received = false;
    bool abort_received = false;  ///< with it, or behind it
    bool open = false;
};

class SlotTable {
  public:
    SlotTable(std::uint32_t slots, Side side) noexcept
        : limit_(slots), side_(side), next_(static_cast<std::uint32_t>(side)) {}

    /// A free slot of ours, open now, with a generation of its own.
    std::optional<std::uint16_t> take() {
        std::uint16_t number = 0;
        if (!free_.empty()) {
            number = free_.back();
            free_.pop_back();
        } else if (next_ < limit_) {
            number = static_cast<std::uint16_t>(next_);
            next_ += 2;
        } else {
            return std::nullopt;
        }
        open(number, next(at(number).generation));
        return number;
    }
    /// May the peer open this slot, with this generation? @pre exists(number)
    [[nodiscard]] bool peer_may_open(std::uint16_t number, std::uint32_t generation) {
        const Slot& slot = at(number);
        return !is_ours(number) && !slot.open && generation != 0 && generation != slot.generation;
    }
    /// What the peer sends of it may be under way still, behind our next `open` of the slot.
    [[nodiscard]] bool was_before(std::uint16_t number, std::uint32_t generation) {
        return is_ours(number) && next(generation) == at(number).generation;
    }
    void open(std::uint16_t number, std::uint32_t generation) {
        at(number) = {.generation = generation, .open = true};
        ++open_;
    }
    /// Free again.
    void close(std::uint16_t number) {
        at(number).open = false;
        --open_;
        if (is_ours(number)) free_.push_back(number);
    }

    [[nodiscard]] bool exists(std::uint16_t number) const noexcept { return number < limit_; }
    /// Valid until another slot is asked for. @pre exists(number)
    [[nodiscard]] Slot& at(std::uint16_t number) {
        if (number >= slots_.size()) slots_.resize(number + std::size_t{1});
        return slots_[number];
    }
    [[nodiscard]] std::size_t open_slots() const noexcept { return open_; }
    /// Slots above all that were ever open.
    [[nodiscard]] std::size_t end() const noexcept { return slots_.size(); }

  private:
    [[nodiscard]] static std::uint32_t next(std::uint32_t generation) noexcept {
        return generation + 1 != 0 ? generation + 1 : 1;
    }
    [[nodiscard]] bool is_ours(std::uint16_t number) const noexcept {
        return number % 2 == static_cast<unsigned>(side_);
    }

    std::vector<Slot> slots_;  // as many as were ever used
    std::vector<std::uint16_t> free_;
    std::uint32_t limit_;
    Side side_;
    std::uint32_t next_;  // of ours, the first that was never used
    std::size_t open_ = 0;
};

}  // namespace xsock::shm
