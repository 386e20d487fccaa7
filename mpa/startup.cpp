// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/startup.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "mpa/enhanced_data.hpp"

namespace xsock::mpa {
namespace {

constexpr std::size_t kFrameHeaderBytes = sizeof(mpa_frame);
constexpr std::size_t kFlagsAt = offsetof(mpa_frame, flags);
constexpr std::size_t kRevisionAt = offsetof(mpa_frame, revision);
constexpr std::size_t kPdLengthAt = offsetof(mpa_frame, pd_length);
constexpr std::size_t kEnhancedOctets = sizeof(mpa_enhanced);
constexpr std::uint16_t kDepthMax = MPA_ENH_DEPTH_NONE - 1;

}  // namespace

Startup::Startup(StartupConfig config) : config_(std::move(config)) {
    config_.ird = std::min(config_.ird, kDepthMax);
    config_.ord = std::min(config_.ord, kDepthMax);
    if (config_.revision < MPA_REVISION_2) config_.negotiate_depths = false;
    if (!config_.xsock_mark) config_.extensions = false;  // the flag means nothing by itself
    if (initiator() && !config_.negotiate_depths) config_.rtr = 0;  // nowhere to offer it
    // A responder may meet an enhanced Request whatever it prefers itself.
    const bool enhanced = initiator() ? config_.negotiate_depths : config_.revision >= 2;
    XSOCK_ASSERT(config_.private_data.size() <= MPA_PD_MAX - (enhanced ? kEnhancedOctets : 0));
    negotiated_.initiator = initiator();
    negotiated_.ird = config_.ird;
    negotiated_.ord = config_.ord;
}

void Startup::begin(Time now) {
    XSOCK_ASSERT(state_ == State::idle);
    deadline_ = config_.timeout < kNever - now ? now + config_.timeout : kNever;
    if (initiator()) {
        send_request();
        state_ = State::await_reply;
    } else {
        state_ = State::await_request;
    }
}

std::size_t Startup::rx(ConstBytes bytes) {
    std::size_t used = 0;
    while (used < bytes.size() && receiving()) {
        if (state_ == State::exchanging) {
            used += take_extension_frame(bytes.subspan(used));
            continue;
        }
        if (received_ < MPA_KEY_OCTETS && !take_key_octet(bytes[used])) return used;
        if (received_ < kFrameHeaderBytes) {
            header_[received_++] = bytes[used++];
            if (received_ == kFrameHeaderBytes) on_header();
        } else {
            const std::size_t left = kFrameHeaderBytes + pd_length_ - received_;
            const ConstBytes piece = bytes.subspan(used, std::min(left, bytes.size() - used));
            peer_private_data_.insert(peer_private_data_.end(), piece.begin(), piece.end());
            received_ = static_cast<std::uint16_t>(received_ + piece.size());
            used += piece.size();
        }
        const bool complete =
            received_ >= kFrameHeaderBytes && received_ == kFrameHeaderBytes + pd_length_;
        if (complete && receiving()) on_frame();
    }
    if (used == bytes.size()) return used;
    switch (state_) {
        case State::await_decision:
        case State::replying:
            // Nothing may follow the Request before our Reply (RFC 5044 §7.1.2).
            fail(StreamError::mpa_startup_frame);
            return bytes.size();
        case State::exchanging:
            // Nor may anything follow the peer's extension frame before it can have seen ours.
            fail(StreamError::mpa_extension_frame);
            return bytes.size();
        case State::rejecting:
            return bytes.size();  // whatever the peer sends: it was rejected
        case State::idle:
        case State::await_reply:
        case State::await_request:
        case State::established:
        case State::rejected:
        case State::failed:
            return used;
    }
    return used;
}

std::size_t Startup::rx_wanted() const noexcept {
    switch (state_) {
        case State::await_reply:
        case State::await_request:
            return (received_ < kFrameHeaderBytes ? kFrameHeaderBytes
                                                  : kFrameHeaderBytes + pd_length_) -
                   received_;
        case State::exchanging:
            return exchange_ != nullptr ? exchange_->rx_wanted() : 0;
        case State::rejecting:
            return SIZE_MAX;  // all is dropped
        case State::idle:
        case State::await_decision:
        case State::replying:
        case State::established:
        case State::rejected:
        case State::failed:
            return 0;
    }
    return 0;
}

void Startup::rx_eof() {
    switch (state_) {
        case State::idle:
        case State::await_reply:
        case State::await_request:
        case State::await_decision:
        case State::replying:
        case State::exchanging:
            fail(StreamError::mpa_connection_lost);
            return;
        case State::rejecting:  // the Reply may still be of use to a peer that half-closed
        case State::established:
        case State::rejected:
        case State::failed:
            return;
    }
}

ConstBytes Startup::tx() const noexcept { return ConstBytes(tx_).subspan(tx_written_); }

void Startup::tx_commit(std::size_t n) {
    XSOCK_ASSERT(n <= tx_.size() - tx_written_);
    tx_written_ += n;
    // The initiator may answer a Reply before the rest of our extension frame is written.
    if (state_ == State::replying && exchange_ && tx_written_ >= reply_bytes_) {
        state_ = State::exchanging;
    }
    if (n == 0 || tx_written_ < tx_.size()) return;
    std::vector<std::byte>().swap(tx_);
    tx_written_ = 0;
    if (state_ == State::replying) {
        state_ = State::established;
    } else if (state_ == State::exchanging) {
        end_exchange();
    } else if (state_ == State::rejecting) {
        fail(owed_stream_error_);
    }
}

bool Startup::accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord) {
    if (state_ != State::await_decision || private_data.size() > pd_limit()) return false;
    send_reply(private_data, std::min(ird, kDepthMax), std::min(ord, kDepthMax));
    return true;
}

bool Startup::reject(ConstBytes private_data) {
    if (state_ != State::await_decision || private_data.size() > pd_limit()) return false;
    send_reject(StreamError::startup_rejected, private_data);
    return true;
}

Time Startup::next_timeout() const noexcept {
    switch (state_) {
        case State::await_reply:
        case State::await_request:
        case State::await_decision:
        case State::replying:
        case State::exchanging:
        case State::rejecting:
            return deadline_;
        case State::idle:
        case State::established:
        case State::rejected:
        case State::failed:
            return kNever;
    }
    return kNever;
}

void Startup::on_time(Time now) {
    const Time deadline = next_timeout();
    if (deadline != kNever && now >= deadline) fail(StreamError::startup_timeout);
}

bool Startup::receiving() const noexcept {
    switch (state_) {
        case State::await_reply:
        case State::await_request:
            return true;
        case State::exchanging:
            return exchange_ != nullptr;
        case State::idle:
        case State::await_decision:
        case State::replying:
        case State::rejecting:
        case State::established:
        case State::rejected:
        case State::failed:
            return false;
    }
    return false;
}

/// Octets of private data that fit into our Reply.
std::size_t Startup::pd_limit() const noexcept {
    const std::size_t most = request_.xsock ? MPA_PD_MAX : MPA_PD_MAX_OTHERS;
    return most - (request_.enhanced ? kEnhancedOctets : 0);
}

/// Checks each octet of the key as it comes, so that the first wrong one ends a standard peer's
/// connection. The two keys part at one octet: there, a Request in place of a Reply is recognised.
bool Startup::take_key_octet(std::byte value) {
    const auto is = [&](const char* key) {
        return value == static_cast<std::byte>(key[received_]);
    };
    if (is(initiator() ? MPA_KEY_REPLY : MPA_KEY_REQUEST)) return true;
    fail(initiator() && is(MPA_KEY_REQUEST) ? StreamError::startup_both_initiators
                                            : StreamError::startup_not_mpa);
    return false;
}

void Startup::on_header() {
    const auto revision = std::to_integer<unsigned>(header_[kRevisionAt]);
    pd_length_ = load_be16(header_.data() + kPdLengthAt);
    // Revision 0 is from before RFC 5044; as siw does, we answer such a Request but do not take
    // such a Reply.
    const unsigned lowest = initiator() ? MPA_REVISION_1 : 0;
    if (revision < lowest || revision > config_.revision || pd_length_ > MPA_PD_MAX) {
        fail(StreamError::mpa_startup_frame);
    }
}

void Startup::on_frame() {
    if (initiator()) {
        on_reply();
    } else {
        on_request();
    }
}

void Startup::on_request() {
    const auto flags = std::to_integer<unsigned>(header_[kFlagsAt]);
    request_.revision = std::to_integer<std::uint8_t>(header_[kRevisionAt]);
    request_.crc = has(flags, MPA_FLAG_CRC);
    request_.markers = has(flags, MPA_FLAG_MARKERS);
    request_.xsock = config_.xsock_mark && has(flags, MPA_FLAG_XSOCK_REQUEST) &&
                     !has(flags, MPA_FLAG_XSOCK_REPLY);

    negotiated_.revision = request_.revision;
    negotiated_.crc = config_.crc || request_.crc;
    negotiated_.markers_tx = request_.markers;
    negotiated_.markers_rx = config_.markers;
    negotiated_.peer_is_xsock = request_.xsock;
    negotiated_.extensions =
        config_.extensions && request_.xsock && has(flags, MPA_FLAG_EXTENSIONS);
    negotiated_.peer_accepts_gso = has(flags, MPA_FLAG_SIW_GSO);

    std::uint8_t offered = 0;
    if (request_.revision >= MPA_REVISION_2 && has(flags, MPA_FLAG_ENHANCED)) {
        if (pd_length_ < kEnhancedOctets) {
            return send_reject(StreamError::mpa_startup_frame, {});
        }
        const unsigned enhanced_ird = load_be16(peer_private_data_.data());
        const unsigned enhanced_ord = load_be16(peer_private_data_.data() + 2);
        peer_private_data_.erase(peer_private_data_.begin(),
                                 peer_private_data_.begin() + kEnhancedOctets);
        request_.enhanced = true;
        request_.peer_to_peer = has(enhanced_ird, MPA_ENH_P2P);
        request_.ird = static_cast<std::uint16_t>(depth(enhanced_ird));
        request_.ord = static_cast<std::uint16_t>(depth(enhanced_ord));
        offered = rtr_mask(enhanced_ird, enhanced_ord);
    }
    request_.private_data = peer_private_data_;

    if (request_.peer_to_peer) {
        negotiated_.rtr = preferred_rtr(offered & config_.rtr);
        if (negotiated_.rtr == Rtr::none) return send_reject(StreamError::mpa_no_rtr, {});
    }
    if (config_.defer_reply) {
        state_ = State::await_decision;
        return;
    }
    // Deviation: RFC 5044 allows 512 octets, by which a standard peer's kernel may crash
    // (docs/wire.md).
    if (config_.private_data.size() > pd_limit()) {
        return send_reject(StreamError::mpa_startup_frame, {});
    }
    send_reply(config_.private_data, config_.ird, config_.ord);
}

void Startup::on_reply() {
    // An answer to what we have not finished asking comes from no MPA implementation.
    if (!tx_.empty()) return fail(StreamError::mpa_startup_frame);
    const auto flags = std::to_integer<unsigned>(header_[kFlagsAt]);
    const auto revision = std::to_integer<std::uint8_t>(header_[kRevisionAt]);
    const bool enhanced = revision >= MPA_REVISION_2 && has(flags, MPA_FLAG_ENHANCED);
    unsigned enhanced_ird = 0, enhanced_ord = 0;
    const bool enhanced_data = enhanced && pd_length_ >= kEnhancedOctets;
    if (enhanced_data) {
        enhanced_ird = load_be16(peer_private_data_.data());
        enhanced_ord = load_be16(peer_private_data_.data() + 2);
        peer_private_data_.erase(peer_private_data_.begin(),
                                 peer_private_data_.begin() + kEnhancedOctets);
    }

    negotiated_.revision = revision;
    if (has(flags, MPA_FLAG_REJECT)) {
        // siw rejects malformed enhanced data with S set and none of its own: take that too.
        state_ = State::rejected;
        stream_error_ = StreamError::startup_rejected;
        return;
    }
    if (enhanced && (!enhanced_data || !config_.negotiate_depths)) {
        return fail(StreamError::mpa_startup_frame);
    }
    negotiated_.crc = config_.crc || has(flags, MPA_FLAG_CRC);
    negotiated_.markers_tx = has(flags, MPA_FLAG_MARKERS);
    negotiated_.markers_rx = config_.markers;
    negotiated_.peer_is_xsock = config_.xsock_mark && has(flags, MPA_FLAG_XSOCK_REPLY) &&
                                !has(flags, MPA_FLAG_XSOCK_REQUEST);
    // An echo of the flag by others means nothing: the mark of a Reply must be beside it.
    negotiated_.extensions =
        config_.extensions && negotiated_.peer_is_xsock && has(flags, MPA_FLAG_EXTENSIONS);
    negotiated_.peer_accepts_gso = has(flags, MPA_FLAG_SIW_GSO);
    const StreamError wrong = take_depths(enhanced, static_cast<std::uint16_t>(enhanced_ird),
                                          static_cast<std::uint16_t>(enhanced_ord));
    if (negotiated_.extensions) {
        exchange_ = std::make_unique<ExtensionReceiver>();
        owed_stream_error_ = wrong;
        state_ = State::exchanging;
        // Also ahead of a Terminate: the responder waits for nothing else. That one accepts no
        // offer.
        frame_waits_ = config_.answers_offer && wrong == StreamError::none;
        if (!frame_waits_) send_extension_frame();
    } else if (wrong != StreamError::none) {
        fail(wrong);
    } else {
        state_ = State::established;
    }
}

/// Initiator: the depths and the RTR message that the Reply leaves us (RFC 6581 §9).
StreamError Startup::take_depths(bool enhanced, std::uint16_t enhanced_ird,
                                 std::uint16_t enhanced_ord) {
    negotiated_.enhanced = enhanced;
    if (enhanced) {
        const auto peer_ird = static_cast<std::uint16_t>(depth(enhanced_ird));
        const auto peer_ord = static_cast<std::uint16_t>(depth(enhanced_ord));
        if (peer_ird != MPA_ENH_DEPTH_NONE) negotiated_.ord = std::min(config_.ord, peer_ird);
        if (config_.rtr != 0 && has(enhanced_ird, MPA_ENH_P2P)) {
            const std::uint8_t chosen = rtr_mask(enhanced_ird, enhanced_ord);
            negotiated_.rtr = preferred_rtr(chosen & config_.rtr);
            // Deviation: siw answers Write to an initiator that offers Send only. The Terminate
            // that RFC 6581 has for that crashes its kernel (docs/wire.md), and we can send
            // what it chose.
            if (negotiated_.rtr == Rtr::none) {
                negotiated_.rtr = preferred_rtr(chosen & (kRtrWrite | kRtrRead));
            }
            if (negotiated_.rtr == Rtr::none) return StreamError::mpa_no_rtr;
            // The responder raised its IRD for the sake of a Read as RTR message.
            if (negotiated_.rtr == Rtr::read && peer_ird != 0) {
                negotiated_.ord = std::max<std::uint16_t>(negotiated_.ord, 1);
            }
        }
        if (peer_ord != MPA_ENH_DEPTH_NONE) {
            if (peer_ord > config_.ird) return StreamError::mpa_insufficient_ird;
            negotiated_.ird = peer_ord;
        }
    }
    return StreamError::none;
}

void Startup::send_request() {
    const unsigned flags = (config_.markers ? MPA_FLAG_MARKERS : 0u) |
                           (config_.crc ? MPA_FLAG_CRC : 0u) |
                           (config_.negotiate_depths ? MPA_FLAG_ENHANCED : 0u) |
                           (config_.xsock_mark ? MPA_FLAG_XSOCK_REQUEST : 0u) |
                           (config_.extensions ? MPA_FLAG_EXTENSIONS : 0u);
    unsigned enhanced_ird = config_.ird, enhanced_ord = config_.ord;
    if (config_.rtr != 0) {
        enhanced_ird |= rtr_bits_in_ird(config_.rtr);
        enhanced_ord |= rtr_bits_in_ord(config_.rtr);
    }
    queue_frame(MPA_KEY_REQUEST, flags, config_.revision, config_.negotiate_depths, enhanced_ird,
                enhanced_ord, config_.private_data);
}

void Startup::send_reply(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord) {
    unsigned reply_ird = MPA_ENH_DEPTH_NONE, reply_ord = MPA_ENH_DEPTH_NONE;
    negotiated_.enhanced = request_.enhanced;
    negotiated_.ird = ird;
    negotiated_.ord = ord;
    if (request_.enhanced) {
        // Each end's inbound Reads are the other's outbound ones; 0x3fff is echoed (RFC 6581 §9).
        if (request_.ord != MPA_ENH_DEPTH_NONE) {
            negotiated_.ird = std::min(ird, request_.ord);
            if (negotiated_.rtr == Rtr::read && negotiated_.ird == 0) negotiated_.ird = 1;
            reply_ird = negotiated_.ird;
        }
        if (request_.ird != MPA_ENH_DEPTH_NONE) {
            negotiated_.ord = std::min(ord, request_.ird);
            reply_ord = negotiated_.ord;
        }
        if (negotiated_.rtr != Rtr::none) {
            reply_ird |= rtr_bits_in_ird(mask_of(negotiated_.rtr));
            reply_ord |= rtr_bits_in_ord(mask_of(negotiated_.rtr));
        }
    }
    const unsigned flags = (config_.markers ? MPA_FLAG_MARKERS : 0u) |
                           (negotiated_.crc ? MPA_FLAG_CRC : 0u) |
                           (request_.enhanced ? MPA_FLAG_ENHANCED : 0u) |
                           (request_.xsock ? MPA_FLAG_XSOCK_REPLY : 0u) |
                           (negotiated_.extensions ? MPA_FLAG_EXTENSIONS : 0u) |
                           // We take FPDUs of any size, so a peer that asks may send them.
                           (negotiated_.peer_accepts_gso ? MPA_FLAG_SIW_GSO : 0u);
    queue_frame(MPA_KEY_REPLY, flags, request_.revision, request_.enhanced, reply_ird, reply_ord,
                private_data);
    state_ = State::replying;
    if (!negotiated_.extensions) return;
    reply_bytes_ = static_cast<std::uint16_t>(tx_.size());
    append_extension_frame(tx_, config_.extension_tlvs);
    exchange_ = std::make_unique<ExtensionReceiver>();
}

void Startup::send_reject(StreamError why, ConstBytes private_data) {
    const unsigned flags = MPA_FLAG_REJECT | (negotiated_.crc ? MPA_FLAG_CRC : 0u) |
                           (request_.enhanced ? MPA_FLAG_ENHANCED : 0u) |
                           (request_.xsock ? MPA_FLAG_XSOCK_REPLY : 0u);
    queue_frame(MPA_KEY_REPLY, flags, request_.revision, request_.enhanced, config_.ird,
                config_.ord, private_data);
    owed_stream_error_ = why;
    state_ = State::rejecting;
}

void Startup::queue_frame(const char* key, unsigned flags, unsigned revision, bool enhanced,
                          unsigned enhanced_ird, unsigned enhanced_ord, ConstBytes private_data) {
    const std::size_t extra = enhanced ? kEnhancedOctets : 0;
    XSOCK_ASSERT(tx_.empty() && extra + private_data.size() <= MPA_PD_MAX);
    tx_.resize(kFrameHeaderBytes + extra + private_data.size());
    std::memcpy(tx_.data(), key, MPA_KEY_OCTETS);
    tx_[kFlagsAt] = static_cast<std::byte>(flags);
    tx_[kRevisionAt] = static_cast<std::byte>(revision);
    store_be16(tx_.data() + kPdLengthAt,
               static_cast<std::uint16_t>(tx_.size() - kFrameHeaderBytes));
    if (enhanced) {
        store_be16(tx_.data() + kFrameHeaderBytes, static_cast<std::uint16_t>(enhanced_ird));
        store_be16(tx_.data() + kFrameHeaderBytes + 2, static_cast<std::uint16_t>(enhanced_ord));
    }
    std::copy(private_data.begin(), private_data.end(),
              tx_.begin() + static_cast<std::ptrdiff_t>(kFrameHeaderBytes + extra));
    std::vector<std::byte>().swap(config_.private_data);  // one frame is all we ever send
}

void Startup::fail(StreamError stream_error) {
    state_ = State::failed;
    stream_error_ = stream_error;
    std::vector<std::byte>().swap(tx_);
    tx_written_ = 0;
    exchange_.reset();
    frame_waits_ = false;
    std::vector<std::byte>().swap(peer_shm_);
}

}  // namespace xsock::mpa
