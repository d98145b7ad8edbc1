/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random allocations, reallocations, sends and frees on four threads that share an endpoint: what
 * arrives is what was sent, byte by byte, though most objects are freed or reallocated while they are
 * in flight; softverbs sees no buffer change under way; and at the end everything is back.
 *
 *      message   | header: seed, offset, length | slice of one object |     both objects of the heap
 *
 * test_heap_traffic [OPERATIONS [SEED]]
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "heap_rig.h"

#define THREADS 4
#define SLOTS   64
#define MOST    ((size_t)60000)
#define DEPTH   64

static unsigned long operations = 60000, seed_of_all = 1;
static atomic_ulong sent, completed, received;
static atomic_bool all_sent;

struct header {
	uint64_t seed;
	uint32_t offset, length;
};

/* An object of a sender: size bytes are filled from seed. */
struct object {
	unsigned char *ptr;
	size_t size;
	uint64_t seed;
};

struct sender {
	pthread_t thread;
	uint64_t random;
	struct object object[SLOTS];
	struct sgp_wc *wc;
	unsigned long sent, wanted;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t next(struct sender *s)
{
	return mix(s->random += UINT64_C(0x9e3779b97f4a7c15));
}

/* Bytes that tell where they belong: no two words of an object, nor of two objects, are alike. */
static void fill(unsigned char *to, uint64_t seed, size_t offset, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (unsigned char)((seed + (offset + i) / 8 * 0x9e3779b9u) >>
					(offset + i) % 8 * 5);
}

static bool is(const unsigned char *at, uint64_t seed, size_t offset, size_t n)
{
	unsigned char expected[512];

	while (n) {
		size_t piece = n < sizeof expected ? n : sizeof expected;

		fill(expected, seed, offset, piece);
		if (memcmp(at, expected, piece))
			return false;
		at += piece;
		offset += piece;
		n -= piece;
	}
	return true;
}

/* Most are small, a few are large. */
static size_t size_of_random(uint64_t r)
{
	size_t most = (size_t)16 << r % 12; /* 16 .. 32 KiB */

	most = r % 97 ? most : MOST;
	return 1 + (size_t)(r >> 16) % most;
}

static void make(struct sender *s, struct object *o)
{
	uint64_t r = next(s);

	o->size = size_of_random(r);
	o->seed = next(s);
	if (r >> 40 & 7)
		o->ptr = sgp_malloc(heap, o->size);
	else if (r >> 43 & 1)
		o->ptr = sgp_calloc(heap, 1, o->size);
	else
		o->ptr = sgp_aligned_alloc(heap, (size_t)1 << (r >> 44) % 13, o->size);
	ck_assert_msg(o->ptr != NULL, "%s", sgp_errmsg());
	fill(o->ptr, o->seed, 0, o->size);
}

static void end(struct object *o)
{
	sgp_free(o->ptr);
	o->ptr = NULL;
}

static void resize(struct sender *s, struct object *o)
{
	size_t size = size_of_random(next(s));
	unsigned char *ptr = sgp_realloc(heap, o->ptr, size);

	ck_assert_msg(ptr != NULL, "%s", sgp_errmsg());
	if (!is(ptr, o->seed, 0, size < o->size ? size : o->size))
		ck_abort_msg("%zu of %zu bytes are not what they were", size, o->size);
	/* If it was in flight it has moved, and this one is nobody else's. */
	*o = (struct object){.ptr = ptr, .size = size, .seed = next(s)};
	fill(o->ptr, o->seed, 0, o->size);
}

static void reap(struct sender *s)
{
	int n = sgp_poll(a->cq, RIG_WC, s->wc);

	ck_assert_msg(n >= 0, "%s", sgp_errmsg());
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(s->wc[i].status, IBV_WC_SUCCESS);
	atomic_fetch_add(&completed, (unsigned long)n);
	if (!n)
		sched_yield();
}

static void transmit(struct sender *s, const struct object *o)
{
	struct header *header = sgp_malloc(heap, sizeof *header);
	uint64_t r = next(s);
	size_t offset = (size_t)r % o->size, length = 1 + (size_t)(r >> 20) % (o->size - offset);
	size_t half = length / 2;
	int flags = r >> 60 & 1 ? IBV_SEND_SIGNALED : 0;
	SGP_SGL(sgl, 3);

	ck_assert_ptr_nonnull(header);
	*header = (struct header){
		.seed = o->seed, .offset = (uint32_t)offset, .length = (uint32_t)length};
	if (sgp_sgl_append_ptr(&sgl, header, 0, sizeof *header) ||
	    sgp_sgl_append_ptr(&sgl, o->ptr, offset, half) ||
	    sgp_sgl_append_ptr(&sgl, o->ptr, offset + half, length - half))
		ck_abort_msg("%s", sgp_errmsg());
	while (sgp_post_sendv(a->ep, NULL, &sgl, flags)) {
		ck_assert_msg(errno == EAGAIN, "%s", sgp_errmsg());
		reap(s);
	}
	sgp_free(header);
	s->sent++;
	s->wanted += flags != 0;
}

static void *run_sender(void *arg)
{
	struct sender *s = arg;

	for (unsigned long i = 0; i < operations / THREADS; i++) {
		struct object *o = &s->object[next(s) % SLOTS];
		uint64_t what = next(s) % 16;

		if (!o->ptr) {
			make(s, o);
		} else if (what < 9) {
			transmit(s, o);
			if (what < 5) /* freed, or changed by realloc, in flight */
				what & 1 ? end(o) : resize(s, o);
		} else if (what < 12) {
			resize(s, o);
		} else {
			if (!is(o->ptr, o->seed, 0, o->size))
				ck_abort_msg("an object has changed");
			end(o);
		}
		if (i % 16 == 0)
			reap(s);
	}
	for (int i = 0; i < SLOTS; i++)
		end(&s->object[i]);
	atomic_fetch_add(&sent, s->sent);
	return NULL;
}

static void check_message(const struct sgp_wc *wc)
{
	const unsigned char *at = (const unsigned char *)(uintptr_t)wc->sgl.sge[0].addr;
	struct header header;

	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_uint_ge(wc->byte_len, sizeof header);
	memcpy(&header, at, sizeof header);
	ck_assert_uint_eq(wc->byte_len, sizeof header + header.length);
	if (!is(at + sizeof header, header.seed, header.offset, header.length))
		ck_abort_msg("%u bytes from %u on have not arrived as they were sent",
			     header.length, header.offset);
}

static void post_receive(void)
{
	struct sgp_chunk *chunk = sgp_pool_get(b->pool, MOST + 64, 0);

	ck_assert_ptr_nonnull(chunk);
	ck_assert_int_eq(sgp_post_recv(b->ep, NULL, chunk, 0, MOST + 64), 0);
}

static void *run_receiver(void *arg)
{
	(void)arg;
	while (!atomic_load(&all_sent) || atomic_load(&received) < atomic_load(&sent)) {
		int n = sgp_wait(b->cq, RIG_WC, b->wc, 10);

		ck_assert_msg(n >= 0, "%s", sgp_errmsg());
		for (int i = 0; i < n; i++) {
			check_message(&b->wc[i]);
			sgp_sgl_clear(&b->wc[i].sgl);
			post_receive();
		}
		atomic_fetch_add(&received, (unsigned long)n);
	}
	return NULL;
}

START_TEST(test_traffic)
{
	static struct sender sender[THREADS];
	struct rig_attr attr = {
		.chunk_size = MOST + 64, .chunks = 2 * DEPTH, .depth = DEPTH, .max_sge = 4};
	struct sgp_heap_stats stats;
	unsigned long wanted = 0;
	pthread_t receiver;

	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
	sv_strict(1);
	make_heap(1024 * MIB, NULL);
	for (int i = 0; i < DEPTH; i++)
		post_receive();
	ck_assert_int_eq(pthread_create(&receiver, NULL, run_receiver, NULL), 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		sender[i].random = mix(seed_of_all * THREADS + i);
		sender[i].wc = sgp_wc_alloc(a->cq, RIG_WC);
		ck_assert_ptr_nonnull(sender[i].wc);
		ck_assert_int_eq(pthread_create(&sender[i].thread, NULL, run_sender, &sender[i]),
				 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(sender[i].thread, NULL);
		wanted += sender[i].wanted;
	}
	atomic_store(&all_sent, true);
	pthread_join(receiver, NULL);
	ck_assert_uint_gt(sent, operations / 4);
	ck_assert_uint_eq(received, sent);
	ck_assert_int_eq(sgp_ep_sync(a->ep), 0);
	do {
		reap(&sender[0]);
		sgp_heap_stats(heap, &stats);
	} while (stats.held || completed < wanted);
	ck_assert_uint_eq(completed, wanted);
	printf("%lu messages; %.1f MiB registered at the end\n", (unsigned long)sent,
	       (double)stats.registered / (1 << 20));
	ck_assert_int_eq(sgp_heap_trim(heap), 0);
	stats = stats_of();
	ck_assert_uint_eq(stats.allocated, 0);
	ck_assert_uint_eq(stats.registered, 0);
	for (unsigned int i = 0; i < sv_strict_count(); i++)
		fprintf(stderr, "%s\n", sv_strict_sentence(i));
	ck_assert_uint_eq(sv_strict_count(), 0);
	for (int i = 0; i < THREADS; i++)
		sgp_wc_free(sender[i].wc);
	teardown();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("heap traffic");
	TCase *tc = tcase_create("traffic");

	if (argc > 1)
		operations = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed_of_all = strtoul(argv[2], NULL, 10);
	tcase_set_timeout(tc, 1800);
	tcase_add_test(tc, test_traffic);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
