/* SPDX-License-Identifier: BSD-2-Clause */
/* From the parts that the caller names to what is taken of each class. See refill.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/pool.h"
#include "post/refill.h"
#include "post/sgl.h"

static int count_of(const struct sgp_recv_part *part)
{
	return part->n ? part->n : 1;
}

int sgp_refill_chunks(const struct sgp_recv_part *parts, int n)
{
	int chunks = 0;

	for (int i = 0; i < n && chunks <= UINT16_MAX; i++) {
		if (parts[i].n < 0 || parts[i].n > UINT16_MAX)
			return -1;
		chunks += count_of(&parts[i]);
	}
	return chunks;
}

/* ---- making one ---- */

static int check_parts(const struct sgp_recv_part *parts, int n, int max_sge, size_t first)
{
	for (int i = 0; i < n; i++) {
		const struct sgp_recv_part *part = &parts[i];

		if (!part->pool || !part->size || part->n < 0 || part->n > UINT16_MAX)
			return sgp_fail(EINVAL,
					"receives: part %d needs a pool, a size and a "
					"number of chunks",
					i);
		if (part->size > SGP_MAX_SGE_LENGTH || part->offset > SGP_MAX_SGE_LENGTH)
			return sgp_fail(EMSGSIZE, "receives: part %d is above %d bytes", i,
					SGP_MAX_SGE_LENGTH);
	}
	if (parts[0].size < first)
		return sgp_fail(EINVAL,
				"receives: a datagram's first part needs %zu bytes for "
				"the header before it",
				first);
	if (sgp_refill_chunks(parts, n) > max_sge)
		return sgp_fail(E2BIG, "receives: %d chunks each, and the queue takes %d SGEs",
				sgp_refill_chunks(parts, n), max_sge);
	return 0;
}

/* The place of a class among the needs, which are in the order of their addresses. */
static struct sgp_need *need_of(struct sgp_refill *r, struct sgp_class *cls)
{
	struct sgp_need *need = r->need, *end = need + r->nneeds;

	while (need < end && (uintptr_t)need->cls < (uintptr_t)cls)
		need++;
	if (need == end || need->cls != cls) {
		memmove(need + 1, need, (size_t)(end - need) * sizeof *need);
		*need = (struct sgp_need){.cls = cls};
		r->nneeds++;
	}
	return need;
}

static int add_needs(struct sgp_refill *r, const struct sgp_recv_part *parts, int n)
{
	int first = 0;

	for (int i = 0; i < n; i++) {
		size_t size = parts[i].offset + parts[i].size;
		struct sgp_class *cls = sgp_pool_class(parts[i].pool, size);
		struct sgp_need *need;

		if (!cls)
			return -1;
		need = need_of(r, cls);
		need->pool = parts[i].pool;
		need->size = size > need->size ? size : need->size;
		need->n += count_of(&parts[i]);
	}
	for (int i = 0; i < r->nneeds; i++) {
		r->need[i].first = first;
		first += r->need[i].n;
	}
	return 0;
}

/* Which chunk each portion is; the needs' n are counted down and up again meanwhile. */
static void add_portions(struct sgp_refill *r, const struct sgp_recv_part *parts, int n)
{
	struct sgp_portion *portion = r->portion;

	for (int i = 0; i < r->nneeds; i++)
		r->need[i].n = 0;
	for (int i = 0; i < n; i++) {
		struct sgp_class *cls =
			sgp_pool_class(parts[i].pool, parts[i].offset + parts[i].size);
		struct sgp_need *need = need_of(r, cls);

		for (int j = 0; j < count_of(&parts[i]); j++)
			*portion++ = (struct sgp_portion){.chunk = need->first + need->n++,
							  .offset = (uint32_t)parts[i].offset,
							  .size = (uint32_t)parts[i].size};
	}
}

struct sgp_refill *sgp_refill_make(struct sgp_side *side, const struct sgp_recv_part *parts, int n,
				   int max_sge, int pd_index, size_t first)
{
	struct sgp_refill *r;
	size_t chunks;

	if (check_parts(parts, n, max_sge, first))
		return NULL;
	r = calloc(1, sizeof *r);
	if (!r)
		return sgp_fail_null(ENOMEM, "no memory for a receive ring");
	r->side = side;
	r->pd_index = pd_index;
	r->nchunks = sgp_refill_chunks(parts, n);
	r->waiter.ready = sgp_refill_ready;
	chunks = (size_t)r->nchunks;
	assert(chunks > 0); /* each part has one at least */
	r->need = calloc((size_t)n + 1, sizeof *r->need);
	r->portion = calloc(chunks, sizeof *r->portion);
	r->held = calloc(chunks, sizeof(struct sgp_chunk *));
	r->bulk = calloc(SGP_REFILL_CHAIN * chunks, sizeof(struct sgp_chunk *));
	r->scratch = calloc(SGP_REFILL_CHAIN * chunks, sizeof(struct sgp_chunk *));
	if (!r->need || !r->portion || !r->held || !r->bulk || !r->scratch) {
		sgp_set_error(ENOMEM, "no memory for a receive ring");
		goto fail;
	}
	if (add_needs(r, parts, n))
		goto fail;
	add_portions(r, parts, n);
	return r;
fail:
	sgp_refill_free(r);
	return NULL;
}

void sgp_refill_free(struct sgp_refill *r)
{
	int err = errno;

	if (!r)
		return;
	sgp_refill_drop_held(r);
	free(r->scratch);
	free(r->bulk);
	free(r->held);
	free(r->portion);
	free(r->need);
	free(r);
	errno = err;
}
