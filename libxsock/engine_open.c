/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finding and loading the engine; see engine_open.h. */
#include "libxsock/engine_open.h"

#include <errno.h>
#include <pthread.h>

#include "base/engine_file.h"

const struct xsock_engine* xsock_engine_opened;
static int engine_errno = ELIBACC;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void accept_table(const struct xsock_engine* table) {
    if (table == NULL || table->table_version != XSOCK_ENGINE_VERSION ||
        table->table_size != sizeof(struct xsock_engine)) {
        xsock_engine_complain(
            "this library and libxsock-engine.so are of different versions; reinstall both", NULL);
        engine_errno = ELIBBAD;
        return;
    }
    __atomic_store_n(&xsock_engine_opened, table, __ATOMIC_RELEASE);
}

#ifdef XSOCK_ENGINE_LINKED
/* Sanitizers and RTLD_DEEPBIND do not mix: such builds contain the engine. */
static void load(void) { accept_table(xsock_engine_table()); }
#else
static void load(void) {
    static const char* const places[] = {"xsock/libxsock-engine.so", "libxsock-engine.so"};
    const void* const table = xsock_engine_load((const void*)&xsock_engine_opened, places,
                                                sizeof places / sizeof *places, &engine_errno);
    if (table != NULL) accept_table(table);
}
#endif

const struct xsock_engine* xsock_engine_open_slowly(void) {
    pthread_once(&once, load);
    if (xsock_engine_opened == NULL) errno = engine_errno;
    return xsock_engine_opened;
}
