/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages and the queue of a subscriber: references, limits, what is dropped. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "queue.h"

static struct budget budget;
static struct sgp_pool *pool;
static struct queue queue;

static void setup(void)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 64};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};

	budget = (struct budget){.limit = 1 << 20};
	pool = sgp_pool_create(NULL, &attr);
	ck_assert_ptr_nonnull(pool);
	queue = (struct queue){.budget = &budget};
}

static void teardown(void)
{
	queue_clear(&queue);
	ck_assert_uint_eq(queue.bytes, 0);
	ck_assert_uint_eq(queue.qos0, 0);
	ck_assert_uint_eq(budget.used, 0);
	ck_assert_msg(!sgp_pool_destroy(pool), "%s", sgp_errmsg());
}

static struct message *make(size_t bytes, uint8_t qos)
{
	const struct mqtt_publish publish = {.topic = {.p = (const uint8_t *)"t", .n = 1},
					     .qos = qos};
	struct message *m;
	SGP_SGL(sgl, 1);

	if (bytes)
		ck_assert_int_eq(sgp_sgl_get(&sgl, pool, bytes, 1, 0), 0);
	m = message_create(&budget, &publish, bytes ? &sgl : NULL, 0);
	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(m->payload.length, bytes);
	return m;
}

/* Queue a message that nobody else has. */
static void push(size_t bytes, uint8_t qos)
{
	struct message *m = make(bytes, qos);

	ck_assert_int_eq(queue_push(&queue, m, qos, false), 0);
	message_put(m);
}

static uint64_t live(void)
{
	struct sgp_pool_stats stats;

	sgp_pool_stats(pool, &stats);
	return stats.live;
}

/* The invariants, from the entries. */
static void check(void)
{
	size_t bytes = 0, qos0 = 0;

	for (size_t i = 0; i < queue.n; i++) {
		bytes += message_cost(queue_at(&queue, i)->message);
		qos0 += queue_at(&queue, i)->qos == 0;
	}
	ck_assert_uint_eq(queue.bytes, bytes);
	ck_assert_uint_eq(queue.qos0, qos0);
}

START_TEST(test_one_message_many_queues)
{
	struct queue other[8];
	struct message *m = make(100, 1);

	for (int i = 0; i < 8; i++) {
		other[i] = (struct queue){.budget = &budget};
		ck_assert_int_eq(queue_push(&other[i], m, 1, i & 1), 0);
	}
	message_put(m);
	ck_assert_uint_eq(live(), 1);
	for (int i = 0; i < 8; i++) {
		ck_assert_ptr_eq(queue_at(&other[i], 0)->message, m);
		ck_assert_int_eq(queue_at(&other[i], 0)->retain, i & 1);
		ck_assert_uint_eq(live(), 1);
		queue_clear(&other[i]);
	}
	ck_assert_uint_eq(live(), 0);
}
END_TEST

/* Pushes and pops in any number, against the numbers of the messages. */
START_TEST(test_order)
{
	size_t in = 0, out = 0;
	unsigned int seed = 5;

	for (int round = 0; round < 2000; round++) {
		if (rand_r(&seed) % 2 && queue.n < 60) {
			push(1 + in % 50, in % 3 == 0);
			in++;
		} else {
			const size_t n = queue.n ? (size_t)rand_r(&seed) % (queue.n + 1) : 0;

			for (size_t i = 0; i < n; i++, out++)
				ck_assert_uint_eq(queue_at(&queue, i)->message->payload.length,
						  1 + out % 50);
			queue_pop(&queue, n);
		}
		check();
		ck_assert_uint_eq(queue.n, in - out);
		ck_assert_uint_eq(live(), queue.n);
	}
}
END_TEST

START_TEST(test_limits)
{
	const struct queue_limits limits = {.messages = 3, .bytes = 14000};

	ck_assert(!queue_full(&queue, &limits, 1 << 30)); /* one is never too much */
	push(10, 0); /* which counts as its chunk, and its structure */
	ck_assert(!queue_full(&queue, &limits, 9000));
	ck_assert(queue_full(&queue, &limits, 10000));
	push(10, 0);
	ck_assert(!queue_full(&queue, &limits, 10));
	push(10, 0);
	ck_assert(queue_full(&queue, &limits, 10));
}
END_TEST

START_TEST(test_drop)
{
	static const uint8_t qos[] = {0, 1, 0, 0, 1, 0, 0, 1};

	for (size_t i = 0; i < sizeof qos; i++)
		push(1 + i, qos[i]);
	/* The two oldest of QoS 0 make room. */
	ck_assert_uint_eq(queue_drop_qos0(&queue, 6, SIZE_MAX), 2);
	check();
	ck_assert_uint_eq(queue.n, 6);
	ck_assert_uint_eq(queue_at(&queue, 0)->message->payload.length, 2);
	ck_assert_uint_eq(queue_at(&queue, 1)->message->payload.length, 4);
	ck_assert_uint_eq(live(), 6);
	ck_assert_uint_eq(queue_drop_qos0(&queue, 6, SIZE_MAX), 0);
	/* As many as it takes for the bytes; those of QoS 1 stay whatever is asked for. */
	ck_assert_uint_eq(queue_drop_qos0(&queue, SIZE_MAX, queue.bytes - 1), 1);
	ck_assert_uint_eq(queue_drop_qos0(&queue, 0, 0), 2);
	ck_assert_uint_eq(queue.n, 3);
	ck_assert_uint_eq(queue.qos0, 0);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(queue_at(&queue, i)->qos, 1);
	check();
}
END_TEST

START_TEST(test_no_memory)
{
	struct message *m = make(10, 0);
	const size_t used = budget.used;
	const struct mqtt_publish publish = {.topic = m->topic};
	SGP_SGL(sgl, 1);

	budget.limit = used;
	ck_assert_int_eq(queue_push(&queue, m, 0, false), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(queue.n, 0);
	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 10, 1, 0), 0);
	ck_assert_ptr_null(message_create(&budget, &publish, &sgl, 0));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(sgl.num_chunk, 1);
	sgp_sgl_clear(&sgl);
	ck_assert_uint_eq(budget.used, used);
	message_put(m);
	ck_assert_uint_eq(live(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("queue");
	TCase *tc = tcase_create("queue");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_message_many_queues);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_drop);
	tcase_add_test(tc, test_no_memory);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
