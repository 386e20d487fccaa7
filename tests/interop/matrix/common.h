/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What both sides of the siw matrix share: the bytes that every message carries, and lines of text
 * over a control connection. matrix_siw runs in the guest on verbs, matrix_xsock on the host.
 */
#ifndef XSOCK_TESTS_INTEROP_MATRIX_COMMON_H
#define XSOCK_TESTS_INTEROP_MATRIX_COMMON_H

#include <stddef.h>
#include <stdint.h>

enum { LINE_MAX_BYTES = 1024, PATTERN_OK = -1 };

/* Bytes that depend on the seed and on their place, so that none can stand for another. Seed 0:
 * zeros. */
void pattern_fill(uint8_t* bytes, size_t length, uint32_t seed);
/* The first byte that differs, or PATTERN_OK. */
long pattern_check(const uint8_t* bytes, size_t length, uint32_t seed);

struct lines {
    int fd;
    size_t have;
    char bytes[LINE_MAX_BYTES];
};

/* One line without its end. 1: there; 0: the other side closed; -1: errno (ETIMEDOUT). */
int line_read(struct lines* from, char out[LINE_MAX_BYTES], int timeout_ms);
/* Writes one line; its end is added. 0 or -1. */
int line_write(int fd, const char* format, ...) __attribute__((format(printf, 2, 3)));

int64_t now_ms(void);

#endif
