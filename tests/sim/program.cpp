// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the programs do. What they check is in oracle.cpp.
#include "tests/sim/program.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace xsock::sim {
namespace {

constexpr Time kLongestPause = 50 * kMillisecond;
// Less than kMaxInline: what the seeds stand for depends on it. Longer inline data:
// send_queue_test.
constexpr std::size_t kInlineMost = 96;
static_assert(kInlineMost <= kMaxInline);

std::vector<std::byte> noise(Rng& rng, std::size_t n) {
    std::vector<std::byte> bytes(n);
    rng.fill(bytes);
    return bytes;
}

}  // namespace

Host::Host(const char* called, Bytes memory, Bytes memory_that_goes, const Options& options,
           Rng& rng)
    : name(called), arena(memory, rng) {
    if (!memory_that_goes.empty()) {
        doubtful = std::make_unique<Arena>(memory_that_goes, rng);
        doubtful_key = table
                           .add({.address = memory_that_goes.data(),
                                 .length = memory_that_goes.size(),
                                 .pd = Program::kPd})
                           .value();
    }
    arena_key =
        table.add({.address = memory.data(), .length = memory.size(), .pd = Program::kPd}).value();
    if (options.share_queues) cq = std::make_shared<CompletionQueue>(16);
    if (options.shared_receives) srq = std::make_shared<RecvQueue>(64);
}

void Host::take_memory_away() const {
    if (!unmapped) return;
    const Bytes memory = doubtful->memory();
    if (mprotect(memory.data(), memory.size(), PROT_NONE) != 0) fail("sim: mprotect");
}

void Host::give_memory_back() const {
    if (!unmapped) return;
    const Bytes memory = doubtful->memory();
    if (mprotect(memory.data(), memory.size(), PROT_READ | PROT_WRITE) != 0) fail("sim: mprotect");
}

Program::Program(Host& host, Endpoint& end, const Options& world, const Options::Pair& pair,
                 Mutant mutant, std::uint64_t seed)
    : host_(host),
      end_(end),
      world_(world),
      pair_(pair),
      mutant_(mutant),
      rng_(seed),
      immediates_(seed ^ 0x1333ed1a),
      left_(end.options().operations),
      pause_(end.options().pause) {}

// -- regions --

void Program::register_region(std::uint32_t access, bool only_qp) {
    auto region = std::make_unique<Region>();
    region->length = 1 + rng_.magnitude(world_.region_max - 1);
    if (rng_.chance(50)) region->length = world_.region_max;
    region->address = take_memory(region->length);
    if (region->address == nullptr) return;
    if (rng_.chance(60)) access |= kZeroBased;
    region->access = access;
    region->only_qp = only_qp;
    region->first_to =
        (access & kZeroBased) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(region->address);
    const std::size_t slack = mutant_ == Mutant::skip_bounds ? 8 : 0;
    region->stag = host_.table
                       .add({.address = region->address,
                             .length = region->length + slack,
                             .access = access,
                             .pd = kPd,
                             .only_qp = only_qp ? end_.parts().qp_num : 0})
                       .value();
    region->begin();
    if ((access & (kRemoteWrite | kRemoteAtomic)) != 0) {
        host_.arena_of(region->address).open(region->address, region->length);
        region->window_open = true;
    }
    SIM_TRACE("    %s registers %08x: %zu bytes, access %x%s", name(), region->stag, region->length,
              access, only_qp ? ", this QP only" : "");
    regions_.push_back(std::move(region));
}

void Program::register_regions() {
    for (const std::uint32_t access :
         {kRemoteWrite | kLocalWrite, 0u + kRemoteRead, kRemoteRead | kRemoteWrite | kLocalWrite}) {
        if (rng_.chance(80)) register_region(access, rng_.chance(60));
    }
    if (world_.errors) register_region(kLocalWrite, false);
    if (world_.extensions) {
        register_region(kRemoteAtomic | kLocalWrite, rng_.chance(60));
        register_region(kRemoteAtomic | kRemoteRead | kRemoteWrite | kLocalWrite, rng_.chance(60));
    }
    if (world_.foreign) register_foreign_regions();
    if (!world_.windows) return;
    below_.length = world_.region_max;
    below_.address = take_memory(below_.length);
    if (below_.address == nullptr) return;
    below_.stag = host_.table
                      .add({.address = below_.address,
                            .length = below_.length,
                            .access = kLocalWrite | kWindows,
                            .pd = kPd})
                      .value();
    window_key_ = host_.table.reserve_window().value() & ~std::uint32_t{0xff};
}

/// A window that waits for its binding; null: all keys have been used.
Region* Program::make_window(std::size_t offset, std::size_t length) {
    if (window_key_ == 0 || (window_key_ & 0xff) == 0xff) return nullptr;
    auto window = std::make_unique<Region>();
    window->stag = ++window_key_;
    window->window = true;
    window->usable = false;
    window->address = below_.address + offset;
    window->length = length;
    window->only_qp = rng_.chance(60);
    window->access = rng_.pick({kRemoteWrite | 0u, kRemoteRead | 0u, kRemoteWrite | kRemoteRead});
    if (rng_.chance(50)) window->access |= kZeroBased;
    window->first_to =
        (window->access & kZeroBased) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(window->address);
    const bool wide = mutant_ == Mutant::wide_window && offset + length + 8 <= below_.length;
    const auto prepared =
        host_.table.prepare_window(window->stag,
                                   {.address = window->address,
                                    .length = length + (wide ? 8 : 0),
                                    .access = window->access,
                                    .pd = kPd,
                                    .only_qp = window->only_qp ? end_.parts().qp_num : 0},
                                   below_.stag);
    if (!prepared) fail("%s: a window cannot be prepared: %s", name(), prepared.error().what);
    regions_.push_back(std::move(window));
    return regions_.back().get();
}

/// What this connection's peer must not reach, though it has every right of its own: regions of
/// another domain, and of another connection.
void Program::register_foreign_regions() {
    for (const bool domain : {true, false}) {
        auto region = std::make_unique<Region>();
        region->length = std::max<std::size_t>(64, world_.message_max);
        region->address = host_.arena.take(region->length, rng_);
        if (region->address == nullptr) return;
        region->access = kRemoteRead | kRemoteWrite | kRemoteAtomic | kLocalWrite | kZeroBased;
        region->foreign = true;
        region->usable = false;
        const bool stray = domain && mutant_ == Mutant::foreign_domain;
        region->stag = host_.table
                           .add({.address = region->address,
                                 .length = region->length,
                                 .access = region->access,
                                 .pd = domain && !stray ? kOtherPd : kPd,
                                 .only_qp = domain ? 0 : end_.parts().qp_num + 1000})
                           .value();
        region->begin();
        SIM_TRACE("    %s registers %08x for others: %zu bytes", name(), region->stag,
                  region->length);
        regions_.push_back(std::move(region));
    }
}

/// Ends a region for good. From here on its memory must not change.
void Program::revoke(Region& region) {
    SIM_TRACE("    %s deregisters %08x", name(), region.stag);
    if (!host_.table.remove(region.stag)) fail("%s: %08x was not registered", name(), region.stag);
    region.usable = region.registered = false;
    on_invalidated(region);
}

void Program::tend_regions() {
    if (world_.faults) host_.unmapped = rng_.chance(host_.unmapped ? 70 : 3);
    if (!rng_.chance(10) || regions_.empty()) return;
    Region& region = *regions_[rng_.below(regions_.size())];
    if (!region.registered || region.foreign) return;
    const bool idle = region.quiet() && !region.closing_op;
    if (!region.usable) {
        // Invalidated; the slot is still there.
        if (region.invalidated && rng_.chance(30)) revoke(region);
        if (regions_.size() < 12 && rng_.chance(50))
            register_region(region.access & ~std::uint32_t{kZeroBased}, region.only_qp);
        return;
    }
    if (idle && rng_.chance(60)) {
        // No request uses it: the program may.
        const auto bytes = noise(rng_, region.length);
        if (region.window_open) {
            std::copy(bytes.begin(), bytes.end(), region.address);
        } else {
            host_.arena_of(region.address).store(region.address, bytes);
        }
        region.begin();
    } else if ((idle && rng_.chance(30)) ||
               (world_.removals && !region.closing_op && rng_.chance(20))) {
        revoke(region);
        if (regions_.size() < 12) register_region(region.access, region.only_qp);
    }
}

Region* Program::usable_region(Program& owner, std::uint32_t right) {
    if ((owner.end_.options().rights & right) != right) return nullptr;
    std::vector<Region*> fit;
    for (const auto& region : owner.regions_) {
        if (region->usable && (region->access & right) == right) fit.push_back(region.get());
    }
    return fit.empty() ? nullptr : fit[rng_.below(fit.size())];
}

// -- sizes, flags, memory --

std::size_t Program::draw_length(std::size_t most) {
    std::size_t n = 0;
    switch (rng_.below(6)) {
        case 0:
            n = rng_.below(2);
            break;
        case 1: {
            const std::size_t payload = end_.mpa->mulpdu() - (rng_.chance(50) ? 14 : 18);
            n = payload * rng_.between(1, 3) + rng_.below(3) - 1;
            break;
        }
        case 2:
            n = rng_.pick<std::size_t>({96, 512, 1428, 4096}) + rng_.below(3) - 1;
            break;
        case 3:
            n = most;
            break;
        default:
            n = rng_.magnitude(most);
            break;
    }
    return std::min(n, most);
}

std::uint8_t Program::draw_flags(std::size_t length, bool read) {
    const EndOptions& options = end_.options();
    unsigned flags = rng_.chance(options.unsignaled_percent) && left_ > 1 ? 0 : kSendSignaled;
    if (rng_.chance(options.solicited_percent)) flags |= kSendSolicited;
    if (rng_.chance(options.fence_percent)) flags |= kSendFence;
    if (!read && length <= kInlineMost && rng_.chance(options.inline_percent)) flags |= kSendInline;
    return static_cast<std::uint8_t>(flags);
}

std::optional<std::vector<Buffer>> Program::take_pieces(std::size_t bytes) {
    std::vector<Buffer> pieces;
    const std::size_t count =
        bytes == 0 ? rng_.below(2) : rng_.between(1, rng_.chance(70) ? 1 : kMaxSge);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t size = i + 1 == count ? bytes : rng_.below(bytes + 1);
        std::byte* const at = take_memory(size);
        if (at == nullptr) {
            give_pieces(pieces);
            return std::nullopt;
        }
        pieces.push_back({at, size});
        bytes -= size;
    }
    return pieces;
}

void Program::give_pieces(const std::vector<Buffer>& pieces) {
    for (const Buffer& piece : pieces) host_.arena_of(piece.at).give(piece.at);
}

/// For the answer to an atomic operation, which has no room for as many pieces.
bool Program::take_atomic_pieces(Operation& operation) {
    auto pieces = take_pieces(kAtomicBytes);
    if (!pieces) return false;
    if (pieces->size() > kMaxAtomicSge) {
        give_pieces(*pieces);
        return false;
    }
    operation.pieces = std::move(*pieces);
    return true;
}

std::uint32_t Program::draw_lkey(const std::byte* at) {
    return rng_.chance(end_.options().lkey_percent) ? host_.key_of(at) : kLkeyNone;
}

std::byte* Program::take_memory(std::size_t bytes) {
    const bool there = host_.doubtful == nullptr || !rng_.chance(25);
    return (there ? host_.arena : *host_.doubtful).take(bytes, rng_);
}

// -- receives --

bool Program::post_receive() {
    RecvQueue& queue = *end_.parts().rq;
    if (end_.ended() || end_.peer_finished()) return false;
    const bool shared = end_.parts().rq_shared;
    const std::size_t waiting = shared ? host_.receives.size() : receive_order_.size();
    if (waiting >= end_.options().receives_wanted) return false;

    PostedRecv receive;
    receive.length = world_.message_max;
    // The n-th receive takes the n-th Send: where that is known already, make it fit exactly.
    if (!shared && receives_posted_ < peer_->sends_.size() && rng_.chance(50)) {
        receive.length = peer_->operations_[peer_->sends_[receives_posted_]].receive_bytes();
    }
    if (rng_.chance(end_.options().error_percent)) receive.length = rng_.below(receive.length + 1);
    auto pieces = take_pieces(receive.length);
    if (!pieces) return false;
    receive.pieces = std::move(*pieces);

    std::vector<Sge> sges;
    receive.faulty = rng_.chance(end_.options().error_percent) && rng_.chance(30);
    for (const Buffer& piece : receive.pieces) {
        const std::uint32_t lkey = receive.faulty ? 0xbad
                                   : shared       ? host_.key_of(piece.at)
                                                  : draw_lkey(piece.at);
        sges.push_back({piece.at, static_cast<std::uint32_t>(piece.bytes), lkey});
        if (piece.bytes > 0) host_.arena_of(piece.at).open(piece.at, piece.bytes);
    }
    const std::uint64_t id = host_.next_receive++;
    const auto posted = queue.post({.wr_id = id, .sges = sges});
    if (!posted) {
        if (posted.error().code != ENOBUFS)
            fail("%s: a receive was refused: %s", name(), posted.error().what);
        for (const Buffer& piece : receive.pieces) {
            if (piece.bytes > 0) host_.arena_of(piece.at).close(piece.at);
        }
        give_pieces(receive.pieces);
        return false;
    }
    SIM_TRACE("    %s posts receive %llu of %zu bytes", name(), static_cast<unsigned long long>(id),
              receive.length);
    if (!shared) receive_order_.push_back(id);
    ++receives_posted_;
    host_.receives.emplace(id, std::move(receive));
    return true;
}

// -- operations --

bool Program::post(Operation operation, std::uint32_t remote_stag, std::uint64_t remote_to,
                   std::uint32_t lkey_override) {
    std::vector<Sge> sges;
    for (const Buffer& piece : operation.pieces) {
        const std::uint32_t lkey = lkey_override != 0 ? lkey_override : draw_lkey(piece.at);
        sges.push_back({piece.at, static_cast<std::uint32_t>(piece.bytes), lkey});
    }
    const bool asks = awaits_response(operation.opcode);
    const bool local = operation.opcode == SendOpcode::local_invalidate ||
                       operation.opcode == SendOpcode::bind_window;
    if (!asks && !local) {
        if (operation.data.empty()) operation.data = noise(rng_, operation.length);
        std::size_t at = 0;
        for (const Buffer& piece : operation.pieces) {
            host_.arena_of(piece.at).store(piece.at,
                                           ConstBytes(operation.data).subspan(at, piece.bytes));
            at += piece.bytes;
        }
    }
    const std::uint64_t sequence = operations_.size();
    const auto posted = end_.sq.post({.wr_id = sequence,
                                      .opcode = operation.opcode,
                                      .flags = operation.flags,
                                      .remote_stag = remote_stag,
                                      .remote_to = remote_to,
                                      .invalidate_stag = operation.stag,
                                      .sges = sges,
                                      .atomic = &operation.atomic,
                                      .immediate = operation.immediate});
    if (!posted) {
        const int code = posted.error().code;
        const bool closed = end_.ended() || end_.closing();
        if (code != (closed ? EPIPE : ENOBUFS)) {
            fail("%s: a request was refused: %s", name(), posted.error().what);
        }
        give_pieces(operation.pieces);
        return false;
    }
    SIM_TRACE("    %s posts %llu: opcode %u, %zu bytes, flags %x, STag %08x%s%s", name(),
              static_cast<unsigned long long>(sequence), static_cast<unsigned>(operation.opcode),
              operation.length, operation.flags, remote_stag != 0 ? remote_stag : operation.stag,
              operation.poison ? ", poison" : "", operation.must_fail ? ", must fail" : "");
    if (asks) {
        for (const Buffer& piece : operation.pieces) {
            if (piece.bytes > 0) host_.arena_of(piece.at).open(piece.at, piece.bytes);
        }
    }
    if ((operation.flags & kSendInline) != 0) {
        // Copied: the program may change it at once.
        for (const Buffer& piece : operation.pieces) {
            host_.arena_of(piece.at).store(piece.at, noise(rng_, piece.bytes));
        }
        give_pieces(operation.pieces);
        operation.pieces.clear();
    }
    if (operation.poison) first_poison_ = std::min(first_poison_, sequence);
    if (operation.takes_receive()) sends_.push_back(sequence);
    operations_.push_back(std::move(operation));
    return true;
}

bool Program::post_send(bool invalidate) {
    Operation operation;
    operation.length = draw_length(world_.message_max);
    operation.flags = draw_flags(operation.length, false);
    if (invalidate) {
        Region* const region = usable_region(*peer_, 0);
        if (region != nullptr && region->only_qp && !region->closing_op) {
            // A Read of it that is under way would find it gone.
            if (region->reads > 0) operation.flags |= kSendFence;
            operation.opcode = SendOpcode::send_invalidate;
            operation.stag = region->stag;
            operation.region = region;
        }
    }
    if (operation.opcode == SendOpcode::send) draw_immediate(operation);
    auto pieces = take_pieces(operation.length);
    if (!pieces) return false;
    operation.pieces = std::move(*pieces);
    Region* const region = operation.region;
    if (!post(std::move(operation), 0, 0)) return false;
    if (region != nullptr) {
        region->usable = false;
        region->closing_op = true;
    }
    return true;
}

/// Makes a Send one with Immediate, toward an end that takes them; as an error, toward others.
void Program::draw_immediate(Operation& operation) {
    if (!end_.established() || !immediates_.chance(end_.options().immediate_percent)) return;
    const std::uint64_t features = end_.mpa->negotiated().features;
    operation.must_fail = (features & MPA_FEATURE_SEND_IMMEDIATE) == 0;
    if (operation.must_fail && !immediates_.chance(end_.options().error_percent)) {
        operation.must_fail = false;
        return;
    }
    operation.opcode = SendOpcode::send_immediate;
    operation.immediate = immediates_.next() >> 32;
}

bool Program::post_write(bool immediate) {
    Region* const region = usable_region(*peer_, kRemoteWrite);
    if (region == nullptr) return false;
    Operation operation;
    operation.opcode = immediate ? SendOpcode::write_immediate : SendOpcode::write;
    if (immediate) operation.immediate = rng_.next();
    operation.length = draw_length(region->length);
    operation.flags = draw_flags(operation.length, false);
    operation.region = region;
    operation.offset = rng_.below(region->length - operation.length + 1);
    if (region->reads > 0) {
        // What the peer is sending from there must not change while it is sent, unless it copies.
        const EndOptions& peer = peer_->end_.options();
        if (peer.mpa.copy_limit < 65536 || peer.scratch < 262144) operation.flags |= kSendFence;
    }
    auto pieces = take_pieces(operation.length);
    if (!pieces) return false;
    operation.pieces = std::move(*pieces);
    const std::size_t offset = operation.offset;
    if (!post(std::move(operation), region->stag, region->first_to + offset)) return false;
    region->on_write(operations_.size() - 1, offset, operations_.back().data);
    return true;
}

bool Program::post_read() {
    if (late_) return false;  // the peer has finished: it answers no more
    Region* const region = usable_region(*peer_, kRemoteRead);
    if (region == nullptr) return false;
    Operation operation;
    operation.opcode = SendOpcode::read;
    operation.length = draw_length(region->length);
    operation.flags = draw_flags(operation.length, true);
    operation.region = region;
    operation.offset = rng_.below(region->length - operation.length + 1);
    operation.data = region->expected(operation.offset, operation.length);
    auto pieces = take_pieces(operation.length);
    if (!pieces) return false;
    operation.pieces = std::move(*pieces);
    const std::size_t offset = operation.offset;
    if (!post(std::move(operation), region->stag, region->first_to + offset)) return false;
    ++region->reads;
    return true;
}

bool Program::post_local_invalidate() {
    Region* const region = usable_region(*this, 0);
    if (region == nullptr || region->closing_op) return false;
    if (!region->quiet() && !(world_.removals && rng_.chance(50))) return false;
    Operation operation;
    operation.opcode = SendOpcode::local_invalidate;
    operation.flags = draw_flags(0, true);
    operation.region = region;
    operation.stag = region->stag;
    if (!post(std::move(operation), 0, 0)) return false;
    region->usable = false;
    region->closing_op = true;
    return true;
}

/// Another window in the place of the last, or none.
bool Program::post_binding() {
    // What the peer still uses, or is about to invalidate, must stay.
    if (window_ != nullptr && !window_->invalidated) {
        if (!window_->usable || window_->closing_op) return false;
        if (!window_->quiet() && !(world_.removals && rng_.chance(50))) return false;
    }
    if (rng_.chance(end_.options().error_percent)) return post_bad_binding();
    Operation operation;
    operation.opcode = SendOpcode::bind_window;
    operation.flags = draw_flags(0, true);
    operation.replaces = window_ != nullptr && window_->usable ? window_ : nullptr;
    operation.stag = window_key_;
    if (rng_.chance(80)) {
        const std::size_t length = 1 + rng_.below(below_.length);
        operation.region = make_window(rng_.below(below_.length - length + 1), length);
        if (operation.region == nullptr) return false;
    }
    Region *const made = operation.region, *const replaced = operation.replaces;
    if (window_key_ == 0 || (made == nullptr && replaced == nullptr)) return false;
    if (!post(std::move(operation), made != nullptr ? made->stag : 0, 0)) {
        if (made != nullptr) revoke(*made);
        return false;
    }
    if (replaced != nullptr) {
        replaced->usable = false;
        replaced->closing_op = true;
    }
    if (made != nullptr) window_ = made;
    return true;
}

/// To memory that its region does not have.
bool Program::post_bad_binding() {
    Region* const window = make_window(rng_.below(below_.length), below_.length + 1);
    if (window == nullptr) return false;
    Operation operation;
    operation.opcode = SendOpcode::bind_window;
    operation.flags = draw_flags(0, true);
    operation.region = window;
    operation.must_fail = true;
    if (post(std::move(operation), window->stag, 0)) return true;
    revoke(*window);
    return false;
}

/// What lies right behind the peer's window: its region has it, the window has not.
bool Program::post_beside_window() {
    const Region* const window = peer_->window_;
    if (window == nullptr || !window->usable) return false;
    const std::uint32_t rights = window->access & peer_->end_.options().rights;
    Operation operation;
    operation.opcode = (rights & kRemoteWrite) != 0 ? SendOpcode::write : SendOpcode::read;
    if ((rights & (kRemoteWrite | kRemoteRead)) == 0) return false;
    operation.length = rng_.between(1, 8);
    operation.flags = draw_flags(operation.length, true);
    if (operation.opcode == SendOpcode::read) operation.data.resize(operation.length);
    operation.poison = true;
    auto pieces = take_pieces(operation.length);
    if (!pieces) return false;
    operation.pieces = std::move(*pieces);
    return post(std::move(operation), window->stag, window->first_to + window->length);
}

/// What the peer's region permits and its queue pair does not.
bool Program::post_withheld() {
    const std::uint32_t withheld = kRemoteAccess & ~peer_->end_.options().rights;
    Operation operation;
    operation.opcode = withheld == kRemoteWrite ? SendOpcode::write : SendOpcode::read;
    if (withheld == kRemoteAtomic) return false;
    const Region* found = nullptr;
    for (const auto& region : peer_->regions_) {
        if (region->usable && (region->access & withheld) != 0) found = region.get();
    }
    if (found == nullptr) return false;
    operation.length = 1 + rng_.below(found->length);
    operation.flags = draw_flags(operation.length, withheld == kRemoteRead);
    if (withheld == kRemoteRead) operation.data.resize(operation.length);
    operation.poison = true;
    auto pieces = take_pieces(operation.length);
    if (!pieces) return false;
    operation.pieces = std::move(*pieces);
    return post(std::move(operation), found->stag, found->first_to);
}

bool Program::peer_speaks_extensions() const noexcept {
    if (end_.established()) return end_.mpa->negotiated().peer_is_xsock;
    return pair_.end[0].mpa.startup.xsock_mark && pair_.end[1].mpa.startup.xsock_mark;
}

bool Program::post_immediate() {
    if (!peer_speaks_extensions()) return false;
    Operation operation;
    operation.opcode = SendOpcode::immediate;
    operation.immediate = rng_.next();
    operation.flags = draw_flags(0, true);
    return post(std::move(operation), 0, 0);
}

/// What the operation leaves, by the words of RFC 7306 §5.1 and not by the stack's own code.
std::uint64_t Program::Operation::left_by_atomic(std::uint64_t value) const {
    if (opcode == SendOpcode::compare_swap) {
        for (std::uint64_t bit = 1; bit != 0; bit <<= 1) {
            const bool differs = (value & bit) != (atomic.compare & bit);
            if ((atomic.compare_mask & bit) != 0 && differs) return value;
        }
        std::uint64_t left = 0;
        for (std::uint64_t bit = 1; bit != 0; bit <<= 1) {
            left |= ((atomic.operand_mask & bit) != 0 ? atomic.operand : value) & bit;
        }
        return left;
    }
    std::uint64_t left = 0;
    bool carry = false;
    for (std::uint64_t bit = 1; bit != 0; bit <<= 1) {
        const int ones = ((value & bit) != 0) + ((atomic.operand & bit) != 0) + carry;
        if (ones % 2 != 0) left |= bit;
        carry = ones > 1 && (atomic.operand_mask & bit) == 0;
    }
    return left;
}

bool Program::post_atomic(SendOpcode opcode) {
    if (late_ || !peer_speaks_extensions()) return false;
    Region* const region = usable_region(*peer_, kRemoteAtomic);
    if (region == nullptr) return false;
    const std::size_t first = (0 - reinterpret_cast<std::uintptr_t>(region->address)) % 8;
    if (region->length < first + 8) return false;
    Operation operation;
    operation.opcode = opcode;
    operation.length = kAtomicBytes;
    operation.flags = draw_flags(kAtomicBytes, true);
    operation.region = region;
    operation.offset = first + 8 * rng_.below((region->length - first) / 8);
    // Like a Write, it must not change what the peer is sending.
    if (region->reads > 0) operation.flags |= kSendFence;
    operation.data = region->expected(operation.offset, kAtomicBytes);
    std::uint64_t before = 0;
    std::memcpy(&before, operation.data.data(), sizeof before);
    const auto mask = [&] { return rng_.chance(50) ? 0 - rng_.below(2) : rng_.next(); };
    operation.atomic = {.operand = rng_.next(),
                        .operand_mask = mask(),
                        .compare = rng_.chance(60) ? before : rng_.next(),
                        .compare_mask = mask()};
    if (!take_atomic_pieces(operation)) return false;
    const std::uint64_t after = operation.left_by_atomic(before);
    const std::size_t offset = operation.offset;
    if (!post(std::move(operation), region->stag, region->first_to + offset)) return false;
    region->on_write(operations_.size() - 1, offset, std::as_bytes(std::span(&after, 1)));
    ++region->reads;
    ++region->atomics;
    return true;
}

/// Asks for memory that is others'; or lets the stack send from it.
bool Program::post_foreign(Operation operation) {
    Program& owner = rng_.chance(70) ? *peer_ : *this;
    std::vector<Region*> foreign;
    for (const auto& region : owner.regions_) {
        if (region->foreign) foreign.push_back(region.get());
    }
    if (foreign.empty()) {
        give_pieces(operation.pieces);
        return false;
    }
    const Region& region = *foreign[rng_.below(foreign.size())];
    if (&owner == peer_) {
        operation.poison = true;
        return post(std::move(operation), region.stag, region.first_to);
    }
    operation.opcode = SendOpcode::send;
    operation.data.clear();
    operation.flags &= static_cast<std::uint8_t>(~kSendInline);
    operation.must_fail = true;
    return post(std::move(operation), 0, 0, region.stag);
}

/// RFC 7306 toward a standard peer, or what no peer may grant.
bool Program::post_bad_extension() {
    if (!end_.established() || late_) return false;
    Operation operation;
    operation.opcode = rng_.pick({SendOpcode::fetch_add, SendOpcode::compare_swap});
    operation.length = kAtomicBytes;
    operation.flags = draw_flags(kAtomicBytes, true);
    operation.data.resize(kAtomicBytes);
    std::uint32_t stag = 0x5ca1ab1e;
    std::uint64_t to = 0;
    if (!peer_speaks_extensions()) {
        operation.must_fail = true;
    } else {
        operation.poison = true;
        const auto& regions = peer_->regions_;
        if (!regions.empty()) {
            const Region& region = *regions[rng_.below(regions.size())];
            stag = region.stag;
            to = region.first_to;
            // Past the end, or not aligned; where there is no right, at its beginning.
            const bool right = (region.access & kRemoteAtomic) != 0 && region.registered;
            if (right && rng_.chance(50)) {
                to += region.length - rng_.below(8);
            } else if (right) {
                const auto address = reinterpret_cast<std::uintptr_t>(region.address);
                const std::size_t aligned = (0 - address) % 8;
                if (region.length < aligned + 16) return false;
                to += aligned + rng_.between(1, 7);
            }
        }
    }
    if (!take_atomic_pieces(operation)) return false;
    return post(std::move(operation), stag, to);
}

/// A Read or Write of something, from nowhere yet.
std::optional<Program::Operation> Program::draw_access() {
    Operation operation;
    operation.length = std::max<std::size_t>(1, draw_length(world_.message_max));
    auto pieces = take_pieces(operation.length);
    if (!pieces) return std::nullopt;
    operation.pieces = std::move(*pieces);
    const bool read = rng_.chance(50);
    operation.opcode = read ? SendOpcode::read : SendOpcode::write;
    if (read) operation.data.resize(operation.length);
    operation.flags = draw_flags(operation.length, read);
    return operation;
}

/// Up to `most` bytes beyond the end of a region of the peer's, from inside or outside.
bool Program::post_beyond(Operation operation, Region& region, std::size_t most) {
    const std::size_t over = rng_.between(1, std::min<std::size_t>(operation.length, most));
    const std::size_t inside = std::min(operation.length - over, region.length);
    const std::size_t at = region.length - inside;
    const bool read = operation.opcode == SendOpcode::read;
    operation.poison = true;
    if (!post(std::move(operation), region.stag, region.first_to + at)) return false;
    // Its first segments may be within bounds.
    if (!read) {
        region.on_write(operations_.size() - 1, at,
                        ConstBytes(operations_.back().data).first(inside));
    }
    return true;
}

/// Where a window ends; in worlds without windows, where a region does. That of a region would
/// mostly come first, and end the connection before there is a window.
bool Program::post_edge() {
    if (world_.windows) return post_beside_window();
    auto operation = draw_access();
    if (!operation) return false;
    const bool read = operation->opcode == SendOpcode::read;
    Region* const region = usable_region(*peer_, read ? kRemoteRead : kRemoteWrite);
    if (region != nullptr) return post_beyond(std::move(*operation), *region, 8);
    give_pieces(operation->pieces);
    return false;
}

/// Something that a correct program would not do.
bool Program::post_error() {
    if (world_.extensions && rng_.chance(30)) return post_bad_extension();
    if (world_.windows && rng_.chance(60) && post_beside_window()) return true;
    auto drawn = draw_access();
    if (!drawn) return false;
    Operation& operation = *drawn;
    const bool read = operation.opcode == SendOpcode::read;
    std::uint32_t stag = 0, lkey = 0;
    std::uint64_t to = 0;
    if (world_.foreign && rng_.chance(50)) return post_foreign(std::move(operation));
    const std::uint32_t right = read ? kRemoteRead : kRemoteWrite;
    Region* const region = usable_region(*peer_, right);
    switch (rng_.below(7)) {
        case 0:
        case 1:
            if (region != nullptr) return post_beyond(std::move(operation), *region, 16);
            break;
        case 2:  // before the beginning, or wrapping
            if (region == nullptr) break;
            stag = region->stag;
            to = region->first_to - rng_.between(1, 9);
            operation.poison = true;
            break;
        case 3:  // of no region
            stag = static_cast<std::uint32_t>(rng_.next()) | 1;
            operation.poison = true;
            break;
        case 4:  // without the right, or not any more
            for (const auto& other : peer_->regions_) {
                if ((other->access & right) != 0 && other->registered) continue;
                stag = other->stag;
                to = other->first_to;
                operation.poison = true;
            }
            break;
        case 5:  // the key of the SGEs
            operation.must_fail = (operation.flags & kSendInline) == 0;
            lkey = 0xbad;
            if (region == nullptr || region->length < operation.length) {
                operation.opcode = SendOpcode::send;
                operation.data.clear();
            } else {
                stag = region->stag;
                to = region->first_to;
            }
            break;
        case 6:  // an invalidation that is not the peer's to ask for
            operation.opcode = SendOpcode::send_invalidate;
            operation.flags &= static_cast<std::uint8_t>(~kSendFence);
            operation.data.clear();
            operation.stag = rng_.chance(50) ? peer_->host_.arena_key : 0xbad;
            operation.poison = true;
            break;
    }
    const bool meant = operation.poison || operation.must_fail;
    if (!meant && stag == 0) {
        give_pieces(operation.pieces);
        return false;
    }
    // An inline Write into a region by way of case 5 is a good one.
    const bool good_write = !meant && operation.opcode == SendOpcode::write;
    if (!meant && operation.opcode == SendOpcode::read) {
        give_pieces(operation.pieces);
        return false;
    }
    if (!post(std::move(operation), stag, to, lkey)) return false;
    if (good_write) region->on_write(operations_.size() - 1, 0, operations_.back().data);
    return true;
}

bool Program::post_operation() {
    if (end_.options().error_percent != 0 && peer_->end_.options().rights != kRemoteAccess &&
        rng_.chance(end_.options().error_percent)) {
        return post_withheld();
    }
    if (rng_.chance(end_.options().error_percent)) return post_error();
    // There is not always a window.
    if (world_.edges && rng_.chance(world_.windows ? 40 : 8)) return post_edge();
    const auto& weights = end_.options().weights;
    unsigned sum = 0;
    for (const unsigned weight : weights) sum += weight;
    std::uint64_t roll = rng_.below(sum);
    unsigned kind = 0;
    while (sum > 0 && roll >= weights[kind]) roll -= weights[kind++];
    switch (static_cast<SendOpcode>(kind)) {
        case SendOpcode::send:
            return post_send(false);
        case SendOpcode::send_invalidate:
            return post_send(true);
        case SendOpcode::write:
            return post_write(false);
        case SendOpcode::read:
            return post_read();
        case SendOpcode::local_invalidate:
            return post_local_invalidate();
        case SendOpcode::fetch_add:
        case SendOpcode::compare_swap:
            return post_atomic(static_cast<SendOpcode>(kind));
        case SendOpcode::write_immediate:
            return peer_speaks_extensions() && post_write(true);
        case SendOpcode::immediate:
            return post_immediate();
        case SendOpcode::bind_window:
            return post_binding();
        case SendOpcode::send_immediate:  // post_send() makes it
        case SendOpcode::kCount:
            break;
    }
    return false;
}

// -- one step --

Program::Step Program::step(Time now) {
    Step step;
    const std::uint64_t before =
        next_completion_ + delivered_ + operations_.size() + receives_posted_;
    if (late_touch_ != nullptr) *std::exchange(late_touch_, nullptr) ^= std::byte{1};
    poll();
    while (rng_.chance(60) && post_receive()) {
        step.posted = true;
        step.posted_shared = end_.parts().rq_shared;
    }
    tend_regions();
    for (std::uint64_t n = rng_.below(5); n > 0 && left_ > 0 && !end_.ended(); --n) {
        if (end_.closing()) {
            left_ = 0;
            break;
        }
        // What cannot be done now may never be possible: a Send always is.
        if (end_.sq.room() == 0 && rng_.chance(80)) break;
        if (post_operation() || post_send(false)) {
            --left_;
            step.posted = true;
        }
    }
    maybe_close(now);
    const std::uint64_t after =
        next_completion_ + delivered_ + operations_.size() + receives_posted_;
    pause_ = after != before ? end_.options().pause : std::min(pause_ * 2, kLongestPause);
    step.again = now + 1 + rng_.below(2 * pause_);
    return step;
}

bool Program::all_done() const noexcept {
    return left_ == 0 && next_completion_ == operations_.size() &&
           peer_->delivered_ == sends_.size();
}

void Program::maybe_close(Time now) {
    if (world_.aborts && rng_.chance(1)) {
        if (rng_.chance(50)) {
            end_.abort();
        } else {
            end_.shutdown(now);
        }
    }
    if (end_.ended() || end_.closing() || !end_.established()) return;
    if (!all_done() || !peer_->all_done()) return;
    if (peer_->end_.closing() && !late_given_) {
        // The peer has finished, or is about to: it still listens.
        late_given_ = late_ = true;
        left_ = end_.options().late_operations;
        if (left_ > 0) return;
    }
    const bool first = end_.options().closes_first || end_.peer_finished() ||
                       peer_->end_.closing() ||
                       (!peer_->end_.options().closes_first && end_.mpa->negotiated().initiator);
    if (first) end_.shutdown(now);
}

}  // namespace xsock::sim
