// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/stream.hpp"

#include <algorithm>
#include <utility>

#include "mpa/fpdu_receiver.hpp"
#include "mpa/fpdu_sender.hpp"

namespace xsock::mpa {
namespace {

constexpr std::size_t kDefaultEmss = 1460;
constexpr std::size_t kMinEmss = MPA_MULPDU_MIN + 16;  // room for length, CRC, EMSS mod 4, a marker
constexpr std::size_t kMaxEmss = 65535;
/// FPDUPTR has sixteen bits and must reach back over the whole FPDU with its markers.
constexpr std::size_t kMaxUlpduWithMarkers = 64768;

Time after(Time now, Time delay) { return delay < kNever - now ? now + delay : kNever; }

}  // namespace

struct Stream::Impl {
    Impl(Config c, Ulp& u)
        : startup(std::move(c.startup)),
          ulp(u),
          copy_limit(c.copy_limit),
          xsock_mulpdu(c.xsock_mulpdu),
          mulpdu_limit(c.mulpdu_limit),
          first_fpdu_hold(c.first_fpdu_hold),
          rtr_settle(c.rtr_settle),
          nudge_gap(c.nudge_after) {}

    void on_startup_progress(Time now);
    void on_established(Time now);
    void on_startup_failed();
    void fail(Violation v);
    void close(Violation v);
    [[nodiscard]] bool holds_back(Time now) const noexcept { return held && now < hold_until; }
    [[nodiscard]] bool cuts_anywhere() const noexcept;
    [[nodiscard]] std::size_t mulpdu() const noexcept;
    TxBatch startup_batch();

    Startup startup;
    Ulp& ulp;
    const std::size_t copy_limit;
    const std::size_t xsock_mulpdu;
    const std::size_t mulpdu_limit;
    const Time first_fpdu_hold;
    const Time rtr_settle;
    Time nudge_gap;
    std::size_t emss = kDefaultEmss;

    State state = State::startup;  // await_decision is read off `startup`
    Violation violation = Violation::none;
    bool operated = false;  // FPDUs may be sent: set when start-up ends well, or needs a Terminate
    bool held = false;      // responder: the peer's first FPDU has not come
    Time hold_until = kNever;
    Time nudge_at = kNever;
    Time finish_at = 0;
    int nudges_left = Config::kNudges;
    FpduReceiver receiver{true, false};  // as negotiated, from on_established() on
    FpduSender sender{true, false};
    struct iovec startup_iov = {};
    static constexpr std::uint32_t kOneGroup = 1;
};

// -- life --

Stream::Stream(Config config, Ulp& ulp) : impl_(std::make_unique<Impl>(std::move(config), ulp)) {
    static_assert(sizeof(Impl) <= 576, "there may be many thousands of idle streams");
}
Stream::~Stream() = default;

void Stream::start(Time now) { impl_->startup.begin(now); }

void Stream::lost() {
    Impl& s = *impl_;
    if (s.state == State::closed) return;
    if (s.state == State::startup && s.violation == Violation::none) {
        s.violation = Violation::mpa_connection_lost;
    }
    s.state = State::closed;
    s.sender.drop();
    s.ulp.llp_closed(CloseKind::reset);
}

/// What start-up has come to, told once.
void Stream::Impl::on_startup_progress(Time now) {
    if (state != State::startup) return;
    switch (startup.state()) {
        case Startup::State::established:
            on_established(now);
            return;
        case Startup::State::rejected:
        case Startup::State::failed:
            on_startup_failed();
            return;
        case Startup::State::idle:
        case Startup::State::await_reply:
        case Startup::State::await_request:
        case Startup::State::await_decision:
        case Startup::State::replying:
        case Startup::State::rejecting:
            return;
    }
}

void Stream::Impl::on_established(Time now) {
    const Negotiated& n = startup.negotiated();
    state = State::operational;
    operated = true;
    receiver = FpduReceiver(n.crc, n.markers_rx);
    sender = FpduSender(n.crc, n.markers_tx);
    if (!n.initiator) {
        // RFC 5044 §7.1.2 rule 4: the peer's first FPDU comes before ours. Deviation: when the peer
        // has nothing to say we send after a pause, for programs whose server speaks first; but
        // not if an RTR message was agreed on (RFC 6581 §9), which is sure to come.
        held = true;
        hold_until = n.rtr == Rtr::none ? after(now, first_fpdu_hold) : kNever;
    }
    ulp.llp_established(n);
    if (!n.initiator) return;
    if (n.peer_is_xsock) {
        // It holds its first FPDU back until it has seen one of ours; an RTR message is one.
        if (n.rtr == Rtr::none) ulp.llp_nudge();
    } else {
        nudge_at = after(now, nudge_gap);
        if (n.rtr != Rtr::none) finish_at = after(now, rtr_settle);
    }
}

void Stream::Impl::on_startup_failed() {
    const Violation v = startup.violation();
    // RFC 6581 §8 lets the initiator say by a Terminate what was wrong with a valid Reply.
    const bool terminate = startup.negotiated().initiator &&
                           (v == Violation::mpa_insufficient_ird || v == Violation::mpa_no_rtr);
    if (!terminate) return close(v);
    const Negotiated& n = startup.negotiated();
    sender = FpduSender(n.crc, n.markers_tx);
    operated = true;
    fail(v);
}

/// Reception is over; what DDP still has to say may be sent.
void Stream::Impl::fail(Violation v) {
    state = State::failed;
    violation = v;
    held = false;
    nudge_at = kNever;
    ulp.llp_failed(v);
}

/// Nothing more either way, by a fault.
void Stream::Impl::close(Violation v) {
    state = State::closed;
    violation = v;
    sender.drop();
    ulp.llp_failed(v);
}

// -- reception --

std::size_t Stream::rx_consume(ConstBytes octets, Time now) {
    Impl& s = *impl_;
    std::size_t used = 0;
    if (s.state == State::startup) {
        used = s.startup.rx(octets);
        s.on_startup_progress(now);
    }
    switch (s.state) {
        case State::startup:
        case State::await_decision:
            return used;
        case State::operational:
            break;
        case State::failed:
        case State::closed:
            return octets.size();
    }
    if (used == octets.size()) return used;

    s.nudge_at = kNever;
    s.finish_at = 0;
    used += s.receiver.consume(octets.subspan(used), s.ulp);
    if (s.receiver.delivered_any()) s.held = false;
    if (s.receiver.violation() != Violation::none) {
        s.fail(s.receiver.violation());
        return octets.size();
    }
    return used;
}

void Stream::rx_eof(Time now) {
    Impl& s = *impl_;
    switch (s.state) {
        case State::startup:
        case State::await_decision:
            s.startup.rx_eof();
            s.on_startup_progress(now);
            return;
        case State::operational:
            if (!s.receiver.between_fpdus()) return s.fail(Violation::mpa_connection_lost);
            s.nudge_at = kNever;
            s.ulp.llp_closed(CloseKind::peer_finished);
            return;
        case State::failed:
        case State::closed:
            return;
    }
}

// -- transmission --

TxBatch Stream::Impl::startup_batch() {
    const ConstBytes frame = startup.tx();
    if (frame.empty()) return {};
    startup_iov = {const_cast<std::byte*>(frame.data()), frame.size()};
    return {.iov = {&startup_iov, 1},
            .group_ends = {&kOneGroup, 1},
            .octets = frame.size(),
            .separate_groups = false};
}

TxBatch Stream::tx_prepare(Bytes scratch, std::size_t octet_budget, Time now) {
    Impl& s = *impl_;
    if (s.state == State::startup) return s.startup_batch();
    if (s.state == State::closed || !s.operated) return {};
    if (s.sender.pending() != 0) {
        if (!s.sender.gathers() || s.ulp.tx_intact()) return s.sender.remainder();
        // A region was revoked with an FPDU half written: the stream can be neither continued nor
        // repaired (DESIGN invariant 1).
        s.close(Violation::local_fault);
        return {};
    }
    if (s.holds_back(now)) return {};
    return s.sender.prepare(s.ulp, scratch,
                            {.mulpdu = s.mulpdu(),
                             .group_octets = s.cuts_anywhere() ? 0 : s.emss,
                             .copy_limit = s.copy_limit,
                             .octet_budget = octet_budget});
}

void Stream::tx_commit(std::size_t n, Time now) {
    Impl& s = *impl_;
    if (s.state == State::startup) {
        s.startup.tx_commit(n);
        s.on_startup_progress(now);
    } else if (s.state != State::closed) {
        s.sender.commit(s.ulp, n);
    }
}

std::size_t Stream::tx_lone(Bytes frame) {
    Impl& s = *impl_;
    const Negotiated& n = s.startup.negotiated();
    if (s.state != State::operational || s.held || !n.peer_is_xsock || s.sender.pending() != 0) {
        return 0;
    }
    return s.sender.lay_out_lone(s.ulp, frame);
}

void Stream::tx_lone_done() { impl_->ulp.tx_lone_done(); }

Time Stream::finish_at() const noexcept { return impl_->finish_at; }

void Stream::tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept {
    impl_->sender.move(from, n, to);
}

void Stream::tx_finished() noexcept { impl_->nudge_at = kNever; }

std::size_t Stream::tx_pending() const noexcept {
    const Impl& s = *impl_;
    return s.state == State::startup ? s.startup.tx().size() : s.sender.pending();
}

bool Stream::tx_allowed() const noexcept {
    const Impl& s = *impl_;
    if (s.state == State::startup) return !s.startup.tx().empty();
    return s.state != State::closed && s.operated && !s.held;
}

// -- a responder that defers --

bool Stream::accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time) {
    return impl_->state == State::startup && impl_->startup.accept(private_data, ird, ord);
}

bool Stream::reject(ConstBytes private_data, Time) {
    return impl_->state == State::startup && impl_->startup.reject(private_data);
}

const Request& Stream::request() const noexcept { return impl_->startup.request(); }
ConstBytes Stream::private_data() const noexcept { return impl_->startup.private_data(); }

// -- time --

Time Stream::next_timeout() const noexcept {
    const Impl& s = *impl_;
    if (s.state == State::startup) return s.startup.next_timeout();
    if (s.state == State::closed) return kNever;
    return std::min(s.held ? s.hold_until : kNever, s.nudge_at);
}

void Stream::on_time(Time now) {
    Impl& s = *impl_;
    if (s.state == State::startup) {
        s.startup.on_time(now);
        s.on_startup_progress(now);
        return;
    }
    if (s.state != State::operational) return;
    if (s.held && now >= s.hold_until) s.held = false;
    if (s.nudge_at != kNever && now >= s.nudge_at) {
        s.nudge_gap = after(s.nudge_gap, 3 * s.nudge_gap);
        s.nudge_at = --s.nudges_left > 0 ? after(now, s.nudge_gap) : kNever;
        s.ulp.llp_nudge();
    }
}

// -- sizes and state --

void Stream::set_emss(std::size_t emss) noexcept {
    impl_->emss = std::clamp(emss, kMinEmss, kMaxEmss);
}

/// No FPDU need lie within a TCP segment: between xsocks, and toward a siw that agreed to it. Not
/// toward siw with CRC, for it takes one that lies across two segments for a wrong one.
bool Stream::Impl::cuts_anywhere() const noexcept {
    const Negotiated& n = startup.negotiated();
    return n.peer_is_xsock || (n.peer_accepts_gso && !n.crc);
}

std::size_t Stream::Impl::mulpdu() const noexcept {
    const Negotiated& n = startup.negotiated();
    const std::size_t possible = n.markers_tx ? kMaxUlpduWithMarkers : std::size_t{MPA_ULPDU_MAX};
    const std::size_t most = std::clamp<std::size_t>(mulpdu_limit, MPA_MULPDU_MIN, possible);
    if (cuts_anywhere()) {
        return std::clamp<std::size_t>(xsock_mulpdu, MPA_MULPDU_MIN, most);
    }
    // RFC 5044 §4.5: so that an FPDU fits into one segment, wherever the markers fall.
    std::size_t overhead = MPA_LENGTH_OCTETS + MPA_CRC_OCTETS + emss % 4;
    if (n.markers_tx) {
        const std::size_t markers = (emss + MPA_MARKER_SPACING - 1) / MPA_MARKER_SPACING;
        overhead += markers * MPA_MARKER_OCTETS;
    }
    return std::clamp<std::size_t>(emss - overhead, MPA_MULPDU_MIN, most);
}

std::size_t Stream::mulpdu() const noexcept { return impl_->mulpdu(); }

Stream::State Stream::state() const noexcept {
    if (impl_->state == State::startup &&
        impl_->startup.state() == Startup::State::await_decision) {
        return State::await_decision;
    }
    return impl_->state;
}

Violation Stream::violation() const noexcept { return impl_->violation; }
const Negotiated& Stream::negotiated() const noexcept { return impl_->startup.negotiated(); }

}  // namespace xsock::mpa
