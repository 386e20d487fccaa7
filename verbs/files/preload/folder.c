/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Calls about folders, those that walk them, and those whose results are paths: these lose the
 * tree's own path. glibc's functions do not call each other by names that a preload could stand in
 * for, so each is here by itself. */
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbs/files/preload/tree_path.h"

IN_TREE(DIR*, opendir, (const char* path), (path)) {
    char to[TREE_PATH_MAX];

    path = tree_path(AT_FDCWD, path, to);
    return path == NULL ? NULL : NEXT(opendir)(path);
}

IN_TREE(int, chdir, (const char* path), (path)) {
    char to[TREE_PATH_MAX];

    path = tree_path(AT_FDCWD, path, to);
    return path == NULL ? -1 : NEXT(chdir)(path);
}

#define SCANDIR(name, type)                                               \
    IN_TREE(int, name,                                                    \
            (const char* restrict path, struct type*** restrict list,     \
             int (*wanted)(const struct type*),                           \
             int (*order)(const struct type**, const struct type**)),     \
            (path, list, wanted, order)) {                                \
        char to[TREE_PATH_MAX];                                           \
        path = tree_path(AT_FDCWD, path, to);                             \
        return path == NULL ? -1 : NEXT(name)(path, list, wanted, order); \
    }
SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)

#define SCANDIRAT(name, type)                                                    \
    IN_TREE(int, name,                                                           \
            (int dirfd, const char* restrict path, struct type*** restrict list, \
             int (*wanted)(const struct type*),                                  \
             int (*order)(const struct type**, const struct type**)),            \
            (dirfd, path, list, wanted, order)) {                                \
        char to[TREE_PATH_MAX];                                                  \
        path = tree_path(dirfd, path, to);                                       \
        return path == NULL ? -1 : NEXT(name)(dirfd, path, list, wanted, order); \
    }
SCANDIRAT(scandirat, dirent)
SCANDIRAT(scandirat64, dirent64)

/* ---- paths as results ---- */

char* __realpath_chk(const char* path, char* resolved, size_t room);
char* __getcwd_chk(char* buffer, size_t size, size_t room);

/* Not inline: libc's headers say of the callers' path that it is not NULL. */
__attribute__((noinline)) static char* real_path_of(const char* path, char* resolved) {
    char to[TREE_PATH_MAX];
    char* found;

    if (path == NULL) return NEXT(realpath)(path, resolved);
    if (tree_find(AT_FDCWD, path, to) == TREE_DEVICE) {
        /* A link for lack of a node: the program's own path is the real one. */
        if (NEXT(faccessat)(AT_FDCWD, to, F_OK, 0) != 0) return NULL;
        tree_strip(to);
        return resolved == NULL ? strdup(to) : strcpy(resolved, to);
    }
    path = tree_path(AT_FDCWD, path, to);
    if (path == NULL) return NULL;
    found = NEXT(realpath)(path, resolved);
    if (found != NULL) tree_strip(found);
    return found;
}

EXPORT char* realpath(const char* restrict path, char* restrict resolved) {
    if (!tree_may_concern(path)) return NEXT(realpath)(path, resolved);
    return real_path_of(path, resolved);
}

EXPORT char* __realpath_chk(const char* path, char* resolved, size_t room) {
    if (!tree_may_concern(path)) return NEXT(__realpath_chk)(path, resolved, room);
    if (room < PATH_MAX) return NEXT(__realpath_chk)(path, resolved, room); /* it aborts */
    return real_path_of(path, resolved);
}

EXPORT char* canonicalize_file_name(const char* path) {
    if (!tree_may_concern(path)) return NEXT(canonicalize_file_name)(path);
    return real_path_of(path, NULL);
}

EXPORT char* getcwd(char* buffer, size_t size) {
    char* const found = NEXT(getcwd)(buffer, size);

    if (found != NULL) tree_strip(found);
    return found;
}

EXPORT char* __getcwd_chk(char* buffer, size_t size, size_t room) {
    char* const found = NEXT(__getcwd_chk)(buffer, size, room);

    if (found != NULL) tree_strip(found);
    return found;
}

EXPORT char* get_current_dir_name(void) {
    char* const found = NEXT(get_current_dir_name)();

    if (found != NULL) tree_strip(found);
    return found;
}

/* ---- glob ---- */

/* The pattern in the tree: what stands before the first wildcard decides. */
static const char* pattern_in_tree(const char* pattern, char* to) {
    char before[PATH_MAX];
    const size_t plain = strcspn(pattern, "*?[\\");
    size_t folder = plain;
    enum tree_place place;

    if (pattern[0] != '/' || !tree_may_concern(pattern)) return pattern;
    if (pattern[plain] != '\0') {
        while (folder > 0 && pattern[folder - 1] != '/') --folder;
    }
    if (folder == 0 || folder >= sizeof before) return pattern;
    memcpy(before, pattern, folder);
    before[folder] = '\0';
    place = tree_find(AT_FDCWD, before, to);
    if ((place != TREE_FILE && place != TREE_DEVICE) || strpbrk(to, "*?[\\") != NULL) {
        return pattern;
    }
    if (strlen(to) + 1 + strlen(pattern + folder) >= TREE_PATH_MAX) return pattern;
    if (pattern[folder] != '\0' && to[strlen(to) - 1] != '/') strcat(to, "/");
    strcat(to, pattern + folder);
    return to;
}

#define GLOB(name, type)                                                                      \
    EXPORT int name(const char* restrict pattern, int flags, int (*failed)(const char*, int), \
                    type* restrict found) {                                                   \
        char to[TREE_PATH_MAX];                                                               \
        const char* const inside = pattern_in_tree(pattern, to);                              \
        const int status = NEXT(name)(inside, flags, failed, found);                          \
        if (status == 0 && inside == to) {                                                    \
            const size_t skipped = (flags & GLOB_DOOFFS) != 0 ? found->gl_offs : 0;           \
            for (size_t i = 0; i < found->gl_pathc; ++i) {                                    \
                if (found->gl_pathv[skipped + i] != NULL) {                                   \
                    tree_strip(found->gl_pathv[skipped + i]);                                 \
                }                                                                             \
            }                                                                                 \
        }                                                                                     \
        return status;                                                                        \
    }
GLOB(glob, glob_t)
GLOB(glob64, glob64_t)

/* ---- walks ---- */

/* The program's function, for the walk that this thread is in. */
static __thread void* visitor;

static void stripped(const char* path, char to[TREE_PATH_MAX]) {
    strncpy(to, path, TREE_PATH_MAX - 1);
    to[TREE_PATH_MAX - 1] = '\0';
    tree_strip(to);
}

#define WALK(name, type, visit_type)                                                \
    static int visit_##name(const char* path, const struct type* found, int flag) { \
        char to[TREE_PATH_MAX];                                                     \
        stripped(path, to);                                                         \
        return ((visit_type)visitor)(to, found, flag);                              \
    }                                                                               \
    EXPORT int name(const char* path, visit_type visit, int descriptors) {          \
        char to[TREE_PATH_MAX];                                                     \
        void* const outer = visitor;                                                \
        int status;                                                                 \
        const char* const inside = tree_path(AT_FDCWD, path, to);                   \
        if (inside == NULL) return -1;                                              \
        if (inside == path) return NEXT(name)(path, visit, descriptors);            \
        visitor = (void*)visit;                                                     \
        status = NEXT(name)(inside, visit_##name, descriptors);                     \
        visitor = outer;                                                            \
        return status;                                                              \
    }
WALK(ftw, stat, __ftw_func_t)
WALK(ftw64, stat64, __ftw64_func_t)

#define NWALK(name, type, visit_type)                                                 \
    static int visit_##name(const char* path, const struct type* found, int flag,     \
                            struct FTW* info) {                                       \
        char to[TREE_PATH_MAX];                                                       \
        struct FTW there = *info;                                                     \
        const size_t before = strlen(path);                                           \
        stripped(path, to);                                                           \
        there.base -= (int)(before - strlen(to));                                     \
        return ((visit_type)visitor)(to, found, flag, &there);                        \
    }                                                                                 \
    EXPORT int name(const char* path, visit_type visit, int descriptors, int flags) { \
        char to[TREE_PATH_MAX];                                                       \
        void* const outer = visitor;                                                  \
        int status;                                                                   \
        const char* const inside = tree_path(AT_FDCWD, path, to);                     \
        if (inside == NULL) return -1;                                                \
        if (inside == path) return NEXT(name)(path, visit, descriptors, flags);       \
        visitor = (void*)visit;                                                       \
        status = NEXT(name)(inside, visit_##name, descriptors, flags);                \
        visitor = outer;                                                              \
        return status;                                                                \
    }
NWALK(nftw, stat, __nftw_func_t)
NWALK(nftw64, stat64, __nftw64_func_t)
