// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection_config.hpp"

namespace xsock {

ddp::ConnectionConfig core_config(const ConnectionParts& parts, SendQueue& sq, RecvQueue& rq,
                                  Counters& counters) {
    ddp::ConnectionConfig config;
    config.stream.qp_num = parts.num;
    config.stream.qp_context = parts.attr.context;
    config.stream.pd = parts.attr.pd;
    config.stream.require_lkeys = parts.attr.require_lkeys;
    config.stream.snapshot = parts.attr.snapshot || parts.progress->config().snapshot;
    config.stream.rights = parts.attr.rights;
    config.stream.memory = parts.memory;
    config.stream.sq = &sq;
    config.stream.rq = &rq;
    config.stream.rq_shared = parts.srq != nullptr;
    config.stream.spare_receive = parts.spare_receive;
    config.stream.spare_argument = parts.owner.argument;
    config.stream.send_cq = &parts.send_cq->queue;
    config.stream.recv_cq = &parts.recv_cq->queue;
    config.stream.completions = &parts.progress->completions();
    config.stream.counters = &counters;
    config.event_completions = parts.attr.event_completions;
    config.limits.rnr_timeout = parts.attr.rnr_timeout;
    config.limits.linger = Time{parts.attr.linger_ms} * kMillisecond;
    return config;
}

}  // namespace xsock
