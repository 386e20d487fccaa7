// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel module's core (ddp_kernel/core) in user space: TCP's two queues, the hooks that the
// module has in them, and one region. What sk_buffs and pinned pages are there are arrays here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "include/xsock/ddp_uapi.h"

extern "C" {
#include "ddp_kernel/core/rx.h"
#include "ddp_kernel/core/span.h"
}

struct ddp_mr {
    std::vector<std::byte>& memory;
    std::uint64_t address = 0;  ///< of its first byte; regions do not overlap
    bool pinned = true;
    bool is_sink = false;     ///< takes Read Responses, in their order
    bool to_atomics = false;  ///< peers may run atomic operations on it
    std::uint64_t responded = 0;
    int users = 0;
};

/// What one call of core/ may touch.
struct ddp_env {
    /// Modulo 2^64: octets from before the binding lie below 0.
    struct Range {
        std::uint64_t from, to;
    };
    const std::vector<std::byte>& stream;
    std::vector<Range> readable;  ///< sorted by `from`; they may overlap
    ddp_mr& region;
    ddp_mr& sink;
    std::size_t room = SIZE_MAX;  ///< bytes of recv()'s buffer that can be written
    std::vector<std::byte> out = {};
    int faults = 0;                ///< what a sound core never asks
    std::uint64_t crc_octets = 0;  ///< whose CRC was computed
    Range hidden = {};             ///< octets that are there, and that none can read
    bool unreadable = false;       ///< they were wanted

    /// Where the octets that begin at `at` end.
    [[nodiscard]] std::uint64_t end_of(std::uint64_t at) const {
        std::uint64_t end = at;
        for (const Range& r : readable) {
            if (r.from > end) break;
            end = std::max(end, r.to);
        }
        return end;
    }
    [[nodiscard]] bool is_full() const { return out.size() > room; }
    /// May they be read? As ddp_kernel/queue.c walks over sk_buffs.
    [[nodiscard]] bool has(std::uint64_t at, std::uint64_t n) {
        if (at < hidden.to && hidden.from < at + n) {
            unreadable = true;
            return false;
        }
        if (holds(at, n)) return true;
        ++faults;
        return false;
    }
    [[nodiscard]] bool holds(std::uint64_t at, std::uint64_t n) const {
        for (const Range& r : readable) {
            if (n == 0 || ddp_is_before(at, r.from)) break;
            std::uint32_t offset = 0;
            const auto bytes = static_cast<std::uint32_t>(r.to - r.from);
            if (!ddp_span_has(r.from, bytes, at, &offset)) continue;
            const std::uint64_t part = std::min<std::uint64_t>(n, bytes - offset);
            at += part;
            n -= part;
        }
        return n == 0;
    }
};

namespace xsock::test {

class ModuleModel {
  public:
    static constexpr std::uint32_t kStag = 0x1234;
    static constexpr std::uint32_t kSinkStag = 0x4321;

    struct Options {
        bool in_order = false;
        bool crc = true;
        bool markers = false;
        bool to_atomics = false;  ///< the region is open to atomic operations
        /// So many octets from before the binding lie in one buffer with the first behind it.
        std::uint64_t before = 0;
    };
    /// `stream`: the octets that TCP holds; only those that have arrived are read.
    ModuleModel(const std::vector<std::byte>& stream, std::vector<std::byte>& region,
                std::vector<std::byte>& sink, const Options& options)
        : stream_(stream),
          region_{.memory = region, .to_atomics = options.to_atomics},
          sink_{.memory = sink, .address = region.size(), .is_sink = true} {
        if (options.before != 0) queue_.push_back({0 - options.before, 0});
        rx_.crc = options.crc;
        rx_.markers = options.markers;
        rx_.in_order = options.in_order;
        if (options.crc && !options.in_order && !options.markers) {
            ahead_ = std::make_unique<ddp_ahead>();
            rx_.ahead = ahead_.get();
        }
    }

    // -- TCP --

    /// A segment arrives: in order, behind a hole, again, or overlapping what is there.
    void arrive(std::uint64_t from, std::uint64_t to) {
        if (to <= edge_) return;
        if (from > edge_) {
            const auto place = std::find_if(ahead_queue_.begin(), ahead_queue_.end(),
                                            [&](const auto& r) { return r.from >= from; });
            ahead_queue_.insert(place, {from, to});
            ++queued_;
            return transmit();  // an ACK
        }
        take_in_order({from, to});
        while (!ahead_queue_.empty() && ahead_queue_.front().from <= edge_) {
            if (ahead_queue_.front().to > edge_) take_in_order(ahead_queue_.front());
            ahead_queue_.erase(ahead_queue_.begin());
        }
        if (unreadable_) return;
        std::uint32_t need = 0;
        ddp_env env = in_order();
        state_ = ddp_rx_leading(&rx_, &env, edge_ - rx_.pos, &need);
        unreadable_ = env.unreadable;
        faults_ += env.faults;
        crc_octets_ += env.crc_octets;
    }
    /// A segment is sent.
    void transmit() {
        if (queued_ != seen_) look_ahead();
    }
    /// TCP throws part of the queue away; the peer sends it again.
    void prune(std::size_t entries) { ahead_queue_.resize(std::min(entries, ahead_queue_.size())); }
    /// Neighbours become one.
    void collapse() {
        for (std::size_t i = 1; i < ahead_queue_.size();) {
            auto& before = ahead_queue_[i - 1];
            if (ahead_queue_[i].from > before.to) {
                ++i;
                continue;
            }
            before.to = std::max(before.to, ahead_queue_[i].to);
            ahead_queue_.erase(ahead_queue_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    [[nodiscard]] bool has(std::uint64_t from, std::uint64_t to) const {
        const auto holds = [&](const auto& r) { return r.from <= from && to <= r.to; };
        return to <= edge_ || std::any_of(ahead_queue_.begin(), ahead_queue_.end(), holds);
    }
    [[nodiscard]] std::uint64_t edge() const { return edge_; }

    // -- the engine --

    /// Memory of a device holds these octets.
    void hide(std::uint64_t from, std::uint64_t to) { hidden_ = {from, to}; }
    /// Octets could not be read: recv() fails, and nothing is done any more.
    [[nodiscard]] bool unreadable() const { return unreadable_; }

    void pin(bool pinned) { region_.pinned = pinned; }
    struct Buffer {
        std::size_t bytes = DDP_RECV_MIN;
        std::size_t writable = SIZE_MAX;  ///< of them; what lies behind is not mapped
    };
    /// recv(): records. `give_up`: an incomplete Write has been waited for long enough.
    std::vector<std::byte> recv(bool give_up) { return recv(give_up, {}); }
    std::vector<std::byte> recv(bool give_up, const Buffer& buffer) {
        if (unreadable_) return {};
        ddp_env env = in_order();
        env.room = buffer.writable;
        ddp_rx_reader reader{};
        reader.room = buffer.bytes;
        ddp_rx_read_begin(&rx_);
        state_ = ddp_rx_read(&rx_, &env, edge_ - rx_.pos, &reader);
        if (state_ == DDP_RX_WAIT && reader.done == 0 && give_up) {
            reader.give_up = true;
            state_ = ddp_rx_read(&rx_, &env, edge_ - rx_.pos, &reader);
        }
        unreadable_ = env.unreadable;
        if (!unreadable_ && reader.fault != env.is_full()) ++faults_;
        faults_ += env.faults;
        env.out.resize(reader.done);  // of a record that found no room, nothing counts
        crc_octets_ += env.crc_octets;
        transmit();
        return std::move(env.out);
    }

    [[nodiscard]] const ddp_rx& rx() const { return rx_; }
    [[nodiscard]] ddp_ahead_count ahead_count() const {
        return ahead_ ? ahead_->count : ddp_ahead_count{};
    }
    [[nodiscard]] std::uint64_t crc_octets() const { return crc_octets_; }
    [[nodiscard]] std::uint64_t scans() const { return scans_; }
    /// References to the region that were not given back, reads beyond the queue, and the like.
    [[nodiscard]] int faults() const { return faults_ + region_.users + sink_.users; }

  private:
    // TCP joins what comes to what waits; not always.
    void take_in_order(const ddp_env::Range& segment) {
        const bool joins = !queue_.empty() && segment.from == edge_ && ++joined_ % 2 != 0;
        if (joins) {
            queue_.back().to = segment.to;
        } else {
            queue_.push_back(segment);
        }
        edge_ = segment.to;
    }
    ddp_env in_order() {
        while (edge_ != 0 && !queue_.empty() && !ddp_is_before(rx_.pos, queue_.front().to)) {
            queue_.erase(queue_.begin());
        }
        return {.stream = stream_,
                .readable = queue_,
                .region = region_,
                .sink = sink_,
                .hidden = hidden_};
    }
    // As ddp_kernel/queue.c has it.
    void look_ahead() {
        if (unreadable_ || ahead_queue_.empty() || !ddp_rx_may_look_ahead(&rx_)) return;
        ddp_env env{.stream = stream_,
                    .readable = ahead_queue_,
                    .region = region_,
                    .sink = sink_,
                    .hidden = hidden_};
        std::uint32_t budget = DDP_HOOK_OCTETS;
        ++scans_;
        ddp_ahead_begin(ahead_.get(), edge_, ahead_queue_.front().from);
        std::uint64_t at = 0;
        std::uint64_t end = 0;
        for (const auto& segment : ahead_queue_) {
            if (segment.from >= end) {
                at = segment.from;
                end = env.end_of(at);
            }
            if (segment.from >= at) {
                at = ddp_ahead_chain(ahead_.get(), &env, segment.from, end, &budget);
            }
        }
        seen_ = ddp_ahead_goes_on(ahead_.get(), budget) ? queued_ - 1 : queued_;
        faults_ += env.faults;
        crc_octets_ += env.crc_octets;
    }

    const std::vector<std::byte>& stream_;
    ddp_mr region_, sink_;
    ddp_rx rx_{};
    std::unique_ptr<ddp_ahead> ahead_;
    std::uint64_t edge_ = 0;             // what is in order ends here
    std::vector<ddp_env::Range> queue_;  // and is this; consumed octets may lead it
    unsigned joined_ = 0;
    std::vector<ddp_env::Range> ahead_queue_;  // sorted
    ddp_rx_state state_ = DDP_RX_EMPTY;
    std::uint64_t queued_ = 0, seen_ = UINT64_MAX;  // segments behind a hole, so far
    std::uint64_t scans_ = 0, crc_octets_ = 0;
    ddp_env::Range hidden_{};
    bool unreadable_ = false;
    int faults_ = 0;
};

}  // namespace xsock::test
