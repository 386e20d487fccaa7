// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/sock/endpoint_qp.hpp"

#include "libxsock/sock/socket.hpp"

namespace xsock::sock {

Result<void> EndpointQp::post_recv(const RecvWr& wr) { return socket_.post_recv(wr); }

void EndpointQp::set_context(std::uint64_t context) {
    progress().locked([&](Pass&) { connection_->set_context(context); });
}

void EndpointQp::set_rights(std::uint32_t rights) {
    progress().locked([&](Pass&) { connection_->set_rights(rights); });
}

Result<void> EndpointQp::shutdown() {
    progress().locked([&](Pass& pass) { connection_->shutdown(pass); });
    return {};
}

QpInfo EndpointQp::info() const {
    QpInfo info;
    progress().locked([&](Pass&) { info = connection_->info(); });
    return info;
}

QpState EndpointQp::wait_started(Time deadline) {
    progress().wait(
        [this] {
            const QpState s = state();
            return s != QpState::fresh && s != QpState::starting;
        },
        deadline);
    return state();
}

QpState EndpointQp::wait_ended(Time deadline) {
    progress().wait(
        [this] {
            const QpState s = state();
            return s == QpState::closed || s == QpState::error;
        },
        deadline);
    return state();
}

}  // namespace xsock::sock
