// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sits in the seam between ddp::Connection and mpa::Stream. Forwards every call, and checks that
// both keep the contract of base/llp.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "base/fault.hpp"
#include "base/llp.hpp"
#include "tests/sim/mutant.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {

class LlpInterposer final : public Llp {
  public:
    LlpInterposer(Llp& below, Mutant mutant) : below_(below), mutant_(mutant) { renew_status(); }

    void start(Time now) override {
        below_.start(now);
        renew_status();
    }
    bool accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time now) override {
        const bool said = below_.accept(private_data, ird, ord, now);
        renew_status();
        return said;
    }
    bool reject(ConstBytes private_data, Time now) override {
        const bool said = below_.reject(private_data, now);
        renew_status();
        return said;
    }
    void open(Opening how, const Negotiated& agreed, Time now) override {
        if (state() != State::started) fail("opened, though start-up has not ended well");
        below_.open(how, agreed, now);
        renew_status();
        if (state() == State::started) fail("opened in vain");
    }

    Rx rx(ConstBytes bytes, Time now) override {
        if (eof_) fail("bytes behind the end of the stream");
        Rx rx;
        forward([&] { rx = below_.rx(bytes, now); });
        if (rx.taken > bytes.size()) fail("more bytes taken than given");
        renew_status();
        return rx;
    }
    void rx_eof(Time now) override {
        eof_ = true;
        below_.rx_eof(now);
        renew_status();
    }
    void lost() override {
        below_.lost();
        renew_status();
    }

    TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) override {
        if (finished_) fail("something is to be sent behind FIN");
        TxBatch batch;
        forward([&] { batch = below_.tx_prepare(scratch, byte_budget, now); });
        renew_status();
        check(batch);
        given_ = batch.bytes;
        return batch;
    }
    std::size_t tx_single(Bytes frame) override {
        if (finished_) fail("something is to be sent behind FIN");
        if (status().tx_pending != 0) fail("a message by itself, behind others");
        given_ = below_.tx_single(frame);
        single_.assign(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(given_));
        renew_status();
        return given_;
    }
    void tx_keep(ConstBytes frame, Bytes scratch) override {
        if (!std::equal(frame.begin(), frame.end(), single_.begin(), single_.end())) {
            fail("another message is kept than was given");
        }
        below_.tx_keep(frame, scratch);
        renew_status();
    }
    void tx_commit(std::size_t n, Time now) override {
        if (n > given_) fail("more bytes written than given");
        given_ -= n;
        if (!single_.empty()) {
            single_.erase(single_.begin(), single_.begin() + static_cast<std::ptrdiff_t>(n));
        }
        below_.tx_commit(n, now);
        renew_status();
    }
    void tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept override {
        below_.tx_move(from, n, to);
    }
    void tx_finished() noexcept override {
        finished_ = true;
        below_.tx_finished();
        renew_status();
    }

    void on_time(Time now) override {
        below_.on_time(now);
        renew_status();
    }

    const Negotiated& negotiated() const noexcept override { return below_.negotiated(); }
    ConstBytes private_data() const noexcept override { return below_.private_data(); }
    std::size_t mulpdu() const noexcept override { return below_.mulpdu(); }
    std::optional<Implementation> peer() const noexcept override { return below_.peer(); }

  private:
    void renew_status() noexcept { status_ = below_.status(); }

    /// Memory of the program may be gone: with Mutant::ignore_fault the owner is not told.
    template <typename F>
    void forward(F&& f) {
        if (mutant_ != Mutant::ignore_fault) return f();
        std::exception_ptr thrown;
        static_cast<void>(fault::guard([&] {
            try {
                f();
            } catch (...) {
                thrown = std::current_exception();
            }
        }));
        if (thrown) std::rethrow_exception(thrown);
    }

    void check(const TxBatch& batch) {
        std::size_t bytes = 0;
        for (const auto& piece : batch.iov) bytes += piece.iov_len;
        if (bytes != batch.bytes) fail("iovecs and bytes disagree");
        if (bytes == 0) return;
        if (bytes != status().tx_pending)
            fail("%zu bytes are given, %zu wait", bytes, status().tx_pending);
        if (batch.group_ends.empty() || batch.group_ends.back() != batch.iov.size()) {
            fail("the groups do not end where the iovecs do");
        }
        // What was left of a message by itself begins the batch.
        const std::byte* const first = static_cast<const std::byte*>(batch.iov[0].iov_base);
        const std::size_t n = std::min(single_.size(), batch.iov[0].iov_len);
        if (!std::equal(single_.begin(), single_.begin() + static_cast<std::ptrdiff_t>(n), first)) {
            fail("a message by itself and its batch disagree");
        }
        single_.clear();
    }

    Llp& below_;
    Mutant mutant_;
    bool eof_ = false, finished_ = false;
    std::size_t given_ = 0;          // and not committed
    std::vector<std::byte> single_;  // what tx_single() gave and was not written
};

}  // namespace xsock::sim
