// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carriers that have come in, and which of them end so that another may come. A host that greets
// again and again must not use up the descriptors of this process, nor keep others out: of the
// address that holds most the one that has carried nothing for longest gives way. A process that
// comes again (it has lost its connection, or its end was not noticed here) replaces itself. Not
// thread-safe, but for clock().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/host_address.hpp"
#include "base/polled_qp.hpp"
#include "verbs/datagram_frame.hpp"

namespace xsock::verbs {

class DatagramCarrier;

/// Addresses as TCP shows them; ports of QP numbers, as the greeting says.
struct IncomingKey {
    GidOctets peer{}, own{};
    std::uint16_t from = 0, to = 0;
    bool operator==(const IncomingKey&) const = default;
};

class IncomingCarriers {
  public:
    using Id = const void*;
    struct Carrier {
        IncomingKey key;
        std::shared_ptr<PolledQp> connection;
        /// What clock() was when it last carried something; outlives its place here.
        const std::atomic<std::uint64_t>* used = nullptr;
        /// Of a connection that goes both ways, what it is called here, and what knows its ends;
        /// else null.
        std::uint32_t name = 0;
        std::shared_ptr<DatagramCarrier> ends;
    };
    /// Those that end: of the same process, and of the crowd. Null where there is none.
    struct Replaced {
        std::shared_ptr<PolledQp> same, crowding;
    };

    /// The caller ends what it replaces. Throws std::bad_alloc, and has changed nothing then.
    ///
    /// @param limit how many there may be, at least 1
    [[nodiscard]] Replaced add(Id id, Carrier carrier, std::size_t limit);
    /// Its connection; null: it was not, or is no more, here.
    std::shared_ptr<PolledQp> remove(Id id) noexcept;
    /// Carrier::ends of the one with that key and name; null: there is none.
    [[nodiscard]] std::shared_ptr<DatagramCarrier> find(const IncomingKey& key,
                                                        std::uint32_t name) const;
    [[nodiscard]] std::size_t size() const noexcept { return carriers_.size(); }
    /// Counts carriers that have come. Any thread.
    [[nodiscard]] std::uint64_t clock() const noexcept {
        return clock_.load(std::memory_order_relaxed);
    }
    /// Calls `f` with each PolledQp.
    template <typename F>
    void for_each(F&& f) const {
        for (const auto& [id, carrier] : carriers_) f(carrier.connection);
    }

  private:
    using Carriers = std::unordered_map<Id, Carrier>;

    static HostAddress address_of(const IncomingKey& key) noexcept;
    std::shared_ptr<PolledQp> take(Carriers::iterator carrier) noexcept;
    [[nodiscard]] Carriers::iterator crowding() noexcept;

    Carriers carriers_;
    std::map<HostAddress, std::size_t> held_;  ///< how many of them an address has; none has 0
    std::atomic<std::uint64_t> clock_{0};
};

}  // namespace xsock::verbs
