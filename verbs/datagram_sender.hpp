// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending end of a carrier: datagrams of this process go by it to one other. Dialed when the
// first is sent, closed when nothing went or came for a while, and dialed again. Where the other
// process then says that it has dialed a connection that goes both ways, they go by that. What is
// sent is copied; it is complete once TCP's turn has come, or at once where little waits, and
// dropped when it waits for longer than a second. Takes no lock of the engine but in queue(), to
// dial.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/polled_qp.hpp"
#include "base/spin_lock.hpp"
#include "verbs/carrier_owner.hpp"
#include "verbs/datagram_buffer.hpp"
#include "verbs/datagram_qp.hpp"

namespace xsock::verbs {

/// Two addresses and a port: of our end the address, of the other both.
struct CarrierKey {
    GidOctets own{}, peer{};
    std::uint16_t port = 0;
    auto operator<=>(const CarrierKey&) const = default;
};

class DatagramSender : public std::enable_shared_from_this<DatagramSender> {
  public:
    DatagramSender(CarrierOwner& owner, const CarrierKey& key) noexcept
        : owner_(owner), key_(key) {}
    [[nodiscard]] const CarrierKey& key() const noexcept { return key_; }

    // -- any thread, with no lock held, the engine's neither --

    /// May it wait for others (docs/threading.md)? `more`: another follows at once.
    enum class Gather : std::uint8_t { no, yes, more };
    /// A datagram of at most kMaxInline bytes in all. True: it is on its way; false: queue() it.
    [[nodiscard]] bool try_send(ConstBytes frame, Gather gather);
    /// The same for one of any size, which is taken if the answer is true.
    [[nodiscard]] bool try_send(std::unique_ptr<DatagramBuffer>& buffer, Gather gather);
    /// It goes when it can, or is dropped: DatagramSends::end() says when that is decided.
    void queue(std::unique_ptr<DatagramBuffer> buffer);

    // -- with the engine's mutex held --

    /// The other end has accepted what was dialed: `qp` is its connection, which keeps this object,
    /// and is not started yet. give_up() where it cannot be. False: nothing is dialed any more.
    ///
    /// @param name what the other end calls it, where it goes both ways
    [[nodiscard]] bool connect(std::shared_ptr<PolledQp> qp, std::optional<std::uint32_t> name);
    /// That of the connection that was dialed, while there is one; which counts as a use of it.
    [[nodiscard]] std::optional<std::uint32_t> dialed_name();
    /// Dialing has not led to a connection: what waits is dropped, and what comes for a while.
    void give_up() noexcept;
    /// The other process has dialed: it is there, and the next datagram is not dropped.
    void end_pause();
    /// Ends its connection if nothing was sent since the last call. @return it has ended one
    bool close_if_idle();
    /// It has no connection, and would dial for the next datagram. Takes no lock but its own.
    [[nodiscard]] bool is_unused(Time now);
    /// At exit: null also where another thread, or this one below exit(), has the lock.
    [[nodiscard]] std::shared_ptr<PolledQp> try_connection();

    /// In a poll cycle, too. They go by `qp`, which the other process has dialed, and which keeps
    /// this object. False: nothing is dialed any more.
    bool adopt(std::shared_ptr<PolledQp> qp);
    // -- in pollers, with no lock held --

    /// Something came by its connection.
    void note_used() noexcept { used_.store(true, std::memory_order_relaxed); }

    // What the poller tells of a connection (base/polled_qp.hpp), which may be a former one.

    void on_completion(const PolledQp& qp, const Wc& wc);
    Time on_poll();
    bool on_exit(const PolledQp& qp);
    void on_up(const PolledQp& qp);
    /// It has ended, or does: the next datagram needs another.
    void leave(const PolledQp& qp);

  private:
    enum class State : std::uint8_t { idle, dialing, up, paused };

    std::shared_ptr<PolledQp> take_room(std::uint32_t bytes);
    bool sent(const PolledQp& qp, const Result<void>& posted, std::uint32_t bytes);
    bool take_connection(std::shared_ptr<PolledQp> qp);
    void feed();
    void drop(DatagramQueue buffers);
    DatagramQueue begin_pause();

    CarrierOwner& owner_;
    const CarrierKey key_;

    std::atomic<bool> used_{false};  ///< since close_if_idle() was last called

    SpinLock lock_;  ///< keeps all below
    State state_ = State::idle;
    bool adopted_ = false;               ///< the other process has dialed qp_
    std::optional<std::uint32_t> name_;  ///< dialed_name()
    Time pause_ = 0, paused_until_ = 0;
    std::shared_ptr<PolledQp> qp_;
    std::uint32_t in_flight_ = 0;  ///< bytes that qp_ has and TCP has not
    bool taken_ = false;           ///< TCP has taken some since something was last dropped
    bool stalled_ = false;         ///< it took none for as long as a datagram may wait
    DatagramQueue queued_;
};

}  // namespace xsock::verbs
