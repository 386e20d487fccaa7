// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "user_level.h"

/* True: the Send. */
static bool take_ulpdu(struct user_level *user, const uint8_t *ulpdu, size_t n)
{
	uint64_t to;

	if (ulpdu[1] == (0x40 | OPCODE_SEND))
		return true;
	REQUIRE(n >= 14 && ulpdu[1] == (0x40 | OPCODE_WRITE), "a Write");
	if (get_be(ulpdu + 2, 4) != user->stag)
		return false;
	to = get_be(ulpdu + 6, 8);
	REQUIRE(to <= user->length && n - 14 <= user->length - to, "a Write within its region");
	memcpy(user->memory + to, ulpdu + 14, n - 14);
	user->stored++;
	return false;
}

bool user_level_octets(struct user_level *user, const uint8_t *octets, size_t n)
{
	bool sent = false;
	size_t at = 0;

	REQUIRE(n <= sizeof(user->held) - user->held_n, "room for an FPDU");
	memcpy(user->held + user->held_n, octets, n);
	user->held_n += n;
	while (user->held_n - at >= 2) {
		const uint8_t *fpdu = user->held + at;
		size_t ulpdu = get_be(fpdu, 2), covered = (2 + ulpdu + 3) & ~(size_t)3;
		uint32_t crc = 0;

		if (user->held_n - at < covered + 4)
			break;
		for (int i = 3; i >= 0; i--)
			crc = crc << 8 | fpdu[covered + (size_t)i];
		REQUIRE(crc == crc32c(fpdu, covered), "a CRC that holds");
		sent |= take_ulpdu(user, fpdu + 2, ulpdu);
		at += covered + 4;
	}
	memmove(user->held, user->held + at, user->held_n - at);
	user->held_n -= at;
	return sent;
}

bool user_level_record(struct user_level *user, const struct record *record)
{
	if (record->type == DDP_RECORD_RAW)
		return user_level_octets(user, record->body, record->length);
	return record->type == DDP_RECORD_ULPDU &&
	       take_ulpdu(user, record->body, record->length);
}
