/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finding and loading the engine; see engine_open.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "libxsock/engine/engine_open.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct xsock_engine* xsock_engine_opened;
static int engine_errno = ELIBACC;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t trying_again = PTHREAD_MUTEX_INITIALIZER;

/* A shortage, which passes; everything else is for good. */
static int is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

void xsock_engine_print_error(const char* what, const char* detail) {
    char line[512];
    int n = snprintf(line, sizeof line, "xsock: %s%s%s\n", what, detail ? ": " : "",
                     detail ? detail : "");
    if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

#ifdef XSOCK_ENGINE_LINKED
/* Sanitizers and RTLD_DEEPBIND do not mix: such builds are linked to the engine. */
static const struct xsock_engine* load(void) { return xsock_engine_table(); }
#else

#ifndef XSOCK_ENGINE_PLACES
#define XSOCK_ENGINE_PLACES "xsock/libxsock-engine.so", "libxsock-engine.so"
#endif

/* The engine's table, of a version that is still to be checked. */
static const struct xsock_engine* load(void) {
    /* From where this library lies; the first that exists is taken. */
    static const char* const places[] = {XSOCK_ENGINE_PLACES};
    const struct xsock_engine* (*table)(void);
    char path[4096];
    const char* slash;
    void* handle = NULL;
    Dl_info mine;
    size_t i;
    int fd;

    if (!dladdr((const void*)&xsock_engine_opened, &mine) || mine.dli_fname == NULL) {
        xsock_engine_print_error("cannot find my own file", NULL);
        return NULL;
    }
    slash = strrchr(mine.dli_fname, '/');
    for (i = 0; i < sizeof places / sizeof *places && handle == NULL; i++) {
        const int n =
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - mine.dli_fname + 1) : 0,
                     mine.dli_fname, places[i]);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        /* dlopen() has no errno. */
        fd = open(path, O_RDONLY | O_CLOEXEC);
        engine_errno = fd < 0 && is_shortage(errno) ? errno : ELIBACC;
        if (is_shortage(engine_errno)) return NULL;
        if (fd < 0) continue;
        close(fd);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (handle == NULL) {
            xsock_engine_print_error("cannot load the engine", dlerror());
            return NULL;
        }
    }
    if (handle == NULL) {
        xsock_engine_print_error("libxsock-engine.so is not beside", mine.dli_fname);
        return NULL;
    }
    *(void**)&table = dlsym(handle, "xsock_engine_table");
    if (table == NULL) {
        xsock_engine_print_error("libxsock-engine.so lacks its table", dlerror());
        engine_errno = ELIBBAD;
        return NULL;
    }
    return table();
}
#endif

static void open_once(void) {
    const struct xsock_engine* const table = load();

    if (table == NULL) return;
    if (table->table_version != XSOCK_ENGINE_VERSION ||
        table->table_size != sizeof(struct xsock_engine)) {
        xsock_engine_print_error(
            "this library and libxsock-engine.so are of different versions; reinstall both", NULL);
        engine_errno = ELIBBAD;
        return;
    }
    __atomic_store_n(&xsock_engine_opened, table, __ATOMIC_RELEASE);
}

const struct xsock_engine* xsock_engine_open_slow(void) {
    pthread_once(&once, open_once);
    /* Never waits: it may be a lock of a thread that a forked child does not have. */
    if (xsock_engine_opened == NULL && is_shortage(engine_errno) &&
        pthread_mutex_trylock(&trying_again) == 0) {
        if (xsock_engine_opened == NULL) open_once();
        pthread_mutex_unlock(&trying_again);
    }
    if (xsock_engine_opened == NULL) errno = engine_errno;
    return xsock_engine_opened;
}
