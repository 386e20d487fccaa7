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
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define TREE_LIKELY(condition) __builtin_expect(condition, 1)
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

/* Paths are looked at byte by byte: under valgrind, which reports comparisons of bytes that were
 * never written, and until the constructor has run. */
extern int tree_by_bytes;

static inline int tree_is_unclean_by_bytes(const char* path) {
    for (; *path != '\0'; ++path) {
        if (path[0] == '/' && (path[1] == '/' || path[1] == '.')) return 1;
    }
    return 0;
}

/* `//`, or `/.` before anything (also of `/.profile`). Without calls: behind a system call each
 * indirect jump costs several nanoseconds. By words, which have bytes behind the path in them too:
 * see tree_by_bytes. */
static inline int tree_is_unclean(const char* path) {
#ifdef __SSE2__
    /* By 16 bytes, aligned, so that no load reaches into a page that the string does not. */
    const char* at = (const char*)((uintptr_t)path & ~(uintptr_t)15);
    unsigned before = ~0U << (path - at); /* what stands ahead of the path does not count */
    unsigned carry = 0;                   /* the last byte was a slash */

    for (;; at += 16, before = ~0U) {
        const __m128i bytes = _mm_load_si128((const __m128i*)at);
#define TREE_EQUAL(byte) (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte)))
        const unsigned end = TREE_EQUAL('\0') & before;
        const unsigned slashes = TREE_EQUAL('/') & before;
        const unsigned found = (TREE_EQUAL('.') | slashes) & (slashes << 1 | carry);
#undef TREE_EQUAL
        if (found != 0 && (end == 0 || (found & (end ^ (end - 1))) != 0)) return 1;
        if (end != 0) return 0;
        carry = slashes >> 15;
    }
#else
    return tree_is_unclean_by_bytes(path);
#endif
}

/* 0: the path leads neither into the tree nor out of it. */
int tree_may_concern(const char* path);

#define TREE_BIT(letter) (1U << ((letter) - 'c'))
#define TREE_LETTERS                                                                 \
    (TREE_BIT('c') | TREE_BIT('d') | TREE_BIT('i') | TREE_BIT('k') | TREE_BIT('m') | \
     TREE_BIT('n') | TREE_BIT('s') | TREE_BIT('v'))

/* 1: the path leads neither into the tree nor out of it. 0: tree_may_concern() knows. Most paths
 * are told by it, without a call. */
static inline int tree_is_elsewhere(const char* path) {
    __asm__("" : "+r"(path)); /* libc's headers say that it is not NULL; programs pass it */
    if (path == NULL) return 0;
    if (path[0] != '/') {
        /* `.`, or a letter that a folder of the tree begins with. */
        if (path[0] < '/' ||
            (path[0] >= 'c' && path[0] <= 'v' && (TREE_LETTERS & TREE_BIT(path[0]))))
            return 0;
    } else if (path[1] == 's' && path[2] == 'y' && path[3] == 's' && path[4] == '/' &&
               (path[5] == 'c' || path[5] == 'd' || path[5] == 'k' || path[5] == 'm')) {
        return 0;
    } else if (path[1] == 'd' && path[2] == 'e' && path[3] == 'v' && path[4] == '/' &&
               path[5] == 'i') {
        return 0;
    }
    return !tree_is_unclean(path);
}

/* libc's own function, or that of the next preload. */
void* tree_next(void** cache, const char* name);
#define NEXT(name)                                    \
    ({                                                \
        static void* cache_;                          \
        (__typeof__(&name))tree_next(&cache_, #name); \
    })

/* Begins the definition of libc's function `name`, whose parameter `path` leads into the tree or
 * out of it. Other paths go to libc at once: with no stack taken, and the call of libc's function
 * the last thing done, for what a function touches is not in the cache behind a system call. */
#define IN_TREE(result, name, parameters, arguments) \
    IN_TREE_AS(result, name, name, parameters, arguments)

/* The same for a function that C calls `function`, and the linker `name`. */
#define IN_TREE_AS(result, function, name, parameters, arguments)           \
    static __attribute__((noinline)) result name##_in_tree parameters;      \
    /* The first stays NULL where paths are looked at by bytes. */          \
    static void *name##_next, *name##_found;                                \
    static __attribute__((noinline)) result name##_perhaps parameters {     \
        void* const next = tree_next(&name##_found, #name);                 \
        if (!tree_by_bytes) {                                               \
            __atomic_store_n(&name##_next, next, __ATOMIC_RELEASE);         \
        }                                                                   \
        return tree_may_concern(path) ? name##_in_tree arguments            \
                                      : ((__typeof__(&name))next)arguments; \
    }                                                                       \
    EXPORT result function parameters {                                     \
        void* const next = __atomic_load_n(&name##_next, __ATOMIC_ACQUIRE); \
        if (!TREE_LIKELY(next != NULL && tree_is_elsewhere(path)))          \
            return name##_perhaps arguments;                                \
        return ((__typeof__(&name))next)arguments;                          \
    }                                                                       \
    static result name##_in_tree parameters

/* A path of a call that follows links, made into the one for libc. Sets errno and answers NULL for
 * what is not there. */
const char* tree_path(int dirfd, const char* path, char to[TREE_PATH_MAX]);

/* The same for a call that opens: device nodes cannot be opened (ENXIO), nothing can be written
 * (EROFS). */
const char* tree_path_to_open(int dirfd, const char* path, int writes, char to[TREE_PATH_MAX]);

#endif /* XSOCK_RDMA_FILES_TREE_PATH_H */
