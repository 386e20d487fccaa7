// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion channels of a link: those of the completion queues that its connections feed. The
// link's socket is a member of each, so that a program that sleeps on one is woken by the process
// that has sent something, without a thread of ours in between, as it is by TCP's sockets.
//
// A link's socket tells of something only while the link is armed. So a link is armed at the end of
// each poll cycle in which a program may go to sleep: its channel is watched, and a queue of it
// armed. There are two orders in which that can come about, and one that cannot:
//
//   program: arms its queue               poller: takes the link into its list (detached)
//   program: sees that a link is          poller: at the end of its cycle sees an armed queue of a
//            detached: runs a cycle,              watched channel: arms the link
//            at whose end it is armed
//
// Each side publishes before it loads the other's word, all four sequentially consistent: one of
// them sees the other. Everything but the words of the program runs in the poller.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"

namespace xsock {

class CqCore;
class Pollable;
class Progress;
class SoftChannel;

class LinkChannels {
  public:
    /// A connection of the link feeds `cq`: the channel of that, if it has one, watches `fd`.
    /// ENOMEM, or what the kernel says; then the background thread serves those that sleep on it.
    Result<void> join(Progress& progress, Pollable& link, int fd, std::shared_ptr<CqCore> cq);
    /// It does so no more.
    void leave(int fd, const CqCore& cq) noexcept;
    /// The link has ended.
    void leave_all(int fd) noexcept;

    [[nodiscard]] bool empty() const noexcept { return members_.empty(); }
    /// The descriptor was ready: programs that were woken by it are not told why they were.
    void count_arrival() const noexcept;
    /// A program may go to sleep on one of the channels.
    [[nodiscard]] bool may_sleep() const noexcept;

  private:
    struct Member {
        std::shared_ptr<CqCore> cq;
        std::uint32_t connections;
    };
    [[nodiscard]] bool has(const SoftChannel& channel) const noexcept;

    std::vector<Member> members_;  // one for each queue
};

}  // namespace xsock
