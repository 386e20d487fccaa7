// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Writes into a small receive window over a loopback that loses segments (netem is set by its
 * caller: MTU 1500, 0.1 ms, a loss), with every octet checked, beside the same octets by plain TCP.
 * The reader sleeps until the socket is readable. What the module leaves in TCP's queue, and when
 * TCP may forget it, decides how long the sender waits for an ACK or for the window: its messages
 * may not take longer than those of plain TCP.
 *
 *   small_window [MESSAGES [slow]]    of each row (40). slow: a debug kernel, whose times say
 *                                     only that nothing stands still
 */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user_level.h"

#define STAG 0x4321
#define MESSAGE 58800
#define MESSAGES_MAX 1000
#define SLEEP_MS 1000 /* the engine asks once a second */

enum way { PLAIN, MODULE, WAYS };

static const struct row {
	const char *words;
	int rcvbuf;	/* SO_RCVBUF, which Linux doubles; 0: as it is */
	int fpdu;	/* octets of payload */
	uint32_t flags; /* of DDP_IOC_BIND */
} rows[] = {
	{ "4 KiB window, in order", 4096, 1400, DDP_BIND_CRC | DDP_BIND_IN_ORDER },
	{ "16 KiB window, in order", 16384, 1400, DDP_BIND_CRC | DDP_BIND_IN_ORDER },
	{ "16 KiB window, behind holes", 16384, 1400, DDP_BIND_CRC },
	{ "16 KiB window, FPDUs of 29,400 octets", 16384, 29400, DDP_BIND_CRC },
	{ "usual window, in order", 0, 1400, DDP_BIND_CRC | DDP_BIND_IN_ORDER },
	{ "usual window, behind holes", 0, 1400, DDP_BIND_CRC },
	{ "usual window, FPDUs of 29,400 octets", 0, 29400, DDP_BIND_CRC },
};

static bool slow;
static uint8_t payload[MESSAGE];
static int messages = 40;

static void fill(int message)
{
	for (int i = 0; i < MESSAGE; i++)
		payload[i] = (uint8_t)(i * 31 + message * 7 + (i >> 8));
}

static double now_ms(void)
{
	return (double)now_us() / 1e3;
}

/* ---- The sender ------------------------------------------------------------ */

/* Writes, each with a segment's start if it is short, and a Send. */
static void send_message(int s, int message, int fpdu)
{
	static uint8_t octets[64 * 1024];

	for (int at = 0; at < MESSAGE; at += fpdu) {
		size_t n = fpdu_write(octets, STAG, (uint64_t)at, payload + at, (size_t)fpdu,
				      at + fpdu == MESSAGE);

		for (size_t done = 0; done < n;) {
			ssize_t sent = send(s, octets + done, n - done, MSG_EOR);

			REQUIRE(sent > 0, "send");
			done += (size_t)sent;
		}
	}
	send_all(s, octets, fpdu_send(octets, (uint32_t)message + 1, &message, sizeof(message)));
}

/* The messages' times go to the reader: of each way its own. */
static void run_sender(const int ends[WAYS], int fpdu, int times)
{
	static double took[WAYS][MESSAGES_MAX];

	for (int m = 0; m < messages; m++) {
		fill(m);
		for (int way = PLAIN; way < WAYS; way++) {
			double began = now_ms();
			uint8_t answer;

			send_message(ends[way], m, fpdu);
			REQUIRE(recv(ends[way], &answer, 1, MSG_WAITALL) == 1, "an answer");
			took[way][m] = now_ms() - began;
		}
	}
	for (int way = PLAIN; way < WAYS; way++)
		REQUIRE(write(times, took[way], sizeof(took[way])) == sizeof(took[way]), "pipe");
}

/* ---- The reader --------------------------------------------------------------- */

static void read_plain(int s, struct user_level *user)
{
	static uint8_t octets[64 * 1024];
	ssize_t got;

	do {
		got = recv(s, octets, sizeof(octets), 0);
		REQUIRE(got > 0, "recv");
	} while (!user_level_octets(user, octets, (size_t)got));
}

static void read_records(int s, struct user_level *user)
{
	double began = now_ms();

	for (;;) {
		struct record record = record_next(s);

		if (user_level_record(user, &record))
			return;
		if (!record.type) {
			REQUIRE(record.error == EAGAIN, "a record");
			REQUIRE(now_ms() - began < 60000, "a message within a minute");
			is_readable(s, SLEEP_MS);
		}
	}
}

static int compare(const void *a, const void *b)
{
	const double *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static double percentile(const double *sorted, int percent)
{
	return sorted[(messages - 1) * percent / 100];
}

/* The same share of messages is slow, and none is slower than losses in a row make it. */
static void check_times(const struct row *row, int times)
{
	static double took[WAYS][MESSAGES_MAX];
	const double *plain = took[PLAIN], *module = took[MODULE];

	for (int way = PLAIN; way < WAYS; way++) {
		size_t done = 0;

		while (done < sizeof(took[way])) {
			ssize_t got = read(times, (uint8_t *)took[way] + done,
					   sizeof(took[way]) - done);

			REQUIRE(got > 0, "the sender's times");
			done += (size_t)got;
		}
		qsort(took[way], (size_t)messages, sizeof(took[way][0]), compare);
	}
	printf("# %s: plain TCP %.1f, %.1f, %.1f; module %.1f, %.1f, %.1f ms (50, 75, 100 %%)\n",
	       row->words, percentile(plain, 50), percentile(plain, 75), percentile(plain, 100),
	       percentile(module, 50), percentile(module, 75), percentile(module, 100));
	CHECK(percentile(module, 100) <= 2 * percentile(plain, 100) + 2000, "none stands still");
	if (slow)
		return;
	CHECK(percentile(module, 50) <= 2 * percentile(plain, 50) + 5, "half are as fast");
	CHECK(percentile(module, 75) <= 2 * percentile(plain, 75) + 220, "three of four are");
}

static void run(const struct row *row)
{
	int domain = domain_open(), times[2], status, child, pairs[WAYS][2], wrong = 0;
	uint8_t *memory = region_make(domain, STAG, MESSAGE, DDP_RIGHT_WRITE);
	static uint8_t plain_memory[MESSAGE];
	static struct user_level plain, module;
	struct ddp_stats stats;

	plain = (struct user_level){ .stag = STAG, .memory = plain_memory, .length = MESSAGE };
	module = (struct user_level){ .stag = STAG, .memory = memory, .length = MESSAGE };
	tcp_pair_window(pairs[PLAIN], row->rcvbuf);
	tcp_pair_window(pairs[MODULE], row->rcvbuf);
	REQUIRE(bind_socket(domain, pairs[MODULE][1], row->flags) == 0, "BIND");
	REQUIRE(pipe(times) == 0, "pipe");
	child = fork();
	if (!child) {
		run_sender((int[WAYS]){ pairs[PLAIN][0], pairs[MODULE][0] }, row->fpdu, times[1]);
		_exit(0);
	}
	close(times[1]);
	for (int m = 0; m < messages; m++) {
		fill(m);
		read_plain(pairs[PLAIN][1], &plain);
		wrong += memcmp(plain_memory, payload, MESSAGE) != 0;
		send_all(pairs[PLAIN][1], "", 1);
		read_records(pairs[MODULE][1], &module);
		wrong += memcmp(memory, payload, MESSAGE) != 0;
		send_all(pairs[MODULE][1], "", 1);
	}
	stats = socket_stats(domain, pairs[MODULE][1]);
	CHECK(!wrong, "every octet is in place");
	CHECK(row->rcvbuf || stats.placed_octets > (uint64_t)MESSAGE * messages / 2,
	      "most octets were placed");
	check_times(row, times[0]);
	waitpid(child, &status, 0);
	CHECK(status == 0, "the sender has ended well");
	for (int way = PLAIN; way < WAYS; way++) {
		close(pairs[way][0]);
		close(pairs[way][1]);
	}
	close(times[0]);
	close(domain);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		messages = atoi(argv[1]);
	slow = argc > 2 && !strcmp(argv[2], "slow");
	REQUIRE(messages > 0 && messages <= MESSAGES_MAX, "1 to 1000 messages");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run(&rows[i]);
	return end_checks();
}
