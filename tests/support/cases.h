/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The cases of a test program in C: CASE(name) { ... } is a function and its entry in the list.
 * xsock_cases() of tests/CMakeLists.txt makes a test of each.
 */
#ifndef XSOCK_TESTS_SUPPORT_CASES_H
#define XSOCK_TESTS_SUPPORT_CASES_H

#include <stdio.h>
#include <string.h>

struct test_case {
    const char* name;
    void (*run)(void);
    struct test_case* next;
};

/* One list for all files of a program. */
__attribute__((weak)) struct case_list {
    struct test_case *first, **end;
} all_cases = {NULL, &all_cases.first};

#define CASE(function)                                                   \
    static void function(void);                                          \
    static __attribute__((constructor)) void list_##function(void) {     \
        static struct test_case this_case = {#function, function, NULL}; \
        *all_cases.end = &this_case;                                     \
        all_cases.end = &this_case.next;                                 \
    }                                                                    \
    static void function(void)

/* Calls `each` with every case, in the order of the source, or with those that the command line
 * names. Returns 0, or 1 where one of these is no case. */
static inline int for_cases(int argc, char** argv, void (*each)(const struct test_case* one)) {
    const struct test_case* one;
    int ran = 0;
    for (one = all_cases.first; one != NULL; one = one->next) {
        int i, wanted = argc < 2;
        for (i = 1; i < argc; i++) wanted |= strcmp(argv[i], one->name) == 0;
        if (!wanted) continue;
        each(one);
        ran++;
    }
    if (ran >= argc - 1 && ran > 0) return 0;
    fprintf(stderr, "%s: no such case\n", argv[0]);
    return 1;
}

#endif /* XSOCK_TESTS_SUPPORT_CASES_H */
