/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the guest programs share: FPDUs as octets, a connection over the loopback with the module at
 * one end, and records as they are read from it.
 */
#ifndef DDP_TESTS_DDP_TEST_H
#define DDP_TESTS_DDP_TEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "checks.h"
#include "xsock/ddp_uapi.h"

#define OPCODE_WRITE 0x0
#define OPCODE_READ_RESPONSE 0x2
#define OPCODE_SEND 0x3
#define OPCODE_ATOMIC_REQUEST 0xa

uint32_t crc32c(const uint8_t *octets, size_t n);

/* Numbers of the network's byte order, of up to eight octets */
void put_be(uint8_t *to, uint64_t value, int octets);
uint64_t get_be(const uint8_t *from, int octets);

/* Of a clock that only goes on; microseconds */
uint64_t now_us(void);

/* Random numbers, of one thread each: the same `random_state` gives the same ones. */
extern _Thread_local uint64_t random_state;
uint32_t random_u32(void);
/* Less than n */
uint32_t below(uint32_t n);
bool one_in(uint32_t n);

/*
 * All that a program starts from now on lets the kernel's threads go first: those of a debug kernel
 * that free memory fall behind without limit else, and what waits for them does.
 */
void yield_to_kernel(void);

/* Makes FPDUs; each answers its octets. `last`: the L flag. */
size_t fpdu_tagged(uint8_t *to, int opcode, uint32_t stag, uint64_t offset, const void *payload,
		   size_t n, bool last);
size_t fpdu_send(uint8_t *to, uint32_t msn, const void *payload, size_t n);
static inline size_t fpdu_write(uint8_t *to, uint32_t stag, uint64_t offset, const void *payload,
				size_t n, bool last)
{
	return fpdu_tagged(to, OPCODE_WRITE, stag, offset, payload, n, last);
}

/* Open domain; exits where there is no device. */
int domain_open(void);
/* Of anonymous memory; its STag is `stag`, its TO starts at 0. */
uint8_t *region_make(int domain, uint32_t stag, size_t length, uint32_t rights);
int region_add(int domain, uint32_t stag, void *address, size_t length, uint32_t rights);
/* A view of the region `parent`; its TO starts at 0. */
int view_add(int domain, uint32_t stag, uint32_t parent, void *address, size_t length,
	     uint32_t rights);
int stag_request(int domain, unsigned long request, uint32_t stag);

#define TEST_PD 7
#define TEST_QP 9

/* Sets the ULP and binds, with all rights. 0, or -1 and errno. */
int ulp_set(int s);
int bind_socket(int domain, int s, uint32_t flags);
struct ddp_stats socket_stats(int domain, int s);
struct ddp_stats domain_stats(int domain);

/* A connection over the loopback: ends[0] is the peer, ends[1] is to be bound. */
void tcp_pair(int ends[2]);
/* The same, with SO_RCVBUF of ends[1] unless it is 0. */
void tcp_pair_window(int ends[2], int rcvbuf);
void send_all(int s, const void *octets, size_t n);

/* ---- Records --------------------------------------------------------------- */

struct record {
	int type;	/* DDP_RECORD_*; 0: none, and error says why */
	int error;	/* EAGAIN, ...; 0 with type 0: the peer has finished */
	size_t length;
	const uint8_t *body;	/* until the next call */
	struct ddp_placed placed;
};

/* The next record of a socket, from the last recv() or a new one. */
struct record record_next(int s);
/* The same, but waits up to `ms` for one. */
struct record record_wait(int s, int ms);

/*
 * A bound connection (DDP_BIND_CRC) whose peer is a process, which ends with the caller: it calls
 * `run` with its end, and exits. ends[1] is the caller's. Answers its pid.
 */
int peer_process(int domain, int ends[2], void (*run)(int s));
/* A bound connection whose first FPDU, a Send, has been read. */
void bound_pair_window(int domain, int ends[2], uint32_t flags, int rcvbuf);
void close_pair(const int ends[2]);
bool is_readable(int s, int ms);

#endif
