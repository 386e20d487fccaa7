// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One end of a simulated connection and its driver: what transport/connection is in the product,
// made of the same calls in the same order, with the simulated link for a socket and virtual time
// for a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/completion_queue.hpp"
#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "ddp_user/stream.hpp"
#include "mpa/stream.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/options.hpp"
#include "tests/sim/sabotage.hpp"
#include "tests/sim/tap.hpp"

namespace xsock::sim {

/// The two directions of a connection, as one end sees them.
struct Link {
    Pipe* out = nullptr;
    Pipe* in = nullptr;
    bool* reset = nullptr;  ///< shared: the connection is no more
};

class Endpoint {
  public:
    struct Parts {
        const EndOptions* options = nullptr;
        Link link;
        QpNum qp_num = 1;
        std::uint64_t context = 0;
        PdId pd = 1;
        MemoryTable* memory = nullptr;
        Epochs::Reader* reader = nullptr;
        std::shared_ptr<RecvQueue> rq;
        bool rq_shared = false;
        CompletionQueue* send_cq = nullptr;
        CompletionQueue* recv_cq = nullptr;
        Time receive_patience = kNever;
        /// Is some memory of the program unmapped now? Null: never, and nothing guards against it.
        const bool* unmapped = nullptr;
        Sabotage sabotage = Sabotage::none;
        std::uint64_t seed = 0;
        const char* name = "";
    };
    explicit Endpoint(Parts parts);

    void start(Time now);
    /// One pass: reads, time, writes, changes of state. Answers when to come again; kNever: only
    /// when something arrives, room appears or the program posts.
    Time run(Time now);
    /// The program ends the connection: drains, then FIN.
    void shutdown(Time now);
    /// The same at once, with a reset.
    void abort();

    [[nodiscard]] bool ended() const noexcept { return ended_; }
    [[nodiscard]] bool descriptor_closed() const noexcept { return closed_; }
    [[nodiscard]] bool established() const noexcept { return connected_; }
    [[nodiscard]] bool fin_sent() const noexcept { return fin_sent_; }
    [[nodiscard]] bool peer_finished() const noexcept { return eof_; }
    [[nodiscard]] bool closing() const noexcept { return closing_; }
    /// Memory was gone; all that was posted says so, since nobody knows whose it was.
    [[nodiscard]] bool faulted() const noexcept { return faulted_; }
    [[nodiscard]] Violation violation() const noexcept {
        return ddp.violation() != Violation::none ? ddp.violation() : mpa->violation();
    }
    [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
    [[nodiscard]] const EndOptions& options() const noexcept { return *parts_.options; }

  private:
    Parts parts_;

  public:
    SendQueue sq;
    ddp::Stream ddp;

  private:
    Tap tap_;

  public:
    std::unique_ptr<mpa::Stream> mpa;

  private:
    void receive(Time now);
    void consume(std::vector<std::byte> octets, Time now);
    bool transmit(Time now);
    bool guarded(const std::function<void()>& body, Time now);
    void settle(Time now);
    void lost();
    void end(WcStatus status, bool orderly, Time now);
    void close_descriptor(bool reset);
    [[nodiscard]] bool tx_wanted() const;

    Rng rng_;
    std::vector<std::byte> scratch_;
    std::vector<std::byte> stash_;  // read from the link, not yet consumed
    unsigned passes_ = 0;
    bool connected_ = false, eof_ = false, ended_ = false, closed_ = false;
    bool closing_ = false, fin_sent_ = false, receives_flushed_ = false, faulted_ = false;
    Time decision_at_ = kNever;
    Time starve_deadline_ = kNever;
    Time linger_deadline_ = kNever;
};

}  // namespace xsock::sim
