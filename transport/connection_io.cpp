// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads and writes of a connection: its share of one poll cycle.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "transport/connection.hpp"

namespace xsock {
namespace {

// One connection's share of a poll cycle.
constexpr int kReadsPerCycle = 4;
constexpr int kBatchesPerCycle = 4;
constexpr std::size_t kBytesPerBatch = 1024 * 1024;
constexpr std::size_t kLongestRecord = 72 * 1024;  // a ULPDU, and some
constexpr long kMuch = 64 * 1024;                  // beside which an empty read costs nothing

// Room for the FPDU of a single small message, of some 100 bytes. Less than the smallest limit of a
// ULPDU (128 bytes), so that the limit need not be checked there; longer ones go by the batch.
constexpr std::size_t kSingleFpdu = 128;

// How often the segment size of the path is asked for, toward peers that care.
constexpr Time kEmssPeriod = 100 * kMillisecond;

}  // namespace

// ---- reception ------------------------------------------------------------

template <void (SoftChannel::*count)()>
void Connection::count_in_channels() const noexcept {
    for (const auto& channel : channels()) {
        if (channel != nullptr) (channel.get()->*count)();
    }
}

void Connection::on_ready(std::uint32_t events, PollCycle& cycle) {
    if (!socket_.is_open()) return;
    if (shared_ != nullptr && shared_->in_memory()) return on_tcp_ready(events, cycle);
    if ((events & (EPOLLOUT | EPOLLERR)) != 0) count_in_channels<&SoftChannel::count_arrival>();
    if ((events & EPOLLOUT) != 0) tx_blocked_ = false;
    if ((events & EPOLLERR) != 0 && (core_.rx_waiting() || core_.peer_finished())) {
        // Nothing is read any more, or not now: the reset must be asked for.
        // (Behind the peer's FIN, Linux calls a reset EPIPE.)
        const int error = socket_.pending_error();
        lost(error != 0 && error != EPIPE ? error : ECONNRESET);
        note_movement(cycle);
        return;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        // What was posted is served by notifications: after an empty read nothing is to be sent.
        if (!receive(cycle) && (events & EPOLLOUT) == 0) return;
        if (quiet()) return;
    }
    transmit(cycle);
    note_movement(cycle);
}

void Connection::on_notify(PollCycle& cycle) {
    if (!socket_.is_open()) return;
    owner_.poll();
    resume(cycle);
    transmit(cycle);
    if (end_request_.load(std::memory_order_relaxed) != 0) [[unlikely]]
        end_as_requested(cycle);
    if (owner_.poll_at() != kNever) update_deadline(cycle);
    socket_.push();
    note_movement(cycle);
}

// Reads and takes what there is, within this cycle's share. False when there was nothing.
bool Connection::receive(PollCycle& cycle) {
    bool found = false;
    enough_read_ = false;
    // Start-up that leaves the first FPDU unread takes more reads.
    const int reads = kernel_.part != nullptr ? 2 * kReadsPerCycle : kReadsPerCycle;
    for (int i = 0; i < reads && socket_.is_open() && core_.rx_wanted(); ++i) {
        const Bytes room = read_room(cycle);
        const long n = read(room);
        if (n == -EAGAIN) {
            if (found || cycle.rereads == 0) break;
            if (burst_.found_nothing()) parts_.progress->pause(RxBurst::kPause);
            --cycle.rereads;
            --i;
            continue;
        }
        found = true;
        count_in_channels<&SoftChannel::count_arrival>();
        if (n > 0) {
            const auto size = static_cast<std::size_t>(n);
            const bool ended = core_.ended();
            // (Of records the next may just be too long for the rest of the room.)
            const std::size_t full = reads_records() ? room.size() - kLongestRecord : room.size();
            const bool more = take(cycle.staging.first(size), cycle);
            if (ended) continue;  // only waiting for the peer's FIN
            if (!more || size < full || enough_read_) break;
        } else if (n == 0) {
            take_fin(cycle);
        } else if (n != -EINTR) {
            lost(static_cast<int>(-n));
        }
    }
    note_movement(cycle);
    return found;
}

// What TCP still holds, although the connection is at its end: no more comes.
void Connection::receive_rest(PollCycle& cycle) {
    while (socket_.is_open() && !core_.ended() && core_.rx_wanted()) {
        const long n = read(read_room(cycle));
        if (n == -EINTR) continue;
        if (n == 0) take_fin(cycle);
        if (n <= 0) break;
        if (!take(cycle.staging.first(static_cast<std::size_t>(n)), cycle)) break;
    }
    note_movement(cycle);
}

void Connection::take_fin(PollCycle& cycle) {
    cycle.active = true;
    if (capture_) capture_->received_fin();
    socket_.note_peer_finished();
    core_.rx_eof(cycle.now());
}

// False: no more may be read now.
bool Connection::take(ConstBytes bytes, PollCycle& cycle) {
    cycle.active = true;
    const bool records = reads_records();
    if (!records) rx_bytes_ += bytes.size();
    if (capture_) [[unlikely]]
        capture_->received(bytes);
    if (core_.ended()) return false;
    const Counters& counters = core_.stream().counters();
    const std::uint64_t before = counters.rx_segments;
    const std::uint64_t writes = counters.rx_messages[RDMAP_WRITE];
    cycle.enter_section();
    core_.rx(bytes, time(cycle));
    if (records) {
        rx_bytes_ += kernel_.part->take_stream_bytes(*mpa_);
        kernel_.part->follow(core_.stream());
    }
    if (core_.ended()) return false;
    if (counters.rx_messages[RDMAP_WRITE] != writes) {
        count_in_channels<&SoftChannel::count_write>();
    }
    burst_.received(bytes.size(), counters.rx_segments - before, tx_bytes_);
    if (shared_ != nullptr) [[unlikely]] {
        shared_->on_startup(cycle);
        if (!socket_.is_open() || (shared_ != nullptr && shared_->in_memory())) return false;
    }
    if (core_.is_start_held()) return false;
    resume(cycle);
    note_owed();
    return true;
}

// An Acknowledge may ride with what the program posts next.
void Connection::note_owed() noexcept {
    if (core_.stream().owes_acknowledge()) [[unlikely]]
        parts_.progress->call_when_idle(*this);
}

void Connection::send_owed(PollCycle& cycle) {
    if (!socket_.is_open() || !core_.stream().owes_acknowledge()) return;
    core_.stream().acknowledge();
    transmit(cycle);
}

// With an awaited queue the program is about to sleep, and posts nothing before something comes.
bool Connection::on_idle(PollCycle& cycle, bool due) {
    if (!socket_.is_open() || core_.ended() || !core_.stream().owes_acknowledge()) return true;
    if (!due && !parts_.send_cq->queue.awaited() && !parts_.recv_cq->queue.awaited()) return false;
    send_owed(cycle);
    note_movement(cycle);
    return true;
}

// The same, of what came by a link. What it brings about is done at the end of the cycle.
void Connection::take_from_memory(ConstBytes bytes, PollCycle& cycle) {
    const Counters& counters = core_.stream().counters();
    const std::uint64_t writes = counters.rx_messages[RDMAP_WRITE];
    count_in_channels<&SoftChannel::count_arrival>();
    cycle.enter_section();
    core_.rx(bytes, time(cycle));
    if (core_.ended()) return;
    if (counters.rx_messages[RDMAP_WRITE] != writes) {
        count_in_channels<&SoftChannel::count_write>();
    }
    if (!core_.is_start_held()) resume(cycle);
    note_owed();
    note_movement(cycle);
}

// A responder may not have seen its slot yet: then the end of this cycle joins.
void Connection::join_channels() {
    if (shared_ == nullptr) {
        parts_.progress->join_channels(*this);
    } else {
        shared_->join_channels();
    }
}

// Shared memory carries the data: TCP tells of the end.
void Connection::on_tcp_ready(std::uint32_t events, PollCycle& cycle) {
    shared_->check_tcp(events, cycle);
    transmit(cycle);
    note_movement(cycle);
}

void Connection::on_cycle_end(PollCycle& cycle) {
    take_placed(cycle);
    if (reads_records()) update_deadline(cycle);
    if (!socket_.is_open() || shared_ == nullptr) return;
    shared_->check_start(cycle);
    if (socket_.is_open()) shared_->take_early(cycle);
    transmit(cycle);
    note_movement(cycle);
}

// Offers again what waits for a receive.
void Connection::resume(PollCycle& cycle) {
    if (!core_.rx_waiting()) return;
    cycle.enter_section();
    if (core_.resume(cycle.now())) cycle.active = true;
    note_owed();
}

void Connection::on_rnr() {
    if (parts_.srq == nullptr || rnr_waiting_.exchange(true)) return;
    parts_.srq->add_rnr_waiter(std::static_pointer_cast<Connection>(shared_from_this()));
}

bool Connection::move_receive(std::uint64_t wr_id, const RecvWqe& other, PollCycle& cycle) {
    cycle.enter_section();
    const bool moved = core_.move_receive(wr_id, other);
    if (shared_ != nullptr && shared_->in_memory()) shared_->published();
    note_movement(cycle);
    return moved;
}

// ---- transmission ---------------------------------------------------------

bool Connection::quiet() const { return core_.quiet() && !tx_blocked_ && interest_ == kReading; }

// A single small message needs neither a batch nor, since its bytes are ours, a guard: 900
// instructions ahead of the system call become some 300. What TCP does not take of it is the next
// batch, which meets the same fault.
void Connection::transmit_single(PollCycle& cycle) {
    std::array<std::byte, kSingleFpdu> frame;
    const ConstBytes fpdu = ConstBytes(frame).first(core_.tx_single(frame));
    if (fpdu.empty()) return;
    const long n = socket_.send(fpdu, is_about_to_finish());
    if (n < static_cast<long>(fpdu.size())) {
        try {
            tx_buffer_ = parts_.progress->take_tx_buffer();
            core_.tx_keep(fpdu, tx_buffer_->bytes());
        } catch (const std::bad_alloc&) {
            lost(ENOMEM);  // what is pending lies in no memory that lasts
            return;
        }
    }
    if (n <= 0) return;
    cycle.active = true;
    const auto sent = static_cast<std::size_t>(n);
    tx_bytes_ += sent;
    if (capture_) [[unlikely]]
        capture_->sent(fpdu.first(sent));
    core_.tx_commit(sent, 0);
}

void Connection::follow_emss(PollCycle& cycle) {
    if (!mpa_->wants_emss() || core_.ended() || cycle.now() - emss_checked_ <= kEmssPeriod) {
        return;
    }
    emss_checked_ = cycle.now();
    if (const std::size_t emss = socket_.emss(); emss != 0) mpa_->set_emss(emss);
}

void Connection::transmit(PollCycle& cycle) {
    transmit_batches(cycle);
    // Else on_notify() comes, and finishes.
    if (end_request_.load(std::memory_order_relaxed) == 0) socket_.push();
}

// What is sent is the initiator's extension frame: what has waited for the end of start-up follows
// in the same segment.
bool Connection::ends_start_by_sending() const noexcept {
    const Negotiated& n = core_.negotiated();
    return state() == QpState::starting && n.initiator && n.extensions && owner_.waits_to_send();
}

void Connection::transmit_batches(PollCycle& cycle) {
    if (!socket_.is_open()) return;
    if (shared_ != nullptr && shared_->in_memory()) return transmit_to_memory(cycle);
    if (core_.is_steady() && !tx_blocked_) transmit_single(cycle);
    if (!socket_.is_open() || quiet()) return;
    follow_emss(cycle);
    for (int i = 0; i < kBatchesPerCycle && !tx_blocked_ && !core_.ended() && core_.tx_wanted();
         ++i) {
        if (tx_buffer_ == nullptr) tx_buffer_ = parts_.progress->take_tx_buffer();
        cycle.enter_section();
        const TxBatch batch = core_.tx_prepare(tx_buffer_->bytes(), kBytesPerBatch, time(cycle));
        if (core_.ended()) return;
        if (batch.bytes == 0) {
            cycle.active = true;  // entries that send nothing may have completed
            break;
        }
        const long n = socket_.send(batch, is_about_to_finish() || ends_start_by_sending());
        if (n == -EAGAIN || n == -ENOBUFS || n == -EINTR) {
            tx_blocked_ = n != -EINTR;
            continue;
        }
        if (n < 0) return on_send_error(static_cast<int>(-n), cycle);
        cycle.active = true;
        tx_bytes_ += static_cast<std::uint64_t>(n);
        if (n >= kMuch) cycle.sent_much = true;
        if (capture_) [[unlikely]]
            capture_->sent(batch.iov, static_cast<std::size_t>(n));
        core_.tx_commit(static_cast<std::size_t>(n), time(cycle));
        if (shared_ != nullptr && shared_->in_memory()) [[unlikely]]
            break;  // that was start-up's last
        if (static_cast<std::size_t>(n) < batch.bytes) tx_blocked_ = true;
    }
    if (tx_buffer_ != nullptr && mpa_->status().tx_pending == 0) {
        parts_.progress->give_tx_buffer(std::move(tx_buffer_));
    }
    update(cycle);
}

// What is published is sent. Nothing of the program's is needed behind it.
void Connection::transmit_to_memory(PollCycle& cycle) {
    shared_->take_fin(cycle);
    if (!socket_.is_open()) return;
    for (int i = 0; i < kBatchesPerCycle && !core_.ended() && core_.tx_wanted(); ++i) {
        cycle.enter_section();
        core_.tx_prepare({}, kBytesPerBatch, time(cycle));
        cycle.active = true;
    }
    shared_->published();  // records, or credit for what was taken before this
    update(cycle);
}

// ConnectAttr::request_sent: start-up goes on behind its Request.
void Connection::note_request() {
    const TxBatch request = core_.tx_prepare({}, 0, 0);
    tx_bytes_ += request.bytes;
    if (capture_) capture_->sent(request.iov, request.bytes);
    core_.tx_commit(request.bytes, 0);
}

void Connection::on_send_error(int error, PollCycle& cycle) {
    if (error == EFAULT) return core_.tx_fault();
    // What the peer sent ahead of its reset, a Terminate perhaps, lies there to be read.
    receive_rest(cycle);
    if (socket_.is_open() && !core_.ended()) core_.update(cycle.now());
    // (Behind the peer's FIN, Linux calls a reset EPIPE.)
    if (socket_.is_open()) lost(error == EPIPE && core_.peer_finished() ? ECONNRESET : error);
}

bool Connection::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to,
                           PollCycle& cycle) {
    cycle.enter_section();
    const bool moved = core_.move_send(wr_id, new_id, to);
    note_movement(cycle);
    return moved;
}

}  // namespace xsock
