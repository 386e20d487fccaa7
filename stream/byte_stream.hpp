// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection's byte stream, both directions: what the program has sent and the wire has not
// taken yet, what has come and the program has not read. It has TCP's rules for partial calls, the
// two halves, urgent bytes and reset, and decides when small sends go (gathering). The Wire has the
// protocol. Sans-IO: the owner moves messages, copies the program's bytes and tells the time.
// One thread at a time; docs/wire.md.
//
//   send_prepare(), send_commit()   the program's bytes, into chunks that become messages
//   tx(), tx_done()                 the next message, and when its memory is free again
//   rx()                            a message of the peer
//   peek(), consume()               bytes for the program
//   next_timeout(), on_time()       gathered bytes go
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "stream/chunk.hpp"
#include "stream/wire.hpp"

namespace xsock::stream {

struct StreamLimits {
    std::size_t send_bytes = 256 * 1024;  ///< that lie here, or are being sent, at most
    std::size_t receive_bytes = 1 << 22;  ///< that wait to be read, at most
    Time gather = 500'000;                ///< longest time that a send waits for others, ns
    Time hold = 200'000'000;              ///< the same where it was sent with `more`: TCP's
};

/// A message for the transport.
struct TxMessage {
    ConstBytes bytes;        ///< header and payload; in `control`, or in `chunk`
    Chunk* chunk = nullptr;  ///< unless null: for tx_done(), once `bytes` are not needed any more
    SendKind kind = SendKind::plain;
    std::uint32_t invalidate_stag = 0;
    Control control;
};

/// What a message of the peer changed.
struct RxNews {
    bool kept = false;      ///< the chunk is the stream's now
    bool data = false;      ///< there is more to read
    bool urgent = false;    ///< an urgent byte is on its way (SIGURG): once for each
    bool finished = false;  ///< the peer sends no more
    bool unwanted = false;  ///< it brought data that no one will read: reset the connection
};

/// A ByteStream's direction towards the peer.
struct SendHalf {
    enum class State : std::uint8_t { open, finishing, finished };
    State state = State::open;
    bool due = false;    ///< what is there goes without waiting for more
    bool held = false;   ///< all that waits was sent with `more`: not until others follow
    bool abort = false;  ///< the peer is to be told
    bool urgent_announced = false;
    ChunkQueue chunks;              ///< not yet handed to the transport; the last may be empty
    std::size_t queued = 0;         ///< bytes in them and in those that are being sent
    std::size_t waiting = 0;        ///< bytes in them
    Time gather_at = kNever;        ///< the bytes that wait go then, held or not
    Time quiet_until = 0;           ///< a send before that is gathered
    Chunk* urgent = nullptr;        ///< the first of `chunks` whose last byte is urgent
    Chunk* newer_urgent = nullptr;  ///< the next such one, behind one that was announced
    std::size_t urgent_ahead = 0;   ///< bytes up to `urgent` and with it
    std::size_t payload_limit = 0;  ///< Wire::payload_limit(), since the first send
};

/// Its direction from the peer.
struct ReceiveHalf {
    ChunkQueue chunks;
    std::size_t bytes = 0;  ///< in them
    std::uint64_t at = 0;   ///< position in the stream of the first one
    bool finished = false;  ///< by the peer
    bool closed = false;    ///< no one will read
};

/// Of an urgent byte of the peer.
struct UrgentMark {
    enum class State : std::uint8_t { none, there, taken };
    State state = State::none;
    bool announced = false;  ///< a newer one is on its way
    bool is_inline = false;
    std::byte value{};
    std::uint64_t at = 0;  ///< position in the stream; from `there` on
};

class ByteStream {
  public:
    /// Both outlive it.
    ByteStream(Wire& wire, ChunkSource& source, const StreamLimits& limits);
    ~ByteStream();
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;

    // -- the program sends --

    /// Bytes that it may add now; 0: none, or its half is closed.
    [[nodiscard]] std::size_t send_room() const noexcept;
    /// Memory for up to `bytes` more; it may be less, and there may be room for more behind it.
    /// Until send_commit() nothing of that chunk goes. Empty: no memory. @pre send_room() > 0
    [[nodiscard]] Bytes send_prepare(std::size_t bytes);
    /// `bytes` of them were written there. `more`: others follow, which they wait for (TCP_CORK,
    /// MSG_MORE) where there is room for others. `now` may be 0 unless send_needs_time().
    void send_commit(std::size_t bytes, bool more, Time now);
    [[nodiscard]] bool send_needs_time() const noexcept { return tx_.waiting == 0 || tx_.held; }
    /// Most sends: memory for exactly `bytes` behind others that are gathered, where adding them
    /// changes nothing else; append_commit() follows at once. Null: send_prepare().
    [[nodiscard]] std::byte* append_prepare(std::size_t bytes) noexcept {
        Chunk* const tail = tx_.chunks.last();
        if (tail == nullptr || tail->filling || tail->size() == 0 || tx_.due || tx_.held ||
            nodelay_ || finishing() || error_ != StreamError::none) {
            return nullptr;
        }
        const bool fits = bytes <= tail->room() && tail->size() + bytes < tx_.payload_limit &&
                          tx_.queued + bytes <= limits_.send_bytes && !tail->urgent_last;
        return fits ? tail->data() + tail->end : nullptr;
    }
    void append_commit(std::size_t bytes) noexcept {
        tx_.chunks.last()->end += static_cast<std::uint32_t>(bytes);
        tx_.waiting += bytes;
        tx_.queued += bytes;
    }
    /// tx() has data to hand out if the peer takes them.
    [[nodiscard]] bool data_is_due() const noexcept;
    /// The last byte added is urgent, and goes at once. @pre one was added since the last call
    void mark_urgent();
    /// The program reads or waits: what was gathered goes, and its next send at once.
    void flush() noexcept;
    /// The same, and what was sent with `more` goes too.
    void push() noexcept;
    /// Bytes wait for others that follow, and not for flush().
    [[nodiscard]] bool holds() const noexcept { return tx_.held && tx_.waiting > 0 && !tx_.due; }
    /// TCP_NODELAY: nothing is gathered, but with `more`. Switched on it is a push().
    void set_nodelay(bool on) noexcept;
    /// StreamLimits::send_bytes from now on; what lies here stays.
    void set_send_limit(std::size_t bytes) noexcept { limits_.send_bytes = bytes; }
    /// StreamLimits::receive_bytes from now on; what the peer was told it may send still comes.
    void set_receive_limit(std::size_t bytes);
    /// No more will be sent.
    void finish() noexcept;
    /// Tells the peer that the stream is broken off, if it can be told by a message. False: a reset
    /// of the connection has to say it.
    [[nodiscard]] bool abort() noexcept;
    [[nodiscard]] bool finishing() const noexcept { return tx_.state != SendHalf::State::open; }
    /// The end of our direction was handed out by tx().
    [[nodiscard]] bool finish_sent() const noexcept {
        return tx_.state == SendHalf::State::finished;
    }
    /// Bytes of the program that lie here or are being sent.
    [[nodiscard]] std::size_t send_queued() const noexcept { return tx_.queued; }
    /// Bytes wait for credit of the peer.
    [[nodiscard]] bool waits_for_credit() const noexcept;

    // -- the program receives --

    /// Bytes that a read takes now: as TCP, up to the mark of an urgent byte, or from there on.
    [[nodiscard]] std::size_t readable() const noexcept;
    /// The same as FIONREAD tells it: none at the mark of an urgent byte that is not inline.
    [[nodiscard]] std::size_t readable_to_mark() const noexcept {
        return hole() > 0 ? 0 : readable();
    }
    /// Where up to `bytes` readable bytes lie, from the `from`th on, in at most out.size() pieces.
    /// They stay valid until they are consumed, also while messages come in. @return pieces
    std::size_t peek(std::size_t bytes, std::span<ConstBytes> out,
                     std::size_t from = 0) const noexcept;
    /// The program has the first `bytes`; an urgent byte that the read begins at is passed over.
    /// @pre bytes <= readable()
    void consume(std::size_t bytes);
    /// Bytes behind an urgent one that was passed are dropped and those that come are unwanted.
    /// @return true: some were, so that the connection is to be reset
    [[nodiscard]] bool close_receiving();
    /// The peer will send no more, and its last byte is here.
    [[nodiscard]] bool receive_finished() const noexcept { return rx_.finished; }
    /// Why it is broken off; what has come before can still be read.
    [[nodiscard]] StreamError error() const noexcept { return error_; }

    [[nodiscard]] const StreamLimits& limits() const noexcept { return limits_; }

    // -- urgent bytes, as TCP --

    enum class Urgent : std::uint8_t { none, awaited, there };
    /// Of recv(MSG_OOB): `none` is EINVAL, `awaited` EAGAIN.
    [[nodiscard]] Urgent urgent() const noexcept;
    /// It has come and was neither taken nor passed, inline or not (POLLPRI).
    [[nodiscard]] bool urgent_is_there() const noexcept {
        return urgent_.state == UrgentMark::State::there;
    }
    [[nodiscard]] std::byte urgent_byte() const noexcept { return urgent_.value; }
    /// recv(MSG_OOB) has taken it. @pre urgent() is there
    void take_urgent() noexcept { urgent_.state = UrgentMark::State::taken; }
    /// sockatmark().
    [[nodiscard]] bool at_mark() const noexcept;
    /// SO_OOBINLINE.
    void set_urgent_inline(bool on) noexcept { urgent_.is_inline = on; }

    // -- the transport --

    /// The next message. False: none now. @pre the transport takes one
    bool tx(TxMessage& out);
    void tx_done(Chunk* chunk);
    /// A message of the peer: the bytes of `chunk`.
    RxNews rx(Chunk* chunk);
    /// The peer's FIN. Ahead of its end of the stream it is an error.
    void on_eof();
    /// The connection has ended. Unless both directions had it is an error.
    void on_lost();

    /// When on_time() is due; kNever.
    [[nodiscard]] Time next_timeout() const noexcept;
    /// True: tx() may have something now.
    bool on_time(Time now) noexcept;

  private:
    [[nodiscard]] std::size_t chunk_limit() const noexcept;
    [[nodiscard]] bool is_full(const Chunk& chunk) const noexcept;
    Chunk* tail_for(std::size_t bytes);
    Chunk* grow(Chunk* tail, std::size_t bytes);
    [[nodiscard]] bool fit_first();
    void put_data(TxMessage& out);
    bool put_control(TxMessage& out, bool data_follows);
    void end_mark() noexcept;
    [[nodiscard]] bool announces_urgent() const noexcept;
    void announce_room();
    bool append(ConstBytes payload);
    void set_mark(std::uint64_t at, std::byte value);
    [[nodiscard]] std::size_t hole() const noexcept;
    void drop(std::size_t bytes);
    void give_all(ChunkQueue& chunks) noexcept;

    Wire& wire_;
    ChunkSource& source_;
    StreamLimits limits_;
    StreamError error_ = StreamError::none;
    bool nodelay_ = false;

    SendHalf tx_;
    ReceiveHalf rx_;
    UrgentMark urgent_;
};

}  // namespace xsock::stream
