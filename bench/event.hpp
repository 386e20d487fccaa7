// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the bodies of event-driven ping-pongs share (event.cpp, verbs_event.cpp).
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "bench/pair.hpp"

namespace xsock::bench::event {

inline constexpr std::size_t kSize = 64;
using Message = std::array<std::uint8_t, kSize>;

/// Byte 0 of a message.
enum Stamp : std::uint8_t {
    warm_up,
    begin,  ///< the next is timed
    timed,
    last,
};

/// How a program waits for its descriptor: in poll(), in epoll_wait(), or in the call that reads.
enum class Way : std::uint8_t { poll, epoll, block };

class Waiter {
  public:
    Waiter(int fd, Way way);
    /// Until the descriptor is readable; Way::block: returns at once.
    void sleep() const;

  private:
    int fd_;
    Way way_;
    int epoll_fd_ = -1;
};

using RoundTrip = void (*)(void* argument, std::uint8_t stamp);
/// The client: times round trips and reports them, with the CPU time that the server tells.
void report_round_trips(Child& child, const Run& run, RoundTrip round_trip, void* argument);

/// The server: its CPU time between the messages `begin` and `last`, told when the latter has been
/// answered.
class CpuOfTimedPart {
  public:
    explicit CpuOfTimedPart(Child& child) : child_(child) {}
    void answer(std::uint8_t stamp);

  private:
    Child& child_;
    std::int64_t before_ = 0;
};

/// A client and a server of an `End` that sends and receives messages.
template <typename End>
void ask_by(End& end, Child& child, const Run& run) {
    report_round_trips(
        child, run,
        [](void* argument, std::uint8_t stamp) {
            auto& self = *static_cast<End*>(argument);
            Message message{};
            message[0] = stamp;
            self.send(message);
            (void)self.receive();
        },
        &end);
}
template <typename End>
void answer_by(End& end, Child& child) {
    CpuOfTimedPart cpu(child);
    for (std::uint8_t stamp = Stamp::warm_up; stamp != Stamp::last;) {
        const Message message = end.receive();
        end.send(message);
        stamp = message[0];
        cpu.answer(stamp);
    }
}

}  // namespace xsock::bench::event
