// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Outbound: send-queue entries and the peer's Read Requests -> ULPDUs. Messages are never
// interleaved; where both sources have one, they alternate.
#include <algorithm>

#include "base/fault.hpp"
#include "base/random.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {
namespace {

// With acknowledged completions: the peer is asked when nothing else is to be sent, but at least
// once for so many entries, so that a busy queue does not fill up before the first is confirmed.
constexpr std::uint64_t kAskEvery = 16;

constexpr std::uint32_t kAnyStag = 1;  // of zero-length messages: nobody looks it up, but iw_cxgb4
                                       // stumbles over 0

/// RDMAP's opcode of the message that ends an entry of the send queue.
std::uint8_t rdmap_opcode(const SendWqe& wqe) {
    const SendInfo& row = send_info(wqe.opcode);
    return (wqe.flags & kSendSolicited) != 0 ? row.solicited : row.message;
}

std::span<const Sge> sges_of(const SendWqe& wqe) { return {wqe.sge.data(), wqe.sge_count}; }

void set_header(const Segment& segment, UlpduOut& out) {
    out.header_size = encode(segment, out.header.data());
    out.payload_count = 0;
}

void add_payload(UlpduOut& out, const std::byte* from, std::size_t octets) {
    out.payload[out.payload_count++] = {from, octets};
}

}  // namespace

bool Stream::Impl::tx_next(std::size_t mulpdu, UlpduOut& out) {
    XSOCK_ASSERT(mulpdu >= kMaxUlpduHeader);
    if (tx.log.full()) return false;

    // Building may find a reason to end the stream; then there is a Terminate to send instead.
    if (state == State::established && pick_source() && build(mulpdu, out)) {
        ++counters.tx_segments;
        return true;
    }
    if (state != State::terminating || terminate_given) return false;
    terminate_given = true;
    std::copy_n(terminate.octets.data(), terminate.size, out.header.data());
    out.header_size = terminate.size;
    out.payload_count = 0;
    tx.log.push(TxLog::Kind::terminate, true);
    ++counters.tx_segments;
    ++counters.tx_messages[RDMAP_TERMINATE];
    return true;
}

/// Sends and Writes that are small enough to be copied whole, while no other source has anything.
/// Nothing is changed before the last octet is copied: program memory may be gone.
std::size_t Stream::Impl::tx_run(const UlpduRun& run) {
    if (state != State::established || tx.under_way != Source::none || tx.rtr != Rtr::none ||
        tx.nudge || tx.held || acknowledged || !irq.empty() || tx.log.full()) {
        return 0;
    }
    SendQueue& sq = *config.sq;
    const std::uint64_t left = sq.posted() - tx.next;
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(left, run.sizes.size()));
    std::byte* at = run.room.data();
    std::byte* const end = at + run.room.size();
    std::uint32_t msn = tx.send_msn;
    std::size_t payload = 0, n = 0, solicited = 0, writes = 0;
    for (; n < most; ++n) {
        const SendWqe& wqe = sq.at(tx.next + n);
        const bool tagged = wqe.opcode == SendOpcode::write;
        if (!tagged && wqe.opcode != SendOpcode::send) break;
        if ((wqe.flags & kSendFence) != 0 && !orq.empty()) break;
        const std::size_t size = (tagged ? kTaggedOctets : kUntaggedOctets) + wqe.length;
        const std::size_t octets = run.octets(size);
        if (size > run.most || octets > static_cast<std::size_t>(end - at)) break;
        if (!put_message(wqe, msn, at + run.before)) break;
        if (tagged) {
            ++writes;
        } else {
            ++msn;
            if ((wqe.flags & kSendSolicited) != 0) ++solicited;
        }
        payload += wqe.length;
        run.sizes[n] = static_cast<std::uint16_t>(size);
        at += octets;
    }
    if (n == 0) return 0;
    counters.tx_segments += n;
    counters.tx_payload_octets += payload;
    counters.tx_messages[RDMAP_WRITE] += writes;
    counters.tx_messages[RDMAP_SEND_SE] += solicited;
    counters.tx_messages[RDMAP_SEND] += n - writes - solicited;
    tx.log.push(TxLog::Kind::send_queue, true, static_cast<std::uint32_t>(n));
    tx.previous = Source::send_queue;
    tx.send_msn = msn;
    tx.next += n;
    return n;
}

/// A message as one segment. False: memory that its key does not permit; tx_next() says so.
bool Stream::Impl::put_message(const SendWqe& wqe, std::uint32_t msn, std::byte* to) const {
    to += put_message_header(wqe, msn, to);
    if ((wqe.flags & kSendInline) != 0) {
        copy_short(to, wqe.inline_payload(), wqe.length);
        return true;
    }
    for (const Sge& sge : sges_of(wqe)) {
        if (sge.length == 0) continue;
        if (!permits(sge, false)) return false;
        const fault::Touch touch(0, sge.address, sge.length);
        copy_short(to, sge.address, sge.length);
        to += sge.length;
    }
    return true;
}

/// The header of a message that is one segment, a Send or a Write. @return its size
std::size_t Stream::Impl::put_message_header(const SendWqe& wqe, std::uint32_t msn,
                                             std::byte* to) noexcept {
    const bool tagged = wqe.opcode == SendOpcode::write;
    return encode(Segment{.opcode = rdmap_opcode(wqe),
                          .tagged = tagged,
                          .stag = tagged ? wqe.remote_stag : 0,
                          .to = tagged ? wqe.remote_to : 0,
                          .qn = DDP_QN_SEND,
                          .msn = msn},
                  to);
}

void Stream::Impl::count_message(const SendWqe& wqe) noexcept {
    ++counters.tx_segments;
    ++counters.tx_messages[rdmap_opcode(wqe)];
    counters.tx_payload_octets += wqe.length;
    if (wqe.opcode == SendOpcode::send) ++tx.send_msn;
}

/// A Send or Write with inline data, when nothing else is to be sent or on its way: most messages
/// of a ping-pong.
std::size_t Stream::Impl::tx_lone(Bytes ulpdu) {
    if (state != State::established || tx.under_way != Source::none || tx.rtr != Rtr::none ||
        tx.nudge || may_ask() || tx.sent != tx.next || !irq.empty() ||
        config.sq->posted() != tx.next + 1) {
        return 0;
    }
    const SendWqe& wqe = config.sq->at(tx.next);
    const bool tagged = wqe.opcode == SendOpcode::write;
    if ((!tagged && wqe.opcode != SendOpcode::send) || (wqe.flags & kSendInline) == 0 ||
        !may_start(wqe) || ulpdu.size() < kUntaggedOctets + wqe.length) {
        return 0;
    }
    const std::size_t header = put_message_header(wqe, tx.send_msn, ulpdu.data());
    std::memcpy(ulpdu.data() + header, wqe.inline_payload(), wqe.length);
    return header + wqe.length;
}

void Stream::Impl::tx_lone_done() {
    const SendWqe& wqe = config.sq->at(tx.next);
    count_message(wqe);
    tx.previous = Source::send_queue;
    tx.sent = ++tx.next;
    complete_sent();
    run_local();
}

/// The next segment of what pick_source() chose. False: the stream has ended over it.
bool Stream::Impl::build(std::size_t mulpdu, UlpduOut& out) {
    if (tx.rtr != Rtr::none || tx.ask || tx.nudge) return build_unposted(out);
    if (tx.under_way == Source::response) return build_response(mulpdu, out);
    return build_from_send_queue(mulpdu, out);
}

/// Decides whose message goes on or starts. False: there is nothing to send.
bool Stream::Impl::pick_source() {
    if (tx.under_way != Source::none) return true;
    if (tx.rtr != Rtr::none) return true;
    run_local();
    if (state != State::established) return false;

    const bool entry = tx.next < config.sq->posted() && may_start(config.sq->at(tx.next));
    const bool response = tx.answered < irq.size();
    if (may_ask() && (!entry || tx.next - tx.asked >= kAskEvery)) {
        tx.nudge = false;
        tx.ask = true;
        return true;
    }
    if (!entry && !response) return tx.nudge;
    tx.nudge = false;  // whatever is sent now serves
    tx.under_way = entry && (!response || tx.previous == Source::response) ? Source::send_queue
                                                                           : Source::response;
    tx.previous = tx.under_way;
    return true;
}

/// The RTR message (RFC 6581 §9), a question for what the peer has taken, or a nudge: zero-length,
/// and nobody's work request.
bool Stream::Impl::build_unposted(UlpduOut& out) {
    const Rtr kind = tx.rtr != Rtr::none ? tx.rtr : tx.ask ? Rtr::read : Rtr::write;
    if (tx.rtr != Rtr::none) {
        tx.rtr = Rtr::none;
    } else {
        tx.ask = tx.nudge = false;
    }
    switch (kind) {
        case Rtr::send:
            set_header({.opcode = RDMAP_SEND, .qn = DDP_QN_SEND, .msn = tx.send_msn++}, out);
            break;
        case Rtr::read:
            if (!start_read(kNoEntry, {.source_stag = kAnyStag}, out)) return false;
            break;
        case Rtr::none:
        case Rtr::write:
            set_header({.opcode = RDMAP_WRITE, .tagged = true, .stag = kAnyStag}, out);
            break;
    }
    ++counters.tx_messages[kind == Rtr::send   ? RDMAP_SEND
                           : kind == Rtr::read ? RDMAP_READ_REQUEST
                                               : RDMAP_WRITE];
    tx.log.push(TxLog::Kind::unposted, true);
    return true;
}

bool Stream::Impl::build_from_send_queue(std::size_t mulpdu, UlpduOut& out) {
    const SendWqe& wqe = config.sq->at(tx.next);
    if (is_extension(wqe.opcode) && !negotiated.peer_is_xsock) {
        fail_entry(WcStatus::local_qp_error);  // the peer may not speak RFC 7306
        return false;
    }
    if (awaits_response(wqe.opcode)) return build_request(wqe, out);
    if (wqe.opcode == SendOpcode::immediate || tx.immediate_due) return build_immediate(wqe, out);

    const bool immediate_follows = wqe.opcode == SendOpcode::write_immediate;
    const bool tagged = wqe.opcode == SendOpcode::write || immediate_follows;
    const std::size_t room = mulpdu - (tagged ? kTaggedOctets : kUntaggedOctets);
    const std::uint32_t left = wqe.length - tx.offset;
    const auto octets = static_cast<std::uint32_t>(std::min<std::size_t>(left, room));
    const bool last = octets == left;
    const std::uint8_t opcode = tagged ? RDMAP_WRITE : rdmap_opcode(wqe);
    if (tagged) {
        set_header({.opcode = opcode,
                    .tagged = true,
                    .last = last,
                    .stag = wqe.remote_stag,
                    .to = wqe.remote_to + tx.offset},
                   out);
    } else {
        const bool invalidates = wqe.opcode == SendOpcode::send_invalidate;
        set_header({.opcode = opcode,
                    .last = last,
                    .stag = invalidates ? wqe.invalidate_stag : 0,
                    .qn = DDP_QN_SEND,
                    .msn = tx.send_msn,
                    .mo = tx.offset},
                   out);
    }

    if ((wqe.flags & kSendInline) != 0) {
        if (octets > 0) add_payload(out, wqe.inline_payload() + tx.offset, octets);
    } else {
        for (std::uint32_t n = octets; n > 0;) {
            const Sge piece = tx.cursor.piece(sges_of(wqe), n);
            if (!permits(piece, false)) {
                fail_entry(WcStatus::local_protection_error);
                return false;
            }
            add_payload(out, piece.address, piece.length);
            tx.cursor.offset += piece.length;
            n -= piece.length;
        }
    }
    tx.offset += octets;
    counters.tx_payload_octets += octets;
    tx.log.push(TxLog::Kind::send_queue, last && !immediate_follows);
    if (last) {
        ++counters.tx_messages[opcode];
        if (!tagged) ++tx.send_msn;
        if (immediate_follows) {
            tx.immediate_due = true;
        } else {
            finish_entry();
        }
    }
    return true;
}

bool Stream::Impl::build_immediate(const SendWqe& wqe, UlpduOut& out) {
    const std::uint8_t opcode = rdmap_opcode(wqe);
    set_header({.opcode = opcode, .qn = DDP_QN_SEND, .msn = tx.send_msn++}, out);
    store_be64(out.header.data() + out.header_size, wqe.immediate);
    out.header_size += kImmediateOctets;
    ++counters.tx_messages[opcode];
    tx.log.push(TxLog::Kind::send_queue, true);
    finish_entry();
    return true;
}

/// A Read or Atomic Request.
bool Stream::Impl::build_request(const SendWqe& wqe, UlpduOut& out) {
    if (ord == 0) {
        fail_entry(WcStatus::local_qp_error);
        return false;
    }
    for (const Sge& sge : sges_of(wqe)) {
        if (sge.length > 0 && !permits(sge, true)) {
            fail_entry(WcStatus::local_protection_error);
            return false;
        }
    }
    const ReadRequest request{
        .size = wqe.length, .source_stag = wqe.remote_stag, .source_to = wqe.remote_to};
    const bool started =
        is_atomic(wqe.opcode) ? start_atomic(wqe, out) : start_read(tx.next, request, out);
    if (!started) return false;
    ++counters.tx_messages[rdmap_opcode(wqe)];
    tx.log.push(TxLog::Kind::send_queue, true);
    finish_entry();
    return true;
}

/// Enters a Read into the ORQ and writes its Request. The sink STag is no region of anybody's: it
/// is a fresh random number for each Read that only the head of the ORQ is compared with, so that
/// the sink needs no registration and the peer can reach nothing by it but this one answer.
bool Stream::Impl::start_read(std::uint64_t sequence, const ReadRequest& what, UlpduOut& out) {
    ReadRequest request = what;
    do {
        request.sink_stag = random_u32();
    } while (request.sink_stag == 0);
    const std::uint32_t msn = tx.request_msn;
    const std::uint64_t confirms = sequence == kNoEntry ? tx.next : sequence + 1;
    if (!enter_orq({.sequence = sequence,
                    .confirms = confirms,
                    .sink_stag = request.sink_stag,
                    .length = what.size,
                    .msn = msn})) {
        return false;
    }
    set_header({.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}, out);
    encode(request, out.header.data() + out.header_size);
    out.header_size += kReadRequestOctets;
    return true;
}

/// Enters an atomic operation into the ORQ and writes its Request. Its identifier is its MSN: the
/// head of the ORQ is all that an answer is compared with.
bool Stream::Impl::start_atomic(const SendWqe& wqe, UlpduOut& out) {
    const std::uint32_t msn = tx.request_msn;
    if (!enter_orq({.sequence = tx.next,
                    .confirms = tx.next + 1,
                    .sink_stag = msn,
                    .length = wqe.length,
                    .msn = msn,
                    .atomic = true})) {
        return false;
    }
    const bool add = wqe.opcode == SendOpcode::fetch_add;
    Atomic operands = wqe.atomic();
    if (add) {  // RFC 7306 §5.2: as if all were compared, with zero
        operands.compare = 0;
        operands.compare_mask = ~std::uint64_t{0};
    }
    const AtomicRequest request{.opcode = static_cast<std::uint8_t>(
                                    add ? RDMAP_ATOMIC_FETCH_ADD : RDMAP_ATOMIC_COMPARE_SWAP),
                                .request_id = msn,
                                .remote_stag = wqe.remote_stag,
                                .remote_to = wqe.remote_to,
                                .operands = operands};
    set_header({.opcode = RDMAP_ATOMIC_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}, out);
    encode(request, out.header.data() + out.header_size);
    out.header_size += kAtomicRequestOctets;
    return true;
}

/// False: no memory; the stream has ended over it.
bool Stream::Impl::enter_orq(const OutboundRead& read) {
    if (!orq.push(read)) {
        blame(read.sequence, WcStatus::local_qp_error);
        violate(Violation::local_catastrophic);
        return false;
    }
    ++tx.request_msn;
    tx.asked = read.confirms;
    return true;
}

/// Entry tx.next was given in full.
void Stream::Impl::finish_entry() {
    ++tx.next;
    tx.offset = 0;
    tx.cursor = {};
    tx.immediate_due = false;
    tx.under_way = Source::none;
}

/// Entry tx.next cannot be sent, and with it the stream ends.
void Stream::Impl::fail_entry(WcStatus status) {
    blame(tx.next, status);
    violate(Violation::local_catastrophic);
}

bool Stream::Impl::build_response(std::size_t mulpdu, UlpduOut& out) {
    const InboundRead& read = irq[tx.answered];
    if (read.atomic) {
        build_atomic_response(read.response, out);
        return true;
    }
    const std::uint32_t left = read.request.size - tx.response_offset;
    const auto octets =
        static_cast<std::uint32_t>(std::min<std::size_t>(left, mulpdu - kTaggedOctets));
    const bool last = octets == left;
    set_header({.opcode = RDMAP_READ_RESPONSE,
                .tagged = true,
                .last = last,
                .stag = read.request.sink_stag,
                .to = read.request.sink_to + tx.response_offset},
               out);
    if (octets > 0) {
        // Looked up again for each segment: the region may have been revoked since the last.
        const auto found = remote(read.request.source_stag, Right::remote_read,
                                  read.request.source_to + tx.response_offset, octets);
        if (found.violation != Violation::none) {
            violate_read(read, found.violation);
            return false;
        }
        add_payload(out, found.address, octets);
        // The owner may change what a peer may read, at any time; the CRC must fit all the same.
        out.unstable = true;
    }
    tx.response_offset += octets;
    counters.tx_payload_octets += octets;
    tx.log.push(TxLog::Kind::response, last);
    if (last) {
        ++counters.tx_messages[RDMAP_READ_RESPONSE];
        ++tx.answered;
        tx.response_offset = 0;
        tx.under_way = Source::none;
    }
    return true;
}

/// The operation itself was done when it was asked for.
void Stream::Impl::build_atomic_response(const AtomicResponse& response, UlpduOut& out) {
    set_header({.opcode = RDMAP_ATOMIC_RESPONSE,
                .qn = DDP_QN_ATOMIC_RESPONSE,
                .msn = tx.atomic_response_msn++},
               out);
    encode(response, out.header.data() + out.header_size);
    out.header_size += kAtomicResponseOctets;
    ++counters.tx_messages[RDMAP_ATOMIC_RESPONSE];
    tx.log.push(TxLog::Kind::response, true);
    ++tx.answered;
    tx.under_way = Source::none;
}

/// The Read Request is long gone: its headers are written anew for the Terminate to quote.
void Stream::Impl::violate_read(const InboundRead& read, Violation v) {
    std::array<std::byte, kUntaggedOctets + kReadRequestOctets> ulpdu;
    encode(Segment{.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = read.msn},
           ulpdu.data());
    encode(read.request, ulpdu.data() + kUntaggedOctets);
    violate(v, {.ddp_header = ConstBytes(ulpdu).first(kUntaggedOctets),
                .rdmap_header = ConstBytes(ulpdu).subspan(kUntaggedOctets),
                .segment_octets = ulpdu.size()});
}

/// Is there something to ask for, and room in the ORQ?
bool Stream::Impl::may_ask() const noexcept {
    return acknowledged && tx.asked < tx.next && tx.under_way == Source::none && !reads_dead &&
           orq.size() < ord;
}

bool Stream::Impl::may_start(const SendWqe& wqe) const noexcept {
    if (tx.held || local(wqe)) return false;  // local: sends nothing, run_local()
    if ((wqe.flags & kSendFence) != 0 && !orq.empty()) return false;
    // What can never be asked is let through, to fail.
    return !awaits_response(wqe.opcode) || orq.size() < ord || ord == 0;
}

// -- entries that send nothing --

bool Stream::Impl::local(const SendWqe& wqe) const noexcept {
    return sends_nothing(wqe.opcode) || (awaits_response(wqe.opcode) && reads_dead);
}

/// Not while an earlier entry may still be read by the LLP: it may lie in the region.
bool Stream::Impl::may_run_local(const SendWqe& wqe) const noexcept {
    return tx.sent == tx.next && ((wqe.flags & kSendFence) == 0 || orq.empty());
}

/// Local Invalidate: of a region that this QP could use itself. False: it is none, or not valid.
bool Stream::Impl::revoke(std::uint32_t stag) {
    auto region = config.memory->query(stag);
    return region && region->pd == config.pd &&
           (region->only_qp == 0 || region->only_qp == config.qp_num) &&
           config.memory->invalidate(stag);
}

/// What sends nothing. False: it cannot be done.
bool Stream::Impl::perform(const SendWqe& wqe) {
    MemoryTable& memory = *config.memory;
    if (wqe.opcode == SendOpcode::local_invalidate) return revoke(wqe.invalidate_stag);
    if (wqe.opcode != SendOpcode::bind_window) return true;
    if (wqe.remote_stag != 0) return memory.bind(wqe.remote_stag);
    memory.unbind(wqe.invalidate_stag);
    return true;
}

void Stream::Impl::run_local() {
    if (state != State::established || tx.under_way == Source::send_queue || tx.held) return;
    while (tx.next < config.sq->posted()) {
        const SendWqe& wqe = config.sq->at(tx.next);
        if (!local(wqe) || !may_run_local(wqe)) return;
        if (!perform(wqe)) {
            fail_entry(WcStatus::local_protection_error);
            return;
        }
        if (tx.asked == tx.next) ++tx.asked;  // no peer has it
        tx.sent = ++tx.next;
        complete_sent();
    }
}

// -- after the LLP has them --

void Stream::Impl::tx_done_all(std::uint32_t n) {
    while (n != 0) {
        if (state == State::ended) return;  // the LLP clears its books
        const TxLog::Run done = tx.log.pop(n);
        n -= done.ulpdus;
        switch (done.kind) {
            case TxLog::Kind::send_queue:
                if (!done.last) break;
                tx.sent += done.ulpdus;
                complete_sent();
                run_local();
                break;
            case TxLog::Kind::response:
                if (!done.last) break;
                for (std::uint32_t i = 0; i < done.ulpdus; ++i) irq.pop();
                tx.answered -= done.ulpdus;
                break;
            case TxLog::Kind::unposted:
                break;
            case TxLog::Kind::terminate:
                end();
                break;
        }
    }
}

bool Stream::Impl::tx_intact() {
    if (tx.log.empty() || state == State::ended) return true;
    const bool started = tx.under_way == Source::send_queue;
    for (std::uint64_t sequence = tx.sent; sequence < tx.next + (started ? 1 : 0); ++sequence) {
        const SendWqe& wqe = config.sq->at(sequence);
        if (awaits_response(wqe.opcode) || (wqe.flags & kSendInline) != 0) continue;
        std::uint32_t given = sequence == tx.next ? tx.offset : wqe.length;
        for (Cursor at; given > 0;) {
            const Sge piece = at.piece(sges_of(wqe), given);
            if (!permits(piece, false)) {
                blame(sequence, WcStatus::local_protection_error);
                violation = receiving() ? Violation::local_catastrophic : violation;
                end();
                return false;
            }
            at.offset += piece.length;
            given -= piece.length;
        }
    }
    for (std::uint32_t i = 0; i < irq.size() && i <= tx.answered; ++i) {
        const ReadRequest& request = irq[i].request;
        const std::uint32_t given = i < tx.answered ? request.size : tx.response_offset;
        if (given == 0) continue;
        const auto found =
            config.memory->check_remote(request.source_stag, config.pd, config.qp_num,
                                        Right::remote_read, request.source_to, given);
        if (found.violation != Violation::none) {
            violation = receiving() ? found.violation : violation;
            end();
            return false;
        }
    }
    return true;
}

ConstBytes Stream::Impl::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to) {
    SendQueue& sq = *config.sq;
    for (std::uint64_t sequence = sq.retired(); sequence < sq.posted(); ++sequence) {
        SendWqe& wqe = sq.at(sequence);
        if (wqe.wr_id != wr_id || (wqe.flags & kSendInternal) == 0) continue;
        XSOCK_ASSERT((wqe.flags & kSendInline) == 0 && wqe.sge_count == 1);
        const ConstBytes from(wqe.sge[0].address, wqe.sge[0].length);
        {
            const fault::Touch reading(0, from.data(), from.size());
            std::copy(from.begin(), from.end(), to);
        }
        wqe.wr_id = new_id;
        wqe.sge[0].address = to;
        return from;
    }
    return {};
}

bool Stream::Impl::tx_wanted() const noexcept {
    if (tx.log.full()) return false;
    if (state == State::terminating) return !terminate_given;
    if (state != State::established) return false;
    if (tx.under_way != Source::none || tx.rtr != Rtr::none || tx.nudge) return true;
    if (tx.answered < irq.size() || may_ask()) return true;
    if (tx.next == config.sq->posted() || tx.held) return false;
    const SendWqe& wqe = config.sq->at(tx.next);
    return local(wqe) ? may_run_local(wqe) : may_start(wqe);
}

}  // namespace xsock::ddp
