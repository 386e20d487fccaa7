/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fpdu_editor.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { START_UP_BYTES = 20, CRC_BYTES = 4, STREAM_BYTES = 1 << 18 };

/* One direction: bytes that came and do not yet make a frame. */
struct direction {
    int from, to;
    bool start_up_passed, edited, over;
    bool edits;
    size_t have;
    uint8_t bytes[STREAM_BYTES];
};

static uint32_t crc32c(const uint8_t* bytes, size_t length) {
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static size_t ulpdu_length(const uint8_t* fpdu) { return (size_t)fpdu[0] << 8 | fpdu[1]; }

static size_t fpdu_octets(size_t ulpdu) { return (2 + ulpdu + 3) / 4 * 4 + CRC_BYTES; }

static void write_crc(uint8_t* fpdu) {
    const size_t covered = fpdu_octets(ulpdu_length(fpdu)) - CRC_BYTES;
    const uint32_t crc = crc32c(fpdu, covered);

    for (int i = 0; i < CRC_BYTES; i++) fpdu[covered + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

/* RFC 5041 §4: control, RDMAP control, STag or reserved; then TO, or QN, MSN and MO. */
static void change(uint8_t* fpdu, enum edit edit) {
    uint8_t* const ddp = fpdu + 2;

    switch (edit) {
        case EDIT_CRC:
            fpdu[fpdu_octets(ulpdu_length(fpdu)) - 1] ^= 0x10;
            return;
        case EDIT_SHORT:
            fpdu[0] = 0;
            fpdu[1] = 6;
            break;
        case EDIT_DDP_VERSION:
            ddp[0] = (uint8_t)((ddp[0] & ~3) | 2);
            break;
        case EDIT_RDMAP_VERSION:
            ddp[1] = (uint8_t)((ddp[1] & 0x3f) | 0x80);
            break;
        case EDIT_OPCODE:
            ddp[1] |= 0x0f;
            break;
        case EDIT_QN:
            ddp[9] = 9;
            break;
        case EDIT_MSN:
            ddp[13] = (uint8_t)(ddp[13] + 7);
            break;
        case EDIT_MO:
            ddp[17] = (uint8_t)(ddp[17] + 4);
            break;
        case EDIT_STAG:
            ddp[3] ^= 0x5a;
            break;
        case EDIT_BOUNDS:
            ddp[9] = (uint8_t)(ddp[9] + 0x10); /* 16 TiB on */
            break;
        case EDIT_WRAP:
            memset(ddp + 6, 0xff, 8);
            break;
        case EDIT_RESPONSE:
            ddp[1] = (uint8_t)((ddp[1] & 0xf0) | 2);
            break;
        case EDIT_READ_SHORT:
            fpdu[1] = (uint8_t)(fpdu[1] - 4);
            break;
        case EDIT_ATOMIC:
            ddp[1] = (uint8_t)((ddp[1] & 0xf0) | 10);
            break;
        case EDIT_IMMEDIATE:
            ddp[1] = (uint8_t)((ddp[1] & 0xf0) | 8);
            break;
    }
    write_crc(fpdu);
}

static bool send_all(int fd, const uint8_t* bytes, size_t length) {
    /* A segment of its own for each FPDU, or siw finds a trailer cut in two and calls it wrong. */
    while (length > 0) {
        const ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL | MSG_EOR);

        if (n <= 0) return false;
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

/* Passes on what is complete. */
static bool pass(struct direction* d, enum edit edit, unsigned opcode) {
    size_t at = 0;

    if (!d->start_up_passed) {
        if (d->have < START_UP_BYTES) return true;
        const size_t frame = START_UP_BYTES + ((size_t)d->bytes[18] << 8 | d->bytes[19]);

        if (d->have < frame) return true;
        if (!send_all(d->to, d->bytes, frame)) return false;
        d->start_up_passed = true;
        at = frame;
    }
    while (d->have - at >= 4) {
        uint8_t* const fpdu = d->bytes + at;
        size_t bytes = fpdu_octets(ulpdu_length(fpdu));

        if (d->have - at < bytes) break;
        at += bytes;
        /* A probe is a Write too, but an empty one: nothing of it is checked. */
        if (d->edits && !d->edited && (fpdu[3] & 0x0f) == opcode &&
            !(opcode == 0 && ulpdu_length(fpdu) == 14)) {
            change(fpdu, edit);
            bytes = fpdu_octets(ulpdu_length(fpdu));
            d->edited = true;
        }
        if (!send_all(d->to, fpdu, bytes)) return false;
    }
    d->have -= at;
    memmove(d->bytes, d->bytes + at, d->have);
    return true;
}

static void forward(struct direction* d, enum edit edit, unsigned opcode) {
    const ssize_t n = recv(d->from, d->bytes + d->have, sizeof(d->bytes) - d->have, 0);

    if (n > 0) {
        d->have += (size_t)n;
        if (pass(d, edit, opcode)) return;
    }
    d->over = true;
    shutdown(d->to, SHUT_WR);
}

static _Noreturn void serve(int accepted, int target, bool edit_accepted, enum edit edit,
                            unsigned opcode) {
    static struct direction ways[2];
    const int on = 1;

    setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ways[0].from = ways[1].to = accepted;
    ways[0].to = ways[1].from = target;
    ways[0].edits = edit_accepted;
    ways[1].edits = !edit_accepted;
    while (!ways[0].over || !ways[1].over) {
        struct pollfd fds[2];

        for (int i = 0; i < 2; i++)
            fds[i] = (struct pollfd){.fd = ways[i].over ? -1 : ways[i].from, .events = POLLIN};
        if (poll(fds, 2, 60000) <= 0) break;
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents != 0) forward(&ways[i], edit, opcode);
        }
    }
    _exit(0);
}

int editor_start(int listener, const struct sockaddr_in* target, int edit_accepted, enum edit edit,
                 unsigned opcode) {
    const pid_t pid = fork();

    if (pid != 0) return pid;
    const int accepted = accept(listener, NULL, NULL);
    const int out = socket(AF_INET, SOCK_STREAM, 0);

    if (accepted < 0 || connect(out, (const struct sockaddr*)target, sizeof(*target)) != 0)
        _exit(1);
    close(listener);
    serve(accepted, out, edit_accepted, edit, opcode);
}
