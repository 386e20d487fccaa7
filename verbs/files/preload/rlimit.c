/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How much memory may be locked: programs ask before they register any with an RDMA device, and
 * some refuse to start when it is little. Nothing is locked by this device, so there is no limit.
 */
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "verbs/files/preload/tree_path.h"

static int is_us(pid_t process) { return process == 0 || process == getpid(); }

#define GETRLIMIT(name, type)                                                \
    EXPORT int name(__rlimit_resource_t resource, struct type* limit) {      \
        const int status = NEXT(name)(resource, limit);                      \
        if (status == 0 && tree_length != 0 && resource == RLIMIT_MEMLOCK) { \
            limit->rlim_cur = limit->rlim_max = RLIM_INFINITY;               \
        }                                                                    \
        return status;                                                       \
    }
GETRLIMIT(getrlimit, rlimit)
GETRLIMIT(getrlimit64, rlimit64)

/* What is no more than may be set is set; more is what there is in truth already. */
#define SETRLIMIT(name, get, type)                                                  \
    EXPORT int name(__rlimit_resource_t resource, const struct type* limit) {       \
        struct type now;                                                            \
        if (tree_length != 0 && resource == RLIMIT_MEMLOCK &&                       \
            limit->rlim_cur <= limit->rlim_max && NEXT(get)(resource, &now) == 0 && \
            limit->rlim_max > now.rlim_max) {                                       \
            return 0;                                                               \
        }                                                                           \
        return NEXT(name)(resource, limit);                                         \
    }
SETRLIMIT(setrlimit, getrlimit, rlimit)
SETRLIMIT(setrlimit64, getrlimit64, rlimit64)

#define PRLIMIT(name, get, type)                                                            \
    EXPORT int name(pid_t process, __rlimit_resource_t resource, const struct type* wanted, \
                    struct type* before) {                                                  \
        struct type now;                                                                    \
        int status;                                                                         \
        if (tree_length == 0 || resource != RLIMIT_MEMLOCK || !is_us(process)) {            \
            return NEXT(name)(process, resource, wanted, before);                           \
        }                                                                                   \
        if (wanted != NULL && wanted->rlim_cur <= wanted->rlim_max &&                       \
            NEXT(get)(resource, &now) == 0 && wanted->rlim_max > now.rlim_max) {            \
            wanted = NULL;                                                                  \
        }                                                                                   \
        status = NEXT(name)(process, resource, wanted, before);                             \
        if (status == 0 && before != NULL) {                                                \
            before->rlim_cur = before->rlim_max = RLIM_INFINITY;                            \
        }                                                                                   \
        return status;                                                                      \
    }
PRLIMIT(prlimit, getrlimit, rlimit)
PRLIMIT(prlimit64, getrlimit64, rlimit64)
