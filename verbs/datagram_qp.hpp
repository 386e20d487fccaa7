// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A UD queue pair: receives that wait for datagrams, datagrams that wait for a receive, and its
// send queue. Programs post and change states by any thread; pollers of carriers
// (datagram_receiver.hpp, datagram_sender.hpp) deliver and complete. Nothing here takes the
// engine's mutex.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/device.hpp"
#include "base/recv_queue.hpp"
#include "base/spin_lock.hpp"
#include "verbs/datagram_frame.hpp"
#include "verbs/datagram_sends.hpp"
#include "verbs/shared_receives.hpp"

namespace xsock::verbs {

/// Of all UD QPs of a process. Any thread.
struct DatagramCounters {
    std::atomic<std::uint64_t> sent{0}, received{0}, held{0};
    // Dropped, and why.
    std::atomic<std::uint64_t> unsent{0};      ///< the peer was not there, or took nothing for long
    std::atomic<std::uint64_t> no_qp{0};       ///< for a number that no QP has, or not at RTR
    std::atomic<std::uint64_t> wrong_qkey{0};  ///< ibv_port_attr.qkey_viol_cntr
    std::atomic<std::uint64_t> wrong_pkey{0};  ///< ibv_port_attr.bad_pkey_cntr
    std::atomic<std::uint64_t> no_receive{0};  ///< none posted for a second
    std::atomic<std::uint64_t> too_long{0};    ///< for the receive, which stays
    std::atomic<std::uint64_t> malformed{0};   ///< frames; their connections end
    // Of carriers that have ended.
    std::atomic<std::uint64_t> tx_bytes{0}, rx_bytes{0};

    [[nodiscard]] std::uint64_t dropped() const noexcept {
        return unsent + no_qp + wrong_qkey + wrong_pkey + no_receive + too_long + malformed;
    }
};

/// Memory for datagrams that wait for a receive, of all QPs of a process. Any thread.
class DatagramPool {
  public:
    static constexpr std::size_t kBytes = 1 << 20;
    static constexpr std::size_t kShare = kBytes / 4;  ///< of one QP
    [[nodiscard]] bool take(std::size_t bytes) noexcept;
    [[nodiscard]] bool has_room(std::size_t bytes) const noexcept {  ///< a hint
        return bytes <= kBytes - std::min(kBytes, used_.load(std::memory_order_relaxed));
    }
    void give(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  private:
    std::atomic<std::size_t> used_{0};
};

/// What waits until a QP has receives again: told once.
class ReceiveWaiter {
  public:
    virtual void on_receives_posted() = 0;  ///< any thread, with no lock held

  protected:
    ~ReceiveWaiter() = default;
};

class DatagramQp final : public SharedReceives::Waiter,
                         public std::enable_shared_from_this<DatagramQp> {
  public:
    struct Config {
        std::uint32_t num = 0;  ///< QP number
        std::uint32_t rq_depth = 0;
        std::shared_ptr<SharedReceives> shared;  ///< null: its receives are its own
        /// Device::scatter() in the QP's domain.
        std::function<WcStatus(ConstBytes from, std::span<const Sge> to)> scatter;
        Time (*clock)() = nullptr;
        DatagramCounters* counters = nullptr;
        DatagramPool* pool = nullptr;
        std::shared_ptr<CompletionTarget> send_cq, recv_cq;
    };
    explicit DatagramQp(const Config& config);
    ~DatagramQp();
    DatagramQp(const DatagramQp&) = delete;
    DatagramQp& operator=(const DatagramQp&) = delete;

    // -- states: the engine's mutex is held --

    /// Completions carry `purge_num` from now on: what Cq::purge() goes by.
    void set_purge_num(QpNum purge_num) noexcept {
        purge_num_.store(purge_num);
        sends_.set_purge_num(purge_num);
    }
    void set_qkey(std::uint32_t qkey) noexcept { qkey_.store(qkey); }
    [[nodiscard]] std::uint32_t qkey() const noexcept { return qkey_.load(); }
    void begin_receiving();
    /// The error state: what was posted completes as flushed, and so does what will be.
    void fail();
    /// Sends that are not complete are forgotten, as are receives. As new, or (`last`) for ever.
    /// @return signaled sends among them, whose completions are not to come
    std::size_t reset(bool last = false);

    // -- receives --

    /// Any thread. Errors as RecvQueue::post(). Not of shared ones.
    Result<void> post_recv(const RecvWr& wr);
    void on_shared_posted() override;
    /// The poller: a datagram for this QP. `octets`: its GRH, then its payload.
    /// @return false: it finds no room, and its connection is to stop reading; `waiter` is told
    ///         when that may have changed.
    bool take(const DatagramHeader& header, ConstBytes octets,
              const std::shared_ptr<ReceiveWaiter>& waiter);
    /// Drops what is held if no receive came for too long. @return 0: it has; else when it would
    Time drop_overdue();
    /// Time from which on what finds no receive is dropped; kNever: receives are posted.
    [[nodiscard]] Time drops_from() noexcept;
    [[nodiscard]] DatagramSends& sends() noexcept { return sends_; }
    [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }

  private:
    struct Held {
        DatagramHeader header;
        std::vector<std::byte> octets;
    };
    using Waiters = std::vector<std::weak_ptr<ReceiveWaiter>>;

    static void tell(const Waiters& waiters);
    bool hold(const DatagramHeader& header, ConstBytes octets,
              const std::shared_ptr<ReceiveWaiter>& waiter);
    bool find_receive();
    bool find_shared();
    void on_receives();
    void place(const DatagramHeader& header, ConstBytes octets);
    void deliver_held();
    void drop_held(std::atomic<std::uint64_t>& counter);
    void flush_receives();

    const Config config_;
    std::atomic<QpNum> purge_num_{0};
    std::atomic<std::uint32_t> qkey_{0};
    std::atomic<bool> receiving_{false}, failed_{false}, closed_{false};
    DatagramSends sends_;

    RecvQueue receives_;
    SpinLock rx_lock_;
    std::optional<RecvWqe> next_;  ///< taken, and not used yet: it may be too short for what came
    bool waits_for_shared_ = false;
    std::deque<Held> held_;
    std::size_t held_bytes_ = 0;
    Time empty_since_ = kNever;
    Waiters waiters_;
};

}  // namespace xsock::verbs
