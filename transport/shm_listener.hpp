// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where other processes ask for a link in shared memory: each connects, sends a hello with the
// memory's descriptor, and is told whether that was accepted. Called by the poller only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/hello.hpp"
#include "transport/made_link.hpp"
#include "transport/progress.hpp"
#include "transport/shm_folder.hpp"

namespace xsock {

class ShmListener final : public Pollable {
  public:
    class Owner {
      public:
        /// A link that another process has made, with its socket, on which `made` is answered ahead
        /// of all else: shm::encode_answer().
        virtual void on_hello(MadeLink&& made, PollCycle& cycle) noexcept = 0;

      protected:
        ~Owner() = default;
    };

    /// So many may be connected and have said nothing; of more the oldest is closed.
    static constexpr std::size_t kMostUnfinished = 64;

    /// Listens under the name of `key`, and adds itself to `progress`. `owner` and `users` outlive
    /// it. What socket calls fail with, ENOMEM.
    /// @param timeout until a peer that has connected must have sent its hello
    static Result<std::shared_ptr<ShmListener>> create(Progress& progress, const shm::Key& key,
                                                       std::span<const uid_t> users, Time timeout,
                                                       Owner& owner);
    /// The same under the key's name in a folder (XSOCK_SHM_DIR).
    static Result<std::shared_ptr<ShmListener>> create_in(const std::string& folder,
                                                          Progress& progress, const shm::Key& key,
                                                          std::span<const uid_t> users,
                                                          Time timeout, Owner& owner);
    ShmListener(Progress& progress, int fd, ShmName name, std::span<const uid_t> users,
                Time timeout, Owner& owner) noexcept;
    ~ShmListener() override;
    /// Also those that are not finished. Not from inside on_hello().
    void close() noexcept;

    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle& cycle) override;
    void on_failure(PollCycle& cycle) noexcept override;
    void on_exit(PollCycle&) override { name_.remove(); }

  private:
    class Incoming;

    static Result<std::shared_ptr<ShmListener>> start(int fd, ShmName name, Progress& progress,
                                                      std::span<const uid_t> users, Time timeout,
                                                      Owner& owner);

    void accept_some(PollCycle& cycle);
    void add(int fd, PollCycle& cycle);
    /// It is not polled any more; its socket stays.
    void forget(Incoming& incoming) noexcept;
    void remove(Incoming& incoming) noexcept;
    void pause(PollCycle& cycle) noexcept;

    Progress& progress_;
    int fd_;
    ShmName name_;
    std::span<const uid_t> users_;
    const Time timeout_;
    Owner& owner_;
    std::vector<std::shared_ptr<Incoming>> unfinished_;  // oldest first
    bool paused_ = false;
};

}  // namespace xsock
