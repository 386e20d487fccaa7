/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 300000, GUEST_DATA_SEED = 78, OWN_DATA_SEED = 77, NOTE_BYTES = 4 };

static void say(const char* kind, const char* format, va_list arguments) {
    char text[600];

    vsnprintf(text, sizeof(text), format, arguments);
    for (char* c = text; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\t' || *c == '|') *c = ' ';
    }
    printf("%s %s\n", kind, text);
    fflush(stdout);
}

void row_fail(const char* format, ...) {
    va_list arguments;

    va_start(arguments, format);
    say("fail", format, arguments);
    va_end(arguments);
    _exit(FAILED);
}

void row_note(const char* format, ...) {
    va_list arguments;

    va_start(arguments, format);
    say("note", format, arguments);
    va_end(arguments);
}

void row_begin(struct row* row, const struct setting* setting) {
    struct sockaddr_in guest = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)setting->control_port)};

    *row = (struct row){.setting = setting};
    row->control.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, setting->guest, &guest.sin_addr) != 1 || row->control.fd < 0 ||
        connect(row->control.fd, (struct sockaddr*)&guest, sizeof(guest)) != 0)
        row_fail("control connection to the guest: %s", strerror(errno));
}

/* ---- the guest ---------------------------------------------------------------------------------
 */

void row_tell(struct row* row, const char* format, ...) {
    char text[LINE_MAX_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (line_write(row->control.fd, "%s", text) != 0)
        row_fail("the guest is gone: %s", strerror(errno));
}

/* Bytes are moved meanwhile: the guest may wait for us. */
bool row_answer(struct row* row, char answer[LINE_MAX_BYTES]) {
    const int64_t end = now_ms() + WAIT_MS + 10000;

    for (;;) {
        const int n = line_read(&row->control, answer, row->cq != NULL ? 2 : WAIT_MS);

        if (n == 1) return strncmp(answer, "ok", 2) == 0;
        if (n == 0) row_fail("the guest closed the control connection");
        if (errno != ETIMEDOUT) row_fail("control connection: %s", strerror(errno));
        if (now_ms() > end) row_fail("the guest does not answer");
        if (row->cq != NULL) row_poll(row, 2);
    }
}

void row_ask(struct row* row, char answer[LINE_MAX_BYTES], const char* format, ...) {
    char text[LINE_MAX_BYTES], local[LINE_MAX_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (answer == NULL) answer = local;
    row_tell(row, "%s", text);
    if (!row_answer(row, answer)) row_fail("guest: %.40s: %.300s", text, answer);
}

/* ---- completions -------------------------------------------------------------------------------
 */

static void on_completion(struct row* row, const struct xsock_wc* wc) {
    const unsigned ep = (unsigned)(uintptr_t)wc->context;

    if (wc->op == XSOCK_OP_CONNECTED) return;
    if (wc->op == XSOCK_OP_CLOSED) {
        row->closed[ep] = true;
        return;
    }
    if (wc->status != XSOCK_WC_SUCCESS) {
        row->unsuccessful++;
        if (wc->status != XSOCK_WC_FLUSHED && row->bad_status == XSOCK_WC_SUCCESS) {
            row->bad_status = wc->status;
            row->bad_op = wc->op;
        }
        return;
    }
    if (wc->op == XSOCK_OP_RECV) {
        row->receives[ep]++;
        row->last_length = wc->length;
        if (wc->flags & XSOCK_WC_INVALIDATED) row->invalidated = wc->invalidated_stag;
    } else {
        row->sends[ep]++;
    }
}

void row_poll(struct row* row, int ms) {
    struct xsock_wc wcs[64];
    const int n = xsock_cq_wait(row->cq, wcs, 1, 64, ms);

    for (int i = 0; i < n; i++) on_completion(row, &wcs[i]);
}

static bool ended(const struct row* row, unsigned ep) {
    XSOCK_INIT(xsock_ep_info, info);

    return row->closed[ep] ||
           (xsock_ep_query(row->eps[ep], &info) == 0 && info.state >= XSOCK_EP_ERROR);
}

bool row_await(struct row* row, unsigned ep, unsigned sends, unsigned receives) {
    const int64_t end = now_ms() + WAIT_MS;

    while (row->sends[ep] < sends || row->receives[ep] < receives) {
        if (now_ms() > end || ended(row, ep)) {
            row_poll(row, 0);
            break;
        }
        row_poll(row, 100);
    }
    return row->sends[ep] >= sends && row->receives[ep] >= receives;
}

static const char* end_of(const struct row* row, unsigned ep) {
    static struct xsock_ep_info info;

    info = (struct xsock_ep_info){.size = sizeof(info)};
    if (xsock_ep_query(row->eps[ep], &info) != 0) return "?";
    return info.error_text[0] != '\0'           ? info.error_text
           : info.state >= XSOCK_EP_PEER_CLOSED ? "the connection has ended"
                                                : "the connection is up";
}

/* ---- connections -------------------------------------------------------------------------------
 */

static void apply_settings(struct row* row, const struct setup* setup) {
    const unsigned depth = setup->depth != 0 ? setup->depth : 64;

    row_tell(row, "param mpa_crc_required %d", setup->siw_crc);
    row_tell(row, "param mpa_crc_strict %d", setup->siw_crc_strict);
    row_tell(row, "param peer_to_peer %d", setup->siw_p2p);
    row_tell(row, "param try_gso %d", setup->siw_gso);
    row_tell(row, "param zcopy_tx %d", !setup->siw_no_zcopy);
    row_tell(row, "param mpa_version %d", setup->siw_revision_1 ? 1 : 2);
    row_tell(row, "set ird %u", setup->siw_ird != 0 ? setup->siw_ird : 16);
    row_tell(row, "set ord %u", setup->siw_ord != 0 ? setup->siw_ord : 16);
    row_tell(row, "set private_data %u", setup->siw_data);
    row_tell(row, "set rq %u", depth);
    row_tell(row, "set sq %u", depth);
    row_tell(row, "set first_recv %u", setup->first_recv);
    for (int i = 0; i < 12; i++) {
        char answer[LINE_MAX_BYTES];

        if (!row_answer(row, answer)) row_fail("guest: %s", answer);
    }
}

struct xsock_ep_attr row_attributes(struct row* row, const struct setup* setup) {
    static uint8_t private_data[512];
    XSOCK_INIT(xsock_ep_attr, attr);

    pattern_fill(private_data, sizeof(private_data), OWN_DATA_SEED);
    if (row->cq == NULL) row->cq = xsock_cq_create(NULL);
    if (row->cq == NULL) row_fail("xsock_cq_create: %s", strerror(errno));
    attr.send_cq = row->cq;
    attr.flags = XSOCK_EP_EVENTS | (setup->no_crc ? XSOCK_EP_NO_CRC : 0) |
                 (setup->markers ? XSOCK_EP_MARKERS : 0) | (setup->defer ? XSOCK_EP_DEFER : 0);
    attr.sq_depth = attr.rq_depth = setup->depth != 0 ? setup->depth : 64;
    attr.ird = (uint16_t)setup->ird;
    attr.ord = (uint16_t)setup->ord;
    attr.mpa_revision = setup->revision;
    attr.fpdu_limit = setup->fpdu_limit;
    attr.rtr = setup->rtr;
    attr.rnr_timeout_ms = setup->rnr_timeout_ms;
    attr.startup_timeout_ms = setup->startup_timeout_ms;
    attr.private_data = setup->data != 0 ? private_data : NULL;
    attr.private_data_length = setup->data;
    return attr;
}

void row_listen(struct row* row, struct setup* setup) {
    char answer[LINE_MAX_BYTES];

    apply_settings(row, setup);
    if (!setup->siw_initiates) {
        row_ask(row, answer, "listen");
        setup->listen_port = atoi(answer + 3);
        return;
    }
    const struct xsock_ep_attr attr = row_attributes(row, setup);

    row->listener = xsock_listen(setup->via_host != NULL ? "127.0.0.1" : row->setting->own, "0",
                                 EPS_MAX, &attr);
    if (row->listener == NULL) row_fail("xsock_listen: %s", strerror(errno));
    setup->listen_port = xsock_listener_port(row->listener);
}

static bool connect_to_siw(struct row* row, const struct setup* setup, unsigned count) {
    char service[16];

    snprintf(service, sizeof(service), "%d",
             setup->via_port ? setup->via_port : setup->listen_port);
    for (row->count = 0; row->count < count; row->count++) {
        struct xsock_ep_attr attr = row_attributes(row, setup);

        attr.context = (void*)(uintptr_t)row->count; /* NOLINT: an index */
        struct xsock_ep* ep =
            xsock_connect(setup->via_host != NULL ? setup->via_host : row->setting->guest, service,
                          &attr, WAIT_MS);

        if (ep == NULL) {
            row_note("xsock_connect: %s", strerror(errno));
            return false;
        }
        row->eps[row->count] = ep;
        if (setup->on_connected != NULL) setup->on_connected(row, row->count);
    }
    return true;
}

static bool accept_siw(struct row* row, const struct setup* setup, unsigned count) {
    const int64_t end = now_ms() + WAIT_MS;

    for (row->count = 0; row->count < count;) {
        struct xsock_ep* ep = xsock_accept(row->listener, 500);

        if (ep != NULL) {
            xsock_ep_set_context(ep, (void*)(uintptr_t)row->count);
            row->eps[row->count] = ep;
            if (setup->on_connected != NULL) setup->on_connected(row, row->count);
            row->count++;
            continue;
        }
        /* The guest may know by now that nothing will come of it. */
        char answer[LINE_MAX_BYTES];

        if (line_read(&row->control, answer, 1) == 1) {
            if (strncmp(answer, "ok", 2) != 0) {
                row_note("guest: %s", answer);
                return false;
            }
            row_fail("siw is connected, xsock is not");
        }
        if (now_ms() > end) row_fail("nothing to accept");
    }
    return true;
}

bool row_establish(struct row* row, struct setup* setup) {
    const unsigned count = setup->connections != 0 ? setup->connections : 1;
    char answer[LINE_MAX_BYTES];

    if (setup->listen_port == 0) row_listen(row, setup);
    if (setup->siw_initiates)
        row_tell(row, "connect %s %d %u", row->setting->own,
                 setup->via_port ? setup->via_port : setup->listen_port, count);
    else
        row_tell(row, "accept %u", count);
    const bool ours =
        setup->siw_initiates ? accept_siw(row, setup, count) : connect_to_siw(row, setup, count);

    if (!ours) return false;
    if (!row_answer(row, answer)) {
        row_note("guest: %s", answer);
        return false;
    }
    unsigned ird, ord, data;
    char right[16];

    if (sscanf(answer, "ok ird=%u ord=%u private_data=%u %15s", &ird, &ord, &data, right) != 4)
        row_fail("guest: %s", answer);
    if (data != setup->data || strcmp(right, "right") != 0)
        row_fail("%u bytes of private data reached the guest, %s, not %u", data, right,
                 setup->data);
    return true;
}

void row_check_negotiated(struct row* row, const struct setup* setup, unsigned ep) {
    XSOCK_INIT(xsock_ep_info, info);

    if (xsock_ep_query(row->eps[ep], &info) != 0) row_fail("xsock_ep_query: %s", strerror(errno));
    /* siw as responder takes the Request's flag over and does not add its own. */
    const bool crc = !setup->no_crc || (setup->siw_initiates && setup->siw_crc);
    const bool revision_1 = setup->revision == 1 || (setup->siw_initiates && setup->siw_revision_1);

    if (info.peer_is_xsock) row_fail("siw is taken for an xsock");
    if (info.crc != crc) row_fail("CRC is %s", info.crc ? "on" : "off");
    if (info.mpa_revision != (revision_1 ? 1u : 2u)) row_fail("MPA revision %u", info.mpa_revision);
    if (info.private_data_length != setup->siw_data ||
        pattern_check(info.private_data, info.private_data_length, GUEST_DATA_SEED) != PATTERN_OK)
        row_fail("%u bytes of private data came, not %u, or changed", info.private_data_length,
                 setup->siw_data);
    row_note("revision %u, CRC %s, IRD %u, ORD %u, ULPDU %u", info.mpa_revision,
             info.crc ? "on" : "off", info.ird, info.ord, info.mulpdu);
}

/* ---- operations --------------------------------------------------------------------------------
 */

static void use(struct row* row, unsigned ep) {
    if (row->count > 1) row_ask(row, NULL, "use %u", ep);
}

static uint8_t* bytes_of(size_t length) {
    uint8_t* bytes = calloc(1, length + 1);

    if (bytes == NULL) row_fail("no memory");
    return bytes;
}

/* Retries while the queue is full. */
#define POST(row, ep, call)                                                                       \
    do {                                                                                          \
        while ((call) != 0) {                                                                     \
            if (errno != ENOBUFS) row_fail("post: %s: %s", strerror(errno), end_of((row), (ep))); \
            row_poll((row), 100);                                                                 \
        }                                                                                         \
    } while (0)

static void await_or_fail(struct row* row, unsigned ep, unsigned sends, unsigned receives,
                          const char* what) {
    if (!row_await(row, ep, sends, receives))
        row_fail("%s: %u of %u sent, %u of %u received: %s, %s", what, row->sends[ep], sends,
                 row->receives[ep], receives, xsock_wc_str(row->bad_status), end_of(row, ep));
}

void row_send(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    uint8_t* bytes = bytes_of((size_t)size * count);
    const unsigned before = row->sends[ep];

    use(row, ep);
    row_ask(row, NULL, "recv %u %u", size, count);
    for (uint32_t i = 0; i < count; i++) {
        pattern_fill(bytes + (size_t)i * size, size, seed + i);
        POST(row, ep, xsock_send(row->eps[ep], i, bytes + (size_t)i * size, size, 0));
    }
    row_ask(row, NULL, "got %u", seed);
    await_or_fail(row, ep, before + count, row->receives[ep], "send");
    free(bytes);
}

static void check_all(const uint8_t* bytes, uint32_t size, uint32_t count, uint32_t seed,
                      const char* what) {
    for (uint32_t i = 0; i < count; i++) {
        const long wrong = pattern_check(bytes + (size_t)i * size, size, seed + i);

        if (wrong != PATTERN_OK) row_fail("%s %u differs at byte %ld of %u", what, i, wrong, size);
    }
}

void row_send_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    uint8_t* bytes = bytes_of((size_t)size * count);
    const unsigned before = row->receives[ep];

    for (uint32_t i = 0; i < count; i++)
        POST(row, ep, xsock_recv(row->eps[ep], i, bytes + (size_t)i * size, size));
    use(row, ep);
    row_ask(row, NULL, "send %u %u %u", size, count, seed);
    await_or_fail(row, ep, row->sends[ep], before + count, "receive");
    if (row->last_length != size) row_fail("the last message had %u bytes", row->last_length);
    check_all(bytes, size, count, seed, "message");
    free(bytes);
}

struct xsock_remote row_guest_memory(struct row* row, size_t length, const char* rights,
                                     uint32_t seed, int* index) {
    char answer[LINE_MAX_BYTES];
    struct xsock_remote remote = {.length = length};

    row_ask(row, answer, "mem %zu %s %u", length, rights, seed);
    if (sscanf(answer, "ok %d %" SCNu64 " %" SCNu32, index, &remote.to, &remote.stag) != 3)
        row_fail("guest: %s", answer);
    return remote;
}

void row_write(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    uint8_t* bytes = bytes_of((size_t)size * count);
    const unsigned before = row->sends[ep];
    uint8_t note[NOTE_BYTES];
    int index;

    use(row, ep);
    const struct xsock_remote remote = row_guest_memory(row, (size_t)size * count, "w", 0, &index);

    row_ask(row, NULL, "recv %u 1", NOTE_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        pattern_fill(bytes + (size_t)i * size, size, seed + i);
        POST(row, ep,
             xsock_write(row->eps[ep], i, bytes + (size_t)i * size, size, &remote,
                         (uint64_t)i * size, 0));
    }
    pattern_fill(note, sizeof(note), seed);
    POST(row, ep, xsock_send(row->eps[ep], count, note, sizeof(note), 0));
    row_ask(row, NULL, "got %u", seed); /* RFC 5040 §5.5: then the Writes are there */
    for (uint32_t i = 0; i < count; i++)
        row_ask(row, NULL, "memcheck %d %zu %u %u", index, (size_t)i * size, size, seed + i);
    await_or_fail(row, ep, before + count + 1, row->receives[ep], "write");
    free(bytes);
}

/* A region of ours on this endpoint. */
static struct xsock_mr* offer(struct row* row, unsigned ep, uint8_t* bytes, size_t length,
                              unsigned access, struct xsock_remote* remote) {
    struct xsock_mr* mr =
        xsock_mr_register(NULL, bytes, length != 0 ? length : 1, access, row->eps[ep]);
    struct xsock_key key;

    if (mr == NULL || xsock_mr_key(mr, 0, length, &key) != 0)
        row_fail("xsock_mr_register: %s", strerror(errno));
    xsock_key_read(&key, remote);
    return mr;
}

void row_write_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    const size_t length = (size_t)size * count;
    uint8_t* bytes = bytes_of(length);
    uint8_t note[NOTE_BYTES];
    const unsigned before = row->receives[ep];
    struct xsock_remote remote;
    struct xsock_mr* mr = offer(row, ep, bytes, length, XSOCK_REMOTE_WRITE, &remote);

    POST(row, ep, xsock_recv(row->eps[ep], 0, note, sizeof(note)));
    use(row, ep);
    row_ask(row, NULL, "write %u %u %u %" PRIu64 " %u", size, count, seed, remote.to, remote.stag);
    row_ask(row, NULL, "send %u 1 %u", NOTE_BYTES, seed);
    await_or_fail(row, ep, row->sends[ep], before + 1, "written");
    check_all(bytes, size, count, seed, "Write");
    xsock_mr_deregister(mr);
    free(bytes);
}

void row_read(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    const size_t length = (size_t)size * count;
    uint8_t* bytes = bytes_of(length);
    const unsigned before = row->sends[ep];
    int index;

    use(row, ep);
    const struct xsock_remote remote = row_guest_memory(row, length, "r", seed, &index);

    for (uint32_t i = 0; i < count; i++)
        POST(row, ep,
             xsock_read(row->eps[ep], i, bytes + (size_t)i * size, size, &remote,
                        (uint64_t)i * size, 0));
    await_or_fail(row, ep, before + count, row->receives[ep], "read");
    check_all(bytes, (uint32_t)length, 1, seed, "Read");
    free(bytes);
}

void row_read_siw(struct row* row, unsigned ep, uint32_t size, uint32_t count, uint32_t seed) {
    const size_t length = (size_t)size * count;
    uint8_t* bytes = bytes_of(length);
    struct xsock_remote remote;
    struct xsock_mr* mr = offer(row, ep, bytes, length, XSOCK_REMOTE_READ, &remote);

    pattern_fill(bytes, length, seed);
    use(row, ep);
    row_ask(row, NULL, "read %u %u %u %" PRIu64 " %u", size, count, seed, remote.to, remote.stag);
    xsock_mr_deregister(mr);
    free(bytes);
}

/* ---- ends
 * ---------------------------------------------------------------------------------------- */

static void await_closed(struct row* row, unsigned ep) {
    const int64_t end = now_ms() + WAIT_MS;

    while (!row->closed[ep]) {
        if (now_ms() > end) row_fail("the connection does not end: %s", end_of(row, ep));
        row_poll(row, 100);
    }
}

static void check_ended_well(struct row* row, unsigned ep, bool may_reset) {
    XSOCK_INIT(xsock_ep_info, info);

    if (xsock_ep_query(row->eps[ep], &info) != 0) row_fail("xsock_ep_query: %s", strerror(errno));
    if (may_reset && info.error == ECONNRESET) {
        row_note("reset by siw, in which a probe lay unread");
        return;
    }
    if (info.error != 0 || info.error_text[0] != '\0')
        row_fail("an orderly end is taken for an error: %s", info.error_text);
    if (row->bad_status != XSOCK_WC_SUCCESS)
        row_fail("a completion failed: %s", xsock_wc_str(row->bad_status));
}

void row_close(struct row* row, unsigned ep) {
    use(row, ep);
    if (xsock_ep_shutdown(row->eps[ep]) != 0) row_fail("xsock_ep_shutdown: %s", strerror(errno));
    row_ask(row, NULL, "waitend");
    await_closed(row, ep);
    check_ended_well(row, ep, false);
    xsock_ep_close(row->eps[ep]);
}

void row_close_siw(struct row* row, unsigned ep, bool may_reset) {
    use(row, ep);
    row_ask(row, NULL, "close");
    await_closed(row, ep);
    check_ended_well(row, ep, may_reset);
    xsock_ep_close(row->eps[ep]);
    row_ask(row, NULL, "waitend");
}

bool row_guest_terminate(struct row* row, unsigned* layer, unsigned* type, unsigned* code) {
    char answer[LINE_MAX_BYTES];
    bool found = false;

    row_tell(row, "klog");
    while (!row_answer(row, answer)) {
        const char* at = strstr(answer, "siw: got TERMINATE");

        if (at != NULL &&
            sscanf(at, "siw: got TERMINATE. layer %u, type %u, code %u", layer, type, code) == 3)
            found = true;
        else if (strncmp(answer, "log ", 4) != 0)
            row_fail("guest: %s", answer);
    }
    return found;
}
