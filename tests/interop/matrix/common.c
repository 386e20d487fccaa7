/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* SplitMix64's output function. */
static uint64_t word_at(uint32_t seed, uint64_t index) {
    uint64_t z = ((uint64_t)seed << 32) + (index + 1) * 0x9e3779b97f4a7c15u;

    if (seed == 0) return 0;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void pattern_fill(uint8_t* bytes, size_t length, uint32_t seed) {
    for (size_t at = 0; at < length; at += 8) {
        const uint64_t word = word_at(seed, at / 8);

        memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
    }
}

long pattern_check(const uint8_t* bytes, size_t length, uint32_t seed) {
    for (size_t at = 0; at < length; at += 8) {
        const uint64_t word = word_at(seed, at / 8);
        const size_t n = length - at < 8 ? length - at : 8;

        if (memcmp(bytes + at, &word, n) == 0) continue;
        for (size_t i = 0; i < n; i++) {
            if (bytes[at + i] != ((const uint8_t*)&word)[i]) return (long)(at + i);
        }
    }
    return PATTERN_OK;
}

int64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int line_read(struct lines* from, char out[LINE_MAX_BYTES], int timeout_ms) {
    const int64_t end = now_ms() + timeout_ms;

    for (;;) {
        const char* newline = memchr(from->bytes, '\n', from->have);

        if (newline != NULL) {
            const size_t length = (size_t)(newline - from->bytes);

            memcpy(out, from->bytes, length);
            out[length] = '\0';
            from->have -= length + 1;
            memmove(from->bytes, newline + 1, from->have);
            return 1;
        }
        if (from->have == sizeof(from->bytes)) {
            errno = EMSGSIZE;
            return -1;
        }
        const int64_t left = end - now_ms();
        struct pollfd wait = {.fd = from->fd, .events = POLLIN};

        if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        const ssize_t n =
            recv(from->fd, from->bytes + from->have, sizeof(from->bytes) - from->have, 0);

        if (n == 0) return 0;
        if (n < 0 && errno != EINTR) return -1;
        if (n > 0) from->have += (size_t)n;
    }
}

int line_write(int fd, const char* format, ...) {
    char line[LINE_MAX_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    if (length < 0) return -1;
    if (length > (int)sizeof(line) - 2) length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    for (int done = 0; done < length;) {
        const ssize_t n = send(fd, line + done, (size_t)(length - done), MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) return -1;
        if (n > 0) done += (int)n;
    }
    return 0;
}
