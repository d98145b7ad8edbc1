/* SPDX-License-Identifier: BSD-2-Clause */
/* Flow control: whatever a peer says is checked, and what is refused changes nothing. */
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../suite.h"
#include "flow_ends.h"

/* ---- the hello ---- */

static void any_flow(void)
{
	ends_open("soft", 3, 4, 0);
}

START_TEST(the_hello_on_the_wire)
{
	uint8_t hello[56] = {0};

	any_flow();
	sgp_flow_hello(&ends[0].flow, hello);
	ck_assert_mem_eq(hello, "SGPF\0\1\0\0\0\0\0\3\0\0\0\x40", SGP_FLOW_HELLO);
	ck_assert_int_eq(sgp_flow_greet(&ends[1].flow, hello, sizeof hello), 0);
	ck_assert_uint_eq(ends[1].flow.credits, 3);
	ck_assert_uint_eq(ends[1].flow.peer_bytes, BYTES);
	for (size_t n = 0; n < SGP_FLOW_HELLO; n++) {
		ck_assert_int_eq(sgp_flow_greet(&ends[1].flow, hello, n), -1);
		ck_assert_int_eq(errno, EPROTO);
	}
	ck_assert_int_eq(sgp_flow_greet(&ends[1].flow, NULL, 0), -1);
	ends_close();
}
END_TEST

START_TEST(a_hostile_hello)
{
	static const uint32_t depths[] = {0, 0x10000, 0x7fffffff, 0x80000000, UINT32_MAX},
			      lengths[] = {0, 7, 8, 0x80000000, UINT32_MAX};
	uint8_t good[SGP_FLOW_HELLO], hello[SGP_FLOW_HELLO];
	struct sgp_flow before;
	uint32_t value;

	any_flow();
	before = ends[0].flow;
	sgp_flow_hello(&ends[1].flow, good);
	for (size_t i = 0; i < 5; i++) {
		memcpy(hello, good, sizeof hello);
		value = htobe32(depths[i]);
		memcpy(hello + 8, &value, 4);
		ck_assert_int_eq(sgp_flow_greet(&ends[0].flow, hello, sizeof hello), -1);
		ck_assert_int_eq(errno, EPROTO);
		memcpy(hello, good, sizeof hello);
		value = htobe32(lengths[i]);
		memcpy(hello + 12, &value, 4);
		ck_assert_int_eq(sgp_flow_greet(&ends[0].flow, hello, sizeof hello), -1);
	}
	for (int bit = 0; bit < 64; bit++) { /* magic, version, flags */
		memcpy(hello, good, sizeof hello);
		hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(sgp_flow_greet(&ends[0].flow, hello, sizeof hello), -1);
	}
	ck_assert_mem_eq(&before, &ends[0].flow, sizeof before);
	ends_close();
}
END_TEST

/* ---- what a peer may say ---- */

/* Let the peer say a word, in a message of so many bytes. */
static int hear(struct sgp_flow *f, uint32_t word, uint32_t sequence, uint32_t bytes)
{
	uint8_t data[BYTES] = {0};
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = bytes};
	struct sgp_wc wc = {.opcode = IBV_WC_RECV,
			    .byte_len = bytes,
			    .imm_data = htobe32(word),
			    .wc_flags = f->flags & SGP_FLOW_IMMEDIATE ? IBV_WC_WITH_IMM : 0,
			    .sgl = {.sge = &sge, .num_sge = bytes > 0, .length = bytes}};

	word = htobe32(word);
	sequence = htobe32(sequence);
	memcpy(data, &word, 4);
	memcpy(data + 4, &sequence, 4);
	return sgp_flow_received(f, &wc);
}

static void refuse(struct sgp_flow *f, uint32_t word, uint32_t sequence, uint32_t bytes)
{
	const struct sgp_flow before = *f;

	ck_assert_int_eq(hear(f, word, sequence, bytes), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_mem_eq(&before, f, sizeof before);
}

#define UPDATE UINT32_C(0x80000000)
#define LAST   UINT32_C(0x40000000)

START_TEST(hostile_words)
{
	struct sgp_flow *f = &ends[0].flow;

	any_flow();
	for (uint32_t n = 0; n < SGP_FLOW_HEADER; n++)
		refuse(f, 0, 0, n);
	refuse(f, 0, 1, BYTES); /* a message is missing */
	refuse(f, 0, UINT32_MAX, BYTES);
	for (int bit = 18; bit < 30; bit++)
		refuse(f, UINT32_C(1) << bit, 0, BYTES);
	refuse(f, UPDATE | LAST, 0, SGP_FLOW_HEADER);
	refuse(f, UPDATE, 0, SGP_FLOW_HEADER + 1);
	refuse(f, UPDATE, 0, BYTES);
	/* All of its receives are granted already. */
	refuse(f, 1, 0, BYTES);
	refuse(f, 0xffff, 0, BYTES);
	refuse(f, UINT32_C(1) << 16, 0, BYTES);
	refuse(f, UINT32_C(3) << 16, 0, BYTES);
	ck_assert_int_eq(end_send(&ends[0], 0), 0);
	refuse(f, 2, 0, BYTES);
	ck_assert_int_eq(hear(f, 1, 0, BYTES), 1);
	refuse(f, 1, 1, BYTES);
	/* It may send three, and two updates. */
	ck_assert_int_eq(hear(f, 0, 1, SGP_FLOW_HEADER), 1);
	ck_assert_int_eq(hear(f, 0, 2, BYTES), 1);
	refuse(f, 0, 3, BYTES);
	ck_assert_int_eq(hear(f, UPDATE, 3, SGP_FLOW_HEADER), 0);
	ck_assert_int_eq(hear(f, UPDATE, 4, SGP_FLOW_HEADER), 0);
	refuse(f, UPDATE, 5, SGP_FLOW_HEADER);
	refuse(f, LAST, 5, BYTES);
	end_check(&ends[0]);
	ck_assert_int_eq(sgp_flow_posted(f, 6), -1);
	ck_assert_int_eq(sgp_flow_posted(f, 5), 0);
	ck_assert_int_eq(sgp_flow_posted(f, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	end_check(&ends[0]);
	ends_close();
}
END_TEST

START_TEST(nothing_after_the_last)
{
	struct sgp_flow *f = &ends[0].flow;

	any_flow();
	ck_assert_int_eq(hear(f, LAST, 0, BYTES), 1);
	refuse(f, 0, 1, BYTES);
	refuse(f, LAST, 1, BYTES);
	refuse(f, UPDATE, 1, SGP_FLOW_HEADER);
	ends_close();
}
END_TEST

/* It may have used an update's receive where its peer counts a message's: grants were on their way. */
START_TEST(the_last_crosses_a_grant)
{
	struct end *a = &ends[0], *b = &ends[1];

	ends_open("soft", 4, 1, _i ? SGP_FLOW_IMMEDIATE : 0);
	ck_assert_int_eq(end_send(a, 0), 0);
	while (!b->nheld)
		end_reap(b);
	end_repost(b);
	ck_assert_int_eq(end_send(b, 0), 0); /* grants one more; not reaped yet */
	ck_assert_uint_eq(a->flow.credits, 0);
	ck_assert_int_eq(end_send(a, SGP_FLOW_LAST), 0);
	while (!b->nheld)
		end_reap(b);
	ck_assert(b->flow.peer_ended);
	end_repost(b);
	ck_assert_int_eq(end_send(b, 0), 0);
	while (a->got < 2)
		end_reap(a);
	while (a->nheld)
		end_repost(a);
	ck_assert_int_eq(end_send(b, SGP_FLOW_LAST), 0);
	ends_settle();
	ck_assert_uint_eq(a->got, 3);
	ends_close();
}
END_TEST

START_TEST(no_flow_over_a_closed_endpoint)
{
	struct sgp_flow_attr attr = {
		.flags = _i ? SGP_FLOW_IMMEDIATE : 0, .depth = 3, .bytes = BYTES};
	struct sgp_flow flow;

	any_flow();
	attr.ep = ends[0].side->ep;
	attr.pool = ends[0].side->pool;
	ck_assert_int_eq(sgp_ep_close(attr.ep, 5000), 0);
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), -1);
	ck_assert_int_eq(errno, EINVAL);
	ends_close();
}
END_TEST

START_TEST(hostile_at_random)
{
	ends_open("soft", 3, 4, _i % 2 ? SGP_FLOW_IMMEDIATE : 0);
	srandom((unsigned int)_i + 1);
	for (int step = 0; step < 20000; step++) {
		struct sgp_flow *f = &ends[0].flow;
		const struct sgp_flow before = *f;
		/* Half of the words are nearly right. */
		const uint32_t word = random() % 2 ? (uint32_t)random() << 1 ^ (uint32_t)random()
						   : ((uint32_t)random() & 3) << 30 |
							     ((uint32_t)random() & 3) << 16 |
							     ((uint32_t)random() & 3);
		const uint32_t sequence = random() % 8 ? f->peer_seq : (uint32_t)random();
		const uint32_t bytes = random() % 4 ? (word & UPDATE ? SGP_FLOW_HEADER : BYTES)
						    : (uint32_t)random() % (BYTES + 1);

		if (hear(f, word, sequence, f->flags && word & UPDATE ? 0 : bytes) < 0)
			ck_assert_mem_eq(&before, f, sizeof before);
		f->peer_ended = false;
		if (random() % 2 && f->used + f->used_slots)
			ck_assert_int_eq(
				sgp_flow_posted(f,
						1 + (uint32_t)random() % (f->used + f->used_slots)),
				0);
		if (random() % 4 == 0) { /* what it has been told of may be used again */
			f->credits -= f->credits > 0;
			f->slots -= f->slots > 0;
			f->peer_credits += f->owed;
			f->peer_slots += f->owed_slots;
			f->owed = f->owed_slots = 0;
		}
		end_check(&ends[0]);
	}
	ends_close();
}
END_TEST

START_TEST(a_message_without_its_immediate)
{
	struct sgp_wc wc = {.opcode = IBV_WC_RECV, .byte_len = 4};

	ends_open("soft", 1, 1, SGP_FLOW_IMMEDIATE);
	ck_assert_int_eq(sgp_flow_received(&ends[0].flow, &wc), -1);
	ck_assert_int_eq(errno, EPROTO);
	refuse(&ends[0].flow, UPDATE, 0, 4); /* with bytes */
	ends_close();
}
END_TEST

/* ---- refusals that change nothing ---- */

START_TEST(wrong_attributes)
{
	struct sgp_flow flow = {0}, zero = {0};
	struct sgp_flow_attr good, attr;

	any_flow();
	good = (struct sgp_flow_attr){
		.ep = ends[0].side->ep, .pool = ends[0].side->pool, .depth = 14, .bytes = BYTES};
	ck_assert_int_eq(sgp_flow_init(&flow, &good), 0);
	flow = zero;
	for (int i = 0; i < 8; i++) {
		attr = good;
		switch (i) {
		case 0:
			attr.comp_mask = 1;
			break;
		case 1:
			attr.flags = 2;
			break;
		case 2:
			attr.ep = NULL;
			break;
		case 3:
			attr.pool = NULL;
			break;
		case 4:
			attr.depth = 0;
			break;
		case 5:
			attr.depth = 15;
			break;
		case 6:
			attr.depth = UINT32_MAX - 1;
			break;
		case 7:
			attr.bytes = SGP_FLOW_HEADER;
			break;
		}
		ck_assert_int_eq(sgp_flow_init(&flow, &attr), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	ck_assert_mem_eq(&flow, &zero, sizeof flow);
	/* The shortest that are any use. */
	attr = good;
	attr.bytes = SGP_FLOW_HEADER + 1;
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), 0);
	attr.flags = SGP_FLOW_IMMEDIATE;
	attr.bytes = 1;
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), 0);
	attr.bytes = 0;
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), -1);
	ck_assert_int_eq(errno, EINVAL);
	ends_close();
}
END_TEST

START_TEST(no_immediates_on_iwarp)
{
	struct sgp_flow flow;

	ends_open("siw", 1, 1, 0);
	ck_assert_int_eq(sgp_flow_init(&flow, &(struct sgp_flow_attr){.flags = SGP_FLOW_IMMEDIATE,
								      .ep = ends[0].side->ep,
								      .depth = 1,
								      .bytes = BYTES}),
			 -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ends_close();
}
END_TEST

static void send_refused(struct end *e, struct sgp_sgl *sgl, int err)
{
	const struct sgp_flow before = e->flow;
	const uint64_t length = sgl->length;

	ck_assert_int_eq(sgp_flow_sendv(&e->flow, NULL, sgl, 0), -1);
	ck_assert_int_eq(errno, err);
	ck_assert_mem_eq(&before, &e->flow, sizeof before);
	ck_assert_uint_eq(sgl->length, length);
}

START_TEST(wrong_messages)
{
	struct end *a = &ends[0];
	char foreign[BYTES];
	SGP_SGL(sgl, 4);

	any_flow();
	send_refused(a, &sgl, EINVAL);
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, foreign, sizeof foreign), 0);
	send_refused(a, &sgl, EINVAL);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a->side, 0), 0, SGP_FLOW_HEADER - 1), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a->side, 0), 0, BYTES / 2), 0);
	send_refused(a, &sgl, EINVAL);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a->side, 0), 0, BYTES), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a->side, 0), 0, 1), 0);
	send_refused(a, &sgl, EMSGSIZE);
	sgp_sgl_clear(&sgl);
	ends_close();
}
END_TEST

/* The header would be written into memory that is for sending only. */
START_TEST(no_header_into_what_is_read_only)
{
	struct sgp_import_attr attr = {.flags = SGP_IMPORT_READ_ONLY, .length = 4096};
	struct end *a = &ends[0];
	struct sgp_import *import;
	SGP_SGL(sgl, 4);

	any_flow();
	attr.addr = mmap(NULL, attr.length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(attr.addr, MAP_FAILED);
	import = sgp_pool_import(a->flow.pool, &attr);
	ck_assert_ptr_nonnull(import);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, import, 0, BYTES), 0);
	send_refused(a, &sgl, EINVAL);
	/* Behind a header of its own it goes. */
	ck_assert_int_eq(sgp_sgl_prepend(&sgl, rig_chunk(a->side, 0), 0, SGP_FLOW_HEADER), 0);
	ck_assert_int_eq(sgp_sgl_trim(&sgl, BYTES), 0);
	ck_assert_int_eq(sgp_flow_sendv(&a->flow, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	a->sending++;
	a->sent++;
	ends_settle();
	ck_assert_int_eq(sgp_pool_unimport(a->flow.pool, import), 0);
	munmap(attr.addr, attr.length);
	ends_close();
}
END_TEST

/* A device that refuses a post, and a pool that is empty: the next try is as the first. */
START_TEST(refused_posts)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct sgp_chunk *all[64];
	struct sgp_flow before;
	int n = 0;

	ends_open("soft", 1, 1, 0);
	before = a->flow;
	ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
	ck_assert_int_eq(end_send(a, 0), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_mem_eq(&before, &a->flow, sizeof before);
	ck_assert_int_eq(end_send(a, 0), 0);
	while (!b->got)
		end_reap(b);
	end_repost(b);
	before = b->flow;
	ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
	ck_assert_int_eq(end_update(b, 0), -1);
	ck_assert_mem_eq(&before, &b->flow, sizeof before);
	while ((all[n] = sgp_pool_get(b->side->pool, 1, 0)))
		n++;
	ck_assert_int_eq(end_update(b, 0), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_mem_eq(&before, &b->flow, sizeof before);
	sgp_chunk_put_bulk(all, (size_t)n);
	ck_assert_int_eq(end_update(b, 0), 1);
	ck_assert_int_eq(end_update(b, 0), 0);
	ends_settle();
	ends_close();
}
END_TEST

START_TEST(before_the_greeting)
{
	struct end *a = &ends[0];

	any_flow();
	a->flow.peer_depth = 0;
	ck_assert_int_eq(end_send(a, 0), -1);
	ck_assert_int_eq(errno, ENOTCONN);
	ck_assert_int_eq(hear(&a->flow, 0, 0, BYTES), -1);
	ck_assert_int_eq(errno, ENOTCONN);
	ck_assert_int_eq(sgp_flow_update(&a->flow, NULL, SGP_FLOW_ALIVE), 0);
	ck_assert_int_eq(sgp_flow_update(&a->flow, NULL, SGP_FLOW_LAST), -1);
	ends_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flow");
	TCase *tc = tcase_create("flow");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_hello_on_the_wire);
	tcase_add_test(tc, a_hostile_hello);
	tcase_add_test(tc, hostile_words);
	tcase_add_test(tc, nothing_after_the_last);
	tcase_add_loop_test(tc, the_last_crosses_a_grant, 0, 2);
	tcase_add_loop_test(tc, no_flow_over_a_closed_endpoint, 0, 2);
	tcase_add_loop_test(tc, hostile_at_random, 0, 4);
	tcase_add_test(tc, a_message_without_its_immediate);
	tcase_add_test(tc, wrong_attributes);
	tcase_add_test(tc, no_immediates_on_iwarp);
	tcase_add_test(tc, wrong_messages);
	tcase_add_test(tc, no_header_into_what_is_read_only);
	tcase_add_test(tc, refused_posts);
	tcase_add_test(tc, before_the_greeting);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
