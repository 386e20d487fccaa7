// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One end of a simulated connection: the ddp::Connection of the product, with the simulated link
// for a socket, virtual time for a clock, and reads and writes cut as the world's seed says.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/completion_queue.hpp"
#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "ddp_user/connection.hpp"
#include "mpa/stream.hpp"
#include "shm/stream.hpp"
#include "tests/sim/host_link.hpp"
#include "tests/sim/link.hpp"
#include "tests/sim/llp_interposer.hpp"
#include "tests/sim/mutant.hpp"
#include "tests/sim/options.hpp"
#include "tests/sim/ulp_interposer.hpp"
#include "tests/support/record_maker.hpp"

namespace xsock::sim {

/// The two directions of a connection, as one end sees them.
struct Link {
    Pipe* out = nullptr;
    Pipe* in = nullptr;
    bool* reset = nullptr;  ///< shared: the connection is no more
};

class Endpoint final : private ddp::Connection::Delegate, public shm::Stream::Owner {
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
        bool records = false;  ///< a kernel module places what comes
        CompletionQueue* send_cq = nullptr;
        CompletionQueue* recv_cq = nullptr;
        Time rnr_timeout = kNever;
        /// Is some memory of the program unmapped now? Null: never.
        const bool* unmapped = nullptr;
        std::uint32_t first_msn = 1;
        Mutant mutant = Mutant::none;
        std::uint64_t seed = 0;
        const char* name = "";
    };
    explicit Endpoint(Parts parts);
    ~Endpoint();

    /// Data will go by this link: the one end opens a slot, the other waits for that. False: there
    /// is none, nothing has been done. Before start().
    bool use_link(HostLink& link, std::uint64_t token, bool opens);
    /// A slot is opened in this link, or not, so long after the peer's offer has come.
    void answer_offers(HostLink& link, Time after, bool declines);
    void leave_link();
    /// The time at which the link is polled.
    void set_time(Time now) noexcept { now_ = now; }
    /// Data go by the link.
    [[nodiscard]] bool in_memory() const noexcept { return in_memory_; }
    /// Something has happened to it while the link was polled.
    [[nodiscard]] bool take_touched();

    void start(Time now);
    /// One poll cycle: reads, time, writes, changes of state. Answers when to come again; kNever:
    /// only when something arrives, room appears or the program posts.
    Time run(Time now);
    /// The program ends the connection: drains, then FIN.
    void shutdown(Time now);
    /// The same at once, with a reset.
    void abort();

    [[nodiscard]] bool ended() const noexcept { return connection_.ended(); }
    [[nodiscard]] bool descriptor_closed() const noexcept { return connection_.closed(); }
    [[nodiscard]] bool established() const noexcept { return connection_.is_started(); }
    [[nodiscard]] bool fin_sent() const noexcept { return connection_.fin_sent(); }
    [[nodiscard]] bool peer_finished() const noexcept { return connection_.peer_finished(); }
    [[nodiscard]] bool closing() const noexcept { return connection_.closing(); }
    /// Memory was gone; all that was posted says so, since the owner is not known.
    [[nodiscard]] bool faulted() const noexcept {
        const ddp::EndCause cause = connection_.error().cause;
        return cause == ddp::EndCause::rx_memory_unmapped ||
               cause == ddp::EndCause::tx_memory_unmapped;
    }
    [[nodiscard]] StreamError stream_error() const noexcept { return connection_.stream_error(); }
    [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
    [[nodiscard]] const EndOptions& options() const noexcept { return *parts_.options; }

  private:
    Parts parts_;

  public:
    SendQueue sq;

  private:
    ddp::Connection connection_;
    UlpInterposer interposer_;

  public:
    ddp::Stream& ddp;
    std::unique_ptr<mpa::Stream> mpa;

  private:
    Llp& data_layer(Llp& startup) override;
    void on_started() override;
    void on_state(QpState state) override;
    void on_rnr() override {}  // the world tells all when a shared receive is posted
    void finish() override;
    void close(bool reset) override;

    // shm::Stream::Owner
    void on_rx(ConstBytes bytes) override;
    void on_fin(bool aborted) override;
    void on_room() override;
    void on_link_end(StreamError why) override;

    Time poll(Time now);
    void receive(Time now);
    bool receive_fin(Time now);
    void take_fin(Time now);
    void confirm(Time now);
    [[nodiscard]] Time draw_delay();
    bool transmit(Time now);
    bool write_single(Time now);
    bool write_batch(Time now);
    void bind_module();
    bool place(const std::byte* header, ConstBytes payload);
    [[nodiscard]] std::vector<std::byte> read(std::size_t most, Time now);
    bool gather(const TxBatch& batch, std::vector<std::byte>& bytes);
    void decide(Time now);
    void answer_offer(Time now);
    void tell_taken(Time now);
    void check_answer() const;

    struct Answering {
        HostLink* link = nullptr;
        Time after = 0, at = kNever;
        bool declines = false;
    };

    LlpInterposer layer_;
    std::unique_ptr<test::RecordMaker> module_;  // null: octets are read
    HostLink* link_ = nullptr;
    Answering answering_;
    std::uint64_t token_ = 0;
    std::unique_ptr<shm::Stream> shm_;
    std::unique_ptr<LlpInterposer> memory_layer_;
    bool in_memory_ = false;  // data go there
    bool offered_ = false;    // if the peer's answer is that
    bool touched_ = false;
    bool fin_ = false;  // of the peer's records; it waits for what comes before
    Rng rng_;
    std::vector<std::byte> scratch_;
    unsigned cycles_ = 0;
    Time now_ = 0;
    Time decision_at_ = kNever;
    Time confirm_start_at_ = kNever;
    Time confirm_end_at_ = kNever;
    Time tell_at_ = kNever;  // what is owed to the peer, unless something else goes before
};

/// The two ends of a connection come to a slot: one opens it before start-up, or they agree in it.
void take_slot(const Options::Pair& pair, const std::array<std::unique_ptr<Endpoint>, 2>& end,
               const std::array<std::unique_ptr<HostLink>, 2>& link, std::uint64_t token);

}  // namespace xsock::sim
