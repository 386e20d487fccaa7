// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDPMODE_STREAM: send() and recv() carry a byte stream, as on a TCP socket, by SDP
// (docs/ddpmode.md, docs/wire.md). The stream itself is stream::ByteStream; here are its lock, the
// program's memory, the messages' way to and from the connection, and who is woken.
//
// Locks, outermost first: the poller's; lock_; the send queue's, those of readiness. Under lock_
// nothing is sent: messages are queued, and sent once it is free. Copies of more than a few KiB are
// made without it: meanwhile `copying_in_` or `copying_out_` keeps other calls of that direction
// waiting.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/spin_lock.hpp"
#include "libxsock/poll/source.hpp"
#include "libxsock/socket/buffer_pool.hpp"
#include "libxsock/socket/channel.hpp"
#include "libxsock/socket/options.hpp"
#include "libxsock/socket/stream_memory.hpp"
#include "stream/byte_stream.hpp"
#include "stream/sdp.hpp"

namespace xsock::sockets {

constexpr std::uint64_t kLeastSend = 2048;  // of SO_SNDBUF

/// Chunks in buffers of the pool.
class PoolChunks final : public stream::ChunkSource {
  public:
    stream::Chunk* take(std::size_t bytes) noexcept override;
    void give(stream::Chunk* chunk) noexcept override;
};

/// What is to be done once the lock of a StreamChannel is free.
struct StreamActions {
    bool queued = false;    ///< messages: PolledQp::send_queued()
    bool gather = false;    ///< bytes wait for more: PolledQp::poll_soon()
    bool released = false;  ///< of Channel::close()
    bool urgent = false;    ///< SIGURG
    std::optional<PolledQp::End> end;
    std::uint32_t wake = 0;  ///< events for watchers
};

class StreamChannel final : public Channel {
  public:
    /// Wakes the watchers of `source`. Both outlive this; `options` do not change any more.
    StreamChannel(readiness::Source& source, const Options& options)
        : source_(source), options_(options) {}
    ~StreamChannel() override;

    ssize_t send(const IovSpan& iovs, const CallMode& mode) override;
    [[nodiscard]] bool append(const IovSpan& iovs) noexcept override;
    ssize_t receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) override;
    int ioctl(int fd, unsigned long request, void* argument) override;
    void shutdown(bool reading, bool writing) override;
    xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) override;
    void set_option(int level, int name, int value) override;
    [[nodiscard]] bool get_option(int level, int name, int& value) const override;
    void describe(xsock_status& status) const noexcept override;
    [[nodiscard]] std::uint32_t events() const noexcept override;
    void join(PolledQpAttr& attr, std::shared_ptr<void> owner) override;
    void attach(PolledQp& qp) noexcept override {
        qp_ = &qp;
        counters_ = &qp.stream_counters();
    }
    [[nodiscard]] std::vector<std::byte> request() override;
    [[nodiscard]] bool answer(std::span<const std::byte> request,
                              std::vector<std::byte>& reply) override;
    [[nodiscard]] bool begin(std::span<const std::byte> private_data) override;
    [[nodiscard]] bool close(std::function<void()> released) override;
    [[nodiscard]] int end_error(int error) noexcept override;
    void on_peer_closed() noexcept override;
    void on_ended() noexcept override;

  private:
    class Section;

    // Shared (stream_channel.cpp, stream_options.cpp)
    static void on_completion(void* self, const Wc& wc);
    static Time on_poll(void* self);
    bool on_exit(bool& brief);
    static bool on_exec(void* self, bool& brief);
    static bool provide_receive(void* self, std::uint32_t bytes, RecvWqe& out);
    bool give_receive(std::uint32_t bytes, RecvWqe& out);
    void received(const Wc& wc);
    void sent(const Wc& wc);
    void pump(StreamActions& actions);
    void post(const stream::TxMessage& message, StreamActions& actions);
    void check_end(StreamActions& actions);
    void publish() noexcept;
    void perform(const StreamActions& actions);
    void release() noexcept;
    void close_behind_start();
    void give_chunk(stream::Chunk* chunk) noexcept;
    [[nodiscard]] bool is_writable() const noexcept;

    // Sending (stream_send.cpp)
    ssize_t send_error(int flags) noexcept;
    /// As much as there is room for. @return bytes taken, -1: the program's memory is not there
    ssize_t take_bytes(const IovSpan& iovs, std::size_t from, int flags);
    bool add_bytes(Section& section, const IovSpan& iovs, std::size_t from, std::size_t bytes,
                   bool more, std::size_t& added);

    // Receiving (stream_receive.cpp)
    /// As much as there is. @return bytes, -1: the program's memory is not there
    ssize_t give_bytes(const IovSpan& iovs, std::size_t from, int flags);
    ssize_t receive_urgent(const IovSpan& iovs, const CallMode& mode, int& out_flags);
    [[nodiscard]] std::size_t low_water() const noexcept;

    readiness::Source& source_;
    const Options& options_;
    PollGroup* progress_ = nullptr;
    PolledQp* qp_ = nullptr;
    StreamCounters* counters_ = nullptr;  // the connection's

    mutable SpinLock lock_;
    StreamGrant grant_;
    PoolChunks chunks_;
    std::unique_ptr<stream::Sdp> sdp_;
    std::unique_ptr<stream::ByteStream> stream_;
    stream::Chunk* spare_ = nullptr;  // for the next message
    StreamCounters counted_;          // ahead of what is there
    bool waits_for_credit_ = false;   // as of the last pump()
    enum class Life : std::uint8_t { starting, open, closing, over };
    Life life_ = Life::starting;
    bool closes_behind_start_ = false;  // what was queued before the start has ended goes
    bool copying_in_ = false, copying_out_ = false;
    std::function<void()> released_;  // of close()

    // Copies of what the stream says, for calls that wait.
    std::atomic<std::size_t> readable_{0}, queued_{0}, send_limit_{0}, receive_limit_{0};
    std::atomic<std::uint32_t> urgent_events_{0};  // POLLPRI
    mutable std::atomic<bool> tx_no_room_{false};  // a send, or a watcher, found no room
    std::atomic<int> nodelay_{0}, cork_{0}, oob_inline_{0}, receive_low_{1};
    std::atomic<std::uint64_t> tx_messages_{0}, rx_messages_{0};
};

/// lock_, and behind it what it led to.
class StreamChannel::Section {
  public:
    explicit Section(StreamChannel& channel) : channel_(channel) { channel_.lock_.lock(); }
    ~Section() {
        channel_.publish();
        channel_.lock_.unlock();
        channel_.perform(actions);
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    /// Around a copy that takes long.
    void pause() noexcept { channel_.lock_.unlock(); }
    void resume() noexcept { channel_.lock_.lock(); }
    /// Until another call of the same direction has copied. @pre the lock is held
    void await(const bool& copying) noexcept {
        while (copying) {
            pause();
            wait_until([this, &copying] {
                const std::lock_guard hold(channel_.lock_);
                return !copying;
            });
            resume();
        }
    }
    StreamActions actions;

  private:
    StreamChannel& channel_;
};

}  // namespace xsock::sockets
