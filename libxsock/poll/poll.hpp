// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// poll() over plain descriptors, DDPMODE sockets and epoll sets; select() is made of it.
#pragma once

#include <poll.h>

#include <array>
#include <memory>
#include <span>

#include "base/wake_flag.hpp"
#include "libxsock/poll/handle.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/poll/wait.hpp"

namespace xsock::readiness {

/// An array that needs no allocation while it is short.
template <typename T, std::size_t kInline>
class ShortArray {
  public:
    explicit ShortArray(std::size_t size) : size_(size) {
        if (size > kInline) more_ = std::make_unique<T[]>(size);
    }
    [[nodiscard]] T* data() noexcept { return more_ != nullptr ? more_.get() : few_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    T& operator[](std::size_t i) noexcept { return data()[i]; }
    [[nodiscard]] std::span<T> span() noexcept { return {data(), size_}; }

  private:
    const std::size_t size_;
    std::array<T, kInline> few_;  // as it comes: clearing it would cost more than it is worth
    std::unique_ptr<T[]> more_;
};

class PollTarget final : public Target {
  public:
    /// `handles` has an element for each entry. `counting`, if not empty, too: the events that end
    /// the wait; others, which poll() reports in any case (POLLHUP), do not count. All must last as
    /// long as this.
    PollTarget(std::span<pollfd> entries, std::span<const Handle> handles,
               std::span<const short> counting = {});
    ~PollTarget();
    PollTarget(const PollTarget&) = delete;
    PollTarget& operator=(const PollTarget&) = delete;

    int check(Kernel kernel) override;
    std::span<PollGroup* const> progresses() override {
        return {progresses_.data(), progress_count_};
    }
    KernelSet kernel() override { return {fds_.span(), kernel_count_}; }
    void prepare_wait(Waiter& waiter) override;
    void finish_wait(Waiter& waiter) override;

  private:
    static constexpr std::size_t kFew = 16;

    struct Watch final : Watcher {
        bool on_wake(std::uint32_t events) noexcept override;
        void on_mode_changed() noexcept override;
        void on_retired() noexcept override;
        PollTarget* target = nullptr;
        Source* source = nullptr;
        std::uint32_t wanted = 0;
    };

    void choose_kernel();
    [[nodiscard]] short counting(std::size_t i) const noexcept {
        return counting_.empty() ? short{-1} : counting_[i];
    }
    void add_progress(PollGroup* progress);

    const std::span<pollfd> entries_;
    const std::span<const Handle> handles_;
    const std::span<const short> counting_;
    ShortArray<pollfd, kFew + kExtraFds> fds_;  // what the kernel is asked
    ShortArray<std::size_t, kFew> at_;          // the entry behind each of them
    std::size_t kernel_count_ = 0;
    std::size_t sources_ = 0;             // entries with a handle
    std::size_t kernel_ready_count_ = 0;  // of them asked of the kernel alone
    std::array<PollGroup*, kMaxProgresses> progresses_;
    std::size_t progress_count_ = 0;

    // While asleep; the thread that wakes a source reads wake_flag_ first, under the source's lock.
    WakeFlag wake_flag_;
    Waiter* waiter_ = nullptr;
    std::unique_ptr<Watch[]> watches_;
    std::size_t watch_count_ = 0;
};

}  // namespace xsock::readiness
