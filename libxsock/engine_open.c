/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finding and loading the engine; see engine_open.h. */
#include "libxsock/engine_open.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct xsock_engine* xsock_engine_opened;
static int engine_errno = ELIBACC;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complain(const char* what, const char* detail) {
    char line[512];
    int n = snprintf(line, sizeof line, "xsock: %s%s%s\n", what, detail ? ": " : "",
                     detail ? detail : "");
    if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
    /* To stderr and at once: every call of the program is about to fail because of this. */
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

static void accept_table(const struct xsock_engine* table) {
    if (table == NULL || table->table_version != XSOCK_ENGINE_VERSION ||
        table->table_size != sizeof(struct xsock_engine)) {
        complain("this library and libxsock-engine.so are of different versions; reinstall both",
                 NULL);
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
    const struct xsock_engine* (*table)(void);
    char path[4096];
    const char* slash;
    void* handle = NULL;
    Dl_info self;
    size_t i;

    if (!dladdr((void*)&xsock_engine_opened, &self) || self.dli_fname == NULL) {
        complain("cannot find my own file", NULL);
        return;
    }
    slash = strrchr(self.dli_fname, '/');
    for (i = 0; i < sizeof places / sizeof *places && handle == NULL; i++) {
        int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - self.dli_fname + 1) : 0,
                         self.dli_fname, places[i]);
        if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0) continue;
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (handle == NULL) {
            complain("cannot load the engine", dlerror());
            return;
        }
    }
    if (handle == NULL) {
        complain("libxsock-engine.so is not beside", self.dli_fname);
        return;
    }
    *(void**)&table = dlsym(handle, "xsock_engine_table");
    if (table == NULL) {
        complain("libxsock-engine.so lacks its table", dlerror());
        engine_errno = ELIBBAD;
        return;
    }
    accept_table(table());
}
#endif

const struct xsock_engine* xsock_engine_open_slowly(void) {
    pthread_once(&once, load);
    if (xsock_engine_opened == NULL) errno = engine_errno;
    return xsock_engine_opened;
}
