/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire format: pure arithmetic on bytes, so that it can be tested with anything. */
#include <string.h>

#include "cli/wire.h"
#include "post/bytes.h"

#define HELLO_MAGIC   UINT32_C(0x53475048) /* "SGPH" */
#define MESSAGE_MAGIC UINT32_C(0x5347504d) /* "SGPM" */

void wire_put_hello(uint8_t bytes[WIRE_HELLO], const struct wire_hello *hello)
{
	memset(bytes, 0, WIRE_HELLO);
	put32(bytes, HELLO_MAGIC);
	put16(bytes + 4, WIRE_VERSION);
	put16(bytes + 6, hello->role);
	put32(bytes + 8, hello->reason);
}

void wire_put_header(uint8_t bytes[WIRE_HEADER], const struct wire_header *header)
{
	memset(bytes, 0, WIRE_BEGIN);
	put32(bytes + 8, MESSAGE_MAGIC);
	put16(bytes + 12, WIRE_VERSION);
	put16(bytes + 14, header->type);
	put64(bytes + 16, header->offset);
	put32(bytes + 24, header->length);
	put32(bytes + 28, header->code);
	memcpy(bytes + 32, header->digest, WIRE_DIGEST);
}

const char *wire_get_hello(const void *bytes, size_t n, struct wire_hello *hello)
{
	const uint8_t *at = bytes;
	uint16_t role;

	if (n < WIRE_HELLO || get32(at) != HELLO_MAGIC)
		return "it is not sgpool";
	if (get16(at + 4) != WIRE_VERSION)
		return "it speaks another version of the protocol";
	role = get16(at + 6);
	if (role < WIRE_SENDER || role > WIRE_SERVER)
		return "its role is unknown";
	*hello = (struct wire_hello){.role = role, .reason = get32(at + 8)};
	return NULL;
}

/* What a message's type asks of its other fields, and of what went before. */
static const char *check_type(const struct wire_peer *peer, const struct wire_header *h)
{
	const bool sender = peer->role == WIRE_SENDER;
	const bool perf = peer->role == WIRE_CLIENT || peer->role == WIRE_SERVER;

	if (h->type != WIRE_DATA && h->length)
		return "a message without data has a length";
	if (perf != (h->type == WIRE_PERF) && h->type != WIRE_ABORT)
		return "a message of the wrong command";
	if (sender && !peer->started && h->type != WIRE_START && h->type != WIRE_ABORT)
		return "it did not begin with a start";
	switch (h->type) {
	case WIRE_START:
		return !sender || peer->started ? "a start out of place" : NULL;
	case WIRE_DATA:
		if (!sender || peer->ended)
			return "data out of place";
		if (h->length == 0 || h->length > peer->payload_max)
			return "data of a wrong length";
		if (h->offset != peer->bytes || h->offset > (uint64_t)INT64_MAX - h->length)
			return "data at a wrong offset";
		return NULL;
	case WIRE_END:
		if (!sender || peer->ended)
			return "an end out of place";
		return h->offset != peer->bytes ? "an end that counts other bytes" : NULL;
	case WIRE_VERDICT:
		return sender || peer->ended ? "a verdict out of place" : NULL;
	case WIRE_PERF:
		return peer->ended ? "a message after the last" : NULL;
	case WIRE_ABORT:
		return h->code == WIRE_OK ? "an abort without a reason" : NULL;
	default:
		return "a message of unknown type";
	}
}

const char *wire_get_message(struct wire_peer *peer, const void *bytes, size_t n,
			     struct wire_header *header)
{
	const uint8_t *at = bytes;
	struct wire_header h;
	const char *wrong;

	if (n < WIRE_HEADER)
		return "a message shorter than its header";
	if (get32(at + 8) != MESSAGE_MAGIC || get16(at + 12) != WIRE_VERSION)
		return "a message without the magic number";
	h = (struct wire_header){.type = get16(at + 14),
				 .offset = get64(at + 16),
				 .length = get32(at + 24),
				 .code = get32(at + 28)};
	memcpy(h.digest, at + 32, WIRE_DIGEST);
	if (h.length != n - WIRE_HEADER)
		return "a message whose length is not what arrived";
	wrong = check_type(peer, &h);
	if (wrong)
		return wrong;
	peer->started |= h.type == WIRE_START;
	peer->ended |= h.type == WIRE_END || h.type == WIRE_VERDICT || h.type == WIRE_ABORT;
	if (h.type == WIRE_DATA)
		peer->bytes += h.length;
	*header = h;
	return NULL;
}

const char *wire_code_text(uint32_t code)
{
	static const char *const text[] = {
		[WIRE_OK] = "it is done",
		[WIRE_INTERRUPTED] = "it was interrupted",
		[WIRE_READ_FAILED] = "it could not read its file",
		[WIRE_WRITE_FAILED] = "it could not write its file",
		[WIRE_DIGEST_DIFFERS] = "what it got has another SHA-256",
		[WIRE_BAD_MESSAGE] =
			"it did not understand us: it is another command, or another version",
		[WIRE_NO_RESOURCES] = "it lacks memory or queues",
		[WIRE_BUSY] = "it is busy with somebody else",
	};

	return code < sizeof text / sizeof *text ? text[code] : "it did not say why";
}
