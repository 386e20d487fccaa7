// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection_report.hpp"

#include <cstdio>
#include <cstring>

#include "include/xsock/iwarp.h"
#include "transport/connection.hpp"
#include "transport/log.hpp"

namespace xsock {
namespace {

std::string report_terminate(const ddp::TerminateInfo& t, const char* peer) {
    char text[256];
    std::snprintf(text, sizeof text, "peer terminated: %s (layer %u, type %u, code %02x%s)",
                  terminate_text(t.layer, t.etype, t.code), t.layer, t.etype, t.code,
                  t.swapped ? ", control word swapped as siw does" : "");
    // The other reading too: where both name an error, only the peer's maker can tell.
    const auto high = static_cast<std::uint8_t>(t.first >> 4);
    const auto low = static_cast<std::uint8_t>(t.first & 0x0f);
    const std::uint8_t layer = t.swapped ? high : low, etype = t.swapped ? low : high;
    log(LogLevel::warn, "terminate-received",
        "%s: %s; first byte %02x, read as %s lays it out: %s (layer %u, type %u)", peer, text,
        t.first, t.swapped ? "RFC 5040" : "siw", terminate_text(layer, etype, t.code), layer,
        etype);
    return text;
}

std::string report_stream_error(const ddp::Connection& connection, const char* peer) {
    const StreamErrorInfo& row = stream_error_info(connection.error().stream_error);
    if (row.stream_error == StreamError::startup_rejected && !connection.negotiated().initiator) {
        // Why is a line of whatever refused it.
        log(LogLevel::info, row.name, "%s: refused by this end", peer);
        return "refused by this program";
    }
    char text[256];
    std::snprintf(text, sizeof text, "%s (%s)", row.text, row.rfc);
    log(LogLevel::warn, row.name, "%s: %s%s", peer, text,
        connection.stream().terminate_sent() != nullptr ? "; Terminate sent" : "");
    return text;
}

std::string report_unmapped(const char* text, const char* peer) {
    log(LogLevel::warn, "local-fault", "%s: %s; connection reset", peer, text);
    return text;
}

}  // namespace

void report_start(const ddp::Connection& connection, const char* peer) {
    const Negotiated& n = connection.negotiated();
    const std::optional<Implementation> said = connection.peer();
    log(LogLevel::info, "connected",
        "%s: %s, MPA revision %u, CRC %s, markers tx %s rx %s, peer %s%s%s%s%s", peer,
        n.initiator ? "initiator" : "responder", n.revision, n.crc ? "on" : "off",
        n.markers_tx ? "on" : "off", n.markers_rx ? "on" : "off",
        n.peer_is_xsock ? "xsock" : "other", said ? ", named " : "", said ? said->name.data() : "",
        said ? " " : "", said ? said->version.data() : "");
}

std::string report_end(const ddp::Connection& connection, const char* peer) {
    const ddp::ConnectionError& error = connection.error();
    switch (error.cause) {
        case ddp::EndCause::none:
            return {};
        case ddp::EndCause::stream_error:
            return report_stream_error(connection, peer);
        case ddp::EndCause::terminated:
            return report_terminate(*connection.stream().terminate_received(), peer);
        case ddp::EndCause::lost:
            log(LogLevel::info, "connection-lost", "%s: %s", peer, std::strerror(error.code));
            return std::string("connection lost: ") + std::strerror(error.code);
        case ddp::EndCause::peer_silent:  // check_peer() has written the log line
            return stream_error_info(StreamError::peer_silent).text;
        case ddp::EndCause::rx_memory_unmapped:
            return report_unmapped("a registered or posted buffer was unmapped under a transfer",
                                   peer);
        case ddp::EndCause::tx_memory_unmapped:
            return report_unmapped("a buffer that was being sent was unmapped", peer);
        case ddp::EndCause::path_refused:  // Connection::data_layer() has written the log line
            return "shared memory is required, and the connection would go over TCP";
        case ddp::EndCause::module_refused:  // ConnectionKernel::bind() has written the log line
            return "the kernel module is required, and does not serve the connection";
        case ddp::EndCause::linger_expired: {
            const char* const text = "what was queued could not be sent within the linger time";
            log(LogLevel::warn, "linger-expired", "%s: %s", peer, text);
            return text;
        }
        case ddp::EndCause::aborted:
            return "aborted by this program";
    }
    return {};
}

StatsDescription describe(const ddp::Connection& connection) {
    StatsDescription d{};
    d.ird = connection.stream().ird();
    d.ord = connection.stream().ord();
    d.state = static_cast<std::uint8_t>(connection.state());
    d.error = connection.error().code;
    d.stream_error = static_cast<std::uint8_t>(connection.stream_error());
    const Llp* const layer = connection.layer();
    if (layer == nullptr) return d;
    const Negotiated& n = connection.negotiated();
    d.mulpdu = static_cast<std::uint32_t>(layer->mulpdu());
    d.revision = connection.is_started() ? n.revision : 0;
    d.initiator = n.initiator;
    d.crc = n.crc;
    d.markers_tx = n.markers_tx;
    d.markers_rx = n.markers_rx;
    d.peer_is_xsock = n.peer_is_xsock;
    if (const auto peer = connection.peer()) {
        d.peer_features = peer->features;
        d.peer_delayed_ack_ms = peer->delayed_ack_ms;
        set_stats_text(d.peer_name, peer->name.data());
        set_stats_text(d.peer_version, peer->version.data());
    }
    return d;
}

QpInfo info_of(const ddp::Connection& connection) {
    QpInfo info;
    info.state = connection.state();
    info.error = connection.error().code;
    info.stream_error = connection.stream_error();
    info.ird = connection.stream().ird();
    info.ord = connection.stream().ord();
    const Llp* const layer = connection.layer();
    if (layer == nullptr) return info;
    info.negotiated = connection.negotiated();
    const bool rtr = info.negotiated.rtr == Rtr::write && !info.negotiated.initiator;
    const std::uint64_t writes = connection.stream().counters().rx_messages[RDMAP_WRITE];
    info.rx_writes = writes - (rtr && writes != 0 ? 1 : 0);
    info.mulpdu = layer->mulpdu();
    const ConstBytes data = connection.private_data();
    info.private_data.assign(data.begin(), data.end());
    if (const auto peer = connection.peer()) info.peer = *peer;
    return info;
}

QpInfo Connection::info() const {
    QpInfo info = info_of(core_);
    info.error_text = error_text();
    info.congestion = socket_.congestion();
    info.path = shm_.path;
    info.shm_reason = shm_.why_not;
    info.kernel_reason = kernel_.choice.why_not;
    info.kernel_places = kernel_.part != nullptr && kernel_.part->bound();
    if (info.kernel_places) info.placed_early = kernel_.part->placed_early();
    info.rx_bytes = rx_bytes_;
    info.tx_bytes = tx_bytes_;
    return info;
}

void Connection::publish() noexcept {
    StatsDescription d = describe(core_);
    d.qp_num = parts_.num;
    d.api = static_cast<std::uint8_t>(parts_.attr.api);
    d.path = static_cast<std::uint8_t>(shm_.path);
    d.shm_reason = static_cast<std::uint8_t>(shm_.why_not);
    if (kernel_.choice.why_not != kernel::Reason::off) {
        const bool places = kernel_.part != nullptr && kernel_.part->bound();
        d.kernel = places ? 1 : 2;
        d.kernel_reason = static_cast<std::uint8_t>(kernel_.choice.why_not);
        if (places) stats_.placed_early() = kernel_.part->placed_early();
    }
    set_stats_text(d.local, socket_.local_name().data());
    set_stats_text(d.peer, peer().data());
    set_stats_text(d.error_text, error_text());
    // (One question, when it is established: the program may have chosen by then.)
    if (state() == QpState::established && *socket_.known_congestion() == '\0') {
        socket_.note_congestion();
    }
    set_stats_text(d.congestion, socket_.known_congestion());
    stats_.describe(d);
}

}  // namespace xsock
