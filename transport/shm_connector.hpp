// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes a link in shared memory with the process that listens under a key: connects, sends a hello
// with the descriptor of new memory, and takes the answer when it comes. Called by the poller only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "shm/offer.hpp"
#include "transport/made_link.hpp"
#include "transport/progress.hpp"

namespace xsock {

class ShmConnector final : public Pollable {
  public:
    class Owner {
      public:
        /// Its last call: the other process has accepted. What takes `made` takes its socket.
        virtual void on_made(ShmConnector& connector, MadeLink&& made,
                             PollCycle& cycle) noexcept = 0;
        /// Its last call: there is none.
        virtual void on_failed(ShmConnector& connector, shm::Reason why,
                               PollCycle& cycle) noexcept = 0;

      protected:
        ~Owner() = default;
    };

    /// `own`: the key by which the other process knows us. `owner` outlives it.
    ShmConnector(Progress& progress, const shm::Key& peer, const shm::Key& own,
                 Owner& owner) noexcept;
    ~ShmConnector() override;
    /// Once. `none`: the owner will be called. Otherwise it will not, and this is of no more use.
    /// May throw std::bad_alloc.
    /// @param users admitted beside our own
    /// @param timeout until the other process must have answered
    /// @param folder where the listener may have a name too (XSOCK_SHM_DIR); empty: nowhere
    [[nodiscard]] shm::Reason start(std::span<const uid_t> users, Time timeout, PollCycle& cycle,
                                    const std::string& folder = {});

    [[nodiscard]] const shm::Key& peer() const noexcept { return peer_; }
    [[nodiscard]] std::uint64_t link() const noexcept { return id_; }

    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle& cycle) override { fail(shm::Reason::timeout, cycle); }
    void on_failure(PollCycle& cycle) noexcept override { fail(shm::Reason::limits, cycle); }

  private:
    Result<void> send_hello();
    void fail(shm::Reason why, PollCycle& cycle) noexcept;
    void close() noexcept;

    Progress& progress_;
    const shm::Key peer_, own_;
    Owner& owner_;
    const std::uint64_t id_;
    int fd_ = -1;
    std::optional<ShmMemory> memory_;  // until it is the owner's
};

}  // namespace xsock
