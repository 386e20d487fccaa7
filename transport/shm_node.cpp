// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_node.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/random.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/progress.hpp"
#include "transport/shm_socket.hpp"

namespace xsock {
namespace {

shm::Key random_key() noexcept {
    const std::uint64_t words[] = {random_u64(), random_u64()};
    shm::Key key;
    static_assert(sizeof words == sizeof key);
    std::memcpy(key.data(), words, sizeof words);
    return key;
}

}  // namespace

ShmNode::ShmNode(Progress& progress, ShmConfig config)
    : progress_(progress),
      config_(std::move(config)),
      accepts_(shm::encode_answer(shm::HelloError::none)),
      refuses_(shm::encode_answer(shm::HelloError::limits)),
      credit_(config_.memory_bytes),
      user_(geteuid()),
      key_(random_key()) {}

Result<std::shared_ptr<ShmNode>> ShmNode::create(Progress& progress, ShmConfig config) {
    try {
        return std::make_shared<ShmNode>(progress, std::move(config));
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for links in shared memory"};
    }
}

// The kernel shows to others who we were when we listened or connected.
void ShmNode::check_user() {
    const uid_t user = geteuid();
    if (user == user_) return;
    user_ = user;
    key_ = random_key();
    by_peer_.clear();
    for (Making& making : making_) making.shared = false;
    close_listeners();
}

void ShmNode::close_listeners() noexcept {
    for (auto* const listener : {&listener_, &folder_listener_}) {
        if (*listener != nullptr) (*listener)->close();
        listener->reset();
    }
}

// Each has a descriptor.
bool ShmNode::has_room() const noexcept {
    constexpr std::size_t kShare = 4;
    const std::size_t most = descriptor_limit() / kShare / progress_.config().groups();
    return links_.size() + making_.size() < most;
}

// ---- responders -------------------------------------------------------------

shm::Reason ShmNode::listen() {
    check_user();
    if (listener_ != nullptr) return shm::Reason::none;
    auto made = ShmListener::create(progress_, key_, config_.users, config_.timeout,
                                    static_cast<ShmListener::Owner&>(*this));
    if (!made) return shm_socket::reason_of(made.error());
    listener_ = std::move(*made);
    if (config_.folder.empty()) return shm::Reason::none;
    auto in_folder =
        ShmListener::create_in(config_.folder, progress_, key_, config_.users, config_.timeout,
                               static_cast<ShmListener::Owner&>(*this));
    if (in_folder) {
        folder_listener_ = std::move(*in_folder);
    } else {  // those of our own namespace reach the other one
        log(LogLevel::error, "shm-folder", "XSOCK_SHM_DIR=%s: %s (%s)", config_.folder.c_str(),
            in_folder.error().what, std::strerror(in_folder.error().code));
    }
    return shm::Reason::none;
}

std::uint64_t ShmNode::expect(ShmResponder& responder) {
    for (;;) {
        const std::uint64_t token = random_u64();
        if (responders_.emplace(token, &responder).second) return token;
    }
}

shm::Stream* ShmNode::on_open(ShmLink& link, std::uint64_t token) {
    const auto found = responders_.find(token);
    if (found == responders_.end()) return nullptr;
    ShmResponder* const responder = found->second;
    responders_.erase(found);
    return responder->on_open(link);
}

void ShmNode::poll_links(std::uint64_t id, PollCycle& cycle) {
    const auto making = std::find_if(making_.begin(), making_.end(), [id](const Making& entry) {
        return entry.connector->link() == id;
    });
    if (making != making_.end()) {
        const auto connector = making->connector;
        connector->on_ready(0, cycle);
    }
    // One that is polled may end, and others with it.
    const auto links = links_;
    for (ShmLink* const link : links) {
        const bool is_there = std::find(links_.begin(), links_.end(), link) != links_.end();
        if (is_there && link->id() == id) link->poll_now(cycle);
    }
}

// A hello is answered before a connection may use the link: its first wake-up would be taken for
// the answer. A process of another user may have made up the creator that it names, so our own
// connections do not use such a link.
void ShmNode::on_hello(MadeLink&& made, PollCycle& cycle) noexcept {
    const int fd = made.socket;
    const bool is_ours = shm_socket::is_peer_permitted(fd, {});
    if (!has_room()) {
        static_cast<void>(shm_socket::send(fd, refuses_));
        return close_internal_fd(fd);
    }
    ShmLink* const link = start(std::move(made), cycle);
    if (link == nullptr) return;
    if (!shm_socket::send(fd, accepts_)) return link->on_failure(cycle);
    if (!is_ours) return;
    share(*link, cycle.now());
    const shm::Key peer = link->peer();
    for (std::size_t i = 0; i < making_.size(); ++i) {
        const auto connector = making_[i].connector;
        if (!making_[i].shared || connector->peer() != peer) continue;
        while (!link->ended()) {
            ShmWaiter* const waiter = take_waiter(*connector);
            if (waiter == nullptr) break;
            waiter->on_link(*link, cycle);
        }
    }
}

// ---- initiators -------------------------------------------------------------

void ShmNode::want_link(const shm::Key& peer, ShmWaiter& waiter, PollCycle& cycle) noexcept {
    check_user();
    if (ShmLink* const link = find(peer, cycle.now())) return waiter.on_link(*link, cycle);
    shm::Reason why = shm::Reason::limits;
    try {
        why = wait_for(peer, waiter, cycle);
    } catch (const std::bad_alloc&) {
    }
    if (why != shm::Reason::none) waiter.on_no_link(why, cycle);
}

ShmLink* ShmNode::find(const shm::Key& peer, Time now) const noexcept {
    const auto found = by_peer_.find(peer);
    return found != by_peer_.end() && found->second->takes_slots(now) ? found->second : nullptr;
}

// `none`: it waits.
shm::Reason ShmNode::wait_for(const shm::Key& peer, ShmWaiter& waiter, PollCycle& cycle) {
    const auto found = std::find_if(making_.begin(), making_.end(), [&](const Making& entry) {
        return entry.shared && entry.connector->peer() == peer;
    });
    if (found != making_.end()) {
        waiting_.push_back({found->connector.get(), &waiter});
        return shm::Reason::none;
    }
    if (!has_room()) return shm::Reason::limits;
    making_.reserve(making_.size() + 1);
    auto connector = std::make_shared<ShmConnector>(progress_, peer, key_,
                                                    static_cast<ShmConnector::Owner&>(*this));
    waiting_.push_back({connector.get(), &waiter});
    shm::Reason why = shm::Reason::limits;
    try {
        why = connector->start(config_.users, config_.timeout, cycle, config_.folder);
    } catch (const std::bad_alloc&) {
    }
    if (why != shm::Reason::none) {
        waiting_.pop_back();
        return why;
    }
    making_.push_back({std::move(connector)});
    return shm::Reason::none;
}

void ShmNode::forget(ShmWaiter& waiter) noexcept {
    std::erase_if(waiting_, [&](const Waiting& entry) { return entry.waiter == &waiter; });
}

// One at a time: what is told may want another link, or forget the next.
ShmWaiter* ShmNode::take_waiter(const ShmConnector& connector) noexcept {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& entry) {
        return entry.connector == &connector;
    });
    if (found == waiting_.end()) return nullptr;
    ShmWaiter* const waiter = found->waiter;
    waiting_.erase(found);
    return waiter;
}

// True: it is for others too.
bool ShmNode::remove(const ShmConnector& connector) noexcept {
    const auto found = std::find_if(making_.begin(), making_.end(), [&](const Making& entry) {
        return entry.connector.get() == &connector;
    });
    const bool shared = found->shared;
    making_.erase(found);
    return shared;
}

void ShmNode::on_made(ShmConnector& connector, MadeLink&& made, PollCycle& cycle) noexcept {
    const bool shared = remove(connector);
    ShmLink* const link = start(std::move(made), cycle);
    if (link != nullptr && shared) share(*link, cycle.now());
    while (ShmWaiter* const waiter = take_waiter(connector)) {
        if (link != nullptr && !link->ended()) {
            waiter->on_link(*link, cycle);
        } else {
            waiter->on_no_link(shm::Reason::limits, cycle);
        }
    }
}

void ShmNode::on_failed(ShmConnector& connector, shm::Reason why, PollCycle& cycle) noexcept {
    remove(connector);
    while (ShmWaiter* const waiter = take_waiter(connector)) waiter->on_no_link(why, cycle);
}

// ---- links ------------------------------------------------------------------

// Null: there is no memory, and the socket is closed.
ShmLink* ShmNode::start(MadeLink&& made, PollCycle& cycle) noexcept {
    const int fd = made.socket;
    const bool answers = made.side == shm::Side::acceptor;
    std::shared_ptr<ShmLink> link;
    bool started = false;
    try {
        links_.reserve(links_.size() + 1);
        link = std::make_shared<ShmLink>(std::move(made), progress_,
                                         static_cast<ShmLink::Owner&>(*this));
        started = link->start(cycle).ok();
    } catch (const std::bad_alloc&) {
    }
    if (started && !link->ended()) {
        links_.push_back(link.get());
        return link.get();
    }
    if (answers && !started) static_cast<void>(shm_socket::send(fd, refuses_));
    if (link == nullptr) {
        close_internal_fd(fd);
    } else {
        link->on_failure(cycle);
    }
    return nullptr;
}

/// Further connections to its peer use it; of several the first.
void ShmNode::share(ShmLink& link, Time now) noexcept {
    try {
        ShmLink*& shared = by_peer_[link.peer()];
        if (shared == nullptr || !shared->takes_slots(now)) shared = &link;
    } catch (const std::bad_alloc&) {  // then it serves those that wait, and the peer's
    }
}

void ShmNode::on_link_closed(ShmLink& link) {
    std::erase(links_, &link);
    const auto found = by_peer_.find(link.peer());
    if (found != by_peer_.end() && found->second == &link) by_peer_.erase(found);
}

}  // namespace xsock
