// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of start-up between xsocks: the extension frames, and in them the offer of shared memory
// and its answer.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/assert.hpp"
#include "mpa/startup.hpp"

namespace xsock::mpa {
namespace {

std::uint64_t own_features(ConstBytes tlvs) noexcept {
    const ConstBytes value = find_tlv(tlvs, MPA_TLV_IMPLEMENTATION);
    if (value.size() < sizeof(mpa_tlv_implementation)) return 0;
    return load_be64(value.data() + offsetof(mpa_tlv_implementation, features));
}

}  // namespace

std::size_t Startup::take_extension_frame(ConstBytes bytes) {
    const std::size_t used = exchange_->consume(bytes);
    if (exchange_->error() != ExtensionError::none) {
        fail(StreamError::mpa_extension_frame);
    } else if (exchange_->complete()) {
        on_extension_frame(exchange_->frame());
    }
    return used;
}

void Startup::on_extension_frame(ExtensionFrame frame) {
    if (frame.implementation) {
        peer_.set(*frame.implementation);
        negotiated_.features =
            own_features(config_.extension_tlvs) & frame.implementation->features;
    }
    exchange_.reset();
    negotiated_.align_tx = frame.align;
    if (frame_waits_) {
        peer_shm_ = std::move(frame.shm_offer);
        if (peer_shm_.empty()) send_extension_frame();
        return;
    }
    // An answer without an offer is a type that we do not know.
    if (!initiator() && !find_tlv(config_.extension_tlvs, MPA_TLV_SHM_OFFER).empty()) {
        peer_shm_ = std::move(frame.shm_answer);
    }
    if (tx_.empty()) end_exchange();
}

void Startup::send_extension_frame() {
    frame_waits_ = false;
    append_extension_frame(tx_, config_.extension_tlvs);
}

ConstBytes Startup::offer() const noexcept {
    return frame_waits_ ? ConstBytes(peer_shm_) : ConstBytes{};
}

bool Startup::answer_offer(ConstBytes value) {
    if (offer().empty()) return false;
    std::vector<std::byte>().swap(peer_shm_);
    insert_tlv(config_.extension_tlvs, MPA_TLV_SHM_ANSWER, value);
    send_extension_frame();
    return true;
}

ConstBytes Startup::answer() const noexcept {
    return initiator() ? ConstBytes{} : ConstBytes(peer_shm_);
}

StartupResult Startup::take_result() noexcept {
    XSOCK_ASSERT(state_ == State::established);
    StartupResult result{.negotiated = negotiated_,
                         .private_data = std::move(peer_private_data_),
                         .peer = std::move(peer_),
                         .answer = {}};
    if (!initiator()) result.answer = std::move(peer_shm_);
    return result;
}

/// Once our frame is written and the peer's is there.
void Startup::end_exchange() {
    if (exchange_) return;
    std::vector<std::byte>().swap(config_.extension_tlvs);
    if (owed_stream_error_ != StreamError::none) return fail(owed_stream_error_);
    state_ = State::established;
}

}  // namespace xsock::mpa
