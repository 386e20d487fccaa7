// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection_shared.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "include/xsock/iwarp.h"
#include "mpa/extension_frame.hpp"
#include "transport/connection.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

/// The link has ended and TCP has not said so: the peer's process may be in the middle of its exit.
constexpr Time kEndDelay = 200 * kMillisecond;

bool is_loopback(const IpAddress& address) noexcept {
    constexpr std::size_t kIpv4At = 12;
    if (address.is_ipv4()) return address.octets[kIpv4At] == 127;
    IpAddress loopback;
    loopback.octets.back() = 1;
    return address == loopback;
}

}  // namespace

// Closed, unless the Progress is destroyed.
ConnectionShared::~ConnectionShared() { leave_node(); }

ConnectionShared::Preparation::~Preparation() {
    if (shared_ == nullptr || *shared_ == nullptr) return;
    (*shared_)->close(/*reset=*/false);
    shared_->reset();
}

// ---- start-up ---------------------------------------------------------------

void ConnectionShared::stay_on_tcp(shm::Reason why) {
    choice_.why_not = why;
    leave_node();
    stream_.reset();
}

/// False: the peer is elsewhere, or seems so. With a folder that processes of other network
/// namespaces see, addresses do not tell.
bool ConnectionShared::may_be_here(const IpEndpoint& local, const IpEndpoint& peer) const noexcept {
    if (local == IpEndpoint{} || peer == IpEndpoint{}) return false;
    return local.address == peer.address || is_loopback(peer.address) ||
           !connection_.progress().config().shm_folder.empty();
}

void ConnectionShared::prepare(mpa::StartupConfig& config, int fd, PollCycle& cycle) {
    const IpEndpoint local = tcp::local_of(fd).endpoint, peer = tcp::peer_of(fd).endpoint;
    if (!may_be_here(local, peer)) return stay_on_tcp(shm::Reason::remote);
    if (config.role == mpa::Role::initiator) {
        config.answers_offer = true;
    } else {
        offer(local, peer, config, cycle);
    }
}

/// Room for what the peer may send is taken now.
bool ConnectionShared::make_stream(PollCycle& cycle) {
    auto node = connection_.progress().shm_node(cycle);
    if (!node) return false;
    node_ = *node;
    if (!node_->credit().has_room()) return false;
    shm::Stream::Owner& owner = *this;
    stream_ = std::make_unique<shm::Stream>(connection_.core_.stream(), owner, node_->credit());
    return true;
}

void ConnectionShared::offer(const IpEndpoint& local, const IpEndpoint& peer,
                             mpa::StartupConfig& config, PollCycle& cycle) {
    if (!make_stream(cycle)) return stay_on_tcp(shm::Reason::limits);
    if (const shm::Reason why = node_->listen(); why != shm::Reason::none) {
        return stay_on_tcp(why);
    }
    token_ = node_->expect(*this);
    step_ = Step::offering;
    const shm::Offer offer{.key = node_->key(), .token = token_, .local = local, .peer = peer};
    mpa::insert_tlv(config.extension_tlvs, MPA_TLV_SHM_OFFER, shm::encode(offer));
}

void ConnectionShared::on_startup(PollCycle& cycle) {
    if (step_ != Step::none || connection_.mpa_->offer().empty()) return;
    decide(cycle);
}

void ConnectionShared::decide(PollCycle& cycle) {
    const auto refuse = [&](shm::Reason why) {
        answer({.shared_memory = false, .reason = why}, cycle);
    };
    const auto offer = shm::decode_offer(connection_.mpa_->offer());
    if (!offer) return refuse(shm::Reason::version);
    const TcpSocket& socket = connection_.socket_;
    if (!offer->matches(socket.local(), socket.peer())) return refuse(shm::Reason::addresses);
    if (!make_stream(cycle)) return refuse(shm::Reason::limits);
    token_ = offer->token;
    step_ = Step::waiting;
    node_->want_link(offer->key, *this, cycle);  // may answer at once
}

void ConnectionShared::on_link(ShmLink& link, PollCycle& cycle) noexcept {
    call(connection_, cycle, [&] {
        if (step_ != Step::waiting) return;
        if (!link.open(*stream_, token_, cycle)) {
            return answer({.shared_memory = false, .reason = shm::Reason::limits}, cycle);
        }
        link_ = &link;
        step_ = Step::opened;
        answer({.shared_memory = true,
                .reason = shm::Reason::none,
                .link = link.id(),
                .slot = stream_->slot(),
                .generation = stream_->generation()},
               cycle);
    });
}

void ConnectionShared::on_no_link(shm::Reason why, PollCycle& cycle) noexcept {
    call(connection_, cycle, [&] {
        if (step_ == Step::waiting) answer({.shared_memory = false, .reason = why}, cycle);
    });
}

void ConnectionShared::answer(const shm::Answer& answer, PollCycle& cycle) {
    if (!answer.shared_memory) {
        stay_on_tcp(answer.reason);
    }
    if (!connection_.mpa_->answer_offer(shm::encode(answer))) return;
    Connection& connection = connection_;
    connection.transmit(cycle);  // may end start-up, and with it this, where TCP carries the data
    connection.note_movement(cycle);
}

Llp& ConnectionShared::data_layer(mpa::Stream& startup) {
    if (step_ == Step::offering) {
        const auto answer = shm::decode_answer(startup.answer());
        if (!answer || !answer->shared_memory) {
            stay_on_tcp(answer ? answer->reason : shm::Reason::peer_off);
        } else {
            agreed_ = *answer;
            step_ = Step::checking;
            call_at_cycle_end();
        }
    } else if (step_ == Step::opened) {
        step_ = Step::done;
        call_at_cycle_end();  // the first credit is told
    } else if (step_ != Step::done) {
        stay_on_tcp(shm::Reason::peer_off);  // the peer has offered nothing
    }
    if (stream_ == nullptr) return startup;
    choice_.path = DataPath::shm;
    connection_.progress().watch_for_end_only(connection_);
    if (link_ended_) call_at_cycle_end();
    return *stream_;
}

shm::Stream* ConnectionShared::on_open(ShmLink& link) {
    link_ = &link;
    return stream_.get();
}

/// The initiator has published the record that opens the slot before it sent its frame.
void ConnectionShared::check_start(PollCycle& cycle) {
    if (step_ != Step::checking) return;
    if (!stream_->attached() && !link_ended_) node_->poll_links(agreed_.link, cycle);
    if (step_ != Step::checking) return;  // it has ended meanwhile
    step_ = Step::done;
    node_->stop_expecting(token_);
    if (link_ended_) return;
    const bool same = stream_->attached() && link_->id() == agreed_.link &&
                      stream_->slot() == agreed_.slot &&
                      stream_->generation() == agreed_.generation;
    if (!same) return fail(StreamError::shm_garbage);
    if (!connection_.core_.is_start_held()) join_channels();
}

// ---- what the stream says ---------------------------------------------------

void ConnectionShared::call_at_cycle_end() {
    connection_.progress().call_at_cycle_end(connection_);
}

void ConnectionShared::on_rx(ConstBytes bytes) { take(bytes, link_->cycle()); }

void ConnectionShared::take_early(PollCycle& cycle) {
    if (!in_memory() || !stream_->has_early()) return;
    if (stream_->state() != Llp::State::started) take(stream_->take_early(), cycle);
}

void ConnectionShared::take(ConstBytes bytes, PollCycle& cycle) {
    cycle.active = true;
    call(connection_, cycle, [&] {
        if (connection_.core_.ended() || connection_.core_.layer() != stream_.get()) {
            discard();
            static_cast<void>(stream_->rx(bytes, 0));  // dropped
            return;
        }
        const std::uint32_t received = stream_->ring_bytes_received();
        connection_.rx_bytes_ += received - std::exchange(counted_, received);
        connection_.take_from_memory(bytes, cycle);
        if (!connection_.quiet()) call_at_cycle_end();
    });
}

void ConnectionShared::on_fin(bool aborted) {
    fin_ = true;
    aborted_ |= aborted;
    if (aborted && in_memory()) connection_.core_.lost(ECONNRESET);
    call_at_cycle_end();
}

void ConnectionShared::on_room() { call_at_cycle_end(); }

void ConnectionShared::on_link_end(StreamError why) {
    link_ended_ = true;
    link_ = nullptr;
    if (why != StreamError::none) return fail(why);
    call_at_cycle_end();
}

void ConnectionShared::fail(StreamError why) {
    const StreamErrorInfo& row = stream_error_info(why);
    log(LogLevel::warn, row.name, "%s: %s", connection_.peer().data(), row.text);
    connection_.core_.lost(EPROTO);
}

void ConnectionShared::published() {
    if (ShmLink* const to = link()) to->published();
    const std::uint32_t sent = stream_->ring_bytes_sent();
    connection_.tx_bytes_ += sent - std::exchange(counted_sent_, sent);
}

void ConnectionShared::join_channels() {
    ShmLink* const of = link();
    if (of == nullptr || !in_channels_of_.expired()) return;
    in_channels_of_ = std::static_pointer_cast<ShmLink>(of->shared_from_this());
    of->join_channels(connection_.parts_.send_cq, connection_.parts_.recv_cq);
}

void ConnectionShared::leave_channels() noexcept {
    if (const auto of = std::exchange(in_channels_of_, {}).lock()) {
        of->leave_channels(*connection_.parts_.send_cq, *connection_.parts_.recv_cq);
    }
}

// ---- TCP --------------------------------------------------------------------

/// What the peer published before its TCP said something.
void ConnectionShared::drain(PollCycle& cycle) {
    take_early(cycle);
    if (ShmLink* const from = link()) from->poll_now(cycle);
}

void ConnectionShared::check_tcp(std::uint32_t events, PollCycle& cycle) {
    if (tcp_ended_ && (events & EPOLLERR) == 0) return;
    std::byte octet{};
    const int fd = connection_.socket_.fd();
    const ssize_t n = ::recv(fd, &octet, sizeof octet, MSG_PEEK | MSG_DONTWAIT);
    const int error = errno;
    if (n < 0 && (error == EAGAIN || error == EINTR)) return;
    cycle.active = true;
    drain(cycle);
    if (!connection_.socket_.is_open()) return;
    if (n > 0) return fail(StreamError::shm_garbage);  // nothing may follow the frames
    if (n < 0 || (events & EPOLLERR) != 0) {
        const int pending = n < 0 ? error : connection_.socket_.pending_error();
        // (Behind the peer's FIN, Linux calls a reset EPIPE.)
        if (!fin_ && pending != EPIPE) {
            return connection_.core_.lost(pending != 0 ? pending : ECONNRESET);
        }
        unsendable_ = true;  // what it sent before its FIN is whole, and may wait for receives
    }
    tcp_ended_ = fin_ = true;
    due_ = kNever;
}

void ConnectionShared::take_fin(PollCycle& cycle) {
    if (aborted_ && !connection_.core_.ended()) return connection_.core_.lost(ECONNRESET);
    if (fin_ && !stream_->has_early() && connection_.core_.rx_wanted())
        connection_.core_.rx_eof(cycle.now());
    // The peer's end is gone, or its process: nothing that is outstanding can complete any more.
    // TCP would answer it by a reset.
    unsendable_ |= link_ended_ && fin_;
    if (unsendable_ && !connection_.core_.ended() && !connection_.core_.stream().drained()) {
        return connection_.core_.lost(ECONNRESET);
    }
    // Without FIN the link is nothing to go on with; TCP tells how the peer has ended, if it has.
    if (link_ended_ && !fin_ && due_ == kNever) {
        due_ = time_after(cycle.now(), kEndDelay);
        connection_.update_deadline(cycle);
    }
}

void ConnectionShared::on_time(PollCycle& cycle) {
    if (still_delivers()) connection_.core_.extend_linger(cycle.now());
    if (due_ > cycle.now()) return;
    due_ = kNever;
    if (!fin_) connection_.core_.lost(ECONNRESET);
}

/// What a stream that has ended still has to send moves on: its peer takes some of it.
bool ConnectionShared::still_delivers() {
    const ddp::Connection& core = connection_.core_;
    if (!in_memory() || !connection_.owner_.waits_at_exit()) return false;
    if (!core.closing() || core.fin_sent()) return false;
    const std::uint32_t sent = stream_->ring_bytes_sent();
    return sent != std::exchange(delivered_, sent);
}

// ---- the end ----------------------------------------------------------------

void ConnectionShared::discard() {
    if (stream_ == nullptr) return;
    stream_->discard();
    if (ShmLink* const to = link()) to->published();
}

void ConnectionShared::finish() {
    if (stream_ == nullptr) return;
    stream_->finish(/*abort=*/false);
    published();
}

void ConnectionShared::close(bool reset) {
    leave_node();
    leave_channels();
    if (stream_ == nullptr) return;
    reset ? stream_->reset() : stream_->finish(/*abort=*/true);
    if (ShmLink* const to = link()) to->published();
    stream_->leave();
}

void ConnectionShared::leave_node() noexcept {
    if (step_ == Step::waiting) node_->forget(*this);
    if (step_ == Step::offering || step_ == Step::checking) node_->stop_expecting(token_);
    step_ = Step::done;
}

}  // namespace xsock
