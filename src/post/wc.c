/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An array of completions, each with a list of its own, in one piece of memory:
 *
 *      [ n | wc[0] .. wc[n-1] | sge[n][max_sge] | chunk[n][max_chunk] ]
 */
#include <errno.h>
#include <stdlib.h>

#include "pool/errmsg.h"
#include "post/ep.h"

struct wc_array {
	size_t n;
	struct sgp_wc wc[];
};

struct sgp_wc *sgp_wc_alloc(const struct sgp_cq *cq, int n)
{
	struct wc_array *array;
	struct sgp_chunk **chunk;
	struct ibv_sge *sge;

	if (!cq || n < 1)
		return sgp_fail_null(EINVAL,
				     "completions: a queue and a number above 0 are needed");
	array = calloc(1, sizeof *array + n * (sizeof(struct sgp_wc) +
					       cq->max_sge * sizeof(struct ibv_sge) +
					       cq->max_chunk * sizeof(struct sgp_chunk *)));
	if (!array)
		return sgp_fail_null(ENOMEM, "no memory for %d completions", n);
	array->n = (size_t)n;
	sge = (struct ibv_sge *)(array->wc + n);
	chunk = (struct sgp_chunk **)(sge + (size_t)n * cq->max_sge);
	for (int i = 0; i < n; i++)
		sgp_sgl_init(&array->wc[i].sgl, sge + (size_t)i * cq->max_sge, cq->max_sge,
			     chunk + (size_t)i * cq->max_chunk, cq->max_chunk);
	return array->wc;
}

void sgp_wc_free(struct sgp_wc *wc)
{
	struct wc_array *array;

	if (!wc)
		return;
	array = (struct wc_array *)((char *)wc - offsetof(struct wc_array, wc));
	for (size_t i = 0; i < array->n; i++)
		sgp_sgl_clear(&wc[i].sgl);
	free(array);
}
