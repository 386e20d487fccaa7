// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The verbs face's own thread: listening sockets, connects under way, requests being read, the
// device's asynchronous events and time limits. Nothing of the data path passes here. Every handler
// runs with the engine's mutex held, and every function is called with it held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace xsock::verbs {

class Loop {
  public:
    using Token = std::uint64_t;
    using Handler = std::function<void(std::uint32_t events)>;

    static Result<std::unique_ptr<Loop>> create(std::mutex& mutex);
    ~Loop();  ///< never runs in practice: the engine lives as long as the process
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    /// Calls `handler` when the descriptor is ready (epoll bits). 0: epoll refused; errno says why.
    Token watch(int fd, std::uint32_t events, Handler handler);
    /// Nothing is called for it any more. The descriptor stays open. Unknown tokens do no harm.
    void forget(Token token);
    /// Calls `handler` once, at `when` (CLOCK_MONOTONIC nanoseconds) or a little later.
    Token at(Time when, std::function<void()> handler);
    void cancel(Token token);

  private:
    explicit Loop(std::mutex& mutex) : mutex_(mutex) {}
    void run();
    void wake() noexcept;

    std::mutex& mutex_;
    int epoll_fd_ = -1;
    int bell_fd_ = -1;
    Token next_ = 1;
    struct Watched {
        int fd;
        std::shared_ptr<Handler> handler;
    };
    std::unordered_map<Token, Watched> watched_;
    std::map<std::pair<Time, Token>, std::function<void()>> timers_;
    std::unordered_map<Token, Time> timer_times_;
    bool running_ = false;
};

}  // namespace xsock::verbs
