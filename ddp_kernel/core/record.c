// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "record.h"

#include "marker.h"

/* Room is a multiple of the alignment, as is what records take. */
u64 ddp_record_room(const struct ddp_rx_reader *reader)
{
	u64 room = reader->room & ~(u64)(DDP_RECORD_ALIGN - 1);

	return room > sizeof(struct ddp_record) ? room - sizeof(struct ddp_record) : 0;
}

static bool begin(struct ddp_env *env, struct ddp_rx_reader *reader, u16 type, u32 length)
{
	struct ddp_record header = { .type = type, .length = length };

	if (reader->fault || length > ddp_record_room(reader))
		return false;
	if (ddp_env_give(env, &header, sizeof(header)))
		return true;
	reader->fault = true;
	return false;
}

static bool end(struct ddp_env *env, struct ddp_rx_reader *reader, u32 length, bool given)
{
	u64 bytes = DDP_RECORD_BYTES(length);
	u32 padding = (u32)(bytes - sizeof(struct ddp_record) - length);

	if (!given) {
		reader->fault = true;
		return false;
	}
	if (padding)
		ddp_env_skip(env, padding);
	reader->room -= bytes;
	reader->done += bytes;
	return true;
}

bool ddp_record_octets(struct ddp_env *env, struct ddp_rx_reader *reader, u16 type, u64 at, u32 n)
{
	return begin(env, reader, type, n) &&
	       end(env, reader, n, !n || ddp_env_give_stream(env, at, n));
}

bool ddp_record_marked_ulpdu(struct ddp_env *env, struct ddp_rx_reader *reader,
			     const struct ddp_fpdu *fpdu)
{
	return begin(env, reader, DDP_RECORD_ULPDU, fpdu->ulpdu) &&
	       end(env, reader, fpdu->ulpdu, ddp_marker_give_ulpdu(env, fpdu));
}

bool ddp_record_response(struct ddp_env *env, struct ddp_rx_reader *reader,
			 const struct ddp_fpdu *fpdu)
{
	struct ddp_response body = { .wire = fpdu->octets, .length = fpdu->payload };

	memcpy(body.header, fpdu->header, sizeof(body.header));
	return begin(env, reader, DDP_RECORD_RESPONSE, sizeof(body)) &&
	       end(env, reader, sizeof(body), ddp_env_give(env, &body, sizeof(body)));
}

static bool give_placed(struct ddp_env *env, struct ddp_rx_reader *reader,
			const struct ddp_tally *tally)
{
	struct ddp_placed body = {
		.wire = tally->wire,
		.octets = tally->octets,
		.fpdus = tally->fpdus,
		.messages = tally->messages,
		.last_to = tally->last_to,
		.last_stag = tally->last_stag,
		.last_length = tally->last_length,
		.last_control = tally->last_control,
		.last_rdmap = tally->last_rdmap,
		.message_octets = tally->message_octets,
	};

	return begin(env, reader, DDP_RECORD_PLACED, sizeof(body)) &&
	       end(env, reader, sizeof(body), ddp_env_give(env, &body, sizeof(body)));
}

bool ddp_record_pending(struct ddp_rx *rx, struct ddp_env *env, struct ddp_rx_reader *reader)
{
	if (!rx->pending.fpdus)
		return true;
	if (!give_placed(env, reader, &rx->pending))
		return false;
	memset(&rx->pending, 0, sizeof(rx->pending));
	return true;
}
