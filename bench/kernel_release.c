/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What it takes to give a region back while a peer writes into it: DDP_IOC_REVOKE and
 * DDP_IOC_RELEASE of 1 MiB, over a loopback. Made for a guest whose time counts instructions
 * (kernel_guest.sh); built with tests/kernel/ddp_test.c.
 *
 *   kernel_release      prints "release", and thousand instructions, for each round
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <x86intrin.h>

#include "ddp_test.h"

#define STAG 0x77
#define FPDU 1400
#define FPDUS 700
#define LENGTH (1 << 20)
#define ROUNDS 50

static void write_on(int s) {
    static uint8_t octets[FPDUS][FPDU + 64], payload[FPDU];
    size_t n = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned int i = 0; i < FPDUS; i++)
        n = fpdu_write(octets[i], STAG, i * FPDU, payload, FPDU, true);
    for (unsigned int i = 0;; i++) send_all(s, octets[i % FPDUS], n);
}

/* Reads what has come; true once more Writes have been placed than `before`. */
static bool goes_on(int domain, int s, uint64_t before) {
    while (record_next(s).type)
        ;
    return socket_stats(domain, s).placed_fpdus > before;
}

int main(void) {
    static uint8_t memory[LENGTH] __attribute__((aligned(4096)));
    int domain = domain_open(), ends[2];

    tcp_pair(ends);
    REQUIRE(bind_socket(domain, ends[1], DDP_BIND_CRC) == 0, "BIND");
    pid_t child = fork();

    if (!child) write_on(ends[0]);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t placed = socket_stats(domain, ends[1]).placed_fpdus;

        REQUIRE(region_add(domain, STAG, memory, LENGTH, DDP_RIGHT_WRITE) == 0, "REGION");
        while (!goes_on(domain, ends[1], placed + 100)) usleep(100);
        uint64_t begin = __rdtsc();

        REQUIRE(stag_request(domain, DDP_IOC_REVOKE, STAG) == 0, "REVOKE");
        REQUIRE(stag_request(domain, DDP_IOC_RELEASE, STAG) == 0, "RELEASE");
        printf("release,,%.1f\n", (double)(__rdtsc() - begin) / 1e3);
    }
    kill(child, SIGKILL);
    return 0;
}
