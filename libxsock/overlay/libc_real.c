/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finding libc's functions by name. */
#include "libxsock/overlay/libc_real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

void* _Atomic libc_real[LIBC_COUNT];

/* The names lie in a row and are found by offset: a table of pointers would have to be relocated in
 * every process that starts. */
#define XSOCK_NAME_FIELD(name, result, parameters, words) char name##_[sizeof #name];
#define XSOCK_NAME_TEXT(name, result, parameters, words) #name,
#define XSOCK_NAME_OFFSET(name, result, parameters, words) offsetof(struct names, name##_),
struct names {
    XSOCK_LIBC_CALLS(XSOCK_NAME_FIELD, XSOCK_NO_ALIAS, XSOCK_NO_KEEP)
};
static const struct names names = {
    XSOCK_LIBC_CALLS(XSOCK_NAME_TEXT, XSOCK_NO_ALIAS, XSOCK_NO_KEEP)};
static const unsigned short offsets[LIBC_COUNT] = {
    XSOCK_LIBC_CALLS(XSOCK_NAME_OFFSET, XSOCK_NO_ALIAS, XSOCK_NO_KEEP)};

long libc_missing(void) {
    errno = ENOSYS;
    return -1;
}

void* libc_find(enum libc_index index) {
    const char* const name = (const char*)&names + offsets[index];
    void* real = dlsym(RTLD_NEXT, name);
    if (real == NULL) real = (void*)libc_missing;
    atomic_store_explicit(&libc_real[index], real, memory_order_relaxed);
    return real;
}

void libc_find_all(void) {
    const int saved = errno;
    int i;
    for (i = 0; i < LIBC_COUNT; i++) {
        if (atomic_load_explicit(&libc_real[i], memory_order_relaxed) == NULL) {
            libc_find((enum libc_index)i);
        }
    }
    errno = saved;
}
