// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "stream/sdp.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace xsock::stream {
namespace {

// Draft §10: with less credit no stream octets may be sent, so two messages of the peer always find
// a buffer that needs no room for stream octets.
constexpr std::uint32_t kCreditForData = 3;
constexpr std::uint32_t kReserve = kCreditForData - 1;
constexpr std::uint32_t kMostBufs = 65'535;

/// Whether message number `a` is `b` or a later one; numbers wrap at 2^32.
[[nodiscard]] bool not_before(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>(a - b) >= 0;
}

}  // namespace

Sdp::Sdp(const SdpConfig& config)
    : config_(config), room_(static_cast<std::int64_t>(config.receive_bytes)) {
    XSOCK_ASSERT(config_.buffer_bytes >= SDP_SIZE_MIN && config_.buffer_bytes <= SDP_SIZE_MAX);
    XSOCK_ASSERT(config_.message_bytes >= SDP_SIZE_MIN && config_.message_bytes <= SDP_SIZE_MAX);
    XSOCK_ASSERT(config_.receive_bytes / 2 >= config_.buffer_bytes);
    XSOCK_ASSERT(config_.max_adverts >= 1 && config_.max_adverts <= kMaxAdverts);
    rx_.limit = announced_limit();
    tx_.size = config_.message_bytes;  // the peer's are not known yet
}

// ---- start-up ---------------------------------------------------------------

std::array<std::byte, kHelloOctets> Sdp::hello() const noexcept {
    return encode_hello({.bufs = static_cast<std::uint16_t>(rx_.limit),
                         .max_adverts = config_.max_adverts,
                         .desired_remote_size = config_.message_bytes,
                         .local_size = config_.buffer_bytes,
                         .ord = std::max<std::uint16_t>(config_.ord, 1),
                         .ird = std::max<std::uint16_t>(config_.ird, 1)});
}

std::array<std::byte, kHelloAckOctets> Sdp::hello_ack() const noexcept {
    return encode_hello_ack({.bufs = static_cast<std::uint16_t>(rx_.limit),
                             .max_adverts = config_.max_adverts,
                             .local_size = config_.buffer_bytes,
                             .ord = std::max<std::uint16_t>(config_.ord, 1),
                             .ird = std::max<std::uint16_t>(config_.ird, 1)});
}

StreamError Sdp::take_hello(ConstBytes private_data) {
    return take_limits(decode_hello(private_data));
}

StreamError Sdp::take_hello_ack(ConstBytes private_data) {
    return take_limits(decode_hello_ack(private_data));
}

StreamError Sdp::take_limits(const std::optional<SdpHello>& hello) {
    if (!hello) return StreamError::sdp_hello;
    tx_.limit = hello->bufs;
    tx_.size = hello->local_size;
    return StreamError::none;
}

// ---- credits (draft §10) ----------------------------------------------------

/// Number of the last message that we would take. Never less than the peer knows already.
std::uint32_t Sdp::announced_limit() const noexcept {
    // More than the room may be queued: of urgent bytes. Then the reserve is less.
    const auto bytes = static_cast<std::uint64_t>(room_ < 0 ? -room_ : room_);
    const std::uint64_t over = (bytes + config_.buffer_bytes - 1) / config_.buffer_bytes;
    const std::uint64_t buffers = room_ < 0 ? kReserve - std::min<std::uint64_t>(kReserve, over)
                                            : kReserve + bytes / config_.buffer_bytes;
    const std::uint32_t most = ack() + kMostBufs;
    std::uint32_t limit =
        rx_.mseq + static_cast<std::uint32_t>(std::min<std::uint64_t>(buffers, kMostBufs));
    if (not_before(limit, most)) limit = most;
    return not_before(limit, rx_.limit) ? limit : rx_.limit;
}

/// Draft §10: MSeqAck does not pass a SrcAvailCancel before that is done.
std::uint32_t Sdp::ack() const noexcept {
    return sources_.cancelled ? sources_.cancel_mseq - 1 : rx_.mseq;
}

void Sdp::set_room(std::int64_t bytes) {
    if (bytes > room_) news_ = true;
    room_ = bytes;
}

/// An update must not answer an update one for one, or two ends that have little room would go on
/// for ever. So without news a peer that may not send data is answered only if that gains it two
/// messages, which it does if its queue here is empty: receive_bytes has room for two. While the
/// queue is full only a peer without any credit is: what it cannot send then could not be read
/// before the program reads, which is news.
bool Sdp::update_is_due() const noexcept {
    const std::uint32_t known = known_credit();
    const std::uint32_t gained = announced_limit() - rx_.limit;
    if (gained == 0) return false;
    if (known == 0) return true;
    if (known < kCreditForData) return news_ || gained >= 2;
    if (!news_) return false;
    const auto all = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(config_.receive_bytes / config_.buffer_bytes, kMostBufs));
    return gained >= std::max(all / 2, kReserve);
}

bool Sdp::may_send_control() const noexcept {
    return credit() >= 2 || (credit() == 1 && announced_limit() != rx_.limit);
}

// Also of urgent ones: the reserve is for the announcement alone, so that a stream of urgent bytes
// does not pass its peer's room.
bool Sdp::may_send_data() const noexcept { return credit() >= kCreditForData; }

// ---- sending ----------------------------------------------------------------

std::size_t Sdp::payload_limit() const noexcept {
    return std::min(tx_.size, config_.message_bytes) - kBsdhOctets;
}

Bsdh Sdp::next_header(std::uint8_t mid, std::uint8_t flags) {
    XSOCK_ASSERT(credit() > 0);
    rx_.limit = announced_limit();
    rx_.ack = ack();
    if (not_before(rx_.ack, rx_.mode_mseq)) rx_.mode_mseq = rx_.ack;
    news_ = false;
    return {.mid = mid,
            .flags = flags,
            .bufs = static_cast<std::uint16_t>(rx_.limit - rx_.ack),
            .mseq = ++tx_.mseq,
            .mseq_ack = rx_.ack};
}

SendKind Sdp::put_data(std::size_t payload_bytes, UrgentMarks marks, Bytes header) {
    XSOCK_ASSERT(payload_bytes > 0 && payload_bytes <= payload_limit() && !tx_.finished);
    const unsigned flags =
        (marks.present ? SDP_FLAG_OOB_PRES : 0u) | (marks.pending ? SDP_FLAG_OOB_PEND : 0u);
    SdpMessage message;
    message.header = next_header(SDP_DATA, static_cast<std::uint8_t>(flags));
    encode(message, payload_bytes, header);
    // A SinkAvail that is not written into is void by these octets, here as at the peer (§9.3).
    if (tx_.sinks > 0) {
        --tx_.sinks;
    } else {
        ++tx_.potential;
    }
    return flags != 0 ? SendKind::solicited : SendKind::plain;
}

bool Sdp::put(Control& out, SdpMessage message, SendKind kind, std::uint8_t flags) {
    message.header = next_header(message.header.mid, flags);
    out.size = encode(message, 0, out.octets);
    out.kind = kind;
    return true;
}

/// Answers that the peer waits for, in the order that §10 of the draft needs: the SendSm that ends
/// a cancel is the first message whose MSeqAck passes it.
bool Sdp::put_owed(Control& out) {
    SdpMessage message;
    if (sources_.owed > 0) {
        sources_.cancelled = false;
        --sources_.owed;
        message.header.mid = SDP_SEND_SM;
        put(out, message, SendKind::solicited);
        sources_.at[sources_.declined++] = tx_.mseq;
        return true;
    }
    if (sink_cancel_ack_ != Owed::none) {
        sink_cancel_ack_ = Owed::none;
        message.header.mid = SDP_SINK_CANCEL_ACK;
        return put(out, message, SendKind::solicited);
    }
    if (resize_ack_ != Owed::none) {
        resize_ack_ = Owed::none;
        message.header.mid = SDP_CH_RCV_BUF_ACK;
        message.octets = config_.buffer_bytes;
        return put(out, message, SendKind::plain);
    }
    return false;
}

bool Sdp::put_control(Wishes& wishes, Control& out) {
    SdpMessage message;
    if (wishes.urgent_pending && may_send_control() && sources_.owed == 0) {
        wishes.urgent_pending = false;
        message.header.mid = SDP_DATA;
        return put(out, message, SendKind::solicited, SDP_FLAG_OOB_PEND);
    }
    if (!may_send_control()) return false;
    if (put_owed(out)) return true;
    if (tx_.wanted_mode != tx_.mode) {
        if (tx_.mode == SdpMode::pipelined) tx_.sinks = 0;
        tx_.mode = tx_.wanted_mode;
        message.header.mid = SDP_MODE_CHANGE;
        message.mode = tx_.mode;
        put(out, message, SendKind::plain);
        tx_.mode_mseq = tx_.mseq;
        return true;
    }
    if (wishes.finish && !tx_.finished) {
        wishes.finish = false;
        tx_.finished = true;
        message.header.mid = SDP_DISCONN;
        return put(out, message, SendKind::plain);
    }
    if (wishes.abort && tx_.finished) {
        wishes.abort = false;
        message.header.mid = SDP_ABORT_CONN;
        return put(out, message, SendKind::solicited);
    }
    if (wishes.data_follows || !update_is_due()) return false;
    message.header.mid = SDP_DATA;
    return put(out, message, SendKind::plain);
}

bool Sdp::change_send_mode(SdpMode to) {
    const bool under_way = tx_.wanted_mode != tx_.mode || !not_before(tx_.acked, tx_.mode_mseq);
    const bool known = tx_.mode == SdpMode::combined
                           ? to != SdpMode::combined
                           : tx_.mode == SdpMode::pipelined && to == SdpMode::combined;
    if (under_way || !known) return false;
    tx_.wanted_mode = to;
    return true;
}

void Sdp::start_numbers_at(std::uint32_t mseq) noexcept {
    tx_.limit += mseq - tx_.mseq;
    rx_.limit += mseq - rx_.mseq;
    tx_.mseq = tx_.acked = tx_.mode_mseq = mseq;
    rx_.mseq = rx_.ack = rx_.mode_mseq = mseq;
}

// ---- receiving --------------------------------------------------------------

Arrival Sdp::rx(ConstBytes octets) {
    Arrival arrival;
    SdpMessage message;
    const auto fail = [&arrival](StreamError error) {
        arrival = {};
        arrival.error = error;
        return arrival;
    };
    if (octets.size() > config_.buffer_bytes) return fail(StreamError::sdp_length);
    if (const auto error = decode(octets, message); error != StreamError::none) return fail(error);
    if (const auto error = check_sequence(message); error != StreamError::none) return fail(error);
    if (const auto error = check_urgent(message); error != StreamError::none) return fail(error);
    if (const auto error = check_payload(message); error != StreamError::none) return fail(error);
    if (const auto error = take(message, arrival); error != StreamError::none) return fail(error);
    arrival.payload = message.payload;
    arrival.urgent = {(message.header.flags & SDP_FLAG_OOB_PEND) != 0,
                      (message.header.flags & SDP_FLAG_OOB_PRES) != 0};
    if (message.header.mid != SDP_DATA || message.carries_stream()) news_ = true;
    return arrival;
}

StreamError Sdp::check_sequence(const SdpMessage& message) {
    const Bsdh& header = message.header;
    if (header.mseq != rx_.mseq + 1) return StreamError::sdp_sequence;
    // Not what was acknowledged before, nor what was not sent.
    if (header.mseq_ack - tx_.acked > tx_.mseq - tx_.acked) return StreamError::sdp_sequence;
    if (!not_before(rx_.limit, header.mseq)) return StreamError::sdp_credit;
    const std::uint32_t limit = header.mseq_ack + header.bufs;
    if (!not_before(limit, tx_.limit)) return StreamError::sdp_credit;
    rx_.mseq = header.mseq;
    tx_.acked = header.mseq_ack;
    tx_.limit = limit;
    if (not_before(tx_.acked, tx_.mode_mseq)) tx_.mode_mseq = tx_.acked;
    forget_declined(header.mseq_ack);
    return StreamError::none;
}

/// SendSms that the peer has seen.
void Sdp::forget_declined(std::uint32_t mseq_ack) noexcept {
    std::uint32_t seen = 0;
    while (seen < sources_.declined && not_before(mseq_ack, sources_.at[seen])) ++seen;
    if (seen == 0) return;
    std::copy(sources_.at.begin() + seen, sources_.at.begin() + sources_.declined,
              sources_.at.begin());
    sources_.declined -= seen;
}

StreamError Sdp::check_urgent(const SdpMessage& message) {
    const unsigned flags = message.header.flags;
    if ((flags & SDP_FLAG_OOB_PEND) != 0) {
        rx_.urgent_pending = true;
        rx_.urgent_distance = 0;
    } else if (rx_.urgent_pending) {
        rx_.urgent_distance += static_cast<std::uint32_t>(message.payload.size());
    }
    if ((flags & SDP_FLAG_OOB_PRES) != 0) {
        if (!rx_.urgent_pending) return StreamError::sdp_urgent;
        rx_.urgent_pending = false;
        // The urgent octet itself is not ahead of itself.
        if (rx_.urgent_distance > kMaxUrgentAhead + 1) return StreamError::sdp_urgent;
    } else if (rx_.urgent_pending && rx_.urgent_distance > kMaxUrgentAhead) {
        return StreamError::sdp_urgent;
    }
    return StreamError::none;
}

/// Whether stream octets, or the promise of some, may come in this message.
StreamError Sdp::check_payload(const SdpMessage& message) const {
    const bool is_source = message.header.mid == SDP_SRC_AVAIL;
    if (!message.carries_stream() && !is_source) return StreamError::none;
    if (rx_.finished) return StreamError::sdp_closing;
    const bool pipelined = is_source && rx_.mode == SdpMode::pipelined;
    if (sources_outstanding() > 0 && !pipelined) return StreamError::sdp_advertisement;
    const bool urgent = (message.header.flags & (SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES)) != 0;
    const bool had_credit = rx_.limit - message.header.mseq >= kReserve;
    return had_credit || urgent || !message.carries_stream() ? StreamError::none
                                                             : StreamError::sdp_credit;
}

StreamError Sdp::take(const SdpMessage& message, Arrival& arrival) {
    switch (message.header.mid) {
        case SDP_DATA:
            return StreamError::none;
        case SDP_DISCONN:
            if (rx_.finished || sources_outstanding() > 0) return StreamError::sdp_closing;
            if (rx_.urgent_pending) return StreamError::sdp_urgent;
            rx_.finished = arrival.finished = true;
            return StreamError::none;
        case SDP_ABORT_CONN:
            if (!rx_.finished) return StreamError::sdp_closing;
            arrival.aborted = true;
            return StreamError::none;
        case SDP_SRC_AVAIL:
            return take_source(message);
        case SDP_SINK_AVAIL:
            return take_sink(message);
        case SDP_MODE_CHANGE:
            return take_mode_change(message);
        case SDP_SRC_AVAIL_CANCEL:
            return take_source_cancel(message);
        case SDP_SINK_AVAIL_CANCEL:
            return take_sink_cancel();
        case SDP_CH_RCV_BUF:
            if (resize_ack_ != Owed::none) return StreamError::sdp_resize;
            resize_ack_ = Owed::once;
            return StreamError::none;
        case SDP_CH_RCV_BUF_ACK:
            return StreamError::sdp_resize;  // we never ask
        case SDP_SEND_SM:
        case SDP_RDMA_WR_COMPL:
        case SDP_RDMA_RD_COMPL:
        case SDP_SINK_CANCEL_ACK:
            return StreamError::sdp_completion;  // we never advertise
        case SDP_SUSP_COMM:
        case SDP_SUSP_COMM_ACK:
            return StreamError::sdp_suspend;
        default:
            return StreamError::sdp_message;
    }
}

StreamError Sdp::take_source(const SdpMessage& message) {
    const bool with_payload = message.carries_stream();
    const bool fits = rx_.mode == SdpMode::combined    ? with_payload
                      : rx_.mode == SdpMode::pipelined ? !with_payload
                                                       : false;
    if (!fits || sources_.cancelled || sources_outstanding() + tx_.sinks >= config_.max_adverts) {
        return StreamError::sdp_advertisement;
    }
    ++sources_.owed;
    return StreamError::none;
}

StreamError Sdp::take_sink(const SdpMessage& message) {
    if (tx_.mode != SdpMode::pipelined) {
        // Sent before the peer learned that Pipelined is over: void.
        return not_before(message.header.mseq_ack, tx_.mode_mseq) ? StreamError::sdp_advertisement
                                                                  : StreamError::none;
    }
    // Each of our messages with stream octets that the peer had not seen may have made it void.
    const std::uint32_t crossed = tx_.potential - message.non_discards;
    if (crossed > tx_.mseq - message.header.mseq_ack) return StreamError::sdp_advertisement;
    if (crossed != 0) {
        --tx_.potential;
        return StreamError::none;
    }
    if (sources_outstanding() + tx_.sinks >= config_.max_adverts) {
        return StreamError::sdp_advertisement;
    }
    ++tx_.sinks;
    return StreamError::none;
}

StreamError Sdp::take_mode_change(const SdpMessage& message) {
    if (message.send_half) {
        if (tx_.mode != SdpMode::buffered || message.mode != SdpMode::combined) {
            return StreamError::sdp_mode;
        }
        tx_.mode = tx_.wanted_mode = SdpMode::combined;
        return StreamError::none;
    }
    // The peer must know that we have taken the last one.
    if (!not_before(rx_.ack, rx_.mode_mseq)) return StreamError::sdp_mode;
    if (rx_.mode == SdpMode::combined && message.mode == SdpMode::buffered) {
        if (sources_outstanding() > 0) return StreamError::sdp_mode;
    } else if (rx_.mode == SdpMode::pipelined && message.mode == SdpMode::combined) {
        sources_ = {};  // the peer advertises them again as needed
        rx_.mode_mseq = message.header.mseq;
    } else if (rx_.mode != SdpMode::combined || message.mode != SdpMode::pipelined) {
        return StreamError::sdp_mode;
    }
    rx_.mode = message.mode;
    return StreamError::none;
}

StreamError Sdp::take_source_cancel(const SdpMessage& message) {
    if (sources_.cancelled) return StreamError::sdp_completion;
    if (sources_.owed == 0) return StreamError::none;  // all is answered
    sources_.owed = 1;  // exactly one answers for all that is discarded
    sources_.cancelled = true;
    sources_.cancel_mseq = message.header.mseq;
    return StreamError::none;
}

StreamError Sdp::take_sink_cancel() {
    if (sink_cancel_ack_ != Owed::none) return StreamError::sdp_completion;
    // Where none is valid, a message of ours has made them void at the peer, too.
    if (std::exchange(tx_.sinks, 0) > 0) sink_cancel_ack_ = Owed::once;
    return StreamError::none;
}

}  // namespace xsock::stream
