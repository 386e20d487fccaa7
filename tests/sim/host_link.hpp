// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One process' end of a simulated link, and what the product's transport will do for it: poll,
// sleep, wake, find the connection of a token.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/epoch.hpp"
#include "shm/link.hpp"
#include "tests/sim/shared_memory.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {

class HostLink final : private shm::Link::Owner {
  public:
    HostLink(SimMemory& memory, const shm::Layout& layout, unsigned who, std::size_t credit,
             std::uint64_t seed)
        : memory_(memory),
          who_(who),
          pool_(credit),
          link_(memory.shared(who), layout, static_cast<shm::Side>(who), *this),
          ring_bytes_(layout.ring_bytes),
          rng_(seed) {}

    /// A connection that the peer opens, by its token.
    void expect(std::uint64_t token, shm::Stream& stream) { expected_[token] = &stream; }
    void forget(std::uint64_t token) { expected_.erase(token); }
    [[nodiscard]] shm::Link& link() noexcept { return link_; }
    [[nodiscard]] shm::CreditPool& pool() noexcept { return pool_; }

    /// A poll cycle. True: there may be more to do; false: it sleeps until it is woken.
    bool poll() {
        link_.end_sleep();
        const bool busy =
            link_.poll(scratch_, rng_.chance(50) ? 1 + rng_.magnitude(20'000) : SIZE_MAX);
        allow_and_give_back();
        return busy || !link_.begin_sleep();
    }
    /// Something came by the kernel, before which the peer has stored what it has: reads all of it.
    void drain() {
        memory_.catch_up(who_);
        while (link_.poll(scratch_, SIZE_MAX)) continue;
    }
    /// The peer is no more.
    void peer_died() {
        drain();
        link_.end(StreamError::none);
    }

  private:
    shm::Stream* on_open(std::uint64_t token) override {
        const auto found = expected_.find(token);
        return found != expected_.end() ? found->second : nullptr;
    }
    /// Memory comes step by step, or not at all for a while; and goes when the ring is empty.
    void allow_and_give_back() {
        RingWriter& writer = link_.writer();
        if (writer.wants_more() && rng_.chance(30)) {
            writer.allow(std::min(ring_bytes_, writer.allowed() + (std::size_t{16} << 10)));
        } else if (rng_.chance(5) && !link_.ended() && writer.drained()) {
            static_cast<void>(writer.give_back(4096));
        }
    }

    SimMemory& memory_;
    unsigned who_;
    shm::CreditPool pool_;
    std::map<std::uint64_t, shm::Stream*> expected_;
    shm::Link link_;
    std::size_t ring_bytes_;
    Rng rng_;
    std::vector<std::byte> scratch_ = std::vector<std::byte>(shm::Link::kScratch);
};

}  // namespace xsock::sim
