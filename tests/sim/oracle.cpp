// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the programs check: docs/architecture.md, invariants 1 to 4 and 8.
#include <algorithm>
#include <utility>

#include "ddp_user/opcode.hpp"
#include "tests/sim/program.hpp"

namespace xsock::sim {
namespace {

unsigned long long number(std::uint64_t n) { return n; }

std::vector<std::byte> gather(const std::vector<Buffer>& pieces) {
    std::vector<std::byte> bytes;
    for (const Buffer& piece : pieces) bytes.insert(bytes.end(), piece.at, piece.at + piece.bytes);
    return bytes;
}

WcOpcode completion_opcode(SendOpcode opcode) {
    switch (opcode) {
        case SendOpcode::send:
        case SendOpcode::send_invalidate:
            return WcOpcode::send;
        case SendOpcode::write:
            return WcOpcode::write;
        case SendOpcode::read:
            return WcOpcode::read;
        case SendOpcode::local_invalidate:
            return WcOpcode::local_invalidate;
        case SendOpcode::bind_window:
            return WcOpcode::bind_window;
        case SendOpcode::fetch_add:
            return WcOpcode::fetch_add;
        case SendOpcode::compare_swap:
            return WcOpcode::compare_swap;
        case SendOpcode::write_immediate:
            return WcOpcode::write_immediate;
        case SendOpcode::immediate:
            return WcOpcode::immediate;
        case SendOpcode::send_immediate:
            return WcOpcode::send_immediate;
        case SendOpcode::kCount:
            break;
    }
    return WcOpcode::closed;
}

/// Says that the connection ended, rather than why.
bool only_flushed(WcStatus status) {
    return status == WcStatus::flushed || status == WcStatus::connection_lost;
}

}  // namespace

bool Program::trusted() const noexcept {
    const bool covered = pair_.crc && !world_.flips_in_startup;
    return covered ||
           (!end_.parts().link.in->damage_taken() && !end_.parts().link.out->damage_taken());
}

bool Program::damaged_by_peer() const noexcept { return end_.parts().link.in->damage_taken(); }

bool Program::may_lack_atomics(const Region& region) const noexcept {
    return region.atomics > 0 && world_.aborts && peer_->end_.peer_finished();
}

/// Must the peer have refused this request, or one before it?
bool Program::poisoned_before(std::uint64_t sequence) const {
    for (std::uint64_t i = first_poison_; i <= sequence; ++i) {
        // A Read is not even sent once the peer has finished.
        const bool silent = awaits_response(operations_[i].opcode) && end_.peer_finished();
        if (operations_[i].poison && !silent) return true;
    }
    return false;
}

bool Program::confirmed(const Operation& operation) const noexcept {
    const bool told = (end_.ddp.negotiated().features & MPA_FEATURE_ACKNOWLEDGE) != 0;
    return end_.options().acknowledged && (told || end_.ddp.ord() != 0) &&
           operation.opcode != SendOpcode::local_invalidate &&
           operation.opcode != SendOpcode::bind_window && !awaits_response(operation.opcode);
}

// -- completions --

void Program::poll() {
    for (CompletionQueue* cq : {end_.parts().send_cq, end_.parts().recv_cq}) {
        if (!rng_.chance(end_.options().poll_percent) && !end_.ended()) continue;
        std::vector<Wc> completions(cq->size());
        completions.resize(cq->take(completions));
        if (!mutated_ && completions.size() > 1 && mutant_ == Mutant::swap_completions) {
            mutated_ = true;
            std::swap(completions[0], completions[1]);
        }
        for (Wc& wc : completions) {
            if (!mutated_ && mutant_ == Mutant::drop_completion && rng_.chance(10)) {
                mutated_ = true;
                continue;
            }
            if (mutant_ == Mutant::wrong_status && wc.status == WcStatus::flushed) {
                wc.status = WcStatus::success;
            }
            if (wc.qp_num == 0 || wc.qp_num > host_.programs.size())
                fail("a completion of QP %u", wc.qp_num);
            host_.programs[wc.qp_num - 1]->on_completion(wc);
            if (!mutated_ && mutant_ == Mutant::duplicate_completion && rng_.chance(10)) {
                mutated_ = true;
                host_.programs[wc.qp_num - 1]->on_completion(wc);
            }
        }
    }
}

void Program::on_completion(const Wc& wc) {
    SIM_TRACE("    %s completes %llu: opcode %u, status %u, %u bytes", name(), number(wc.wr_id),
              static_cast<unsigned>(wc.opcode), static_cast<unsigned>(wc.status), wc.byte_len);
    if (wc.qp_context != end_.parts().context)
        fail("%s: a completion with another's context", name());
    if (wc.opcode == WcOpcode::recv) {
        on_received(wc);
    } else {
        on_sent(wc);
    }
}

/// Exactly once, in the order of posting; the first failure ends all success.
void Program::on_sent(const Wc& wc) {
    if (wc.wr_id >= operations_.size()) fail("%s: completes what was never posted", name());
    if (wc.wr_id < next_completion_) {
        fail("%s: request %llu completes twice, or late", name(), number(wc.wr_id));
    }
    while (next_completion_ < wc.wr_id) {
        // An unsignaled one is completed by its successor.
        if ((operations_[next_completion_].flags & kSendSignaled) != 0 || failed_) {
            fail("%s: request %llu completes before %llu", name(), number(wc.wr_id),
                 number(next_completion_));
        }
        // Behind the peer's end what needs no peer still succeeds, and tells nothing of it.
        const bool local =
            wc.opcode == WcOpcode::local_invalidate || wc.opcode == WcOpcode::bind_window;
        on_succeeded(next_completion_++,
                     wc.status == WcStatus::success && !(local && end_.peer_finished()));
    }
    ++next_completion_;
    Operation& operation = operations_[wc.wr_id];
    if (wc.opcode != completion_opcode(operation.opcode)) {
        fail("%s: request %llu completes as another opcode", name(), number(wc.wr_id));
    }
    if (wc.status == WcStatus::success) {
        if (failed_) fail("%s: request %llu succeeds after one failed", name(), number(wc.wr_id));
        if ((operation.flags & kSendSignaled) == 0) {
            fail("%s: request %llu was to be silent", name(), number(wc.wr_id));
        }
        if (awaits_response(operation.opcode) && wc.byte_len != operation.length) {
            fail("%s: Read %llu of %u bytes, asked for were %zu", name(), number(wc.wr_id),
                 wc.byte_len, operation.length);
        }
        on_succeeded(wc.wr_id);
        return;
    }
    if (awaits_response(operation.opcode) && wc.status == WcStatus::flushed &&
        end_.peer_finished()) {
        // The peer does not answer it any more; what needs no answer may still succeed.
        if (world_.clean)
            fail("%s: Read %llu, though the peer was to wait", name(), number(wc.wr_id));
        on_failed(operation);
        return;
    }
    if (confirmed(operation) && wc.status == WcStatus::connection_lost && end_.peer_finished() &&
        !world_.clean) {
        // The same: the peer does not say any more that it was taken.
        on_failed(operation);
        return;
    }
    if (world_.clean) {
        fail(
            "%s: request %llu fails with status %u in a world where nothing goes wrong (%s; peer: "
            "%s)",
            name(), number(wc.wr_id), static_cast<unsigned>(wc.status),
            stream_error_info(end_.stream_error()).name,
            stream_error_info(peer_->end_.stream_error()).name);
    }
    if (wc.status == WcStatus::rnr_retries_exceeded &&
        (end_.options().rnr.retries == kRnrForever || !ddp::takes_receive(operation.opcode))) {
        fail("%s: request %llu fails for want of a receive", name(), number(wc.wr_id));
    }
    if (!only_flushed(wc.status)) {
        if (told_why_) fail("%s: two requests failed for one end", name());
        told_why_ = true;
    }
    failed_ = true;
    on_failed(operation);
}

/// `told`: by its completion, or that of a later one.
void Program::on_succeeded(std::uint64_t sequence, bool told) {
    Operation& operation = operations_[sequence];
    if (std::exchange(operation.done, true))
        fail("%s: request %llu twice", name(), number(sequence));
    if (operation.must_fail) {
        fail("%s: request %llu succeeds without the right to its memory", name(), number(sequence));
    }
    if (awaits_response(operation.opcode)) {
        if (poisoned_before(sequence) && trusted()) {
            fail("%s: Read %llu succeeds behind what the peer must refuse", name(),
                 number(sequence));
        }
        Region* const region = operation.region;
        if (region == nullptr && trusted()) {
            fail("%s: Read %llu succeeds from nowhere", name(), number(sequence));
        }
        const std::vector<std::byte> found = gather(operation.pieces);
        const bool certain = trusted() && !peer_->damaged_by_peer();
        if (certain && is_atomic(operation.opcode)) {
            if (found != operation.data) {
                fail("%s: atomic %llu brings what was not there", name(), number(sequence));
            }
        } else if (certain && !peer_->may_lack_atomics(*region) &&
                   !region->explains(found, operation.data, operation.offset, sequence)) {
            fail("%s: Read %llu brings bytes that were never there", name(), number(sequence));
        }
        for (const Buffer& piece : operation.pieces) {
            if (piece.bytes > 0) host_.arena_of(piece.at).close(piece.at);
        }
        if (region != nullptr) --region->reads;
        // An atomic has changed its region by now.
        if (certain) on_placed(is_atomic(operation.opcode) ? sequence + 1 : sequence);
    }
    if (told && confirmed(operation) && trusted()) {
        if (poisoned_before(sequence)) {
            fail("%s: request %llu succeeds, though the peer must refuse it or one before it",
                 name(), number(sequence));
        }
        const Counters& there = peer_->end_.ddp.counters();
        std::uint64_t taken = 0, sent = 0;
        for (const unsigned opcode :
             {RDMAP_SEND, RDMAP_SEND_INVALIDATE, RDMAP_SEND_SE, RDMAP_SEND_SE_INVALIDATE,
              RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_SE, RDMAP_SEND_IMMEDIATE, RDMAP_SEND_SE_IMMEDIATE}) {
            taken += there.rx_messages[opcode];
        }
        sent = static_cast<std::uint64_t>(std::upper_bound(sends_.begin(), sends_.end(), sequence) -
                                          sends_.begin());
        if (taken < sent) {
            fail("%s: request %llu completes before the peer has taken %llu messages", name(),
                 number(sequence), number(sent));
        }
        if (!peer_->damaged_by_peer()) on_placed(sequence + 1);
    }
    if (operation.opcode == SendOpcode::bind_window) on_bound(operation);
    if (operation.opcode == SendOpcode::local_invalidate) on_invalidated(*operation.region);
    give_pieces(operation.pieces);
}

void Program::on_placed(std::uint64_t sequence) {
    for (const auto& region : peer_->regions_) region->apply_before(sequence);
    peer_->check_regions();
}

void Program::on_bound(Operation& operation) {
    if (operation.replaces != nullptr) {
        if (!host_.table.revoked(operation.replaces->stag)) {
            fail("%s: %08x is bound still", name(), operation.replaces->stag);
        }
        on_invalidated(*operation.replaces);
    }
    Region* const window = operation.region;
    if (window == nullptr) return;
    window->begin();
    window->usable = true;
    if ((window->access & kRemoteWrite) != 0) {
        host_.arena_of(window->address).open(window->address, window->length);
        window->window_open = true;
    }
    if (host_.table.invalidate(below_.stag) || host_.table.remove(below_.stag)) {
        fail("%s: the region of %08x ends before it", name(), window->stag);
    }
}

void Program::on_failed(Operation& operation) {
    if (std::exchange(operation.done, true)) fail("%s: a request completes twice", name());
    if (awaits_response(operation.opcode)) {
        for (const Buffer& piece : operation.pieces) {
            if (piece.bytes > 0) host_.arena_of(piece.at).close(piece.at);
        }
        if (operation.region != nullptr) --operation.region->reads;
    }
    if (operation.opcode == SendOpcode::bind_window && operation.region != nullptr &&
        !host_.table.revoked(operation.region->stag)) {
        fail("%s: the binding of %08x failed, and is in force or waits still", name(),
             operation.region->stag);
    }
    give_pieces(operation.pieces);
}

void Program::on_received(const Wc& wc) {
    const auto found = host_.receives.find(wc.wr_id);
    if (found == host_.receives.end()) {
        fail("%s: receive %llu completes twice, or was never posted", name(), number(wc.wr_id));
    }
    const PostedRecv receive = std::move(found->second);
    host_.receives.erase(found);
    if (!end_.parts().rq_shared) {
        if (receive_order_.empty() || receive_order_.front() != wc.wr_id) {
            fail("%s: receive %llu completes out of turn", name(), number(wc.wr_id));
        }
        receive_order_.pop_front();
    }
    if (wc.status == WcStatus::success) {
        on_message(wc, receive);
    } else if (world_.clean && !(wc.status == WcStatus::flushed && end_.peer_finished())) {
        fail(
            "%s: receive %llu fails with status %u in a world where nothing goes wrong (%s; peer: "
            "%s)",
            name(), number(wc.wr_id), static_cast<unsigned>(wc.status),
            stream_error_info(end_.stream_error()).name,
            stream_error_info(peer_->end_.stream_error()).name);
    } else if (wc.status == WcStatus::local_length_error && trusted()) {
        const auto& sends = peer_->sends_;
        if (delivered_ >= sends.size() ||
            peer_->operations_[sends[delivered_]].receive_bytes() <= receive.length) {
            fail("%s: receive %llu was long enough", name(), number(wc.wr_id));
        }
    }
    for (const Buffer& piece : receive.pieces) {
        if (piece.bytes > 0) host_.arena_of(piece.at).close(piece.at);
    }
    if (mutant_ == Mutant::late_touch && receive.length > 0) late_touch_ = receive.pieces[0].at;
    give_pieces(receive.pieces);
}

/// A message was delivered: it must be the next Send that the peer posted.
void Program::on_message(const Wc& wc, const PostedRecv& receive) {
    const bool immediate = (wc.flags & kWcImmediate) != 0;
    if (receive.faulty && wc.byte_len > 0 && !immediate)
        fail("%s: a receive without the right to its memory", name());
    const std::size_t index = delivered_++;
    if (!trusted()) return;
    if (index >= peer_->sends_.size()) fail("%s: a message that was never sent", name());
    const std::uint64_t sequence = peer_->sends_[index];
    const Operation& sent = peer_->operations_[sequence];
    if (peer_->poisoned_before(sequence)) {
        fail("%s: Send %llu is delivered behind what must be refused", name(), number(sequence));
    }
    if (sent.must_fail) fail("%s: Send %llu is delivered that must fail", name(), number(sequence));
    if (sent.is_immediate() != immediate) fail("%s: Immediate Data, or not", name());
    if (immediate) on_immediate(wc, sequence);
    if (sent.receive_bytes() > receive.length)
        fail("%s: a message longer than its receive", name());
    if (!immediate && wc.byte_len != sent.length) {
        fail("%s: Send %llu of %zu bytes arrives as %u", name(), number(sequence), sent.length,
             wc.byte_len);
    }
    std::size_t at = 0;
    for (const Buffer& piece : receive.pieces) {
        const std::size_t n = std::min(piece.bytes, sent.receive_bytes() - at);
        if (!std::equal(piece.at, piece.at + n,
                        sent.data.begin() + static_cast<std::ptrdiff_t>(at))) {
            fail("%s: Send %llu arrives corrupted", name(), number(sequence));
        }
        const ConstBytes rest = host_.arena_of(piece.at).before(piece.at + n, piece.bytes - n);
        if (!std::equal(rest.begin(), rest.end(), piece.at + n)) {
            fail("%s: bytes behind Send %llu changed", name(), number(sequence));
        }
        at += n;
    }
    const bool solicited = (sent.flags & kSendSolicited) != 0;
    if (((wc.flags & kWcSolicited) != 0) != solicited) fail("%s: solicited, or not", name());
    const bool beside = sent.opcode == SendOpcode::send_immediate;
    if (((wc.flags & kWcSendImmediate) != 0) != beside ||
        (beside && wc.immediate != sent.immediate)) {
        fail("%s: Send %llu, and the immediate beside it", name(), number(sequence));
    }
    const bool invalidates = sent.opcode == SendOpcode::send_invalidate;
    if (((wc.flags & kWcInvalidated) != 0) != invalidates ||
        wc.invalidated_stag != (invalidates ? sent.stag : 0)) {
        fail("%s: Send %llu, and what it invalidates", name(), number(sequence));
    }
    if ((sent.flags & kSendFence) != 0) {
        for (std::uint64_t i = sequence; i-- > 0;) {
            if (!awaits_response(peer_->operations_[i].opcode)) continue;
            if (peer_->end_.sq.retired() <= i)
                fail("%s: Send %llu passed its fence", name(), number(sequence));
            break;
        }
    }
    // Invariant 4: the data of all Writes before it is visible.
    if (!damaged_by_peer()) {
        // Also that of a Write with Immediate Data itself.
        const std::uint64_t applied_to = immediate ? sequence + 1 : sequence;
        for (const auto& region : regions_) region->apply_before(applied_to);
        check_regions();
    }
    if (invalidates && sent.region != nullptr) on_invalidated(*sent.region);
}

/// What the Immediate Data were, and the length of the Write directly before them.
void Program::on_immediate(const Wc& wc, std::uint64_t sequence) {
    const Operation& sent = peer_->operations_[sequence];
    if (wc.immediate != sent.immediate) {
        fail("%s: Immediate Data %llu arrive corrupted", name(), number(sequence));
    }
    std::size_t written = sent.length;
    bool certain = sent.opcode == SendOpcode::write_immediate;
    for (std::uint64_t i = sequence; !certain && i-- > 0;) {
        const Operation& before = peer_->operations_[i];
        if (before.opcode == SendOpcode::write) written = before.length;
        if (before.opcode == SendOpcode::write || before.takes_receive()) break;
    }
    // A probe or an RTR message is a Write too, of no bytes.
    if (wc.byte_len != written && (certain || wc.byte_len != 0)) {
        fail("%s: Immediate Data %llu tell of %u bytes, written were %zu", name(), number(sequence),
             wc.byte_len, written);
    }
}

/// The peer can reach it no more.
void Program::on_invalidated(Region& region) {
    region.invalidated = true;
    for (const auto& own : regions_) {
        if (own.get() != &region || !region.window_open) continue;
        if (trusted() && !damaged_by_peer() && !may_lack_atomics(region)) region.check(name());
        region.window_open = false;
        host_.arena_of(region.address).close(region.address);
    }
}

void Program::check_regions() const {
    if (!trusted() || damaged_by_peer()) return;
    for (const auto& region : regions_) {
        if (region->window_open && !may_lack_atomics(*region)) region->check(name());
    }
}

// -- the end --

void Program::check_end(const Pipe& in) {
    for (std::size_t i = 0; i < host_.programs.size() + 1; ++i) poll();
    if (!end_.ended() || !end_.descriptor_closed()) fail("%s: has not ended", name());
    if (end_.sq.retired() != end_.sq.posted() || end_.sq.posted() != operations_.size()) {
        fail("%s: %llu requests posted, %llu retired", name(), number(end_.sq.posted()),
             number(end_.sq.retired()));
    }
    for (; next_completion_ < operations_.size(); ++next_completion_) {
        if ((operations_[next_completion_].flags & kSendSignaled) != 0 || failed_) {
            fail("%s: request %llu never completes", name(), number(next_completion_));
        }
        on_succeeded(next_completion_, /*told=*/false);
    }
    if (!receive_order_.empty())
        fail("%s: %zu receives never complete", name(), receive_order_.size());

    const bool covered = pair_.crc && !world_.flips_in_startup;
    if (covered && in.damage_taken() && end_.peer_finished() && end_.established() &&
        end_.stream_error() == StreamError::none && end_.ddp.terminate_received() == nullptr) {
        fail("%s: takes a damaged stream for sound", name());
    }
    if (!world_.clean) return;
    if (failed_ || end_.stream_error() != StreamError::none ||
        end_.ddp.terminate_received() != nullptr) {
        fail("%s: ends badly (%s) in a world where nothing goes wrong", name(),
             stream_error_info(end_.stream_error()).name);
    }
    if (peer_->delivered_ != sends_.size()) fail("%s: a Send was never delivered", name());
    const auto& said = peer_->end_.options().mpa.startup.private_data;
    const ConstBytes heard = end_.mpa->private_data();
    if (!std::equal(said.begin(), said.end(), heard.begin(), heard.end())) {
        fail("%s: private data differ", name());
    }
    check_peer();
    if (!in.at_end(kNever - 1) || in.next_arrival() == kNever)
        fail("%s: bytes were left unread", name());
}

/// In a world where nothing goes wrong each end knows of the other what its extension frame said.
void Program::check_peer() const {
    const bool exchanged =
        std::all_of(pair_.end.begin(), pair_.end.end(), [](const EndOptions& end) {
            return end.mpa.startup.xsock_mark && end.mpa.startup.extensions;
        });
    if (end_.mpa->negotiated().extensions != exchanged) {
        fail("%s: extension frames were %sexchanged", name(), exchanged ? "not " : "");
    }
    const std::optional<Implementation> heard = end_.mpa->peer();
    const Implementation said = exchanged ? peer_->end_.options().implementation : Implementation{};
    if (heard.value_or(Implementation{}) != said) {
        fail("%s: the peer's implementation differs", name());
    }
}

void Program::tidy_up() {
    for (const auto& region : regions_) {
        if (region->registered) {
            if (mutant_ == Mutant::leak_region && !std::exchange(mutated_, true)) continue;
            revoke(*region);
        }
        if (!region->window) host_.arena_of(region->address).give(region->address);
    }
    regions_.clear();
    window_ = nullptr;
    if (below_.stag == 0) return;
    revoke(below_);
    host_.arena_of(below_.address).give(below_.address);
    host_.table.release_window(window_key_);
}

}  // namespace xsock::sim
