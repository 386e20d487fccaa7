// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lower layer of the simplest kind, for tests of what stands above one: start-up is an octet each
// way, a ULPDU is its length and itself.
#pragma once

#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/fault.hpp"
#include "base/llp.hpp"

namespace xsock::test {

class PipeLayer final : public Llp {
  public:
    struct Options {
        bool initiator = true;
        bool defer = false;  ///< responder: waits for accept() or reject()
        bool peer_is_xsock = true;
        Rtr rtr = Rtr::none;
        std::uint64_t features = 0;
        Time startup_timeout = 10 * kSecond;
        Time finish_at = 0;
    };

    PipeLayer(Options options, Ulp& ulp) : options_(options), ulp_(ulp) {
        agreed_.initiator = options.initiator;
        agreed_.peer_is_xsock = options.peer_is_xsock;
        agreed_.rtr = options.rtr;
        agreed_.features = options.features;
        agreed_.crc = false;
    }

    void start(Time now) override {
        if (options_.initiator) out_.push_back(kRequest);
        status_.next_timeout = now + options_.startup_timeout;
        update();
    }
    bool accept(ConstBytes private_data, std::uint16_t, std::uint16_t, Time) override {
        return answer(private_data, kAccept);
    }
    bool reject(ConstBytes private_data, Time) override { return answer(private_data, kReject); }
    void open(Opening how, const Negotiated& agreed, Time) override {
        opened_as.push_back(how);
        status_.state = State::operational;
        status_.finish_at = options_.finish_at;
        update();
        if (how == Opening::first) ulp_.llp_established(agreed);
    }

    Rx rx(ConstBytes bytes, Time) override {
        if (throws) throw std::bad_alloc();
        Rx rx;
        while (rx.taken < bytes.size() && !rx.boundary) {
            const std::size_t n = take(bytes.subspan(rx.taken), rx.boundary);
            if (n == 0) break;
            rx.taken += n;
        }
        update();
        return rx;
    }
    void rx_eof(Time) override {
        if (status_.state <= State::await_decision || in_ulpdu_) {
            fail(StreamError::mpa_connection_lost);
        } else {
            ulp_.llp_closed(CloseKind::peer_finished);
        }
        update();
    }
    void lost() override {
        if (std::exchange(status_.state, State::closed) == State::closed) return;
        ulp_.llp_closed(CloseKind::reset);
        update();
    }

    TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time) override {
        if (throws) throw std::bad_alloc();
        if (finished) ++asked_after_finish;
        if (out_.empty() && may_pull()) pull(byte_budget);
        update();
        std::copy(out_.begin(), out_.end(), scratch.begin());
        iov_ = {scratch.data(), out_.size()};
        return {{&iov_, 1}, {&kOne, 1}, out_.size(), false};
    }
    std::size_t tx_single(Bytes) override { return 0; }
    void tx_keep(ConstBytes, Bytes) override {}
    void tx_commit(std::size_t n, Time) override {
        out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(n));
        if (status_.state == State::startup && said_ && out_.empty()) {
            if (*said_ == kAccept) status_.state = State::started;
            if (*said_ == kReject) fail(StreamError::startup_rejected);
        }
        written_ += n;
        while (!ends_.empty() && ends_.front() <= written_) {
            ends_.erase(ends_.begin());
            ulp_.tx_done(1);
        }
        update();
    }
    void tx_move(const std::byte*, std::size_t, std::byte*) noexcept override {}
    void tx_finished() noexcept override { finished = true; }

    void on_time(Time now) override {
        if (now < status_.next_timeout) return;
        if (status_.state == State::startup) fail(StreamError::startup_timeout);
        update();
    }

    const Negotiated& negotiated() const noexcept override { return agreed_; }
    ConstBytes private_data() const noexcept override { return {}; }
    std::optional<Implementation> peer() const noexcept override { return std::nullopt; }
    std::size_t mulpdu() const noexcept override { return kMulpdu; }

    /// A layer that another one starts up for.
    void skip_startup() {
        status_.state = State::started;
        update();
    }
    /// Reception is over, as after a wrong CRC.
    void break_reception() {
        fail(StreamError::mpa_crc);
        status_.state = State::failed;
        update();
    }

    bool throws = false;
    bool finished = false;
    unsigned asked_after_finish = 0;
    std::vector<Opening> opened_as;

  private:
    static constexpr std::byte kRequest{'q'}, kAccept{'a'}, kReject{'r'};
    static constexpr std::uint32_t kOne = 1;
    static constexpr std::size_t kMulpdu = 1024;

    bool answer(ConstBytes private_data, std::byte what) {
        if (status_.state != State::await_decision || private_data.size() > 512) return false;
        said_ = what;
        out_.push_back(what);
        status_.state = State::startup;
        update();
        return true;
    }
    [[nodiscard]] bool may_pull() const {
        return status_.state == State::operational || status_.state == State::failed;
    }
    void fail(StreamError v) {
        status_.stream_error = v;
        status_.state = State::closed;
        ulp_.llp_failed(v);
    }

    /// Octets taken of what begins here; 0: there is no room.
    std::size_t take(ConstBytes bytes, bool& boundary) {
        switch (status_.state) {
            case State::startup:
                if (bytes[0] == kRequest && options_.defer) {
                    status_.state = State::await_decision;
                } else if (bytes[0] == kRequest) {
                    said_ = kAccept;
                    out_.push_back(kAccept);
                } else if (bytes[0] == kAccept) {
                    status_.state = State::started;
                    boundary = true;
                } else {
                    fail(StreamError::startup_rejected);
                }
                return 1;
            case State::operational:
                return take_ulpdu(bytes, boundary);
            case State::await_decision:
            case State::started:
                return 0;
            case State::failed:
            case State::closed:
                return bytes.size();
        }
        return 0;
    }
    std::size_t take_ulpdu(ConstBytes bytes, bool& boundary) {
        if (length_bytes_ < 2) {
            length_ = length_ << 8 | std::to_integer<std::size_t>(bytes[0]);
            if (++length_bytes_ < 2) return 1;
            in_ulpdu_ = true;
            ulp_.rx_begin(length_);
            return 1;
        }
        const Bytes target = ulp_.rx_target();
        const std::size_t n = std::min(target.size(), bytes.size());
        if (n == 0) return 0;
        {
            const fault::Touch touch(1, target.data(), n);
            std::copy_n(bytes.begin(), n, target.begin());
        }
        ulp_.rx_advance(n);
        if ((length_ -= n) > 0) return n;
        in_ulpdu_ = false;
        length_bytes_ = 0;
        ulp_.rx_end(true);
        boundary =
            options_.rtr != Rtr::none && !options_.initiator && !std::exchange(rtr_seen_, true);
        return n;
    }

    void pull(std::size_t byte_budget) {
        UlpduOut ulpdu;
        while (out_.size() < byte_budget &&
               ulp_.tx_fill({.mulpdu = kMulpdu, .described = &ulpdu}).described) {
            ulpdu_.reserve(kMulpdu);  // nothing is allocated while a Touch is alive
            ulpdu_.assign(ulpdu.header.begin(), ulpdu.header.begin() + ulpdu.header_size);
            for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
                const ConstBytes piece = ulpdu.payload[i];
                const fault::Touch touch(0, piece.data(), piece.size());
                ulpdu_.insert(ulpdu_.end(), piece.begin(), piece.end());
            }
            out_.push_back(static_cast<std::byte>(ulpdu_.size() >> 8));
            out_.push_back(static_cast<std::byte>(ulpdu_.size()));
            out_.insert(out_.end(), ulpdu_.begin(), ulpdu_.end());
            ends_.push_back(written_ + out_.size());
        }
    }
    void update() noexcept {
        status_.tx_pending = out_.size();
        status_.tx_allowed = !out_.empty() || may_pull();
        if (status_.state >= State::started) status_.next_timeout = kNever;
    }

    Options options_;
    Ulp& ulp_;
    Negotiated agreed_;
    std::optional<std::byte> said_;
    std::vector<std::byte> ulpdu_;
    std::vector<std::byte> out_;     // pulled, not committed
    std::vector<std::size_t> ends_;  // of the ULPDUs in it, counted in octets from the beginning
    std::size_t written_ = 0;
    std::size_t length_ = 0, length_bytes_ = 0;
    bool in_ulpdu_ = false, rtr_seen_ = false;
    struct iovec iov_ = {};
};

}  // namespace xsock::test
