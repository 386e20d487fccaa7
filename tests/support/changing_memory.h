/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory that another thread changes all the time, for tests of what is sent from such memory. From
 * C and C++.
 */
#ifndef XSOCK_TESTS_SUPPORT_CHANGING_MEMORY_H
#define XSOCK_TESTS_SUPPORT_CHANGING_MEMORY_H

#include <pthread.h>
#include <stddef.h>

struct changing_memory {
    volatile unsigned char* at;
    size_t size;
    int stop;
    pthread_t thread;
};

/* The races are the point: ThreadSanitizer does not see this side of them. */
__attribute__((no_sanitize_thread)) static void* change_memory(void* argument) {
    enum { CACHE_LINE = 64 };
    struct changing_memory* const memory = (struct changing_memory*)argument;
    while (__atomic_load_n(&memory->stop, __ATOMIC_RELAXED) == 0) {
        size_t i;
        for (i = 0; i < memory->size; i += CACHE_LINE) {
            memory->at[i] = (unsigned char)(memory->at[i] + 1);
        }
    }
    return NULL;
}

/* 0, or an errno. */
static inline int begin_changing(struct changing_memory* memory, void* at, size_t size) {
    memory->at = (volatile unsigned char*)at;
    memory->size = size;
    memory->stop = 0;
    return pthread_create(&memory->thread, NULL, change_memory, memory);
}
static inline void end_changing(struct changing_memory* memory) {
    __atomic_store_n(&memory->stop, 1, __ATOMIC_RELAXED);
    pthread_join(memory->thread, NULL);
}

#endif /* XSOCK_TESTS_SUPPORT_CHANGING_MEMORY_H */
