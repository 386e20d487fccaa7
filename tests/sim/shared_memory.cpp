// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/shared_memory.hpp"

#include <algorithm>
#include <cstring>

#include "shm/link.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {
namespace {

template <typename T>
std::array<std::byte, sizeof(T)> bytes_of(T value) {
    std::array<std::byte, sizeof(T)> out;
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

}  // namespace

SimMemory::SimMemory(const shm::Layout& layout, const Options& options, std::uint64_t seed,
                     Mutant mutant)
    : layout_(layout), options_(options), rng_(seed), mutant_(mutant) {
    for (unsigned i = 0; i < 2; ++i) {
        seen_[i].resize(layout.bytes());
        room_[i].resize(layout.ring_bytes);
        copy_[i].resize(layout.ring_bytes);
    }
}

SharedMemory SimMemory::shared(unsigned who) { return SharedMemory(seen_[who], &view_[who]); }

void SimMemory::check(std::size_t at, std::size_t bytes) const {
    if (at > layout_.bytes() || bytes > layout_.bytes() - at) {
        fail("an access beyond the shared memory: %zu at %zu", bytes, at);
    }
}

// -- what becomes visible, and when --

void SimMemory::deliver(unsigned to, std::size_t index) {
    const Store& store = under_way_[to][index];
    std::copy(store.value.begin(), store.value.end(),
              seen_[to].begin() + static_cast<std::ptrdiff_t>(store.at));
    under_way_[to].erase(under_way_[to].begin() + static_cast<std::ptrdiff_t>(index));
}

void SimMemory::catch_up(unsigned who) {
    while (!under_way_[who].empty()) deliver(who, 0);
}

void SimMemory::let_some_through(unsigned to) {
    std::deque<Store>& stores = under_way_[to];
    if (stores.empty() || rng_.chance(options_.late_percent)) return;
    for (std::uint64_t n = 1 + rng_.magnitude(stores.size()); n != 0 && !stores.empty(); --n) {
        // Any of those before the next that releases, or that one when it is the first.
        std::size_t free = 0;
        while (free < stores.size() && !stores[free].release) ++free;
        std::size_t index = free == 0 ? 0 : rng_.below(free);
        // What lies in one place becomes visible in the order in which it was stored.
        for (std::size_t i = 0; i < index; ++i) {
            const bool overlaps = stores[i].at < stores[index].at + stores[index].bytes &&
                                  stores[index].at < stores[i].at + stores[i].bytes;
            if (overlaps) index = i;
        }
        deliver(to, index);
    }
}

// -- accesses --

template <typename T>
T SimMemory::load(unsigned who, std::size_t at) {
    check(at, sizeof(T));
    let_some_through(who);
    T value;
    std::memcpy(&value, seen_[who].data() + at, sizeof value);
    return value;
}

/// Faults put in on purpose.
void SimMemory::bend(unsigned who, std::size_t at, Bytes value) const {
    if (value.size() != sizeof(std::uint64_t)) return;
    if (mutant_ == Mutant::tail_ahead && at == layout_.tail_at(static_cast<shm::Side>(who))) {
        auto tail = detail::load<std::uint64_t, std::endian::native>(value.data());
        tail += SharedMemory::kLine;
        std::memcpy(value.data(), &tail, sizeof tail);
    }
    if (mutant_ == Mutant::reuse_generation && value[0] == std::byte{2} &&
        value[1] == std::byte{0}) {
        // The back of a record's header: kind, split, slot, generation.
        auto generation = detail::load<std::uint32_t, std::endian::native>(value.data() + 4);
        if (generation > 1 && generation < 100) --generation;
        std::memcpy(value.data() + 4, &generation, sizeof generation);
    }
}

void SimMemory::store(unsigned who, std::size_t at, ConstBytes value, bool release) {
    check(at, value.size());
    if (++stores_[who] > options_.dies_behind[who]) throw Killed{};
    Store store{
        at, static_cast<std::uint32_t>(value.size()), release, {value.begin(), value.end()}};
    bend(who, at, store.value);
    if (mutant_ == Mutant::record_first) store.release = false;
    std::copy(store.value.begin(), store.value.end(),
              seen_[who].begin() + static_cast<std::ptrdiff_t>(at));
    under_way_[1 - who].push_back(std::move(store));
    if (on_store && rng_.chance(options_.amid_percent)) on_store(who);
}

void SimMemory::store_pieces(unsigned who, std::size_t at, ConstBytes from) {
    // Words of what is short, some hundred bytes of what is long.
    const std::size_t most = from.size() <= 128 ? 8 : from.size() / 8;
    while (!from.empty()) {
        const ConstBytes piece = from.first(std::min(most, from.size()));
        store(who, at, piece, false);
        at += piece.size();
        from = from.subspan(piece.size());
    }
}

std::uint32_t MemoryView::load32(std::size_t at) { return memory_.load<std::uint32_t>(who_, at); }

std::uint64_t MemoryView::load64(std::size_t at) {
    auto value = memory_.load<std::uint64_t>(who_, at);
    // Credit: lines in the lower half, none while there is no generation.
    const bool is_credit = at >= memory_.layout_.credit_at(0, shm::Side::creator);
    if (memory_.mutant_ == Mutant::ignore_credit && is_credit && value != 0) value += 4000;
    return value;
}

void MemoryView::store32(std::size_t at, std::uint32_t value, bool release) {
    memory_.store(who_, at, bytes_of(value), release);
}
void MemoryView::store64(std::size_t at, std::uint64_t value) {
    memory_.store(who_, at, bytes_of(value), true);
}

std::uint32_t MemoryView::exchange32(std::size_t at, std::uint32_t value) {
    fence();
    memory_.catch_up(who_);
    const auto was = memory_.load<std::uint32_t>(who_, at);
    memory_.store(who_, at, bytes_of(value), true);
    fence();
    return was;
}

void MemoryView::fence() { memory_.catch_up(1 - who_); }

void MemoryView::copy_out(std::size_t at, Bytes to) {
    memory_.check(at, to.size());
    memory_.let_some_through(who_);
    std::memcpy(to.data(), memory_.seen_[who_].data() + at, to.size());
}

void MemoryView::copy_in(std::size_t at, ConstBytes from) {
    memory_.check(at, from.size());
    if (from.empty()) return;
    const Bytes copy = Bytes(memory_.copy_[who_]).first(from.size());
    std::memcpy(copy.data(), from.data(), from.size());  // or it faults
    memory_.store_pieces(who_, at, copy);
}

Bytes MemoryView::room(std::size_t at, std::size_t bytes) {
    memory_.check(at, bytes);
    memory_.room_at_[who_] = at;
    return Bytes(memory_.room_[who_]).first(bytes);
}

void MemoryView::room_written(std::size_t at, std::size_t bytes) {
    const std::size_t from = at - memory_.room_at_[who_];
    // All but the header, which add() stores.
    memory_.store_pieces(
        who_, at + kRecordHeader,
        ConstBytes(memory_.room_[who_]).subspan(from + kRecordHeader, bytes - kRecordHeader));
}

}  // namespace xsock::sim
