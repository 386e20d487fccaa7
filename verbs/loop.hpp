// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The verbs API's own thread: listening sockets, connects under way, requests being read, the
// device's asynchronous events and time limits. Nothing of the data path passes here. Every handler
// runs with the engine's mutex held, and every function is called with it held.
//
// A libuv loop belongs to one thread: this one to the thread that holds the mutex. The loop's own
// thread sleeps on its descriptor without the mutex, and turns it once, without waiting, with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "transport/uv_loop.hpp"

namespace xsock::verbs {

class Loop {
  public:
    using Token = std::uint64_t;
    /// Level-triggered.
    enum Readiness : unsigned { kReadable = 1, kWritable = 2, kPeerFinished = 4 };
    using Handler = std::function<void(unsigned readiness)>;

    static Result<std::unique_ptr<Loop>> create(std::mutex& mutex);
    ~Loop();  ///< never runs in practice: the engine lives as long as the process
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    /// Calls `handler` while the descriptor is ready (some of Readiness), and once when it has an
    /// error. One that throws (std::bad_alloc) is called again after a moment. A descriptor is
    /// watched once. 0: it cannot be; errno says why.
    Token watch(int fd, unsigned readiness, Handler handler);
    /// Calls `handler` once, at `when` (CLOCK_MONOTONIC nanoseconds) or a little later.
    Token at(Time when, std::function<void()> handler);
    /// For when a handler cannot do what its descriptor is ready for: it is not called for `time`,
    /// unless resume() comes first. Throws std::bad_alloc; it is then called as before.
    void pause(Token token, Time time);
    void resume(Token token) noexcept;
    /// Nothing is called for it any more. The descriptor stays open, and may be closed behind this.
    /// Unknown tokens do no harm.
    void forget(Token token) noexcept;

  private:
    struct Entry;
    explicit Loop(std::mutex& mutex) : mutex_(mutex) {}
    void run();
    std::unique_ptr<Entry> make(Handler handler);
    void changed() noexcept;
    static void close(Entry& entry) noexcept;
    bool start(Entry& entry) noexcept;
    void start_late() noexcept;

    std::mutex& mutex_;
    UvLoop uv_;
    Token next_ = 1;
    std::unordered_map<Token, Entry*> entries_;
    bool changing_ = false;       // handlers are being called
    bool again_ = false;          // one of them has changed what is watched
    bool out_of_memory_ = false;  // a handler has thrown in this turn
    bool late_ = false;           // the kernel had no memory to watch some entry again
    bool running_ = false;
};

/// So many bytes of a request have been peeked and left in the socket: it is readable again when
/// there are more, or when the peer has finished. 0: any byte counts again.
void expect_more_than(int fd, std::size_t bytes) noexcept;

}  // namespace xsock::verbs
