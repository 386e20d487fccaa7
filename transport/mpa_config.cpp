// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/mpa_config.hpp"

#include <algorithm>
#include <string>

#include "include/xsock/iwarp.h"
#include "include/xsock/xsock.h"
#include "transport/loss_recovery.hpp"

namespace xsock {

Implementation own_implementation(const TransportConfig& settings) {
    // What a bit announces must be served by whatever carries the connection.
    Implementation own{.name = Implementation::text("xsock"),
                       .version = Implementation::text(std::to_string(XSOCK_VERSION_MAJOR) + "." +
                                                       std::to_string(XSOCK_VERSION_MINOR) + "." +
                                                       std::to_string(XSOCK_VERSION_PATCH))};
    own.features = MPA_FEATURE_SEND_IMMEDIATE | MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR;
    if (settings.short_rto) own.delayed_ack_ms = shortest_delayed_ack_ms();
    if (own.delayed_ack_ms != 0) own.features |= MPA_FEATURE_DELAYED_ACK;
    return own;
}

mpa::Config mpa_config(const ConnectAttr& attr, mpa::Role role, const TransportConfig& settings) {
    mpa::Config config;
    config.startup.role = role;
    config.startup.revision = attr.revision;
    config.startup.crc = attr.crc;
    config.startup.markers = attr.markers;
    config.startup.ird = attr.ird;
    config.startup.ord = attr.ord;
    config.startup.rtr = attr.rtr;
    if (role == mpa::Role::responder && attr.rtr == 0) {
        // A responder accepts every RTR type that the initiator may choose (RFC 6581 §9).
        config.startup.rtr = mpa::kRtrSend | mpa::kRtrWrite | mpa::kRtrRead;
    }
    config.startup.xsock_mark = attr.xsock_mark;
    config.startup.extensions = attr.extensions && settings.extensions;
    if (config.startup.extensions) {
        mpa::append_tlv(config.startup.extension_tlvs, own_implementation(settings));
    }
    config.startup.defer_reply = attr.defer_reply;
    config.startup.negotiate_depths = attr.revision >= 2;
    config.startup.private_data.assign(attr.private_data.begin(), attr.private_data.end());
    config.startup.timeout = Time{attr.startup_timeout_ms} * kMillisecond;
    config.copy_limit = settings.copy_limit;
    const std::uint32_t limit = attr.fpdu_limit != 0 ? attr.fpdu_limit : settings.fpdu_limit;
    if (limit != 0) {
        config.xsock_mulpdu = config.mulpdu_limit = std::max<std::size_t>(limit, 128);
    }
    return config;
}

}  // namespace xsock
