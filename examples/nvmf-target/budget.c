/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for commands (see budget.h). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "budget.h"
#include "queue.h"
#include "uring.h"
#include "wire.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum {
	COMMAND = sizeof(struct wire_command), /* responses are smaller */
	SMALL = 4096,
	MEDIUM = 32768,
	ADMIN_PAGES = 256, /* beside the capsules' pages */
	/*
	 * For each command that may be outstanding: a receive is posted, the command is carried out in
	 * another capsule's chunks, and a response or two wait for the completion of their send.
	 */
	PAGES = 2,
	HEADERS = 4,
	MAX_CAPSULES = 8192,
};

/* A quarter of the memory is for capsules, as far as anybody can use so many. */
void budget_init(struct budget *b, uint64_t bytes)
{
	uint64_t capsules = bytes / 4 / (PAGES * BUDGET_INSIDE + HEADERS * 2 * COMMAND);

	*b = (struct budget){0};
	b->ready_end = &b->ready;
	if (capsules > MAX_CAPSULES)
		capsules = MAX_CAPSULES;
	b->capsules = (uint32_t)capsules;
}

static struct sgp_pool *make_pool(struct ibv_pd *pd, struct sgp_class_attr *cls, uint32_t n,
				  struct uring *uring)
{
	struct sgp_pool_attr attr = {
		.classes = cls,
		.nclasses = n,
		.flags = SGP_POOL_READ_SINK,
		/* Pages of 2 MiB would round each size up to one, and --memory is a promise. */
		.pages = SGP_PAGES_THP,
		.region_bytes = GIB, /* the longest that io_uring takes as a fixed buffer */
		.region_add = uring_region_add,
		.region_remove = uring_region_remove,
		.region_arg = uring,
	};

	return sgp_pool_create(pd, &attr);
}

static int make_pools(struct budget *b, struct ibv_pd *pd, uint64_t bytes, struct uring *uring)
{
	const uint64_t control =
		(uint64_t)b->capsules * (PAGES * BUDGET_INSIDE + HEADERS * 2 * COMMAND) +
		(uint64_t)ADMIN_PAGES * SMALL;
	/* Each size is rounded up to whole pages: a little is left for that. */
	const uint64_t data = bytes - control - MIB / 4;
	struct sgp_class_attr capsules[] = {
		{.size = COMMAND, .chunks = (size_t)b->capsules * HEADERS},
		{.size = BUDGET_INSIDE, .chunks = (size_t)b->capsules * PAGES + ADMIN_PAGES},
	};
	struct sgp_class_attr classes[] = {
		{.size = SMALL, .chunks = data / 8 / SMALL},
		{.size = MEDIUM, .chunks = data / 8 / MEDIUM},
		{.size = REQUEST_CHUNK, .chunks = data / 4 * 3 / REQUEST_CHUNK},
	};

	b->control = make_pool(pd, capsules, 2, uring);
	if (!b->control)
		return -1;
	b->data = make_pool(pd, classes, 3, uring);
	if (!b->data) {
		sgp_pool_destroy(b->control);
		b->control = NULL;
		return -1;
	}
	b->zeroes = sgp_pool_get(b->data, REQUEST_CHUNK, 0);
	memset(sgp_chunk_addr(b->zeroes), 0, REQUEST_CHUNK);
	for (int i = 0; i < BUDGET_ZEROES; i++)
		b->zero_list[i] = (struct iovec){sgp_chunk_addr(b->zeroes), REQUEST_CHUNK};
	return 0;
}

int budget_add_device(struct budget *b, struct ibv_pd *pd, uint64_t bytes, struct uring *uring)
{
	int ret;

	if (!b->control) {
		ret = make_pools(b, pd, bytes, uring);
	} else {
		ret = sgp_pool_add_pd(b->control, pd);
		if (!ret) {
			ret = sgp_pool_add_pd(b->data, pd);
			if (ret)
				(void)sgp_pool_remove_pd(b->control, pd);
		}
	}
	if (ret)
		fprintf(stderr, "sgpool-nvmf-target: no memory: %s\n", sgp_errmsg());
	return ret;
}

int budget_remove_device(struct budget *b, struct ibv_pd *pd)
{
	if (sgp_pool_remove_pd(b->control, pd) == 0 && sgp_pool_remove_pd(b->data, pd) == 0)
		return 0;
	fprintf(stderr, "sgpool-nvmf-target: memory of a device stays: %s\n", sgp_errmsg());
	return -1;
}

int budget_end(struct budget *b)
{
	if (b->zeroes)
		sgp_chunk_put(b->zeroes);
	b->zeroes = NULL;
	if ((!b->data || sgp_pool_destroy(b->data) == 0) &&
	    (!b->control || sgp_pool_destroy(b->control) == 0))
		return 0;
	fprintf(stderr, "sgpool-nvmf-target: a pool does not end: %s\n", sgp_errmsg());
	return -1;
}

/* ---- a command's share ---- */

/* Chunks of which size, and how many, hold length bytes. */
static size_t share(uint32_t length, uint32_t *size)
{
	*size = length;
	if (length <= MEDIUM)
		return 1;
	*size = REQUEST_CHUNK;
	return (length + REQUEST_CHUNK - 1) / REQUEST_CHUNK;
}

/* Put the chunks that were got into the lists; together they have length bytes each. */
static void fill(struct request *r)
{
	const size_t n = r->waiter.n, each = r->lists == BUDGET_BOTH ? n / 2 : n;
	uint32_t left = r->taken;

	for (size_t i = 0; i < n; i++) {
		struct sgp_sgl *list = r->lists == BUDGET_FILE || i >= each ? &r->file : &r->data;
		uint32_t size;

		if (i == each)
			left = r->taken;
		size = left < REQUEST_CHUNK ? left : REQUEST_CHUNK;
		/* The list is as long as a command's share may be, and the slice is the chunk's. */
		if (sgp_sgl_append(list, r->got[i], 0, size))
			sgp_chunk_put(r->got[i]);
		left -= size;
	}
}

/* Called by whoever put the last chunk, deep inside the library: the loop does the rest. */
static void served(struct sgp_waiter *waiter)
{
	struct request *r = (struct request *)((char *)waiter - offsetof(struct request, waiter));
	struct budget *b = r->budget;

	r->next = NULL;
	*b->ready_end = r;
	b->ready_end = &r->next;
}

static void take(struct budget *b, struct request *r, struct sgp_pool *pool, int flags,
		 uint32_t length)
{
	uint32_t size;
	const size_t n = share(length, &size) << (r->lists == BUDGET_BOTH);

	r->budget = b;
	r->taken = length;
	r->waiter = (struct sgp_waiter){.ready = served, .chunks = r->got, .n = n};
	/* Nobody is overtaken: where others wait, this finds nothing. */
	if (sgp_pool_get_bulk(pool, size, flags, r->got, n)) {
		const int queued = sgp_waiter_start(&r->waiter, pool, size, flags);

		if (queued == 0) {
			r->waiting = true;
			b->waits++;
			b->waiting++;
			return;
		}
		if (queued < 0) { /* more than there is in all: step() finds the lists empty */
			r->waiter.n = 0;
			r->taken = 0;
		}
	}
	fill(r);
	r->step(r);
}

void budget_take(struct budget *b, struct request *r, uint32_t length, enum budget_lists lists)
{
	r->lists = (int)lists;
	take(b, r, b->data, 0, length);
}

void budget_take_control(struct budget *b, struct request *r, uint32_t length)
{
	r->lists = BUDGET_DATA;
	take(b, r, b->control, SGP_GET_RESERVED, length);
}

bool budget_cancel(struct budget *b, struct request *r)
{
	if (sgp_waiter_cancel(&r->waiter) != 1)
		return false;
	r->waiting = false;
	b->waiting--;
	return true;
}

int budget_run(struct budget *b)
{
	struct request *r;
	int n = 0;

	while ((r = b->ready) != NULL) {
		b->ready = r->next;
		if (!b->ready)
			b->ready_end = &b->ready;
		r->waiting = false;
		b->waiting--;
		fill(r);
		if (r->queue->ending)
			queue_drop(r);
		else
			r->step(r);
		n++;
	}
	return n;
}
