/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tree of topics, in both directions, against the plain comparison of one filter with one topic,
 * which is itself compared with the standard's examples; and the retained messages in it.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "retained.h"
#include "registry.h"

static struct budget budget;
static struct topics topics;

static struct mqtt_bytes text(const char *s)
{
	return (struct mqtt_bytes){.p = (const uint8_t *)s, .n = (uint16_t)strlen(s)};
}

static void setup(void)
{
	budget = (struct budget){.limit = 64 << 20};
	ck_assert_int_eq(topics_open(&topics, &budget), 0);
}

static void teardown(void)
{
	topics_close(&topics);
	ck_assert_uint_eq(budget.used, 0);
}

/* The standard's own examples (4.7.1, 4.7.2) and some corners. */
static const struct {
	const char *filter, *topic;
	bool matches;
} examples[] = {
	{"sport/tennis/player1/#", "sport/tennis/player1", true},
	{"sport/tennis/player1/#", "sport/tennis/player1/ranking", true},
	{"sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true},
	{"sport/#", "sport", true},
	{"#", "a", true},
	{"#", "/", true},
	{"sport/tennis/+", "sport/tennis/player1", true},
	{"sport/tennis/+", "sport/tennis/player1/ranking", false},
	{"sport/+", "sport", false},
	{"sport/+", "sport/", true},
	{"+/+", "/finance", true},
	{"/+", "/finance", true},
	{"+", "/finance", false},
	{"#", "$SYS/x", false},
	{"+/monitor/Clients", "$SYS/monitor/Clients", false},
	{"$SYS/#", "$SYS/x", true},
	{"$SYS/monitor/+", "$SYS/monitor/Clients", true},
	{"a/$x", "a/$x", true},
	{"a/+", "a/$x", true},
	{"A", "a", false},
	{"/a", "a", false},
	{"a/", "a", false},
	{"a//b", "a//b", true},
	{"a/+/b", "a//b", true},
	{"+/#", "a", true},
	{"+/+/#", "a/", true},
	{"a/b/#", "a", false},
};

static void count(void *arg, struct topic_node *node)
{
	ck_assert_ptr_nonnull(node->value);
	++*(int *)arg;
}

START_TEST(test_examples)
{
	for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
		const struct mqtt_bytes filter = text(examples[i].filter);
		const struct mqtt_bytes topic = text(examples[i].topic);
		struct topic_node *node = topics_add(&topics, filter);
		int n = 0;

		ck_assert_msg(mqtt_matches(filter, topic) == examples[i].matches, "%zu", i);
		node->value = &budget;
		topics_match_topic(&topics, topic, count, &n);
		ck_assert_msg(n == examples[i].matches, "%zu: %d by the filters", i, n);
		node->value = NULL;
		topics_prune(&topics, node);
		node = topics_add(&topics, topic);
		node->value = &budget;
		n = 0;
		topics_match_filter(&topics, filter, count, &n);
		ck_assert_msg(n == examples[i].matches, "%zu: %d by the topics", i, n);
		node->value = NULL;
		topics_prune(&topics, node);
		ck_assert_uint_eq(topics.nodes, 1);
	}
}
END_TEST

static void random_name(char *out, unsigned int *seed, bool filter)
{
	static const char *const levels[] = {"a", "b", "", "cc", "$d", "+", "#"};
	const int n = 1 + rand_r(seed) % 4;
	char *end = out;

	do {
		end = out;
		for (int i = 0; i < n; i++) {
			const char *level = levels[rand_r(seed) % (filter ? 7 : 5)];

			end += sprintf(end, "%s%s", i ? "/" : "", level);
			if (*level == '#')
				break;
		}
	} while (end == out);
}

enum {
	NAMES = 200,
	ROUNDS = 300,
};

/* Many at once, that come and go. */
START_TEST(test_random)
{
	static char names[NAMES][32];
	static struct topic_node *nodes[NAMES];
	unsigned int seed = (unsigned int)_i + 1;
	const bool filters = _i & 1;

	memset(nodes, 0, sizeof nodes);
	for (int i = 0; i < NAMES; i++) {
		random_name(names[i], &seed, filters);
		for (int k = 0; k < i; k++)
			if (!strcmp(names[k], names[i]))
				names[i][0] = 0; /* once is enough */
	}
	for (int round = 0; round < ROUNDS; round++) {
		const int i = rand_r(&seed) % NAMES;
		char probe[32];
		int want = 0, got = 0;

		if (!names[i][0])
			continue;
		if (nodes[i]) {
			ck_assert_ptr_eq(topics_find(&topics, text(names[i])), nodes[i]);
			nodes[i]->value = NULL;
			topics_prune(&topics, nodes[i]);
			nodes[i] = NULL;
		} else {
			nodes[i] = topics_add(&topics, text(names[i]));
			nodes[i]->value = &budget;
		}
		random_name(probe, &seed, !filters);
		for (int k = 0; k < NAMES; k++)
			want += nodes[k] && mqtt_matches(text(filters ? names[k] : probe),
							 text(filters ? probe : names[k]));
		if (filters)
			topics_match_topic(&topics, text(probe), count, &got);
		else
			topics_match_filter(&topics, text(probe), count, &got);
		ck_assert_msg(got == want, "%s: %d, not %d", probe, got, want);
	}
	for (int i = 0; i < NAMES; i++)
		if (nodes[i]) {
			nodes[i]->value = NULL;
			topics_prune(&topics, nodes[i]);
		}
	ck_assert_uint_eq(topics.nodes, 1);
}
END_TEST

/* Many children at one node, and what happens when there is no memory for another. */
START_TEST(test_wide_and_short)
{
	size_t n = 0;
	char name[32];
	int found = 0;

	budget.limit = 256 << 10;
	for (;; n++) {
		struct topic_node *node;

		sprintf(name, "x/%zu/y", n);
		node = topics_add(&topics, text(name));
		if (!node)
			break;
		node->value = &budget;
	}
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_gt(n, 100);
	ck_assert_uint_eq(topics.nodes, 2 + 2 * n);
	topics_match_filter(&topics, text("x/+/y"), count, &found);
	ck_assert_uint_eq((size_t)found, n);
	found = 0;
	topics_match_topic(&topics, text("x/7/y"), count, &found);
	ck_assert_int_eq(found, 1);
}
END_TEST

START_TEST(test_levels)
{
	char name[2 * TOPIC_LEVELS + 2];

	memset(name, '/', sizeof name);
	ck_assert(
		topics_can_hold((struct mqtt_bytes){.p = (uint8_t *)name, .n = TOPIC_LEVELS - 1}));
	ck_assert(!topics_can_hold((struct mqtt_bytes){.p = (uint8_t *)name, .n = TOPIC_LEVELS}));
}
END_TEST

/* ---- retained ---- */

static struct sgp_pool *pool;
static struct retained retained;

static void open_retained(void)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 32};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};

	budget = (struct budget){.limit = 1 << 20};
	pool = sgp_pool_create(NULL, &attr);
	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(retained_open(&retained, &budget, pool), 0);
}

static void close_retained(void)
{
	retained_close(&retained);
	ck_assert_uint_eq(budget.used, 0);
	ck_assert_msg(!sgp_pool_destroy(pool), "%s", sgp_errmsg());
}

/* Publish, retained; returns its order. */
static uint64_t retain(const char *topic, size_t bytes)
{
	const struct mqtt_publish publish = {.topic = text(topic), .retain = true};
	struct message *m;
	uint64_t order;
	SGP_SGL(sgl, 1);

	if (bytes)
		ck_assert_int_eq(sgp_sgl_get(&sgl, pool, bytes, 1, 0), 0);
	m = message_create(&budget, &publish, &sgl, 0);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(sgl.num_chunk, 0);
	retained_set(&retained, m);
	order = m->retain_order;
	message_put(m);
	return order;
}

static void sum(void *arg, struct message *m)
{
	*(uint64_t *)arg += m->payload.length;
}

static uint64_t sum_of(const char *filter, uint64_t *order)
{
	uint64_t bytes = 0;

	*order = retained_match(&retained, text(filter), sum, &bytes);
	return bytes;
}

static uint64_t live(void)
{
	struct sgp_pool_stats stats;

	sgp_pool_stats(pool, &stats);
	return stats.live;
}

START_TEST(test_retained)
{
	uint64_t order, refused;
	size_t messages, bytes;

	ck_assert_uint_eq(retain("a/b", 10), 1);
	ck_assert_uint_eq(retain("a/c", 100), 2);
	ck_assert_uint_eq(retain("$x", 1000), 3);
	ck_assert_uint_eq(live(), 3);
	ck_assert_uint_eq(sum_of("a/+", &order), 110);
	ck_assert_uint_eq(order, 3);
	ck_assert_uint_eq(sum_of("#", &order), 110);
	ck_assert_uint_eq(sum_of("$x", &order), 1000);
	ck_assert_uint_eq(retain("a/b", 20), 4); /* in place of the first */
	ck_assert_uint_eq(live(), 3);
	ck_assert_uint_eq(sum_of("a/b", &order), 20);
	ck_assert_uint_eq(retain("a/b", 0), 5); /* none any more */
	ck_assert_uint_eq(retain("never", 0), 6);
	ck_assert_uint_eq(live(), 2);
	ck_assert_uint_eq(sum_of("#", &order), 100);
	retained_numbers(&retained, &messages, &bytes, &refused);
	ck_assert_uint_eq(messages, 2);
	ck_assert_uint_eq(bytes, 2 * 4096);
	ck_assert_uint_eq(refused, 0);
}
END_TEST

/* Half of the chunks may be kept: 16. */
START_TEST(test_retained_limit)
{
	uint64_t order, refused;
	size_t messages, bytes;
	char topic[2 * TOPIC_LEVELS];

	for (int i = 0; i < 20; i++) {
		sprintf(topic, "t/%d", i);
		retain(topic, 4000);
	}
	retained_numbers(&retained, &messages, &bytes, &refused);
	ck_assert_uint_eq(messages, 16);
	ck_assert_uint_eq(refused, 4);
	ck_assert_uint_eq(bytes, 16 * 4096);
	ck_assert_uint_eq(live(), 16);
	/* One replaces another; one that can't be kept takes the topic's old one with it. */
	retain("t/0", 1);
	ck_assert_uint_eq(sum_of("t/0", &order), 1);
	retained.pins.classes[0].max_bytes = 15 * 4096;
	retain("t/0", 2);
	ck_assert_uint_eq(sum_of("t/0", &order), 0);
	memset(topic, '/', sizeof topic - 1);
	topic[sizeof topic - 1] = 0;
	retain("t/1", 0);
	retain(topic, 1);
	ck_assert_uint_eq(sum_of(topic, &order), 0);
	ck_assert_uint_eq(live(), 14);
}
END_TEST

/* Many in one chunk are that chunk, as long as one of them stays. */
START_TEST(test_retained_shared)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 4096, 0);
	char topic[16];

	for (size_t i = 0; i < 40; i++) {
		struct mqtt_publish publish = {.retain = true};
		struct message *m;
		SGP_SGL(sgl, 1);

		sprintf(topic, "t/%zu", i);
		publish.topic = text(topic);
		sgp_chunk_ref(chunk);
		ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, i * 100, 100), 0);
		m = message_create(&budget, &publish, &sgl, 0);
		retained_set(&retained, m);
		message_put(m);
		ck_assert_uint_eq(pins_bytes(&retained.pins), 4096);
	}
	sgp_chunk_put(chunk);
	for (size_t i = 0; i < 40; i++) {
		ck_assert_uint_eq(pins_bytes(&retained.pins), 4096);
		ck_assert_uint_eq(live(), 1);
		sprintf(topic, "t/%zu", i);
		retain(topic, 0);
	}
	ck_assert_uint_eq(pins_bytes(&retained.pins), 0);
	ck_assert_uint_eq(live(), 0);
}
END_TEST

/* ---- client identifiers ---- */

START_TEST(test_registry)
{
	struct registry registry;
	uint64_t before;
	char id[16];

	budget = (struct budget){.limit = 1 << 20};
	ck_assert_int_eq(registry_open(&registry, &budget), 0);
	for (uint64_t i = 1; i <= 1000; i++) {
		sprintf(id, "c%d", (int)i);
		ck_assert_int_eq(registry_claim(&registry, text(id), i, &before), 0);
		ck_assert_uint_eq(before, 0);
	}
	ck_assert_int_eq(registry_claim(&registry, text("c500"), 5000, &before), 0);
	ck_assert_uint_eq(before, 500);
	registry_leave(&registry, text("c500"), 500); /* too late: it's another's */
	ck_assert_int_eq(registry_claim(&registry, text("c500"), 5001, &before), 0);
	ck_assert_uint_eq(before, 5000);
	registry_leave(&registry, text("c500"), 5001);
	ck_assert_int_eq(registry_claim(&registry, text("c500"), 5002, &before), 0);
	ck_assert_uint_eq(before, 0);
	ck_assert_uint_eq(registry.n, 1000);
	budget.limit = budget.used;
	ck_assert_int_eq(registry_claim(&registry, text("more"), 1, &before), -1);
	ck_assert_int_eq(errno, ENOMEM);
	registry_close(&registry);
	ck_assert_uint_eq(budget.used, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("topics");
	TCase *tc = tcase_create("tree");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_examples);
	tcase_add_loop_test(tc, test_random, 0, 40);
	tcase_add_test(tc, test_wide_and_short);
	tcase_add_test(tc, test_levels);
	suite_add_tcase(s, tc);
	tc = tcase_create("retained");
	tcase_add_checked_fixture(tc, open_retained, close_retained);
	tcase_add_test(tc, test_retained);
	tcase_add_test(tc, test_retained_limit);
	tcase_add_test(tc, test_retained_shared);
	suite_add_tcase(s, tc);
	tc = tcase_create("identifiers");
	tcase_add_test(tc, test_registry);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
