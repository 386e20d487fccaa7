// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An MPI program that checks everything: every byte that a rank receives is checked against what
// the sender must have sent. Ring, all-to-all, many non-blocking messages at once, and large ones;
// then reductions. Exits 0 on every rank or 1 on all. Built with mpicc by mpi.sh.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMany = 64, kLargest = 4 << 20 };

static int rank, size;
static long wrong;

// What `from` sends to `to` in round `round`, byte `i`.
static unsigned char byte(int from, int to, int round, size_t i) {
    return (unsigned char)((size_t)(from * 131 + to * 29 + round * 7) + i + (i >> 8) * 3);
}

static void fill(unsigned char* buffer, size_t bytes, int to, int round) {
    for (size_t i = 0; i < bytes; ++i) buffer[i] = byte(rank, to, round, i);
}

static void check(const unsigned char* buffer, size_t bytes, int from, int round) {
    for (size_t i = 0; i < bytes; ++i) {
        if (buffer[i] == byte(from, rank, round, i)) continue;
        if (wrong++ == 0) {
            fprintf(stderr, "rank %d: round %d, byte %zu of %zu from rank %d is wrong\n", rank,
                    round, i, bytes, from);
        }
    }
}

// Each rank to the next one, at growing sizes: eager, rendezvous, and odd lengths of each.
static void ring(unsigned char* out, unsigned char* in) {
    static const size_t sizes[] = {0, 1, 63, 4096, 16383, 65536, 262145, 1 << 20, kLargest};
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int round = 0; round < (int)(sizeof sizes / sizeof *sizes); ++round) {
        const size_t bytes = sizes[round];
        int got;
        MPI_Status status;
        fill(out, bytes, next, round);
        memset(in, 0xEE, bytes);
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, next, round, in, (int)bytes, MPI_BYTE, before,
                     round, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        if (got != (int)bytes) ++wrong;
        check(in, bytes, before, round);
    }
}

static void all_to_all(unsigned char* out, unsigned char* in, size_t bytes, int round) {
    for (int to = 0; to < size; ++to) fill(out + (size_t)to * bytes, bytes, to, round);
    memset(in, 0xEE, bytes * (size_t)size);
    MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; ++from) {
        check(in + (size_t)from * bytes, bytes, from, round);
    }
}

// Many messages outstanding between each two ranks, received in the reverse order by their tags.
static void many(unsigned char* out, unsigned char* in, size_t bytes) {
    MPI_Request requests[2 * kMany];
    const int peer = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < kMany; ++i) {
        fill(out + (size_t)i * bytes, bytes, peer, i);
        MPI_Irecv(in + (size_t)(kMany - 1 - i) * bytes, (int)bytes, MPI_BYTE, from, kMany - 1 - i,
                  MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < kMany; ++i) {
        MPI_Isend(out + (size_t)i * bytes, (int)bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD,
                  &requests[kMany + i]);
    }
    MPI_Waitall(2 * kMany, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kMany; ++i) check(in + (size_t)i * bytes, bytes, from, i);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *out = malloc(kLargest), *in = malloc(kLargest);
    if (out == NULL || in == NULL || size > 16) MPI_Abort(MPI_COMM_WORLD, 2);
    ring(out, in);
    all_to_all(out, in, 17, 100);
    all_to_all(out, in, 100000, 101);
    all_to_all(out, in, kLargest / 16, 102);
    many(out, in, 1000);
    many(out, in, 40000);
    long sum = 0, mine = (rank + 1L) * (rank + 1L), bad = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (long)size * (size + 1) * (2 * size + 1) / 6) ++wrong;
    MPI_Allreduce(&wrong, &bad, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, %ld wrong bytes\n", size, bad);
    free(out);
    free(in);
    MPI_Finalize();
    return bad != 0;
}
