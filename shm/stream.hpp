// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lower layer of one connection in shared memory: ULPDUs <-> records of its slot in a link
// (shm/link.hpp). Sans-IO. One thread at a time, that of the link.
//
// Another layer has done the start-up; open() begins full operation. Nothing is pending ever:
// tx_prepare() writes into the ring and answers an empty batch, and what was published is the
// link's promise. rx() is given what the owner got by Owner::on_rx(): each ULPDU behind a Frame.
// There is no CRC, no marker, no probe and no time-out: nothing leaves the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/llp.hpp"
#include "base/shared_ring.hpp"
#include "shm/credit_pool.hpp"

namespace xsock::shm {

class Link;

/// Payload of the largest record, so that one is read while the next is written.
inline constexpr std::size_t kMaxPayload = std::size_t{32} << 10;
inline constexpr std::size_t kMulpdu = kMaxPayload + 14;  // behind a tagged header

class Stream final : public Llp {
  public:
    /// The owner of the connection. Called from inside Link::poll().
    class Owner {
      public:
        /// Bytes for rx(), by way of ddp::Connection, which keeps what is not taken.
        virtual void on_rx(ConstBytes bytes) = 0;
        /// Nothing follows: FIN, or the peer has aborted.
        virtual void on_fin(bool aborted) = 0;
        /// It is attached, or there is room or credit again: Status::tx_allowed.
        virtual void on_room() = 0;
        /// The link has ended: Llp::lost() is due. `none`: the other process is gone.
        virtual void on_link_end(StreamError why) = 0;

      protected:
        ~Owner() = default;
    };

    /// @pre credit.has_room(); all three outlive it
    Stream(Ulp& ulp, Owner& owner, CreditPool& credit);
    /// The slot goes back, with a FIN that aborts if none was sent.
    ~Stream() override;

    /// Nothing more is sent: FIN, behind all that was published, or in its place what aborts. To
    /// abort behind a FIN tells the peer, if something was dropped, that it was. Else nothing
    /// happens the second time. Before the stream is attached, FIN goes when it is.
    void finish(bool abort);
    /// Aborts, behind a FIN too.
    void reset();
    /// What comes from now on is dropped, and the peer may send on.
    void discard();
    /// ULPDUs that came before open(), which Link keeps from the Owner: they have been received.
    [[nodiscard]] bool has_early() const noexcept { return early_ != nullptr; }
    /// These, as for on_rx(). Behind open() they are due before anything else; Link::poll() takes
    /// them when more comes, and the owner if nothing does.
    /// @pre has_early()
    [[nodiscard]] std::vector<std::byte> take_early() noexcept {
        XSOCK_ASSERT(has_early());
        return std::move(*std::exchange(early_, nullptr));
    }
    /// The slot and the credit go back now rather than by the destructor: nothing follows. Not
    /// from inside rx().
    void leave();

    // -- Llp --
    void start(Time) override {}
    bool accept(ConstBytes, std::uint16_t, std::uint16_t, Time) override { return false; }
    bool reject(ConstBytes, Time) override { return false; }
    void open(Opening how, const Negotiated& agreed, Time now) override;
    Rx rx(ConstBytes bytes, Time now) override;
    void rx_eof(Time now) override;
    void lost() override;
    TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) override;
    std::size_t tx_single(Bytes) override { return 0; }
    void tx_keep(ConstBytes, Bytes) override {}
    void tx_commit(std::size_t, Time) override {}
    void tx_move(const std::byte*, std::size_t, std::byte*) noexcept override {}
    void tx_finished() noexcept override;
    void on_time(Time) override {}
    [[nodiscard]] const Negotiated& negotiated() const noexcept override { return agreed_; }
    [[nodiscard]] ConstBytes private_data() const noexcept override { return {}; }
    [[nodiscard]] std::size_t mulpdu() const noexcept override { return kMulpdu; }
    [[nodiscard]] std::optional<Implementation> peer() const noexcept override { return {}; }

    /// Of both directions: bytes that records took of the ring; they wrap.
    [[nodiscard]] std::uint32_t ring_bytes_sent() const noexcept {
        return sent_ * static_cast<std::uint32_t>(SharedMemory::kLine);
    }
    [[nodiscard]] std::uint32_t ring_bytes_received() const noexcept {
        return received_ * static_cast<std::uint32_t>(SharedMemory::kLine);
    }
    [[nodiscard]] bool attached() const noexcept { return link_ != nullptr; }
    /// @pre attached()
    [[nodiscard]] std::uint16_t slot() const noexcept { return slot_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }

  private:
    friend class Link;

    /// In front of each ULPDU that rx() is given.
    struct Frame {
        std::uint32_t bytes = 0;   // of the ULPDU
        std::uint32_t extent = 0;  // what it takes of the credit
    };
    enum class Blocked : std::uint8_t { no, credit, room };
    enum class Fin : std::uint8_t { none, orderly, aborts };

    // What the link says.
    void attach(Link& link, std::uint16_t slot, std::uint32_t generation);
    void detach() noexcept;
    void end(StreamError why);
    /// Counts a record of the peer's. False: it had no credit for it.
    bool receive(std::size_t extent);
    /// @pre not open yet
    void keep(ConstBytes bytes);
    /// It is not for credit that it waits, or there is some.
    bool may_go_on();
    void unblock();

    [[nodiscard]] std::size_t fill(std::size_t byte_budget, bool& more);
    [[nodiscard]] std::size_t room();
    std::size_t write_small(std::span<const std::uint16_t> sizes);
    std::size_t write(const UlpduOut& ulpdu);
    /// Enough to send something?
    bool load_credit();
    void block(Blocked by);
    void send_fin(Fin how);
    bool take_rest();
    void end_ulpdu(Rx& rx);
    void grant();
    void release_credit() noexcept;
    void update_status() noexcept;

    Ulp& ulp_;
    Owner& owner_;
    CreditPool& pool_;
    Link* link_ = nullptr;
    std::uint32_t generation_ = 0;
    std::uint16_t slot_ = 0;
    Blocked blocked_ = Blocked::no;
    /// What each end may send before the other's first grant, even before that is open.
    static constexpr std::uint32_t kFirstLines = CreditPool::kLeast / SharedMemory::kLine;

    // Lines of records, counted from the first; they wrap.
    std::uint32_t sent_ = 0;                         // ours
    std::uint32_t granted_ = kFirstLines;            // what the peer permits
    std::uint32_t received_ = 0;                     // the peer's
    std::uint32_t consumed_ = 0;                     // of those, what the Ulp has
    std::uint32_t promised_ = kFirstLines;           // what we permit
    std::uint32_t window_;                           // so many lines the peer may be ahead
    std::uint32_t reserved_;                         // and so many are taken from the pool
    Frame frame_;                                    // of the ULPDU in hand
    std::uint32_t left_ = 0;                         // bytes of it
    std::unique_ptr<std::vector<std::byte>> early_;  // within the first credit; null: nothing
    bool in_ulpdu_ = false;
    bool awaits_rtr_ = false;
    bool stalled_ = false;     // the Ulp had no room since the last grant
    bool first_grant_ = true;  // it is to come
    bool dropped_ = false;     // some of what came
    Fin fin_ = Fin::none;
    Negotiated agreed_;
};

}  // namespace xsock::shm
