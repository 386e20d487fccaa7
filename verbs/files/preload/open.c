/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Calls that open a file. */
#include <stdio.h>

#include "verbs/files/preload/tree_path.h"

static int writes(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

/* A function that opens for writing if `writing`, and answers `failed` where it cannot. */
#define OPENS(result, failed, function, name, parameters, arguments, dirfd, writing) \
    IN_TREE_AS(result, function, name, parameters, arguments) {                      \
        char to[TREE_PATH_MAX];                                                      \
        path = tree_path_to_open(dirfd, path, writing, to);                          \
        return path == NULL ? failed : NEXT(name) arguments;                         \
    }

/* Without `...`: Linux passes a mode in the same place either way, libc looks at it only where
 * flags say that it is there, and so the call of libc's function is the last thing these do. */
#define OPEN(name)                                                                        \
    EXPORT int name##_with_mode(const char* path, int flags, mode_t mode) __asm__(#name); \
    OPENS(int, -1, name##_with_mode, name, (const char* path, int flags, mode_t mode),    \
          (path, flags, mode), AT_FDCWD, writes(flags))
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                              \
    EXPORT int name##_with_mode(int dirfd, const char* path, int flags,                           \
                                mode_t mode) __asm__(#name);                                      \
    OPENS(int, -1, name##_with_mode, name, (int dirfd, const char* path, int flags, mode_t mode), \
          (dirfd, path, flags, mode), dirfd, writes(flags))
OPENAT(openat)
OPENAT(openat64)

/* Those of _FORTIFY_SOURCE, which have no mode. */
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int dirfd, const char* path, int flags);
int __openat64_2(int dirfd, const char* path, int flags);

#define OPEN_2(name)                                                                   \
    OPENS(int, -1, name, name, (const char* path, int flags), (path, flags), AT_FDCWD, \
          writes(flags))
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                                         \
    OPENS(int, -1, name, name, (int dirfd, const char* path, int flags), (dirfd, path, flags), \
          dirfd, writes(flags))
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define CREAT(name) \
    OPENS(int, -1, name, name, (const char* path, mode_t mode), (path, mode), AT_FDCWD, 1)
CREAT(creat)
CREAT(creat64)

static int mode_writes(const char* mode) {
    return mode != NULL && (mode[0] != 'r' || strchr(mode, '+') != NULL);
}

#define FOPEN(name)                                                                        \
    OPENS(FILE*, NULL, name, name, (const char* restrict path, const char* restrict mode), \
          (path, mode), AT_FDCWD, mode_writes(mode))
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
