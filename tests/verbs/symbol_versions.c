/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions of libibverbs.so.1 by name and version, as programs and vendors' libraries of
 * rdma-core's releases ask for them that are newer than the headers here.
 */
#define _GNU_SOURCE /* dlvsym() */
#include <dlfcn.h>

#include "tests/verbs/pair.h"

static const int nodes[] = {34, 57, 59, 64, 65};
enum { NODES = sizeof nodes / sizeof nodes[0] };

typedef long (*any_function)(void);

static void* versioned(const char* name, const char* version) {
    static void* library;
    if (library == NULL) library = dlopen("libibverbs.so.1", RTLD_NOW);
    MUST(library != NULL);
    return dlvsym(library, name, version);
}
static void* in_node(const char* name, int node) {
    char version[64];
    snprintf(version, sizeof version, "IBVERBS_PRIVATE_%d", node);
    return versioned(name, version);
}
static void* must_have(const char* name, const char* version) {
    void* const found = versioned(name, version);
    if (found == NULL) printf("no %s of %s\n", name, version);
    MUST(found != NULL);
    return found;
}

static struct ibv_context* open_device(void) {
    struct ibv_device** const list = ibv_get_device_list(NULL);
    struct ibv_context* context;
    MUST(list != NULL && list[0] != NULL);
    context = ibv_open_device(list[0]);
    MUST(context != NULL);
    ibv_free_device_list(list);
    return context;
}

CASE(each_node_has_the_names_of_its_release) {
    static const struct {
        const char* name;
        int since; /* the first node with it */
    } names[] = {{"ibv_cmd_create_qp", 34},     {"ibv_cmd_create_cq_ex2", 34},
                 {"verbs_set_ops", 34},         {"ibv_cmd_reg_mr_ex", 59},
                 {"ibv_dmabuf_heap_alloc", 64}, {"ibv_cmd_create_comp_cntr", 65}};
    for (int i = 0; i < NODES; i++) {
        char own[64];
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            const int expected = nodes[i] >= names[k].since;
            CHECK((in_node(names[k].name, nodes[i]) != NULL) == expected, "%s, %d", names[k].name,
                  nodes[i]);
        }
        snprintf(own, sizeof own, "verbs_register_driver_%d", nodes[i]);
        CHECK(in_node(own, nodes[i]) != NULL, "%s", own);
    }
    CHECK(in_node("ibv_cmd_query_device", 34) != NULL, "34");
    CHECK(in_node("ibv_cmd_query_device", 57) == NULL, "57");
}

CASE(private_functions_refuse_and_drivers_are_ignored) {
    for (int i = 0; i < NODES; i++) {
        char own[64];
        any_function function = (any_function)in_node("ibv_cmd_create_qp", nodes[i]);
        MUST(function != NULL);
        CHECK(function() == EOPNOTSUPP, "%d", nodes[i]);
        snprintf(own, sizeof own, "verbs_register_driver_%d", nodes[i]);
        function = (any_function)in_node(own, nodes[i]);
        MUST(function != NULL);
        CHECK(function() == 0, "%d", nodes[i]);
    }
}

CASE(the_type_of_a_gid_is_told_in_each_node) {
    struct ibv_context* const context = open_device();
    for (int i = 0; i < NODES; i++) {
        int (*query)(struct ibv_context*, uint8_t, unsigned, unsigned*) =
            (int (*)(struct ibv_context*, uint8_t, unsigned, unsigned*))in_node(
                "ibv_query_gid_type", nodes[i]);
        unsigned type = ~0u;
        MUST(query != NULL);
        CHECK(query(context, 1, 0, &type) == 0 && type == 0, "%d: %u", nodes[i], type);
        CHECK(query(context, 1, 100000, &type) != 0, "%d", nodes[i]);
    }
    ibv_close_device(context);
}

CASE(a_buffer_of_a_newer_release_can_be_registered) {
    void* (*alloc)(struct ibv_pd*, size_t, void**) =
        (void* (*)(struct ibv_pd*, size_t, void**))must_have("ibv_alloc_buf", "IBVERBS_1.17");
    void (*release)(void*) = (void (*)(void*))must_have("ibv_free_buf", "IBVERBS_1.17");
    struct ibv_mr* (*reg)(struct ibv_pd*, void*, void*, size_t, int) =
        (struct ibv_mr * (*)(struct ibv_pd*, void*, void*, size_t, int))
            must_have("ibv_reg_buf_mr", "IBVERBS_1.17");
    int (*export)(void*) = (int (*)(void*))must_have("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
    struct ibv_context* const context = open_device();
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    const size_t length = 10000;
    void* buffer = NULL;
    struct ibv_mr* mr;
    char* address;

    MUST(pd != NULL);
    address = alloc(pd, length, &buffer);
    MUST(address != NULL && buffer != NULL);
    CHECK((uintptr_t)address % (uintptr_t)sysconf(_SC_PAGESIZE) == 0, "%p", (void*)address);
    memset(address, 1, length);
    mr = reg(pd, buffer, address + 1, length - 1, ALL_ACCESS);
    MUST(mr != NULL);
    CHECK(mr->addr == address + 1 && mr->length == length - 1, "%zu", mr->length);
    CHECK(ibv_dereg_mr(mr) == 0, "dereg");
    errno = 0;
    CHECK(reg(pd, buffer, address + 1, length, ALL_ACCESS) == NULL && errno == EINVAL, "%d", errno);
    CHECK(reg(pd, buffer, address - 1, 1, ALL_ACCESS) == NULL, "before it");
    CHECK(reg(pd, buffer, address + 1, SIZE_MAX, ALL_ACCESS) == NULL, "wraps");
    errno = 0;
    CHECK(export(buffer) == -1 && errno == EOPNOTSUPP, "%d", errno);
    release(buffer);
    errno = 0;
    CHECK(alloc(pd, 0, &buffer) == NULL && errno == EINVAL, "%d", errno);
    CHECK(alloc(pd, SIZE_MAX / 2, &buffer) == NULL && errno == ENOMEM, "%d", errno);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
}

CASE(the_speed_of_a_port_is_that_of_its_attributes) {
    enum { EDR = 32, LANES_4 = 2 };
    int (*query)(struct ibv_context*, uint32_t, uint64_t*) = (int (*)(
        struct ibv_context*, uint32_t, uint64_t*))must_have("ibv_query_port_speed", "IBVERBS_1.16");
    struct ibv_context* const context = open_device();
    struct ibv_port_attr attr;
    uint64_t speed = 0;
    MUST(ibv_query_port(context, 1, &attr) == 0);
    CHECK(attr.active_speed == EDR && attr.active_width == LANES_4, "%u", attr.active_speed);
    CHECK(query(context, 1, &speed) == 0 && speed == 4 * 250, "%llu", (unsigned long long)speed);
    CHECK(query(context, 2, &speed) == EINVAL, "no such port");
    CHECK(query(context, 257, &speed) == EINVAL, "no such port");
    ibv_close_device(context);
}

CASE(what_a_newer_release_adds_is_refused) {
    static const struct {
        const char *name, *version;
    } objects[] = {{"ibv_alloc_dmah", "IBVERBS_1.15"},
                   {"ibv_reg_mr_ex", "IBVERBS_1.15"},
                   {"ibv_create_comp_cntr", "IBVERBS_1.18"}},
      errors[] = {
          {"ibv_dealloc_dmah", "IBVERBS_1.15"},      {"_ibv_query_comp_cntr_caps", "IBVERBS_1.18"},
          {"ibv_destroy_comp_cntr", "IBVERBS_1.18"}, {"ibv_qp_attach_comp_cntr", "IBVERBS_1.18"},
          {"ibv_set_comp_cntr", "IBVERBS_1.18"},     {"ibv_set_err_comp_cntr", "IBVERBS_1.18"},
          {"ibv_inc_comp_cntr", "IBVERBS_1.18"},     {"ibv_inc_err_comp_cntr", "IBVERBS_1.18"},
          {"ibv_read_comp_cntr", "IBVERBS_1.18"},    {"ibv_read_err_comp_cntr", "IBVERBS_1.18"}};
    int (*export)(void*) = (int (*)(void*))must_have("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        void* (*make)(void*, void*) =
            (void* (*)(void*, void*))must_have(objects[i].name, objects[i].version);
        errno = 0;
        CHECK(make(NULL, NULL) == NULL && errno == EOPNOTSUPP, "%s", objects[i].name);
    }
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        int (*call)(void*, void*, void*) =
            (int (*)(void*, void*, void*))must_have(errors[i].name, errors[i].version);
        CHECK(call(NULL, NULL, NULL) == EOPNOTSUPP, "%s", errors[i].name);
    }
    errno = 0;
    CHECK(export(NULL) == -1 && errno == EOPNOTSUPP, "%d", errno);
}

int main(int argc, char** argv) { return run_cases(argc, argv); }
