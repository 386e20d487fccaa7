// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the attributes of a queue pair mean to ddp_user.
#pragma once

#include "ddp_user/connection.hpp"
#include "transport/connection.hpp"

namespace xsock {

ddp::ConnectionConfig core_config(const ConnectionParts& parts, SendQueue& sq, RecvQueue& rq,
                                  Counters& counters);

}  // namespace xsock
