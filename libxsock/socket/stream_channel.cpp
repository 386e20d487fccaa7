// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of a byte stream, and its messages' way between stream and connection.
#include "libxsock/socket/stream_channel.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "libxsock/engine/socket_table.h"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

using stream::ByteStream;
using stream::Chunk;

constexpr std::uint64_t kMostReceive = 1 << 30;
/// Private buffers that room for the whole of SO_RCVBUF is announced as, at least.
constexpr std::uint64_t kLeastBuffers = 8;

Buffer* buffer_of(Chunk* chunk) noexcept {
    return reinterpret_cast<Buffer*>(reinterpret_cast<std::byte*>(chunk) - sizeof(Buffer));
}

}  // namespace

Chunk* PoolChunks::take(std::size_t bytes) noexcept {
    Buffer* const buffer = take_buffer(sizeof(Chunk) + bytes);
    if (buffer == nullptr) return nullptr;
    auto* const chunk = new (buffer->data()) Chunk;
    chunk->capacity = buffer->capacity - static_cast<std::uint32_t>(sizeof(Chunk));
    return chunk;
}

void PoolChunks::give(Chunk* chunk) noexcept { give_buffer(buffer_of(chunk)); }

StreamChannel::~StreamChannel() {
    stream_.reset();
    if (spare_ != nullptr) chunks_.give(spare_);
}

// ---- beginning ----------------------------------------------------------------

void StreamChannel::join(PolledQpAttr& attr, std::shared_ptr<void> owner) {
    progress_ = attr.group;
    attr.keeper = std::move(owner);
    attr.argument = this;
    attr.provide_receive = provide_receive;
    attr.on_completion = on_completion;
    attr.on_poll = on_poll;
    attr.waits_to_send = [](void* self) {
        return static_cast<StreamChannel*>(self)->queued_.load(std::memory_order_acquire) != 0;
    };
    attr.on_exit = [](void* self, ExitStep step, bool& brief) {
        // All that it uses is of the pool.
        return step == ExitStep::waits && static_cast<StreamChannel*>(self)->on_exit(brief);
    };
    attr.on_exec = on_exec;
    attr.on_request = [](void* self, std::span<const std::byte> request,
                         std::vector<std::byte>& reply) {
        return static_cast<StreamChannel*>(self)->answer(request, reply);
    };
    const Options::Stream& of = options_.stream;
    stream::SdpConfig config;
    config.receive_bytes =
        grant_.ask(std::clamp(of.receive_bytes, StreamMemory::kLeast, kMostReceive));
    config.buffer_bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(config.buffer_bytes, config.receive_bytes / kLeastBuffers));
    config.ird = static_cast<std::uint16_t>(options_.ird);
    config.ord = static_cast<std::uint16_t>(options_.ord);
    stream::StreamLimits limits;
    limits.receive_bytes = config.receive_bytes;
    limits.send_bytes = std::max(of.send_bytes, kLeastSend);
    send_limit_.store(limits.send_bytes);
    receive_limit_.store(limits.receive_bytes);
    sdp_ = std::make_unique<stream::Sdp>(config);
    stream_ = std::make_unique<ByteStream>(*sdp_, chunks_, limits);
    stream_->set_nodelay(of.nodelay != 0);
    stream_->set_urgent_inline(of.oob_inline != 0);
    nodelay_.store(of.nodelay);
    cork_.store(of.cork);
    oob_inline_.store(of.oob_inline);
    receive_low_.store(std::max(of.receive_low, 1));
}

std::vector<std::byte> StreamChannel::request() {
    const auto hello = sdp_->hello();
    return {hello.begin(), hello.end()};
}

bool StreamChannel::answer(std::span<const std::byte> request, std::vector<std::byte>& reply) {
    if (!stream::looks_like_hello(request)) {
        log(LogLevel::warn, "mode-refused", "a peer asks for messages; this is a byte stream");
        return false;
    }
    Section section(*this);
    if (const StreamError error = sdp_->take_hello(request); error != StreamError::none) {
        const StreamErrorInfo& row = stream_error_info(error);
        log(LogLevel::warn, row.name, "%s", row.text);
        return false;
    }
    const auto ack = sdp_->hello_ack();
    reply.assign(ack.begin(), ack.end());
    life_ = closes_behind_start_ ? Life::closing : Life::open;
    return true;
}

bool StreamChannel::begin(std::span<const std::byte> private_data) {
    Section section(*this);
    if (life_ == Life::starting) {  // else answer() has begun it
        const StreamError error = sdp_->take_hello_ack(private_data);
        if (error != StreamError::none) {
            const StreamErrorInfo& row = stream_error_info(error);
            log(LogLevel::warn, row.name, "%s", row.text);
            return false;
        }
        life_ = closes_behind_start_ ? Life::closing : Life::open;
    }
    pump(section.actions);  // send(), shutdown(), close() may have been called
    if (life_ == Life::closing) section.actions.end = PolledQp::End::linger;
    return true;
}

// ---- under lock_ --------------------------------------------------------------

/// What the stream has to say, as far as the connection takes it.
void StreamChannel::pump(StreamActions& actions) {
    if (life_ != Life::open && life_ != Life::closing) return;
    stream::TxMessage message;
    while (qp_->send_room() > 0 && stream_->tx(message)) post(message, actions);
    if (stream_->waits_for_credit() != waits_for_credit_) {
        waits_for_credit_ = !waits_for_credit_;
        if (waits_for_credit_) ++counted_.credit_waits;
    }
    if (waits_for_credit_) *counters_ = counted_;  // else with what is posted
    if (stream_->next_timeout() != kNever) actions.gather = true;
    check_end(actions);
}

void StreamChannel::post(const stream::TxMessage& message, StreamActions& actions) {
    SendWr wr;
    wr.flags = kSendInternal;
    if (message.kind != stream::SendKind::plain) wr.flags |= kSendSolicited;
    if (message.kind == stream::SendKind::solicited_invalidate) {
        wr.opcode = SendOpcode::send_invalidate;
        wr.invalidate_stag = message.invalidate_stag;
    }
    const bool is_inline = message.bytes.size() <= kInlineInWqe;
    // Entries of a queue that fills report when they are done.
    const bool report =
        !is_inline || qp_->send_room() <= static_cast<std::uint32_t>(options_.sq_depth) / 2;
    if (is_inline) wr.flags |= kSendInline;
    if (report) wr.flags |= kSendSignaled;
    wr.wr_id = is_inline ? 0 : reinterpret_cast<std::uintptr_t>(message.chunk);
    const Sge sge{const_cast<std::byte*>(message.bytes.data()),
                  static_cast<std::uint32_t>(message.bytes.size()), kLkeyNone};
    wr.sges = {&sge, 1};
    const Result<void> posted = qp_->queue_send(wr);
    if (message.chunk != nullptr && (is_inline || !posted)) stream_->tx_done(message.chunk);
    if (posted) {
        actions.queued = true;
        // The peer goes on reading: more time. (Small messages do not report that they are sent.)
        if (life_ == Life::closing && !actions.end) actions.end = PolledQp::End::linger;
        *counters_ = counted_;
        tx_messages_.fetch_add(1, std::memory_order_relaxed);
    } else {
        actions.end = PolledQp::End::abort;  // a message is missing from now on
    }
}

/// Both directions have ended, or one of the ends has to be told that the stream is broken off.
void StreamChannel::check_end(StreamActions& actions) {
    const StreamError error = stream_->error();
    if (error != StreamError::none) {
        if (life_ == Life::over) return;
        const StreamErrorInfo& row = stream_error_info(error);
        log(LogLevel::warn, row.name, "%s", row.text);
        life_ = Life::over;
        actions.end = PolledQp::End::abort;
        return;
    }
    if (life_ == Life::closing && stream_->finish_sent()) {
        life_ = Life::over;
        actions.end = PolledQp::End::release;
        actions.released = true;
    } else if (life_ == Life::open && stream_->finish_sent() && stream_->receive_finished()) {
        life_ = Life::over;
        actions.end = PolledQp::End::shutdown;
    }
}

void StreamChannel::publish() noexcept {
    if (stream_ == nullptr) return;
    readable_.store(stream_->readable(), std::memory_order_release);
    queued_.store(stream_->send_queued(), std::memory_order_release);
    urgent_events_.store(stream_->urgent_is_there() ? std::uint32_t{EPOLLPRI} : 0U,
                         std::memory_order_release);
    if (stream_->receive_finished()) leave_open(read_, Half::finished);
}

// Without the lock.
void StreamChannel::perform(const StreamActions& actions) {
    if (actions.end) {
        // What is queued goes with it.
    } else if (actions.queued) {
        qp_->send_queued();
    } else if (actions.gather) {
        qp_->poll_soon();
    }
    if (actions.wake != 0) source_.wake(actions.wake);
    if (actions.urgent) qp_->signal_owner();
    if (actions.end) qp_->request_end(*actions.end);
    if (actions.released) release();
}

// ---- the poller -----------------------------------------------------------------

void StreamChannel::on_completion(void* self, const Wc& wc) {
    auto* const channel = static_cast<StreamChannel*>(self);
    wc.opcode == WcOpcode::recv ? channel->received(wc) : channel->sent(wc);
    // In one order with the check for waiters at the end of the cycle.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Bytes that were gathered go with this poll cycle, those that are held when their time has come.
Time StreamChannel::on_poll(void* self) {
    auto* const channel = static_cast<StreamChannel*>(self);
    Section section(*channel);
    ByteStream& stream = *channel->stream_;
    const Time due = stream.next_timeout();
    if (due == kNever) return kNever;
    const Time now = monotonic_now();
    stream.on_time(stream.holds() ? now : std::max(due, now));
    channel->pump(section.actions);
    section.actions.gather = false;  // but asked again at the time that it answers
    return stream.next_timeout();
}

// As close(), which the kernel does for a process that exits.
bool StreamChannel::on_exit(bool& brief) {
    Section section(*this);
    if (life_ == Life::closing) return true;
    if (life_ == Life::starting) {
        // The peer may not accept it for long. The end alone is not worth the linger time.
        brief = stream_->send_queued() == 0;
        close_behind_start();
        return true;
    }
    if (life_ != Life::open) return false;
    if (copying_out_) return true;  // a thread reads; asked again
    if (stream_->close_receiving()) {
        life_ = Life::over;
        section.actions.end = PolledQp::End::abort;
        return true;
    }
    life_ = Life::closing;
    send_limit_.store(0);  // a thread that sends sleeps until the process is gone
    stream_->finish();
    pump(section.actions);
    return true;
}

// The kernel closes it with exec(); the end of what was sent goes behind it. Where exec() fails
// that half stays closed: whether it will cannot be known.
bool StreamChannel::on_exec(void* self, bool& brief) {
    auto* const channel = static_cast<StreamChannel*>(self);
    Section section(*channel);
    if (channel->life_ == Life::over) return false;
    brief = channel->life_ == Life::starting && channel->stream_->send_queued() == 0;
    channel->leave_open(channel->write_, Half::shut);
    section.actions.wake |= kWritable;
    channel->stream_->finish();
    channel->pump(section.actions);
    return !channel->stream_->finish_sent();
}

bool StreamChannel::provide_receive(void* self, std::uint32_t bytes, RecvWqe& out) {
    return static_cast<StreamChannel*>(self)->give_receive(bytes, out);
}

// Memory for a message that begins to come in. The credit rule limits how many there are; a longer
// one than was announced ends in a Terminate.
bool StreamChannel::give_receive(std::uint32_t bytes, RecvWqe& out) {
    const auto limit = static_cast<std::uint32_t>(sdp_->message_limit());
    const std::uint32_t need = std::min(bytes, limit);
    Chunk* chunk = nullptr;
    {
        const std::lock_guard hold(lock_);
        if (spare_ != nullptr && spare_->capacity >= need) chunk = std::exchange(spare_, nullptr);
    }
    if (chunk == nullptr) chunk = chunks_.take(need);
    if (chunk == nullptr) {
        log(LogLevel::error, "no-memory", "a message that comes in finds no buffer; reset");
        qp_->request_end(PolledQp::End::abort);
        return false;
    }
    out.internal = true;
    out.length = need;
    out.wr_id = reinterpret_cast<std::uintptr_t>(chunk);
    out.sge_count = 1;
    out.sge[0] = {chunk->data(), need, kLkeyNone};
    return true;
}

/// Keeps it for the next message, if it is small enough for an idle socket. @pre lock_ is held
void StreamChannel::give_chunk(Chunk* chunk) noexcept {
    if (spare_ == nullptr && small(*buffer_of(chunk))) {
        spare_ = chunk;
    } else {
        chunks_.give(chunk);
    }
}

// A message is complete, or will not come any more.
void StreamChannel::received(const Wc& wc) {
    if (wc.wr_id == 0) return;
    auto* const chunk = reinterpret_cast<Chunk*>(static_cast<std::uintptr_t>(wc.wr_id));
    Section section(*this);
    // Immediate Data (RFC 7306) is no message of SDP: of no length, it is refused there.
    const bool immediate = (wc.flags & kWcImmediate) != 0;
    chunk->begin = 0;
    chunk->end = immediate ? 0 : wc.byte_len;
    if (wc.status != WcStatus::success || life_ == Life::starting) return give_chunk(chunk);
    rx_messages_.fetch_add(1, std::memory_order_relaxed);
    const stream::RxNews news = stream_->rx(chunk);
    if (!news.kept) give_chunk(chunk);
    if (news.unwanted) {
        life_ = Life::over;
        section.actions.end = PolledQp::End::abort;
        section.actions.released = true;
        return;
    }
    if (news.data) section.actions.wake |= kReadable;
    const bool urgent = news.data && stream_->urgent_is_there();
    section.actions.urgent = news.urgent;
    if (news.urgent || urgent) section.actions.wake |= EPOLLPRI;
    if (news.finished) section.actions.wake |= kReadable | EPOLLRDHUP;
    if (news.data) qp_->enough_read();
    pump(section.actions);
}

// A message was handed to TCP, or will not be.
void StreamChannel::sent(const Wc& wc) {
    Section section(*this);
    if (wc.wr_id != 0) {
        stream_->tx_done(reinterpret_cast<Chunk*>(static_cast<std::uintptr_t>(wc.wr_id)));
    }
    if (wc.status == WcStatus::success) pump(section.actions);
    // A peer that goes on reading is given time, one that does not the linger time.
    if (life_ == Life::closing && !section.actions.end) section.actions.end = PolledQp::End::linger;
    publish();
    if (tx_no_room_.load(std::memory_order_seq_cst) && is_writable() &&
        tx_no_room_.exchange(false, std::memory_order_seq_cst)) {
        section.actions.wake |= kWritable;
    }
}

// ---- the end -----------------------------------------------------------------------

// TCP's FIN.
void StreamChannel::on_peer_closed() noexcept {
    Section section(*this);
    stream_->on_eof();
    // An error ends the connection: readers are told then, when its errno is there. Told now, they
    // would take it for the end of the stream.
    check_end(section.actions);
}

int StreamChannel::end_error(int error) noexcept {
    Section section(*this);
    if (life_ == Life::starting) {
        // A program of TCP knows no connection that was made and then refused.
        return error == 0 || error == ETIMEDOUT || error == ENOMEM ? error : ECONNRESET;
    }
    const bool was_over = life_ == Life::over;
    const bool had_error = stream_->error() != StreamError::none;
    const int reset = stream_->receive_finished() ? EPIPE : ECONNRESET;  // as TCP
    stream_->on_lost();
    const StreamError why = stream_->error();
    life_ = Life::over;
    if (why == StreamError::none) return 0;
    if (!was_over && !had_error) {
        const StreamErrorInfo& row = stream_error_info(why);
        log(LogLevel::info, row.name, "%s", row.text);
    }
    return error == ETIMEDOUT || error == ENOMEM || error == EFAULT ? error : reset;
}

void StreamChannel::on_ended() noexcept {
    Channel::on_ended();
    {
        const std::lock_guard hold(lock_);
        life_ = Life::over;  // also of one that never started: close() waits for nothing
    }
    release();
}

void StreamChannel::release() noexcept {
    if (!released_) return;
    set_closed();
    std::exchange(released_, nullptr)();
}

void StreamChannel::shutdown(bool reading, bool writing) {
    if (reading) leave_open(read_, Half::shut);
    if (!writing) return;
    leave_open(write_, Half::shut);
    Section section(*this);
    stream_->finish();
    pump(section.actions);
}

bool StreamChannel::close(std::function<void()> released) {
    Section section(*this);
    const bool unread = stream_->close_receiving();
    if (life_ == Life::starting) {
        close_behind_start();
        released_ = std::move(released);
        return false;
    }
    if (life_ != Life::open) return true;
    if (unread) {  // as TCP: the peer must not believe that it was read
        life_ = Life::over;
        section.actions.end = PolledQp::End::abort;
        return true;
    }
    stream_->finish();
    pump(section.actions);
    if (life_ != Life::open) return true;
    if (stream_->finish_sent()) {
        section.actions.queued = false;  // goes by release(), with FIN
        return true;
    }
    life_ = Life::closing;
    released_ = std::move(released);
    section.actions.end = PolledQp::End::linger;
    return false;
}

/// @pre lock_ is held
void StreamChannel::close_behind_start() {
    if (!closes_behind_start_) stream_->finish();
    closes_behind_start_ = true;
}

xsock_ep* StreamChannel::endpoint(xsock_cq*, xsock_cq*) {
    errno = EOPNOTSUPP;  // its messages are the stream's
    return nullptr;
}

}  // namespace xsock::sockets
