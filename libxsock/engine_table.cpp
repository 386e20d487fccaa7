// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table that leads into the engine: the one thing that libxsock-engine.so exports. Compiled for
// each program that has the engine inside, because the verbs in it are not part of all.
#include "libxsock/engine/engine_table.h"

#include <cstdio>
#include <mutex>

#include "base/crc32c.hpp"
#include "base/once.hpp"
#include "libxsock/api.hpp"

namespace xsock::api {

const char* version() noexcept {
    static char text[64];
    static std::once_flag once;
    std::call_once(once, [] {
        std::snprintf(text, sizeof text, "%d.%d.%d (crc32c: %s)", XSOCK_VERSION_MAJOR,
                      XSOCK_VERSION_MINOR, XSOCK_VERSION_PATCH, crc32c_method());
    });
    return text;
}

}  // namespace xsock::api

#ifdef XSOCK_WITH_VERBS
extern "C" const xsock_verbs* xsock_verbs_table(void);
#endif

extern "C" const xsock_engine* xsock_engine_table(void) {
#ifdef XSOCK_WITH_VERBS
    const xsock_verbs* const verbs = xsock_verbs_table();
#else
    const xsock_verbs* const verbs = nullptr;
#endif
#define XSOCK_FILL(type, name, failed, parameters, arguments) xsock::api::name,
#define XSOCK_SLEEPING_FILL(type, name, failed, parameters, with_sleep, arguments) xsock::api::name,
#define XSOCK_TABLE_FILL(type, name, parameters) xsock::api::name,
    static constinit xsock::Once<xsock_engine> table;
    return &table.get([verbs] {
        return xsock_engine{XSOCK_ENGINE_VERSION, sizeof(xsock_engine), verbs,
                            XSOCK_QUICK_FUNCTIONS(XSOCK_FILL) XSOCK_FUNCTIONS(XSOCK_FILL)
                                XSOCK_SLEEPING_FUNCTIONS(XSOCK_SLEEPING_FILL) xsock::api::sleep_end,
                            XSOCK_SOCKET_FUNCTIONS(XSOCK_TABLE_FILL)
                                XSOCK_POLL_FUNCTIONS(XSOCK_TABLE_FILL)};
    });
#undef XSOCK_TABLE_FILL
#undef XSOCK_SLEEPING_FILL
#undef XSOCK_FILL
}
