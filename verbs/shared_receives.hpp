// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A shared receive queue as UD queue pairs see it: they are no connections of the engine's, which
// tells those itself when receives are posted. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/work.hpp"

namespace xsock::verbs {

class SharedReceives {
  public:
    /// A QP that has found it empty.
    class Waiter {
      public:
        virtual void on_shared_posted() = 0;  ///< any thread, with no lock held

      protected:
        ~Waiter() = default;
    };
    /// @param take xsock::Srq::take(), of a queue that outlives all QPs
    explicit SharedReceives(std::function<bool(RecvWqe&)> take) : take_(std::move(take)) {}

    /// False: it is empty.
    bool take(RecvWqe& out);
    /// One that was taken, and is too short for what came: the next take() has it. Lost where there
    /// is no memory.
    void give_back(const RecvWqe& wqe) noexcept;
    /// From now on until it is told once. It must try take() once more. False: there is no memory.
    [[nodiscard]] bool add_waiter(std::weak_ptr<Waiter> waiter) noexcept;
    /// Receives were posted.
    void posted();

  private:
    const std::function<bool(RecvWqe&)> take_;
    std::atomic<bool> any_back_{false}, any_waits_{false};
    std::mutex mutex_;  // guards the rest
    std::vector<RecvWqe> back_;
    std::vector<std::weak_ptr<Waiter>> waiters_;
};

}  // namespace xsock::verbs
