// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/link_channels.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "transport/soft_channel.hpp"
#include "transport/soft_cq.hpp"

namespace xsock {

bool LinkChannels::has(const SoftChannel& channel) const noexcept {
    return std::any_of(members_.begin(), members_.end(),
                       [&](const Member& member) { return member.cq->channel.get() == &channel; });
}

Result<void> LinkChannels::join(Progress& progress, Pollable& link, int fd,
                                std::shared_ptr<CqCore> cq) {
    if (cq->channel == nullptr) return {};
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [&](const Member& member) { return member.cq == cq; });
    if (found != members_.end()) {
        ++found->connections;
        return {};
    }
    SoftChannel& channel = *cq->channel;
    const bool is_first = !has(channel);
    try {
        members_.push_back({std::move(cq), 1});
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for the channel of a link"};
    }
    if (!is_first) return {};
    auto added = channel.add(progress, link, fd, EPOLLIN | EPOLLRDHUP);
    if (!added) members_.pop_back();
    return added;
}

void LinkChannels::leave(int fd, const CqCore& cq) noexcept {
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [&](const Member& member) { return member.cq.get() == &cq; });
    if (found == members_.end() || --found->connections > 0) return;
    const std::shared_ptr<CqCore> last = std::move(found->cq);
    members_.erase(found);
    if (!has(*last->channel)) last->channel->remove(fd);
}

void LinkChannels::leave_all(int fd) noexcept {
    while (!members_.empty()) {
        members_.back().connections = 1;
        const CqCore& cq = *members_.back().cq;
        leave(fd, cq);
    }
}

void LinkChannels::count_arrival() const noexcept {
    for (const Member& member : members_) member.cq->channel->count_arrival();
}

bool LinkChannels::may_sleep() const noexcept {
    return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
        return member.cq->channel->watched() && member.cq->queue.armed();
    });
}

}  // namespace xsock
