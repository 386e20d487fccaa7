// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A whole engine (connection, MPA stream, queues, memory table) against a peer that says what the
// input says, in valid FPDUs, while the program posts, revokes and closes. What must hold: no byte
// outside what the peer may reach or the stack has borrowed changes, and each request completes
// exactly once. Completions that are to wait for the peer wait until it has answered a request
// behind them.
//
// Input: two bytes of configuration, then steps, each a byte and its operands.
#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "base/completion_queue.hpp"
#include "base/crc32c.hpp"
#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "ddp_user/connection.hpp"
#include "ddp_user/segment.hpp"
#include "mpa/fpdu.hpp"
#include "mpa/startup.hpp"
#include "mpa/stream.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using ByteVector = std::vector<std::byte>;

constexpr PdId kPd = 1;
constexpr QpNum kQp = 1;
constexpr std::size_t kGuard = 32, kSlot = 300, kSlots = 6, kRegion = 900;
constexpr std::size_t kArena = 8192;

/// Memory in slots with guards between them; what is borrowed may change, the rest not.
class Memory {
  public:
    Memory() : now_(kArena) {
        for (std::size_t i = 0; i < kArena; ++i) now_[i] = static_cast<std::byte>(i * 7 + 1);
        before_ = now_;
    }
    std::byte* cut(std::size_t n) {
        std::byte* const at = now_.data() + kGuard + used_;
        used_ += n + kGuard;
        FUZZ_CHECK(used_ + kGuard <= kArena);
        return at;
    }
    void lend(const std::byte* at, std::size_t n) { borrowed_[at - now_.data()] = n; }
    void take_back(const std::byte* at) {
        const auto borrowed = borrowed_.find(at - now_.data());
        FUZZ_CHECK(borrowed != borrowed_.end());
        std::copy_n(now_.begin() + borrowed->first, borrowed->second,
                    before_.begin() + borrowed->first);
        borrowed_.erase(borrowed);
    }
    [[nodiscard]] bool borrowed(const std::byte* at) const {
        return borrowed_.count(at - now_.data()) != 0;
    }
    void check() const {
        std::ptrdiff_t at = 0;
        for (const auto& [from, n] : borrowed_) {
            FUZZ_CHECK(std::equal(now_.begin() + at, now_.begin() + from, before_.begin() + at));
            at = from + static_cast<std::ptrdiff_t>(n);
        }
        FUZZ_CHECK(std::equal(now_.begin() + at, now_.end(), before_.begin() + at));
    }

  private:
    ByteVector now_, before_;
    std::size_t used_ = 0;
    std::map<std::ptrdiff_t, std::size_t> borrowed_;
};

class Engine final : public ddp::Connection::Delegate {
  public:
    Engine(unsigned a, unsigned b);
    void run(fuzz::Input input);

  private:
    struct Slot {
        std::byte* at = nullptr;
        bool busy = false;
    };
    Llp& data_layer(Llp& startup) override { return startup; }
    void on_started() override { FUZZ_CHECK(!std::exchange(started_, true)); }
    void on_state(QpState state) override;
    void on_rnr() override { FUZZ_CHECK(false); }  // no queue is shared
    void finish() override { FUZZ_CHECK(!closed_ && !std::exchange(fin_sent_, true)); }
    void close(bool) override { FUZZ_CHECK(!std::exchange(closed_, true)); }

    void start_up(unsigned b);
    void step(fuzz::Input& input);
    void post(SendOpcode opcode, fuzz::Input& input);
    void post_recv(fuzz::Input& input);
    void say(fuzz::Input& input);
    void say_segment(fuzz::Input& input);
    void fpdu(const ByteVector& ulpdu, std::size_t cut);
    void hear(ConstBytes bytes);
    void transmit(std::size_t most);
    void transmit_single(std::size_t most);
    void note_requests(const ByteVector& bytes);
    void close(unsigned how);
    void revoke(unsigned which);
    void post_binding(fuzz::Input& input);
    void set_rights(unsigned rights);
    void set_rnr(unsigned how);
    void lend(std::size_t region);
    void take_back(std::size_t region);
    void forget_windows();
    void poll();
    [[nodiscard]] std::uint64_t answers() const;
    void end();

    Memory memory_;
    Epochs epochs_;
    MemoryTable table_{epochs_};
    Epochs::Reader reader_{epochs_};
    SendQueue sq_{8};
    RecvQueue rq_{8};
    CompletionQueue cq_{4};
    mpa::Config config_;
    std::unique_ptr<ddp::Connection> connection_;
    std::unique_ptr<mpa::Stream> mpa_;
    ByteVector scratch_ = ByteVector(mpa::kMinTxScratch);
    std::array<Slot, kSlots> receives_, sinks_;
    std::byte* source_ = nullptr;
    std::array<std::byte*, 3> region_{};
    std::array<std::uint32_t, 3> stag_{};
    std::array<bool, 3> valid_ = {true, true, true};
    std::uint32_t rights_ = kRemoteAccess;
    // A region that no peer may use, and windows in the middle third of it.
    std::byte* below_ = nullptr;
    std::uint32_t below_stag_ = 0, window_range_ = 0, window_ = 0;
    std::vector<std::uint32_t> windows_;  // prepared, bound or revoked
    struct Posted {
        int slot = -1;  // of sinks_ or receives_, if it has one
        bool signaled = false;
        std::uint64_t answers = 0;  // that had come from the peer
    };
    std::map<std::uint64_t, Posted> posted_, posted_receives_;  // by wr_id
    std::uint64_t next_id_ = 0;
    std::uint32_t send_msn_ = 1, read_msn_ = 1, atomic_msn_ = 1, ack_msn_ = 1;
    // Sink STag and size of our Read Requests; identifier of our Atomic Requests, and 0.
    std::vector<std::array<std::uint32_t, 2>> asked_;
    Time now_ = 0;
    bool acknowledged_ = false, started_ = false, fin_sent_ = false, closed_ = false;
    QpState state_ = QpState::fresh;
};

/// Where both ends exchange extension frames at all.
const Implementation kFeatures{.features = MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_SEND_IMMEDIATE |
                                           MPA_FEATURE_RNR};
bool common_features(unsigned b) { return (b & 1) != 0; }

Engine::Engine(unsigned a, unsigned b) {
    for (Slot& slot : receives_) slot.at = memory_.cut(kSlot);
    for (Slot& slot : sinks_) slot.at = memory_.cut(kSlot);
    source_ = memory_.cut(kSlot);
    constexpr std::array<std::uint32_t, 3> kAccess = {
        kRemoteWrite | kLocalWrite | kZeroBased, kRemoteRead | kZeroBased,
        kRemoteRead | kRemoteWrite | kRemoteAtomic | kLocalWrite};
    for (std::size_t i = 0; i < 3; ++i) {
        region_[i] = memory_.cut(kRegion);
        stag_[i] = table_
                       .add({.address = region_[i],
                             .length = kRegion,
                             .access = kAccess[i],
                             .pd = kPd,
                             .only_qp = i == 1 ? 0 : kQp})
                       .value();
        lend(i);
    }
    below_ = memory_.cut(kRegion);
    below_stag_ =
        table_
            .add(
                {.address = below_, .length = kRegion, .access = kLocalWrite | kWindows, .pd = kPd})
            .value();
    window_range_ = table_.reserve_window().value() & ~0xffu;
    connection_ =
        std::make_unique<ddp::Connection>(ddp::ConnectionConfig{.stream = {.qp_num = kQp,
                                                                           .pd = kPd,
                                                                           .memory = &table_,
                                                                           .sq = &sq_,
                                                                           .rq = &rq_,
                                                                           .send_cq = &cq_,
                                                                           .recv_cq = &cq_}},
                                          *this);
    config_.startup.role = (a & 1) != 0 ? mpa::Role::responder : mpa::Role::initiator;
    config_.startup.markers = (a & 2) != 0;
    config_.startup.xsock_mark = (a & 4) != 0;
    config_.startup.ird = static_cast<std::uint16_t>(a >> 6);
    config_.startup.ord = 2;
    config_.startup.rtr = static_cast<std::uint8_t>(a >> 3 & 7);
    acknowledged_ = (a >> 3 & 7) == 7 && b >> 5 == 7;
    config_.copy_limit = (b & 1) != 0 ? 0 : 4096;
    config_.xsock_mulpdu = (b & 2) != 0 ? 128 : 60000;
    if (common_features(b)) mpa::append_tlv(config_.startup.extension_tlvs, kFeatures);
    mpa_ = std::make_unique<mpa::Stream>(config_, connection_->stream());
    reader_.enter();
    start_up(b);
    reader_.leave();
}

/// A peer of our own kind shakes hands; what it says afterwards is the fuzzer's.
void Engine::start_up(unsigned b) {
    mpa::StartupConfig peer;
    peer.role =
        config_.startup.role == mpa::Role::initiator ? mpa::Role::responder : mpa::Role::initiator;
    peer.markers = (b & 4) != 0;
    peer.xsock_mark = (b & 8) != 0;
    peer.extensions = (b & 2) == 0;
    peer.negotiate_depths = (b & 16) == 0;
    peer.rtr = static_cast<std::uint8_t>(b >> 5);
    if (common_features(b)) mpa::append_tlv(peer.extension_tlvs, kFeatures);
    mpa::Startup other(peer);
    other.begin(0);
    connection_->start(*mpa_, {.ird = config_.startup.ird, .ord = 2, .acknowledged = acknowledged_},
                       0);
    for (int i = 0; i < 2; ++i) {
        if (mpa_->state() == Llp::State::startup) {
            const TxBatch batch = connection_->tx_prepare(scratch_, 1, 0);
            for (const auto& v : batch.iov)
                other.rx({static_cast<const std::byte*>(v.iov_base), v.iov_len});
            connection_->tx_commit(batch.bytes, 0);
            connection_->update(0);
        }
        const ByteVector said(other.tx().begin(), other.tx().end());
        other.tx_commit(said.size());
        connection_->rx(said, 0);
        connection_->update(0);
    }
}

void Engine::on_state(QpState state) {
    FUZZ_CHECK(!closed_ && state_ != QpState::closed && state_ != QpState::error);
    state_ = state;
}

void Engine::run(fuzz::Input input) {
    for (int steps = 0; !input.empty() && steps < 400; ++steps) {
        reader_.enter();
        step(input);
        reader_.leave();
        poll();
        forget_windows();
        memory_.check();
    }
    end();
}

/// Region `i` may change as long as it is there, and its rights and the queue pair's permit it.
void Engine::lend(std::size_t i) {
    const std::uint32_t rights = i == 0   ? 0u + kRemoteWrite
                                 : i == 2 ? kRemoteWrite | kRemoteAtomic
                                          : 0;
    if (valid_[i] && (rights & rights_) != 0) memory_.lend(region_[i], kRegion);
}
void Engine::take_back(std::size_t i) {
    if (memory_.borrowed(region_[i])) memory_.take_back(region_[i]);
}

void Engine::set_rights(unsigned rights) {
    for (std::size_t i = 0; i < 3; ++i) take_back(i);
    rights_ = rights & kRemoteAccess;
    connection_->stream().set_rights(rights_);
    for (std::size_t i = 0; i < 3; ++i) lend(i);
}

void Engine::set_rnr(unsigned how) {
    connection_->set_rnr({.notice_every = Time{how >> 3} * kMillisecond,
                          .retries = static_cast<std::uint8_t>(how & 7)});
}

/// Binds a window to some of the middle third, or to what its region has not, or none.
void Engine::post_binding(fuzz::Input& input) {
    const unsigned key = input.next_byte(), where = input.next_byte(), how = input.next_byte();
    const std::size_t third = kRegion / 3, offset = where % third;
    const bool none = (how & 0xc0) == 0xc0, bad = (how & 0xc0) == 0x80;
    const std::uint32_t stag = none ? 0 : window_range_ | key;
    if (!none) {
        const RegionAttr attr{
            .address = below_ + third + offset,
            .length = bad ? kRegion : third - offset,
            .access = kZeroBased | ((how & 8) != 0 ? 0u + kRemoteWrite : kRemoteRead),
            .pd = (how & 0x30) == 0x30 ? kPd + 1 : kPd,
            .only_qp = (how & 16) != 0 ? kQp : 0};
        if (!table_.prepare_window(stag, attr, below_stag_).ok()) return;
    }
    const SendWr wr{.wr_id = next_id_++,
                    .opcode = SendOpcode::bind_window,
                    .flags = static_cast<std::uint8_t>(how & 7),
                    .remote_stag = stag,
                    .invalidate_stag = window_range_};
    if (!sq_.post(wr).ok()) {
        if (!none) table_.abandon(stag);
    } else {
        posted_[wr.wr_id] = {-1, (wr.flags & kSendSignaled) != 0, answers()};
    }
    if (none) return;
    if (windows_.empty()) memory_.lend(below_ + third, third);
    windows_.push_back(stag);
    window_ = stag;
}

/// Those that are revoked, or will not be bound, need no entry any more.
void Engine::forget_windows() {
    const auto gone = [&](std::uint32_t stag) {
        if (!table_.revoked(stag)) return false;
        FUZZ_CHECK(!table_.bind(stag));
        FUZZ_CHECK(table_.remove(stag).ok());
        return true;
    };
    const bool some = !windows_.empty();
    windows_.erase(std::remove_if(windows_.begin(), windows_.end(), gone), windows_.end());
    if (some && windows_.empty()) memory_.take_back(below_ + kRegion / 3);
}

void Engine::step(fuzz::Input& input) {
    const unsigned what = input.next_byte();
    switch (what & 15) {
        case 0:
        case 1:
            return post_recv(input);
        case 2:
            return post((what & 32) != 0   ? SendOpcode::immediate
                        : (what & 16) != 0 ? SendOpcode::send
                        : (what & 64) != 0 ? SendOpcode::send_immediate
                                           : SendOpcode::send_invalidate,
                        input);
        case 3:
            return post((what & 32) != 0 ? SendOpcode::write_immediate : SendOpcode::write, input);
        case 4:
            return post((what & 32) != 0   ? SendOpcode::fetch_add
                        : (what & 16) != 0 ? SendOpcode::compare_swap
                                           : SendOpcode::read,
                        input);
        case 5:
        case 6:
        case 7:
            return say_segment(input);
        case 8:
            return say(input);
        case 9:
        case 10:
            return transmit((what & 16) != 0 ? SIZE_MAX : 1 + input.next_byte());
        case 11:
            reader_.leave();
            revoke(what >> 4);
            return reader_.enter();
        case 12:
            connection_->stream().acknowledge();
            now_ += Time{input.next_byte()} * kMillisecond;
            if (connection_->next_timeout(now_) <= now_) connection_->on_time(now_);
            return connection_->update(now_);
        case 13:  // bytes that are no FPDUs
            return hear(input.take(input.next_byte()));
        case 14:
            if ((what & 48) == 32) return close(what >> 6);
            if ((what & 48) == 48) {
                now_ += 2 * kSecond;  // longer than a Send may wait for its receive
                return connection_->on_time(now_);
            }
            if (!connection_->rx_waiting()) connection_->rx_eof(now_);
            return connection_->update(now_);
        case 15:
            if ((what & 240) == 240) connection_->lost(ECONNRESET);
            if ((what & 240) == 224) post(SendOpcode::local_invalidate, input);
            if ((what & 240) == 208) post_binding(input);
            if ((what & 240) == 192) set_rights(input.next_byte());
            if ((what & 240) == 176) set_rnr(input.next_byte());
            return;
    }
}

void Engine::close(unsigned how) {
    switch (how) {
        case 0:
            connection_->shutdown(now_);
            break;
        case 1:
            connection_->detach(now_);
            break;
        case 2:
            connection_->release(now_);
            break;
        default:
            connection_->abort();
            break;
    }
    connection_->update(now_);
}

void Engine::post(SendOpcode opcode, fuzz::Input& input) {
    const unsigned drawn = input.next_byte(), how = input.next_byte();
    const unsigned size = is_atomic(opcode) ? kAtomicBytes : drawn;
    std::array<Sge, 2> sges;
    int sink = -1;
    std::byte* memory = source_;
    if (awaits_response(opcode)) {
        for (std::size_t i = 0; i < kSlots && sink < 0; ++i) {
            if (!sinks_[i].busy) sink = static_cast<int>(i);
        }
        if (sink < 0) return;
        memory = sinks_[static_cast<std::size_t>(sink)].at;
    }
    const unsigned first = size / 3;
    const Atomic atomic{.operand = how, .compare_mask = how};
    sges[0] = {memory, first, 0};
    sges[1] = {memory + first, size - first, (how & 1) != 0 ? stag_[how >> 1 & 1] : 0};
    SendWr wr{.wr_id = next_id_++,
              .opcode = opcode,
              .flags = static_cast<std::uint8_t>(
                  (how >> 2 & 7) | ((how & 128) != 0 && size < 96 && sink < 0 ? kSendInline : 0)),
              .remote_stag = 77,
              .invalidate_stag = (how & 24) == 24 && window_ != 0 ? window_ : stag_[how >> 5 & 1],
              .sges = sges,
              .atomic = &atomic,
              .immediate = how};
    if (opcode == SendOpcode::local_invalidate || opcode == SendOpcode::immediate) wr.sges = {};
    if (!sq_.post(wr).ok()) return;
    posted_[wr.wr_id] = {sink, (wr.flags & kSendSignaled) != 0, answers()};
    if (sink >= 0) {
        sinks_[static_cast<std::size_t>(sink)].busy = true;
        memory_.lend(memory, kSlot);
    }
}

void Engine::post_recv(fuzz::Input& input) {
    const unsigned size = input.next_byte();
    for (std::size_t i = 0; i < kSlots; ++i) {
        if (receives_[i].busy) continue;
        const std::array<Sge, 2> sges = {Sge{receives_[i].at, size / 2, 0},
                                         Sge{receives_[i].at + size / 2, size - size / 2, 0}};
        const std::uint64_t id = next_id_++;
        if (!rq_.post({.wr_id = id, .sges = sges}).ok()) return;
        posted_receives_[id] = {.slot = static_cast<int>(i)};
        receives_[i].busy = true;
        memory_.lend(receives_[i].at, kSlot);
        break;
    }
    hear({});
}

/// Any ULPDU.
void Engine::say(fuzz::Input& input) {
    const unsigned size = input.next_byte(), cut = input.next_byte();
    fpdu(input.take(size), cut);
}

/// A ULPDU that makes sense, more or less.
void Engine::say_segment(fuzz::Input& input) {
    const unsigned kind = input.next_byte(), how = input.next_byte();
    const std::size_t size = input.next_byte() * ((how & 1) != 0 ? 4 : 1);
    const unsigned where = input.next_byte();
    ddp::Segment segment{.opcode = static_cast<std::uint8_t>(kind & 15),
                         .last = (how & 2) == 0,
                         .asks = (kind & 0x80) != 0};
    ByteVector body(size, static_cast<std::byte>(where));
    const bool wrong = (how & 0xf0) == 0xf0, window = (kind & 0x40) != 0 && window_ != 0;
    switch (segment.opcode) {
        case RDMAP_WRITE:
            segment.tagged = true;
            segment.stag = stag_[where % 3];
            segment.to =
                where * 4 + (where % 3 == 2 ? reinterpret_cast<std::uintptr_t>(region_[2]) : 0);
            if (window) segment.stag = window_, segment.to = where;
            break;
        case RDMAP_READ_RESPONSE:
            segment.tagged = true;
            segment.to = (how & 4) != 0 ? where : 0;
            if (!asked_.empty()) {
                segment.stag = asked_.front()[0];
                if ((how & 8) == 0) body.resize(asked_.front()[1]);
                if (segment.last) asked_.erase(asked_.begin());
            }
            break;
        case RDMAP_READ_REQUEST: {
            segment.qn = DDP_QN_READ_REQUEST;
            segment.msn = read_msn_++;
            body.resize(ddp::kReadRequestOctets);
            const std::size_t region = 1 + (where & 1);
            ddp::encode(
                ddp::ReadRequest{
                    .sink_stag = 0x1234,
                    .sink_to = where,
                    .size = static_cast<std::uint32_t>(size),
                    .source_stag = window ? window_ : stag_[region],
                    .source_to = where + (region == 2 && !window
                                              ? reinterpret_cast<std::uintptr_t>(region_[2])
                                              : 0)},
                body.data());
            break;
        }
        case RDMAP_ATOMIC_REQUEST: {
            segment.qn = DDP_QN_READ_REQUEST;
            segment.msn = read_msn_++;
            if ((how & 8) == 0) body.resize(ddp::kAtomicRequestOctets);
            if (body.size() < ddp::kAtomicRequestOctets) break;
            const auto base = reinterpret_cast<std::uintptr_t>(region_[2]);
            const std::uint64_t aligned = (0 - base) % 8 + 8 * (where >> 1);
            ddp::encode(
                ddp::AtomicRequest{.opcode = static_cast<std::uint8_t>(how >> 4),
                                   .request_id = where,
                                   .remote_stag = stag_[(where & 1) != 0 ? 2 : kind >> 4 & 1],
                                   .remote_to = base + ((how & 4) != 0 ? where : aligned),
                                   .operands = {.operand = size, .operand_mask = where}},
                body.data());
            break;
        }
        case RDMAP_ATOMIC_RESPONSE:
            segment.qn = DDP_QN_ATOMIC_RESPONSE;
            segment.msn = atomic_msn_++;
            if ((how & 8) == 0) body.resize(ddp::kAtomicResponseOctets);
            if (!asked_.empty() && body.size() >= 4) {
                store_be32(body.data(), asked_.front()[0]);
                asked_.erase(asked_.begin());
            }
            break;
        case RDMAP_ACKNOWLEDGE:
            segment.qn = DDP_QN_ACKNOWLEDGE;
            segment.msn = ack_msn_++;
            segment.stag = where;
            break;
        case RDMAP_TERMINATE:
            segment.qn = DDP_QN_TERMINATE;
            segment.msn = 1;
            break;
        case RDMAP_IMMEDIATE:
        case RDMAP_IMMEDIATE_SE:
            if ((how & 4) == 0) body.resize(ddp::kImmediateOctets);
            [[fallthrough]];
        default:
            segment.stag = window ? window_ : stag_[where % 3];
            segment.msn = send_msn_;
            segment.mo = (how & 8) != 0 ? where : 0;
            if (segment.last) ++send_msn_;
            break;
    }
    if (wrong) segment.msn ^= where, segment.to ^= std::uint64_t{where} << 56;
    ByteVector ulpdu(ddp::kUntaggedOctets);
    ulpdu.resize(ddp::encode(segment, ulpdu.data()));
    ulpdu.insert(ulpdu.end(), body.begin(), body.end());
    fpdu(ulpdu, input.next_byte());
}

/// Frames a ULPDU and passes it to the engine, in two pieces. With markers the fuzzer has to do
/// without valid FPDUs: seeds bring them.
void Engine::fpdu(const ByteVector& ulpdu, std::size_t cut) {
    ByteVector out(mpa::fpdu_octets(ulpdu.size()));
    store_be16(out.data(), static_cast<std::uint16_t>(ulpdu.size()));
    std::copy(ulpdu.begin(), ulpdu.end(), out.begin() + MPA_LENGTH_OCTETS);
    const std::size_t covered = out.size() - MPA_CRC_OCTETS;
    store_le32(out.data() + covered,
               crc32c_finish(crc32c(kCrc32cInit, ConstBytes(out).first(covered))));
    cut = std::min(cut, out.size());
    hear(ConstBytes(out).first(cut));
    hear(ConstBytes(out).subspan(cut));
}

void Engine::hear(ConstBytes bytes) {
    if (connection_->peer_finished()) return;
    // Exactly as long as it is, so that a sanitizer sees a read beyond it.
    const ByteVector copy(bytes.begin(), bytes.end());
    connection_->rx(copy, now_);
    connection_->resume(now_);
    FUZZ_CHECK(!connection_->rx_waiting() || connection_->stream().rx_blocked() ||
               mpa_->state() == Llp::State::startup);
    connection_->update(now_);
}

void Engine::transmit(std::size_t most) {
    if (connection_->ended() || !connection_->tx_wanted()) return;
    if (most % 2 == 0 && connection_->is_steady()) transmit_single(most);
    const TxBatch batch = connection_->tx_prepare(scratch_, 4096, now_);
    ByteVector bytes;
    for (const auto& v : batch.iov) {
        const auto* const from = static_cast<const std::byte*>(v.iov_base);
        bytes.insert(bytes.end(), from, from + v.iov_len);
    }
    FUZZ_CHECK(bytes.size() == batch.bytes);
    note_requests(bytes);
    if (batch.bytes > 0) connection_->tx_commit(std::min(most, batch.bytes), now_);
    connection_->update(now_);
}

void Engine::transmit_single(std::size_t most) {
    std::array<std::byte, 128> frame;
    const std::size_t size = connection_->tx_single(frame);
    if (most < size) connection_->tx_keep(ConstBytes(frame).first(size), scratch_);
    if (size != 0) connection_->tx_commit(std::min(most, size), now_);
}

/// Our Requests, so that the peer may answer them: 28 or 52 bytes behind an untagged header.
void Engine::note_requests(const ByteVector& bytes) {
    constexpr std::size_t kRead = ddp::kUntaggedOctets + ddp::kReadRequestOctets;
    constexpr std::size_t kAtomic = ddp::kUntaggedOctets + ddp::kAtomicRequestOctets;
    for (std::size_t at = 0; at + 2 + kRead <= bytes.size(); at += 4) {
        const std::byte* const p = bytes.data() + at;
        const bool read =
            load_be16(p) == kRead && p[3] == std::byte{RDMAP_VERSION | RDMAP_READ_REQUEST};
        const bool atomic =
            load_be16(p) == kAtomic && p[3] == std::byte{RDMAP_VERSION | RDMAP_ATOMIC_REQUEST};
        if (!read && !atomic) continue;
        const std::byte* const request = p + 2 + ddp::kUntaggedOctets;
        const std::array<std::uint32_t, 2> entry = {load_be32(request + (atomic ? 4 : 0)),
                                                    atomic ? 0 : load_be32(request + 12)};
        if (asked_.empty() || asked_.back() != entry) asked_.push_back(entry);
    }
}

void Engine::revoke(unsigned which) {
    const std::size_t i = which % 3;
    if (!valid_[i]) return;
    valid_[i] = false;
    FUZZ_CHECK(table_.remove(stag_[i]).ok());
    take_back(i);
}

std::uint64_t Engine::answers() const {
    const auto& heard = connection_->stream().counters().rx_messages;
    return heard[RDMAP_READ_RESPONSE] + heard[RDMAP_ATOMIC_RESPONSE] + heard[RDMAP_ACKNOWLEDGE];
}

void Engine::poll() {
    std::array<Wc, 16> wcs;
    for (std::size_t n; (n = cq_.take(wcs)) > 0;) {
        for (const Wc& wc : std::span(wcs).first(n)) {
            auto& posted = wc.opcode == WcOpcode::recv ? posted_receives_ : posted_;
            const auto entry = posted.find(wc.wr_id);
            FUZZ_CHECK(entry != posted.end());
            // Those before it have completed, but for unsignaled ones.
            while (wc.opcode != WcOpcode::recv && posted.begin() != entry) {
                const Posted& before = posted.begin()->second;
                FUZZ_CHECK(!before.signaled);
                if (before.slot >= 0) {
                    Slot& silent = sinks_[static_cast<std::size_t>(before.slot)];
                    memory_.take_back(silent.at);
                    silent.busy = false;
                }
                posted.erase(posted.begin());
            }
            FUZZ_CHECK(wc.opcode != WcOpcode::recv || posted.begin() == entry);
            const bool asks = wc.opcode == WcOpcode::send || wc.opcode == WcOpcode::write ||
                              wc.opcode == WcOpcode::write_immediate ||
                              wc.opcode == WcOpcode::send_immediate ||
                              wc.opcode == WcOpcode::immediate;
            const bool told = (connection_->negotiated().features & MPA_FEATURE_ACKNOWLEDGE) != 0;
            if (acknowledged_ && asks && wc.status == WcStatus::success &&
                (told || connection_->stream().ord() != 0)) {
                FUZZ_CHECK(answers() > entry->second.answers);
            }
            FUZZ_CHECK((wc.flags & kWcSendImmediate) == 0 ||
                       (connection_->negotiated().features & MPA_FEATURE_SEND_IMMEDIATE) != 0);
            // Behind Immediate Data it tells of the Write before, which fills no receive.
            FUZZ_CHECK((wc.flags & kWcImmediate) != 0 || wc.byte_len <= kSlot);
            if (entry->second.slot >= 0) {
                auto& slots = wc.opcode == WcOpcode::recv ? receives_ : sinks_;
                Slot& slot = slots[static_cast<std::size_t>(entry->second.slot)];
                memory_.take_back(slot.at);
                slot.busy = false;
            }
            posted.erase(entry);
        }
    }
}

void Engine::end() {
    reader_.enter();
    for (int i = 0; i < 40; ++i) transmit(SIZE_MAX);
    connection_->abort();
    FUZZ_CHECK(closed_ && connection_->ended());
    hear(ByteVector(100));
    transmit(SIZE_MAX);
    reader_.leave();
    poll();
    memory_.check();
    FUZZ_CHECK(sq_.retired() == sq_.posted());
    FUZZ_CHECK(posted_receives_.empty() && rq_.size() == 0);
    FUZZ_CHECK(std::none_of(posted_.begin(), posted_.end(),
                            [](const auto& one) { return one.second.signaled; }));
    FUZZ_CHECK(cq_.size() == 0);
    // What was not bound will not be; what is bound keeps its region.
    forget_windows();
    FUZZ_CHECK(windows_.size() <= 1);
    FUZZ_CHECK(windows_.empty() || table_.remove(below_stag_).error().code == EBUSY);
    table_.unbind(window_range_);
    forget_windows();
    FUZZ_CHECK(windows_.empty());
    table_.release_window(window_range_);
    FUZZ_CHECK(table_.remove(below_stag_).ok());
    for (unsigned i = 0; i < 3; ++i) revoke(i);
    FUZZ_CHECK(table_.size() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned a = input.next_byte(), b = input.next_byte();
    Engine(a, b).run(input);
    return 0;
}
