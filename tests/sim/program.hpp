// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The applications of a simulated world, and the oracle: each program posts random operations over
// its connections and knows, for every completion and every byte of memory, what may be there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/arena.hpp"
#include "tests/sim/endpoint.hpp"
#include "tests/sim/region.hpp"

namespace xsock::sim {

class Program;

/// A piece of memory cut from an arena.
struct Buffer {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
};

struct PostedRecv {
    std::vector<Buffer> pieces;
    std::size_t length = 0;
    bool faulty = false;  // its key does not cover it
};

/// A process: memory, keys, and the queues that its connections may share.
struct Host {
    Host(const char* name, Bytes memory, Bytes doubtful, const Options& options, Rng& rng);

    const char* name;
    Arena arena;
    std::unique_ptr<Arena> doubtful;  ///< memory that is unmapped at times; null: none
    bool unmapped = false;            ///< it is, whenever a poller runs
    Epochs epochs;
    MemoryTable table{epochs};
    Epochs::Reader reader{epochs};
    std::uint32_t arena_key = 0;                   // for SGEs: all of the arena, no right for peers
    std::uint32_t doubtful_key = 0;                // likewise
    std::shared_ptr<CompletionQueue> cq;           // shared, or null
    std::shared_ptr<RecvQueue> srq;                // shared, or null
    std::vector<Program*> programs;                // by qp_num - 1
    std::map<std::uint64_t, PostedRecv> receives;  // by wr_id
    std::uint64_t next_receive = 1;

    [[nodiscard]] Arena& arena_of(const std::byte* at) {
        return doubtful != nullptr && doubtful->contains(at) ? *doubtful : arena;
    }
    [[nodiscard]] std::uint32_t key_of(const std::byte* at) {
        return doubtful != nullptr && doubtful->contains(at) ? doubtful_key : arena_key;
    }
    /// While a poller runs.
    void take_memory_away() const;
    void give_memory_back() const;
};

/// What one end of a connection does, and what it must see.
class Program {
  public:
    static constexpr PdId kPd = 1, kOtherPd = 2;

    Program(Host& host, Endpoint& end, const Options& world, const Options::Pair& pair,
            Mutant mutant, std::uint64_t seed);

    void meet(Program& peer) { peer_ = &peer; }
    void register_regions();

    /// One step of the program. `posted`: something was posted, so the poller must run.
    struct Step {
        Time again = kNever;
        bool posted = false;
        bool posted_shared = false;
    };
    Step step(Time now);

    /// Everything is over: was it as it must be?
    void check_end(const Pipe& in);
    /// Gives everything back.
    void tidy_up();
    void check_regions() const;
    [[nodiscard]] const char* name() const noexcept { return end_.parts().name; }
    [[nodiscard]] std::size_t operations_posted() const noexcept { return operations_.size(); }
    [[nodiscard]] std::size_t delivered() const noexcept { return delivered_; }

    /// For main()'s statistics.
    [[nodiscard]] bool failed() const noexcept { return failed_; }

  private:
    void check_peer() const;
    struct Operation {
        SendOpcode opcode = SendOpcode::send;
        std::uint8_t flags = 0;
        std::vector<Buffer> pieces;
        std::vector<std::byte> data;  // Send, Write: what; Read: the least that must be found
        std::size_t length = 0;
        Region* region = nullptr;
        std::size_t offset = 0;      // in the region
        std::uint32_t stag = 0;      // invalidations
        Region* replaces = nullptr;  // bindings: the window that ends with it
        Atomic atomic;
        std::uint64_t immediate = 0;
        bool poison = false;     // the peer must refuse it: nothing behind it arrives
        bool must_fail = false;  // locally
        bool done = false;

        [[nodiscard]] std::uint64_t left_by_atomic(std::uint64_t value) const;
        [[nodiscard]] bool takes_receive() const noexcept {
            return opcode == SendOpcode::send || opcode == SendOpcode::send_invalidate ||
                   opcode == SendOpcode::send_immediate || is_immediate();
        }
        [[nodiscard]] bool is_immediate() const noexcept {
            return opcode == SendOpcode::write_immediate || opcode == SendOpcode::immediate;
        }
        /// Bytes that the receive it takes must hold.
        [[nodiscard]] std::size_t receive_bytes() const noexcept {
            return is_immediate() ? 0 : length;
        }
    };

    // -- doing --
    bool post_receive();
    bool post_operation();
    bool post_send(bool invalidate);
    void draw_immediate(Operation& operation);
    bool post_write(bool immediate);
    bool post_read();
    bool post_local_invalidate();
    bool post_binding();
    bool post_bad_binding();
    bool post_withheld();
    bool post_beside_window();
    Region* make_window(std::size_t offset, std::size_t length);
    bool post_immediate();
    bool post_atomic(SendOpcode opcode);
    std::optional<Operation> draw_access();
    bool post_beyond(Operation operation, Region& region, std::size_t most);
    bool post_edge();
    bool post_error();
    bool post_foreign(Operation operation);
    bool post_bad_extension();
    bool post(Operation operation, std::uint32_t remote_stag, std::uint64_t remote_to,
              std::uint32_t lkey_override = 0);
    void tend_regions();
    void revoke(Region& region);
    void poll();
    void maybe_close(Time now);
    [[nodiscard]] bool all_done() const noexcept;
    [[nodiscard]] std::size_t draw_length(std::size_t most);
    [[nodiscard]] std::uint8_t draw_flags(std::size_t length, bool read);
    std::optional<std::vector<Buffer>> take_pieces(std::size_t bytes);
    void give_pieces(const std::vector<Buffer>& pieces);
    bool take_atomic_pieces(Operation& operation);
    [[nodiscard]] std::uint32_t draw_lkey(const std::byte* at);
    [[nodiscard]] std::byte* take_memory(std::size_t bytes);
    [[nodiscard]] bool peer_speaks_extensions() const noexcept;
    Region* usable_region(Program& owner, std::uint32_t right);
    void register_region(std::uint32_t access, bool only_qp);
    void register_foreign_regions();

    // -- checking --
    void on_completion(const Wc& wc);
    void on_sent(const Wc& wc);
    void on_succeeded(std::uint64_t sequence, bool told = true);
    void on_failed(Operation& operation);
    void on_bound(Operation& operation);
    /// Everything before entry `sequence` has been placed at the peer.
    void on_placed(std::uint64_t sequence);
    /// Does success say that the peer has taken it?
    [[nodiscard]] bool confirmed(const Operation& operation) const noexcept;
    void on_received(const Wc& wc);
    void on_message(const Wc& wc, const PostedRecv& receive);
    void on_immediate(const Wc& wc, std::uint64_t sequence);
    void on_invalidated(Region& region);
    [[nodiscard]] bool poisoned_before(std::uint64_t sequence) const;
    /// Can what came from the peer be compared? Damage that no CRC covers makes anything possible.
    [[nodiscard]] bool trusted() const noexcept;
    /// May memory that the peer writes hold what it never sent? Placement runs ahead of the CRC.
    [[nodiscard]] bool damaged_by_peer() const noexcept;
    /// May atomics on this region of ours have been dropped although what was posted behind them
    /// arrived? The peer does not ask any more once we have finished.
    [[nodiscard]] bool may_lack_atomics(const Region& region) const noexcept;

    Host& host_;
    Endpoint& end_;
    const Options& world_;
    const Options::Pair& pair_;
    Mutant mutant_;
    Rng rng_;
    Rng immediates_;  // apart, so that older seeds stay what they were
    Program* peer_ = nullptr;

    std::vector<std::unique_ptr<Region>> regions_;
    Region below_;                      // what windows are bound to parts of; no peer may use it
    std::uint32_t window_key_ = 0;      // of the next window; 0: there are none
    Region* window_ = nullptr;          // the one bound last
    std::deque<Operation> operations_;  // by sequence in the send queue
    std::vector<std::uint64_t> sends_;  // sequences of the Sends among them
    std::size_t delivered_ = 0;         // of the peer's Sends
    std::uint64_t next_completion_ = 0;
    std::uint64_t first_poison_ = ~std::uint64_t{0};
    std::deque<std::uint64_t> receive_order_;  // wr_ids of receives of our own queue
    std::size_t receives_posted_ = 0;
    unsigned left_;
    bool late_given_ = false, late_ = false;
    bool failed_ = false, told_why_ = false;
    bool mutated_ = false;
    std::byte* late_touch_ = nullptr;
    Time pause_;
};

}  // namespace xsock::sim
