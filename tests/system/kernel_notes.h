/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Cases that run first on plain sockets, which is the kernel's answer, and then in other ways. They
 * note results, errno and what was written back, and the notes must be the same each time.
 */
#ifndef XSOCK_TESTS_SYSTEM_KERNEL_NOTES_H
#define XSOCK_TESTS_SYSTEM_KERNEL_NOTES_H

#include "tests/system/overlay_pair.h"

enum { NOTES = 400 };
struct note {
    int line;
    long value;
    int error;
};
static struct note kernels[NOTES];
static int noted, kernel_noted;
static const char* noted_way; /* NULL: the kernel's notes are being taken */

/* The case begins again. */
static inline void notes_begin(const char* way) {
    noted_way = way;
    noted = 0;
    if (way == NULL) kernel_noted = 0;
}

static inline void notes_end(void) { CHECK(noted == kernel_noted); }

static inline void note_in(const char* file, int line, long value, int error) {
    const struct note it = {line, value, error};
    CHECK(noted < NOTES);
    if (noted_way == NULL) {
        kernels[noted++] = it;
        kernel_noted = noted;
        return;
    }
    if (noted >= kernel_noted || kernels[noted].line != line || kernels[noted].value != value ||
        kernels[noted].error != error) {
        const struct note* const k = &kernels[noted < kernel_noted ? noted : kernel_noted - 1];
        fprintf(stderr, "%s:%d: %s: %ld (%s), the kernel at line %d: %ld (%s)\n", file, line,
                noted_way, value, strerror(error), k->line, k->value, strerror(k->error));
        exit(1);
    }
    noted++;
}
#define note_at(line, value, error) note_in(__FILE__, line, value, error)

/* A value. */
#define VALUE(value) note_at(__LINE__, (long)(value), 0)

#endif /* XSOCK_TESTS_SYSTEM_KERNEL_NOTES_H */
