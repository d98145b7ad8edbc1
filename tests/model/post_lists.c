/* SPDX-License-Identifier: BSD-2-Clause */
/* What operations share: endpoints, operations, the caller's references, lists and their stamps. */
#include <errno.h>
#include <string.h>

#include "post_model.h"

struct model_ep *some_ep(void)
{
	struct model_ep *e = &w.ep[pick((uint32_t)w.eps)];

	return e->ep ? e : NULL;
}

struct op *new_op(struct model_ep *e)
{
	for (int n = 0; n < OPS; n++) {
		struct op *op = &w.op[pick(OPS)];

		if (op->out)
			continue;
		*op = (struct op){.serial = ++w.serials, .ep = (int)(e - w.ep)};
		return op;
	}
	return NULL;
}

/* ---- the caller's references ---- */

void keep_held(struct sgp_chunk *chunk)
{
	if (w.nheld == HELD) {
		sgp_chunk_put(chunk);
		return;
	}
	w.held[w.nheld++] = chunk;
}

void drop_held(int i)
{
	sgp_chunk_put(w.held[i]);
	w.held[i] = w.held[--w.nheld];
}

void keep_list(struct sgp_sgl *sgl)
{
	for (int i = 0; i < sgl->num_chunk; i++) {
		sgp_chunk_ref(sgl->chunk[i]);
		keep_held(sgl->chunk[i]);
	}
	sgp_sgl_clear(sgl);
}

/* ---- lists ---- */

void fill(const struct sgp_sgl *sgl, uint64_t stamp)
{
	for (int i = 0; i < sgl->num_sge; i++)
		for (uint32_t at = 0; at < sgl->sge[i].length; at += 8)
			memcpy((char *)(uintptr_t)sgl->sge[i].addr + at, &stamp, 8);
}

uint64_t stamp_of(const struct sgp_sgl *sgl)
{
	uint64_t stamp = 0, word;

	for (int i = 0; i < sgl->num_sge; i++)
		for (uint32_t at = 0; at < sgl->sge[i].length; at += 8) {
			memcpy(&word, (char *)(uintptr_t)sgl->sge[i].addr + at, 8);
			CHECK(!stamp || word == stamp);
			stamp = word;
		}
	return stamp;
}

bool make_list(struct sgp_sgl *sgl, int n, bool whole)
{
	for (int i = 0; i < n; i++) {
		struct sgp_chunk *chunk = sgp_pool_get(w.pool, CHUNK, 0);
		size_t from = whole ? 0 : 8 * pick(16);

		if (!chunk) {
			CHECK(errno == ENOBUFS);
			sgp_sgl_clear(sgl);
			return false;
		}
		CHECK(sgp_sgl_append(sgl, chunk, from, whole ? CHUNK : 8 * (1 + pick(16))) == 0);
	}
	return true;
}

void remember(struct op *op, const struct sgp_sgl *sgl)
{
	op->nchunks = sgl->num_chunk;
	memcpy(op->chunk, sgl->chunk, (size_t)sgl->num_chunk * sizeof *sgl->chunk);
	op->length = sgl->length;
}

bool is_as_remembered(const struct op *op, const struct sgp_sgl *sgl)
{
	return sgl->num_chunk == op->nchunks && sgl->length == op->length &&
	       !memcmp(sgl->chunk, op->chunk, (size_t)op->nchunks * sizeof *op->chunk);
}
