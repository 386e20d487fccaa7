// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion channel of the software device: an epoll descriptor over the TCP sockets of the
// established connections that feed its completion queues, or over the sockets of the links that
// carry these (link_channels.hpp). A program that sleeps on it is woken by
// the arriving segment itself, without a thread of ours in between (docs/threading.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/device.hpp"

namespace xsock {

class Pollable;
class Progress;

class SoftChannel final : public CompletionChannel {
  public:
    static Result<std::shared_ptr<SoftChannel>> create();
    ~SoftChannel() override;
    SoftChannel(const SoftChannel&) = delete;
    SoftChannel& operator=(const SoftChannel&) = delete;

    int fd() const noexcept override { return epoll_fd_; }
    void poll() override;
    void set_watched(bool watched) noexcept override {
        watched_.store(watched, std::memory_order_seq_cst);
    }
    void prepare_sleep() override;
    std::uint32_t arrivals() const noexcept override {
        return arrivals_.load(std::memory_order_relaxed);
    }

    std::uint32_t writes() const noexcept override {
        return writes_.load(std::memory_order_relaxed);
    }

    [[nodiscard]] bool watched() const noexcept { return watched_.load(std::memory_order_seq_cst); }
    void count_arrival() noexcept { arrivals_.fetch_add(1, std::memory_order_relaxed); }
    void count_write() noexcept { writes_.fetch_add(1, std::memory_order_relaxed); }

    // Under the lock of `progress`, which has registered the item and keeps it alive meanwhile.

    /// Watches `fd` as well. A failure costs latency only: the Progress watches it too.
    Result<void> add(Progress& progress, Pollable& item, int fd, std::uint32_t events);
    void modify(Pollable& item, int fd, std::uint32_t before, std::uint32_t events) noexcept;
    void remove(int fd) noexcept;
    /// Its members are of several Progresses. Visible before the first event of a second one's.
    [[nodiscard]] bool several() const noexcept { return several_.load(std::memory_order_acquire); }
    /// The only member, if it is known that there is just one.
    [[nodiscard]] Pollable* single_member() const noexcept {
        return several() ? nullptr : single_member_;
    }

  private:
    void forget_events() const noexcept;
    [[nodiscard]] std::vector<Progress*> progresses();
    explicit SoftChannel(int epoll_fd) : epoll_fd_(epoll_fd) {}

    const int epoll_fd_;
    std::atomic<bool> watched_{false};
    std::atomic<std::uint32_t> arrivals_{0}, writes_{0};
    std::mutex mutex_;
    std::vector<Progress*> progresses_;  // of its members, past ones too
    std::atomic<Progress*> only_{nullptr};
    std::atomic<bool> several_{false};
    // While `several_` is not set, under the lock of the one Progress.
    std::size_t members_ = 0;
    Pollable* single_member_ = nullptr;
};

}  // namespace xsock
