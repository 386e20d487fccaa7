/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS_MAX = 512, MIB = 1 << 20, END_WAIT_MS = 120000, REJECT_BYTES = 16 };

/* What one side does that the other must refuse. */
enum fault {
    FAULT_WRITE_STAG,   /* a Write to an STag that was never given out */
    FAULT_WRITE_BOUNDS, /* a Write past the end of a region */
    FAULT_WRITE_RIGHT,  /* a Write to a region that may be read only */
    FAULT_WRITE_OTHER,  /* a Write to a region of another protection domain */
    FAULT_READ_STAG,
    FAULT_READ_BOUNDS,
    FAULT_READ_RIGHT,
    FAULT_READ_OTHER,
    FAULT_READ_WRAP,    /* a Read whose end is past 2^64 */
    FAULT_READ_MANY,    /* more Reads at once than the other side's IRD */
    FAULT_SEND_LONG,    /* longer than the receive */
    FAULT_SEND_NO_RECV, /* no receive at all */
    FAULT_INVALIDATE_STAG,
    FAULT_INVALIDATE_OTHER /* a region that this connection may not invalidate */
};

/* ---- steps
 * --------------------------------------------------------------------------------------- */

static void end_well(struct row* row, const struct row_plan* plan, unsigned ep) {
    if (plan->siw_closes)
        row_close_siw(row, ep, false);
    else
        row_close(row, ep);
}

/* A little of everything. */
static void exchange(struct row* row, unsigned ep, uint32_t seed) {
    row_send(row, ep, 64, 4, seed);
    row_send_siw(row, ep, 64, 4, seed + 10);
    row_write(row, ep, 5000, 2, seed + 20);
    row_write_siw(row, ep, 5000, 2, seed + 30);
    row_read(row, ep, 5000, 2, seed + 40);
    row_read_siw(row, ep, 5000, 2, seed + 50);
}

static void establish_or_fail(struct row* row, struct setup* setup) {
    if (!row_establish(row, setup)) row_fail("not established");
}

static struct xsock_ep_info info_of(const struct row* row, unsigned ep) {
    XSOCK_INIT(xsock_ep_info, info);

    if (xsock_ep_query(row->eps[ep], &info) != 0) row_fail("xsock_ep_query: %s", strerror(errno));
    return info;
}

static void await_end(struct row* row, unsigned ep) {
    const int64_t end = now_ms() + END_WAIT_MS;

    while (!row->closed[ep]) {
        if (now_ms() > end) row_fail("the connection does not end");
        row_poll(row, 100);
    }
}

/* ---- rows that must work
 * ------------------------------------------------------------------------- */

/* Both agree to FPDUs beyond the segment size, which siw does where there are no CRCs. */
static void check_gso(struct row* row, const struct setup* s) {
    const bool agreed = s->siw_gso && s->siw_initiates && s->no_crc;

    if (agreed && info_of(row, 0).mulpdu < 60000) row_fail("GSO was not agreed on");
}

static int run_exchange(struct row* row, struct row_plan* plan) {
    establish_or_fail(row, &plan->setup);
    row_check_negotiated(row, &plan->setup, 0);
    check_gso(row, &plan->setup);
    exchange(row, 0, 1000);
    end_well(row, plan, 0);
    return PASSED;
}

/* Depths: what each side will serve is what the other may ask. */
static int run_depths(struct row* row, struct row_plan* plan) {
    const struct setup* s = &plan->setup;

    establish_or_fail(row, &plan->setup);
    const struct xsock_ep_info info = info_of(row, 0);
    const unsigned ours = s->ird != 0 ? s->ird : 16, most = s->ord != 0 ? s->ord : 16;

    /* siw as responder raises its IRD to what is asked, up to 128. */
    if (info.ord > most || info.ord > 128 || info.ird > ours)
        row_fail("IRD %u of %u, ORD %u of %u", info.ird, ours, info.ord, most);
    if (info.ird != plan->ird || info.ord != plan->ord)
        row_fail("IRD %u, not %u, ORD %u, not %u", info.ird, plan->ird, info.ord, plan->ord);
    row_note("IRD %u, ORD %u", info.ird, info.ord);
    row_read(row, 0, 3000, 40, 1000);
    row_read_siw(row, 0, 3000, 40, 2000);
    row_send(row, 0, 64, 2, 3000);
    end_well(row, plan, 0);
    return PASSED;
}

static int run_messages(struct row* row, struct row_plan* plan) {
    establish_or_fail(row, &plan->setup);
    const struct setup* s = &plan->setup;
    const struct xsock_ep_info info = info_of(row, 0);

    if (info.crc != (!s->no_crc || (s->siw_initiates && s->siw_crc)))
        row_fail("CRC is %s", info.crc ? "on" : "off");
    check_gso(row, s);
    if (s->fpdu_limit != 0 && info.mulpdu > s->fpdu_limit)
        row_fail("ULPDUs of up to %u bytes", info.mulpdu);
    switch (plan->operation) {
        case 's':
            row_send(row, 0, plan->size, plan->count, 1);
            row_send_siw(row, 0, plan->size, plan->count, 101);
            break;
        case 'w':
            row_write(row, 0, plan->size, plan->count, 1);
            row_write_siw(row, 0, plan->size, plan->count, 101);
            break;
        case 'r':
            row_read(row, 0, plan->size, plan->count, 1);
            row_read_siw(row, 0, plan->size, plan->count, 101);
            break;
        default:
            row_fail("no operation %c", plan->operation);
    }
    end_well(row, plan, 0);
    return PASSED;
}

/* A Send that invalidates siw's region, which is gone when the guest's receive completes. */
static void invalidate_at_siw(struct row* row, const struct xsock_remote* remote) {
    static uint8_t bytes[64];
    char answer[LINE_MAX_BYTES];

    pattern_fill(bytes, sizeof(bytes), 5);
    const struct xsock_sge sge = {.address = bytes, .length = sizeof(bytes)};
    XSOCK_INIT(xsock_wr, wr);

    wr.op = XSOCK_OP_SEND;
    wr.flags = XSOCK_INVALIDATE;
    wr.sge = &sge;
    wr.sge_count = 1;
    wr.remote = *remote;
    row_ask(row, NULL, "recv 64 1");
    if (xsock_post(row->eps[0], &wr) != 0) row_fail("xsock_post: %s", strerror(errno));
    row_ask(row, answer, "got 5");
    /* The user library of siw does not say which; 0 then. */
    if (strtoul(answer + 3, NULL, 10) != 0 && strtoul(answer + 3, NULL, 10) != remote->stag)
        row_fail("the guest reports STag %s invalidated, not %u", answer + 3, remote->stag);
}

static int run_invalidate(struct row* row, struct row_plan* plan) {
    static uint8_t bytes[4096];
    int index;
    char answer[LINE_MAX_BYTES];
    struct xsock_remote remote;
    struct xsock_key key;

    establish_or_fail(row, &plan->setup);
    /* Ours. (A Write behind it is refused: run_write_invalidated.) */
    remote = row_guest_memory(row, sizeof(bytes), "rw", 0, &index);
    invalidate_at_siw(row, &remote);
    /* Its: our region is gone when our receive completes. */
    struct xsock_mr* mr = xsock_mr_register(NULL, bytes, sizeof(bytes),
                                            XSOCK_REMOTE_WRITE | XSOCK_REMOTE_READ, row->eps[0]);

    if (mr == NULL || xsock_mr_key(mr, 0, sizeof(bytes), &key) != 0)
        row_fail("xsock_mr_register: %s", strerror(errno));
    xsock_key_read(&key, &remote);
    static uint8_t received[64];
    const unsigned before = row->receives[0];

    if (xsock_recv(row->eps[0], 9, received, sizeof(received)) != 0)
        row_fail("xsock_recv: %s", strerror(errno));
    row_ask(row, NULL, "send 64 1 6 %u", remote.stag);
    if (!row_await(row, 0, 0, before + 1) || row->invalidated != remote.stag)
        row_fail("STag %u was not invalidated, but %u", remote.stag, row->invalidated);
    if (pattern_check(received, sizeof(received), 6) != PATTERN_OK) row_fail("the message differs");
    /* And a Write to it is refused. */
    row_tell(row, "write 64 1 7 %" PRIu64 " %u", remote.to, remote.stag);
    await_end(row, 0);
    row_answer(row, answer);
    row_ask(row, NULL, "waitend");
    row_note("a Write to the invalidated region: %s", info_of(row, 0).error_text);
    if (strstr(info_of(row, 0).error_text, "does not exist or was revoked") == NULL)
        row_fail("the Write was not refused");
    return PASSED;
}

static int run_many_connections(struct row* row, struct row_plan* plan) {
    establish_or_fail(row, &plan->setup);
    for (unsigned ep = 0; ep < row->count; ep++) {
        row_send(row, ep, 64, 2, 100 * ep + 1);
        row_send_siw(row, ep, 3000, 2, 100 * ep + 11);
    }
    for (unsigned ep = 0; ep < row->count; ep++) {
        row_write(row, ep, 5000, 1, 100 * ep + 21);
        row_read_siw(row, ep, 5000, 1, 100 * ep + 31);
    }
    for (unsigned ep = 0; ep < row->count; ep++) {
        if (ep % 2 == 0)
            row_close(row, ep);
        else
            row_close_siw(row, ep, false);
    }
    return PASSED;
}

/* Closed at once: nothing is sent but what start-up asks for. That includes the initiator's probe,
 * 5 ms behind the Reply: siw, which closes its socket with the probe unread, resets. */
static int run_early_close(struct row* row, struct row_plan* plan) {
    establish_or_fail(row, &plan->setup);
    if (plan->siw_closes)
        row_close_siw(row, 0, !plan->setup.siw_initiates);
    else
        row_close(row, 0);
    return PASSED;
}

static void speak_at_once(struct row* row, unsigned ep) {
    static uint8_t bytes[EPS_MAX][64];

    pattern_fill(bytes[ep], sizeof(bytes[ep]), 1 + ep);
    if (xsock_send(row->eps[ep], ep, bytes[ep], sizeof(bytes[ep]), 0) != 0)
        row_fail("xsock_send: %s", strerror(errno));
}

/* The first FPDU of many connections goes the moment each is there: siw can miss it. */
static int run_speak_at_once(struct row* row, struct row_plan* plan) {
    plan->setup.on_connected = speak_at_once;
    establish_or_fail(row, &plan->setup);
    for (unsigned ep = 0; ep < row->count; ep++) {
        row_ask(row, NULL, "use %u", ep);
        row_ask(row, NULL, "got %u", 1 + ep);
    }
    for (unsigned ep = 0; ep < row->count; ep++) row_close(row, ep);
    return PASSED;
}

/* The initiator says nothing; the responder speaks first. */
static int run_responder_first(struct row* row, struct row_plan* plan) {
    establish_or_fail(row, &plan->setup);
    if (plan->setup.siw_initiates)
        row_send(row, 0, 64, 1, 1);
    else
        row_send_siw(row, 0, 64, 1, 1);
    end_well(row, plan, 0);
    return PASSED;
}

/* ---- rows that must be refused
 * ------------------------------------------------------------------- */

static int run_refused(struct row* row, struct row_plan* plan) {
    if (row_establish(row, &plan->setup)) row_fail("established");
    return REFUSED;
}

/* A connection whose start-up its caller watches, unlike xsock_connect()'s. */
static struct xsock_ep* begin_start_up(struct row* row, const struct setup* setup) {
    struct sockaddr_in guest = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)setup->listen_port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || inet_pton(AF_INET, row->setting->guest, &guest.sin_addr) != 1 ||
        connect(fd, (struct sockaddr*)&guest, sizeof(guest)) != 0)
        row_fail("connect: %s", strerror(errno));
    const struct xsock_ep_attr attr = row_attributes(row, setup);
    struct xsock_ep* ep = xsock_ep_create(fd, &attr);

    if (ep == NULL) row_fail("xsock_ep_create: %s", strerror(errno));
    row->eps[0] = ep;
    return ep;
}

static struct xsock_ep* accept_request(struct row* row) {
    struct xsock_ep* ep = xsock_accept(row->listener, END_WAIT_MS);

    if (ep == NULL) row_fail("no Request came");
    row->eps[0] = ep;
    return ep;
}

/* The program of the responder says no, and why, in private data. */
static int run_rejected(struct row* row, struct row_plan* plan) {
    struct setup* setup = &plan->setup;
    uint8_t why[REJECT_BYTES];
    char answer[LINE_MAX_BYTES];

    setup->defer = setup->siw_initiates;
    row_listen(row, setup);
    if (setup->siw_initiates) {
        row_tell(row, "connect %s %d 1", row->setting->own, setup->listen_port);
        pattern_fill(why, sizeof(why), 77);
        if (xsock_ep_reject(accept_request(row), why, sizeof(why)) != 0)
            row_fail("xsock_ep_reject: %s", strerror(errno));
        if (row_answer(row, answer)) row_fail("established");
        row_note("guest: %s", answer);
        if (strstr(answer, "RDMA_CM_EVENT_REJECTED") == NULL ||
            strstr(answer, "private_data=16 right") == NULL)
            row_fail("not rejected with %d bytes of private data", REJECT_BYTES);
        return REFUSED;
    }
    row_tell(row, "reject %d", REJECT_BYTES);
    struct xsock_ep* ep = begin_start_up(row, setup);

    if (xsock_ep_wait(ep, END_WAIT_MS) == 0) row_fail("established");
    const int error = errno;
    const struct xsock_ep_info info = info_of(row, 0);

    row_note("xsock: %s", info.error_text);
    if (error != ECONNREFUSED) row_fail("%s", strerror(error));
    if (info.private_data_length != REJECT_BYTES ||
        pattern_check(info.private_data, REJECT_BYTES, 78) != PATTERN_OK)
        row_fail("%u bytes of private data came, or changed", info.private_data_length);
    if (!row_answer(row, answer)) row_fail("guest: %s", answer);
    return REFUSED;
}

/* The program of the responder does not answer: the initiator times out. */
static int run_unanswered(struct row* row, struct row_plan* plan) {
    struct setup* setup = &plan->setup;
    char answer[LINE_MAX_BYTES];

    setup->defer = setup->siw_initiates;
    setup->startup_timeout_ms = setup->siw_initiates ? 60000 : 3000;
    row_listen(row, setup);
    if (setup->siw_initiates) {
        row_tell(row, "connect %s %d 1", row->setting->own, setup->listen_port);
        struct xsock_ep* ep = accept_request(row);

        if (row_answer(row, answer)) row_fail("established");
        row_note("guest: %s", answer);
        /* Too late, known at once or when siw's FIN has come. */
        if (xsock_ep_accept(ep, NULL, 0) == 0 && xsock_ep_wait(ep, END_WAIT_MS) == 0)
            await_end(row, 0);
        row_note("xsock: %s", info_of(row, 0).error_text);
        return REFUSED;
    }
    if (xsock_ep_wait(begin_start_up(row, setup), END_WAIT_MS) == 0) row_fail("established");
    const int error = errno;

    row_note("xsock: %s", info_of(row, 0).error_text);
    if (error != ETIMEDOUT) row_fail("%s", strerror(error));
    return REFUSED;
}

/* ---- abrupt ends
 * --------------------------------------------------------------------------------- */

static void write_for_ever(struct row* row, const struct xsock_remote* remote, int ready_fd) {
    uint8_t* bytes = malloc(MIB);

    if (bytes == NULL) row_fail("no memory");
    pattern_fill(bytes, MIB, 3);
    for (unsigned round = 0;; round++) {
        while (xsock_write(row->eps[0], 0, bytes, MIB, remote, 0, 0) == 0) continue;
        row_poll(row, 100);
        if (round == 3 && ready_fd >= 0 && write(ready_fd, "x", 1) != 1) _exit(FAILED);
        if (row->closed[0]) return;
    }
}

static int run_kill_own(struct row* row, struct row_plan* plan) {
    int ready[2], index;
    char byte, answer[LINE_MAX_BYTES];

    if (pipe(ready) != 0) row_fail("pipe: %s", strerror(errno));
    /* Before this process has used xsock: the child is a program of its own. */
    const pid_t victim = fork();

    if (victim == 0) {
        establish_or_fail(row, &plan->setup);
        const struct xsock_remote remote = row_guest_memory(row, MIB, "w", 0, &index);

        write_for_ever(row, &remote, ready[1]);
        _exit(FAILED);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) {
        int status;

        waitpid(victim, &status, 0);
        _exit(FAILED); /* it has said why */
    }
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    row_ask(row, answer, "waitend");
    row_note("the guest: %s", answer + 3);
    return PASSED;
}

static int run_kill_siw(struct row* row, struct row_plan* plan) {
    struct row second;
    char answer[LINE_MAX_BYTES];
    int index;
    static uint8_t bytes[MIB];
    struct xsock_key key;
    struct xsock_remote own;

    establish_or_fail(row, &plan->setup);
    row_ask(row, answer, "pid");
    const int pid = atoi(answer + 3);
    const struct xsock_remote remote = row_guest_memory(row, MIB, "w", 0, &index);
    struct xsock_mr* mr =
        xsock_mr_register(NULL, bytes, sizeof(bytes), XSOCK_REMOTE_WRITE, row->eps[0]);

    if (mr == NULL || xsock_mr_key(mr, 0, sizeof(bytes), &key) != 0)
        row_fail("xsock_mr_register: %s", strerror(errno));
    xsock_key_read(&key, &own);
    row_ask(row, NULL, "stream %u %" PRIu64 " %u", MIB, own.to, own.stag);
    for (int i = 0; i < 8; i++) {
        if (xsock_write(row->eps[0], 1, bytes, MIB, &remote, 0, 0) != 0)
            row_fail("xsock_write: %s", strerror(errno));
    }
    const int64_t end = now_ms() + 1000;

    while (now_ms() < end) row_poll(row, 50);
    row_begin(&second, row->setting);
    row_ask(&second, NULL, "kill %d", pid);
    await_end(row, 0);
    /* A FIN alone ends only what comes from there; what we send is answered by a reset. */
    const int64_t over = now_ms() + END_WAIT_MS;

    while (row->sends[0] + row->unsuccessful < 8 && now_ms() < over) row_poll(row, 100);
    if (row->sends[0] + row->unsuccessful != 8)
        row_fail("of 8 Writes %u completed well and %u without success", row->sends[0],
                 row->unsuccessful);
    const struct xsock_ep_info info = info_of(row, 0);

    /* siw ends the connection of a killed program by a FIN, or, with bytes unread, by a reset. */
    row_note("we see: %s", info.error_text[0] != 0 ? info.error_text : "an orderly end (FIN)");
    return PASSED;
}

/* One of the connections that the guest leaves behind when it is turned off. */
struct left {
    const char* what;
    char kind; /* w: we write, r: we read, s: siw writes, i: neither end sends */
    struct row row;
    struct setup setup;
    struct xsock_remote remote;
    uint8_t* bytes;
    unsigned posted;
    int64_t ended_ms;
};

static void left_begin(struct left* left, const struct setting* setting) {
    enum { RECEIVES = 4 };
    int index;

    left->bytes = malloc(MIB);
    if (left->bytes == NULL) row_fail("no memory");
    row_begin(&left->row, setting);
    establish_or_fail(&left->row, &left->setup);
    if (left->kind == 'w' || left->kind == 'r')
        left->remote = row_guest_memory(&left->row, MIB, "rw", 0, &index);
    if (left->kind == 's') {
        struct xsock_mr* mr =
            xsock_mr_register(NULL, left->bytes, MIB, XSOCK_REMOTE_WRITE, left->row.eps[0]);
        struct xsock_key key;

        if (mr == NULL || xsock_mr_key(mr, 0, MIB, &key) != 0)
            row_fail("xsock_mr_register: %s", strerror(errno));
        xsock_key_read(&key, &left->remote);
        row_ask(&left->row, NULL, "stream %u %" PRIu64 " %u", MIB, left->remote.to,
                left->remote.stag);
    }
    for (; left->posted < RECEIVES; left->posted++) {
        if (xsock_recv(left->row.eps[0], 0, left->bytes, 64) != 0)
            row_fail("xsock_recv: %s", strerror(errno));
    }
}

/* Keeps the queue full, and sees what has come. */
static void left_poll(struct left* left, int64_t start_ms) {
    struct xsock_ep* ep = left->row.eps[0];

    if (left->row.closed[0]) return;
    if (left->kind == 'w')
        while (xsock_write(ep, 0, left->bytes, MIB, &left->remote, 0, 0) == 0) left->posted++;
    if (left->kind == 'r')
        while (xsock_read(ep, 0, left->bytes, 65536, &left->remote, 0, 0) == 0) left->posted++;
    row_poll(&left->row, 20);
    if (left->row.closed[0]) left->ended_ms = now_ms() - start_ms;
}

static int run_power_off(struct row* row, struct row_plan* plan) {
    static struct left lefts[] = {{.what = "xsock writes", .kind = 'w'},
                                  {.what = "xsock reads", .kind = 'r'},
                                  {.what = "siw writes", .kind = 's'},
                                  {.what = "both are silent", .kind = 'i'}};
    const struct setting* setting = row->setting;
    /* Where nothing of ours is due, TCP asks after a minute; the short matrix does not wait for it.
     */
    const unsigned count = setting->brief ? 2 : 4;
    bool over = false;

    if (setting->power_off == NULL) row_fail("no --power-off command was given");
    for (unsigned i = 0; i < count; i++) {
        lefts[i].setup = plan->setup;
        lefts[i].setup.siw_initiates = lefts[i].kind == 's';
        left_begin(&lefts[i], setting);
    }
    const int64_t before = now_ms();

    while (now_ms() < before + 1000) {
        for (unsigned i = 0; i < count; i++) left_poll(&lefts[i], before);
    }
    for (unsigned i = 0; i < count; i++) {
        if (lefts[i].row.closed[0]) row_fail("%s: ended too early", lefts[i].what);
    }
    if (system(setting->power_off) != 0) /* NOLINT: as the caller says */
        row_fail("the guest could not be turned off");
    const int64_t start = now_ms();

    while (!over && now_ms() < start + 150000) {
        over = true;
        for (unsigned i = 0; i < count; i++) {
            left_poll(&lefts[i], start);
            over = over && lefts[i].row.closed[0];
        }
    }
    for (unsigned i = 0; i < count; i++) {
        struct left* left = &lefts[i];
        const struct xsock_ep_info info = info_of(&left->row, 0);

        if (!left->row.closed[0]) row_fail("%s: does not end", left->what);
        row_poll(&left->row, 100);
        row_note("%s: after %d s: %s", left->what, (int)(left->ended_ms / 1000), info.error_text);
        if (info.state != XSOCK_EP_ERROR) row_fail("%s: has not ended in error", left->what);
        if (left->row.sends[0] + left->row.receives[0] + left->row.unsuccessful != left->posted)
            row_fail("%s: of %u requests %u completed", left->what, left->posted,
                     left->row.sends[0] + left->row.receives[0] + left->row.unsuccessful);
    }
    return PASSED;
}

/* ---- Terminate
 * ------------------------------------------------------------------------------------ */

/* What siw reported: our text has it in words. */
static void expect_from_siw(struct row* row, const struct row_plan* plan) {
    char wanted[64], answer[LINE_MAX_BYTES];

    await_end(row, 0);
    const struct xsock_ep_info info = info_of(row, 0);

    snprintf(wanted, sizeof(wanted), "layer %u, type %u, code %02x", plan->layer, plan->type,
             plan->code);
    row_note("xsock: %s", info.error_text);
    if (strstr(info.error_text, wanted) == NULL) row_fail("not %s", wanted);
    row_ask(row, answer, "waitend");
    row_ask(row, answer, "status");
    row_note("guest: %.200s", answer + 3);
}

/* What we reported: the kernel has logged it, with layer and type in each other's place (it reads
 * the byte the other way round). */
static void expect_from_xsock(struct row* row, const struct row_plan* plan) {
    char answer[LINE_MAX_BYTES];
    unsigned layer = 99, type = 99, code = 99;

    await_end(row, 0);
    const struct xsock_ep_info info = info_of(row, 0);

    row_note("xsock: %s", info.error_text);
    row_ask(row, answer, "waitend");
    if (!row_guest_terminate(row, &layer, &type, &code)) row_fail("the guest got no Terminate");
    row_note("guest: layer %u, type %u, code %u (swapped)", layer, type, code);
    if (layer != plan->type || type != plan->layer || code != plan->code)
        row_fail("not layer %u, type %u, code %u", plan->layer, plan->type, plan->code);
    if (info.error_text[0] == '\0' || info.state != XSOCK_EP_ERROR)
        row_fail("xsock knows of no error");
}

/* We do wrong, siw refuses. */
static int run_fault(struct row* row, struct row_plan* plan) {
    static uint8_t bytes[8192];
    int index;
    struct xsock_remote remote;
    int posted = 0;

    establish_or_fail(row, &plan->setup);
    row_send_siw(row, 0, 64, 1, 1);
    const bool other = plan->fault == FAULT_WRITE_OTHER || plan->fault == FAULT_READ_OTHER ||
                       plan->fault == FAULT_INVALIDATE_OTHER;

    remote = row_guest_memory(row, 4096,
                              plan->fault == FAULT_WRITE_RIGHT  ? "r"
                              : plan->fault == FAULT_READ_RIGHT ? "w"
                              : other                           ? "rwp"
                                                                : "rw",
                              0, &index);
    remote.length = sizeof(bytes);
    if (plan->fault == FAULT_READ_WRAP) remote.to = UINT64_MAX - 31;
    if (plan->fault == FAULT_WRITE_STAG || plan->fault == FAULT_READ_STAG ||
        plan->fault == FAULT_INVALIDATE_STAG)
        remote.stag ^= 0x5a5a0000;
    switch ((enum fault)plan->fault) {
        case FAULT_WRITE_STAG:
        case FAULT_WRITE_RIGHT:
        case FAULT_WRITE_OTHER:
            posted = xsock_write(row->eps[0], 0, bytes, 64, &remote, 0, 0);
            break;
        case FAULT_WRITE_BOUNDS:
            posted = xsock_write(row->eps[0], 0, bytes, 64, &remote, 4090, 0);
            break;
        case FAULT_READ_STAG:
        case FAULT_READ_RIGHT:
        case FAULT_READ_OTHER:
        case FAULT_READ_WRAP:
            posted = xsock_read(row->eps[0], 0, bytes, 64, &remote, 0, 0);
            break;
        case FAULT_READ_MANY:
            /* Answers of one FPDU: in the middle of a longer one siw closes without a Terminate. */
            for (int i = 0; i < 16 && posted == 0; i++)
                posted = xsock_read(row->eps[0], 0, bytes, 64, &remote, 0, 0);
            break;
        case FAULT_READ_BOUNDS:
            posted = xsock_read(row->eps[0], 0, bytes, 64, &remote, 4090, 0);
            break;
        case FAULT_SEND_LONG:
            row_ask(row, NULL, "recv 64 1");
            posted = xsock_send(row->eps[0], 0, bytes, 65, 0);
            break;
        case FAULT_SEND_NO_RECV:
            posted = xsock_send(row->eps[0], 0, bytes, 64, 0);
            break;
        case FAULT_INVALIDATE_STAG:
        case FAULT_INVALIDATE_OTHER: {
            const struct xsock_sge sge = {.address = bytes, .length = 64};
            XSOCK_INIT(xsock_wr, wr);

            row_ask(row, NULL, "recv 64 1");
            wr.op = XSOCK_OP_SEND;
            wr.flags = XSOCK_INVALIDATE;
            wr.sge = &sge;
            wr.sge_count = 1;
            wr.remote = remote;
            posted = xsock_post(row->eps[0], &wr);
            break;
        }
    }
    if (posted != 0) row_fail("post: %s", strerror(errno));
    if (plan->fault == FAULT_READ_RIGHT) {
        /* siw does not check it. */
        if (!row_await(row, 0, 1, 0)) row_fail("the Read was not served");
        row_note("siw serves it: the right to read is not checked");
        row_close(row, 0);
        return PASSED;
    }
    if (plan->fault == FAULT_READ_WRAP) {
        await_end(row, 0);
        row_note("siw closes without a word");
        if (row->sends[0] != 0 || row->unsuccessful != 1) row_fail("the Read was served");
        row_ask(row, NULL, "waitend");
        return PASSED;
    }
    if (plan->fault == FAULT_INVALIDATE_STAG || plan->fault == FAULT_INVALIDATE_OTHER) {
        char answer[LINE_MAX_BYTES];

        /* siw fails the receive and goes on; its Terminate comes when it closes. */
        row_tell(row, "got 0");
        if (row_answer(row, answer)) row_fail("siw has taken it");
        row_note("guest: %s", answer);
        row_ask(row, NULL, "close");
    }
    expect_from_siw(row, plan);
    return PASSED;
}

/* siw's region takes a Write, and none behind a Send that invalidates it. */
static int run_write_invalidated(struct row* row, struct row_plan* plan) {
    static uint8_t bytes[64];
    int index;

    establish_or_fail(row, &plan->setup);
    row_send_siw(row, 0, 64, 1, 1);
    const struct xsock_remote remote = row_guest_memory(row, sizeof(bytes), "rw", 0, &index);

    if (xsock_write(row->eps[0], 0, bytes, sizeof(bytes), &remote, 0, 0) != 0)
        row_fail("xsock_write: %s", strerror(errno));
    if (!row_await(row, 0, 1, 0)) row_fail("the Write before it was not taken");
    invalidate_at_siw(row, &remote);
    if (xsock_write(row->eps[0], 0, bytes, sizeof(bytes), &remote, 0, 0) != 0)
        row_fail("xsock_write: %s", strerror(errno));
    expect_from_siw(row, plan);
    return PASSED;
}

/* siw's program does wrong, we refuse. */
static int run_fault_siw(struct row* row, struct row_plan* plan) {
    static uint8_t bytes[4096];
    struct xsock_key key;
    struct xsock_remote remote;
    char answer[LINE_MAX_BYTES];

    /* An answer that is quick enough makes room in time: the Reads wait until all have come. */
    if (plan->fault == FAULT_READ_MANY) setenv("XSOCK_PROGRESS", "app", 1);
    establish_or_fail(row, &plan->setup);
    row_send(row, 0, 64, 1, 1);
    const bool other = plan->fault == FAULT_WRITE_OTHER || plan->fault == FAULT_READ_OTHER;
    struct xsock_pd* foreign = other ? xsock_pd_create() : NULL;
    /* One that several connections may use is none of theirs to invalidate. */
    struct xsock_mr* mr = xsock_mr_register(
        foreign, bytes, sizeof(bytes),
        plan->fault == FAULT_WRITE_RIGHT  ? XSOCK_REMOTE_READ
        : plan->fault == FAULT_READ_RIGHT ? XSOCK_REMOTE_WRITE
                                          : XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE,
        other || plan->fault == FAULT_INVALIDATE_OTHER ? NULL : row->eps[0]);

    if (other && foreign == NULL) row_fail("xsock_pd_create: %s", strerror(errno));
    if (mr == NULL || xsock_mr_key(mr, 0, sizeof(bytes), &key) != 0)
        row_fail("xsock_mr_register: %s", strerror(errno));
    xsock_key_read(&key, &remote);
    switch ((enum fault)plan->fault) {
        case FAULT_WRITE_STAG:
            row_tell(row, "write 64 1 7 %" PRIu64 " %u", remote.to, remote.stag ^ 0x5a5a0000);
            break;
        case FAULT_WRITE_RIGHT:
        case FAULT_WRITE_OTHER:
            row_tell(row, "write 64 1 7 %" PRIu64 " %u", remote.to, remote.stag);
            break;
        case FAULT_WRITE_BOUNDS:
            row_tell(row, "write 64 1 7 %" PRIu64 " %u", remote.to + 4090, remote.stag);
            break;
        case FAULT_READ_STAG:
            row_tell(row, "read 64 1 7 %" PRIu64 " %u", remote.to, remote.stag ^ 0x5a5a0000);
            break;
        case FAULT_READ_MANY:
            row_tell(row, "read 256 16 7 %" PRIu64 " %u", remote.to, remote.stag);
            sleep(2);
            break;
        case FAULT_READ_WRAP:
            row_tell(row, "read 64 1 7 %" PRIu64 " %u", UINT64_MAX - 31, remote.stag);
            break;
        case FAULT_READ_RIGHT:
        case FAULT_READ_OTHER:
            row_tell(row, "read 64 1 7 %" PRIu64 " %u", remote.to, remote.stag);
            break;
        case FAULT_READ_BOUNDS:
            row_tell(row, "read 64 1 7 %" PRIu64 " %u", remote.to + 4090, remote.stag);
            break;
        case FAULT_SEND_LONG:
            if (xsock_recv(row->eps[0], 9, bytes, 64) != 0)
                row_fail("xsock_recv: %s", strerror(errno));
            row_tell(row, "send 65 1 7");
            break;
        case FAULT_SEND_NO_RECV:
            row_tell(row, "send 64 1 7");
            break;
        case FAULT_INVALIDATE_STAG:
            if (xsock_recv(row->eps[0], 9, bytes, 64) != 0)
                row_fail("xsock_recv: %s", strerror(errno));
            row_tell(row, "send 64 1 7 %u", remote.stag ^ 0x5a5a0000);
            break;
        case FAULT_INVALIDATE_OTHER:
            if (xsock_recv(row->eps[0], 9, bytes, 64) != 0)
                row_fail("xsock_recv: %s", strerror(errno));
            row_tell(row, "send 64 1 7 %u", remote.stag);
            break;
    }
    await_end(row, 0);
    row_answer(row, answer); /* done or not: TCP has taken it */
    expect_from_xsock(row, plan);
    return PASSED;
}

static int listen_on(const char* host, int* port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        bind(fd, (struct sockaddr*)&address, sizeof(address)) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr*)&address, &size) != 0)
        row_fail("listen on %s: %s", host, strerror(errno));
    *port = ntohs(address.sin_port);
    return fd;
}

/* An FPDU is changed on its way; `siw_initiates` tells the initiator, `siw_closes` the end that
 * refuses: siw an FPDU of ours when set, else we one of siw's. */
static int run_edit(struct row* row, struct row_plan* plan) {
    struct setup* setup = &plan->setup;
    const bool siw_refuses = plan->siw_closes;
    static uint8_t bytes[8192];
    struct sockaddr_in target = {.sin_family = AF_INET};
    char answer[LINE_MAX_BYTES];
    int index;

    /* The editor is forked before xsock has threads; it learns xsock's port by a fixed order. */
    const char* listen_host = setup->siw_initiates ? row->setting->own : "127.0.0.1";
    const int listener = listen_on(listen_host, &setup->via_port);
    const char* target_host = setup->siw_initiates ? "127.0.0.1" : row->setting->guest;

    setup->via_host = "127.0.0.1";
    row_listen(row, setup);
    target.sin_port = htons((uint16_t)setup->listen_port);
    inet_pton(AF_INET, target_host, &target.sin_addr);
    /* The accepted end is the initiator's; the FPDUs edited are those of the end that does not
     * refuse. */
    const int edit_accepted = setup->siw_initiates != siw_refuses;
    const pid_t editor = editor_start(listener, &target, edit_accepted, plan->edit, plan->opcode);

    if (editor < 0) row_fail("fork: %s", strerror(errno));
    close(listener);
    establish_or_fail(row, setup);
    if (siw_refuses) {
        row_send_siw(row, 0, 64, 1, 1);
        const struct xsock_remote remote = row_guest_memory(row, 4096, "rw", 0, &index);
        int posted;

        row_ask(row, NULL, "recv 64 2");
        if (plan->opcode == 0)
            posted = xsock_write(row->eps[0], 0, bytes, 64, &remote, 0, 0);
        else if (plan->opcode == 1)
            posted = xsock_read(row->eps[0], 0, bytes, 64, &remote, 0, 0);
        else
            posted = xsock_send(row->eps[0], 0, bytes, 64, 0);
        /* siw waits for the rest of a header that will not come: it takes it from what follows. */
        if (posted == 0 && plan->edit == EDIT_SHORT)
            posted = xsock_send(row->eps[0], 0, bytes, 64, 0);
        if (posted != 0) row_fail("post: %s", strerror(errno));
        expect_from_siw(row, plan);
    } else {
        struct xsock_key key;
        struct xsock_remote remote;

        row_send(row, 0, 64, 1, 1);
        struct xsock_mr* mr = xsock_mr_register(
            NULL, bytes, sizeof(bytes), XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, row->eps[0]);

        if (mr == NULL || xsock_mr_key(mr, 0, sizeof(bytes), &key) != 0)
            row_fail("xsock_mr_register: %s", strerror(errno));
        xsock_key_read(&key, &remote);
        if (xsock_recv(row->eps[0], 9, bytes + 4096, 64) != 0)
            row_fail("xsock_recv: %s", strerror(errno));
        if (plan->opcode == 0)
            row_tell(row, "write 64 1 7 %" PRIu64 " %u", remote.to, remote.stag);
        else if (plan->opcode == 1)
            row_tell(row, "read 64 1 7 %" PRIu64 " %u", remote.to, remote.stag);
        else
            row_tell(row, "send 64 1 7");
        await_end(row, 0);
        row_answer(row, answer);
        expect_from_xsock(row, plan);
    }
    kill(editor, SIGTERM);
    waitpid(editor, NULL, 0);
    return PASSED;
}

/* ---- the table
 * ------------------------------------------------------------------------------------ */

static struct row_plan plans[ROWS_MAX];
static unsigned plan_count;

static struct row_plan* add(const char* group, int (*run)(struct row*, struct row_plan*),
                            bool siw_initiates, bool brief, const char* format, ...)
    __attribute__((format(printf, 5, 6)));
static struct row_plan* add(const char* group, int (*run)(struct row*, struct row_plan*),
                            bool siw_initiates, bool brief, const char* format, ...) {
    struct row_plan* plan = &plans[plan_count];
    va_list arguments;

    if (plan_count == ROWS_MAX) abort();
    plan_count++;
    *plan = (struct row_plan){.group = group, .run = run, .brief = brief, .limit_s = 300};
    plan->setup.siw_initiates = siw_initiates;
    va_start(arguments, format);
    const int n = vsnprintf(plan->name, sizeof(plan->name), format, arguments);
    va_end(arguments);
    if (n > 0 && (size_t)n < sizeof(plan->name))
        snprintf(plan->name + n, sizeof(plan->name) - (size_t)n, ", %s initiates",
                 siw_initiates ? "siw" : "xsock");
    return plan;
}

static void add_start_up(bool siw) {
    static const char kGroup[] = "start-up";
    struct row_plan* p;

    add(kGroup, run_exchange, siw, true, "revision 2, CRC");
    p = add(kGroup, run_exchange, siw, true, "revision 1, CRC");
    p->setup.revision = 1;
    p->setup.siw_revision_1 = siw;
    p = add(kGroup, run_exchange, siw, true, "revision 2, no CRC");
    p->setup.no_crc = true;
    p = add(kGroup, run_exchange, siw, false, "revision 1, no CRC");
    p->setup.revision = 1;
    p->setup.siw_revision_1 = siw;
    p->setup.no_crc = true;
    p = add(kGroup, run_exchange, siw, true,
            siw ? "CRC asked by siw only" : "CRC required by siw, which does not say so");
    p->setup.no_crc = true;
    p->setup.siw_crc = true;
    p = add(kGroup, run_exchange, siw, false, "CRC asked by both");
    p->setup.siw_crc = true;
    p = add(kGroup, run_refused, siw, true, "CRC strictly off at siw, asked by xsock");
    p->setup.siw_crc_strict = true;
    p = add(kGroup, run_refused, siw, true, "markers asked by xsock");
    p->setup.markers = true;

    static const struct {
        unsigned ird, ord, siw_ird, siw_ord;
    } kDepths[] = {
        {1, 1, 1, 1}, {16, 16, 1, 1}, {1, 1, 16, 16}, {4, 8, 2, 16}, {200, 200, 128, 128}};
    /* What comes of them: siw as responder serves as many Reads as it is asked to. */
    static const struct {
        unsigned ird, ord;
    } kOurs[] = {{1, 1}, {1, 16}, {1, 1}, {4, 8}, {128, 128}},
      kIts[] = {{1, 1}, {1, 1}, {1, 1}, {4, 2}, {128, 128}};
    for (unsigned i = 0; i < sizeof(kDepths) / sizeof(kDepths[0]); i++) {
        p = add(kGroup, run_depths, siw, i == 3, "IRD %u ORD %u, siw's IRD %u ORD %u",
                kDepths[i].ird, kDepths[i].ord, kDepths[i].siw_ird, kDepths[i].siw_ord);
        p->setup.ird = kDepths[i].ird;
        p->setup.ord = kDepths[i].ord;
        p->setup.siw_ird = kDepths[i].siw_ird;
        p->setup.siw_ord = kDepths[i].siw_ord;
        p->setup.depth = 128;
        p->ird = siw ? kIts[i].ird : kOurs[i].ird;
        p->ord = siw ? kIts[i].ord : kOurs[i].ord;
    }

    if (siw) {
        p = add(kGroup, run_exchange, siw, true, "peer-to-peer, Write or Read offered as RTR");
        p->setup.siw_p2p = true;
        p = add(kGroup, run_responder_first, siw, false, "peer-to-peer, responder speaks first");
        p->setup.siw_p2p = true;
    } else {
        static const char* const kNames[] = {
            "Send", "Write", "Send or Write", "Read", "Send or Read", "Write or Read", "any"};
        for (unsigned rtr = 1; rtr <= 7; rtr++) {
            /* To Send alone siw answers Write, which RFC 6581 does not allow; we do as it says. */
            p = add(kGroup, run_exchange, siw, rtr == XSOCK_RTR_WRITE || rtr == XSOCK_RTR_READ,
                    "peer-to-peer, %s offered as RTR", kNames[rtr - 1]);
            p->setup.rtr = rtr;
        }
        for (unsigned rtr = XSOCK_RTR_WRITE; rtr <= XSOCK_RTR_READ; rtr *= 2) {
            p = add(kGroup, run_early_close, siw, true,
                    "peer-to-peer, %s offered as RTR, closed at once",
                    rtr == XSOCK_RTR_WRITE ? "Write" : "Read");
            p->setup.rtr = rtr;
            p = add(kGroup, run_responder_first, siw, false,
                    "peer-to-peer, %s offered as RTR, responder speaks first",
                    rtr == XSOCK_RTR_WRITE ? "Write" : "Read");
            p->setup.rtr = rtr;
        }
    }
    add(kGroup, run_responder_first, siw, true, "responder speaks first");
    p = add(kGroup, run_speak_at_once, siw, true, "40 connections, xsock speaks at once");
    p->setup.connections = 40;
    p->setup.first_recv = 64;
    add(kGroup, run_rejected, siw, true, "rejected by the responder's program");
    add(kGroup, run_unanswered, siw, false, "the responder's program does not answer");
}

static void add_private_data(bool siw) {
    static const char kGroup[] = "private data";
    struct row_plan* p;
    /* siw takes 256 bytes with those of RFC 6581; its own length is eight bits wide. */
    static const unsigned kLengths[] = {1, 4, 100, 251, 252};

    add(kGroup, run_exchange, siw, false, "none from either");
    for (unsigned i = 0; i < 5; i++) {
        p = add(kGroup, run_exchange, siw, kLengths[i] == 252, "%u bytes from xsock", kLengths[i]);
        p->setup.data = kLengths[i];
    }
    /* siw would not survive such a Reply: we refuse. */
    p = add(kGroup, run_refused, siw, true, "253 bytes from xsock, one too many");
    p->setup.data = 253;
    for (unsigned i = 0; i < 4; i++) {
        p = add(kGroup, run_exchange, siw, kLengths[i] == 251, "%u bytes from siw", kLengths[i]);
        p->setup.siw_data = kLengths[i];
    }
    p = add(kGroup, run_refused, siw, true, "252 bytes from siw, one too many");
    p->setup.siw_data = 252;
    p = add(kGroup, run_exchange, siw, false, "revision 1, 200 bytes from each");
    p->setup.revision = 1;
    p->setup.siw_revision_1 = siw;
    p->setup.data = p->setup.siw_data = 200;
}

static void add_fpdus(bool siw) {
    static const char kGroup[] = "FPDU sizes";
    static const unsigned kLimits[] = {128, 129, 130, 131, 512, 1000, 1441, 1442};
    struct row_plan* p;

    for (unsigned i = 0; i < sizeof(kLimits) / sizeof(kLimits[0]); i++) {
        p = add(kGroup, run_messages, siw, i == 0, "ULPDUs of up to %u bytes", kLimits[i]);
        p->setup.fpdu_limit = kLimits[i];
        p->operation = "swr"[i % 3];
        p->size = 20011;
        p->count = 3;
    }
    for (int crc = 0; crc < 2; crc++) {
        for (int zero_copy = 0; zero_copy < 2; zero_copy++) {
            p = add(kGroup, run_exchange, siw, siw && zero_copy, "GSO %s, CRC %s, siw %s",
                    siw ? "agreed" : "offered by siw only", crc ? "on" : "off",
                    zero_copy ? "without copying" : "copying");
            p->setup.siw_gso = true;
            p->setup.no_crc = !crc;
            p->setup.siw_no_zcopy = !zero_copy;
        }
        p = add(kGroup, run_messages, siw, false, "GSO %s, CRC %s, 1 MiB Writes",
                siw ? "agreed" : "offered by siw only", crc ? "on" : "off");
        p->setup.siw_gso = true;
        p->setup.no_crc = !crc;
        p->operation = 'w';
        p->size = MIB;
        p->count = 2;
    }
}

static void add_messages(bool siw) {
    static const char kGroup[] = "messages";
    static const uint32_t kSizes[] = {0, 1, 3, 4, 1427, 1428, 1429, 4096, 65535, 65536, 16 * MIB};
    static const struct {
        char operation;
        const char* name;
    } kOperations[] = {{'s', "Send"}, {'w', "Write"}, {'r', "Read"}};
    struct row_plan* p;

    for (int crc = 1; crc >= 0; crc--) {
        for (unsigned o = 0; o < 3; o++) {
            for (unsigned i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); i++) {
                const bool large = kSizes[i] > MIB;

                p = add(kGroup, run_messages, siw,
                        crc == 1 && siw == (o == 1) && (kSizes[i] == 1428 || kSizes[i] == 65535),
                        "%s of %u bytes, CRC %s", kOperations[o].name, kSizes[i],
                        crc ? "on" : "off");
                p->setup.no_crc = !crc;
                p->operation = kOperations[o].operation;
                p->size = kSizes[i];
                p->count = large ? 1 : 5;
                p->siw_closes = i % 2 == 1;
                if (large) p->limit_s = 600;
            }
        }
        p = add(kGroup, run_messages, siw, crc == 1, "4000 Sends of 64 bytes at depth, CRC %s",
                crc ? "on" : "off");
        p->setup.no_crc = !crc;
        p->setup.depth = 4096;
        p->operation = 's';
        p->size = 64;
        p->count = 4000;
    }
    add(kGroup, run_invalidate, siw, true, "Send with Invalidate")->kernel_reports = true;
    p = add(kGroup, run_messages, siw, true, "64 Reads posted at once");
    p->setup.depth = 128;
    p->operation = 'r';
    p->size = 4096;
    p->count = 64;
    p = add(kGroup, run_many_connections, siw, true, "32 connections at once");
    p->setup.connections = 32;
    p->limit_s = 600;
}

static void add_ends(bool siw) {
    static const char kGroup[] = "ends";
    struct row_plan* p;

    add(kGroup, run_early_close, siw, true, "orderly close by xsock, at once");
    add(kGroup, run_early_close, siw, true, "orderly close by siw, at once")->siw_closes = true;
    add(kGroup, run_exchange, siw, false, "orderly close by xsock");
    add(kGroup, run_exchange, siw, false, "orderly close by siw")->siw_closes = true;
    p = add(kGroup, run_kill_own, siw, true, "kill -9 of xsock in mid transfer");
    p->kernel_reports = true;
    p = add(kGroup, run_kill_siw, siw, false, "kill -9 of siw's program in mid transfer");
    p->kernel_reports = true;
}

struct expectation {
    unsigned layer, type, code;
};

static void add_terminates(bool siw) {
    static const char kGroup[] = "Terminate";
    static const struct {
        enum fault fault;
        const char* name;
        struct expectation by_siw, by_xsock;
    } kFaults[] = {
        {FAULT_WRITE_STAG, "Write to an unknown STag", {1, 1, 0}, {1, 1, 0}},
        {FAULT_WRITE_BOUNDS, "Write past a region", {1, 1, 1}, {1, 1, 1}},
        {FAULT_WRITE_RIGHT, "Write without the right", {1, 1, 0}, {0, 1, 2}},
        {FAULT_WRITE_OTHER, "Write to another protection domain", {1, 1, 2}, {1, 1, 2}},
        {FAULT_READ_STAG, "Read of an unknown STag", {0, 1, 0}, {0, 1, 0}},
        {FAULT_READ_BOUNDS, "Read past a region", {0, 1, 1}, {0, 1, 1}},
        {FAULT_READ_RIGHT, "Read without the right", {0, 1, 2}, {0, 1, 2}},
        {FAULT_READ_OTHER, "Read of another protection domain", {0, 1, 3}, {0, 1, 3}},
        {FAULT_READ_WRAP, "Read whose offset wraps", {0, 1, 4}, {0, 1, 4}},
        {FAULT_READ_MANY, "more Reads than the IRD", {0, 2, 7}, {1, 2, 2}},
        {FAULT_SEND_LONG, "Send longer than the receive", {1, 2, 2}, {1, 2, 5}},
        {FAULT_SEND_NO_RECV, "Send without a receive", {1, 2, 2}, {1, 2, 2}},
        {FAULT_INVALIDATE_STAG, "Send that invalidates an unknown STag", {0, 2, 9}, {0, 1, 0}},
        {FAULT_INVALIDATE_OTHER, "Send that invalidates what it may not", {0, 1, 9}, {0, 1, 9}},
    };
    enum { WRITE = 0, READ = 1, SEND = 3 };
    static const struct {
        enum edit edit;
        unsigned opcode;
        const char* name;
        struct expectation by_siw, by_xsock;
    } kEdits[] = {
        {EDIT_CRC, SEND, "wrong CRC", {2, 0, 2}, {2, 0, 2}},
        {EDIT_SHORT, SEND, "ULPDU shorter than its header", {2, 0, 3}, {2, 0, 3}},
        {EDIT_DDP_VERSION, SEND, "DDP version, untagged", {1, 2, 6}, {1, 2, 6}},
        {EDIT_DDP_VERSION, WRITE, "DDP version, tagged", {1, 1, 4}, {1, 1, 4}},
        {EDIT_RDMAP_VERSION, SEND, "RDMAP version", {0, 2, 5}, {0, 2, 5}},
        {EDIT_OPCODE, SEND, "unknown opcode", {0, 2, 6}, {0, 2, 6}},
        {EDIT_QN, SEND, "unknown queue", {1, 2, 1}, {1, 2, 1}},
        {EDIT_MSN, SEND, "MSN out of order", {1, 2, 3}, {1, 2, 3}},
        {EDIT_MSN, READ, "MSN out of order, Read", {1, 2, 3}, {1, 2, 3}},
        {EDIT_MO, SEND, "wrong MO", {1, 2, 4}, {1, 2, 4}},
        {EDIT_STAG, WRITE, "STag changed", {1, 1, 0}, {1, 1, 0}},
        {EDIT_BOUNDS, WRITE, "offset changed", {1, 1, 1}, {1, 1, 1}},
        {EDIT_WRAP, WRITE, "offset that wraps", {1, 0, 0}, {1, 1, 3}},
        {EDIT_RESPONSE, WRITE, "Read Response without a request", {1, 0, 0}, {0, 2, 6}},
        {EDIT_READ_SHORT, READ, "Read Request of 24 bytes", {2, 0, 3}, {0, 2, 255}},
        {EDIT_ATOMIC, READ, "Atomic Request of 28 bytes", {0, 2, 6}, {0, 2, 255}},
        {EDIT_IMMEDIATE, SEND, "Immediate Data of 64 bytes", {0, 2, 6}, {0, 2, 255}},
    };

    struct row_plan* invalidated = add(kGroup, run_write_invalidated, siw, true,
                                       "Write behind a Send with Invalidate, refused by siw");

    invalidated->layer = invalidated->type = 1;
    invalidated->kernel_reports = true;
    for (unsigned i = 0; i < sizeof(kFaults) / sizeof(kFaults[0]); i++) {
        for (int by_siw = 0; by_siw < 2; by_siw++) {
            struct row_plan* p =
                add(kGroup, by_siw ? run_fault : run_fault_siw, siw,
                    siw == (by_siw == 1) && i % 4 == 0, "%s, %s by %s", kFaults[i].name,
                    by_siw && kFaults[i].fault == FAULT_READ_RIGHT  ? "served"
                    : by_siw && kFaults[i].fault == FAULT_READ_WRAP ? "closed"
                                                                    : "refused",
                    by_siw ? "siw" : "xsock");
            const struct expectation* e = by_siw ? &kFaults[i].by_siw : &kFaults[i].by_xsock;

            p->fault = (int)kFaults[i].fault;
            p->layer = e->layer;
            p->type = e->type;
            p->code = e->code;
            p->kernel_reports = true;
            p->setup.rnr_timeout_ms = 200;
            if (kFaults[i].fault == FAULT_READ_MANY) {
                /* With revision 1 neither side knows the other's IRD. */
                p->setup.revision = 1;
                p->setup.siw_revision_1 = siw;
                p->setup.ird = p->setup.siw_ird = 1;
                p->setup.ord = p->setup.siw_ord = 16;
            }
        }
    }
    for (unsigned i = 0; i < sizeof(kEdits) / sizeof(kEdits[0]); i++) {
        for (int by_siw = 0; by_siw < 2; by_siw++) {
            struct row_plan* p = add(kGroup, run_edit, siw, siw == (by_siw == 1) && i % 6 == 0,
                                     "%s, refused by %s", kEdits[i].name, by_siw ? "siw" : "xsock");
            const struct expectation* e = by_siw ? &kEdits[i].by_siw : &kEdits[i].by_xsock;

            p->fault = -1;
            p->edit = kEdits[i].edit;
            p->opcode = kEdits[i].opcode;
            p->siw_closes = by_siw;
            p->layer = e->layer;
            p->type = e->type;
            p->code = e->code;
            p->kernel_reports = true;
            p->setup.fpdu_limit = 1024;
        }
    }
}

struct row_plan* row_plans(unsigned* count) {
    if (plan_count == 0) {
        for (int siw = 0; siw < 2; siw++) add_start_up(siw);
        for (int siw = 0; siw < 2; siw++) add_private_data(siw);
        for (int siw = 0; siw < 2; siw++) add_fpdus(siw);
        for (int siw = 0; siw < 2; siw++) add_messages(siw);
        for (int siw = 0; siw < 2; siw++) add_terminates(siw);
        for (int siw = 0; siw < 2; siw++) add_ends(siw);
        struct row_plan* p =
            add("ends", run_power_off, false, true, "guest powered off in mid transfer");

        p->ends_guest = true;
        p->limit_s = 300;
    }
    *count = plan_count;
    return plans;
}
