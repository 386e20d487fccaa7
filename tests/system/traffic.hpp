// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random Sends, Writes and Reads over one endpoint against a peer that does the same, with every
// byte verified and every completion accounted for: each posted request completes exactly once, in
// order, and after the end of the connection nothing succeeds any more.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "include/xsock/xsock.h"
#include "tests/system/process.hpp"

namespace xsock::test {

struct TrafficOptions {
    std::uint64_t seed = 1;
    std::uint32_t sq_depth = 64;
    std::uint32_t rq_depth = 16;
    std::uint32_t bytes_max = 64 * 1024;
    bool ordered = true;  ///< completions are seen in order: one thread polls
    bool reads = true;
    bool only_reads = false;  ///< besides what the end needs
    bool may_fail = false;    ///< the connection may end early
};

class Traffic {
  public:
    explicit Traffic(const TrafficOptions& options);
    ~Traffic();
    Traffic(const Traffic&) = delete;
    Traffic& operator=(const Traffic&) = delete;

    /// What the peer must know: its private data.
    [[nodiscard]] const xsock_key& key() const noexcept { return key_; }
    /// Depths and context into `attr`.
    void fill(xsock_ep_attr& attr);
    /// Takes the endpoint and posts the receives. Its context must be this.
    void attach(xsock_ep* ep);
    /// Start-up has ended: reads the peer's key.
    void begin();
    /// All of that over the TCP connection `fd`, with the queue and the role that `attr` has.
    void start(int fd, xsock_ep_attr& attr, int timeout_ms = 20'000);

    void on_completion(const xsock_wc& wc);
    /// Posts as the generator says.
    void pump();
    /// No new work from here on; done() becomes true when both sides have said so.
    void finish() noexcept { finishing_ = true; }
    [[nodiscard]] bool done() const noexcept {
        return done_sent_ && done_received_ && sends_.empty() && acks_owed_.empty();
    }
    /// A completion, or a post that was refused, told that the connection ended early.
    [[nodiscard]] bool ended() const noexcept {
        return failed_ || refused_ || (receives_flushed_ && !done_received_);
    }
    /// Requests and receives that owe a completion (an unsignaled one may, if it fails).
    [[nodiscard]] std::size_t outstanding() const noexcept {
        return static_cast<std::size_t>(std::count_if(sends_.begin(), sends_.end(),
                                                      [](const Entry& e) { return e.signaled; })) +
               receives_outstanding_;
    }
    /// Closes (or aborts); what is outstanding will complete.
    void close(bool abort = false);

    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }
    std::mutex mutex;  ///< for threads that share a completion queue
    /// One line about where it stands.
    [[nodiscard]] std::string state() const;

  private:
    enum Kind : std::uint32_t { kData = 1, kWrote, kAck, kDone };
    struct Message {  // in front of every Send; both ends are this program
        std::uint32_t kind = 0, sequence = 0, length = 0, pool_offset = 0, slot = 0, slot_bytes = 0;
    };
    struct Entry {
        std::uint64_t wr_id = 0;
        std::uint16_t op = 0;
        bool signaled = true;
        std::uint32_t length = 0, pool_offset = 0;
        std::vector<unsigned char> read;
    };
    static constexpr std::uint32_t kSlots = 8;
    static constexpr std::uint32_t kParts = 4;

    bool post(Entry entry, const Message* message, std::uint64_t to);
    void post_receive(std::size_t slot);
    void on_send_completion(const xsock_wc& wc);
    void on_receive_completion(const xsock_wc& wc);
    void on_message(const unsigned char* bytes, std::uint32_t length);
    bool send(const Message& message);
    bool post_random();
    std::uint32_t random_length();

    const TrafficOptions options_;
    Rng rng_;
    xsock_ep* ep_ = nullptr;
    xsock_mr* mr_ = nullptr;
    xsock_key key_{};
    xsock_remote peer_{};
    std::vector<unsigned char> window_;  // kSlots write slots, then what the peer may read
    std::vector<Message> headers_;       // of the Sends under way
    std::deque<Entry> sends_;
    std::vector<std::vector<unsigned char>> receive_buffers_;
    std::vector<bool> receive_posted_;
    std::deque<std::size_t> receive_order_;
    std::size_t receives_outstanding_ = 0;
    std::array<bool, kSlots> slot_busy_{};
    std::array<Message, kSlots> slot_written_{};
    std::deque<std::uint32_t> to_announce_;  // slots written, not yet told
    std::deque<std::uint32_t> acks_owed_;
    std::uint64_t next_wr_id_ = 1;
    std::uint32_t target_ = 1;
    std::uint32_t sequence_out_ = 0, sequence_in_ = 0;
    bool begun_ = false, finishing_ = false, done_sent_ = false, done_received_ = false;
    bool failed_ = false, receives_flushed_ = false, closed_ = false, last_signaled_ = false;
    bool refused_ = false;  // a request was not taken, for the connection had ended
    bool over_ = false;     // something failed after which nothing may succeed
    std::uint64_t bytes_ = 0, operations_ = 0;
};

}  // namespace xsock::test
