/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A stretch of network between two iWARP ends that changes one FPDU, so that each end meets errors
 * that the other one never makes. Start-up frames pass as they are; markers are not understood.
 */
#ifndef XSOCK_TESTS_INTEROP_MATRIX_FPDU_EDITOR_H
#define XSOCK_TESTS_INTEROP_MATRIX_FPDU_EDITOR_H

#include <netinet/in.h>
#include <stdint.h>

enum edit {
    EDIT_CRC,           /* the trailer does not fit what it covers */
    EDIT_SHORT,         /* a ULPDU too short for its DDP header */
    EDIT_DDP_VERSION,   /* DV 2 */
    EDIT_RDMAP_VERSION, /* RV 2 */
    EDIT_OPCODE,        /* 15, of no message */
    EDIT_QN,            /* 9 */
    EDIT_MSN,           /* 7 too far */
    EDIT_MO,            /* 4 too far */
    EDIT_STAG,          /* one that was not given out */
    EDIT_BOUNDS,        /* an offset outside the region */
    EDIT_WRAP,          /* an offset whose end is past 2^64 */
    EDIT_RESPONSE,      /* a Write turns into a Read Response without a request */
    EDIT_READ_SHORT,    /* a Read Request of another length */
    EDIT_ATOMIC,        /* a Read Request turns into an Atomic Request, too short for one */
    EDIT_IMMEDIATE      /* a Send turns into Immediate Data, too long for them */
};

/* Serves one connection of `listener` in a process of its own, toward `target`; the FPDUs that the
 * accepted end sends are edited when `edit_accepted`, else the other's. Of these the first whose
 * RDMAP opcode is `opcode`. Returns its pid, or -1. */
int editor_start(int listener, const struct sockaddr_in* target, int edit_accepted, enum edit edit,
                 unsigned opcode);

#endif
