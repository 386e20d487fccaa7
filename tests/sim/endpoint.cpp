// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/endpoint.hpp"

#include <algorithm>
#include <cerrno>

#include "base/fault.hpp"
#include "shm/offer.hpp"

namespace xsock::sim {
namespace {

constexpr int kReadsPerCycle = 4;
constexpr int kBatchesPerCycle = 8;
constexpr Time kSoon = 1000;

ddp::ConnectionConfig connection_config(const Endpoint::Parts& parts, SendQueue& sq) {
    ddp::ConnectionConfig config;
    config.stream.qp_num = parts.qp_num;
    config.stream.qp_context = parts.context;
    config.stream.pd = parts.pd;
    config.stream.require_lkeys = parts.options->require_lkeys;
    if (parts.mutant != Mutant::grant_rights) config.stream.rights = parts.options->rights;
    config.stream.first_msn = parts.first_msn;
    config.stream.memory = parts.memory;
    config.stream.sq = &sq;
    config.stream.rq = parts.rq.get();
    config.stream.rq_shared = parts.rq_shared;
    config.stream.send_cq = parts.send_cq;
    config.stream.recv_cq = parts.recv_cq;
    config.limits.rnr_timeout = parts.rnr_timeout;
    config.limits.fin_delay = parts.options->fin_delay;
    return config;
}

/// The poller is inside an Epochs section for the length of a poll cycle.
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
      connection_(connection_config(parts_, sq), *this),
      interposer_(connection_.stream(), parts_.mutant),
      ddp(connection_.stream()),
      mpa(std::make_unique<mpa::Stream>(parts_.options->mpa, interposer_)),
      layer_(*mpa, parts_.mutant),
      rng_(parts_.seed) {
    mpa->set_emss(parts_.options->emss);
}

Endpoint::~Endpoint() { leave_link(); }

void Endpoint::leave_link() {
    if (link_ != nullptr) link_->forget(token_);
    link_ = nullptr;
    memory_layer_.reset();
    shm_.reset();
}

bool Endpoint::use_link(HostLink& link, std::uint64_t token, bool opens) {
    if (!link.pool().has_room() || link.link().ended()) return false;
    auto stream = std::make_unique<shm::Stream>(interposer_, *this, link.pool());
    if (opens && !link.link().open(*stream, token)) return false;
    shm_ = std::move(stream);
    memory_layer_ = std::make_unique<LlpInterposer>(*shm_, parts_.mutant);
    link_ = &link;
    token_ = token;
    if (!opens) link.expect(token, *shm_);
    offered_ =
        !opens && !mpa::find_tlv(options().mpa.startup.extension_tlvs, MPA_TLV_SHM_OFFER).empty();
    return true;
}

void Endpoint::answer_offers(HostLink& link, Time after, bool declines) {
    answering_ = {.link = &link, .after = after, .declines = declines};
}

/// Publishes OPEN before the answer that names the slot is there to be written.
void Endpoint::answer_offer(Time now) {
    if (mpa->offer().empty()) return;
    if (answering_.at == kNever) answering_.at = now + answering_.after;
    if (answering_.at > now) return;
    answering_.at = kNever;
    const std::optional<shm::Offer> offer = shm::decode_offer(mpa->offer());
    if (!offer) fail("%s: the offer did not come as it was sent", parts_.name);
    shm::Answer answer{.reason = shm::Reason::limits};
    if (!answering_.declines && use_link(*answering_.link, offer->token, true)) {
        answer = {.shared_memory = true, .slot = shm_->slot(), .generation = shm_->generation()};
    }
    SIM_TRACE("    %s answers: %s", parts_.name, answer.shared_memory ? "memory" : "TCP");
    if (!mpa->answer_offer(shm::encode(answer))) fail("%s: no offer waits", parts_.name);
    layer_.on_time(now);  // renews what it knows of the status
}

/// The slot that the peer's answer names is the one that its OPEN has attached.
void Endpoint::check_answer() const {
    const std::optional<shm::Answer> answer = shm::decode_answer(mpa->answer());
    if (!answer || !shm_->attached()) return;
    if (answer->slot != shm_->slot() || answer->generation != shm_->generation()) {
        fail("%s: the answer names another slot", parts_.name);
    }
}

bool Endpoint::take_touched() {
    if (touched_ && descriptor_closed()) connection_.confirm_end();  // the program has seen it
    return std::exchange(touched_, false);
}

/// What the module does with a Write: it looks the region up as the engine does, in the engine's
/// own table. False: it goes up.
bool Endpoint::place(const std::byte* header, ConstBytes payload) {
    const ddp::Config& config = ddp.config();
    // Regions are pinned as they are written, and some never.
    if ((config.rights & kRemoteWrite) == 0 || rng_.chance(20)) return false;
    const auto found =
        config.memory->check_remote(load_be32(header + 2), config.pd, config.qp_num,
                                    Right::remote_write, load_be64(header + 6), payload.size());
    if (found.stream_error != StreamError::none) return false;
    std::byte* const to = found.address + (parts_.mutant == Mutant::place_elsewhere ? 1 : 0);
    // Memory that is gone makes its region stale.
    return fault::guard([&] {
        const fault::Touch touch(1, to, payload.size());
        std::copy(payload.begin(), payload.end(), to);
    });
}

/// What follows start-up is read as records. The module knows no markers.
void Endpoint::bind_module() {
    if (!parts_.records || mpa->negotiated().markers_rx) return;
    module_ = std::make_unique<test::RecordMaker>(
        mpa->negotiated().crc,
        [this](const std::byte* header, ConstBytes payload) { return place(header, payload); });
    module_->places_behind_writes = parts_.mutant == Mutant::place_behind;
    mpa->use_records();
}

Llp& Endpoint::data_layer(Llp& startup) {
    if (memory_layer_ == nullptr) {
        bind_module();
        return startup;
    }
    if (offered_) {
        // The peer's decision, which is the only one.
        const std::optional<shm::Answer> answer = shm::decode_answer(mpa->answer());
        if (!answer || !answer->shared_memory) {
            leave_link();
            return startup;
        }
        check_answer();
    }
    in_memory_ = true;
    return *memory_layer_;
}

void Endpoint::start(Time now) {
    const Section section(*parts_.reader);
    const mpa::StartupConfig& startup = options().mpa.startup;
    now_ = now;
    connection_.set_rnr(options().rnr);
    connection_.start(
        layer_,
        {.ird = startup.ird,
         .ord = startup.ord,
         .acknowledged = options().acknowledged && parts_.mutant != Mutant::skip_ack_wait,
         .outlives_peer = options().outlives_peer,
         .confirmed = options().confirmed,
         .rtr_timeout = options().rtr_timeout},
        now);
}

Time Endpoint::run(Time now) {
    if (descriptor_closed()) return kNever;
    ++cycles_;
    now_ = now;
    const Section section(*parts_.reader);
    const Time next = poll(now);
    if (descriptor_closed()) connection_.confirm_end();  // the program has seen it
    return next;
}

Time Endpoint::poll(Time now) {
    if (*parts_.link.reset) {
        if (link_ != nullptr) link_->drain();
        if (!descriptor_closed()) connection_.lost(ECONNRESET);
        return kNever;
    }
    confirm(now);
    connection_.resume(now);
    receive(now);
    decide(now);
    answer_offer(now);
    if (connection_.next_timeout(now) <= now) connection_.on_time(now);
    tell_taken(now);
    const bool blocked = transmit(now);
    connection_.update(now);
    if (descriptor_closed()) return kNever;

    tell_taken(now);
    const Time next = std::min({connection_.next_timeout(now), decision_at_, answering_.at,
                                confirm_start_at_, confirm_end_at_, tell_at_});
    if (parts_.mutant == Mutant::lost_wakeup && cycles_ > 20) return std::max(next, now + 1);
    Pipe& in = *parts_.link.in;
    if (in_memory()) {
        const bool may_write = !ended() && connection_.tx_wanted();
        const bool fin = !fin_ && in.at_end(now) && connection_.rx_wanted();
        return std::max(may_write || fin || shm_->has_early() ? std::min(next, now + kSoon) : next,
                        now + 1);
    }
    const bool may_read = connection_.rx_wanted() && (in.readable(now) || in.at_end(now));
    const bool may_write = !ended() && connection_.tx_wanted() && !blocked;
    return std::max(may_read || may_write ? std::min(next, now + kSoon) : next, now + 1);
}

// -- reception --

void Endpoint::receive(Time now) {
    Pipe& in = *parts_.link.in;
    for (int i = 0; i < kReadsPerCycle && !descriptor_closed() && connection_.rx_wanted(); ++i) {
        if (in_memory()) {
            if (shm_->has_early()) on_rx(shm_->take_early());
            if (!descriptor_closed()) take_fin(now);
            return;
        }
        if (in.at_end(now)) {
            SIM_TRACE("    %s reads FIN", parts_.name);
            connection_.rx_eof(now);
            if (options().confirmed) confirm_end_at_ = draw_delay();
            return;
        }
        if (!in.readable(now)) return;
        connection_.rx(read(rng_.between(1, options().read_max), now), now);
        connection_.resume(now);
        if (connection_.rx_waiting() && !ddp.rx_blocked() && !connection_.is_start_held() &&
            mpa->state() == Llp::State::operational) {
            fail("%s: bytes are refused, yet no receive is wanted", parts_.name);
        }
    }
}

/// Octets, or records of them. Exactly as long as they are, so that a sanitizer sees a read beyond.
std::vector<std::byte> Endpoint::read(std::size_t most, Time now) {
    // Start-up leaves the first FPDU for the module.
    if (parts_.records && module_ == nullptr) {
        most = std::min(most, std::max<std::size_t>(mpa->rx_wanted(), 1));
    }
    std::vector<std::byte> bytes(most);
    bytes.resize(parts_.link.in->read(bytes, now));
    if (module_ != nullptr) {
        test::Records records;
        module_->feed(bytes, records);
        bytes = std::move(records.bytes);
    }
    bytes.shrink_to_fit();
    return bytes;
}

/// Of the peer's records, or of TCP: then the peer ended without one, and what it has published is
/// read first.
void Endpoint::take_fin(Time now) {
    if (!fin_ && parts_.link.in->at_end(now)) {
        link_->drain();
        if (descriptor_closed() || !connection_.rx_wanted()) return;
        SIM_TRACE("    %s reads FIN of TCP%s", parts_.name, fin_ ? "" : " only");
        fin_ = true;
    }
    if (fin_ && connection_.rx_wanted()) connection_.rx_eof(now);
}

void Endpoint::on_rx(ConstBytes bytes) {
    touched_ = true;
    // Exactly as long as it is, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    connection_.rx(copy, now_);
    connection_.resume(now_);
}

void Endpoint::on_room() {
    touched_ = true;
    if (offered_ && in_memory_) check_answer();
    memory_layer_->on_time(now_);  // renews what it knows of the status
}

void Endpoint::on_fin(bool aborted) {
    SIM_TRACE("    %s reads FIN of the link%s", parts_.name, aborted ? ", an abort" : "");
    touched_ = fin_ = true;
    if (aborted && in_memory_) connection_.lost(ECONNRESET);
}

void Endpoint::on_link_end(StreamError why) {
    SIM_TRACE("    %s: the link ends", parts_.name);
    touched_ = true;
    if (why != StreamError::none) fail("%s: %s", parts_.name, stream_error_info(why).name);
    if (in_memory_) connection_.lost(ECONNRESET);
}

Time Endpoint::draw_delay() { return now_ + rng_.magnitude(10 * kMillisecond) + 1; }

/// What the program does once it has seen the events.
void Endpoint::confirm(Time now) {
    if (confirm_start_at_ <= now) {
        confirm_start_at_ = kNever;
        connection_.confirm_start();
    }
    if (confirm_end_at_ <= now) {
        confirm_end_at_ = kNever;
        connection_.confirm_end();
    }
}

/// An Acknowledge waits for company, and then goes alone.
void Endpoint::tell_taken(Time now) {
    if (!ddp.owes_acknowledge() || parts_.mutant == Mutant::ack_late) {
        tell_at_ = kNever;
    } else if (tell_at_ == kNever) {
        tell_at_ = draw_delay();
    } else if (tell_at_ <= now) {
        tell_at_ = kNever;
        ddp.acknowledge();
    }
}

void Endpoint::decide(Time now) {
    if (decision_at_ > now || connection_.state() != QpState::requested) return;
    decision_at_ = kNever;
    const mpa::StartupConfig& startup = options().mpa.startup;
    const auto said = options().reject
                          ? connection_.reject(startup.private_data, now)
                          : connection_.accept(startup.private_data, startup.ird, startup.ord, now);
    if (!said) fail("%s: the decision was not taken", parts_.name);
}

// -- transmission --

/// True when TCP takes no more for now.
bool Endpoint::transmit(Time now) {
    if (options().emss_changes && rng_.chance(10)) mpa->set_emss(rng_.between(64, 9000));
    for (int i = 0; i < kBatchesPerCycle && !ended() && connection_.tx_wanted(); ++i) {
        if (parts_.mutant == Mutant::lost_wakeup && cycles_ > 20) return true;
        if (in_memory()) {
            if (parts_.mutant == Mutant::fin_first && cycles_ > 20) shm_->finish(false);
            connection_.tx_prepare({}, rng_.between(1, options().batch_bytes), now);
            continue;
        }
        if (parts_.link.out->room() == 0) return true;
        const bool alone = connection_.is_steady() && mpa->status().tx_pending == 0;
        if (alone && rng_.chance(50) && write_single(now)) continue;
        if (!write_batch(now)) return parts_.link.out->room() == 0;
    }
    return false;
}

/// A message by itself may go without a batch; what is left of it, the next batch begins with.
/// False: there is none, or some is left.
bool Endpoint::write_single(Time now) {
    std::array<std::byte, 128> frame;
    const std::size_t size = connection_.tx_single(frame);
    if (size == 0) return false;
    const std::size_t most = std::min(size, rng_.between(1, options().write_max));
    const std::size_t n = parts_.link.out->write(ConstBytes(frame).first(most), now);
    if (n < size) {
        if (scratch_.empty()) scratch_.resize(options().scratch);
        connection_.tx_keep(ConstBytes(frame).first(size), scratch_);
    }
    connection_.tx_commit(n, now);
    return n == size;
}

/// False when there was nothing, or TCP took less than all.
bool Endpoint::write_batch(Time now) {
    if (scratch_.empty()) scratch_.resize(options().scratch);
    const TxBatch batch = connection_.tx_prepare(scratch_, options().batch_bytes, now);
    if (ended() || batch.bytes == 0) return false;
    std::vector<std::byte> bytes;
    if (!gather(batch, bytes)) return false;
    const std::size_t most = rng_.between(1, options().write_max);
    const std::size_t n =
        parts_.link.out->write(ConstBytes(bytes).first(std::min(bytes.size(), most)), now);
    connection_.tx_commit(n, now);
    // Nothing of the batch may be wanted again.
    if (mpa->status().tx_pending == 0) scratch_.clear(), scratch_.shrink_to_fit();
    return n == bytes.size();
}

/// As the kernel does. False: it would say EFAULT.
bool Endpoint::gather(const TxBatch& batch, std::vector<std::byte>& bytes) {
    bytes.resize(batch.bytes);
    const bool whole = fault::guard([&] {
        std::byte* to = bytes.data();
        for (const auto& piece : batch.iov) {
            const auto* from = static_cast<const std::byte*>(piece.iov_base);
            const fault::Touch touch(0, from, piece.iov_len);
            to = std::copy_n(from, piece.iov_len, to);
        }
    });
    if (whole || parts_.mutant == Mutant::ignore_fault) return true;
    connection_.tx_fault();
    return false;
}

// -- what the connection asks --

void Endpoint::on_started() {
    SIM_TRACE("    %s is established", parts_.name);
    if (connection_.is_start_held()) confirm_start_at_ = draw_delay();
}

void Endpoint::on_state(QpState state) {
    if (state == QpState::requested) {
        decision_at_ = draw_delay();
    }
    if (!ended()) return;
    SIM_TRACE("    %s ends: %s%s", parts_.name, stream_error_info(stream_error()).name,
              ddp.terminate_received() != nullptr ? " (Terminate received)" : "");
    if (faulted() && (parts_.unmapped == nullptr || !*parts_.unmapped)) {
        fail("%s: a fault, though all memory is there", parts_.name);
    }
}

void Endpoint::finish() {
    SIM_TRACE("    %s sends FIN", parts_.name);
    if (in_memory()) shm_->finish(false);
    parts_.link.out->finish(now_);
}

void Endpoint::close(bool reset) {
    // A peer that does not know the stream any more is told so: no slot is left open.
    if (shm_ != nullptr) reset ? shm_->reset() : shm_->finish(true);
    // A write to a closed socket is answered by a reset.
    if (reset || !peer_finished()) *parts_.link.reset = true;
}

void Endpoint::shutdown(Time now) {
    if (ended() || closing()) return;
    SIM_TRACE("    %s shuts down", parts_.name);
    const Section section(*parts_.reader);
    now_ = now;
    connection_.shutdown(now);
}

void Endpoint::abort() {
    SIM_TRACE("    %s aborts", parts_.name);
    const Section section(*parts_.reader);
    connection_.abort();
    connection_.confirm_end();
}

void take_slot(const Options::Pair& pair, const std::array<std::unique_ptr<Endpoint>, 2>& end,
               const std::array<std::unique_ptr<HostLink>, 2>& link, std::uint64_t token) {
    const unsigned opener = pair.offers ? 0 : pair.opener;
    // Which end says that there is no slot does not matter; both know it.
    const bool expected = end[1 - opener]->use_link(*link[1 - opener], token, false);
    if (pair.offers) {
        end[0]->answer_offers(*link[0], pair.answer_after, pair.declines || !expected);
    } else if (expected && !end[opener]->use_link(*link[opener], token, true)) {
        end[1 - opener]->leave_link();
    }
}

}  // namespace xsock::sim
