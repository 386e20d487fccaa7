/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The host's side of one row of the siw matrix: a control connection to matrix_siw in the guest,
 * and connections of xsock toward it. A row runs in a process of its own; whatever fails ends it
 * with a sentence (row_fail), so that rows read as scripts.
 */
#ifndef XSOCK_TESTS_INTEROP_MATRIX_HOST_H
#define XSOCK_TESTS_INTEROP_MATRIX_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <xsock/xsock.h>

#include "common.h"

enum { EPS_MAX = 64, PASSED = 0, FAILED = 1, REFUSED = 3 };

/* Where both sides are, and what the director was told. */
struct setting {
    const char* guest; /* the guest's address; matrix_siw listens on `control_port` */
    int control_port;
    const char* own;       /* the host's address, as the guest sees it */
    const char* power_off; /* a command that turns the guest off at once */
    bool brief;            /* the short matrix */
};

struct row;

/* How a connection is made. Zeros are what both sides do by default, but for CRC. */
struct setup {
    bool siw_initiates;
    unsigned revision;                    /* ours: 0 for 2 */
    bool no_crc, siw_crc, siw_crc_strict; /* what each side asks for */
    unsigned ird, ord, siw_ird, siw_ord;  /* 0: 16 */
    unsigned rtr;                         /* ours, XSOCK_RTR_* */
    bool siw_p2p, siw_revision_1, siw_gso, siw_no_zcopy;
    unsigned data, siw_data; /* private data, bytes */
    unsigned fpdu_limit;
    unsigned depth; /* of all queues, 0: 64 */
    int rnr_timeout_ms;
    bool markers;
    unsigned connections; /* 0: 1 */
    unsigned first_recv;  /* bytes of a receive that siw's program posts ahead; 0: none */
    bool defer;           /* our responder waits for its program's answer */
    int startup_timeout_ms;
    void (*on_connected)(struct row* row, unsigned ep); /* at once, on our side */
    /* Instead of each other, they reach an editor at this port of the host. */
    int via_port;
    const char* via_host;
    int listen_port; /* filled by row_listen(), ours or siw's */
};

struct row {
    const struct setting* setting;
    struct lines control;
    struct xsock_cq* cq;
    struct xsock_listener* listener;
    struct xsock_ep* eps[EPS_MAX];
    unsigned count;
    unsigned sends[EPS_MAX], receives[EPS_MAX]; /* completed well */
    bool closed[EPS_MAX];                       /* XSOCK_OP_CLOSED came */
    uint32_t invalidated;
    uint32_t last_length;
    uint16_t bad_status; /* the first completion that was neither well nor flushed */
    uint16_t bad_op;
    unsigned unsuccessful; /* flushed, lost with the connection, or bad in another way */
};

void row_fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Says what the table shall show beside the verdict. */
void row_note(const char* format, ...) __attribute__((format(printf, 1, 2)));

void row_begin(struct row* row, const struct setting* setting);

/* A request to the guest; row_answer() takes its answer, in order. row_ask() is both, and ends the
 * row when the guest says no. */
void row_tell(struct row* row, const char* format, ...) __attribute__((format(printf, 2, 3)));
bool row_answer(struct row* row, char answer[LINE_MAX_BYTES]);
void row_ask(struct row* row, char answer[LINE_MAX_BYTES], const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of our endpoints, as `setup` says. */
struct xsock_ep_attr row_attributes(struct row* row, const struct setup* setup);
/* Establishes what `setup` says; false when either side refused, with both reasons in row_note. */
bool row_establish(struct row* row, struct setup* setup);
/* Listens on the side that shall respond, ahead of row_establish(): fills listen_port. */
void row_listen(struct row* row, struct setup* setup);
void row_check_negotiated(struct row* row, const struct setup* setup, unsigned ep);

/* Moves bytes and sorts completions, up to `ms`. */
void row_poll(struct row* row, int ms);
/* Waits until so many have completed in all, or the endpoint ended: then false. */
bool row_await(struct row* row, unsigned ep, unsigned sends, unsigned receives);

/* Operations of either side, every byte checked. `seed` tells messages apart. */
void row_send(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);
void row_send_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);
void row_write(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);
void row_write_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);
void row_read(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);
void row_read_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed);

/* Memory in the guest: what a peer needs to reach it, and its index for "memcheck". */
struct xsock_remote row_guest_memory(struct row* row, size_t length, const char* rights,
                                     uint32_t seed, int* index);

/* Orderly ends: both sides must find nothing amiss. `may_reset`: siw may close with something of
 * ours unread; its reset is noted then. */
void row_close(struct row* row, unsigned ep);
void row_close_siw(struct row* row, unsigned ep, bool may_reset);

/* The kernel's "siw: got TERMINATE. layer .., type .., code .." since the row began. */
bool row_guest_terminate(struct row* row, unsigned* layer, unsigned* type, unsigned* code);

#endif
