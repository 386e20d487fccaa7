/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rsockets: a protocol of rdma-core's own over verbs, and its code lies in librdmacm. The host's
 * librdmacm is opened beside this one; its rdma_* and ibv_* calls come to us, because ours are
 * first in the program. It reads one field behind the public rdma_cm_id (verbs/cm.hpp keeps it
 * there), which is a private layout: only versions of rdma-core that are known to have it are used.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libxsock/engine/engine_open.h"

#define EXPORT __attribute__((visibility("default")))

enum { FIRST_KNOWN = 33, LAST_KNOWN = 65 };

static void* host;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* librdmacm.so.1 -> librdmacm.so.1.3.44.0: the third number from the end of rdma-core's files is
 * its version. */
static int version_of(const char* path) {
    char target[256];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    int abi = 0, minor = 0, version = 0;
    const char* name;

    if (n <= 0) return 0;
    target[n] = '\0';
    name = strrchr(target, '/');
    name = name != NULL ? name + 1 : target;
    return sscanf(name, "librdmacm.so.%d.%d.%d", &abi, &minor, &version) == 3 ? version : 0;
}

static void load(void) {
    static const char* const places[] = {
        XSOCK_HOST_LIBDIR "/librdmacm.so.1",
        "/usr/lib64/librdmacm.so.1",
        "/usr/lib/librdmacm.so.1",
    };
    size_t i;

    for (i = 0; i < sizeof places / sizeof *places; i++) {
        int version;
        if (access(places[i], R_OK) != 0) continue;
        version = version_of(places[i]);
        if (version < FIRST_KNOWN || version > LAST_KNOWN) {
            xsock_engine_print_error(
                "rsockets: this host's librdmacm is of a version that xsock does not know",
                places[i]);
            return;
        }
        host = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (host == NULL)
            xsock_engine_print_error("rsockets: cannot load the host's librdmacm", dlerror());
        return;
    }
    xsock_engine_print_error("rsockets: this host has no librdmacm.so.1 to take them from", NULL);
}

static void* find(const char* name) {
    pthread_once(&once, load);
    if (host == NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return dlsym(host, name);
}

#define FUNCTIONS(F)                                                                               \
    F(int, rsocket, (int domain, int type, int protocol), (domain, type, protocol))                \
    F(int, rbind, (int s, const struct sockaddr* a, socklen_t n), (s, a, n))                       \
    F(int, rlisten, (int s, int backlog), (s, backlog))                                            \
    F(int, raccept, (int s, struct sockaddr* a, socklen_t* n), (s, a, n))                          \
    F(int, rconnect, (int s, const struct sockaddr* a, socklen_t n), (s, a, n))                    \
    F(int, rshutdown, (int s, int how), (s, how))                                                  \
    F(int, rclose, (int s), (s))                                                                   \
    F(ssize_t, rrecv, (int s, void* b, size_t n, int flags), (s, b, n, flags))                     \
    F(ssize_t, rrecvfrom, (int s, void* b, size_t n, int flags, struct sockaddr* a, socklen_t* l), \
      (s, b, n, flags, a, l))                                                                      \
    F(ssize_t, rrecvmsg, (int s, struct msghdr* m, int flags), (s, m, flags))                      \
    F(ssize_t, rsend, (int s, const void* b, size_t n, int flags), (s, b, n, flags))               \
    F(ssize_t, rsendto,                                                                            \
      (int s, const void* b, size_t n, int flags, const struct sockaddr* a, socklen_t l),          \
      (s, b, n, flags, a, l))                                                                      \
    F(ssize_t, rsendmsg, (int s, const struct msghdr* m, int flags), (s, m, flags))                \
    F(ssize_t, rread, (int s, void* b, size_t n), (s, b, n))                                       \
    F(ssize_t, rreadv, (int s, const struct iovec* v, int n), (s, v, n))                           \
    F(ssize_t, rwrite, (int s, const void* b, size_t n), (s, b, n))                                \
    F(ssize_t, rwritev, (int s, const struct iovec* v, int n), (s, v, n))                          \
    F(int, rpoll, (struct pollfd * p, nfds_t n, int timeout), (p, n, timeout))                     \
    F(int, rselect, (int n, fd_set* r, fd_set* w, fd_set* e, struct timeval* t), (n, r, w, e, t))  \
    F(int, rgetpeername, (int s, struct sockaddr* a, socklen_t* n), (s, a, n))                     \
    F(int, rgetsockname, (int s, struct sockaddr* a, socklen_t* n), (s, a, n))                     \
    F(int, rsetsockopt, (int s, int level, int name, const void* v, socklen_t n),                  \
      (s, level, name, v, n))                                                                      \
    F(int, rgetsockopt, (int s, int level, int name, void* v, socklen_t* n),                       \
      (s, level, name, v, n))                                                                      \
    F(off_t, riomap, (int s, void* b, size_t n, int prot, int flags, off_t o),                     \
      (s, b, n, prot, flags, o))                                                                   \
    F(int, riounmap, (int s, void* b, size_t n), (s, b, n))                                        \
    F(size_t, riowrite, (int s, const void* b, size_t n, off_t o, int flags), (s, b, n, o, flags))

#define FORWARD(type, name, parameters, arguments)                      \
    EXPORT type name parameters {                                       \
        static type(*real) parameters;                                  \
        type(*f) parameters = __atomic_load_n(&real, __ATOMIC_RELAXED); \
        if (f == NULL) {                                                \
            *(void**)&f = find(#name);                                  \
            if (f == NULL) return (type)-1;                             \
            __atomic_store_n(&real, f, __ATOMIC_RELAXED);               \
        }                                                               \
        return f arguments;                                             \
    }
FUNCTIONS(FORWARD)

EXPORT int rfcntl(int s, int command, ...) {
    int (*f)(int, int, ...);
    va_list list;
    long argument;

    *(void**)&f = find("rfcntl");
    if (f == NULL) return -1;
    va_start(list, command);
    argument = va_arg(list, long);
    va_end(list);
    return f(s, command, argument);
}
