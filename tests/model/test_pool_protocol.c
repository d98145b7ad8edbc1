/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protocol by which a thread's magazine is reclaimed, explored exhaustively.
 *
 * It is written down here a second time, instruction by instruction, as two small machines over a
 * shared memory: an owner, whose stores wait in a buffer for any length of time (what x86 allows; a
 * load sees its own buffered stores), and a thread that reclaims, whose membarrier(2) drains the
 * owner's buffer at that moment. Every interleaving of their steps and of the buffer's drains is
 * visited. No chunk may ever be in two places, or in none.
 *
 * That the check can fail is shown by four wrong protocols, each of which must be caught: without
 * the barrier, with the owner's question before its announcement, with chunks taken from an owner
 * that is inside, and with the top, which the owner has read already, set by who took them.
 *
 *      sgpool/inline.h: sgp_mag_get, sgp_mag_put    get.c: the long way    cache.c: reclaim
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "../suite.h"

enum {
	CHUNKS = 3,
	BUFFER = 6,
	OPS = 4
};

enum variant {
	CORRECT,
	NO_BARRIER,
	ASK_FIRST,
	TAKE_INSIDE,
	SET_TOP,
	VARIANTS
};
static const char *const variant_name[] = {"correct", "no barrier", "ask first", "take inside",
					   "set top"};

/* The shared memory, a byte a cell. Items and the centre hold chunk numbers, 0 is none. */
enum cell {
	OPEN,
	TOP,     /* | INSIDE */
	EMPTIED, /* there is nothing in it, whatever the top says */
	ITEM,
	CENTRE = ITEM + CHUNKS,
	NCENTRE = CENTRE + CHUNKS,
	CELLS
};

enum {
	INSIDE = 0x80
};

struct state {
	uint8_t mem[CELLS];
	uint8_t locked; /* by 1: the owner, 2: the reclaimer */
	/* The owner. */
	uint8_t pc, op, top, chunk, ask;
	uint8_t held[CHUNKS + OPS], nheld; /* a broken variant hands chunks out twice */
	struct {
		uint8_t cell, value;
	} buffer[BUFFER];
	uint8_t nbuffer;
	/* The reclaimer. */
	uint8_t rpc, rround;
};

/* The owner's program counter. */
enum {
	O_START,
	O_TOP,
	O_ENTER,
	O_ASK,
	O_ITEM,
	O_LEAVE,
	O_LEAVE_SLOW,
	O_LOCK,
	O_SLOW,
	O_DONE
};
/* The reclaimer's. */
enum {
	R_LOCK,
	R_CLOSE,
	R_BARRIER,
	R_LOOK,
	R_TAKE,
	R_UNLOCK,
	R_DONE
};

static enum variant variant;
static unsigned int program; /* bit i: operation i is a put */
static bool pressure;        /* the long way leaves the magazine closed */

/* A hash set of the states that have been visited. */
#define SLOTS (1u << 18)
static struct state *seen;
static bool *used;
static size_t nseen, nseen_in_all;
static bool violated;

static bool is_put(const struct state *s)
{
	return program >> s->op & 1;
}

static uint8_t load(const struct state *s, int cell)
{
	for (int i = s->nbuffer; i-- > 0;)
		if (s->buffer[i].cell == cell)
			return s->buffer[i].value;
	return s->mem[cell];
}

static void store(struct state *s, int cell, int value)
{
	s->buffer[s->nbuffer].cell = (uint8_t)cell;
	s->buffer[s->nbuffer].value = (uint8_t)value;
	s->nbuffer++;
}

static void drain_one(struct state *s)
{
	s->mem[s->buffer[0].cell] = s->buffer[0].value;
	s->nbuffer--;
	memmove(s->buffer, s->buffer + 1, s->nbuffer * sizeof s->buffer[0]);
	memset(s->buffer + s->nbuffer, 0, sizeof s->buffer[0]); /* equal states look equal */
}

static void drain(struct state *s)
{
	while (s->nbuffer)
		drain_one(s);
}

static void give_centre(struct state *s, uint8_t chunk)
{
	s->mem[CENTRE + s->mem[NCENTRE]++] = chunk;
}

static uint8_t count(const struct state *s)
{
	return s->mem[EMPTIED] ? 0 : s->mem[TOP] & ~INSIDE;
}

/* By the owner. */
static void set_count(struct state *s, int n)
{
	s->mem[TOP] = (uint8_t)n;
	s->mem[EMPTIED] = 0;
}

static void empty(struct state *s)
{
	for (int i = count(s); i-- > 0;)
		give_centre(s, s->mem[ITEM + i]);
}

/* An operation of the owner has ended; a chunk that it got is its own. */
static void next_op(struct state *s)
{
	if (!is_put(s) && s->chunk)
		s->held[s->nheld++] = s->chunk;
	s->chunk = 0;
	s->top = 0;
	s->ask = 0;
	s->op++;
	s->pc = s->op < OPS ? O_START : O_DONE;
}

/* The long way, under the lock. */
static void slow(struct state *s)
{
	if (is_put(s)) {
		if (pressure) {
			empty(s);
			set_count(s, 0);
		}
		if (pressure || count(s) == CHUNKS) {
			give_centre(s, s->chunk);
		} else {
			s->mem[ITEM + count(s)] = s->chunk;
			set_count(s, count(s) + 1);
		}
	} else {
		empty(s);
		set_count(s, 0);
		if (s->mem[NCENTRE])
			s->chunk = s->mem[CENTRE + --s->mem[NCENTRE]];
	}
	if (!pressure)
		s->mem[OPEN] = 1;
}

/* One step of the owner; false when it can't. */
static bool owner(struct state *s)
{
	if (s->nbuffer >= BUFFER - 1)
		return false;
	switch (s->pc) {
	case O_START:
		if (is_put(s)) {
			if (!s->nheld) { /* nothing to put */
				next_op(s);
				return true;
			}
			s->chunk = s->held[--s->nheld];
			s->held[s->nheld] = 0;
		}
		s->ask = variant == ASK_FIRST ? load(s, OPEN) : 2;
		s->pc = O_TOP;
		return true;
	case O_TOP:
		s->top = load(s, TOP);
		s->pc = O_ENTER;
		return true;
	case O_ENTER:
		store(s, TOP, s->top | INSIDE);
		s->pc = O_ASK;
		return true;
	case O_ASK:
		if (s->ask == 2)
			s->ask = load(s, OPEN);
		if (s->ask && (is_put(s) ? s->top < CHUNKS : s->top > 0))
			s->pc = O_ITEM;
		else
			s->pc = O_LEAVE_SLOW;
		return true;
	case O_ITEM:
		if (is_put(s))
			store(s, ITEM + s->top, s->chunk);
		else
			s->chunk = load(s, ITEM + s->top - 1);
		s->pc = O_LEAVE;
		return true;
	case O_LEAVE:
		store(s, TOP, is_put(s) ? s->top + 1 : s->top - 1);
		next_op(s);
		return true;
	case O_LEAVE_SLOW:
		store(s, TOP, s->top);
		s->pc = O_LOCK;
		return true;
	case O_LOCK: /* a locked instruction: the buffer is empty after it */
		if (s->locked)
			return false;
		drain(s);
		s->locked = 1;
		s->pc = O_SLOW;
		return true;
	case O_SLOW:
		slow(s);
		s->locked = 0;
		next_op(s);
		return true;
	default:
		return false;
	}
}

/* One step of the reclaimer, which goes twice: the second time the magazine may be closed already.
 */
static bool reclaimer(struct state *s)
{
	switch (s->rpc) {
	case R_LOCK:
		if (s->locked)
			return false;
		s->locked = 2;
		s->rpc = s->mem[OPEN] ? R_CLOSE : R_LOOK;
		return true;
	case R_CLOSE:
		s->mem[OPEN] = 0;
		s->rpc = R_BARRIER;
		return true;
	case R_BARRIER:
		if (variant != NO_BARRIER)
			drain(s);
		s->rpc = R_LOOK;
		return true;
	case R_LOOK:
		s->rpc = s->mem[TOP] & INSIDE && variant != TAKE_INSIDE ? R_UNLOCK : R_TAKE;
		return true;
	case R_TAKE:
		empty(s);
		if (variant == SET_TOP)
			s->mem[TOP] = 0;
		else
			s->mem[EMPTIED] = 1;
		s->rpc = R_UNLOCK;
		return true;
	case R_UNLOCK:
		s->locked = 0;
		s->rpc = ++s->rround < 2 ? R_LOCK : R_DONE;
		return true;
	default:
		return false;
	}
}

/* At the end every chunk is in exactly one place. */
static bool whole(const struct state *s)
{
	int found[CHUNKS + 1] = {0};

	for (int i = 0; i < count(s); i++)
		found[s->mem[ITEM + i]]++;
	for (int i = 0; i < s->mem[NCENTRE]; i++)
		found[s->mem[CENTRE + i]]++;
	for (int i = 0; i < s->nheld; i++)
		found[s->held[i]]++;
	for (int i = 1; i <= CHUNKS; i++)
		if (found[i] != 1)
			return false;
	return found[0] == 0;
}

/* More in a place than there is room for is a violation before it is an overrun of our arrays. */
static bool sane(const struct state *s)
{
	return count(s) <= CHUNKS && s->mem[NCENTRE] <= CHUNKS && s->nheld <= CHUNKS &&
	       count(s) + s->mem[NCENTRE] <= CHUNKS + 1;
}

static bool visit(const struct state *s)
{
	uint64_t hash = 14695981039346656037ull;

	for (size_t i = 0; i < sizeof *s; i++)
		hash = (hash ^ ((const uint8_t *)s)[i]) * 1099511628211ull;
	for (size_t i = hash % SLOTS;; i = (i + 1) % SLOTS) {
		if (!used[i]) {
			used[i] = true;
			seen[i] = *s;
			ck_assert_uint_lt(++nseen, SLOTS / 2);
			nseen_in_all++;
			return true;
		}
		if (memcmp(&seen[i], s, sizeof *s) == 0)
			return false;
	}
}

static void explore(const struct state *s)
{
	struct state next;

	if (violated || !visit(s))
		return;
	if (!sane(s)) {
		violated = true;
		return;
	}
	if (s->pc == O_DONE && s->rpc == R_DONE && s->nbuffer == 0) {
		violated = !whole(s);
		return;
	}
	next = *s;
	if (owner(&next))
		explore(&next);
	next = *s;
	if (reclaimer(&next))
		explore(&next);
	if (s->nbuffer) {
		next = *s;
		drain_one(&next);
		explore(&next);
	}
}

/* All programs of OPS operations, from all ways in which the chunks may lie at the beginning. */
static bool find_violation(enum variant v)
{
	variant = v;
	violated = false;
	for (program = 0; program < 1u << OPS && !violated; program++) {
		for (unsigned int begin = 0; begin < 2 * (CHUNKS + 1) && !violated; begin++) {
			struct state s;
			uint8_t chunk = 1;

			pressure = begin & 1;
			memset(&s, 0, sizeof s);
			s.mem[OPEN] = 1;
			for (; chunk <= begin / 2; chunk++)
				s.mem[ITEM + s.mem[TOP]++] = chunk;
			for (; chunk <= CHUNKS; chunk++)
				s.held[s.nheld++] = chunk;
			memset(used, 0, SLOTS * sizeof *used);
			nseen = 0;
			explore(&s);
		}
	}
	return violated;
}

START_TEST(test_protocol)
{
	seen = malloc(SLOTS * sizeof *seen);
	used = malloc(SLOTS * sizeof *used);
	ck_assert(seen && used);
	nseen_in_all = 0;
	ck_assert_msg(!find_violation(CORRECT), "program %u", program);
	/* It has been somewhere. */
	ck_assert_uint_gt(nseen_in_all, 100000);
	for (enum variant v = NO_BARRIER; v < VARIANTS; v++)
		ck_assert_msg(find_violation(v), "'%s' was not caught", variant_name[v]);
	free(seen);
	free(used);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool protocol");
	TCase *tc = tcase_create("protocol");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_protocol);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
