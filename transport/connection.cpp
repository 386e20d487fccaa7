// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "ddp_user/opcode.hpp"
#include "transport/connection_config.hpp"
#include "transport/connection_report.hpp"
#include "transport/descriptors.hpp"
#include "transport/fault_handler.hpp"
#include "transport/log.hpp"
#include "transport/loss_recovery.hpp"
#include "transport/mpa_config.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

// `asked` by the program, which is told why not; or as `usual`, and a line in the log.
Result<void> choose_congestion(int fd, std::string_view asked, const std::string& usual) {
    if (!asked.empty()) return tcp::set_congestion(fd, asked);
    if (usual.empty()) return {};
    static std::atomic<bool> told{false};
    if (auto r = tcp::set_congestion(fd, usual); !r && !told.exchange(true)) {
        log(LogLevel::error, "bad-setting", "XSOCK_CONGESTION=%s: %s; the system's is used",
            usual.c_str(), r.error().what);
    }
    return {};
}

}  // namespace

Connection::Connection(Parts parts)
    : parts_(std::move(parts)),
      own_rq_(parts_.srq != nullptr
                  ? nullptr
                  : std::make_unique<RecvQueue>(parts_.attr.rq_depth, /*exclusive=*/true)),
      rq_(own_rq_ != nullptr ? *own_rq_ : *parts_.srq->queue),
      owner_(parts_.owner, Time{parts_.attr.linger_ms} * kMillisecond),
      sq_(parts_.attr.sq_depth),
      core_(core_config(parts_, sq_, rq_, stats_.counters()), *this),
      batching_(*this, *parts_.progress, parts_.send_cq->queue, parts_.recv_cq->queue),
      rx_bytes_(stats_.rx_bytes()),
      tx_bytes_(stats_.tx_bytes()) {
    static_assert(sizeof(Connection) <= 1216, "an idle connection should cost little");
    const auto& sends = parts_.send_cq->channel;
    const auto& receives = parts_.recv_cq->channel;
    set_channels({sends, receives != sends ? receives : nullptr});
}

Connection::~Connection() = default;

// ---- posting --------------------------------------------------------------

Result<void> Connection::queue_send(const SendWr& wr) {
    if (ddp::is_refused(refused_.load(std::memory_order_acquire), wr.opcode))
        return Error{EOPNOTSUPP, "the peer is not known to take such a request"};
    return sq_.post(wr);
}

Result<void> Connection::post_send(const SendWr& wr, bool gather) {
    if (auto r = queue_send(wr); !r) return r;
    if (!gather) {
        parts_.progress->notify_now(*this);
        return {};
    }
    batching_.posted(total_length(wr.sges), (wr.flags & kSendMore) != 0);
    return {};
}

Result<void> Connection::post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) {
    if (auto r = sq_.post_plain(wr_id, sge, flags); !r) return r;
    batching_.posted(sge.length, (flags & kSendMore) != 0);
    return {};
}

Result<void> Connection::post_recv(const RecvWr& wr) {
    if (parts_.srq != nullptr) {
        return Error{EOPNOTSUPP, "the endpoint takes its receives from a shared queue"};
    }
    auto posted = rq_.post(wr);
    if (!posted) return posted.error();
    if (*posted) receive_posted();
    return {};
}

void Connection::receive_posted() {
    rnr_waiting_.store(false);  // taken off the shared queue's list
    batching_.receive_posted();
}

// ---- beginning ------------------------------------------------------------

Result<void> Connection::start(int fd, const ConnectAttr& attr, PollCycle& cycle) {
    if (state() != QpState::fresh) return Error{EISCONN, "the endpoint has a connection already"};
    const std::size_t private_data_max = attr.revision >= 2 ? 508 : 512;
    if (attr.private_data.size() > private_data_max) {
        return Error{EINVAL, "too much private data"};
    }
    const TransportConfig& transport = parts_.progress->config();
    auto choice = shm_choice(attr, transport);
    if (!choice) return choice.error();
    shm_ = *choice;
    auto module = kernel_choice(attr, parts_.attr.api, transport, parts_.kernel, cycle.now());
    if (!module) return module.error();
    kernel_.choice = *module;
    const auto role =
        attr.role == ConnectAttr::Role::responder ? mpa::Role::responder : mpa::Role::initiator;
    mpa::Config config = mpa_config(attr, role, transport);
    ConnectionShared::Preparation preparation(shared_);
    if (shm_.possible()) {
        shared_ = std::make_unique<ConnectionShared>(*this, shm_);
        shared_->prepare(config.startup, fd, cycle);
    }
    if (kernel_.choice.possible()) {
        kernel_.part = std::make_unique<ConnectionKernel>(*parts_.kernel, kernel_.choice);
        kernel_.part->prepare(config.startup);
    }
    auto layer = std::make_unique<mpa::Stream>(std::move(config), core_.stream());
    const Time silence_limit = transport.peer_silence != kNever
                                   ? transport.peer_silence
                                   : Time{attr.user_timeout_ms} * kMillisecond;
    // What may run out of memory comes before the descriptor is taken.
    keep_fault_handler_by_tick();
    parts_.send_cq->add_source(*parts_.progress);
    parts_.recv_cq->add_source(*parts_.progress);
    if (auto r = choose_congestion(fd, attr.congestion, transport.congestion); !r) return r;
    if (auto r = socket_.open(fd, {attr.keepalive_s, silence_limit}, attr.shared_descriptor); !r) {
        return r;
    }
    if (auto r = parts_.progress->add(shared_from_this(), fd, kReading); !r) {
        socket_.release();
        return r;
    }
    preparation.keep();
    capture_ = Capture::begin(fd, role == mpa::Role::initiator);
    interest_ = kReading;
    mpa_ = std::move(layer);
    emss_checked_ = cycle.now();
    liveness_.begin(silence_limit, cycle.now());
    try {
        core_.start(*mpa_,
                    {.ird = attr.ird,
                     .ord = attr.ord,
                     .acknowledged = attr.acknowledged,
                     .outlives_peer = attr.outlives_peer,
                     .unreliable = attr.unreliable,
                     .confirmed = attr.confirmed,
                     .rtr_timeout = Time{attr.startup_timeout_ms} * kMillisecond},
                    cycle.now());
        if (attr.request_sent) note_request();
        // A Request, or the answer to one that was sent, may be there already.
        if (role == mpa::Role::responder || attr.request_sent) receive(cycle);
        transmit(cycle);
    } catch (...) {
        on_failure(cycle);
    }
    note_movement(cycle);
    return {};
}

Result<void> Connection::accept(std::span<const std::byte> private_data, std::uint16_t ird,
                                std::uint16_t ord, PollCycle& cycle) {
    if (auto r = core_.accept(private_data, ird, ord, cycle.now()); !r) return r;
    transmit(cycle);
    note_movement(cycle);
    return {};
}

Result<void> Connection::reject(std::span<const std::byte> private_data, PollCycle& cycle) {
    if (auto r = core_.reject(private_data, cycle.now()); !r) return r;
    transmit(cycle);
    note_movement(cycle);
    return {};
}

void Connection::confirm_start(PollCycle& cycle) {
    if (!core_.confirm_start() || !socket_.is_open()) return;
    try {
        join_channels();
        resume(cycle);
        if (socket_.is_open() && !core_.ended() && shared_ == nullptr) receive(cycle);
        transmit(cycle);
    } catch (...) {
        on_failure(cycle);
    }
    note_movement(cycle);
}

void Connection::confirm_end(PollCycle& cycle) {
    cycle.active = true;
    core_.confirm_end();
}

// ---- changes of state -----------------------------------------------------

void Connection::update(PollCycle& cycle) {
    if (!socket_.is_open() || quiet()) return;
    core_.update(cycle.now());
    if (!socket_.is_open()) return;
    // More to send than one cycle may: come again, behind the others.
    if (!core_.ended() && !tx_blocked_ && core_.tx_wanted()) parts_.progress->notify_later(*this);
    update_interest();
    update_deadline(cycle);
}

Llp& Connection::data_layer(Llp& startup) {
    // Toward an xsock FPDUs are cut anywhere, unless it asks for others.
    if (mpa_->wants_emss()) {
        if (const std::size_t emss = socket_.emss(); emss != 0) mpa_->set_emss(emss);
    }
    Llp& layer = shared_ != nullptr ? shared_->data_layer(*mpa_) : startup;
    if (shm_.possible() && shm_.path == DataPath::tcp) {
        shm_.why_not =
            startup.negotiated().extensions ? shm::Reason::peer_off : shm::Reason::extensions_off;
    }
    if (shm_.required && shm_.path == DataPath::tcp) {
        log(LogLevel::warn, "shm-required", "%s: shared memory is required, and is not used: %s",
            peer().data(), shm::name_of(shm_.why_not));
        core_.lost(EPROTONOSUPPORT, ddp::EndCause::path_refused);
    } else if (kernel_.part != nullptr && !bind_module() && kernel_.choice.required) {
        core_.lost(EOPNOTSUPP, ddp::EndCause::module_refused);
    }
    return layer;
}

void Connection::on_started() {
    refused_.store(ddp::refused_requests(core_.negotiated()), std::memory_order_release);
    if (shared_ != nullptr && !shared_->in_memory()) shared_.reset();
    if (core_.negotiated().extensions && parts_.progress->config().short_rto) {
        limit_delayed_ack(socket_.fd());
        const auto other = core_.peer();
        if (other && other->delayed_ack_ms != 0) {
            shorten_retransmission(socket_.fd(), other->delayed_ack_ms);
        }
    }
    if (!core_.is_start_held()) join_channels();
    report_start(core_, peer().data());
}

void Connection::on_state(QpState next) {
    // The owner of a PolledQp decides at once; its listener is not told.
    if (next == QpState::requested && owner_.decides_requests()) return owner_.answer(core_);
    if (core_.ended()) {
        if (shared_ != nullptr) shared_->discard();
        if (kernel_.part != nullptr) kernel_.part->stop();
        if (tx_buffer_ != nullptr) parts_.progress->give_tx_buffer(std::move(tx_buffer_));
        try {
            std::string text = report_end(core_, peer().data());
            if (!text.empty()) error_text_ = std::make_unique<const std::string>(std::move(text));
        } catch (const std::bad_alloc&) {
            // an end without words is better than none
        }
    }
    // A thread that sees the state has seen, or finds, the completions before it: verbs pushes
    // those of late posts behind them.
    parts_.progress->completions().flush();
    state_.store(next, std::memory_order_seq_cst);
    moved_ = true;
    publish();
    if (parts_.listener) parts_.listener(*this, next);
}

void Connection::finish() {
    moved_ = true;
    if (shared_ != nullptr) shared_->finish();
    socket_.finish();
    if (capture_) capture_->sent_fin();
}

void Connection::close(bool reset) {
    if (!socket_.is_open()) return;
    if (shared_ != nullptr) {
        shared_->close(reset);
        // TCP would answer what still comes by a reset. Behind our FIN, ours tells just that.
        if (shared_->in_memory() && !core_.peer_finished()) reset = true;
    }
    if (capture_ && reset) capture_->was_reset(/*by_us=*/true);
    capture_.reset();
    const DescriptorChange change;
    parts_.progress->remove(*this);
    if (reset) {
        socket_.reset();
    } else {
        socket_.close();
    }
}

void Connection::lost(int error) {
    if (capture_ && error == ECONNRESET) capture_->was_reset(/*by_us=*/false);
    core_.lost(error);
}

// ---- ending ---------------------------------------------------------------

void Connection::shutdown(PollCycle& cycle) {
    core_.shutdown(cycle.now());
    if (!core_.ended()) transmit(cycle);
    note_movement(cycle);
}

void Connection::abort(PollCycle& cycle) {
    core_.abort();
    note_movement(cycle);
}

void Connection::detach(PollCycle& cycle) {
    confirm_start(cycle);
    if (kernel_.part != nullptr) kernel_.part->stop();
    send_owed(cycle);  // it may end by a reset
    cycle.enter_section();
    core_.detach(cycle.now());
    if (!core_.ended()) transmit(cycle);
    note_movement(cycle);
}

void Connection::release(PollCycle& cycle) {
    parts_.listener = nullptr;
    confirm_start(cycle);
    cycle.active = true;
    core_.release(cycle.now());
    if (!core_.ended()) transmit(cycle);
    note_movement(cycle);
}

void Connection::request_end(End how) {
    const auto wanted = static_cast<std::uint8_t>(1 + static_cast<int>(how));
    std::uint8_t before = end_request_.load(std::memory_order_relaxed);
    while (before < wanted && !end_request_.compare_exchange_weak(before, wanted)) {
    }
    parts_.progress->notify_now(*this);
}

bool Connection::is_about_to_finish() const noexcept {
    if (!core_.closing()) {
        const std::uint8_t how = end_request_.load(std::memory_order_relaxed);
        if (how == 0) [[likely]]
            return false;
        const auto end = static_cast<End>(how - 1);
        if (end != End::shutdown && end != End::release) return false;
    }
    return core_.negotiated().peer_is_xsock;
}

void Connection::end_as_requested(PollCycle& cycle) {
    const std::uint8_t how = end_request_.exchange(0);
    if (how == 0) return;
    switch (static_cast<End>(how - 1)) {
        case End::linger:
            core_.linger(cycle.now());
            return update_deadline(cycle);
        case End::shutdown:
            return shutdown(cycle);
        case End::abort:
            return abort(cycle);
        case End::release:
            return release(cycle);
    }
}

void Connection::on_exit(PollCycle& cycle) {
    if (!draining()) shutdown(cycle);
}

void Connection::on_exit_limit(PollCycle& cycle) {
    if (!socket_.is_open() || core_.ended() || !owner_.leaves_at_exit()) return;
    if (!owner_.waits_at_exit() && sq_.posted() != sq_.retired()) {
        log(LogLevel::warn, "linger-expired",
            "%s: the process exits, and not all that was queued was complete", peer().data());
    }
    if (kernel_.part != nullptr) kernel_.part->stop();
    core_.leave(cycle.now());
    // Its end, if the peer has left, is for a later cycle: it completes requests.
    update_interest();
    update_deadline(cycle);
    note_movement(cycle);
}

bool Connection::draining() const {
    return socket_.is_open() && owner_.draining(core_, socket_, end_request_.load() != 0);
}

bool Connection::unsent() const {
    if (!socket_.is_open() || core_.ended()) return false;
    const bool in_memory = shared_ != nullptr && shared_->in_memory();
    if (in_memory && core_.stream().tx_wanted()) return true;  // without credit, too
    return owner_.unsent(core_, socket_);
}

// ---- time -----------------------------------------------------------------

void Connection::update_interest() {
    if (!socket_.is_open()) return;
    std::uint32_t wanted = 0;
    if (shared_ != nullptr && shared_->in_memory()) {
        wanted = shared_->tcp_ended() ? 0 : kReading;
    } else if (core_.rx_wanted()) {
        wanted |= kReading;
    }
    if (tx_blocked_) wanted |= EPOLLOUT;
    // Hang-up cannot be masked; told once is enough while we do not read.
    if (wanted == 0) wanted = EPOLLET;
    if (wanted == interest_) return;
    interest_ = wanted;
    parts_.progress->modify(*this, wanted);
}

void Connection::update_deadline(PollCycle& cycle) {
    if (!socket_.is_open()) return;
    Time next = core_.next_timeout(cycle.now());
    if (!core_.ended()) next = std::min({next, liveness_.due(), owner_.poll_at()});
    if (shared_ != nullptr) next = std::min(next, shared_->due());
    if (kernel_.part != nullptr) next = std::min(next, kernel_.part->due());
    parts_.progress->set_deadline(*this, next);
}

void Connection::on_time(PollCycle& cycle) {
    if (!socket_.is_open()) return;
    if (!core_.ended() && liveness_.due() <= cycle.now()) check_peer(cycle);
    if (owner_.poll_at() <= cycle.now()) owner_.poll();
    if (shared_ != nullptr) shared_->on_time(cycle);
    if (kernel_.part != nullptr) report_placed(cycle);
    if (!socket_.is_open()) return note_movement(cycle);
    cycle.enter_section();
    if (owner_.still_delivers(core_, socket_)) core_.extend_linger(cycle.now());
    core_.on_time(cycle.now());
    if (!core_.ended()) {
        note_owed();  // it may have found the receive of a message that waited
        transmit(cycle);
    }
    update_deadline(cycle);  // also when there was nothing to send
    note_movement(cycle);
}

void Connection::check_peer(PollCycle& cycle) {
    if (!liveness_.check(socket_, core_.stream().awaits_answers(), cycle.now())) return;
    const StreamErrorInfo& row = stream_error_info(StreamError::peer_silent);
    log(LogLevel::warn, row.name, "%s: nothing for %llu ms, %u attempts unanswered", peer().data(),
        static_cast<unsigned long long>(liveness_.silence() / kMillisecond), liveness_.attempts());
    core_.lost(ETIMEDOUT, ddp::EndCause::peer_silent);
}

void Connection::on_failure(PollCycle& cycle) noexcept {
    cycle.active = true;
    try {
        lost(ENOMEM);
    } catch (...) {
        close(true);  // reporting the end needed memory, too
    }
}

Result<int> Connection::descriptor() const {
    if (!socket_.is_open()) return Error{ENOTCONN, "the connection has ended"};
    return socket_.duplicate();
}

void Connection::signal_owner() const noexcept {
    if (socket_.is_open()) tcp::signal_owner(socket_.fd());
}

}  // namespace xsock
