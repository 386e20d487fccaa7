// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "include/xsock/iwarp.h"
#include "mpa/extension_frame.hpp"
#include "transport/clock.hpp"
#include "transport/log.hpp"

namespace xsock {

void ConnectionKernel::prepare(mpa::StartupConfig& config) const {
    // With markers nothing is placed behind a hole.
    if (choice_.required && !choice_.in_order && config.extensions && !config.markers) {
        mpa::insert_tlv(config.extension_tlvs, MPA_TLV_ALIGN, {});
    }
}

Bytes ConnectionKernel::room(const mpa::Stream& layer, Bytes staging) const noexcept {
    const std::size_t wanted = std::max<std::size_t>(layer.rx_wanted(), 1);
    return staging.first(std::min(wanted, staging.size()));
}

void ConnectionKernel::bind(mpa::Stream& layer, ddp::Stream& stream, int socket, const char* peer) {
    const Negotiated& agreed = layer.negotiated();
    int error = 0;
    choice_.why_not = module_.bind({.socket = socket,
                                    .crc = agreed.crc,
                                    .markers = agreed.markers_rx,
                                    .in_order = choice_.in_order,
                                    .pd = stream.config().pd,
                                    .qp = stream.config().qp_num,
                                    .rights = stream.config().rights},
                                   error);
    if (!choice_.possible()) {
        log(choice_.required ? LogLevel::warn : LogLevel::info, kernel::name_of(choice_.why_not),
            "%s: %s%s%s", peer, kernel::text_of(choice_.why_not), error != 0 ? ": " : "",
            error != 0 ? std::strerror(error) : "");
        return;
    }
    socket_ = socket;
    reported(monotonic_now());
    layer.use_records();
    stream.set_write_observer(this);
}

std::uint64_t ConnectionKernel::take_stream_bytes(const mpa::Stream& layer) noexcept {
    const std::uint64_t octets = layer.record_octets();
    return octets - std::exchange(counted_, octets);
}

void ConnectionKernel::follow(const ddp::Stream& stream) noexcept {
    if (bound() && !stopped_ && stream.state() >= ddp::Stream::State::terminating) stop();
}

void ConnectionKernel::set_rights(std::uint32_t rights) noexcept {
    if (bound() && !stopped_) module_.set_rights(socket_, rights);
}

void ConnectionKernel::stop() noexcept {
    if (!bound() || stopped_) return;
    set_rights(0);
    (void)placed_early();  // the descriptor may be closed when it is asked for again
    stopped_ = true;
}

std::uint64_t ConnectionKernel::placed_early() noexcept {
    std::uint64_t bytes = 0;
    if (bound() && !stopped_ && module_.placed_early(socket_, bytes)) early_ = bytes;
    return early_;
}

/// The region becomes the module's, if it can: later Writes are placed.
void ConnectionKernel::on_stored_write(std::uint32_t stag) noexcept {
    module_.regions().want(stag, monotonic_now());
}

}  // namespace xsock
