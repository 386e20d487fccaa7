// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/endpoint_qp.hpp"

#include "libxsock/socket/socket.hpp"

namespace xsock::sockets {

Result<void> EndpointQp::post_recv(const RecvWr& wr) { return socket_.post_recv(wr); }

void EndpointQp::set_context(std::uint64_t context) {
    progress().locked([&](PollCycle&) { connection_->set_context(context); });
}

void EndpointQp::set_rights(std::uint32_t rights) {
    progress().locked([&](PollCycle&) { connection_->set_rights(rights); });
}

Result<void> EndpointQp::shutdown() {
    progress().locked([&](PollCycle& cycle) { connection_->shutdown(cycle); });
    return {};
}

QpInfo EndpointQp::info() const {
    QpInfo info;
    progress().locked([&](PollCycle&) { info = connection_->info(); });
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

}  // namespace xsock::sockets
