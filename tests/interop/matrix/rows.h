/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The rows of the siw matrix: what is tried, in order. */
#ifndef XSOCK_TESTS_INTEROP_MATRIX_ROWS_H
#define XSOCK_TESTS_INTEROP_MATRIX_ROWS_H

#include "fpdu_editor.h"
#include "host.h"

struct row_plan {
    const char* group;
    char name[120];
    int (*run)(struct row* row, struct row_plan* plan); /* PASSED or REFUSED */
    struct setup setup;
    bool brief;          /* also in the short matrix */
    bool kernel_reports; /* siw logs what it refuses */
    bool ends_guest;
    int limit_s;
    /* What the function makes of it. */
    char operation; /* s, w, r */
    uint32_t size, count;
    bool siw_closes;
    int fault; /* enum fault, or -1: an edit */
    enum edit edit;
    unsigned opcode;
    unsigned layer, type, code; /* of the Terminate that is expected */
    unsigned ird, ord;          /* that are expected */
};

/* All rows; `count` of them. Static storage. */
struct row_plan* row_plans(unsigned* count);

#endif
