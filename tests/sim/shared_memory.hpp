// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that two simulated processes share. Each sees its own stores at once and the other's late:
// a store that releases not before all that came before it, others in any order between those; and
// what is larger than a word in pieces. A process may die between any two stores.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/shared_ring.hpp"
#include "shm/layout.hpp"
#include "tests/sim/mutant.hpp"
#include "tests/sim/rng.hpp"

namespace xsock::sim {

/// Thrown out of the store behind which a process dies.
struct Killed {};

class SimMemory;

/// The memory as one process sees it.
class MemoryView final : public SharedMemory::Interposer {
  public:
    MemoryView(SimMemory& memory, unsigned who) : memory_(memory), who_(who) {}

    std::uint32_t load32(std::size_t at) override;
    std::uint64_t load64(std::size_t at) override;
    void store32(std::size_t at, std::uint32_t value, bool release) override;
    void store64(std::size_t at, std::uint64_t value) override;
    std::uint32_t exchange32(std::size_t at, std::uint32_t value) override;
    void fence() override;
    void copy_out(std::size_t at, Bytes to) override;
    void copy_in(std::size_t at, ConstBytes from) override;
    Bytes room(std::size_t at, std::size_t bytes) override;
    void room_written(std::size_t at, std::size_t bytes) override;

  private:
    SimMemory& memory_;
    unsigned who_;
};

class SimMemory {
  public:
    struct Options {
        unsigned amid_percent = 5;   ///< stores behind which on_store() is called
        unsigned late_percent = 50;  ///< loads before which nothing more becomes visible
        /// The stores behind which each process dies; none: it does not.
        std::array<std::uint64_t, 2> dies_behind = {~std::uint64_t{0}, ~std::uint64_t{0}};
    };

    SimMemory(const shm::Layout& layout, const Options& options, std::uint64_t seed, Mutant mutant);

    [[nodiscard]] SharedMemory shared(unsigned who);
    /// Between two stores of this process.
    std::function<void(unsigned who)> on_store;
    /// All that the other has stored becomes visible to `who`: something came by the kernel.
    void catch_up(unsigned who);
    [[nodiscard]] bool died(unsigned who) const noexcept {
        return stores_[who] > options_.dies_behind[who];
    }

  private:
    friend class MemoryView;

    struct Store {
        std::size_t at;
        std::uint32_t bytes;
        bool release;
        std::vector<std::byte> value;
    };
    template <typename T>
    T load(unsigned who, std::size_t at);
    void store(unsigned who, std::size_t at, ConstBytes value, bool release);
    void store_pieces(unsigned who, std::size_t at, ConstBytes from);
    void let_some_through(unsigned to);
    void deliver(unsigned to, std::size_t index);
    void check(std::size_t at, std::size_t bytes) const;
    void bend(unsigned who, std::size_t at, Bytes value) const;

    shm::Layout layout_;
    Options options_;
    Rng rng_;
    Mutant mutant_;
    std::array<std::vector<std::byte>, 2> seen_;  // by each
    std::array<std::deque<Store>, 2> under_way_;  // to each
    std::array<std::vector<std::byte>, 2> room_;  // where each writes a batch
    std::array<std::size_t, 2> room_at_ = {0, 0};
    std::array<std::uint64_t, 2> stores_ = {0, 0};
    // By each, of what may be gone: nothing is allocated while it is read.
    std::array<std::vector<std::byte>, 2> copy_;
    std::array<MemoryView, 2> view_{MemoryView{*this, 0}, MemoryView{*this, 1}};
};

}  // namespace xsock::sim
