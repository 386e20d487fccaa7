/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libxsock-rdma-files.so, preloaded by `xsock run --roce`: leads paths of RDMA devices
 * (/sys/class/infiniband, /dev/infiniband ...) to the files that xsock run has made
 * (XSOCK_VERBS_TREE, verbs/files/tree.hpp), and results back. Plain C, without the engine; any
 * thread, also in signal handlers where libc's function may be called there. Where XSOCK_VERBS_TREE
 * is not set, or is no folder of this user or of root, every call goes to libc as it is.
 *
 * Folders of the tree are real ones, so that relative paths and descriptors work by themselves: a
 * call is looked at only where its path could lead into the tree from outside, or out of it.
 */
#ifndef XSOCK_RDMA_FILES_TREE_PATH_H
#define XSOCK_RDMA_FILES_TREE_PATH_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define TREE_PATH_MAX (2 * PATH_MAX)

enum tree_place {
    TREE_NONE,   /* a path like any other: goes to libc as it is */
    TREE_LEFT,   /* by way of the tree to a path like any other, which `to` has */
    TREE_FILE,   /* in the tree; `to` has where it really is */
    TREE_DEVICE, /* the same; a device node */
    TREE_HIDDEN, /* shall not be there: ENOENT */
    TREE_LONG,   /* ENAMETOOLONG */
};

/* Where `path`, relative to `dirfd` (or AT_FDCWD), leads. */
enum tree_place tree_find(int dirfd, const char* path, char to[TREE_PATH_MAX]);

/* Takes the tree's own path off the front of `path`, if it is there. */
void tree_strip(char* path);

/* Bytes of the tree's path; 0: there is none. */
extern size_t tree_length;

int tree_may_concern(const char* path);

/* libc's own function, or that of the next preload. */
void* tree_next(void** cache, const char* name);
#define NEXT(name)                                    \
    ({                                                \
        static void* cache_;                          \
        (__typeof__(&name))tree_next(&cache_, #name); \
    })

/* A path of a call that follows links, made into the one for libc. Sets errno and answers NULL for
 * what is not there. */
const char* tree_path(int dirfd, const char* path, char to[TREE_PATH_MAX]);

/* The same for a call that opens: device nodes cannot be opened (ENXIO), nothing can be written
 * (EROFS). */
const char* tree_path_to_open(int dirfd, const char* path, int writes, char to[TREE_PATH_MAX]);

#endif /* XSOCK_RDMA_FILES_TREE_PATH_H */
