// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/endpoint.hpp"

#include <algorithm>
#include <exception>

#include "base/fault.hpp"

namespace xsock::sim {
namespace {

constexpr Time kLinger = 5 * kSecond;
constexpr int kReadsPerPass = 4;
constexpr int kBatchesPerPass = 8;
constexpr Time kSoon = 1000;

ddp::Config ddp_config(const Endpoint::Parts& parts, SendQueue& sq) {
    ddp::Config config;
    config.qp_num = parts.qp_num;
    config.qp_context = parts.context;
    config.pd = parts.pd;
    config.require_lkeys = parts.options->require_lkeys;
    if (parts.sabotage != Sabotage::grant_rights) config.rights = parts.options->rights;
    config.ird = parts.options->mpa.startup.ird;
    config.ord = parts.options->mpa.startup.ord;
    config.memory = parts.memory;
    config.sq = &sq;
    config.rq = parts.rq.get();
    config.rq_shared = parts.rq_shared;
    config.send_cq = parts.send_cq;
    config.recv_cq = parts.recv_cq;
    return config;
}

/// The driver is inside an Epochs section for the length of a pass.
class Section {
  public:
    explicit Section(Epochs::Reader& reader) : reader_(reader) { reader_.enter(); }
    ~Section() { reader_.leave(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

  private:
    Epochs::Reader& reader_;
};

}  // namespace

Endpoint::Endpoint(Parts parts)
    : parts_(std::move(parts)),
      sq(parts_.options->sq_depth),
      ddp(ddp_config(parts_, sq)),
      tap_(ddp, parts_.sabotage),
      mpa(std::make_unique<mpa::Stream>(parts_.options->mpa, tap_)),
      rng_(parts_.seed) {
    mpa->set_emss(parts_.options->emss);
    if (options().acknowledged && parts_.sabotage != Sabotage::skip_questions) {
        ddp.set_acknowledged();
    }
}

void Endpoint::start(Time now) { mpa->start(now); }

bool Endpoint::tx_wanted() const {
    if (mpa->tx_pending() != 0) return true;
    if (!mpa->tx_allowed()) return false;
    switch (mpa->state()) {
        case mpa::Stream::State::startup:
        case mpa::Stream::State::await_decision:
            return true;
        case mpa::Stream::State::operational:
        case mpa::Stream::State::failed:
            return ddp.tx_wanted();
        case mpa::Stream::State::closed:
            return false;
    }
    return false;
}

Time Endpoint::run(Time now) {
    if (closed_) return kNever;
    ++passes_;
    const Section section(*parts_.reader);
    if (*parts_.link.reset) {
        lost();
        return kNever;
    }
    receive(now);
    if (closed_) return kNever;
    if (ended_) {
        if (now >= linger_deadline_) close_descriptor(false);
        return closed_ ? kNever : linger_deadline_;
    }
    if (mpa->next_timeout() <= now) mpa->on_time(now);
    if (decision_at_ <= now && mpa->state() == mpa::Stream::State::await_decision) {
        decision_at_ = kNever;
        const mpa::StartupConfig& startup = options().mpa.startup;
        const bool said = options().reject
                              ? mpa->reject(startup.private_data, now)
                              : mpa->accept(startup.private_data, startup.ird, startup.ord, now);
        if (!said) fail("%s: the decision was not taken", parts_.name);
    }
    if (starve_deadline_ <= now) {
        starve_deadline_ = kNever;
        ddp.receive_overdue();
        consume({}, now);
    }
    if (linger_deadline_ <= now) {
        end(WcStatus::flushed, false, now);
        return kNever;
    }
    const bool blocked = transmit(now);
    settle(now);
    if (closed_) return kNever;
    if (ended_) return linger_deadline_;

    Time next = std::min({mpa->next_timeout(), decision_at_, starve_deadline_, linger_deadline_});
    if (parts_.sabotage == Sabotage::lost_wakeup && passes_ > 20) return next;
    const bool may_read =
        stash_.empty() && (parts_.link.in->readable(now) || parts_.link.in->at_end(now));
    if ((tx_wanted() && !blocked) || (may_read && !eof_)) next = std::min(next, now + kSoon);
    return std::max(next, now + 1);
}

/// Runs what touches the program's memory. False: some of it was unmapped, and the connection has
/// ended over that.
bool Endpoint::guarded(const std::function<void()>& body, Time now) {
    if (parts_.unmapped == nullptr) {
        body();
        return true;
    }
    std::exception_ptr thrown;
    const bool whole = fault::guard([&] {
        try {
            body();
        } catch (...) {
            thrown = std::current_exception();
        }
    });
    if (thrown) std::rethrow_exception(thrown);
    if (whole) return true;
    if (!*parts_.unmapped) fail("%s: a fault, though all memory is there", parts_.name);
    SIM_TRACE("    %s meets memory that is gone", parts_.name);
    if (parts_.sabotage == Sabotage::ignore_fault) return true;
    faulted_ = true;
    end(WcStatus::local_protection_error, false, now);
    return false;
}

// -- reception --

void Endpoint::receive(Time now) {
    Pipe& in = *parts_.link.in;
    if (!stash_.empty()) consume({}, now);
    for (int i = 0; i < kReadsPerPass && !closed_ && !eof_ && stash_.empty(); ++i) {
        if (in.at_end(now)) {
            SIM_TRACE("    %s reads FIN", parts_.name);
            eof_ = true;
            if (ended_) {
                close_descriptor(false);
            } else {
                mpa->rx_eof(now);
            }
            return;
        }
        if (!in.readable(now)) return;
        // Exactly as long as it is, so that a sanitizer sees a look beyond it.
        std::vector<std::byte> octets(rng_.between(1, options().read_max));
        octets.resize(in.read(octets, now));
        octets.shrink_to_fit();
        if (!ended_) consume(std::move(octets), now);
    }
}

/// Hands octets to MPA; the stash first.
void Endpoint::consume(std::vector<std::byte> octets, Time now) {
    if (!stash_.empty()) octets.insert(octets.begin(), stash_.begin(), stash_.end());
    std::size_t taken = 0;
    if (!guarded([&] { taken = mpa->rx_consume(octets, now); }, now)) return;
    if (taken > octets.size()) fail("%s: more octets consumed than given", parts_.name);
    stash_.assign(octets.begin() + static_cast<std::ptrdiff_t>(taken), octets.end());
    if (stash_.empty() || !ddp.rx_blocked()) {
        if (!stash_.empty() && mpa->state() == mpa::Stream::State::operational) {
            fail("%s: %zu octets are refused, yet no receive is wanted", parts_.name,
                 stash_.size());
        }
        starve_deadline_ = kNever;
    } else if (starve_deadline_ == kNever && parts_.receive_patience != kNever) {
        starve_deadline_ = now + parts_.receive_patience;
    }
}

// -- transmission --

/// True when TCP takes no more for now.
bool Endpoint::transmit(Time now) {
    Pipe& out = *parts_.link.out;
    if (options().emss_changes && rng_.chance(10)) mpa->set_emss(rng_.between(64, 9000));
    for (int i = 0; i < kBatchesPerPass && !ended_ && tx_wanted(); ++i) {
        if (parts_.sabotage == Sabotage::lost_wakeup && passes_ > 20) return true;
        if (out.room() == 0 && !fin_sent_) return true;
        // A lone message may go without a batch; what is left of it, the next batch begins with.
        std::array<std::byte, 128> lone;
        std::size_t lone_octets = 0, written = 0;
        if (!fin_sent_ && mpa->tx_pending() == 0 && rng_.chance(50)) {
            lone_octets = mpa->tx_lone(lone);
            const std::size_t most = std::min(lone_octets, rng_.between(1, options().write_max));
            written = out.write(ConstBytes(lone).first(most), now);
            if (lone_octets != 0 && written == lone_octets) {
                mpa->tx_lone_done();
                continue;
            }
        }
        if (scratch_.empty()) scratch_.resize(options().scratch);
        mpa::TxBatch batch;
        if (!guarded([&] { batch = mpa->tx_prepare(scratch_, options().batch_octets, now); },
                     now)) {
            return false;
        }
        if (batch.octets == 0) return false;
        if (fin_sent_) {
            lost();  // as TCP would: EPIPE
            return false;
        }
        std::vector<std::byte> octets;
        octets.reserve(batch.octets);
        // The kernel would say EFAULT.
        const auto take = [&] {
            for (const auto& piece : batch.iov) {
                const auto* from = static_cast<const std::byte*>(piece.iov_base);
                const fault::Touch touch(0, from, piece.iov_len);
                octets.insert(octets.end(), from, from + piece.iov_len);
            }
        };
        if (!guarded(take, now)) return false;
        if (octets.size() != batch.octets) fail("%s: iovecs and octets disagree", parts_.name);
        if (batch.group_ends.empty() || batch.group_ends.back() != batch.iov.size()) {
            fail("%s: the groups do not end where the iovecs do", parts_.name);
        }
        if (lone_octets > octets.size() ||
            !std::equal(lone.begin(), lone.begin() + static_cast<std::ptrdiff_t>(lone_octets),
                        octets.begin())) {
            fail("%s: a lone message and its batch disagree", parts_.name);
        }
        const std::size_t most = rng_.between(1, options().write_max);
        const std::size_t n =
            written != 0 ? written
                         : out.write(ConstBytes(octets).first(std::min(octets.size(), most)), now);
        mpa->tx_commit(n, now);
        // Nothing of the batch may be wanted again.
        if (mpa->tx_pending() == 0) scratch_.clear(), scratch_.shrink_to_fit();
        if (n < octets.size()) return out.room() == 0;
    }
    return false;
}

// -- changes of state --

void Endpoint::settle(Time now) {
    if (ended_) return;
    if (mpa->state() == mpa::Stream::State::await_decision && decision_at_ == kNever) {
        decision_at_ = now + rng_.magnitude(10 * kMillisecond) + 1;
    }
    if (ddp.state() == ddp::Stream::State::established && !connected_) {
        connected_ = true;
        SIM_TRACE("    %s is established", parts_.name);
    }
    const bool terminating = ddp.state() == ddp::Stream::State::terminating;
    if (ddp.state() == ddp::Stream::State::ended && ddp.terminate_received() != nullptr) {
        end(WcStatus::flushed, true, now);
        return;
    }
    if (mpa->tx_pending() != 0 && !eof_) return;
    if (ddp.state() == ddp::Stream::State::ended || mpa->state() == mpa::Stream::State::closed ||
        (mpa->state() == mpa::Stream::State::failed && !terminating)) {
        const bool lost_it = violation() == Violation::mpa_connection_lost;
        const bool said_something = violation() == Violation::none ||
                                    ddp.terminate_sent() != nullptr ||
                                    mpa->state() == mpa::Stream::State::closed;
        end(lost_it ? WcStatus::connection_lost : WcStatus::flushed, said_something, now);
        return;
    }
    if (terminating) {
        linger_deadline_ = std::min(linger_deadline_, now + kLinger);
        return;
    }
    if (eof_ && stash_.empty() && !receives_flushed_) {
        receives_flushed_ = true;
        ddp.flush_receives();
    }
    if (closing_ && !fin_sent_ && connected_ && ddp.drained() && mpa->tx_pending() == 0) {
        SIM_TRACE("    %s sends FIN", parts_.name);
        parts_.link.out->finish(now);
        mpa->tx_finished();
        fin_sent_ = true;
    }
    if (fin_sent_ && eof_ && stash_.empty()) end(WcStatus::flushed, true, now);
}

void Endpoint::lost() {
    if (!ended_) {
        mpa->lost();
        end(WcStatus::connection_lost, false, 0);
    }
    close_descriptor(true);
}

/// `orderly`: what was written shall still reach the peer.
void Endpoint::end(WcStatus status, bool orderly, Time now) {
    if (ended_) return;
    ended_ = true;
    SIM_TRACE("    %s ends: %s%s", parts_.name, violation_info(violation()).name,
              ddp.terminate_received() != nullptr ? " (Terminate received)" : "");
    ddp.flush(status);
    stash_.clear();
    linger_deadline_ = now + kLinger;
    if (!orderly) {
        close_descriptor(true);
        return;
    }
    parts_.link.out->finish(now);
    fin_sent_ = true;
    if (eof_) close_descriptor(false);
}

void Endpoint::close_descriptor(bool reset) {
    if (closed_) return;
    closed_ = true;
    // Whoever writes to a closed socket is answered by a reset.
    if (reset || !eof_) *parts_.link.reset = true;
}

void Endpoint::shutdown(Time now) {
    if (ended_ || closing_) return;
    SIM_TRACE("    %s shuts down", parts_.name);
    sq.close();
    closing_ = true;
    linger_deadline_ = now + 20 * kSecond;
}

void Endpoint::abort() {
    if (ended_) {
        close_descriptor(true);
        return;
    }
    SIM_TRACE("    %s aborts", parts_.name);
    const Section section(*parts_.reader);
    sq.close();
    end(WcStatus::flushed, false, 0);
}

}  // namespace xsock::sim
