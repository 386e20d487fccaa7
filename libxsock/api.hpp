// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of xsock.h inside the engine, by their names without the prefix.
#pragma once

#include "libxsock/engine/engine_table.h"

namespace xsock::api {
#define XSOCK_DECLARE(type, name, failed, parameters, arguments) type name parameters noexcept;
XSOCK_QUICK_FUNCTIONS(XSOCK_DECLARE)
XSOCK_FUNCTIONS(XSOCK_DECLARE)
#undef XSOCK_DECLARE
#define XSOCK_DECLARE(type, name, failed, parameters, with_sleep, arguments) \
    type name with_sleep noexcept;
XSOCK_SLEEPING_FUNCTIONS(XSOCK_DECLARE)
#undef XSOCK_DECLARE
#define XSOCK_DECLARE(type, name, parameters) type name parameters noexcept;
XSOCK_SOCKET_FUNCTIONS(XSOCK_DECLARE)
XSOCK_POLL_FUNCTIONS(XSOCK_DECLARE)
void sleep_end(xsock_sleep* sleep) noexcept;
#undef XSOCK_DECLARE
}  // namespace xsock::api
