// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"
#include "base/fault.hpp"
#include "ddp_user/segment.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

// One connection's share of a pass.
constexpr int kReadsPerPass = 4;
constexpr int kBatchesPerPass = 4;
constexpr std::size_t kOctetsPerBatch = 1024 * 1024;
constexpr long kMuch = 64 * 1024;  // beside which a look for something to read costs nothing
// Of small messages less is read at a time: they, their receives and their completions then stay in
// the first-level cache from one of the three to the next.
constexpr std::size_t kSmallRead = 48 * 1024;
constexpr std::size_t kSmallFpdu = 512;

// A flood: reads in a row that each bring at least kFloodMessages small ones while nothing is sent.
// Who polls one and is up to date looks less often: a look at an empty socket takes locks that the
// peer's system calls wait for, on loopback, and each early read acknowledges one batch alone.
// A read adds to the evidence, a look in vain takes from it.
constexpr std::uint64_t kFloodMessages = 8;
constexpr std::uint32_t kFloodPerRead = 4;
constexpr std::uint32_t kFloodSeen = 32;
constexpr std::uint32_t kFloodMost = 64;
constexpr Time kFloodPause = 1400;

// A gathering connection sends at once when this much waits: more where the caller has been seen to
// post more between two polls, at most half a batch.
constexpr std::uint32_t kGatherPosts = 256;
constexpr std::uint32_t kGatherOctets = 64 * 1024;
constexpr std::uint32_t kGatherOctetsMax = 512 * 1024;

// Room for an FPDU of a single small message. Less than the smallest limit of a ULPDU (128 bytes),
// so that the limit need not be checked there; longer inline data goes by the batch.
constexpr std::size_t kLonePayload = 96;
constexpr std::size_t kLoneOctets = 128;
static_assert(kLoneOctets >=
              MPA_LENGTH_OCTETS + ddp::kUntaggedOctets + kLonePayload + 3 + MPA_CRC_OCTETS);

// How often the segment size of the path is asked for, toward peers that care.
constexpr Time kEmssPeriod = 100 * kMillisecond;

// How long FIN waits toward a stranger when we close first. Linux siw looks whether the peer has
// finished after it has sent a segment: a FIN that follows our answer at once makes it complete the
// Send that we answered, all of which has come, with an error. And of a Reply that rejects it reads
// nothing when FIN came in the same segment: its program is not told the private data.
constexpr Time kStrangerSettle = 100 * kMillisecond;

constexpr std::uint32_t kReading = EPOLLIN | EPOLLRDHUP;

ddp::Config ddp_config(const Connection::Parts& parts, SendQueue& sq, RecvQueue& rq,
                       Counters& counters) {
    ddp::Config config;
    config.qp_num = parts.num;
    config.qp_context = parts.attr.context;
    config.pd = parts.attr.pd;
    config.require_lkeys = parts.attr.require_lkeys;
    config.rights = parts.attr.rights;
    config.memory = parts.memory;
    config.sq = &sq;
    config.rq = &rq;
    config.rq_shared = parts.srq != nullptr;
    config.spare_receive = parts.spare_receive;
    config.spare_argument = parts.spare_argument;
    config.send_cq = &parts.send_cq->queue;
    config.recv_cq = &parts.recv_cq->queue;
    config.completions = &parts.progress->completions();
    config.counters = &counters;
    return config;
}

// The errno that tells a socket programmer how a stream ended.
int errno_of(Violation violation) {
    switch (violation) {
        case Violation::none:
            return 0;
        case Violation::startup_timeout:
        case Violation::peer_silent:
            return ETIMEDOUT;
        case Violation::startup_rejected:
            return ECONNREFUSED;
        case Violation::mpa_connection_lost:
            return ECONNRESET;
        case Violation::local_fault:
            return EFAULT;
        default:
            return EPROTO;
    }
}

}  // namespace

Connection::Connection(Parts parts)
    : parts_(std::move(parts)),
      sq_(parts_.attr.sq_depth),
      rq_(parts_.srq ? parts_.srq->queue
                     : std::make_shared<RecvQueue>(parts_.attr.rq_depth, /*exclusive=*/true)),
      ddp_(ddp_config(parts_, sq_, *rq_, stats_.counters())),
      rx_octets_(stats_.rx_octets()),
      tx_octets_(stats_.tx_octets()) {
    const auto& sends = parts_.send_cq->channel;
    const auto& receives = parts_.recv_cq->channel;
    set_channels({sends, receives != sends ? receives : nullptr});
}

Connection::~Connection() {
    if (fd_ >= 0) close_owned(fd_);
}

// ---- posting --------------------------------------------------------------

Result<void> Connection::post_send(const SendWr& wr, bool gather) {
    if (is_extension(wr.opcode) && stranger_.load(std::memory_order_acquire)) {
        return Error{EOPNOTSUPP, "the peer is not known to speak RFC 7306"};
    }
    if (auto r = sq_.post(wr); !r) return r;
    if (!gather) {
        parts_.progress->kick_now(*this);
        return {};
    }
    kick_gathering(total_length(wr.sges), (wr.flags & kSendMore) != 0);
    return {};
}

Result<void> Connection::post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) {
    if (auto r = sq_.post_plain(wr_id, sge, flags); !r) return r;
    kick_gathering(sge.length, (flags & kSendMore) != 0);
    return {};
}

// The first post of a poll interval goes at once, unless the caller is known to post several in a
// row: then they gather until it polls, the budget is full, or a tick. Counted without
// read-modify-write: posters that race only misjudge how much waits.
void Connection::kick_gathering(std::uint64_t length, bool more) {
    constexpr auto relaxed = std::memory_order_relaxed;
    Progress& progress = *parts_.progress;
    const auto octets =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kGatherOctetsMax));
    const std::uint64_t interval = progress.interval();
    if (post_interval_.load(relaxed) != interval) {
        if (begin_interval(interval, octets, more)) {
            progress.kick_now(*this);
            return;
        }
    } else {
        interval_posts_.store(interval_posts_.load(relaxed) + 1, relaxed);
        interval_octets_.store(interval_octets_.load(relaxed) + octets, relaxed);
    }
    // With an armed queue no poll may follow: the program is about to sleep.
    if (interval_posts_.load(relaxed) % kGatherPosts == 0 ||
        interval_octets_.load(relaxed) >= gather_octets_.load(relaxed) ||
        (!more && (progress.has_leader() || is_watched()))) {
        kicked_octets_.store(std::min(kicked_octets_.load(relaxed) + interval_octets_.load(relaxed),
                                      kGatherOctetsMax),
                             relaxed);
        interval_octets_.store(0, relaxed);
        progress.kick_now(*this);
        return;
    }
    progress.kick_later(*this);
    // A leader that fell asleep between the look and the kick has not seen it.
    if (!more && progress.has_leader()) progress.kick_now(*this);
}

// True: this first post of an interval goes at once.
bool Connection::begin_interval(std::uint64_t interval, std::uint32_t octets, bool more) {
    constexpr auto relaxed = std::memory_order_relaxed;
    const bool streaming = interval_posts_.load(relaxed) > 1;
    const std::uint32_t before = kicked_octets_.load(relaxed) + interval_octets_.load(relaxed);
    gather_octets_.store(std::clamp(before, kGatherOctets, kGatherOctetsMax), relaxed);
    kicked_octets_.store(0, relaxed);
    post_interval_.store(interval, relaxed);
    interval_posts_.store(1, relaxed);
    interval_octets_.store(octets, relaxed);
    return !more && (!streaming || is_watched());
}

Result<void> Connection::post_recv(const RecvWr& wr) {
    if (parts_.srq != nullptr) {
        return Error{EOPNOTSUPP, "the endpoint takes its receives from a shared queue"};
    }
    auto posted = rq_->post(wr);
    if (!posted) return posted.error();
    if (*posted) receive_posted();
    return {};
}

// The first of a poll interval is offered what waits at once; those behind it gather, as sends do,
// for each would find one message and starve again.
void Connection::receive_posted() {
    starving_.store(false);  // taken off the shared queue's list
    Progress& progress = *parts_.progress;
    const std::uint64_t interval = progress.interval();
    if (starved_interval_.exchange(interval, std::memory_order_relaxed) != interval ||
        progress.has_leader()) {
        progress.kick_now(*this);
        return;
    }
    progress.kick_later(*this);
    if (progress.has_leader()) progress.kick_now(*this);
}

// ---- beginning ------------------------------------------------------------

Result<void> Connection::start(int fd, const ConnectAttr& attr, mpa::Role role, Pass& pass) {
    if (state() != QpState::fresh) return Error{EISCONN, "the endpoint has a connection already"};
    mpa::Config config;
    config.startup.role = role;
    config.startup.revision = attr.revision;
    config.startup.crc = attr.crc;
    config.startup.markers = attr.markers;
    config.startup.ird = attr.ird;
    config.startup.ord = attr.ord;
    config.startup.rtr = attr.rtr;
    if (role == mpa::Role::responder && attr.rtr == 0) {
        // Who is asked serves whatever the peer-to-peer model offers (RFC 6581 §9).
        config.startup.rtr = mpa::kRtrSend | mpa::kRtrWrite | mpa::kRtrRead;
    }
    config.startup.xsock_mark = attr.xsock_mark;
    config.startup.defer_reply = attr.defer_reply;
    config.startup.negotiate_depths = attr.revision >= 2;
    config.startup.private_data.assign(attr.private_data.begin(), attr.private_data.end());
    config.startup.timeout = Time{attr.startup_timeout_ms} * kMillisecond;
    const Time startup_limit = config.startup.timeout;
    const TransportConfig& transport = parts_.progress->config();
    config.copy_limit = transport.copy_limit;
    const std::uint32_t limit = attr.fpdu_limit != 0 ? attr.fpdu_limit : transport.fpdu_limit;
    if (limit != 0) {
        config.xsock_mulpdu = config.mulpdu_limit = std::max<std::size_t>(limit, 128);
    }
    const std::size_t private_data_max = attr.revision >= 2 ? 508 : 512;
    if (attr.private_data.size() > private_data_max) {
        return Error{EINVAL, "too much private data"};
    }

    auto stream = std::make_unique<mpa::Stream>(std::move(config), ddp_);
    const bool shared = attr.shared_descriptor;
    const Time silence_limit = transport.peer_silence != kNever
                                   ? transport.peer_silence
                                   : Time{attr.user_timeout_ms} * kMillisecond;
    if (auto r = tcp::prepare(fd, {attr.keepalive_s, silence_limit}, shared); !r) return r;
    // What may run out of memory comes before the descriptor is taken.
    fault::install();
    parts_.send_cq->add_feeder(*parts_.progress);
    parts_.recv_cq->add_feeder(*parts_.progress);
    peer_ = tcp::peer_name(fd);
    local_ = tcp::local_name(fd);
    if (auto r = parts_.progress->add(shared_from_this(), fd, kReading); !r) return r;
    fd_ = fd;
    capture_ = Capture::begin(fd, role == mpa::Role::initiator);
    shared_descriptor_ = shared;
    interest_ = kReading;
    mpa_ = std::move(stream);
    ddp_.set_depths(attr.ird, attr.ord);  // unless start-up negotiates others
    if (attr.acknowledged) ddp_.set_acknowledged();
    outlives_peer_ = attr.outlives_peer;
    confirmed_ = attr.confirmed;
    if (const std::size_t emss = tcp::emss(fd); emss != 0) mpa_->set_emss(emss);
    emss_checked_ = pass.now();
    startup_deadline_ = time_after(pass.now(), startup_limit);
    peer_watch_.begin(silence_limit, pass.now());
    try {
        set_state(QpState::starting, pass);
        mpa_->start(pass.now());
        transmit(pass);  // an initiator speaks before it listens
        receive(pass);   // a Request may be there already
        transmit(pass);
    } catch (...) {
        on_failure(pass);
    }
    return {};
}

Result<void> Connection::accept(std::span<const std::byte> private_data, std::uint16_t ird,
                                std::uint16_t ord, Pass& pass) {
    if (state() != QpState::requested) return Error{EINVAL, "no Request waits for an answer"};
    if (!mpa_->accept(private_data, ird, ord, pass.now())) {
        return Error{EINVAL, "too much private data"};
    }
    set_state(QpState::starting, pass);
    transmit(pass);
    return {};
}

Result<void> Connection::reject(std::span<const std::byte> private_data, Pass& pass) {
    if (state() != QpState::requested) return Error{EINVAL, "no Request waits for an answer"};
    if (!mpa_->reject(private_data, pass.now())) return Error{EINVAL, "too much private data"};
    transmit(pass);
    return {};
}

// ---- reception ------------------------------------------------------------

void Connection::on_ready(std::uint32_t events, Pass& pass) {
    if (fd_ < 0) return;
    if ((events & (EPOLLOUT | EPOLLERR)) != 0) count_arrival();
    if ((events & EPOLLOUT) != 0) tx_blocked_ = false;
    if ((events & EPOLLERR) != 0 && (!stash_.empty() || eof_)) {
        // Nothing is read any more, or not now: the reset must be asked for.
        // (Behind the peer's FIN, Linux calls a reset EPIPE.)
        const int error = tcp::pending_error(fd_);
        lost(error != 0 && error != EPIPE ? error : ECONNRESET, pass);
        return;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        // What was posted is served by kicks: a look that found nothing has nothing to send either.
        if (!receive(pass) && (events & EPOLLOUT) == 0) return;
        if (quiet()) return;
    }
    transmit(pass);
}

void Connection::on_kick(Pass& pass) {
    if (fd_ < 0) return;
    if (!stash_.empty() && !start_held_) resume(pass);
    transmit(pass);
}

// MPA wants the time only while one of its timers runs.
Time Connection::mpa_time(Pass& pass) const noexcept {
    return steady_ && mpa_->next_timeout() == kNever ? 0 : pass.now();
}

// Hands octets to MPA. False when the program's memory failed underneath, or ours ran out.
bool Connection::consume(ConstBytes octets, Pass& pass) {
    pass.enter_section();
    std::size_t taken = 0;
    while (taken < octets.size() && !ended_) {
        // Until the start is over octet by octet, so that nothing is delivered before its event.
        const bool starting = !connected_event_;
        const ConstBytes piece = octets.subspan(taken, starting ? 1 : octets.size() - taken);
        std::size_t n = 0;
        bool memory = true;
        if (!fault::guard([&] {
                try {
                    n = mpa_->rx_consume(piece, mpa_time(pass));
                } catch (...) {
                    memory = false;
                }
            })) {
            note("a registered or posted buffer was unmapped under a transfer");
            log(LogLevel::warn, "local-fault", "%s: %s; connection reset", peer_.c_str(),
                error_text_.c_str());
            end(QpState::error, EFAULT, WcStatus::local_protection_error, false, pass);
            return false;
        }
        if (!memory) {
            lost(ENOMEM, pass);
            return false;
        }
        taken += n;
        if (n > 0) pass.active = true;
        if (starting) settle_start(pass);
        if (n < piece.size() || start_held_) break;
    }
    if (taken < octets.size()) {
        if (stash_.empty()) {
            stash_.assign(octets.begin() + static_cast<std::ptrdiff_t>(taken), octets.end());
            stash_at_ = 0;
        } else {
            stash_at_ += taken;
        }
    } else {
        stash_.clear();
    }
    return true;
}

// Reads and takes what there is, within this pass's share. False when there was nothing.
bool Connection::receive(Pass& pass) {
    bool found = false;
    enough_read_ = false;
    if (start_held_) return false;
    for (int i = 0; i < kReadsPerPass && fd_ >= 0 && !eof_ && stash_.empty(); ++i) {
        const Bytes room = small_fpdus_ ? pass.staging.first(kSmallRead) : pass.staging;
        const long n = tcp::receive(fd_, room);
        if (n == -EAGAIN) {
            if (found || pass.patience == 0) break;
            if (flood_ >= kFloodSeen) parts_.progress->relax(kFloodPause);
            if (flood_ > 0) --flood_;
            --pass.patience;
            --i;
            continue;
        }
        found = true;
        count_arrival();
        if (n > 0) {
            rx_octets_ += static_cast<std::uint64_t>(n);
            if (capture_) [[unlikely]]
                capture_->received(pass.staging.first(static_cast<std::size_t>(n)));
            if (ended_) {  // only waiting for the peer's FIN
                pass.active = true;
                continue;
            }
            const ConstBytes octets = pass.staging.first(static_cast<std::size_t>(n));
            const std::uint64_t before = ddp_.counters().rx_segments;
            const std::uint64_t writes = ddp_.counters().rx_messages[RDMAP_WRITE];
            if (!consume(octets, pass)) break;
            if (ddp_.counters().rx_messages[RDMAP_WRITE] != writes) count_write();
            const std::uint64_t messages = ddp_.counters().rx_segments - before;
            small_fpdus_ = messages * kSmallFpdu > octets.size();
            const bool sent = flood_tx_octets_ != tx_octets_;
            flood_tx_octets_ = tx_octets_;
            const bool flooded = small_fpdus_ && messages >= kFloodMessages && !sent;
            flood_ = flooded ? std::min(flood_ + kFloodPerRead, kFloodMost) : 0;
            if (start_held_) break;
            if (!stash_.empty()) resume(pass);
            if (static_cast<std::size_t>(n) < room.size()) break;
            if (enough_read_) break;
        } else if (n == 0) {
            eof_ = true;
            pass.active = true;
            if (capture_) capture_->received_fin();
            if (!ended_) mpa_->rx_eof(pass.now());
        } else if (n != -EINTR) {
            lost(static_cast<int>(-n), pass);
        }
    }
    return found;
}

// Offers the stash again: after a receive was posted, or right after the queue was found empty (a
// shared queue may have been filled between the look and the note that we starve).
void Connection::resume(Pass& pass) {
    if (ended_) {
        stash_.clear();
        return;
    }
    if (parts_.srq != nullptr && ddp_.rx_blocked()) {
        if (!starving_.exchange(true)) {
            parts_.srq->starve(std::static_pointer_cast<Connection>(shared_from_this()));
        }
    }
    const ConstBytes rest = ConstBytes(stash_).subspan(stash_at_);
    if (!consume(rest, pass)) return;
    if (stash_.empty()) {
        stash_.shrink_to_fit();
        starve_deadline_ = kNever;
    } else if (ddp_.rx_blocked() && starve_deadline_ == kNever && !released_) {
        starve_deadline_ = time_after(pass.now(), parts_.attr.receive_patience);
    } else if (!ddp_.rx_blocked()) {
        starve_deadline_ = kNever;
    }
}

// ---- transmission ---------------------------------------------------------

bool Connection::tx_wanted() const {
    if (fin_sent_) return false;  // nothing may follow
    if (mpa_->tx_pending() != 0) return true;
    if (!mpa_->tx_allowed()) return false;
    switch (mpa_->state()) {
        case mpa::Stream::State::startup:
        case mpa::Stream::State::await_decision:
            return true;
        case mpa::Stream::State::operational:
        case mpa::Stream::State::failed:
            return ddp_.tx_wanted();
        case mpa::Stream::State::closed:
            return false;
    }
    return false;
}

// Established, nothing to send, nothing out of the ordinary: the state after nearly every message.
bool Connection::quiet() const {
    return steady_ && !start_held_ && ddp_.state() == ddp::Stream::State::established && !eof_ &&
           !tx_blocked_ && stash_.empty() && interest_ == kReading && !tx_wanted() &&
           mpa_->next_timeout() == kNever;
}

// One small message with nothing before it is laid out here and needs neither a batch nor, since
// its octets are ours, a guard: 900 instructions ahead of the system call become 300. Answers how
// much of it was written; less than all is the beginning of the next batch.
std::size_t Connection::transmit_lone(Pass& pass) {
    std::array<std::byte, kLoneOctets> frame;
    const std::size_t size = mpa_->tx_lone(frame);
    if (size == 0) return 0;
    const long n = tcp::send(fd_, ConstBytes(frame).first(size));
    if (n <= 0) return 0;  // the batch meets the same fault
    if (static_cast<std::size_t>(n) < size) return static_cast<std::size_t>(n);
    pass.active = true;
    tx_octets_ += size;
    if (capture_) [[unlikely]]
        capture_->sent(ConstBytes(frame).first(size));
    mpa_->tx_lone_done();
    return 0;
}

void Connection::transmit(Pass& pass) {
    if (fd_ < 0) return;
    std::size_t written = 0;  // of the next batch
    if (steady_ && !tx_blocked_) {
        written = transmit_lone(pass);
        if (quiet()) return;
    }
    if (!mpa_->negotiated().peer_is_xsock && pass.now() - emss_checked_ > kEmssPeriod && !ended_) {
        emss_checked_ = pass.now();
        if (const std::size_t emss = tcp::emss(fd_); emss != 0) mpa_->set_emss(emss);
    }
    for (int i = 0; i < kBatchesPerPass && !tx_blocked_ && !ended_ && tx_wanted(); ++i) {
        if (tx_buffer_ == nullptr) tx_buffer_ = parts_.progress->take_tx_buffer();
        pass.enter_section();
        mpa::TxBatch batch;
        bool memory = true;
        if (!fault::guard([&] {
                try {
                    batch = mpa_->tx_prepare(tx_buffer_->bytes(), kOctetsPerBatch, mpa_time(pass));
                } catch (...) {
                    memory = false;
                }
            })) {
            note("a buffer that was being sent was unmapped");
            log(LogLevel::warn, "local-fault", "%s: %s; connection reset", peer_.c_str(),
                error_text_.c_str());
            end(QpState::error, EFAULT, WcStatus::local_protection_error, false, pass);
            return;
        }
        if (!memory) {
            lost(ENOMEM, pass);
            return;
        }
        if (batch.octets == 0) {
            pass.active = true;  // entries that send nothing may have completed
            break;
        }
        const long n =
            written != 0 ? static_cast<long>(std::exchange(written, 0)) : tcp::send(fd_, batch);
        if (n < 0) {
            if (n == -EAGAIN || n == -ENOBUFS || n == -EINTR) {
                tx_blocked_ = n != -EINTR;
                continue;
            }
            if (n == -EFAULT) {
                end(QpState::error, EFAULT, WcStatus::local_protection_error, false, pass);
            } else {
                // The peer's last words, a Terminate perhaps, may still lie before its reset.
                if (stash_.empty() && !eof_) receive(pass);
                if (fd_ >= 0 && !ended_) settle_end(pass);
                lost(static_cast<int>(-n), pass);
            }
            return;
        }
        pass.active = true;
        tx_octets_ += static_cast<std::uint64_t>(n);
        if (n >= kMuch) pass.sent_much = true;
        if (capture_) [[unlikely]]
            capture_->sent(batch.iov, static_cast<std::size_t>(n));
        mpa_->tx_commit(static_cast<std::size_t>(n), mpa_time(pass));
        if (static_cast<std::size_t>(n) < batch.octets) tx_blocked_ = true;
    }
    if (tx_buffer_ != nullptr && mpa_->tx_pending() == 0) {
        parts_.progress->give_tx_buffer(std::move(tx_buffer_));
    }
    settle(pass);
}

// ---- changes of state -----------------------------------------------------

void Connection::settle(Pass& pass) {
    if (fd_ < 0) return;
    if (quiet()) return;
    if (!ended_) settle_start(pass);
    if (!ended_) settle_end(pass);
    if (fd_ < 0) return;
    if (ended_ && (eof_ || !(fin_sent_ || fin_owed_))) {
        // What we had to say is said, and the peer has finished (or nobody waits for it).
        close_descriptor(!eof_ && state() == QpState::error && !fin_sent_);
        return;
    }
    // More to send than one pass may: come again, behind the others.
    if (!ended_ && !tx_blocked_ && tx_wanted()) parts_.progress->kick_later(*this);
    update_interest();
    update_deadline(pass);
}

void Connection::settle_start(Pass& pass) {
    const QpState now = state();
    if (now != QpState::starting && now != QpState::requested && !closing_) return;
    if (now == QpState::starting && mpa_->state() == mpa::Stream::State::await_decision) {
        set_state(QpState::requested, pass);
    }
    if (!connected_event_ && ddp_.state() == ddp::Stream::State::established) {
        connected_event_ = true;
        stranger_.store(!mpa_->negotiated().peer_is_xsock, std::memory_order_release);
        push_event(WcOpcode::connected, WcStatus::success);
        start_held_ = confirmed_ && !closing_;
        ddp_.hold_sends(start_held_);
        if (!start_held_) parts_.progress->join_channels(*this);
        if (!closing_) set_state(QpState::established, pass);
        const Negotiated& n = mpa_->negotiated();
        log(LogLevel::info, "connected",
            "%s: %s, MPA revision %u, CRC %s, markers tx %s rx %s, peer %s", peer_.c_str(),
            n.initiator ? "initiator" : "responder", n.revision, n.crc ? "on" : "off",
            n.markers_tx ? "on" : "off", n.markers_rx ? "on" : "off",
            n.peer_is_xsock ? "xsock" : "other");
    }
}

void Connection::settle_end(Pass& pass) {
    const bool sending_terminate = ddp_.state() == ddp::Stream::State::terminating;
    if (ddp_.state() == ddp::Stream::State::ended && ddp_.terminate_received() != nullptr) {
        describe_end();
        end(QpState::error, EPROTO, WcStatus::flushed, true, pass);
        return;
    }
    if (sending_terminate && linger_deadline_ == kNever) {
        // A peer that does not read must not keep us.
        linger_deadline_ = time_after(pass.now(), Time{parts_.attr.linger_ms} * kMillisecond);
    }
    if (mpa_->tx_pending() != 0 && !eof_) return;  // first things first: a Terminate, a Reply
    if (ddp_.state() == ddp::Stream::State::ended || mpa_->state() == mpa::Stream::State::closed ||
        (mpa_->state() == mpa::Stream::State::failed && !sending_terminate)) {
        describe_end();
        const Violation v =
            ddp_.violation() != Violation::none ? ddp_.violation() : mpa_->violation();
        const bool lost_it = v == Violation::mpa_connection_lost;
        const bool said_something =
            ddp_.terminate_sent() != nullptr ||
            (mpa_->state() == mpa::Stream::State::closed && tx_octets_ != 0);
        if (v == Violation::none) {
            end(QpState::closed, 0, WcStatus::flushed, true, pass);
        } else {
            end(QpState::error, errno_of(v),
                lost_it ? WcStatus::connection_lost : WcStatus::flushed, said_something, pass);
        }
        return;
    }
    if (sending_terminate) {
        if (!fin_sent_) return;
        describe_end();  // too late to tell the peer
        end(QpState::error, errno_of(ddp_.violation()), WcStatus::flushed, false, pass);
        return;
    }
    if (eof_ && stash_.empty() && !receives_over_) {
        receives_over_ = true;
        pass.active = true;
        if ((outlives_peer_ || (confirmed_ && !end_confirmed_)) && !closing_) {
            ddp_.peer_finished();
        } else {
            ddp_.flush_receives();  // Reads too: no answer can come any more
        }
        if (!closing_ && !outlives_peer_) {
            push_event(WcOpcode::closed, WcStatus::success);
            set_state(QpState::peer_closed, pass);
        }
    }
    if (closing_ && !fin_sent_ && connected_event_ && ddp_.drained() && mpa_->tx_pending() == 0 &&
        (eof_ || std::max(mpa_->finish_at(), finish_at_) <= pass.now())) {
        finish();
        pass.active = true;
    }
    // A message that nobody will receive any more (the owner has let go) must not hold the peer.
    const bool unwanted = released_ && fin_sent_ && ddp_.rx_blocked();
    if (fin_sent_ && (eof_ || unwanted)) end(QpState::closed, 0, WcStatus::flushed, true, pass);
}

// Says in words why the stream is over, once, for the log and for info().
void Connection::describe_end() {
    if (!error_text_.empty()) return;
    char text[256];
    if (const ddp::TerminateInfo* t = ddp_.terminate_received()) {
        std::snprintf(text, sizeof text, "peer terminated: %s (layer %u, type %u, code %02x%s)",
                      terminate_text(t->layer, t->etype, t->code), t->layer, t->etype, t->code,
                      t->swapped ? ", control word swapped as siw does" : "");
        note(text);
        // The other reading too: where both name an error, only the peer's maker can tell.
        const auto high = static_cast<std::uint8_t>(t->first >> 4);
        const auto low = static_cast<std::uint8_t>(t->first & 0x0f);
        const std::uint8_t layer = t->swapped ? high : low, etype = t->swapped ? low : high;
        log(LogLevel::warn, "terminate-received",
            "%s: %s; first octet %02x, read as %s lays it out: %s (layer %u, type %u)",
            peer_.c_str(), text, t->first, t->swapped ? "RFC 5040" : "siw",
            terminate_text(layer, etype, t->code), layer, etype);
        return;
    }
    const Violation v = ddp_.violation() != Violation::none ? ddp_.violation() : mpa_->violation();
    if (v == Violation::none) return;
    const ViolationInfo& row = violation_info(v);
    std::snprintf(text, sizeof text, "%s (%s)", row.text, row.rfc);
    note(text);
    log(LogLevel::warn, row.name, "%s: %s%s", peer_.c_str(), text,
        ddp_.terminate_sent() != nullptr ? "; Terminate sent" : "");
}

void Connection::note(const char* text) { error_text_ = text; }

void Connection::lost(int error, Pass& pass) {
    if (capture_ && error == ECONNRESET) capture_->was_reset(/*by_us=*/false);
    if (!ended_) {
        if (error_text_.empty()) {
            note((std::string("connection lost: ") + std::strerror(error)).c_str());
            log(LogLevel::info, "connection-lost", "%s: %s", peer_.c_str(), std::strerror(error));
        }
        mpa_->lost();
        end(QpState::error, error, WcStatus::connection_lost, false, pass);
    }
    close_descriptor(false);
}

// FIN, once. MPA must not be asked for anything behind it.
void Connection::finish() {
    if (fin_sent_) return;
    tcp::finish(fd_);
    if (capture_) capture_->sent_fin();
    mpa_->tx_finished();
    fin_sent_ = true;
    fin_owed_ = false;
}

// The end of all posted work. `orderly`: what was written shall still reach the peer, so we finish
// and wait for its FIN a while; otherwise the descriptor goes at once.
void Connection::end(QpState state, int error, WcStatus status, bool orderly, Pass& pass) {
    if (ended_) return;
    ended_ = true;
    pass.active = true;
    error_ = error;
    const bool told = this->state() == QpState::peer_closed;
    // The program is told first, unless the end is its own doing or a fault of the stream.
    const bool peer_left = told || (state == QpState::error && status == WcStatus::connection_lost);
    if (confirmed_ && !end_confirmed_ && connected_event_ && !released_ && peer_left) {
        flush_held_ = status;
    } else {
        ddp_.flush(status);
    }
    if (!told) {
        push_event(WcOpcode::closed, state == QpState::closed ? WcStatus::success
                                     : status == WcStatus::flushed
                                         ? WcStatus::remote_operation_error
                                         : status);
    }
    set_state(state, pass);
    stash_ = {};
    starve_deadline_ = kNever;
    if (tx_buffer_ != nullptr) parts_.progress->give_tx_buffer(std::move(tx_buffer_));
    if (!orderly) {
        close_descriptor(state == QpState::error);
        return;
    }
    const bool rejects = mpa_ != nullptr && !mpa_->negotiated().initiator && !connected_event_;
    fin_owed_ = rejects && !mpa_->negotiated().peer_is_xsock && !eof_;
    if (fin_owed_) {
        finish_at_ = time_after(pass.now(), kStrangerSettle);
    } else {
        finish();
    }
    if (eof_) {
        close_descriptor(false);
        return;
    }
    linger_deadline_ = time_after(pass.now(), Time{parts_.attr.linger_ms} * kMillisecond);
    update_interest();
    update_deadline(pass);
}

void Connection::close_descriptor(bool reset) {
    if (fd_ < 0) return;
    if (capture_ && reset) capture_->was_reset(/*by_us=*/true);
    capture_.reset();
    const DescriptorChange change;
    parts_.progress->remove(*this);
    disown_descriptor(fd_);
    if (shared_descriptor_ && reset) {
        tcp::disconnect(fd_);
    } else if (shared_descriptor_) {
        tcp::finish_and_close(fd_);
    } else if (reset) {
        tcp::reset(fd_);
    } else {
        ::close(fd_);
    }
    fd_ = -1;
}

void Connection::set_state(QpState next, Pass& pass) {
    if (state() == next) return;
    // Whoever sees the state has seen, or finds, the completions that came before it: verbs pushes
    // those of late posts behind them.
    parts_.progress->completions().flush();
    state_.store(next, std::memory_order_seq_cst);
    steady_ = next == QpState::established;
    pass.active = true;
    publish();
    if (parts_.listener) parts_.listener(*this, next);
}

// What `xsock stat` shows besides the counters, which it reads where we count.
void Connection::publish() noexcept {
    StatsDescription d{};
    d.qp_num = parts_.num;
    d.ird = ddp_.ird();
    d.ord = ddp_.ord();
    d.face = static_cast<std::uint8_t>(parts_.attr.face);
    d.state = static_cast<std::uint8_t>(state());
    d.error = error_;
    Violation violation = ddp_.violation();
    if (mpa_ != nullptr) {
        if (violation == Violation::none) violation = mpa_->violation();
        const Negotiated& n = mpa_->negotiated();
        d.mulpdu = static_cast<std::uint32_t>(mpa_->mulpdu());
        d.revision = connected_event_ ? n.revision : 0;
        d.initiator = n.initiator;
        d.crc = n.crc;
        d.markers_tx = n.markers_tx;
        d.markers_rx = n.markers_rx;
        d.peer_is_xsock = n.peer_is_xsock;
    }
    d.violation = static_cast<std::uint8_t>(violation);
    set_stats_text(d.local, local_.c_str());
    set_stats_text(d.peer, peer_.c_str());
    set_stats_text(d.error_text, error_text_.c_str());
    stats_.describe(d);
}

void Connection::push_event(WcOpcode opcode, WcStatus status) {
    if (!parts_.attr.event_completions || released_) return;
    Wc wc;
    wc.opcode = opcode;
    wc.status = status;
    wc.qp_num = parts_.num;
    wc.qp_context = parts_.attr.context;
    parts_.progress->completions().push(parts_.recv_cq->queue, wc);
}

// ---- ending ---------------------------------------------------------------

void Connection::shutdown(Pass& pass) {
    if (ended_ || closing_) return;
    sq_.close();
    closing_ = true;
    if (state() == QpState::fresh) {
        end_without_connection(QpState::closed, pass);
        return;
    }
    if (stranger_.load(std::memory_order_relaxed)) {
        finish_at_ = time_after(pass.now(), kStrangerSettle);
    }
    if (state() == QpState::established) set_state(QpState::closing, pass);
    transmit(pass);
}

void Connection::end_without_connection(QpState state, Pass& pass) {
    ended_ = true;
    ddp_.flush(WcStatus::flushed);
    set_state(state, pass);
}

void Connection::abort(Pass& pass) {
    confirm_end(pass);
    if (ended_) {
        close_descriptor(true);
        return;
    }
    sq_.close();
    if (state() == QpState::fresh) {
        end_without_connection(QpState::error, pass);
        return;
    }
    note("aborted by this program");
    end(QpState::error, ECONNABORTED, WcStatus::flushed, false, pass);
}

// What is known to the program may happen: receiving and sending begin.
void Connection::confirm_start(Pass& pass) {
    if (!start_held_) return;
    start_held_ = false;
    ddp_.hold_sends(false);
    if (fd_ < 0 || ended_) return;
    try {
        parts_.progress->join_channels(*this);
        if (!stash_.empty()) resume(pass);
        if (fd_ >= 0 && !ended_) receive(pass);
        transmit(pass);
    } catch (...) {
        on_failure(pass);
    }
}

void Connection::confirm_end(Pass& pass) {
    end_confirmed_ = true;
    if (flush_held_) {
        pass.active = true;
        ddp_.flush(*flush_held_);
        flush_held_.reset();
    } else if (eof_ && !ended_ && receives_over_ && !outlives_peer_) {
        pass.active = true;
        ddp_.flush_receives();
    }
}

void Connection::detach(Pass& pass) {
    confirm_start(pass);
    confirm_end(pass);
    if (ended_) return;
    const QpState now = state();
    const bool in_order =
        now == QpState::established || now == QpState::peer_closed || now == QpState::closing;
    if (!in_order || sq_.posted() != sq_.retired()) {
        abort(pass);
        return;
    }
    shutdown(pass);
    if (ended_) return;
    if (parts_.srq != nullptr) {
        unshared_ = std::make_unique<RecvQueue>(1);
        ddp_.leave_shared_queue(*unshared_);
    }
    ddp_.flush_receives();
    ddp_.stop_listening();
    starve_deadline_ = kNever;
    linger_deadline_ = time_after(pass.now(), Time{parts_.attr.linger_ms} * kMillisecond);
    released_ = true;
    if (!stash_.empty()) resume(pass);  // what waited for a receive goes by
    transmit(pass);
}

void Connection::release(Pass& pass) {
    parts_.listener = nullptr;
    confirm_start(pass);
    confirm_end(pass);
    released_ = true;
    if (ended_) return;
    if (state() == QpState::starting || state() == QpState::requested) {
        // Nobody wants it any more; what was posted meanwhile still goes if start-up succeeds.
        if (sq_.posted() == sq_.retired()) {
            abort(pass);
            return;
        }
    }
    pass.active = true;
    if (parts_.srq != nullptr) {
        // Later messages must not use up what others share: they find an empty queue of our own.
        unshared_ = std::make_unique<RecvQueue>(1);
        ddp_.leave_shared_queue(*unshared_);
    }
    flush_posted_receives();
    starve_deadline_ = kNever;  // nobody will post one: the linger time decides
    linger_deadline_ = time_after(pass.now(), Time{parts_.attr.linger_ms} * kMillisecond);
    shutdown(pass);
    if (!ended_) transmit(pass);  // also when shutdown() had been called before
}

// Posted receives will not be used. One that a message has begun to fill ends with the connection.
void Connection::flush_posted_receives() {
    if (parts_.srq != nullptr) return;
    rq_->close();
    RecvWqe wqe;
    while (rq_->take(wqe)) {
        Wc wc;
        wc.wr_id = wqe.wr_id;
        wc.opcode = WcOpcode::recv;
        wc.status = WcStatus::flushed;
        wc.qp_num = parts_.num;
        wc.qp_context = parts_.attr.context;
        parts_.progress->completions().push(parts_.recv_cq->queue, wc);
    }
}

bool Connection::move_receive(std::uint64_t wr_id, const RecvWqe& other, Pass& pass) {
    pass.enter_section();
    bool moved = false;
    if (!fault::guard([&] { moved = ddp_.move_receive(wr_id, other); })) {
        note("a buffer that was being filled was unmapped");
        end(QpState::error, EFAULT, WcStatus::local_protection_error, false, pass);
        return false;
    }
    return moved;
}

bool Connection::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to, Pass& pass) {
    if (ended_) return false;
    pass.enter_section();
    ConstBytes from;
    if (!fault::guard([&] { from = ddp_.move_send(wr_id, new_id, to); })) {
        note("a buffer that was being sent was unmapped");
        end(QpState::error, EFAULT, WcStatus::local_protection_error, false, pass);
        return false;
    }
    if (from.empty()) return false;
    if (mpa_ != nullptr) mpa_->tx_move(from.data(), from.size(), to);
    return true;
}

// ---- time -----------------------------------------------------------------

void Connection::update_interest() {
    if (fd_ < 0) return;
    std::uint32_t wanted = 0;
    if (stash_.empty() && !eof_ && !start_held_) wanted |= kReading;
    if (tx_blocked_) wanted |= EPOLLOUT;
    // Hang-up cannot be masked; told once is enough while we do not read.
    if (wanted == 0) wanted = EPOLLET;
    if (wanted == interest_) return;
    interest_ = wanted;
    parts_.progress->modify(*this, wanted);
}

void Connection::update_deadline(Pass& pass) {
    if (fd_ < 0) return;
    Time next = std::min(starve_deadline_, linger_deadline_);
    if (!ended_) next = std::min(next, mpa_->next_timeout());
    const Time finish_at = std::max(mpa_->finish_at(), finish_at_);
    if (!ended_ && closing_ && !fin_sent_ && finish_at > pass.now()) {
        next = std::min(next, finish_at);
    }
    if (fin_owed_) next = std::min(next, finish_at_);
    if (!ended_ && awaiting_rtr()) next = std::min(next, startup_deadline_);
    if (!ended_) next = std::min(next, peer_watch_.due());
    parts_.progress->set_deadline(*this, next);
}

void Connection::on_time(Pass& pass) {
    if (fd_ < 0) return;
    if (ended_) {
        if (fin_owed_ && pass.now() >= finish_at_) finish();
        if (pass.now() >= linger_deadline_) close_descriptor(false);
        update_deadline(pass);
        return;
    }
    if (peer_watch_.due() <= pass.now()) {
        check_peer(pass);
        if (fd_ < 0 || ended_) return;
    }
    if (mpa_->next_timeout() <= pass.now()) mpa_->on_time(pass.now());
    if (awaiting_rtr() && startup_deadline_ <= pass.now()) ddp_.fail(Violation::startup_timeout);
    if (starve_deadline_ <= pass.now()) {
        starve_deadline_ = kNever;
        ddp_.receive_overdue();
        if (!stash_.empty()) resume(pass);  // consumed and dropped from here on
    }
    if (linger_deadline_ <= pass.now() && fin_sent_) {
        // All was said; the peer does not care to finish.
        end(QpState::closed, 0, WcStatus::flushed, false, pass);
        return;
    }
    if (linger_deadline_ <= pass.now()) {
        note("what was queued could not be sent within the linger time");
        log(LogLevel::warn, "linger-expired", "%s: %s", peer_.c_str(), error_text_.c_str());
        end(QpState::error, ETIMEDOUT, WcStatus::flushed, false, pass);
        return;
    }
    transmit(pass);
    update_deadline(pass);  // also when there was nothing to send
}

void Connection::check_peer(Pass& pass) {
    if (!peer_watch_.look(fd_, ddp_.awaits_answers(), pass.now())) return;
    const ViolationInfo& row = violation_info(Violation::peer_silent);
    note(row.text);
    log(LogLevel::warn, row.name, "%s: nothing for %llu ms, %u attempts unanswered", peer_.c_str(),
        static_cast<unsigned long long>(peer_watch_.silence() / kMillisecond),
        peer_watch_.attempts());
    mpa_->lost();
    end(QpState::error, ETIMEDOUT, WcStatus::connection_lost, false, pass);
}

void Connection::on_failure(Pass& pass) noexcept {
    try {
        lost(ENOMEM, pass);
    } catch (...) {
        close_descriptor(true);  // even the telling needed memory
    }
}

Result<int> Connection::descriptor() const {
    if (fd_ < 0) return Error{ENOTCONN, "the connection has ended"};
    const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return Error{errno, "the descriptor cannot be duplicated"};
    return copy;
}

bool Connection::draining() const {
    return fd_ >= 0 && !ended_ && closing_ && !fin_sent_ && connected_event_;
}

QpInfo Connection::info() const {
    QpInfo info;
    info.state = state();
    info.error = error_;
    info.error_text = error_text_;
    info.violation = ddp_.violation();
    info.ird = ddp_.ird();
    info.ord = ddp_.ord();
    info.rx_octets = rx_octets_;
    info.tx_octets = tx_octets_;
    if (mpa_ != nullptr) {
        info.negotiated = mpa_->negotiated();
        const bool rtr = info.negotiated.rtr == Rtr::write && !info.negotiated.initiator;
        const std::uint64_t writes = ddp_.counters().rx_messages[RDMAP_WRITE];
        info.rx_writes = writes - (rtr && writes != 0 ? 1 : 0);
        info.mulpdu = mpa_->mulpdu();
        if (info.violation == Violation::none) info.violation = mpa_->violation();
        const ConstBytes data = mpa_->private_data();
        info.private_data.assign(data.begin(), data.end());
    }
    return info;
}

}  // namespace xsock
