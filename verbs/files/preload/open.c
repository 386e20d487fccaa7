/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Calls that open a file. */
#include <stdarg.h>
#include <stdio.h>

#include "verbs/files/preload/tree_path.h"

static int writes(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

#define TAKES_MODE(flags) (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE)
#define MODE(flags)                            \
    mode_t mode = 0;                           \
    if (TAKES_MODE(flags)) {                   \
        va_list list;                          \
        va_start(list, flags);                 \
        mode = (mode_t)va_arg(list, unsigned); \
        va_end(list);                          \
    }

#define OPEN(name)                                                   \
    EXPORT int name(const char* path, int flags, ...) {              \
        char to[TREE_PATH_MAX];                                      \
        MODE(flags)                                                  \
        path = tree_path_to_open(AT_FDCWD, path, writes(flags), to); \
        return path == NULL ? -1 : NEXT(name)(path, flags, mode);    \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                     \
    EXPORT int name(int dirfd, const char* path, int flags, ...) {       \
        char to[TREE_PATH_MAX];                                          \
        MODE(flags)                                                      \
        path = tree_path_to_open(dirfd, path, writes(flags), to);        \
        return path == NULL ? -1 : NEXT(name)(dirfd, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

/* Those of _FORTIFY_SOURCE, which have no mode. */
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int dirfd, const char* path, int flags);
int __openat64_2(int dirfd, const char* path, int flags);

#define OPEN_2(name)                                                 \
    EXPORT int name(const char* path, int flags) {                   \
        char to[TREE_PATH_MAX];                                      \
        path = tree_path_to_open(AT_FDCWD, path, writes(flags), to); \
        return path == NULL ? -1 : NEXT(name)(path, flags);          \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                             \
    EXPORT int name(int dirfd, const char* path, int flags) {      \
        char to[TREE_PATH_MAX];                                    \
        path = tree_path_to_open(dirfd, path, writes(flags), to);  \
        return path == NULL ? -1 : NEXT(name)(dirfd, path, flags); \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define CREAT(name)                                        \
    EXPORT int name(const char* path, mode_t mode) {       \
        char to[TREE_PATH_MAX];                            \
        path = tree_path_to_open(AT_FDCWD, path, 1, to);   \
        return path == NULL ? -1 : NEXT(name)(path, mode); \
    }
CREAT(creat)
CREAT(creat64)

static int mode_writes(const char* mode) {
    return mode != NULL && (mode[0] != 'r' || strchr(mode, '+') != NULL);
}

#define FOPEN(name)                                                           \
    EXPORT FILE* name(const char* restrict path, const char* restrict mode) { \
        char to[TREE_PATH_MAX];                                               \
        path = tree_path_to_open(AT_FDCWD, path, mode_writes(mode), to);      \
        return path == NULL ? NULL : NEXT(name)(path, mode);                  \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                                           \
    EXPORT FILE* name(const char* restrict path, const char* restrict mode,                     \
                      FILE* restrict stream) {                                                  \
        char to[TREE_PATH_MAX];                                                                 \
        /* Without a path it changes the mode only. Refused, it closes the stream. */           \
        if (path != NULL) {                                                                     \
            const char* const found = tree_path_to_open(AT_FDCWD, path, mode_writes(mode), to); \
            if (found == NULL) {                                                                \
                const int error = errno;                                                        \
                fclose(stream);                                                                 \
                errno = error;                                                                  \
                return NULL;                                                                    \
            }                                                                                   \
            path = found;                                                                       \
        }                                                                                       \
        return NEXT(name)(path, mode, stream);                                                  \
    }
FREOPEN(freopen)
FREOPEN(freopen64)
