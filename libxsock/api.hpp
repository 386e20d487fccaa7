// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of xsock.h inside the engine, by their names without the prefix.
#pragma once

#include "libxsock/engine/engine_table.h"

namespace xsock::api {
#define XSOCK_DECLARE(type, name, failed, parameters, arguments) type name parameters noexcept;
XSOCK_FUNCTIONS(XSOCK_DECLARE)
#undef XSOCK_DECLARE
#define XSOCK_DECLARE(type, name, parameters) type name parameters noexcept;
XSOCK_SOCKET_FUNCTIONS(XSOCK_DECLARE)
XSOCK_POLL_FUNCTIONS(XSOCK_DECLARE)
#undef XSOCK_DECLARE
}  // namespace xsock::api
