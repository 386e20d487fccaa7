// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Writes over a loopback that loses segments (netem is set by its caller: MTU 1500, loss 0.5 %,
 * delay 2 ms), placed out of order, with every octet of the last checked. Overlapping ones too: an
 * index that is written again and again never goes back.
 *
 *   loss [slow]     slow: a kernel in which the rest of a Write may be waited for so long that it
 *                   comes up; then it is executed here, and counts
 */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user_level.h"

#define STAG 0x4321
#define FPDU 1400
#define MESSAGE (160 * FPDU)
#define MESSAGES 40

static uint8_t octets[2 * FPDU + 256], payload[MESSAGE];

static void fill(int message)
{
	for (int i = 0; i < MESSAGE; i++)
		payload[i] = (uint8_t)(i * 31 + message * 7 + (i >> 8));
}

/* Writes of a message, each in a segment of its own, an index behind each, then a Send. */
static void send_messages(int s)
{
	for (int m = 0; m < MESSAGES; m++) {
		fill(m);
		for (uint32_t i = 0; i < MESSAGE / FPDU; i++) {
			uint32_t index = (uint32_t)m * 1000 + i;
			size_t n = fpdu_write(octets, STAG, i * FPDU, payload + i * FPDU,
					      FPDU, true);

			REQUIRE(send(s, octets, n, MSG_EOR) == (ssize_t)n, "send");
			n = fpdu_write(octets, STAG, MESSAGE, &index, sizeof(index), true);
			REQUIRE(send(s, octets, n, MSG_EOR) == (ssize_t)n, "send");
		}
		send_all(s, octets, fpdu_send(octets, (uint32_t)m + 1, &m, sizeof(m)));
	}
}

static struct user_level user = { .stag = STAG, .length = MESSAGE + 4096 };

int main(int argc, char **argv)
{
	const bool slow = argc > 1 && !strcmp(argv[1], "slow");
	int domain = domain_open(), ends[2], message = 0, status, child;
	uint64_t writes = 0, others = 0, backwards = 0;
	uint8_t *memory = region_make(domain, STAG, MESSAGE + 4096, DDP_RIGHT_WRITE);
	uint32_t last_index = 0, index;
	struct ddp_stats stats;

	user.memory = memory;
	child = peer_process(domain, ends, send_messages);
	while (message < MESSAGES) {
		struct record record = record_wait(ends[1], 20000);

		REQUIRE(record.type, "a record within 20 s");
		memcpy(&index, memory + MESSAGE, sizeof(index));
		backwards += index < last_index;
		last_index = index;
		if (record.type == DDP_RECORD_PLACED) {
			writes += record.placed.messages;
			continue;
		}
		others += record.type != DDP_RECORD_ULPDU ||
			  record.body[1] != (0x40 | OPCODE_SEND);
		message += user_level_record(&user, &record);
	}
	waitpid(child, &status, 0);
	stats = socket_stats(domain, ends[1]);
	fill(MESSAGES - 1);
	CHECK(status == 0, "the sender has ended well");
	CHECK(!memcmp(memory, payload, MESSAGE), "every octet is in place");
	memcpy(&index, memory + MESSAGE, sizeof(index));
	CHECK(index == (MESSAGES - 1) * 1000 + MESSAGE / FPDU - 1, "the last index stands");
	CHECK(!backwards, "the index has never gone back");
	CHECK(slow || !others, "nothing else came up");
	CHECK(writes + user.stored == (uint64_t)MESSAGES * 2 * (MESSAGE / FPDU),
	      "each Write was told of once");
	printf("# %llu FPDUs ahead, %llu scans, %llu wrong guesses, %llu masked, %llu limits\n",
	       (unsigned long long)stats.ahead_fpdus, (unsigned long long)stats.scans,
	       (unsigned long long)stats.wrong_guesses, (unsigned long long)stats.masked_octets,
	       (unsigned long long)stats.limited);
	CHECK(stats.ahead_fpdus != 0, "Writes were placed behind holes");
	return end_checks();
}
