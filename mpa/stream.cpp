// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/stream.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "mpa/fpdu_sender.hpp"
#include "mpa/reception.hpp"

namespace xsock::mpa {
namespace {

constexpr std::size_t kDefaultEmss = 1460;
constexpr std::size_t kFpduOverhead = MPA_LENGTH_OCTETS + MPA_CRC_OCTETS;
constexpr std::size_t kMinEmss = MPA_MULPDU_MIN + 16;  // room for length, CRC, EMSS mod 4, a marker
constexpr std::size_t kMaxEmss = 65535;
/// FPDUPTR has sixteen bits and must reach back over the whole FPDU with its markers.
constexpr std::size_t kMaxUlpduWithMarkers = 64768;

std::uint32_t in_32_bits(std::size_t value) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(value, UINT32_MAX));
}

Time after(Time now, Time delay) { return delay < kNever - now ? now + delay : kNever; }

}  // namespace

struct Stream::Impl {
    /// With what startup_batch() points to.
    struct StartupWithBatch : Startup {
        using Startup::Startup;
        struct iovec iov = {};
    };

    Impl(Config c, Ulp& u)
        : startup(std::make_unique<StartupWithBatch>(std::move(c.startup))),
          ulp(u),
          first_fpdu_hold(c.first_fpdu_hold),
          rtr_fin_delay(c.rtr_fin_delay),
          probe_gap(c.probe_after),
          copy_limit(in_32_bits(c.copy_limit)),
          xsock_mulpdu(in_32_bits(c.xsock_mulpdu)),
          mulpdu_limit(in_32_bits(c.mulpdu_limit)) {}

    using State = Llp::State;

    void on_startup_progress();
    void open(Opening how, const Negotiated& agreed, Time now);
    void on_startup_failed();
    Rx receive(ConstBytes bytes);
    [[nodiscard]] bool awaits_rtr() const noexcept { return held && negotiated().rtr != Rtr::none; }
    void fail(StreamError v);
    void close(StreamError v);
    [[nodiscard]] bool holds_back(Time now) const noexcept { return held && now < hold_until; }
    [[nodiscard]] bool cuts_anywhere() const noexcept;
    [[nodiscard]] bool fills_segments() const noexcept;
    [[nodiscard]] std::size_t mulpdu() const noexcept;
    TxBatch startup_batch();
    TxBatch prepare(Bytes scratch, std::size_t byte_budget, Time now);

    [[nodiscard]] const Negotiated& negotiated() const noexcept {
        return startup != nullptr ? startup->negotiated() : outcome.negotiated;
    }

    std::unique_ptr<StartupWithBatch> startup;  // null once it has ended well
    StartupResult outcome;                      // valid then
    Ulp& ulp;
    const Time first_fpdu_hold;
    const Time rtr_fin_delay;
    Time probe_gap;
    // Octets; sizes beyond 32 bits are as good as the largest.
    const std::uint32_t copy_limit;
    const std::uint32_t xsock_mulpdu;
    const std::uint32_t mulpdu_limit;
    std::uint32_t emss = kDefaultEmss;

    State state = State::startup;  // await_decision is read off `startup`
    StreamError stream_error = StreamError::none;
    bool operated = false;  // FPDUs may be sent: set when start-up ends well, or needs a Terminate
    bool held = false;      // responder: the peer's first FPDU has not come
    Time hold_until = kNever;
    Time probe_at = kNever;
    Time finish_at = 0;
    int probes_left = Config::kProbes;
    Reception reception;
    FpduSender sender{true, false};
    static constexpr std::uint32_t kOneGroup = 1;
};

// -- life --

Stream::Stream(Config config, Ulp& ulp) : impl_(std::make_unique<Impl>(std::move(config), ulp)) {
    static_assert(sizeof(Impl) <= 320, "there may be many thousands of idle streams");
}
Stream::~Stream() = default;

void Stream::start(Time now) {
    impl_->startup->begin(now);
    update_status();
}

void Stream::lost() {
    Impl& s = *impl_;
    if (s.state == State::closed) return;
    if (s.state == State::startup && s.stream_error == StreamError::none) {
        s.stream_error = StreamError::mpa_connection_lost;
    }
    s.state = State::closed;
    s.sender.drop();
    s.ulp.llp_closed(CloseKind::reset);
    update_status();
}

/// What start-up has come to, told once.
void Stream::Impl::on_startup_progress() {
    if (state != State::startup) return;
    switch (startup->state()) {
        case Startup::State::established:
            state = State::started;
            outcome = startup->take_result();
            startup.reset();
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
        case Startup::State::exchanging:
        case Startup::State::rejecting:
            return;
    }
}

void Stream::open(Opening how, const Negotiated& agreed, Time now) {
    impl_->open(how, agreed, now);
    update_status();
}

void Stream::Impl::open(Opening how, const Negotiated& agreed, Time now) {
    XSOCK_ASSERT(state == State::started);
    const Negotiated& n = negotiated();
    state = State::operational;
    operated = true;
    std::vector<std::byte>().swap(outcome.answer);
    reception.begin(n.crc, n.markers_rx);
    sender = FpduSender(n.crc, n.markers_tx);
    if (how == Opening::resumed) return;  // another layer has carried the first FPDUs
    if (!n.initiator) {
        // RFC 5044 §7.1.2 rule 4: the peer's first FPDU comes before ours. Deviation: when the peer
        // has nothing to say we send after a pause, for programs whose server speaks first; but
        // not if an RTR message was agreed on (RFC 6581 §9), which is sure to come. An extension
        // frame has come already, and is as good as an FPDU.
        held = n.rtr != Rtr::none || !n.extensions;
        hold_until = n.rtr == Rtr::none ? after(now, first_fpdu_hold) : kNever;
    }
    ulp.llp_established(agreed);
    if (!n.initiator) return;
    if (n.peer_is_xsock) {
        // It holds its first FPDU back until it has seen one of ours; an RTR message is one, and
        // an extension frame counts as one.
        if (n.rtr == Rtr::none && !n.extensions) ulp.llp_probe();
    } else {
        probe_at = after(now, probe_gap);
        if (n.rtr != Rtr::none) finish_at = after(now, rtr_fin_delay);
    }
}

void Stream::Impl::on_startup_failed() {
    const StreamError v = startup->stream_error();
    // RFC 6581 §8 lets the initiator say by a Terminate what was wrong with a valid Reply.
    const bool terminate = negotiated().initiator &&
                           (v == StreamError::mpa_insufficient_ird || v == StreamError::mpa_no_rtr);
    if (!terminate) return close(v);
    const Negotiated& n = negotiated();
    sender = FpduSender(n.crc, n.markers_tx);
    operated = true;
    fail(v);
}

/// Reception is over; what DDP still has to say may be sent.
void Stream::Impl::fail(StreamError v) {
    state = State::failed;
    stream_error = v;
    held = false;
    probe_at = kNever;
    ulp.llp_failed(v);
}

/// Nothing more either way, by a fault.
void Stream::Impl::close(StreamError v) {
    state = State::closed;
    stream_error = v;
    sender.drop();
    ulp.llp_failed(v);
}

// -- reception --

Llp::Rx Stream::rx(ConstBytes bytes, Time) {
    Impl& s = *impl_;
    Rx result;
    if (s.state == State::startup) {
        result.taken = s.startup->rx(bytes);
        s.on_startup_progress();
        result.boundary = s.state == State::started;
    }
    switch (s.state) {
        case State::startup:
        case State::await_decision:
        case State::started:
            break;
        case State::operational:
            result = s.receive(bytes);
            break;
        case State::failed:
        case State::closed:
            result.taken = bytes.size();
            break;
    }
    update_status();
    return result;
}

Llp::Rx Stream::Impl::receive(ConstBytes bytes) {
    if (bytes.empty()) return {};
    probe_at = kNever;
    finish_at = 0;
    sender.heard();
    Rx result;
    if (awaits_rtr()) {
        // Octet by octet to the end of the RTR message: llp_established() follows it, and
        // nothing behind it may be delivered before the owner has told of that.
        std::size_t n = 1;
        while (n == 1 && result.taken < bytes.size() && !reception.delivered_any() &&
               reception.stream_error() == StreamError::none) {
            n = reception.consume(bytes.subspan(result.taken, 1), ulp);
            result.taken += n;
        }
        result.boundary = reception.delivered_any();
    } else {
        result.taken = reception.consume(bytes, ulp);
    }
    if (reception.delivered_any()) held = false;
    if (reception.stream_error() != StreamError::none) {
        fail(reception.stream_error());
        return {.taken = bytes.size()};
    }
    return result;
}

void Stream::rx_eof(Time) {
    Impl& s = *impl_;
    switch (s.state) {
        case State::startup:
        case State::await_decision:
            s.startup->rx_eof();
            s.on_startup_progress();
            break;
        case State::started:
            s.ulp.llp_closed(CloseKind::peer_finished);
            break;
        case State::operational:
            if (!s.reception.between_fpdus()) {
                s.fail(StreamError::mpa_connection_lost);
                break;
            }
            s.probe_at = kNever;
            s.ulp.llp_closed(CloseKind::peer_finished);
            break;
        case State::failed:
        case State::closed:
            break;
    }
    update_status();
}

// -- records of a kernel module --

std::size_t Stream::rx_wanted() const noexcept {
    return impl_->state == State::startup ? impl_->startup->rx_wanted() : SIZE_MAX;
}

void Stream::use_records() {
    XSOCK_ASSERT(impl_->state == State::started);
    const Negotiated& n = impl_->negotiated();
    impl_->reception.use_records(n.crc, n.markers_rx);
}

void Stream::use_octets() { impl_->reception.use_octets(); }

std::uint64_t Stream::record_octets() const noexcept { return impl_->reception.record_octets(); }

// -- transmission --

TxBatch Stream::Impl::startup_batch() {
    const ConstBytes frame = startup->tx();
    if (frame.empty()) return {};
    startup->iov = {const_cast<std::byte*>(frame.data()), frame.size()};
    return {.iov = {&startup->iov, 1},
            .group_ends = {&kOneGroup, 1},
            .bytes = frame.size(),
            .separate_groups = false};
}

TxBatch Stream::tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) {
    const TxBatch batch = impl_->prepare(scratch, byte_budget, now);
    update_status();
    return batch;
}

TxBatch Stream::Impl::prepare(Bytes scratch, std::size_t byte_budget, Time now) {
    if (state == State::startup) return startup_batch();
    if (state == State::closed || !operated) return {};
    if (sender.pending() != 0) {
        if (!sender.gathers() || ulp.tx_intact()) return sender.remainder();
        // A region was revoked with an FPDU half written: the stream can be neither continued nor
        // repaired, for nothing of a revoked region may be read.
        close(StreamError::local_fault);
        return {};
    }
    if (holds_back(now)) return {};
    return sender.prepare(ulp, scratch,
                          {.mulpdu = mulpdu(),
                           .group_bytes = cuts_anywhere() ? 0 : emss,
                           .segment_bytes = fills_segments() ? emss : 0,
                           .copy_limit = copy_limit,
                           .byte_budget = byte_budget,
                           .ramp = cuts_anywhere()});
}

void Stream::tx_commit(std::size_t n, Time) {
    Impl& s = *impl_;
    if (s.state == State::startup) {
        s.startup->tx_commit(n);
        s.on_startup_progress();
    } else if (s.state != State::closed) {
        s.sender.commit(s.ulp, n);
    }
    update_status();
}

std::size_t Stream::tx_single(Bytes frame) {
    Impl& s = *impl_;
    const Negotiated& n = s.negotiated();
    if (s.state != State::operational || s.held || !n.peer_is_xsock || s.sender.pending() != 0) {
        return 0;
    }
    const std::size_t octets = s.sender.prepare_single(s.ulp, frame);
    status_.tx_pending = octets;
    return octets;
}

void Stream::tx_keep(ConstBytes frame, Bytes scratch) { impl_->sender.keep_single(frame, scratch); }

void Stream::tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept {
    impl_->sender.move(from, n, to);
}

void Stream::tx_finished() noexcept {
    impl_->probe_at = kNever;
    update_status();
}

// -- a responder that defers --

bool Stream::accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time) {
    const bool said =
        impl_->state == State::startup && impl_->startup->accept(private_data, ird, ord);
    update_status();
    return said;
}

bool Stream::reject(ConstBytes private_data, Time) {
    const bool said = impl_->state == State::startup && impl_->startup->reject(private_data);
    update_status();
    return said;
}

// -- the offer of shared memory --

ConstBytes Stream::offer() const noexcept {
    return impl_->state == State::startup ? impl_->startup->offer() : ConstBytes{};
}

bool Stream::answer_offer(ConstBytes value) {
    const bool said = impl_->state == State::startup && impl_->startup->answer_offer(value);
    update_status();
    return said;
}

ConstBytes Stream::answer() const noexcept { return impl_->outcome.answer; }

// -- what start-up came to --

ConstBytes Stream::private_data() const noexcept {
    const Impl& s = *impl_;
    return s.startup != nullptr ? s.startup->private_data() : ConstBytes(s.outcome.private_data);
}

std::optional<Implementation> Stream::peer() const noexcept {
    const Impl& s = *impl_;
    return s.startup != nullptr ? s.startup->peer() : s.outcome.peer.get();
}

// -- time --

void Stream::on_time(Time now) {
    Impl& s = *impl_;
    if (s.state == State::startup) {
        s.startup->on_time(now);
        s.on_startup_progress();
    } else if (s.state == State::operational) {
        if (s.held && now >= s.hold_until) s.held = false;
        if (s.probe_at != kNever && now >= s.probe_at) {
            s.probe_gap = after(s.probe_gap, 3 * s.probe_gap);
            s.probe_at = --s.probes_left > 0 ? after(now, s.probe_gap) : kNever;
            s.ulp.llp_probe();
        }
    }
    update_status();
}

// -- sizes and state --

void Stream::set_emss(std::size_t emss) noexcept {
    impl_->emss = static_cast<std::uint32_t>(std::clamp(emss, kMinEmss, kMaxEmss));
}

bool Stream::wants_emss() const noexcept {
    const Negotiated& n = impl_->negotiated();
    return !n.peer_is_xsock || n.align_tx;
}

/// No FPDU need lie within a TCP segment: between xsocks, and toward a siw that agreed to it. Not
/// toward siw with CRC, for it takes one that lies across two segments for a wrong one.
bool Stream::Impl::cuts_anywhere() const noexcept {
    const Negotiated& n = negotiated();
    return !n.align_tx && (n.peer_is_xsock || (n.peer_accepts_gso && !n.crc));
}

/// The largest FPDUs are just as long as a segment, so that TCP may be given many at once and cuts
/// between them. With markers their octets vary; an EMSS that is no multiple of four none fills.
bool Stream::Impl::fills_segments() const noexcept {
    const Negotiated& n = negotiated();
    return n.align_tx && !n.markers_tx && emss % 4 == 0 && mulpdu() == emss - kFpduOverhead;
}

std::size_t Stream::Impl::mulpdu() const noexcept {
    const Negotiated& n = negotiated();
    const std::size_t possible = n.markers_tx ? kMaxUlpduWithMarkers : std::size_t{MPA_ULPDU_MAX};
    const std::size_t most = std::clamp<std::size_t>(mulpdu_limit, MPA_MULPDU_MIN, possible);
    if (cuts_anywhere()) {
        return std::clamp<std::size_t>(xsock_mulpdu, MPA_MULPDU_MIN, most);
    }
    // RFC 5044 §4.5: so that an FPDU fits into one segment, wherever the markers fall.
    std::size_t overhead = kFpduOverhead + emss % 4;
    if (n.markers_tx) {
        const std::size_t markers = (emss + MPA_MARKER_SPACING - 1) / MPA_MARKER_SPACING;
        overhead += markers * MPA_MARKER_OCTETS;
    }
    return std::clamp<std::size_t>(emss - overhead, MPA_MULPDU_MIN, most);
}

std::size_t Stream::mulpdu() const noexcept { return impl_->mulpdu(); }

void Stream::update_status() noexcept {
    const Impl& s = *impl_;
    status_.stream_error = s.stream_error;
    status_.finish_at = s.finish_at;
    if (s.state == State::startup) {
        const bool deferred = s.startup->state() == Startup::State::await_decision;
        status_.state = deferred ? State::await_decision : State::startup;
        status_.tx_pending = s.startup->tx().size();
        status_.tx_allowed = status_.tx_pending != 0;
        status_.next_timeout = s.startup->next_timeout();
        return;
    }
    status_.state = s.state;
    status_.tx_pending = s.sender.pending();
    status_.tx_allowed = s.state != State::closed && s.operated && !s.held;
    status_.next_timeout =
        s.state == State::closed ? kNever : std::min(s.held ? s.hold_until : kNever, s.probe_at);
}

const Negotiated& Stream::negotiated() const noexcept { return impl_->negotiated(); }

}  // namespace xsock::mpa
