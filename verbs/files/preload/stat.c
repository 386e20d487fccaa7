/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Calls that ask about a file. A device node is told as what it stands for, also by calls that do
 * not follow links. */
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "verbs/files/preload/tree_path.h"

#define STAT(name, type)                                                                          \
    IN_TREE(int, name, (const char* restrict path, struct type* restrict found), (path, found)) { \
        char to[TREE_PATH_MAX];                                                                   \
        path = tree_path(AT_FDCWD, path, to);                                                     \
        return path == NULL ? -1 : NEXT(name)(path, found);                                       \
    }
STAT(stat, stat)
STAT(stat64, stat64)

#define LSTAT(name, follows, type)                                                                \
    IN_TREE(int, name, (const char* restrict path, struct type* restrict found), (path, found)) { \
        char to[TREE_PATH_MAX];                                                                   \
        if (tree_find(AT_FDCWD, path, to) == TREE_DEVICE) {                                       \
            return NEXT(follows)(to, found);                                                      \
        }                                                                                         \
        path = tree_path(AT_FDCWD, path, to);                                                     \
        return path == NULL ? -1 : NEXT(name)(path, found);                                       \
    }
LSTAT(lstat, stat, stat)
LSTAT(lstat64, stat64, stat64)

#define FSTATAT(name, type)                                                                 \
    IN_TREE(int, name,                                                                      \
            (int dirfd, const char* restrict path, struct type* restrict found, int flags), \
            (dirfd, path, found, flags)) {                                                  \
        char to[TREE_PATH_MAX];                                                             \
        if (tree_find(dirfd, path, to) == TREE_DEVICE) flags &= ~AT_SYMLINK_NOFOLLOW;       \
        path = tree_path(dirfd, path, to);                                                  \
        return path == NULL ? -1 : NEXT(name)(dirfd, path, found, flags);                   \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

/* Of programs linked before glibc 2.33. */
int __xstat(int version, const char* path, struct stat* found);
int __xstat64(int version, const char* path, struct stat64* found);
int __lxstat(int version, const char* path, struct stat* found);
int __lxstat64(int version, const char* path, struct stat64* found);
int __fxstatat(int version, int dirfd, const char* path, struct stat* found, int flags);
int __fxstatat64(int version, int dirfd, const char* path, struct stat64* found, int flags);

#define XSTAT(name, type)                                                   \
    IN_TREE(int, name, (int version, const char* path, struct type* found), \
            (version, path, found)) {                                       \
        char to[TREE_PATH_MAX];                                             \
        path = tree_path(AT_FDCWD, path, to);                               \
        return path == NULL ? -1 : NEXT(name)(version, path, found);        \
    }
XSTAT(__xstat, stat)
XSTAT(__xstat64, stat64)

#define LXSTAT(name, follows, type)                                         \
    IN_TREE(int, name, (int version, const char* path, struct type* found), \
            (version, path, found)) {                                       \
        char to[TREE_PATH_MAX];                                             \
        if (tree_find(AT_FDCWD, path, to) == TREE_DEVICE) {                 \
            return NEXT(follows)(version, to, found);                       \
        }                                                                   \
        path = tree_path(AT_FDCWD, path, to);                               \
        return path == NULL ? -1 : NEXT(name)(version, path, found);        \
    }
LXSTAT(__lxstat, __xstat, stat)
LXSTAT(__lxstat64, __xstat64, stat64)

#define FXSTATAT(name, type)                                                                      \
    IN_TREE(int, name, (int version, int dirfd, const char* path, struct type* found, int flags), \
            (version, dirfd, path, found, flags)) {                                               \
        char to[TREE_PATH_MAX];                                                                   \
        if (tree_find(dirfd, path, to) == TREE_DEVICE) flags &= ~AT_SYMLINK_NOFOLLOW;             \
        path = tree_path(dirfd, path, to);                                                        \
        return path == NULL ? -1 : NEXT(name)(version, dirfd, path, found, flags);                \
    }
FXSTATAT(__fxstatat, stat)
FXSTATAT(__fxstatat64, stat64)

IN_TREE(int, statx,
        (int dirfd, const char* restrict path, int flags, unsigned mask,
         struct statx* restrict found),
        (dirfd, path, flags, mask, found)) {
    char to[TREE_PATH_MAX];

    if (tree_find(dirfd, path, to) == TREE_DEVICE) flags &= ~AT_SYMLINK_NOFOLLOW;
    path = tree_path(dirfd, path, to);
    return path == NULL ? -1 : NEXT(statx)(dirfd, path, flags, mask, found);
}

/* Root may write anywhere, but not here. */
static const char* path_to_access(int dirfd, const char* path, int mode, char* to) {
    if (tree_find(dirfd, path, to) == TREE_FILE && (mode & W_OK) != 0) {
        if (NEXT(faccessat)(AT_FDCWD, to, F_OK, 0) == 0) errno = EROFS;
        return NULL;
    }
    return tree_path(dirfd, path, to);
}

#define ACCESS(name)                                                 \
    IN_TREE(int, name, (const char* path, int mode), (path, mode)) { \
        char to[TREE_PATH_MAX];                                      \
        path = path_to_access(AT_FDCWD, path, mode, to);             \
        return path == NULL ? -1 : NEXT(name)(path, mode);           \
    }
ACCESS(access)
ACCESS(eaccess)
ACCESS(euidaccess)

IN_TREE(int, faccessat, (int dirfd, const char* path, int mode, int flags),
        (dirfd, path, mode, flags)) {
    char to[TREE_PATH_MAX];

    path = path_to_access(dirfd, path, mode, to);
    return path == NULL ? -1 : NEXT(faccessat)(dirfd, path, mode, flags);
}

/* ---- links ---- */

ssize_t __readlink_chk(const char* path, char* buffer, size_t size, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char* path, char* buffer, size_t size, size_t room);

static const char* path_of_link(int dirfd, const char* path, char* to) {
    if (tree_find(dirfd, path, to) == TREE_DEVICE) {
        errno = NEXT(faccessat)(AT_FDCWD, to, F_OK, 0) == 0 ? EINVAL : ENOENT;
        return NULL;
    }
    return tree_path(dirfd, path, to);
}

IN_TREE(ssize_t, readlink, (const char* restrict path, char* restrict buffer, size_t size),
        (path, buffer, size)) {
    char to[TREE_PATH_MAX];

    path = path_of_link(AT_FDCWD, path, to);
    return path == NULL ? -1 : NEXT(readlink)(path, buffer, size);
}

IN_TREE(ssize_t, readlinkat,
        (int dirfd, const char* restrict path, char* restrict buffer, size_t size),
        (dirfd, path, buffer, size)) {
    char to[TREE_PATH_MAX];

    path = path_of_link(dirfd, path, to);
    return path == NULL ? -1 : NEXT(readlinkat)(dirfd, path, buffer, size);
}

IN_TREE(ssize_t, __readlink_chk, (const char* path, char* buffer, size_t size, size_t room),
        (path, buffer, size, room)) {
    char to[TREE_PATH_MAX];

    path = path_of_link(AT_FDCWD, path, to);
    return path == NULL ? -1 : NEXT(__readlink_chk)(path, buffer, size, room);
}

IN_TREE(ssize_t, __readlinkat_chk,
        (int dirfd, const char* path, char* buffer, size_t size, size_t room),
        (dirfd, path, buffer, size, room)) {
    char to[TREE_PATH_MAX];

    path = path_of_link(dirfd, path, to);
    return path == NULL ? -1 : NEXT(__readlinkat_chk)(dirfd, path, buffer, size, room);
}

/* ---- attributes, watches ---- */

#define GETXATTR(name)                                                                          \
    IN_TREE(ssize_t, name, (const char* path, const char* attribute, void* value, size_t size), \
            (path, attribute, value, size)) {                                                   \
        char to[TREE_PATH_MAX];                                                                 \
        path = tree_path(AT_FDCWD, path, to);                                                   \
        return path == NULL ? -1 : NEXT(name)(path, attribute, value, size);                    \
    }
GETXATTR(getxattr)
GETXATTR(lgetxattr)

#define LISTXATTR(name)                                                                       \
    IN_TREE(ssize_t, name, (const char* path, char* list, size_t size), (path, list, size)) { \
        char to[TREE_PATH_MAX];                                                               \
        path = tree_path(AT_FDCWD, path, to);                                                 \
        return path == NULL ? -1 : NEXT(name)(path, list, size);                              \
    }
LISTXATTR(listxattr)
LISTXATTR(llistxattr)

IN_TREE(int, inotify_add_watch, (int fd, const char* path, uint32_t mask), (fd, path, mask)) {
    char to[TREE_PATH_MAX];

    path = tree_path(AT_FDCWD, path, to);
    return path == NULL ? -1 : NEXT(inotify_add_watch)(fd, path, mask);
}
