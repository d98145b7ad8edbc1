/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire format: what is written can be read again, and what nobody should write is refused. */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "cli/wire.h"

enum {
	PAYLOAD = 1000
};

static struct wire_peer sender(void)
{
	return (struct wire_peer){.role = WIRE_SENDER, .payload_max = PAYLOAD};
}

static struct wire_peer receiver(void)
{
	return (struct wire_peer){.role = WIRE_RECEIVER};
}

/* The structures have padding: they are compared by what they are on the wire. */
static void assert_same_hello(const struct wire_hello *a, const struct wire_hello *b)
{
	uint8_t bytes[2][WIRE_HELLO];

	wire_put_hello(bytes[0], a);
	wire_put_hello(bytes[1], b);
	ck_assert_mem_eq(bytes[0], bytes[1], WIRE_HELLO);
}

static void assert_same_header(const struct wire_header *a, const struct wire_header *b)
{
	uint8_t bytes[2][WIRE_HEADER];

	wire_put_header(bytes[0], a);
	wire_put_header(bytes[1], b);
	ck_assert_mem_eq(bytes[0], bytes[1], WIRE_HEADER);
}

/* Let the peer say h, with its payload behind it. Returns what is wrong. */
static const char *say(struct wire_peer *peer, struct wire_header h)
{
	const struct wire_peer before = *peer;
	struct wire_header got;
	uint8_t bytes[WIRE_HEADER];
	const char *wrong;

	memset(&got, 0x55, sizeof got);
	const struct wire_header untouched = got;

	wire_put_header(bytes, &h);
	wrong = wire_get_message(peer, bytes, (size_t)WIRE_HEADER + h.length, &got);
	if (wrong) {
		ck_assert_mem_eq(peer, &before, sizeof before);
		ck_assert_mem_eq(&got, &untouched, sizeof got);
	} else {
		assert_same_header(&got, &h);
	}
	return wrong;
}

static struct wire_header message(const struct wire_peer *peer, uint16_t type)
{
	struct wire_header h;

	memset(&h, 0, sizeof h);
	h.type = type;
	h.offset = type == WIRE_DATA || type == WIRE_END ? peer->bytes : 0;
	h.length = type == WIRE_DATA ? 1 : 0;
	h.code = type == WIRE_ABORT ? WIRE_INTERRUPTED : 0;
	return h;
}

static void start(struct wire_peer *peer)
{
	ck_assert_ptr_null(say(peer, message(peer, WIRE_START)));
}

START_TEST(hello_round_trip)
{
	const struct wire_hello hello = {WIRE_RECEIVER, 7};
	uint8_t bytes[WIRE_HELLO + 28] = {0}; /* InfiniBand pads */
	struct wire_hello got = {0};

	memset(bytes, 0x55, sizeof bytes);
	wire_put_hello(bytes, &hello);
	ck_assert_mem_eq(bytes, "SGPH\0\2\0\2\0\0\0\7\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", WIRE_HELLO);
	ck_assert_ptr_null(wire_get_hello(bytes, sizeof bytes, &got));
	assert_same_hello(&got, &hello);
	ck_assert_ptr_null(wire_get_hello(bytes, WIRE_HELLO, &got));
	for (size_t n = 0; n < WIRE_HELLO; n++)
		ck_assert_ptr_nonnull(wire_get_hello(bytes, n, &got));
}
END_TEST

START_TEST(hello_hostile)
{
	static const uint16_t bad[] = {0, WIRE_SERVER + 1, 9, 0x100, UINT16_MAX};
	const struct wire_hello good = {WIRE_SENDER, 0}, refusal = {WIRE_REFUSAL, 7};
	struct wire_hello got = good;
	uint8_t bytes[WIRE_HELLO];

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		wire_put_hello(bytes, &(struct wire_hello){.role = bad[i]});
		ck_assert_msg(wire_get_hello(bytes, sizeof bytes, &got) != NULL, "hello %zu", i);
		assert_same_hello(&got, &good);
	}
	wire_put_hello(bytes, &good);
	for (int i = 0; i < 6; i++) { /* magic and version */
		bytes[i] ^= 1;
		ck_assert_ptr_nonnull(wire_get_hello(bytes, sizeof bytes, &got));
		bytes[i] ^= 1;
	}
	ck_assert_ptr_null(wire_get_hello(bytes, sizeof bytes, &got));
	wire_put_hello(bytes, &refusal);
	ck_assert_ptr_null(wire_get_hello(bytes, sizeof bytes, &got));
	ck_assert_uint_eq(got.reason, 7);
}
END_TEST

START_TEST(whole_transfer)
{
	struct wire_peer s = sender(), r = receiver();
	struct wire_header h;

	start(&s);
	for (int i = 0; i < 3; i++) {
		h = message(&s, WIRE_DATA);
		h.length = PAYLOAD - (uint32_t)i;
		ck_assert_ptr_null(say(&s, h));
	}
	ck_assert_uint_eq(s.bytes, 3 * PAYLOAD - 3);
	h = message(&s, WIRE_END);
	memset(h.digest, 0xab, sizeof h.digest);
	ck_assert_ptr_null(say(&s, h));
	ck_assert(s.ended);
	ck_assert_ptr_null(say(&r, message(&r, WIRE_VERDICT)));
}
END_TEST

START_TEST(header_hostile)
{
	struct wire_peer peer = sender();
	struct wire_header h = message(&peer, WIRE_START), got;
	uint8_t bytes[WIRE_HEADER];

	wire_put_header(bytes, &h);
	for (size_t n = 0; n < WIRE_HEADER; n++)
		ck_assert_ptr_nonnull(wire_get_message(&peer, bytes, n, &got));
	ck_assert_ptr_nonnull(wire_get_message(&peer, bytes, WIRE_HEADER + 1, &got));
	for (int i = WIRE_BEGIN; i < WIRE_BEGIN + 8; i++) { /* magic, version, type */
		bytes[i] ^= 0x40;
		ck_assert_ptr_nonnull(wire_get_message(&peer, bytes, WIRE_HEADER, &got));
		bytes[i] ^= 0x40;
	}
	for (unsigned int type = 0; type < 100; type++)
		if (type != WIRE_START && type != WIRE_ABORT)
			ck_assert_ptr_nonnull(say(&peer, message(&peer, (uint16_t)type)));
	ck_assert_ptr_null(wire_get_message(&peer, bytes, WIRE_HEADER, &got));
}
END_TEST

START_TEST(data_hostile)
{
	struct wire_peer peer = sender();
	struct wire_header h, got;
	uint8_t bytes[WIRE_HEADER];

	start(&peer);
	ck_assert_ptr_nonnull(say(&peer, message(&peer, WIRE_START)));
	h = message(&peer, WIRE_DATA);
	for (uint64_t offset = 1; offset; offset <<= 1) {
		h.offset = offset;
		ck_assert_ptr_nonnull(say(&peer, h));
	}
	h = message(&peer, WIRE_DATA);
	h.length = 0;
	ck_assert_ptr_nonnull(say(&peer, h));
	h.length = PAYLOAD + 1;
	ck_assert_ptr_nonnull(say(&peer, h));
	h.length = UINT32_MAX;
	ck_assert_ptr_nonnull(say(&peer, h));
	/* A length that is not what came, shorter and longer. */
	h.length = 10;
	wire_put_header(bytes, &h);
	ck_assert_ptr_nonnull(wire_get_message(&peer, bytes, WIRE_HEADER + 9, &got));
	ck_assert_ptr_nonnull(wire_get_message(&peer, bytes, WIRE_HEADER + 11, &got));
	ck_assert_ptr_nonnull(
		wire_get_message(&peer, bytes, ((size_t)1 << 32) + WIRE_HEADER + 10, &got));
	ck_assert_ptr_null(wire_get_message(&peer, bytes, WIRE_HEADER + 10, &got));
	/* At the end of what a file can have. */
	peer.bytes = INT64_MAX - 10;
	h = message(&peer, WIRE_DATA);
	h.length = 11;
	ck_assert_ptr_nonnull(say(&peer, h));
	h.length = 10;
	ck_assert_ptr_null(say(&peer, h));
	ck_assert_ptr_nonnull(say(&peer, message(&peer, WIRE_DATA)));
}
END_TEST

START_TEST(ends_hostile)
{
	struct wire_peer s = sender(), r = receiver();
	struct wire_header h;

	start(&s);
	ck_assert_ptr_null(say(&s, message(&s, WIRE_DATA)));
	ck_assert_ptr_nonnull(say(&s, message(&s, WIRE_VERDICT)));
	h = message(&s, WIRE_END);
	h.offset = 2;
	ck_assert_ptr_nonnull(say(&s, h));
	h.offset = 1;
	h.length = 1;
	ck_assert_ptr_nonnull(say(&s, h));
	h.length = 0;
	ck_assert_ptr_null(say(&s, h));
	ck_assert_ptr_nonnull(say(&s, message(&s, WIRE_END)));
	ck_assert_ptr_nonnull(say(&s, message(&s, WIRE_DATA)));
	h = message(&s, WIRE_ABORT);
	h.code = WIRE_OK;
	ck_assert_ptr_nonnull(say(&s, h));
	ck_assert_ptr_null(say(&s, message(&s, WIRE_ABORT)));

	ck_assert_ptr_nonnull(say(&r, message(&r, WIRE_START)));
	ck_assert_ptr_nonnull(say(&r, message(&r, WIRE_DATA)));
	ck_assert_ptr_nonnull(say(&r, message(&r, WIRE_END)));
	ck_assert_ptr_null(say(&r, message(&r, WIRE_VERDICT)));
	ck_assert_ptr_nonnull(say(&r, message(&r, WIRE_VERDICT)));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *tc = tcase_create("wire");

	tcase_add_test(tc, hello_round_trip);
	tcase_add_test(tc, hello_hostile);
	tcase_add_test(tc, whole_transfer);
	tcase_add_test(tc, header_hostile);
	tcase_add_test(tc, data_hostile);
	tcase_add_test(tc, ends_hostile);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
