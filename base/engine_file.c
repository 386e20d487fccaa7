/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/engine_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void xsock_engine_complain(const char* what, const char* detail) {
    char line[512];
    int n = snprintf(line, sizeof line, "xsock: %s%s%s\n", what, detail ? ": " : "",
                     detail ? detail : "");
    if (n > (int)sizeof line - 1) n = (int)sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

const void* xsock_engine_load(const void* self, const char* const* places, size_t count,
                              int* error) {
    const void* (*table)(void);
    char path[4096];
    const char* slash;
    void* handle = NULL;
    Dl_info mine;
    size_t i;

    *error = ELIBACC;
    if (!dladdr(self, &mine) || mine.dli_fname == NULL) {
        xsock_engine_complain("cannot find my own file", NULL);
        return NULL;
    }
    slash = strrchr(mine.dli_fname, '/');
    for (i = 0; i < count && handle == NULL; i++) {
        const int n =
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - mine.dli_fname + 1) : 0,
                     mine.dli_fname, places[i]);
        if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0) continue;
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (handle == NULL) {
            xsock_engine_complain("cannot load the engine", dlerror());
            return NULL;
        }
    }
    if (handle == NULL) {
        xsock_engine_complain("libxsock-engine.so is not beside", mine.dli_fname);
        return NULL;
    }
    *(void**)&table = dlsym(handle, "xsock_engine_table");
    if (table == NULL) {
        xsock_engine_complain("libxsock-engine.so lacks its table", dlerror());
        *error = ELIBBAD;
        return NULL;
    }
    return table();
}
