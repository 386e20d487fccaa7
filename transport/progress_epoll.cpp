// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Progress takes out of epoll, and for whom it puts that back; and its links of shared
// memory.
#include "transport/progress.hpp"
#include "transport/shm_node.hpp"

namespace xsock {

// While callers poll one connection all the time, epoll's work for each of its segments (a callback
// and a lock in the sender's path, 0.3 us of a 3.8 us ping-pong) has no use: the connection is
// taken out, as long as no one sleeps in epoll or relies on it. Those are a leader, the thread
// unless it polls by its own clock, and loops that embed us. Each of them publishes itself and
// then makes sure that all is attached; here the detachment is published first and they are
// checked after.
void Progress::detach_busy_polled() {
    if (mode() == ProgressMode::thread) {
        poll_set_.put_off_detaching();
        return;
    }
    poll_set_.detach_busy_polled();
    if (epoll_is_relied_on()) poll_set_.attach_busy_polled();
}

// Asked behind what was published: that epoll does not tell of all.
bool Progress::epoll_is_relied_on() const noexcept {
    const bool thread_sleeps =
        notifiable_.load(std::memory_order_seq_cst) != nullptr && !is_thread_ticking();
    return thread_sleeps || has_leader() || embedded_.load(std::memory_order_seq_cst);
}

// What a program that sleeps on a channel would not be told of is the thread's.
void Progress::arm_memory(PollCycle& cycle) {
    if (epoll_is_relied_on()) {
        poll_set_.arm_memory(cycle);
    } else if (!poll_set_.arm_for_channels(cycle)) {
        hand_over();
    }
}

void Progress::prepare_channel_sleep() {
    if (poll_set_.memory_is_detached()) locked([](PollCycle&) {});
}

int Progress::embed() {
    if (mode() == ProgressMode::thread) return -1;
    embedded_.store(true, std::memory_order_seq_cst);
    locked([this](PollCycle&) { poll_set_.attach_busy_polled(); });
    return epoll_fd();
}

Result<std::shared_ptr<ShmNode>> Progress::shm_node(PollCycle&) {
    if (shm_node_ == nullptr) {
        auto made =
            ShmNode::create(*this, {.memory_bytes = config_.shm_memory / config_.groups(),
                                    .users = {config_.shm_users.begin(), config_.shm_users.end()},
                                    .timeout = config_.shm_timeout,
                                    .folder = config_.shm_folder});
        if (!made) return made.error();
        shm_node_ = std::move(*made);
    }
    return shm_node_;
}

}  // namespace xsock
