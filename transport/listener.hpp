// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Accepts TCP connections and runs their start-ups side by side; hands out those that succeeded.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/device.hpp"
#include "transport/connection.hpp"
#include "transport/event_fd.hpp"
#include "transport/startup_table.hpp"

namespace xsock {

/// The poller's half.
class ListenSocket final : public Pollable, public PolledListener {
  public:
    /// `make` makes Connections.
    ///
    /// @param max_starting start-ups under way (when there are more, the StartupTable says which
    ///        goes), and as many connections that wait for take(); beyond that connections wait in
    ///        the listen queue
    ListenSocket(int fd, Progress& progress, const ConnectAttr& attr, Make make,
                 std::size_t max_starting);
    ~ListenSocket() override;

    void set_observer(Observer observer) override { observer_ = std::move(observer); }
    Result<void> open(PollCycle& cycle) override;
    void close(PollCycle& cycle) override;
    std::shared_ptr<PolledQp> take() override;
    void give_back(std::shared_ptr<PolledQp> connection) override;
    [[nodiscard]] bool has_ready() const noexcept override {
        return ready_count_.load(std::memory_order_seq_cst) != 0;
    }
    [[nodiscard]] int shortage() const noexcept override {
        return shortage_.load(std::memory_order_acquire);
    }
    void retry(PollCycle& cycle) override;
    /// Written when a connection becomes ready; -1 until asked for.
    Result<int> ready_fd();

    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle& cycle) override;
    void on_failure(PollCycle& cycle) noexcept override;
    void on_exit_limit(PollCycle& cycle) override;

  private:
    int accept_internal() const noexcept;
    void accept_some(PollCycle& cycle);
    void start(int fd, PollCycle& cycle);
    void started(Connection& connection, QpState state);
    void pause(PollCycle& cycle, Time time);
    /// Closes a start-up under way, as StartupTable::make_room() says. False: there is none.
    bool make_room(PollCycle& cycle, Time min_age = 0);
    /// After accept4() has failed. True: another attempt may succeed at once.
    bool accept_failed(int error, PollCycle& cycle);

    int fd_;
    Progress& progress_;
    ConnectAttr attr_;
    std::vector<std::byte> private_data_;
    Make make_;
    const std::size_t max_starting_;
    Observer observer_;
    StartupTable starting_;  // Connection*, the poller's; Progress owns them
    bool paused_ = false;
    std::atomic<int> shortage_{0};

    std::mutex ready_mutex_;
    std::deque<std::shared_ptr<Connection>> ready_;
    std::atomic<std::size_t> ready_count_{0};
    EventFd ready_event_;  // under ready_mutex_
};

}  // namespace xsock
