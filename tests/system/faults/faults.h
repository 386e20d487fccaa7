/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Runs a connection between two processes again and again; each time one call of the first, the
 * victim, fails (fault_points.h). What an API's two ends do is a struct ends; run_faults() does the
 * rest.
 */
#ifndef XSOCK_TESTS_FAULTS_H
#define XSOCK_TESTS_FAULTS_H

#include "tests/system/faults/fault_points.h"

/* A program is over, or an end was seen, within this time; only a failure takes longer. */
enum { LIMIT_MS = 8000, ROUNDS = 2 };

/* One end in one round. Round 0 has the fault, round 1 must be as if nothing had happened. */
struct side {
    int victim, server, round;
};

/* The API that is tested: one connection with traffic and an orderly end, as `side` says. Announces
 * its phases by enter(), failures by note(); gives back all that it was given. */
struct ends {
    const char* name;
    void (*run)(const struct side* side);
    /* Its traffic goes through shared memory where XSOCK_SHM is auto or require. */
    int shares_memory;
};

/* main(): see faults.c for the options. `all` ends with a row without a name. */
int run_faults(int argc, char** argv, const struct ends* all);

/* ---- for the ends ----------------------------------------------------------- */

/* The victim's phase. */
void enter(const struct side* side, enum fault_phase phase);
/* `call` failed with errno `error`. The first of a round is judged; in round 1 none may. */
void note(const struct side* side, const char* call, int error);
/* Ends this process as failed. */
void fail(const char* format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The server's port; the client waits for it. 0: the server will have none. */
void publish_port(const struct side* side, int port);
int await_port(const struct side* side);
/* Whether the victim is done with this round: nothing more is to be waited for. */
int victim_is_done(const struct side* side);
long long now_ms(void);

#endif /* XSOCK_TESTS_FAULTS_H */
