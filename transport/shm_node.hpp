// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links in shared memory of one Progress: the listener at which other processes make them,
// those in the making, those that there are, and the connections that wait for one. Nothing here
// waits. Called by the poller only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/credit_pool.hpp"
#include "shm/offer.hpp"
#include "transport/shm_connector.hpp"
#include "transport/shm_link.hpp"
#include "transport/shm_listener.hpp"

namespace xsock {

/// An initiator's connection, which wants a link to its responder's listener.
class ShmWaiter {
  public:
    virtual void on_link(ShmLink& link, PollCycle& cycle) noexcept = 0;
    virtual void on_no_link(shm::Reason why, PollCycle& cycle) noexcept = 0;

  protected:
    ~ShmWaiter() = default;
};

/// A responder's connection, for which its initiator opens a slot.
class ShmResponder {
  public:
    /// Once at most. Null: it wants none any more.
    virtual shm::Stream* on_open(ShmLink& link) = 0;

  protected:
    ~ShmResponder() = default;
};

struct ShmConfig {
    std::size_t memory_bytes = std::size_t{256} << 20;  ///< all credit together
    std::vector<uid_t> users;                           ///< permitted beside our own
    Time timeout = 200 * kMillisecond;                  ///< for a hello, and for its answer
    std::string folder;  ///< for processes of other network namespaces; empty: none
};

/// Its connections and links may use it as long as they are in the Progress; it is destroyed behind
/// them.
class ShmNode final : private ShmLink::Owner,
                      private ShmListener::Owner,
                      private ShmConnector::Owner {
  public:
    /// Without a listener or a link. ENOMEM.
    static Result<std::shared_ptr<ShmNode>> create(Progress& progress, ShmConfig config);
    /// May throw std::bad_alloc.
    ShmNode(Progress& progress, ShmConfig config);

    // -- responders --

    /// Makes the listener, if there is none. `none`: key() may be offered. When the effective user
    /// id has changed there is a new one, with another key; links of before get no connections from
    /// here any more.
    [[nodiscard]] shm::Reason listen();
    /// @pre listen() has answered `none`
    [[nodiscard]] const shm::Key& key() const noexcept { return key_; }
    /// A token for shm::Offer, valid until responder.on_open() or stop_expecting(). May throw
    /// std::bad_alloc.
    [[nodiscard]] std::uint64_t expect(ShmResponder& responder);
    /// Nothing happens if it is not valid any more.
    void stop_expecting(std::uint64_t token) { responders_.erase(token); }
    /// Takes what was published so far in links of this id (two, where both ends are here). One
    /// that is made by now, though the event of that was not served yet, is among them: over TCP,
    /// the initiator's shm::Answer can be ahead of both.
    void poll_links(std::uint64_t id, PollCycle& cycle);

    // -- initiators --

    /// Answers by on_link() or on_no_link(), in this call or later. One call at a time for each.
    void want_link(const shm::Key& peer, ShmWaiter& waiter, PollCycle& cycle) noexcept;
    /// It is not called any more.
    void forget(ShmWaiter& waiter) noexcept;

    // -- both --

    [[nodiscard]] shm::CreditPool& credit() noexcept { return credit_; }

  private:
    struct Making {
        std::shared_ptr<ShmConnector> connector;
        bool shared = true;  ///< others may wait for it too
    };
    struct Waiting {
        const ShmConnector* connector;
        ShmWaiter* waiter;
    };

    // -- ShmLink::Owner --
    shm::Stream* on_open(ShmLink& link, std::uint64_t token) override;
    void on_link_closed(ShmLink& link) override;
    // -- ShmListener::Owner --
    void on_hello(MadeLink&& made, PollCycle& cycle) noexcept override;
    // -- ShmConnector::Owner --
    void on_made(ShmConnector& connector, MadeLink&& made, PollCycle& cycle) noexcept override;
    void on_failed(ShmConnector& connector, shm::Reason why, PollCycle& cycle) noexcept override;

    void check_user();
    void close_listeners() noexcept;
    [[nodiscard]] bool has_room() const noexcept;
    [[nodiscard]] ShmLink* find(const shm::Key& peer, Time now) const noexcept;
    [[nodiscard]] shm::Reason wait_for(const shm::Key& peer, ShmWaiter& waiter, PollCycle& cycle);
    [[nodiscard]] ShmLink* start(MadeLink&& made, PollCycle& cycle) noexcept;
    void share(ShmLink& link, Time now) noexcept;
    bool remove(const ShmConnector& connector) noexcept;
    [[nodiscard]] ShmWaiter* take_waiter(const ShmConnector& connector) noexcept;

    Progress& progress_;
    const ShmConfig config_;
    const std::vector<std::byte> accepts_, refuses_;  // answers to hellos
    shm::CreditPool credit_;
    uid_t user_;  // effective, as the links by key are
    shm::Key key_;
    std::shared_ptr<ShmListener> listener_, folder_listener_;
    std::vector<ShmLink*> links_;
    std::map<shm::Key, ShmLink*> by_peer_;  // for further connections to it
    std::vector<Making> making_;
    std::deque<Waiting> waiting_;  // thousands may, and leave from the front
    std::unordered_map<std::uint64_t, ShmResponder*> responders_;  // by token
};

}  // namespace xsock
