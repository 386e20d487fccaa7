/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What libibverbs.so.1 exports since IBVERBS_1.15, for programs linked against a newer rdma-core
 * than the headers that this is compiled with: no type of theirs is named here. Buffers are memory
 * of the process; DMA handles, completion counters and dma-bufs are refused, as by any device
 * without them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

/* Both are the sibling's. */
void* ibv_reg_mr(void* pd, void* address, size_t length, int access);

static void* no_object(void) {
    errno = EOPNOTSUPP;
    return NULL;
}
static int no_descriptor(void) {
    errno = EOPNOTSUPP;
    return -1;
}

/* ---- buffers ---- */

struct ibv_buf {
    char* address;
    size_t length;
};

EXPORT void* ibv_alloc_buf(void* pd, size_t length, struct ibv_buf** out) {
    struct ibv_buf* const buffer = malloc(sizeof *buffer);
    void* memory;

    (void)pd;
    if (buffer == NULL) return NULL;
    memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(buffer);
        return NULL;
    }
    buffer->address = memory;
    buffer->length = length;
    *out = buffer;
    return memory;
}
EXPORT void ibv_free_buf(struct ibv_buf* buffer) {
    if (buffer == NULL) return;
    munmap(buffer->address, buffer->length);
    free(buffer);
}
EXPORT void* ibv_reg_buf_mr(void* pd, struct ibv_buf* buffer, void* address, size_t length,
                            int access) {
    const uintptr_t at = (uintptr_t)address - (uintptr_t)buffer->address;

    if (at > buffer->length || length > buffer->length - at) {
        errno = EINVAL;
        return NULL;
    }
    return ibv_reg_mr(pd, address, length, access);
}
EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf* buffer) {
    (void)buffer;
    return no_descriptor();
}

/* ---- what the device does not have ---- */

EXPORT void* ibv_alloc_dmah(void* context, void* attr) {
    (void)context, (void)attr;
    return no_object();
}
EXPORT int ibv_dealloc_dmah(void* handle) {
    (void)handle;
    return EOPNOTSUPP;
}
EXPORT void* ibv_reg_mr_ex(void* pd, void* attr) {
    (void)pd, (void)attr;
    return no_object();
}
EXPORT int ibv_dm_export_dmabuf_fd(void* memory) {
    (void)memory;
    return no_descriptor();
}
EXPORT int _ibv_query_comp_cntr_caps(void* context, void* caps, size_t size) {
    (void)context, (void)caps, (void)size;
    return EOPNOTSUPP;
}
EXPORT void* ibv_create_comp_cntr(void* context, void* attr) {
    (void)context, (void)attr;
    return no_object();
}
EXPORT int ibv_destroy_comp_cntr(void* counter) {
    (void)counter;
    return EOPNOTSUPP;
}
EXPORT int ibv_qp_attach_comp_cntr(void* qp, void* counter, void* attr) {
    (void)qp, (void)counter, (void)attr;
    return EOPNOTSUPP;
}
#define COUNTER_CALL(name, type)                 \
    EXPORT int name(void* counter, type value) { \
        (void)counter, (void)value;              \
        return EOPNOTSUPP;                       \
    }
COUNTER_CALL(ibv_set_comp_cntr, uint64_t)
COUNTER_CALL(ibv_set_err_comp_cntr, uint64_t)
COUNTER_CALL(ibv_inc_comp_cntr, uint64_t)
COUNTER_CALL(ibv_inc_err_comp_cntr, uint64_t)
COUNTER_CALL(ibv_read_comp_cntr, uint64_t*)
COUNTER_CALL(ibv_read_err_comp_cntr, uint64_t*)
