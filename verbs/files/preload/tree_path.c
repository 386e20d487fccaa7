/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "verbs/files/preload/tree_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

size_t tree_length;
int tree_by_bytes = 1; /* until find_tree() */
static char tree[PATH_MAX];

/* What programs look for by these names is the tree's, whatever this machine has. */
static const char* const ours[] = {
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/infiniband_mad",
    "/sys/class/infiniband_cm",
    "/sys/devices/virtual/infiniband",
    "/sys/devices/virtual/infiniband_verbs",
    "/dev/infiniband",
};
/* Programs that find these register GPU memory with the device. */
static const char* const hidden[] = {
    "/sys/module/nvidia_peermem",
    "/sys/module/nv_peer_mem",
    "/sys/kernel/mm/memory_peers",
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

void* tree_next(void** cache, const char* name) {
    void* function = __atomic_load_n(cache, __ATOMIC_ACQUIRE);

    if (function == NULL) {
        function = dlsym(RTLD_NEXT, name);
        __atomic_store_n(cache, function, __ATOMIC_RELEASE);
    }
    return function;
}

static int is_watched_by_valgrind(void) {
    const char* const preloads = getenv("LD_PRELOAD");

    return preloads != NULL && strstr(preloads, "vgpreload") != NULL;
}

__attribute__((constructor)) static void find_tree(void) {
    const char* const path = getenv("XSOCK_VERBS_TREE");
    struct stat found;

    tree_by_bytes = is_watched_by_valgrind();
    if (path == NULL || path[0] != '/' || strlen(path) >= PATH_MAX / 2) return;
    if (NEXT(lstat)(path, &found) != 0 || !S_ISDIR(found.st_mode)) return;
    if ((found.st_uid != geteuid() && found.st_uid != 0) || (found.st_mode & 022) != 0) return;
    if (NEXT(realpath)(path, tree) == NULL) return;
    tree_length = strlen(tree);
}

/* `path` is `prefix`, or below it. */
static int is_below(const char* path, const char* prefix) {
    const size_t n = strlen(prefix);

    /* NOLINTNEXTLINE(clang-analyzer-core.*): what is equal up to there has a next byte */
    return strncmp(path, prefix, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int is_below_any(const char* path, const char* const* prefixes, size_t count) {
    size_t i;

    for (i = 0; i < count; ++i) {
        if (is_below(path, prefixes[i])) return 1;
    }
    return 0;
}

void tree_strip(char* path) {
    if (tree_length == 0 || strncmp(path, tree, tree_length) != 0) return;
    if (path[tree_length] == '/') {
        memmove(path, path + tree_length, strlen(path + tree_length) + 1);
    } else if (path[tree_length] == '\0') {
        strcpy(path, "/");
    }
}

/* strncmp() is a call into libc. */
static inline int begins(const char* path, const char* prefix) {
    while (*prefix != '\0') {
        if (*path++ != *prefix++) return 0;
    }
    return 1;
}

static int first_is(const char* path, const char* name) {
    while (*name != '\0') {
        if (*path++ != *name++) return 0;
    }
    return *path == '/' || *path == '\0';
}

/* The first component of a relative path leads into the tree from a folder above it. */
static int may_lead_in(const char* path) {
    switch (path[0]) {
        case 's':
            return first_is(path, "sys");
        case 'd':
            return first_is(path, "dev") || first_is(path, "devices");
        case 'c':
            return first_is(path, "class");
        case 'v':
            return first_is(path, "virtual");
        case 'm':
            return first_is(path, "module") || first_is(path, "mm") || begins(path, "memory_peers");
        case 'k':
            return first_is(path, "kernel");
        case 'n':
            return begins(path, "nv");
        case 'i':
            return begins(path, "infiniband");
        default:
            return 0;
    }
}

int tree_may_concern(const char* path) {
    if (path == NULL) return 1; /* refused below; not all functions of libc do so */
    if (path[0] != '/') {
        const char after = path[0] == '.' ? path[1] : 'x';

        /* What does not begin so stays below its folder, unless it goes up. */
        return after == '\0' || after == '.' || after == '/' || may_lead_in(path) ||
               strstr(path, "/..") != NULL;
    }
    if (begins(path, "/sys/")) {
        const char* const below = path + 5;

        if (begins(below, "class/infiniband") || begins(below, "devices/virtual/infiniband") ||
            begins(below, "module/nv") || begins(below, "kernel/mm/memory_peers")) {
            return 1;
        }
    } else if (begins(path, "/dev/infiniband")) {
        return 1;
    }
    return tree_by_bytes ? tree_is_unclean_by_bytes(path) : tree_is_unclean(path);
}

/* The folder that a relative path begins in, as the program calls it. 0: there is none. */
static int start_of(int dirfd, char* at) {
    if (dirfd == AT_FDCWD) {
        if (NEXT(getcwd)(at, PATH_MAX) == NULL) return 0;
    } else {
        char link[32];
        ssize_t n;

        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        n = NEXT(readlink)(link, at, PATH_MAX - 1);
        if (n <= 0) return 0;
        at[n] = '\0';
    }
    return at[0] == '/';
}

enum tree_place tree_find(int dirfd, const char* path, char to[TREE_PATH_MAX]) {
    /* `at`: where we are, as the program calls it; `rest`: what is still to go. */
    char at[TREE_PATH_MAX], rest[TREE_PATH_MAX], link[PATH_MAX];
    int touched = 0, links = 0;
    size_t length;
    char* next = rest;

    if (tree_length == 0 || path == NULL || !tree_may_concern(path)) return TREE_NONE;
    if (strlen(path) >= PATH_MAX) return TREE_LONG;
    strcpy(rest, path);
    at[0] = '\0';
    if (path[0] != '/') {
        if (!start_of(dirfd, at)) return TREE_NONE;
        touched = strncmp(at, tree, tree_length) == 0 && at[tree_length] == '/';
        tree_strip(at);
        if (strcmp(at, "/") == 0) at[0] = '\0';
    }
    length = strlen(at);
    while (*next != '\0') {
        const size_t n = strcspn(next, "/");
        const int last = next[n] == '\0';

        if (n == 2 && next[0] == '.' && next[1] == '.') {
            while (length > 0 && at[--length] != '/') {
            }
            at[length] = '\0';
        } else if (n != 0 && !(n == 1 && next[0] == '.')) {
            if (length + 1 + n >= PATH_MAX) return touched ? TREE_LONG : TREE_NONE;
            at[length] = '/';
            memcpy(at + length + 1, next, n);
            at[length + 1 + n] = '\0';
            if (is_below_any(at, ours, COUNT(ours))) {
                touched = 1;
                /* A link of the tree is followed here: what lies behind it may be outside. */
                if (!last) {
                    ssize_t size;

                    memcpy(to, tree, tree_length);
                    strcpy(to + tree_length, at);
                    size = NEXT(readlink)(to, link, sizeof link - 1);
                    if (size > 0) {
                        char after[TREE_PATH_MAX];

                        link[size] = '\0';
                        if (++links > 8 || (size_t)size + strlen(next + n) >= PATH_MAX) {
                            return TREE_LONG;
                        }
                        strcpy(after, next + n);
                        strcpy(rest, link);
                        strcat(rest, after);
                        if (link[0] == '/') length = 0;
                        at[length] = '\0';
                        next = rest;
                        continue;
                    }
                }
            }
            length += 1 + n;
        }
        next += n;
        while (*next == '/') ++next;
    }
    if (length == 0) strcpy(at, "/");
    if (is_below_any(at, hidden, COUNT(hidden))) return TREE_HIDDEN;
    if (!is_below_any(at, ours, COUNT(ours))) {
        if (!touched) return TREE_NONE;
        strcpy(to, at);
        return TREE_LEFT;
    }
    if (tree_length + strlen(at) + 1 >= PATH_MAX) return TREE_LONG;
    memcpy(to, tree, tree_length);
    strcpy(to + tree_length, at);
    if (path[strlen(path) - 1] == '/') strcat(to, "/"); /* behind a link it means what that is */
    return is_below(at, "/dev/infiniband") && strlen(at) > strlen("/dev/infiniband") ? TREE_DEVICE
                                                                                     : TREE_FILE;
}

/* The path for libc, or NULL and errno. */
static const char* path_for_libc(enum tree_place place, const char* path, const char* to) {
    switch (place) {
        case TREE_NONE:
            if (path == NULL) errno = EFAULT;
            return path;
        case TREE_LEFT:
        case TREE_FILE:
        case TREE_DEVICE:
            return to;
        case TREE_HIDDEN:
            errno = ENOENT;
            return NULL;
        case TREE_LONG:
            errno = ENAMETOOLONG;
            return NULL;
    }
    return path;
}

const char* tree_path(int dirfd, const char* path, char to[TREE_PATH_MAX]) {
    return path_for_libc(tree_find(dirfd, path, to), path, to);
}

const char* tree_path_to_open(int dirfd, const char* path, int writes, char to[TREE_PATH_MAX]) {
    const enum tree_place place = tree_find(dirfd, path, to);

    if (place == TREE_DEVICE) {
        struct stat found;

        if (NEXT(lstat)(to, &found) == 0) errno = ENXIO;
        return NULL;
    }
    if (place == TREE_FILE && writes) {
        errno = EROFS;
        return NULL;
    }
    return path_for_libc(place, path, to);
}
